//! MiMo's layout: a trunk with biases and a draft module in the same folder, against Qwen2's layers of
//! `transformers`.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use common::checkpoint::{Golden, copy, edit, path, recipe};
use draftscope::model::load::card::Card;
use draftscope::model::load::{Loaded, load};
use draftscope::model::options::DraftVocab;
use draftscope::model::options::{Backend, LoadOptions, ModuleFile};
use draftscope::model::{DraftModule, LogitRows};
use draftscope::protocol::{Drafting, EventKind, MtpOverride, Prediction, Settings, TokenId};
use draftscope::speculate::decoder::Decoder;
use draftscope::speculate::drafter::{Drafter, MtpDrafter, NoDrafter};
use safetensors::SafeTensors;

/// The module that the program brings along, which fits none of these targets.
fn built_in() -> ModuleFile {
    let config = serde_json::json!({
        "hidden_size": 576, "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64, "intermediate_size": 1536,
        "vocab_size": 49152, "draft_vocab_size": 16384, "num_nextn_predict_layers": 1, "rms_norm_eps": 1e-5,
        "rope_theta": 1e5, "concat_order": ["embedding", "hidden"]
    });
    let config = config.to_string().into_bytes().into();
    ModuleFile { name: "built-in".into(), weights: Vec::new().into(), config, sha256: None, required: false }
}

fn loaded(folder: PathBuf, backend: Backend) -> Loaded {
    let recipe = LoadOptions { mtp: Some(built_in()), ..recipe(folder, backend) };
    load(&recipe, &mut |_, _, _| {}).unwrap()
}

fn open(backend: Backend) -> (Loaded, Box<dyn DraftModule>) {
    let mut loaded = loaded(path("mimo"), backend);
    assert_eq!((loaded.notice.clone(), loaded.deeper.len()), (None, 0));
    let (module, info) = loaded.mtp.take().unwrap();
    assert!(info.name.ends_with("(its own module)") && info.draft_vocab == 320, "{info:?}");
    (loaded, module)
}

fn farthest(got: &[f32], want: &[f32]) -> f32 {
    assert_eq!(got.len(), want.len());
    got.iter().zip(want).map(|(got, want)| (got - want).abs()).fold(0.0, f32::max)
}

/// Root mean square of the differences, relative to the reference's.
fn difference(got: &[f32], want: &[f32]) -> f64 {
    assert_eq!(got.len(), want.len());
    let square = |x: f32| f64::from(x) * f64::from(x);
    let error: f64 = got.iter().zip(want).map(|(got, want)| square(got - want)).sum();
    (error / want.iter().map(|want| square(*want)).sum::<f64>()).sqrt()
}

/// Logits and states of every slot, and logits at depths 1 to 3.
fn said(backend: Backend, golden: &Golden) -> [Vec<f32>; 3] {
    let tokens = golden.tokens("tokens")[..24].to_vec();
    let (mut loaded, mut module) = open(backend);
    loaded.target.set_tap(&module.tap()).unwrap();
    let hidden = loaded.target.forward(&tokens, LogitRows::Last).unwrap().hidden;
    let mut alone = module.fork().unwrap();
    let slots = (0..23).map(|at| alone.forward(&tokens[at + 1..at + 2], &hidden.slice(at..at + 1)).unwrap());
    let slots: Vec<f32> = slots.flat_map(|slot| slot.logits.row(0).to_vec()).collect();
    let mut out = module.forward(&tokens[1..], &hidden.slice(0..23)).unwrap();
    let states = out.hidden.as_slice().to_vec();
    let mut deeper = Vec::new();
    for draft in golden.tokens("mtp.drafts") {
        deeper.extend_from_slice(out.logits.row(0));
        out = module.forward(&[draft], &out.hidden.last_row()).unwrap();
    }
    [slots, states, deeper]
}

#[test]
fn trunk_and_module_compute_what_the_oracle_does() {
    let golden = Golden::of("mimo");
    for backend in [Backend::Candle, Backend::Native] {
        let mut target = open(backend).0.target;
        assert_eq!(target.spec().backend, if backend == Backend::Native { "native" } else { "candle" });
        let out = target.forward(&golden.tokens("tokens"), LogitRows::All).unwrap();
        let wanted = ["mtp.logits", "mtp.hidden", "mtp.deeper"].map(|name| golden.numbers(name));
        let got = said(backend, &golden);
        let off = [
            difference(out.logits.as_slice(), &golden.numbers("logits")),
            difference(&got[0], &wanted[0]),
            difference(&got[1], &wanted[1]),
            difference(&got[2], &wanted[2]),
        ];
        println!("{backend:?}: off by {off:.5?}, logits by {:.1e}", farthest(&got[2], &wanted[2]));
        // keys and values are halves on the native backend
        let most = if backend == Backend::Candle { 2e-5 } else { 6.0 / 2048.0 };
        assert!(off.iter().all(|off| *off < most), "{backend:?}: {off:?}");
        if backend == Backend::Candle {
            assert!(farthest(&got[0], &wanted[0]).max(farthest(&got[2], &wanted[2])) < 1e-3);
        }
    }
}

fn settings(k: u8, mtp: MtpOverride) -> Settings {
    Settings { draft_len: k, drafting: Drafting { mtp, ..Drafting::default() }, ..Settings::default() }
}

fn round(decoder: &mut Decoder) -> Vec<Prediction> {
    let mut said = Vec::new();
    let mut hear = |event| {
        if let EventKind::Drafted { top, .. } = event {
            said.push(top);
        }
        Duration::ZERO
    };
    decoder.round(&mut hear).unwrap();
    said
}

/// Largest difference of the probabilities that both list.
fn apart(a: &[Prediction], b: &[Prediction]) -> f32 {
    let of = |p: &Prediction, id: TokenId| p.top.iter().find(|c| c.piece.id == id).map_or(0.0, |c| c.prob);
    let pairs = a.iter().zip(b).flat_map(|(a, b)| {
        let ids = a.top.iter().chain(&b.top).map(|c| c.piece.id);
        ids.map(|id| (of(a, id) - of(b, id)).abs()).collect::<Vec<_>>()
    });
    pairs.fold(0.0, f32::max)
}

#[test]
fn a_wrong_convention_changes_what_is_drafted() {
    let prompt = &Golden::of("mimo").tokens("tokens")[..12];
    for backend in [Backend::Candle, Backend::Native] {
        let drafts = |text: &str| {
            let (loaded, module) = open(backend);
            let drafter = Box::new(MtpDrafter::new(module));
            let mut decoder = Decoder::new(loaded.target, drafter, &settings(3, text.parse().unwrap()));
            decoder.prefill(1, prompt).unwrap();
            round(&mut decoder)
        };
        let right = drafts("");
        for (same, texts) in [
            (true, &["feed=pre-norm", "order=hidden-first", "recycle=post-norm", "slot0=zeroed", "pairing=next"][..]),
            (false, &["feed=post-norm", "order=embedding-first", "slot0=plain", "pairing=own", "norm=one-plus"]),
        ] {
            for text in texts {
                let off = apart(&right, &drafts(text));
                println!("{backend:?} {text}: {off}");
                assert_eq!(off == 0.0, same, "{backend:?} {text}: {off}");
            }
        }
        assert!(apart(&right[1..], &drafts("recycle=pre-norm")[1..]) > 0.0);
    }
}

#[test]
fn speculation_changes_no_text_and_commits_leave_the_state_of_a_fresh_start() {
    const LEN: usize = 210;
    let golden = Golden::of("mimo");
    let prompt = &golden.tokens("tokens")[..8];
    for (backend, same) in [(Backend::Candle, 1e-4), (Backend::Native, 0.0)] {
        let (loaded, module) = open(backend);
        let start = |prompt: &[TokenId], k: u8, drafter: Box<dyn Drafter>| {
            let mut decoder =
                Decoder::new(loaded.target.fork().unwrap(), drafter, &settings(k, MtpOverride::default()));
            decoder.prefill(1, prompt).unwrap();
            decoder
        };
        let drafter = || Box::new(MtpDrafter::new(module.fork().unwrap()));
        let text = |decoder: &mut Decoder| {
            let mut rounds = 0;
            while decoder.committed().len() < prompt.len() + LEN {
                round(decoder);
                rounds += 1;
            }
            (decoder.committed()[prompt.len()..prompt.len() + LEN].to_vec(), rounds)
        };
        let plain = text(&mut start(prompt, 0, Box::new(NoDrafter))).0;
        if backend == Backend::Candle {
            assert_eq!(plain, golden.tokens("greedy")[..LEN]);
        }
        for k in 1..=6 {
            let (speculative, rounds) = text(&mut start(prompt, k, drafter()));
            println!("{backend:?}, k = {k}: {rounds} rounds");
            assert!(speculative == plain && rounds < LEN * 3 / 4, "{backend:?}, k = {k}: {rounds} rounds");
        }
        let mut accepted = BTreeSet::new();
        for len in [1, 2, 3, 8, 30] {
            let prompt = [prompt, &plain].concat()[..len].to_vec();
            for a in 0..=4 {
                let mut decoder = start(&prompt, 4, drafter());
                round(&mut decoder);
                let before = decoder.committed().len();
                let mut ahead = start(&decoder.committed()[..before - 1], 4, drafter());
                while ahead.committed().len() <= before + a {
                    round(&mut ahead);
                }
                let mut drafts = ahead.committed()[before..before + a].to_vec();
                let not = |id: TokenId| TokenId((id.0 + 1) % 280);
                drafts.extend((a..4).map(|_| not(ahead.committed()[before + a])));
                decoder.propose(drafts);
                decoder.round(&mut |_| Duration::ZERO).unwrap();
                accepted.insert(decoder.committed().len() - before - 1);
                let committed = decoder.committed().to_vec();
                let fresh = round(&mut start(&committed[..committed.len() - 1], 4, drafter()));
                let off = apart(&round(&mut decoder), &fresh);
                assert!(off <= same, "{backend:?}: {a} accepted behind {before}: {off}");
            }
        }
        assert!(accepted.iter().copied().eq(0..=4), "{accepted:?}");
    }
}

#[test]
fn a_draft_vocabulary_that_nobody_uses_is_said_so() {
    let vocab = Some(DraftVocab::First(100));
    let trimmed = LoadOptions { mtp: Some(built_in()), draft_vocab: vocab, ..recipe(path("mimo"), Backend::Auto) };
    let aside = load(&trimmed, &mut |_, _, _| {}).unwrap().warnings.remove(0);
    assert!(aside.starts_with("--draft-vocab is ignored"), "{aside}");
    for (name, draft_vocab) in [("qwen35", trimmed.draft_vocab.clone()), ("mimo", None)] {
        let recipe = LoadOptions { target: path(name), draft_vocab, ..trimmed.clone() };
        assert!(load(&recipe, &mut |_, _, _| {}).unwrap().warnings.is_empty(), "{name}");
    }
}

#[test]
fn a_card_tells_of_the_module_in_the_folder() {
    let card = Card::read(&path("mimo")).unwrap();
    assert!(card.to_string().contains("\ndrafter  a draft module of its own\n"), "{card}");
    let plain = Card::read(&path("qwen3")).unwrap().to_string();
    assert!(!plain.contains("drafter"), "{plain}");
}

#[test]
fn announced_modules_that_are_missing_are_said_so_and_the_model_opens() {
    let folder = copy("mimo");
    edit(folder.path(), "config.json", |config| config["num_nextn_predict_layers"] = 2.into());
    let opened = loaded(folder.path().into(), Backend::Auto);
    let notice = opened.notice.unwrap();
    assert!(notice.contains("announces 2 draft modules") && notice.contains("number 2 are not"), "{notice}");
    assert!(opened.mtp.is_none());
    let folder = copy("mimo");
    let file = folder.path().join("model.safetensors");
    let bytes = fs::read(&file).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let kept = tensors.tensors().into_iter().filter(|(name, _)| !name.contains("mtp_layers.0.hidden_layernorm"));
    safetensors::serialize_to_file(kept, None, &file).unwrap();
    let notice = loaded(folder.path().into(), Backend::Auto).notice.unwrap();
    assert!(notice.contains("no tensor 'model.mtp_layers.0.hidden_layernorm.weight'"), "{notice}");
    // a Qwen2 without its biases is no Qwen2
    let folder = copy("mimo");
    let file = folder.path().join("model.safetensors");
    let kept = tensors.tensors().into_iter().filter(|(name, _)| name != "model.layers.1.self_attn.k_proj.bias");
    safetensors::serialize_to_file(kept, None, &file).unwrap();
    let error = load(&recipe(folder.path().into(), Backend::Auto), &mut |_, _, _| {}).err().unwrap().to_string();
    assert!(error.contains("no tensor 'model.layers.1.self_attn.k_proj.bias'"), "{error}");
}

#[test]
fn the_same_folder_without_a_module_is_a_qwen2() {
    let folder = copy("mimo");
    edit(folder.path(), "config.json", |config| {
        config["model_type"] = "qwen2".into();
        config["attention_bias"] = serde_json::Value::Null;
        config["num_nextn_predict_layers"] = serde_json::Value::Null;
    });
    let golden = Golden::of("mimo");
    let mut loaded = load(&recipe(folder.path().into(), Backend::Candle), &mut |_, _, _| {}).unwrap();
    let out = loaded.target.forward(&golden.tokens("tokens"), LogitRows::All).unwrap();
    assert!(difference(out.logits.as_slice(), &golden.numbers("logits")) < 2e-5);
}
