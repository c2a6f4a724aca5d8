//! The seam of block drafters: modules that draft all positions in one pass.

use crate::{DraftModule, ModelError, Rows, Tap};
use draftscope_protocol::{DrafterInfo, TokenId};

/// What a file of its own drafts with, and its header entry.
pub enum LoadedModules {
    /// Modules that draft one token after the other, one for each depth.
    Chain(Vec<Box<dyn DraftModule>>, DrafterInfo),
    /// A module that drafts all positions in one pass.
    Block(Box<dyn BlockModule>, DrafterInfo),
}

impl From<(Vec<Box<dyn DraftModule>>, DrafterInfo)> for LoadedModules {
    fn from((modules, info): (Vec<Box<dyn DraftModule>>, DrafterInfo)) -> Self {
        Self::Chain(modules, info)
    }
}

/// The best tokens of a position, most probable first, before and after a selector.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Candidates {
    /// The tokens.
    pub tokens: Vec<TokenId>,
    /// The position's own logit of each.
    pub alone: Vec<f32>,
    /// Their scores after the token before: logits of the distribution that the draft is drawn from, which has no other
    /// tokens.
    pub scores: Vec<f32>,
}

/// A module that drafts a block of positions in one pass from the target's hidden states: DFlash, DFlash 2 and DSpark.
///
/// Its layers have a KV cache of the target's context: states of the target, fused and projected. The tokens of a block
/// attend to that cache and to each other; nothing of them is cached. Sources: DFlash (Chen et al., arXiv:2602.06036 and
/// `dflash/model.py` of z-lab/dflash), DFlash 2 (`speculators/models/dflash2` of vllm-project/speculators), DSpark
/// (`deepspec/modeling/dspark` of deepseek-ai/DeepSpec).
pub trait BlockModule {
    /// Positions of the context in the cache.
    fn len(&self) -> usize;

    /// Whether the cache is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The target's states that it reads.
    fn tap(&self) -> Tap;

    /// Most drafts of a pass.
    fn most_drafts(&self) -> usize;

    /// Token of each logit, ascending.
    fn draft_vocab(&self) -> &[TokenId];

    /// Appends positions to the cache: `[m, states · d]`, as wide as the [tap](BlockModule::tap).
    ///
    /// # Errors
    /// [`ModelError::ContextFull`] if they do not fit, or what the backend reports; the cache then is as before.
    fn inject(&mut self, hidden: &Rows) -> Result<(), ModelError>;

    /// Runs one pass over the anchor, which follows the cached positions, and masks after it: logits of the `count`
    /// tokens after the anchor, `[count, draft vocabulary]`. No row knows the tokens of the rows before it.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] for more than [`BlockModule::most_drafts`], or what the backend reports.
    fn draft(&mut self, anchor: TokenId, count: usize) -> Result<Rows, ModelError>;

    /// Whether [`BlockModule::correct`] changes anything.
    fn corrects(&self) -> bool {
        false
    }

    /// Adds what the token before a position says of it to the logits of that position: DSpark's Markov head.
    ///
    /// # Errors
    /// What the backend reports.
    fn correct(&self, _logits: &mut [f32], _before: TokenId) -> Result<(), ModelError> {
        Ok(())
    }

    /// The candidates of row `index` of the last pass by its `logits`, with their scores after the token `before`: DFlash 2's
    /// selector. `None` without one.
    ///
    /// # Errors
    /// [`ModelError::Vocabulary`] when that token is unknown.
    fn select(&self, _index: usize, _logits: &[f32], _before: TokenId) -> Result<Option<Candidates>, ModelError> {
        Ok(None)
    }

    /// The chance, 0 to 1, that the target accepts the draft of row `index` of the last pass if it accepts those before
    /// it, the last of which is `before`: DSpark's confidence head. `None` without such a head.
    ///
    /// # Errors
    /// What the backend reports.
    fn confidence(&self, _index: usize, _before: TokenId) -> Result<Option<f32>, ModelError> {
        Ok(None)
    }

    /// Drops positions `len..` of the cache.
    ///
    /// # Errors
    /// [`ModelError::Rewind`] when there are fewer.
    fn truncate(&mut self, len: usize) -> Result<(), ModelError>;

    /// The same module, weights shared, with a copy of the cache.
    ///
    /// # Errors
    /// When the cache cannot be copied.
    fn fork(&self) -> Result<Box<dyn BlockModule>, ModelError>;
}
