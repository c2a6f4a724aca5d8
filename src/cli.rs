//! The command line as it is typed: names, paths, numbers and the domain's own enums. `commands` decides what they
//! mean.

mod generate;
mod identity;
mod lab;
mod screen;
mod trace;
mod train;
mod values;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub use generate::GenerateArgs;
pub use identity::IdentityArgs;
pub use lab::LabArgs;
pub use screen::{ConfigAction, LookArgs, ScreenArgs};
pub use trace::{BenchArgs, DemoArgs, DiffArgs, ExportArgs, PlayArgs, ReplayArgs};
pub use train::TrainArgs;
pub(crate) use values::parse_draft_len;
pub use values::{DraftLenArg, OutputArg, ReportArg, Threads, TraceTextArg};
use values::{model_name, parse_threads};

use crate::model::options::{Backend, DeviceChoice, Dtype, Rollback};

/// What the program says by how it ends.
const STATUS: &str = "Exit status: 0 when all went well; 1 when what was compared or measured differs where it must \
    not; 2 on an error; 130 or 143 when a signal stopped an answer.";

/// See speculative decoding happen, live in the terminal.
#[derive(Debug, Parser)]
#[command(name = "draftscope", version, about, max_term_width = 100, args_conflicts_with_subcommands = true)]
#[command(after_help = STATUS)]
pub struct Cli {
    /// What to do; without one, chat.
    #[command(subcommand)]
    pub command: Option<Action>,
    /// Options of chat, which is what runs without a subcommand.
    #[command(flatten)]
    pub chat: ChatArgs,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Chat in the terminal and watch every token being drafted, verified, accepted or discarded
    Chat(ChatArgs),
    /// Answer one prompt without a screen
    Run(RunArgs),
    /// Decode one prompt plainly and speculatively, interleaved on one device, and compare
    ///
    /// The exit status is 1 when greedy outputs differ under a lossless rule.
    Compare(CompareArgs),
    /// Account for the speed: what passes cost here, what drafts are worth, which k is best
    ///
    /// Answers are greedy, by the rule exact, and at most 128 tokens long, whatever --max-tokens says; -k counts only
    /// as the depth of --tree, --verify and --p-min have no effect.
    Explain(ExplainArgs),
    /// Check that speculation does not change the output (exact text, or the sampling distribution)
    ///
    /// The exit status is 1 when the modes differ.
    VerifyIdentity(IdentityArgs),
    /// Play a recording in the terminal, without a model
    Replay(ReplayArgs),
    /// Play the recordings that come with the program, without a model
    Demo(DemoArgs),
    /// Make a page, a cast, a picture, a table or a report of a recording
    Export(ExportArgs),
    /// Compare two recordings token by token, as text, as JSON or on the terminal
    ///
    /// The exit status is 1 when their tokens differ.
    Diff(DiffArgs),
    /// Run a suite of prompts over draft lengths, rules and drafters, each beside plain decoding
    ///
    /// Answers are at most 128 tokens long, whatever --max-tokens says.
    ///
    /// The exit status is 1 when greedy answers under a lossless rule differ from plain ones, or when a
    /// case is slower than the baseline beyond both spreads and both runs are alike.
    Bench(BenchArgs),
    /// Where settings come from
    Config {
        /// What to do with the configuration.
        #[command(subcommand)]
        action: ConfigAction,
    },
    /// Write completions for a shell to standard output
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual page to standard output
    Man {
        /// Write this page and those of all subcommands into this folder instead
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
    /// Let the target answer many prompts in batch and keep its hidden states: data to train drafters on
    Generate(GenerateArgs),
    /// Train a draft module for a model with the recipe in `training/`, and watch acceptance climb
    Train(TrainArgs),
    /// Fetch, list and remove models
    Models {
        /// What to do with models.
        #[command(subcommand)]
        action: ModelsAction,
    },
}

/// What to load and where to run it.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Model")]
pub struct ModelArgs {
    /// GGUF file, model folder (config.json and safetensors), name of a known model, or a repository of
    /// the Hugging Face Hub (owner/name or owner/name@revision); without it the default model, fetched on first use
    #[arg(long, short, value_name = "FILE|DIR|NAME", env = "DRAFTSCOPE_MODEL", value_parser = model_name())]
    pub model: Option<PathBuf>,
    /// In what the target's weights are held; auto takes what is fastest on the device
    #[arg(long, value_enum, default_value_t = Dtype::Auto)]
    pub dtype: Dtype,
    /// Where to compute
    #[arg(long, value_enum, default_value_t = DeviceChoice::Auto)]
    pub device: DeviceChoice,
    /// What computes the target; auto takes the native kernels on a CPU where they support the file
    #[arg(long, value_enum, default_value_t = Backend::Auto)]
    pub backend: Backend,
    /// Threads of the native kernels; auto measures at start how many pay (Qwen3.5, DeepSeek-V3, GLM-4.7-Flash and
    /// Gemma 4: all cores)
    #[arg(long, value_name = "auto|N", default_value = "auto", value_parser = parse_threads)]
    pub threads: Threads,
    /// Context length in tokens [default: 4096, or the model's own if shorter]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(16..))]
    pub ctx: Option<u32>,
    /// Who proposes draft tokens; whoever does, a lossless rule keeps what the target would write (greedily and by
    /// exact the very text, else its distribution)
    #[arg(long, value_name = "NAME", default_value = "mtp", value_parser = lab::drafters())]
    pub drafter: String,
    /// A second, smaller model with the same tokenizer, named as --model, for the drafter draft-model; or the
    /// target's EAGLE-3 head or assistant (Gemma 4), for the drafter mtp
    #[arg(long, value_name = "FILE|DIR|NAME")]
    pub draft_model: Option<PathBuf>,
    /// Folder of an MTP module (config.json and a .safetensors file) instead of the built-in one
    #[arg(long, value_name = "DIR")]
    pub mtp: Option<PathBuf>,
    /// How rejected rows are taken back where layers are recurrent (Qwen3.5): a copy of the state behind each
    /// verified row, or the rows worked out again, which takes less memory
    #[arg(long, value_enum, default_value_t = Rollback::Snapshots)]
    pub rollback: Rollback,
    /// Tokens that a module which comes with the target (Qwen3.5, DeepSeek-V3, GLM-4.7-Flash), or an assistant, may propose
    /// where its whole head is dear: the N first, whose merges are the most frequent, or a file with one token id a
    /// line; all = every one, also where an assistant looks into a few clusters only. Tokens of the text join those of a
    /// module
    #[arg(long, value_name = "N|FILE|all")]
    pub draft_vocab: Option<String>,
}

/// How to speculate and how to pick tokens.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Decoding")]
pub struct DecodeArgs {
    /// Draft length: tokens drafted per round, 0 (plain) to 15; auto takes what promises the most tokens/s, ending
    /// each draft where another token would not pay
    #[arg(short, long = "draft-len", value_name = "auto|K", default_value_t = DraftLenArg::DEFAULT, value_parser = parse_draft_len, allow_negative_numbers = true)]
    pub k: DraftLenArg,
    /// How drafts are judged; exact, rejection and block are lossless, the others change the text
    #[arg(long, value_name = "RULE", default_value = "exact", value_parser = lab::rules())]
    pub verify: String,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub lab: LabArgs,
    /// 0 takes the most probable token
    #[arg(long, value_name = "T", default_value_t = 0.0, allow_negative_numbers = true)]
    pub temperature: f32,
    /// Keep the K most probable tokens; 0 keeps all
    #[arg(long, value_name = "K", default_value_t = 0, allow_negative_numbers = true)]
    pub top_k: u32,
    /// Keep the smallest set of tokens whose probabilities add up to P
    #[arg(long, value_name = "P", default_value_t = 1.0, allow_negative_numbers = true)]
    pub top_p: f32,
    /// Keep tokens of at least P times the best one's probability
    #[arg(long, value_name = "P", default_value_t = 0.0, allow_negative_numbers = true)]
    pub min_p: f32,
    /// Seed of all draws: by exact it fixes the text, by other rules the text with one k and drafter (with -k auto, which
    /// follows measured times, not even that)
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub seed: u64,
    /// Longest answer, in tokens
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_tokens: u32,
    /// Instructions that stand before the conversation
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    /// Send prompts as they stand, without the model's chat template
    #[arg(long)]
    pub raw: bool,
}

/// What races beside.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Decoding")]
pub struct RivalArgs {
    /// Race other settings beside, on the same prompt, with caches and a clock of their own: k, drafter,
    /// rule and temperature, those that differ from the run's: --rival k=4,rule=rejection
    #[arg(long, value_name = "NAME=VALUE,…")]
    pub rival: Option<String>,
}

/// Where to record to.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Recording")]
pub struct TraceArgs {
    /// Record every event to this file, one JSON object a line; compressed when it ends in .zst
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// What becomes of prompts and answers in the recording, and in the events that --output jsonl writes: as they
    /// are, or digests in their place
    #[arg(long, value_enum, default_value_t = TraceTextArg::Full)]
    pub trace_text: TraceTextArg,
    /// Replace the file if it exists
    #[arg(long)]
    pub force: bool,
}

/// Options of `chat`.
#[derive(Clone, Debug, Args)]
pub struct ChatArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub model: ModelArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub decode: DecodeArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub rival: RivalArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub trace: TraceArgs,
    /// First prompt, sent at once
    #[arg(long, value_name = "TEXT")]
    pub prompt: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
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
    /// The prompt without an option's name; - reads it from standard input
    #[arg(value_name = "TEXT|-")]
    pub text: Option<String>,
}

/// Options of `run`.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub prompt: PromptArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub model: ModelArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub decode: DecodeArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub rival: RivalArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub trace: TraceArgs,
    /// What to write: the answer, one JSON summary, or every event
    #[arg(long, short, value_enum, default_value_t = OutputArg::Text)]
    pub output: OutputArg,
}

/// Options of `compare`.
#[derive(Clone, Debug, Args)]
pub struct CompareArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub prompt: PromptArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub model: ModelArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub decode: DecodeArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub trace: TraceArgs,
    /// Measured repeats; one more runs first as warm-up and is discarded
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// What to write: a few lines, one JSON summary, or every event
    #[arg(long, short, value_enum, default_value_t = OutputArg::Text)]
    pub output: OutputArg,
}

/// Options of `explain`.
#[derive(Clone, Debug, Args)]
pub struct ExplainArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub model: ModelArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub decode: DecodeArgs,
    /// Prompts to measure acceptance on, by category (TOML) [default: the built-in suite]
    #[arg(long, value_name = "FILE")]
    pub suite: Option<PathBuf>,
    /// Positions in the cache while passes are timed
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000), allow_negative_numbers = true)]
    pub at: u32,
    /// Turns in which every width is timed once; one more runs first and is dropped
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(3..=10_000))]
    pub turns: u32,
    /// Time passes only; run no prompts
    #[arg(long, conflicts_with_all = ["suite", "race"])]
    pub costs_only: bool,
    /// Only race these draft lengths over the suite, interleaved on one engine: 0,1,2,3,auto, say
    #[arg(long, value_name = "K,…", value_delimiter = ',', value_parser = parse_draft_len)]
    pub race: Option<Vec<DraftLenArg>>,
    /// Times that the race goes through the suite
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000), requires = "race")]
    pub repeat: u32,
    /// What to write: a report or one JSON object
    #[arg(long, short, value_enum, default_value_t = ReportArg::Text)]
    pub output: ReportArg,
}

/// `models …`.
#[derive(Clone, Debug, Subcommand)]
pub enum ModelsAction {
    /// Fetch a model into the cache
    Pull {
        /// Name of a known model, or owner/name of a repository of the Hub [default: the default model]
        name: Option<String>,
        /// Fetch it again even if it is there; of a repository, take the newest commit and replace what differs
        #[arg(long)]
        force: bool,
        /// Use this source only
        #[arg(long, value_parser = ["hub", "pip"])]
        from: Option<String>,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// List known models and files in the program's own cache; repositories stay in the Hub's
    List {
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Say what is known of a model, and check its file; a repository is fetched first
    Info {
        /// Name, file, folder or repository
        name: String,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove a model from the program's own cache
    Rm {
        /// Name or file name
        name: String,
    },
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
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
    fn a_negative_number_is_a_value_and_reported_with_its_range() {
        let parse = |args: &[&str]| Cli::try_parse_from(args).map_err(|error| error.to_string());
        for option in ["--seed", "--top-k", "-k", "--tree", "--ngram-max", "--exit-layers"] {
            let error = parse(&["draftscope", "run", "a", option, "-1"]).unwrap_err();
            assert!(error.contains("invalid value '-1'"), "{option}: {error}");
        }
        let error = parse(&["draftscope", "export", "a", "--to", "svg", "--at", "-1"]).unwrap_err();
        assert!(error.contains("0 or more"), "{error}");
        assert_eq!(parse(&["draftscope", "--temperature", "-1"]).unwrap().chat.decode.temperature, -1.0);
    }
}
