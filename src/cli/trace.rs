//! Arguments of the subcommands that work on recordings: replay, demo, export, diff, bench.

use std::path::PathBuf;

use clap::Args;

use super::attach::ConnectArgs;
use super::decode::DecodeArgs;
use super::grammar::GrammarArgs;
use super::model::ModelArgs;
use super::recording::TraceArgs;
use super::screen::{LookArgs, ScreenArgs};
use super::values::{DraftLenArg, parse_draft_len};
use crate::export::Format;

/// How a recording plays.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Playing")]
pub struct PlayArgs {
    /// Multiple of the recorded pace, 0.02 to 16 [default: 1; for the demo 0.02]
    #[arg(long, value_name = "X", value_parser = parse_speed, allow_negative_numbers = true)]
    pub speed: Option<f32>,
    /// Longest wait between two events, in seconds of the recording
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = parse_seconds, allow_negative_numbers = true)]
    pub idle_limit: f64,
    /// Start again at the end
    #[arg(long = "loop")]
    pub loops: bool,
    /// Pause before the first round; space continues, . steps
    #[arg(long)]
    pub paused: bool,
    #[command(flatten)]
    pub screen: ScreenArgs,
}

/// Options of `replay`.
#[derive(Clone, Debug, Args)]
pub struct ReplayArgs {
    /// The recording; - reads it from standard input
    pub file: PathBuf,
    #[command(flatten)]
    pub play: PlayArgs,
    #[command(flatten)]
    pub trace: TraceArgs,
}

/// Options of `demo`.
#[derive(Clone, Debug, Args)]
pub struct DemoArgs {
    /// Which recording; without one, all of them in turn
    pub name: Option<String>,
    /// List the recordings that come with the program
    #[arg(long, conflicts_with = "name")]
    pub list: bool,
    /// Open the lessons, or the one named; they play recordings of their runs
    #[arg(long, value_name = "LESSON", num_args = 0..=1, default_missing_value = "list", conflicts_with = "list")]
    pub learn: Option<String>,
    #[command(flatten)]
    pub play: PlayArgs,
}

/// Options of `export`.
#[derive(Clone, Debug, Args)]
pub struct ExportArgs {
    /// The recording; - reads it from standard input
    pub file: PathBuf,
    /// Format to write [default: as the ending of --out says]
    #[arg(long, value_enum)]
    pub to: Option<Format>,
    /// File to write (for gif-frames and specspecs a folder), or - for standard output [default: next to the recording]
    #[arg(long, short, value_name = "PATH")]
    pub out: Option<PathBuf>,
    /// Replace an existing file; in a folder, only files that such an export made
    #[arg(long)]
    pub force: bool,
    /// Moment that svg shows, in seconds of the recording [default: the end]
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, allow_negative_numbers = true)]
    pub at: Option<f64>,
    /// Size of the screen that cast, svg and gif-frames show [default: 120x40]
    #[arg(long, value_name = "COLSxROWS", value_parser = parse_size)]
    pub size: Option<(u16, u16)>,
    /// Colours of that screen: a bundled theme
    #[arg(long, value_name = "NAME")]
    pub theme: Option<String>,
    /// Longest wait between two frames of cast and gif-frames, in seconds [default: 2]
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, allow_negative_numbers = true)]
    pub idle_limit: Option<f64>,
}

/// Options of `diff`.
#[derive(Clone, Debug, Args)]
pub struct DiffArgs {
    /// First recording; - reads it from standard input
    pub a: PathBuf,
    /// Second recording; only one of both can be -
    pub b: PathBuf,
    /// Write JSON
    #[arg(long, conflicts_with = "tui")]
    pub json: bool,
    /// Show both side by side on the terminal, token by token
    #[arg(long)]
    pub tui: bool,
    #[command(flatten)]
    pub look: LookArgs,
}

/// Options of `bench`.
#[derive(Clone, Debug, Args)]
pub struct BenchArgs {
    /// Prompts by category: a file in TOML, JSON Lines or Parquet, or the built-in suite speed, which has the eleven categories
    /// of SPEED-Bench; several add up [default: a short built-in suite]
    #[arg(long, value_name = "FILE|speed", num_args = 1..)]
    pub suite: Vec<PathBuf>,
    /// Categories to run [default: all]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub categories: Vec<String>,
    /// Put each prompt after about so many tokens of made text, so that drafts are measured at several depths of the context,
    /// and say from which on they no longer pay
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(64..=1_000_000), conflicts_with_all = ["screen", "report"])]
    pub context: Vec<u32>,
    /// Draft lengths to run [default: the value of -k]
    #[arg(long, value_name = "auto|K,…", value_delimiter = ',', value_parser = parse_draft_len)]
    pub ks: Vec<DraftLenArg>,
    /// Verification rules to run [default: the value of --verify]
    #[arg(long, value_name = "RULE,…", value_delimiter = ',')]
    pub rules: Vec<String>,
    /// Drafters to run [default: the value of --drafter]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub drafters: Vec<String>,
    /// Measured repeats of every case, each next to plain decoding; one prompt runs first as warm-up
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Measure instead what the screen costs: tokens/s with and without it, interleaved; the exit status is 1 if the
    /// screen leaves less than 97 %
    #[arg(long, conflicts_with_all = ["json", "csv", "html", "baseline", "ks", "rules", "drafters"])]
    pub screen: bool,
    /// Write a report about the device beside the CPU to this file, as Markdown: adapter and driver, self-test, T(m), prefill,
    /// and tokens/s for k = 0 to 8 and auto; --json writes the same figures. --repeat 1 and --categories shorten it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["screen", "csv", "html", "baseline", "attach", "ks", "rules", "drafters", "k"])]
    pub report: Option<PathBuf>,
    /// Write every figure to this file as JSON, for a later --baseline
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the table to this file as CSV
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write the report to this file as a page for a browser, acceptance by category first
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Replace these files if they exist
    #[arg(long)]
    pub force: bool,
    /// Compare with a file that an earlier --json wrote
    #[arg(long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,
    /// Ask this server in place of an engine of our own
    #[arg(long, value_name = "URL", conflicts_with_all = ["k", "verify", "drafter", "draft_model", "ks", "rules", "drafters", "screen"], conflicts_with_all = super::attach::OWN_ENGINE)]
    pub attach: Option<String>,
    #[command(flatten)]
    pub connect: ConnectArgs,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub decode: DecodeArgs,
    #[command(flatten)]
    pub grammar: GrammarArgs,
}

fn parse_speed(text: &str) -> Result<f32, String> {
    match text.trim_end_matches(['x', '×']).parse::<f32>() {
        Ok(speed) if (0.02..=16.0).contains(&speed) => Ok(speed),
        _ => Err("it must be a number from 0.02 to 16".to_owned()),
    }
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('s').parse::<f64>() {
        Ok(seconds) if (0.0..=1e9).contains(&seconds) => Ok(seconds),
        _ => Err("it must be a number of seconds, 0 or more".to_owned()),
    }
}

fn parse_size(text: &str) -> Result<(u16, u16), String> {
    let sides = text.split_once(['x', '×']).and_then(|(w, h)| Some((w.parse().ok()?, h.parse().ok()?)));
    match sides {
        Some((w @ 60..=400, h @ 16..=200)) => Ok((w, h)),
        _ => Err("it must be columns x rows, from 60x16 to 400x200".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_out_of_range_are_rejected() {
        assert_eq!(parse_speed("0.5×"), Ok(0.5));
        assert!(["0", "17", "fast", "NaN"].iter().all(|t| parse_speed(t).is_err()));
        assert_eq!(parse_seconds("1.5s"), Ok(1.5));
        assert!(["-1", "inf", "nan", ""].iter().all(|t| parse_seconds(t).is_err()));
        assert_eq!(parse_size("80x24"), Ok((80, 24)));
        assert!(["80", "10x10", "999999x24", "x"].iter().all(|t| parse_size(t).is_err()));
    }
}
