//! Draft modules that draft all positions of a block in one pass.

use super::draft_module::DraftPlan;
use super::matrix::{Matrix, Vector};
use draftscope_protocol::TokenId;

/// A module that drafts all positions in one pass over `[anchor, mask, mask, …]`: DFlash (arXiv:2602.06036), DSpark, which
/// has the Markov head and the head that predicts acceptance, and DFlash 2, which has convolutions and a selector.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockDraft {
    /// Its layers and what is around them.
    pub module: DraftPlan,
    /// Rows of a pass, the anchor's included.
    pub size: usize,
    /// Token in place of those to be drafted.
    pub mask: TokenId,
    /// Whether the anchor's row drafts the token after it; otherwise each mask's row drafts its own.
    pub from_anchor: bool,
    /// Factor of embeddings.
    pub embedding_scale: f64,
    /// Factor of logits.
    pub logit_scale: f64,
    /// `c` of c·tanh(logit / c), if logits are capped.
    pub cap: Option<f64>,
    /// `w2 · w1[token before]` is added to a position's logits: `[vocab, rank]` and `[draft vocabulary, rank]`.
    pub markov: Option<[Matrix; 2]>,
    /// Predicts acceptance.
    pub confidence: Option<Confidence>,
    /// Of each layer, around its mixer and around its feed-forward part; empty without them.
    pub convolutions: Vec<[Convolution; 2]>,
    /// Chooses among the best tokens of each position.
    pub selector: Option<Selector>,
}

/// The chance that a draft is accepted if those before it are: `sigmoid(weights · [state ; w1 of the token before] + bias)`.
/// The weights may be as many as a state has numbers; then the second part is not read.
#[derive(Clone, Debug, PartialEq)]
pub struct Confidence {
    /// `[1, d or d + rank]`, which may be stored as a vector.
    pub weights: Matrix,
    /// Added to the product, if the file has one.
    pub bias: Option<Vector>,
}

/// A convolution over the rows of a block around a step of a layer, before it (side 0) and after it (side 1):
/// `out[i, c] = Σ_t (base[side, t, c] + δ[i, side, t, c / group]) · x[i − t, c]`, where rows before the block's first are zero.
/// One product makes all of δ: `δ[i] = project · x[i]`, `x` being what the step reads before the convolution. Source: DFlash 2
/// (`DFlashGroupedConv` in vLLM's `qwen3_dflash2.py`, `GroupedDynamicCausalConv` in `speculators`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Convolution {
    /// Name of the tensor `[2, taps, d]`.
    pub base: String,
    /// `[2 · taps · d / group, d]`: outputs of a side, then of a tap, then of a group.
    pub project: Matrix,
    /// Rows that an output depends on, its own included.
    pub taps: usize,
    /// Adjacent channels that share an output of the product.
    pub group: usize,
}

/// What chooses a path through the best tokens of each position: the score of candidate `c` at position `i` after token `p` is
/// `logit[i, c] + ⟨predecessors[p] ⊙ hidden · state[i], successors[c]⟩`, and q is its softmax over the candidates. Source:
/// DFlash 2 (`CandidateSelector` in vLLM's `qwen3_dflash2.py` and in `speculators`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    /// `[vocab, rank]`
    pub predecessors: Matrix,
    /// `[vocab, rank]`
    pub successors: Matrix,
    /// `[rank, d]`
    pub hidden: Matrix,
    /// Candidates of a position.
    pub candidates: usize,
}

impl BlockDraft {
    /// Most drafts of a pass.
    #[must_use]
    pub fn most_drafts(&self) -> usize {
        if self.from_anchor { self.size } else { self.size - 1 }
    }

    /// Weights of the matrices that it does not share with its target.
    #[must_use]
    pub fn weights(&self) -> u64 {
        let heads = self.markov.iter().flatten().chain(self.confidence.iter().map(|head| &head.weights));
        let selector = self.selector.iter().flat_map(|selector| selector.matrices());
        let projections = self.convolutions.iter().flatten().map(|convolution| &convolution.project);
        self.module.weights() + heads.chain(selector).chain(projections).map(Matrix::weights).sum::<u64>()
    }
}

impl Selector {
    /// Its matrices.
    #[must_use]
    pub fn matrices(&self) -> [&Matrix; 3] {
        [&self.predecessors, &self.successors, &self.hidden]
    }
}
