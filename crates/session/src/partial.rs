//! States between two events: a commit with some of its tokens written, a verdict with some columns shown.
//!
//! Invariant: they are only for display and made from whole events; they count nothing that the events have not
//! brought.

use std::sync::Arc;

use draftscope_protocol::{Committed, Event, EventKind, Lane};

use super::fold::Session;

impl Session {
    /// Applies only the first tokens of a commit: what was written at a moment within it.
    pub(super) fn apply_part(&mut self, event: &Event, count: usize) {
        let mut part = event.clone();
        if let EventKind::Committed(Committed { tokens, .. }) = &mut part.kind {
            tokens.truncate(count);
        }
        let before = self.working_answer(event.lane).map(|answer| answer.stats().clone());
        self.apply(&part);
        if let Some((answer, before)) = self.working_answer(event.lane).zip(before) {
            answer.hold(before);
        }
    }

    /// The same moment with only the verdicts of the newest round's first `steps` steps.
    pub(super) fn veiled(&self, steps: usize) -> Self {
        let mut session = self.clone();
        let answer = session.turns.last_mut().map(|turn| Arc::make_mut(&mut turn.answers[Lane::Speculative.index()]));
        if let Some(round) = answer.and_then(|answer| answer.rounds.last_mut()) {
            let round = Arc::make_mut(round);
            round.unveiled = Some(round.verdicts_after(steps));
        }
        session
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::first_turn;
    use super::*;
    use crate::fixture::fold;
    use draftscope_protocol::Outcome;

    #[test]
    fn verdicts_come_from_left_to_right_and_the_target_s_own_token_last() {
        use Outcome::{Accepted, NotReached, Rejected};
        let steps = |number: u32| {
            let mut events = first_turn().events;
            let is_judged = |event: &Event| matches!(event.kind, EventKind::Verified { round, .. } if round == number);
            let judged = events.iter().position(|e| e.lane == Lane::Speculative && is_judged(e)).unwrap();
            events.truncate(judged + 1);
            let session = fold(&events);
            let last = |session: &Session| session.turns()[0].answer(Lane::Speculative).rounds.last().cloned().unwrap();
            let all = last(&session).verdict_steps();
            let of = |steps| {
                let round = last(&session.veiled(steps));
                ((0..3).map_while(|i| round.outcome(i)).collect::<Vec<_>>(), round.next_index(), round.accepted())
            };
            (0..=all).map(of).collect::<Vec<_>>()
        };
        // rejected at once: a verdict, what is discarded after it, then the target's own
        let rejected = vec![Rejected, NotReached, NotReached];
        assert_eq!(steps(1), [(vec![], None, 0), (vec![Rejected], None, 0), (rejected, Some(0), 0)]);
        let all: Vec<_> = steps(2).into_iter().map(|(outcomes, next, _)| (outcomes, next)).collect();
        let accepted = |count| vec![Accepted; count];
        assert_eq!(all, [(vec![], None), (accepted(1), None), (accepted(2), None), (accepted(3), Some(3))]);
        let late = steps(4);
        assert_eq!(late[2], (accepted(2), None, 2));
        assert_eq!(late[3], (vec![Accepted, Accepted, Rejected], Some(2), 2));
    }
}
