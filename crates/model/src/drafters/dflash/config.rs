//! Sizes and conventions of a block drafter, whichever file they come from.

use serde::Serialize;

use crate::ModelError;
use crate::nn::{Conventions, LLAMA_LAYOUT, TransformerConfig};
use crate::plan::Sight;

/// Most positions of a block.
const MAX_BLOCK: usize = 64;

/// Most states of the target that are fused.
const MAX_STATES: usize = 16;

/// Largest rank of a Markov head or a selector.
const MAX_RANK: usize = 1 << 14;

/// Most candidates of a position that a selector scores.
const MAX_CANDIDATES: usize = 1024;

/// Which block drafter it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// DFlash.
    Dflash,
    /// DFlash 2.
    Dflash2,
    /// DSpark.
    Dspark,
}

impl BlockKind {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dflash => "DFlash",
            Self::Dflash2 => "DFlash 2",
            Self::Dspark => "DSpark",
        }
    }
}

/// What DFlash 2 adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PathSizes {
    /// Rows of a block that an output of a convolution depends on, its own included.
    pub taps: usize,
    /// Adjacent channels that share a dynamic weight.
    pub group: usize,
    /// Rank of the selector.
    pub rank: usize,
    /// Candidates of a position among which it chooses.
    pub candidates: usize,
}

/// Sizes and conventions.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockConfig {
    /// Which one it is.
    pub kind: BlockKind,
    /// The layers, as those of a model; its vocabulary is the target's.
    pub layers: TransformerConfig,
    /// What rows of each layer see; a window hides positions as far away to either side.
    pub sight: Vec<Sight>,
    /// Blocks after which the target's states are read, in the order in which they are fused.
    pub target_layers: Vec<usize>,
    /// Rows of a pass, the anchor's included.
    pub block_size: usize,
    /// Token in place of those to be drafted.
    pub mask_token: u32,
    /// Whether the anchor's row drafts the token after it; otherwise each mask's row drafts its own.
    pub from_anchor: bool,
    /// Rank of the Markov head, if there is one.
    pub markov_rank: Option<usize>,
    /// Numbers that the head reads which predicts acceptance, if there is one: a state, and w1 of the token before.
    pub confidence: Option<usize>,
    /// Convolutions and selector, of DFlash 2 alone.
    pub path: Option<PathSizes>,
    /// Tokens that can be proposed.
    pub draft_vocab: usize,
    /// Factor of embeddings.
    pub embedding_scale: f64,
    /// Factor of logits.
    pub logit_scale: f64,
    /// `c` of c·tanh(logit / c), if logits are capped.
    pub softcap: Option<f64>,
    /// The model it was made for, if the file names it.
    pub made_for: Option<String>,
}

impl BlockConfig {
    /// Conventions of its layers: queries and keys are normed.
    pub(super) fn conventions() -> Conventions {
        LLAMA_LAYOUT.iter().find(|layout| layout.qk_norm).copied().unwrap_or(LLAMA_LAYOUT[0])
    }

    /// Checks that the values are in range and fit together.
    pub(super) fn checked(self) -> Result<Self, ModelError> {
        let wrong = |what: String| Err(ModelError::Metadata(what));
        let (states, block, vocab) = (self.target_layers.len(), self.block_size, self.layers.vocab);
        if !(1..=MAX_STATES).contains(&states) {
            return wrong(format!("'target_layer_ids' names {states} layers, expected 1 to {MAX_STATES}"));
        }
        if !(2..=MAX_BLOCK).contains(&block) {
            return wrong(format!("'block_size' is {block}, expected 2 to {MAX_BLOCK}"));
        }
        if self.mask_token as usize >= vocab {
            return wrong(format!("'mask_token_id' is {}, and there are {vocab} tokens", self.mask_token));
        }
        if !(1..=vocab).contains(&self.draft_vocab) {
            return wrong(format!("'draft_vocab_size' is {}, expected 1 to {vocab}", self.draft_vocab));
        }
        if self.markov_rank.is_some_and(|rank| !(1..=MAX_RANK).contains(&rank)) {
            return wrong(format!("'markov_rank' is out of range: 1 to {MAX_RANK} can be"));
        }
        if self.kind == BlockKind::Dspark && self.markov_rank.is_none() {
            return wrong("a DSpark drafter without a Markov head ('markov_rank')".to_owned());
        }
        let state = self.layers.d_model;
        let readable = [state, state + self.markov_rank.unwrap_or(0)];
        if let Some(width) = self.confidence.filter(|width| !readable.contains(width)) {
            return wrong(format!(
                "its confidence head reads {width} numbers, expected {} (a state), or {} with the Markov head's",
                readable[0], readable[1]
            ));
        }
        if let Some(path) = self.path {
            self.check_path(path)?;
        }
        if self.sight.iter().any(|sight| sight.window == Some(0)) {
            return wrong("'sliding_window' is 0".to_owned());
        }
        Ok(self)
    }

    /// Checks the sizes of convolutions and selector.
    fn check_path(&self, PathSizes { taps, group, rank, candidates }: PathSizes) -> Result<(), ModelError> {
        let (block, vocab, d) = (self.block_size, self.layers.vocab, self.layers.d_model);
        let most = vocab.min(MAX_CANDIDATES);
        for (key, value, most) in [
            ("conv_kernel_size", taps, block),
            ("conv_group_size", group, d),
            ("selector_rank", rank, MAX_RANK),
            ("selector_top_k", candidates, most),
        ] {
            if !(1..=most).contains(&value) {
                return Err(ModelError::Metadata(format!("'{key}' is {value}, expected 1 to {most}")));
            }
        }
        if !d.is_multiple_of(group) {
            return Err(ModelError::Metadata(format!(
                "'conv_group_size' is {group}, which does not divide {d} channels"
            )));
        }
        if self.draft_vocab != vocab {
            return Err(ModelError::Unsupported(format!(
                "a DFlash 2 drafter that proposes {} of {vocab} tokens ('draft_vocab_size') is not supported",
                self.draft_vocab
            )));
        }
        Ok(())
    }

    /// Whether it has an output head of its own: that of a smaller vocabulary.
    #[must_use]
    pub fn has_own_head(&self) -> bool {
        self.draft_vocab < self.layers.vocab
    }
}
