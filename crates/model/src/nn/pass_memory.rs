//! What passes on candle take beside weights and cache, for the account of a model's memory.
//!
//! Most tensors live until the function that made them ends. So a pass takes most in attention, whose scores exist twice on
//! candle, before and after a step of the softmax (wide copies of cached halves exist when one of them does, and are
//! smaller), and never as a whole on the native kernels; or in the feed-forward layer; or, with bf16 weights, where candle
//! widens the largest matrix to multiply with it.

use draftscope_kernels::{HEAD_CHUNK, HEAD_EXTRA, HEAD_SEGMENT};

use crate::nn::{PREFILL_ROWS, ROW_BY_ROW};

/// What multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Multiplier {
    /// candle, with weights as they are.
    Candle,
    /// candle, which widens bf16 weights to f32.
    Widening,
    /// The native kernels, which read copies of rows, as f32 if the matrices are `dense`, else as codes, and write tiles.
    Kernels {
        /// Rows of a tile.
        tile_rows: usize,
        /// Whether the matrices are not quantised.
        dense: bool,
    },
}

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
    /// What the native kernels keep of layers of experts: gate and up for each expert of a row, and the row's sums and
    /// output; then what matrices read: input and product for each expert, and the row itself.
    pub experts: [usize; 2],
    /// Tokens of the vocabulary.
    pub vocab: usize,
}

/// [`PassWidths::experts`] of a row that runs so many experts of this width.
pub(crate) fn expert_numbers(used: usize, d_model: usize, width: usize) -> [usize; 2] {
    [used * 2 * width + 2 * d_model, used * (d_model + width) + d_model]
}

impl PassWidths {
    /// What candle's attention keeps of a row beside its queries: scores twice, or once beside the answers.
    fn candle_scores(&self, rows: usize, ctx_len: usize) -> usize {
        let scores = if rows > ROW_BY_ROW { self.heads * ctx_len } else { 0 };
        scores + scores.max(self.answers)
    }

    /// The same for attention on the native kernels: queries row by row, sums and answers; and of half the rows, which run
    /// at once, queries in groups, sums of a chunk and weights of a segment.
    fn kernel_scores(&self) -> usize {
        3 * self.answers + self.heads * HEAD_EXTRA + (2 * self.answers + self.heads * HEAD_SEGMENT) / 2
    }

    /// The same for each of a few rows, for which every chunk has sums of its own.
    fn few_scores(&self, ctx_len: usize) -> usize {
        3 * self.answers + ctx_len.div_ceil(HEAD_CHUNK) * (self.answers + self.heads * HEAD_EXTRA)
    }

    /// Most bytes of passes over a prompt that fills the context, of which the states of `block` tokens are kept, with the
    /// angles of as many draft modules. Modules' passes take turns with the target's and need no more besides states.
    /// `largest`: numbers of the largest matrix that is multiplied with.
    #[must_use]
    pub fn bytes(
        &self,
        multiplier: Multiplier,
        (block, ctx_len): (usize, usize),
        (modules, largest): (usize, usize),
    ) -> u64 {
        let rows = PREFILL_ROWS.min(ctx_len);
        let on_kernels = matches!(multiplier, Multiplier::Kernels { .. });
        // beside the residual stream and its norm
        let attending = |rows: usize, scores: usize| rows * (scores + self.queries + 2 * self.d_model);
        let attention = match on_kernels {
            true => {
                let few = attending(ROW_BY_ROW.min(ctx_len), self.few_scores(ctx_len));
                attending(rows, self.kernel_scores()).max(few)
            }
            false => attending(rows, self.candle_scores(rows, ctx_len)),
        };
        // rows of an expert, and sums of experts before and after one is added
        let sums = if self.experts[0] > 0 && !on_kernels { 3 * self.d_model } else { 0 };
        // gate, up, their product; the residual stream, its norm and the output
        let gated = |width: usize| rows * (3 * width + 3 * self.d_model);
        let feed_forward = (gated(self.ffn) + rows * sums).max(gated(self.dense_ffn));
        let other = rows * (self.other + 3 * self.d_model);
        let widest = match multiplier {
            Multiplier::Candle => attention.max(feed_forward).max(other),
            Multiplier::Widening => {
                // gate and up are gone when the last matrix is widened, but it does not fit into the places that they leave
                let product = |width: usize| rows * width / 2; // in 16 bits
                let widened = |width: usize| gated(width) + product(width) + width * self.d_model;
                let feed_forward = (widened(self.ffn) + rows * sums).max(widened(self.dense_ffn));
                attention.max(feed_forward).max(other).max(largest + rows * 3 * self.d_model)
            }
            Multiplier::Kernels { tile_rows, .. } => {
                // gate and up are gone when the last matrix reads the product
                let ffn = self.ffn.max(self.dense_ffn);
                let down = rows * (ffn + 3 * self.d_model) + tile_rows.min(rows) * ffn;
                attention.max(feed_forward).max(down).max(other)
            }
        };
        let [kept_of_experts, read] = self.experts;
        let experts = match multiplier {
            Multiplier::Kernels { dense: true, .. } => rows * (kept_of_experts + read),
            // a block of codes with its scales takes 3/8 of its numbers
            Multiplier::Kernels { dense: false, .. } => rows * (kept_of_experts + read * 3 / 8),
            _ => 0,
        };
        let angles = (1 + modules) * ctx_len * self.rotary;
        // states of the rows before the last block of a pass; its own are copied when its tensors are gone
        let before = block.min(ctx_len) - block.min(rows);
        // while a module runs, all states of the target's pass, and its own
        let of_module = if modules > 0 { (block.min(ctx_len) + block.min(rows)) * self.d_model } else { 0 };
        let kept = before * self.d_model + of_module + 2 * self.vocab + rows * self.inputs;
        ((widest + experts + angles + kept) * size_of::<f32>()) as u64
    }
}
