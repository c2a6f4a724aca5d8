//! Families other than Llama's on the GPU backend: logits of independent programs, rows with the same bits together and
//! alone, rollback, and greedy speculation that equals plain decoding to the bit.
//!
//! As in `gpu`, any adapter serves, and without one these tests print that they did not run.
#![cfg(feature = "gpu")]
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

mod common;

use common::checkpoint::Golden;
use common::gpu::{apart, decode, on_cpu, open, options, prompt, settings};
use draftscope::engine;
use draftscope::engine::speculate::drafter::{Drafter, NoDrafter};
use draftscope::model::load::{Loaded, load};
use draftscope::model::options::{DraftVocab, LoadOptions, ModuleFile};
use draftscope::model::row_by_row::RowByRow;
use draftscope::model::{LogitRows, Model};
use draftscope::protocol::{DrafterKind, TokenId};

/// A fixture, the one that has its golden values, and their prefix.
const TARGETS: &[(&str, &str, &str)] = &[
    ("gemma3", "gemma3", ""),
    ("gemma3-capped", "gemma3-capped", "attention."),
    ("gemma3.gguf", "gemma3.gguf", ""),
    ("gemma4", "gemma4", ""),
    ("gemma4-unified", "gemma4-unified", ""),
    ("gemma4.gguf", "gemma4", ""),
    ("qwen35", "qwen35", ""),
    ("qwen35.gguf", "qwen35", ""),
    ("qwen3moe", "qwen3moe", ""),
    ("qwen3moe.gguf", "qwen3moe.gguf", ""),
    ("qwen35moe", "qwen35moe", ""),
    ("qwen3next", "qwen3next", ""),
    ("olmo2", "olmo2", ""),
    ("olmo3.gguf", "olmo3", ""),
    ("granite.gguf", "granite", ""),
    ("phi3", "phi3", ""),
    ("phi3.gguf", "phi3", ""),
    ("smollm3.gguf", "smollm3", ""),
    ("mistral", "mistral", ""),
    ("ministral3.gguf", "ministral3", ""),
];

/// Those that have the parts and kernels of another one.
const ALIKE: &[&str] = &["qwen3moe.gguf", "qwen3next", "olmo2", "phi3.gguf", "mistral", "ministral3.gguf"];

/// Those whose layers differ from Llama's in what they do to single numbers: caches and forms of passes are Llama's, which `gpu`
/// tests with every number of rows and every drafter.
const LIKE_LLAMA: &[&str] = &["olmo3.gguf", "granite.gguf", "phi3", "smollm3.gguf"];

/// Those for tests of many passes.
fn distinct() -> impl Iterator<Item = &'static str> {
    TARGETS.iter().map(|(name, ..)| *name).filter(|name| !ALIKE.contains(name))
}

/// Keys and values are IEEE halves here and `f32` on the CPU: 2⁻¹¹, two of each in sequence.
const HALVES: f32 = 4.0 / 2048.0;

/// The same for Gemma 4, whose scores are not divided by √head_dim: with its keys and values rounded to halves, the logits
/// of `transformers` change by 0.0049 (gemma4) and 0.0033 (gemma4-unified).
const HALVES_OF_GEMMA4: f32 = 1.5 * 0.0049;

#[test]
fn logits_and_states_are_those_of_independent_programs() {
    for (name, golden, prefix) in TARGETS.iter().copied() {
        let Some(options) = options(name) else { return };
        let golden = Golden::of(golden);
        let tokens = golden.tokens(&format!("{prefix}tokens"));
        let logits = golden.numbers(&format!("{prefix}logits"));
        let [mut gpu, mut cpu] = [&options, &on_cpu(name)].map(|options| open(options).target);
        let [ours, theirs] = [&mut gpu, &mut cpu].map(|model| model.forward(&tokens, LogitRows::All).unwrap());
        let [off, of_cpu] = [&ours, &theirs].map(|out| apart(out.logits.as_slice(), &logits));
        let halves = if name.starts_with("gemma4") { HALVES_OF_GEMMA4 } else { HALVES };
        println!("{name}: logits off by {off}, those of the native CPU backend by {of_cpu}");
        assert!(off < of_cpu + halves, "{name}: off by {off}, the CPU by {of_cpu}");
        let states = apart(ours.hidden.as_slice(), theirs.hidden.as_slice());
        assert!(states < 2.0 * (of_cpu + halves), "{name}: states off by {states}");
        assert_eq!((gpu.spec().backend, gpu.spec().info.layers), ("gpu", cpu.spec().info.layers));
        for (row, stats) in ours.stats.iter().enumerate() {
            let logits = ours.logits.row(row);
            assert_eq!(logits[stats.argmax as usize], logits.iter().copied().fold(f32::MIN, f32::max));
        }
    }
}

/// Logits of the last of these tokens.
fn next(target: &dyn Model, tokens: &[TokenId]) -> Vec<f32> {
    let mut target = target.fork().unwrap();
    target.forward(tokens, LogitRows::Last).unwrap().logits.as_slice().to_vec()
}

/// Rows of passes of every size have the bits of single rows, also across the borders of windows and segments.
#[test]
fn rows_have_the_same_bits_together_and_alone() {
    for name in distinct().filter(|name| !LIKE_LLAMA.contains(name)) {
        let Some(options) = options(name) else { return };
        let mut together = open(&options).target;
        let mut alone = together.fork().unwrap();
        let tokens = prompt(5, 150);
        let mut prompted = together.fork().unwrap();
        let last = prompted.forward(&tokens, LogitRows::Last).unwrap();
        let mut at = 0;
        for rows in 1..=16 {
            let out = together.forward(&tokens[at..at + rows], LogitRows::All).unwrap();
            for row in 0..rows {
                let one = alone.forward(&tokens[at + row..=at + row], LogitRows::All).unwrap();
                assert!(one.logits.row(0) == out.logits.row(row), "{name}: row {row} of {rows} after {at}");
                assert!(one.hidden.row(0) == out.hidden.row(row), "{name}: row {row} of {rows} after {at}");
            }
            at += rows;
        }
        assert!(last.logits.row(0) == next_of(&mut alone, &mut at, &tokens), "{name}: a prompt of 150 tokens");
    }
}

/// Logits of the last token after all before it ran.
fn next_of(target: &mut Box<dyn Model>, at: &mut usize, tokens: &[TokenId]) -> Vec<f32> {
    let out = target.forward(&tokens[*at..], LogitRows::Last).unwrap();
    *at = tokens.len();
    out.logits.as_slice().to_vec()
}

/// After a rollback to any row of a pass a target continues as one that ran only the kept tokens.
#[test]
fn rolled_back_targets_continue_as_if_only_the_kept_tokens_had_run() {
    for name in distinct().filter(|name| !LIKE_LLAMA.contains(name)) {
        let Some(options) = options(name) else { return };
        let target = open(&options).target;
        let (tokens, then) = (prompt(7, 60), prompt(8, 3));
        for base in [0, 1, 3, 9, 33] {
            for rows in [2, 5, 16] {
                let (mut plain, mut verified) = (target.fork().unwrap(), target.fork().unwrap());
                if base > 0 {
                    plain.forward(&tokens[..base], LogitRows::Last).unwrap();
                    verified.forward(&tokens[..base], LogitRows::Last).unwrap();
                }
                let since = verified.checkpoint().unwrap();
                verified.forward(&tokens[base..base + rows], LogitRows::All).unwrap();
                // shorter and shorter
                for kept in [rows, rows - 1, 1] {
                    verified.truncate(base + kept, &since).unwrap();
                    let mut plain = plain.fork().unwrap();
                    plain.forward(&tokens[base..base + kept], LogitRows::All).unwrap();
                    let same = next(verified.as_ref(), &then) == next(plain.as_ref(), &then);
                    assert!(same, "{name}: {kept} of {rows} rows after {base}");
                }
            }
        }
    }
}

/// Whether a fixture has a draft module in its own files.
fn has_own_module(name: &str) -> bool {
    name.starts_with("qwen35") || ["qwen3next", "mimo"].contains(&name)
}

/// Lets a fixture's own module be loaded.
fn own_module(name: &str) -> Option<ModuleFile> {
    let nothing = ModuleFile {
        name: "none".to_owned(),
        weights: Vec::new().into(),
        config: Vec::new().into(),
        sha256: None,
        required: false,
    };
    has_own_module(name).then_some(nothing)
}

/// The module in a target's files drafts as on the CPU, under its own conventions and others, and rows of its head join.
#[test]
fn drafts_of_own_modules_are_those_of_the_cpu() {
    let of = ["qwen35", "qwen35.gguf", "qwen35moe", "qwen3next", "mimo"].map(|name| (name, None));
    for (name, vocab) in of.into_iter().chain([("qwen35", Some(DraftVocab::First(100)))]) {
        let Some(gpu) = options(name) else { return };
        let out = [gpu, on_cpu(name)].map(|options| {
            let loaded = open(&LoadOptions { mtp: own_module(name), draft_vocab: vocab.clone(), ..options });
            let (mut target, mut module) = (loaded.target, loaded.mtp.unwrap().0);
            target.set_tap(&module.tap()).unwrap();
            let tokens = prompt(1, 40);
            let hidden = target.forward(&tokens[..39], LogitRows::Last).unwrap().hidden;
            let out = module.forward(&tokens[1..], &hidden).unwrap();
            let deeper = module.forward(&tokens[..1], &out.hidden.last_row()).unwrap();
            let fork = module.fork().unwrap();
            assert_eq!((fork.len(), fork.draft_vocab()), (module.len(), module.draft_vocab()));
            (out.logits, out.hidden, deeper.logits, module.draft_vocab().to_vec())
        });
        let [ours, theirs] = &out;
        assert_eq!(ours.3, theirs.3);
        for (a, b) in [(&ours.0, &theirs.0), (&ours.1, &theirs.1), (&ours.2, &theirs.2)] {
            let off = apart(a.as_slice(), b.as_slice());
            assert!(off < 0.01, "{name}: off by {off}");
        }
    }
}

/// Tokens of an answer; a software device takes some milliseconds a pass.
const LEN: usize = 16;

#[test]
fn greedy_speculation_is_plain_decoding_to_the_bit() {
    for name in distinct().chain(["mimo"]) {
        let Some(options) = options(name) else { return };
        // a draft model would take the place of the module in the target's files
        let own = own_module(name);
        let draft_model = own.is_none().then(|| options.target.clone());
        let loaded = open(&LoadOptions { draft_model, mtp: own, ..options });
        assert_eq!(loaded.mtp.is_some(), has_own_module(name), "{:?}", loaded.notice);
        assert!(loaded.backend_notice.is_none(), "{:?}", loaded.backend_notice);
        let prompt = prompt(3, 37);
        let plain =
            decode(loaded.target.as_ref(), Box::new(NoDrafter), &settings(DrafterKind::None, 0, None), &prompt, LEN);
        let mut kinds = vec![DrafterKind::Ngram, DrafterKind::Random];
        kinds.extend(loaded.draft_model.is_some().then_some(DrafterKind::DraftModel));
        let has_trees = loaded.target.refuses_trees().is_none();
        kinds.extend(has_trees.then_some(DrafterKind::EarlyExit));
        kinds.extend(loaded.mtp.is_some().then_some(DrafterKind::Mtp));
        let (drafters, Loaded { target, .. }) = engine::drafter_set(loaded);
        // every length, each with another drafter in turn; every drafter with a chain and a tree of length 3
        let lengths = if LIKE_LLAMA.contains(&name) { 1..=6 } else { 0..=15 };
        let each_length = lengths.map(|k| (kinds[usize::from(k) % kinds.len()], k, None));
        let trees = kinds.iter().filter(|_| has_trees).map(|kind| (*kind, 3, Some(7)));
        let each_kind = kinds.iter().map(|kind| (*kind, 3, None)).chain(trees);
        for (kind, k, tree) in each_length.chain(each_kind) {
            let drafters = drafters.fork().unwrap();
            let text = decode(target.as_ref(), drafters, &settings(kind, k, tree), &prompt, LEN);
            assert_eq!(text, plain, "{name}, {} with k = {k}, tree {tree:?}", kind.name());
        }
    }
}

/// The account is that of the buffers; figures of the model are not those of the CPU's caches.
#[test]
fn the_memory_account_is_what_buffers_take() {
    for (index, name) in ["llama", "gemma3", "gemma4", "qwen35", "qwen3moe"].into_iter().enumerate() {
        let Some(options) = options(name) else { return };
        // a device of its own, whose buffers nobody else makes
        let adapter = options.adapter.map(|number| format!("{}{number}", "0".repeat(index + 3)));
        let gpu = draftscope::model::gpu::opened(adapter.as_deref()).unwrap();
        let before = gpu.work().buffer_bytes;
        let loaded = open(&LoadOptions { adapter, ..options });
        let (made, memory, info) = (gpu.work().buffer_bytes - before, loaded.memory, &loaded.target.spec().info);
        assert_eq!(memory.total(), made, "{name}: {memory:?}");
        assert_eq!((memory.target_weights, memory.target_kv), (info.weight_bytes, info.kv_bytes_per_token), "{name}");
        assert!(memory.passes > 0 && (memory.states > 0) == (name == "qwen35"), "{name}: {memory:?}");
        assert!(loaded.target.pass_bytes() <= info.weight_bytes && loaded.target.pass_bytes() > 0);
        let rate = loaded.target.device_read_rate().unwrap();
        let row_by_row = RowByRow::new(loaded.target).device_read_rate().unwrap();
        assert!(rate.is_some() && row_by_row.is_some(), "{name}");
    }
}

/// A pass looks rows of Gemma 4's embeddings for each layer up, and of an embedding that is not the head.
#[test]
fn a_pass_reads_no_more_than_on_the_cpu() {
    for name in ["gemma4", "llama", "qwen35", "qwen3moe"] {
        let Some(options) = options(name) else { return };
        let [gpu, cpu] = [&options, &on_cpu(name)].map(|options| open(options).target);
        let [on_gpu, on_cpu] = [&gpu, &cpu].map(|model| model.pass_bytes() as f64);
        println!("{name}: a pass reads {on_gpu} bytes of {}, on the CPU {on_cpu}", gpu.spec().info.weight_bytes);
        assert!(on_gpu <= 1.05 * on_cpu, "{name}: {on_gpu} and {on_cpu}");
    }
}

/// What has no kernel is a part, whatever the family.
#[test]
fn a_part_that_does_not_run_is_named() {
    let latent = "latent attention does not run on a GPU yet; choose --device cpu";
    let sigmoids = "a router with sigmoids does not run on a GPU yet; choose --device cpu";
    let beside = "a dense layer beside experts does not run on a GPU yet; choose --device cpu";
    for (name, why) in [("deepseek", latent), ("glm4moe", sigmoids), ("gemma4-experts", beside)] {
        let Some(options) = options(name) else { return };
        let error = load(&options, &mut |_, _, _| {}).map(|_| ()).unwrap_err();
        assert_eq!(error.to_string(), why, "{name}");
    }
}

/// An option that changes nothing is reported.
#[test]
fn rollback_is_for_recurrent_layers_on_the_cpu() {
    use draftscope::model::options::Rollback;
    let says = |options: LoadOptions| {
        let loaded = open(&LoadOptions { rollback: Some(Rollback::Replay), ..options });
        let said = loaded.warnings.into_iter().filter(|warning| warning.contains("--rollback")).collect::<Vec<_>>();
        said.join(" ")
    };
    let Some(gpu) = options("qwen35") else { return };
    assert_eq!(says(on_cpu("qwen35")), "");
    assert!(says(gpu.clone()).starts_with("--rollback is ignored on a GPU"));
    for options in [options("llama").unwrap(), on_cpu("llama")] {
        assert!(says(options).starts_with("--rollback is ignored: it is for recurrent layers"));
    }
    assert!(!open(&gpu).warnings.iter().any(|warning| warning.contains("--rollback")), "it was not given");
}
