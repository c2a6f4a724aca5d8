//! An EAGLE-3 head's tensors, packed for the native kernels.

use crate::model::ModelError;
use crate::model::drafters::eagle3::CheckedHead;
use crate::model::module_core::NormWeights;
use crate::model::native::gate_up::GateUp;
use crate::model::native::layer::{BlockShape, Layer, NormWeight};
use crate::model::native::matrix::{Bits, Cpu, Matrix};
use crate::model::native::mtp::MtpStorage;
use draftscope_kernels::LANES;

/// What a head has of its own; copies share the matrices.
#[derive(Clone, Debug)]
pub(in crate::model) struct EagleWeights {
    pub(super) fc: Matrix, // [d, states · target's d]
    pub(super) states_norms: Vec<NormWeight>,
    pub(super) embedding_norm: NormWeight,
    pub(super) hidden_norm: NormWeight,
    pub(super) layer: Layer, // its q, k and v read [embedding ; hidden]
    pub(super) final_norm: NormWeight,
    /// None where the target's serves.
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
        let others = weights.layer.head_norms.iter_mut().flatten().chain(&mut weights.states_norms);
        let norms = [
            &mut weights.embedding_norm,
            &mut weights.hidden_norm,
            &mut weights.final_norm,
            &mut weights.layer.ffn_norm,
        ];
        norms.into_iter().chain(others).flatten().flatten().for_each(|weight| *weight += 1.0);
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
        Ok(self.plan.norm(part, width)?.as_chunks::<LANES>().0.to_vec())
    }

    fn layer(&self, shape: &BlockShape) -> Result<Layer, ModelError> {
        let BlockShape { d_model: d, heads, kv_heads, head_dim, d_ff, .. } = *shape;
        let part = |name: &str| format!("layers.0.{name}");
        let mut qkv = Vec::new();
        for (name, heads) in [("q", heads), ("k", kv_heads), ("v", kv_heads)] {
            qkv.extend(self.plan.matrix(&part(&format!("self_attn.{name}_proj")), [heads * head_dim, 2 * d])?);
        }
        let head_norms = match self.plan.config.block.conventions.qk_norm {
            true => {
                Some([self.norm(&part("self_attn.q_norm"), head_dim)?, self.norm(&part("self_attn.k_norm"), head_dim)?])
            }
            false => None,
        };
        Ok(Layer {
            attn_norm: Vec::new(), // both halves are normed before
            qkv: self.pack(2 * d, &qkv),
            head_norms,
            out: self.matrix(&part("self_attn.o_proj"), d, heads * head_dim)?,
            ffn_norm: self.norm(&part("post_attention_layernorm"), d)?,
            gate_up: GateUp::of_rows(
                d,
                [
                    &self.plan.matrix(&part("mlp.gate_proj"), [d_ff, d])?,
                    &self.plan.matrix(&part("mlp.up_proj"), [d_ff, d])?,
                ],
                |rows| self.pack(d, rows),
            ),
            down: self.matrix(&part("mlp.down_proj"), d, d_ff)?,
        })
    }

    pub(super) fn weights(&self, shape: &BlockShape) -> Result<EagleWeights, ModelError> {
        let d = shape.d_model;
        let lanes = |weight: Vec<f32>| weight.as_chunks::<LANES>().0.to_vec();
        let own = self.plan.file.has("embed_tokens.weight");
        Ok(EagleWeights {
            fc: self.matrix("fc", d, self.plan.fused())?,
            states_norms: self.plan.states_norms()?.into_iter().map(lanes).collect(),
            embedding_norm: self.norm("layers.0.input_layernorm", d)?,
            hidden_norm: self.norm("layers.0.hidden_norm", d)?,
            layer: self.layer(shape)?,
            final_norm: self.norm("norm", d)?,
            embedding: own.then(|| self.matrix("embed_tokens", self.plan.config.block.vocab, d)).transpose()?,
        })
    }
}
