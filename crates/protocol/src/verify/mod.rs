//! The rules that accept or reject drafts. Pure functions of distributions and draws: no tensors, no model, no clock,
//! no stop rules.
//!
//! Drafts form a chain or a tree; row 0 of the target judges the drafts that continue the anchor, row i + 1 those that
//! continue draft i. Invariant: accepted drafts are a path from the anchor, a rejected draft continues a node of that
//! path, and all others were not reached. Under a lossless rule committed tokens follow `p` with every drafter.

mod block;
mod draft;
mod lenient;
mod lossless;
mod round_ctx;
#[cfg(test)]
mod tests;
mod verifier;
mod walk;

use crate::VerifyRule;

pub use block::Block;
pub use draft::Draft;
pub use lenient::{Confidence, Threshold, TopK, Typical};
pub use lossless::{Exact, Rejection};
pub use round_ctx::{OfRound, RoundCtx};
pub use verifier::Verifier;

/// The verifier of a rule.
#[must_use]
pub fn verifier(rule: VerifyRule) -> &'static dyn Verifier {
    match rule {
        VerifyRule::Exact => &Exact,
        VerifyRule::Rejection => &Rejection,
        VerifyRule::Block => &Block,
        VerifyRule::Typical => &Typical,
        VerifyRule::TopK => &TopK,
        VerifyRule::Threshold => &Threshold,
        VerifyRule::Confidence => &Confidence,
    }
}
