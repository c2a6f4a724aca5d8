//! Checks of identity on tiny models with deliberate faults, and on the real model.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

mod common;

use std::collections::BTreeSet;

use common::{real, tiny};
use draftscope::engine;
use draftscope::engine::identity::{
    Cause, Diagnosis, Ending, Rate, Record, answer, diagnose, distribution_test, sample,
};
use draftscope::engine::speculate::decoder::Decoder;
use draftscope::engine::speculate::drafter::NoDrafter;
use draftscope::model::load::Loaded;
use draftscope::model::row_by_row::RowByRow;
use draftscope::model::{Checkpoint, Forward, LogitRows, Model, ModelError, ModelSpec};
use draftscope::protocol::policy::Policy;
use draftscope::protocol::{
    Costs, DrafterKind, Leniency, Message, Sampling, Settings, Speaker, TokenId, VerifyRule, VocabMethod,
};

/// The fault of a target.
#[derive(Clone, Copy, PartialEq)]
enum Wrong {
    Nothing,
    /// Logits have noise of this size, which depends on the width of the pass.
    Noise(f32),
    /// A rollback leaves another token's keys and values in the last position.
    Truncate,
    /// A pass over several rows returns each row's logits at the row before.
    Shift,
}

struct Faulty {
    inner: Box<dyn Model>,
    wrong: Wrong,
}

impl Model for Faulty {
    fn spec(&self) -> &ModelSpec {
        self.inner.spec()
    }
    fn len(&self) -> usize {
        self.inner.len()
    }
    fn forward(&mut self, tokens: &[TokenId], rows: LogitRows) -> Result<Forward, ModelError> {
        let mut out = self.inner.forward(tokens, rows)?;
        let width = out.logits.width();
        let data = out.logits.as_slice();
        let changed = match self.wrong {
            Wrong::Noise(size) if tokens.len() > 1 && rows != LogitRows::Last => {
                // one amount per logit and width, the same in every run
                let noise = |i: usize| ((i * 7919 + tokens.len() * 104_729) % 2001) as f32 / 1000.0 - 1.0;
                data.iter().enumerate().map(|(i, x)| x + size * noise(i)).collect()
            }
            Wrong::Shift if tokens.len() > 1 && rows != LogitRows::Last => {
                let last = &data[data.len() - width..];
                data[width..].iter().chain(last).copied().collect()
            }
            _ => return Ok(out),
        };
        out.logits = draftscope::model::Rows::new(changed, width);
        out.stats.clear();
        Ok(out)
    }
    fn checkpoint(&self) -> Result<Checkpoint, ModelError> {
        self.inner.checkpoint()
    }
    fn truncate(&mut self, len: usize, since: &Checkpoint) -> Result<(), ModelError> {
        let is_rollback = len < self.len() && len > 0;
        self.inner.truncate(len, since)?;
        if self.wrong == Wrong::Truncate && is_rollback {
            self.inner.truncate(len - 1, &Checkpoint { len: 0 })?;
            self.inner.forward(&[TokenId(5)], LogitRows::Last)?;
        }
        Ok(())
    }
    fn fork(&self) -> Result<Box<dyn Model>, ModelError> {
        Ok(Box::new(Self { inner: self.inner.fork()?, wrong: self.wrong }))
    }
}

fn tokens(seed: u64, len: usize) -> Vec<TokenId> {
    (0..len as u64).map(|i| TokenId(3 + ((seed + 1) * 7919 + i * i * 31 + i * 104_729) as u32 % 250)).collect()
}

const ENDING: Ending<'_> = Ending { limit: 48, is_end: &|_| false };

fn settings(drafter: DrafterKind, draft_len: u8) -> Settings {
    Settings { drafter, draft_len, ..Settings::default() }
}

/// Differences that a fault causes over some prompts, models and draft lengths.
fn differences(wrong: Wrong, row_by_row: bool) -> Vec<Diagnosis> {
    let mut found = Vec::new();
    for seed in 0..4 {
        let (drafter_set, Loaded { target, .. }) = engine::drafter_set(tiny::Tiny::new(seed).load());
        let target: Box<dyn Model> = Box::new(Faulty { inner: target, wrong });
        let target = if row_by_row { Box::new(RowByRow::new(target)) } else { target };
        let fresh = target.fork().unwrap();
        let mut plain = Decoder::new(target.fork().unwrap(), Box::new(NoDrafter), &settings(DrafterKind::None, 0));
        let mut speculative = Decoder::new(target, Box::new(drafter_set), &settings(DrafterKind::Ngram, 1));
        for prompt in 0..4 {
            let prompt = tokens(seed * 10 + prompt, 12);
            let want = answer(&mut plain, &prompt, ENDING, None).unwrap();
            for (drafter, k) in [(DrafterKind::Mtp, 3), (DrafterKind::Ngram, 4), (DrafterKind::Random, 2)] {
                speculative.set(&settings(drafter, k));
                let got = answer(&mut speculative, &prompt, ENDING, None).unwrap();
                found.extend(diagnose(fresh.as_ref(), &want, &got).unwrap());
            }
        }
    }
    found
}

fn causes(found: &[Diagnosis]) -> Vec<Cause> {
    found.iter().map(|d| d.cause).collect()
}

#[test]
fn a_sound_target_gives_no_difference() {
    assert_eq!(differences(Wrong::Nothing, false), []);
}

#[test]
fn noise_that_depends_on_the_width_is_a_near_tie() {
    // large enough to turn some choices, far below what counts as a bug
    let found = differences(Wrong::Noise(0.2), false);
    assert!(found.len() >= 2, "only {} differences", found.len());
    assert!(causes(&found).iter().all(|cause| *cause == Cause::NearTie), "{found:#?}");
    let first = &found[0];
    assert!(first.noise > 0.0 && first.noise < 0.5 && first.row_by_row.unwrap().margin < 0.8, "{first:#?}");
    assert_eq!(differences(Wrong::Noise(0.2), true), [], "one row at a time is bit-equal by construction");
}

#[test]
fn a_broken_rollback_is_a_state_error() {
    let found = differences(Wrong::Truncate, false);
    assert!(found.len() >= 5, "only {} differences", found.len());
    assert!(causes(&found).iter().all(|cause| *cause == Cause::StateError), "{found:#?}");
    // a difference in the first token comes before any round, so there is no pass to repeat
    let repeated: Vec<_> = found.iter().filter_map(|d| Some((d.fresh_pass?.best, d.plain?))).collect();
    assert!(repeated.len() >= 5 && repeated.iter().all(|(fresh, plain)| fresh == plain), "{found:#?}");
}

#[test]
fn a_pass_that_mixes_up_its_rows_is_a_bug() {
    let found = differences(Wrong::Shift, false);
    assert!(found.len() >= 5, "only {} differences", found.len());
    assert!(causes(&found).iter().all(|cause| *cause == Cause::VerificationBug), "{found:#?}");
}

#[test]
fn a_rule_that_commits_another_token_than_its_row_picks_is_a_bug() {
    let Loaded { target, .. } = tiny::Tiny::new(0).load();
    let fresh = target.fork().unwrap();
    let mut plain = Decoder::new(target, Box::new(NoDrafter), &settings(DrafterKind::None, 0));
    let want = answer(&mut plain, &tokens(1, 9), ENDING, None).unwrap();
    let mut broken: Record = want.clone();
    broken.tokens[7] = TokenId(broken.tokens[7].0 ^ 1);
    let found = diagnose(fresh.as_ref(), &want, &broken).unwrap().unwrap();
    assert_eq!((found.index, found.cause), (7, Cause::VerificationBug));
    assert!(found.reason.contains("its own row"), "{}", found.reason);
    assert_eq!(diagnose(fresh.as_ref(), &want, &want).unwrap(), None);
}

#[test]
fn distributions_are_compared_and_a_wrong_rule_is_noticed() {
    let (drafter_set, Loaded { target, .. }) = engine::drafter_set(tiny::Tiny::new(2).load());
    let sampling = Sampling { temperature: 5.0, top_k: 6, ..Sampling::default() };
    let base = |rule, draft_len| Settings { sampling, rule, ..settings(DrafterKind::Mtp, draft_len) };
    let mut plain = Decoder::new(target.fork().unwrap(), Box::new(NoDrafter), &base(VerifyRule::Exact, 0));
    let mut speculative = Decoder::new(target, Box::new(drafter_set), &base(VerifyRule::Rejection, 3));
    let prompt = tokens(2, 4);
    let n = 600;
    let want = sample(&mut plain, &prompt, &base(VerifyRule::Exact, 0), (0..n, 3), None).unwrap();
    for (rule, from) in [(VerifyRule::Exact, 1), (VerifyRule::Rejection, 2), (VerifyRule::Block, 3)] {
        let got = sample(&mut speculative, &prompt, &base(rule, 3), (from * n..(from + 1) * n, 3), None).unwrap();
        let found = distribution_test::compare(&want, &got);
        assert!(found.consistent, "{rule}: {found:#?}");
        assert!(found.power.last().unwrap().power > 0.9, "{found:#?}");
    }
    // accepting every draft unverified is not lossless
    let leniency = Leniency { confidence: 0.0, ..Leniency::default() };
    let lenient = Settings { leniency, ..base(VerifyRule::Confidence, 3) };
    let got = sample(&mut speculative, &prompt, &lenient, (9 * n..10 * n, 3), None).unwrap();
    assert!(!distribution_test::compare(&want, &got).consistent, "a lenient rule changes the distribution");
}

#[test]
fn an_automatic_k_does_not_change_the_text() {
    let (drafter_set, Loaded { target, .. }) = engine::drafter_set(tiny::Tiny::new(3).load());
    let mut plain = Decoder::new(target.fork().unwrap(), Box::new(NoDrafter), &settings(DrafterKind::None, 0));
    let mut speculative = Decoder::new(target, Box::new(drafter_set), &settings(DrafterKind::Mtp, 0));
    let verify_us = (0..9).map(|drafts| 1000.0 + 20.0 * f64::from(drafts)).collect();
    let mut policy =
        Policy::new(Costs { verify_us, draft_us: 30.0, draft_pass_us: 0.0, settle_us: 5.0, overhead_us: 10.0 }, 0);
    let mut lengths = std::collections::BTreeSet::new();
    for prompt in 0..8 {
        let prompt = tokens(prompt, 12);
        let want = answer(&mut plain, &prompt, ENDING, None).unwrap();
        let got = answer(&mut speculative, &prompt, ENDING, Some(&mut policy)).unwrap();
        assert_eq!(got.tokens, want.tokens);
        lengths.extend(got.rounds.iter().map(|round| round.drafts.len()));
    }
    assert!(lengths.len() > 1, "drafts of one length prove little: {lengths:?}");
}

/// A target, and its twin with another tokenizer to draft for it.
fn with_twin(seed: u64) -> Loaded {
    let (files, twin) = (tiny::Tiny::new(seed), tiny::Tiny::with(seed, tiny::with_other_tokenizer));
    let mut recipe = files.recipe();
    (recipe.draft_model, recipe.draft_model_required) = (Some(twin.target), true);
    recipe.vocab_method = Some(VocabMethod::Intersection);
    draftscope::model::load::load(&recipe, &mut |_, _, _| {}).unwrap()
}

#[test]
fn a_draft_model_with_another_tokenizer_drafts_well_and_changes_no_text() {
    for seed in 0..3 {
        let loaded = with_twin(seed);
        let says = format!("of the target's {} tokens", tiny::vocab_len());
        assert!(loaded.warnings.iter().any(|warning| warning.contains(&says)), "{:?}", loaded.warnings);
        let (drafter_set, Loaded { target, .. }) = engine::drafter_set(loaded);
        let fresh = target.fork().unwrap();
        let mut plain = Decoder::new(target.fork().unwrap(), Box::new(NoDrafter), &settings(DrafterKind::None, 0));
        let mut speculative = Decoder::new(target, Box::new(drafter_set), &settings(DrafterKind::DraftModel, 1));
        let (mut drafted, mut accepted) = (0, 0);
        for k in 1..=6 {
            let prompt = tokens(seed * 10 + u64::from(k), 12);
            let want = answer(&mut plain, &prompt, ENDING, None).unwrap();
            speculative.set(&settings(DrafterKind::DraftModel, k));
            let got = answer(&mut speculative, &prompt, ENDING, None).unwrap();
            assert_eq!(diagnose(fresh.as_ref(), &want, &got).unwrap().map(|found| found.cause), None, "k = {k}");
            drafted += got.rounds.iter().map(|round| round.drafts.len()).sum::<usize>();
            accepted += want.tokens.len().saturating_sub(got.rounds.len());
        }
        assert!(accepted * 3 > drafted, "the twin knows what the target says: {accepted} of {drafted}");
    }
}

#[test]
fn tokens_that_the_drafter_lacks_are_marked_and_counted() {
    use draftscope::protocol::{Event, EventKind, Lane};
    use draftscope::session::Session;
    let loaded = with_twin(1);
    let own =
        draftscope::model::load::OpenModel::open(&tiny::Tiny::with(1, tiny::with_other_tokenizer).target).unwrap();
    let shared = draftscope::model::other_vocab::SharedVocab::of(&loaded.codec, &own.codec().unwrap());
    let lacking: Vec<TokenId> = (0..tiny::vocab_len() as u32).map(TokenId).filter(|id| !shared.has(*id)).collect();
    assert_eq!(lacking.len(), tiny::vocab_len() - shared.count());
    assert!(!lacking.is_empty() && shared.count() > 0, "the twin has some tokens, not all");
    let (drafter_set, Loaded { target, .. }) = engine::drafter_set(loaded);
    let sampling = Sampling { temperature: 5.0, ..Sampling::default() }; // so that all kinds of tokens are written
    let settings = Settings { sampling, rule: VerifyRule::Rejection, ..settings(DrafterKind::DraftModel, 2) };
    let mut decoder = Decoder::new(target, Box::new(drafter_set), &settings);
    let mut session = Session::new();
    let mut apply = |kind| session.apply(&Event { seq: 0, at_us: 0, lane: Lane::Speculative, kind });
    apply(EventKind::Prompted { turn: 1, text: "x".into(), branch: None });
    apply(EventKind::Prefilled(decoder.prefill(1, &tokens(3, 12)).unwrap()));
    let (mut written, mut absent) = (0, 0);
    for _ in 0..40 {
        let round = decoder.round(&mut |kind| {
            apply(kind);
            std::time::Duration::ZERO
        });
        let round = round.unwrap();
        written += round.len();
        absent += round.iter().filter(|token| lacking.contains(token)).count();
    }
    let turn = session.turn().unwrap();
    let answer = turn.answer(Lane::Speculative);
    for round in &answer.rounds {
        let next = round.verdict.as_ref().unwrap();
        assert_eq!(next.next_in_draft_vocab, Some(!lacking.contains(&next.next)));
    }
    let summary = answer.stats().summary();
    assert_eq!(summary.num_undraftable_tokens, Some(absent as u64));
    assert!((summary.draftable_share.unwrap() - (written - absent) as f64 / written as f64).abs() < 1e-12);
    assert!(absent > 0, "no such token was written, so nothing was tested");
    let marked = answer.transcript().filter(|token| token.undraftable).count();
    assert_eq!(marked, absent);
}

#[test]
fn a_draft_model_with_another_tokenizer_changes_no_distribution() {
    let (drafter_set, Loaded { target, .. }) = engine::drafter_set(with_twin(3));
    let sampling = Sampling { temperature: 1.0, top_k: 12, ..Sampling::default() };
    let base = |rule, drafter, draft_len| Settings { sampling, rule, drafter, draft_len, ..Settings::default() };
    let prompt = tokens(1, 10);
    let n = 600;
    let own = base(VerifyRule::Exact, DrafterKind::None, 0);
    let mut plain = Decoder::new(target.fork().unwrap(), Box::new(NoDrafter), &own);
    let want = sample(&mut plain, &prompt, &own, (0..n, 3), None).unwrap();
    let mut speculative = Decoder::new(target, Box::new(drafter_set), &own);
    for (at, rule) in [(1, VerifyRule::Rejection), (2, VerifyRule::Block)] {
        let settings = base(rule, DrafterKind::DraftModel, 3);
        let got = sample(&mut speculative, &prompt, &settings, (at * n..(at + 1) * n, 3), None).unwrap();
        let found = distribution_test::compare(&want, &got);
        assert!(found.consistent, "{rule}: {found:#?}");
    }
}

/// The 200 prompts of the nightly run.
fn prompts() -> Vec<String> {
    #[derive(serde::Deserialize)]
    struct Category {
        prompts: Vec<String>,
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/prompts/identity.toml");
    let suite: std::collections::BTreeMap<String, Category> =
        toml::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    suite.into_values().flat_map(|category| category.prompts).collect()
}

#[test]
fn there_are_200_prompts_which_no_other_suite_has() {
    let prompts = prompts();
    assert_eq!((prompts.len(), prompts.iter().collect::<BTreeSet<_>>().len()), (200, 200));
    let suite = include_str!("../assets/prompts/suite.toml");
    let golden: BTreeSet<String> = real::golden().into_iter().map(|golden| golden.prompt).collect();
    assert!(prompts.iter().all(|prompt| !suite.contains(prompt.as_str()) && !golden.contains(prompt)));
}

/// Drafters that need no files of their own besides the bundled module.
const DRAFTERS: [&str; 9] =
    ["mtp", "ngram", "early-exit", "oracle", "random", "ngram+mtp", "ngram+early-exit", "suffix", "suffix+mtp"];

#[test]
fn twenty_prompts_give_the_plain_text_with_every_drafter() {
    // every drafter runs with every k, but not on every prompt; the nightly run does all of them
    let Some(loaded) = real::load_native() else { return };
    let (drafter_set, Loaded { target, codec, template, .. }) = engine::drafter_set(loaded);
    let fresh = target.fork().unwrap();
    let mut plain = Decoder::new(target.fork().unwrap(), Box::new(NoDrafter), &settings(DrafterKind::None, 0));
    let mut speculative = Decoder::new(target, Box::new(drafter_set), &settings(DrafterKind::Mtp, 1));
    let ending = Ending { limit: 24, is_end: &|token| codec.is_end(token) };
    let (mut runs, mut rollbacks, mut differing) = (0, 0, Vec::new());
    for (number, text) in prompts().iter().step_by(10).enumerate() {
        let message = Message { role: Speaker::User, content: text.clone() };
        let prompt = codec.encode(&template.as_ref().unwrap().render(&[message]).unwrap()).unwrap();
        let want = answer(&mut plain, &prompt, ending, None).unwrap();
        let answered: Vec<TokenId> = prompt.iter().chain(&want.tokens).copied().collect();
        for (place, drafter) in DRAFTERS.into_iter().enumerate() {
            let k = [1, 2, 3, 4, 6, 8][(number + place) % 6];
            speculative.set(&settings(drafter.parse().unwrap(), k));
            speculative.offer(&answered);
            let got = answer(&mut speculative, &prompt, ending, None).unwrap();
            runs += 1;
            rollbacks += got.rounds.iter().filter(|round| round.rolled_back).count();
            differing.extend(diagnose(fresh.as_ref(), &want, &got).unwrap().map(|d| (text.clone(), drafter, k, d)));
        }
    }
    let rate = Rate::of(differing.len() as u64, runs);
    println!("{runs} runs, {rollbacks} rollbacks, {rate:?}");
    assert!(differing.is_empty(), "{differing:#?}");
    assert!(rollbacks > 500, "only {rollbacks} rollbacks: the test proves little");
}
