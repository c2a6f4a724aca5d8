//! Loading of what tokens add to single layers.

use super::inputs::{LayerInputs, TokenInput};
use super::load::Loader;
use super::pack::lanes;
use crate::ModelError;
use crate::plan::{self, LayerTable};

impl Loader<'_> {
    /// The table for all layers, the largest of its tensors first.
    pub(super) fn layer_inputs(&self, of: &LayerTable) -> Result<LayerInputs, ModelError> {
        Ok(LayerInputs {
            table: self.matrix(&of.table)?,
            project: self.matrix(&of.project)?,
            norm: self.norm(&of.norm, of.width)?,
            eps: of.norm.eps,
            scales: [of.scale, of.project_scale, of.join_scale].map(|scale| scale as f32),
        })
    }

    /// What the layer of this number does with its slice.
    pub(super) fn token_input(&self, of: &plan::TokenInput, layer: usize) -> Result<TokenInput, ModelError> {
        let d = of.project.rows;
        Ok(TokenInput {
            layer,
            gate: self.matrix(&of.gate)?,
            activation: of.act,
            project: self.matrix(&of.project)?,
            after: self.norm(&of.after, d)?,
            ones: lanes(&vec![1.0; d]),
        })
    }
}
