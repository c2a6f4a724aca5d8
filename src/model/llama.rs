//! A target of the Llama kind (Llama, Qwen3) on candle: `m` rows in, logits for all of them and the hidden
//! states out, over a cache that can be cut back.
//!
//! Invariant: between calls every block's cache holds exactly `len` positions, also after an error; behind an early pass
//! those of blocks that did not run hold fewer, until it is cut back. Which tokens are worth running is the caller's business.

use std::sync::Arc;

use candle_core::{DType, Device, Tensor};

use super::block::{Block, Linear, Place, RmsNorm, Rope, TreeRows, WeightType};
use super::cache::KvCache;
use super::config::LlamaConfig;
use super::mtp::Embedding;
use super::source::Source;
use super::tap::Streams;
use super::{Checkpoint, Forward, LogitRows, Model, ModelError, ModelSpec, Rows, Tap, check_path};
use crate::protocol::TokenId;

/// Rows of a prefill that run at once: bounds the memory of attention scores.
const PREFILL_ROWS: usize = 256;

/// Weights of a target; shared by its forks and by an MTP module.
pub struct LlamaWeights {
    /// Sizes.
    pub config: LlamaConfig,
    device: Device,
    embedding: Linear, // [v, d]
    head: Linear,      // [v, d]; the embedding again when tied
    tied: bool,
    blocks: Vec<Block>,
    norm: RmsNorm,
    rope: Rope,
}

impl LlamaWeights {
    /// Reads all tensors. `progress` hears (blocks read, blocks in all).
    ///
    /// # Errors
    /// When a tensor is missing, misshapen or damaged.
    pub fn load(
        source: &Source,
        ctx_len: usize,
        held: WeightType,
        device: &Device,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Self, ModelError> {
        let config = source.config()?;
        let (v, d, tied) = (config.vocab, config.d_model, config.tied);
        let reader = Reader { source, held, device, config: &config };
        // the largest first: while a matrix is widened it takes room twice
        let embedding = reader.linear("token_embd.weight", v, d)?;
        let head = if tied { embedding.clone() } else { reader.linear("output.weight", v, d)? };
        let mut blocks = Vec::with_capacity(config.layers);
        for layer in 0..config.layers {
            progress(layer, config.layers);
            blocks.push(reader.block(layer)?);
        }
        progress(config.layers, config.layers);
        let norm = reader.norm("output_norm.weight", d)?;
        let rope = Rope::new(&config.rope, config.head_dim, ctx_len, (source.pair_order(&config), device))?;
        Ok(Self { device: device.clone(), embedding, head, tied, blocks, norm, rope, config })
    }

    /// Where the weights lie.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The output head `[v, d]`, shared.
    #[must_use]
    pub fn head(&self) -> Linear {
        self.head.clone()
    }

    /// Bytes the matrices take in memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let head = if self.tied { 0 } else { self.head.bytes() };
        self.embedding.bytes() + head + self.blocks.iter().map(Block::bytes).sum::<u64>()
    }

    fn embeddings(&self, tokens: &[TokenId]) -> Result<Tensor, ModelError> {
        let vocab = self.config.vocab;
        if let Some(token) = tokens.iter().find(|token| token.index() >= vocab) {
            return Err(ModelError::Vocabulary { token: token.0, vocab });
        }
        let ids: Vec<u32> = tokens.iter().map(|token| token.0).collect();
        self.embedding.rows(&Tensor::from_vec(ids, tokens.len(), &self.device)?)
    }

    /// The output head's rows for these tokens, `[tokens, d]`, f32: a trimmed head.
    ///
    /// # Errors
    /// [`ModelError::Vocabulary`] for a token that is none.
    pub fn head_rows(&self, tokens: &[TokenId]) -> Result<Tensor, ModelError> {
        let vocab = self.config.vocab;
        if let Some(token) = tokens.iter().find(|token| token.index() >= vocab) {
            return Err(ModelError::Vocabulary { token: token.0, vocab });
        }
        let ids: Vec<u32> = tokens.iter().map(|token| token.0).collect();
        self.head.rows(&Tensor::from_vec(ids, tokens.len(), &self.device)?)
    }
}

impl Embedding for LlamaWeights {
    fn device(&self) -> &Device {
        &self.device
    }

    fn embed(&self, tokens: &[TokenId]) -> Result<Tensor, ModelError> {
        self.embeddings(tokens)
    }
}

/// Reads tensors by name.
pub(super) struct Reader<'a> {
    pub(super) source: &'a Source,
    pub(super) held: WeightType,
    pub(super) device: &'a Device,
    pub(super) config: &'a LlamaConfig,
}

impl Reader<'_> {
    pub(super) fn linear(&self, name: &str, out: usize, input: usize) -> Result<Linear, ModelError> {
        let weight = self.source.stored(name, &[out, input])?;
        let linear = Linear::new(weight, [out, input], self.held, self.device)?;
        self.source.release(name);
        Ok(linear)
    }

    pub(super) fn norm(&self, name: &str, width: usize) -> Result<RmsNorm, ModelError> {
        let weight = self.source.vector(name, width)?;
        RmsNorm::new(&Tensor::from_vec(weight, width, self.device)?, self.config.norm_eps)
    }

    pub(super) fn block(&self, layer: usize) -> Result<Block, ModelError> {
        let c = self.config;
        let biased = |name: &str, out: usize| -> Result<Linear, ModelError> {
            let linear = self.linear(&format!("blk.{layer}.{name}.weight"), out, c.d_model)?;
            if !c.architecture.biases_qkv() {
                return Ok(linear);
            }
            let bias = self.source.vector(&format!("blk.{layer}.{name}.bias"), out)?;
            Ok(linear.with_bias(Tensor::from_vec(bias, out, self.device)?))
        };
        let linear = |name: &str, out, input| self.linear(&format!("blk.{layer}.{name}.weight"), out, input);
        let norm = |name: &str, width| self.norm(&format!("blk.{layer}.{name}.weight"), width);
        Ok(Block {
            attn_norm: norm("attn_norm", c.d_model)?,
            q: biased("attn_q", c.q_width())?,
            k: biased("attn_k", c.kv_width())?,
            v: biased("attn_v", c.kv_width())?,
            o: linear("attn_output", c.d_model, c.q_width())?,
            head_norms: match c.qk_norm {
                true => Some([norm("attn_q_norm", c.head_dim)?, norm("attn_k_norm", c.head_dim)?]),
                false => None,
            },
            ffn_norm: norm("ffn_norm", c.d_model)?,
            gate: linear("ffn_gate", c.ffn, c.d_model)?,
            up: linear("ffn_up", c.ffn, c.d_model)?,
            down: linear("ffn_down", c.d_model, c.ffn)?,
        })
    }
}

/// How far a pass goes, and in what shape.
#[derive(Clone, Copy)]
struct Course<'a> {
    /// Blocks that run, from the first on.
    layers: usize,
    tree: Option<&'a TreeRows>,
}

/// A target: shared weights and its own cache.
pub struct Llama {
    weights: Arc<LlamaWeights>,
    spec: ModelSpec,
    caches: Vec<KvCache>, // one per block
    len: usize,
    tap: Tap,
}

/// What comes out of one block of rows.
struct States {
    /// `[m, d]`, behind the final norm.
    normed: Tensor,
    /// `[m, states · d]`, those of the tap.
    tapped: Tensor,
}

impl Llama {
    /// An empty cache over these weights.
    ///
    /// # Errors
    /// When memory is short.
    pub fn new(weights: Arc<LlamaWeights>, mut spec: ModelSpec) -> Result<Self, ModelError> {
        let c = &weights.config;
        let caches = (0..c.layers).map(|_| KvCache::new(c.kv_heads, spec.ctx_len, c.head_dim, &weights.device));
        let caches = caches.collect::<Result<_, _>>()?;
        spec.info.weight_bytes = weights.bytes();
        spec.info.kv_bytes_per_token = c.layers as u64 * KvCache::bytes_per_position(c.kv_heads, c.head_dim);
        Ok(Self { weights, spec, caches, len: 0, tap: Tap::default() })
    }

    /// Runs one block of rows through all layers.
    fn hidden(&mut self, tokens: &[TokenId], course: Course<'_>) -> Result<States, ModelError> {
        let weights = Arc::clone(&self.weights);
        let all = course.layers == weights.blocks.len();
        let places = if all { self.tap.places(course.layers)? } else { vec![None] };
        let place = Place { rope: &weights.rope, tree: course.tree, at: None };
        let mut x = weights.embeddings(tokens)?;
        let mut streams = Streams::new(&places);
        streams.keep(0, &x);
        for (index, (block, cache)) in weights.blocks.iter().zip(&mut self.caches).take(course.layers).enumerate() {
            x = block.forward(&x, &weights.config, place, cache)?;
            streams.keep(index + 1, &x);
        }
        self.len += tokens.len();
        let normed = weights.norm.forward(&x)?;
        let tapped = streams.tapped(&normed)?;
        Ok(States { normed, tapped })
    }

    fn run(&mut self, tokens: &[TokenId], rows: LogitRows, course: Course<'_>) -> Result<Forward, ModelError> {
        let mut hidden = Vec::with_capacity(tokens.len() * self.weights.config.d_model);
        let (mut last, mut width) = (None, self.weights.config.d_model);
        let widest = if rows == LogitRows::All { tokens.len() } else { PREFILL_ROWS };
        for block in tokens.chunks(widest) {
            let states = self.hidden(block, course)?;
            width = states.tapped.dim(1)?;
            hidden.extend(states.tapped.flatten_all()?.to_vec1::<f32>()?);
            last = Some(states.normed);
        }
        let states = last.ok_or_else(|| ModelError::Unsupported("a pass needs at least one token".into()))?;
        let m = states.dim(0)?;
        let states = if rows == LogitRows::All { states } else { states.narrow(0, m - 1, 1)?.contiguous()? };
        let logits = self.weights.head.forward(&states)?.flatten_all()?.to_vec1::<f32>()?;
        Ok(Forward {
            logits: Rows::new(logits, self.weights.config.vocab),
            hidden: Rows::new(hidden, width),
            stats: Vec::new(),
        })
    }

    /// Runs at the end of the cache, which after an error is as before.
    fn start(&mut self, tokens: &[TokenId], rows: LogitRows, course: Course<'_>) -> Result<Forward, ModelError> {
        let (before, ctx_len) = (self.len, self.spec.ctx_len);
        if before + tokens.len() > ctx_len {
            return Err(ModelError::ContextFull { needed: before + tokens.len(), ctx_len });
        }
        let result = self.run(tokens, rows, course);
        if result.is_err() {
            self.cut(before);
        }
        result
    }

    fn cut(&mut self, len: usize) {
        self.caches.iter_mut().for_each(|cache| cache.truncate(len));
        self.len = len;
    }
}

impl Model for Llama {
    fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    fn len(&self) -> usize {
        self.len
    }

    fn forward(&mut self, tokens: &[TokenId], rows: LogitRows) -> Result<Forward, ModelError> {
        self.start(tokens, rows, Course { layers: self.caches.len(), tree: None })
    }

    fn forward_early(&mut self, tokens: &[TokenId], layers: usize) -> Result<Forward, ModelError> {
        self.start(tokens, LogitRows::Last, Course { layers, tree: None })
    }

    fn refuses_trees(&self) -> Option<&'static str> {
        None
    }

    fn forward_tree(&mut self, tokens: &[TokenId], parents: &[usize]) -> Result<Forward, ModelError> {
        if parents.len() != tokens.len() {
            return Err(ModelError::Unsupported("a tree with more rows than tokens, or fewer".into()));
        }
        let tree = TreeRows::new(parents)?;
        self.start(tokens, LogitRows::All, Course { layers: self.caches.len(), tree: Some(&tree) })
    }

    fn retain(&mut self, base: usize, path: &[usize]) -> Result<(), ModelError> {
        check_path(self.len, base, path)?;
        let kept = self.caches.iter_mut().try_for_each(|cache| cache.retain(base, path));
        kept.inspect_err(|_| self.cut(base))?;
        self.len = base + path.len();
        Ok(())
    }

    fn set_tap(&mut self, tap: &Tap) -> Result<(), ModelError> {
        tap.places(self.caches.len())?;
        self.tap = tap.clone();
        Ok(())
    }

    fn checkpoint(&self) -> Result<Checkpoint, ModelError> {
        Ok(Checkpoint { len: self.len })
    }

    fn truncate(&mut self, len: usize, since: &Checkpoint) -> Result<(), ModelError> {
        if len > self.len || len < since.len {
            return Err(ModelError::Rewind { len, have: self.len, since: since.len });
        }
        self.cut(len);
        Ok(())
    }

    fn fork(&self) -> Result<Box<dyn Model>, ModelError> {
        let caches = self.caches.iter().map(KvCache::copy).collect::<Result<_, _>>()?;
        let (weights, spec, tap) = (Arc::clone(&self.weights), self.spec.clone(), self.tap.clone());
        Ok(Box::new(Self { weights, spec, caches, len: self.len, tap }))
    }
}

/// Name of a device as the header shows it.
#[must_use]
pub fn device_name(device: &Device) -> &'static str {
    match device {
        Device::Cpu => "cpu",
        Device::Cuda(_) => "cuda",
        Device::Metal(_) => "metal",
    }
}

/// Rows `[m, width]` with the first one zero.
pub(super) fn without_first(rows: &Tensor) -> Result<Tensor, ModelError> {
    let zero = rows.narrow(0, 0, 1)?.zeros_like()?;
    Ok(Tensor::cat(&[zero, rows.narrow(0, 1, rows.dim(0)? - 1)?], 0)?)
}

/// f32 rows as a tensor `[m, width]`.
pub(super) fn to_tensor(rows: &Rows, device: &Device) -> Result<Tensor, ModelError> {
    Ok(Tensor::from_slice(rows.as_slice(), (rows.len(), rows.width()), device)?.to_dtype(DType::F32)?)
}
