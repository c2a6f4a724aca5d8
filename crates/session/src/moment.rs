//! Moments of a run: where stepping stops, and how much memory the events between two of them take.

use draftscope_protocol::{
    Alternatives, Candidate, Committed, DraftRefused, Drafted, Event, EventKind, Judgement, Lane, Lattice,
    LatticeCandidate, LatticeColumn, Piece, Prediction, Prefilled, Probed, ProbedDraft, Scored,
};

/// How far a key steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// A draft token (also one that is left out), a probe's chain, the target's pass, a verdict, a commit.
    Phase,
    /// The commit of a round, or the end of a prompt's passes.
    Round,
}

impl Stop {
    /// Whether stepping stops right after this event. Events of other lanes are no stops: what happens there is seen at
    /// the stops of the run's own lane.
    pub fn is_at(self, event: &Event) -> bool {
        if event.lane != Lane::Speculative {
            return false;
        }
        match event.kind {
            EventKind::Prefilled(_) | EventKind::Committed(_) => true,
            EventKind::Probed(_)
            | EventKind::Drafted(Drafted { more: false, .. })
            | EventKind::DraftStopped(_)
            | EventKind::Scored(_)
            | EventKind::Verified { .. } => self == Self::Phase,
            _ => false,
        }
    }
}

/// A moment of a run: after a number of events and, if a commit comes next, a number of its tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Whole events.
    pub events: u64,
    /// Tokens of the event that follows; fewer than it has.
    pub tokens: usize,
}

/// Output tokens that an event adds to the run's own lane.
pub(super) fn tokens_of(event: &Event) -> usize {
    match &event.kind {
        _ if event.lane != Lane::Speculative => 0,
        EventKind::Prefilled(_) => 1,
        EventKind::Committed(Committed { tokens, .. }) => tokens.len(),
        _ => 0,
    }
}

/// What it takes to keep an event, in bytes.
pub(super) fn bytes(event: &Event) -> usize {
    let pieces = |pieces: &[Piece]| pieces.iter().map(piece).sum::<usize>();
    let own = match &event.kind {
        EventKind::Prompted { text, .. } | EventKind::Noted { text, .. } => text.len(),
        EventKind::Notice { message } | EventKind::Failed { message } => message.len(),
        EventKind::Bookmarked { label, .. } => label.len(),
        EventKind::Prefilled(Prefilled { prompt, row, .. }) => pieces(prompt) + prediction(row),
        EventKind::Drafted(Drafted { top, .. }) => prediction(top),
        EventKind::DraftRefused(DraftRefused { expected, .. }) => expected.len(),
        EventKind::Alternatives(Alternatives { worths, .. }) => size_of_val(&worths[..]),
        EventKind::Lattice(Lattice { columns, .. }) => columns.iter().map(column).sum(),
        EventKind::Probed(Probed { drafts, .. }) => {
            drafts.iter().map(|draft| size_of::<ProbedDraft>() + prediction(&draft.top)).sum()
        }
        EventKind::Scored(Scored { rows, .. }) => rows.iter().map(prediction).sum(),
        EventKind::Verified { verdict, .. } => verdict.judgements.len() * size_of::<Judgement>(),
        EventKind::Committed(Committed { tokens, .. }) => pieces(tokens),
        _ => 0,
    };
    size_of::<Event>() + own
}

fn column(column: &LatticeColumn) -> usize {
    let candidate = |c: &LatticeCandidate| piece(&c.token) + size_of::<LatticeCandidate>() - size_of::<Piece>();
    size_of::<LatticeColumn>() + column.candidates.iter().map(candidate).sum::<usize>()
}

fn prediction(row: &Prediction) -> usize {
    let candidate = |c: &Candidate| piece(&c.piece) + size_of::<Candidate>() - size_of::<Piece>();
    size_of::<Prediction>() + row.top.iter().map(candidate).sum::<usize>()
}

/// A short token has its bytes in the piece itself.
fn piece(piece: &Piece) -> usize {
    size_of::<Piece>() + if piece.bytes.len() < size_of::<Piece>() { 0 } else { piece.bytes.len() }
}
