//! A block drafter at work: a cache of the target's fused states, and one pass for all positions.

use std::sync::Arc;

use candle_core::Tensor;

use crate::block_module::BlockModule;
use crate::drafters::core::{OnTarget, numbers};
use crate::drafters::dflash::{
    config::BlockConfig,
    layer::Layer,
    plan::{CONFIDENCE, CheckedBlock},
};
use crate::nn::{Embedding, KvCache, Linear, PREFILL_ROWS, PairOrder, RmsNorm, Rope, capped};
use crate::{ModelError, Rows, Tap};
use draftscope_protocol::TokenId;

/// What copies of a drafter share.
struct Shared {
    config: BlockConfig,
    tap: Tap,
    vocab: Vec<TokenId>, // of each row of the head

    embedding: Arc<dyn Embedding>,
    head: Linear, // [draft vocabulary, d]
    fc: Linear,   // [d, states · d]
    hidden_norm: RmsNorm,
    layers: Vec<Layer>,
    norm: RmsNorm,
    /// Of the Markov head: `[vocabulary, rank]` and `[draft vocabulary, rank]`.
    markov: Option<[Linear; 2]>,
    confidence: Option<ConfidenceHead>,
    rope: Rope, // a block more than positions
    ctx_len: usize,
}

/// DSpark's head that predicts acceptance: `sigmoid(w · [state ; w1 of the token before] + b)`; the second part may be
/// absent (`AcceptRatePredictor` of DeepSpec, `conf_proj` of llama.cpp).
struct ConfidenceHead {
    weights: Vec<f32>, // d, or d + rank
    bias: f32,
}

impl ConfidenceHead {
    fn read(plan: &CheckedBlock, width: usize) -> Result<Self, ModelError> {
        let [weights, bias] = CONFIDENCE;
        let bias = if plan.file.has(bias) { plan.file.numbers(bias, &[1])?[0] } else { 0.0 };
        // GGUF files leave out a last size of one
        let weights = plan.file.numbers(weights, &[1, width]).or_else(|error| {
            let flat = plan.file.numbers(weights, &[width]);
            flat.map_err(|_| error)
        })?;
        Ok(Self { weights, bias })
    }

    /// Of a state `[d]` and w1 of the token before it, `[rank]`.
    fn predict(&self, state: &[f32], before: &[f32]) -> f32 {
        let numbers = state.iter().chain(before);
        let sum: f32 = self.weights.iter().zip(numbers).map(|(weight, number)| weight * number).sum();
        1.0 / (1.0 + (-sum - self.bias).exp())
    }

    fn bytes(&self) -> u64 {
        size_of_val(self.weights.as_slice()) as u64
    }
}

/// A block drafter.
pub(super) struct Drafter {
    shared: Arc<Shared>,
    caches: Vec<KvCache>, // of each layer
    /// Of the last pass, `[count, d]`, for the head that predicts acceptance.
    states: Rows,
}

impl Drafter {
    /// Reads a drafter for a target, and counts the bytes of its own weights.
    pub(super) fn load(plan: &CheckedBlock, target: OnTarget) -> Result<(Self, u64), ModelError> {
        let OnTarget { embedding, head, ctx_len, linear, form, .. } = target;
        let (c, device) = (plan.config.layers.clone(), embedding.device().clone());
        let (d, vocab) = (c.d_model, plan.vocab.len());
        let matrix = |part: &str, out: usize, input: usize| {
            let name = format!("{part}.weight");
            linear(&name, plan.file.numbers(&name, &[out, input])?, [out, input])
        };
        let norm = |part: &str, width: usize| {
            RmsNorm::of_numbers(plan.file.numbers(&format!("{part}.weight"), &[width])?, c.norm_eps, &device)
        };
        let layer = |(index, sight)| {
            let of = |part: &str| format!("layers.{index}.{part}");
            Layer::read(&c, sight, &|part, out, input| matrix(&of(part), out, input), &|part, width| {
                norm(&of(part), width)
            })
        };
        let layers: Vec<Layer> =
            plan.config.sight.iter().copied().enumerate().map(layer).collect::<Result<_, ModelError>>()?;
        let fc = matrix("fc", d, plan.fused())?;
        let markov = match plan.config.markov_rank {
            Some(rank) => {
                Some([matrix("markov_head.markov_w1", c.vocab, rank)?, matrix("markov_head.markov_w2", vocab, rank)?])
            }
            None => None,
        };
        let confidence = plan.config.confidence.map(|width| ConfidenceHead::read(plan, width)).transpose()?;
        let own_head = plan.config.has_own_head();
        let head = if own_head { matrix("lm_head", vocab, d)? } else { head };
        let (hidden_norm, last) = (norm("hidden_norm", d)?, norm("norm", d)?);
        let bytes = fc.bytes()
            + layers.iter().map(Layer::bytes).sum::<u64>()
            + markov.iter().flatten().map(Linear::bytes).sum::<u64>()
            + confidence.as_ref().map_or(0, ConfidenceHead::bytes)
            + if own_head { head.bytes() } else { 0 }
            + hidden_norm.bytes()
            + last.bytes();
        let positions = ctx_len + plan.config.block_size;
        let rope = Rope::new(&c.rope, c.head_dim, positions, (PairOrder::HalfSplit, &device))?;
        let caches = (0..c.layers).map(|_| KvCache::new(c.kv_heads, ctx_len, c.head_dim, (&device, form)));
        let caches = caches.collect::<Result<_, _>>()?;
        let (config, tap, vocab) = (plan.config.clone(), plan.tap.clone(), plan.vocab.clone());
        let norm = last;
        let shared = Shared {
            config,
            tap,
            vocab,
            embedding,
            head,
            fc,
            hidden_norm,
            layers,
            norm,
            markov,
            confidence,
            rope,
            ctx_len,
        };
        Ok((Self { shared: Arc::new(shared), caches, states: Rows::default() }, bytes))
    }

    /// Appends up to [`PREFILL_ROWS`] positions.
    fn append(&mut self, hidden: &[f32], width: usize) -> Result<(), ModelError> {
        let shared = self.shared.as_ref();
        let states = Tensor::from_slice(hidden, (hidden.len() / width, width), shared.embedding.device())?;
        let fused = shared.hidden_norm.forward(&shared.fc.forward(&states)?)?;
        shared
            .layers
            .iter()
            .zip(&mut self.caches)
            .try_for_each(|(layer, cache)| layer.inject(&fused, &shared.rope, cache))
    }

    /// The Markov head's row of a token, `[1, rank]`.
    fn markov_row(&self, embedding: &Linear, before: TokenId) -> Result<Tensor, ModelError> {
        let vocab = self.shared.config.layers.vocab;
        if before.index() >= vocab {
            return Err(ModelError::Vocabulary { token: before.0, vocab });
        }
        embedding.rows(&Tensor::new(&[before.0], self.shared.embedding.device())?)
    }

    /// Normed states of the last `count` rows of the block, `[count, d]`.
    fn block(&self, anchor: TokenId, count: usize) -> Result<Tensor, ModelError> {
        let (shared, config) = (self.shared.as_ref(), &self.shared.config);
        let masks = if config.from_anchor { count - 1 } else { count };
        let mask = std::iter::repeat_n(TokenId(config.mask_token), masks);
        let tokens: Vec<TokenId> = std::iter::once(anchor).chain(mask).collect();
        let mut x = shared.embedding.embed(&tokens)?;
        if config.embedding_scale != 1.0 {
            x = (x * config.embedding_scale)?;
        }
        for (layer, cache) in shared.layers.iter().zip(&self.caches) {
            x = layer.forward(&x, &shared.rope, cache)?;
        }
        shared.norm.forward(&x.narrow(0, tokens.len() - count, count)?)
    }
}

impl BlockModule for Drafter {
    fn len(&self) -> usize {
        self.caches.first().map_or(0, KvCache::len)
    }

    fn tap(&self) -> Tap {
        self.shared.tap.clone()
    }

    fn most_drafts(&self) -> usize {
        self.shared.config.most_drafts()
    }

    fn draft_vocab(&self) -> &[TokenId] {
        &self.shared.vocab
    }

    fn inject(&mut self, hidden: &Rows) -> Result<(), ModelError> {
        let (before, ctx_len, width) =
            (self.len(), self.shared.ctx_len, self.shared.tap.states().len() * self.shared.config.layers.d_model);
        if before + hidden.len() > ctx_len {
            return Err(ModelError::ContextFull { needed: before + hidden.len(), ctx_len });
        }
        if !hidden.is_empty() && hidden.width() != width {
            return Err(ModelError::Shape {
                name: "hidden states for the block drafter".into(),
                got: vec![hidden.len(), hidden.width()],
                expected: vec![hidden.len(), width],
            });
        }
        let mut blocks = hidden.as_slice().chunks(PREFILL_ROWS * width);
        let done = blocks.try_for_each(|block| self.append(block, width));
        done.inspect_err(|_| self.caches.iter_mut().for_each(|cache| cache.truncate(before)))
    }

    fn draft(&mut self, anchor: TokenId, count: usize) -> Result<Rows, ModelError> {
        let (most, config) = (self.most_drafts(), &self.shared.config);
        if !(1..=most).contains(&count) {
            let what = format!("a block of {count} drafts; this drafter has 1 to {most}");
            return Err(ModelError::Unsupported(what));
        }
        let states = self.block(anchor, count)?;
        if self.shared.confidence.is_some() {
            self.states = Rows::new(numbers(&states)?, config.layers.d_model);
        }
        let config = &self.shared.config;
        let mut logits = self.shared.head.forward(&states)?;
        if config.logit_scale != 1.0 {
            logits = (logits * config.logit_scale)?;
        }
        if let Some(cap) = config.softcap {
            logits = capped(&logits, cap)?;
        }
        Ok(Rows::new(numbers(&logits)?, self.shared.vocab.len()))
    }

    fn corrects(&self) -> bool {
        self.shared.markov.is_some()
    }

    fn correct(&self, logits: &mut [f32], before: TokenId) -> Result<(), ModelError> {
        let Some([embedding, project]) = &self.shared.markov else { return Ok(()) };
        let bias = numbers(&project.forward(&self.markov_row(embedding, before)?)?)?;
        logits.iter_mut().zip(bias).for_each(|(logit, bias)| *logit += bias);
        Ok(())
    }

    fn confidence(&self, index: usize, before: TokenId) -> Result<Option<f32>, ModelError> {
        let (Some(head), true) = (&self.shared.confidence, index < self.states.len()) else { return Ok(None) };
        let before = match &self.shared.markov {
            Some([embedding, _]) => numbers(&self.markov_row(embedding, before)?)?,
            None => Vec::new(),
        };
        Ok(Some(head.predict(self.states.row(index), &before)))
    }

    fn truncate(&mut self, len: usize) -> Result<(), ModelError> {
        let have = self.len();
        if len > have {
            return Err(ModelError::Rewind { len, have, since: 0 });
        }
        self.caches.iter_mut().for_each(|cache| cache.truncate(len));
        Ok(())
    }

    fn fork(&self) -> Result<Box<dyn BlockModule>, ModelError> {
        let caches = self.caches.iter().map(KvCache::copy).collect::<Result<_, _>>()?;
        Ok(Box::new(Self { shared: Arc::clone(&self.shared), caches, states: self.states.clone() }))
    }
}
