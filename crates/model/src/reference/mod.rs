//! The reference: an interpreter of plans over candle's tensors, for weights as f32, bf16, f16 or in GGUF's blocks.
//!
//! It is written to be read, not to be fast: each part of a [`Plan`] is a few lines here, in the order in which the plan
//! names it. Tests compare the other backends with it, and `--backend candle` runs it.
//!
//! Invariant: few rows are multiplied and attend one by one, so that a row's bits do not depend on the rows beside it, and
//! greedy speculation equals plain decoding. Whatever a plan asks for beyond these parts is an error that names it. Passes,
//! caches and rollback are those of every [stack](crate::nn::Transformer).

mod attention;
mod layer;
mod reader;

use std::sync::Arc;

use candle_core::Tensor;

use self::layer::Layer;
use self::reader::Reader;
use crate::ModelError;
use crate::nn::{KvCache, Linear, PassRows, RmsNorm, Rope, Tensors, Transformer, Trunk, ids};
use crate::options::WeightType;
use crate::plan::{Keys, LayerTable, Mixer, Plan, Rotation};
use draftscope_protocol::TokenId;

/// Weights of a target; shared by its forks and by its draft modules.
pub(crate) struct Weights {
    /// Embedding, layers, last norm and head.
    pub(crate) trunk: Arc<Trunk<Layer>>,
    /// What tokens add to single layers.
    inputs: Option<LayerInputs>,
    ropes: Vec<(Rotation, Rope)>,
    /// The cache that each layer reads.
    caches: Vec<usize>,
}

/// A table with a slice for each layer.
struct LayerInputs {
    of: LayerTable,
    table: Linear,
    project: Linear,
    norm: RmsNorm,
}

/// The cache that each layer reads: those with keys and values of their own have one.
fn caches(plan: &Plan) -> Result<Vec<usize>, ModelError> {
    let (mut caches, mut count) = (Vec::with_capacity(plan.layers.len()), 0);
    for layer in &plan.layers {
        let Mixer::Attention(attention) = &layer.mixer else {
            return Err(reader::unsupported("layers without keys and values of each position"));
        };
        let cache = match &attention.keys {
            Keys::Own(_) => {
                count += 1;
                count - 1
            }
            Keys::OfLayer(other) => {
                let earlier = caches.get(*other).copied();
                earlier
                    .ok_or_else(|| ModelError::Metadata(format!("no layer {other} comes before one that reads it")))?
            }
            Keys::OfTarget => return Err(reader::unsupported("attention to keys and values of a target")),
        };
        caches.push(cache);
    }
    Ok(caches)
}

/// A table of angles for each rotation that the plan asks for.
fn ropes(plan: &Plan, ctx_len: usize, tensors: &Tensors<'_>) -> Result<Vec<(Rotation, Rope)>, ModelError> {
    let mut ropes: Vec<(Rotation, Rope)> = Vec::new();
    for rotation in plan.attentions().filter_map(|attention| attention.rotation) {
        if ropes.iter().all(|(known, _)| *known != rotation) {
            let lacking = || ModelError::Metadata(format!("there is no table of angles {}", rotation.table));
            let angles = plan.angles.get(rotation.table).ok_or_else(lacking)?;
            let rope = Rope::new(&angles.rope, angles.width, ctx_len, (rotation.pairs, tensors.device))?;
            ropes.push((rotation, rope));
        }
    }
    Ok(ropes)
}

impl Weights {
    /// Reads all tensors. `progress` is called with ("target", layers read, layers in all).
    ///
    /// # Errors
    /// When a tensor is missing, misshapen or damaged, or the plan has a part that is not interpreted.
    pub(crate) fn load(
        tensors: Tensors<'_>,
        plan: &Plan,
        ctx_len: usize,
        progress: &mut dyn FnMut(&str, u64, u64),
    ) -> Result<Self, ModelError> {
        let caches = caches(plan)?;
        let tensors = if plan.end.norm.centred { tensors.centred() } else { tensors };
        let inputs = plan.embedding.by_layer.as_ref().map(|of| LayerInputs::read(&tensors, of)).transpose()?;
        let layer = |index: usize| Layer::read(&Reader::new(&tensors), &plan.layers[index]);
        let (end, scale) = (&plan.end, plan.embedding.scale);
        let trunk = Arc::new(Trunk::read(&tensors, layer, progress)?.with_ends(scale, end.scale, end.cap));
        Ok(Self { trunk, inputs, ropes: ropes(plan, ctx_len, &tensors)?, caches })
    }
}

impl LayerInputs {
    fn read(tensors: &Tensors<'_>, of: &LayerTable) -> Result<Self, ModelError> {
        let reader = Reader::new(tensors);
        // its rows are looked up, so it stays as stored
        let table = tensors.linear_as(of.table.name(), [of.table.rows, of.table.columns], WeightType::Stored)?;
        let (project, norm) = (reader.matrix(&of.project)?, reader.norm(&of.norm, of.width)?);
        Ok(Self { of: of.clone(), table, project, norm })
    }

    /// The slices of all layers, `[m, layers · width]`.
    fn of(&self, ids: &Tensor, embedded: &Tensor) -> Result<Tensor, ModelError> {
        let looked_up = (self.table.rows(ids)? * self.of.scale)?;
        let (m, all) = looked_up.dims2()?;
        let projected = (self.project.forward(embedded)? * self.of.project_scale)?;
        let normed = self.norm.forward(&projected.reshape((m * all / self.of.width, self.of.width))?)?;
        Ok(((normed.reshape((m, all))? + looked_up)? * self.of.join_scale)?)
    }
}

impl Transformer for Weights {
    type Layer = Layer;

    fn trunk(&self) -> &Trunk<Layer> {
        &self.trunk
    }

    fn bytes(&self) -> u64 {
        self.pass_bytes()
            + (self.trunk.bytes() - self.trunk.pass_bytes())
            + self.inputs.as_ref().map_or(0, |inputs| inputs.table.bytes())
    }

    fn pass_bytes(&self) -> u64 {
        let inputs = self.inputs.as_ref().map_or(0, |inputs| inputs.project.bytes() + inputs.norm.bytes());
        self.trunk.pass_bytes() + inputs
    }

    fn caches(&self, ctx_len: usize) -> Result<Vec<KvCache>, ModelError> {
        let own = self.trunk.layers.iter().filter_map(Layer::cached_heads);
        let cache = |(kv_heads, width)| {
            Ok(KvCache::new(kv_heads, ctx_len, width, self.trunk.caching())?.on(self.trunk.kernels()))
        };
        own.map(cache).collect()
    }

    fn cache_of(&self, layer: usize) -> Option<usize> {
        self.caches.get(layer).copied()
    }

    fn layer_inputs(&self, tokens: &[TokenId], embedded: &Tensor) -> Result<Option<Tensor>, ModelError> {
        let Some(inputs) = &self.inputs else { return Ok(None) };
        let ids = ids(tokens, self.trunk.config.vocab, &self.trunk.device)?;
        inputs.of(&ids, embedded).map(Some)
    }

    fn forward_layer(
        &self,
        index: usize,
        (x, inputs): (&Tensor, Option<&Tensor>),
        rows: &PassRows,
        cache: &mut KvCache,
    ) -> Result<Tensor, ModelError> {
        let layer = &self.trunk.layers[index];
        let slice = match (inputs, &self.inputs) {
            (Some(all), Some(LayerInputs { of, .. })) => Some(all.narrow(1, index * of.width, of.width)?),
            _ => None,
        };
        let of = |rotation| self.ropes.iter().find(|(known, _)| *known == rotation).map(|(_, rope)| rope);
        layer.forward(x, slice.as_ref(), (layer.rotation().and_then(of), rows), cache)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use candle_core::Device;
    use safetensors::SafeTensors;

    use super::*;
    use crate::load::OpenModel;
    use crate::nn::{MatmulBackend, TransformerModel};
    use crate::{Checkpoint, LogitRows, Model, ModelSpec};

    fn target(opened: &OpenModel, held: WeightType) -> Result<TransformerModel<Weights>, ModelError> {
        let tensors = Tensors::new(&opened.source, (MatmulBackend::Candle(held), &Device::Cpu), opened.transformer());
        let weights = Weights::load(tensors, opened.config.plan(), 64, &mut |_, _, _| {})?;
        let spec = ModelSpec {
            info: opened.transformer().describe(String::new(), String::new()),
            ctx_len: 64,
            backend: "candle",
            device: "cpu".into(),
            dtype: "f32".into(),
            threads: 1,
        };
        TransformerModel::new(Arc::new(weights), spec)
    }

    fn fixture(name: &str) -> OpenModel {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("tests/fixtures/checkpoints");
        OpenModel::open(&folder.join(name)).unwrap()
    }

    /// Numbers of a fixture that another program computed.
    fn golden<const N: usize>(name: &str, tensor: &str, number: fn([u8; N]) -> f32) -> Vec<f32> {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("tests/fixtures/checkpoints");
        let bytes = std::fs::read(folder.join(name).join("golden.safetensors")).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        tensors.tensor(tensor).unwrap().data().as_chunks::<N>().0.iter().map(|bytes| number(*bytes)).collect()
    }

    /// Gemma 4 has what no family that runs here has: keys of other layers, values that are keys, norms without weights, tables by
    /// layer, scales of layers; it runs elsewhere for its experts and assistants.
    #[test]
    fn parts_that_gemma_4_alone_has_equal_the_oracle_and_rows_keep_their_bits() {
        for (name, oracle) in [("gemma4", "gemma4"), ("gemma4.gguf", "gemma4"), ("gemma4-unified", "gemma4-unified")] {
            let mut model = target(&fixture(name), WeightType::F32).unwrap();
            let tokens: Vec<TokenId> = golden(oracle, "tokens", |x| i64::from_le_bytes(x) as f32)
                .into_iter()
                .map(|x| TokenId(x as u32))
                .collect();
            let expected = golden(oracle, "logits", f32::from_le_bytes);
            let whole = model.forward(&tokens, LogitRows::All).unwrap().logits;
            let off = whole.as_slice().iter().zip(&expected).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
            println!("{name}: off by {off}");
            assert!(off < 5e-4, "{name}: {off}");
            let mut alone: Option<Vec<Vec<f32>>> = None;
            for rows in [1, 3, 7, 16] {
                model.truncate(0, &Checkpoint { len: 0 }).unwrap();
                let passes = tokens.chunks(rows).map(|tokens| model.forward(tokens, LogitRows::All).unwrap().logits);
                let logits: Vec<Vec<f32>> = passes.map(|logits| logits.as_slice().to_vec()).collect();
                let logits = logits.concat().chunks(whole.width()).map(<[f32]>::to_vec).collect();
                assert!(*alone.get_or_insert_with(|| Vec::clone(&logits)) == logits, "{name}: passes of {rows} rows");
            }
        }
    }

    #[test]
    fn weights_held_in_other_types_give_nearly_the_same() {
        let opened = fixture("olmo2");
        let tokens: Vec<TokenId> = (5..25).map(TokenId).collect();
        let logits = |held| {
            let mut model = target(&opened, held).unwrap();
            model.forward(&tokens, LogitRows::All).unwrap().logits.as_slice().to_vec()
        };
        let wide = logits(WeightType::F32);
        for held in [WeightType::Bf16, WeightType::Stored] {
            let (narrow, square) = (logits(held), |x: f32| f64::from(x * x));
            let off: f64 = narrow.iter().zip(&wide).map(|(a, b)| square(a - b)).sum();
            let off = (off / wide.iter().map(|x| square(*x)).sum::<f64>()).sqrt();
            assert!(off > 0.0 && off < 0.03, "{held:?}: {off}");
        }
    }

    #[test]
    fn what_is_not_interpreted_is_named() {
        for (name, says) in [
            ("deepseek", "the reference does not run layers without keys and values of each position"),
            ("qwen3moe", "the reference does not run layers of experts"),
        ] {
            let error = target(&fixture(name), WeightType::F32).err().unwrap().to_string();
            assert_eq!(error, says, "{name}");
        }
    }
}
