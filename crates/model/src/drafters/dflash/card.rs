//! What a block drafter is and needs, without its target: `models info`.

use std::fmt::{self, Display};
use std::path::Path;

use indicatif::{DecimalBytes, HumanCount};
use serde::Serialize;

use crate::ModelError;
use crate::drafters::dflash::config::PathSizes;
use crate::drafters::dflash::plan::open_files;
use crate::error::clean;
use crate::options::DEFAULT_CTX;

/// Figures of a block drafter.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BlockCard {
    /// Its name.
    pub title: String,
    /// `DFlash`, `DFlash 2` or `DSpark`.
    pub kind: &'static str,
    /// The model it was made for, if the file names it.
    pub made_for: Option<String>,
    /// Weights of all matrices that it does not share with its target.
    pub parameters: u64,
    /// Its layers.
    pub layers: usize,
    /// Width of its states, and of the target's.
    pub d_model: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Width of the feed-forward layers.
    pub ffn: usize,
    /// Blocks of the target after which states are read.
    pub target_layers: Vec<usize>,
    /// Most drafts of one pass.
    pub block: usize,
    /// Token in place of those to be drafted.
    pub mask_token: u32,
    /// Rank of the Markov head.
    pub markov_rank: Option<usize>,
    /// Sizes of its convolutions and its selector.
    pub path: Option<PathSizes>,
    /// Whether it has a head that predicts acceptance.
    pub has_confidence: bool,
    /// Tokens of the target.
    pub vocab: usize,
    /// Tokens that it can propose.
    pub draft_vocab: usize,
    /// Bytes of the tensors on disk.
    pub tensor_bytes: u64,
    /// Bytes of its cache per position of the context.
    pub kv_bytes_per_token: u64,
    #[serde(skip)]
    what: &'static str,
}

impl BlockCard {
    /// Reads the headers of a folder or GGUF file.
    ///
    /// # Errors
    /// If it is damaged, not supported, or something else.
    pub fn read(path: &Path) -> Result<Self, ModelError> {
        let (config, file, title) = open_files(path)?;
        let (c, draft) = (&config.layers, config.plan());
        Ok(Self {
            title,
            kind: config.kind.name(),
            made_for: config.made_for.clone(),
            parameters: draft.weights(),
            layers: c.layers,
            d_model: c.d_model,
            heads: c.heads,
            kv_heads: c.kv_heads,
            head_dim: c.head_dim,
            ffn: c.ffn,
            target_layers: config.target_layers.clone(),
            block: draft.most_drafts(),
            mask_token: config.mask_token,
            markov_rank: config.markov_rank,
            path: config.path,
            has_confidence: config.confidence.is_some(),
            vocab: c.vocab,
            draft_vocab: config.draft_vocab,
            tensor_bytes: file.bytes(),
            kv_bytes_per_token: 2 * draft.module.cached_values(),
            what: config.kind.title(),
        })
    }
}

impl Display for BlockCard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = self.made_for.as_deref().map_or_else(String::new, |target| format!(" for {}", clean(target)));
        writeln!(
            f,
            "drafter  {} ({}{target}), {} weights",
            clean(&self.title),
            self.what,
            HumanCount(self.parameters)
        )?;
        writeln!(
            f,
            "shape    {} layer{} of width {}, {} query heads over {} of {}, feed-forward {}",
            self.layers,
            if self.layers == 1 { "" } else { "s" },
            self.d_model,
            self.heads,
            self.kv_heads,
            self.head_dim,
            self.ffn
        )?;
        let layers: Vec<_> = self.target_layers.iter().map(usize::to_string).collect();
        writeln!(f, "reads    the target's states after blocks {}, as keys and values", layers.join(", "))?;
        let markov = self.markov_rank.map_or_else(String::new, |rank| {
            format!(", then corrects each by the token before it (Markov head of rank {rank})")
        });
        writeln!(f, "drafts   up to {} tokens in one pass{markov}", self.block)?;
        if let Some(PathSizes { taps, group, rank, candidates }) = self.path {
            writeln!(
                f,
                "mixes    each row of a block with the {} before it, weights by groups of {group} channels",
                taps - 1
            )?;
            writeln!(f, "selects  a path through the {candidates} best tokens of each position (rank {rank})")?;
        }
        if self.has_confidence {
            writeln!(
                f,
                "predicts the acceptance of each draft (confidence head): --p-min P ends a draft where it is below P"
            )?;
        }
        let head = if self.draft_vocab < self.vocab { "a head of its own" } else { "the target's head" };
        let (draft, all) = (HumanCount(self.draft_vocab as u64), HumanCount(self.vocab as u64));
        writeln!(f, "vocab    proposes {draft} of {all} tokens, the target's embedding, {head}")?;
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
