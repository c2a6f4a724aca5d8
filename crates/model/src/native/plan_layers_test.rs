//! Parts of single layers in the plain computation: heads of their own, keys and values of other layers, inputs, scales.

use super::reference::Reference;
use super::*;
use crate::nn::RopeScaling;
use crate::plan::{LayerTable, Rotation, TokenInput, UsualAttention};

/// Values of a slice.
const SLICE: usize = 32;

/// The second layer has two heads of 64 instead of four of 32, of which most pairs do not turn.
pub(super) fn other_heads(plan: &mut Plan) {
    let factors = (0..32).map(|pair| if pair < 5 { 1.0 } else { f32::INFINITY }).collect();
    plan.angles.push(Angles { rope: RopeSpec { theta: 50.0, scaling: RopeScaling::Factors(factors) }, width: 64 });
    let rotation = Some(Rotation { table: 1, pairs: PairOrder::HalfSplit });
    let of = UsualAttention { heads: 2, kv_heads: 1, head_dim: 64, qk_norm: true, qkv_bias: false, rotation };
    *attention(&mut plan.layers[1]) = of.plan(&BlockNames::of(&config(), 1, false));
}

/// The last layer has queries alone, which have a norm all the same.
pub(super) fn keys_of_others(plan: &mut Plan) {
    attention(&mut plan.layers[2]).keys = Keys::OfLayer(0);
}

pub(super) fn keys_as_values(plan: &mut Plan) {
    for layer in &mut plan.layers[..2] {
        let own = keys(attention(layer));
        own.v_norm = Some(Norm { weight: None, centred: false, eps: 1e-5 });
    }
    keys(attention(&mut plan.layers[1])).v = None;
}

pub(super) fn inputs_and_scales(plan: &mut Plan) {
    for (block, layer) in plan.layers.iter_mut().enumerate() {
        let names = BlockNames::of(&config(), block, false);
        layer.token_input = (block != 1).then(|| TokenInput {
            gate: names.matrix("inp_gate", SLICE, 64),
            act: if block == 0 { Activation::Gelu } else { Activation::Silu },
            project: names.matrix("proj", 64, SLICE),
            after: names.norm("post_norm"),
        });
        layer.output_scale = (block != 2).then(|| names.name("layer_output_scale"));
    }
    let weight = Some(Vector { name: "per_layer_proj_norm.weight".into(), len: SLICE });
    plan.embedding.by_layer = Some(LayerTable {
        table: Matrix::whole("per_layer_token_embd.weight", [70, 3 * SLICE]),
        width: SLICE,
        scale: 2.0,
        project: Matrix::whole("per_layer_model_proj.weight", [3 * SLICE, 64]),
        project_scale: 0.4,
        norm: Norm { weight, centred: false, eps: 1e-5 },
        join_scale: 0.7,
    });
}

pub(super) fn all(plan: &mut Plan) {
    [other_heads, keys_of_others, keys_as_values, inputs_and_scales].into_iter().for_each(|change| change(plan));
}

impl Reference<'_> {
    /// The slices of a token for all layers; `x` is its scaled embedding.
    pub(super) fn slices(&self, token: TokenId, x: &[f64]) -> Vec<Vec<f64>> {
        let Some(of) = &self.plan.embedding.by_layer else { return Vec::new() };
        let table = self.numbers(of.table.name());
        let row = table[token.index() * of.table.columns..][..of.table.columns].chunks(of.width);
        let shares: Vec<f64> = self.times(&of.project, x).iter().map(|x| of.project_scale * x).collect();
        let slice = |(row, share): (&[f64], &[f64])| {
            let share = self.normed(&of.norm, share);
            row.iter().zip(share).map(|(row, share)| of.join_scale * (of.scale * row + share)).collect()
        };
        row.zip(shares.chunks(of.width)).map(slice).collect()
    }

    pub(super) fn add_input(&self, of: &TokenInput, slice: &[f64], x: &mut [f64]) {
        let products = more_parts::gate_up(of.act, self.times(&of.gate, x), slice.to_vec());
        let added = self.normed(&of.after, &self.times(&of.project, &products));
        x.iter_mut().zip(added).for_each(|(x, added)| *x += added);
    }
}
