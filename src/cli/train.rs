//! `train`'s arguments.

use std::path::PathBuf;

use clap::Args;

use super::values::model_name;

/// Options of `train`.
#[derive(Clone, Debug, Args)]
pub struct TrainArgs {
    /// GGUF file, or name of a known model, to train a draft module for [default: the default model]
    #[arg(long, short, value_name = "FILE|NAME", env = "DRAFTSCOPE_MODEL", value_parser = model_name())]
    pub model: Option<PathBuf>,
    /// Folder for the finished module: --mtp reads its subfolder fp8 (or bf16)
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Folder for data, checkpoints and logs (gigabytes); a stopped run continues from here
    #[arg(long, value_name = "DIR", env = "MTP_ROOT")]
    pub work: PathBuf,
    /// Number of conversations that the model writes
    #[arg(long, value_name = "N", default_value_t = 60_000, value_parser = clap::value_parser!(u32).range(100..))]
    pub conversations: u32,
    /// Tokens to train on; a token counts again in every pass over it
    #[arg(long, value_name = "N", default_value_t = 30_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
    pub tokens: u64,
    /// Number of compute threads
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: u16,
    /// Where PyTorch trains
    #[arg(long, value_name = "cpu|cuda", default_value = "cpu", value_parser = ["cpu", "cuda"])]
    pub device: String,
    /// Folder of the recipe: `training` in the sources
    #[arg(long, value_name = "DIR", default_value = "training")]
    pub recipe: PathBuf,
    /// Python with the recipe's requirements: a name or a path
    #[arg(long, value_name = "FILE", default_value = "python3")]
    pub python: PathBuf,
    /// Print the steps' JSON lines instead of a display
    #[arg(long)]
    pub json: bool,
}
