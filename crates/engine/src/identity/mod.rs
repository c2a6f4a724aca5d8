//! Checks that speculative decoding gives the same output as plain decoding, and finds the cause of a difference.
//!
//! Invariant: a verdict never depends on the text alone. Two greedy answers are compared token by token. At the first
//! difference the position is computed again from a fresh cache, one row at a time and in a pass of the same width, and
//! the cause follows from these numbers. Distributions of sampled tokens are compared by the permutation tests of
//! [`distribution_test`].

mod diagnose;
pub mod distribution_test;
mod rate;
mod record;

use std::time::Duration;

use crate::speculate::SpecError;
use crate::speculate::decoder::Decoder;
use draftscope_protocol::policy::{Observation, Policy};
use draftscope_protocol::{Committed, Drafted, EventKind, Outcome, Prefilled, Scored, Settings, TokenId};

pub use diagnose::{Cause, Diagnosis, Fault, MOST_NOISE, Side, diagnose, diagnose_under};
pub use rate::Rate;
pub use record::{Ending, Record, RoundRecord};

/// Answers a prompt and records it. A policy, if given, chooses k for each round.
///
/// # Errors
/// When the target fails.
pub fn answer(
    decoder: &mut Decoder,
    prompt: &[TokenId],
    ending: Ending<'_>,
    mut policy: Option<&mut Policy>,
) -> Result<Record, SpecError> {
    let mut record = Record { prompt: prompt.to_vec(), ..Record::default() };
    let Prefilled { first, row, cached, .. } = decoder.prefill(1, prompt)?;
    record.cached = cached as usize;
    record.tokens.push(first.id);
    record.first_row = row;
    policy.iter_mut().for_each(|policy| policy.begin_answer());
    let mut clock = 0;
    while record.tokens.len() < ending.limit && !record.tokens.iter().any(|t| (ending.is_end)(*t)) && decoder.has_room()
    {
        let mut round = RoundRecord { first: record.tokens.len(), ..RoundRecord::default() };
        let mut observation = Observation::default();
        choose(decoder, policy.as_deref_mut());
        let committed = decoder.round(&mut |event| {
            observation.on_event(&event);
            if let EventKind::Committed(Committed { clock_us, .. }) = event {
                observation.round_us = clock_us.saturating_sub(std::mem::replace(&mut clock, clock_us)) as f64;
            }
            record_event(&mut round, event);
            Duration::ZERO
        })?;
        policy.iter_mut().for_each(|policy| policy.observe(&observation));
        round.committed = committed.len();
        record.tokens.extend(committed);
        record.rounds.push(round);
    }
    let end = record.tokens.iter().position(|token| (ending.is_end)(*token)).map_or(usize::MAX, |end| end + 1);
    record.tokens.truncate(end.min(ending.limit));
    Ok(record)
}

/// Sets the policy's choice in the decoder, as the engine does. Without a policy k stays and there is no stop rule.
fn choose(decoder: &mut Decoder, policy: Option<&mut Policy>) {
    let stop_rule = policy.map(|policy| {
        let draft_len = policy.choose().draft_len;
        decoder.set_draft_len(draft_len as u8);
        policy.stop_rule(draft_len)
    });
    decoder.set_stop_rule(stop_rule);
}

/// Computes the plain answer for the oracle, as the engine does.
fn offer_plain(decoder: &mut Decoder, prompt: &[TokenId], len: usize) -> Result<(), SpecError> {
    decoder.prefill(1, prompt)?;
    let mut plain = decoder.fork_independent()?;
    while plain.has_room() && plain.committed().len() < prompt.len() + len {
        plain.round(&mut |_| Duration::ZERO)?;
    }
    decoder.offer(plain.committed());
    Ok(())
}

fn record_event(round: &mut RoundRecord, event: EventKind) {
    match event {
        EventKind::Drafted(Drafted { token, .. }) => round.drafts.push(token.id),
        EventKind::Scored(Scored { rows, .. }) => round.rows = rows,
        EventKind::Verified { verdict, .. } => {
            round.accepted = verdict.accepted();
            let judged = verdict.judgements.iter().enumerate();
            round.path = judged.filter(|(_, j)| j.outcome == Outcome::Accepted).map(|(index, _)| index).collect();
            round.rolled_back = verdict.judgements.iter().any(|j| j.outcome != Outcome::Accepted);
        }
        _ => {}
    }
}

/// Draws one continuation of `len` tokens for each seed, to compare distributions. A policy, if given, chooses k.
///
/// # Errors
/// When the target fails.
pub fn sample(
    decoder: &mut Decoder,
    prompt: &[TokenId],
    settings: &Settings,
    (seeds, len): (std::ops::Range<u64>, usize),
    mut policy: Option<&mut Policy>,
) -> Result<Vec<Vec<TokenId>>, SpecError> {
    let ending = Ending { limit: len, is_end: &|_| false };
    let mut continuations = Vec::new();
    for seed in seeds {
        let mut seeded = *settings;
        seeded.sampling.seed = seed;
        decoder.set(&seeded);
        if settings.drafter.replays_plain() {
            offer_plain(decoder, prompt, len)?;
        }
        continuations.push(answer(decoder, prompt, ending, policy.as_deref_mut())?.tokens);
    }
    Ok(continuations)
}
