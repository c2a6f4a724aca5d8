//! The family Qwen3.5: names, sizes, tensor names.

use serde_json::{Map, json};

use crate::model::ModelError;
use crate::model::drafters::core::OwnTensors;
use crate::model::families::qwen35::{
    config::{Hybrid, HybridKeys, Qwen35Config},
    load, names,
};
use crate::model::files::{ConfigJson, Folder, GgufFile, ModelFiles, TensorNames};
use crate::model::interfaces::{
    Backend, Description, Family, FamilyConfig, LoadContext, LoadResult, Names, OwnModules, Progress,
};
use crate::model::nn::{Conventions, Ends, Extras, GgufKeys, HfKeys, PairOrder, TransformerConfig, refuse_biases};

/// Qwen3.5 without experts (3.6 and 3.8 alike).
pub struct Qwen35Family;

const CONVENTIONS: Conventions =
    Conventions { name: "qwen35", qk_norm: true, qkv_bias: false, gguf_pairs: PairOrder::HalfSplit };

impl Family for Qwen35Family {
    fn names(&self) -> Names {
        Names { title: "qwen3.5", gguf: &["qwen35"], json: &["qwen35", "qwen3_5", "qwen3_5_text"] }
    }

    fn read_json(&self, json: &ConfigJson, folder: Option<&Folder>) -> Result<Box<dyn FamilyConfig>, ModelError> {
        refuse_biases(folder, &CONVENTIONS, None)?;
        let own = HybridKeys::from_json(json.keys())?;
        let keys = json.read::<HfKeys>()?;
        let extras = Extras { layer_types: true, partial_rotary: true, ..Extras::default() };
        let transformer = keys.transformer(&CONVENTIONS, Ends::of(json, folder), extras)?;
        let hybrid = own.hybrid(transformer.layers, transformer.head_dim)?;
        Ok(Box::new(Qwen35Config { transformer, hybrid }))
    }

    fn read_gguf(&self, gguf: &GgufFile) -> Result<Box<dyn FamilyConfig>, ModelError> {
        let keys = GgufKeys { gguf, arch: CONVENTIONS.name };
        let hybrid = Hybrid::from_gguf(gguf, keys.layers()?, keys.head_dim()?)?;
        let transformer = keys.transformer(&CONVENTIONS, Some(hybrid.rotary))?;
        Ok(Box::new(Qwen35Config { transformer, hybrid }))
    }

    fn tensor_names(&self) -> TensorNames {
        names::tensor_name
    }
}

impl FamilyConfig for Qwen35Config {
    fn transformer(&self) -> &TransformerConfig {
        &self.transformer
    }

    fn matrix_weights(&self) -> u64 {
        let c = &self.transformer;
        let [d, q, kv, ffn, layers] = [c.d_model, c.q_width(), c.kv_width(), c.ffn, c.layers].map(|n| n as u64);
        let delta = &self.hybrid.delta;
        let [mixed, values, heads] = [delta.channels(), delta.value_width(), delta.value_heads].map(|n| n as u64);
        let linear = d * (mixed + 2 * values + 2 * heads);
        let attending = 3 * d * q + 2 * d * kv; // queries come with as many gates
        let count = self.hybrid.linear_layers() as u64;
        count * linear + (layers - count) * attending + layers * 3 * d * ffn + c.end_weights()
    }

    fn cached_values(&self) -> u64 {
        self.attending_layers() as u64 * 2 * self.transformer.kv_width() as u64
    }

    fn state_bytes(&self) -> u64 {
        self.hybrid.state_bytes()
    }

    fn own_modules(&self, source: &ModelFiles) -> OwnModules {
        // its one module has no number
        let found = OwnTensors { source, config: &self.transformer }.has(0, "eh_proj");
        OwnModules { found: usize::from(found), announced: usize::from(self.hybrid.announces_mtp) }
    }

    fn trims_draft_vocab(&self, named: bool) -> bool {
        !named
    }

    fn describe(&self) -> Description {
        let (linear, layers) = (self.hybrid.linear_layers(), self.transformer.layers);
        let state = self.hybrid.state_bytes();
        let bytes = indicatif::DecimalBytes(state);
        Description {
            fields: Map::from_iter([
                ("linear_layers".to_owned(), json!(linear)),
                ("state_bytes".to_owned(), json!(state)),
            ]),
            layers: vec![format!("mixers   {linear} layers of Gated DeltaNet, {} of gated attention", layers - linear)],
            memory: vec![format!(
                "state    {bytes} whatever the context, and as much for each row that may be rolled back (--rollback replay: little)"
            )],
            drafter: Some("none of its own".to_owned()),
        }
    }

    fn load(&self, context: &LoadContext<'_>, backend: Backend<'_>, progress: &mut Progress<'_>) -> LoadResult {
        load::target(self, context, &backend, progress)
    }
}
