//! Whole blocks against the reference: in chains and in a tree, over more than one segment, of every family's style.

use draftscope_kernels::{Encoding, testing::Noise};
use half::f16;

use super::kernels::{numbers, run, same_bits};
use super::reference::{self, Acts, Weights};
use super::{gpu, stored};
use crate::launches::{Binder, Op};
use crate::memory::{LayerCache, Scratch};
use crate::weights::{BlockWeights, Shape};
use crate::{Form, Gpu, LayerInput, LayerTable, Matrix, PROMPT_ROWS, PassRows, StoredRows, Style};

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
    /// Width of what the block adds for a token; 0 for nothing.
    input: usize,
}

const SHAPE: Shape = Shape { d_model: 96, heads: 4, kv_heads: 2, head_dim: 32, d_ff: 160, eps: 1e-5 };

impl Case {
    fn plain(encoding: Encoding) -> Self {
        let (shape, style) = (SHAPE, Style::default());
        Self { encoding, shape, bias: false, head_norms: false, style, post_norms: false, own_angles: false, input: 0 }
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

#[test]
fn a_block_with_narrow_heads_normed_values_and_inputs_has_the_bits_of_the_reference() {
    let Some(gpu) = gpu() else { return };
    let cases =
        [(11, 0, Some(0.7), Encoding::Q8_0), (12, 64, Some(1.3), Encoding::Q8_0), (13, 32, None, Encoding::F16)];
    for (seed, input, output_scale, encoding) in cases {
        let shape = Shape { head_dim: 16, ..SHAPE };
        let style = Style { norms_values: true, gelu: true, output_scale, ..Style::default() };
        check(&gpu, seed, Case { style, shape, head_norms: true, post_norms: true, input, ..Case::plain(encoding) });
    }
    // in passes over prompts, in types with tables, minimums and blocks of 256 weights; more outputs than one turn has
    let cases =
        [(15, 96, Encoding::Iq4Nl), (16, 32, Encoding::Q4_1), (17, 256, Encoding::Q4K), (18, 64, Encoding::Bf16)];
    for (seed, input, encoding) in cases {
        let style = Style { norms_values: true, gelu: true, output_scale: Some(1.1), ..Style::default() };
        check(&gpu, seed, Case { style, head_norms: true, post_norms: true, input, ..Case::plain(encoding) });
    }
}

fn check(gpu: &Gpu, seed: u64, case: Case) {
    let Case { encoding, shape, bias: with_bias, head_norms: with_norms, mut style, post_norms, own_angles, input } =
        case;
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
    let (bias, norms) = (noise.numbers(width), noise.numbers(3 * hd));
    let width_in = input.max(32);
    let (input_gate, input_gate_weights) = matrix(gpu, encoding_of(input, encoding), [width_in, d], &mut noise);
    let (project, project_weights) = matrix(gpu, encoding_of(input, encoding), [d, width_in], &mut noise);
    let (inputs, input_norm) = (noise.numbers(PROMPT_ROWS * width_in), noise.numbers(d));
    let rotary = style.rotary.unwrap_or(hd);
    let angles: Vec<[f32; 2]> = noise.numbers(positions * rotary).as_chunks().0.to_vec();
    let angles_buffer = gpu.upload(&angles);
    let unused = gpu.upload(&noise.numbers(positions * rotary));
    style.angles = own_angles.then(|| angles_buffer.clone());
    style.post_norms = post_norms.then(|| [&after_attn, &after_ffn].map(|norm| gpu.upload(norm)));
    if input > 0 {
        let input = LayerInput::new([input_gate, project], gpu.upload(&input_norm), 0);
        style.layer_input = Some(input.expect("one kernel runs both"));
    }
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
    // after the first block: the block before has normed its input
    let entered = binder.block_between(&shape, &weights, (&scratch, &cache, of_model), (true, None));
    assert!(!post_norms || launches(&entered, 16) == 9, "with an input for each token too");
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
        if input > 0 {
            gpu.write(&scratch.inputs, 0, bytemuck::cast_slice(&inputs));
        }
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
                    store(
                        &mut values[place(index - heads - kv_heads)..],
                        reference::rope(&head, norm(2).filter(|_| style.norms_values), None, 1.0),
                    );
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
        let add = |x: &mut Vec<f32>, y: Vec<f32>, (post, scale): (&[f32], f32)| match post_norms {
            true => *x = reference::norm_add(x, &y, post, (eps, scale)),
            false => x.iter_mut().zip(y).for_each(|(x, y)| *x += y),
        };
        add(&mut x, times(&out_weights, d, &acts, m), (&after_attn, 1.0));
        let acts = Acts::of(reference::norm(&x, &ffn_norm, eps));
        let gates = times(&gate_weights, d_ff, &acts, m);
        let ups = times(&up_weights, d_ff, &acts, m);
        let inner = gates.iter().zip(ups).map(|(gate, up)| reference::act_mul(*gate, up, style.gelu)).collect();
        let scale = style.output_scale.unwrap_or(1.0);
        let of_ffn = if input > 0 { 1.0 } else { scale };
        add(&mut x, times(&down_weights, d, &Acts::of(inner), m), (&after_ffn, of_ffn));
        if input > 0 {
            let gates = times(&input_gate_weights, input, &Acts::of(x.clone()), m);
            let inner =
                gates.iter().zip(&inputs).map(|(gate, input)| reference::act_mul(*gate, *input, true)).collect();
            add(&mut x, times(&project_weights, d, &Acts::of(inner), m), (&input_norm, scale));
        }
        let what = format!("case {seed}, {encoding:?}, {m} rows after {}", pass.base);
        same_bits(&numbers(gpu, &scratch.x, m * d), &x, &what);
        if post_norms {
            let next = reference::norm(&x, &next_norm, eps);
            same_bits(&numbers(gpu, &scratch.acts.values, m * d), &next, &format!("{what}, normed for the next"));
        }
    }
}

/// A type for matrices whose width is no whole block of the case's, where they are not used.
fn encoding_of(input: usize, encoding: Encoding) -> Encoding {
    if input > 0 { encoding } else { Encoding::F32 }
}

#[test]
fn inputs_of_blocks_have_the_bits_of_the_reference() {
    let Some(gpu) = gpu() else { return };
    let (mut noise, width, d, m) = (Noise(14), 32, SHAPE.d_model, 5);
    let (table, table_weights) = matrix(&gpu, Encoding::Q8_0, [40, 3 * width], &mut noise);
    let (project, project_weights) = matrix(&gpu, Encoding::Q8_0, [3 * width, d], &mut noise);
    let (norm, x, tokens) = (noise.numbers(width), noise.numbers(m * d), [3u32, 39, 0, 17, 3]);
    let of = LayerTable { width, table, project, norm: gpu.upload(&norm) };
    let block = |index| {
        let (gate, _) = matrix(&gpu, Encoding::F32, [width, d], &mut Noise(1));
        let (project, _) = matrix(&gpu, Encoding::F32, [d, width], &mut Noise(2));
        let input = LayerInput::new([gate, project], gpu.upload(&vec![0.0f32; d]), index).unwrap();
        let matrix = |rows, k| matrix(&gpu, Encoding::F32, [rows, k], &mut Noise(3)).0;
        BlockWeights {
            attn_norm: gpu.upload(&[0.0f32]),
            qkv: matrix(32, d),
            bias: None,
            head_norms: None,
            out: matrix(d, 32),
            ffn_norm: gpu.upload(&[0.0f32]),
            gate: matrix(32, d),
            up: matrix(32, d),
            down: matrix(d, 32),
            style: Style { layer_input: Some(input), ..Style::default() },
        }
    };
    let blocks: Vec<_> = (0..3).map(block).collect();
    let scratch = Scratch::new(&gpu, (&SHAPE, &blocks), (64, 1)).unwrap();
    gpu.write(&scratch.x, 0, bytemuck::cast_slice(&x));
    let ids = gpu.upload(&tokens);
    let ops = Binder { gpu: &gpu, run: &scratch.run }.layer_inputs(&of, &ids, (&scratch, &SHAPE));
    assert_eq!(ops.len(), 4);
    run(&gpu, &ops, &scratch.run, &PassRows::chain(0, m));
    let projected = times(&project_weights, 3 * width, &Acts::of(x), m);
    let scaled: Vec<f32> = projected.iter().map(|x| x * (1.0 / (d as f32).sqrt())).collect();
    let normed = reference::norm_of_heads(&scaled, &norm, SHAPE.eps);
    let root = (width as f32).sqrt();
    let expected = normed.iter().enumerate().map(|(i, normed)| {
        let looked_up = table_weights.weight(tokens[i / (3 * width)] as usize, i % (3 * width)) * root;
        (normed + looked_up) * std::f32::consts::FRAC_1_SQRT_2
    });
    same_bits(&numbers(&gpu, &scratch.inputs, m * 3 * width), &expected.collect::<Vec<_>>(), "inputs");
}

#[test]
fn an_input_that_one_kernel_does_not_run_is_none() {
    let Some(gpu) = gpu() else { return };
    let of = |encoding, shape| matrix(&gpu, encoding, shape, &mut Noise(1)).0;
    let input = |gate, project| LayerInput::new([gate, project], gpu.upload(&[0.0f32; 64]), 0).is_some();
    let (gate, project) = (of(Encoding::Q8_0, [32, 64]), of(Encoding::Q8_0, [64, 32]));
    assert!(input(gate.clone(), project.clone()));
    assert!(!input(gate, of(Encoding::F16, [64, 32])), "two forms");
    assert!(!input(of(Encoding::Q8_0, [64, 64]), project), "other sizes");
    assert!(!input(of(Encoding::Q8_0, [96, 64]), of(Encoding::Q8_0, [64, 96])), "wider than the residual stream");
}

#[test]
fn capped_logits_have_the_bits_of_the_reference() {
    let Some(gpu) = gpu() else { return };
    let slots = gpu.uniform(crate::kernels::SLOT_BYTES);
    let logits: Vec<f32> = Noise(9).numbers(3 * 700).iter().map(|x| 30.0 * x).collect();
    let buffer = gpu.upload(&logits);
    let op = Binder { gpu: &gpu, run: &slots }.cap((&buffer, 700), 12.0);
    run(&gpu, &[op], &slots, &PassRows::chain(0, 3));
    let expected: Vec<f32> = logits.iter().map(|x| reference::capped(*x, Some(12.0))).collect();
    same_bits(&numbers(&gpu, &buffer, 3 * 700), &expected, "capped");
    assert!(expected.iter().zip(&logits).all(|(y, x)| (y - 12.0 * (x / 12.0).tanh()).abs() < 1e-4));
}
