//! What an EAGLE-3 head is and needs, without its target: `models info`.

use std::fmt::{self, Display};
use std::path::Path;

use indicatif::{DecimalBytes, HumanCount};
use serde::Serialize;

use crate::ModelError;
use crate::drafters::core::ModuleFile;
use crate::drafters::eagle3::plan;
use crate::error::{clean, name_of};
use crate::options::DEFAULT_CTX;
use crate::plan::StatesNorm;

/// Figures of a head.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HeadCard {
    /// Its name.
    pub title: String,
    /// `eagle3`
    pub kind: &'static str,
    /// The model it was made for, if the file names it.
    pub made_for: Option<String>,
    /// Weights of all matrices.
    pub parameters: u64,
    /// Width of its block.
    pub d_model: usize,
    /// Width of the target's states.
    pub target_d_model: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Width of the feed-forward layer.
    pub ffn: usize,
    /// Layers of the target whose inputs are read; `None` = layer 2, the middle one, the third from the end.
    pub layers: Option<Vec<usize>>,
    /// Tokens of the target.
    pub vocab: usize,
    /// Tokens that it can propose.
    pub draft_vocab: usize,
    /// Whether it has an embedding of its own.
    pub own_embedding: bool,
    /// Conventions other than the usual ones.
    pub conventions: Vec<&'static str>,
    /// Bytes of the tensors on disk.
    pub tensor_bytes: u64,
    /// Bytes of KV cache per token (f16).
    pub kv_bytes_per_token: u64,
}

impl HeadCard {
    /// Reads the headers of a folder or GGUF file; `None` if there is no head in it.
    ///
    /// # Errors
    /// If it is damaged or not supported.
    pub fn read(folder: &Path) -> Result<Option<Self>, ModelError> {
        if !plan::is_head(folder) {
            return Ok(None);
        }
        let (config, file) = plan::open_files(folder)?;
        let states = config.layers.clone().unwrap_or_else(|| vec![0; 3]);
        let own_embedding = file.has("embed_tokens.weight");
        let (block, plan) = (&config.block, config.plan(states, own_embedding));
        let conventions = [
            (config.norm_before_residual, "the residual stream begins normed"),
            (config.norm_output, "the normed output is recycled"),
            (config.states_norm == StatesNorm::Together, "one norm over all states"),
            (config.states_norm == StatesNorm::Each, "a norm for each state"),
        ];
        Ok(Some(Self {
            title: match &file {
                ModuleFile::Gguf(gguf, _) => gguf.name(),
                _ => name_of(folder),
            },
            kind: "eagle3",
            made_for: config.verifier.clone(),
            parameters: plan.weights(),
            d_model: block.d_model,
            target_d_model: config.target_d_model,
            heads: block.heads,
            kv_heads: block.kv_heads,
            head_dim: block.head_dim,
            ffn: block.ffn,
            layers: config.layers.clone(),
            vocab: block.vocab,
            draft_vocab: config.draft_vocab,
            own_embedding,
            conventions: conventions.into_iter().filter(|(is_so, _)| *is_so).map(|(_, what)| what).collect(),
            tensor_bytes: file.bytes(),
            kv_bytes_per_token: 2 * plan.cached_values(),
        }))
    }
}

impl Display for HeadCard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = self.made_for.as_deref().map_or_else(String::new, |target| format!(" for {}", clean(target)));
        writeln!(f, "head     {} (EAGLE-3{target}), {} weights", clean(&self.title), HumanCount(self.parameters))?;
        writeln!(
            f,
            "shape    one block of width {}, {} query heads over {} of {}, feed-forward {}",
            self.d_model, self.heads, self.kv_heads, self.head_dim, self.ffn
        )?;
        let layers = self.layers.as_ref().map_or_else(
            || "2, the middle one and the third from the end".to_owned(),
            |layers| layers.iter().map(usize::to_string).collect::<Vec<_>>().join(", "),
        );
        writeln!(f, "reads    the target's states of width {} in front of layers {layers}", self.target_d_model)?;
        let embedding = if self.own_embedding { "an embedding of its own" } else { "the target's embedding" };
        writeln!(
            f,
            "vocab    proposes {} of {} tokens, {embedding}",
            HumanCount(self.draft_vocab as u64),
            HumanCount(self.vocab as u64)
        )?;
        if !self.conventions.is_empty() {
            writeln!(f, "runs so  {}", self.conventions.join("; "))?;
        }
        writeln!(
            f,
            "memory   weights {} on disk; cache {} a token, {} for {DEFAULT_CTX}",
            DecimalBytes(self.tensor_bytes),
            DecimalBytes(self.kv_bytes_per_token),
            DecimalBytes(self.kv_bytes_per_token * DEFAULT_CTX as u64)
        )?;
        write!(f, "use      name it with --draft-model beside its target; it drafts as --drafter mtp")
    }
}
