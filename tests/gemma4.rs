//! Gemma 4 and its assistants, against `transformers` (see `fixtures/checkpoints/README.md`): logits, every convention of
//! an assistant, keys and values that are shared, lent and taken back, texts that speculation does not change.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

mod common;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use common::checkpoint::{Golden, path, recipe};
use draftscope::model::load::{Backend, Loaded, MtpRecipe, Recipe, load};
use draftscope::model::qwen35::DraftVocab;
use draftscope::model::{Checkpoint, LogitRows, Model, ModelError, MtpModule, State, Tap};
use draftscope::protocol::{
    Drafting, EventKind, Message, MtpOverride, Pairing, Prediction, Settings, SlotPosition, TokenId,
};
use draftscope::speculate::decoder::Decoder;
use draftscope::speculate::drafter::{
    Drafter, EarlyExitDrafter, ModelDrafter, MtpDrafter, NgramDrafter, NoDrafter, RandomDrafter,
};
use serde_json::json;

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
fn asked(target: PathBuf, assistant: Option<PathBuf>, backend: Backend) -> Recipe {
    let other =
        MtpRecipe { name: "built in".into(), weights: [].into(), config: [].into(), sha256: None, required: false };
    Recipe { mtp: Some(other), draft_model: assistant, ..recipe(target, backend) }
}

fn open_as(name: &str, backend: Backend, change: impl FnOnce(Recipe) -> Recipe) -> Loaded {
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
fn drafted(target: &mut dyn Model, module: &mut dyn MtpModule, tokens: &[TokenId], wanted: MtpOverride) -> Vec<f32> {
    let spec = wanted.apply(module.spec());
    module.set_spec(&spec).unwrap();
    target.set_tap(&module.tap()).unwrap();
    target.truncate(0, &Checkpoint { len: 0 }).unwrap();
    let (anchor, before) = tokens.split_last().unwrap();
    let hidden = target.forward(before, LogitRows::Last).unwrap().hidden;
    module.borrow(target).unwrap();
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

#[test]
fn the_whole_head_and_a_trimmed_one_take_the_place_of_the_clusters() {
    let golden = Golden::bare("gemma4-assistant");
    let tokens = &text(&Golden::of("gemma4"))[..40];
    let drafted_with = |vocab: DraftVocab| {
        let recipe = |recipe| Recipe { draft_vocab: Some(vocab), ..recipe };
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
    let missing = |recipe| Recipe { draft_vocab: Some(DraftVocab::Tokens(vec![TokenId(320)])), ..recipe };
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
fn the_cache_holds_what_layers_have_of_their_own_and_the_assistant_none() {
    // keys and values in f32: three sliding layers of two heads of 16 and one full layer of two of 32; and of one
    for (name, values) in [("gemma4", 3 * 2 * 16 + 2 * 32), ("gemma4-unified", 3 * 2 * 16 + 32)] {
        let loaded = open(name, Backend::Candle);
        assert_eq!(loaded.target.spec().info.kv_bytes_per_token, 2 * 4 * values, "{name}");
        let info = loaded.mtp.unwrap().1;
        assert!(info.weight_bytes > 0 && info.kv_bytes_per_token == 0, "{info:?}");
        let lent = loaded.target.lend().unwrap();
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
