//! The reference: an interpreter of plans over candle's tensors, for weights as f32, bf16, f16 or in GGUF's blocks.
//!
//! It is written to be read, not to be fast: each part of a [`Plan`] is a few lines here, in the order in which the plan
//! names it. Tests compare the other backends with it, `--backend candle` runs it, and so do files that the kernels do not
//! take.
//!
//! Invariant: few rows are multiplied and attend one by one, so that a row's bits do not depend on the rows beside it, and
//! greedy speculation equals plain decoding. Whatever a plan asks for beyond these parts is an error that names it.

mod attention;
mod delta;
mod experts;
mod latent;
mod layer;
mod model;
mod reader;

use std::sync::Arc;

use candle_core::Tensor;

use crate::ModelError;
use crate::nn::{Linear, RmsNorm, Rope, Tensors, Trunk, ids};
use crate::options::WeightType;
use crate::plan::{self, Keys, LayerTable, Mixer, Plan, Rotation};
use draftscope_protocol::TokenId;

pub(crate) use self::layer::{Layer, Memory, Pass};
pub(crate) use self::model::ReferenceModel;
pub(crate) use self::reader::Reader;

/// Weights of a target; shared by its forks and by its draft modules.
pub(crate) struct Weights {
    /// Embedding, layers, last norm and head.
    pub(crate) trunk: Arc<Trunk<Layer>>,
    /// What tokens add to single layers.
    inputs: Option<LayerInputs>,
    ropes: Vec<(Rotation, Rope)>,
    /// The cache that each layer reads; `None`: it has a recurrent state instead.
    caches: Vec<Option<usize>>,
    /// Values of a position that keys and values of all heads would take where latent attention caches one row.
    unfolded: u64,
}

/// A table with a slice for each layer.
struct LayerInputs {
    of: LayerTable,
    table: Linear,
    project: Linear,
    norm: RmsNorm,
}

/// The cache that each layer reads: those with keys and values of their own have one.
fn caches(plan: &Plan) -> Result<Vec<Option<usize>>, ModelError> {
    let (mut caches, mut count) = (Vec::with_capacity(plan.layers.len()), 0);
    for layer in &plan.layers {
        let cache = match &layer.mixer {
            Mixer::Delta(_) => None,
            Mixer::Attention(plan::Attention { keys: Keys::OfTarget, .. }) => {
                return Err(reader::unsupported("attention to keys and values of a target"));
            }
            Mixer::Attention(plan::Attention { keys: Keys::OfLayer(other), .. }) => {
                let earlier = caches.get(*other).copied().flatten();
                let lacking = || ModelError::Metadata(format!("no layer {other} comes before one that reads it"));
                Some(earlier.ok_or_else(lacking)?)
            }
            Mixer::Attention(_) | Mixer::Latent(_) => {
                count += 1;
                Some(count - 1)
            }
        };
        caches.push(cache);
    }
    Ok(caches)
}

/// A table of angles for each rotation that the plan asks for.
fn ropes(plan: &Plan, ctx_len: usize, tensors: &Tensors<'_>) -> Result<Vec<(Rotation, Rope)>, ModelError> {
    let mut ropes: Vec<(Rotation, Rope)> = Vec::new();
    for rotation in plan.layers.iter().filter_map(plan::Layer::rotation) {
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
        let layer = |index: usize| Layer::read(&Reader::new(&tensors), &plan.layers[index], plan.width);
        let (end, scale) = (&plan.end, plan.embedding.scale);
        let trunk = Arc::new(Trunk::read(&tensors, layer, progress)?.with_ends(scale, end.scale, end.cap));
        let ropes = ropes(plan, ctx_len, &tensors)?;
        Ok(Self { trunk, inputs, ropes, caches, unfolded: plan.unfolded_values() })
    }

    /// Bytes that everything takes in memory.
    fn bytes(&self) -> u64 {
        self.pass_bytes()
            + (self.trunk.bytes() - self.trunk.pass_bytes())
            + self.inputs.as_ref().map_or(0, |inputs| inputs.table.bytes())
    }

    /// Those that a pass reads: all except tables whose rows are looked up.
    fn pass_bytes(&self) -> u64 {
        let inputs = self.inputs.as_ref().map_or(0, |inputs| inputs.project.bytes() + inputs.norm.bytes());
        self.trunk.pass_bytes() + inputs
    }

    /// What a layer rotates by.
    fn rope(&self, layer: &Layer) -> Option<&Rope> {
        let rotation = layer.rotation()?;
        self.ropes.iter().find(|(known, _)| *known == rotation).map(|(_, rope)| rope)
    }

    /// What tokens add to all layers, `[m, layers · width]`, where there is something.
    fn layer_inputs(&self, tokens: &[TokenId], embedded: &Tensor) -> Result<Option<Tensor>, ModelError> {
        let Some(inputs) = &self.inputs else { return Ok(None) };
        inputs.of(&ids(tokens, self.trunk.config.vocab, &self.trunk.device)?, embedded).map(Some)
    }

    /// A layer's slice of that.
    fn slice(&self, inputs: Option<&Tensor>, layer: usize) -> Result<Option<Tensor>, ModelError> {
        let (Some(all), Some(LayerInputs { of, .. })) = (inputs, &self.inputs) else { return Ok(None) };
        Ok(Some(all.narrow(1, layer * of.width, of.width)?))
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use candle_core::Device;
    use safetensors::SafeTensors;

    use super::*;
    use crate::load::OpenModel;
    use crate::nn::MatmulBackend;
    use crate::options::Rollback;
    use crate::{Checkpoint, LogitRows, Model, ModelSpec};

    fn weights((opened, plan): (&OpenModel, &Plan), held: WeightType) -> Result<Weights, ModelError> {
        let tensors = Tensors::new(&opened.source, (MatmulBackend::Candle(held), &Device::Cpu), opened.transformer());
        Weights::load(tensors, plan, 64, &mut |_, _, _| {})
    }

    pub(super) fn target(opened: &OpenModel, held: WeightType) -> Result<ReferenceModel, ModelError> {
        let weights = weights((opened, opened.config.plan()), held)?;
        let spec = ModelSpec {
            info: opened.transformer().describe(String::new(), String::new()),
            ctx_len: 64,
            backend: "candle",
            device: "cpu".into(),
            dtype: "f32".into(),
            threads: 1,
        };
        ReferenceModel::new(Arc::new(weights), spec, Rollback::Snapshots)
    }

    pub(super) fn fixture(name: &str) -> OpenModel {
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
        for (name, oracle) in [
            ("gemma4", "gemma4"),
            ("gemma4.gguf", "gemma4"),
            ("gemma4-unified", "gemma4-unified"),
            ("gemma4-experts", "gemma4-experts"),
        ] {
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
        let opened = fixture("llama");
        for (spoil, says) in [
            ((|of| of.sight.causal = false) as fn(&mut plan::Attention), "attention to later positions"),
            (|of| of.keys = Keys::OfTarget, "attention to keys and values of a target"),
            (|of| of.value_width += 1, "values of another width than keys"),
            (|of| of.o.stored.clear(), "matrices without rows"),
            (|of| of.o.stored.extend(of.q.stored.clone()), "matrices in several tensors"),
        ] {
            let mut plan = opened.config.plan().clone();
            let Mixer::Attention(attention) = &mut plan.layers[1].mixer else { panic!("it attends") };
            spoil(attention);
            let error = weights((&opened, &plan), WeightType::F32).err().unwrap().to_string();
            assert_eq!(error, format!("the reference does not run {says}"));
        }
    }
}
