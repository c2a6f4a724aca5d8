//! What to load and how: plain data that may cross threads.

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
    /// SHA-256 of the file, if known.
    pub sha256: Option<String>,
    /// Dtype of its loaded weights.
    pub dtype: Dtype,
    /// Device that it runs on.
    pub device: DeviceChoice,
    /// Name or number of the adapter of the GPU backend; `None` takes the first GPU.
    pub adapter: Option<String>,
    /// What computes it.
    pub backend: Backend,
    /// Threads of the native backend; `None` measures which number is fastest.
    pub threads: Option<usize>,
    /// Positions of its cache; `None` is the model's own context length, at most 4,096.
    pub ctx_len: Option<usize>,
    /// The MTP module, or a stack of them; `None` for plain decoding.
    pub mtp: Option<ModuleFile>,
    /// A second model that drafts: a file or folder as for the target.
    pub draft_model: Option<PathBuf>,
    /// Whether a draft model (or a module named in its place) that cannot be used is an error; otherwise it is ignored
    /// with a notice.
    pub draft_model_required: bool,
    /// How rejected rows of recurrent layers are rolled back.
    pub rollback: Rollback,
    /// Tokens that a module from the target's own files may propose; `None` for all.
    pub draft_vocab: Option<DraftVocab>,
    /// Whether the chat template is asked for a thought before the answer; `None` leaves it to the template.
    pub think: Option<bool>,
}

impl LoadOptions {
    /// A target on the CPU with the module that drafts for it, everything else as usual.
    #[must_use]
    pub fn on_cpu(target: PathBuf, mtp: Option<ModuleFile>) -> Self {
        Self {
            target,
            sha256: None,
            dtype: Dtype::Auto,
            device: DeviceChoice::Cpu,
            adapter: None,
            backend: Backend::Auto,
            threads: None,
            ctx_len: None,
            mtp,
            draft_model: None,
            draft_model_required: false,
            rollback: Rollback::default(),
            draft_vocab: None,
            think: None,
        }
    }
}

/// How rejected rows of recurrent layers are rolled back. Both ways give bit-identical states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Rollback {
    /// A copy of the state after each row of a verify pass.
    #[default]
    Snapshots,
    /// The inputs of the rows, from which the state is computed again: less memory, slightly more time.
    Replay,
}

/// Default context length, in positions: enough for a long chat, small enough for a laptop.
pub const DEFAULT_CTX: usize = 4096;

/// An MTP module's files.
#[derive(Clone, Debug)]
pub struct ModuleFile {
    /// Name of the module.
    pub name: String,
    /// Safetensors bytes.
    pub weights: Arc<[u8]>,
    /// `config.json`.
    pub config: Arc<[u8]>,
    /// SHA-256 of the weights, lower-case hex.
    pub sha256: Option<String>,
    /// Whether a module that does not fit the target is an error; otherwise it is ignored with a
    /// notice.
    pub required: bool,
}

/// Dtype of a target's loaded weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Dtype {
    /// The fastest one on the device.
    #[default]
    Auto,
    /// As stored; the file must be Q4_1.
    #[value(name = "q4_1")]
    Q4_1,
    /// As the file stores them.
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

/// Dtype of a target's loaded matrices.
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
    /// The first CUDA or Metal GPU of a build with candle's kernels, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// A GPU through Vulkan, Metal or DirectX 12: --adapter names it.
    Gpu,
    /// The first CUDA device.
    Cuda,
    /// The first Metal device.
    Metal,
}

impl DeviceChoice {
    /// Opens the device.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] with the feature that the build lacks.
    pub fn open(self) -> Result<Device, ModelError> {
        let unavailable = |name: &str, error: &dyn std::fmt::Display| {
            ModelError::Unsupported(format!(
                "no {name} device can be used ({error}); choose --device gpu or cpu, or build with `--features {name}`"
            ))
        };
        match self {
            Self::Cpu => Ok(Device::Cpu),
            Self::Gpu => Err(ModelError::Unsupported(
                "the GPU backend runs targets of Llama's layout with weights as stored; choose --device cpu for this one"
                    .into(),
            )),
            Self::Cuda => Device::new_cuda(0).map_err(|error| unavailable("cuda", &first_line(&error))),
            Self::Metal => Device::new_metal(0).map_err(|error| unavailable("metal", &first_line(&error))),
            Self::Auto => Ok(Device::new_cuda(0).or_else(|_| Device::new_metal(0)).unwrap_or(Device::Cpu)),
        }
    }
}

fn first_line(error: &candle_core::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// Which tokens a draft module may propose, to save the cost of the whole head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DraftVocab {
    /// The tokens with this many smallest ids, and all tokens that end an answer: the ids of byte-level BPE follow the
    /// order of merges, which is the order of frequency in the tokenizer's training text.
    First(usize),
    /// These tokens.
    Tokens(Vec<TokenId>),
    /// Every token, even if the module would consider only some of them.
    All,
}

impl DraftVocab {
    /// The tokens, ascending, for a target with `vocab` tokens.
    ///
    /// # Errors
    /// [`ModelError::Vocabulary`] for a token outside the vocabulary; [`ModelError::Metadata`] if there are none.
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
            return Err(ModelError::Metadata("the draft vocabulary is empty".into()));
        }
        Ok(tokens)
    }
}

/// Name of a device in the header of recordings.
#[must_use]
pub fn device_name(device: &Device) -> &'static str {
    match device {
        Device::Cpu => "cpu",
        Device::Cuda(_) => "cuda",
        Device::Metal(_) => "metal",
    }
}
