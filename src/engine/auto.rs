//! The draft length that the engine chooses itself: measures, listens, tells what it changed and why.
//!
//! Which k is best is [`Policy`]'s to decide; what it must know comes from the very events that everyone
//! else sees. Invariant: without a usable measurement nothing is chosen and k stays as it was set.

use std::sync::Arc;
use std::time::Duration;

use crate::protocol::{Costs, DraftLenMode, DrafterKind, Drafting, EventKind, Header, Lane, Settings, VerifyRule};
use crate::speculate::decoder::{Decoder, MeasuredCosts, TIMED_ROWS, TIMING};
use crate::speculate::policy::{Choice, Observation, Policy};

use super::control::Control;
use super::outbox::Outbox;
use super::{CostKey, CostMemory};

/// Time that checking remembered costs may take.
const CHECK: Duration = Duration::from_millis(200);

/// Rows up to which a check compares.
const CHECKED_ROWS: usize = 5;

/// Remembered costs hold while no width, relative to one row, is off by more than this factor.
const CHANGED: f64 = 1.1;

/// Chooses k for a run.
pub(super) struct Auto {
    memory: Arc<dyn CostMemory>,
    key: CostKey,
    policy: Option<Policy>,
    costs: Option<Costs>,
    /// The context had no room to time all widths: another answer may have.
    is_narrow: bool,
    /// Drafter and rule that the policy has seen.
    learnt_of: Option<(DrafterKind, Drafting, VerifyRule)>,
    /// Whether the engine chooses k at present.
    active: bool,
    /// Whether it has been told why the engine does not.
    told_idle: bool,
    unreported: Option<EventKind>,
    seen: Observation,
    clock_us: u64,
}

impl Auto {
    pub(super) fn new(memory: Arc<dyn CostMemory>, header: &Header) -> Self {
        Self {
            memory,
            key: CostKey::of(header),
            policy: None,
            costs: None,
            is_narrow: false,
            learnt_of: None,
            active: false,
            told_idle: false,
            unreported: None,
            seen: Observation::default(),
            clock_us: 0,
        }
    }

    /// Learns what passes cost, once: from memory, if a short check agrees, or by timing them.
    pub(super) fn prepare(&mut self, decoder: &mut Decoder, from: u8) {
        if self.policy.is_some() {
            return;
        }
        let recalled = self.memory.recall(&self.key).filter(Costs::is_usable);
        // in the middle of a text only passes alone can be timed, which cost less than those of rounds
        let in_rounds = decoder.committed().is_empty();
        let recalled = recalled.filter(|costs| !in_rounds || still_hold(decoder, costs));
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
        if in_rounds && is_steady && costs.is_usable() {
            self.memory.remember(&self.key, &costs);
        }
        costs.is_usable().then_some(costs)
    }

    /// Reports what [`Auto::prepare`] found.
    pub(super) fn report(&mut self, outbox: &mut Outbox) {
        if let Some(kind) = self.unreported.take() {
            outbox.send(Lane::Speculative, kind);
        }
    }

    /// Another answer begins.
    pub(super) fn begin_answer(&mut self) {
        self.clock_us = 0;
        if std::mem::take(&mut self.is_narrow) {
            (self.policy, self.costs) = (None, None);
        }
        if let Some(policy) = &mut self.policy {
            policy.begin_answer();
        }
    }

    /// Takes the k for the next round to the decoder, when the engine is to choose it.
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

    /// A tree's cost does not follow from its depth, and a person is no machine: then k stays, and why is
    /// told once. A tree that the target declines is none (`is_tree`).
    fn may_choose(&mut self, settings: &Settings, is_tree: bool, outbox: &mut Outbox) -> bool {
        let is_auto = settings.draft_len_mode == DraftLenMode::Auto;
        let is_idle = is_auto && (is_tree || settings.drafter == DrafterKind::Human);
        if is_idle && !self.told_idle {
            let who = if is_tree { "a draft tree" } else { "the drafter human" };
            let message = format!("k = {} stays as it is: with {who} there is no automatic choice", settings.draft_len);
            outbox.send(Lane::Speculative, EventKind::Notice { message });
        }
        self.told_idle = is_idle;
        is_auto && !is_idle
    }

    /// Another drafter or rule: what was learnt of acceptance is of no use any more.
    fn notice_change(&mut self, settings: &Settings) {
        let learnt_of = (settings.drafter, settings.drafting, settings.rule);
        if self.learnt_of.is_some_and(|before| before != learnt_of)
            && let Some(costs) = &self.costs
        {
            self.policy = Some(Policy::new(costs.clone(), settings.draft_len.into()));
        }
        self.learnt_of = Some(learnt_of);
    }

    /// Takes note of what a round showed.
    pub(super) fn on_event(&mut self, lane: Lane, kind: &EventKind) {
        if let (Lane::Speculative, false, EventKind::Committed { clock_us, .. }) = (lane, self.active, kind) {
            self.clock_us = *clock_us;
        }
        let Some(policy) = self.policy.as_mut() else {
            return;
        };
        match (lane, kind) {
            // what a pass costs is the same whoever runs it
            (_, EventKind::Scored { rows, verify_us, .. }) if lane != Lane::Speculative || !self.active => {
                policy.verified(rows.len(), *verify_us as f64);
            }
            (Lane::Plain | Lane::Rival, _) => {}
            _ if !self.active => {}
            (_, EventKind::Committed { clock_us, .. }) => {
                self.seen.round_us = clock_us.saturating_sub(self.clock_us) as f64;
                self.clock_us = *clock_us;
                policy.observe(&self.seen);
            }
            _ => self.seen.on_event(kind),
        }
    }
}

/// Whether passes cost what is remembered, as far as choosing k goes: the ratios count, not the speed.
/// A model too slow for a short check is believed.
fn still_hold(decoder: &mut Decoder, costs: &Costs) -> bool {
    // a warm-up and a turn over all widths
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
