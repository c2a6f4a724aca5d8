//! Checks a head against its target before anything large is read.
//!
//! Invariant: a [`CheckedHead`] fits: its widths, vocabularies and layers are those of the target, and every token that
//! the head can propose is one of the target's.

use std::path::Path;

use crate::ModelError;
use crate::drafters::core::{ModuleFile, draft_vocab};
use crate::drafters::eagle3::{config::EagleConfig, gguf};
use crate::error::{clean, name_of};
use crate::files::{GgufFile, SideFiles};
use crate::memory::MemoryNeed;
use crate::nn::{Activation, TransformerConfig};
use crate::plan::{
    Angles, Attention, BlockNames, DraftPlan, Entry, Feed, Fusion, Join, Layer, Matrix, Mixer, Norm, StatesNorm,
    UsualAttention, Vector,
};
use draftscope_protocol::{MemoryAccount, TokenId};

/// Name of an embedding of its own.
const EMBEDDING: &str = "embed_tokens.weight";

/// Name of its output head.
pub(super) const HEAD: &str = "lm_head.weight";

/// A head that fits its target.
pub(crate) struct CheckedHead {
    pub(crate) file: ModuleFile,
    /// What it computes.
    pub(crate) plan: DraftPlan,
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
    Ok((config, ModuleFile::Gguf(Box::new(file), gguf::name)))
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
        let states = config.layers_of(target.layers)?;
        let own_embedding = file.has(EMBEDDING);
        if !own_embedding && config.block.d_model != target.d_model {
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
        Ok(Self { plan: config.plan(states, own_embedding), file, vocab, name })
    }

    /// Memory that the head needs, with `bits` per weight.
    pub(crate) fn need(&self, (bits, dtype): (u64, &str), ctx_len: usize) -> MemoryNeed {
        let account = MemoryAccount {
            drafter_weights: self.plan.weights() * bits / 8,
            drafter_kv: 2 * self.plan.cached_values(),
            ctx_len: ctx_len as u64,
            ..MemoryAccount::default()
        };
        MemoryNeed { account, dtype: dtype.to_owned() }
    }
}

impl EagleConfig {
    /// The head as data: it reads the target's states after these blocks. Its layer's first norm is that of embeddings.
    pub(super) fn plan(&self, states: Vec<usize>, own_embedding: bool) -> DraftPlan {
        let (c, d) = (&self.block, self.block.d_model);
        let names = BlockNames::of(c, 0, false);
        let norm =
            |name: String, len: usize| Norm { weight: Some(Vector { name, len }), centred: false, eps: c.norm_eps };
        let fused = states.len() * self.target_d_model;
        let norms = match self.states_norm {
            StatesNorm::None => Vec::new(),
            StatesNorm::Together => vec![norm("input_norm.weight".into(), fused)],
            StatesNorm::Each => {
                let one = |index| norm(format!("fc_norm.{index}.weight"), self.target_d_model);
                (0..states.len()).map(one).collect()
            }
        };
        let attention = UsualAttention::of(c).plan(&BlockNames { width: 2 * d, ..names });
        let o = names.matrix("attn_output", d, c.q_width());
        let layer = Layer {
            mixer: Mixer::Attention(Attention { o, ..attention }),
            mix: Join { before: None, after: None, scale: 1.0 },
            feed: Feed::Dense(names.gated("", c.ffn, Activation::Silu)),
            fed: names.join("ffn_norm"),
            token_input: None,
            output_scale: None,
        };
        let project = Matrix::whole("fc.weight", [d, fused]);
        DraftPlan {
            width: d,
            entry: Entry::Beside {
                embedding: names.norm("attn_norm"),
                state: names.norm("hidden_norm"),
                from_normed: self.norm_before_residual,
            },
            fusion: Some(Fusion { states, normed: self.states_norm, norms, project, adds: false }),
            layers: vec![layer],
            angles: Angles { rope: c.rope.clone(), width: c.head_dim },
            norm: norm("norm.weight".into(), d),
            embedding: own_embedding.then(|| Matrix::whole(EMBEDDING, [c.vocab, d])),
            head: Some(Matrix::whole(HEAD, [self.draft_vocab, d])),
            conventions: self.spec(),
        }
    }
}
