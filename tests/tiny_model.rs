//! The algorithm on a tiny seeded random model: rollback, batch against rows, and the promise that
//! speculation changes nothing, whoever drafts.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

mod common;

use std::time::Duration;

use common::tiny::{self, Tiny};
use draftscope::model::load::Loaded;
use draftscope::model::{Checkpoint, LogitRows, Model, ModelError};
use draftscope::protocol::{EventKind, Sampling, Settings, TokenId, VerifyRule};
use draftscope::speculate::decoder::Decoder;
use draftscope::speculate::drafter::{DraftCtx, Drafter, MtpDrafter, NoDrafter};
use draftscope::speculate::verify::Draft;
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

/// Proposes tokens drawn from nothing, sometimes with a made-up distribution, sometimes too many.
struct RandomDrafter {
    rng: ChaCha8Rng,
    wrong_length: bool,
}

impl Drafter for RandomDrafter {
    fn draft(&mut self, ctx: &mut DraftCtx<'_>) -> Result<(), ModelError> {
        let spread = if self.wrong_length { 2 * ctx.round.draft_len + 3 } else { ctx.round.draft_len + 1 };
        for _ in 0..self.rng.next_u32() as usize % spread {
            // one id beyond the vocabulary: nonsense must not stop the run
            ctx.propose(Draft::certain(TokenId(self.rng.next_u32() % (tiny::vocab_len() as u32 + 1))));
        }
        Ok(())
    }
}

/// Fails after a few rounds.
struct FailingDrafter(u32);

impl Drafter for FailingDrafter {
    fn draft(&mut self, ctx: &mut DraftCtx<'_>) -> Result<(), ModelError> {
        ctx.propose(Draft::certain(TokenId(5))); // what was told before it failed stands
        self.0 += 1;
        if self.0 > 3 { Err(ModelError::NotFinite { position: 3 }) } else { Ok(()) }
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
    let Ok(EventKind::Prefilled { first, .. }) = decoder.prefill(1, prompt) else { panic!("prefill failed") };
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

const DRAFTERS: [&str; 4] = ["mtp", "random", "wrong length", "failing"];

fn drafter(name: &str, files: &Tiny, seed: u64) -> Box<dyn Drafter> {
    match name {
        "mtp" => Box::new(MtpDrafter::new(files.load().mtp.unwrap().0)),
        "failing" => Box::new(FailingDrafter(0)),
        _ => Box::new(RandomDrafter { rng: ChaCha8Rng::seed_from_u64(seed), wrong_length: name == "wrong length" }),
    }
}

#[test]
fn every_drafter_and_k_gives_the_plain_greedy_text() {
    for seed in 0..3 {
        let files = Tiny::new(seed);
        let Loaded { target, .. } = files.load();
        let prompt = tokens(seed, 9);
        let plain = Settings { draft_len: 0, ..Settings::default() };
        let (want, _) = decode(target.fork().unwrap(), Box::new(NoDrafter), &plain, &prompt, 60);
        for (k, name) in (0..=8).flat_map(|k| DRAFTERS.map(|name| (k, name))) {
            for rule in VerifyRule::ALL.iter().filter(|rule| rule.is_lossless()) {
                let settings = Settings { draft_len: k, rule: *rule, ..Settings::default() };
                let drafter = drafter(name, &files, seed + u64::from(k));
                let (got, _) = decode(target.fork().unwrap(), drafter, &settings, &prompt, 60);
                assert_eq!(got, want, "seed {seed}, {name}, k = {k}, {rule}");
            }
        }
    }
}

#[test]
fn exact_at_a_temperature_gives_the_text_of_the_seed_for_every_k() {
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
fn a_failing_drafter_is_told_and_decoding_goes_on() {
    let files = Tiny::new(1);
    let settings = Settings { draft_len: 3, ..Settings::default() };
    let (_, events) = decode(files.load().target, Box::new(FailingDrafter(0)), &settings, &tokens(1, 5), 12);
    let notices: Vec<_> = events.iter().filter(|e| matches!(e, EventKind::Notice { .. })).collect();
    assert_eq!(notices.len(), 1, "{notices:?}");
}

#[test]
fn rejection_keeps_the_law_of_the_target_over_whole_rounds() {
    // the second token of the answer, over many seeds: plain against speculative, two-sample chi-square
    let files = Tiny::new(2);
    let Loaded { target, .. } = files.load();
    let prompt = tokens(2, 4);
    let n = 1_500;
    let run = |draft_len: u8| {
        let drafter: Box<dyn Drafter> = match draft_len {
            0 => Box::new(NoDrafter),
            _ => Box::new(MtpDrafter::new(files.load().mtp.unwrap().0)),
        };
        let mut counts = std::collections::BTreeMap::<TokenId, f64>::new();
        let sampling = Sampling { temperature: 5.0, top_k: 6, ..Sampling::default() };
        let base = Settings { draft_len, rule: VerifyRule::Rejection, sampling, ..Settings::default() };
        let mut decoder = Decoder::new(target.fork().unwrap(), drafter, &base);
        for seed in 0..n {
            // another half of the seeds for either run: the two samples are independent
            let seed = seed * 2 + u64::from(draft_len > 0);
            decoder.set(&Settings { sampling: Sampling { seed, ..sampling }, ..base });
            decoder.prefill(1, &prompt).unwrap();
            let committed = decoder.round(&mut |_| Duration::ZERO).unwrap();
            *counts.entry(committed[0]).or_default() += 1.0;
        }
        counts
    };
    let (plain, speculative) = (run(0), run(3));
    let support: std::collections::BTreeSet<_> = plain.keys().chain(speculative.keys()).collect();
    let (mut chi, mut df) = (0.0, -1.0);
    for token in support {
        let (a, b) = (plain.get(token).unwrap_or(&0.0), speculative.get(token).unwrap_or(&0.0));
        if a + b >= 10.0 {
            chi += (a - b).powi(2) / (a + b);
            df += 1.0;
        }
    }
    assert!(df >= 3.0, "the test needs some spread");
    let limit = df * (1.0 - 2.0 / (9.0 * df) + 3.719 * (2.0f64 / (9.0 * df)).sqrt()).powi(3);
    assert!(chi < limit, "chi-square {chi} with {df} degrees of freedom (99.99 % quantile {limit})");
}

#[test]
fn a_second_turn_reuses_the_cache_and_changes_nothing() {
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
        let EventKind::Prefilled { cached, first: begun, .. } = decoder.prefill(2, &prompt).unwrap() else { panic!() };
        let mut got = vec![begun.id];
        let mut drafted = Vec::new();
        for _ in 0..6 {
            let round = decoder.round(&mut |event| {
                if let EventKind::Drafted { token, .. } = event {
                    drafted.push(token.id);
                }
                Duration::ZERO
            });
            got.extend(round.unwrap());
        }
        let (want, events) = decode(target.fork().unwrap(), drafter(), &settings, &prompt, got.len());
        assert_eq!(got, want, "shared {shared}, more {more}, cached {cached}");
        let fresh: Vec<_> = events
            .iter()
            .filter_map(|e| match e {
                EventKind::Drafted { token, .. } => Some(token.id),
                _ => None,
            })
            .collect();
        assert_eq!(drafted, fresh[..drafted.len()], "the drafter's cache follows too");
        assert!(cached as usize <= shared);
        if (shared, more) == (20, 8) {
            assert_eq!(cached, 19, "all that is shared but the token that must be run");
        }
    }
}

#[test]
fn the_context_ends_without_an_error_in_the_middle() {
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
fn errors_name_what_is_wrong() {
    let mut target = Tiny::new(0).load().target;
    let ctx_len = target.spec().ctx_len;
    let too_many = target.forward(&tokens(0, ctx_len + 1), LogitRows::Last).unwrap_err();
    assert!(matches!(too_many, ModelError::ContextFull { .. }), "{too_many}");
    let unknown = target.forward(&[TokenId(9_999)], LogitRows::Last).unwrap_err();
    assert!(matches!(unknown, ModelError::Vocabulary { token: 9_999, .. }), "{unknown}");
    assert!(target.is_empty(), "a failed pass leaves nothing behind");
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
