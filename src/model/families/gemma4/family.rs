//! The family Gemma 4: names, sizes, tensor names.

use std::sync::Arc;

use indicatif::HumanCount;
use serde_json::{Map, Value, json};

use crate::model::ModelError;

use crate::model::families::gemma4::{
    Gemma4Weights,
    config::{ExpertShape, Gemma4Config, LayerShape},
    gguf,
    keys::{GemmaKeys, Sizes},
    names,
};
use crate::model::files::{ConfigJson, Folder, GgufFile, ModelFiles, TensorNames};
use crate::model::interfaces::{
    Backend, CandleFamily, CandleTarget, Description, Drafting, Family, FamilyConfig, LoadContext, LoadResult, Modules,
    Names, NoSharing, Progress, SharedWeights,
};
use crate::model::nn::{
    Conventions, Ends, Extras, HfKeys, PairOrder, PassWidths, TransformerConfig, expected_experts, expert_numbers,
    refuse_biases,
};
use crate::model::plan::{Plan, PlanFiles};
use crate::model::shared_kv::Reach;

/// Gemma 4, with experts and without.
pub struct Gemma4Family;

const CONVENTIONS: Conventions =
    Conventions { name: "gemma4", qk_norm: true, qkv_bias: false, gguf_pairs: PairOrder::HalfSplit };

impl Family for Gemma4Family {
    fn names(&self) -> Names {
        let json = &["gemma4", "gemma4_text", "gemma4_unified", "gemma4_unified_text"];
        Names { title: "gemma4", gguf: &["gemma4"], json }
    }

    fn read_json(&self, json: &ConfigJson, folder: Option<&Folder>) -> Result<Box<dyn FamilyConfig>, ModelError> {
        refuse_biases(folder, &CONVENTIONS, None)?;
        let own = GemmaKeys::from_json(json.keys())?;
        let keys = json.read::<HfKeys>()?;
        let head_dim = keys.head_dim(Some(own.head_dim()))?;
        let sizes = Sizes { layers: keys.layers()?, heads: keys.heads()?, ffn: keys.ffn()?, vocab: keys.vocab()? };
        let gemma = own.gemma(sizes, false)?;
        let (head_dim, rope) = (Some(head_dim), Some(gemma.sliding_rope.clone()));
        let extras = Extras { head_dim, rope, layer_types: true, ..Extras::default() };
        let transformer = keys.transformer(&CONVENTIONS, Ends::of(json, folder), extras)?;
        Ok(Box::new(Gemma4Config::new(transformer, gemma, PlanFiles::Checkpoint(folder))))
    }

    fn read_gguf(&self, gguf: &GgufFile) -> Result<Box<dyn FamilyConfig>, ModelError> {
        Ok(Box::new(gguf::config(gguf, &CONVENTIONS)?))
    }

    fn tensor_names(&self) -> TensorNames {
        names::tensor_name
    }

    // the tokenizer files of `-it` repositories do not say so, and without it the model writes nonsense (llama.cpp adds
    // the token too, even against the file)
    fn always_begins(&self) -> bool {
        true
    }
}

impl Gemma4Config {
    /// A line on the experts; adds their fields.
    fn describe_experts(&self, experts: ExpertShape, fields: &mut Map<String, Value>) -> String {
        let (count, used, layers) = (experts.count, experts.used, self.transformer.layers);
        let [all, met] = experts.weights(self.transformer.d_model);
        let active = self.matrix_weights() - self.gemma.looked_up_weights() - layers as u64 * (all - met);
        let own = json!({ "layers": layers, "count": count, "used": used, "shared": 0, "active_parameters": active });
        fields.insert("experts".to_owned(), own);
        format!(
            "experts  {count} a layer beside a dense one; {used} of them serve a token, which meets {} weights; {}",
            HumanCount(active),
            expected_experts(count, used)
        )
    }
}

impl FamilyConfig for Gemma4Config {
    fn transformer(&self) -> &TransformerConfig {
        &self.transformer
    }

    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn matrix_weights(&self) -> u64 {
        let c = &self.transformer;
        c.end_weights() + self.gemma.layer_weights(c.d_model, c.heads)
    }

    fn looked_up_weights(&self) -> u64 {
        self.gemma.looked_up_weights()
    }

    /// As stored; FP8 is widened to two bytes.
    fn looked_up_bytes(&self, source: &ModelFiles) -> u64 {
        match self.looked_up_weights() {
            0 => 0,
            weights if source.is_checkpoint() => source.bytes_of(names::TABLE).unwrap_or(0).max(2 * weights),
            _ => source.bytes_of(names::TABLE).unwrap_or(0),
        }
    }

    fn cached_values(&self) -> u64 {
        self.gemma.cached_values()
    }

    fn pass_widths(&self) -> PassWidths {
        let (c, gemma) = (&self.transformer, &self.gemma);
        let layers = &gemma.layers;
        let widest = |of: fn(&LayerShape) -> usize| layers.iter().map(of).max().unwrap_or(0);
        let of_layers = gemma.per_layer.map_or(0, |of| c.layers * of.width);
        let heads = [Reach::Sliding, Reach::Full]
            .map(|reach| layers.iter().find(|layer| layer.reach == reach).map_or(2, |layer| layer.head_dim));
        PassWidths {
            queries: c.heads * widest(|layer| layer.head_dim),
            answers: c.heads * widest(|layer| layer.head_dim),
            ffn: widest(|layer| layer.ffn),
            inputs: of_layers,
            rotary: heads.iter().sum(),
            experts: gemma.experts.map_or([0; 2], |of| expert_numbers(of.used, c.d_model, of.width)),
            ..c.pass_widths()
        }
    }

    fn is_large(&self) -> bool {
        self.gemma.experts.is_some()
    }

    fn trims_draft_vocab(&self, _named: bool) -> bool {
        true
    }

    fn describe(&self) -> Description {
        let gemma = &self.gemma;
        let count = |reach| gemma.layers.iter().filter(|layer| layer.reach == reach).count();
        let full = gemma.layers.iter().find(|layer| layer.reach == Reach::Full);
        let (full_head_dim, full_kv_heads) = full.map_or((0, 0), |layer| (layer.head_dim, layer.kv_heads));
        let shares = |(index, _): &(usize, _)| gemma.layers[*index].source != Some(*index);
        let sharing: Vec<_> = gemma.layers.iter().enumerate().filter(shares).collect();
        let sharing_ffn = sharing.first().map(|(_, layer)| layer.ffn);
        let (sliding_layers, full_layers) = (count(Reach::Sliding), count(Reach::Full));
        let (width, weights) = (gemma.per_layer.map(|of| of.width), gemma.looked_up_weights());
        let mut layers = vec![format!(
            "layers   {sliding_layers} sliding ({} positions), {full_layers} full with {full_kv_heads} key/value heads of {full_head_dim}",
            gemma.window
        )];
        if let Some(ffn) = sharing_ffn {
            let count = sharing.len();
            layers.push(format!("shared   the last {count} read others' keys and values, feed-forward {ffn}"));
        }
        if let Some(width) = width {
            layers.push(format!("per layer embeddings of width {width}, {} weights", HumanCount(weights)));
        }
        let fields = json!({
            "sliding_layers": sliding_layers, "window": gemma.window, "full_layers": full_layers,
            "full_head_dim": full_head_dim, "full_kv_heads": full_kv_heads, "sharing_layers": sharing.len(),
            "sharing_ffn": sharing_ffn, "per_layer_width": width, "per_layer_weights": weights,
        });
        let mut fields = Map::from_iter([("gemma".to_owned(), fields)]);
        let memory = gemma.experts.map(|experts| self.describe_experts(experts, &mut fields));
        Description {
            fields,
            layers,
            memory: memory.into_iter().collect(),
            drafter: Some(
                "its assistant, a repository of its own: --draft-model; it reads this cache and has none".into(),
            ),
        }
    }

    fn drafting(&self, source: &ModelFiles) -> Drafting {
        Drafting { own: Some(Err(no_module(source))), no_sharing: Some(NO_SHARING) }
    }

    fn load(&self, context: &LoadContext<'_>, backend: Backend<'_>, progress: &mut Progress<'_>) -> LoadResult {
        let (tensors, spec) = context.on_candle(&backend);
        let weights = Arc::new(Gemma4Weights::load(&tensors, &self.gemma, context.ctx_len, progress)?);
        Ok(Box::new(CandleTarget { weights, spec }))
    }
}

/// Says that the files have no drafter, and what drafts instead.
fn no_module(source: &ModelFiles) -> ModelError {
    ModelError::Unsupported(format!("{} brings no drafter; name its assistant with --draft-model", source.file_name()))
}

const NO_SHARING: NoSharing = NoSharing {
    family: "a Gemma 4",
    instead_of_head: "name its assistant with --draft-model",
    instead_of_module: "has an assistant, so name that with --draft-model and leave --mtp out",
};

impl CandleFamily for Gemma4Weights {
    fn own_modules(_target: &CandleTarget<Self>, context: &LoadContext<'_>) -> Option<Result<Modules, ModelError>> {
        Some(Err(no_module(context.source)))
    }

    fn shared(_target: &CandleTarget<Self>) -> Result<SharedWeights<'_>, NoSharing> {
        Err(NO_SHARING)
    }
}
