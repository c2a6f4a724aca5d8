//! Targets and modules on the GPU backend: logits of independent programs, and greedy speculation that equals plain
//! decoding to the bit, with every drafter, draft length and tree.
//!
//! Any Vulkan, Metal or DirectX 12 adapter serves, one that computes on the CPU too. Without one these tests print that
//! they did not run; with `DRAFTSCOPE_GPU_TESTS=1` in the environment they fail.
#![cfg(feature = "gpu")]
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

mod common;

use std::time::Duration;

use common::checkpoint::{Golden, path};
use common::gpu::{apart, decode, on_cpu, open, options, prompt, settings};
use draftscope::engine;
use draftscope::engine::speculate::decoder::Decoder;
use draftscope::engine::speculate::drafter::{Drafter, NoDrafter};
use draftscope::engine::speculate::sampler::{LogitRow, Sampler};
use draftscope::headless::{Driver, Outcome};
use draftscope::model::load::{Loaded, load};
use draftscope::model::options::{LoadOptions, ModuleFile};
use draftscope::model::{Checkpoint, LogitRows, ModelError, State, Tap};
use draftscope::protocol::stream::Consumer;
use draftscope::protocol::{Committed, DrafterKind, Event, EventKind, Prompt, Sampling, Settings, TokenId};
use draftscope::session::trace::{RecordOptions, Recorder, Recording};

/// Fixtures that run on the GPU: Llama, Qwen3 with normed heads, MiMo's target, which has the biases of Qwen2; as bf16,
/// FP8, and GGUF files with blocks of most encodings.
const TARGETS: [&str; 7] = ["llama", "llama.gguf", "qwen3", "qwen3.gguf", "qwen3-fp8", "mimo", "mixed.gguf"];

#[test]
fn logits_and_states_are_those_of_independent_programs() {
    for name in TARGETS {
        let Some(options) = options(name) else { return };
        let golden = Golden::of(name);
        let (tokens, logits) = (golden.tokens("tokens"), golden.numbers("logits"));
        let [mut gpu, mut cpu] = [&options, &on_cpu(name)].map(|options| open(options).target);
        let [ours, theirs] = [&mut gpu, &mut cpu].map(|model| model.forward(&tokens, LogitRows::All).unwrap());
        let [off, of_cpu] = [&ours, &theirs].map(|out| apart(out.logits.as_slice(), &logits));
        println!("{name}: logits off by {off}, those of the native CPU backend by {of_cpu}");
        assert!(off < 1.2 * of_cpu + 0.002, "{name}: off by {off}, the CPU by {of_cpu}");
        assert!(apart(ours.hidden.as_slice(), theirs.hidden.as_slice()) < 0.03);
        for (row, stats) in ours.stats.iter().enumerate() {
            let logits = ours.logits.row(row);
            let best = logits.iter().copied().fold(f32::MIN, f32::max);
            assert_eq!(logits[stats.argmax as usize], best);
            let sum: f64 = logits.iter().map(|x| f64::from(x - best).exp()).sum();
            assert!((f64::from(stats.log_sum_exp - best) - sum.ln()).abs() < 1e-5);
        }
        assert_eq!((gpu.spec().backend, gpu.spec().info.layers), ("gpu", cpu.spec().info.layers));
    }
}

/// Tokens of an answer; a software device takes some milliseconds a pass.
const LEN: usize = 16;

/// A random module for the fixtures, whose widths are all alike.
fn module(fused: usize) -> ModuleFile {
    use draftscope_kernels::testing::Noise;
    use safetensors::{Dtype, tensor::TensorView};
    let (d, q, kv, ffn) = (64, 128, 64, 96);
    let mut noise = Noise(5);
    let mut tensors = vec![("mtp.draft_vocab".to_owned(), Dtype::I64, vec![80], {
        (0..320i64).step_by(4).flat_map(i64::to_le_bytes).collect::<Vec<u8>>()
    })];
    let mut add = |part: &str, shape: Vec<usize>| {
        let scale = if shape.len() == 1 { 1.0 } else { 2.0 / (shape[1] as f32).sqrt() };
        let numbers = noise.numbers(shape.iter().product());
        let bytes = numbers.iter().flat_map(|x| (x * scale).to_le_bytes()).collect();
        tensors.push((format!("mtp.layers.0.{part}.weight"), Dtype::F32, shape, bytes));
    };
    for (part, rows, k) in [
        ("eh_proj", d, 2 * d),
        ("self_attn.q_proj", q, d),
        ("self_attn.k_proj", kv, d),
        ("self_attn.v_proj", kv, d),
        ("self_attn.o_proj", d, q),
        ("mlp.gate_proj", ffn, d),
        ("mlp.up_proj", ffn, d),
        ("mlp.down_proj", d, ffn),
        ("fuse", d, fused.max(1) * d),
    ] {
        add(part, vec![rows, k]);
    }
    for part in ["enorm", "hnorm", "input_layernorm", "post_attention_layernorm", "shared_head.norm"] {
        add(part, vec![d]);
    }
    let views = tensors
        .iter()
        .map(|(name, dtype, shape, bytes)| (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap()));
    let layers: Vec<usize> = (0..fused).collect();
    let config = serde_json::json!({
        "hidden_size": d, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": ffn,
        "vocab_size": 320, "draft_vocab_size": 80, "num_nextn_predict_layers": 1, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
        "concat_order": ["embedding", "hidden"], "context_vocab_size": 30, "hidden_layers": layers
    });
    ModuleFile {
        name: "random".to_owned(),
        weights: safetensors::serialize(views, None).unwrap().into(),
        config: config.to_string().into_bytes().into(),
        sha256: None,
        required: true,
    }
}

#[test]
fn greedy_speculation_is_plain_decoding_to_the_bit() {
    for (name, all_lengths) in [("llama", true), ("qwen3", false), ("mimo", false), ("mixed.gguf", false)] {
        let Some(options) = options(name) else { return };
        let has_module = Golden::of(name).tokens("tokens").iter().all(|token| token.0 < 320);
        let mtp = (has_module && !name.ends_with(".gguf")).then(|| module(2)); // GGUF fixtures are wider
        let options = LoadOptions { mtp, draft_model: Some(options.target.clone()), ..options };
        let loaded = open(&options);
        assert!(loaded.backend_notice.is_none(), "{:?}", loaded.backend_notice);
        let prompt = prompt(3, 37);
        let plain =
            decode(loaded.target.as_ref(), Box::new(NoDrafter), &settings(DrafterKind::None, 0, None), &prompt, LEN);
        let mut kinds = vec![DrafterKind::Ngram, DrafterKind::Random, DrafterKind::DraftModel, DrafterKind::EarlyExit];
        if loaded.mtp.is_some() {
            kinds.push(DrafterKind::Mtp);
        }
        let lengths: Vec<u8> = if all_lengths { (0..=15).collect() } else { Vec::new() };
        let (drafters, Loaded { target, .. }) = engine::drafter_set(loaded);
        // every length, each with another drafter in turn; every drafter with a chain and a tree of length 3
        let each_length = lengths.iter().map(|k| (kinds[usize::from(*k) % kinds.len()], *k, None));
        let each_kind = kinds.iter().flat_map(|kind| [(*kind, 3, None), (*kind, 3, Some(7))]);
        for (kind, k, tree) in each_length.chain(each_kind) {
            let drafters = drafters.fork().unwrap();
            let text = decode(target.as_ref(), drafters, &settings(kind, k, tree), &prompt, LEN);
            assert_eq!(text, plain, "{name}, {} with k = {k}, tree {tree:?}", kind.name());
        }
    }
}

#[test]
fn drafts_of_a_module_are_those_of_the_cpu() {
    let Some(gpu) = options("llama") else { return };
    for fused in [0, 2] {
        let [ours, theirs] = [gpu.clone(), on_cpu("llama")].map(|options| {
            let loaded = open(&LoadOptions { mtp: Some(module(fused)), ..options });
            let (mut target, mut module) = (loaded.target, loaded.mtp.unwrap().0);
            target.set_tap(&module.tap()).unwrap();
            let tokens = prompt(1, 40);
            let hidden = target.forward(&tokens[..39], LogitRows::Last).unwrap().hidden;
            let out = module.forward(&tokens[1..], &hidden).unwrap();
            let copy = module.fork().unwrap();
            assert_eq!(copy.draft_vocab(), module.draft_vocab());
            (out.logits, out.hidden, module.draft_vocab().to_vec())
        });
        assert_eq!(ours.2, theirs.2);
        assert!(ours.2.len() > 80, "tokens of the text joined");
        // the CPU packs its copy of the head in 4-bit blocks
        assert!(
            apart(ours.0.as_slice(), theirs.0.as_slice()) < 0.12,
            "{}",
            apart(ours.0.as_slice(), theirs.0.as_slice())
        );
        assert!(apart(ours.1.as_slice(), theirs.1.as_slice()) < 0.05);
    }
}

#[test]
fn states_and_errors_are_those_of_every_backend() {
    let Some(options) = options("qwen3") else { return };
    let mut target = open(&LoadOptions { ctx_len: Some(40), ..options }).target;
    let tokens = prompt(2, 30);
    target.set_tap(&Tap::new(vec![State::Behind(1), State::Normed, State::Residual])).unwrap();
    let out = target.forward(&tokens, LogitRows::Last).unwrap();
    assert_eq!((out.hidden.len(), out.hidden.width(), out.logits.len()), (30, 3 * 64, 1));
    assert!(target.set_tap(&Tap::new(vec![State::Behind(3)])).is_err());
    let full = target.forward(&tokens[..11], LogitRows::All);
    assert!(matches!(full, Err(ModelError::ContextFull { needed: 41, ctx_len: 40 })));
    let unknown = target.forward(&[TokenId(320)], LogitRows::All);
    assert!(matches!(unknown, Err(ModelError::Vocabulary { token: 320, vocab: 320 })));
    assert!(target.truncate(31, &Checkpoint { len: 0 }).is_err());
    assert!(target.forward_tree(&tokens[..2], &[0, 5], LogitRows::All).is_err());
    assert_eq!(target.len(), 30);
}

/// A device of its own, which no other test uses: a device is known by the text that names it.
fn own_device(options: LoadOptions, number: &str) -> LoadOptions {
    LoadOptions { adapter: options.adapter.map(|name| format!("{number}{name}")), ..options }
}

/// A greedy round of the whole decoder: the drafts of an MTP module are one submission, the pass that verifies them
/// another, also where tokens that the module cannot draft are committed and join its head; no buffer is made, and the
/// host reads statistics and the best logits only.
#[test]
fn a_greedy_round_is_two_submissions_and_reads_little() {
    let Some(options) = options("llama") else { return };
    let options = own_device(options, "0");
    let loaded = open(&LoadOptions { mtp: Some(module(2)), ..options.clone() });
    let gpu = draftscope::model::gpu::opened(options.adapter.as_deref()).unwrap();
    let (drafters, Loaded { target, .. }) = engine::drafter_set(loaded);
    for (k, tree, most) in [(3, None, 2), (5, None, 2), (0, None, 1), (3, Some(5), 5)] {
        let settings = settings(DrafterKind::Mtp, k, tree);
        let (target, drafters) = (target.fork().unwrap(), drafters.fork().unwrap());
        let mut decoder = Decoder::new(target, drafters, &settings);
        decoder.prefill(1, &prompt(3, 37)).unwrap();
        let (mut rounds, mut foreign) = (0, 0);
        while rounds < 12 {
            let before = gpu.work();
            let (mut on_device, mut drafted) = (None, 0);
            let tokens = decoder.round(&mut |event| {
                match event {
                    EventKind::Committed(Committed { device, .. }) => on_device = device,
                    EventKind::Drafted(_) => drafted += 1,
                    _ => {}
                }
                Duration::ZERO
            });
            foreign += tokens.unwrap().iter().filter(|token| token.0 % 4 > 0).count();
            let (work, on_device) = (gpu.work().since(before), on_device.unwrap());
            assert!(work.submissions <= most, "k = {k}, tree {tree:?}: {work:?}");
            assert_eq!(work.buffers, 0);
            let besides = work.read_bytes - work.state_bytes;
            // 320 logits a row would be 1,280 bytes; statistics and 32 of them are 280, and a row of a draft as much
            assert!(besides <= 32 + 280 * (2 * u64::from(k) + 9), "{besides} bytes, {work:?}");
            assert_eq!((on_device.draft.submissions > 0, drafted > 0), (k > 0, k > 0));
            let total = on_device.total();
            assert_eq!((total.launches, total.read_bytes), (work.dispatches, work.read_bytes));
            if tree.is_none() {
                assert_eq!((on_device.verify.submissions, total.submissions), (1, work.submissions));
            }
            assert_eq!(on_device.verify.nanoseconds > 0, gpu.info().has_timestamps);
            rounds += 1;
        }
        assert!(foreign > 3, "tokens outside of the draft vocabulary were committed");
    }
    // what the default model's rounds read: statistics of 49,152 logits in each of four rows, of 9,216 for each of three
    // drafts, and the best of each
    let row = |logits: u64| 16 * logits.div_ceil(512) + 8 * 33;
    assert!(4 * row(49_152) + 3 * row(9_216) < 64 << 10);
}

/// Distributions of greedy decoding that come from the best logits are those of whole rows.
#[test]
fn what_a_greedy_round_shows_is_what_whole_rows_give() {
    let Some(options) = options("qwen3") else { return };
    let mut target = open(&options).target;
    let tokens = prompt(2, 30);
    target.forward(&tokens, LogitRows::Last).unwrap();
    let greedy = Sampler { sampling: Sampling::default() };
    for parents in [None, Some(&[0, 0, 1, 0, 3][..])] {
        let mut run = |rows| {
            let since = target.checkpoint().unwrap();
            let out = match parents {
                None => target.forward(&tokens[..5], rows),
                Some(parents) => target.forward_tree(&tokens[..5], parents, rows),
            };
            target.truncate(30, &since).unwrap();
            out.unwrap()
        };
        let [all, best] = [LogitRows::All, LogitRows::Best].map(&mut run);
        assert!(best.logits.is_empty() && best.hidden == all.hidden && best.scored() == 5);
        for row in 0..5 {
            let follows = |at: &usize| *at > 0 && parents.map_or(*at - 1, |parents| parents[*at]) == row;
            let also: Vec<TokenId> = (0..5).filter(follows).map(|at| tokens[at]).collect();
            let [all, best] = [&all, &best]
                .map(|out| greedy.distribution(&LogitRow::of(out, row, None), also.iter().copied(), row).unwrap());
            assert_eq!(all, best, "row {row}");
            assert!(also.iter().all(|token| best.prob(*token) > 0.0));
        }
    }
}

/// Loses a device after some rounds.
struct Loses {
    adapter: Option<String>,
    rounds: u32,
}

impl Consumer for Loses {
    fn name(&self) -> &str {
        "a test"
    }
    fn event(&mut self, event: &Event) -> std::io::Result<()> {
        if let EventKind::Committed(_) = event.kind {
            self.rounds += 1;
            if self.rounds == 3 {
                draftscope::model::gpu::opened(self.adapter.as_deref()).unwrap().lose();
            }
        }
        Ok(())
    }
    fn finish(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The device is lost in the middle of an answer: one sentence says so, and the recording is whole.
#[test]
fn a_lost_device_ends_the_run_with_a_sentence_and_a_whole_recording() {
    let Some(options) = options("llama") else { return };
    let options = own_device(options, "00");
    let settings = Settings { max_tokens: 100, ..settings(DrafterKind::Ngram, 3, None) };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lost.jsonl");
    let adapter = options.adapter.clone();
    let mut driver =
        Driver::new(engine::spawn(engine::EngineConfig { recipe: options, settings, grammar: None }).unwrap());
    driver.add(Box::new(Recorder::create(&file, RecordOptions::default()).unwrap()));
    driver.add(Box::new(Loses { adapter, rounds: 0 }));
    let outcome = driver.answer(Prompt::Raw("hello hello".to_owned()));
    let Outcome::Failed(message) = &outcome else { panic!("{outcome:?}") };
    assert!(message.contains("the GPU stopped working") && message.contains("--device cpu"), "{message}");
    assert!(!message.contains('\n'), "one sentence: {message}");
    assert!(driver.finish().is_empty(), "the recorder wrote everything");
    let recording = Recording::open(&file).unwrap();
    // a run that failed has no closing line; every line that it has is whole
    assert!(std::fs::read(&file).unwrap().ends_with(b"\n"));
    let header = recording.header().gpu.clone().unwrap();
    assert!(header.row_by_row.is_none() && header.memory_bytes > 0 && !header.adapter.is_empty());
    let events: Vec<EventKind> = recording.events().unwrap().map(|event| event.unwrap().kind).collect();
    let rounds =
        events.iter().filter(|kind| matches!(kind, EventKind::Committed(Committed { device: Some(_), .. }))).count();
    assert!(rounds >= 3 && matches!(events.last(), Some(EventKind::Failed { message: last }) if last == message));
}

/// Runs the program; returns what it printed and whether it succeeded.
fn program(arguments: &[&str], driver: Option<&str>) -> (String, String, bool) {
    let mut command = assert_cmd::Command::cargo_bin("draftscope").unwrap();
    command.args(arguments).env("DRAFTSCOPE_OFFLINE", "1");
    if let Some(driver) = driver {
        command.env("VK_DRIVER_FILES", driver).env("VK_ICD_FILENAMES", driver);
    }
    let out = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let error = format!("{}: {}", out.status, text(&out.stderr));
    (text(&out.stdout), error, out.status.success())
}

#[test]
fn the_program_runs_on_a_gpu_and_lists_it() {
    if options("llama").is_none() {
        return;
    }
    let model = path("llama");
    let run = |k: &str| {
        let model = model.to_str().unwrap();
        let (out, error, ok) = program(
            &[
                "run",
                "-m",
                model,
                "--device",
                "gpu",
                "--adapter",
                "0",
                "-k",
                k,
                "--drafter",
                "ngram",
                "--max-tokens",
                "12",
                "--raw",
                "hello",
            ],
            None,
        );
        assert!(ok, "{error}");
        out
    };
    assert_eq!(run("0"), run("4"));
    let (list, _, ok) = program(&["devices", "--json"], None);
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    assert!(ok && list[0]["name"].is_string() && list[0]["lacks"].is_null());
}

#[cfg(target_os = "linux")]
#[test]
fn without_a_driver_the_gpu_is_named_as_missing_and_auto_says_nothing() {
    let model = path("llama");
    let arguments = ["run", "-m", model.to_str().unwrap(), "--max-tokens", "4", "--raw", "hello", "--drafter", "ngram"];
    let none = Some("/nonexistent/driver.json");
    let (_, error, ok) = program(&[&arguments[..], &["--device", "gpu"]].concat(), none);
    assert!(!ok && error.contains("no Vulkan, Metal or DirectX 12 driver was found"), "{error}");
    let (_, error, ok) = program(&arguments, none);
    assert!(ok && !error.to_lowercase().contains("gpu") && !error.contains("Vulkan"), "{error}");
    let (list, _, ok) = program(&["devices"], none);
    assert!(ok && list.starts_with("No GPU driver was found"), "{list}");
}

#[test]
fn what_does_not_run_on_a_gpu_is_named() {
    let Some(gpu) = options("deepseek") else { return };
    let error = |options: &LoadOptions| load(options, &mut |_, _, _| {}).err().unwrap().to_string();
    assert_eq!(error(&gpu), "latent attention does not run on a GPU yet; choose --device cpu");
    let unknown = error(&LoadOptions { adapter: Some("no such".into()), ..options("llama").unwrap() });
    assert!(unknown.starts_with("no adapter is named 'no such'; there are: 0 "), "{unknown}");
    let misplaced = error(&LoadOptions { adapter: Some("0".into()), ..on_cpu("llama") });
    assert_eq!(misplaced, "--adapter names a GPU; add --device gpu");
}
