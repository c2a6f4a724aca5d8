//! An EAGLE-3 head's tensors, packed for the native kernels.

use crate::ModelError;
use crate::drafters::eagle3::CheckedHead;
use crate::files::llama_part;
use crate::module_core::NormWeights;
use crate::native::layer::{BlockShape, Layer, NormWeight};
use crate::native::matrix::{Bits, Cpu, Matrix};
use crate::native::mtp::MtpStorage;
use crate::native::pack::{BlockPacker, lanes};

/// A head's own weights; copies share the matrices.
#[derive(Clone, Debug)]
pub(crate) struct EagleWeights {
    pub(super) fc: Matrix, // [d, states · target's d]
    pub(super) states_norms: Vec<NormWeight>,
    pub(super) hidden_norm: NormWeight,
    pub(super) layer: Layer, // its q, k and v read [embedding ; hidden]; its first norm is the embedding's
    pub(super) final_norm: NormWeight,
    /// `None` if the target's is used.
    pub(super) embedding: Option<Matrix>,
}

impl EagleWeights {
    pub(super) fn bytes(&self) -> usize {
        self.fc.bytes() + self.layer.bytes() + self.embedding.as_ref().map_or(0, Matrix::bytes)
    }
}

impl NormWeights for EagleWeights {
    fn one_plus(&self) -> Result<Self, ModelError> {
        let mut weights = self.clone();
        weights.layer.shift_norms(1.0);
        let norms = [&mut weights.hidden_norm, &mut weights.final_norm].into_iter().chain(&mut weights.states_norms);
        norms.flatten().flatten().for_each(|weight| *weight += 1.0);
        Ok(weights)
    }
}

/// Packs a head's tensors.
pub(super) struct Packer<'a> {
    pub(super) plan: &'a CheckedHead,
    pub(super) cpu: &'a Cpu,
    pub(super) storage: MtpStorage,
}

impl Packer<'_> {
    fn pack(&self, k: usize, rows: &[f32]) -> Matrix {
        self.storage.pack(self.cpu, k, rows, Bits::Eight)
    }

    fn matrix(&self, part: &str, rows: usize, k: usize) -> Result<Matrix, ModelError> {
        Ok(self.pack(k, &self.plan.matrix(part, [rows, k])?))
    }

    fn norm(&self, part: &str, width: usize) -> Result<NormWeight, ModelError> {
        Ok(lanes(&self.plan.norm(part, width)?))
    }

    pub(super) fn weights(&self, shape: &BlockShape) -> Result<EagleWeights, ModelError> {
        let (d, config) = (shape.d_model, &self.plan.config.block);
        let block = |part: &str| format!("layers.0.{}", llama_part(part).unwrap_or(part));
        let own = self.plan.file.has("embed_tokens.weight");
        Ok(EagleWeights {
            fc: self.matrix("fc", d, self.plan.fused())?,
            states_norms: self.plan.states_norms()?.iter().map(|weight| lanes(weight)).collect(),
            hidden_norm: self.norm("layers.0.hidden_norm", d)?,
            layer: BlockPacker {
                matrix: &|part, shape| self.plan.matrix(&block(part), shape),
                norm: &|part, width| self.plan.norm(&block(part), width),
                pack: &|k, rows| self.pack(k, rows),
            }
            .layer(shape, (2 * d, config.ffn, config.conventions.qk_norm))?,
            final_norm: self.norm("norm", d)?,
            embedding: own.then(|| self.matrix("embed_tokens", config.vocab, d)).transpose()?,
        })
    }
}
