//! One transformer block of a [mixer](Mixer) and a gated layer, over at most
//! [`PROMPT_ROWS`](draftscope_kernels::PROMPT_ROWS) rows.
//!
//! Five regions of parallel work: the two of the mixer; output projection with the residual; gate and up with their activation; down with the residual. A norm after the mixer or after the gated layer
//! takes one region more, since it needs all columns. The thread that computes columns of the residual stream
//! also norms them, as far as that is possible without the other columns. Rows are stored as tiles `[d / 16][m]`.
//! Invariant: nothing depends on which thread does an item.

use super::{
    answers::Answers,
    feed::{Feed, FeedMemory},
    inputs::{Inputs, TokenInput},
    latent::LatentMemory,
    matrix::Matrix,
    mixer::{LayerMemory, Mixer},
    pass::{Pass, Stream},
};
use crate::nn::TransformerConfig;
use crate::plan;
use draftscope_kernels::{Acts, LANES, Operand, PARTIAL_EXTRA, PROMPT_ROWS, SEGMENT};

/// Sizes of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BlockShape {
    pub(crate) d_model: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) eps: f32,
}

impl BlockShape {
    /// Of a block of a model of these sizes.
    pub(crate) fn of(c: &TransformerConfig) -> Self {
        let (d_model, heads, kv_heads, head_dim) = (c.d_model, c.heads, c.kv_heads, c.head_dim);
        Self { d_model, heads, kv_heads, head_dim, eps: c.norm_eps }
    }

    /// The same with other heads.
    pub(crate) fn with_heads(self, of: &plan::Attention) -> Self {
        Self { heads: of.heads, kv_heads: of.kv_heads, head_dim: of.key_width, ..self }
    }

    /// The same with those of a plan's heads of which partial results take most, or without heads if there are none.
    pub(crate) fn widest(self, plan: &plan::Plan) -> Self {
        let shapes = plan.attentions().map(|of| self.with_heads(of));
        shapes.max_by_key(|shape| shape.partial_bytes(1)).unwrap_or_else(|| self.without_heads())
    }

    /// The same for blocks without keys and values of heads.
    fn without_heads(self) -> Self {
        Self { heads: 0, kv_heads: 0, ..self }
    }

    /// Bytes of what attention keeps of one row that sees so many positions, until its segments are joined.
    pub(crate) fn partial_bytes(&self, seen: usize) -> usize {
        seen.div_ceil(SEGMENT) * self.heads * (self.head_dim + PARTIAL_EXTRA) * size_of::<f32>()
    }
}

/// A norm's weights by lanes.
pub(crate) type NormWeight = Vec<[f32; LANES]>;

/// Weights of one block; copies share the matrices.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    pub(crate) attn_norm: NormWeight,
    pub(crate) mixer: Mixer,
    pub(crate) out: Matrix, // [d, width of the mixer's answers]
    pub(crate) ffn_norm: NormWeight,
    pub(crate) feed: Feed,
    /// Norms of what the mixer and the feed-forward part give, before it is added.
    pub(crate) after_norms: Option<[NormWeight; 2]>,
    /// Whether the mixer and the feed-forward part read the stream as it is; the weights of their norms are 1 then.
    pub(crate) raw: [bool; 2],
    /// Factors of what they add, where no norm comes after them.
    pub(crate) scales: [f32; 2],
    /// What the token adds after that.
    pub(crate) token_input: Option<TokenInput>,
    /// Factor of the stream at last.
    pub(crate) factor: f32,
}

/// What a step reads of the stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    /// Weights of its norm.
    pub(super) weight: &'a NormWeight,
    /// Whether it reads the stream as it is, times the weights.
    pub(super) raw: bool,
    /// The forms that its matrix reads.
    pub(super) operand: Operand,
}

/// Memory of a pass, reused by the next.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// The residual stream, `[d / 16][m]`.
    pub(crate) x: Vec<[f32; LANES]>,
    pub(crate) acts: Acts,
    /// What tokens add to each layer.
    pub(super) inputs: Inputs,
    pub(crate) attended: Acts,
    pub(super) wide: Answers,
    pub(super) latent: LatentMemory,
    pub(super) feed: FeedMemory,
    pub(crate) heads: Vec<[f32; LANES]>, // [heads + 2 kv_heads][head_dim / 16][m]
    /// `[kv_heads][teams][segments][rows of a team][group][head_dim + PARTIAL_EXTRA]`
    pub(crate) partials: Vec<f32>,
    pub(super) squares: Vec<f32>, // [d / 32][m]
    given: Vec<[f32; LANES]>,     // [d / 16][m], what a step gives, before its norm
}

/// What follows a block.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Next<'a> {
    /// Something else.
    Else,
    /// A norm, and then this matrix.
    Head(&'a Matrix),
    Block(&'a Layer),
}

impl Next<'_> {
    fn matrix(&self) -> Option<&Matrix> {
        match self {
            Self::Else => None,
            Self::Head(matrix) => Some(matrix),
            Self::Block(layer) => Some(layer.mixer.first_matrix()),
        }
    }
}

/// Makes products with these rows carry a factor.
fn scale(acts: &mut Acts, factor: f32) {
    if factor != 1.0 {
        acts.set_factors([factor; PROMPT_ROWS]);
    }
}

impl Layer {
    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        let norms = [&self.attn_norm, &self.ffn_norm].into_iter().chain(self.after_norms.iter().flatten());
        self.mixer.bytes()
            + self.out.bytes()
            + self.feed.bytes()
            + self.token_input.as_ref().map_or(0, TokenInput::bytes)
            + norms.map(|norm| size_of_val(norm.as_slice())).sum::<usize>()
    }

    /// Adds this to the weights of its norms.
    pub(crate) fn shift_norms(&mut self, by: f32) {
        let norms = [&mut self.attn_norm, &mut self.ffn_norm].into_iter().chain(self.after_norms.iter_mut().flatten());
        norms
            .chain(self.mixer.norms_mut())
            .chain(self.feed.norms_mut())
            .flatten()
            .flatten()
            .for_each(|weight| *weight += by);
    }

    /// Norms the rows in `scratch.x` for the first block of a pass; returns whether they were finite.
    pub(crate) fn enter(&self, pass: Pass<'_>, scratch: &mut Scratch) -> bool {
        pass.read(&scratch.x, self.reader(), &mut scratch.acts)
    }

    /// What the mixer reads.
    fn reader(&self) -> Reader<'_> {
        Reader { weight: &self.attn_norm, raw: self.raw[0], operand: self.mixer.operand() }
    }

    /// Runs the rows in `scratch.x` in place; the mixer reads `scratch.acts`, where the input of the next block is
    /// left, if a block follows. Returns whether the rows were finite.
    pub(crate) fn forward(&self, pass: Pass<'_>, memory: LayerMemory<'_>, scratch: &mut Scratch) -> bool {
        self.mixer.forward(pass, (memory, &self.out), scratch);
        pass.cpu.pool.soon(self.feed.first_panel());
        self.finish(pass, scratch)
    }

    /// The part after the mixer; returns whether the rows were finite.
    pub(crate) fn finish(&self, pass: Pass<'_>, scratch: &mut Scratch) -> bool {
        let after = self.after_norms.as_ref().map_or([None; 2], |norms| norms.each_ref().map(Some));
        let Scratch { x, acts, attended, squares, given, .. } = scratch;
        scale(attended, self.scales[0]);
        let next = Some(Reader { weight: &self.ffn_norm, raw: self.raw[1], operand: self.feed.operand() });
        let stream = Stream { x, given, squares, out: acts, factor: 1.0 };
        let finite = pass.add((&self.out, attended), (after[0], next), stream);
        finite & self.feed_forward(pass, after[1], scratch)
    }

    /// The feed-forward part and what comes after it; returns whether the rows were finite.
    fn feed_forward(&self, pass: Pass<'_>, after: Option<&NormWeight>, scratch: &mut Scratch) -> bool {
        let Scratch { x, acts, feed: memory, squares, given, inputs, .. } = scratch;
        let next = match pass.next {
            Next::Block(next) => Some(next.reader()),
            Next::Head(_) | Next::Else => None,
        };
        let soon = || pass.cpu.pool.soon(pass.next.matrix().map_or(&[], Matrix::first_panel));
        let (follows, factor) = match &self.token_input {
            Some(input) => (Some(input.reader()), 1.0),
            None => (next, self.factor),
        };
        let stream = Stream { x, given, squares, out: acts, factor };
        let finite = match &self.feed {
            Feed::Dense(gated) => {
                gated.inner(pass, stream.out, memory);
                soon();
                scale(&mut memory.inner, self.scales[1]);
                pass.add((&gated.down, &memory.inner), (after, follows), stream)
            }
            Feed::Experts(experts) => {
                experts.forward(pass, (stream.x, stream.out), memory, (stream.given, stream.squares));
                soon();
                pass.add_given((after, follows), self.scales[1], stream)
            }
        };
        let Some(input) = &self.token_input else { return finite };
        let stream = Stream { x, given, squares, out: acts, factor: self.factor };
        input.add(pass, (inputs, memory), next, stream) & finite
    }
}
