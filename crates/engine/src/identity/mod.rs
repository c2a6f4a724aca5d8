//! Checks that speculative decoding gives the same output as plain decoding, and finds the cause of a difference.
//!
//! Invariant: a verdict never depends on the text alone. Two greedy answers are compared token by token. At the first
//! difference the position is computed again from a fresh cache, one row at a time and in a pass of the same width, and
//! the cause follows from these numbers. Distributions of sampled tokens are compared by the permutation tests of
//! [`distribution_test`].

mod diagnose;
pub mod distribution_test;
mod rate;

use std::time::Duration;

use crate::speculate::SpecError;
use crate::speculate::decoder::Decoder;
use draftscope_protocol::policy::{Observation, Policy};
use draftscope_protocol::{Committed, Drafted, EventKind, Outcome, Prediction, Prefilled, Scored, Settings, TokenId};

pub use diagnose::{Cause, Diagnosis, Fault, MOST_NOISE, Side, diagnose, diagnose_under};
pub use rate::Rate;

/// One answer with all data that a diagnosis needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// The prompt's tokens.
    pub prompt: Vec<TokenId>,
    /// Output, up to its end token or the limit.
    pub tokens: Vec<TokenId>,
    /// Tokens of the prompt that were still in the cache from an earlier answer; the cache was rolled back to them.
    pub cached: usize,
    /// The row that the first token was picked from.
    pub first_row: Prediction,
    /// Rounds in order.
    pub rounds: Vec<RoundRecord>,
}

/// One round.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoundRecord {
    /// Index of its first committed token in the output.
    pub first: usize,
    /// The drafts.
    pub drafts: Vec<TokenId>,
    /// The target's predictions, row by row of the pass.
    pub rows: Vec<Prediction>,
    /// Number of accepted drafts.
    pub accepted: usize,
    /// Indices of the accepted drafts, each continuing the one before: 0, 1, 2 … in a chain.
    pub path: Vec<usize>,
    /// Whether a draft was discarded, so that the cache was rolled back.
    pub rolled_back: bool,
    /// How many tokens it committed.
    pub committed: usize,
}

impl RoundRecord {
    /// The row from which committed token `index` was picked: the anchor's, then that of the accepted draft before it.
    #[must_use]
    pub fn row_of(&self, index: usize) -> Option<usize> {
        if index == 0 { Some(0) } else { self.path.get(index - 1).map(|draft| draft + 1) }
    }

    /// Drafts to run after the anchor so that row `i` yields committed token `i`: all drafts if the accepted path is
    /// the first ones in order, as in a chain; else only the accepted path of the tree.
    fn line(&self) -> Vec<TokenId> {
        let is_straight = self.path.iter().enumerate().all(|(at, index)| at == *index);
        if is_straight {
            return self.drafts.clone();
        }
        self.path.iter().filter_map(|index| self.drafts.get(*index).copied()).collect()
    }
}

/// Where an answer ends.
#[derive(Clone, Copy)]
pub struct Ending<'a> {
    /// Longest answer in tokens.
    pub limit: usize,
    /// Whether a token ends an answer.
    pub is_end: &'a dyn Fn(TokenId) -> bool,
}

impl Record {
    /// The round that committed output token `index`; none for the first, which comes from the prompt.
    #[must_use]
    pub fn round_of(&self, index: usize) -> Option<usize> {
        self.rounds.iter().position(|round| (round.first..round.first + round.committed).contains(&index))
    }

    /// The row that output token `index` was picked from.
    #[must_use]
    pub fn row_of(&self, index: usize) -> Option<&Prediction> {
        match self.round_of(index) {
            Some(round) => {
                let round = &self.rounds[round];
                round.rows.get(round.row_of(index - round.first)?)
            }
            None => (index == 0).then_some(&self.first_row),
        }
    }

    /// First index at which two answers differ; none when they are the same.
    #[must_use]
    pub fn first_difference(&self, other: &Self) -> Option<usize> {
        let same = self.tokens.iter().zip(&other.tokens).take_while(|(a, b)| a == b).count();
        (same < self.tokens.len().max(other.tokens.len())).then_some(same)
    }
}

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
