//! Assistants of Gemma 4: a few layers of queries that attend to the target's keys and values; their input is the
//! target's embedding of a token and a hidden state.
//!
//! `x = pre [E(token) ; h]`, the layers, `u = norm(x)`, logits by its own table; `post u` takes the target's place from
//! depth 2 on (`transformers`, `modeling_gemma4_assistant.py`; llama.cpp, `gemma4-assistant.cpp`). Invariant: it writes
//! nothing. A draft depends on the shared KV cache, the token, the state and a position, so there is no cache of its
//! own, no prompt to read and nothing to roll back; all drafts of a round have the same position and see the committed
//! text.

mod card;
mod config;
mod file;
mod head;
mod kind;
mod load;

use std::sync::Arc;

use candle_core::Tensor;

use crate::draft_tokens::DraftTokens;
use crate::drafters::core::copy_to;
use crate::families::gemma4::{Gemma4Weights, assistant::head::Head, layer::Layer};
use crate::module_core::{ModuleBackend, ModuleCore, ModuleFacts, NormWeights, Reads, Slots};
use crate::nn::{LayerWeights, Linear, RmsNorm, Scores, attend};
use crate::shared_kv::{Reach, SharedKv, SharedLayer};
use crate::{Model, ModelError, RowStats};

pub use crate::families::gemma4::assistant::card::AssistantCard;
pub use crate::families::gemma4::assistant::config::{AssistantConfig, Clusters};
pub use crate::families::gemma4::assistant::kind::AssistantKind;

/// The layers, and the other norm.
pub(crate) struct Norms {
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

/// What an assistant shares with its copies, and the target's KV cache.
pub(crate) struct AssistantOnCandle {
    shared: Arc<Shared>,
    lent: Option<SharedKv>,
}

/// An assistant.
pub(crate) type Assistant = ModuleCore<AssistantOnCandle>;

impl AssistantOnCandle {
    fn module(shared: Shared, norms: Norms) -> Result<Assistant, ModelError> {
        let Shared { pre, post, head, backbone, .. } = &shared;
        let layers = norms.layers.iter().map(Layer::bytes).sum::<u64>();
        let facts = ModuleFacts {
            spec: AssistantConfig::spec(),
            reads: Reads::StateAndKv,
            widths: [*backbone; 2],
            ctx_len: usize::MAX, // the target's cache ends before
            tokens: DraftTokens::new(head.vocab.clone(), 0),
            weight_bytes: pre.bytes() + post.bytes() + head.bytes() + layers + norms.last.bytes(),
            kv_bytes_per_slot: 0, // it reads the target's
        };
        ModuleCore::new(Self { shared: Arc::new(shared), lent: None }, norms, facts)
    }

    /// What a slot at `position` sees of a shared layer: everything, or the window of a target token at that position,
    /// itself and W - 1 before it; for slots at the anchor's position, W - 1 before the anchor. `transformers` shows an
    /// assistant the last W + 1: it flips a mask of `|distance| <= W` over the positions (`create_attention_masks` in
    /// `modeling_gemma4_assistant.py`). Which of them training used is not known; the target's own window is used here,
    /// and the texts are the same either way.
    fn seen(&self, lent: &SharedLayer, reach: Reach, position: usize) -> Result<(Tensor, Tensor), ModelError> {
        let n = lent.keys.dim(1)?;
        let from = match reach {
            Reach::Full => 0,
            // as a token at this position would, and in any case the last position
            Reach::Sliding => (position + 1).saturating_sub(self.shared.window).min(n - 1),
        };
        Ok((lent.keys.narrow(1, from, n - from)?, lent.values.narrow(1, from, n - from)?))
    }
}

impl ModuleBackend for AssistantOnCandle {
    const NAME: &'static str = "the assistant";
    const MAX_SLOTS: usize = 1;
    type Weights = Norms;
    type Last = Tensor; // [1, d]

    /// Slots count from the target's last position but one: the anchor's slot comes next.
    fn attach_kv(&mut self, target: &dyn Model) -> Result<usize, ModelError> {
        self.lent = None;
        let lent = target.shared_kv()?.ok_or_else(|| {
            ModelError::Unsupported("this target lends no keys and values, and an assistant drafts from those".into())
        })?;
        Ok(self.lent.insert(lent).len().saturating_sub(1))
    }

    fn run(&mut self, norms: &Norms, slots: Slots<'_>, recycled: &mut [f32]) -> Result<Tensor, ModelError> {
        let shared = self.shared.as_ref();
        let nothing = || {
            ModelError::Unsupported("an assistant needs at least one position of the target before its drafts".into())
        };
        let lent = self.lent.as_ref().filter(|lent| !lent.is_empty()).ok_or_else(nothing)?;
        let (embedded, state) = (slots.embed(&shared.target.trunk)?, slots.states(&shared.target.trunk.device)?);
        let mut x = shared.pre.forward(&slots.join(embedded, state)?)?; // [1, 2 · backbone] -> [1, d]
        for layer in &norms.layers {
            let reach = layer.shape.reach;
            let q = layer.queries(&layer.attn_norm.forward(&x)?)?;
            let q = shared.target.rope(reach).rotate(&q, slots.at, None)?;
            let kv = self.seen(lent.layer(reach)?, reach, slots.at)?;
            x = layer.rest(&x, attend(&q, (&kv.0, &kv.1), None, Scores::plain())?, None)?;
        }
        let u = norms.last.forward(&x)?;
        copy_to(&shared.post.forward(slots.recycle(&x, &u))?, recycled)?;
        Ok(u)
    }

    fn logits(&mut self, last: Tensor) -> Result<(Vec<f32>, Vec<RowStats>), ModelError> {
        Ok((self.shared.head.logits(&last)?, Vec::new()))
    }

    fn truncate(&mut self, _len: usize) {} // nothing is left of a slot

    /// The target has not shared its cache with the copy yet.
    fn fork(&self) -> Result<Self, ModelError> {
        Ok(Self { shared: Arc::clone(&self.shared), lent: None })
    }
}
