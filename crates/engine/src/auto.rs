//! The automatic draft length k: measures pass times, watches rounds, and reports each change of k with its reason.
//!
//! [`Policy`] decides which k is best. It learns from the same events that every listener receives.
//! Invariant: without a usable measurement k stays as it was set.

use std::sync::Arc;
use std::time::Duration;

use crate::speculate::decoder::{Decoder, MeasuredCosts, TIMED_ROWS, TIMING};
use draftscope_protocol::policy::{Choice, Observation, Policy};
use draftscope_protocol::{
    Committed, Costs, DraftLenMode, DrafterKind, Drafting, EventKind, Header, Lane, Scored, Settings, VerifyRule,
};

use super::control::Control;
use super::cost_memory::{CostKey, CostMemory};
use super::outbox::Outbox;

/// Longest time to spend on checking remembered costs.
const CHECK: Duration = Duration::from_millis(200);

/// Widths compared by a check: passes of 1 to this many rows.
const CHECKED_ROWS: usize = 5;

/// Remembered costs are valid while T(m) ÷ T(1) differs by less than this factor at every checked width m.
const CHANGED: f64 = 1.1;

/// Chooses k for a run.
pub(super) struct Auto {
    memory: Arc<dyn CostMemory>,
    key: CostKey,
    policy: Option<Policy>,
    costs: Option<Costs>,
    /// The context had no room to time all widths; the next answer measures again.
    is_narrow: bool,
    /// Drafter and rule whose acceptance the policy has learned.
    learned_from: Option<(DrafterKind, Drafting, VerifyRule)>,
    /// Whether the engine chooses k at present.
    active: bool,
    /// Whether a notice has said why the engine does not choose k.
    reported_idle: bool,
    unreported: Option<EventKind>,
    observation: Observation,
    clock_us: u64,
    /// The engine has waited since the last round of the run's own lane ended.
    is_cold: bool,
}

impl Auto {
    pub(super) fn new(memory: Arc<dyn CostMemory>, header: &Header) -> Self {
        Self {
            memory,
            key: CostKey::of(header),
            policy: None,
            costs: None,
            is_narrow: false,
            learned_from: None,
            active: false,
            reported_idle: false,
            unreported: None,
            observation: Observation::default(),
            clock_us: 0,
            is_cold: false,
        }
    }

    /// The engine has waited for somebody: what the next round takes says nothing about rounds that follow each other.
    pub(super) fn note_wait(&mut self) {
        self.is_cold = true;
    }

    /// Learns once what passes cost: from memory if a short check confirms it, else by timing them.
    pub(super) fn prepare(&mut self, decoder: &mut Decoder, from: u8) {
        if self.policy.is_some() {
            return;
        }
        let recalled = self.memory.recall(&self.key).filter(|costs| costs.is_usable() && decoder.has_all_threads());
        // within an answer only single passes can be timed, and these cost less than passes in rounds
        let in_rounds = decoder.committed().is_empty();
        let recalled = recalled.filter(|costs| !in_rounds || are_still_valid(decoder, costs));
        let remembered = recalled.is_some();
        self.unreported = Some(match recalled.or_else(|| self.measure(decoder, in_rounds)) {
            Some(costs) => {
                self.policy = Some(Policy::new(costs.clone(), from.into()));
                self.is_narrow = costs.verify_us.len() < TIMED_ROWS;
                self.costs = Some(costs.clone());
                EventKind::CostsKnown { costs, remembered }
            }
            None => EventKind::Notice {
                message: format!("passes could not be timed here, so k stays {from}; choose another with -k"),
            },
        });
    }

    fn measure(&self, decoder: &mut Decoder, in_rounds: bool) -> Option<Costs> {
        let MeasuredCosts { costs, is_steady } = decoder.measure_costs(TIMING).ok()?;
        if in_rounds && is_steady && costs.is_usable() && decoder.has_all_threads() {
            self.memory.remember(&self.key, &costs);
        }
        costs.is_usable().then_some(costs)
    }

    /// Reports the result of [`Auto::prepare`].
    pub(super) fn report(&mut self, outbox: &mut Outbox) {
        if let Some(kind) = self.unreported.take() {
            outbox.send(Lane::Speculative, kind);
        }
    }

    /// Prepares for the next answer.
    pub(super) fn begin_answer(&mut self) {
        self.clock_us = 0;
        if std::mem::take(&mut self.is_narrow) {
            (self.policy, self.costs) = (None, None);
        }
        if let Some(policy) = &mut self.policy {
            policy.begin_answer();
        }
    }

    /// Sets the decoder's k for the next round if the engine chooses it.
    pub(super) fn choose(&mut self, decoder: &mut Decoder, control: &mut Control, outbox: &mut Outbox) {
        let settings = control.settings();
        let was_active = self.active;
        self.active = self.may_choose(&settings, decoder.drafts_trees(), outbox);
        decoder.set_stop_rule(None);
        if !self.active {
            return;
        }
        self.notice_change(&settings);
        self.prepare(decoder, settings.draft_len);
        self.report(outbox);
        let Some(policy) = &mut self.policy else {
            return;
        };
        policy.set_drafter(decoder.usable_drafter());
        if !was_active {
            policy.resume(settings.draft_len.into());
        }
        let Choice { draft_len, change } = policy.choose();
        decoder.set_draft_len(draft_len as u8);
        decoder.set_stop_rule(Some(policy.stop_rule(draft_len)));
        if let Some(change) = change {
            control.note_draft_len(draft_len as u8);
            outbox.send(
                Lane::Speculative,
                EventKind::DraftLenChosen {
                    from: change.from as u8,
                    draft_len: draft_len as u8,
                    expected: change.expected,
                    exploring: change.exploring,
                    reason: change.reason,
                },
            );
        }
    }

    /// Whether to choose k. The cost of a tree does not follow from its depth, and a person's drafting time is not a
    /// model's: in both cases k stays, and one notice says why. `is_tree` is false where the target does not support
    /// trees.
    fn may_choose(&mut self, settings: &Settings, is_tree: bool, outbox: &mut Outbox) -> bool {
        let is_auto = settings.draft_len_mode == DraftLenMode::Auto;
        let is_idle = is_auto && (is_tree || settings.drafter == DrafterKind::Human);
        if is_idle && !self.reported_idle {
            let what = if is_tree { "a draft tree" } else { "the drafter human" };
            let message = format!("k stays {}: it cannot be chosen automatically with {what}", settings.draft_len);
            outbox.send(Lane::Speculative, EventKind::Notice { message });
        }
        self.reported_idle = is_idle;
        is_auto && !is_idle
    }

    /// Restarts the policy when drafter or rule have changed: the learned acceptance no longer applies.
    fn notice_change(&mut self, settings: &Settings) {
        let current = (settings.drafter, settings.drafting, settings.rule);
        if self.learned_from.is_some_and(|before| before != current)
            && let Some(costs) = &self.costs
        {
            self.policy = Some(Policy::new(costs.clone(), settings.draft_len.into()));
        }
        self.learned_from = Some(current);
    }

    /// Passes what a round showed on to the policy.
    pub(super) fn on_event(&mut self, lane: Lane, kind: &EventKind) {
        let is_cold = self.is_cold;
        if let (Lane::Speculative, EventKind::Committed(Committed { clock_us, .. })) = (lane, kind) {
            self.is_cold = false;
            if is_cold || !self.active {
                self.clock_us = *clock_us;
            }
        }
        let Some(policy) = self.policy.as_mut() else {
            return;
        };
        match (lane, kind) {
            (_, EventKind::Scored(_) | EventKind::Committed(_)) if is_cold => {}
            // a pass costs the same on every lane
            (_, EventKind::Scored(Scored { rows, verify_us, .. })) if lane != Lane::Speculative || !self.active => {
                policy.verified(rows.len(), *verify_us as f64);
            }
            (Lane::Plain | Lane::Rival, _) => {}
            _ if !self.active => {}
            (_, EventKind::Committed(Committed { clock_us, .. })) => {
                self.observation.round_us = clock_us.saturating_sub(self.clock_us) as f64;
                self.clock_us = *clock_us;
                policy.observe(&self.observation);
            }
            _ => self.observation.on_event(kind),
        }
    }
}

/// Whether remembered costs still fit this machine. Only the ratios T(m) ÷ T(1) are compared, since k depends on these
/// alone. If the model is too slow for a short check, they are accepted unchecked.
fn are_still_valid(decoder: &mut Decoder, costs: &Costs) -> bool {
    // the check takes a warm-up and one turn over all widths
    if 2.0 * costs.verify_us.iter().sum::<f64>() > CHECK.as_micros() as f64 {
        return true;
    }
    let Ok(MeasuredCosts { costs: now, .. }) = decoder.measure_costs(CHECK) else {
        return false;
    };
    let curves = |costs: &Costs| costs.verify_us.iter().map(|us| us / costs.verify_us[0]).collect::<Vec<_>>();
    let mut pairs = curves(costs).into_iter().zip(curves(&now)).take(CHECKED_ROWS);
    now.is_usable() && pairs.all(|(then, now)| (1.0 / CHANGED..CHANGED).contains(&(now / then)))
}
