//! An EAGLE-3 head on candle: any device, weights in f32.

use crate::model::nn::embedding::SharedTarget;
use std::sync::Arc;

use candle_core::Tensor;

use crate::model::drafters::eagle3::plan::CheckedHead;
use crate::model::native::normer::StatesNorm;
use crate::model::nn::block::{Block, Place, Rope};
use crate::model::nn::config::TransformerConfig;
use crate::model::nn::embedding::{Embedding, OwnEmbedding};
use crate::model::nn::embedding::{to_tensor, without_first};
use crate::model::nn::kv_cache::KvCache;
use crate::model::nn::linear::Linear;
use crate::model::nn::norm::RmsNorm;
use crate::model::nn::rope::PairOrder;
use crate::model::{DraftModule, Forward, ModelError, Rows, Tap};
use crate::protocol::{ConcatOrder, Feed, MtpSpec, NormForm, Recycle, SlotZero, TokenId};

/// The norms, which the conventions may mean otherwise.
#[derive(Clone)]
struct Norms {
    states: Vec<RmsNorm>,
    embedding: RmsNorm,
    hidden: RmsNorm,
    last: RmsNorm,
    block: Block,
}

impl Norms {
    fn meant(&self, form: NormForm) -> Result<Self, ModelError> {
        let by = match form {
            NormForm::Weight => return Ok(self.clone()),
            NormForm::OnePlus => 1.0,
        };
        let mut block = self.block.clone();
        block.ffn_norm = block.ffn_norm.shifted(by)?;
        if let Some([of_q, of_k]) = block.head_norms {
            block.head_norms = Some([of_q.shifted(by)?, of_k.shifted(by)?]);
        }
        Ok(Self {
            states: self.states.iter().map(|norm| norm.shifted(by)).collect::<Result<_, _>>()?,
            embedding: self.embedding.shifted(by)?,
            hidden: self.hidden.shifted(by)?,
            last: self.last.shifted(by)?,
            block,
        })
    }
}

/// What copies of a head share.
struct Shared {
    config: TransformerConfig,
    embedding: Arc<dyn Embedding>,
    fc: Linear, // [d, states · target's d]
    fused: usize,
    states_norm: StatesNorm,
    norm_before_residual: bool,
    head: Linear, // [draft vocabulary, d]
    vocab: Vec<TokenId>,
    stored: Norms,
    rope: Rope, // one position more than slots
    tap: Tap,
    bytes: u64,
}

/// A head with its cache.
pub struct CandleEagle {
    shared: Arc<Shared>,
    /// Norms as the conventions in force mean them.
    norms: Norms,
    spec: MtpSpec,
    cache: KvCache,
    held: Option<usize>,
}

impl CandleEagle {
    /// Reads a head for a target with this embedding.
    pub(in crate::model) fn load(
        plan: &CheckedHead,
        target: Arc<dyn SharedTarget>,
        ctx_len: usize,
    ) -> Result<Self, ModelError> {
        let c = &plan.config.block;
        let (d, device) = (c.d_model, target.device().clone());
        let linear = |part: &str, out: usize, input: usize| -> Result<Linear, ModelError> {
            Ok(Linear::dense(Tensor::from_vec(plan.matrix(part, [out, input])?, (out, input), &device)?))
        };
        let to_norm = |weight: Vec<f32>| -> Result<RmsNorm, ModelError> {
            let width = weight.len();
            RmsNorm::new(&Tensor::from_vec(weight, width, &device)?, c.norm_eps)
        };
        let norm = |part: &str, width: usize| to_norm(plan.norm(part, width)?);
        let head_norms = match c.conventions.qk_norm {
            true => {
                Some([norm("layers.0.self_attn.q_norm", c.head_dim)?, norm("layers.0.self_attn.k_norm", c.head_dim)?])
            }
            false => None,
        };
        let embedding_norm = norm("layers.0.input_layernorm", d)?;
        let block = Block {
            attn_norm: embedding_norm.clone(), // the head norms both halves itself
            q: linear("layers.0.self_attn.q_proj", c.q_width(), 2 * d)?,
            k: linear("layers.0.self_attn.k_proj", c.kv_width(), 2 * d)?,
            v: linear("layers.0.self_attn.v_proj", c.kv_width(), 2 * d)?,
            o: linear("layers.0.self_attn.o_proj", d, c.q_width())?,
            head_norms,
            ffn_norm: norm("layers.0.post_attention_layernorm", d)?,
            gate: linear("layers.0.mlp.gate_proj", c.ffn, d)?,
            up: linear("layers.0.mlp.up_proj", c.ffn, d)?,
            down: linear("layers.0.mlp.down_proj", d, c.ffn)?,
        };
        let stored = Norms {
            states: plan.states_norms()?.into_iter().map(to_norm).collect::<Result<_, _>>()?,
            embedding: embedding_norm,
            hidden: norm("layers.0.hidden_norm", d)?,
            last: norm("norm", d)?,
            block,
        };
        let (fc, head) = (linear("fc", d, plan.fused())?, linear("lm_head", plan.vocab.len(), d)?);
        let mut bytes = fc.bytes() + head.bytes() + stored.block.bytes();
        let embedding: Arc<dyn Embedding> = if plan.file.has("embed_tokens.weight") {
            let table = linear("embed_tokens", c.vocab, d)?;
            bytes += table.bytes();
            Arc::new(OwnEmbedding { table, vocab: c.vocab, device: device.clone() })
        } else {
            target as Arc<dyn Embedding>
        };
        let rope = Rope::new(&c.rope, c.head_dim, ctx_len + 1, (PairOrder::HalfSplit, &device))?;
        let cache = KvCache::new(c.kv_heads, ctx_len, c.head_dim, &device)?;
        let shared = Shared {
            fused: plan.fused(),
            states_norm: plan.config.states_norm,
            norm_before_residual: plan.config.norm_before_residual,
            vocab: plan.vocab.clone(),
            tap: plan.tap.clone(),
            config: c.clone(),
            embedding,
            fc,
            head,
            stored,
            rope,
            bytes,
        };
        let norms = shared.stored.clone();
        Ok(Self { shared: Arc::new(shared), norms, spec: plan.config.spec(), cache, held: None })
    }

    /// Bytes of the head's own matrices.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.shared.bytes
    }

    /// Bytes of KV cache per slot.
    #[must_use]
    pub fn kv_bytes_per_slot(&self) -> u64 {
        KvCache::bytes_per_position(self.shared.config.kv_heads, self.shared.config.head_dim)
    }

    /// The target's states as one: `[m, states · d] -> [m, d]`.
    fn fuse(&self, states: &Tensor) -> Result<Tensor, ModelError> {
        let norms = &self.norms.states;
        let states = match self.shared.states_norm {
            StatesNorm::None => states.clone(),
            StatesNorm::Together => norms[0].forward(states)?,
            StatesNorm::Each => {
                let width = self.shared.fused / norms.len();
                let normed = norms.iter().enumerate();
                let normed = normed.map(|(i, norm)| norm.forward(&states.narrow(1, i * width, width)?));
                Tensor::cat(&normed.collect::<Result<Vec<_>, _>>()?, 1)?
            }
        };
        self.shared.fc.forward(&states)
    }

    /// Embeddings of the tokens, `[m, d]`; with [`SlotZero::Zeroed`] that of slot 0 is zero.
    fn embed(&self, tokens: &[TokenId]) -> Result<Tensor, ModelError> {
        let embedded = self.shared.embedding.embed(tokens)?;
        let zeroes = self.spec.slot0 == SlotZero::Zeroed && self.cache.is_empty();
        if zeroes { without_first(&embedded) } else { Ok(embedded) }
    }

    /// Rotary position of the first slot of a pass.
    fn position(&self) -> usize {
        self.held.unwrap_or(self.cache.len()) + self.spec.ahead()
    }

    fn run(&mut self, tokens: &[TokenId], hidden: &Rows) -> Result<Forward, ModelError> {
        let shared = Arc::clone(&self.shared);
        let states = to_tensor(hidden, shared.embedding.device())?;
        // 1. g: the target's states fused, or what the slot before made
        let g = if hidden.width() == shared.fused { self.fuse(&states)? } else { states };
        let (embedded, normed) = (self.norms.embedding.forward(&self.embed(tokens)?)?, self.norms.hidden.forward(&g)?);
        let residual = if shared.norm_before_residual { normed.clone() } else { g };
        // 2. the block reads both halves: [m, 2d] -> [m, d]
        let both = match self.spec.order {
            ConcatOrder::EmbeddingFirst => [embedded, normed],
            ConcatOrder::HiddenFirst => [normed, embedded],
        };
        let place = Place { rope: &shared.rope, tree: None, at: Some(self.position()) };
        let read = Tensor::cat(&both, 1)?;
        let y = self.norms.block.forward_read((&residual, &read), &shared.config, place, &mut self.cache)?;
        // 3. norm and head: [m, d] -> [1, draft vocabulary]
        let normed = self.norms.last.forward(&y)?;
        let last = normed.narrow(0, tokens.len() - 1, 1)?.contiguous()?;
        let logits = shared.head.forward(&last)?.flatten_all()?.to_vec1::<f32>()?;
        let recycled = if self.spec.recycle == Recycle::PreNorm { &y } else { &normed };
        Ok(Forward {
            logits: Rows::new(logits, shared.vocab.len()),
            hidden: Rows::new(recycled.flatten_all()?.to_vec1::<f32>()?, shared.config.d_model),
            stats: Vec::new(),
        })
    }
}

impl DraftModule for CandleEagle {
    fn len(&self) -> usize {
        self.cache.len()
    }

    fn spec(&self) -> MtpSpec {
        self.spec
    }

    fn set_spec(&mut self, spec: &MtpSpec) -> Result<(), ModelError> {
        if spec.feed != Feed::Layers {
            return Err(ModelError::Unsupported("an EAGLE-3 head reads the layers it was made for".into()));
        }
        self.norms = self.shared.stored.meant(spec.norm)?;
        self.spec = *spec;
        self.truncate(0)
    }

    fn tap(&self) -> Tap {
        self.shared.tap.clone()
    }

    fn hold_position(&mut self, position: Option<usize>) {
        self.held = position;
    }

    fn forward(&mut self, tokens: &[TokenId], hidden: &Rows) -> Result<Forward, ModelError> {
        let (fused, d) = (self.shared.fused, self.shared.config.d_model);
        if tokens.is_empty() || tokens.len() != hidden.len() || ![fused, d].contains(&hidden.width()) {
            return Err(ModelError::Unsupported(format!(
                "an EAGLE-3 pass needs one row of {fused} or {d} values per token, got {} rows of {} for {} tokens",
                hidden.len(),
                hidden.width(),
                tokens.len()
            )));
        }
        let before = self.cache.len();
        let result = self.run(tokens, hidden);
        if result.is_err() {
            self.cache.truncate(before);
        }
        result
    }

    fn truncate(&mut self, len: usize) -> Result<(), ModelError> {
        let have = self.cache.len();
        if len > have {
            return Err(ModelError::Rewind { len, have, since: 0 });
        }
        self.cache.truncate(len);
        Ok(())
    }

    fn draft_vocab(&self) -> &[TokenId] {
        &self.shared.vocab
    }

    fn fork(&self) -> Result<Box<dyn DraftModule>, ModelError> {
        Ok(Box::new(Self {
            shared: Arc::clone(&self.shared),
            norms: self.norms.clone(),
            spec: self.spec,
            cache: self.cache.copy()?,
            held: self.held,
        }))
    }
}
