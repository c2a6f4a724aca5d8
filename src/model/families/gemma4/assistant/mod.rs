//! Assistants of Gemma 4: a few layers of queries that read the target's keys and values, fed with the target's embedding
//! of a token and a hidden state.
//!
//! `x = pre [E(token) ; h]`, the layers, `u = norm(x)`, logits by its own table; `post u` takes the target's place from
//! depth 2 on (`transformers`, `modeling_gemma4_assistant.py`; llama.cpp, `gemma4-assistant.cpp`). Invariant: nothing is
//! written anywhere. A draft depends on what is lent, the token, the state and a position, so that there is no cache, no
//! prompt to read and nothing to take back; all drafts of a round stand at one position and see the committed text.

mod card;
mod config;
mod file;
mod head;
mod kind;
mod load;

use std::sync::Arc;

use candle_core::Tensor;

use crate::model::drafters::core::copy_to;
use crate::model::families::gemma4::Gemma4Weights;
use crate::model::families::gemma4::assistant::head::Head;
use crate::model::families::gemma4::layer::Layer;
use crate::model::module_core::{ModuleBackend, ModuleCore, NormWeights, RunningWeights, Slots};
use crate::model::nn::attention::{Scores, attend};
use crate::model::nn::embedding::Embedding;
use crate::model::nn::linear::Linear;
use crate::model::nn::norm::RmsNorm;
use crate::model::shared_kv::Reach;
use crate::model::shared_kv::{SharedKv, SharedLayer};
use crate::model::{Model, ModelError, RowStats};
use crate::protocol::{Feed, MtpSpec, NormForm, SlotZero, TokenId};

pub use crate::model::families::gemma4::assistant::card::AssistantCard;
pub use crate::model::families::gemma4::assistant::config::{AssistantConfig, Clusters};
pub use crate::model::families::gemma4::assistant::kind::AssistantKind;

/// The layers, and the other norm.
struct Norms {
    layers: Vec<Layer>,
    last: RmsNorm,
}

impl NormWeights for Norms {
    fn one_plus(&self) -> Result<Self, ModelError> {
        let layers = self.layers.iter().map(|layer| layer.shifted(1.0)).collect::<Result<_, _>>()?;
        Ok(Self { layers, last: self.last.shifted(1.0)? })
    }
}

/// What copies of an assistant share.
struct Shared {
    target: Arc<Gemma4Weights>,
    backbone: usize,
    window: usize,
    pre: Linear,  // [d, 2 · backbone]
    post: Linear, // [backbone, d]
    head: Head,
}

/// An assistant's weights and what the target lends.
pub struct AssistantOnCandle {
    shared: Arc<Shared>,
    norms: RunningWeights<Norms>,
    lent: Option<SharedKv>,
    /// Slots before the next one: positions of the target's cache but the last, and drafts.
    len: usize,
}

/// An assistant.
pub type Assistant = ModuleCore<AssistantOnCandle>;

impl AssistantOnCandle {
    fn module(shared: Shared, norms: Norms) -> Result<Assistant, ModelError> {
        let (shared, norms) = (Arc::new(shared), RunningWeights::new(norms));
        ModuleCore::new(Self { shared, norms, lent: None, len: 0 }, AssistantConfig::spec())
    }

    /// What a slot at `position` sees of a layer that is lent: all, or what lies within the window as a token of the
    /// target at that position has it, itself and W - 1 before it; of those before the anchor, W - 1 at the anchor's
    /// position. `transformers` shows an assistant the last W + 1: it flips a mask of `|distance| <= W` over the
    /// positions (`create_attention_masks` in `modeling_gemma4_assistant.py`). Which of them training used is not known;
    /// the target's own reading is taken here, and the texts are the same either way.
    fn seen(&self, lent: &SharedLayer, reach: Reach, position: usize) -> Result<(Tensor, Tensor), ModelError> {
        let n = lent.keys.dim(1)?;
        let from = match reach {
            Reach::Full => 0,
            // as a token at this position would, and the last position in any case
            Reach::Sliding => (position + 1).saturating_sub(self.shared.window).min(n - 1),
        };
        Ok((lent.keys.narrow(1, from, n - from)?, lent.values.narrow(1, from, n - from)?))
    }
}

impl ModuleBackend for AssistantOnCandle {
    const NAME: &'static str = "the assistant";
    const MAX_SLOTS: usize = 1;
    type Last = Tensor; // [1, d]

    fn cached(&self) -> usize {
        self.len
    }

    fn ctx_len(&self) -> usize {
        usize::MAX // the target's cache ends before
    }

    fn width(&self) -> usize {
        self.shared.backbone
    }

    fn check_spec(&self, spec: &MtpSpec) -> Result<(), ModelError> {
        if spec.feed == Feed::Layers {
            return Err(ModelError::Unsupported("an assistant fuses no layers; it reads one hidden state".into()));
        }
        if spec.slot0 != SlotZero::Plain {
            let what = "an assistant reads the target's keys and values and has no slot 0 of its own";
            return Err(ModelError::Unsupported(what.into()));
        }
        Ok(())
    }

    fn set_norm_form(&mut self, form: NormForm) -> Result<(), ModelError> {
        self.norms.set_norm_form(form)
    }

    fn shares_target_kv(&self) -> bool {
        true
    }

    fn attach_kv(&mut self, target: &dyn Model) -> Result<(), ModelError> {
        self.lent = None;
        self.len = 0;
        let lent = target.shared_kv()?.ok_or_else(|| {
            ModelError::Unsupported("this target lends no keys and values, and an assistant drafts from those".into())
        })?;
        self.len = lent.len().saturating_sub(1);
        self.lent = Some(lent);
        Ok(())
    }

    fn run(&mut self, slots: Slots<'_>, recycled: &mut [f32]) -> Result<Tensor, ModelError> {
        let shared = self.shared.as_ref();
        let nothing =
            || ModelError::Unsupported("an assistant drafts behind at least one position of the target".into());
        let lent = self.lent.as_ref().filter(|lent| !lent.is_empty()).ok_or_else(nothing)?;
        let (embedded, state) = (slots.embed(shared.target.as_ref())?, slots.states(shared.target.device())?);
        let mut x = shared.pre.forward(&slots.join(embedded, state)?)?; // [1, 2 · backbone] -> [1, d]
        for layer in &self.norms.layers {
            let reach = layer.shape.reach;
            let q = layer.queries(&layer.attn_norm.forward(&x)?, shared.target.rope(reach), slots.at, None)?;
            let kv = self.seen(lent.layer(reach)?, reach, slots.at)?;
            x = layer.rest(&x, &attend(&q, (&kv.0, &kv.1), None, Scores::plain())?, None)?;
        }
        let u = self.norms.last.forward(&x)?;
        copy_to(&shared.post.forward(slots.recycle(&x, &u))?, recycled)?;
        self.len += 1;
        Ok(u)
    }

    fn logits(&mut self, last: Tensor) -> Result<(Vec<f32>, Vec<RowStats>), ModelError> {
        Ok((self.shared.head.logits(&last)?, Vec::new()))
    }

    fn drop_from(&mut self, len: usize) -> Result<(), ModelError> {
        self.len = len;
        Ok(())
    }

    fn draft_vocab(&self) -> &[TokenId] {
        &self.shared.head.vocab
    }

    fn weight_bytes(&self) -> u64 {
        let Shared { pre, post, head, .. } = self.shared.as_ref();
        pre.bytes() + post.bytes() + head.bytes() + self.norms.layers.iter().map(Layer::bytes).sum::<u64>()
    }

    fn kv_bytes_per_slot(&self) -> u64 {
        0 // it reads the target's
    }

    /// The target lends nothing to the copy yet.
    fn fork(&self) -> Result<Self, ModelError> {
        let (shared, norms) = (Arc::clone(&self.shared), self.norms.clone());
        Ok(Self { shared, norms, lent: None, len: self.len })
    }
}
