//! The families of DeepSeek-V3's layout: names, sizes, tensor names.

use std::sync::Arc;

use indicatif::{DecimalBytes, HumanCount};
use serde_json::{Map, json};

use crate::model::ModelError;
use crate::model::drafters::core::OwnTensors;
use crate::model::families::deepseek::{
    DeepSeekWeights,
    config::{DeepSeekConfig, LatentKeys},
    gguf, load, names,
};
use crate::model::files::{ConfigJson, Folder, GgufFile, Layout, MatrixForm, ModelFiles, TensorNames, block_part};
use crate::model::interfaces::{
    Backend, CandleTarget, Description, Family, FamilyConfig, LoadContext, LoadResult, Names, OwnModules, Progress,
};
use crate::model::nn::{
    Conventions, Ends, Extras, HfKeys, PairOrder, PassWidths, TransformerConfig, expected_experts, expert_numbers,
    refuse_biases,
};
use crate::model::plan::{Plan, PlanFiles};
use crate::protocol::MemoryAccount;

/// A family of DeepSeek-V3's layout.
pub struct DeepSeekFamily {
    names: Names,
    conventions: Conventions,
    /// Those of its GGUF files, named by their architecture.
    gguf: Conventions,
    /// Number of dense layers if no key states it.
    usual_dense_layers: Option<usize>,
}

/// DeepSeek-V3, R1 and V3.1: latent attention and experts. GGUF files of GLM-4.7-Flash and Kimi K2 have the same
/// architecture.
pub static DEEPSEEK_V3: DeepSeekFamily = DeepSeekFamily::named("deepseek_v3", (&["deepseek_v3"], &["deepseek2"]), None);
/// GLM-4.7-Flash.
pub static GLM4_MOE_LITE: DeepSeekFamily = DeepSeekFamily::named("glm4_moe_lite", (&["glm4_moe_lite"], &[]), Some(1));

impl DeepSeekFamily {
    const fn named(
        name: &'static str,
        (json, gguf): (&'static [&'static str], &'static [&'static str]),
        usual_dense_layers: Option<usize>,
    ) -> Self {
        let gguf_pairs = PairOrder::Interleaved;
        let conventions = Conventions { name, qk_norm: false, qkv_bias: false, gguf_pairs };
        let names = Names { title: name, gguf, json };
        Self { names, conventions, gguf: Conventions { name: "deepseek2", ..conventions }, usual_dense_layers }
    }
}

impl Family for DeepSeekFamily {
    fn names(&self) -> Names {
        self.names
    }

    fn read_json(&self, json: &ConfigJson, folder: Option<&Folder>) -> Result<Box<dyn FamilyConfig>, ModelError> {
        refuse_biases(folder, &self.conventions, None)?;
        let own = LatentKeys::from_json(json.keys())?;
        let keys = json.read::<HfKeys>()?;
        let latent = own.latent(self.usual_dense_layers, (keys.layers()?, keys.heads()?), keys.sharper()?)?;
        let head_dim = Some(latent.attention.plain + latent.attention.rotary);
        let extras = Extras { head_dim, mscale: true, own_heads: true, ..Extras::default() };
        let transformer = keys.transformer(&self.conventions, Ends::of(json, folder), extras)?;
        Ok(Box::new(DeepSeekConfig::new(transformer, latent, PlanFiles::Checkpoint(folder))))
    }

    fn read_gguf(&self, gguf: &GgufFile) -> Result<Box<dyn FamilyConfig>, ModelError> {
        Ok(Box::new(gguf::config(gguf, &self.gguf)?))
    }

    fn tensor_names(&self) -> TensorNames {
        tensor_name
    }
}

/// The checkpoint's name of a tensor; a draft module counts as one more layer there too.
fn tensor_name(layout: &Layout, name: &str) -> Option<String> {
    let (layer, part) = block_part(name)?;
    names::part(part).map(|own| format!("{}layers.{layer}.{own}", layout.prefix))
}

impl DeepSeekConfig {
    /// Weights that a token is multiplied with; an embedding that is not also the head is only looked up.
    fn active_weights(&self) -> u64 {
        let c = &self.transformer;
        let [all, active] = self.latent.layer_weights(c.d_model, c.layers, c.ffn);
        let looked_up = if c.tied { 0 } else { (c.vocab * c.d_model) as u64 };
        self.matrix_weights() - looked_up - all + active
    }
}

impl FamilyConfig for DeepSeekConfig {
    fn transformer(&self) -> &TransformerConfig {
        &self.transformer
    }

    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn matrix_weights(&self) -> u64 {
        let c = &self.transformer;
        self.latent.layer_weights(c.d_model, c.layers, c.ffn)[0] + c.end_weights()
    }

    fn cached_values(&self) -> u64 {
        (self.transformer.layers * self.latent.cached()) as u64
    }

    fn is_large(&self) -> bool {
        true
    }

    fn own_modules(&self, source: &ModelFiles) -> OwnModules {
        OwnModules { found: OwnTensors { source, config: &self.transformer }.found(), announced: self.latent.modules }
    }

    fn trims_draft_vocab(&self, named: bool) -> bool {
        !named
    }

    /// `load::memory` counts them.
    fn module_values(&self) -> u64 {
        0
    }

    fn memory(&self, context: &LoadContext<'_>, account: MemoryAccount, form: MatrixForm) -> MemoryAccount {
        load::memory(self, context, account, form)
    }

    /// Queries, before and after they read latents, three forms of which a row makes, and their scores are of all heads; a
    /// row goes through its experts and a shared one.
    fn pass_widths(&self) -> PassWidths {
        let (c, a, experts) = (&self.transformer, &self.latent.attention, &self.latent.experts);
        let queries = a.heads * (a.plain + 2 * a.rotary) + (a.heads + 3) * (a.rank + a.rotary);
        let dense_ffn = if self.latent.dense_layers > 0 { c.ffn } else { 0 };
        let ffn = experts.width * experts.shared.max(1);
        let experts = expert_numbers(experts.used, c.d_model, experts.width);
        PassWidths {
            heads: a.heads,
            queries,
            answers: a.heads * a.rank,
            ffn,
            dense_ffn,
            rotary: a.rotary,
            experts,
            ..c.pass_widths()
        }
    }

    fn describe(&self) -> Description {
        let (c, attention, experts) = (&self.transformer, &self.latent.attention, &self.latent.experts);
        let unfolded = 4 * (c.layers * self.latent.unfolded()) as u64;
        let times = unfolded as f64 / (4 * self.cached_values()).max(1) as f64;
        let (expert_layers, active) = (c.layers - self.latent.dense_layers, self.active_weights());
        let latent_line = format!(
            "latent   a token is one row of {} + {} numbers in each layer; keys and values of {} heads would take {times:.1} times that ({})",
            attention.rank,
            attention.rotary,
            c.heads,
            DecimalBytes(unfolded)
        );
        let experts_line = format!(
            "experts  {} a layer in {expert_layers} of {} layers; {} of them and {} shared serve a token, which meets {} weights; {}",
            experts.count,
            c.layers,
            experts.used,
            experts.shared,
            HumanCount(active),
            expected_experts(experts.count, experts.used)
        );
        let latent = json!({
            "rank": attention.rank, "rotary": attention.rotary, "unfolded_bytes_per_token": unfolded,
        });
        let experts = json!({
            "layers": expert_layers, "count": experts.count, "used": experts.used, "shared": experts.shared,
            "active_parameters": active,
        });
        Description {
            fields: Map::from_iter([("latent".to_owned(), latent), ("experts".to_owned(), experts)]),
            memory: vec![latent_line, experts_line],
            ..Description::default()
        }
    }

    fn load(&self, context: &LoadContext<'_>, backend: Backend<'_>, progress: &mut Progress<'_>) -> LoadResult {
        let (tensors, spec) = context.on_candle(&backend);
        let weights = Arc::new(DeepSeekWeights::load(&tensors, &self.latent, context.ctx_len, progress)?);
        Ok(Box::new(CandleTarget { weights, spec }))
    }
}
