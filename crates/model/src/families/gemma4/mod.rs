//! Gemma 4 (E2B, E4B, 12B, 31B, and 26B-A4B with experts), matrices on candle or on the native kernels: sliding layers
//! between full ones, each kind with its own heads and rotary positions; the last layers of the small models read other
//! layers' keys and values, and every layer has an embedding of its own for each token. Assistants are in `assistant`.
//!
//! Invariant: layers without a cache read that of the last layer of their kind before the shared ones. Sliding layers
//! cache all positions, so that any length can be rolled back to, and attend to the last ones. Passes, caches and
//! rollback are those of every [stack](crate::nn::Transformer).

pub mod assistant;
mod config;
mod experts;
mod family;
mod gguf;
mod keys;
mod layer;
mod names;
mod plan;
mod reader;

use candle_core::{Device, Tensor};

use crate::ModelError;
use crate::families::gemma4::layer::Layer;
use crate::nn::{BlockPass, KvCache, Linear, PairOrder, PassRows, RmsNorm, Rope, Tensors, Transformer, Trunk, ids};
use crate::options::WeightType;
use crate::shared_kv::Reach;
use draftscope_protocol::TokenId;

pub use self::config::{Gemma, Gemma4Config, LayerShape, PerLayer};
pub use self::family::Gemma4Family;
use self::names::{TABLE, part};

/// The embeddings of a token for each layer.
struct PerLayerTable {
    width: usize,
    /// `[v, layers · width]`
    table: Linear,
    /// `[layers · width, d]`
    project: Linear,
    norm: RmsNorm,
}

/// Weights of a target; shared by its forks.
pub struct Gemma4Weights {
    trunk: Trunk<Layer>,
    gemma: Gemma,
    per_layer: Option<PerLayerTable>,
    ropes: [Rope; 2], // of sliding layers and of full ones
}

impl Gemma4Weights {
    fn load(
        tensors: &Tensors<'_>,
        gemma: &Gemma,
        ctx_len: usize,
        progress: &mut dyn FnMut(&str, u64, u64),
    ) -> Result<Self, ModelError> {
        let c = tensors.config;
        // read before embedding and head if it exists: it is larger
        let per_layer = match gemma.per_layer {
            None => None,
            Some(of) => {
                let width = c.layers * of.width;
                Some(PerLayerTable {
                    width: of.width,
                    // it stays as stored, since its rows are only looked up
                    table: tensors.linear_as(TABLE, [of.vocab, width], WeightType::Stored)?,
                    project: tensors.linear("per_layer_model_proj.weight", width, c.d_model)?,
                    norm: tensors.norm("per_layer_proj_norm.weight", of.width)?,
                })
            }
        };
        let layer = |layer| reader::layer(tensors, gemma, layer);
        let trunk = Trunk::read(tensors, layer, progress)?.scaled(gemma.softcap.map(f64::from));
        let ropes = ropes(gemma, ctx_len, tensors.device)?;
        Ok(Self { trunk, gemma: gemma.clone(), per_layer, ropes })
    }

    fn rope(&self, reach: Reach) -> &Rope {
        &self.ropes[usize::from(reach == Reach::Full)]
    }
}

/// Angles of both kinds of layers.
fn ropes(gemma: &Gemma, ctx_len: usize, device: &Device) -> Result<[Rope; 2], ModelError> {
    let rope = |reach, spec| {
        let width = gemma.layers.iter().find(|layer| layer.reach == reach).map_or(2, |layer| layer.head_dim);
        Rope::new(spec, width, ctx_len, (PairOrder::HalfSplit, device))
    };
    Ok([rope(Reach::Sliding, &gemma.sliding_rope)?, rope(Reach::Full, &gemma.full_rope)?])
}

impl Transformer for Gemma4Weights {
    type Layer = Layer;

    fn trunk(&self) -> &Trunk<Layer> {
        &self.trunk
    }

    fn bytes(&self) -> u64 {
        self.trunk.bytes()
            + self.per_layer.as_ref().map_or(0, |of| of.table.bytes() + of.project.bytes() + of.norm.bytes())
    }

    fn pass_bytes(&self) -> u64 {
        self.trunk.pass_bytes() + self.per_layer.as_ref().map_or(0, |of| of.project.bytes() + of.norm.bytes())
    }

    fn caches(&self, ctx_len: usize) -> Result<Vec<KvCache>, ModelError> {
        let keeping = self.trunk.layers.iter().filter(|layer| layer.kv.is_some());
        let cache = |layer: &Layer| {
            let (kv_heads, head_dim) = (layer.shape.kv_heads, layer.shape.head_dim);
            Ok(KvCache::new(kv_heads, ctx_len, head_dim, self.trunk.caching())?.on(self.trunk.kernels()))
        };
        keeping.map(cache).collect()
    }

    fn cache_of(&self, layer: usize) -> Option<usize> {
        self.gemma.cache_read_by(layer)
    }

    /// What each layer adds for these tokens, `[m, layers · width]`: half from a table, half computed from the
    /// embedding.
    fn layer_inputs(&self, tokens: &[TokenId], embedded: &Tensor) -> Result<Option<Tensor>, ModelError> {
        let Some(of) = &self.per_layer else {
            return Ok(None);
        };
        let c = &self.trunk.config;
        let (m, layers, d) = (tokens.len(), c.layers, c.d_model);
        let looked_up = (of.table.rows(&ids(tokens, c.vocab, &self.trunk.device)?)? * (of.width as f64).sqrt())?;
        let projected = (of.project.forward(embedded)? * (1.0 / (d as f64).sqrt()))?;
        let normed = of.norm.forward(&projected.reshape((m * layers, of.width))?)?;
        let both = (normed.reshape((m, layers * of.width))? + looked_up)?;
        Ok(Some((both * std::f64::consts::FRAC_1_SQRT_2)?))
    }

    fn forward_layer(
        &self,
        index: usize,
        (x, inputs): (&Tensor, Option<&Tensor>),
        rows: &PassRows,
        cache: &mut KvCache,
    ) -> Result<Tensor, ModelError> {
        let layer = &self.trunk.layers[index];
        let own = match (inputs, &self.per_layer) {
            (Some(all), Some(of)) => Some(all.narrow(1, index * of.width, of.width)?),
            _ => None,
        };
        let window = (layer.shape.reach == Reach::Sliding).then_some(self.gemma.window);
        let pass = BlockPass { window, ..BlockPass::new(self.rope(layer.shape.reach), rows) };
        layer.forward(x, pass, own.as_ref(), cache)
    }
}
