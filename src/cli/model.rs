//! The options on models: what to load and where to run it.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::lab;
use super::values::{Threads, VocabMethodArg, model_name, parse_switch, parse_threads, parse_vocab_method};
use draftscope_model::options::{Backend, DeviceChoice, Dtype, Rollback};
use draftscope_protocol::DrafterKind;

/// What to load and where to run it.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Model")]
pub struct ModelArgs {
    /// GGUF file, model folder, known name, or repository of the Hub (owner/name, owner/name:TYPE, address); with --attach,
    /// a model of the server [default: the default model, downloaded on first use]
    #[arg(long, short, value_name = "MODEL", env = "DRAFTSCOPE_MODEL", value_parser = model_name())]
    pub model: Option<PathBuf>,
    /// Data type of the target's weights; auto takes the fastest on the device
    #[arg(long, value_enum, default_value_t = Dtype::Auto)]
    pub dtype: Dtype,
    /// Device: auto (a GPU if faster), cpu, gpu, cuda, metal
    #[arg(long, value_enum, default_value_t = DeviceChoice::Auto, hide_possible_values = true)]
    pub device: DeviceChoice,
    /// The GPU of --device gpu, by name or number (see `draftscope devices`); one that computes on the CPU runs only if
    /// named [default: the first GPU]
    #[arg(long, value_name = "NAME|N")]
    pub adapter: Option<String>,
    /// What computes the target; auto takes the native kernels on a CPU if they support the file
    #[arg(long, value_enum, default_value_t = Backend::Auto)]
    pub backend: Backend,
    /// Threads of the native kernels; auto measures at start how many are fastest (Qwen3.5, Gemma 3 and 4, and models
    /// with experts: all cores)
    #[arg(long, value_name = "auto|N", default_value = "auto", value_parser = parse_threads)]
    pub threads: Threads,
    /// Context length in tokens [default: 4096, or the model's own if shorter]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(16..))]
    pub ctx: Option<u32>,
    /// The drafter; lossless rules keep the text as is
    #[arg(long, value_name = "NAME", default_value = DrafterKind::DEFAULT.name(), value_parser = lab::drafters(), help_heading = "Drafting")]
    pub drafter: String,
    /// A smaller model, at best with the same tokenizer; or the target's EAGLE-3 head, block drafter or Gemma 4 assistant
    #[arg(long, value_name = "MODEL", help_heading = "Drafting")]
    pub draft_model: Option<PathBuf>,
    /// How a draft model with another tokenizer drafts: tokens that both vocabularies have (intersection), or text in its own
    /// tokens (strings); auto takes the first if a text has few others
    #[arg(long, value_name = "auto|intersection|strings", default_value = "auto", value_parser = parse_vocab_method, help_heading = "Drafting")]
    pub vocab_method: VocabMethodArg,
    /// Folder of an MTP module (config.json and a .safetensors file) instead of the built-in one
    #[arg(long, value_name = "DIR", help_heading = "Drafting")]
    pub mtp: Option<PathBuf>,
    /// Whether a thinking model thinks first [default: as its template has it]
    #[arg(long, value_name = "on|off", value_parser = parse_switch)]
    pub think: Option<bool>,
    /// Read names of special tokens in messages, such as <|im_end|>, as those tokens; without this they are text. --raw
    /// always reads them
    #[arg(long)]
    pub special_tokens: bool,
    /// How rejected rows are rolled back in recurrent layers (Qwen3.5) on the CPU: from a copy of the state after each
    /// verified row, or by computing the rows again, which takes less memory [default: snapshots]
    #[arg(long, value_enum, help_heading = "Drafting")]
    pub rollback: Option<Rollback>,
    /// Tokens that the target's own module (Qwen3.5, Qwen3-Next, DeepSeek-V3, GLM-4.7-Flash) or assistant may propose if its whole
    /// head costs too much: the first N (those with the most frequent merges), those in a file with one token id a
    /// line, or all, even if an assistant usually looks into a few clusters only. A module may also propose tokens of
    /// the text
    #[arg(long, value_name = "N|FILE|all", help_heading = "Drafting")]
    pub draft_vocab: Option<OsString>,
}
