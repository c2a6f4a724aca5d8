//! The kernels: sources assembled for a form of weights and a number of rows, and the buffers that each binds.

use draftscope_kernels::Encoding;

use super::rows::MAX_ROWS;
use crate::forms::Form;

/// Rows that share a reading of the weights; passes have twice as many at most, but for those of a prompt.
pub const ROWS_AT_ONCE: usize = 8;

/// Rows of a tile, by which longer passes multiply: see `tile.wgsl`.
pub const TILE: usize = 64;

/// What a kernel computes. Its buffers and dimensions are described in the shader of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kernel {
    /// Rows of the embedding.
    Embed(Form),
    /// Root-mean-square norm, and activations as codes.
    Norm,
    /// Product with a matrix.
    Matrix(Form),
    /// Product of few rows with a matrix whose last rows are in another form; both are forms of codes.
    MatrixPair(Form, Form),
    /// Both products of a feed-forward layer and what is between them and the next.
    GateUp(Form),
    /// Bias, norm and rotation of heads; keys and values to the cache.
    Rope,
    /// Attention over segments.
    Attend,
    /// Joins segments.
    Join,
    /// Both for rows of a prompt.
    AttendPrompt,
    /// What greedy decoding asks of logits.
    Stats,
    /// The token of the largest logit.
    Pick,
    /// Adds a layer's normed output, and norms the sum.
    NormAdd,
    /// Caps logits.
    Cap,
    /// The short convolution of recurrent layers.
    Convolve,
    /// Gated DeltaNet; a lane has so many rows of a state.
    Delta(u32),
    /// Norms and gates its answers.
    GateNorm,
    /// What blocks add for each token.
    LayerInputs,
    /// The end of a block that adds its part of that; both matrices are in this form.
    LayerInput(Form),
    /// The largest logits, and those of drafted tokens.
    Best,
    /// Reading alone, to time it.
    Stream,
}

/// A kernel for a number of rows: a power of two up to [`ROWS_AT_ONCE`], or [`TILE`], or 0 where the number does not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Variant {
    /// The kernel.
    pub kernel: Kernel,
    /// Rows.
    pub rows: usize,
}

/// How a kernel uses a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

impl Kernel {
    /// Every kernel in every form.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let of_form = |form| [Self::Embed(form), Self::Matrix(form), Self::GateUp(form), Self::LayerInput(form)];
        let by_form = Form::ALL.into_iter().flat_map(of_form);
        let others = [
            Self::Norm,
            Self::Rope,
            Self::Attend,
            Self::Join,
            Self::AttendPrompt,
            Self::Stats,
            Self::Pick,
            Self::NormAdd,
            Self::Cap,
            Self::Best,
            Self::Stream,
            Self::LayerInputs,
        ];
        let recurrent = [Self::Convolve, Self::Delta(4), Self::Delta(32), Self::GateNorm];
        // every form of codes as first and as other
        let codes = || Form::ALL.into_iter().filter(|form| !form.is_dense());
        let pairs = codes().zip(codes().cycle().skip(5)).map(|(first, other)| Self::MatrixPair(first, other));
        by_form.chain(others).chain(recurrent).chain(pairs).collect()
    }

    /// What it computes, as shown to the user.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Embed(form) => format!("embedding {}", form.name()),
            Self::Norm => "norm".to_owned(),
            Self::Matrix(form) => format!("product {}", form.name()),
            Self::MatrixPair(first, other) => format!("product {} and {}", first.name(), other.name()),
            Self::GateUp(form) => format!("gate and up {}", form.name()),
            Self::Rope => "heads and cache".to_owned(),
            Self::Attend => "attention".to_owned(),
            Self::Join => "joining segments".to_owned(),
            Self::AttendPrompt => "attention of a prompt".to_owned(),
            Self::Stats => "statistics of logits".to_owned(),
            Self::Pick => "best token".to_owned(),
            Self::NormAdd => "norm and sum".to_owned(),
            Self::Cap => "cap of logits".to_owned(),
            Self::Convolve => "convolution".to_owned(),
            Self::Delta(_) => "delta rule".to_owned(),
            Self::GateNorm => "norm and gate".to_owned(),
            Self::LayerInputs => "inputs of layers".to_owned(),
            Self::LayerInput(form) => format!("input of a layer {}", form.name()),
            Self::Best => "largest logits".to_owned(),
            Self::Stream => "reading".to_owned(),
        }
    }

    /// The variant for `m` rows.
    #[must_use]
    pub fn for_rows(self, m: usize) -> Variant {
        let rows = match self {
            Self::Matrix(_) | Self::GateUp(_) if m > MAX_ROWS => TILE,
            Self::Matrix(_) | Self::MatrixPair(..) | Self::GateUp(_) => m.clamp(1, ROWS_AT_ONCE).next_power_of_two(),
            _ => 0,
        };
        Variant { kernel: self, rows }
    }

    /// Its storage buffers, from binding 2 on.
    pub(crate) const fn buffers(self) -> &'static [Access] {
        use Access::{Read as R, Write as W};
        match self {
            Self::Embed(_) => &[R, R, R, W],
            Self::Norm => &[R, R, W, W, W],
            Self::Matrix(_) => &[R, R, R, R, R, W],
            Self::MatrixPair(..) => &[R, R, R, R, R, W, R, R],
            Self::GateUp(_) => &[R, R, R, R, R, R, R, W, W, W],
            Self::Rope => &[R, R, R, R, W, W, W],
            Self::Attend => &[R, R, R, W],
            Self::Join => &[R, R, W, W, W],
            Self::AttendPrompt => &[R, R, R, R, W, W, W],
            Self::Stats => &[R, W],
            Self::Pick => &[R, R, W],
            Self::NormAdd => &[R, R, R, W, W, W, W],
            Self::Cap => &[W],
            Self::Convolve => &[R, R, R, W, W, W],
            Self::Delta(_) => &[R, R, W, W],
            Self::GateNorm => &[R, R, R, W, W, W],
            Self::LayerInputs => &[R, R, W],
            Self::LayerInput(_) => &[R, R, R, R, R, R, W, W, W, W, W],
            Self::Best => &[R, R, R, W],
            Self::Stream => &[R, W],
        }
    }

    /// A number for each kind of layout.
    pub(crate) const fn layout(self) -> usize {
        match self {
            Self::Embed(_) => 0,
            Self::Norm => 1,
            Self::Matrix(_) => 2,
            Self::GateUp(_) => 3,
            Self::Rope => 4,
            Self::Attend => 5,
            Self::Join => 6,
            Self::Stats => 7,
            Self::Pick => 8,
            Self::NormAdd => 9,
            Self::Cap => 10,
            Self::Convolve => 11,
            Self::Delta(_) => 12,
            Self::GateNorm => 13,
            Self::AttendPrompt => 14,
            Self::LayerInputs => 15,
            Self::LayerInput(_) => 16,
            Self::Best => 17,
            Self::Stream => 18,
            Self::MatrixPair(..) => 19,
        }
    }

    /// One kernel for each layout, in order.
    pub(crate) const LAYOUTS: [Self; 20] = [
        Self::Embed(Form::Of(Encoding::F32)),
        Self::Norm,
        Self::Matrix(Form::Of(Encoding::F32)),
        Self::GateUp(Form::Of(Encoding::F32)),
        Self::Rope,
        Self::Attend,
        Self::Join,
        Self::Stats,
        Self::Pick,
        Self::NormAdd,
        Self::Cap,
        Self::Convolve,
        Self::Delta(4),
        Self::GateNorm,
        Self::AttendPrompt,
        Self::LayerInputs,
        Self::LayerInput(Form::Of(Encoding::F32)),
        Self::Best,
        Self::Stream,
        Self::MatrixPair(Form::Wide, Form::Wide),
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_with_one_layout_bind_the_same_buffers() {
        for kernel in Kernel::all() {
            assert_eq!(kernel.buffers(), Kernel::LAYOUTS[kernel.layout()].buffers(), "{kernel:?}");
        }
    }
}
