//! Opening and loading an assistant.

use std::any::Any;
use std::path::Path;
use std::sync::Arc;

use candle_core::{Device, Tensor};
use indicatif::DecimalBytes;

use crate::block_module::LoadedModules;
use crate::drafters::core;
use crate::error::name_of;
use crate::families::gemma4::assistant::config::AssistantConfig;
use crate::families::gemma4::assistant::file::AssistantFile;
use crate::families::gemma4::assistant::head::{Choice, Head};
use crate::families::gemma4::assistant::{AssistantOnCandle, Norms, Shared};
use crate::families::gemma4::layer::Layer;
use crate::families::gemma4::{Gemma4Config, Gemma4Weights};
use crate::files::{GgufFile, SideFiles};
use crate::interfaces::{CandleTarget, CheckedModule, FamilyConfig, LoadContext, LoadedTarget, Modules};
use crate::nn::{Activation, Gated, Linear, RmsNorm, trimmed};
use crate::options::{DraftVocab, WeightType};
use crate::{ModelError, memory};
use draftscope_protocol::TokenId;

/// An assistant that fits its target, before anything large is read.
pub(super) struct CheckedAssistant {
    pub(super) config: AssistantConfig,
    pub(super) file: AssistantFile,
    name: String,
}

impl CheckedAssistant {
    /// Opens a folder or GGUF file for this target.
    pub(super) fn open(folder: &Path, target: &dyn FamilyConfig) -> Result<Self, ModelError> {
        let gguf = if folder.is_file() { Some(open_gguf(folder)?) } else { None };
        let config = match &gguf {
            Some(gguf) => AssistantConfig::from_gguf(gguf)?,
            None => AssistantConfig::from_json(&SideFiles::of(folder).config()?)?,
        };
        let gemma = (target as &dyn Any).downcast_ref::<Gemma4Config>();
        let (sizes, Some(Gemma4Config { gemma, .. })) = (target.transformer(), gemma) else {
            return Err(ModelError::Unsupported(format!(
                "{} is an assistant of Gemma 4, and the target is of the family {}; leave --draft-model out",
                name_of(folder),
                target.transformer().conventions.name
            )));
        };
        config.check(gemma, (sizes.d_model, sizes.vocab))?;
        let file = gguf.map_or_else(|| AssistantFile::open(folder), |gguf| Ok(AssistantFile::Gguf(gguf)))?;
        Ok(Self { config, file, name: name_of(folder) })
    }
}

/// Opens a GGUF file whose tensors are all of types that run.
pub(super) fn open_gguf(file: &Path) -> Result<GgufFile, ModelError> {
    let gguf = GgufFile::open(file)?;
    gguf.check_types().map(|()| gguf)
}

/// Reads tensors of an assistant by name.
struct Reader<'a> {
    plan: &'a CheckedAssistant,
    device: &'a Device,
}

impl Reader<'_> {
    fn linear(&self, name: &str, shape: [usize; 2], held: WeightType) -> Result<Linear, ModelError> {
        Linear::new(self.plan.file.stored(name, &shape)?, shape, held, self.device)
    }

    fn norm(&self, name: &str, width: usize) -> Result<RmsNorm, ModelError> {
        let weight = self.plan.file.stored(name, &[width])?.to_f32(&[width])?;
        RmsNorm::new(&Tensor::from_vec(weight, width, self.device)?, self.plan.config.norm_eps)
    }

    fn layer(&self, layer: usize) -> Result<Layer, ModelError> {
        let (c, shape) = (&self.plan.config, self.plan.config.gemma.layers[layer]);
        let name = |part: &str| format!("blk.{layer}.{part}");
        let linear = |part: &str, out: usize, input: usize| self.linear(&name(part), [out, input], WeightType::F32);
        let norm = |part: &str, width: usize| self.norm(&name(part), width);
        let q_width = c.heads * shape.head_dim;
        Ok(Layer {
            shape,
            heads: c.heads,
            attn_norm: norm("attn_norm.weight", c.d_model)?,
            q: linear("attn_q.weight", q_width, c.d_model)?,
            q_norm: norm("attn_q_norm.weight", shape.head_dim)?,
            kv: None,
            o: linear("attn_output.weight", c.d_model, q_width)?,
            post_attn_norm: norm("post_attention_norm.weight", c.d_model)?,
            ffn_norm: norm("ffn_norm.weight", c.d_model)?,
            ffn: Gated::read((c.d_model, shape.ffn), Activation::Gelu, |part, out, input| {
                linear(&format!("ffn_{part}.weight"), out, input)
            })?,
            experts: None,
            post_ffn_norm: norm("post_ffw_norm.weight", c.d_model)?,
            per_layer: None,
            scale: self.plan.file.stored(&name("layer_output_scale.weight"), &[1])?.to_f32(&[1])?[0].into(),
        })
    }

    /// The head: with clusters if the assistant has them, unless a draft vocabulary is requested.
    fn head(&self, wanted: Option<&DraftVocab>, ends: &[TokenId]) -> Result<Head, ModelError> {
        const TABLE: &str = "token_embd.weight";
        let (v, d) = (self.plan.config.vocab, self.plan.config.d_model);
        let all: Vec<TokenId> = (0..v as u32).map(TokenId).collect();
        match (wanted, self.plan.config.clusters) {
            (None, Some(of)) => {
                let ordering = self.plan.file.ordering("masked_embedding.token_ordering", v)?;
                let centroids = self.linear("masked_embd_centroids.weight", [of.count, d], WeightType::F32)?;
                // a few rows of it are looked up for each draft
                let table = self.linear(TABLE, [v, d], WeightType::Stored)?;
                Ok(Head { table, choice: Choice::Clusters { of, centroids, ordering }, vocab: all })
            }
            (None | Some(DraftVocab::All), _) => {
                Ok(Head { table: self.linear(TABLE, [v, d], WeightType::F32)?, choice: Choice::All, vocab: all })
            }
            (Some(wanted), _) => {
                let vocab = wanted.tokens(v, ends)?;
                let table = trimmed(&self.linear(TABLE, [v, d], WeightType::Stored)?, &vocab, self.device)?;
                Ok(Head { table, choice: Choice::Listed, vocab })
            }
        }
    }
}

/// Rejects weights that do not fit into `available` bytes; `None` = unknown.
fn check_fit(weights: u64, available: Option<u64>) -> Result<(), ModelError> {
    match available.filter(|available| weights > *available) {
        None => Ok(()),
        Some(available) => Err(ModelError::DoesNotFit(format!(
            "the assistant does not fit beside its target: its weights take {} as f32, and {} of memory are free; choose a smaller target, or free some memory",
            DecimalBytes(weights),
            DecimalBytes(available)
        ))),
    }
}

impl CheckedModule for CheckedAssistant {
    fn load(&self, target: &dyn LoadedTarget, context: &LoadContext<'_>) -> Result<LoadedModules, ModelError> {
        let target = (target as &dyn Any).downcast_ref::<CandleTarget<Gemma4Weights>>();
        let other = || {
            ModelError::Unsupported(
                "an assistant drafts for a Gemma 4 alone, and not on the GPU yet; choose --device cpu".into(),
            )
        };
        let weights = &target.ok_or_else(other)?.weights;
        load(self, weights, (context.options.draft_vocab.as_ref(), context.ends)).map(LoadedModules::from)
    }
}

/// Loads an assistant for its target.
fn load(
    plan: &CheckedAssistant,
    target: &Arc<Gemma4Weights>,
    (wanted, ends): (Option<&DraftVocab>, &[TokenId]),
) -> Result<Modules, ModelError> {
    let (c, device) = (&plan.config, target.trunk.device.clone());
    check_fit(4 * c.matrix_weights(), memory::available_on(&device))?;
    let reader = Reader { plan, device: &device };
    let norms = Norms {
        layers: (0..c.gemma.layers.len()).map(|layer| reader.layer(layer)).collect::<Result<_, _>>()?,
        last: reader.norm("output_norm.weight", c.d_model)?,
    };
    let shared = Shared {
        backbone: c.backbone,
        window: c.gemma.window,
        pre: reader.linear("nextn.pre_projection.weight", [c.d_model, 2 * c.backbone], WeightType::F32)?,
        post: reader.linear("nextn.post_projection.weight", [c.backbone, c.d_model], WeightType::F32)?,
        head: reader.head(wanted, ends)?,
        target: Arc::clone(target),
    };
    let assistant = AssistantOnCandle::module(shared, norms)?;
    Ok(core::modules(vec![assistant], format!("{} (assistant)", plan.name), "f32"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assistant_that_does_not_fit_says_its_figures_and_what_helps() {
        check_fit(300_000_000, None).unwrap();
        check_fit(300_000_000, Some(300_000_000)).unwrap();
        let error = check_fit(300_000_000, Some(200_000_000)).unwrap_err().to_string();
        assert!(error.contains("take 300.00 MB as f32, and 200.00 MB of memory are free"), "{error}");
        assert!(!error.contains("--dtype") && !error.contains("positions"), "{error}");
    }
}
