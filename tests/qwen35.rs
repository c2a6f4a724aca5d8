//! Qwen3.5 with the draft module it brings, from either form of file, against the numpy oracle (see
//! `fixtures/checkpoints/README.md`): logits, every convention of the module, states that are taken back, texts that
//! speculation does not change.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::checkpoint::{Golden, copy, edit, path, recipe};
use draftscope::model::load::{Loaded, load};
use draftscope::model::options::DraftVocab;
use draftscope::model::options::{Backend, LoadOptions, ModuleFile, Rollback};
use draftscope::model::{Checkpoint, DraftModule, LogitRows, Model, ModelError, Rows, Tap};
use draftscope::protocol::{
    Convention, Drafting, EventKind, Feed, Message, MtpOverride, Pairing, Settings, SlotPosition, SlotZero, TokenId,
};
use draftscope::speculate::decoder::Decoder;
use draftscope::speculate::drafter::{Drafter, ModelDrafter, MtpDrafter, NgramDrafter, NoDrafter, RandomDrafter};
use serde_json::json;

const FORMS: [&str; 2] = ["qwen35", "qwen35.gguf"];

/// As the program asks for it: with the module that comes with the program, which does not fit this target.
fn asked(path: &Path) -> LoadOptions {
    asked_on(path, Backend::Candle)
}

fn asked_on(path: &Path, backend: Backend) -> LoadOptions {
    let other =
        ModuleFile { name: "built in".into(), weights: [].into(), config: [].into(), sha256: None, required: false };
    LoadOptions { mtp: Some(other), ..recipe(path.into(), backend) }
}

fn open_as(name: &str, change: impl FnOnce(LoadOptions) -> LoadOptions) -> Loaded {
    load(&change(asked(&path(name))), &mut |_, _, _| {}).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn open_on(name: &str, backend: Backend) -> Loaded {
    let loaded = load(&asked_on(&path(name), backend), &mut |_, _, _| {}).unwrap();
    assert_eq!(loaded.target.spec().backend, if backend == Backend::Candle { "candle" } else { "native" });
    loaded
}

fn open(name: &str) -> Loaded {
    open_as(name, |recipe| recipe)
}

fn largest_difference(got: &[f32], want: &[f32]) -> f32 {
    assert_eq!(got.len(), want.len());
    got.iter().zip(want).fold(0.0, |most, (got, want)| most.max((got - want).abs()))
}

#[test]
fn logits_and_states_are_those_of_the_oracle_in_one_pass_and_one_by_one() {
    let golden = Golden::of("qwen35");
    let tokens = golden.tokens("tokens");
    for (name, backend) in FORMS.iter().flat_map(|name| [Backend::Candle, Backend::Native].map(|on| (*name, on))) {
        let mut target = open_on(name, backend).target;
        target.set_tap(&Tap::new(vec![draftscope::model::State::Normed, draftscope::model::State::Residual])).unwrap();
        let mut alone = target.fork().unwrap();
        let out = target.forward(&tokens, LogitRows::All).unwrap();
        let mut singles = Vec::new();
        for token in &tokens {
            singles.extend_from_slice(alone.forward(&[*token], LogitRows::All).unwrap().logits.row(0));
        }
        let logits = golden.numbers("logits");
        let (normed, residual) = (golden.numbers("hidden"), golden.numbers("residual"));
        let both: Vec<f32> = normed.chunks(64).zip(residual.chunks(64)).flat_map(|(a, b)| [a, b].concat()).collect();
        for (what, got, want) in [
            ("logits", out.logits.as_slice(), &logits),
            ("logits one by one", &singles, &logits),
            ("states", out.hidden.as_slice(), &both),
        ] {
            let off = largest_difference(got, want);
            println!("{name} on {backend:?}, {what}: off by {off:.1e}");
            assert!(off < 1e-4, "{name} on {backend:?}, {what}: off by {off}");
        }
    }
}

/// Logits of the module at depths 1, 2 and 3 behind the golden tokens, run by hand as a drafter runs it.
fn module_logits(target: &mut dyn Model, module: &mut dyn DraftModule, wanted: MtpOverride) -> Vec<f32> {
    let tokens = Golden::of("qwen35").tokens("tokens");
    let spec = wanted.apply(module.spec());
    module.set_spec(&spec).unwrap();
    target.set_tap(&module.tap()).unwrap();
    target.truncate(0, &Checkpoint { len: 0 }).unwrap();
    let hidden = target.forward(&tokens[..tokens.len() - 1], LogitRows::Last).unwrap().hidden;
    let own = spec.pairing == Pairing::Own;
    let (first, mut queue) =
        if own { (&tokens[..tokens.len() - 1], vec![tokens[tokens.len() - 1]]) } else { (&tokens[1..], vec![]) };
    if spec.slot0 == SlotZero::Extra {
        module.forward(&tokens[..1], &Rows::new(vec![0.0; hidden.width()], hidden.width())).unwrap();
    }
    let mut out = module.forward(first, &hidden).unwrap();
    if spec.holds_position() {
        module.hold_position(Some(module.len() - 1));
    }
    let mut all = out.logits.as_slice().to_vec();
    for _ in 0..2 {
        let row = out.logits.row(0);
        let best = (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap();
        queue.push(module.draft_vocab()[best]);
        out = module.forward(&[queue.remove(0)], &out.hidden.last_row()).unwrap();
        all.extend_from_slice(out.logits.row(0));
    }
    module.hold_position(None);
    module.set_spec(&MtpOverride::default().apply(spec)).unwrap();
    all
}

#[test]
fn the_module_runs_every_convention_as_the_oracle_does_and_a_wrong_one_changes_it() {
    let golden = Golden::of("qwen35");
    let made = golden.numbers("mtp.made");
    for (name, backend) in FORMS.iter().flat_map(|name| [Backend::Candle, Backend::Native].map(|on| (*name, on))) {
        let Loaded { mut target, mtp, .. } = open_on(name, backend);
        let mut module = mtp.unwrap().0;
        let shipped = module.spec();
        assert_eq!(shipped.feed, Feed::PostNorm);
        let off = largest_difference(&module_logits(target.as_mut(), module.as_mut(), MtpOverride::default()), &made);
        println!("{name} as made: off by {off:.1e}");
        assert!(off < 1e-4, "{name}: off by {off}");
        for convention in Convention::ALL {
            for value in convention.names() {
                let mut wanted = MtpOverride::default();
                wanted.set(*convention, Some(value)).unwrap();
                if wanted.apply(shipped) == shipped {
                    continue;
                }
                module.set_spec(&shipped).unwrap();
                let got = module_logits(target.as_mut(), module.as_mut(), wanted);
                // norms of a GGUF file are 1 + w already: there the other form adds 1 once more
                if *convention != Convention::Norm || name == "qwen35" {
                    // one further is the same for rotary positions
                    let key = wanted.to_string().replace("constant-next", "constant");
                    let off = largest_difference(&got, &golden.numbers(&format!("mtp.{key}")));
                    println!("{name} {wanted}: off by {off:.1e}");
                    assert!(off < 1e-4, "{name} {wanted}: off by {off}");
                }
                let changed = largest_difference(&got, &made);
                let same = wanted.position == Some(SlotPosition::Next);
                assert_eq!(changed < 1e-4, same, "{name}: {wanted} changes logits by {changed}");
            }
        }
    }
}

/// Everything a target will ever say from here on, by a continuation.
fn voice(target: &dyn Model, tokens: &[TokenId]) -> Vec<f32> {
    let mut fork = target.fork().unwrap();
    fork.forward(tokens, LogitRows::All).unwrap().logits.as_slice().to_vec()
}

#[test]
fn a_state_taken_back_is_that_of_the_kept_tokens_alone() {
    let tokens = Golden::of("qwen35").tokens("tokens");
    for (name, backend, rollback) in [
        ("qwen35", Backend::Candle, Rollback::Snapshots),
        ("qwen35", Backend::Native, Rollback::Snapshots),
        ("qwen35.gguf", Backend::Native, Rollback::Replay),
    ] {
        let recipe = LoadOptions { rollback, ..asked_on(&path(name), backend) };
        let target = load(&recipe, &mut |_, _, _| {}).unwrap().target;
        // a pass over several rows sums in another order than one over one row, but on the native kernels
        let most = if backend == Backend::Native { 0.0 } else { 1e-4 };
        let next = &tokens[18..21];
        // lengths below the convolution's width too
        for base in [0, 1, 2, 3, 5, 9] {
            for rows in 1..=7 {
                let mut verified = target.fork().unwrap();
                let mut plain = target.fork().unwrap();
                if base > 0 {
                    verified.forward(&tokens[..base], LogitRows::All).unwrap();
                    plain.forward(&tokens[..base], LogitRows::All).unwrap();
                }
                let since = verified.checkpoint().unwrap();
                for accepted in 0..rows {
                    // one state for each number of accepted drafts, from one pass
                    let mut kept = verified.fork().unwrap();
                    kept.forward(&tokens[base..base + rows], LogitRows::All).unwrap();
                    let len = base + accepted + 1;
                    assert_eq!(kept.rewindable(len), len);
                    kept.truncate(len, &since).unwrap();
                    plain.forward(&tokens[base + accepted..len], LogitRows::All).unwrap();
                    assert_eq!((kept.len(), plain.len()), (len, len));
                    let off = largest_difference(&voice(kept.as_ref(), next), &voice(plain.as_ref(), next));
                    assert!(off <= most, "{name} {rollback:?}: {accepted} of {rows} rows behind {base}: off by {off}");
                }
            }
        }
    }
}

#[test]
fn both_ways_of_taking_back_give_the_same_bits() {
    let tokens = Golden::of("qwen35").tokens("tokens");
    let open = |rollback| open_as("qwen35", |recipe| LoadOptions { rollback, ..recipe }).target;
    let (mut copies, mut replay) = (open(Rollback::Snapshots), open(Rollback::Replay));
    assert!(copies.spec().info.snapshot_bytes == copies.spec().info.state_bytes && copies.spec().info.state_bytes > 0);
    assert!(replay.spec().info.snapshot_bytes < copies.spec().info.snapshot_bytes);
    for (rows, keep) in [(4, 2), (1, 1), (6, 1), (3, 3), (1, 1), (5, 4), (7, 6)] {
        for target in [&mut copies, &mut replay] {
            let since = target.checkpoint().unwrap();
            let at = since.len;
            target.forward(&tokens[at..at + rows], LogitRows::All).unwrap();
            target.truncate(at + keep, &since).unwrap();
        }
        assert!(voice(copies.as_ref(), &tokens[20..23]) == voice(replay.as_ref(), &tokens[20..23]));
    }
}

#[test]
fn a_length_whose_state_is_gone_is_an_error_and_the_next_one_below_is_named() {
    let tokens = Golden::of("qwen35").tokens("greedy");
    let mut target = open("qwen35").target;
    let start = Checkpoint { len: 0 };
    target.forward(&tokens[..60], LogitRows::Last).unwrap();
    assert!(matches!(target.truncate(50, &start), Err(ModelError::Rewind { .. })));
    assert_eq!(target.len(), 60);
    assert_eq!(target.rewindable(60), 60);
    // near the end of a prompt, where conversations part
    assert_eq!((target.rewindable(59), target.rewindable(58), target.rewindable(43)), (59, 44, 0));
    for len in [59, 44, 0] {
        let mut back = target.fork().unwrap();
        back.truncate(len, &start).unwrap();
        let mut fresh = open("qwen35").target;
        if len > 0 {
            fresh.forward(&tokens[..len], LogitRows::Last).unwrap();
        }
        let off = largest_difference(&voice(back.as_ref(), &tokens[..3]), &voice(fresh.as_ref(), &tokens[..3]));
        assert!(off < 1e-5, "back to {len}: off by {off}");
    }
    let full = target.forward(&vec![TokenId(1); 600], LogitRows::All);
    assert!(matches!(full, Err(ModelError::ContextFull { .. })));
    let none = target.forward(&[TokenId(1), TokenId(9999)], LogitRows::All);
    assert!(matches!(none, Err(ModelError::Vocabulary { .. })) && target.len() == 60);
}

fn decode(
    target: Box<dyn Model>,
    drafter: Box<dyn Drafter>,
    settings: &Settings,
    prompt: &[TokenId],
    len: usize,
) -> Told {
    let mut decoder = Decoder::new(target, drafter, settings);
    decoder.prefill(1, prompt).unwrap();
    let mut told = Told::default();
    while decoder.committed().len() < prompt.len() + len {
        decoder
            .round(&mut |event| {
                match event {
                    EventKind::RoundStarted { .. } => told.rounds += 1,
                    EventKind::Drafted { .. } => told.drafted += 1,
                    EventKind::Verified { verdict, .. } => {
                        told.accepted.resize(told.accepted.len().max(verdict.accepted()), 0);
                        told.accepted[..verdict.accepted()].iter_mut().for_each(|count| *count += 1);
                    }
                    EventKind::Notice { message } => told.notices.push(message),
                    _ => {}
                }
                Duration::ZERO
            })
            .unwrap();
    }
    told.text = decoder.committed()[prompt.len()..prompt.len() + len].to_vec();
    told
}

#[derive(Default)]
struct Told {
    text: Vec<TokenId>,
    rounds: u64,
    drafted: u64,
    /// Rounds in which the draft of each position was accepted.
    accepted: Vec<u64>,
    notices: Vec<String>,
}

fn with_k(draft_len: u8) -> Settings {
    Settings { draft_len, ..Settings::default() }
}

#[test]
fn greedy_text_is_the_oracles_and_speculation_changes_nothing() {
    const LEN: usize = 210;
    let golden = Golden::of("qwen35");
    let prompt = &golden.tokens("tokens")[..8];
    for (name, backend, rollback) in [
        ("qwen35", Backend::Candle, Rollback::Snapshots),
        ("qwen35.gguf", Backend::Candle, Rollback::Replay),
        ("qwen35", Backend::Native, Rollback::Snapshots),
    ] {
        let recipe = LoadOptions { rollback, ..asked_on(&path(name), backend) };
        let Loaded { target, mtp, .. } = load(&recipe, &mut |_, _, _| {}).unwrap();
        let module = mtp.unwrap().0;
        let plain = decode(target.fork().unwrap(), Box::new(NoDrafter), &with_k(0), prompt, LEN).text;
        assert_eq!(plain, golden.tokens("greedy")[..LEN], "{name}");
        for k in 1..=6 {
            let drafters: [(&str, Box<dyn Drafter>); 4] = [
                ("mtp", Box::new(MtpDrafter::new(module.fork().unwrap()))),
                ("ngram", Box::new(NgramDrafter)),
                ("random", Box::new(RandomDrafter)),
                ("same model", Box::new(ModelDrafter::new(target.fork().unwrap()))),
            ];
            for (who, drafter) in drafters {
                let told = decode(target.fork().unwrap(), drafter, &with_k(k), prompt, LEN);
                assert_eq!(told.text, plain, "{name} {rollback:?}: {who}, k = {k}");
                assert!(told.notices.is_empty(), "{who}: {:?}", told.notices);
                let fewest = (LEN - 1).div_ceil(usize::from(k) + 1) as u64;
                assert!(who != "same model" || told.rounds == fewest, "{} rounds at k = {k}", told.rounds);
            }
        }
    }
}

#[test]
fn drafts_and_acceptances_are_those_of_the_oracle() {
    let golden = Golden::of("qwen35-bigram");
    let prompt = golden.tokens("tokens");
    for k in 1..=4u8 {
        let Loaded { target, mtp, .. } = open("qwen35-bigram");
        let mut decoder = Decoder::new(target, Box::new(MtpDrafter::new(mtp.unwrap().0)), &with_k(k));
        decoder.prefill(1, &prompt).unwrap();
        let mut accepted = vec![0u64; usize::from(k)];
        let (mut rounds, mut drafted) = (0u64, 0u64);
        // the oracle stops behind the round in which the 80th token after the first was written
        while decoder.committed().len() < prompt.len() + 80 {
            decoder
                .round(&mut |event| {
                    match event {
                        EventKind::Drafted { .. } => drafted += 1,
                        EventKind::Verified { verdict, .. } => {
                            accepted[..verdict.accepted()].iter_mut().for_each(|count| *count += 1);
                        }
                        _ => {}
                    }
                    Duration::ZERO
                })
                .unwrap();
            rounds += 1;
        }
        let want = &golden.told[k.to_string()];
        let got = json!({"drafted": drafted, "accepted": accepted.iter().sum::<u64>(), "rounds": rounds, "accepted_at": accepted});
        assert_eq!(&got, want, "k = {k}");
        let text = &decoder.committed()[prompt.len()..prompt.len() + 80];
        assert_eq!(text, &golden.tokens("greedy")[..80]);
    }
}

#[test]
fn a_tree_is_refused_in_a_sentence_and_a_chain_drafted_instead() {
    let golden = Golden::of("qwen35");
    let Loaded { target, mtp, .. } = open("qwen35");
    let drafting = Drafting { tree: Some(6), ..Drafting::default() };
    let drafter = Box::new(MtpDrafter::new(mtp.unwrap().0));
    let told = decode(target, drafter, &Settings { drafting, ..with_k(3) }, &golden.tokens("tokens")[..8], 40);
    assert_eq!(told.text, golden.tokens("greedy")[..40]);
    assert!(told.drafted > 0 && told.notices.len() == 1 && told.notices[0].contains("tree"), "{:?}", told.notices);
}

#[test]
fn k_is_chosen_for_the_chain_that_takes_a_declined_trees_place() {
    let home = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_draftscope"));
        command.args(["run", "--prompt", "a b", "--max-tokens", "60", "--output", "jsonl", "--model"]);
        command.arg(path("qwen35")).args(arguments).env("XDG_CACHE_HOME", home.path());
        let out = command.output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let lines = String::from_utf8(out.stdout).unwrap();
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<serde_json::Value>>()
    };
    let committed = |events: &[serde_json::Value]| -> Vec<serde_json::Value> {
        let tokens = events.iter().filter(|event| event["type"] == "committed").map(|event| &event["tokens"]);
        tokens.flat_map(|tokens| tokens.as_array().unwrap().iter().map(|token| token["id"].clone())).collect()
    };
    let (auto, fixed) = (run(&["-k", "auto", "--tree", "8"]), run(&["-k", "2"]));
    let notices: Vec<_> = auto.iter().filter_map(|event| event["message"].as_str()).collect();
    assert!(notices.iter().any(|notice| notice.contains("a chain is drafted instead")), "{notices:?}");
    assert!(notices.iter().all(|notice| !notice.contains("stays as it is")), "{notices:?}");
    assert!(auto.iter().any(|event| event["type"] == "draft_len_chosen"), "of drafts that mostly fail, fewer are made");
    assert_eq!(committed(&auto), committed(&fixed));
}

#[test]
fn a_second_prompt_goes_on_from_what_is_kept_of_the_first() {
    let golden = Golden::of("qwen35");
    let all = golden.tokens("greedy");
    let answer = |decoder: &mut Decoder, prompt: &[TokenId]| {
        let prefilled = decoder.prefill(1, prompt).unwrap();
        while decoder.committed().len() < prompt.len() + 20 {
            decoder.round(&mut |_| Duration::ZERO).unwrap();
        }
        let EventKind::Prefilled { cached, .. } = prefilled else { panic!("{prefilled:?}") };
        (decoder.committed()[prompt.len()..prompt.len() + 20].to_vec(), cached)
    };
    let fresh = || {
        let Loaded { target, mtp, .. } = open("qwen35");
        Decoder::new(target, Box::new(MtpDrafter::new(mtp.unwrap().0)), &with_k(3))
    };
    let first = all[..60].to_vec();
    let elsewhere = [&all[..58], &all[100..120]].concat(); // parts two tokens before the first prompt's end
    let mut decoder = fresh();
    answer(&mut decoder, &first);
    let longer = [decoder.committed(), &all[..5]].concat();
    for (prompt, least) in [(longer, 70), (elsewhere, 44), (all[80..100].to_vec(), 0)] {
        let (text, cached) = answer(&mut decoder, &prompt);
        assert_eq!(text, answer(&mut fresh(), &prompt).0);
        assert!(cached >= least, "{cached} of {} are kept", prompt.len());
    }
}

#[test]
fn a_trimmed_draft_head_proposes_its_tokens_and_changes_no_text() {
    let golden = Golden::of("qwen35");
    let prompt = &golden.tokens("tokens")[..8];
    let listed: Vec<TokenId> = (0..320).step_by(3).map(TokenId).collect();
    for (vocab, count) in [(DraftVocab::First(100), 102), (DraftVocab::Tokens(listed.clone()), listed.len())] {
        let Loaded { target, mtp, .. } = open_as("qwen35", |recipe| LoadOptions { draft_vocab: Some(vocab), ..recipe });
        let (module, info) = mtp.unwrap();
        assert_eq!((module.draft_vocab().len(), info.draft_vocab as usize), (count, count));
        let told = decode(target, Box::new(MtpDrafter::new(module)), &with_k(3), prompt, 60);
        assert_eq!(told.text, golden.tokens("greedy")[..60]);
    }
    let outside = asked(&path("qwen35"));
    let outside = LoadOptions { draft_vocab: Some(DraftVocab::Tokens(vec![TokenId(320)])), ..outside };
    let loaded = load(&outside, &mut |_, _, _| {}).unwrap();
    assert!(loaded.mtp.is_none() && loaded.notice.unwrap().contains("320"));
}

#[test]
fn texts_and_conversations_become_the_oracles_tokens() {
    let golden = Golden::of("qwen35");
    for name in FORMS {
        let loaded = open(name);
        for text in golden.told["texts"].as_array().unwrap() {
            let want: Vec<TokenId> = serde_json::from_value(text["ids"].clone()).unwrap();
            let text = text["text"].as_str().unwrap();
            assert_eq!(loaded.codec.encode(text).unwrap(), want, "{name}: {text:?}");
        }
        for (kind, messages) in golden.told["messages"].as_object().unwrap() {
            let messages: Vec<Message> = serde_json::from_value(messages.clone()).unwrap();
            let rendered = loaded.template.as_ref().unwrap().render(&messages).unwrap();
            assert_eq!(rendered, golden.told["rendered"][kind].as_str().unwrap(), "{name}: {kind}");
        }
        assert_eq!(loaded.codec.end_names(), ["<|endoftext|>", "<|im_end|>"], "{name}");
    }
}

#[test]
fn a_module_that_is_announced_and_not_there_is_said_and_the_model_opens() {
    let folder = copy("qwen35");
    edit_tensors(folder.path(), |name| !name.starts_with("mtp."));
    let loaded = load(&asked(folder.path()), &mut |_, _, _| {}).unwrap();
    let notice = loaded.notice.unwrap();
    assert!(loaded.mtp.is_none() && notice.contains("announces an MTP module and holds no tensor of it"), "{notice}");
    let folder = copy("qwen35");
    edit_tensors(folder.path(), |name| name != "mtp.layers.0.self_attn.k_proj.weight");
    let loaded = load(&asked(folder.path()), &mut |_, _, _| {}).unwrap();
    let notice = loaded.notice.unwrap();
    assert!(loaded.mtp.is_none() && notice.contains("mtp.layers.0.self_attn.k_proj.weight"), "{notice}");
    // one that is not announced is used all the same: tensors decide
    let folder = copy("qwen35");
    edit(folder.path(), "config.json", |config| config["text_config"]["mtp_num_hidden_layers"] = json!(0));
    assert!(load(&asked(folder.path()), &mut |_, _, _| {}).unwrap().mtp.is_some());
}

/// Rewrites the safetensors file with some of its tensors.
fn edit_tensors(folder: &Path, keep: impl Fn(&str) -> bool) {
    let file = folder.join("model.safetensors");
    let bytes = fs::read(&file).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let kept = tensors.tensors().into_iter().filter(|(name, _)| keep(name));
    let rest = safetensors::serialize(kept, None).unwrap();
    fs::write(&file, rest).unwrap();
}

#[test]
fn configs_and_files_that_do_not_go_are_refused_in_a_sentence_that_names_them() {
    type Spoil = fn(&Path);
    fn text(folder: &Path, key: &str, value: serde_json::Value) {
        edit(folder, "config.json", |config| config["text_config"][key] = value);
    }
    let cases: [(Spoil, &str); 19] = [
        (|f| text(f, "attn_output_gate", json!(false)), "'attn_output_gate' is false"),
        (|f| text(f, "mtp_use_dedicated_embeddings", json!(true)), "'mtp_use_dedicated_embeddings' is true"),
        (|f| text(f, "mtp_num_hidden_layers", json!(2)), "'mtp_num_hidden_layers' is 2"),
        (|f| text(f, "mamba_ssm_dtype", json!("bfloat16")), "'mamba_ssm_dtype' is 'bfloat16'"),
        (|f| text(f, "output_gate_type", json!("tanh")), "'output_gate_type' is 'tanh'"),
        (|f| text(f, "num_experts", json!(8)), "'num_experts' is 8"),
        (|f| text(f, "linear_new_trick", json!(1)), "'linear_new_trick' is not known"),
        (
            |f| text(f, "layer_types", json!(["full_attention", "linear_attention", "full_attention"])),
            "contradict each other",
        ),
        (
            |f| text(f, "layer_types", json!(["linear_attention", "sliding_attention", "full_attention"])),
            "'sliding_attention'",
        ),
        (|f| text(f, "layer_types", json!(["linear_attention"])), "'layer_types' names 1 layers"),
        (|f| text(f, "linear_num_value_heads", json!(3)), "'linear_num_value_heads' is 3"),
        (|f| text(f, "linear_conv_kernel_dim", json!(0)), "'linear_conv_kernel_dim' is 0"),
        (|f| text(f, "linear_key_head_dim", serde_json::Value::Null), "expected usize"),
        (
            |f| text(f, "rope_parameters", json!({"rope_theta": 1e4, "partial_rotary_factor": 1.5})),
            "'partial_rotary_factor' is 1.5",
        ),
        (
            |f| {
                text(
                    f,
                    "rope_parameters",
                    json!({"rope_theta": 1e4, "partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1]}),
                );
            },
            "'mrope_section' covers 4 pairs",
        ),
        (|f| text(f, "rope_parameters", json!({"rope_type": "longrope", "rope_theta": 1e4})), "'longrope'"),
        (|f| text(f, "linear_value_head_dim", json!(32)), "has shape"),
        (
            |f| edit_tensors(f, |name| !name.ends_with("layers.1.linear_attn.dt_bias")),
            "no tensor 'model.language_model.layers.1.linear_attn.dt_bias'",
        ),
        (
            |f| {
                let file = f.join("model.safetensors");
                let bytes = fs::read(&file).unwrap();
                fs::write(file, &bytes[..bytes.len() / 2]).unwrap();
            },
            "it ends in the middle",
        ),
    ];
    for (spoil, says) in cases {
        let folder = copy("qwen35");
        spoil(folder.path());
        let error = load(&asked(folder.path()), &mut |_, _, _| {}).err().unwrap_or_else(|| panic!("opened: {says}"));
        let error = error.to_string();
        assert!(error.contains(says) && error.lines().count() == 1 && error.len() < 400, "{says}: {error}");
    }
}

#[test]
fn a_shard_that_is_missing_or_cut_short_is_named() {
    let folder = copy("qwen35");
    let (whole, shards) = (folder.path().join("model.safetensors"), ["model-1.safetensors", "model-2.safetensors"]);
    let bytes = fs::read(&whole).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let mut map = serde_json::Map::new();
    for (index, shard) in shards.iter().enumerate() {
        let part =
            tensors.tensors().into_iter().enumerate().filter(|(at, _)| at % 2 == index).map(|(_, tensor)| tensor);
        let part: Vec<_> = part.collect();
        map.extend(part.iter().map(|(name, _)| (name.clone(), json!(shard))));
        fs::write(folder.path().join(shard), safetensors::serialize(part, None).unwrap()).unwrap();
    }
    fs::remove_file(whole).unwrap();
    fs::write(folder.path().join("model.safetensors.index.json"), json!({"weight_map": map}).to_string()).unwrap();
    let opened = load(&asked(folder.path()), &mut |_, _, _| {}).unwrap();
    assert!(opened.mtp.is_some() && opened.notice.is_none());
    let second = folder.path().join(shards[1]);
    let cut = fs::OpenOptions::new().write(true).open(&second).unwrap();
    cut.set_len(20_000).unwrap();
    let refused = |says: &str| {
        let error = load(&asked(folder.path()), &mut |_, _, _| {}).err().unwrap().to_string();
        assert!(error.contains(says) && error.lines().count() == 1, "{says}: {error}");
    };
    refused("it ends in the middle");
    fs::remove_file(second).unwrap();
    refused("the shard 'model-2.safetensors' that it names is not there");
}

#[test]
fn a_cpu_takes_the_native_kernels_whose_rows_have_the_same_bits_together_and_alone() {
    let golden = Golden::of("qwen35");
    let tokens = golden.tokens("greedy");
    for name in ["qwen35", "qwen35.gguf", "qwen35-bigram"] {
        let loaded = load(&asked_on(&path(name), Backend::Auto), &mut |_, _, _| {}).unwrap();
        assert_eq!((loaded.target.spec().backend, loaded.backend_notice), ("native", None), "{name}");
        let mut module = loaded.mtp.unwrap().0;
        let (mut together, mut alone) = (loaded.target.fork().unwrap(), loaded.target);
        for rows in [1, 2, 3, 5, 7, 11, 16] {
            let at = together.len();
            let out = together.forward(&tokens[at..at + rows], LogitRows::All).unwrap();
            for row in 0..rows {
                let one = alone.forward(&tokens[at + row..=at + row], LogitRows::All).unwrap();
                assert!(one.logits.row(0) == out.logits.row(row), "{name}: logits of position {}", at + row);
                assert!(one.hidden.row(0) == out.hidden.row(row), "{name}: state of position {}", at + row);
            }
            let slots = module.forward(&tokens[at + 1..=at + rows], &out.hidden).unwrap();
            module.truncate(at).unwrap();
            for row in 0..rows {
                let one = module.forward(&tokens[at + row + 1..at + row + 2], &out.hidden.slice(row..row + 1)).unwrap();
                assert!(one.hidden.row(0) == slots.hidden.row(row), "{name}: slot {}", at + row);
            }
        }
    }
}

#[test]
fn a_module_given_by_hand_or_a_backend_without_states_is_declined_by_name() {
    let own = asked(&path("qwen35"));
    let by_hand = LoadOptions { mtp: own.mtp.clone().map(|mtp| ModuleFile { required: true, ..mtp }), ..own };
    let error = load(&by_hand, &mut |_, _, _| {}).err().unwrap().to_string();
    assert!(error.contains("brings its own"), "{error}");
}
