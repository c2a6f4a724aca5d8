//! Options of `attach`, and of other commands that ask a server.

use clap::Args;

use super::{SampleArgs, ScreenArgs, TraceArgs};
use crate::tui::Pace;

/// How a server is asked.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Server")]
pub struct ConnectArgs {
    /// Send this header with every request, its value read from an environment variable, so that no secret stands on the
    /// command line; may be repeated
    #[arg(long = "header", value_name = "NAME=ENVVAR")]
    pub headers: Vec<String>,
}

/// Options of `attach`.
#[derive(Clone, Debug, Args)]
pub struct AttachArgs {
    /// Address of the server, such as http://127.0.0.1:8080
    #[arg(value_name = "URL")]
    pub url: String,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub connect: ConnectArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub sample: SampleArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub trace: TraceArgs,
    /// First prompt, sent at once
    #[arg(long, value_name = "TEXT", help_heading = "Screen")]
    pub prompt: Option<String>,
    /// Answer each line of standard input as a prompt, as text with its number, instead of all of it as one prompt
    #[arg(long, help_heading = "Screen")]
    pub per_line: bool,
    /// Pace of answers: ramp, full, slow, or rounds a second
    #[arg(long, value_name = "PACE", default_value_t = Pace::Full, help_heading = "Screen")]
    pub pace: Pace,
    /// Save the session when you quit, without asking
    #[arg(long, help_heading = "Screen")]
    pub autosave: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub screen: ScreenArgs,
}
