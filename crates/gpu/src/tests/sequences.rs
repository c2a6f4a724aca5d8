//! Whole sequences: the same bits however rows are cut into passes; trees, forks and rollback; counts.

use std::sync::Arc;

use draftscope_kernels::{Encoding, testing::Noise};

use super::blocks::matrix;
use super::{gpu, own_gpu, stored};
use crate::{
    AdapterInfo, AdapterKind, BEST, BlockWeights, Difference, EndStyle, Form, Gpu, GpuError, Kernel, LayerTable,
    Logits, Matrix, ModuleOutput, ModuleSequence, ModuleWeights, Network, Output, PROMPT_ROWS, Request, Sequence,
    Shape, Slots, StoredRows, Style, self_test,
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
    Request { tokens, layers: LAYERS, logits: Logits::All, parents: None, states: &[None] }
}

pub(super) fn tokens(count: u32) -> Vec<u32> {
    (0..count).map(|i| i * 7919 % VOCAB as u32).collect()
}

/// Hidden state and logits of row `row`.
pub(super) fn row(out: &Output, row: usize) -> (&[f32], &[f32]) {
    (&out.hidden[row * 64..][..64], &out.scored.logits[row * VOCAB..][..VOCAB])
}

#[test]
fn rows_run_together_or_alone_have_the_same_bits() {
    let Some(network) = network() else { return };
    let tokens = tokens(150);
    let mut alone = Sequence::new(&network).unwrap();
    let singles: Vec<_> = tokens.iter().map(|token| alone.forward(request(&[*token])).unwrap()).collect();
    assert!(singles.iter().all(|out| out.scored.logits.iter().all(|x| x.is_finite())));
    assert!(singles[3].scored != singles[4].scored);
    for sizes in [&[16][..], &[150], &[1, 2, 3, 5, 7, 11, 13, 4, 9]] {
        let mut together = Sequence::new(&network).unwrap();
        let (mut at, mut sizes) = (0, sizes.iter().cycle());
        while at < tokens.len() {
            let size = (*sizes.next().unwrap()).min(tokens.len() - at);
            let out = together.forward(request(&tokens[at..at + size])).unwrap();
            for i in 0..size {
                assert!(row(&out, i) == row(&singles[at + i], 0), "position {}", at + i);
                assert!(out.scored.stretches[2 * i..2 * i + 2] == singles[at + i].scored.stretches);
            }
            at += size;
        }
    }
    // a prompt: all states, logits of the last row alone
    let mut prompt = Sequence::new(&network).unwrap();
    let out = prompt.forward(Request { logits: Logits::Last, ..request(&tokens) }).unwrap();
    assert!(out.scored.logits == singles[149].scored.logits && out.scored.stretches == singles[149].scored.stretches);
    assert!((0..150).all(|i| out.hidden[i * 64..][..64] == singles[i].hidden[..]));
}

#[test]
fn rows_of_a_tree_have_the_bits_of_chains_and_one_path_is_kept() {
    let Some(network) = network() else { return };
    let tokens = tokens(130);
    let parents = [0, 0, 0, 1, 2, 2, 5];
    let mut tree = Sequence::new(&network).unwrap();
    tree.forward(Request { logits: Logits::Last, ..request(&tokens[..125]) }).unwrap();
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
    assert!(early.scored != normed.scored);
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
    let stamps = if network.gpu.info().has_timestamps { 16 } else { 0 };
    assert_eq!((work.read_bytes, work.state_bytes), (3 * (4 * 64 + 16 * 2 + 4 * VOCAB as u64) + stamps, 3 * 4 * 64));
    assert_eq!(work.device_ns > 0, network.gpu.info().has_timestamps);
    // of logits only the best
    let before = network.gpu.work();
    sequence.forward(Request { logits: Logits::Best, ..request(&[1, 2, 3]) }).unwrap();
    let work = network.gpu.work().since(before);
    assert_eq!((work.buffers, work.submissions, work.dispatches), (0, 1, 9 * LAYERS as u64 + 5));
    assert_eq!(work.read_bytes, 3 * (4 * 64 + 16 * 2 + 8 * (BEST as u64 + 1)) + stamps);
    // a prompt: passes of 64, 64 and 22 rows, with one launch less a block; norm, head and statistics of the last row
    let before = network.gpu.work();
    sequence.forward(Request { logits: Logits::Last, states: &[], ..request(&tokens(150)) }).unwrap();
    let work = network.gpu.work().since(before);
    let passes = 150u64.div_ceil(PROMPT_ROWS as u64);
    assert_eq!((work.buffers, work.submissions, work.dispatches), (0, 1, passes * (8 * LAYERS as u64 + 2) + 3));
}

#[test]
fn the_self_test_passes_and_finds_wrong_kernels() {
    let Some(gpu) = own_gpu() else { return };
    let network = network_on(gpu);
    let mut sequence = Sequence::new(&network).unwrap();
    sequence.forward(request(&[1, 2])).unwrap();
    let before = network.gpu.work();
    assert_eq!(self_test(&mut sequence).unwrap(), None);
    assert_eq!((sequence.len(), network.gpu.work().since(before).buffers), (0, 0), "on the sequence's own cache");
    let eight = Kernel::Matrix(Form::Of(Encoding::Q8_0)).for_rows(8);
    // wrong for one row of eight
    let wrong = eight
        .source()
        .replace("let sum = partial[64u * i + t - lane]", "let sum = partial[64u * (i - i % ROWS / 7u) + t - lane]");
    assert_ne!(wrong, network.gpu.source(eight));
    network.gpu.replace(eight, &wrong);
    assert_eq!(self_test(&mut sequence).unwrap(), Some(Difference { rows: 8, row: 7 }));
    // right, but the lanes are added in another order for eight rows
    let order = eight.source().replace(
        "for (var step = LANES / 2u; step >= SHUFFLED; step /= 2u) {\n        if lane < step {",
        "for (var step = 1u; step < LANES; step *= 2u) {\n        if lane % (2u * step) == 0u {",
    );
    assert_ne!(order, eight.source());
    network.gpu.replace(eight, &order);
    assert!(matches!(self_test(&mut sequence).unwrap(), Some(Difference { rows: 5, .. })));
    network.gpu.replace(eight, &network.gpu.source(eight));
    assert_eq!(self_test(&mut sequence).unwrap(), None);
    // tiles that join their lanes one after the other
    let tile = Kernel::Matrix(Form::Of(Encoding::Q8_0)).for_rows(PROMPT_ROWS);
    let order = tile.source().replace("reverseBits(turn) >> 28u", "turn");
    assert_ne!(order, tile.source());
    network.gpu.replace(tile, &order);
    assert!(matches!(self_test(&mut sequence).unwrap(), Some(Difference { rows: 20, .. })));
    network.gpu.replace(tile, &tile.source());
    assert_eq!(self_test(&mut sequence).unwrap(), None);
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
        logits: Logits::All,
        ahead: 0,
    };
    let mut together = ModuleSequence::new(&network, &weights).unwrap();
    let ModuleOutput { states, scored, .. } = together.forward(slots(&tokens, &hidden, 1)).unwrap();
    let mut alone = ModuleSequence::new(&network, &weights).unwrap();
    let mut last = crate::Scored::default();
    for i in 0..37 {
        let own = alone.forward(slots(&tokens[i..=i], &hidden[i * 3 * d..][..3 * d], i + 1)).unwrap();
        assert!(own.states == states[i * d..][..d], "slot {i}");
        last = own.scored;
    }
    let logits = &scored.logits;
    assert!(last == scored && logits.len() == 40 && logits.iter().all(|x| x.is_finite()));
    // rows of the target's head join with the next pass, which needs no submission more, in a copy too
    let own = |sequence: &mut ModuleSequence| sequence.forward(slots(&[4], &states[..d], 38)).unwrap();
    let alone = own(&mut together).scored.logits;
    together.truncate(37);
    together.set_joined(&[3, 500, 77]);
    let before = together.work();
    let joined = own(&mut together).scored;
    assert_eq!(together.work().since(before).submissions, 1);
    assert!(joined.logits[..40] == alone && joined.logits.len() == 43 && joined.stretches.len() == 1);
    together.truncate(37);
    let mut fork = together.fork().unwrap();
    together.set_joined(&[3, 500]);
    together.set_joined(&[3, 500, 11, 77]);
    let [a, b] = [own(&mut together), own(&mut fork)];
    let (of_a, of_b) = (&a.scored.logits, &b.scored.logits);
    assert!(a.states == b.states && of_a[..42] == of_b[..42] && of_a[43] == of_b[42] && of_a[42] != of_b[42]);
    // other conventions
    together.truncate(0);
    let other = Slots { hidden_first: true, before_norm: true, ..slots(&tokens, &hidden, 1) };
    let other = together.forward(other).unwrap();
    assert!(other.states != states && other.scored.logits[..40] != logits[..]);
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
            let logits = Logits::All;
            Slots { tokens, hidden, at, zeroed: false, hidden_first: false, before_norm: false, logits, ahead: 0 }
        }
        let mut single = ModuleSequence::new(&network, &weights).unwrap();
        let mut ahead = ModuleSequence::new(&network, &weights).unwrap();
        single.set_joined(&[7, 9]);
        ahead.set_joined(&[7, 9]);
        let before = network.gpu.work();
        let out = ahead.forward(Slots { before_norm, ahead: 6, ..slots(&tokens, &hidden, 1) }).unwrap();
        let work = network.gpu.work().since(before);
        assert_eq!((work.submissions, work.buffers, out.ahead.len()), (1, 0, 6));
        let mut one = single.forward(Slots { before_norm, ..slots(&tokens, &hidden, 1) }).unwrap();
        assert!(one.states == out.states && one.scored == out.scored);
        for (index, step) in out.ahead.iter().enumerate() {
            let best = one.scored.logits.iter().copied().fold(f32::MIN, f32::max);
            let at = one.scored.logits.iter().position(|x| *x == best).unwrap();
            let token = if at < 40 { weights.vocab[at] } else { [7, 9][at - 40] };
            assert_eq!(step.token, token, "draft {index}");
            let state = one.states[one.states.len() - d..].to_vec();
            one = single.forward(Slots { before_norm, ..slots(&[token], &state, 21 + index) }).unwrap();
            assert!(one.states == step.state && one.scored == step.scored, "draft {index}");
            ahead.take_ahead();
        }
        // the cache is that of single passes
        let [a, b] = [&mut single, &mut ahead].map(|s| s.forward(slots(&[4], &hidden[..d], 27)).unwrap());
        assert!(a == b && ahead.len() == 27);
    }
}

/// The largest, equal ones by index; then the logits of the tokens that continue the row.
fn best_of(logits: &[f32], also: &[u32]) -> Vec<(u32, f32)> {
    let mut all: Vec<(u32, f32)> = (0..).zip(logits.iter().copied()).collect();
    let own: Vec<_> = also.iter().map(|token| all[*token as usize]).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    all.truncate(BEST);
    all.into_iter().chain(own).collect()
}

#[test]
fn the_best_logits_are_those_of_all_logits() {
    let Some(network) = network() else { return };
    let rows: Vec<u32> = (0..7).map(|i| 11 * i + 3).collect();
    let mut sequence = Sequence::new(&network).unwrap();
    sequence.forward(request(&tokens(20))).unwrap();
    for parents in [None, Some(&[0, 0, 0, 1, 2, 2, 5][..])] {
        let [all, best] = [Logits::All, Logits::Best].map(|logits| {
            let out = sequence.forward(Request { logits, parents, ..request(&rows) }).unwrap();
            sequence.truncate(20);
            out
        });
        assert!(best.hidden == all.hidden && best.scored.stretches == all.scored.stretches);
        assert!(best.scored.logits.is_empty() && best.scored.best.len() == 7);
        for (row, best) in best.scored.best.iter().enumerate() {
            let continues = |at: &usize| parents.map_or(*at == row + 1, |parents| *at > 0 && parents[*at] == row);
            let also: Vec<u32> = (0..7).filter(continues).map(|at| rows[at]).collect();
            assert_eq!(*best, best_of(&all.scored.logits[row * VOCAB..][..VOCAB], &also), "row {row}");
        }
    }
    // of a module: slots that run ahead too, with tokens that joined
    let weights = module_of(&network);
    let hidden = Noise(31).numbers(20 * SHAPE.d_model);
    let [all, best] = [Logits::All, Logits::Best].map(|logits| {
        let mut module = ModuleSequence::new(&network, &weights).unwrap();
        module.set_joined(&[7, 9]);
        let (tokens, hidden) = (&tokens(20)[..], &hidden[..]);
        let slots =
            Slots { tokens, hidden, at: 1, zeroed: false, hidden_first: false, before_norm: false, logits, ahead: 3 };
        let ModuleOutput { states, scored, ahead } = module.forward(slots).unwrap();
        let rest: Vec<_> = ahead.iter().map(|step| (step.token, step.state.clone())).collect();
        (states, rest, ahead.into_iter().map(|step| step.scored).chain([scored]).collect::<Vec<_>>())
    });
    assert!(all.0 == best.0 && all.1 == best.1);
    for (all, best) in all.2.iter().zip(&best.2) {
        assert_eq!((all.logits.len(), best.logits.len(), &all.stretches), (42, 0, &best.stretches));
        assert_eq!(best.best, [best_of(&all.logits, &[])]);
    }
}

/// Weights larger than a kernel can see are cut into parts, which changes no bit.
#[test]
fn matrices_beyond_the_binding_limit_are_cut() {
    let [Some(gpu), Some(mut limited)] = [own_gpu(), own_gpu()] else { return };
    Arc::get_mut(&mut limited).unwrap().limit_parts(32 * 64 + 64); // 32 rows of the head, which is the embedding too
    let [whole, limited] = [gpu, limited].map(network_on);
    assert_eq!((whole.head.parts.len(), limited.head.parts.len()), (1, VOCAB.div_ceil(32)));
    assert!(limited.blocks[0].qkv.parts.len() > 1 && limited.blocks[1].gate.parts.len() > 1);
    let [a, b] = [&whole, &limited].map(|network| {
        let mut sequence = Sequence::new(network).unwrap();
        [Logits::All, Logits::Best].map(|logits| sequence.forward(Request { logits, ..request(&tokens(9)) }).unwrap())
    });
    assert!(a == b && a[0].scored.logits.len() == 9 * VOCAB);
    // rows of several parts join a module's head
    let logits = [&whole, &limited].map(|network| {
        let mut module = ModuleSequence::new(network, &module_of(network)).unwrap();
        module.set_joined(&[3, 500, 77]);
        let (hidden, tokens) = (Noise(31).numbers(3 * SHAPE.d_model), &tokens(3)[..]);
        let (at, logits) = (1, Logits::All);
        let slots = Slots {
            tokens,
            hidden: &hidden,
            at,
            zeroed: false,
            hidden_first: false,
            before_norm: false,
            logits,
            ahead: 0,
        };
        module.forward(slots).unwrap().scored.logits
    });
    assert!(logits[0] == logits[1] && logits[0].len() == 43);
}

#[test]
fn a_context_beyond_the_limits_is_rejected_with_what_fits() {
    let info = |max_binding| AdapterInfo { max_binding, ..crate::device::test_info("a", AdapterKind::Discrete) };
    // keys of a position take 128 bytes, attention over a segment of 128 positions 8,704
    let error = SHAPE.check_context(&info(1 << 20), 10_000).unwrap_err();
    let GpuError::TooLarge { smaller, .. } = &error else { panic!("{error:?}") };
    assert_eq!(*smaller, format!("--ctx {} or less", (1 << 20) / 128));
    assert!(error.to_string().starts_with("a context of 10000 positions needs "), "{error}");
    assert!(error.to_string().ends_with("choose --ctx 8192 or less, or --device cpu"), "{error}");
    assert_eq!(SHAPE.check_context(&info(1 << 20), 8192), Ok(()));
    // many heads over few keys: attention needs more
    let wide = Shape { heads: 64, kv_heads: 1, ..SHAPE };
    let error = wide.check_context(&info(1 << 20), 10_000).unwrap_err();
    let fits = (1 << 20) / (4 * 16 * 64 * 34) * 128;
    assert!(error.to_string().ends_with(&format!("choose --ctx {fits} or less, or --device cpu")), "{error}");
}

#[test]
fn a_pass_reads_all_but_rows_of_an_embedding() {
    let Some(tied) = network() else { return };
    assert_eq!(tied.pass_bytes(), tied.bytes());
    let (gpu, mut noise) = (Arc::clone(&tied.gpu), Noise(5));
    let table = |encoding, rows, k| matrix(&tied.gpu, encoding, [rows, k], &mut Noise(5)).0;
    let (table_of, project) = (table(Encoding::Q8_0, VOCAB, LAYERS * 32), table(Encoding::F32, LAYERS * 32, 64));
    let norm = gpu.upload(&noise.numbers(32));
    let more = (project.bytes(), table_of.bytes());
    let layer_table = Some(LayerTable { width: 32, table: table_of, project, norm });
    let network = Network {
        shape: tied.shape,
        blocks: tied.blocks.clone(),
        final_norm: tied.final_norm.clone(),
        embedding: Some(table(Encoding::F32, VOCAB, 64)),
        head: tied.head.clone(),
        angles: tied.angles.clone(),
        ctx_len: tied.ctx_len,
        style: EndStyle { layer_table, ..EndStyle::default() },
        gpu,
    };
    assert_eq!(network.pass_bytes(), tied.bytes() + more.0);
    assert!(network.bytes() > network.pass_bytes() + more.1);
}

#[test]
fn a_draft_head_that_a_kernel_cannot_see_is_rejected_with_what_fits() {
    let Some(mut gpu) = own_gpu() else { return };
    let (head, _) = matrix(&gpu, Encoding::Q8_0, [64, 32], &mut Noise(3));
    Arc::get_mut(&mut gpu).unwrap().limit_parts(4096);
    let error = Matrix::room(&gpu, &head, 10_000).unwrap_err();
    let text = error.to_string();
    assert!(
        matches!(error, GpuError::TooLarge { .. }) && text.starts_with("a draft head of 10000 tokens needs "),
        "{text}"
    );
    let most = text.split(' ').skip_while(|word| *word != "--draft-vocab").nth(1).unwrap().parse().unwrap();
    assert!(Matrix::room(&gpu, &head, most).is_ok() && Matrix::room(&gpu, &head, most + 1).is_err());
}

#[test]
fn reading_memory_alone_has_a_rate() {
    let Some(gpu) = gpu() else { return };
    let rate = gpu.read_rate().unwrap();
    assert!(rate.is_finite() && rate > 1e6, "{rate}");
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
