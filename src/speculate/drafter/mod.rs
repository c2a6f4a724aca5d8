//! Who proposes tokens. One trait; each kind is a file of its own.

mod mtp;

pub use mtp::MtpDrafter;

use super::sampler::Sampler;
use super::verify::{Draft, RoundCtx};
use crate::model::{ModelError, Rows};
use crate::protocol::TokenId;

/// Proposes tokens that may follow what is committed.
pub trait Drafter {
    /// Learns newly committed tokens. `hidden` row `i` is the target state that predicted
    /// `tokens[i]`. Committed rows only, so nothing observed is ever taken back but by
    /// [`Drafter::rewind`].
    ///
    /// # Errors
    /// When the drafter cannot take them.
    fn observe(&mut self, tokens: &[TokenId], hidden: &Rows) -> Result<(), ModelError>;

    /// Works off what was observed, so that the next draft does not pay for it. Called after a
    /// prompt, whose cost belongs to the prefill.
    ///
    /// # Errors
    /// As [`Drafter::draft`].
    fn settle(&mut self) -> Result<(), ModelError> {
        Ok(())
    }

    /// Forgets all but the first `len` observed tokens: the next prompt differs from there on.
    ///
    /// # Errors
    /// When the cache cannot be cut.
    fn rewind(&mut self, len: usize) -> Result<(), ModelError>;

    /// Proposes at most `ctx.draft_len` tokens; fewer, or none, is a valid answer. Each is told to
    /// `on_draft` as soon as it is known.
    ///
    /// # Errors
    /// When a model behind it fails.
    fn draft(
        &mut self,
        ctx: &RoundCtx<'_>,
        sampler: &Sampler,
        on_draft: &mut dyn FnMut(&Draft),
    ) -> Result<Vec<Draft>, ModelError>;
}

/// Proposes nothing: plain decoding.
pub struct NoDrafter;

impl Drafter for NoDrafter {
    fn observe(&mut self, _: &[TokenId], _: &Rows) -> Result<(), ModelError> {
        Ok(())
    }

    fn rewind(&mut self, _: usize) -> Result<(), ModelError> {
        Ok(())
    }

    fn draft(&mut self, _: &RoundCtx<'_>, _: &Sampler, _: &mut dyn FnMut(&Draft)) -> Result<Vec<Draft>, ModelError> {
        Ok(Vec::new())
    }
}
