//! Options of what an answer must match.

use std::path::PathBuf;

use clap::Args;

/// What an answer must match; at most one of them.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Sampling")]
pub struct GrammarArgs {
    /// Answer with JSON that this schema describes
    #[arg(long, value_name = "FILE", conflicts_with_all = ["regex", "grammar"])]
    pub json_schema: Option<PathBuf>,
    /// Answer with a text that this regular expression matches as a whole, in the syntax of the Rust crate regex
    #[arg(long, value_name = "R", conflicts_with = "grammar", allow_hyphen_values = true)]
    pub regex: Option<String>,
    /// Answer with a text that this grammar describes: in the Lark syntax of llguidance, or in GBNF, that of llama.cpp
    #[arg(long, value_name = "FILE")]
    pub grammar: Option<PathBuf>,
}
