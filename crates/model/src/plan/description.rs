//! What a plan says about a model besides its sizes: lines and JSON fields of `models info`.

use indicatif::{DecimalBytes, HumanCount};
use serde_json::{Map, Value, json};

use super::attention::{Attention, Keys, Latent};
use super::feed::{Experts, Feed, SharedFeed};
use super::layer::{Layer, Mixer};
use super::whole::Plan;
use crate::nn::expected_experts;

/// Lines and JSON fields about what only some models have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Description {
    /// Fields of the JSON form; those of parts that the model lacks are null or 0.
    pub fields: Map<String, Value>,
    /// Lines about the layers.
    pub layers: Vec<String>,
    /// Lines about memory.
    pub memory: Vec<String>,
}

impl Plan {
    /// Describes the parts that not every model has.
    #[must_use]
    pub fn describe(&self) -> Description {
        let mut description = Description::default();
        self.describe_kinds(&mut description);
        self.describe_states(&mut description);
        self.describe_latents(&mut description);
        self.describe_experts(&mut description);
        description
    }

    /// Layers of attention that differ: windows, heads, whose keys they read, what a token adds to each.
    fn describe_kinds(&self, to: &mut Description) {
        let of_window = |slides: bool| self.attentions().filter(move |of| of.sight.window.is_some() == slides);
        let (sliding, full) = (of_window(true).count(), of_window(false).count());
        let of_layers = self.embedding.by_layer.as_ref();
        let Some(window) = of_window(true).next().and_then(|attention| attention.sight.window) else {
            to.fields.insert("attention".into(), Value::Null);
            return;
        };
        let heads = |attention: &Attention| (attention.kv_heads, attention.key_width);
        let full_heads = of_window(false).next().map_or((0, 0), heads);
        let of_full = match of_window(true).next().map(heads) == Some(full_heads) {
            true => String::new(),
            false => format!(" with {} key/value heads of {}", full_heads.0, full_heads.1),
        };
        to.layers.push(format!("layers   {sliding} sliding ({window} positions), {full} full{of_full}"));
        let sharing: Vec<&Layer> = self.layers.iter().filter(|layer| layer.reads_other_keys()).collect();
        let sharing_ffn = sharing.first().and_then(|layer| match &layer.feed {
            Feed::Dense(gated) => Some(gated.width()),
            Feed::Experts(_) => None,
        });
        if let Some(ffn) = sharing_ffn {
            let count = sharing.len();
            to.layers.push(format!("shared   the last {count} read others' keys and values, feed-forward {ffn}"));
        }
        let weights = self.looked_up_weights();
        if let Some(of) = of_layers {
            let weights = HumanCount(weights);
            to.layers.push(format!("per layer embeddings of width {}, {weights} weights", of.width));
        }
        let fields = json!({
            "sliding_layers": sliding, "window": window, "full_layers": full,
            "full_head_dim": full_heads.1, "full_kv_heads": full_heads.0, "sharing_layers": sharing.len(),
            "sharing_ffn": sharing_ffn, "per_layer_width": of_layers.map(|of| of.width), "per_layer_weights": weights,
        });
        to.fields.insert("attention".into(), fields);
    }

    fn describe_states(&self, to: &mut Description) {
        let (linear, state) = (self.deltas().count(), self.state_bytes());
        to.fields.insert("linear_layers".into(), json!(linear));
        to.fields.insert("state_bytes".into(), json!(state));
        if linear == 0 {
            return;
        }
        let attending = self.attentions().count();
        to.layers.push(format!("mixers   {linear} layers of Gated DeltaNet, {attending} of gated attention"));
        to.memory.push(format!(
            "state    {} whatever the context, and as much for each row that may be rolled back (--rollback replay: little)",
            DecimalBytes(state)
        ));
    }

    fn describe_latents(&self, to: &mut Description) {
        let Some(Latent { heads, rank, rotated, .. }) = self.latents().next() else {
            to.fields.insert("latent".into(), Value::Null);
            return;
        };
        // in f32
        let unfolded = 4 * self.unfolded_values();
        let times = unfolded as f64 / (4 * self.cached_values()).max(1) as f64;
        to.memory.push(format!(
            "latent   a token is one row of {rank} + {rotated} numbers in each layer; keys and values of {heads} heads would take {times:.1} times that ({})",
            DecimalBytes(unfolded)
        ));
        let fields = json!({ "rank": rank, "rotary": rotated, "unfolded_bytes_per_token": unfolded });
        to.fields.insert("latent".into(), fields);
    }

    fn describe_experts(&self, to: &mut Description) {
        let Some(Experts { sizes, used, shared, beside, .. }) = self.experts().next() else {
            to.fields.insert("experts".into(), Value::Null);
            return;
        };
        let (count, layers, active) = (sizes.count, self.experts().count(), self.active_weights());
        let (shared, and_shared) = match shared {
            None => (0, String::new()),
            Some(SharedFeed { gate: Some(_), count, .. }) => (*count, " and a shared one".to_owned()),
            Some(SharedFeed { count, .. }) => (*count, format!(" and {count} shared")),
        };
        let place = match (layers == self.layers.len(), beside) {
            (true, None) => String::new(),
            (true, Some(_)) => " beside a dense one".to_owned(),
            (false, _) => format!(" in {layers} of {} layers", self.layers.len()),
        };
        to.memory.push(format!(
            "experts  {count} a layer{place}; {used} of them{and_shared} serve a token, which meets {} weights; {}",
            HumanCount(active),
            expected_experts(count, *used)
        ));
        let fields = json!({
            "layers": layers, "count": count, "used": used, "shared": shared, "active_parameters": active,
        });
        to.fields.insert("experts".into(), fields);
    }
}

impl Layer {
    /// Whether it attends to keys and values of another layer.
    #[must_use]
    pub fn reads_other_keys(&self) -> bool {
        matches!(&self.mixer, Mixer::Attention(Attention { keys: Keys::OfLayer(_), .. }))
    }
}
