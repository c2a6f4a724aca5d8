//! What runs a model's matrices and in what they are held; reading its tensors accordingly.
//!
//! Invariant: what is read has the shape that is asked for, and its file's pages are let go of at once. What the tensors
//! are for is the families' business.

use candle_core::{Device, Tensor};

use crate::model::ModelError;
use crate::model::files::source::Source;
use crate::model::native::{NativeCpu, NativeLinear};
use crate::model::nn::block::{Linear, RmsNorm, WeightType};
use crate::model::nn::config::LlamaConfig;

/// What runs the matrices, and in what they are held.
#[derive(Clone, Debug)]
pub enum Held {
    /// candle.
    Candle(WeightType),
    /// The native kernels, as stored: a row's bits then do not depend on the rows beside it.
    Native(NativeCpu),
}

impl Held {
    /// The native kernels' processor, where they run.
    #[must_use]
    pub fn native(&self) -> Option<&NativeCpu> {
        match self {
            Self::Native(cpu) => Some(cpu),
            Self::Candle(_) => None,
        }
    }
}

/// Tensors by name.
pub(in crate::model) struct Tensors<'a> {
    pub(in crate::model) source: &'a Source,
    pub(in crate::model) held: Held,
    pub(in crate::model) device: &'a Device,
    /// Of norms.
    pub(in crate::model) eps: f32,
}

impl<'a> Tensors<'a> {
    pub(in crate::model) fn new(source: &'a Source, (held, device): (Held, &'a Device), config: &LlamaConfig) -> Self {
        Self { source, held, device, eps: config.norm_eps }
    }

    /// `[out, input]`
    pub(in crate::model) fn linear(&self, name: &str, out: usize, input: usize) -> Result<Linear, ModelError> {
        match &self.held {
            Held::Candle(held) => self.held_as(name, [out, input], *held),
            Held::Native(cpu) => NativeLinear::load(self.source, name, [out, input], cpu).map(Linear::native),
        }
    }

    /// On candle, whatever the others run on.
    pub(in crate::model) fn held_as(
        &self,
        name: &str,
        shape: [usize; 2],
        held: WeightType,
    ) -> Result<Linear, ModelError> {
        let linear = Linear::new(self.source.stored(name, &shape)?, shape, held, self.device)?;
        self.source.release(name);
        Ok(linear)
    }

    /// Embedding and head, `[v, d]` each: one where they are tied. They are to be read before smaller
    /// ones: while a matrix is widened it takes room twice.
    pub(in crate::model) fn embedding_and_head(&self, config: &LlamaConfig) -> Result<[Linear; 2], ModelError> {
        let (v, d) = (config.vocab, config.d_model);
        let embedding = self.linear("token_embd.weight", v, d)?;
        let head = if config.tied { embedding.clone() } else { self.linear("output.weight", v, d)? };
        Ok([embedding, head])
    }

    /// A norm with the model's epsilon.
    pub(in crate::model) fn norm(&self, name: &str, width: usize) -> Result<RmsNorm, ModelError> {
        self.norm_of(name, width, self.eps)
    }

    /// One with its own.
    pub(in crate::model) fn norm_of(&self, name: &str, width: usize, eps: f32) -> Result<RmsNorm, ModelError> {
        RmsNorm::new(&self.vector(name, width)?, eps)
    }

    /// `[width]`, f32.
    pub(in crate::model) fn vector(&self, name: &str, width: usize) -> Result<Tensor, ModelError> {
        Ok(Tensor::from_vec(self.source.vector(name, width)?, width, self.device)?)
    }
}
