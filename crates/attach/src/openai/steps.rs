//! From chunks to steps. It reads no clock and no network: times are those at which the caller got each line.
//!
//! Invariant: every token is output once, in order, and a step has at most [`MAX_DRAFTS`] drafts. While the answer runs,
//! only accepted drafts are known; at its end the server's counts say what every round drafted.

use crate::names::Names;
use crate::step::{MAX_DRAFTS, Part, Step, unreported};
use draftscope_protocol::{Piece, StopReason, TokenId};

use super::chunk::{Choice, Chunk, PerRequest, SpecTokens};
use super::dialect::Dialect;
use super::recount::{Counted, Recount, Totals, can_hold, from_totals, per_step};
use super::shared::{Shared, Since};
use super::tokens::{SentToken, tokens};

/// Most chunks whose steps are counted at the end.
const MAX_CHUNKS: usize = 1 << 20;

/// Collects chunks of one answer.
pub(super) struct Steps {
    dialect: Dialect,
    shared: Shared,
    has_prompt: bool,
    has_first: bool,
    first_us: u64,
    clock_us: u64,
    /// Tokens of each chunk after the answer's first token.
    sizes: Vec<usize>,
    tokens: u64,
    /// Tokens of the answer, as the server counts them.
    usage: Option<u64>,
    per_request: Option<PerRequest>,
    spec_tokens: Option<SpecTokens>,
    finish: Option<StopReason>,
    has_ended: bool,
}

impl Steps {
    pub(super) fn new(dialect: Dialect, shared: Shared) -> Self {
        Self {
            dialect,
            shared,
            has_prompt: false,
            has_first: false,
            first_us: 0,
            clock_us: 0,
            sizes: Vec::new(),
            tokens: 0,
            usage: None,
            per_request: None,
            spec_tokens: None,
            finish: None,
            has_ended: false,
        }
    }

    /// The end, once a chunk said why; its figures come before it.
    pub(super) fn close(&mut self) -> Vec<Part> {
        let Some(reason) = self.finish.filter(|_| !std::mem::replace(&mut self.has_ended, true)) else {
            return Vec::new();
        };
        let mut parts = self.recount();
        parts.push(Part::End(reason));
        parts
    }

    /// The answer is whole, and the server did not say why it ended.
    pub(super) fn end_without_reason(&mut self) {
        self.finish = self.finish.or(Some(StopReason::Eos));
    }

    pub(super) fn push(&mut self, chunk: Chunk, at_us: u64, names: &mut Names) -> Vec<Part> {
        let mut parts = Vec::new();
        if self.has_ended {
            return parts;
        }
        let prompt = chunk.prompt_token_ids.as_ref().or_else(|| chunk.choice.as_ref()?.prompt_token_ids.as_ref());
        if let Some(ids) = prompt.filter(|_| !self.has_prompt) {
            self.has_prompt = true;
            parts.push(Part::Prompt(ids.iter().map(|id| names.of(TokenId(*id))).collect()));
        }
        self.usage = chunk.usage.map(|usage| usage.completion_tokens).or(self.usage);
        self.per_request = chunk.metrics.and_then(|metrics| metrics.speculative_decoding).or(self.per_request.take());
        let sglext = chunk.sglext.unwrap_or_default();
        self.spec_tokens = sglext.spec_tokens_details.or(self.spec_tokens.take());
        if let Some(mut choice) = chunk.choice {
            choice.token_ids = choice.token_ids.or(sglext.output_ids);
            self.take_choice(&choice, at_us, names, &mut parts);
        }
        parts
    }

    fn take_choice(&mut self, choice: &Choice, at_us: u64, names: &mut Names, parts: &mut Vec<Part>) {
        let mut sent = tokens(choice, names);
        self.tokens += sent.len() as u64;
        if !self.has_first && !sent.is_empty() {
            let first = sent.remove(0);
            self.has_first = true;
            self.first_us = at_us;
            parts.push(Part::First { token: first.piece, row: first.row, cached: 0, took_us: at_us });
        }
        if !sent.is_empty() {
            self.clock_us = self.clock_us.max(at_us.saturating_sub(self.first_us));
            if self.sizes.len() < MAX_CHUNKS {
                self.sizes.push(sent.len());
            }
            let mut sent = sent.into_iter().peekable();
            while sent.peek().is_some() {
                parts.push(Part::Step(self.step(sent.by_ref().take(MAX_DRAFTS).collect())));
            }
        }
        self.finish = choice.finish_reason.as_deref().map(reason).or(self.finish);
    }

    /// A chunk as a step, of which the accepted drafts are known.
    fn step(&self, sent: Vec<SentToken>) -> Step {
        let drafts = if self.dialect == Dialect::Plain { 0 } else { sent.len() - 1 };
        let has_rows = sent.iter().any(|sent| sent.row.is_some());
        let probs = sent.iter().map(|sent| sent.prob).collect();
        let (tokens, rows): (Vec<Piece>, Vec<_>) =
            sent.into_iter().map(|sent| (sent.piece, sent.row.unwrap_or_else(unreported))).unzip();
        let rows = if has_rows { rows } else { Vec::new() };
        Step { drafted: drafts, accepted: drafts, tokens, rows, probs, clock_us: self.clock_us, detail: None }
    }

    /// What the rounds drafted, by the best source that there is, and sentences about what is not known.
    fn recount(&mut self) -> Vec<Part> {
        if self.dialect == Dialect::Plain {
            return self.uncounted_tokens().into_iter().collect();
        }
        let (found, why) = self.counted();
        let mut parts = Vec::new();
        if let Some(recount) = found {
            let sentence = doubts(&recount);
            parts.push(Part::Recounted(recount.rounds));
            parts.extend(sentence.map(Part::Notice));
        } else {
            parts.push(Part::Notice(why));
        }
        parts
    }

    fn counted(&mut self) -> (Option<Recount>, String) {
        let unsplit = "the server sent several rounds together, and its counts do not say how they divide: drafts of this \
                       answer are not counted";
        if let Some(counts) = self.per_request.take() {
            self.shared.has_request_metrics();
            let steps = counts.per_step_accepted.zip(counts.per_step_drafted).map(|(accepted, drafted)| {
                let both = accepted.into_iter().zip(drafted).take(MAX_CHUNKS);
                both.map(|(a, d)| Counted { drafted: d as usize, accepted: a as usize }).collect::<Vec<_>>()
            });
            if let Some(steps) = steps {
                return (per_step(&self.sizes, &steps), unsplit.to_owned());
            }
            let totals = Totals {
                steps: counts.num_spec_steps,
                drafted: counts.num_draft_tokens,
                accepted: counts.num_accepted_draft_tokens,
                longest: counts.num_spec_tokens.filter(|longest| *longest > 0),
            };
            return (self.of_totals(totals), in_words(totals));
        }
        if let Some(counts) = self.spec_tokens.take() {
            let totals = Totals {
                steps: counts.spec_verify_ct.unwrap_or(0),
                drafted: counts.spec_num_proposed_drafts.unwrap_or(0),
                accepted: counts.spec_num_correct_drafts.unwrap_or(0),
                longest: None,
            };
            return (self.of_totals(totals), in_words(totals));
        }
        let own = self.usage.unwrap_or(self.tokens);
        match self.shared.counted_since(own) {
            Since::Own(totals) if can_hold(&self.sizes, totals) => (self.of_totals(totals), in_words(totals)),
            Since::Own(_) => (None, OTHERS.to_owned()),
            Since::Others(counted) => (None, others(counted, own)),
            Since::Nothing => (None, self.shared.how_to_count().to_owned()),
        }
    }

    fn of_totals(&self, totals: Totals) -> Option<Recount> {
        if totals.steps == 0 && totals.drafted == 0 {
            return per_step(&self.sizes, &[]); // nothing was drafted
        }
        from_totals(&self.sizes, totals, self.finish == Some(StopReason::MaxTokens))
    }

    /// Where a piece of the stream is not a token.
    fn uncounted_tokens(&self) -> Option<Part> {
        let counted = self.usage.filter(|counted| *counted != self.tokens && *counted > 0)?;
        let pieces = self.tokens;
        Some(Part::Notice(format!(
            "the server counts {counted} tokens in the {pieces} pieces of this answer: figures here count pieces"
        )))
    }
}

/// Where the counters contradict the answer.
const OTHERS: &str = "how much this answer drafted is unknown: the server's counters rose by more than its tokens can hold, so \
                      others use this server; --enable-per-request-metrics and --per-request-spec-decode-metrics detailed \
                      report each answer on its own";

/// Where the counters rose by another number of tokens than the answer has.
fn others(counted: u64, own: u64) -> String {
    let why = if counted > own { "others use this server: its" } else { "the server's" };
    format!(
        "how much this answer drafted is unknown, {why} counters rose by {counted} tokens, this answer has {own}; \
         --enable-per-request-metrics and --per-request-spec-decode-metrics detailed report each answer on its own"
    )
}

fn in_words(totals: Totals) -> String {
    let Totals { steps, drafted, accepted, .. } = totals;
    format!(
        "in this answer the server accepted {accepted} of {drafted} drafts in {steps} steps, and does not say in which: \
         start it with --per-request-spec-decode-metrics detailed"
    )
}

/// What is not certain, in a sentence.
fn doubts(recount: &Recount) -> Option<String> {
    if recount.unsplit > 0 {
        return Some(format!(
            "{} tokens arrived in one piece with others: how rounds divide them is not known, their sums are exact",
            recount.unsplit
        ));
    }
    recount.is_ambiguous.then(|| {
        "the server's counts fit these rounds in more than one way, such as a round whose drafts were all rejected and one \
         without drafts: which of them drafted is not known, the sums are exact"
            .to_owned()
    })
}

fn reason(finish: &str) -> StopReason {
    match finish {
        "length" | "max_tokens" | "model_length" | "max_length" | "limit" => StopReason::MaxTokens,
        "abort" | "aborted" | "error" | "cancelled" | "canceled" | "timeout" => StopReason::BrokenOff,
        _ => StopReason::Eos,
    }
}

#[cfg(test)]
mod tests;
