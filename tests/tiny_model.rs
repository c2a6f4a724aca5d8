//! The algorithm on a tiny seeded random model: rollback, several rows against single rows, and that speculation does
//! not change the text with any drafter.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

mod common;

use std::time::Duration;

use candle_core::quantized::gguf_file::Value;
use common::chi_square::{ChiSquare, ONCE_IN_10_000};
use common::tiny::{self, Tiny};
use draftscope::engine::speculate::SpecError;
use draftscope::engine::speculate::decoder::Decoder;
use draftscope::engine::speculate::drafter::{
    DraftCtx, Drafter, DrafterSet, EarlyExitDrafter, ModelDrafter, MtpDrafter, NoDrafter, OracleDrafter,
};
use draftscope::engine::speculate::sampler::{LogitRow, Sampler};
use draftscope::model::load::Loaded;
use draftscope::model::{Checkpoint, LogitRows, Model, ModelError};
use draftscope::protocol::policy::{DraftStopRule, Policy};
use draftscope::protocol::random::Purpose;
use draftscope::protocol::verify::Draft;
use draftscope::protocol::{
    Costs, Drafted, DrafterKind, Drafting, EventKind, Leniency, Prefilled, Sampling, Settings, TokenId, VerifyRule,
};
use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

fn tokens(seed: u64, len: usize) -> Vec<TokenId> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..len).map(|_| TokenId(3 + rng.next_u32() % (tiny::vocab_len() as u32 - 3))).collect()
}

fn assert_close(got: &[f32], want: &[f32], what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    let worst = got.iter().zip(want).fold(0f32, |m, (g, w)| m.max((g - w).abs()));
    assert!(worst < 1e-3, "{what}: differs by {worst}");
}

/// Proposes random tokens; with `wrong_length`, sometimes too many.
struct RandomDrafter {
    rng: ChaCha8Rng,
    wrong_length: bool,
}

impl Drafter for RandomDrafter {
    fn fork(&self) -> Result<Box<dyn Drafter>, ModelError> {
        Ok(Box::new(Self { rng: self.rng.clone(), wrong_length: self.wrong_length }))
    }
    fn draft(&mut self, ctx: &mut DraftCtx<'_>) -> Result<(), ModelError> {
        let spread = if self.wrong_length { 2 * ctx.round.draft_len + 3 } else { ctx.round.draft_len + 1 };
        for _ in 0..self.rng.next_u32() as usize % spread {
            // one id lies outside the vocabulary: bad drafts must not stop the run
            ctx.propose(Draft::certain(TokenId(self.rng.next_u32() % (tiny::vocab_len() as u32 + 1))));
        }
        Ok(())
    }
}

/// Fails after a few rounds.
struct FailingDrafter(u32);

impl Drafter for FailingDrafter {
    fn fork(&self) -> Result<Box<dyn Drafter>, ModelError> {
        Ok(Box::new(Self(self.0)))
    }
    fn draft(&mut self, ctx: &mut DraftCtx<'_>) -> Result<(), ModelError> {
        ctx.propose(Draft::certain(TokenId(5))); // drafts from before the failure stay
        self.0 += 1;
        if self.0 > 3 { Err(ModelError::NotFinite { position: 3 }) } else { Ok(()) }
    }
}

/// Proposes the target's second best token, and in a tree also the third best.
struct RunnerUp;

impl Drafter for RunnerUp {
    fn fork(&self) -> Result<Box<dyn Drafter>, ModelError> {
        Ok(Box::new(Self))
    }
    fn draft(&mut self, ctx: &mut DraftCtx<'_>) -> Result<(), ModelError> {
        let since = ctx.target.checkpoint()?;
        let mut token = *ctx.committed.last().unwrap();
        for depth in 0..ctx.round.draft_len {
            let out = ctx.target.forward_early(&[token], tiny::LAYERS)?;
            let q = ctx.sampler.distribution(&LogitRow::of(&out, 0, None), None, 0)?;
            let ranked: Vec<TokenId> = q.top(3).0.iter().map(|(token, _)| *token).collect();
            token = ranked[1];
            let is_tree = ctx.drafting.tree.is_some();
            // in a tree, the second best token is the first draft of its row, and the tree continues there
            let row = 2 * depth.saturating_sub(1) + usize::from(depth > 0);
            let second = Draft::drawn(token, q.clone());
            ctx.propose(if is_tree { second.at_row(row) } else { second });
            if is_tree {
                ctx.propose(Draft::drawn(ranked[2], q).at_row(row));
            }
        }
        ctx.target.truncate(since.len, &since)
    }
}

fn decode(
    target: Box<dyn Model>,
    drafter: Box<dyn Drafter>,
    settings: &Settings,
    prompt: &[TokenId],
    len: usize,
) -> (Vec<TokenId>, Vec<EventKind>) {
    let mut decoder = Decoder::new(target, drafter, settings);
    let mut events = Vec::new();
    let first = decoder.prefill(1, prompt).unwrap().first;
    let mut output = vec![first.id];
    while output.len() < len {
        let committed = decoder.round(&mut |event| {
            events.push(event);
            Duration::ZERO
        });
        output.extend(committed.unwrap());
        assert_eq!(decoder.target().len(), prompt.len() + output.len() - 1, "cache length is committed − 1");
    }
    output.truncate(len);
    (output, events)
}

const DRAFTERS: [&str; 7] = ["mtp", "random", "wrong length", "failing", "stack", "draft model", "same model"];

fn drafter(name: &str, files: &Tiny, seed: u64) -> Box<dyn Drafter> {
    match name {
        "mtp" => Box::new(MtpDrafter::new(files.load().mtp.unwrap().0)),
        "stack" => Box::new(stack(files, 3)),
        "draft model" => Box::new(ModelDrafter::new(Tiny::new(seed + 77).load().target)),
        "same model" => Box::new(ModelDrafter::new(files.load().target)),
        "failing" => Box::new(FailingDrafter(0)),
        _ => Box::new(RandomDrafter { rng: ChaCha8Rng::seed_from_u64(seed), wrong_length: name == "wrong length" }),
    }
}

#[test]
fn every_drafter_and_k_gives_the_plain_greedy_text() {
    for seed in 0..2 {
        let files = Tiny::new(seed);
        let Loaded { target, .. } = files.load();
        let prompt = tokens(seed, 9);
        let plain = Settings { draft_len: 0, ..Settings::default() };
        let (want, _) = decode(target.fork().unwrap(), Box::new(NoDrafter), &plain, &prompt, 60);
        for (k, name) in [0, 1, 2, 3, 5, 8].into_iter().flat_map(|k| DRAFTERS.map(|name| (k, name))) {
            for rule in VerifyRule::ALL.iter().filter(|rule| rule.is_lossless()) {
                let settings = Settings { draft_len: k, rule: *rule, ..Settings::default() };
                let drafter = drafter(name, &files, seed + u64::from(k));
                let (got, _) = decode(target.fork().unwrap(), drafter, &settings, &prompt, 60);
                assert_eq!(got, want, "seed {seed}, {name}, k = {k}, {rule}");
            }
        }
    }
}

fn stack(files: &Tiny, depths: usize) -> MtpDrafter {
    let recipe = draftscope::model::options::LoadOptions { mtp: Some(tiny::mtp_stack(4, depths)), ..files.recipe() };
    let loaded = draftscope::model::load::load(&recipe, &mut |_, _, _| {}).unwrap();
    assert_eq!(loaded.deeper.len(), depths - 1);
    MtpDrafter::stack(std::iter::once(loaded.mtp.unwrap().0).chain(loaded.deeper).collect())
}

/// All drafters on a tiny model.
fn drafter_set(files: &Tiny) -> DrafterSet {
    let mut drafter_set = DrafterSet::default();
    drafter_set.add(DrafterKind::Mtp, Box::new(stack(files, 2)));
    drafter_set.add(DrafterKind::DraftModel, Box::new(ModelDrafter::new(Tiny::new(99).load().target)));
    drafter_set
}

#[test]
fn every_kind_of_drafter_gives_the_plain_text_with_every_rule() {
    let files = Tiny::new(6);
    let Loaded { target, .. } = files.load();
    let prompt = tokens(6, 9);
    for temperature in [0.0, 0.9] {
        let sampling = Sampling { temperature, seed: 3, ..Sampling::default() };
        let plain = Settings { draft_len: 0, sampling, ..Settings::default() };
        let (want, _) = decode(target.fork().unwrap(), Box::new(NoDrafter), &plain, &prompt, 40);
        let rules = VerifyRule::ALL.iter().copied().filter(|rule| rule.is_lossless());
        // at a temperature, only `exact` determines the text by the seed
        let rules: Vec<_> = rules.filter(|rule| temperature == 0.0 || *rule == VerifyRule::Exact).collect();
        for (drafter, k) in DrafterKind::ALL.iter().flat_map(|kind| [1, 2, 5, 15].map(|k| (*kind, k))) {
            for rule in &rules {
                let settings = Settings { draft_len: k, drafter, rule: *rule, ..plain };
                let (got, events) =
                    decode(target.fork().unwrap(), Box::new(drafter_set(&files)), &settings, &prompt, 40);
                assert_eq!(got, want, "{drafter}, k = {k}, {rule}, temperature {temperature}");
                let notices: Vec<_> = events.iter().filter(|e| matches!(e, EventKind::Notice { .. })).collect();
                assert!(notices.is_empty(), "{drafter}: {notices:?}");
            }
        }
    }
}

#[test]
fn trees_give_the_plain_text_with_every_rule_budget_and_depth() {
    let files = Tiny::new(8);
    let Loaded { target, .. } = files.load();
    let prompt = tokens(8, 9);
    for temperature in [0.0, 0.9] {
        let sampling = Sampling { temperature, seed: 5, ..Sampling::default() };
        let plain = Settings { draft_len: 0, sampling, ..Settings::default() };
        let (want, _) = decode(target.fork().unwrap(), Box::new(NoDrafter), &plain, &prompt, 40);
        for (nodes, k) in [(1, 1), (3, 1), (3, 2), (8, 3), (15, 4), (15, 15)] {
            for rule in VerifyRule::ALL.iter().copied().filter(|rule| rule.is_lossless()) {
                if temperature > 0.0 && rule != VerifyRule::Exact {
                    continue;
                }
                for depths in [1, 2] {
                    let drafting = Drafting { tree: Some(nodes), ..Drafting::default() };
                    let settings = Settings { draft_len: k, rule, drafting, ..plain };
                    let drafter = Box::new(stack(&files, depths));
                    let (got, events) = decode(target.fork().unwrap(), drafter, &settings, &prompt, 40);
                    assert_eq!(
                        got, want,
                        "{nodes} nodes, k = {k}, {rule}, {depths} modules, temperature {temperature}"
                    );
                    let rows = events.iter().filter_map(|event| match event {
                        EventKind::Drafted(Drafted { row, index, .. }) => Some((*row, *index)),
                        _ => None,
                    });
                    let rows: Vec<_> = rows.collect();
                    assert!(rows.iter().all(|(row, index)| row.is_some_and(|row| row <= *index)), "{rows:?}");
                }
            }
        }
    }
}

#[test]
fn switching_drafter_and_rule_between_rounds_does_not_change_the_text() {
    let files = Tiny::new(6);
    let Loaded { target, .. } = files.load();
    let prompt = tokens(6, 9);
    let plain = Settings { draft_len: 0, ..Settings::default() };
    let (want, _) = decode(target.fork().unwrap(), Box::new(NoDrafter), &plain, &prompt, 80);
    let lossless: Vec<_> = VerifyRule::ALL.iter().copied().filter(|rule| rule.is_lossless()).collect();
    let base = Settings { draft_len: 3, ..Settings::default() };
    let mut decoder = Decoder::new(target, Box::new(drafter_set(&files)), &base);
    let first = decoder.prefill(1, &prompt).unwrap().first;
    let (mut got, mut drafted) = (vec![first.id], 0);
    for round in 0.. {
        let drafter = DrafterKind::ALL[round * 7 % DrafterKind::ALL.len()];
        let tree = (round % 3 == 0).then_some(6);
        let rule = lossless[round % lossless.len()];
        decoder.set(&Settings { drafter, rule, drafting: Drafting { tree, ..Drafting::default() }, ..base });
        let committed = decoder.round(&mut |event| {
            drafted += usize::from(matches!(event, EventKind::Drafted(_)));
            assert!(!matches!(event, EventKind::Notice { .. }), "{event:?}");
            Duration::ZERO
        });
        got.extend(committed.unwrap());
        if got.len() >= 80 {
            break;
        }
    }
    got.truncate(80);
    assert_eq!(got, want);
    assert!(drafted > 30, "{drafted}");
}

#[test]
fn an_oracle_and_a_copy_of_the_model_are_always_right() {
    let files = Tiny::new(6);
    let Loaded { target, .. } = files.load();
    let prompt = tokens(6, 9);
    let plain = Settings { draft_len: 0, ..Settings::default() };
    let (want, _) = decode(target.fork().unwrap(), Box::new(NoDrafter), &plain, &prompt, 41);
    let answer: Vec<TokenId> = prompt.iter().chain(&want).copied().collect();
    let mut oracle = OracleDrafter::new(DrafterKind::Oracle);
    oracle.offer(&answer);
    let settings = Settings { draft_len: 4, ..Settings::default() };
    for drafter in [Box::new(oracle) as Box<dyn Drafter>, Box::new(ModelDrafter::new(files.load().target))] {
        let (got, events) = decode(target.fork().unwrap(), drafter, &settings, &prompt, 41);
        assert_eq!(got, want);
        let rounds = events.iter().filter(|e| matches!(e, EventKind::Committed(_))).count();
        assert_eq!(rounds, 8, "40 tokens, five a round");
    }
}

fn notices(events: &[EventKind]) -> Vec<&str> {
    fn text(event: &EventKind) -> Option<&str> {
        match event {
            EventKind::Notice { message } => Some(message),
            _ => None,
        }
    }
    events.iter().filter_map(text).collect()
}

#[test]
fn bad_input_gives_plain_decoding_and_a_notice_with_the_reason() {
    let files = Tiny::new(6);
    let Loaded { target, .. } = files.load();
    let prompt = tokens(6, 9);
    let plain = Settings { draft_len: 0, ..Settings::default() };
    let (want, _) = decode(target.fork().unwrap(), Box::new(NoDrafter), &plain, &prompt, 30);
    let check = |drafter: Box<dyn Drafter>, settings: &Settings, reason: &str| {
        let (got, events) = decode(target.fork().unwrap(), drafter, settings, &prompt, 30);
        assert_eq!(got, want, "{reason}");
        let notices = notices(&events);
        assert!(notices.len() == 1 && notices[0].contains(reason), "{reason}: {notices:?}");
    };
    let base = Settings { draft_len: 4, ..Settings::default() };
    let nan = draftscope::model::options::LoadOptions { mtp: Some(tiny::mtp_of_nan()), ..files.recipe() };
    let module = || draftscope::model::load::load(&nan, &mut |_, _, _| {}).unwrap().mtp.unwrap().0;
    check(Box::new(MtpDrafter::new(module())), &base, "not numbers");
    let mut failing = DrafterSet::default();
    failing.add(DrafterKind::Mtp, Box::new(MtpDrafter::new(module())));
    check(Box::new(failing), &base, "not numbers");
    let empty = Settings { drafting: Drafting { tree: Some(0), ..Drafting::default() }, ..base };
    check(Box::new(stack(&files, 1)), &empty, "budget of 0 nodes");
    let in_context = |ctx_len: usize, draft_len: u8| {
        let mut recipe = files.recipe();
        recipe.ctx_len = Some(ctx_len);
        let Loaded { target, mtp, .. } = draftscope::model::load::load(&recipe, &mut |_, _, _| {}).unwrap();
        let settings = Settings { draft_len, ..base };
        decode(target, Box::new(MtpDrafter::new(mtp.unwrap().0)), &settings, &prompt, 15)
    };
    // 9 + 15 tokens: near the end there is no room for k drafts and the anchor
    let (got, events) = in_context(24, 8);
    assert_eq!(got, in_context(24, 0).0, "the context is still filled to its end");
    let found = notices(&events);
    assert!(found.len() == 1 && found[0].contains("the context of 24 tokens is nearly full"), "{found:?}");
    let mut short = files.recipe();
    short.ctx_len = Some(16);
    let short = draftscope::model::load::load(&short, &mut |_, _, _| {}).unwrap().target;
    check(Box::new(ModelDrafter::new(short)), &base, "the draft model's context of 16 is full");
    let mut lacking = DrafterSet::default();
    lacking.set_missing(DrafterKind::DraftModel, "no draft model is loaded".into());
    check(Box::new(lacking), &Settings { drafter: DrafterKind::DraftModel, ..base }, "no draft model is loaded");
}

#[test]
fn block_verification_says_that_it_does_not_judge_trees() {
    let files = Tiny::new(6);
    let prompt = tokens(6, 9);
    let run = |settings: &Settings| {
        let Loaded { target, mtp, .. } = files.load();
        decode(target, Box::new(MtpDrafter::new(mtp.unwrap().0)), settings, &prompt, 24)
    };
    let sampling = Sampling { temperature: 1.0, seed: 3, ..Sampling::default() };
    let tree = Drafting { tree: Some(6), ..Drafting::default() };
    let block = Settings { draft_len: 3, rule: VerifyRule::Block, sampling, drafting: tree, ..Settings::default() };
    let (text, events) = run(&block);
    let found = notices(&events);
    assert!(found.len() == 1 && found[0].contains("drafts of a tree are judged by rejection"), "{found:?}");
    assert_eq!(text, run(&Settings { rule: VerifyRule::Rejection, ..block }).0, "the text is that of rejection");
    for quiet in [
        Settings { drafting: Drafting::default(), ..block },
        Settings { sampling: Sampling::default(), ..block },
        Settings { rule: VerifyRule::Rejection, ..block },
    ] {
        assert_eq!(notices(&run(&quiet).1), Vec::<&str>::new());
    }
}

#[test]
fn a_draft_model_shares_tokens_with_the_target() {
    let files = Tiny::new(6);
    let reason = |draft: &std::path::Path| {
        let mut recipe = files.recipe();
        recipe.draft_model = Some(draft.to_owned());
        let loaded = draftscope::model::load::load(&recipe, &mut |_, _, _| {}).unwrap();
        loaded.draft_model.unwrap().map(|(_, info)| info)
    };
    let info = reason(&Tiny::new(7).target).unwrap();
    assert_eq!((info.kind, info.draft_vocab as usize), (DrafterKind::DraftModel, tiny::vocab_len()));
    let other = Tiny::with(7, |parts| {
        let names = parts.metadata.iter_mut().find(|(key, _)| key == "tokenizer.ggml.tokens").unwrap();
        let candle_core::quantized::gguf_file::Value::Array(names) = &mut names.1 else { panic!() };
        names.swap(5, 6);
    });
    let info = reason(&other.target).unwrap();
    assert_eq!(info.draft_vocab as usize, tiny::vocab_len(), "every token has its bytes under another id");
    let error = reason(std::path::Path::new("/nowhere/draft.gguf")).unwrap_err();
    assert!(error.contains("/nowhere/draft.gguf"), "{error}");
}

#[test]
fn lenient_rules_mark_every_token_that_the_target_would_not_pick() {
    let files = Tiny::new(8);
    let prompt = tokens(8, 9);
    let leniency = Leniency { epsilon: 0.0, delta: 0.0, top_k: 10, threshold: 0.0, confidence: 0.0 };
    for rule in VerifyRule::ALL.iter().copied().filter(|rule| !rule.is_lossless()) {
        for tree in [None, Some(6)] {
            let drafting = Drafting { tree, ..Drafting::default() };
            let settings = Settings { draft_len: 3, rule, leniency, drafting, ..Settings::default() };
            let (text, events) = decode(files.load().target, Box::new(RunnerUp), &settings, &prompt, 60);
            // what the target picks after each token of the written text
            let all: Vec<TokenId> = prompt.iter().chain(&text).copied().collect();
            let rows = files.load().target.forward(&all, LogitRows::All).unwrap().logits;
            let own = |at: usize| {
                let row = rows.row(prompt.len() + at - 1);
                TokenId(row.iter().enumerate().fold(0, |best, (i, x)| if *x > row[best] { i } else { best }) as u32)
            };
            let (mut at, mut departed) = (1, 0);
            for event in &events {
                let EventKind::Verified { verdict, .. } = event else { continue };
                assert!(!verdict.lossless);
                for index in verdict.path() {
                    let departure = verdict.departures.iter().find(|d| usize::from(d.index) == index);
                    if at < text.len() {
                        assert_eq!(
                            departure.map(|d| d.instead),
                            (own(at) != text[at]).then(|| own(at)),
                            "{rule}, token {at}"
                        );
                    }
                    departed += usize::from(departure.is_some());
                    at += 1;
                }
                if at < text.len() {
                    assert_eq!(text[at], own(at), "{rule}: the token after the drafts is the target's");
                }
                at += 1;
            }
            assert!(departed > 0, "{rule}, {tree:?}: no departure");
        }
    }
}

#[test]
fn exact_at_a_temperature_gives_one_text_per_seed_for_every_k() {
    let files = Tiny::new(5);
    let Loaded { target, .. } = files.load();
    let prompt = tokens(5, 7);
    let sampling = Sampling { temperature: 0.9, top_p: 0.95, seed: 42, ..Sampling::default() };
    let settings = |draft_len| Settings { draft_len, sampling, ..Settings::default() };
    let (want, _) = decode(target.fork().unwrap(), Box::new(NoDrafter), &settings(0), &prompt, 50);
    for k in 1..=5 {
        let drafter = Box::new(MtpDrafter::new(files.load().mtp.unwrap().0));
        let (got, _) = decode(target.fork().unwrap(), drafter, &settings(k), &prompt, 50);
        assert_eq!(got, want, "k = {k}");
    }
}

#[test]
fn a_failing_drafter_is_reported_and_decoding_continues() {
    let files = Tiny::new(1);
    let settings = Settings { draft_len: 3, ..Settings::default() };
    let (_, events) = decode(files.load().target, Box::new(FailingDrafter(0)), &settings, &tokens(1, 5), 12);
    let notices: Vec<_> = events.iter().filter(|e| matches!(e, EventKind::Notice { .. })).collect();
    assert_eq!(notices.len(), 1, "{notices:?}");
}

/// Draws from the target's own distribution at another temperature: often right, often wrong. In a tree,
/// it draws two alternatives without replacement at every row along the path of the first ones.
struct Distorted;

impl Drafter for Distorted {
    fn fork(&self) -> Result<Box<dyn Drafter>, ModelError> {
        Ok(Box::new(Self))
    }
    fn draft(&mut self, ctx: &mut DraftCtx<'_>) -> Result<(), ModelError> {
        let since = ctx.target.checkpoint()?;
        let sampling = Sampling { temperature: 0.4 * ctx.sampler.sampling.temperature, ..ctx.sampler.sampling };
        let alternatives = 1 + usize::from(ctx.drafting.tree.is_some());
        let (mut token, mut row) = (*ctx.committed.last().unwrap(), 0);
        for _ in 0..ctx.round.draft_len {
            let out = ctx.target.forward_early(&[token], tiny::LAYERS)?;
            let q = Sampler { sampling }.distribution(&LogitRow::of(&out, 0, None), None, 0)?;
            let mut left = q.clone();
            let first = ctx.drafts().len();
            for index in first..first + alternatives {
                let drawn = left.pick(ctx.round.draw(Purpose::Draft, index));
                left = left.without(drawn);
                let draft = Draft::drawn(drawn, q.clone());
                ctx.propose(if alternatives > 1 { draft.at_row(row) } else { draft });
            }
            (token, row) = (ctx.drafts()[first].token, first + 1);
        }
        ctx.target.truncate(since.len, &since)
    }
}

/// A rule with costs that end some drafts before the first token and some later.
fn stop_rule() -> DraftStopRule {
    let verify_us = vec![1000.0, 1340.0, 1560.0, 1700.0];
    Policy::new(Costs { verify_us, draft_us: 10.0, draft_pass_us: 0.0, settle_us: 0.0, overhead_us: 10.0 }, 3)
        .stop_rule(3)
}

/// Counts the first token and the two that rounds commit after it.
fn pairs(
    files: &Tiny,
    settings: Settings,
    (drafter, stop_rule): (Box<dyn Drafter>, Option<DraftStopRule>),
    seeds: std::ops::Range<u64>,
) -> (Counts, Tally) {
    let mut counts = Counts::new();
    let mut tally = Tally::default();
    let prompt = tokens(2, 4);
    let mut decoder = Decoder::new(files.load().target, drafter, &settings);
    decoder.set_stop_rule(stop_rule);
    for seed in seeds {
        decoder.set(&Settings { sampling: Sampling { seed, ..settings.sampling }, ..settings });
        let first = decoder.prefill(1, &prompt).unwrap().first;
        let mut text = Vec::new();
        while text.len() < 2 {
            let round = decoder.round(&mut |event| {
                match event {
                    EventKind::Verified { verdict, .. } => tally.accepted += verdict.accepted(),
                    EventKind::DraftStopped(_) => tally.stopped += 1,
                    EventKind::RoundStarted(_) => tally.rounds += 1,
                    _ => {}
                }
                Duration::ZERO
            });
            text.extend(round.unwrap());
        }
        *counts.entry((first.id, text[0], text[1])).or_default() += 1.0;
    }
    (counts, tally)
}

/// Counts besides the text.
#[derive(Debug, Default)]
struct Tally {
    rounds: usize,
    accepted: usize,
    /// Drafts that the stop rule dropped.
    stopped: usize,
}

type Counts = std::collections::BTreeMap<(TokenId, TokenId, TokenId), f64>;

#[test]
fn lossless_rules_keep_the_distribution_of_the_target_over_whole_rounds_of_chains_and_trees() {
    // plain against speculative: a two-sample chi-square test with different seeds
    let files = Tiny::new(2);
    let n = 800;
    let sampling = Sampling { temperature: 25.0, top_k: 3, ..Sampling::default() };
    let base = Settings { draft_len: 3, sampling, ..Settings::default() };
    let (plain, _) = pairs(&files, Settings { draft_len: 0, ..base }, (Box::new(NoDrafter), None), 0..n);
    let tree = Drafting { tree: Some(6), ..Drafting::default() };
    let early = Drafting { exit_layers: tiny::LAYERS as u16 - 1, ..Drafting::default() };
    let distorted = || (Box::new(Distorted) as Box<dyn Drafter>, None);
    let guided = || (Box::new(EarlyExitDrafter) as Box<dyn Drafter>, Some(stop_rule()));
    let stacked = || (Box::new(DrafterSet::default()) as Box<dyn Drafter>, None);
    let cases = [
        (VerifyRule::Rejection, Drafting::default(), distorted()),
        (VerifyRule::Block, Drafting::default(), distorted()),
        (VerifyRule::Rejection, tree, distorted()),
        (VerifyRule::Rejection, early, guided()),
        (VerifyRule::Block, early, guided()),
        (VerifyRule::Rejection, early, stacked()),
        (VerifyRule::Block, early, stacked()),
    ];
    for (case, (rule, drafting, drafter)) in (1..).zip(cases) {
        // only the set of all drafters reads the kind
        let settings = Settings { rule, drafting, drafter: "suffix+early-exit".parse().unwrap(), ..base };
        let is_guided = drafter.1.is_some();
        let (speculative, tally) = pairs(&files, settings, drafter, case * n..(case + 1) * n);
        assert!(tally.accepted > n as usize / 4, "{tally:?} proves nothing");
        let share = tally.stopped as f64 / tally.rounds as f64;
        assert_eq!(is_guided, (0.2..0.8).contains(&share), "{rule}, {drafting:?}: {tally:?}");
        let support: std::collections::BTreeSet<_> = plain.keys().chain(speculative.keys()).collect();
        let count = |counts: &Counts, start: &_| counts.get(start).copied().unwrap_or(0.0);
        let test =
            ChiSquare::of_two(support.into_iter().map(|start| (count(&plain, start), count(&speculative, start))));
        assert!(test.freedom >= 8.0, "the test needs more outcomes");
        assert!(!test.exceeds(ONCE_IN_10_000), "{rule}, {drafting:?}: guided {is_guided}: {test:?}");
    }
}

fn drafts_of(events: &[EventKind]) -> Vec<TokenId> {
    let drafted = |event: &EventKind| match event {
        EventKind::Drafted(Drafted { token, .. }) => Some(token.id),
        _ => None,
    };
    events.iter().filter_map(drafted).collect()
}

#[test]
fn a_second_turn_reuses_the_cache_and_gives_the_same_text() {
    let files = Tiny::new(3);
    let Loaded { target, .. } = files.load();
    let settings = Settings { draft_len: 3, ..Settings::default() };
    let drafter = || Box::new(MtpDrafter::new(files.load().mtp.unwrap().0));
    let mut decoder = Decoder::new(target.fork().unwrap(), drafter(), &settings);
    let first = tokens(3, 20);
    decoder.prefill(1, &first).unwrap();
    for _ in 0..5 {
        decoder.round(&mut |_| Duration::ZERO).unwrap();
    }
    for (shared, more) in [(20, 8), (12, 8), (0, 8), (20, 0)] {
        let mut prompt = first[..shared].to_vec();
        prompt.extend(tokens(90 + shared as u64, more));
        let Prefilled { cached, first: begun, .. } = decoder.prefill(2, &prompt).unwrap();
        let mut got = vec![begun.id];
        let mut drafted = Vec::new();
        for _ in 0..6 {
            let round = decoder.round(&mut |event| {
                drafted.extend(drafts_of(std::slice::from_ref(&event)));
                Duration::ZERO
            });
            got.extend(round.unwrap());
        }
        let (want, events) = decode(target.fork().unwrap(), drafter(), &settings, &prompt, got.len());
        assert_eq!(got, want, "shared {shared}, more {more}, cached {cached}");
        assert_eq!(drafted, drafts_of(&events)[..drafted.len()], "the drafter's cache is reused too");
        assert!(cached as usize <= shared);
        if (shared, more) == (20, 8) {
            assert_eq!(cached, 19, "all shared tokens except the one that must be run");
        }
    }
}

#[test]
fn a_stopped_prompt_is_not_read_again_from_its_start() {
    let long = Value::U32(4096);
    let files = Tiny::with(3, |parts| {
        parts
            .metadata
            .iter_mut()
            .filter(|(key, _)| key.ends_with("context_length"))
            .for_each(|(_, n)| *n = long.clone());
    });
    let settings = Settings { draft_len: 3, ..Settings::default() };
    let drafter = || Box::new(MtpDrafter::new(files.load().mtp.unwrap().0));
    let mut decoder = Decoder::new(files.load().target, drafter(), &settings);
    let prompt = tokens(3, 1500);
    let mut asked = 0;
    let mut twice = || {
        asked += 1;
        asked < 2
    };
    let stopped = decoder.prefill_to(1, &prompt, None, &mut twice);
    assert!(matches!(stopped, Err(SpecError::Stopped)), "{stopped:?}");
    let read = decoder.target().len();
    assert!(read > 0 && read < prompt.len() && asked == 2, "{read} {asked}");
    assert_eq!(decoder.committed(), &prompt[..=read], "the state is that between two rounds");
    let Prefilled { cached, first, .. } = decoder.prefill(2, &prompt).unwrap();
    assert_eq!(cached as usize, read);
    let (mut got, mut drafted) = (vec![first.id], Vec::new());
    while got.len() < 20 {
        let round = decoder.round(&mut |event| {
            drafted.extend(drafts_of(std::slice::from_ref(&event)));
            Duration::ZERO
        });
        got.extend(round.unwrap());
    }
    let (want, events) = decode(files.load().target, drafter(), &settings, &prompt, got.len());
    assert_eq!(got, want);
    assert_eq!(drafted, drafts_of(&events)[..drafted.len()], "the drafter has read all of it once");
}

#[test]
fn the_context_can_be_filled_to_its_end() {
    let files = Tiny::new(4);
    let mut recipe = files.recipe();
    recipe.ctx_len = Some(24);
    let loaded = draftscope::model::load::load(&recipe, &mut |_, _, _| {}).unwrap();
    let drafter = Box::new(MtpDrafter::new(loaded.mtp.unwrap().0));
    let mut decoder = Decoder::new(loaded.target, drafter, &Settings { draft_len: 8, ..Settings::default() });
    decoder.prefill(1, &tokens(4, 10)).unwrap();
    while decoder.has_room() {
        decoder.round(&mut |_| Duration::ZERO).unwrap();
    }
    assert_eq!(decoder.target().len(), 24);
}

#[test]
fn errors_have_the_right_kind() {
    let mut target = Tiny::new(0).load().target;
    let ctx_len = target.spec().ctx_len;
    let too_many = target.forward(&tokens(0, ctx_len + 1), LogitRows::Last).unwrap_err();
    assert!(matches!(too_many, ModelError::ContextFull { .. }), "{too_many}");
    let unknown = target.forward(&[TokenId(9_999)], LogitRows::Last).unwrap_err();
    assert!(matches!(unknown, ModelError::Vocabulary { token: 9_999, .. }), "{unknown}");
    assert!(target.is_empty(), "a failed pass leaves the cache empty");
    target.forward(&tokens(0, 5), LogitRows::Last).unwrap();
    let since = target.checkpoint().unwrap();
    assert!(matches!(target.truncate(4, &since), Err(ModelError::Rewind { .. })));
    assert!(matches!(target.truncate(6, &Checkpoint { len: 0 }), Err(ModelError::Rewind { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn truncate_and_refeed_equals_a_fresh_prefill(seed in 0u64..1000, n in 2usize..40, cut in 0usize..38, m in 1usize..9) {
        let cut = cut.min(n);
        let target = Tiny::new(7).load().target;
        let (first, second) = (tokens(seed, n), tokens(seed + 5000, m));
        let mut rewound = target.fork().unwrap();
        rewound.forward(&first, LogitRows::Last).unwrap();
        rewound.truncate(cut, &Checkpoint { len: 0 }).unwrap();
        let got = rewound.forward(&second, LogitRows::All).unwrap();
        let mut fresh = target.fork().unwrap();
        let all: Vec<TokenId> = first[..cut].iter().chain(&second).copied().collect();
        let want = fresh.forward(&all, LogitRows::All).unwrap();
        for i in 0..m {
            assert_close(got.logits.row(i), want.logits.row(cut + i), "logits");
            assert_close(got.hidden.row(i), want.hidden.row(cut + i), "hidden");
        }
    }

    #[test]
    fn a_trees_rows_equal_their_chains(seed in 0u64..1000, n in 1usize..30, m in 2usize..17) {
        let target = Tiny::new(8).load().target;
        let (prefix, rows) = (tokens(seed, n), tokens(seed + 9000, m));
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let parents: Vec<usize> = (0..m).map(|row| if row == 0 { 0 } else { rng.next_u32() as usize % row }).collect();
        let mut together = target.fork().unwrap();
        together.forward(&prefix, LogitRows::Last).unwrap();
        let fresh = together.fork().unwrap();
        let got = together.forward_tree(&rows, &parents, LogitRows::All).unwrap();
        let mut path = vec![m - 1];
        while path[0] > 0 {
            path.insert(0, parents[path[0]]);
        }
        let chain: Vec<TokenId> = path.iter().map(|row| rows[*row]).collect();
        let mut alone = fresh.fork().unwrap();
        let want = alone.forward(&chain, LogitRows::All).unwrap();
        assert_close(got.logits.row(m - 1), want.logits.last().unwrap(), "logits");
        assert_close(got.hidden.row(m - 1), want.hidden.last().unwrap(), "hidden");
        together.retain(n, &path).unwrap();
        assert_eq!(together.len(), alone.len());
        let next = tokens(seed + 1, 2);
        let (got, want) = (together.forward(&next, LogitRows::All).unwrap(), alone.forward(&next, LogitRows::All).unwrap());
        assert_close(got.logits.row(1), want.logits.row(1), "after the kept path");
    }

    #[test]
    fn m_rows_equal_m_single_rows(seed in 0u64..1000, n in 1usize..30, m in 1usize..17) {
        let target = Tiny::new(8).load().target;
        let (prefix, rows) = (tokens(seed, n), tokens(seed + 9000, m));
        let mut together = target.fork().unwrap();
        together.forward(&prefix, LogitRows::Last).unwrap();
        let mut single = together.fork().unwrap();
        let got = together.forward(&rows, LogitRows::All).unwrap();
        for (i, token) in rows.iter().enumerate() {
            let want = single.forward(&[*token], LogitRows::All).unwrap();
            assert_close(got.logits.row(i), want.logits.row(0), "logits");
            assert_close(got.hidden.row(i), want.hidden.row(0), "hidden");
        }
    }
}
