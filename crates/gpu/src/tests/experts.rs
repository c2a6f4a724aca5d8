//! Experts against the reference: the choice, ties, the chosen ones of each row, and matrices that are cut into parts.

use std::sync::Arc;

use draftscope_kernels::{Encoding, testing::Noise};

use super::blocks::{matrix, times};
use super::kernels::{numbers, run, same_bits};
use super::own_gpu;
use super::reference::{self, Acts, Weights};
use crate::launches::Binder;
use crate::memory::Scratch;
use crate::weights::{BlockWeights, DenseWeights, ExpertWeights, Shape};
use crate::{Gpu, Matrix, PROMPT_ROWS, PassRows, StoredRows, Style};

const SHAPE: Shape = Shape { d_model: 96, heads: 4, kv_heads: 2, head_dim: 32, d_ff: 160, eps: 1e-5 };
const COUNT: usize = 6;
const USED: usize = 3;
const WIDTH: usize = 64;

/// Experts of a test on the host.
struct Host {
    router: Weights,
    gate: Weights,
    up: Weights,
    down: Weights,
    dense: [Weights; 3],
}

fn block(gpu: &Gpu, encoding: Encoding, (rescaled, has_gate): (bool, bool)) -> (BlockWeights, Host) {
    let (mut noise, d) = (Noise(31), SHAPE.d_model);
    // experts 1 and 4 always have the same score
    let mut numbers = noise.numbers((COUNT + usize::from(has_gate)) * d);
    numbers.copy_within(d..2 * d, 4 * d);
    let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
    let rows = COUNT + usize::from(has_gate);
    let stored = StoredRows { encoding: Encoding::F32, bytes: &bytes, order: &|row| row, rows };
    let router = Matrix::upload(gpu, d, &[stored]).unwrap();
    let of_router = Weights::new(router.form(), Encoding::F32, &bytes, d);
    let mut matrix = |rows, k| matrix(gpu, encoding, [rows, k], &mut noise);
    let ((gate, of_gate), (up, of_up)) = (matrix(COUNT * WIDTH, d), matrix(COUNT * WIDTH, d));
    let (down, of_down) = matrix(COUNT * d, WIDTH);
    let ((dense_gate, of_dense_gate), (dense_up, of_dense_up)) = (matrix(SHAPE.d_ff, d), matrix(SHAPE.d_ff, d));
    let (dense_down, of_dense_down) = matrix(d, SHAPE.d_ff);
    let experts =
        ExpertWeights { count: COUNT, used: USED, width: WIDTH, rescaled, factor: 1.5, router, gate, up, down };
    let block = BlockWeights {
        attn_norm: None,
        qkv: dense_gate.clone(),
        bias: None,
        head_norms: None,
        out: dense_down.clone(),
        ffn_norm: None,
        dense: has_gate.then_some(DenseWeights { gate: dense_gate, up: dense_up, down: dense_down }),
        experts: Some(experts),
        style: Style::default(),
    };
    let dense = [of_dense_gate, of_dense_up, of_dense_down];
    (block, Host { router: of_router, gate: of_gate, up: of_up, down: of_down, dense })
}

/// Numbers and weights of a row's experts.
fn choose(logits: &[f32], rescaled: bool) -> Vec<(usize, f32)> {
    let top = logits.iter().copied().fold(f32::MIN, f32::max);
    let odds: Vec<f32> = logits.iter().map(|x| reference::exp(x - top)).collect();
    let mut order: Vec<usize> = (0..odds.len()).collect();
    order.sort_by(|a, b| odds[*b].total_cmp(&odds[*a]).then(a.cmp(b)));
    let mut chosen = order[..USED].to_vec();
    chosen.sort_unstable();
    let sum = if rescaled {
        chosen.iter().fold(0.0, |sum, at| sum + odds[*at])
    } else {
        odds.iter().fold(0.0, |sum, odds| sum + odds)
    };
    chosen.into_iter().map(|at| (at, odds[at] / sum * 1.5)).collect()
}

/// What experts add to a row of the stream.
fn added(host: &Host, (acts, row): (&Acts, usize), (rescaled, has_gate): (bool, bool)) -> Vec<f32> {
    let d = SHAPE.d_model;
    let gated = |gate: &Weights, up: &Weights, rows: std::ops::Range<usize>| {
        let of_row = |n| reference::act_mul(gate.dot(n, acts, row), up.dot(n, acts, row), false);
        Acts::of(rows.map(of_row).collect())
    };
    let logits: Vec<f32> = (0..COUNT).map(|n| host.router.dot(n, acts, row)).collect();
    let mut sums = vec![0.0f32; d];
    for (expert, share) in choose(&logits, rescaled) {
        let inner = gated(&host.gate, &host.up, expert * WIDTH..(expert + 1) * WIDTH);
        sums.iter_mut().enumerate().for_each(|(i, sum)| *sum += share * host.down.dot(expert * d + i, &inner, 0));
    }
    if has_gate {
        let [gate, up, down] = &host.dense;
        let share = 1.0 / (1.0 + reference::exp(-host.router.dot(COUNT, acts, row)));
        let out = times(down, d, &gated(gate, up, 0..SHAPE.d_ff), 1);
        sums.iter_mut().zip(out).for_each(|(sum, y)| *sum += share * y);
    }
    sums
}

#[test]
fn experts_have_the_bits_of_the_reference_for_1_to_64_rows() {
    let Some(mut gpu) = own_gpu() else { return };
    let cases = [
        (Encoding::Q8_0, true, false, None),
        (Encoding::Q4_1, false, true, None),
        (Encoding::F16, true, true, None),
        // an expert's rows lie in two parts
        (Encoding::Q8_0, true, true, Some(96 * 96)),
        (Encoding::F32, false, false, Some(4 * 96 * 32)),
    ];
    for (encoding, rescaled, has_gate, part_bytes) in cases {
        if let Some(bytes) = part_bytes {
            Arc::get_mut(&mut gpu).expect("no sequence is open").limit_parts(bytes);
        }
        let (block, host) = block(&gpu, encoding, (rescaled, has_gate));
        let experts = block.experts.as_ref().unwrap();
        assert!(part_bytes.is_none() || experts.gate.parts.len() > 1, "{encoding:?} is cut");
        let d = SHAPE.d_model;
        let scratch = Scratch::new(&gpu, (&SHAPE, std::slice::from_ref(&block)), (64, 1)).unwrap();
        let x = Noise(32).numbers(PROMPT_ROWS * d);
        let binder = Binder { gpu: &gpu, run: &scratch.run };
        let mut ops = vec![binder.input((&scratch.x, None), (d, SHAPE.eps), &scratch.acts)];
        let memory = scratch.experts.as_ref().unwrap();
        ops.extend(binder.experts((experts, block.dense.as_ref()), (&scratch, memory), (d, false)));
        for m in [1, 2, 7, 16, 40, 64] {
            gpu.write(&scratch.x, 0, bytemuck::cast_slice(&x));
            run(&gpu, &ops, &scratch.run, &PassRows::chain(0, m));
            let acts = Acts::of(x[..m * d].to_vec());
            let sums = (0..m).flat_map(|row| added(&host, (&acts, row), (rescaled, has_gate)));
            let expected: Vec<f32> = x.iter().zip(sums).map(|(x, sum)| x + sum).collect();
            same_bits(&numbers(&gpu, &scratch.x, m * d), &expected, &format!("{encoding:?}, {m} rows"));
        }
    }
}
