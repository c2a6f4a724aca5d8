//! `generate`'s arguments.

use std::path::PathBuf;

use clap::Args;

use super::values::model_name;

/// Options of `generate`.
#[derive(Clone, Debug, Args)]
pub struct GenerateArgs {
    /// Tasks, one JSON object a line: {"turns": ["text", {"invent": "how it begins"}], "seed": 1,
    /// "temperature": 0.7, "max_tokens": 256, "system": "text"}; only turns and seed are needed
    #[arg(long, value_name = "FILE")]
    pub tasks: PathBuf,
    /// Folder for the shards; shards that are there already are kept
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// GGUF file, or name of a known model [default: the default model, downloaded on first use]
    #[arg(long, short, value_name = "FILE|NAME", env = "DRAFTSCOPE_MODEL", value_parser = model_name())]
    pub model: Option<PathBuf>,
    /// Number of compute threads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: u16,
    /// Make only every N-th shard, beginning with shard I (from 0), so that several processes share the work
    #[arg(long, value_name = "I/N", default_value = "0/1", value_parser = parse_part)]
    pub part: (usize, usize),
    /// Tasks per shard
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub shard_tasks: u32,
    /// Longest conversation, in tokens
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(64..=8192))]
    pub ctx: u32,
    /// Also keep the hidden state after these blocks of the target, for modules that read several layers
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    pub hidden_layers: Vec<usize>,
}

fn parse_part(text: &str) -> Result<(usize, usize), String> {
    let numbers = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
    numbers.filter(|(i, n)| i < n && *n <= 1024).ok_or_else(|| "it must be I/N with I below N, such as 0/2".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_an_index_below_a_count() {
        assert_eq!(parse_part("1/2"), Ok((1, 2)));
        for bad in ["2/2", "1", "0/0", "a/b", "-1/2"] {
            assert!(parse_part(bad).is_err(), "{bad}");
        }
    }
}
