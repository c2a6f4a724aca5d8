//! Whole blocks against the reference: in chains and in a tree, over more than one segment, of every family's style.

use draftscope_kernels::{Encoding, testing::Noise};
use half::f16;

use super::kernels::{numbers, run, same_bits};
use super::{gpu, stored};
use crate::block::{Binder, BlockWeights, Op, Shape};
use crate::buffers::{LayerCache, Scratch};
use crate::reference::{self, Acts, Weights};
use crate::{Form, Gpu, Matrix, PROMPT_ROWS, PassRows, StoredRows, Style};

pub(super) fn matrix(gpu: &Gpu, encoding: Encoding, [rows, k]: [usize; 2], noise: &mut Noise) -> (Matrix, Weights) {
    let bytes = stored(encoding, rows, k, noise);
    let source = StoredRows { encoding, bytes: &bytes, order: &|row| row, rows };
    let weights = Weights::new(Form::Of(encoding), encoding, &bytes, k);
    (Matrix::upload(gpu, k, &[source]).unwrap(), weights)
}

pub(super) fn times(weights: &Weights, n: usize, x: &Acts, m: usize) -> Vec<f32> {
    (0..m * n).map(|i| weights.dot(i % n, x, i / n)).collect()
}

/// What a block of a test has.
struct Case {
    encoding: Encoding,
    shape: Shape,
    bias: bool,
    head_norms: bool,
    /// Numbers; buffers are made of them.
    style: Style,
    post_norms: bool,
    own_angles: bool,
}

const SHAPE: Shape = Shape { d_model: 96, heads: 4, kv_heads: 2, head_dim: 32, d_ff: 160, eps: 1e-5 };

impl Case {
    fn plain(encoding: Encoding) -> Self {
        let (shape, style) = (SHAPE, Style::default());
        Self { encoding, shape, bias: false, head_norms: false, style, post_norms: false, own_angles: false }
    }
}

#[test]
fn a_block_has_the_bits_of_the_reference() {
    let Some(gpu) = gpu() else { return };
    check(&gpu, 1, Case::plain(Encoding::Q4_0));
    check(&gpu, 2, Case { bias: true, head_norms: true, ..Case::plain(Encoding::Q8_0) });
    check(&gpu, 3, Case { bias: true, head_norms: true, ..Case::plain(Encoding::F16) });
}

#[test]
fn a_block_with_a_window_caps_gelu_and_normed_outputs_has_the_bits_of_the_reference() {
    let Some(gpu) = gpu() else { return };
    for (seed, window) in [(4, None), (5, Some(9)), (6, Some(140))] {
        let style =
            Style { window, query_scale: Some(0.31), score_cap: window.map(|_| 2.5), gelu: true, ..Style::default() };
        let case = Case { style, head_norms: true, post_norms: true, own_angles: true, ..Case::plain(Encoding::Q8_0) };
        check(&gpu, seed, case);
    }
    // heads as wide as the kernels run
    let shape = Shape { heads: 2, kv_heads: 1, head_dim: 512, ..SHAPE };
    check(&gpu, 7, Case { shape, head_norms: true, ..Case::plain(Encoding::F32) });
}

#[test]
fn a_block_with_gates_and_partly_rotated_heads_has_the_bits_of_the_reference() {
    let Some(gpu) = gpu() else { return };
    let style = Style { gated: true, rotary: Some(8), ..Style::default() };
    check(&gpu, 8, Case { style, head_norms: true, ..Case::plain(Encoding::Q4K) });
}

fn check(gpu: &Gpu, seed: u64, case: Case) {
    let Case { encoding, shape, bias: with_bias, head_norms: with_norms, mut style, post_norms, own_angles } = case;
    // K-quants have rows of whole blocks of 256
    let shape = match encoding {
        Encoding::Q4K => Shape { d_model: 256, heads: 8, d_ff: 256, ..shape },
        _ => shape,
    };
    let Shape { d_model: d, heads, kv_heads, head_dim: hd, d_ff, eps } = shape;
    let all = heads + 2 * kv_heads;
    let width = (all + if style.gated { heads } else { 0 }) * hd;
    let (positions, base) = (300, 263);
    let mut noise = Noise(seed);
    let (qkv, qkv_weights) = matrix(gpu, encoding, [width, d], &mut noise);
    let (out, out_weights) = matrix(gpu, encoding, [d, heads * hd], &mut noise);
    let (gate, gate_weights) = matrix(gpu, encoding, [d_ff, d], &mut noise);
    let (up, up_weights) = matrix(gpu, encoding, [d_ff, d], &mut noise);
    let (down, down_weights) = matrix(gpu, encoding, [d, d_ff], &mut noise);
    let [attn_norm, ffn_norm, next_norm, after_attn, after_ffn] = [0; 5].map(|_| noise.numbers(d));
    let (bias, norms) = (noise.numbers(width), noise.numbers(2 * hd));
    let rotary = style.rotary.unwrap_or(hd);
    let angles: Vec<[f32; 2]> = noise.numbers(positions * rotary).as_chunks().0.to_vec();
    let angles_buffer = gpu.upload(&angles);
    let unused = gpu.upload(&noise.numbers(positions * rotary));
    style.angles = own_angles.then(|| angles_buffer.clone());
    style.post_norms = post_norms.then(|| [&after_attn, &after_ffn].map(|norm| gpu.upload(norm)));
    let weights = BlockWeights {
        attn_norm: gpu.upload(&attn_norm),
        qkv,
        bias: with_bias.then(|| gpu.upload(&bias)),
        head_norms: with_norms.then(|| gpu.upload(&norms)),
        out,
        ffn_norm: gpu.upload(&ffn_norm),
        gate,
        up,
        down,
        style,
    };
    let style = &weights.style;
    let blocks = std::slice::from_ref(&weights);
    let scratch = Scratch::new(gpu, (&shape, blocks), (positions, 1)).unwrap();
    let cache = LayerCache::new(gpu, (&shape, &weights), positions);
    let halves: Vec<f16> = noise.numbers(2 * positions * kv_heads * hd).into_iter().map(f16::from_f32).collect();
    let (keys, values) = halves.split_at(positions * kv_heads * hd);
    let bits = |halves: &[f16]| halves.iter().map(|half| half.to_bits()).collect::<Vec<_>>();
    let binder = Binder { gpu, run: &scratch.run };
    let next_buffer = gpu.upload(&next_norm);
    let of_model = if own_angles { &unused } else { &angles_buffer };
    let ops = binder.block_between(&shape, &weights, (&scratch, &cache, of_model), (false, Some(&next_buffer)));
    let launches = |ops: &[Op], m| ops.iter().filter(|op| op.workgroups(&PassRows::chain(0, m)).is_some()).count();
    assert_eq!(launches(&ops, 16), if post_norms { 10 } else { 9 });
    // after the first block, whose input is normed by the block before
    let entered = binder.block_between(&shape, &weights, (&scratch, &cache, of_model), (true, None));
    assert!(!post_norms || launches(&entered, 16) == 9);
    // a prompt's attention is one launch
    assert!(scratch.prompt_rows < 47 || launches(&ops, 47) == launches(&ops, 16) - 1);
    let x = noise.numbers(PROMPT_ROWS * d);
    let tree = PassRows::tree(base, &[0, 0, 0, 1, 2, 2, 5]);
    let passes =
        [PassRows::chain(base, 1), PassRows::chain(0, 3), tree, PassRows::chain(100, 47), PassRows::chain(230, 64)];
    for pass in passes.into_iter().filter(|pass| pass.m() <= scratch.prompt_rows) {
        let m = pass.m();
        gpu.write(&cache.keys, 0, bytemuck::cast_slice(&bits(keys)));
        gpu.write(&cache.values, 0, bytemuck::cast_slice(&bits(values)));
        gpu.write(&scratch.x, 0, bytemuck::cast_slice(&x));
        run(gpu, &ops, &scratch.run, &pass);
        // the reference
        let [mut keys, mut values] = [keys, values].map(|halves| halves.iter().map(|h| h.to_f32()).collect::<Vec<_>>());
        let mut x = x[..m * d].to_vec();
        let acts = Acts::of(reference::norm(&x, &attn_norm, eps));
        let qkv = times(&qkv_weights, width, &acts, m);
        let mut queries = Vec::new();
        for (i, head) in qkv.chunks_exact(hd).enumerate() {
            let (row, index) = (i / (width / hd), i % (width / hd));
            let own = |x: &[f32]| x.iter().zip(&bias[index * hd..]).map(|(x, b)| x + b).collect::<Vec<f32>>();
            let head = if with_bias { own(head) } else { head.to_vec() };
            let position = pass.base + pass.paths[row].len() - 1;
            let angles = Some(&angles[position * rotary / 2..][..rotary / 2]);
            let norm = |at: usize| with_norms.then(|| (&norms[at * hd..][..hd], eps));
            let place = |head: usize| ((pass.base + row) * kv_heads + head) * hd;
            let store = |to: &mut [f32], from: Vec<f32>| {
                to.iter_mut().zip(from).for_each(|(to, x)| *to = f16::from_f32(x).to_f32());
            };
            match index {
                _ if index < heads => {
                    let scale = style.query_scale.unwrap_or(1.0 / (hd as f32).sqrt());
                    queries.push(reference::rope(&head, norm(0), angles, scale));
                }
                _ if index < heads + kv_heads => {
                    store(&mut keys[place(index - heads)..], reference::rope(&head, norm(1), angles, 1.0));
                }
                _ if index < all => {
                    store(&mut values[place(index - heads - kv_heads)..], reference::rope(&head, None, None, 1.0));
                }
                _ => {} // gates
            }
        }
        let of_head = |cache: &[f32], kv: usize| -> Vec<f32> {
            cache.chunks_exact(hd).skip(kv).step_by(kv_heads).flatten().copied().collect()
        };
        let attended = queries.iter().enumerate().flat_map(|(i, query)| {
            let kv = i % heads / (heads / kv_heads);
            let cached = (&*of_head(&keys, kv), &*of_head(&values, kv));
            let mut out = reference::attend(query, cached, (i / heads, &pass), (style.window, style.score_cap));
            if style.gated {
                let gates = &qkv[i / heads * width + (all + i % heads) * hd..];
                out.iter_mut().zip(gates).for_each(|(x, gate)| *x /= 1.0 + reference::exp(-gate));
            }
            out
        });
        let acts = Acts::of(attended.collect());
        let add = |x: &mut Vec<f32>, y: Vec<f32>, post: &[f32]| match post_norms {
            true => *x = reference::norm_add(x, &y, post, (eps, 1.0)),
            false => x.iter_mut().zip(y).for_each(|(x, y)| *x += y),
        };
        add(&mut x, times(&out_weights, d, &acts, m), &after_attn);
        let acts = Acts::of(reference::norm(&x, &ffn_norm, eps));
        let gates = times(&gate_weights, d_ff, &acts, m);
        let ups = times(&up_weights, d_ff, &acts, m);
        let inner = gates.iter().zip(ups).map(|(gate, up)| reference::act_mul(*gate, up, style.gelu)).collect();
        add(&mut x, times(&down_weights, d, &Acts::of(inner), m), &after_ffn);
        let what = format!("case {seed}, {encoding:?}, {m} rows after {}", pass.base);
        same_bits(&numbers(gpu, &scratch.x, m * d), &x, &what);
        if post_norms {
            let next = reference::norm(&x, &next_norm, eps);
            same_bits(&numbers(gpu, &scratch.acts.values, m * d), &next, &format!("{what}, normed for the next"));
        }
    }
}

#[test]
fn capped_logits_have_the_bits_of_the_reference() {
    let Some(gpu) = gpu() else { return };
    let slots = gpu.uniform(crate::device::SLOT_BYTES);
    let logits: Vec<f32> = Noise(9).numbers(3 * 700).iter().map(|x| 30.0 * x).collect();
    let buffer = gpu.upload(&logits);
    let op = Binder { gpu: &gpu, run: &slots }.cap((&buffer, 700), 12.0);
    run(&gpu, &[op], &slots, &PassRows::chain(0, 3));
    let expected: Vec<f32> = logits.iter().map(|x| reference::capped(*x, Some(12.0))).collect();
    same_bits(&numbers(&gpu, &buffer, 3 * 700), &expected, "capped");
    assert!(expected.iter().zip(&logits).all(|(y, x)| (y - 12.0 * (x / 12.0).tanh()).abs() < 1e-4));
}
