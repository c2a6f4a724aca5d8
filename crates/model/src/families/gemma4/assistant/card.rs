//! What an assistant is and needs, without its target: `models info`.

use std::fmt::{self, Display};
use std::path::Path;

use indicatif::{DecimalBytes, HumanCount};
use serde::Serialize;

use crate::ModelError;
use crate::error::{clean, name_of};
use crate::families::gemma4::assistant::{config::AssistantConfig, load::open};
use crate::files::{GgufFile, SideFiles};
use crate::shared_kv::Reach;

/// Figures of an assistant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AssistantCard {
    /// Its name.
    pub title: String,
    /// `gemma4_assistant`
    pub kind: &'static str,
    /// Weights of all matrices.
    pub parameters: u64,
    /// Its layers.
    pub layers: usize,
    /// Its layers with full attention.
    pub full_layers: usize,
    /// Width of its layers.
    pub d_model: usize,
    /// Width of the target's states.
    pub target_d_model: usize,
    /// Query heads.
    pub heads: usize,
    /// Width of the feed-forward layers.
    pub ffn: usize,
    /// Positions that a sliding layer sees.
    pub window: usize,
    /// Tokens.
    pub vocab: usize,
    /// Clusters of tokens; 0 if its head has none.
    pub clusters: usize,
    /// Clusters that are searched for a draft.
    pub clusters_looked_in: usize,
    /// Bytes of the tensors on disk.
    pub tensor_bytes: u64,
    /// Bytes of KV cache per token: none, it reads the target's.
    pub kv_bytes_per_token: u64,
}

impl AssistantCard {
    /// Reads the headers of a folder or GGUF file; `None` if there is no assistant in it.
    ///
    /// # Errors
    /// If it is damaged or not supported.
    pub fn read(folder: &Path) -> Result<Option<Self>, ModelError> {
        let is_one = match folder.is_file() {
            true => AssistantConfig::is_in(&GgufFile::open(folder)?),
            false => SideFiles::of(folder).read("config.json")?.is_some_and(|json| AssistantConfig::is_one(&json)),
        };
        if !is_one {
            return Ok(None);
        }
        let (config, files) = open(folder)?;
        Ok(Some(Self {
            title: name_of(folder),
            kind: "gemma4_assistant",
            parameters: config.plan().weights(),
            layers: config.gemma.layers.len(),
            full_layers: config.gemma.layers.iter().filter(|layer| layer.reach == Reach::Full).count(),
            d_model: config.d_model,
            target_d_model: config.backbone,
            heads: config.heads,
            ffn: config.ffn,
            window: config.gemma.window,
            vocab: config.vocab,
            clusters: config.clusters.map_or(0, |clusters| clusters.count),
            clusters_looked_in: config.clusters.map_or(0, |clusters| clusters.looked_in),
            tensor_bytes: files.tensor_bytes(),
            kv_bytes_per_token: 0,
        }))
    }
}

impl Display for AssistantCard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let weights = HumanCount(self.parameters);
        writeln!(f, "drafter  {} (assistant of a Gemma 4), {weights} weights", clean(&self.title))?;
        writeln!(
            f,
            "shape    {} layers of width {}: {} sliding ({} positions), {} full; {} query heads, feed-forward {}",
            self.layers,
            self.d_model,
            self.layers - self.full_layers,
            self.window,
            self.full_layers,
            self.heads,
            self.ffn
        )?;
        writeln!(
            f,
            "reads    the target's normed state of width {}, its embedding, and its keys and values",
            self.target_d_model
        )?;
        let head = match self.clusters {
            0 => "all of them".to_owned(),
            clusters => format!(
                "the {} best of {clusters} clusters of {} (--draft-vocab all: the whole head)",
                self.clusters_looked_in,
                self.vocab / clusters
            ),
        };
        writeln!(f, "vocab    {} tokens; a draft looks at {head}", HumanCount(self.vocab as u64))?;
        writeln!(f, "memory   weights {} on disk; no cache of its own", DecimalBytes(self.tensor_bytes))?;
        write!(f, "use      name it with --draft-model beside its target; it drafts as --drafter mtp")
    }
}
