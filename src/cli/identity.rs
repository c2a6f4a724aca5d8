//! Options of `verify-identity`.

use std::path::PathBuf;

use clap::Args;

use super::grammar::GrammarArgs;
use super::model::ModelArgs;
use super::values::{DraftLenArg, ReportArg, parse_drafting_len};

/// Options of `verify-identity`.
#[derive(Clone, Debug, Args)]
pub struct IdentityArgs {
    /// Prompts by category (TOML) [default: the built-in 200]
    #[arg(long, value_name = "FILE")]
    pub prompts: Option<PathBuf>,
    /// Number of prompts, spread evenly over the file; 0 takes all
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub limit: u32,
    /// Draft lengths to try; with auto the engine chooses, round by round
    #[arg(short, long = "draft-len", value_name = "K,…|auto", value_delimiter = ',', default_value = "1,2,3,4,6,8", value_parser = parse_drafting_len, allow_negative_numbers = true)]
    pub k: Vec<DraftLenArg>,
    /// Drafters to try; all takes every one that is loaded [default: the value of --drafter]
    #[arg(long, value_name = "NAME,…|all", value_delimiter = ',')]
    pub drafters: Vec<String>,
    /// Draft trees of at most N nodes, -k deep, if the drafter can
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=15), allow_negative_numbers = true)]
    pub tree: Option<u8>,
    /// Rule to check
    #[arg(long, value_name = "RULE", default_value = "exact", value_parser = ["exact", "rejection", "block"])]
    pub verify: String,
    /// Verify one row at a time, which is bit-equal to plain decoding by construction
    #[arg(long)]
    pub row_by_row: bool,
    /// Compare with another implementation instead: candle (candle_transformers on the same GGUF file; in builds with
    /// the feature reference), or the address of a server that has the same model; differences do not change the exit
    /// status
    #[arg(long, value_name = "candle|URL", value_parser = reference, conflicts_with_all = ["temperature", "tree", "row_by_row", "json_schema", "regex", "grammar"])]
    pub reference: Option<String>,
    /// Longest answer, in tokens
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    pub max_tokens: u32,
    /// Above 0, compare the distributions of sampled tokens instead of greedy texts
    #[arg(long, value_name = "T", default_value_t = 0.0, allow_negative_numbers = true)]
    pub temperature: f32,
    /// Keep the smallest set of tokens whose probabilities add up to P
    #[arg(long, value_name = "P", default_value_t = 1.0, allow_negative_numbers = true)]
    pub top_p: f32,
    /// Keep the K most probable tokens; 0 keeps all
    #[arg(long, value_name = "K", default_value_t = 0, allow_negative_numbers = true)]
    pub top_k: u32,
    /// Continuations to draw in each of the two modes, for each prompt, drafter and k
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = clap::value_parser!(u32).range(20..=1_000_000))]
    pub samples: u32,
    /// Length of a drawn continuation, in tokens
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub sample_len: u32,
    /// Send prompts as they are, without the model's chat template
    #[arg(long)]
    pub raw: bool,
    /// What to write: a report or one JSON object
    #[arg(long, short, value_enum, default_value_t = ReportArg::Text)]
    pub output: ReportArg,
    #[command(flatten)]
    pub grammar: GrammarArgs,
    #[command(flatten)]
    pub model: ModelArgs,
}

/// `candle`, or an address.
fn reference(text: &str) -> Result<String, String> {
    let is_address = text.starts_with("http://") || text.starts_with("https://");
    if text == "candle" || is_address {
        Ok(text.to_owned())
    } else {
        Err("it must be candle or an http address".to_owned())
    }
}
