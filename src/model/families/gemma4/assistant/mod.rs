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

use crate::model::families::gemma4::Gemma4Weights;
use crate::model::families::gemma4::assistant::head::Head;
use crate::model::families::gemma4::layer::Layer;
use crate::model::nn::attention::{Scores, attend};
use crate::model::nn::embedding::Embedding;
use crate::model::nn::embedding::to_tensor;
use crate::model::nn::linear::Linear;
use crate::model::nn::norm::RmsNorm;
use crate::model::shared_kv::Reach;
use crate::model::shared_kv::{SharedKv, SharedLayer};
use crate::model::{DraftModule, Forward, Model, ModelError, Rows};
use crate::protocol::{ConcatOrder, Feed, MtpSpec, NormForm, Recycle, SlotZero, TokenId};

pub use crate::model::families::gemma4::assistant::card::AssistantCard;
pub use crate::model::families::gemma4::assistant::config::{AssistantConfig, Clusters};
pub use crate::model::families::gemma4::assistant::kind::AssistantKind;

/// What the conventions may mean otherwise.
#[derive(Clone)]
struct Norms {
    layers: Vec<Layer>,
    last: RmsNorm,
}

impl Norms {
    fn meant(&self, form: NormForm) -> Result<Self, ModelError> {
        match form {
            NormForm::Weight => Ok(self.clone()),
            NormForm::OnePlus => Ok(Self {
                layers: self.layers.iter().map(|layer| layer.shifted(1.0)).collect::<Result<_, _>>()?,
                last: self.last.shifted(1.0)?,
            }),
        }
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
    stored: Norms,
}

/// An assistant.
pub struct Assistant {
    shared: Arc<Shared>,
    /// Norms as the conventions in force mean them.
    norms: Norms,
    spec: MtpSpec,
    lent: Option<SharedKv>,
    /// Slots before the next one: positions of the target's cache but the last, and drafts.
    len: usize,
    held: Option<usize>,
}

impl Assistant {
    fn new(shared: Shared) -> Self {
        let norms = shared.stored.clone();
        Self { shared: Arc::new(shared), norms, spec: AssistantConfig::spec(), lent: None, len: 0, held: None }
    }

    /// Bytes of its matrices.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let Shared { pre, post, head, stored, .. } = self.shared.as_ref();
        pre.bytes() + post.bytes() + head.bytes() + stored.layers.iter().map(Layer::bytes).sum::<u64>()
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

    /// Runs one slot.
    fn run(&self, token: TokenId, hidden: &Rows) -> Result<(Vec<f32>, Vec<f32>), ModelError> {
        let shared = self.shared.as_ref();
        let nothing =
            || ModelError::Unsupported("an assistant drafts behind at least one position of the target".into());
        let lent = self.lent.as_ref().filter(|lent| !lent.is_empty()).ok_or_else(nothing)?;
        let position = self.held.unwrap_or(self.len) + self.spec.ahead();
        let embedded = shared.target.embed(&[token])?;
        let state = to_tensor(hidden, shared.target.device())?;
        let both = match self.spec.order {
            ConcatOrder::EmbeddingFirst => [embedded, state],
            ConcatOrder::HiddenFirst => [state, embedded],
        };
        let mut x = shared.pre.forward(&Tensor::cat(&both, 1)?)?; // [1, 2 · backbone] -> [1, d]
        for layer in &self.norms.layers {
            let reach = layer.shape.reach;
            let q = layer.queries(&layer.attn_norm.forward(&x)?, shared.target.rope(reach), position, None)?;
            let kv = self.seen(lent.layer(reach)?, reach, position)?;
            x = layer.rest(&x, &attend(&q, (&kv.0, &kv.1), None, Scores::plain())?, None)?;
        }
        let u = self.norms.last.forward(&x)?;
        let recycled = shared.post.forward(if self.spec.recycle == Recycle::PreNorm { &x } else { &u })?;
        Ok((shared.head.logits(&u)?, recycled.flatten_all()?.to_vec1()?))
    }
}

impl DraftModule for Assistant {
    fn len(&self) -> usize {
        self.len
    }

    fn spec(&self) -> MtpSpec {
        self.spec
    }

    fn set_spec(&mut self, spec: &MtpSpec) -> Result<(), ModelError> {
        if spec.feed == Feed::Layers {
            return Err(ModelError::Unsupported("an assistant fuses no layers; it reads one hidden state".into()));
        }
        if spec.slot0 != SlotZero::Plain {
            let what = "an assistant reads the target's keys and values and has no slot 0 of its own";
            return Err(ModelError::Unsupported(what.into()));
        }
        self.norms = self.shared.stored.meant(spec.norm)?;
        self.spec = *spec;
        self.truncate(0)
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

    fn hold_position(&mut self, position: Option<usize>) {
        self.held = position;
    }

    fn forward(&mut self, tokens: &[TokenId], hidden: &Rows) -> Result<Forward, ModelError> {
        if tokens.is_empty() || tokens.len() != hidden.len() || hidden.width() != self.shared.backbone {
            return Err(ModelError::Unsupported(format!(
                "an assistant's pass needs one hidden row of {} values per token, got {} rows of {} for {} tokens",
                self.shared.backbone,
                hidden.len(),
                hidden.width(),
                tokens.len()
            )));
        }
        let before = self.len;
        let (mut logits, mut recycled) = (Vec::new(), Vec::new());
        for (index, token) in tokens.iter().enumerate() {
            let out = self.run(*token, &hidden.slice(index..index + 1)).inspect_err(|_| self.len = before)?;
            logits = out.0;
            recycled.extend(out.1);
            self.len += 1;
        }
        let width = logits.len();
        Ok(Forward {
            logits: Rows::new(logits, width),
            hidden: Rows::new(recycled, self.shared.backbone),
            stats: Vec::new(),
        })
    }

    fn truncate(&mut self, len: usize) -> Result<(), ModelError> {
        if len > self.len {
            return Err(ModelError::Rewind { len, have: self.len, since: 0 });
        }
        self.len = len;
        Ok(())
    }

    fn draft_vocab(&self) -> &[TokenId] {
        &self.shared.head.vocab
    }

    /// Weights are shared; nothing is lent to the copy yet.
    fn fork(&self) -> Result<Box<dyn DraftModule>, ModelError> {
        Ok(Box::new(Self {
            shared: Arc::clone(&self.shared),
            norms: self.norms.clone(),
            spec: self.spec,
            lent: None,
            len: self.len,
            held: self.held,
        }))
    }
}
