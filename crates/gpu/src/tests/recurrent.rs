//! Recurrent layers: their kernels against the reference, and states that go back and on.

use std::sync::Arc;

use draftscope_kernels::{Encoding, testing::Noise};

use super::blocks::matrix;
use super::kernels::{numbers, run, same_bits};
use super::reference::{Acts, Weights};
use super::reference_delta::Delta;
use super::sequences::{SHAPE, network_on, request, row, tokens};
use super::{gpu, own_gpu, stored};
use crate::launches::Binder;
use crate::memory::{LayerCache, Scratch};
use crate::weights::BlockWeights;
use crate::{
    DeltaShape, DeltaWeights, Form, Gpu, Logits, MAX_ROWS, Matrix, Network, PROMPT_ROWS, PassRows, Request, Sequence,
    Store, StoredRows, Style,
};

const DELTA: DeltaShape =
    DeltaShape { key_heads: 2, value_heads: 4, key_dim: 16, value_dim: 16, taps: 4, grouped: true };

/// Rates that keep states lively.
fn heads(shape: &DeltaShape, noise: &mut Noise) -> Vec<f32> {
    let decay = noise.numbers(shape.value_heads).into_iter().map(|x| -0.3 * x.abs() - 0.02);
    decay.chain(noise.numbers(shape.value_heads)).collect()
}

/// The projections are in two types, as in many files.
fn weights(gpu: &Gpu, shape: DeltaShape, noise: &mut Noise) -> (BlockWeights, [Vec<f32>; 3], [(Weights, usize); 2]) {
    let d = SHAPE.d_model;
    let rest = shape.value_width() + 2 * shape.value_heads;
    let parts = [(Encoding::F16, shape.channels()), (Encoding::F32, rest)]
        .map(|(encoding, rows)| (encoding, rows, stored(encoding, rows, d, noise)));
    let sources = parts.each_ref().map(|(encoding, rows, bytes)| StoredRows {
        encoding: *encoding,
        bytes,
        order: &|row| row,
        rows: *rows,
    });
    let projections = Matrix::upload(gpu, d, &sources).unwrap();
    let parts = parts.map(|(encoding, rows, bytes)| (Weights::new(Form::Of(encoding), encoding, &bytes, d), rows));
    let taps = noise.numbers(shape.channels() * shape.taps);
    let (heads, norm) = (heads(&shape, noise), noise.numbers(shape.value_dim));
    let delta = DeltaWeights { shape, taps: gpu.upload(&taps), heads: gpu.upload(&heads), norm: gpu.upload(&norm) };
    let block = BlockWeights {
        attn_norm: gpu.upload(&noise.numbers(d)),
        qkv: projections,
        bias: None,
        head_norms: None,
        out: matrix(gpu, Encoding::Q8_0, [d, shape.value_width()], noise).0,
        ffn_norm: gpu.upload(&noise.numbers(d)),
        gate: matrix(gpu, Encoding::Q8_0, [SHAPE.d_ff, d], noise).0,
        up: matrix(gpu, Encoding::Q8_0, [SHAPE.d_ff, d], noise).0,
        down: matrix(gpu, Encoding::Q8_0, [d, SHAPE.d_ff], noise).0,
        style: Style { delta: Some(delta), ..Style::default() },
    };
    (block, [taps, heads, norm], parts)
}

/// Passes of 1 to 16 rows, each after rows that run again, against a chain from the start.
#[test]
fn a_recurrent_layer_has_the_bits_of_the_reference() {
    let Some(gpu) = gpu() else { return };
    let wide = DeltaShape { key_heads: 1, value_heads: 2, key_dim: 128, value_dim: 32, taps: 3, grouped: true };
    for (seed, shape) in [(1, DELTA), (2, DeltaShape { grouped: false, ..DELTA }), (3, wide)] {
        let mut noise = Noise(seed);
        let (block, [taps, heads, norm], parts) = weights(&gpu, shape, &mut noise);
        let (d, eps) = (SHAPE.d_model, SHAPE.eps);
        let scratch = Scratch::new(&gpu, (&SHAPE, std::slice::from_ref(&block)), (200, 1)).unwrap();
        let cache = LayerCache::new(&gpu, (&SHAPE, &block), 200);
        let (delta, memory) = (block.style.delta.as_ref().unwrap(), cache.delta.as_ref().unwrap());
        let ops = Binder { gpu: &gpu, run: &scratch.run }.delta((delta, &block.qkv, eps), (&scratch, memory));
        assert_eq!(ops.len(), 5, "two projections, convolution, state, gates");
        let total = (1..=MAX_ROWS).sum::<usize>() + 2 * PROMPT_ROWS;
        let x = noise.numbers(total * d);
        let acts = Acts { values: x.clone(), ..Acts::default() };
        let dot = |row: usize| {
            let of =
                |(weights, rows): &(Weights, usize)| (0..*rows).map(|n| weights.dot(n, &acts, row)).collect::<Vec<_>>();
            parts.iter().flat_map(of).collect::<Vec<_>>()
        };
        let projected = (0..total).flat_map(dot);
        let reference = Delta { shape, taps: &taps, heads: &heads, norm: &norm, eps };
        let expected = reference.run(&projected.collect::<Vec<_>>());
        assert!(expected.iter().all(|x| x.is_finite()));
        let (width, mut base) = (shape.value_width(), 0);
        let few = (1..=MAX_ROWS).map(|m| (m, m - 1, Store::Before)); // the rows of the pass before run again
        let prompt = [(0, MAX_ROWS, Store::Before), (PROMPT_ROWS, 0, Store::After), (PROMPT_ROWS, 0, Store::After)];
        for (m, again, store) in few.chain(prompt) {
            let pass = PassRows { again, store, ..PassRows::chain(base, m) };
            if m == 0 {
                let alone = Binder { gpu: &gpu, run: &scratch.run }.delta_state(&shape, memory, &scratch.q);
                run(&gpu, &[alone], &scratch.run, &pass);
                continue;
            }
            gpu.write(&scratch.acts.values, 0, bytemuck::cast_slice(&x[base * d..(base + m) * d]));
            run(&gpu, &ops, &scratch.run, &pass);
            let got = numbers(&gpu, &scratch.attended.values, m * width);
            same_bits(&got, &expected[base * width..(base + m) * width], &format!("case {seed}, {m} rows"));
            base += m;
        }
    }
}

/// An attending block between two recurrent ones.
fn network_of(gpu: Arc<Gpu>) -> Arc<Network> {
    network_with(gpu, 200)
}

fn network_with(gpu: Arc<Gpu>, ctx_len: usize) -> Arc<Network> {
    let plain = network_on(Arc::clone(&gpu));
    let recurrent = [31, 32].map(|seed| weights(&gpu, DELTA, &mut Noise(seed)).0);
    let [first, second] = recurrent;
    Arc::new(Network {
        blocks: vec![first, plain.blocks[0].clone(), second],
        shape: plain.shape,
        final_norm: plain.final_norm.clone(),
        embedding: None,
        head: plain.head.clone(),
        angles: gpu.upload(&Noise(4).numbers(ctx_len * SHAPE.head_dim)),
        ctx_len,
        style: plain.style.clone(),
        gpu,
    })
}

fn of_three(tokens: &[u32]) -> Request<'_> {
    Request { layers: 3, ..request(tokens) }
}

#[test]
fn states_have_the_same_bits_however_rows_are_cut_and_a_pass_makes_no_buffer() {
    let Some(gpu) = own_gpu() else { return };
    let network = network_of(gpu);
    let tokens = tokens(150);
    let mut alone = Sequence::new(&network).unwrap();
    let singles: Vec<_> = tokens.iter().map(|token| alone.forward(of_three(&[*token])).unwrap()).collect();
    assert!(singles[3].scored != singles[4].scored);
    assert_eq!(crate::self_test(&mut Sequence::new(&network).unwrap()).unwrap(), None);
    let mut together = Sequence::new(&network).unwrap();
    let (mut at, mut sizes) = (0, [1, 2, 3, 5, 16, 1, 1, 11, 13, 4, 9].iter().cycle());
    while at < tokens.len() {
        let size = (*sizes.next().unwrap()).min(tokens.len() - at);
        let before = network.gpu.work();
        let out = together.forward(of_three(&tokens[at..at + size])).unwrap();
        let work = network.gpu.work().since(before);
        // nine launches a block, one more for the second projection of a recurrent one
        assert_eq!((work.buffers, work.dispatches), (0, 9 * 3 + 2 + 4));
        for i in 0..size {
            assert!(row(&out, i) == row(&singles[at + i], 0), "position {}", at + i);
        }
        at += size;
    }
    // a prompt: passes of 64, 64, 16 and 6 rows
    let mut prompt = Sequence::new(&network).unwrap();
    let before = network.gpu.work();
    let out = prompt.forward(Request { logits: Logits::Last, ..of_three(&tokens) }).unwrap();
    assert!(out.scored == singles[149].scored);
    assert!((0..150).all(|i| out.hidden[i * 64..][..64] == singles[i].hidden[..]));
    let [few, many] = [9, 8].map(|attending| 2 * 10 + attending + 2);
    let dispatches = network.gpu.work().since(before).dispatches;
    assert_eq!(
        dispatches,
        2 * (few + many) + 3,
        "embedding and norm a pass; norm, head and statistics of the last row"
    );
    // more copies of states at prompts than are kept
    for len in [100, 60, 20, 0] {
        prompt.truncate(len);
        let at = prompt.len();
        for tokens in tokens[at..at + 100.min(150 - at)].chunks(40) {
            prompt.forward(Request { logits: Logits::Last, ..of_three(tokens) }).unwrap();
        }
    }
    assert_eq!(network.gpu.work().since(before).buffers, 0);
}

/// A prompt of more rows than a submission has, and what follows it, against passes of 16 rows.
#[test]
fn a_prompt_of_two_submissions_leaves_the_states_of_short_passes() {
    let Some(gpu) = gpu() else { return };
    let network = network_with(gpu, 700);
    let tokens = tokens(620);
    let mut short = Sequence::new(&network).unwrap();
    let mut long = Sequence::new(&network).unwrap();
    for (start, end) in [(0, 530), (530, 533), (533, 600)] {
        let mut last = None;
        for tokens in tokens[start..end].chunks(MAX_ROWS) {
            last = Some(short.forward(of_three(tokens)).unwrap());
        }
        let last = last.unwrap();
        let out = long.forward(Request { logits: Logits::Last, ..of_three(&tokens[start..end]) }).unwrap();
        let rows = last.hidden.len() / SHAPE.d_model;
        assert!(out.scored.logits == row(&last, rows - 1).1, "rows {start} to {end}");
    }
    // back into the second prompt and before it
    for len in [585, 531] {
        let mut fork = long.fork().unwrap();
        fork.truncate(len);
        let at = fork.len();
        assert_eq!(at, if len == 585 { 585 } else { 512 }, "the longest length of which states are known");
        let mut plain = Sequence::new(&network).unwrap();
        for tokens in tokens[..at].chunks(MAX_ROWS) {
            plain.forward(of_three(tokens)).unwrap();
        }
        let next = of_three(&tokens[at..at + 2]);
        assert!(fork.forward(next).unwrap() == plain.forward(next).unwrap(), "after {len}");
    }
}

#[test]
fn every_length_of_a_pass_and_marks_of_prompts_can_be_returned_to() {
    let Some(gpu) = gpu() else { return };
    let network = network_of(gpu);
    let tokens = tokens(190);
    let mut plain = Sequence::new(&network).unwrap();
    let singles: Vec<_> = tokens.iter().map(|token| plain.forward(of_three(&[*token])).unwrap()).collect();
    let goes_on = |sequence: &Sequence, what: &str| {
        let (mut fork, at) = (sequence.fork().unwrap(), sequence.len());
        let out = fork.forward(of_three(&tokens[at..at + 2])).unwrap();
        assert!(row(&out, 1) == row(&singles[at + 1], 0), "{what}: {at}");
    };
    let prompt = |sequence: &mut Sequence, count: usize| {
        let at = sequence.len();
        sequence.forward(Request { logits: Logits::Last, ..of_three(&tokens[at..at + count]) }).unwrap();
    };
    // rounds of many rows of which some are kept
    let mut sequence = Sequence::new(&network).unwrap();
    prompt(&mut sequence, 40);
    goes_on(&sequence, "a prompt");
    for (rows, keep) in [(16, 1), (5, 5), (1, 1), (16, 15), (1, 1), (1, 1), (7, 0), (16, 16)] {
        let at = sequence.len();
        // a wrong token in all rows that are not kept
        let wrong: Vec<u32> = (0..rows).map(|i| if i < keep { tokens[at + i] } else { 7 }).collect();
        sequence.forward(of_three(&wrong)).unwrap();
        assert_eq!(sequence.rewindable(at + keep), at + keep);
        sequence.truncate(at + keep);
        goes_on(&sequence, &format!("{keep} of {rows} rows"));
    }
    // rows that run alone can be rolled back as far as a pass
    for _ in 0..45 {
        let at = sequence.len();
        sequence.forward(of_three(&tokens[at..=at])).unwrap();
        let mut back = sequence.fork().unwrap();
        assert_eq!(back.rewindable(at + 1 - 15), at + 1 - 15);
        if at.is_multiple_of(9) {
            back.truncate(at + 1 - 15);
            goes_on(&back, "15 rows back");
        }
    }
    // the end of the first prompt, and the start
    assert_eq!((sequence.rewindable(70), sequence.rewindable(39)), (16, 16));
    for len in [16, 0] {
        sequence.truncate(len);
        assert_eq!(sequence.len(), len);
        goes_on(&sequence, "a mark");
    }
    // a second prompt: before it, and near its end
    prompt(&mut sequence, 30);
    prompt(&mut sequence, 60);
    assert_eq!((sequence.rewindable(89), sequence.rewindable(40)), (89, 30));
    sequence.truncate(30);
    goes_on(&sequence, "before the second prompt");
    // passes that give all logits too
    sequence.forward(of_three(&tokens[30..70])).unwrap();
    goes_on(&sequence, "forty rows");
}
