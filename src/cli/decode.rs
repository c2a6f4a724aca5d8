//! How answers are decoded.

use clap::Args;

use super::lab::{self, LabArgs};
use super::sample::SampleArgs;
use super::values::{DraftLenArg, parse_draft_len};

/// How to speculate and how to pick tokens.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Sampling")]
pub struct DecodeArgs {
    /// Draft length: tokens drafted per round, 0 (plain decoding) to 15; auto chooses, round by round, what promises
    /// the most tokens/s
    #[arg(short, long = "draft-len", value_name = "auto|K", default_value_t = DraftLenArg::DEFAULT, value_parser = parse_draft_len, allow_negative_numbers = true, help_heading = "Drafting", display_order = 0)]
    pub k: DraftLenArg,
    /// How drafts are judged; exact, rejection and block are lossless, the others change the text
    #[arg(long, value_name = "RULE", default_value = "exact", value_parser = lab::rules(), help_heading = "Drafting", display_order = 1)]
    pub verify: String,
    #[command(flatten)]
    pub sample: SampleArgs,
    #[command(flatten)]
    pub lab: LabArgs,
}
