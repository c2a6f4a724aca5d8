//! What passes on candle take beside weights and cache, for the account of a model's memory.
//!
//! Most tensors live until the function that made them ends. So a pass takes most in attention, whose scores exist twice on
//! candle, before and after a step of the softmax (wide copies of cached halves exist when one of them does, and are
//! smaller); or in the feed-forward layer; or, with bf16 weights, where candle widens the largest matrix to multiply with
//! it.

use crate::nn::pass_rows::{PREFILL_ROWS, ROW_BY_ROW};

/// Sizes of the largest layer, in numbers a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassWidths {
    /// Width of the hidden state.
    pub d_model: usize,
    /// Query heads.
    pub heads: usize,
    /// Queries, in all forms that exist while there are scores.
    pub queries: usize,
    /// What all query heads give: heads × width of a value; of latents, where these are what is cached.
    pub answers: usize,
    /// Width of the feed-forward layer; where there are experts, of the shared ones or of one.
    pub ffn: usize,
    /// Width of the layers without experts in a model that has experts; 0 if there are none.
    pub dense_ffn: usize,
    /// Anything else that may be wider, such as the projections of a linear layer.
    pub other: usize,
    /// What all layers read besides the residual stream.
    pub inputs: usize,
    /// Rotated values of a head, of all tables of angles together.
    pub rotary: usize,
    /// Whether there are experts.
    pub has_experts: bool,
    /// Tokens of the vocabulary.
    pub vocab: usize,
}

impl PassWidths {
    /// What candle's attention keeps of a row beside its queries: scores twice, or once beside the answers.
    fn candle_scores(&self, rows: usize, ctx_len: usize) -> usize {
        let scores = if rows > ROW_BY_ROW { self.heads * ctx_len } else { 0 };
        scores + scores.max(self.answers)
    }

    /// Most bytes of passes over a prompt that fills the context, of which the states of `block` tokens are kept, with the
    /// angles of as many draft modules. Modules' passes take turns with the target's and need no more besides states.
    /// `widens`: bf16 weights are widened to f32;
    /// `largest`: numbers of the largest matrix that is multiplied with.
    #[must_use]
    pub fn bytes(&self, widens: bool, (block, ctx_len): (usize, usize), (modules, largest): (usize, usize)) -> u64 {
        let rows = PREFILL_ROWS.min(ctx_len);
        // beside the residual stream and its norm
        let attention = rows * (self.candle_scores(rows, ctx_len) + self.queries + 2 * self.d_model);
        // rows of an expert, and sums of experts before and after one is added
        let sums = if self.has_experts { 3 * self.d_model } else { 0 };
        // gate, up, their product; the residual stream, its norm and the output
        let gated = |width: usize| rows * (3 * width + 3 * self.d_model);
        let other = rows * (self.other + 3 * self.d_model);
        let widest = if widens {
            // gate and up are gone when the last matrix is widened, but it does not fit into the places that they leave
            let product = |width: usize| rows * width / 2; // in 16 bits
            let widened = |width: usize| gated(width) + product(width) + width * self.d_model;
            let feed_forward = (widened(self.ffn) + rows * sums).max(widened(self.dense_ffn));
            attention.max(feed_forward).max(other).max(largest + rows * 3 * self.d_model)
        } else {
            attention.max(gated(self.ffn) + rows * sums).max(gated(self.dense_ffn)).max(other)
        };
        let angles = (1 + modules) * ctx_len * self.rotary;
        // states of the rows before the last block of a pass; its own are copied when its tensors are gone
        let before = block.min(ctx_len) - block.min(rows);
        // while a module runs, all states of the target's pass, and its own
        let of_module = if modules > 0 { (block.min(ctx_len) + block.min(rows)) * self.d_model } else { 0 };
        let kept = before * self.d_model + of_module + 2 * self.vocab + rows * self.inputs;
        ((widest + angles + kept) * size_of::<f32>()) as u64
    }
}
