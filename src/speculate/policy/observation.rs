//! What a round showed, read from the events that everyone sees.

use crate::protocol::{EventKind, MAX_DRAFT_LEN};

/// What a round showed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observation {
    /// Drafts asked of the drafter.
    pub asked: usize,
    /// Drafts it gave.
    pub drafted: usize,
    /// Drafts accepted.
    pub accepted: usize,
    /// Drafts made and left out because of p-min: 0 or 1.
    pub dropped: usize,
    /// Largest probability of what each draft was picked from; none where the drafter has none.
    pub sure: [Option<f32>; MAX_DRAFT_LEN as usize],
    /// Time of the first draft step; 0 when there was none.
    pub first_draft_us: f64,
    /// Time of all draft steps.
    pub draft_us: f64,
    /// Time of the target's pass.
    pub verify_us: f64,
    /// Time of the whole round.
    pub round_us: f64,
}

impl Observation {
    /// Takes note of one of a round's events; the round's own time is told by whoever keeps its clock.
    pub fn on_event(&mut self, kind: &EventKind) {
        match kind {
            EventKind::RoundStarted { draft_len, .. } => *self = Self { asked: (*draft_len).into(), ..Self::default() },
            EventKind::Drafted { top, took_us, .. } => {
                if let Some(sure) = self.sure.get_mut(self.drafted) {
                    *sure = top.top.first().map(|best| best.prob);
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
