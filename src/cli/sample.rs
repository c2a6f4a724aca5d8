//! Options of how tokens are picked.

use clap::Args;

/// How to pick tokens, and how prompts are sent.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Sampling")]
pub struct SampleArgs {
    /// 0 always picks the most probable token
    #[arg(long, value_name = "T", default_value_t = 0.0, allow_negative_numbers = true)]
    pub temperature: f32,
    /// Keep the K most probable tokens; 0 keeps all
    #[arg(long, value_name = "K", default_value_t = 0, allow_negative_numbers = true)]
    pub top_k: u32,
    /// Keep the fewest tokens that together have probability P
    #[arg(long, value_name = "P", default_value_t = 1.0, allow_negative_numbers = true)]
    pub top_p: f32,
    /// Keep tokens with at least P times the probability of the best one
    #[arg(long, value_name = "P", default_value_t = 0.0, allow_negative_numbers = true)]
    pub min_p: f32,
    /// Seed of all draws; under exact it alone fixes the text
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub seed: u64,
    /// Longest answer, in tokens
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_tokens: u32,
    /// Instructions for the model, before the conversation
    #[arg(long, value_name = "TEXT", help_heading = "Model")]
    pub system: Option<String>,
    /// Send prompts as they are, without the model's chat template
    #[arg(long, help_heading = "Model")]
    pub raw: bool,
}
