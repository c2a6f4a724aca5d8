//! EAGLE-3 heads in both layouts, against the package that trains them: what they compute, that speculation
//! with them changes no text, that a commit of any length leaves the state of a fresh start, and what is
//! said of heads that do not fit.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::checkpoint::{Golden, copy, edit, path, recipe};
use draftscope::model::drafters::eagle3::HeadCard;
use draftscope::model::load::{Loaded, load};
use draftscope::model::options::{Backend, LoadOptions, ModuleFile};
use draftscope::model::{DraftModule, LogitRows, Rows};
use draftscope::protocol::{DrafterKind, Drafting, EventKind, MtpOverride, Prediction, Settings, TokenId};
use draftscope::speculate::decoder::Decoder;
use draftscope::speculate::drafter::{Drafter, MtpDrafter, NoDrafter};
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
use serde_json::json;

/// Target and head.
const PAIRS: [(&str, &str); 3] =
    [("llama-deep", "eagle3-original"), ("qwen3", "eagle3-speculators"), ("llama-deep", "eagle3-normed")];

fn with_head(target: &str, head: PathBuf, backend: Backend) -> Loaded {
    let recipe = LoadOptions { draft_model: Some(head), ..recipe(path(target), backend) };
    load(&recipe, &mut |_, _, _| {}).unwrap()
}

fn open(target: &str, head: PathBuf, backend: Backend) -> (Loaded, Box<dyn DraftModule>) {
    let mut loaded = with_head(target, head, backend);
    assert_eq!(loaded.notice, None);
    let (module, info) = loaded.mtp.take().unwrap();
    assert_eq!((info.kind, info.draft_vocab), (DrafterKind::Mtp, 200));
    (loaded, module)
}

/// Root mean square of the differences, relative to the reference's.
fn difference(got: &[f32], want: &[f32]) -> f64 {
    assert_eq!(got.len(), want.len());
    let square = |x: f32| f64::from(x) * f64::from(x);
    let error: f64 = got.iter().zip(want).map(|(got, want)| square(got - want)).sum();
    (error / want.iter().map(|want| square(*want)).sum::<f64>()).sqrt()
}

fn farthest(got: &[f32], want: &[f32]) -> f32 {
    assert_eq!(got.len(), want.len());
    got.iter().zip(want).map(|(got, want)| (got - want).abs()).fold(0.0, f32::max)
}

/// What a head says: logits of every slot, one after the other; logits at depths 1 to 3; states of the slots.
struct Said {
    slots: Vec<f32>,
    deeper: Vec<f32>,
    states: Vec<f32>,
}

fn said(target: &str, head: PathBuf, backend: Backend, drafts: &[TokenId]) -> Said {
    let tokens = Golden::of(target).tokens("tokens")[..24].to_vec();
    let (mut loaded, mut module) = open(target, head, backend);
    loaded.target.set_tap(&module.tap()).unwrap();
    let hidden = loaded.target.forward(&tokens, LogitRows::Last).unwrap().hidden;
    let mut alone = module.fork().unwrap();
    let slot = |at: usize| alone.forward(&tokens[at + 1..at + 2], &hidden.slice(at..at + 1)).unwrap();
    let slots: Vec<_> = (0..23).map(slot).collect();
    let mut out = module.forward(&tokens[1..], &hidden.slice(0..23)).unwrap();
    let states = out.hidden.as_slice().to_vec();
    if backend == Backend::Native {
        let one_by_one: Vec<f32> = slots.iter().flat_map(|slot| slot.hidden.as_slice().to_vec()).collect();
        assert!(states == one_by_one, "slots together give the bits of slots alone");
    }
    let mut deeper = Vec::new();
    for draft in drafts {
        deeper.extend_from_slice(out.logits.row(0));
        out = module.forward(&[*draft], &out.hidden.last_row()).unwrap();
    }
    Said { slots: slots.iter().flat_map(|slot| slot.logits.row(0).to_vec()).collect(), deeper, states }
}

fn golden(head: &str) -> Golden {
    Golden::bare(head)
}

#[test]
fn heads_compute_what_their_trainers_do() {
    for (target, head) in PAIRS {
        let golden = golden(head);
        let drafts = golden.tokens("drafts");
        let (logits, deeper) = (golden.numbers("logits"), golden.numbers("deeper"));
        let got = said(target, path(head), Backend::Candle, &drafts);
        let off = [farthest(&got.slots, &logits), farthest(&got.deeper, &deeper)];
        println!(
            "{head} on candle: off by {off:?}, states by {:.1e}",
            difference(&got.states, &golden.numbers("hidden"))
        );
        assert!(off.iter().all(|off| *off < 1e-3), "{head}: {off:?}");
        assert!(difference(&got.states, &golden.numbers("hidden")) < 2e-5);
        // a head of 4-bit codes is off by a √12th of a fifteenth of a block's range, 8 % of its weights; these
        // were solved for, so that products cancel and the error counts double
        let got = said(target, path(head), Backend::Native, &drafts);
        let off = [difference(&got.slots, &logits), difference(&got.deeper, &deeper)];
        println!(
            "{head} native: off by {off:.3?}, states by {:.1e}",
            difference(&got.states, &golden.numbers("hidden"))
        );
        assert!(off.iter().all(|off| *off < 0.25), "{head}: {off:?}");
        assert!(difference(&got.states, &golden.numbers("hidden")) < 0.03);
    }
}

#[test]
fn one_norm_over_all_states_is_that_of_the_trainer() {
    let folder = copy("eagle3-normed");
    edit(folder.path(), "config.json", |config| {
        config["fc_norm"] = json!(false);
        config["norm_before_fc"] = json!(true);
    });
    let golden = golden("eagle3-normed");
    let got = said("llama-deep", folder.path().into(), Backend::Candle, &golden.tokens("together.drafts"));
    assert!(farthest(&got.slots, &golden.numbers("together.logits")) < 1e-3);
    assert!(farthest(&got.deeper, &golden.numbers("together.deeper")) < 1e-3);
    let native = said("llama-deep", folder.path().into(), Backend::Native, &golden.tokens("together.drafts"));
    assert!(difference(&native.slots, &golden.numbers("together.logits")) < 0.25);
}

#[test]
fn a_wrong_convention_changes_what_a_head_says() {
    type Change = fn(&mut serde_json::Value);
    let cases: [(&str, Change, bool); 5] = [
        ("norm_before_residual", |c| c["norm_before_residual"] = json!(false), false),
        ("norm_output", |c| c["norm_output"] = json!(false), true),
        ("fc_norm", |c| c["fc_norm"] = json!(false), false),
        ("norm_before_fc", |c| (c["fc_norm"], c["norm_before_fc"]) = (json!(false), json!(true)), false),
        ("layers", |c| c["eagle_aux_hidden_state_layer_ids"] = json!([2, 4, 7]), false), // off by one
    ];
    let golden = golden("eagle3-normed");
    let drafts = golden.tokens("drafts");
    for (name, change, only_deeper) in cases {
        let folder = copy("eagle3-normed");
        edit(folder.path(), "config.json", change);
        for backend in [Backend::Candle, Backend::Native] {
            let right = said("llama-deep", path("eagle3-normed"), backend, &drafts);
            let wrong = said("llama-deep", folder.path().into(), backend, &drafts);
            let (first, deeper) = (farthest(&wrong.slots, &right.slots), farthest(&wrong.deeper, &right.deeper));
            println!("{name} on {backend:?}: {first:.3}, deeper {deeper:.3}");
            assert!(deeper > 0.05 && (first > 0.05) != only_deeper, "{name} on {backend:?}: {first}, {deeper}");
        }
    }
    // and those that every module has
    for (text, changes) in [
        ("order=hidden-first", true),
        ("recycle=post-norm", true),
        ("pairing=own", true),
        ("slot0=zeroed", true),
        ("slot0=extra", true),
        ("norm=one-plus", true),
        ("position=constant", true),
        ("position=next", false),  // positions only know differences
        ("feed=post-norm", false), // which layers a head reads is its own
    ] {
        for backend in [Backend::Candle, Backend::Native] {
            let right = first_round("llama-deep", "eagle3-original", backend, MtpOverride::default());
            let wrong = first_round("llama-deep", "eagle3-original", backend, text.parse().unwrap());
            let off = right.iter().zip(&wrong).map(|(a, b)| apart(a, b)).fold(0.0, f32::max);
            println!("{text} on {backend:?}: {off:.5}");
            // keys are kept as halves natively, and turned before
            let same = if backend == Backend::Candle { 1e-4 } else { 1e-3 };
            assert!(if changes { off > same } else { off < same }, "{text} on {backend:?}: {off}");
        }
    }
}

fn settings(k: u8, mtp: MtpOverride) -> Settings {
    Settings { draft_len: k, drafting: Drafting { mtp, ..Drafting::default() }, ..Settings::default() }
}

/// Largest difference of the probabilities that both list.
fn apart(a: &Prediction, b: &Prediction) -> f32 {
    let of = |p: &Prediction, id: TokenId| p.top.iter().find(|c| c.piece.id == id).map_or(0.0, |c| c.prob);
    let ids = a.top.iter().chain(&b.top).map(|c| c.piece.id);
    ids.map(|id| (of(a, id) - of(b, id)).abs()).fold(0.0, f32::max)
}

fn round(decoder: &mut Decoder) -> Vec<Prediction> {
    let mut said = Vec::new();
    decoder
        .round(&mut |event| {
            if let EventKind::Drafted { top, .. } = event {
                said.push(top);
            }
            Duration::ZERO
        })
        .unwrap();
    said
}

fn first_round(target: &str, head: &str, backend: Backend, mtp: MtpOverride) -> Vec<Prediction> {
    let (loaded, module) = open(target, path(head), backend);
    let mut decoder = Decoder::new(loaded.target, Box::new(MtpDrafter::new(module)), &settings(3, mtp));
    decoder.prefill(1, &Golden::of(target).tokens("tokens")[..8]).unwrap();
    round(&mut decoder)
}

#[test]
fn speculation_with_a_head_changes_no_text() {
    const LEN: usize = 210;
    for (target, head) in PAIRS {
        let golden = Golden::of(target);
        let prompt = &golden.tokens("tokens")[..8];
        for backend in [Backend::Candle, Backend::Native] {
            let (loaded, module) = open(target, path(head), backend);
            let run = |drafter: Box<dyn Drafter>, k: u8| {
                let settings = settings(k, MtpOverride::default());
                let mut decoder = Decoder::new(loaded.target.fork().unwrap(), drafter, &settings);
                decoder.prefill(1, prompt).unwrap();
                let mut rounds = 0;
                while decoder.committed().len() < prompt.len() + LEN {
                    round(&mut decoder);
                    rounds += 1;
                }
                (decoder.committed()[prompt.len()..prompt.len() + LEN].to_vec(), rounds)
            };
            let plain = run(Box::new(NoDrafter), 0).0;
            if backend == Backend::Candle {
                assert_eq!(plain, golden.tokens("greedy")[..LEN], "{target}");
            }
            for k in 1..=6 {
                let (text, rounds) = run(Box::new(MtpDrafter::new(module.fork().unwrap())), k);
                assert_eq!(text, plain, "{head} on {backend:?}, k = {k}");
                println!("{head} on {backend:?}, k = {k}: {rounds} rounds");
                assert!(rounds < LEN - 10, "{head} on {backend:?}, k = {k}: {rounds} rounds, so nothing is accepted");
            }
        }
    }
}

#[test]
fn a_commit_of_any_length_leaves_the_state_of_a_fresh_start() {
    const K: u8 = 4;
    for (target, head) in PAIRS {
        let golden = Golden::of(target);
        let text = [&golden.tokens("tokens")[..8], &golden.tokens("greedy")[..120]].concat();
        for (backend, same) in [(Backend::Candle, 1e-4), (Backend::Native, 0.0)] {
            let (loaded, module) = open(target, path(head), backend);
            let start = |prompt: &[TokenId]| {
                let drafter = Box::new(MtpDrafter::new(module.fork().unwrap()));
                let target = loaded.target.fork().unwrap();
                let mut decoder = Decoder::new(target, drafter, &settings(K, MtpOverride::default()));
                decoder.prefill(1, prompt).unwrap();
                decoder
            };
            let mut accepted = BTreeSet::new();
            let compare = |decoder: &mut Decoder, before: usize| {
                // the first token of an answer comes with the prompt
                let (committed, fresh) = (decoder.committed().to_vec(), decoder.committed().len() - 1);
                let (a, next) = (committed.len() - before - 1, round(decoder));
                let fresh = round(&mut start(&committed[..fresh]));
                assert_eq!(next.len(), fresh.len());
                for (depth, (next, fresh)) in next.iter().zip(&fresh).enumerate() {
                    let off = apart(next, fresh);
                    assert!(off <= same, "{head} on {backend:?}: {before} tokens, {a} accepted, depth {depth}: {off}");
                }
                a
            };
            for len in [1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 20, 40, 80] {
                let mut decoder = start(&text[..len]);
                let before = decoder.committed().len();
                round(&mut decoder);
                accepted.insert(compare(&mut decoder, before));
            }
            let natural = accepted.clone();
            // and each number of accepted drafts, behind a round that the head drafted itself
            let mut decoder = start(&text[..8]);
            for a in 0..=usize::from(K) {
                round(&mut decoder);
                let before = decoder.committed().len();
                let mut ahead = start(&decoder.committed()[..before - 1]);
                while ahead.committed().len() < before + a {
                    round(&mut ahead);
                }
                let mut drafts = ahead.committed()[before..before + a].to_vec();
                let wrong = |at: usize| TokenId((text[at].0 + 1) % 288);
                drafts.extend((a..usize::from(K)).map(wrong));
                decoder.propose(drafts);
                decoder.round(&mut |_| Duration::ZERO).unwrap();
                assert_eq!(decoder.committed().len(), before + a + 1, "{a} drafts were to be accepted");
                accepted.insert(compare(&mut decoder, before));
            }
            println!("{head} on {backend:?}: commits of {natural:?}");
            assert!((0..=usize::from(K)).all(|a| accepted.contains(&a)) && natural.len() > 2, "{natural:?}");
        }
    }
}

/// Writes the head's tensors anew.
fn rewrite(folder: &Path, change: impl Fn(&str, &mut Vec<usize>, &mut Vec<u8>) -> bool) {
    let file = folder.join("model.safetensors");
    let bytes = fs::read(&file).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let changed: Vec<_> = tensors
        .tensors()
        .into_iter()
        .filter_map(|(name, view)| {
            let (mut shape, mut data) = (view.shape().to_vec(), view.data().to_vec());
            change(&name, &mut shape, &mut data).then(|| (name, view.dtype(), shape, data))
        })
        .collect();
    let views = changed
        .iter()
        .map(|(name, dtype, shape, data)| (name.as_str(), TensorView::new(*dtype, shape.clone(), data).unwrap()));
    safetensors::serialize_to_file(views, None, &file).unwrap();
}

#[test]
fn what_does_not_fit_is_told_in_a_sentence_and_decoding_goes_on_plainly() {
    type Spoil = fn(&Path);
    fn offset(folder: &Path, at: usize, value: i64) {
        rewrite(folder, |name, _, data| {
            if name == "d2t" {
                data[8 * at..8 * at + 8].copy_from_slice(&value.to_le_bytes());
            }
            true
        });
    }
    let cases: [(&str, &str, Spoil, &str); 15] = [
        (
            "qwen3",
            "eagle3-speculators",
            |f| offset(f, 7, 1000),
            "'d2t' leads draft token 7 by 1000 out of the 320 tokens",
        ),
        ("qwen3", "eagle3-speculators", |f| offset(f, 0, -1), "'d2t' leads draft token 0 by -1 out of"),
        ("qwen3", "eagle3-speculators", |f| offset(f, 5, i64::MAX), "'d2t' leads draft token 5"),
        (
            "qwen3",
            "eagle3-speculators",
            |f| offset(f, 3, 200),
            "'d2t' leads draft tokens 3 and 4 to tokens out of order",
        ),
        ("qwen3", "eagle3-speculators", |f| rewrite(f, |name, _, _| name != "d2t"), "no tensor 'd2t'"),
        ("qwen3", "eagle3-speculators", |f| rewrite(f, |name, _, _| name != "fc.weight"), "no tensor 'fc.weight'"),
        (
            "qwen3",
            "eagle3-speculators",
            |f| {
                rewrite(f, |name, shape, _| {
                    if name == "fc.weight" {
                        shape.swap(0, 1);
                    }
                    true
                });
            },
            "tensor 'fc.weight' has shape [192, 64], expected [64, 192]",
        ),
        (
            "qwen3",
            "eagle3-speculators",
            |f| edit(f, "config.json", |c| c["transformer_layer_config"]["vocab_size"] = json!(500)),
            "the number of tokens is 500 there and 320 in the target",
        ),
        (
            "qwen3",
            "eagle3-speculators",
            |f| edit(f, "config.json", |c| c["target_hidden_size"] = json!(128)),
            "the width of its hidden states is 128 there and 64 in the target",
        ),
        (
            "qwen3",
            "eagle3-speculators",
            |f| edit(f, "config.json", |c| c["eagle_aux_hidden_state_layer_ids"] = json!([0, 1, 9])),
            "in front of layers [0, 1, 9] ('eagle_aux_hidden_state_layer_ids') and the target has 2 layers",
        ),
        (
            "qwen3",
            "eagle3-original",
            |_| (),
            "2, the middle one and the third from the end ('eagle_aux_hidden_state_layer_ids') and the target has 2",
        ),
        ("llama-deep", "eagle3-original", |f| cut(&f.join("pytorch_model.bin"), 20_000), "is damaged or incomplete"),
        (
            "llama-deep",
            "eagle3-original",
            |f| fs::write(f.join("pytorch_model.bin"), "x").unwrap(),
            "is damaged or incomplete",
        ),
        (
            "llama-deep",
            "eagle3-original",
            |f| fs::remove_file(f.join("pytorch_model.bin")).unwrap(),
            "holds neither model",
        ),
        ("llama-deep", "eagle3-normed", |f| cut(&f.join("model.safetensors"), 50_000), "it ends in the middle"),
    ];
    for (target, head, spoil, says) in cases {
        let folder = copy(head);
        spoil(folder.path());
        for backend in [Backend::Candle, Backend::Native] {
            let loaded = with_head(target, folder.path().into(), backend);
            let notice = loaded.notice.unwrap_or_else(|| panic!("{says}: it was opened"));
            assert!(notice.starts_with("no drafter, decoding plainly: ") && notice.lines().count() == 1, "{notice}");
            assert!(notice.contains(says) && loaded.mtp.is_none(), "{head}: {notice}");
        }
    }
}

fn cut(file: &Path, len: u64) {
    fs::OpenOptions::new().write(true).open(file).unwrap().set_len(len).unwrap();
}

#[test]
fn a_head_is_neither_a_model_nor_a_module_beside_another() {
    let error = load(&recipe(path("eagle3-speculators"), Backend::Auto), &mut |_, _, _| {}).err().unwrap().to_string();
    assert!(error.ends_with("holds an EAGLE-3 head, which drafts for another model: name it with --draft-model"));
    let nothing = || -> std::sync::Arc<[u8]> { Vec::new().into() };
    let module = ModuleFile { name: "m".into(), weights: nothing(), config: nothing(), sha256: None, required: true };
    let both = LoadOptions {
        mtp: Some(module),
        draft_model: Some(path("eagle3-speculators")),
        ..recipe(path("qwen3"), Backend::Auto)
    };
    assert!(load(&both, &mut |_, _, _| {}).err().unwrap().to_string().contains("leave one out"));
    let loaded = with_head("qwen3", path("eagle3-speculators"), Backend::Auto);
    assert!(loaded.draft_model.unwrap().err().unwrap().contains("which drafts as --drafter mtp"));
}

#[test]
fn a_card_says_what_a_head_is() {
    let card = HeadCard::read(&path("eagle3-speculators")).unwrap().unwrap();
    assert_eq!((card.layers.as_deref(), card.draft_vocab, card.own_embedding), (Some(&[0, 1, 2][..]), 200, true));
    let text = card.to_string();
    for says in
        ["(EAGLE-3 for tiny/target)", "in front of layers 0, 1, 2", "proposes 200 of 320 tokens", "--draft-model"]
    {
        assert!(text.contains(says), "{text}");
    }
    let original = HeadCard::read(&path("eagle3-original")).unwrap().unwrap().to_string();
    assert!(original.contains("in front of layers 2, the middle one and the third from the end"), "{original}");
    assert_eq!(HeadCard::read(&path("qwen3")).unwrap(), None);
}

#[test]
fn hidden_rows_of_another_width_are_refused() {
    for backend in [Backend::Candle, Backend::Native] {
        let (_, mut module) = open("qwen3", path("eagle3-speculators"), backend);
        for rows in [Rows::new(vec![0.0; 128], 128), Rows::new(vec![0.0; 384], 192)] {
            assert!(module.forward(&[TokenId(1)], &rows).is_err());
        }
        assert_eq!(module.len(), 0);
    }
}
