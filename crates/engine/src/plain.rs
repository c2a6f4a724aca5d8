//! Plain decoding of a turn that is over goes on to the end of its answer: a sample compares its beginning only.
//!
//! Invariant: no token is decoded twice and no clock begins anew; the lane goes on from where it ended, and a prompt
//! that comes meanwhile goes before it.

use std::time::Duration;

use crate::speculate::SpecError;
use crate::speculate::decoder::Decoder;
use draftscope_protocol::{Baseline, EventKind, Lane, PlainAnswer, Prefilled, Settings, StopReason, TokenId};

use super::turn::{LaneDecoder, Runner, Turn, as_copy};
use super::worker::check_tokens;

impl Turn<'_> {
    /// Lets the plain lane of a turn go on to its end. One that cannot is reported, and the run goes on.
    ///
    /// # Errors
    /// When the target fails.
    pub(super) fn finish_plain(&mut self, decoder: &Decoder, from: &PlainAnswer) -> Result<(), SpecError> {
        let (plain, begun) = match self.plain_at(decoder, from) {
            Ok(plain) => plain,
            Err(SpecError::Stopped) => return Ok(()),
            Err(error) => {
                let message = format!("plain decoding of turn {} does not go on: {error}", from.turn);
                self.outbox.send(Lane::Speculative, EventKind::Notice { message });
                return Ok(());
            }
        };
        let first = begun.as_ref().map(|begun| begun.first.id);
        let kind = begun.map_or(EventKind::LaneContinued { turn: from.turn }, EventKind::Prefilled);
        self.outbox.send(Lane::Plain, kind);
        let mut lane = Runner::new(Lane::Plain, LaneDecoder::Forked(Box::new(plain)), from.more);
        self.commit(&mut lane, first.as_slice(), u32::MAX);
        let settings = Settings { max_tokens: u32::MAX, baseline: Baseline::Race, ..Settings::default() };
        while lane.finished.is_none() {
            if let Some(settings) = self.control.take_settings() {
                self.outbox.send(Lane::Speculative, EventKind::SettingsChanged { settings });
            }
            if self.control.is_stopped() {
                self.finish(&mut lane, StopReason::Stopped);
            } else if self.control.has_prompt() {
                self.finish(&mut lane, StopReason::Measured);
            } else {
                self.round(&mut lane, true, &settings)?;
            }
        }
        self.control.end_answer();
        Ok(())
    }

    /// A plain decoder that stands after the newest token of the answer. Where there is none yet, what begins the
    /// answer comes with it.
    fn plain_at(&mut self, decoder: &Decoder, from: &PlainAnswer) -> Result<(Decoder, Option<Prefilled>), SpecError> {
        let tokens: Vec<TokenId> = check_tokens(&from.tokens, decoder.target().spec().info.vocab)?;
        let (control, outbox) = (&mut *self.control, &mut *self.outbox);
        let mut go_on = || !control.is_stopped_now(outbox);
        let clock = Duration::from_micros(from.clock_us);
        if from.has_begun {
            let plain = decoder.fork_plain_at(
                (&tokens, from.written as usize),
                (from.rounds, clock),
                from.sampling,
                &mut go_on,
            )?;
            return Ok((plain, None));
        }
        let mut plain = decoder.fork_plain_under(from.sampling)?;
        let begun = plain.prefill_from(from.turn, (&tokens, from.written as usize), None, &mut go_on)?;
        Ok((plain, Some(as_copy(begun))))
    }
}
