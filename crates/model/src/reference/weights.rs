//! Loads what every plan has besides its layers' arithmetic: matrices, norms, angles, caches.

use std::sync::Arc;

use candle_core::Tensor;
use draftscope_protocol::TokenId;

use super::layer::Layer;
use super::reader::{self, Reader};
use crate::ModelError;
use crate::nn::{Linear, RmsNorm, Rope, Tensors, Trunk, ids};
use crate::options::WeightType;
use crate::plan::{self, Keys, LayerTable, Mixer, Plan, Rotation};

/// Weights of a target; shared by its forks and by its draft modules.
pub(crate) struct Weights {
    /// Embedding, layers, last norm and head.
    pub(crate) trunk: Arc<Trunk<Layer>>,
    /// What tokens add to single layers.
    pub(super) inputs: Option<LayerInputs>,
    ropes: Vec<(Rotation, Rope)>,
    /// The cache that each layer reads; `None`: it has a recurrent state instead.
    pub(super) caches: Vec<Option<usize>>,
    /// Values of a position that keys and values of all heads would take where latent attention caches one row.
    pub(super) unfolded: u64,
}

/// A table with a slice for each layer.
pub(super) struct LayerInputs {
    pub(super) of: LayerTable,
    table: Linear,
    pub(super) project: Linear,
    pub(super) norm: RmsNorm,
}

/// The cache that each layer reads: those with keys and values of their own have one.
pub(super) fn caches(plan: &Plan) -> Result<Vec<Option<usize>>, ModelError> {
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
pub(super) fn ropes(plan: &Plan, ctx_len: usize, tensors: &Tensors<'_>) -> Result<Vec<(Rotation, Rope)>, ModelError> {
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
    pub(super) fn bytes(&self) -> u64 {
        self.pass_bytes()
            + (self.trunk.bytes() - self.trunk.pass_bytes())
            + self.inputs.as_ref().map_or(0, |inputs| inputs.table.bytes())
    }

    /// Those that a pass reads: all except tables whose rows are looked up.
    pub(super) fn pass_bytes(&self) -> u64 {
        let inputs = self.inputs.as_ref().map_or(0, |inputs| inputs.project.bytes() + inputs.norm.bytes());
        self.trunk.pass_bytes() + inputs
    }

    /// What a layer rotates by.
    pub(super) fn rope(&self, layer: &Layer) -> Option<&Rope> {
        let rotation = layer.rotation()?;
        self.ropes.iter().find(|(known, _)| *known == rotation).map(|(_, rope)| rope)
    }

    /// What tokens add to all layers, `[m, layers · width]`, where there is something.
    pub(super) fn layer_inputs(&self, tokens: &[TokenId], embedded: &Tensor) -> Result<Option<Tensor>, ModelError> {
        let Some(inputs) = &self.inputs else { return Ok(None) };
        inputs.of(&ids(tokens, self.trunk.config.vocab, &self.trunk.device)?, embedded).map(Some)
    }

    /// A layer's slice of that.
    pub(super) fn slice(&self, inputs: Option<&Tensor>, layer: usize) -> Result<Option<Tensor>, ModelError> {
        let (Some(all), Some(LayerInputs { of, .. })) = (inputs, &self.inputs) else { return Ok(None) };
        Ok(Some(all.narrow(1, layer * of.width, of.width)?))
    }
}

impl LayerInputs {
    pub(super) fn read(tensors: &Tensors<'_>, of: &LayerTable) -> Result<Self, ModelError> {
        let reader = Reader::new(tensors);
        // its rows are looked up, so it stays as stored
        let table = tensors.linear_as(of.table.name(), [of.table.rows, of.table.columns], WeightType::Stored)?;
        let (project, norm) = (reader.matrix(&of.project)?, reader.norm(&of.norm, of.width)?);
        Ok(Self { of: of.clone(), table, project, norm })
    }

    /// The slices of all layers, `[m, layers · width]`.
    pub(super) fn of(&self, ids: &Tensor, embedded: &Tensor) -> Result<Tensor, ModelError> {
        let looked_up = (self.table.rows(ids)? * self.of.scale)?;
        let (m, all) = looked_up.dims2()?;
        let projected = (self.project.forward(embedded)? * self.of.project_scale)?;
        let normed = self.norm.forward(&projected.reshape((m * all / self.of.width, self.of.width))?)?;
        Ok(((normed.reshape((m, all))? + looked_up)? * self.of.join_scale)?)
    }
}
