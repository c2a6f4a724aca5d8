//! What every rule implements.

use super::draft::Draft;
use super::round_ctx::RoundCtx;
use crate::Verification;
use crate::distribution::Distribution;

/// Judges drafts: a pure function, without tensors, model or clock.
pub trait Verifier {
    /// Judges the drafts of one round. `target` has one row per draft plus one.
    fn verify(&self, ctx: &RoundCtx<'_>, drafts: &[Draft], target: &[Distribution]) -> Verification;
}
