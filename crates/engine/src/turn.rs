//! One turn: the speculative lane and, if requested, a plain lane and a rival lane beside it, on one device.
//!
//! Fairness: each lane has its own clock of measured time, and the lane with the lowest clock runs next. So all lanes
//! advance at their true relative speed; a plain lane that only probes gets less, spread over the whole turn. Only this
//! file decides where an answer ends.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use crate::speculate::SpecError;
use crate::speculate::decoder::Decoder;
use draftscope_model::text::tokenizer::TextCodec;
use draftscope_protocol::{
    Baseline, Committed, Drafted, DrafterKind, EventKind, Lane, Prefilled, Settings, StopReason, TokenId,
};

use super::auto::Auto;
use super::control::Control;
use super::outbox::Outbox;
use super::replayed::Replayed;

/// The decoder of a lane: the run's own, or a fork for one answer.
pub(super) enum LaneDecoder<'a> {
    Own(&'a mut Decoder),
    Forked(Box<Decoder>),
}

impl Deref for LaneDecoder<'_> {
    type Target = Decoder;

    fn deref(&self) -> &Decoder {
        match self {
            Self::Own(decoder) => decoder,
            Self::Forked(decoder) => decoder,
        }
    }
}

impl DerefMut for LaneDecoder<'_> {
    fn deref_mut(&mut self) -> &mut Decoder {
        match self {
            Self::Own(decoder) => decoder,
            Self::Forked(decoder) => decoder,
        }
    }
}

/// A decoder at work on an answer.
pub(super) struct Runner<'a> {
    pub(super) lane: Lane,
    pub(super) decoder: LaneDecoder<'a>,
    pub(super) output: u32,
    pub(super) limit: u32,
    /// Tokens that the decoder committed in the last round after the end of the answer.
    cut: usize,
    pub(super) finished: Option<StopReason>,
    /// The lane's clock with every round counted as often as the baseline then said.
    weighted: Duration,
    /// The plain answer, if a drafter that replays it was in use.
    pub(super) replayed: Option<Replayed>,
}

/// A prompt to answer.
pub(super) struct Task {
    pub(super) prompt: Vec<TokenId>,
    /// How many tokens of the prompt, the last ones, are the beginning of its answer.
    pub(super) kept: usize,
    /// The first token of the answer, if a round is repeated; none samples it from the prompt's last row.
    pub(super) anchor: Option<TokenId>,
    /// The drafts of the first round; none asks the drafter.
    pub(super) drafts: Option<Vec<TokenId>>,
}

/// One turn, and the parts of the engine that it uses.
pub(super) struct Turn<'a> {
    pub(super) number: u32,
    pub(super) codec: &'a TextCodec,
    pub(super) auto: &'a mut Auto,
    pub(super) control: &'a mut Control,
    pub(super) outbox: &'a mut Outbox,
}

impl Turn<'_> {
    /// Answers a prompt on all lanes. A prompt that cannot be processed is refused, and the run continues.
    pub(super) fn run(&mut self, decoder: &mut Decoder, task: &Task) -> Result<(), SpecError> {
        let settings = self.control.settings();
        decoder.set(&settings);
        let (control, outbox) = (&mut *self.control, &mut *self.outbox);
        let mut go_on = || !control.is_stopped_now(outbox);
        let prefilled = match decoder.prefill_from(self.number, (&task.prompt, task.kept), task.anchor, &mut go_on) {
            Ok(prefilled) => prefilled,
            Err(SpecError::Stopped) => {
                self.outbox.send(Lane::Speculative, EventKind::Finished { reason: StopReason::Stopped });
                return Ok(());
            }
            Err(error) => {
                refuse(self.outbox, &error);
                return Ok(());
            }
        };
        self.auto.begin_answer();
        let beside = self.beside(decoder, task, &prefilled);
        let mut firsts = vec![prefilled.first.id];
        self.outbox.send(Lane::Speculative, EventKind::Prefilled(prefilled));
        if let Some(drafts) = &task.drafts {
            decoder.propose(drafts.clone());
        }
        let mut lanes = vec![Runner::new(Lane::Speculative, LaneDecoder::Own(decoder), settings.max_tokens)];
        for (lane, decoder, begun) in beside {
            firsts.push(begun.first.id);
            self.outbox.send(lane, EventKind::Prefilled(begun));
            lanes.push(Runner::new(lane, LaneDecoder::Forked(Box::new(decoder)), limit(lane, &settings)));
        }
        for (lane, first) in lanes.iter_mut().zip(firsts) {
            self.commit(lane, &[first], settings.max_tokens);
            self.help_drafter(lane, &settings)?;
        }
        self.race(&mut lanes, settings)?;
        self.control.end_answer();
        Ok(())
    }

    /// The lanes requested beside the speculative one, each with what begins its answer. A lane that gets
    /// no memory for a copy of the cache is left out, with a notice.
    fn beside(&mut self, decoder: &Decoder, task: &Task, prefilled: &Prefilled) -> Vec<(Lane, Decoder, Prefilled)> {
        let settings = self.control.settings();
        let mut lanes = Vec::new();
        if settings.baseline != Baseline::Off {
            let is_copied = settings.drafter == DrafterKind::Human; // a person may copy what the plain lane writes
            let plain = if is_copied { decoder.fork_independent() } else { decoder.fork_plain() };
            lanes.push((Lane::Plain, plain.map(|plain| (plain, as_copy(prefilled.clone())))));
        }
        if settings.rival.is_some() {
            lanes.push((Lane::Rival, self.rival(decoder, task, prefilled)));
        }
        let mut able = Vec::new();
        for (lane, made) in lanes {
            match made {
                Ok((decoder, begun)) => able.push((lane, decoder, begun)),
                Err(error) => {
                    let message = format!("the {} lane does not run beside this answer: {error}", lane.name());
                    self.outbox.send(Lane::Speculative, EventKind::Notice { message });
                }
            }
        }
        able
    }

    /// A fork with the rival's settings. If these sample differently, the prompt's last row is computed again to pick
    /// the first token, on no lane's clock.
    fn rival(&self, decoder: &Decoder, task: &Task, prefilled: &Prefilled) -> Result<(Decoder, Prefilled), SpecError> {
        let run = self.control.settings();
        let settings = run.of_lane(Lane::Rival);
        let mut rival = decoder.fork(&settings)?;
        let begun = if task.anchor.is_none() && settings.sampling != run.sampling {
            rival.prefill_from(self.number, (&task.prompt, task.kept), None, &mut || true)?
        } else {
            as_copy(prefilled.clone())
        };
        Ok((rival, begun))
    }

    fn race(&mut self, lanes: &mut Vec<Runner<'_>>, mut settings: Settings) -> Result<(), SpecError> {
        loop {
            // dropping a finished lane frees its copy of the cache
            lanes.retain(|lane| lane.lane == Lane::Speculative || lane.finished.is_none());
            if self.control.is_stopped() {
                lanes.iter_mut().for_each(|lane| self.finish(lane, StopReason::Stopped));
            }
            if let Some(changed) = self.control.take_settings() {
                settings = changed;
                self.outbox.send(Lane::Speculative, EventKind::SettingsChanged { settings });
                self.adopt(lanes, &settings)?;
            }
            // a sampled plain lane ends when the lane it is compared with has finished
            let probing = matches!(settings.baseline, Baseline::Probe(_));
            if probing && lanes[0].finished.is_some() {
                let plain = lanes.iter_mut().filter(|lane| lane.lane == Lane::Plain);
                plain.for_each(|lane| self.finish(lane, StopReason::Measured));
            }
            let is_own_done = lanes[0].finished.is_some();
            let waiting = lanes.iter_mut().filter(|lane| lane.finished.is_none());
            match waiting.min_by_key(|lane| lane.due(settings.baseline)) {
                Some(lane) => {
                    if lane.lane == Lane::Speculative
                        && settings.drafter == DrafterKind::Human
                        && !self.ask(lane, &settings)?
                    {
                        continue; // stopped, or the settings changed
                    }
                    self.round(lane, is_own_done, &settings)?;
                }
                None => return Ok(()),
            }
        }
    }

    /// Applies changed settings to the lanes that still run. Ends a rival that was switched off, and a lane that has
    /// already reached its new limit.
    fn adopt(&mut self, lanes: &mut [Runner<'_>], settings: &Settings) -> Result<(), SpecError> {
        if settings.rival.is_none() {
            let rival = lanes.iter_mut().filter(|lane| lane.lane == Lane::Rival);
            rival.for_each(|lane| self.finish(lane, StopReason::Measured));
        }
        for lane in lanes.iter_mut().filter(|lane| lane.finished.is_none()) {
            lane.set(settings);
            if lane.output >= lane.limit {
                // another pass would cost time and commit nothing
                let is_whole = lane.output >= settings.max_tokens;
                self.finish(lane, if is_whole { StopReason::MaxTokens } else { StopReason::Measured });
                continue;
            }
            self.help_drafter(lane, settings)?;
        }
        Ok(())
    }

    /// Asks the person for the round's draft. False when the answer was stopped or the settings changed meanwhile.
    fn ask(&mut self, lane: &mut Runner<'_>, settings: &Settings) -> Result<bool, SpecError> {
        if settings.draft_len == 0 || lane.decoder.has_proposal() {
            return Ok(true);
        }
        self.outbox.send(Lane::Speculative, EventKind::DraftAsked { draft_len: settings.draft_len });
        let Some(text) = self.control.wait_for_draft(self.outbox) else {
            return Ok(false);
        };
        let tokens = if text.is_empty() { Vec::new() } else { self.codec.encode(&text)? };
        lane.decoder.offer(&tokens);
        Ok(true)
    }

    /// One round of a lane; steps are the run's own lane's until that is done.
    pub(super) fn round(
        &mut self,
        lane: &mut Runner<'_>,
        is_own_done: bool,
        settings: &Settings,
    ) -> Result<(), SpecError> {
        let (max_tokens, before) = (settings.max_tokens, lane.decoder.clock());
        if !lane.decoder.has_room() {
            self.finish(lane, StopReason::ContextFull);
            return Ok(());
        }
        let name = lane.lane;
        if name == Lane::Speculative {
            self.auto.choose(&mut lane.decoder, self.control, self.outbox);
        }
        let leads = is_own_done || name == Lane::Speculative;
        let left = lane.limit.min(max_tokens).saturating_sub(lane.output);
        let (codec, auto) = (self.codec, &mut *self.auto);
        let (control, outbox) = (&mut *self.control, &mut *self.outbox);
        let committed = lane.decoder.round(&mut |mut kind| {
            let (pause_here, end) = match &mut kind {
                EventKind::Committed(Committed { tokens, .. }) => {
                    tokens.truncate(kept(codec, tokens.iter().map(|t| t.id), left));
                    (true, true)
                }
                // drafts of one pass appear together
                EventKind::Drafted(Drafted { more: true, .. })
                | EventKind::RoundStarted(_)
                | EventKind::Lattice(_)
                | EventKind::Alternatives(_)
                | EventKind::DraftRefused(_)
                | EventKind::Masked(_)
                | EventKind::Notice { .. } => (false, false),
                _ => (true, false),
            };
            auto.on_event(name, &kind);
            outbox.send(name, kind);
            let waited = if pause_here { control.between_phases(leads, end, outbox) } else { Duration::ZERO };
            if !waited.is_zero() {
                auto.note_wait();
            }
            waited
        })?;
        lane.weighted += (lane.decoder.clock() - before) * settings.baseline.weight(lane.output);
        self.commit(lane, &committed, max_tokens);
        Ok(())
    }

    /// Applies the stop rules to newly committed tokens.
    pub(super) fn commit(&mut self, lane: &mut Runner<'_>, tokens: &[TokenId], max_tokens: u32) {
        let limit = lane.limit.min(max_tokens);
        let kept = kept(self.codec, tokens.iter().copied(), limit.saturating_sub(lane.output));
        lane.output += kept as u32;
        lane.cut = tokens.len() - kept;
        if tokens[..kept].last().is_some_and(|token| self.codec.is_end(*token)) {
            self.finish(lane, StopReason::Eos);
        } else if lane.output >= max_tokens {
            self.finish(lane, StopReason::MaxTokens);
        } else if lane.output >= limit {
            self.finish(lane, StopReason::Measured);
        }
    }

    pub(super) fn finish(&mut self, lane: &mut Runner<'_>, reason: StopReason) {
        if lane.finished.is_none() {
            lane.finished = Some(reason);
            if let Some(message) = lane.missed_grammar(reason) {
                self.outbox.send(lane.lane, EventKind::Notice { message });
            }
            self.outbox.send(lane.lane, EventKind::Finished { reason });
        }
    }
}

impl<'a> Runner<'a> {
    /// The lane with the least of this runs next.
    fn due(&self, baseline: Baseline) -> Duration {
        match (self.lane, baseline) {
            (Lane::Plain, Baseline::Probe(_)) => self.weighted,
            _ => self.decoder.clock(),
        }
    }

    pub(super) fn new(lane: Lane, decoder: LaneDecoder<'a>, limit: u32) -> Self {
        Self { lane, decoder, output: 0, limit, cut: 0, finished: None, weighted: Duration::ZERO, replayed: None }
    }

    /// A sentence if the answer ended before it was all that the grammar asks for.
    fn missed_grammar(&mut self, reason: StopReason) -> Option<String> {
        let noun = self.decoder.grammar().filter(|_| self.lane == Lane::Speculative)?.noun();
        let why = match reason {
            StopReason::MaxTokens => format!("{} tokens are not enough; allow more with --max-tokens", self.output),
            StopReason::ContextFull => {
                let len = self.decoder.target().spec().ctx_len;
                format!("the context of {len} tokens is full; allow more with --ctx")
            }
            _ => return None,
        };
        let is_complete = self.decoder.is_complete(self.cut);
        (!is_complete).then(|| format!("the answer is not all that its {noun} asks for: {why}"))
    }

    /// Applies the settings of this lane: the plain lane stays plain for every k.
    fn set(&mut self, settings: &Settings) {
        self.limit = limit(self.lane, settings);
        self.decoder.set(&settings.of_lane(self.lane));
    }
}

/// Reports that a prompt cannot be answered. The run continues.
pub(super) fn refuse(outbox: &mut Outbox, error: &SpecError) {
    outbox.send(Lane::Speculative, EventKind::Notice { message: error.to_string() });
    outbox.send(Lane::Speculative, EventKind::Finished { reason: StopReason::Refused });
}

/// How many of these tokens belong to the answer: up to the end token, and no more than `left`.
fn kept(codec: &TextCodec, tokens: impl Iterator<Item = TokenId>, left: u32) -> usize {
    let mut kept = 0;
    for token in tokens.take(left as usize) {
        kept += 1;
        if codec.is_end(token) {
            break;
        }
    }
    kept
}

/// Most tokens that a lane may output.
fn limit(lane: Lane, settings: &Settings) -> u32 {
    match (lane, settings.baseline) {
        (Lane::Plain, Baseline::Off) => 0,
        _ => settings.max_tokens,
    }
}

/// The beginning of a forked lane: it starts from a copy of the caches, so its prefill takes no time.
pub(super) fn as_copy(prefilled: Prefilled) -> Prefilled {
    Prefilled { cached: prefilled.prompt.len() as u32, took_us: 0, ..prefilled }
}
