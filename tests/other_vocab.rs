//! Draft models with another tokenizer that draft by strings: the text stays the target's, and the tokenizers meet at seams.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::tiny::{self, Parts, Tiny};
use draftscope::engine;
use draftscope::engine::grammar::{Constraint, Vocabulary};
use draftscope::engine::identity::{Ending, answer, diagnose, distribution_test, sample};
use draftscope::engine::speculate::decoder::Decoder;
use draftscope::engine::speculate::drafter::{NoDrafter, StringsDrafter};
use draftscope::model::load::{Loaded, OpenModel, load};
use draftscope::model::other_vocab::SharedVocab;
use draftscope::model::other_vocab::strings::{OwnText, Strings, Written};
use draftscope::model::text::tokenizer::TextCodec;
use draftscope::model::{Checkpoint, Forward, LogitRows, Model, ModelError, ModelSpec, Rows};
use draftscope::protocol::policy::Policy;
use draftscope::protocol::{
    Costs, Drafted, EventKind, Grammar, GrammarKind, Sampling, Settings, TokenId, VerifyRule, VocabMethod,
};

/// The tokenizers of draft models: byte-level with other merges, and SentencePiece.
const OTHERS: [fn(&mut Parts); 2] = [tiny::with_other_tokenizer, tiny::with_sentence_piece];

const ENDING: Ending<'_> = Ending { limit: 48, is_end: &|_| false };

fn settings(drafter: &str, draft_len: u8) -> Settings {
    Settings { drafter: drafter.parse().unwrap(), draft_len, ..Settings::default() }
}

/// A target, and its twin with another tokenizer to draft for it.
fn loaded(seed: u64, other: fn(&mut Parts), method: Option<VocabMethod>) -> Loaded {
    let (files, twin) = (Tiny::new(seed), Tiny::with(seed, other));
    let mut recipe = files.recipe();
    (recipe.draft_model, recipe.draft_model_required, recipe.vocab_method) = (Some(twin.target), true, method);
    load(&recipe, &mut |_, _, _| {}).unwrap()
}

fn by_strings(seed: u64, other: fn(&mut Parts)) -> Loaded {
    loaded(seed, other, Some(VocabMethod::Strings))
}

fn codec(change: impl FnOnce(&mut Parts)) -> TextCodec {
    OpenModel::open(&Tiny::with(1, change).target).unwrap().codec().unwrap()
}

/// Strings between the tiny tokenizer and another one.
fn strings(other: fn(&mut Parts)) -> (Arc<TextCodec>, Arc<TextCodec>, Strings) {
    let (target, own) = (Arc::new(codec(|_| {})), Arc::new(codec(other)));
    let shared = SharedVocab::of(&target, &own);
    let strings = Strings::new(Arc::clone(&target), Arc::clone(&own), shared).unwrap();
    (target, own, strings)
}

/// Tokens of all kinds: bytes that are no text, control tokens, words.
fn tokens(seed: u64, len: usize) -> Vec<TokenId> {
    let all = tiny::vocab_len() as u64;
    (0..len as u64).map(|i| TokenId((((seed + 1) * 7919 + i * i * 31 + i * 104_729) % all) as u32)).collect()
}

fn bytes(codec: &TextCodec, tokens: &[TokenId]) -> Vec<u8> {
    tokens.iter().flat_map(|token| codec.piece(*token).text_bytes().to_vec()).collect()
}

#[test]
fn greedy_answers_are_those_of_plain_decoding() {
    for (seed, other) in (0..4).flat_map(|seed| OTHERS.map(|other| (seed, other))) {
        let (drafter_set, Loaded { target, .. }) = engine::drafter_set(by_strings(seed, other));
        let fresh = target.fork().unwrap();
        let mut plain = Decoder::new(target.fork().unwrap(), Box::new(NoDrafter), &settings("none", 0));
        let mut speculative = Decoder::new(target, Box::new(drafter_set), &settings("draft-model", 1));
        let (mut drafted, mut accepted, mut longest) = (0, 0, 0);
        for (k, drafter) in (1..=6).flat_map(|k| ["draft-model", "suffix+draft-model"].map(|drafter| (k, drafter))) {
            // every prompt begins like another one, so that caches are cut back
            let prompt = [tokens(seed, 6), tokens(seed * 10 + u64::from(k), 12)].concat();
            let want = answer(&mut plain, &prompt, ENDING, None).unwrap();
            speculative.set(&settings(drafter, k));
            let got = answer(&mut speculative, &prompt, ENDING, None).unwrap();
            assert_eq!(diagnose(fresh.as_ref(), &want, &got).unwrap().map(|found| found.cause), None, "k = {k}");
            drafted += got.rounds.iter().map(|round| round.drafts.len()).sum::<usize>();
            longest = longest.max(got.rounds.iter().map(|round| round.drafts.len()).max().unwrap());
            accepted += want.tokens.len().saturating_sub(got.rounds.len());
        }
        assert!(drafted > 100 && accepted > 0 && longest > 1, "{accepted} of {drafted}, up to {longest}");
        assert!(speculative.take_notices().iter().all(|notice| !notice.contains("failed")));
    }
}

#[test]
fn the_distribution_is_that_of_plain_decoding() {
    for (other, first) in OTHERS.into_iter().zip([0, 10_000]) {
        let (drafter_set, Loaded { target, .. }) = engine::drafter_set(by_strings(3, other));
        let sampling = Sampling { temperature: 1.0, top_k: 12, ..Sampling::default() };
        let base = |rule, drafter, k| Settings { sampling, rule, ..settings(drafter, k) };
        let prompt = tokens(1, 10);
        let n = 600;
        let own = base(VerifyRule::Exact, "none", 0);
        let mut plain = Decoder::new(target.fork().unwrap(), Box::new(NoDrafter), &own);
        let want = sample(&mut plain, &prompt, &own, (first..first + n, 3), None).unwrap();
        let mut speculative = Decoder::new(target, Box::new(drafter_set), &own);
        let rules = [(1, VerifyRule::Rejection), (2, VerifyRule::Block), (3, VerifyRule::Exact)];
        for (at, rule) in rules.map(|(at, rule)| (first + at * n, rule)) {
            let settings = base(rule, "draft-model", 3);
            let got = sample(&mut speculative, &prompt, &settings, (at..at + n, 3), None).unwrap();
            let found = distribution_test::compare(&want, &got);
            assert!(found.consistent, "{rule}: {found:#?}");
        }
    }
}

#[test]
fn a_grammar_an_automatic_k_and_a_fork_keep_the_text() {
    for other in OTHERS {
        let (drafter_set, Loaded { target, codec, .. }) = engine::drafter_set(by_strings(6, other));
        let mut plain = Decoder::new(target.fork().unwrap(), Box::new(NoDrafter), &settings("none", 0));
        let mut speculative = Decoder::new(target, Box::new(drafter_set), &settings("draft-model", 4));
        let verify_us = (0..9).map(|drafts| 1000.0 + 20.0 * f64::from(drafts)).collect();
        let costs = Costs { verify_us, draft_us: 30.0, draft_pass_us: 0.0, settle_us: 5.0, overhead_us: 10.0 };
        let mut policy = Policy::new(costs, 4);
        let prompt = codec.encode("the thin inn is in the ").unwrap();
        let want = answer(&mut plain, &prompt, ENDING, None).unwrap();
        let got = answer(&mut speculative, &prompt, ENDING, Some(&mut policy)).unwrap();
        assert_eq!(got.tokens, want.tokens);
        let mut fork = speculative.fork(&settings("draft-model", 2)).unwrap();
        assert_eq!(answer(&mut fork, &prompt, ENDING, None).unwrap().tokens, want.tokens);
        let text = r#"{"type": "object", "properties": {"name": {"type": "string", "maxLength": 6}, "the": {"enum": ["in", "then"]}}, "required": ["name", "the"], "additionalProperties": false}"#;
        let grammar = Grammar { kind: GrammarKind::JsonSchema, text: text.to_owned() };
        let vocabulary = Vocabulary::new(Arc::clone(&codec)).unwrap();
        for decoder in [&mut plain, &mut speculative] {
            decoder.constrain(Some(Constraint::new(&vocabulary, &grammar).unwrap()));
        }
        let ending = Ending { limit: 40, is_end: &|token| codec.is_end(token) };
        let want = answer(&mut plain, &prompt, ending, None).unwrap();
        for (k, drafter) in (1..=6).flat_map(|k| ["draft-model", "suffix+draft-model"].map(|drafter| (k, drafter))) {
            speculative.set(&settings(drafter, k));
            let got = answer(&mut speculative, &prompt, ending, None).unwrap();
            assert_eq!(got.tokens, want.tokens, "{drafter}, k = {k}");
        }
    }
}

#[test]
fn own_tokens_have_the_bytes_of_the_text_whatever_it_is() {
    for other in OTHERS {
        let (target, own, strings) = strings(other);
        let mut text = OwnText::default();
        for seed in 0..40 {
            // words and junk, in both orders, so that a rollback cuts into each
            let words = target.encode("the thin inn, then é 😀 in the inn").unwrap();
            let all = [&words[..], &tokens(seed, 30), &words, &tokens(seed / 3, 300)].concat();
            for len in [all.len(), 60 + seed as usize, 3, all.len() - 7].into_iter().chain(all.len() - 6..=all.len()) {
                let got = text.follow(&strings, &all[..len]).unwrap().to_vec();
                let plain = |tokens: &[TokenId], codec: &TextCodec| {
                    let mut bytes = bytes(codec, tokens);
                    bytes.retain(|byte| *byte != b' '); // SentencePiece may begin a text with one
                    bytes
                };
                let text_of = |token: &&TokenId| !target.piece(**token).special;
                let texts: Vec<TokenId> = all[..len].iter().filter(text_of).copied().collect();
                let names = all[..len].iter().any(|token| target.piece(*token).special);
                let (got_bytes, want) = (plain(&got, &own), plain(&texts, &target));
                assert!(names || got_bytes == want, "{seed}, {len}");
                let settled = text.settled().to_vec();
                assert!(got.starts_with(&settled));
                let longer = [&all[..len], &words].concat();
                assert!(text.follow(&strings, &longer).unwrap().starts_with(&settled), "what is settled stays");
            }
        }
    }
}

#[test]
fn following_a_text_gives_the_tokens_of_the_whole_text() {
    let words = "the inn, in the thin inn of the then thinnest th e the\n  in the inn. ".repeat(40);
    for other in OTHERS {
        let (target, own, strings) = strings(other);
        let (all, mut text) = (target.encode(&words).unwrap(), OwnText::default());
        assert!(all.len() > 1000, "longer than what is read at once");
        for len in (1..all.len()).step_by(7).chain([all.len()]) {
            text.follow(&strings, &all[..len]).unwrap();
        }
        let got = text.follow(&strings, &all).unwrap().to_vec();
        assert_eq!(own.encode_raw(&words).unwrap(), got);
        assert!(got.len() - text.settled().len() < 20, "hardly anything is read again");
        // without a break a bounded part is
        let dense = target.encode(&"inthen".repeat(400)).unwrap();
        let got = text.follow(&strings, &dense).unwrap().to_vec();
        assert_eq!(bytes(&own, &got).trim_ascii_start(), "inthen".repeat(400).as_bytes());
        assert!(bytes(&own, &got[text.settled().len()..]).len() < 600);
    }
}

#[test]
fn a_text_after_a_seam_gets_the_tokens_that_the_whole_has() {
    let (target, _, strings) = strings(tiny::with_sentence_piece);
    let whole = target.encode("the inn is thin: é, 😀 and the end in the inn").unwrap();
    assert!(whole.len() > 30 && whole.iter().any(|token| std::str::from_utf8(&target.piece(*token).bytes).is_err()));
    for at in 0..whole.len() {
        assert_eq!(strings.continued(&whole[..at], &bytes(&target, &whole[at..])).unwrap(), &whole[at..], "{at}");
    }
    // an incomplete character waits for its end; what is no text gives nothing
    let smile = "😀".as_bytes();
    assert_eq!(strings.continued(&[], &[b"the", &smile[..3]].concat()).unwrap(), target.encode("the").unwrap());
    for junk in [&b"\xff"[..], b"a\xc3(", b"", b"\x80the"] {
        assert_eq!(strings.continued(&whole, junk).unwrap(), []);
    }
    // the target wrote single letters, which its tokenizer would join: the new text is read alone
    let letters: Vec<TokenId> = "th".chars().flat_map(|c| target.encode(&c.to_string()).unwrap()).collect();
    assert_eq!(strings.continued(&letters, b"e inn").unwrap(), target.encode("e inn").unwrap());
    let control = target.encode("<|im_start|>").unwrap();
    assert_eq!(strings.continued(&control, b"the").unwrap(), target.encode("the").unwrap());
}

#[test]
fn own_tokens_write_text_control_tokens_or_nothing() {
    let (target, own, strings) = strings(tiny::with_sentence_piece);
    let written = |name: &str| strings.written(own.encode(name).unwrap()[0]);
    assert_eq!(strings.written(TokenId(3 + 0x41)), Written::Text(b"A"));
    assert_eq!(written("</s>"), Written::Control(target.ends().iter().copied().max().unwrap()));
    assert_eq!(written("<unk>"), Written::Nothing);
    assert_eq!(strings.written(TokenId(99_999)), Written::Nothing, "padding of the head");
    assert!(strings.has(target.encode("the").unwrap()[0]), "spelled letter by letter");
    assert!(!strings.has(target.encode("<|im_start|>").unwrap()[0]) && !strings.has(TokenId(99_999)));
    assert_eq!(strings.count(), tiny::vocab_len() - 2);
}

/// A draft model that knows a text by heart, but only in the tokens that its own tokenizer makes of it.
struct ByHeart {
    spec: ModelSpec,
    /// Own tokens of the text.
    text: Vec<TokenId>,
    cached: Vec<TokenId>,
}

impl Model for ByHeart {
    fn spec(&self) -> &ModelSpec {
        &self.spec
    }
    fn len(&self) -> usize {
        self.cached.len()
    }
    fn forward(&mut self, tokens: &[TokenId], rows: LogitRows) -> Result<Forward, ModelError> {
        let width = self.spec.info.vocab as usize;
        let mut logits = Vec::new();
        for (index, token) in tokens.iter().enumerate() {
            self.cached.push(*token);
            if rows != LogitRows::Last || index + 1 == tokens.len() {
                let next = self.text.strip_prefix(&self.cached[..]).and_then(<[TokenId]>::first);
                let next = next.copied().unwrap_or(TokenId(3 + u32::from(b'X' - b'!'))); // elsewhere it is lost
                logits.extend((0..width).map(|id| if id == next.index() { 12.0 } else { 0.0 }));
            }
        }
        Ok(Forward { logits: Rows::new(logits, width), hidden: Rows::default(), stats: Vec::new() })
    }
    fn checkpoint(&self) -> Result<Checkpoint, ModelError> {
        Ok(Checkpoint { len: self.len() })
    }
    fn truncate(&mut self, len: usize, _: &Checkpoint) -> Result<(), ModelError> {
        self.cached.truncate(len);
        Ok(())
    }
    fn fork(&self) -> Result<Box<dyn Model>, ModelError> {
        Ok(Box::new(Self { spec: self.spec.clone(), text: self.text.clone(), cached: self.cached.clone() }))
    }
}

#[test]
fn a_model_that_knows_a_text_drafts_it_wherever_the_targets_tokens_end() {
    let files = [Tiny::with(1, tiny::with_sentence_piece), Tiny::new(1)];
    let [of_target, of_own] = files.each_ref().map(Tiny::load);
    let (target, own) = (of_target.codec, of_own.codec);
    let strings = Strings::new(Arc::clone(&target), Arc::clone(&own), SharedVocab::of(&target, &own)).unwrap();
    let text = " the inn é, in the thin inn: then, 😀 the other inn in the end. In the inn the thin end";
    let (all, text) = (target.encode(&text[1..]).unwrap(), own.encode(text).unwrap());
    assert!(all.len() > text.len() + 10, "the model's tokens are longer, so that the target's end within them");
    let model = ByHeart { spec: of_own.target.spec().clone(), text, cached: Vec::new() };
    let drafter = StringsDrafter::new(Box::new(model), Arc::new(strings));
    let mut decoder = Decoder::new(of_target.target, Box::new(drafter), &settings("draft-model", 3));
    // there and back, so that caches grow and are cut; nothing stands before the first word to predict it from
    for at in (3..all.len() - 4).chain((3..all.len() - 4).rev().step_by(3)) {
        decoder.prefill_to(1, &all[..at], Some(all[at]), &mut || true).unwrap();
        let mut drafts = Vec::new();
        let round = decoder.round(&mut |event| {
            if let EventKind::Drafted(Drafted { token, .. }) = event {
                drafts.push(token.id);
            }
            Duration::ZERO
        });
        round.unwrap();
        assert_eq!(drafts, &all[at + 1..at + 4], "after {} tokens", at + 1);
    }
}

#[test]
fn the_method_follows_from_what_both_vocabularies_have_or_from_the_user() {
    let info = |other: fn(&mut Parts), method, divides_by_q| {
        let (files, twin) = (Tiny::new(2), Tiny::with(2, other));
        let mut recipe = files.recipe();
        (recipe.draft_model, recipe.vocab_method, recipe.divides_by_q) = (Some(twin.target), method, divides_by_q);
        let loaded = load(&recipe, &mut |_, _, _| {}).unwrap();
        let says = loaded.warnings.iter().find(|warning| warning.contains("another tokenizer")).cloned();
        (loaded.draft_model.unwrap().unwrap().1, says.unwrap_or_default())
    };
    // the tiny vocabulary has few words, so the twin's one other name counts for much
    for (other, method, divides_by_q) in [
        (tiny::with_sentence_piece as fn(&mut Parts), None),
        (tiny::with_other_tokenizer, Some(VocabMethod::Strings)),
        (tiny::with_other_tokenizer, Some(VocabMethod::Intersection)),
    ]
    .into_iter()
    .flat_map(|(other, method)| [(other, method, false), (other, method, true)])
    {
        let (info, says) = info(other, method, divides_by_q);
        let by_q = divides_by_q && method.is_none() && info.vocab_method == Some(VocabMethod::Intersection);
        assert_eq!(says.contains("the rule divides by the probability of a draft"), by_q, "{says}");
        let took = info.vocab_method.unwrap();
        assert!(method.is_none_or(|method| method == took) && says.contains(&format!("({})", took.name())), "{says}");
        assert!(
            says.contains("--vocab-method") == method.is_some()
                && says.contains(" % of a text's tokens") == method.is_none()
        );
        assert!(says.contains(&format!("{} of the target's {} tokens", info.draft_vocab, tiny::vocab_len())), "{says}");
    }
    let mut recipe = Tiny::new(2).recipe();
    let files = Tiny::new(2);
    (recipe.target, recipe.draft_model) = (files.target.clone(), Some(files.target));
    recipe.vocab_method = Some(VocabMethod::Strings);
    let same = load(&recipe, &mut |_, _, _| {}).unwrap();
    assert!(
        same.warnings.iter().any(|warning| warning.starts_with("--vocab-method is ignored")),
        "{:?}",
        same.warnings
    );
    assert_eq!(same.draft_model.unwrap().unwrap().1.vocab_method, None);
}

#[test]
fn a_vocabulary_that_can_write_hardly_anything_is_refused() {
    // every token is a control token of a name of its own
    let silent = |parts: &mut Parts| {
        use candle_core::quantized::gguf_file::Value;
        for (key, value) in &mut parts.metadata {
            if let ("tokenizer.ggml.token_type", Value::Array(types)) = (key.as_str(), &mut *value) {
                types.fill(Value::I32(3));
            }
            if let ("tokenizer.ggml.merges", Value::Array(merges)) = (key.as_str(), &mut *value) {
                merges.clear();
            }
            if let ("tokenizer.ggml.tokens", Value::Array(names)) = (key.as_str(), &mut *value) {
                names.iter_mut().enumerate().for_each(|(id, name)| *name = Value::String(format!("<|mute{id}|>")));
            }
        }
    };
    let (files, mute) = (Tiny::new(2), Tiny::with(2, silent));
    let mut recipe = files.recipe();
    (recipe.draft_model, recipe.draft_model_required) = (Some(mute.target), true);
    for method in [None, Some(VocabMethod::Strings), Some(VocabMethod::Intersection)] {
        recipe.vocab_method = method;
        let error = load(&recipe, &mut |_, _, _| {}).err().unwrap().to_string();
        assert!(error.contains("can draft hardly any of its tokens"), "{error}");
    }
}

#[test]
fn a_full_context_of_the_draft_model_ends_drafts_with_a_notice() {
    let (files, twin) = (
        Tiny::new(3),
        Tiny::with(3, |parts| {
            tiny::with_sentence_piece(parts);
            let context = parts.metadata.iter_mut().find(|(key, _)| key == "llama.context_length").unwrap();
            context.1 = candle_core::quantized::gguf_file::Value::U32(40);
        }),
    );
    let mut recipe = files.recipe();
    (recipe.draft_model, recipe.vocab_method) = (Some(twin.target), Some(VocabMethod::Strings));
    let (drafter_set, Loaded { target, codec, .. }) = engine::drafter_set(load(&recipe, &mut |_, _, _| {}).unwrap());
    let mut plain = Decoder::new(target.fork().unwrap(), Box::new(NoDrafter), &settings("none", 0));
    let mut speculative = Decoder::new(target, Box::new(drafter_set), &settings("draft-model", 3));
    let prompt = codec.encode("the thin inn in the").unwrap();
    let want = answer(&mut plain, &prompt, ENDING, None).unwrap();
    speculative.prefill(1, &prompt).unwrap();
    let mut notices = 0;
    while speculative.committed().len() < prompt.len() + ENDING.limit {
        let round = speculative.round(&mut |event| {
            notices += usize::from(
                matches!(event, EventKind::Notice { message } if message.contains("context of 40 is full")),
            );
            Duration::ZERO
        });
        round.unwrap();
    }
    assert_eq!(&speculative.committed()[prompt.len()..][..want.tokens.len()], &want.tokens[..]);
    assert_eq!(notices, 1);
}
