//! Gemma 4 and its assistants, against `transformers` (see `fixtures/checkpoints/README.md`): logits, every convention of
//! an assistant, keys and values that are shared, lent and taken back, texts that speculation does not change.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

mod common;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use common::checkpoint::{Golden, copy, edit, path, recipe};
use draftscope::engine::measure::measure;
use draftscope::model::families::gemma4::Gemma4Config;
use draftscope::model::families::gemma4::assistant::AssistantCard;
use draftscope::model::load::OpenModel;
use draftscope::model::load::card::Card;
use draftscope::model::load::{Loaded, load};
use draftscope::model::nn::rope::RopeScaling;
use draftscope::model::options::DraftVocab;
use draftscope::model::options::{Backend, LoadOptions, ModuleFile};
use draftscope::model::row_by_row::RowByRow;
use draftscope::model::{Checkpoint, DraftModule, Forward, LogitRows, Model, ModelError, Rows, State, Tap};
use draftscope::protocol::{
    Drafting, EventKind, Message, MtpOverride, MtpSpec, Pairing, Prediction, Sampling, Settings, SlotPosition, TokenId,
    VerifyRule,
};
use draftscope::speculate::decoder::Decoder;
use draftscope::speculate::drafter::{
    Drafter, EarlyExitDrafter, ModelDrafter, MtpDrafter, NgramDrafter, NoDrafter, RandomDrafter,
};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value, json};

/// Targets; the assistant of each has its name and `-assistant` behind it.
const TARGETS: [&str; 2] = ["gemma4", "gemma4-unified"];
const BACKENDS: [Backend; 2] = [Backend::Candle, Backend::Native];

fn pairs() -> impl Iterator<Item = (&'static str, Backend)> {
    TARGETS.iter().flat_map(|name| BACKENDS.map(|on| (*name, on)))
}

fn assistant_of(target: &str) -> PathBuf {
    path(&format!("{target}-assistant"))
}

/// As the program asks for it: with the module that comes with the program, which does not fit this target.
fn asked(target: PathBuf, assistant: Option<PathBuf>, backend: Backend) -> LoadOptions {
    let other =
        ModuleFile { name: "built in".into(), weights: [].into(), config: [].into(), sha256: None, required: false };
    LoadOptions { mtp: Some(other), draft_model: assistant, ..recipe(target, backend) }
}

fn open_as(name: &str, backend: Backend, change: impl FnOnce(LoadOptions) -> LoadOptions) -> Loaded {
    let recipe = change(asked(path(name), Some(assistant_of(name)), backend));
    let loaded = load(&recipe, &mut |_, _, _| {}).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(loaded.target.spec().backend, if backend == Backend::Candle { "candle" } else { "native" });
    loaded
}

fn open(name: &str, backend: Backend) -> Loaded {
    open_as(name, backend, |recipe| recipe)
}

fn farthest(got: &[f32], want: &[f32]) -> f32 {
    assert_eq!(got.len(), want.len());
    got.iter().zip(want).fold(0.0, |most, (got, want)| most.max((got - want).abs()))
}

#[test]
fn logits_and_states_are_those_of_the_oracle_in_one_pass_and_one_by_one() {
    for (name, backend) in pairs() {
        let golden = Golden::of(name);
        let tokens = golden.tokens("tokens");
        let mut target = open(name, backend).target;
        target.set_tap(&Tap::new(vec![State::Normed, State::Residual])).unwrap();
        let (mut alone, mut few) = (target.fork().unwrap(), target.fork().unwrap());
        // wider than the rows that attend one by one, and than the window
        let out = target.forward(&tokens, LogitRows::All).unwrap();
        let mut singles = Vec::new();
        for token in &tokens {
            singles.extend_from_slice(alone.forward(&[*token], LogitRows::All).unwrap().logits.row(0));
        }
        let mut threes = Vec::new();
        for tokens in tokens.chunks(3) {
            threes.extend_from_slice(few.forward(tokens, LogitRows::All).unwrap().logits.as_slice());
        }
        if backend == Backend::Native {
            assert!(singles == threes, "rows together give the bits of rows alone");
        }
        let logits = golden.numbers("logits");
        let (normed, residual) = (golden.numbers("hidden"), golden.numbers("residual"));
        let both: Vec<f32> = normed.chunks(64).zip(residual.chunks(64)).flat_map(|(a, b)| [a, b].concat()).collect();
        for (what, got, want) in [
            ("logits", out.logits.as_slice(), &logits),
            ("logits one by one", &singles, &logits),
            ("logits by threes", &threes, &logits),
            ("states", out.hidden.as_slice(), &both),
        ] {
            let off = farthest(got, want);
            println!("{name} on {backend:?}, {what}: off by {off:.1e}");
            assert!(off < 5e-4, "{name} on {backend:?}, {what}: off by {off}");
        }
        assert!(logits.iter().all(|logit| logit.abs() < 30.0) && logits.iter().any(|logit| logit.abs() > 5.0));
    }
}

/// Logits of the assistant at depths 1, 2 and 3 behind some tokens, run by hand as a drafter runs it.
fn drafted(target: &mut dyn Model, module: &mut dyn DraftModule, tokens: &[TokenId], wanted: MtpOverride) -> Vec<f32> {
    let spec = wanted.apply(module.spec());
    module.set_spec(&spec).unwrap();
    target.set_tap(&module.tap()).unwrap();
    target.truncate(0, &Checkpoint { len: 0 }).unwrap();
    let (anchor, before) = tokens.split_last().unwrap();
    let hidden = target.forward(before, LogitRows::Last).unwrap().hidden;
    module.attach_kv(target).unwrap();
    let own = spec.pairing == Pairing::Own;
    let mut queue = if own { vec![before[before.len() - 1], *anchor] } else { vec![*anchor] };
    let mut out = module.forward(&[queue.remove(0)], &hidden.last_row()).unwrap();
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
    all
}

/// The text that the assistants were taught.
fn text(golden: &Golden) -> Vec<TokenId> {
    [&golden.tokens("tokens")[..8], &golden.tokens("greedy")].concat()
}

/// Largest difference among the tokens that both looked at, and how many those are.
fn apart_where_seen(got: &[f32], want: &[f32], vocab: usize) -> (f32, usize) {
    let mut worst = (0f32, 0);
    for (got, want) in got.chunks(vocab).zip(want.chunks(vocab)) {
        // the library gives tokens that were not looked at the least logit, less 1
        let least = want.iter().fold(f32::INFINITY, |least, logit| least.min(*logit));
        for (got, want) in got.iter().zip(want) {
            let unseen = *got < -1e20;
            assert!(!unseen || *want == least, "looked at by the library only");
            if !unseen {
                worst = (worst.0.max((got - want).abs()), worst.1 + 1);
            }
        }
    }
    worst
}

#[test]
fn an_assistant_runs_every_convention_as_the_oracle_does_and_a_wrong_one_changes_it() {
    for (name, backend) in pairs() {
        let golden = Golden::bare(&format!("{name}-assistant"));
        let tokens = &text(&Golden::of(name))[..40];
        let Loaded { mut target, mtp, notice, .. } = open(name, backend);
        assert_eq!(notice, None);
        let (mut module, info) = mtp.unwrap();
        assert_eq!((info.kv_bytes_per_token, info.draft_vocab), (0, 320));
        let seen = if name == "gemma4" { 3 * 4 * 20 } else { 3 * 320 }; // four clusters of twenty at each depth
        let shipped = module.spec();
        assert_eq!(shipped.position, SlotPosition::ConstantNext);
        let made = drafted(target.as_mut(), module.as_mut(), tokens, MtpOverride::default());
        let (off, count) = apart_where_seen(&made, &golden.numbers("logits.made"), 320);
        println!("{name} on {backend:?} as made: off by {off:.1e} in {count} logits");
        assert!(off < 5e-4 && count == seen, "{name}: off by {off} in {count}");
        let short = drafted(target.as_mut(), module.as_mut(), &tokens[..3], MtpOverride::default());
        let (off, count) = apart_where_seen(&short, &golden.numbers("logits.short"), 320);
        assert!(off < 5e-4 && count == seen, "{name} behind two positions: off by {off}");
        for text in [
            "feed=pre-norm",
            "recycle=pre-norm",
            "order=hidden-first",
            "pairing=own",
            "position=own",
            "position=next",
            "position=constant",
            "norm=one-plus",
        ] {
            module.set_spec(&shipped).unwrap();
            let wanted: MtpOverride = text.parse().unwrap();
            let got = drafted(target.as_mut(), module.as_mut(), tokens, wanted);
            let (off, count) = apart_where_seen(&got, &golden.numbers(&format!("logits.{text}")), 320);
            println!("{name} on {backend:?} {text}: off by {off:.1e}");
            // scores are not scaled, so that between keys which are nearly alike a rounding error grows
            assert!(off < 5e-3 && count == seen, "{name} {text}: off by {off} in {count}");
            let changed = farthest(&got, &made);
            assert!(changed > 1e-2, "{name}: {text} changes logits by {changed}");
            // what is recycled, and where deeper drafts stand, does not change the first
            let first = farthest(&got[..320], &made[..320]);
            let from_the_second = ["recycle=pre-norm", "position=next"].contains(&text);
            assert_eq!(first == 0.0, from_the_second, "{name}: {text} changes the first logits by {first}");
        }
        module.set_spec(&shipped).unwrap();
        for text in ["slot0=extra", "slot0=zeroed"] {
            let wanted: MtpOverride = text.parse().unwrap();
            let error = module.set_spec(&wanted.apply(shipped)).unwrap_err().to_string();
            assert!(error.contains("no slot 0 of its own"), "{error}");
        }
    }
}

/// The library shows an assistant two positions more in sliding layers: one that may see so far says what it says.
#[test]
fn two_positions_more_in_sliding_layers_are_the_librarys_own_way() {
    for (name, backend) in pairs() {
        let golden = Golden::bare(&format!("{name}-assistant"));
        let tokens = &text(&Golden::of(name))[..40];
        let library = golden.numbers("logits.library");
        let said = |window: u64| {
            let folder = copy(&format!("{name}-assistant"));
            set(folder.path(), "sliding_window", json!(window));
            let recipe = asked(path(name), Some(folder.path().into()), backend);
            let Loaded { mut target, mtp, .. } = load(&recipe, &mut |_, _, _| {}).unwrap();
            let mut module = mtp.unwrap().0;
            drafted(target.as_mut(), module.as_mut(), tokens, MtpOverride::default())
        };
        let (theirs, _) = apart_where_seen(&said(10), &library, 320);
        // the first draft's token and state are the same in both; deeper ones may go another way
        let least = library[..320].iter().copied().fold(f32::INFINITY, f32::min);
        let both = said(8).into_iter().zip(library).take(320).filter(|(a, b)| *a > -1e20 && *b > least);
        let ours = both.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        println!("{name} on {backend:?}: off by {ours:.1e}, with two positions more by {theirs:.1e}");
        assert!(theirs < 5e-4 && ours > 1e-2, "{name} on {backend:?}: {ours}, {theirs}");
    }
}

#[test]
fn the_whole_head_and_a_trimmed_one_take_the_place_of_the_clusters() {
    let golden = Golden::bare("gemma4-assistant");
    let tokens = &text(&Golden::of("gemma4"))[..40];
    let drafted_with = |vocab: DraftVocab| {
        let recipe = |recipe| LoadOptions { draft_vocab: Some(vocab), ..recipe };
        let Loaded { mut target, mtp, .. } = open_as("gemma4", Backend::Candle, recipe);
        let mut module = mtp.unwrap().0;
        let logits = drafted(target.as_mut(), module.as_mut(), tokens, MtpOverride::default());
        (logits, module.draft_vocab().to_vec())
    };
    let (whole, vocab) = drafted_with(DraftVocab::All);
    assert_eq!(vocab.len(), 320);
    let off = farthest(&whole, &golden.numbers("logits.whole"));
    assert!(off < 5e-4, "off by {off}");
    let (trimmed, vocab) = drafted_with(DraftVocab::First(100));
    assert_eq!(vocab.len(), 100);
    assert!(trimmed[..100].iter().zip(&vocab).all(|(got, token)| (got - whole[token.index()]).abs() < 1e-4));
    let missing = |recipe| LoadOptions { draft_vocab: Some(DraftVocab::Tokens(vec![TokenId(320)])), ..recipe };
    let loaded = open_as("gemma4", Backend::Candle, missing);
    assert!(loaded.mtp.is_none() && loaded.notice.unwrap().contains("320"));
}

fn settings(k: u8, mtp: MtpOverride) -> Settings {
    Settings { draft_len: k, drafting: Drafting { mtp, ..Drafting::default() }, ..Settings::default() }
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

fn decode(
    target: Box<dyn Model>,
    drafter: Box<dyn Drafter>,
    settings: &Settings,
    prompt: &[TokenId],
    len: usize,
) -> Told {
    let mut decoder = Decoder::new(target, drafter, settings);
    decoder.prefill(1, prompt).unwrap();
    let mut told = Told { accepted: vec![0; usize::from(settings.draft_len)], ..Told::default() };
    while decoder.committed().len() < prompt.len() + len {
        decoder
            .round(&mut |event| {
                match event {
                    EventKind::RoundStarted { .. } => told.rounds += 1,
                    EventKind::Drafted { .. } => told.drafted += 1,
                    EventKind::Verified { verdict, .. } => {
                        told.accepted.iter_mut().take(verdict.accepted()).for_each(|count| *count += 1);
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

#[test]
fn greedy_text_is_the_oracles_and_speculation_changes_nothing() {
    const LEN: usize = 210;
    for (name, backend) in pairs() {
        let golden = Golden::of(name);
        let prompt = &golden.tokens("tokens")[..8];
        let Loaded { target, mtp, .. } = open(name, backend);
        let module = mtp.unwrap().0;
        let none = MtpOverride::default();
        let plain = decode(target.fork().unwrap(), Box::new(NoDrafter), &settings(0, none), prompt, LEN).text;
        assert_eq!(plain, golden.tokens("greedy")[..LEN], "{name} on {backend:?}");
        for k in 1..=6 {
            let drafters: [(&str, Box<dyn Drafter>); 5] = [
                ("assistant", Box::new(MtpDrafter::new(module.fork().unwrap()))),
                ("ngram", Box::new(NgramDrafter)),
                ("random", Box::new(RandomDrafter)),
                ("early exit", Box::new(EarlyExitDrafter)),
                ("same model", Box::new(ModelDrafter::new(target.fork().unwrap()))),
            ];
            let others = if k == 3 { 5 } else { 1 };
            for (who, drafter) in drafters.into_iter().take(others) {
                let told = decode(target.fork().unwrap(), drafter, &settings(k, none), prompt, LEN);
                assert_eq!(told.text, plain, "{name} on {backend:?}: {who}, k = {k}");
                assert!(told.notices.is_empty(), "{who}: {:?}", told.notices);
                let fewest = (LEN - 1).div_ceil(usize::from(k) + 1) as u64;
                assert!(who != "same model" || told.rounds == fewest, "{} rounds at k = {k}", told.rounds);
                assert!(who != "assistant" || told.rounds < 3 * LEN as u64 / 4, "{} rounds at k = {k}", told.rounds);
            }
        }
        // and trees, which see the ancestors within the window only
        let drafting = Drafting { tree: Some(8), ..Drafting::default() };
        let tree = Settings { drafting, ..settings(4, none) };
        let told = decode(target.fork().unwrap(), Box::new(MtpDrafter::new(module)), &tree, prompt, LEN);
        assert_eq!(told.text, plain, "{name} on {backend:?}: a tree");
        assert!(told.notices.is_empty() && told.rounds < LEN as u64 / 2, "{:?}, {} rounds", told.notices, told.rounds);
    }
}

#[test]
fn drafts_and_acceptances_are_those_of_the_oracle() {
    for (name, backend) in pairs() {
        let golden = Golden::of(name);
        let prompt = &golden.tokens("tokens")[..8];
        for k in 1..=4u8 {
            let Loaded { target, mtp, .. } = open(name, backend);
            let drafter = Box::new(MtpDrafter::new(mtp.unwrap().0));
            // the oracle stops behind the round in which the 80th token was written
            let told = decode(target, drafter, &settings(k, MtpOverride::default()), prompt, 80);
            let got = json!({"drafted": told.drafted, "accepted": told.accepted.iter().sum::<u64>(), "rounds": told.rounds,
                             "accepted_at": told.accepted});
            assert_eq!(got, golden.told["counts"][k.to_string()], "{name} on {backend:?}, k = {k}");
        }
    }
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
    assert_eq!(a.len(), b.len());
    let of = |p: &Prediction, id: TokenId| p.top.iter().find(|c| c.piece.id == id).map_or(0.0, |c| c.prob);
    let pairs = a.iter().zip(b).flat_map(|(a, b)| {
        let ids = a.top.iter().chain(&b.top).map(|c| c.piece.id);
        ids.map(|id| (of(a, id) - of(b, id)).abs()).collect::<Vec<_>>()
    });
    pairs.fold(0.0, f32::max)
}

/// Everything a target will ever say from here on, by a continuation.
fn voice(target: &dyn Model, tokens: &[TokenId]) -> Vec<f32> {
    let mut fork = target.fork().unwrap();
    fork.forward(tokens, LogitRows::All).unwrap().logits.as_slice().to_vec()
}

#[test]
fn a_commit_of_any_length_leaves_the_state_of_the_kept_tokens_alone() {
    for (name, backend) in pairs() {
        // a pass over several rows sums in another order than one over one row, but on the native kernels
        let most = if backend == Backend::Native { 0.0 } else { 2e-4 };
        let all = text(&Golden::of(name));
        let target = open(name, backend).target;
        // also within the window, at its end, and beyond it
        for base in [0, 1, 2, 7, 8, 9, 30] {
            for rows in 1..=7 {
                let (mut verified, mut plain) = (target.fork().unwrap(), target.fork().unwrap());
                if base > 0 {
                    verified.forward(&all[..base], LogitRows::All).unwrap();
                    plain.forward(&all[..base], LogitRows::All).unwrap();
                }
                let since = verified.checkpoint().unwrap();
                for accepted in 0..rows {
                    let mut kept = verified.fork().unwrap();
                    kept.forward(&all[base..base + rows], LogitRows::All).unwrap();
                    let len = base + accepted + 1;
                    kept.truncate(len, &since).unwrap();
                    plain.forward(&all[base + accepted..len], LogitRows::All).unwrap();
                    assert_eq!((kept.len(), plain.len()), (len, len));
                    let off = farthest(&voice(kept.as_ref(), &all[50..53]), &voice(plain.as_ref(), &all[50..53]));
                    assert!(off <= most, "{name} on {backend:?}: {accepted} of {rows} rows behind {base}: {off}");
                }
            }
        }
        let full = open(name, backend).target.forward(&vec![TokenId(1); 600], LogitRows::All);
        assert!(matches!(full, Err(ModelError::ContextFull { .. })));
        let mut target = target;
        let none = target.forward(&[TokenId(1), TokenId(9999)], LogitRows::All);
        assert!(matches!(none, Err(ModelError::Vocabulary { .. })) && target.is_empty());
    }
}

#[test]
fn drafts_behind_a_commit_of_any_length_are_those_of_a_fresh_start() {
    const K: u8 = 4;
    // a prompt's rows are summed together, those of rounds one by one
    const SAME: f32 = 1e-3;
    for (name, backend) in pairs() {
        let all = text(&Golden::of(name));
        let Loaded { target, mtp, .. } = open(name, backend);
        let module = mtp.unwrap().0;
        let start = |prompt: &[TokenId]| {
            let drafter = Box::new(MtpDrafter::new(module.fork().unwrap()));
            let settings = settings(K, MtpOverride::default());
            let mut decoder = Decoder::new(target.fork().unwrap(), drafter, &settings);
            decoder.prefill(1, prompt).unwrap();
            decoder
        };
        let mut accepted = BTreeSet::new();
        for len in [1, 2, 7, 8, 9, 30] {
            for a in 0..=usize::from(K) {
                let mut decoder = start(&all[..len]);
                round(&mut decoder);
                let before = decoder.committed().len();
                let mut ahead = start(&decoder.committed()[..before - 1]);
                while ahead.committed().len() <= before + a {
                    round(&mut ahead);
                }
                let mut drafts = ahead.committed()[before..before + a].to_vec();
                let not = |id: TokenId| TokenId((id.0 + 1) % 280);
                drafts.extend((a..usize::from(K)).map(|_| not(ahead.committed()[before + a])));
                decoder.propose(drafts);
                decoder.round(&mut |_| Duration::ZERO).unwrap();
                accepted.insert(decoder.committed().len() - before - 1);
                let committed = decoder.committed().to_vec();
                let fresh = round(&mut start(&committed[..committed.len() - 1]));
                let off = apart(&round(&mut decoder), &fresh);
                assert!(off <= SAME, "{name} on {backend:?}: {a} accepted behind {before}: {off}");
            }
        }
        assert!(accepted.iter().copied().eq(0..=usize::from(K)), "{accepted:?}");
    }
}

#[test]
fn another_convention_in_the_middle_of_an_answer_changes_drafts_and_never_text() {
    const LEN: usize = 60;
    let golden = Golden::of("gemma4");
    let prompt = &golden.tokens("tokens")[..8];
    let Loaded { target, mtp, .. } = open("gemma4", Backend::Candle);
    let drafter = Box::new(MtpDrafter::new(mtp.unwrap().0));
    let mut decoder = Decoder::new(target, drafter, &settings(3, MtpOverride::default()));
    decoder.prefill(1, prompt).unwrap();
    for text in ["feed=pre-norm", "position=constant", "norm=one-plus", "slot0=extra", "order=hidden-first", ""] {
        decoder.set(&settings(3, text.parse().unwrap()));
        let notices = decoder.take_notices();
        decoder.round(&mut |_| Duration::ZERO).unwrap();
        assert_eq!(notices.len(), usize::from(text == "slot0=extra"), "{text}: {notices:?}");
    }
    while decoder.committed().len() < prompt.len() + LEN {
        round(&mut decoder);
    }
    assert_eq!(decoder.committed()[prompt.len()..prompt.len() + LEN], golden.tokens("greedy")[..LEN]);
}

#[test]
fn a_second_prompt_goes_on_from_what_is_kept_of_the_first() {
    let all = text(&Golden::of("gemma4"));
    let fresh = || {
        let Loaded { target, mtp, .. } = open("gemma4", Backend::Native);
        let drafter = Box::new(MtpDrafter::new(mtp.unwrap().0));
        Decoder::new(target, drafter, &settings(3, MtpOverride::default()))
    };
    let answer = |decoder: &mut Decoder, prompt: &[TokenId]| {
        let EventKind::Prefilled { cached, .. } = decoder.prefill(1, prompt).unwrap() else { panic!("no prefill") };
        let said: Vec<_> = (0..6).map(|_| round(decoder)).collect();
        (decoder.committed()[prompt.len()..].to_vec(), said, cached)
    };
    let mut decoder = fresh();
    answer(&mut decoder, &all[..60]);
    let longer = [decoder.committed(), &all[..5]].concat();
    let elsewhere = [&all[..40], &all[100..120]].concat();
    for (prompt, least) in [(longer, 65), (elsewhere, 39), (all[80..100].to_vec(), 0)] {
        let (text, said, cached) = answer(&mut decoder, &prompt);
        let again = answer(&mut fresh(), &prompt);
        assert_eq!(text, again.0);
        assert!(said.iter().zip(&again.1).all(|(a, b)| apart(a, b) < 1e-3));
        assert!(cached >= least, "{cached} of {} are kept", prompt.len());
    }
}

#[test]
fn an_assistant_drafts_for_a_target_that_runs_row_by_row() {
    const LEN: usize = 40;
    for (name, backend) in pairs() {
        let golden = Golden::of(name);
        let Loaded { target, mtp, .. } = open(name, backend);
        let drafter = Box::new(MtpDrafter::new(mtp.unwrap().0));
        let settings = settings(3, MtpOverride::default());
        let told = decode(Box::new(RowByRow::new(target)), drafter, &settings, &golden.tokens("tokens")[..8], LEN);
        assert_eq!(told.text, golden.tokens("greedy")[..LEN], "{name} on {backend:?}");
        assert!(told.notices.is_empty() && told.drafted >= told.rounds, "{:?}", told.notices);
        assert!(told.accepted[0] > 0, "{name} on {backend:?}: {} of {} drafts", told.accepted[0], told.drafted);
    }
}

#[test]
fn costs_are_measured_with_an_assistant() {
    for (name, backend) in pairs() {
        let recipe = asked(path(name), Some(assistant_of(name)), backend);
        let cost = measure(&recipe, 32, 1).unwrap_or_else(|error| panic!("{name} on {backend:?}: {error}"));
        let draft = cost.draft.unwrap();
        let card = Card::read(&path(name)).unwrap();
        // the table of embeddings for each layer stays in halves; rows of it are looked up
        assert_eq!(
            cost.weight_bytes - cost.pass_bytes,
            2 * card.family["gemma"]["per_layer_weights"].as_u64().unwrap()
        );
        assert!(draft.median_us > 0.0 && cost.verify.iter().all(|rows| rows.median_us > 0.0), "{cost:?}");
    }
}

#[test]
fn the_cache_holds_what_layers_have_of_their_own_and_the_assistant_none() {
    // keys and values in f32: three sliding layers of two heads of 16 and one full layer of two of 32; and of one
    for (name, values) in [("gemma4", 3 * 2 * 16 + 2 * 32), ("gemma4-unified", 3 * 2 * 16 + 32)] {
        let loaded = open(name, Backend::Candle);
        assert_eq!(loaded.target.spec().info.kv_bytes_per_token, 2 * 4 * values, "{name}");
        let info = loaded.mtp.unwrap().1;
        assert!(info.weight_bytes > 0 && info.kv_bytes_per_token == 0, "{info:?}");
        let lent = loaded.target.shared_kv().unwrap().unwrap();
        assert!(lent.is_empty());
    }
}

#[test]
fn texts_and_conversations_become_the_oracles_tokens() {
    for name in TARGETS {
        let golden = Golden::of(name);
        let loaded = open(name, Backend::Candle);
        for text in golden.told["texts"].as_array().unwrap() {
            let want: Vec<TokenId> = serde_json::from_value(text["ids"].clone()).unwrap();
            let text = text["text"].as_str().unwrap();
            let got = loaded.codec.encode(text).unwrap();
            assert_eq!(got, want, "{name}: {text:?}");
            let bytes: Vec<u8> = got.iter().flat_map(|id| loaded.codec.piece(*id).bytes.to_vec()).collect();
            assert_eq!(String::from_utf8(bytes).unwrap(), text);
        }
        for (kind, messages) in golden.told["messages"].as_object().unwrap() {
            let messages: Vec<Message> = serde_json::from_value(messages.clone()).unwrap();
            let rendered = loaded.template.as_ref().unwrap().render(&messages).unwrap();
            assert_eq!(rendered, golden.told["rendered"][kind].as_str().unwrap(), "{name}: {kind}");
        }
        assert_eq!(loaded.codec.end_names(), ["<eos>", "<turn|>"]);
        assert_eq!(loaded.codec.encode_raw("hi").unwrap()[0], TokenId(2), "a text begins with <bos>");
    }
}

#[test]
fn a_text_begins_with_its_own_token_whatever_the_tokenizers_files_say() {
    let changes: [fn(&mut Value); 2] = [
        |config| drop(config.as_object_mut().unwrap().remove("add_bos_token").unwrap()),
        |config| {
            config["add_bos_token"] = json!(false);
        },
    ];
    for change in changes {
        let folder = copy("gemma4");
        edit(folder.path(), "tokenizer_config.json", change);
        let codec = OpenModel::open(folder.path()).unwrap().codec().unwrap();
        assert_eq!(codec.encode_raw("hi").unwrap()[0], TokenId(2));
        assert_eq!(codec.encode_raw("<bos>hi").unwrap(), codec.encode_raw("hi").unwrap(), "and with one alone");
        assert_ne!(codec.encode("hi").unwrap()[0], TokenId(2), "a template writes it itself");
    }
}

/// Rewrites the safetensors file: tensors that `change` answers false for are left out.
fn rewrite(folder: &Path, change: impl Fn(&str, &mut Vec<usize>, &mut Vec<u8>) -> bool) {
    let file = folder.join("model.safetensors");
    let bytes = fs::read(&file).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let mut kept = Vec::new();
    for (name, view) in tensors.tensors() {
        let (mut shape, mut data) = (view.shape().to_vec(), view.data().to_vec());
        if change(&name, &mut shape, &mut data) {
            kept.push((name, view.dtype(), shape, data));
        }
    }
    let views = kept
        .iter()
        .map(|(name, dtype, shape, data)| (name.clone(), TensorView::new(*dtype, shape.clone(), data).unwrap()));
    fs::write(&file, safetensors::serialize(views, None).unwrap()).unwrap();
}

fn set(folder: &Path, key: &str, value: Value) {
    edit(folder, "config.json", |config| config["text_config"][key] = value);
}

fn set_outside(folder: &Path, key: &str, value: Value) {
    edit(folder, "config.json", |config| config[key] = value);
}

fn sliding_rope(folder: &Path, key: &str, value: Value) {
    edit(folder, "config.json", |config| config["text_config"]["rope_parameters"]["sliding_attention"][key] = value);
}

fn full_rope(folder: &Path, key: &str, value: Value) {
    edit(folder, "config.json", |config| config["text_config"]["rope_parameters"]["full_attention"][key] = value);
}

fn one_sentence(error: &str, says: &str) {
    assert!(error.contains(says) && error.lines().count() == 1 && error.len() < 400, "{says}: {error}");
}

/// Makes full layers of all, as wide as the sliding ones were.
fn all_full(folder: &Path) {
    let kinds = |config: &mut Value| {
        let text = &mut config["text_config"];
        let types: Vec<Value> = text["layer_types"].as_array().unwrap().clone();
        text["global_head_dim"] = text["head_dim"].clone();
        text["layer_types"] = types.iter().map(|_| json!("full_attention")).collect();
        types.iter().map(|kind| kind == "full_attention").collect()
    };
    let mut were_full: Vec<bool> = Vec::new();
    edit(folder, "config.json", |config| were_full = kinds(config));
    rewrite(folder, |name, shape, data| {
        let layer = name.split_once("layers.").and_then(|(_, rest)| rest.split('.').next()?.parse::<usize>().ok());
        if name.contains("self_attn") && layer.is_some_and(|layer| were_full[layer]) {
            let heads = if name.ends_with("o_proj.weight") { 1 } else { 0 };
            shape[heads] /= 2;
            data.truncate(data.len() / 2);
        }
        true
    });
}

#[test]
fn a_target_of_full_layers_alone_lends_to_an_assistant_of_such() {
    let (target, assistant) = (copy("gemma4"), copy("gemma4-assistant"));
    all_full(target.path());
    all_full(assistant.path());
    let recipe = asked(target.path().into(), Some(assistant.path().into()), Backend::Native);
    let Loaded { target, mtp, notice, .. } = load(&recipe, &mut |_, _, _| {}).unwrap();
    assert_eq!(notice, None);
    let prompt = Golden::of("gemma4").tokens("tokens")[..8].to_vec();
    let none = MtpOverride::default();
    let plain = decode(target.fork().unwrap(), Box::new(NoDrafter), &settings(0, none), &prompt, 30).text;
    let told = decode(target, Box::new(MtpDrafter::new(mtp.unwrap().0)), &settings(3, none), &prompt, 30);
    assert_eq!(told.text, plain);
    assert!(told.notices.is_empty() && told.drafted >= told.rounds, "{:?}, {} drafts", told.notices, told.drafted);
}

#[test]
fn an_assistant_says_that_another_target_lends_it_nothing() {
    let mut module = open("gemma4", Backend::Native).mtp.unwrap().0;
    let other = load(&recipe(path("qwen3"), Backend::Native), &mut |_, _, _| {}).unwrap().target;
    one_sentence(&module.attach_kv(other.as_ref()).unwrap_err().to_string(), "this target lends no keys and values");
    assert!(module.is_empty());
}

type Spoil = fn(&Path);

#[test]
fn configs_and_files_that_do_not_go_are_refused_in_a_sentence_that_names_them() {
    let six = |kinds: [&str; 6]| json!(kinds.map(|kind| format!("{kind}_attention")));
    let of_kinds = |folder: &Path, kinds| set(folder, "layer_types", six(kinds));
    let cases: &[(Spoil, &str)] = &[
        (|f| set(f, "enable_moe_block", json!(true)), "with experts ('enable_moe_block' is true"),
        (|f| set(f, "use_bidirectional_attention", json!("all")), "'use_bidirectional_attention' is 'all'"),
        (|f| set(f, "hidden_activation", json!("silu")), "'hidden_activation' is 'silu'"),
        (|f| set(f, "attention_bias", json!(true)), "'attention_bias' is true"),
        (|f| set(f, "attention_new_trick", json!(1)), "'attention_new_trick' is not known"),
        (|f| set(f, "sliding_window", Value::Null), "lacks 'sliding_window'"),
        (|f| set(f, "sliding_window", json!(0)), "'sliding_window' is 0"),
        (|f| set(f, "layer_types", json!(["full_attention"])), "'layer_types' names 1 layers"),
        (|f| set(f, "num_kv_shared_layers", json!(6)), "no layer is left that makes keys and values"),
        (|f| set(f, "num_kv_shared_layers", json!(7)), "no layer is left that makes keys and values"),
        (|f| set(f, "num_kv_shared_layers", json!(4)), "there is none before it"),
        (|f| set(f, "final_logit_softcapping", json!(-1.0)), "'final_logit_softcapping' is -1"),
        (|f| set(f, "num_key_value_heads", json!(3)), "4 query heads over 3 key/value heads"),
        (|f| set(f, "global_head_dim", json!(31)), "a head width of 31"),
        (|f| set(f, "global_head_dim", json!(64)), "has shape"),
        (|f| set(f, "vocab_size_per_layer_input", json!(100)), "'vocab_size_per_layer_input' is 100"),
        (|f| set(f, "hidden_size_per_layer_input", json!(16)), "has shape"),
        (|f| set(f, "use_double_wide_mlp", json!(false)), "has shape"),
        (|f| set(f, "vocab_size", json!("320")), "expected usize"),
        (|f| set(f, "model_type", json!("llama")), "'text_config.model_type' is \"llama\" in a file whose"),
        (|f| set(f, "model_type", json!("qwen3_5_text")), "'text_config.model_type' is \"qwen3_5_text\" in a file"),
        (|f| set(f, "model_type", json!("gemma3_text")), "'text_config.model_type' is \"gemma3_text\""),
        (|f| set(f, "per_layer_config", json!({"0": {"head_dim": 32}})), "'per_layer_config' gives layer '0'"),
        (|f| set(f, "per_layer_config", json!({"2": {"head_dim": 32}})), "'per_layer_config' names 1 layers"),
        (|f| full_rope(f, "rope_type", json!("yarn")), "'rope_type' is 'yarn'"),
        (|f| full_rope(f, "rope_type", Value::Null), "'partial_rotary_factor' in a rotary position of type default"),
        (|f| full_rope(f, "rope_theta", Value::Null), "'rope_parameters' lacks a 'rope_theta'"),
        (|f| full_rope(f, "partial_rotary_factor", json!(2.0)), "'partial_rotary_factor' is 2"),
        (|f| full_rope(f, "factor", json!(0)), "'factor' is 0"),
        (|f| full_rope(f, "beta_fast", json!(32)), "'rope_parameters': unknown field `beta_fast`"),
        (
            |f| set(f, "rope_parameters", json!({"rope_type": "default", "rope_theta": 1e4})),
            "'rope_parameters': unknown field `rope_theta`",
        ),
        (
            |f| set(f, "rope_parameters", json!({"full_attention": {"rope_theta": 1e6}})),
            "'rope_parameters' says nothing of 'sliding_attention' layers",
        ),
        (|f| sliding_rope(f, "factor", json!(8)), "'factor' in a rotary position of type default"),
        (|f| set(f, "rope_scaling", json!({"rope_type": "linear", "factor": 8})), "'rope_scaling' is not known here"),
        (|f| set(f, "rope_theta", json!(5e5)), "'rope_theta' is not known here"),
        (|f| set(f, "partial_rotary_factor", json!(0.5)), "'partial_rotary_factor' is not known here"),
        (
            |f| rewrite(f, |name, _, _| !name.ends_with("layers.1.layer_scalar")),
            "no tensor 'model.language_model.layers.1.layer_scalar'",
        ),
        (
            |f| rewrite(f, |name, _, _| !name.ends_with("layers.3.self_attn.v_proj.weight")),
            "no tensor 'model.language_model.layers.3.self_attn.v_proj.weight'",
        ),
        (
            |f| rewrite(f, |name, _, _| !name.ends_with("embed_tokens_per_layer.weight")),
            "no tensor 'model.language_model.embed_tokens_per_layer.weight'",
        ),
        (
            |f| {
                let file = f.join("model.safetensors");
                let bytes = fs::read(&file).unwrap();
                fs::write(file, &bytes[..bytes.len() / 2]).unwrap();
            },
            "it ends in the middle",
        ),
        (
            |f| {
                fs::remove_file(f.join("model.safetensors")).unwrap();
                let index = r#"{"weight_map": {"a": "model-00001-of-00002.safetensors"}}"#;
                fs::write(f.join("model.safetensors.index.json"), index).unwrap();
            },
            "the shard 'model-00001-of-00002.safetensors' that it names is not there",
        ),
    ];
    let refused = |folder: &Path, says: &str| {
        let recipe = asked(folder.into(), None, Backend::Candle);
        let error = load(&recipe, &mut |_, _, _| {}).err().unwrap_or_else(|| panic!("opened: {says}")).to_string();
        one_sentence(&error, says);
    };
    for (spoil, says) in cases {
        let folder = copy("gemma4");
        spoil(folder.path());
        refused(folder.path(), says);
    }
    for (kinds, says) in [
        (
            ["sliding", "sliding", "full", "sliding", "sliding", "sliding"],
            "'layer_types' ends with 'sliding_attention'",
        ),
        (["sliding", "linear", "full", "sliding", "sliding", "full"], "'layer_types' holds 'linear_attention'"),
        (["sliding", "sliding", "sliding", "sliding", "sliding", "full"], "there is none before it"),
    ] {
        let folder = copy("gemma4");
        of_kinds(folder.path(), kinds);
        refused(folder.path(), says);
    }
}

#[test]
fn rotary_positions_that_are_not_told_are_those_of_the_library() {
    let full = |folder: &Path| {
        let config = OpenModel::open(folder).unwrap().config as Box<dyn std::any::Any>;
        config.downcast::<Gemma4Config>().unwrap().gemma.full_rope
    };
    let turning = |folder: &Path| match full(folder).scaling {
        RopeScaling::Factors(factors) => factors.iter().filter(|factor| factor.is_finite()).count(),
        other => panic!("{other:?}"),
    };
    let folder = copy("gemma4");
    let as_told = full(folder.path());
    assert_eq!(turning(folder.path()), 4);
    full_rope(folder.path(), "partial_rotary_factor", Value::Null);
    assert_eq!(turning(folder.path()), 16, "the whole head");
    for key in ["rope_scaling", "rope_theta"] {
        set(folder.path(), key, Value::Null);
    }
    set(folder.path(), "rope_parameters", Value::Null);
    assert_eq!(full(folder.path()), as_told, "a file that says nothing");
}

#[test]
fn an_assistant_that_does_not_fit_is_left_out_with_a_sentence() {
    let cases: &[(Spoil, &str)] = &[
        (|f| set_outside(f, "backbone_hidden_size", json!(96)), "('backbone_hidden_size') is 96 there and 64"),
        (|f| set_outside(f, "backbone_hidden_size", json!(0)), "'backbone_hidden_size' is 0"),
        (|f| set(f, "vocab_size", json!(640)), "('vocab_size') is 640 there and 320"),
        (|f| set_outside(f, "num_centroids", json!(15)), "'num_centroids' is 15, which does not divide the 320 tokens"),
        (|f| set_outside(f, "num_centroids", json!(0)), "'num_centroids' is 0"),
        (|f| set_outside(f, "centroid_intermediate_top_k", json!(17)), "'centroid_intermediate_top_k' is 17"),
        (|f| set_outside(f, "tie_word_embeddings", json!(false)), "'tie_word_embeddings' is false"),
        (|f| set_outside(f, "text_config", json!([])), "the assistant's config.json: invalid type"),
        (|f| set(f, "layer_types", json!(["full_attention"])), "'layer_types' names 1 layers"),
        (|f| set(f, "head_dim", json!(32)), "the width of heads in sliding layers is 32 there and 16"),
        (|f| set(f, "global_head_dim", json!(64)), "the width of heads in full layers is 64 there and 32"),
        (|f| set(f, "num_key_value_heads", json!(4)), "the number of key/value heads in sliding layers is 4"),
        (|f| set(f, "sliding_window", json!(16)), ""), // it may see further than the target
        (|f| set(f, "rope_parameters", Value::Null), ""), /* the usual ones are those of the target */
        (|f| sliding_rope(f, "rope_theta", json!(500)), "its rotary positions ('rope_parameters') are others"),
        (|f| set(f, "num_attention_heads", json!(0)), "'num_attention_heads' is 0"),
        (|f| set(f, "hidden_size", json!(64)), "has shape"),
        (|f| set(f, "hidden_size_per_layer_input", json!(32)), "'vocab_size_per_layer_input' is 0"),
        (|f| set(f, "final_logit_softcapping", json!(30.0)), "'final_logit_softcapping' is not supported"),
        (
            |f| rewrite(f, |name, _, _| name != "model.layers.2.self_attn.q_norm.weight"),
            "no tensor 'model.layers.2.self_attn.q_norm.weight'",
        ),
        (|f| rewrite(f, |name, _, _| name != "post_projection.weight"), "no tensor 'post_projection.weight'"),
        (
            |f| rewrite(f, |name, _, _| name != "masked_embedding.token_ordering"),
            "no tensor 'masked_embedding.token_ordering'",
        ),
        (
            |f| {
                rewrite(f, |name, _, data| {
                    if name == "masked_embedding.token_ordering" {
                        data.copy_within(0..8, 8); // a token twice
                    }
                    true
                });
            },
            "it orders no vocabulary",
        ),
        (
            |f| {
                rewrite(f, |name, _, data| {
                    if name == "masked_embedding.token_ordering" {
                        data[..8].copy_from_slice(&(-1i64).to_le_bytes());
                    }
                    true
                });
            },
            "'masked_embedding.token_ordering' holds -1",
        ),
        (
            |f| {
                rewrite(f, |name, shape, _| {
                    if name == "pre_projection.weight" {
                        shape.swap(0, 1);
                    }
                    true
                });
            },
            "tensor 'pre_projection.weight' has shape [128, 32], expected [32, 128]",
        ),
        (|f| fs::remove_file(f.join("model.safetensors")).unwrap(), "holds neither model.safetensors nor"),
        (
            |f| {
                let file = f.join("model.safetensors");
                let bytes = fs::read(&file).unwrap();
                fs::write(file, &bytes[..bytes.len() - 100]).unwrap();
            },
            "it ends in the middle",
        ),
    ];
    for (spoil, says) in cases {
        let folder = copy("gemma4-assistant");
        spoil(folder.path());
        let recipe = asked(path("gemma4"), Some(folder.path().into()), Backend::Candle);
        let loaded = load(&recipe, &mut |_, _, _| {}).unwrap_or_else(|error| panic!("{says}: {error}"));
        if says.is_empty() {
            assert!(loaded.mtp.is_some() && loaded.notice.is_none());
            continue;
        }
        assert!(loaded.mtp.is_none(), "an assistant that should not fit: {says}");
        let notice = loaded.notice.unwrap();
        assert!(notice.starts_with("no drafter, decoding plainly: "), "{notice}");
        one_sentence(&notice, says);
    }
}

#[test]
fn what_is_given_in_the_wrong_place_is_said() {
    let notice = |recipe: &LoadOptions| load(recipe, &mut |_, _, _| {}).unwrap().notice.unwrap();
    let alone = asked(path("gemma4"), None, Backend::Native);
    one_sentence(&notice(&alone), "gemma4 brings no drafter; name its assistant with --draft-model");
    let other = LoadOptions { draft_model: Some(path("gemma4-unified-assistant")), ..alone.clone() };
    one_sentence(&notice(&other), "made for another target");
    let head = LoadOptions { draft_model: Some(path("eagle3-original")), ..alone.clone() };
    one_sentence(&notice(&head), "EAGLE-3 head");
    for target in ["qwen3", "qwen35", "llama.gguf"] {
        let recipe = asked(path(target), Some(assistant_of("gemma4")), Backend::Candle);
        one_sentence(&notice(&recipe), "is an assistant of Gemma 4, and the target is of the family");
    }
    let by_hand = alone.mtp.clone().map(|mtp| ModuleFile { required: true, ..mtp });
    let error = |recipe: &LoadOptions| load(recipe, &mut |_, _, _| {}).err().unwrap().to_string();
    one_sentence(&error(&LoadOptions { mtp: by_hand.clone(), ..alone.clone() }), "a Gemma 4 has an assistant");
    let both = LoadOptions { mtp: by_hand, draft_model: Some(assistant_of("gemma4")), ..alone };
    one_sentence(&error(&both), "leave one out");
    let as_target = asked(assistant_of("gemma4"), None, Backend::Candle);
    one_sentence(&error(&as_target), "name it with --draft-model");
}

#[test]
fn cards_say_what_is_loaded() {
    for name in TARGETS {
        let card = Card::read(&path(name)).unwrap();
        let loaded = open(name, Backend::Candle);
        let info = &loaded.target.spec().info;
        let looked_up = card.family["gemma"]["per_layer_weights"].as_u64().unwrap();
        // in f32, the table of embeddings for the layers in bf16 as it is stored
        assert_eq!(info.weight_bytes, 4 * card.parameters - 2 * looked_up, "{name}");
        assert_eq!(info.kv_bytes_per_token, card.kv_bytes_per_token);
        let text = card.to_string();
        assert!(text.contains("sliding (8 positions)") && text.contains("its assistant"), "{text}");
        assert_eq!(text.contains("read others' keys and values"), name == "gemma4", "{text}");
        let card = AssistantCard::read(&assistant_of(name)).unwrap().unwrap();
        // the table of a head with clusters stays as it is stored too
        let table = if card.clusters > 0 { card.vocab * card.d_model } else { 0 };
        assert_eq!(loaded.mtp.unwrap().1.weight_bytes, 4 * card.parameters - 2 * table as u64, "{name}");
        assert!(card.to_string().contains("no cache of its own"), "{card}");
        assert!(AssistantCard::read(&path(name)).unwrap().is_none());
    }
}

#[test]
fn newer_configs_that_tell_heads_layer_by_layer_are_read_alike() {
    let golden = Golden::of("gemma4-unified");
    let folder = copy("gemma4-unified");
    set(folder.path(), "per_layer_config", json!({"3": {"head_dim": 32, "num_key_value_heads": 1}}));
    for key in ["global_head_dim", "num_global_key_value_heads"] {
        set(folder.path(), key, Value::Null);
    }
    let recipe = asked(folder.path().into(), Some(assistant_of("gemma4-unified")), Backend::Candle);
    let mut loaded = load(&recipe, &mut |_, _, _| {}).unwrap();
    let out = loaded.target.forward(&golden.tokens("tokens"), LogitRows::All).unwrap();
    assert!(farthest(out.logits.as_slice(), &golden.numbers("logits")) < 5e-4 && loaded.mtp.is_some());
}

#[test]
fn other_dtypes_and_shards_run_alike() {
    let golden = Golden::of("gemma4");
    let (tokens, logits) = (golden.tokens("tokens"), golden.numbers("logits"));
    let bytes = fs::read(path("gemma4").join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let widen = |data: &[u8]| -> Vec<f32> {
        data.as_chunks().0.iter().map(|bytes| half::bf16::from_le_bytes(*bytes).to_f32()).collect()
    };
    for (dtype, most) in [(Dtype::F32, 5e-4), (Dtype::F16, 2e-2)] {
        let folder = copy("gemma4");
        let as_dtype = |x: f32| match dtype {
            Dtype::F16 => half::f16::from_f32(x).to_le_bytes().to_vec(),
            _ => x.to_le_bytes().to_vec(),
        };
        let converted: Vec<(String, Vec<usize>, Vec<u8>)> = tensors
            .tensors()
            .into_iter()
            .map(|(name, view)| {
                let data = widen(view.data()).into_iter().flat_map(as_dtype).collect();
                (name, view.shape().to_vec(), data)
            })
            .collect();
        fs::remove_file(folder.path().join("model.safetensors")).unwrap();
        let mut map = serde_json::Map::new();
        for (shard, part) in converted.chunks(converted.len().div_ceil(2)).enumerate() {
            let file = format!("model-0000{}-of-00002.safetensors", shard + 1);
            let views = part.iter().map(|(name, shape, data)| {
                map.insert(name.clone(), json!(file));
                (name.clone(), TensorView::new(dtype, shape.clone(), data).unwrap())
            });
            fs::write(folder.path().join(&file), safetensors::serialize(views, None).unwrap()).unwrap();
        }
        let index = json!({"weight_map": map}).to_string();
        fs::write(folder.path().join("model.safetensors.index.json"), index).unwrap();
        for backend in BACKENDS {
            let recipe = asked(folder.path().into(), Some(assistant_of("gemma4")), backend);
            let mut loaded = load(&recipe, &mut |_, _, _| {}).unwrap();
            let out = loaded.target.forward(&tokens, LogitRows::All).unwrap();
            let off = farthest(out.logits.as_slice(), &logits);
            println!("{dtype:?} in two shards on {backend:?}: off by {off:.1e}");
            assert!(off < most && loaded.mtp.is_some(), "{dtype:?} on {backend:?}: off by {off}");
        }
    }
}

/// An assistant, and the state that it handed on last.
struct Overheard(Box<dyn DraftModule>, Rc<RefCell<Vec<f32>>>);

impl DraftModule for Overheard {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn spec(&self) -> MtpSpec {
        self.0.spec()
    }
    fn shares_target_kv(&self) -> bool {
        self.0.shares_target_kv()
    }
    fn attach_kv(&mut self, target: &dyn Model) -> Result<(), ModelError> {
        self.0.attach_kv(target)
    }
    fn hold_position(&mut self, position: Option<usize>) {
        self.0.hold_position(position);
    }
    fn forward(&mut self, tokens: &[TokenId], hidden: &Rows) -> Result<Forward, ModelError> {
        let out = self.0.forward(tokens, hidden)?;
        *self.1.borrow_mut() = out.hidden.last().unwrap().to_vec();
        Ok(out)
    }
    fn truncate(&mut self, len: usize) -> Result<(), ModelError> {
        self.0.truncate(len)
    }
    fn draft_vocab(&self) -> &[TokenId] {
        self.0.draft_vocab()
    }
    fn fork(&self) -> Result<Box<dyn DraftModule>, ModelError> {
        Ok(Box::new(Self(self.0.fork()?, Rc::clone(&self.1))))
    }
}

/// The head of the assistant with clusters, out of its file.
struct Clusters {
    /// `[64, 32]`: makes what is handed on of the state that the head reads.
    post: Vec<f64>,
    /// `[16, 32]`
    centroids: Vec<f64>,
    /// Tokens of the clusters, twenty of each.
    ordering: Vec<u32>,
}

impl Clusters {
    const D: usize = 32;

    fn read() -> Self {
        let bytes = fs::read(assistant_of("gemma4").join("model.safetensors")).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let numbers = |name: &str| {
            let halves = tensors.tensor(name).unwrap().data().as_chunks().0;
            halves.iter().map(|bytes| half::bf16::from_le_bytes(*bytes).to_f64()).collect()
        };
        let ordering = tensors.tensor("masked_embedding.token_ordering").unwrap().data().as_chunks().0;
        Self {
            post: numbers("post_projection.weight"),
            centroids: numbers("masked_embedding.centroids.weight"),
            ordering: ordering.iter().map(|bytes| i64::from_le_bytes(*bytes) as u32).collect(),
        }
    }

    /// The state that was made into this one: least squares, by elimination.
    fn state(&self, handed_on: &[f32]) -> Vec<f64> {
        const D: usize = Clusters::D;
        let column = |j: usize| self.post.iter().skip(j).step_by(D);
        let mut rows: Vec<Vec<f64>> = (0..D)
            .map(|i| {
                let with = |j: usize| column(i).zip(column(j)).map(|(a, b)| a * b).sum();
                let right = column(i).zip(handed_on).map(|(a, h)| a * f64::from(*h)).sum();
                (0..D).map(with).chain([right]).collect()
            })
            .collect();
        for i in 0..D {
            let pivot = rows[i].clone();
            for (j, row) in rows.iter_mut().enumerate().filter(|(j, _)| *j != i) {
                let times = row[i] / pivot[i];
                assert!(times.is_finite(), "{i}, {j}");
                row.iter_mut().zip(&pivot).for_each(|(x, p)| *x -= times * p);
            }
        }
        let state: Vec<f64> = rows.iter().enumerate().map(|(i, row)| row[D] / row[i]).collect();
        let made = self.post.chunks(D).map(|row| row.iter().zip(&state).map(|(a, b)| a * b).sum::<f64>());
        assert!(made.zip(handed_on).all(|(made, h)| (made - f64::from(*h)).abs() < 1e-3), "no such state");
        state
    }

    /// Tokens of the four best clusters; none where the fourth and the fifth are nearly alike.
    fn looked_at(&self, handed_on: &[f32]) -> Option<BTreeSet<u32>> {
        let state = self.state(handed_on);
        let score = |row: &[f64]| row.iter().zip(&state).map(|(a, b)| a * b).sum::<f64>();
        let mut scores: Vec<(f64, usize)> = self.centroids.chunks(Self::D).map(score).zip(0..).collect();
        scores.sort_by(|a, b| b.0.total_cmp(&a.0));
        let tokens = scores[..4].iter().flat_map(|(_, cluster)| &self.ordering[cluster * 20..][..20]);
        (scores[3].0 - scores[4].0 > 1e-3).then(|| tokens.copied().collect())
    }
}

#[test]
fn drafts_are_drawn_from_the_clusters_that_were_looked_into() {
    let all = text(&Golden::of("gemma4"));
    let clusters = Clusters::read();
    // nearly the best alone, and nearly any of those that have a logit
    for (temperature, fewest) in [(0.05, 5), (100.0, 60)] {
        let Loaded { target, mtp, .. } = open("gemma4", Backend::Native);
        let sampling = Sampling { temperature, ..Sampling::default() };
        let settings = Settings { sampling, rule: VerifyRule::Rejection, ..settings(3, MtpOverride::default()) };
        let handed_on = Rc::new(RefCell::new(Vec::new()));
        let module = Box::new(Overheard(mtp.unwrap().0, Rc::clone(&handed_on)));
        let mut decoder = Decoder::new(target, Box::new(MtpDrafter::new(module)), &settings);
        decoder.prefill(1, &all[..60]).unwrap();
        let (mut drawn, mut checked) = (BTreeSet::new(), 0);
        for _ in 0..30 {
            decoder
                .round(&mut |event| {
                    match event {
                        EventKind::Drafted { token, .. } => {
                            if let Some(tokens) = clusters.looked_at(&handed_on.borrow()) {
                                assert!(tokens.contains(&token.id.0), "{token:?} was not looked at");
                                checked += 1;
                            }
                            drawn.insert(token.id);
                        }
                        EventKind::Notice { message } => panic!("{message}"),
                        _ => {}
                    }
                    Duration::ZERO
                })
                .unwrap();
        }
        assert!(checked > 60 && drawn.len() >= fewest, "{checked} of 90, {} tokens at {temperature}", drawn.len());
    }
}
