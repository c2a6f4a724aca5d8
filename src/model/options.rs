//! What to load, and how: plain data that may cross threads.

use std::path::PathBuf;
use std::sync::Arc;

use candle_core::Device;
use clap::ValueEnum;

use crate::model::error::ModelError;
use crate::protocol::TokenId;

/// What to load, and how.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// The target: a GGUF file, or a folder with `config.json` and safetensors.
    pub target: PathBuf,
    /// Sha256 of the file, when known.
    pub sha256: Option<String>,
    /// In what its weights are held.
    pub dtype: Dtype,
    /// Where it runs.
    pub device: DeviceChoice,
    /// What computes it.
    pub backend: Backend,
    /// Threads of the native backend; none measures how many pay.
    pub threads: Option<usize>,
    /// Positions its cache holds; none takes what the model was made for, at most 4,096.
    pub ctx_len: Option<usize>,
    /// The MTP module, or the stack of them; none for plain decoding.
    pub mtp: Option<ModuleFile>,
    /// A second model that drafts: a file or folder as for the target.
    pub draft_model: Option<PathBuf>,
    /// How rejected rows are taken back where layers are recurrent.
    pub rollback: Rollback,
    /// Tokens that a module which comes with the target may propose; none = all.
    pub draft_vocab: Option<DraftVocab>,
}

/// How rejected rows are taken back where layers are recurrent. Either way the states are the same to the
/// bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Rollback {
    /// A copy of the state after each row of a verify pass.
    #[default]
    Snapshots,
    /// The inputs of the rows, from which the state is computed again: less memory, a little more time.
    Replay,
}

/// Context length when none is asked for: enough for a long chat, small enough for a laptop.
pub const DEFAULT_CTX: usize = 4096;

/// An MTP module's files.
#[derive(Clone, Debug)]
pub struct ModuleFile {
    /// As it is called.
    pub name: String,
    /// Safetensors bytes.
    pub weights: Arc<[u8]>,
    /// `config.json`.
    pub config: Arc<[u8]>,
    /// Of the weights, lower-case hex.
    pub sha256: Option<String>,
    /// Whether a module that does not fit the target is an error; otherwise it is left out with a
    /// notice.
    pub required: bool,
}

/// In what a target's weights are held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Dtype {
    /// What is fastest on the device.
    #[default]
    Auto,
    /// As stored; the file must be Q4_1.
    #[value(name = "q4_1")]
    Q4_1,
    /// As the file stores them, whatever that is.
    Stored,
    /// Widened to f32.
    F32,
    /// Rounded to bf16.
    Bf16,
}

/// What computes a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// Native on a CPU where it supports the file and the dtype, else candle.
    #[default]
    Auto,
    /// candle: any device, any dtype.
    Candle,
    /// The program's own CPU kernels.
    Native,
}

/// In what a target's matrices are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightType {
    /// As the file stores them.
    Stored,
    /// Widened to f32.
    F32,
    /// Rounded to bf16.
    Bf16,
}

/// Where a model runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DeviceChoice {
    /// The first GPU this build can use, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The first CUDA device.
    Cuda,
    /// The first Metal device.
    Metal,
}

impl DeviceChoice {
    /// Opens the device.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] saying what to build or plug in.
    pub fn open(self) -> Result<Device, ModelError> {
        let unavailable = |name: &str, error: &dyn std::fmt::Display| {
            ModelError::Unsupported(format!(
                "no {name} device can be used ({error}); build with `--features {name}` or choose --device cpu"
            ))
        };
        match self {
            Self::Cpu => Ok(Device::Cpu),
            Self::Cuda => Device::new_cuda(0).map_err(|error| unavailable("cuda", &first_line(&error))),
            Self::Metal => Device::new_metal(0).map_err(|error| unavailable("metal", &first_line(&error))),
            Self::Auto => Ok(Device::new_cuda(0).or_else(|_| Device::new_metal(0)).unwrap_or(Device::Cpu)),
        }
    }
}

fn first_line(error: &candle_core::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// Which tokens a draft module may propose, where the whole head would be dear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DraftVocab {
    /// The tokens with so many smallest ids and all that end an answer: the ids of byte-level BPE follow the order
    /// of merges, which is that of frequency in the text the tokenizer was made from.
    First(usize),
    /// These tokens.
    Tokens(Vec<TokenId>),
    /// Every token, also where a module would look at some of them only.
    All,
}

impl DraftVocab {
    /// Ascending, for a target of so many tokens.
    ///
    /// # Errors
    /// [`ModelError::Vocabulary`] for a token that is none; [`ModelError::Metadata`] when none is left.
    pub fn tokens(&self, vocab: usize, ends: &[TokenId]) -> Result<Vec<TokenId>, ModelError> {
        let mut tokens: Vec<TokenId> = match self {
            Self::First(count) => (0..(*count).min(vocab) as u32).map(TokenId).chain(ends.iter().copied()).collect(),
            Self::Tokens(tokens) => tokens.clone(),
            Self::All => (0..vocab as u32).map(TokenId).collect(),
        };
        tokens.sort_unstable();
        tokens.dedup();
        if let Some(token) = tokens.iter().find(|token| token.index() >= vocab) {
            return Err(ModelError::Vocabulary { token: token.0, vocab });
        }
        if tokens.is_empty() {
            return Err(ModelError::Metadata("the draft vocabulary holds no token".into()));
        }
        Ok(tokens)
    }
}

/// Name of a device as the header shows it.
#[must_use]
pub fn device_name(device: &Device) -> &'static str {
    match device {
        Device::Cpu => "cpu",
        Device::Cuda(_) => "cuda",
        Device::Metal(_) => "metal",
    }
}
