//! The step of a block in which a position learns of earlier ones.
//!
//! Every mixer reads `acts` of the [`Scratch`] memory and leaves its answers in `attended` there, ready for the block's output
//! projection. Invariant: a row's answers depend only on the rows before it, to the bit.

use super::{
    attention::Attention,
    cache::{KvCache, LayerCache},
    delta::Delta,
    delta_state::DeltaWeights,
    latent::Latent,
    layer::{NormWeight, Scratch},
    matrix::Matrix,
    pass::Pass,
    recurrent::Recurrence,
};
use draftscope_kernels::Operand;

/// Weights of a mixer without its output projection; copies share the matrices.
#[derive(Clone, Debug)]
pub(crate) enum Mixer {
    /// Over keys and values of each position.
    Attention(Attention),
    /// Over one short row of each position.
    Latent(Latent),
    /// Over a state.
    Delta(Delta),
}

/// What a layer keeps of earlier positions, of its mixer's kind.
#[derive(Debug)]
pub(crate) enum LayerMemory<'a> {
    /// Keys and values.
    Keys(LayerCache<'a>),
    /// Those of a target, for rows so many positions after the last one that they see.
    Lent(LayerCache<'a>, usize),
    /// The rows of latent attention, `[positions][rank + rotated]`.
    Latents(&'a mut [f32]),
    /// A state.
    State(Recurrence<'a>),
}

/// The memory of a sequence's layers, one after the other.
#[derive(Debug)]
pub(super) struct Memories<'a, States> {
    cache: &'a mut KvCache,
    /// Layers of latent attention whose rows were handed out.
    latents: usize,
    states: States,
}

impl<'a, States: Iterator<Item = Recurrence<'a>>> Memories<'a, States> {
    pub(super) fn new(cache: &'a mut KvCache, states: States) -> Self {
        Self { cache, latents: 0, states }
    }

    /// That of the next layer, which has this mixer.
    pub(super) fn next(&mut self, mixer: &Mixer) -> LayerMemory<'_> {
        match mixer {
            Mixer::Attention(attention) => LayerMemory::Keys(self.cache.layer(attention.cache)),
            Mixer::Latent(_) => {
                self.latents += 1;
                LayerMemory::Latents(self.cache.latents(self.latents - 1))
            }
            Mixer::Delta(_) => LayerMemory::State(self.states.next().expect("a state for each recurrent layer")),
        }
    }
}

impl Mixer {
    /// Whether it keeps keys and values.
    pub(crate) fn attends(&self) -> bool {
        matches!(self, Self::Attention(_))
    }

    /// What a recurrent mixer computes with besides its projections.
    pub(super) fn delta_weights(&self) -> Option<&DeltaWeights> {
        match self {
            Self::Attention(_) | Self::Latent(_) => None,
            Self::Delta(delta) => Some(&delta.weights),
        }
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Attention(attention) => attention.bytes(),
            Self::Latent(latent) => latent.bytes(),
            Self::Delta(delta) => delta.bytes(),
        }
    }

    /// Its norms whose conventions may be shifted.
    pub(super) fn norms_mut(&mut self) -> impl Iterator<Item = &mut NormWeight> {
        let (attention, latent) = match self {
            Self::Attention(attention) => (Some(attention), None),
            Self::Latent(latent) => (None, Some(latent)),
            Self::Delta(_) => (None, None),
        };
        let of_attention = attention.into_iter().flat_map(Attention::norms_mut);
        of_attention.chain(latent.into_iter().flat_map(Latent::norms_mut))
    }

    /// Numbers of a cached row, if it has latent attention.
    pub(super) fn latent_width(&self) -> Option<usize> {
        match self {
            Self::Attention(_) | Self::Delta(_) => None,
            Self::Latent(latent) => Some(latent.width()),
        }
    }

    /// The matrix that reads the stream first.
    pub(crate) fn first_matrix(&self) -> &Matrix {
        match self {
            Self::Attention(attention) => &attention.qkv,
            Self::Latent(latent) => latent.first_matrix(),
            Self::Delta(delta) => &delta.projections[0],
        }
    }

    /// The forms in which it reads rows.
    pub(crate) fn operand(&self) -> Operand {
        match self {
            Self::Attention(attention) => attention.qkv.operand(),
            Self::Latent(latent) => latent.operand(),
            Self::Delta(delta) => delta.operand(),
        }
    }

    /// Runs the rows in `scratch.acts`; answers go to `scratch.attended`, as `reader` reads them.
    pub(super) fn forward(&self, pass: Pass<'_>, (memory, reader): (LayerMemory<'_>, &Matrix), scratch: &mut Scratch) {
        match (self, memory) {
            (Self::Attention(attention), LayerMemory::Keys(cache)) => {
                attention.forward(pass, (cache, reader), scratch);
            }
            (Self::Attention(attention), LayerMemory::Lent(cache, ahead)) => {
                attention.ask(pass, (cache, reader), ahead, scratch);
            }
            (Self::Latent(latent), LayerMemory::Latents(rows)) => latent.forward(pass, (rows, reader), scratch),
            (Self::Delta(delta), LayerMemory::State(state)) => delta.forward(pass, (state, reader), scratch),
            (Self::Attention(_) | Self::Latent(_) | Self::Delta(_), _) => {
                unreachable!("a mixer over the memory of another kind")
            }
        }
    }
}
