//! Sums of some rounds, and what a lane's numbers say of the parts that files of their own count: q, copies,
//! vocabularies, thought, context.

use super::by_context::ContextSlice;
use super::calibration::Calibration;
use super::copies::Copies;
use super::round::Round;
use super::stats::LaneStats;
use super::thought::PartStats;

impl LaneStats {
    /// Tested drafts by the drafter's probability.
    #[must_use]
    pub fn calibration(&self) -> &Calibration {
        &self.calibration
    }

    /// Drafts that were copied from the text; they count in the other figures, too.
    #[must_use]
    pub fn copies(&self) -> Copies {
        self.copied
    }

    /// Committed tokens that the drafter's vocabulary lacks; `None` where the drafter has all of the target's, or it is not
    /// known.
    #[must_use]
    pub fn undraftable(&self) -> Option<u64> {
        self.draft_vocab.lacking()
    }

    /// The sums of these rounds alone, without times.
    #[must_use]
    pub fn of_rounds<'a>(rounds: impl IntoIterator<Item = &'a Round>) -> Self {
        let mut sum = Self::default();
        rounds.into_iter().filter(|round| round.is_complete()).for_each(|round| sum.add_counts(round, false));
        sum
    }

    /// Adds a complete round; `in_thought` says whether its first token is thought.
    pub(super) fn add(&mut self, round: &Round, in_thought: bool) {
        self.add_times(round);
        self.add_counts(round, in_thought);
    }

    /// Counts a complete round in its part of the answer. Where the engine reports no drafts, none count.
    pub(super) fn add_part(&mut self, round: &Round, is_thought: bool) {
        let counts = if self.is_uncounted { (0, 0) } else { (round.drafts.len() as u64, round.accepted() as u64) };
        let (drafted, accepted) = counts;
        let part = PartStats { rounds: 1, drafted, accepted, committed: round.committed().len() as u64 };
        self.parts[usize::from(!is_thought)].merge(&part);
    }

    /// Thought and answer apart; none if no round began in a thought.
    #[must_use]
    pub fn thought_and_answer(&self) -> Option<[PartStats; 2]> {
        Some(self.parts).filter(|[thought, _]| thought.rounds > 0)
    }
}

/// At most `most` ranges, equally wide, that cover the positions of a lane's rounds; T(1) and the speedup also from those of
/// the lane beside it.
#[must_use]
pub fn by_context(own: &LaneStats, beside: &LaneStats, most: usize) -> Vec<ContextSlice> {
    own.by_context.slices(&beside.by_context, most)
}
