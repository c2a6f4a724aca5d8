//! The step of a block in which a position learns of earlier ones.
//!
//! Every mixer reads `acts` of the [`Scratch`] memory and leaves its answers in `attended` there, ready for the block's output
//! projection. Invariant: a row's answers depend only on the rows before it, to the bit.

use super::{
    attention::Attention,
    cache::LayerCache,
    layer::{NormWeight, Scratch},
    matrix::Matrix,
    pass::Pass,
};
use draftscope_kernels::Operand;

/// Weights of a mixer without its output projection; copies share the matrices.
#[derive(Clone, Debug)]
pub(in crate::model) enum Mixer {
    /// Over keys and values of each position.
    Attention(Attention),
}

/// What a layer keeps of earlier positions, of its mixer's kind.
#[derive(Debug)]
pub(in crate::model) enum LayerMemory<'a> {
    /// Keys and values.
    Keys(LayerCache<'a>),
}

impl Mixer {
    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Attention(attention) => attention.bytes(),
        }
    }

    /// Its norms whose conventions may be shifted.
    pub(super) fn norms_mut(&mut self) -> impl Iterator<Item = &mut NormWeight> {
        match self {
            Self::Attention(attention) => attention.norms_mut(),
        }
    }

    /// The matrix that reads the stream first.
    pub(in crate::model) fn first_matrix(&self) -> &Matrix {
        match self {
            Self::Attention(attention) => &attention.qkv,
        }
    }

    /// The forms in which it reads rows.
    pub(in crate::model) fn operand(&self) -> Operand {
        match self {
            Self::Attention(attention) => attention.qkv.operand(),
        }
    }

    /// Runs the rows in `scratch.acts`; answers go to `scratch.attended`, as `reader` reads them.
    pub(super) fn forward(&self, pass: Pass<'_>, (memory, reader): (LayerMemory<'_>, &Matrix), scratch: &mut Scratch) {
        match (self, memory) {
            (Self::Attention(attention), LayerMemory::Keys(cache)) => {
                attention.forward(pass, (cache, reader), scratch);
            }
        }
    }
}
