//! A Gemma 3 on the GPU: what its blocks have besides Llama's, as data for the same kernels.

use std::sync::Arc;

use draftscope_gpu::{BlockWeights, EndStyle, Gpu, Style};

use crate::model::ModelError;
use crate::model::families::gemma3::config::Gemma3Config;
use crate::model::families::gemma3::family::{NO_SHARING, no_module};
use crate::model::gpu::load::{self, Reading};
use crate::model::gpu::tensors::{Uploader, angles};
use crate::model::interfaces::{GpuTarget, LoadContext, LoadResult, Progress};
use crate::model::shared_kv::Reach;

/// Loads the target.
pub(super) fn target(
    config: &Gemma3Config,
    gpu: &Arc<Gpu>,
    context: &LoadContext<'_>,
    progress: &mut Progress<'_>,
) -> LoadResult {
    let LoadContext { options, source, ctx_len, .. } = *context;
    let Gemma3Config { transformer, layers, .. } = config;
    // the model's own angles are those of sliding layers
    let of_full = angles(gpu, &layers.full_rope, transformer.head_dim, ctx_len);
    let block = |uploader: &Uploader<'_>, index: usize| -> Result<BlockWeights, ModelError> {
        let post = |part: &str| uploader.norm(&format!("blk.{index}.{part}.weight"), transformer.d_model);
        let (angles, window) = match layers.reach[index] {
            Reach::Sliding => (None, Some(layers.window)),
            Reach::Full => (Some(of_full.clone()), None),
        };
        let style = Style {
            angles,
            window,
            query_scale: Some(layers.scores.scale as f32),
            score_cap: layers.scores.softcap.map(|cap| cap as f32),
            gelu: true,
            post_norms: Some([post("post_attention_norm")?, post("post_ffw_norm")?]),
            ..Style::default()
        };
        Ok(BlockWeights { style, ..uploader.block(index)? })
    };
    let style = |_: &Uploader<'_>| {
        let logit_cap = layers.logit_softcap.map(|cap| cap as f32);
        Ok(EndStyle { embedding_scale: (transformer.d_model as f32).sqrt(), logit_cap, ..EndStyle::default() })
    };
    let mut on_layer = |done: usize, total: usize| progress("target", done as u64, total as u64);
    let reading = Reading { centred: true, rotary: None, style: &style, block: &block };
    let mut model = load::target(gpu, (source, transformer), (ctx_len, &reading), &mut on_layer)?;
    model.set_sha256(options.sha256.clone());
    Ok(Box::new(GpuTarget { model, own_modules: Box::new(|_, context| no_module(context)), no_sharing: NO_SHARING }))
}
