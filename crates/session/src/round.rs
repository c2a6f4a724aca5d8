//! One round of a lane, filled in as its events arrive, each of which it keeps whole.
//!
//! Invariant: a round may be incomplete at any point (live, or in a torn trace); a field without its event is empty or
//! `None`, never a guess. In a chain `rows[i]` judges `drafts[i]` and row `drafts.len()` yields the bonus; in a tree
//! [`Round::row_of`] gives the row.

use draftscope_protocol::{
    Alternatives, Committed, DraftRefused, DraftStopped, Drafted, Judgement, Lattice, Leniency, Masked, NextKind,
    Outcome, Piece, Prediction, Probed, RoundStarted, Sampling, Scored, TokenId, Verification, VerifyRule,
};

use super::fate::Provenance;

/// One draft + verify. What few rounds have is boxed, since a long session keeps all its rounds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Round {
    /// How it began: its number, and k.
    pub started: RoundStarted,
    /// Number of its turn.
    pub turn: u32,
    /// Rule when it began.
    pub rule: VerifyRule,
    /// How the target picked tokens when it began.
    pub sampling: Sampling,
    /// The lenient rule's threshold when it began.
    pub leniency: Leniency,
    /// Whether the shape of a draft depends on drafted tokens (a tree, an automatic k): its draws then belong to the
    /// round.
    pub shapes_drafts: bool,
    /// Drafts so far.
    pub drafts: Vec<Drafted>,
    /// Where p-min ended the draft, if it did.
    pub stopped: Option<Box<DraftStopped>>,
    /// Tokens that the grammar refused before the target saw them.
    pub refused: Vec<DraftRefused>,
    /// The candidates of each position that a selector chose at; `None` without one, and when they were dropped.
    pub lattice: Option<Box<Lattice>>,
    /// What the alternatives of the round promised and cost; `None` without any.
    pub alternatives: Option<Box<Alternatives>>,
    /// What the grammar did to each row, and its time; `None` without one.
    pub masked: Option<Box<Masked>>,
    /// The target's row at every position, and the times of the pass; `None` until scored.
    pub scored: Option<Scored>,
    /// The rule's decision; `None` until judged.
    pub verdict: Option<Verification>,
    /// What it output, and the clock after it; `None` until committed.
    pub commit: Option<Committed>,
    /// Index of the first committed token in [`super::Answer::tokens`].
    pub first_token: usize,
    /// The lane's clock before the round.
    pub clock_before_us: u64,
    /// Number of events of the run before the one that ended it: orders the rounds of all lanes in time.
    pub ended_after: u64,
    /// What the drafter would have proposed; `None` outside a probe run.
    pub probed: Option<Box<Probed>>,
    /// Whether the engine waited for a user within this round or right before it: its caches were cold, so its times
    /// enter no speed figure.
    pub follows_wait: bool,
    /// Whether predictions were asked of the engine when the answer was over.
    pub is_asked: bool,
    /// Whether the engine has not reported what this round drafted: of its drafts only accepted ones are known.
    pub drafts_unknown: bool,
    /// Verdicts shown, while they appear one by one; `None` shows all that are known.
    pub unveiled: Option<usize>,
    /// Whether the shown moment lies within the commit, so that `commit` has only its beginning.
    pub is_partial: bool,
}

impl Round {
    /// Whether its times enter speed figures: it followed no wait, and the whole round is shown.
    #[must_use]
    pub fn is_timed(&self) -> bool {
        !self.follows_wait && !self.is_partial
    }

    /// Whether the drafts form a tree.
    #[must_use]
    pub fn is_tree(&self) -> bool {
        self.drafts.iter().any(|draft| draft.row.is_some())
    }

    /// The rule that judges the drafts: `block` judges chains; for the drafts of a tree `rejection` takes its place.
    #[must_use]
    pub fn judged_by(&self) -> VerifyRule {
        if self.rule == VerifyRule::Block && self.is_tree() { VerifyRule::Rejection } else { self.rule }
    }

    /// The row of the target's pass that judges draft `index`: 0 is the anchor's, i + 1 that of draft i. For the column
    /// after the drafts, the row that the target's own token came from.
    #[must_use]
    pub fn row_of(&self, index: usize) -> usize {
        match self.drafts.get(index) {
            Some(draft) => draft.row.map_or(index, usize::from),
            None if self.is_tree() => self.path().last().map_or(0, |last| last + 1),
            None => index,
        }
    }

    /// The target's row for draft `index`, or for the token after the drafts.
    #[must_use]
    pub fn prediction(&self, index: usize) -> Option<&Prediction> {
        self.rows().get(self.row_of(index))
    }

    /// The draft that draft `index` continues; `None` if it continues the anchor.
    #[must_use]
    pub fn parent(&self, index: usize) -> Option<usize> {
        self.row_of(index).checked_sub(1).filter(|parent| *parent < index)
    }

    /// Drafts between the anchor and draft `index`.
    #[must_use]
    pub fn depth(&self, index: usize) -> usize {
        std::iter::successors(self.parent(index), |at| self.parent(*at)).count()
    }

    /// Indices of the accepted drafts, in the order of the text; empty until judged.
    pub fn path(&self) -> impl Iterator<Item = usize> {
        let drafts = self.drafts.len();
        self.verdict.iter().flat_map(|verdict| verdict.path()).filter(move |index| *index < drafts)
    }

    /// Length of the accepted prefix or path, 0 until judged.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.verdict.as_ref().map_or(0, |v| v.accepted().min(self.drafts.len()).min(self.shown()))
    }

    /// The verdict on draft `index`.
    #[must_use]
    pub fn judgement(&self, index: usize) -> Option<&Judgement> {
        self.verdict.as_ref()?.judgements.get(index).filter(|_| index < self.shown())
    }

    /// How many verdicts may be shown.
    fn shown(&self) -> usize {
        self.unveiled.unwrap_or(usize::MAX)
    }

    /// Steps in which verdicts appear from left to right: one for each draft up to the first rejected one, and one for
    /// those discarded after it. Zero until judged, without drafts, and in a tree, whose drafts have no such order.
    #[must_use]
    pub fn verdict_steps(&self) -> usize {
        let Some(verdict) = self.verdict.as_ref().filter(|_| !self.is_tree()) else { return 0 };
        (verdict.accepted() + 2).min(self.drafts.len())
    }

    /// Verdicts shown after so many of [`Self::verdict_steps`].
    pub(super) fn verdicts_after(&self, steps: usize) -> usize {
        if steps >= self.verdict_steps() { self.drafts.len() } else { steps }
    }

    /// The outcome of draft `index`; `None` until judged.
    #[must_use]
    pub fn outcome(&self, index: usize) -> Option<Outcome> {
        self.judgement(index).map(|judgement| judgement.outcome)
    }

    /// Column in which the target added its own token; `None` until judged. In a tree it is the column after the
    /// drafts.
    #[must_use]
    pub fn next_index(&self) -> Option<usize> {
        self.next_column().filter(|_| self.shown() >= self.drafts.len())
    }

    /// The same, also while not all verdicts are on show.
    fn next_column(&self) -> Option<usize> {
        let accepted = self.verdict.as_ref()?.accepted().min(self.drafts.len());
        Some(if self.is_tree() { self.drafts.len() } else { accepted })
    }

    /// Column of a chain's rejected draft, from which on drafts are discarded; `None` without one.
    #[must_use]
    pub fn first_discarded(&self) -> Option<usize> {
        self.next_index().filter(|column| !self.is_tree() && *column < self.drafts.len())
    }

    /// What a lossless rule would have committed instead of accepted draft `index`, if something else.
    #[must_use]
    pub fn departure(&self, index: usize) -> Option<TokenId> {
        let departures = &self.verdict.as_ref()?.departures;
        departures.iter().find(|departure| usize::from(departure.index) == index).map(|departure| departure.instead)
    }

    /// The same with its text, if an event contains it.
    #[must_use]
    pub fn own_piece(&self, index: usize) -> Option<Piece> {
        let id = self.departure(index)?;
        let listed = self.prediction(index).and_then(|row| row.top.iter().find(|c| c.piece.id == id));
        Some(listed.map_or_else(|| Piece::new(id, Vec::new()), |candidate| candidate.piece.clone()))
    }

    /// Column of the `index`-th committed token.
    #[must_use]
    pub fn column_of(&self, index: usize) -> usize {
        self.path().nth(index).or_else(|| self.next_index()).unwrap_or(index)
    }

    /// Column that explains the round: the rejection, else the last known one.
    #[must_use]
    pub fn deciding_column(&self) -> usize {
        match self.next_index() {
            Some(index) if !self.is_cut(index) => index,
            Some(index) => self.committed().len().checked_sub(1).map_or(index, |last| self.column_of(last)),
            None => {
                let judged = self.unveiled.filter(|shown| *shown > 0).unwrap_or(usize::MAX);
                self.drafts.len().min(judged).saturating_sub(1)
            }
        }
    }

    /// Bonus or recovered; `None` until judged.
    #[must_use]
    pub fn next_kind(&self) -> Option<NextKind> {
        self.next_index()?;
        self.verdict.as_ref().map(|v| v.next_kind)
    }

    /// The token that the target added, with its text if an event contains it.
    #[must_use]
    pub fn next_piece(&self) -> Option<Piece> {
        let verdict = self.verdict.as_ref()?;
        let row = self.prediction(self.next_column()?);
        let in_row = row.and_then(|row| row.top.iter().find(|c| c.piece.id == verdict.next));
        let piece = match in_row {
            Some(candidate) => candidate.piece.clone(),
            None => self.committed().get(self.accepted()).cloned().unwrap_or(Piece::new(verdict.next, Vec::new())),
        };
        Some(piece)
    }

    /// Whether the drafter's vocabulary lacks the token that the target added.
    #[must_use]
    pub fn next_is_undraftable(&self) -> bool {
        self.verdict.as_ref().is_some_and(|verdict| verdict.next_in_draft_vocab == Some(false))
    }

    /// Whether the token of a column was accepted or added, and then cut off by a stop rule.
    #[must_use]
    pub fn is_cut(&self, index: usize) -> bool {
        !self.is_partial && self.lacks(index)
    }

    /// Whether the token of a column was accepted or added, and is not written yet at the shown moment.
    #[must_use]
    pub fn is_held(&self, index: usize) -> bool {
        self.is_partial && self.lacks(index)
    }

    /// Whether the token of a column was accepted or added and is not among the committed ones.
    fn lacks(&self, index: usize) -> bool {
        let place = if self.next_index() == Some(index) {
            Some(self.accepted())
        } else {
            self.path().position(|accepted| accepted == index)
        };
        self.is_complete() && place.is_some_and(|place| place >= self.committed().len())
    }

    /// Whether one pass drafted all positions: a block drafter.
    #[must_use]
    pub fn is_block(&self) -> bool {
        self.drafts.iter().any(|draft| draft.more)
    }

    /// Time of all draft steps.
    #[must_use]
    pub fn draft_us(&self) -> u64 {
        let stopped = self.stopped.as_ref().map_or(0, |stopped| stopped.took_us);
        self.drafts.iter().fold(stopped, |sum, draft| sum.saturating_add(draft.took_us))
    }

    /// Time of the whole round on the lane's clock; 0 until it is committed.
    #[must_use]
    pub fn took_us(&self) -> u64 {
        self.clock_us().saturating_sub(self.clock_before_us)
    }

    /// Whether the engine reported only the round's total time, as an attached engine may.
    #[must_use]
    pub fn lacks_phases(&self) -> bool {
        self.is_complete() && self.took_us() > 0 && self.draft_us() == 0 && self.verify_us() == 0
    }

    /// Columns of the round's table: every draft (announced or received) and the one after them.
    #[must_use]
    pub fn columns(&self) -> usize {
        let known = self.drafts.len().max(self.rows().len().saturating_sub(1));
        if self.rows().is_empty() { known.max(self.draft_len().into()) + 1 } else { known + 1 }
    }

    /// Adds a draft. A gap is not filled: a draft after one is dropped.
    pub(super) fn draft(&mut self, draft: Drafted) {
        let index = usize::from(draft.index);
        if let Some(known) = self.drafts.get_mut(index) {
            *known = draft;
        } else if index == self.drafts.len() {
            self.drafts.push(draft);
        }
    }

    /// Drops candidates that the round table does not show: it keeps the best two, the judged token, and what a
    /// lossless rule would have committed instead.
    pub(super) fn shrink(&mut self) {
        self.drafts.shrink_to_fit();
        let judged = self.drafts.iter().enumerate().map(|(index, draft)| (self.row_of(index), draft.token.id));
        let own = (0..self.drafts.len()).filter_map(|index| Some((self.row_of(index), self.departure(index)?)));
        let shown: Vec<_> = judged.chain(own).collect();
        for (number, row) in self.scored.iter_mut().flat_map(|scored| &mut scored.rows).enumerate() {
            let here = shown.iter().filter(|(row, _)| *row == number).map(|(_, token)| *token);
            keep_best(row, &here.collect::<Vec<_>>());
        }
        for draft in &mut self.drafts {
            keep_best(&mut draft.top, &[]);
        }
        self.lattice = None;
    }

    /// Drops all candidates. The number of rows stays, since it says what the pass was.
    pub(super) fn strip(&mut self) {
        let tops = self.drafts.iter_mut().map(|draft| &mut draft.top);
        for row in self.scored.iter_mut().flat_map(|scored| &mut scored.rows).chain(tops) {
            row.tail += std::mem::take(&mut row.top).iter().map(|candidate| candidate.prob).sum::<f32>();
        }
        self.lattice = None;
    }
}

/// Provenance of the `index`-th committed token of a round.
pub(super) fn provenance(round: &Round, index: usize) -> Provenance {
    if round.drafts.is_empty() {
        return Provenance::Plain;
    }
    match &round.verdict {
        None => Provenance::Plain,
        Some(verdict) if index < verdict.accepted() => Provenance::Accepted,
        Some(verdict) => match verdict.next_kind {
            NextKind::Bonus => Provenance::Bonus,
            NextKind::Recovered => Provenance::Recovered,
        },
    }
}

/// Drops all but the first `most` entries of a list of an event, which anybody may have written.
pub(super) fn keep_first<T>(list: &mut Vec<T>, most: usize) {
    list.truncate(most);
    list.shrink_to_fit();
}

fn keep_best(row: &mut Prediction, also: &[TokenId]) {
    let mut rank = 0;
    let mut dropped = 0.0;
    row.top.retain(|candidate| {
        rank += 1;
        let keep = rank <= 2 || also.contains(&candidate.piece.id);
        if !keep {
            dropped += candidate.prob;
        }
        keep
    });
    row.tail += dropped;
    row.top.shrink_to_fit();
}
