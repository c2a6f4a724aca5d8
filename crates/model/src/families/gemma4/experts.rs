//! The experts of Gemma 4 (26B-A4B): they run beside the dense feed-forward layer, and the rows before its norm choose
//! them. Source: `Gemma4TextRouter` and `Gemma4TextDecoderLayer` of `transformers`.

use std::sync::Arc;

use candle_core::Tensor;

use crate::ModelError;
use crate::families::gemma4::config::ExpertShape;
use crate::nn::{Activation, Choice, ExpertSizes, Mixture, MostProbable, RmsNorm, Router, Tensors};

/// The most probable experts, their weights scaled to the sum 1 and then each by a factor of its expert.
#[derive(Clone, Debug)]
struct ScaledRouter {
    probable: MostProbable,
    /// `[experts]`
    scales: Vec<f32>,
}

impl Router for ScaledRouter {
    fn choose(&self, logits: &[f32]) -> Choice {
        let chosen = self.probable.choose(logits).into_iter();
        chosen.map(|(expert, weight)| (expert, weight * self.scales[expert])).collect()
    }

    fn used(&self) -> usize {
        self.probable.used
    }

    fn bytes(&self) -> u64 {
        size_of_val(self.scales.as_slice()) as u64
    }
}

/// Experts and the norms around them.
#[derive(Clone, Debug)]
pub(super) struct GemmaExperts {
    /// Of what chooses: a norm without a weight, then a factor for each number and 1 / √d.
    router_norm: RmsNorm,
    mixture: Mixture,
    /// Of what the experts read.
    norm: RmsNorm,
    /// Of the results of the dense layer and of the experts.
    post_norms: [RmsNorm; 2],
}

impl GemmaExperts {
    pub(super) fn read(tensors: &Tensors<'_>, layer: usize, shape: ExpertShape) -> Result<Self, ModelError> {
        let (d, own) = (tensors.config.d_model, tensors.block(layer));
        let sizes = ExpertSizes { count: shape.count, d, width: shape.width };
        let scales = tensors.source.vector(&format!("blk.{layer}.ffn_down_exps.scale"), shape.count)?;
        let router = ScaledRouter { probable: MostProbable { used: shape.used, normed: true }, scales };
        let scale = (tensors.vector(&format!("blk.{layer}.ffn_gate_inp.scale"), d)? * (d as f64).powf(-0.5))?;
        let experts = own.experts(sizes, Activation::Gelu)?;
        Ok(Self {
            router_norm: RmsNorm::new(&scale, tensors.config.norm_eps)?,
            mixture: Mixture::new((own.router(shape.count)?, Arc::new(router)), experts, None),
            norm: own.norm("pre_ffw_norm_2", d)?,
            post_norms: [own.norm("post_ffw_norm_1", d)?, own.norm("post_ffw_norm_2", d)?],
        })
    }

    /// The sum of the dense layer's result and the experts', `[m, d]`; `x` are the rows before the dense layer's norm.
    pub(super) fn add(&self, dense: &Tensor, x: &Tensor) -> Result<Tensor, ModelError> {
        let experts = self.mixture.forward_by(&self.router_norm.forward(x)?, &self.norm.forward(x)?)?;
        Ok((self.post_norms[0].forward(dense)? + self.post_norms[1].forward(&experts)?)?)
    }

    pub(super) fn mixture(&self) -> &Mixture {
        &self.mixture
    }

    /// Bytes of experts, router and norms in memory.
    pub(super) fn bytes(&self) -> u64 {
        let norms = [&self.router_norm, &self.norm].into_iter().chain(&self.post_norms);
        self.mixture.bytes() + norms.map(RmsNorm::bytes).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_sum_to_one_before_each_expert_scales_its_own() {
        let router =
            ScaledRouter { probable: MostProbable { used: 2, normed: true }, scales: vec![1.0, 2.0, 3.0, 4.0] };
        let logits = [0.0f32, 1.0, -1.0, 2.0];
        let [(1, second), (3, first)] = router.choose(&logits)[..] else { panic!("other experts") };
        let share = 1.0 / (1.0 + (-1.0f32).exp());
        assert!((first - 4.0 * share).abs() < 1e-6 && (second - 2.0 * (1.0 - share)).abs() < 1e-6, "{first} {second}");
    }
}
