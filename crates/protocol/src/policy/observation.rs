//! Observations of a round, read from its events.

use crate::{EventKind, MAX_DRAFT_LEN};

/// Figures of one round.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observation {
    /// Drafts requested from the drafter: k.
    pub asked: usize,
    /// Drafts that it proposed.
    pub drafted: usize,
    /// Accepted drafts.
    pub accepted: usize,
    /// Drafts that were made and discarded because their probability was too low: 0 or 1.
    pub dropped: usize,
    /// Largest probability, 0 to 1, of the distribution of each draft, or a copy's predicted chance of acceptance; none if
    /// neither is known.
    pub sure: [Option<f32>; MAX_DRAFT_LEN as usize],
    /// Whether some of the drafts were copied from the text.
    pub has_copies: bool,
    /// Whether one pass made all drafts (a block drafter), so that the first draft step contains it.
    pub one_pass: bool,
    /// Time of the first draft step in microseconds; 0 if there was none.
    pub first_draft_us: f64,
    /// Time of all draft steps in microseconds.
    pub draft_us: f64,
    /// Time of the target's pass in microseconds.
    pub verify_us: f64,
    /// Time of the whole round in microseconds; the caller sets it.
    pub round_us: f64,
}

impl Observation {
    /// Takes one of the round's events. The caller sets `round_us`.
    pub fn on_event(&mut self, kind: &EventKind) {
        match kind {
            EventKind::RoundStarted { draft_len, .. } => *self = Self { asked: (*draft_len).into(), ..Self::default() },
            EventKind::Drafted { top, more, copied, took_us, .. } => {
                self.one_pass |= more;
                self.has_copies |= copied.is_some();
                let chance = copied.and_then(|copied| copied.chance);
                if let Some(sure) = self.sure.get_mut(self.drafted) {
                    *sure = chance.or_else(|| top.top.first().map(|best| best.prob));
                }
                self.took_draft(*took_us as f64);
                self.drafted += 1;
            }
            EventKind::DraftStopped { took_us, .. } => {
                self.took_draft(*took_us as f64);
                self.dropped += 1;
            }
            EventKind::Scored { verify_us, .. } => self.verify_us = *verify_us as f64,
            EventKind::Verified { verdict, .. } => self.accepted = verdict.accepted(),
            _ => {}
        }
    }

    fn took_draft(&mut self, took_us: f64) {
        if self.drafted + self.dropped == 0 {
            self.first_draft_us = took_us;
        }
        self.draft_us += took_us;
    }
}
