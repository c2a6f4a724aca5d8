//! Checks a head against its target before anything large is read.
//!
//! Invariant: a [`CheckedHead`] fits: its widths, vocabularies and layers are those of the target, and every token that
//! the head can propose is one of the target's.

use std::path::Path;

use crate::draft_tokens::DraftTokens;
use crate::drafters::core::{GgufLayout, ModuleFile, draft_vocab};
use crate::drafters::eagle3::{config::EagleConfig, gguf};
use crate::error::{clean, name_of};
use crate::files::{GgufFile, SideFiles};
use crate::memory::MemoryNeed;
use crate::module_core::{ModuleFacts, Reads};
use crate::nn::{StatesNorm, TransformerConfig};
use crate::{ModelError, State, Tap};
use draftscope_protocol::{MemoryAccount, TokenId};

/// A head that fits its target.
pub(crate) struct CheckedHead {
    pub(crate) config: EagleConfig,
    pub(crate) file: ModuleFile,
    /// The target's states that settled slots read.
    pub(crate) tap: Tap,
    /// Token of each row of the head, ascending.
    pub(crate) vocab: Vec<TokenId>,
    /// Its name.
    pub(crate) name: String,
}

/// Whether there is an EAGLE-3 head in a folder or GGUF file.
pub(crate) fn is_head(folder: &Path) -> bool {
    if !folder.is_dir() {
        return GgufFile::open_part(folder).is_ok_and(|gguf| EagleConfig::is_in(&gguf));
    }
    SideFiles::of(folder).read("config.json").is_ok_and(|config| config.is_some_and(|json| EagleConfig::is_one(&json)))
}

/// Opens a folder or GGUF file, whatever its target.
pub(super) fn open_files(path: &Path) -> Result<(EagleConfig, ModuleFile), ModelError> {
    if path.is_dir() {
        return Ok((EagleConfig::from_json(&SideFiles::of(path).config()?)?, ModuleFile::open(path)?));
    }
    let file = GgufFile::open(path)?;
    let config = EagleConfig::from_gguf(&file)?;
    let layout = GgufLayout { name: gguf::name, interleaved: Some(config.block.head_dim) };
    Ok((config, ModuleFile::Gguf(Box::new(file), layout)))
}

impl CheckedHead {
    /// Opens a folder or GGUF file for this target.
    ///
    /// # Errors
    /// If it is damaged, not supported, or made for another target.
    pub(crate) fn open(folder: &Path, target: &TransformerConfig) -> Result<Self, ModelError> {
        let (config, file) = open_files(folder)?;
        let other = |what: &str, own: usize, theirs: usize| {
            Err(ModelError::Unsupported(format!(
                "the EAGLE-3 head was made for another target: {what} is {own} there and {theirs} in the target"
            )))
        };
        if config.target_d_model != target.d_model {
            return other("the width of its hidden states", config.target_d_model, target.d_model);
        }
        if config.block.vocab != target.vocab {
            return other("the number of tokens", config.block.vocab, target.vocab);
        }
        let states = config.layers_of(target.layers)?.into_iter().map(State::Behind).collect();
        if !file.has("embed_tokens.weight") && config.block.d_model != target.d_model {
            return other("without an embedding of its own the width", config.block.d_model, target.d_model);
        }
        let biased = ["q", "k", "v", "o"].map(|part| format!("layers.0.self_attn.{part}_proj.bias"));
        if let Some(name) = biased.iter().map(String::as_str).chain(["fc.bias"]).find(|name| file.has(name)) {
            return Err(ModelError::Unsupported(format!("biases ('{name}') are not supported in EAGLE-3 heads")));
        }
        let vocab = draft_vocab(&file, config.draft_vocab, config.block.vocab)?;
        let name = match &file {
            ModuleFile::Gguf(gguf, _) => clean(&gguf.name()),
            _ => name_of(folder),
        };
        Ok(Self { config, file, tap: Tap::new(states), vocab, name })
    }

    /// Width of the fused states.
    pub(crate) fn fused(&self) -> usize {
        self.tap.states().len() * self.config.target_d_model
    }

    /// A matrix of the head, row by row.
    pub(crate) fn matrix(&self, part: &str, [out, input]: [usize; 2]) -> Result<Vec<f32>, ModelError> {
        self.file.numbers(&format!("{part}.weight"), &[out, input])
    }

    /// A norm's weights.
    pub(crate) fn norm(&self, part: &str, width: usize) -> Result<Vec<f32>, ModelError> {
        self.file.numbers(&format!("{part}.weight"), &[width])
    }

    /// Norms before the fusion: one over all states, one for each, or none.
    pub(crate) fn states_norms(&self) -> Result<Vec<Vec<f32>>, ModelError> {
        match self.config.states_norm {
            StatesNorm::None => Ok(Vec::new()),
            StatesNorm::Together => Ok(vec![self.norm("input_norm", self.fused())?]),
            StatesNorm::Each => (0..self.tap.states().len())
                .map(|index| self.norm(&format!("fc_norm.{index}"), self.config.target_d_model))
                .collect(),
        }
    }

    /// Weights of all matrices.
    pub(crate) fn matrix_weights(&self) -> u64 {
        let own = self.file.has("embed_tokens.weight");
        self.config.matrix_weights(self.fused()) + if own { self.config.embedding_weights() } else { 0 }
    }

    /// The header's entry for the loaded head.
    pub(crate) fn facts(&self, ctx_len: usize, weight_bytes: u64, kv_bytes_per_slot: u64) -> ModuleFacts {
        ModuleFacts {
            spec: self.config.spec(),
            reads: Reads::Layers(self.tap.clone()),
            widths: [self.fused(), self.config.block.d_model],
            ctx_len,
            tokens: DraftTokens::new(self.vocab.clone(), 0),
            weight_bytes,
            kv_bytes_per_slot,
        }
    }

    /// Memory that the head needs, with `bits` per weight and `kv_size` bytes per number in the cache.
    pub(crate) fn need(&self, (bits, dtype): (u64, &str), kv_size: u64, ctx_len: usize) -> MemoryNeed {
        let account = MemoryAccount {
            drafter_weights: self.matrix_weights() * bits / 8,
            drafter_kv: 2 * self.config.block.kv_width() as u64 * kv_size,
            ctx_len: ctx_len as u64,
            ..MemoryAccount::default()
        };
        MemoryNeed { account, dtype: dtype.to_owned() }
    }
}
