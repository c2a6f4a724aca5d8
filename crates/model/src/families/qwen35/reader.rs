//! Reading the tensors of a Qwen3.5 or Qwen3-Next, from either form of file.
//!
//! Invariant: both forms give the same numbers. A checkpoint's norms are zero-centred and `A_log` is as trained; GGUF
//! files contain `1 + w` and `−exp(A_log)`, and those of Qwen3.5 with more value heads than key heads another order
//! ([`HeadOrder`](crate::plan::HeadOrder)). Qwen3-Next stores the projections of linear layers
//! in two matrices, head by head; their rows are sorted here.

use std::sync::Arc;

use crate::ModelError;
use crate::families::qwen35::block::{AttentionShape, DeltaNet, GatedAttention, Layer, Mixer};
use crate::families::qwen35::config::Hybrid;
use crate::families::qwen35::experts::ExpertShape;
use crate::families::qwen35::plan;
use crate::native::delta_state::DeltaWeights;
use crate::nn::{Activation, ExpertSizes, FeedForward, Mixture, MostProbable, SharedExpert, Tensors};
use crate::plan::{BlockNames, Matrix, PlanFiles, Rows};

/// Reads tensors by name.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    pub(super) tensors: &'a Tensors<'a>,
    pub(super) hybrid: &'a Hybrid,
}

impl Reader<'_> {
    /// A layer of the target, or the draft module's, which attends.
    pub(super) fn layer(&self, layer: usize) -> Result<Layer, ModelError> {
        let (c, own) = (self.tensors.config, self.tensors.block(layer));
        let is_linear = self.hybrid.linear.get(layer).copied().unwrap_or(false);
        Ok(Layer {
            mixer_norm: own.norm("attn_norm", c.d_model)?,
            mixer: match is_linear {
                true => Mixer::Delta(self.delta(layer)?),
                false => Mixer::Attention(self.attention(layer)?),
            },
            ffn_norm: own.norm("post_attention_norm", c.d_model)?,
            ffn: match self.hybrid.experts {
                None => FeedForward::Dense(own.gated("", c.ffn, Activation::Silu)?),
                Some(experts) => self.mixture(layer, experts)?,
            },
        })
    }

    fn mixture(&self, layer: usize, shape: ExpertShape) -> Result<FeedForward, ModelError> {
        let (d, own) = (self.tensors.config.d_model, self.tensors.block(layer));
        let weight = own.router(shape.count)?;
        let experts = own.experts(ExpertSizes { count: shape.count, d, width: shape.width }, Activation::Silu)?;
        let router = MostProbable { used: shape.used, normed: shape.normed };
        let shared = SharedExpert {
            expert: own.gated("_shexp", shape.shared, Activation::Silu)?,
            gate: Some(self.tensors.linear_row(&own.name("ffn_gate_inp_shexp"), d)?),
        };
        Ok(FeedForward::Mixture(Mixture::new((weight, Arc::new(router)), experts, Some(shared))))
    }

    fn attention(&self, layer: usize) -> Result<GatedAttention, ModelError> {
        let (c, own) = (self.tensors.config, self.tensors.block(layer));
        Ok(GatedAttention {
            shape: AttentionShape { heads: c.heads, kv_heads: c.kv_heads, head_dim: c.head_dim },
            q: own.linear("attn_q", 2 * c.q_width(), c.d_model)?,
            k: own.linear("attn_k", c.kv_width(), c.d_model)?,
            v: own.linear("attn_v", c.kv_width(), c.d_model)?,
            o: own.linear("attn_output", c.d_model, c.q_width())?,
            q_norm: own.norm("attn_q_norm", c.head_dim)?,
            k_norm: own.norm("attn_k_norm", c.head_dim)?,
        })
    }

    fn delta(&self, layer: usize) -> Result<DeltaNet, ModelError> {
        let (c, shape, own) = (self.tensors.config, self.hybrid.delta, self.tensors.block(layer));
        let d = c.d_model;
        let values = shape.value_width();
        let plan = plan::delta(c, self.hybrid, &BlockNames::of(c, layer, false), PlanFiles::of(self.tensors.source));
        let weights = DeltaWeights::read(self.tensors.source, &plan)?;
        let read = |matrix: &Matrix| match &matrix.stored[..] {
            [rows] if rows.is_whole() => self.tensors.linear(matrix.name(), matrix.rows, d),
            parts => {
                let places: Vec<usize> = parts.iter().flat_map(Rows::places).collect();
                self.tensors.linear_rows(matrix.name(), (parts[0].stored(), d), &places)
            }
        };
        let [mixed, gate] = [read(&plan.mixed)?, read(&plan.gate)?];
        let [beta, alpha] = [read(&plan.beta)?, read(&plan.alpha)?];
        let out = own.linear("ssm_out", d, values)?;
        ["ssm_in", "ssm_ba"].iter().for_each(|part| self.tensors.source.release(&own.name(part)));
        Ok(DeltaNet { mixed, gate, alpha, beta, out, weights: Arc::new(weights) })
    }
}
