//! Whole sequences: the same bits however rows are cut into passes; trees, forks and rollback; counts.

use std::sync::Arc;

use draftscope_kernels::{Encoding, testing::Noise};

use super::{gpu, own_gpu, stored};
use crate::{
    BlockWeights, Difference, EndStyle, Form, Gpu, GpuError, Kernel, Matrix, ModuleOutput, ModuleSequence,
    ModuleWeights, Network, Output, PROMPT_ROWS, Request, Sequence, Shape, Slots, StoredRows, Style, self_test,
};

pub(super) const SHAPE: Shape = Shape { d_model: 64, heads: 4, kv_heads: 2, head_dim: 32, d_ff: 96, eps: 1e-5 };
pub(super) const VOCAB: usize = 530;
const LAYERS: usize = 2;

fn network() -> Option<Arc<Network>> {
    gpu().map(network_on)
}

pub(super) fn network_on(gpu: Arc<Gpu>) -> Arc<Network> {
    let mut noise = Noise(9);
    let mut matrix = |encoding, rows, k| {
        let bytes = stored(encoding, rows, k, &mut noise);
        Matrix::upload(&gpu, k, &[StoredRows { encoding, bytes: &bytes, order: &|row| row, rows }]).unwrap()
    };
    let Shape { d_model: d, heads, kv_heads, head_dim: hd, d_ff, .. } = SHAPE;
    let blocks = [Encoding::Q8_0, Encoding::F32].map(|encoding| BlockWeights {
        attn_norm: gpu.upload(&Noise(1).numbers(d)),
        qkv: matrix(encoding, (heads + 2 * kv_heads) * hd, d),
        bias: None,
        head_norms: None,
        out: matrix(encoding, d, heads * hd),
        ffn_norm: gpu.upload(&Noise(2).numbers(d)),
        gate: matrix(encoding, d_ff, d),
        up: matrix(encoding, d_ff, d),
        down: matrix(encoding, d, d_ff),
        style: Style::default(),
    });
    let head = matrix(Encoding::Q8_0, VOCAB, d);
    let angles = Noise(4).numbers(200 * hd);
    Arc::new(Network {
        shape: SHAPE,
        blocks: blocks.into(),
        final_norm: gpu.upload(&Noise(3).numbers(d)),
        embedding: None,
        head,
        angles: gpu.upload(&angles),
        ctx_len: 200,
        style: EndStyle::default(),
        gpu,
    })
}

pub(super) fn request(tokens: &[u32]) -> Request<'_> {
    Request { tokens, layers: LAYERS, all_logits: true, parents: None, states: &[None] }
}

pub(super) fn tokens(count: u32) -> Vec<u32> {
    (0..count).map(|i| i * 7919 % VOCAB as u32).collect()
}

/// Hidden state and logits of row `row`.
pub(super) fn row(out: &Output, row: usize) -> (&[f32], &[f32]) {
    (&out.hidden[row * 64..][..64], &out.logits[row * VOCAB..][..VOCAB])
}

#[test]
fn rows_run_together_or_alone_have_the_same_bits() {
    let Some(network) = network() else { return };
    let tokens = tokens(150);
    let mut alone = Sequence::new(&network).unwrap();
    let singles: Vec<_> = tokens.iter().map(|token| alone.forward(request(&[*token])).unwrap()).collect();
    assert!(singles.iter().all(|out| out.logits.iter().all(|x| x.is_finite())));
    assert!(singles[3].logits != singles[4].logits);
    for sizes in [&[16][..], &[150], &[1, 2, 3, 5, 7, 11, 13, 4, 9]] {
        let mut together = Sequence::new(&network).unwrap();
        let (mut at, mut sizes) = (0, sizes.iter().cycle());
        while at < tokens.len() {
            let size = (*sizes.next().unwrap()).min(tokens.len() - at);
            let out = together.forward(request(&tokens[at..at + size])).unwrap();
            for i in 0..size {
                assert!(row(&out, i) == row(&singles[at + i], 0), "position {}", at + i);
                assert!(out.stretches[2 * i..2 * i + 2] == singles[at + i].stretches);
            }
            at += size;
        }
    }
    // a prompt: all states, logits of the last row alone
    let mut prompt = Sequence::new(&network).unwrap();
    let out = prompt.forward(Request { all_logits: false, ..request(&tokens) }).unwrap();
    assert!(out.logits == singles[149].logits && out.stretches == singles[149].stretches);
    assert!((0..150).all(|i| out.hidden[i * 64..][..64] == singles[i].hidden[..]));
}

#[test]
fn rows_of_a_tree_have_the_bits_of_chains_and_one_path_is_kept() {
    let Some(network) = network() else { return };
    let tokens = tokens(130);
    let parents = [0, 0, 0, 1, 2, 2, 5];
    let mut tree = Sequence::new(&network).unwrap();
    tree.forward(Request { all_logits: false, ..request(&tokens[..125]) }).unwrap();
    let mut fork = tree.fork().unwrap();
    let rows: Vec<u32> = (0..7).map(|i| 11 * i + 3).collect();
    let out = tree.forward(Request { parents: Some(&parents), ..request(&rows) }).unwrap();
    let path = [0, 2, 5, 6];
    let chain: Vec<u32> = path.iter().map(|row| rows[*row]).collect();
    let expected = fork.forward(request(&chain)).unwrap();
    for (at, of_tree) in path.iter().enumerate() {
        assert!(row(&out, *of_tree) == row(&expected, at), "row {of_tree}");
    }
    tree.retain(125, &path).unwrap();
    assert_eq!(tree.len(), 129);
    assert!(tree.forward(request(&[5, 6])).unwrap() == fork.forward(request(&[5, 6])).unwrap());
    // back to the fork
    tree.truncate(126);
    fork.truncate(126);
    assert!(tree.forward(request(&[8])).unwrap() == fork.forward(request(&[8])).unwrap());
}

#[test]
fn states_between_blocks_and_early_passes() {
    let Some(network) = network() else { return };
    let tokens = tokens(40);
    let mut sequence = Sequence::new(&network).unwrap();
    sequence.set_states(3).unwrap();
    let states = [Some(1), None, Some(0)];
    let out = sequence.forward(Request { states: &states, ..request(&tokens) }).unwrap();
    let mut other = Sequence::new(&network).unwrap();
    let normed = other.forward(request(&tokens)).unwrap();
    assert!((0..40).all(|i| out.hidden[(3 * i + 1) * 64..][..64] == normed.hidden[i * 64..][..64]));
    other.truncate(0);
    let early = other.forward(Request { layers: 1, states: &[Some(1)], ..request(&tokens) }).unwrap();
    assert!((0..40).all(|i| out.hidden[3 * i * 64..][..64] == early.hidden[i * 64..][..64]));
    assert!(early.logits != normed.logits);
}

#[test]
fn a_pass_is_one_submission_with_nine_launches_a_block_and_no_new_buffer() {
    let Some(gpu) = own_gpu() else { return };
    let network = network_on(gpu);
    let mut sequence = Sequence::new(&network).unwrap();
    let before = network.gpu.work();
    sequence.forward(request(&[1, 2, 3])).unwrap();
    let work = network.gpu.work().since(before);
    // embedding, blocks, final norm, head, statistics
    assert_eq!((work.buffers, work.submissions, work.dispatches), (0, 1, 9 * LAYERS as u64 + 4));
    assert_eq!(work.read_bytes, 3 * (4 * 64 + 16 * 2 + 4 * VOCAB as u64));
    // a prompt: passes of 64, 64 and 22 rows, with one launch less a block; norm, head and statistics of the last row
    let before = network.gpu.work();
    sequence.forward(Request { all_logits: false, states: &[], ..request(&tokens(150)) }).unwrap();
    let work = network.gpu.work().since(before);
    let passes = 150u64.div_ceil(PROMPT_ROWS as u64);
    assert_eq!((work.buffers, work.submissions, work.dispatches), (0, 1, passes * (8 * LAYERS as u64 + 2) + 3));
}

#[test]
fn the_self_test_passes_and_finds_wrong_kernels() {
    let Some(gpu) = own_gpu() else { return };
    let network = network_on(gpu);
    assert_eq!(self_test(&network).unwrap(), None);
    let eight = Kernel::Matrix(Form::Of(Encoding::Q8_0)).for_rows(8);
    // wrong for one row of eight
    let wrong = eight
        .source()
        .replace("let sum = partial[64u * i + t - lane]", "let sum = partial[64u * (i - i % ROWS / 7u) + t - lane]");
    assert_ne!(wrong, network.gpu.source(eight));
    network.gpu.replace(eight, &wrong);
    assert_eq!(self_test(&network).unwrap(), Some(Difference { rows: 16, row: 7 }));
    // right, but the lanes are added in another order for eight rows
    let order = eight.source().replace(
        "for (var step = LANES / 2u; step >= SHUFFLED; step /= 2u) {\n        if lane < step {",
        "for (var step = 1u; step < LANES; step *= 2u) {\n        if lane % (2u * step) == 0u {",
    );
    assert_ne!(order, eight.source());
    network.gpu.replace(eight, &order);
    assert!(matches!(self_test(&network).unwrap(), Some(Difference { rows: 5, .. })));
    network.gpu.replace(eight, &network.gpu.source(eight));
    assert_eq!(self_test(&network).unwrap(), None);
    // tiles that join their lanes one after the other
    let tile = Kernel::Matrix(Form::Of(Encoding::Q8_0)).for_rows(PROMPT_ROWS);
    let order = tile.source().replace("reverseBits(turn) >> 28u", "turn");
    assert_ne!(order, tile.source());
    network.gpu.replace(tile, &order);
    assert!(matches!(self_test(&network).unwrap(), Some(Difference { rows: 20, .. })));
    network.gpu.replace(tile, &tile.source());
    assert_eq!(self_test(&network).unwrap(), None);
}

fn module_of(network: &Network) -> Arc<ModuleWeights> {
    let gpu = &network.gpu;
    let mut noise = Noise(21);
    let mut matrix = |encoding, rows, k| {
        let bytes = stored(encoding, rows, k, &mut noise);
        Matrix::upload(gpu, k, &[StoredRows { encoding, bytes: &bytes, order: &|row| row, rows }]).unwrap()
    };
    let d = SHAPE.d_model;
    Arc::new(ModuleWeights {
        shape: SHAPE,
        embedding_norm: gpu.upload(&Noise(5).numbers(d)),
        hidden_norm: gpu.upload(&Noise(6).numbers(d)),
        fuse: vec![matrix(Encoding::Q4_1, d, d), matrix(Encoding::F16, d, d)],
        project: [matrix(Encoding::Q4_1, d, d), matrix(Encoding::Q4_1, d, d)],
        block: network.blocks[0].clone(),
        final_norm: gpu.upload(&Noise(7).numbers(d)),
        head: matrix(Encoding::Q4_1, 40, d),
        room: 9,
        vocab: (0..40).map(|i| 3 * i + 1).collect(),
        angles: network.angles.clone(),
    })
}

#[test]
fn slots_of_a_module_run_together_or_alone_with_the_same_bits_and_rows_join_its_head() {
    let Some(network) = network() else { return };
    let weights = module_of(&network);
    let (mut noise, d) = (Noise(22), SHAPE.d_model);
    let tokens = tokens(37);
    let hidden = noise.numbers(37 * 3 * d);
    let slots = |tokens, hidden, at| Slots {
        tokens,
        hidden,
        at,
        zeroed: at == 1,
        hidden_first: false,
        before_norm: false,
        ahead: 0,
    };
    let mut together = ModuleSequence::new(&network, &weights).unwrap();
    let ModuleOutput { states, logits, .. } = together.forward(slots(&tokens, &hidden, 1)).unwrap();
    let mut alone = ModuleSequence::new(&network, &weights).unwrap();
    let mut last = Vec::new();
    for i in 0..37 {
        let own = alone.forward(slots(&tokens[i..=i], &hidden[i * 3 * d..][..3 * d], i + 1)).unwrap();
        assert!(own.states == states[i * d..][..d], "slot {i}");
        last = own.logits;
    }
    assert!(last == logits && logits.len() == 40 && logits.iter().all(|x| x.is_finite()));
    // rows of the target's head join, in a copy too
    together.set_joined(&[3, 500, 77]).unwrap();
    let joined = together.logits().unwrap();
    assert!(joined[..40] == logits && joined.len() == 43);
    let mut fork = together.fork().unwrap();
    together.set_joined(&[3, 500]).unwrap();
    together.set_joined(&[3, 500, 11, 77]).unwrap();
    let own = |sequence: &mut ModuleSequence| sequence.forward(slots(&[4], &states[..d], 38)).unwrap();
    let [a, b] = [own(&mut together), own(&mut fork)];
    let (of_a, of_b) = (&a.logits, &b.logits);
    assert!(a.states == b.states && of_a[..42] == of_b[..42] && of_a[43] == of_b[42] && of_a[42] != of_b[42]);
    // other conventions
    together.truncate(0);
    let other = Slots { hidden_first: true, before_norm: true, ..slots(&tokens, &hidden, 1) };
    let other = together.forward(other).unwrap();
    assert!(other.states != states && other.logits[..40] != logits[..]);
}

#[test]
fn drafts_that_run_ahead_are_those_of_single_passes_and_cost_no_submission() {
    let Some(gpu) = own_gpu() else { return };
    let network = network_on(gpu);
    let weights = module_of(&network);
    let (tokens, d) = (tokens(20), SHAPE.d_model);
    let hidden = Noise(31).numbers(20 * d);
    for before_norm in [false, true] {
        fn slots<'a>(tokens: &'a [u32], hidden: &'a [f32], at: usize) -> Slots<'a> {
            Slots { tokens, hidden, at, zeroed: false, hidden_first: false, before_norm: false, ahead: 0 }
        }
        let mut single = ModuleSequence::new(&network, &weights).unwrap();
        let mut ahead = ModuleSequence::new(&network, &weights).unwrap();
        single.set_joined(&[7, 9]).unwrap();
        ahead.set_joined(&[7, 9]).unwrap();
        let before = network.gpu.work();
        let out = ahead.forward(Slots { before_norm, ahead: 6, ..slots(&tokens, &hidden, 1) }).unwrap();
        let work = network.gpu.work().since(before);
        assert_eq!((work.submissions, work.buffers, out.ahead.len()), (1, 0, 6));
        let mut one = single.forward(Slots { before_norm, ..slots(&tokens, &hidden, 1) }).unwrap();
        assert!(one.states == out.states && one.logits == out.logits);
        for (index, step) in out.ahead.iter().enumerate() {
            let best = one.logits.iter().copied().fold(f32::MIN, f32::max);
            let at = one.logits.iter().position(|x| *x == best).unwrap();
            let token = if at < 40 { weights.vocab[at] } else { [7, 9][at - 40] };
            assert_eq!(step.token, token, "draft {index}");
            let state = one.states[one.states.len() - d..].to_vec();
            one = single.forward(Slots { before_norm, ..slots(&[token], &state, 21 + index) }).unwrap();
            assert!(one.states == step.state && one.logits == step.logits, "draft {index}");
            ahead.take_ahead();
        }
        // the cache is that of single passes
        let [a, b] = [&mut single, &mut ahead].map(|s| s.forward(slots(&[4], &hidden[..d], 27)).unwrap());
        assert!(a == b && ahead.len() == 27);
    }
}

#[test]
fn a_lost_device_is_an_error_and_leaves_the_length() {
    let Some(gpu) = own_gpu() else { return };
    let network = network_on(gpu);
    let mut sequence = Sequence::new(&network).unwrap();
    sequence.forward(request(&[1, 2])).unwrap();
    network.gpu.lose();
    for _ in 0..2 {
        let error = sequence.forward(request(&[3])).unwrap_err();
        assert!(matches!(&error, GpuError::Failed(_)), "{error}");
        assert!(error.to_string().starts_with("the GPU stopped working"), "{error}");
    }
    assert_eq!(sequence.len(), 2);
}
