//! The step of a block in which a position learns of earlier ones.
//!
//! Every mixer reads `acts` of the [`Scratch`] memory and leaves its answers in `attended` there, ready for the block's output
//! projection. Invariant: a row's answers depend only on the rows before it, to the bit.

use super::{
    attention::Attention,
    cache::{KvCache, LayerCache},
    delta::Delta,
    delta_state::DeltaWeights,
    layer::{NormWeight, Scratch},
    matrix::Matrix,
    pass::Pass,
    recurrent::Recurrence,
};
use draftscope_kernels::Operand;

/// Weights of a mixer without its output projection; copies share the matrices.
#[derive(Clone, Debug)]
pub(in crate::model) enum Mixer {
    /// Over keys and values of each position.
    Attention(Attention),
    /// Over a state.
    Delta(Delta),
}

/// What a layer keeps of earlier positions, of its mixer's kind.
#[derive(Debug)]
pub(in crate::model) enum LayerMemory<'a> {
    /// Keys and values.
    Keys(LayerCache<'a>),
    /// A state.
    State(Recurrence<'a>),
}

/// The memory of a sequence's layers, one after the other.
#[derive(Debug)]
pub(super) struct Memories<'a, States> {
    cache: &'a mut KvCache,
    /// Layers of the cache that were handed out.
    attending: usize,
    states: States,
}

impl<'a, States: Iterator<Item = Recurrence<'a>>> Memories<'a, States> {
    pub(super) fn new(cache: &'a mut KvCache, states: States) -> Self {
        Self { cache, attending: 0, states }
    }

    /// That of the next layer, which has this mixer.
    pub(super) fn next(&mut self, mixer: &Mixer) -> LayerMemory<'_> {
        match mixer {
            Mixer::Attention(_) => {
                self.attending += 1;
                LayerMemory::Keys(self.cache.layer(self.attending - 1))
            }
            Mixer::Delta(_) => LayerMemory::State(self.states.next().expect("a state for each recurrent layer")),
        }
    }
}

impl Mixer {
    /// Whether it keeps keys and values.
    pub(in crate::model) fn attends(&self) -> bool {
        matches!(self, Self::Attention(_))
    }

    /// What a recurrent mixer computes with besides its projections.
    pub(super) fn delta_weights(&self) -> Option<&DeltaWeights> {
        match self {
            Self::Attention(_) => None,
            Self::Delta(delta) => Some(&delta.weights),
        }
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Attention(attention) => attention.bytes(),
            Self::Delta(delta) => delta.bytes(),
        }
    }

    /// Its norms whose conventions may be shifted.
    pub(super) fn norms_mut(&mut self) -> impl Iterator<Item = &mut NormWeight> {
        let attention = match self {
            Self::Attention(attention) => Some(attention),
            Self::Delta(_) => None,
        };
        attention.into_iter().flat_map(Attention::norms_mut)
    }

    /// The matrix that reads the stream first.
    pub(in crate::model) fn first_matrix(&self) -> &Matrix {
        match self {
            Self::Attention(attention) => &attention.qkv,
            Self::Delta(delta) => &delta.projections[0],
        }
    }

    /// The forms in which it reads rows.
    pub(in crate::model) fn operand(&self) -> Operand {
        match self {
            Self::Attention(attention) => attention.qkv.operand(),
            Self::Delta(delta) => delta.operand(),
        }
    }

    /// Runs the rows in `scratch.acts`; answers go to `scratch.attended`, as `reader` reads them.
    pub(super) fn forward(&self, pass: Pass<'_>, (memory, reader): (LayerMemory<'_>, &Matrix), scratch: &mut Scratch) {
        match (self, memory) {
            (Self::Attention(attention), LayerMemory::Keys(cache)) => {
                attention.forward(pass, (cache, reader), scratch);
            }
            (Self::Delta(delta), LayerMemory::State(state)) => delta.forward(pass, (state, reader), scratch),
            (Self::Attention(_), _) | (Self::Delta(_), _) => unreachable!("a mixer over the memory of another kind"),
        }
    }
}
