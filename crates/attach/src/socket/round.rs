//! A round as a plugin reports it, checked, and its events.

use draftscope_protocol::{
    Candidate, Committed, Drafted, EventKind, Judgement, NextKind, Outcome, Piece, Prediction, RoundStarted, Scored,
    Verification,
};

use super::fault::Fault;

/// Most drafts of a round, and most tokens that it commits: events number drafts in a byte.
pub(crate) const MAX_DRAFTS: usize = 255;

/// How far probabilities that should be equal may differ, since they are rounded.
const SLACK: f32 = 0.01;

/// A whole round of one request.
#[derive(Clone, Debug, PartialEq)]
pub struct Round {
    /// Positions in the target's cache before it; 0 if the engine does not say.
    pub base_len: u32,
    pub(super) drafts: Vec<Drafted>,
    /// The target's predictions and times; none if they were not reported.
    pub(super) scored: Option<Scored>,
    pub(super) verdict: Verification,
    /// Accepted drafts, then the target's own token.
    pub committed: Vec<Piece>,
    /// When it was reported, in microseconds of the plugin's clock.
    pub at_us: u64,
}

impl Round {
    /// About how many bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        let tops = self.rows().iter().chain(self.drafts.iter().map(|draft| &draft.top));
        let listed = tops.flat_map(|row| row.top.iter().map(|one| &one.piece));
        let pieces = listed.chain(&self.committed).chain(self.drafts.iter().map(|draft| &draft.token));
        let texts: usize = pieces.map(|piece| size_of::<Candidate>() + piece.bytes.len()).sum();
        texts + size_of_val(self.rows()) + self.drafts.len() * (size_of::<Drafted>() + size_of::<Judgement>())
    }

    /// The target's predictions, k + 1 of them; empty if they were not reported.
    #[must_use]
    pub fn rows(&self) -> &[Prediction] {
        self.scored.as_ref().map_or(&[], |scored| &scored.rows)
    }

    /// Number of drafts.
    #[must_use]
    pub fn drafted(&self) -> usize {
        self.drafts.len()
    }

    /// Number of accepted ones.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.verdict.accepted()
    }

    /// The drafts.
    pub(crate) fn draft_tokens(&self) -> impl Iterator<Item = &Piece> {
        self.drafts.iter().map(|draft| &draft.token)
    }

    /// Whether a distribution of the drafter was reported.
    #[must_use]
    pub fn has_q(&self) -> bool {
        self.drafts.iter().any(|draft| draft.q.is_some())
    }

    /// Whether the parts of the round agree with each other.
    ///
    /// # Errors
    /// Names the field that does not.
    pub(super) fn check(&self) -> Result<(), Fault> {
        let (drafted, outcomes) = (self.drafts.len(), &self.verdict.judgements);
        if drafted > MAX_DRAFTS {
            return Err(Fault::new("drafted", format!("{drafted} drafts; a round has at most {MAX_DRAFTS}")));
        }
        if outcomes.len() != drafted {
            return Err(Fault::new("judgements", format!("{} for {drafted} drafts", outcomes.len())));
        }
        let accepted = self.accepted();
        for (index, judgement) in outcomes.iter().enumerate() {
            if judgement.outcome != Outcome::in_chain(index, accepted) {
                return Err(Fault::new(
                    "judgements",
                    format!(
                        "draft {index} is {:?}; a chain has accepted drafts, one rejected, then not_reached",
                        judgement.outcome
                    ),
                ));
            }
            for (field, value) in [("judgements.p", judgement.p), ("judgements.q", judgement.q)] {
                check_probability(field, value)?;
            }
        }
        self.check_rows()?;
        self.check_next(accepted)
    }

    fn check_rows(&self) -> Result<(), Fault> {
        for draft in &self.drafts {
            check_probability("drafted.q", draft.q)?;
            check_probability("drafted.copied", draft.copied.and_then(|copied| copied.chance))?;
        }
        if !self.rows().is_empty() && self.rows().len() != self.drafts.len() + 1 {
            return Err(Fault::new(
                "rows",
                format!("{} rows for {} drafts; k + 1 are needed", self.rows().len(), self.drafts.len()),
            ));
        }
        for (number, row) in self.rows().iter().enumerate() {
            row.top.iter().try_for_each(|one| check_probability("rows.top.prob", Some(one.prob)))?;
            check_probability("rows.tail", Some(row.tail))?;
            let sum: f32 = row.top.iter().map(|one| one.prob).sum::<f32>() + row.tail;
            if (sum - 1.0).abs() > SLACK {
                return Err(Fault::new("rows", format!("row {number} adds up to {sum:.3} with its tail, not to 1")));
            }
            if row.top.windows(2).any(|pair| pair[0].prob < pair[1].prob) {
                return Err(Fault::new("rows", format!("row {number} is not sorted, most probable first")));
            }
        }
        for (index, (judgement, draft)) in self.verdict.judgements.iter().zip(&self.drafts).enumerate() {
            let listed = self.rows().get(index).and_then(|row| row.find(draft.token.id));
            if let (Some(p), Some((_, listed))) = (judgement.p, listed)
                && (p - listed).abs() > SLACK
            {
                return Err(Fault::new("judgements.p", format!("draft {index} has {p:.3}, its row lists {listed:.3}")));
            }
        }
        Ok(())
    }

    fn check_next(&self, accepted: usize) -> Result<(), Fault> {
        let expected = if accepted == self.drafts.len() { NextKind::Bonus } else { NextKind::Recovered };
        if self.verdict.next_kind != expected {
            return Err(Fault::new("next_kind", format!("{:?}; it must be {expected:?} here", self.verdict.next_kind)));
        }
        let committed = self.committed.len();
        if committed == 0 || committed > accepted + 1 {
            return Err(Fault::new("tokens", format!("{committed} tokens committed after {accepted} accepted drafts")));
        }
        let pairs = self.committed.iter().zip(&self.drafts).take(accepted);
        if let Some(at) = pairs.clone().position(|(token, draft)| token.id != draft.token.id) {
            return Err(Fault::new("tokens", format!("token {at} is not the accepted draft")));
        }
        if self.committed.get(accepted).is_some_and(|token| token.id != self.verdict.next) {
            return Err(Fault::new("tokens", "the last token is not `next`".to_owned()));
        }
        Ok(())
    }

    /// The events of this round. Its number, its place, what was committed and the clock are those of the answer.
    pub(crate) fn events(self, tokens: Vec<Piece>, clock_us: u64, round: u32, base_len: u32) -> Vec<EventKind> {
        let mut events =
            vec![EventKind::RoundStarted(RoundStarted { round, base_len, draft_len: self.drafts.len() as u8 })];
        events.extend(self.drafts.into_iter().map(|draft| EventKind::Drafted(Drafted { round, ..draft })));
        let scored = self.scored.filter(|scored| !scored.rows.is_empty());
        events.extend(scored.map(|scored| EventKind::Scored(Scored { round, ..scored })));
        events.push(EventKind::Verified { round, verdict: self.verdict });
        events.push(EventKind::Committed(Committed { round, tokens, clock_us, ..Committed::default() }));
        events
    }
}

fn check_probability(field: &'static str, value: Option<f32>) -> Result<(), Fault> {
    match value {
        Some(value) if !(0.0..=1.001).contains(&value) => Err(Fault::new(field, format!("{value} is no probability"))),
        _ => Ok(()),
    }
}
