//! Gemma 3 (text: 270M, 1B, and the text part of 4B, 12B, 27B): sliding layers between full ones with rotary positions
//! of their own, normed queries and keys, norms before and after attention and feed-forward layer, a scaled embedding,
//! and capped scores if the file says so. This is the reference on candle; the native kernels and the GPU run its plan.
//!
//! Source: `modeling_gemma3.py` of `transformers`, `gemma3.cpp` of llama.cpp. Invariant: sliding layers cache all
//! positions, so that any length can be rolled back to, and attend to the last ones.

mod config;
mod family;
#[cfg(feature = "gpu")]
mod gpu;
mod plan;

use candle_core::Tensor;

use crate::model::ModelError;
use crate::model::nn::{Activation, Block, BlockPass, KvCache, PairOrder, PassRows, Rope, Tensors, Transformer, Trunk};
use crate::model::shared_kv::Reach;

pub use self::config::{Gemma3Config, Layers};
pub use self::family::Gemma3Family;

/// Weights of a target; shared by its forks.
pub struct Gemma3Weights {
    trunk: Trunk<Block>,
    layers: Layers,
    ropes: [Rope; 2], // of sliding layers and of full ones
}

impl Gemma3Weights {
    fn load(
        tensors: Tensors<'_>,
        layers: &Layers,
        ctx_len: usize,
        progress: &mut dyn FnMut(&str, u64, u64),
    ) -> Result<Self, ModelError> {
        let tensors = tensors.centred();
        let (c, device) = (tensors.config, tensors.device);
        let layer = |layer| -> Result<Block, ModelError> {
            let own = tensors.block(layer);
            let (linear, norm) =
                (|part: &str, out, input| own.linear(part, out, input), |part: &str, width| own.norm(part, width));
            let mut block = Block::read(c, (c.d_model, Activation::Gelu), &linear, &norm)?;
            block.scores = layers.scores;
            block.post_norms = Some([norm("post_attention_norm", c.d_model)?, norm("post_ffw_norm", c.d_model)?]);
            Ok(block)
        };
        let trunk = Trunk::read(&tensors, layer, progress)?.scaled(layers.logit_softcap);
        let rope = |spec| Rope::new(spec, c.head_dim, ctx_len, (PairOrder::HalfSplit, device));
        let ropes = [rope(&c.rope)?, rope(&layers.full_rope)?];
        Ok(Self { trunk, layers: layers.clone(), ropes })
    }
}

impl Transformer for Gemma3Weights {
    type Layer = Block;

    fn trunk(&self) -> &Trunk<Block> {
        &self.trunk
    }

    fn forward_layer(
        &self,
        index: usize,
        (x, _): (&Tensor, Option<&Tensor>),
        rows: &PassRows,
        cache: &mut KvCache,
    ) -> Result<Tensor, ModelError> {
        let (rope, window) = match self.layers.reach[index] {
            Reach::Sliding => (&self.ropes[0], Some(self.layers.window)),
            Reach::Full => (&self.ropes[1], None),
        };
        self.trunk.layers[index].forward(x, BlockPass { window, ..BlockPass::new(rope, rows) }, cache)
    }
}
