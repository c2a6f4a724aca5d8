//! The whole algorithm on one screen: draft k, run the target once over anchor + drafts, verify,
//! commit, roll both caches back.
//!
//! Invariant between rounds: the target's cache holds `committed - 1` positions (the anchor is not
//! in it), and the drafter has observed all committed tokens but the first. A drafter that fails or
//! proposes nonsense costs speed, never text. Stop rules (end of answer, max tokens) are the caller's.

use std::time::{Duration, Instant};

use super::SpecError;
use super::distribution::Distribution;
use super::drafter::{Drafter, NoDrafter};
use super::draws::{Draws, Purpose, SeededDraws};
use super::sampler::{LogitRow, Sampler};
use super::verify::{Draft, RoundCtx, verifier};
use crate::model::{Forward, LogitRows, Model};
use crate::protocol::{Candidate, EventKind, Piece, Prediction, Settings, TokenId, VerifyRule};

/// Candidates that an event carries per position; the rest is its tail.
pub const TOP_N: usize = 8;

/// Hears what happens. The answer is the time it held the round on purpose (a pause), which no
/// clock counts.
pub type Emit<'a> = dyn FnMut(EventKind) -> Duration + 'a;

/// Target, drafter and rule, and what they have committed.
pub struct Decoder {
    target: Box<dyn Model>,
    drafter: Box<dyn Drafter>,
    rule: VerifyRule,
    sampler: Sampler,
    draws: SeededDraws,
    draft_len: usize,
    committed: Vec<TokenId>,
    round: u32,
    clock: Duration,
}

impl Decoder {
    /// A decoder with nothing committed. The target's cache must be empty.
    #[must_use]
    pub fn new(target: Box<dyn Model>, drafter: Box<dyn Drafter>, settings: &Settings) -> Self {
        Self {
            target,
            drafter,
            rule: settings.rule,
            sampler: Sampler { sampling: settings.sampling },
            draws: SeededDraws::new(settings.sampling.seed),
            draft_len: settings.draft_len.into(),
            committed: Vec::new(),
            round: 0,
            clock: Duration::ZERO,
        }
    }

    /// Takes new settings; in force from the next round on.
    pub fn set(&mut self, settings: &Settings) {
        self.rule = settings.rule;
        if self.sampler.sampling.seed != settings.sampling.seed {
            self.draws = SeededDraws::new(settings.sampling.seed);
        }
        self.sampler.sampling = settings.sampling;
        self.draft_len = settings.draft_len.into();
    }

    /// A plain decoder (k = 0) at the same place: same weights, same committed tokens, own cache.
    ///
    /// # Errors
    /// When the cache cannot be copied.
    pub fn fork_plain(&self) -> Result<Self, SpecError> {
        Ok(Self {
            target: self.target.fork()?,
            drafter: Box::new(NoDrafter),
            rule: self.rule,
            sampler: self.sampler,
            draws: self.draws.clone(),
            draft_len: 0,
            committed: self.committed.clone(),
            round: 0,
            clock: Duration::ZERO,
        })
    }

    /// The target.
    #[must_use]
    pub fn target(&self) -> &dyn Model {
        self.target.as_ref()
    }

    /// Measured time of the rounds since the last prefill, pauses not counted.
    #[must_use]
    pub fn clock(&self) -> Duration {
        self.clock
    }

    /// Whether the cache has room for one more round, be it a plain one.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.target.len() < self.target.spec().ctx_len
    }

    /// Reads a prompt, keeping what is cached of it, and commits the first token of the answer.
    ///
    /// # Errors
    /// [`SpecError::EmptyPrompt`], or what the models report.
    pub fn prefill(&mut self, turn: u32, prompt: &[TokenId]) -> Result<EventKind, SpecError> {
        if prompt.is_empty() {
            return Err(SpecError::EmptyPrompt);
        }
        let started = Instant::now();
        let cached = self.rewind_to(prompt)?;
        self.committed.truncate(cached);
        let out = self.target.forward(&prompt[cached..], LogitRows::Last)?;
        let p = self.sampler.distribution(&LogitRow::of(&out, 0, None), None, prompt.len() - 1)?;
        let first = self.pick(&p, prompt.len());
        self.committed.clear();
        self.committed.extend_from_slice(prompt);
        self.committed.push(first);
        // hidden row i stands at position cached + i and predicted the token behind it
        let learnt = self.drafter.observe(&self.committed[cached + 1..], &out.hidden);
        if learnt.and_then(|()| self.drafter.settle()).is_err() {
            self.drafter = Box::new(NoDrafter);
        }
        self.clock = Duration::ZERO;
        Ok(EventKind::Prefilled {
            turn,
            prompt: prompt.iter().map(|id| bare(*id)).collect(),
            cached: cached as u32,
            first: bare(first),
            row: prediction(&p),
            took_us: micros(started.elapsed()),
        })
    }

    /// Cuts both caches back to what the prompt shares with what is committed; at least the
    /// prompt's last token stays to be run.
    fn rewind_to(&mut self, prompt: &[TokenId]) -> Result<usize, SpecError> {
        let shared = self.committed.iter().zip(prompt).take_while(|(a, b)| a == b).count();
        let cached = shared.saturating_sub(1).min(prompt.len() - 1).min(self.target.len());
        let origin = crate::model::Checkpoint { len: 0 };
        self.target.truncate(cached, &origin)?;
        self.drafter.rewind(cached)?;
        Ok(cached)
    }

    fn pick(&self, p: &Distribution, position: usize) -> TokenId {
        if self.sampler.sampling.is_greedy() {
            return p.argmax();
        }
        p.pick(self.draws.uniform(Purpose::Next, position))
    }

    /// One round. Plain decoding is this with k = 0.
    ///
    /// # Errors
    /// When the target fails; the round then did not happen.
    pub fn round(&mut self, emit: &mut Emit<'_>) -> Result<Vec<TokenId>, SpecError> {
        let mut watch = Stopwatch::start();
        self.round += 1;
        let round = self.round;
        let base = self.target.checkpoint()?; // base.len = committed - 1: the anchor is not cached yet
        let draft_len = self.draft_len.min(self.target.spec().ctx_len.saturating_sub(base.len + 1));
        watch.held(emit(EventKind::RoundStarted { round, base_len: base.len as u32, draft_len: draft_len as u8 }));

        let drafts = self.draft(draft_len, &mut watch, emit);
        let mut input = vec![self.committed[base.len]];
        input.extend(drafts.iter().map(|d| d.token)); // m = k + 1

        watch.lap();
        let out = self.target.forward(&input, LogitRows::All)?;
        let verify_us = watch.lap();
        let target = self.distributions(&drafts, &out, base.len)?;
        let rows = target.iter().map(prediction).collect();
        let sample_us = watch.lap();
        watch.held(emit(EventKind::Scored { round, rows, verify_us, sample_us }));

        let verdict = verifier(self.rule).verify(&self.ctx(draft_len), &drafts, &target);
        let keep = 1 + verdict.accepted(); // anchor + accepted drafts stay
        let mut committed = input[1..keep].to_vec();
        committed.push(verdict.next);
        watch.held(emit(EventKind::Verified { round, verdict }));

        watch.lap();
        self.target.truncate(base.len + keep, &base)?;
        self.learn(&committed, &out, emit);
        self.committed.extend_from_slice(&committed);
        let rollback_us = watch.lap();
        self.clock += watch.total();
        let tokens = committed.iter().map(|id| bare(*id)).collect();
        emit(EventKind::Committed { round, tokens, rollback_us, clock_us: micros(self.clock) });
        Ok(committed)
    }

    fn ctx(&self, draft_len: usize) -> RoundCtx<'_> {
        RoundCtx {
            round: self.round,
            position: self.committed.len(),
            draft_len,
            greedy: self.sampler.sampling.is_greedy(),
            draws: &self.draws,
        }
    }

    /// Asks the drafter. One that fails is replaced by nobody, with a notice.
    fn draft(&mut self, draft_len: usize, watch: &mut Stopwatch, emit: &mut Emit<'_>) -> Vec<Draft> {
        let mut drafter = std::mem::replace(&mut self.drafter, Box::new(NoDrafter));
        let (round, vocab) = (self.round, self.target.spec().info.vocab);
        let mut index = 0;
        watch.lap();
        let result = drafter.draft(&self.ctx(draft_len), &self.sampler, &mut |draft| {
            if usize::from(index) < draft_len {
                let took_us = watch.lap();
                watch.held(emit(drafted(round, index, draft, took_us)));
                index += 1;
            }
        });
        match result {
            Ok(mut drafts) => {
                self.drafter = drafter;
                let valid = drafts.iter().take_while(|d| d.token.0 < vocab).count();
                drafts.truncate(valid.min(draft_len));
                drafts
            }
            Err(error) => {
                watch.held(emit(drafter_failed(&error)));
                Vec::new()
            }
        }
    }

    fn learn(&mut self, committed: &[TokenId], out: &Forward, emit: &mut Emit<'_>) {
        if let Err(error) = self.drafter.observe(committed, &out.hidden) {
            self.drafter = Box::new(NoDrafter);
            emit(drafter_failed(&error));
        }
    }

    /// One distribution per row; row i judges draft i, the last yields the bonus.
    fn distributions(&self, drafts: &[Draft], out: &Forward, base: usize) -> Result<Vec<Distribution>, SpecError> {
        let rows = (0..out.logits.len()).map(|i| {
            let judged = drafts.get(i).map(|d| d.token);
            Ok(self.sampler.distribution(&LogitRow::of(out, i, None), judged, base + i)?)
        });
        rows.collect()
    }
}

/// Time of a round, in laps, without what listeners held on purpose.
struct Stopwatch {
    started: Instant,
    mark: Instant,
    held: Duration,
}

impl Stopwatch {
    fn start() -> Self {
        let now = Instant::now();
        Self { started: now, mark: now, held: Duration::ZERO }
    }

    /// Microseconds since the last lap or hold; a new lap begins.
    fn lap(&mut self) -> u64 {
        let now = Instant::now();
        let lap = now - self.mark;
        self.mark = now;
        micros(lap)
    }

    /// Leaves out time that a listener held; a new lap begins.
    fn held(&mut self, held: Duration) {
        self.held += held;
        self.mark = Instant::now();
    }

    fn total(&self) -> Duration {
        self.started.elapsed().saturating_sub(self.held)
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// A piece without bytes: the engine fills them in.
fn bare(id: TokenId) -> Piece {
    Piece::new(id, Vec::new())
}

fn prediction(p: &Distribution) -> Prediction {
    let (top, unlisted) = p.top(TOP_N);
    let top = top.into_iter().map(|(id, prob)| Candidate { piece: bare(id), prob }).collect();
    Prediction { top, tail: unlisted }
}

fn drafted(round: u32, index: u8, draft: &Draft, took_us: u64) -> EventKind {
    let top = draft.q.as_ref().map(prediction).unwrap_or_default();
    EventKind::Drafted {
        round,
        index,
        token: bare(draft.token),
        q: draft.q.as_ref().map(|_| draft.q_prob()),
        top,
        took_us,
    }
}

fn drafter_failed(error: &dyn std::fmt::Display) -> EventKind {
    EventKind::Notice {
        message: format!("the drafter failed and is off from here on, plain decoding goes on: {error}"),
    }
}
