//! What to load and how: plain data that may cross threads.

use std::path::PathBuf;
use std::sync::Arc;

use candle_core::Device;
use clap::ValueEnum;

use crate::error::ModelError;
use draftscope_protocol::{TokenId, VocabMethod};

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
    /// How a draft model with another tokenizer drafts; `None` takes what fits the two.
    pub vocab_method: Option<VocabMethod>,
    /// Whether drafts are drawn and the rule divides by their probability q: then drafts with a q are worth more than certain
    /// ones, which counts where the method is open.
    pub divides_by_q: bool,
    /// How rejected rows of recurrent layers are rolled back on the CPU; `None` is the usual way.
    pub rollback: Option<Rollback>,
    /// Tokens that a module from the target's own files may propose; `None` for all.
    pub draft_vocab: Option<DraftVocab>,
    /// File that remembers whether the CPU or a GPU was faster for a model, for `--device auto`; `None` forgets it.
    pub device_memory: Option<PathBuf>,
    /// Whether the chat template is asked for a thought before the answer; `None` leaves it to the template.
    pub think: Option<bool>,
    /// Whether names of special tokens in messages become those tokens; otherwise they are text.
    pub special_tokens: bool,
    /// How passes on candle run; `None` is what suits the device.
    pub pass_form: Option<PassForm>,
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
            vocab_method: None,
            divides_by_q: false,
            rollback: None,
            draft_vocab: None,
            device_memory: None,
            think: None,
            special_tokens: false,
            pass_form: None,
        }
    }

    /// How passes on candle run.
    #[must_use]
    pub fn pass_form(&self) -> PassForm {
        let usual = if self.device.is_candles() { PassForm::GPU } else { PassForm::CPU };
        self.pass_form.unwrap_or(usual)
    }
}

/// How passes on candle run. On a CPU a row's bits do not depend on the rows beside it; on a GPU memory, launches of
/// kernels and copies to the host count, and a test at load decides how many rows are verified together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassForm {
    /// Whether keys and values are cached as IEEE halves, else as f32.
    pub halves: bool,
    /// Whether all rows attend in one product; else up to 16 rows do one by one.
    pub batched: bool,
    /// Whether only the best logits of a row are copied to the host where nothing else is read; else the whole row.
    pub best_only: bool,
}

impl PassForm {
    /// As on a CPU.
    pub const CPU: Self = Self { halves: false, batched: false, best_only: false };
    /// As on a GPU.
    pub const GPU: Self = Self { halves: true, batched: true, best_only: true };

    /// Bytes of a cached number.
    #[must_use]
    pub fn kv_bytes(self) -> usize {
        if self.halves { 2 } else { 4 }
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
    /// A GPU of the GPU backend if a pass over one row takes less time there than on the CPU, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// A GPU through Vulkan, Metal or DirectX 12: --adapter names it.
    Gpu,
    /// The first CUDA device, with candle's kernels: experimental.
    Cuda,
    /// The first Metal device, with candle's kernels: experimental.
    Metal,
}

impl DeviceChoice {
    /// Whether candle computes on a GPU.
    #[must_use]
    pub fn is_candles(self) -> bool {
        matches!(self, Self::Cuda | Self::Metal)
    }

    /// Opens candle's device, the CPU for `auto`.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] with the feature that the build lacks, or what to check if it has it.
    pub fn open(self) -> Result<Device, ModelError> {
        let unavailable = |name: &str, is_built: bool, error: &candle_core::Error| {
            ModelError::Unsupported(no_device(name, is_built, &cause(error)))
        };
        match self {
            Self::Cpu | Self::Auto => Ok(Device::Cpu),
            Self::Gpu => {
                Err(ModelError::Unsupported("candle does not run on --device gpu; choose --device cpu".into()))
            }
            Self::Cuda => Device::new_cuda(0).map_err(|error| unavailable("cuda", cfg!(feature = "cuda"), &error)),
            Self::Metal => Device::new_metal(0).map_err(|error| unavailable("metal", cfg!(feature = "metal"), &error)),
        }
    }
}

/// Why candle has no device of this name, and what to do: a build without its kernels says so, one with them names the
/// driver.
fn no_device(name: &str, is_built: bool, error: &str) -> String {
    let advice = match (is_built, name) {
        (false, _) => format!("this build has no {name} kernels: choose --device gpu or cpu, or build with `--features {name}`"),
        (true, "cuda") => {
            "check that `nvidia-smi` lists a GPU and that its driver is as new as the CUDA version of this build, or choose --device gpu or cpu".to_owned()
        }
        (true, _) => "choose --device gpu or cpu".to_owned(),
    };
    format!("no {name} device can be used ({error}); {advice}")
}

/// The first line of candle's error; of an error of the CUDA driver, which has its texts only where it is loaded, the code.
fn cause(error: &candle_core::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    let code = line.split_once("DriverError(").and_then(|(_, rest)| rest.split_once(','));
    match code {
        Some(("CUDA_ERROR_NO_DEVICE", _)) => "no NVIDIA GPU, or no driver for one, was found".to_owned(),
        Some((code, _)) => code.to_owned(),
        None => line.to_owned(),
    }
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

/// Name of a device of candle in the header of recordings, with its number.
#[must_use]
pub fn device_name(device: &Device) -> String {
    use candle_core::DeviceLocation;
    match device.location() {
        DeviceLocation::Cpu => "cpu".to_owned(),
        DeviceLocation::Cuda { gpu_id } => format!("cuda {gpu_id} (candle)"),
        DeviceLocation::Metal { gpu_id } => format!("metal {gpu_id} (candle)"),
    }
}

/// Threads that compute on a device of candle: those of the CPU, or the one that starts the kernels of a GPU.
#[must_use]
pub fn device_threads(device: &Device) -> usize {
    if device.is_cpu() { candle_core::utils::get_num_threads() } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_device_is_reported_with_what_the_build_lacks_or_the_driver() {
        let without = no_device("cuda", false, "not compiled in");
        assert!(without.contains("build with `--features cuda`") && !without.contains("nvidia-smi"), "{without}");
        let with = no_device("cuda", true, "no device");
        assert!(with.contains("nvidia-smi") && !with.contains("--features"), "{with}");
        let metal = no_device("metal", true, "no device");
        assert_eq!(metal, "no metal device can be used (no device); choose --device gpu or cpu");
        // as the CUDA build reports it where there is no driver
        let driver = |code: &str| {
            let text = format!("DriverError({code}, \"<Failure when calling cuGetErrorString()>\")\n   0: candle");
            cause(&candle_core::Error::Msg(text))
        };
        assert_eq!(driver("CUDA_ERROR_NO_DEVICE"), "no NVIDIA GPU, or no driver for one, was found");
        assert_eq!(driver("CUDA_ERROR_INVALID_PTX"), "CUDA_ERROR_INVALID_PTX");
        assert_eq!(cause(&candle_core::Error::Msg("no device\n   0: candle".to_owned())), "no device");
    }

    #[test]
    fn auto_opens_no_device_of_candle() {
        assert!(DeviceChoice::Auto.open().unwrap().is_cpu() && !DeviceChoice::Auto.is_candles());
        #[cfg(not(feature = "cuda"))]
        assert!(DeviceChoice::Cuda.open().is_err_and(|error| error.to_string().contains("has no cuda kernels")));
        assert_eq!(device_name(&Device::Cpu), "cpu");
        assert_eq!(device_threads(&Device::Cpu), candle_core::utils::get_num_threads());
    }
}
