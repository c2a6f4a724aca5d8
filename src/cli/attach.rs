//! Options of `attach`, and of other commands that ask a server.

use std::path::PathBuf;

use clap::Args;

use super::grammar::GrammarArgs;
use super::recording::TraceArgs;
use super::sample::SampleArgs;
use super::screen::ScreenArgs;
use draftscope_attach::Api;
use draftscope_attach::socket::address::Address;
use draftscope_tui::Pace;

/// Below the help of `attach`.
pub(super) const ATTACH_NOTE: &str = "An API key is read from DRAFTSCOPE_API_KEY and sent as a bearer token to the server at URL (with --watch to each), that of \
    --plain-url from DRAFTSCOPE_PLAIN_API_KEY. What the server decides, such as k and the drafter, cannot be changed from here.";

/// Options of our own engine that mean nothing where a server is asked.
pub(super) const OWN_ENGINE: [&str; 11] = [
    "dtype",
    "device",
    "adapter",
    "backend",
    "threads",
    "ctx",
    "mtp",
    "think",
    "rollback",
    "draft_vocab",
    "vocab_method",
];

/// How a server is reached.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Server")]
pub struct AccessArgs {
    /// Send this header with every request, its value read from an environment variable, so that no secret stands on the
    /// command line; may be repeated
    #[arg(long = "header", value_name = "NAME=ENVVAR")]
    pub headers: Vec<String>,
    /// A file in PEM form with the authorities that may sign the servers' certificates, instead of those that Mozilla
    /// trusts; SSL_CERT_FILE names one, too
    #[arg(long, value_name = "PEM")]
    pub ca_file: Option<PathBuf>,
    /// The server's API: llama, vllm, sglang or openai [default: it is asked]
    #[arg(long, value_name = "API")]
    pub api: Option<Api>,
}

/// How a server is asked.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Server")]
pub struct ConnectArgs {
    #[command(flatten)]
    pub access: AccessArgs,
    /// The socket of the engine's plugin, a path or a loopback HOST:PORT: rejected drafts, p and q are then shown
    #[arg(long, value_name = "SOCKET", env = "DRAFTSCOPE_SOCKET", value_parser = parse_socket)]
    pub socket: Option<Address>,
    /// A second server with the same model and without speculation: it answers the same prompts at the same time
    #[arg(long, value_name = "URL")]
    pub plain_url: Option<String>,
    /// As --header, for the server of --plain-url, which gets no header of the other one
    #[arg(long = "plain-header", value_name = "NAME=ENVVAR", requires = "plain_url")]
    pub plain_headers: Vec<String>,
    /// Whose temperature, top-k, top-p, min-p and seed count: those of the options here, which are sent with each prompt, or
    /// the server's own
    #[arg(long, value_enum, default_value_t = SamplingOf::Options, value_name = "options|server", hide_possible_values = true)]
    #[arg(conflicts_with_all = ["temperature", "top_k", "top_p", "min_p", "seed"])]
    pub sampling: SamplingOf,
    /// Give an answer up after so many seconds in which no part of it came, whatever else the server sends
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub patience: u64,
    /// After each answer, ask llama-server for its predictions at every token: one request for one token each
    #[arg(long)]
    pub probe: bool,
}

/// Whose sampling counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum SamplingOf {
    /// That of the options.
    Options,
    /// The server's own.
    Server,
}

/// Longest time between two looks, in seconds.
const MOST_SECONDS: f64 = 86_400.0;

fn parse_interval(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.1..=MOST_SECONDS).contains(seconds));
    seconds.ok_or_else(|| format!("it must be a number of seconds from 0.1 to {MOST_SECONDS}"))
}

fn parse_socket(text: &str) -> Result<Address, String> {
    text.parse()
}

/// Options of `attach`.
#[derive(Clone, Debug, Args)]
pub struct AttachArgs {
    /// Address of the server, such as http://127.0.0.1:8080; with --watch, several
    #[arg(value_name = "URL", required_unless_present = "check")]
    pub urls: Vec<String>,
    /// Only follow what others ask of these servers: metrics over time, a row a server, no prompt is sent
    #[arg(long, conflicts_with_all = ["prompt", "per_line", "probe", "plain_url", "trace"])]
    pub watch: bool,
    /// With --watch: write a JSON line for each look instead of drawing, as without a terminal
    #[arg(long, requires = "watch")]
    pub json: bool,
    /// With --watch: seconds between two looks at a server
    #[arg(long, requires = "watch", value_name = "SECONDS", default_value_t = 1.0, value_parser = parse_interval)]
    pub interval: f64,
    /// With --watch: look twice, an interval apart, write a line for each server and end
    #[arg(long, requires = "watch")]
    pub once: bool,
    /// With --watch: a condition, such as 'acceptance<0.4 for 60s'; when it holds a line says so, and the exit status is 1 in
    /// the end; may be repeated
    #[arg(long = "alert", requires = "watch", value_name = "CONDITION")]
    pub alerts: Vec<String>,
    /// With --watch: record all looks in a file, which replay opens
    #[arg(long, requires = "watch", value_name = "FILE")]
    pub history: Option<PathBuf>,
    /// Check the lines of an engine's plugin, from a file or from its socket, and name line and field of what is wrong
    #[arg(long, value_name = "FILE|SOCKET", conflicts_with_all = ["urls", "watch"])]
    pub check: Option<PathBuf>,
    /// The model of a server that has several, as it lists it
    #[arg(long, short, value_name = "NAME", help_heading = "Server")]
    pub model: Option<String>,
    #[command(flatten)]
    pub connect: ConnectArgs,
    #[command(flatten)]
    pub sample: SampleArgs,
    #[command(flatten)]
    pub grammar: GrammarArgs,
    #[command(flatten)]
    pub trace: TraceArgs,
    /// First prompt, sent at once
    #[arg(long, value_name = "TEXT", help_heading = "Screen")]
    pub prompt: Option<String>,
    /// Answer each line of standard input as a prompt, as text with its number
    #[arg(long, help_heading = "Screen")]
    pub per_line: bool,
    /// Pace of answers: ramp, full, slow, or rounds a second
    #[arg(long, value_name = "PACE", default_value_t = Pace::Full, help_heading = "Screen")]
    pub pace: Pace,
    /// Save the session when you quit, without asking
    #[arg(long, help_heading = "Screen")]
    pub autosave: bool,
    #[command(flatten)]
    pub screen: ScreenArgs,
}
