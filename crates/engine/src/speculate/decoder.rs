//! The algorithm: draft k tokens, run the target once over anchor and drafts, verify, commit, roll both caches back.
//!
//! Invariant between rounds: the target's cache contains `committed - 1` positions (the anchor is not in it), and the
//! drafter has observed all committed tokens except the first. A drafter that fails or proposes nonsense reduces the
//! speed and never changes the text. The caller decides where an answer ends.

mod calibrate;
mod constrain;
mod drafting;
mod fork;
mod hidden_states;
mod measured_costs;
mod notices;
mod prefill;
mod probe;

use std::time::Duration;

use super::SpecError;
use super::drafter::{Drafter, NoDrafter, OwnToken};
use super::report::{Stopwatch, bare, drafted, micros, prediction};
use super::sampler::Sampler;
use crate::grammar::Constraint;
use draftscope_model::{Forward, LogitRows, Model};
use draftscope_protocol::policy::DraftStopRule;
use draftscope_protocol::random::SeededDraws;
use draftscope_protocol::verify::{Draft, OfRound, RoundCtx, verifier};
use draftscope_protocol::{
    Committed, DeviceWork, DrafterKind, EventKind, MAX_DRAFT_LEN, RoundOnDevice, RoundStarted, Sampling, Scored,
    Settings, TokenId, Verification, VerifyRule,
};

pub use measured_costs::{MeasuredCosts, TIMED_ROWS, TIMING};

/// Receives each event. Returns the time for which it paused the round, which no clock counts.
pub type Emit<'a> = dyn FnMut(EventKind) -> Duration + 'a;

/// Target, drafter and rule, and what they have committed.
pub struct Decoder {
    target: Box<dyn Model>,
    drafter: Box<dyn Drafter>,
    settings: Settings,
    /// [`Settings::shapes_drafts`] of the settings as requested. The settings in force lack a tree that the target does
    /// not support, but a replay that judges a round again knows only the requested ones.
    shapes_drafts: bool,
    sampler: Sampler,
    draws: SeededDraws,
    committed: Vec<TokenId>,
    round: u32,
    clock: Duration,
    /// Messages to the user, sent when the next round begins.
    notices: Vec<String>,
    /// Drafts of the next round that replace the drafter's.
    proposal: Option<Vec<TokenId>>,
    /// Ends drafts before k.
    stop_rule: Option<DraftStopRule>,
    /// Whether a notice in this turn has said that the context has no room for k drafts.
    reported_short: bool,
    /// Whether a notice has said that this target cannot verify trees.
    reported_no_trees: bool,
    /// What the answer must match.
    grammar: Option<Constraint>,
    /// Index in `committed` at which the answer begins, which the grammar follows.
    answer_from: usize,
    /// Whether the grammar has no way to go on after the last round.
    is_dead_end: bool,
}

impl Decoder {
    /// A decoder with nothing committed. The target's cache must be empty.
    #[must_use]
    pub fn new(target: Box<dyn Model>, drafter: Box<dyn Drafter>, settings: &Settings) -> Self {
        let mut decoder = Self {
            target,
            drafter,
            settings: *settings,
            shapes_drafts: settings.shapes_drafts(),
            sampler: Sampler { sampling: settings.sampling },
            draws: SeededDraws::new(settings.sampling.seed),
            committed: Vec::new(),
            round: 0,
            clock: Duration::ZERO,
            notices: Vec::new(),
            proposal: None,
            stop_rule: None,
            reported_short: false,
            reported_no_trees: false,
            grammar: None,
            answer_from: 0,
            is_dead_end: false,
        };
        decoder.configure(None);
        decoder
    }

    /// Changes the settings, from the next round on.
    pub fn set(&mut self, settings: &Settings) {
        let before = std::mem::replace(&mut self.settings, *settings);
        self.shapes_drafts = settings.shapes_drafts();
        if before.sampling.seed != settings.sampling.seed {
            self.draws = self.draws.seeded(settings.sampling.seed);
        }
        self.sampler.sampling = settings.sampling;
        self.configure(Some(&before));
    }

    /// Changes k, from the next round on.
    pub fn set_draft_len(&mut self, draft_len: u8) {
        self.settings.draft_len = draft_len;
    }

    /// Sets the rule that ends drafts where another token would not pay off, from the next round on. None ends them at
    /// k.
    pub fn set_stop_rule(&mut self, stop_rule: Option<DraftStopRule>) {
        self.stop_rule = stop_rule;
    }

    /// Whether passes run on all threads that were loaded: only then are their times those of the loaded model.
    pub(crate) fn has_all_threads(&self) -> bool {
        self.settings.threads == 0
    }

    /// Whether drafts are trees: requested, and supported by the target.
    #[must_use]
    pub fn drafts_trees(&self) -> bool {
        self.settings.drafting.tree.is_some()
    }

    /// The part of the requested drafter that is loaded.
    pub(crate) fn usable_drafter(&self) -> DrafterKind {
        self.drafter.usable(self.settings.drafter)
    }

    /// Gives the drafter tokens from another source: a person's draft, or all committed tokens followed by the rest of
    /// the plain answer.
    pub fn offer(&mut self, tokens: &[TokenId]) {
        self.drafter.offer(tokens);
    }

    /// Whether [`Decoder::propose`] has set the next round's drafts.
    #[must_use]
    pub fn has_proposal(&self) -> bool {
        self.proposal.is_some()
    }

    /// Sets the drafts of the next round, in place of the drafter's.
    pub fn propose(&mut self, drafts: Vec<TokenId>) {
        self.proposal = Some(drafts);
    }

    /// The target.
    #[must_use]
    pub fn target(&self) -> &dyn Model {
        self.target.as_ref()
    }

    /// Prompt and answer, the anchor last.
    #[must_use]
    pub fn committed(&self) -> &[TokenId] {
        &self.committed
    }

    /// Measured time of the rounds since the last prefill, without pauses.
    #[must_use]
    pub fn clock(&self) -> Duration {
        self.clock
    }

    /// Whether the cache has room for one more round, at least a plain one.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.target.len() < self.target.spec().ctx_len
    }

    /// Drafts for which the cache has room, next to the anchor.
    fn room(&self) -> usize {
        self.target.spec().ctx_len.saturating_sub(self.target.len() + 1)
    }

    /// Runs one round and returns the committed tokens. Plain decoding is a round with k = 0.
    ///
    /// # Errors
    /// When the target fails; nothing is committed then.
    pub fn round(&mut self, emit: &mut Emit<'_>) -> Result<Vec<TokenId>, SpecError> {
        let mut watch = Stopwatch::start();
        self.round += 1;
        let round = self.round;
        let base = self.target.checkpoint()?; // base.len = committed - 1: the anchor is not cached yet
        let room = self.room();
        let is_probe = self.settings.probe_depth > 0;
        let proposal = self.proposal.take();
        let wanted = proposal.as_ref().map_or(usize::from(self.settings.draft_len), Vec::len);
        let draft_len = if is_probe { 0 } else { wanted.min(MAX_DRAFT_LEN.into()).min(room) };
        self.note_short_context(wanted, room);
        self.emit_notices(&mut watch, emit);
        watch.exclude(emit(EventKind::RoundStarted(RoundStarted {
            round,
            base_len: base.len as u32,
            draft_len: draft_len as u8,
        })));

        let started = self.device_work();
        self.probe(room, &mut watch, emit);
        let drafts = match proposal {
            Some(tokens) => {
                let allowed = self.allowed(&tokens[..draft_len]);
                drafts_of(round, &tokens[..allowed], &mut watch, emit)
            }
            None => self.draft(draft_len, room, &mut watch, emit),
        };
        let mut input = vec![self.committed[base.len]];
        input.extend(drafts.iter().map(|d| d.token)); // m = k + 1

        watch.lap();
        let drafted = self.device_work();
        let out = self.run_target(&input, &drafts)?;
        let verify_us = watch.lap();
        let (target, masked) = self.distributions(&drafts, &out, base.len)?;
        let rows = target.iter().map(prediction).collect();
        let sample_us = watch.lap();
        if let Some(kind) = self.masked_event(masked) {
            watch.exclude(emit(kind));
        }
        watch.exclude(emit(EventKind::Scored(Scored { round, rows, verify_us, sample_us })));

        let mut verdict = verifier(self.settings.rule).verify(&self.round_ctx(draft_len), &drafts, &target);
        let vocab = self.target.spec().info.vocab as usize;
        let own = OwnToken { token: verdict.next, text: &self.committed, vocab };
        verdict.next_in_draft_vocab = self.drafter.has_token(own);
        let kept = kept_rows(&verdict); // anchor + accepted drafts stay
        let mut committed: Vec<TokenId> = kept[1..].iter().map(|row| input[*row]).collect();
        committed.push(verdict.next);
        self.note_dead_end(&drafts, kept.last().copied().unwrap_or_default());
        watch.exclude(emit(EventKind::Verified { round, verdict }));

        watch.lap();
        if is_tree(&drafts) {
            self.target.retain(base.len, &kept)?;
        } else {
            self.target.truncate(base.len + kept.len(), &base)?;
        }
        self.learn(&committed, &out, &kept);
        self.committed.extend_from_slice(&committed);
        let rollback_us = watch.lap();
        self.emit_notices(&mut watch, emit);
        self.clock += watch.total();
        let device = on_device([started, drafted, self.device_work()]);
        let tokens = committed.iter().map(|id| bare(*id)).collect();
        emit(EventKind::Committed(Committed { round, tokens, rollback_us, clock_us: micros(self.clock), device }));
        Ok(committed)
    }

    fn round_ctx(&self, draft_len: usize) -> RoundCtx<'_> {
        round_ctx(&self.settings, self.shapes_drafts, &self.draws, (self.committed.len(), draft_len))
    }

    /// What target and drafter did on a device so far.
    fn device_work(&self) -> Option<DeviceWork> {
        let own = self.target.device_work();
        own.into_iter().chain(self.drafter.device_work()).reduce(DeviceWork::and)
    }

    /// The logits that judging reads.
    fn logit_rows(&self) -> LogitRows {
        let is_greedy = self.judging_sampler().sampling.is_greedy();
        if is_greedy && self.grammar.is_none() { LogitRows::Best } else { LogitRows::All }
    }

    /// Runs the one pass over anchor and drafts.
    fn run_target(&mut self, input: &[TokenId], drafts: &[Draft]) -> Result<Forward, SpecError> {
        if !is_tree(drafts) {
            return Ok(self.target.forward(input, self.logit_rows())?);
        }
        let rows = drafts.iter().enumerate().map(|(index, draft)| draft.row_at(index));
        let parents: Vec<usize> = std::iter::once(0).chain(rows).collect();
        Ok(self.target.forward_tree(input, &parents, self.logit_rows())?)
    }

    /// Shows the drafter the committed tokens; `kept` lists the rows that predicted them.
    fn learn(&mut self, committed: &[TokenId], out: &Forward, kept: &[usize]) {
        let is_prefix = kept.iter().enumerate().all(|(i, row)| i == *row);
        let observed = if is_prefix {
            self.drafter.observe(committed, &out.hidden)
        } else {
            self.drafter.observe(committed, &out.hidden.select(kept))
        };
        if let Err(error) = observed {
            self.dismiss(&error);
        }
        self.collect_notices();
    }

    /// The sampler for judging. `typical` needs all of p for its entropy, and greedy decoding lists only the best
    /// tokens.
    fn judging_sampler(&self) -> Sampler {
        if self.settings.rule == VerifyRule::Typical && self.sampler.sampling.is_greedy() {
            return Sampler { sampling: Sampling { temperature: 1.0, ..Sampling::default() } };
        }
        self.sampler
    }
}

/// What a round did on a device, from the counts at its start, after its drafts, and at its end.
fn on_device(counts: [Option<DeviceWork>; 3]) -> Option<RoundOnDevice> {
    let [started, drafted, ended] = counts.map(Option::unwrap_or_default);
    counts[2]?;
    Some(RoundOnDevice { draft: drafted.since(started), verify: ended.since(drafted) })
}

fn round_ctx<'a>(
    settings: &Settings,
    shapes_drafts: bool,
    draws: &'a SeededDraws,
    (position, draft_len): (usize, usize),
) -> RoundCtx<'a> {
    let is_fresh = settings.rule == VerifyRule::Block || shapes_drafts;
    RoundCtx {
        position,
        draft_len,
        greedy: settings.sampling.is_greedy(),
        fresh: is_fresh.then_some(OfRound { start: position, first: 0 }),
        leniency: settings.leniency,
        draws,
    }
}

/// The drafts of [`Decoder::propose`].
fn drafts_of(round: u32, tokens: &[TokenId], watch: &mut Stopwatch, emit: &mut Emit<'_>) -> Vec<Draft> {
    let drafts: Vec<Draft> = tokens.iter().map(|token| Draft::certain(*token)).collect();
    for (index, draft) in drafts.iter().enumerate() {
        watch.exclude(emit(drafted(round, index, draft, 0)));
    }
    drafts
}

fn is_tree(drafts: &[Draft]) -> bool {
    drafts.iter().any(|draft| draft.row.is_some())
}

/// Rows of the pass that stay in the cache: the anchor's and the accepted drafts'.
fn kept_rows(verdict: &Verification) -> Vec<usize> {
    std::iter::once(0).chain(verdict.path().map(|index| index + 1)).collect()
}
