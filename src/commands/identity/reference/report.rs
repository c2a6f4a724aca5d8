//! What the comparison with another engine reports.

use anyhow::Result;
use draftscope::cli::IdentityArgs;
use draftscope::engine::identity::{Ending, Rate, Record, answer};
use draftscope::protocol::TokenId;
use serde::Serialize;

use crate::commands::identity::setup::Bench;

/// Another implementation of the model.
pub(super) trait Reference {
    /// Its name.
    fn name(&self) -> &'static str;

    /// Reads a prompt into an empty cache; the logits that follow it.
    fn begin(&mut self, prompt: &[TokenId]) -> Result<Vec<f32>>;

    /// Reads one more token, at this position; the logits that follow it.
    fn read(&mut self, token: TokenId, position: usize) -> Result<Vec<f32>>;
}

/// What was compared and found.
#[derive(Serialize)]
pub(in crate::commands::identity) struct Report {
    /// The other implementation.
    pub(super) reference: String,
    pub(super) prompts: usize,
    /// Prompts whose greedy texts are the same.
    pub(super) identical: Rate,
    /// Output tokens compared: each after our text before it.
    pub(super) tokens: u64,
    /// Tokens for which both have the same best one.
    pub(super) agreeing: Rate,
    /// Mean and largest KL divergence of the reference's distribution from ours, in nats; none for a server.
    pub(super) kl_mean: Option<f64>,
    pub(super) kl_max: Option<f64>,
    pub(super) first_differences: Vec<FirstDifference>,
}

/// Where the greedy texts of a prompt first differ.
#[derive(Serialize)]
pub(in crate::commands::identity) struct FirstDifference {
    pub(super) prompt: String,
    /// Index of the output token.
    pub(super) index: usize,
    /// Our token, and the reference's.
    pub(super) ours: String,
    pub(super) theirs: String,
    /// Best − second-best logit, in nats, of both; none for a server.
    pub(super) our_margin: Option<f64>,
    pub(super) their_margin: Option<f64>,
}

/// Our greedy text.
pub(super) fn ours(args: &IdentityArgs, bench: &mut Bench, tokens: &[TokenId]) -> Result<Record> {
    let Bench { plain, codec, .. } = bench;
    let ending = Ending { limit: args.max_tokens as usize, is_end: &|token| codec.is_end(token) };
    Ok(answer(plain, tokens, ending, None)?)
}
