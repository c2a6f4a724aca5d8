//! Gemma 4 without experts (E2B, E4B, 12B, 31B), matrices on candle or on the native kernels: sliding layers between full
//! ones, each kind with heads and rotary positions of its own; the last layers of the small ones read the keys and
//! values of others, and every layer has an embedding of its own for each token. Its assistants are in `assistant`.
//!
//! Invariant: between calls every cache holds exactly `len` positions, also after an error (but for the rows of an early
//! pass, which later layers lack until they are truncated); layers without a cache read that of the last layer of their
//! kind before the shared ones. Sliding layers keep all positions, so that any length can
//! be cut back to, and see the last ones.

pub mod assistant;
mod card;
mod config;
mod keys;
mod layer;
mod lend;
mod names;
mod reader;

use std::sync::Arc;

use candle_core::{Device, Tensor};

use self::layer::{Layer, RowsAt};
use self::reader::Reader;
use super::block::{Linear, PairOrder, RmsNorm, Rope, TreeRows};
use super::cache::KvCache;
use super::config::LlamaConfig;
use super::mtp::Embedding;
use super::qwen35::Held;
use super::source::Source;
use super::{Checkpoint, Forward, LogitRows, Model, ModelError, ModelSpec, Rows, Tap, check_path};
use crate::protocol::TokenId;

pub use self::card::GemmaCard;
pub use self::config::{Gemma, LayerShape, PerLayer, Reach};
pub(super) use self::keys::{GemmaKeys, Sizes};
pub use self::lend::Lent;
pub(super) use self::names::{TABLE, part, whole};

/// Rows of a prefill that run at once: bounds the memory of attention scores.
const PREFILL_ROWS: usize = 256;

/// The embeddings of a token for each layer.
struct PerLayerTable {
    width: usize,
    /// `[v, layers · width]`
    table: Linear,
    /// `[layers · width, d]`
    project: Linear,
    norm: RmsNorm,
}

/// Weights of a target; shared by its forks and read by its assistant.
pub struct Gemma4Weights {
    /// Sizes.
    pub config: LlamaConfig,
    gemma: Gemma,
    device: Device,
    embedding: Linear, // [v, d]
    head: Linear,      // [v, d]; the embedding again when tied
    per_layer: Option<PerLayerTable>,
    layers: Vec<Layer>,
    norm: RmsNorm,
    ropes: [Rope; 2], // of sliding layers and of full ones
}

impl Gemma4Weights {
    /// Reads all tensors of the text model. `progress` hears (layers read, layers in all).
    ///
    /// # Errors
    /// When a tensor is missing, misshapen or damaged.
    pub fn load(
        source: &Source,
        ctx_len: usize,
        (held, device): (Held, &Device),
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Self, ModelError> {
        let config = source.config()?;
        let other = || ModelError::Unsupported("this model is no Gemma 4".into());
        let gemma = config.gemma.clone().ok_or_else(other)?;
        let reader = Reader { source, held, device, config: &config, gemma: &gemma };
        let (v, d) = (config.vocab, config.d_model);
        // the largest first: while a matrix is widened it takes room twice
        let per_layer = match gemma.per_layer {
            None => None,
            Some(of) => {
                let width = config.layers * of.width;
                Some(PerLayerTable {
                    width: of.width,
                    table: reader.table(TABLE, of.vocab, width)?,
                    project: reader.linear("per_layer_model_proj.weight", width, d)?,
                    norm: reader.norm("per_layer_proj_norm.weight", of.width)?,
                })
            }
        };
        let embedding = reader.linear("token_embd.weight", v, d)?;
        let head = if config.tied { embedding.clone() } else { reader.linear("output.weight", v, d)? };
        let mut layers = Vec::with_capacity(config.layers);
        for layer in 0..config.layers {
            progress(layer, config.layers);
            layers.push(reader.layer(layer)?);
        }
        progress(config.layers, config.layers);
        let norm = reader.norm("output_norm.weight", d)?;
        let ropes = ropes(&gemma, ctx_len, device)?;
        Ok(Self { device: device.clone(), embedding, head, per_layer, layers, norm, ropes, gemma, config })
    }

    /// Bytes the matrices take in memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let embedding = if self.config.tied { 0 } else { self.embedding.bytes() };
        embedding + self.per_layer.as_ref().map_or(0, |of| of.table.bytes()) + self.pass_bytes()
    }

    /// Those of them that a pass reads: all but the tables of which rows are looked up.
    fn pass_bytes(&self) -> u64 {
        let per_layer = self.per_layer.as_ref().map_or(0, |of| of.project.bytes());
        self.head.bytes() + per_layer + self.layers.iter().map(Layer::bytes).sum::<u64>()
    }

    fn ids(&self, tokens: &[TokenId]) -> Result<Tensor, ModelError> {
        let vocab = self.config.vocab;
        if let Some(token) = tokens.iter().find(|token| token.index() >= vocab) {
            return Err(ModelError::Vocabulary { token: token.0, vocab });
        }
        let ids: Vec<u32> = tokens.iter().map(|token| token.0).collect();
        Ok(Tensor::from_vec(ids, tokens.len(), &self.device)?)
    }

    /// What each layer adds of these tokens, `[m, layers · width]`: half from a table, half worked out of the embedding.
    fn per_layer(&self, tokens: &[TokenId], embedded: &Tensor) -> Result<Option<Tensor>, ModelError> {
        let Some(of) = &self.per_layer else {
            return Ok(None);
        };
        let (m, layers, d) = (tokens.len(), self.layers.len(), self.config.d_model);
        let looked_up = (of.table.rows(&self.ids(tokens)?)? * (of.width as f64).sqrt())?;
        let projected = (of.project.forward(embedded)? * (1.0 / (d as f64).sqrt()))?;
        let normed = of.norm.forward(&projected.reshape((m * layers, of.width))?)?;
        let both = (normed.reshape((m, layers * of.width))? + looked_up)?;
        Ok(Some((both * std::f64::consts::FRAC_1_SQRT_2)?))
    }

    fn rope(&self, reach: Reach) -> &Rope {
        &self.ropes[usize::from(reach == Reach::Full)]
    }

    /// `[m, d] -> [m, v]`
    fn logits(&self, normed: &Tensor) -> Result<Tensor, ModelError> {
        let logits = self.head.forward(normed)?;
        Ok(match self.gemma.softcap {
            Some(cap) => ((logits / f64::from(cap))?.tanh()? * f64::from(cap))?,
            None => logits,
        })
    }
}

/// Angles of both kinds of layers; one position more than the context, for assistants that stand one further, and as
/// many as drafts may go on.
fn ropes(gemma: &Gemma, ctx_len: usize, device: &Device) -> Result<[Rope; 2], ModelError> {
    let positions = ctx_len + 1 + usize::from(crate::protocol::MAX_DRAFT_LEN);
    let rope = |reach, spec| {
        let width = gemma.layers.iter().find(|layer| layer.reach == reach).map_or(2, |layer| layer.head_dim);
        Rope::new(spec, width, positions, (PairOrder::HalfSplit, device))
    };
    Ok([rope(Reach::Sliding, &gemma.sliding_rope)?, rope(Reach::Full, &gemma.full_rope)?])
}

impl Embedding for Gemma4Weights {
    fn device(&self) -> &Device {
        &self.device
    }

    /// Scaled, as the layers read it.
    fn embed(&self, tokens: &[TokenId]) -> Result<Tensor, ModelError> {
        Ok((self.embedding.rows(&self.ids(tokens)?)? * (self.config.d_model as f64).sqrt())?)
    }
}

/// How far a pass goes, and in what shape.
#[derive(Clone, Copy)]
struct Course<'a> {
    /// Layers that run, from the first on.
    layers: usize,
    tree: Option<&'a TreeRows>,
}

/// What comes out of one block of rows.
struct States {
    /// `[m, d]`, behind the final norm.
    normed: Tensor,
    /// `[m, states · d]`, those of the tap.
    tapped: Tensor,
}

/// A target: shared weights and its own caches.
pub struct Gemma4 {
    weights: Arc<Gemma4Weights>,
    spec: ModelSpec,
    /// Those of layers that keep keys and values; an empty place for each of the others.
    caches: Vec<Option<KvCache>>,
    len: usize,
    tap: Tap,
}

impl Gemma4 {
    /// Empty caches over these weights.
    ///
    /// # Errors
    /// When memory is short.
    pub fn new(weights: Arc<Gemma4Weights>, mut spec: ModelSpec) -> Result<Self, ModelError> {
        let cache = |layer: &Layer| {
            let LayerShape { kv_heads, head_dim, .. } = layer.shape;
            let cache = || KvCache::new(kv_heads, spec.ctx_len, head_dim, &weights.device);
            layer.kv.as_ref().map(|_| cache()).transpose()
        };
        let caches = weights.layers.iter().map(cache).collect::<Result<_, _>>()?;
        spec.info.weight_bytes = weights.bytes();
        spec.info.kv_bytes_per_token = 4 * weights.gemma.cached_values();
        Ok(Self { weights, spec, caches, len: 0, tap: Tap::default() })
    }

    /// Runs one block of rows through the layers.
    fn hidden(&mut self, tokens: &[TokenId], course: Course<'_>) -> Result<States, ModelError> {
        let weights = Arc::clone(&self.weights);
        let all = course.layers == weights.layers.len();
        let places = if all { self.tap.places(course.layers)? } else { vec![None] };
        let mut x = weights.embed(tokens)?;
        let per_layer = weights.per_layer(tokens, &x)?;
        let mut streams = vec![x.clone()]; // behind 0, 1, 2 … layers
        for (index, layer) in weights.layers.iter().enumerate().take(course.layers) {
            let source = layer.shape.source.unwrap_or(index);
            let lacking = || ModelError::Unsupported("a layer without keys and values".into());
            let cache = self.caches.get_mut(source).and_then(Option::as_mut).ok_or_else(lacking)?;
            let rope = weights.rope(layer.shape.reach);
            let place = RowsAt { rope, tree: course.tree, start: self.len, window: weights.gemma.window };
            let own = match (&per_layer, weights.gemma.per_layer) {
                (Some(all), Some(of)) => Some(all.narrow(1, index * of.width, of.width)?),
                _ => None,
            };
            x = layer.forward(&x, place, own.as_ref(), cache)?;
            streams.push(x.clone());
        }
        self.len += tokens.len();
        let normed = weights.norm.forward(&x)?;
        let tapped: Vec<&Tensor> = places.iter().map(|place| place.map_or(&normed, |at| &streams[at])).collect();
        let tapped = if tapped.len() == 1 { tapped[0].clone() } else { Tensor::cat(&tapped, 1)? };
        Ok(States { normed, tapped })
    }

    fn run(&mut self, tokens: &[TokenId], rows: LogitRows, course: Course<'_>) -> Result<Forward, ModelError> {
        let mut hidden = Vec::with_capacity(tokens.len() * self.weights.config.d_model);
        let (mut last, mut width) = (None, self.weights.config.d_model);
        let widest = if rows == LogitRows::All { tokens.len().max(1) } else { PREFILL_ROWS };
        for block in tokens.chunks(widest) {
            let states = self.hidden(block, course)?;
            width = states.tapped.dim(1)?;
            hidden.extend(states.tapped.flatten_all()?.to_vec1::<f32>()?);
            last = Some(states.normed);
        }
        let states = last.ok_or_else(|| ModelError::Unsupported("a pass needs at least one token".into()))?;
        let m = states.dim(0)?;
        let states = if rows == LogitRows::All { states } else { states.narrow(0, m - 1, 1)?.contiguous()? };
        let logits = self.weights.logits(&states)?.flatten_all()?.to_vec1::<f32>()?;
        Ok(Forward {
            logits: Rows::new(logits, self.weights.config.vocab),
            hidden: Rows::new(hidden, width),
            stats: Vec::new(),
        })
    }

    /// Runs at the end of the caches, which after an error are as before.
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
        self.caches.iter_mut().flatten().for_each(|cache| cache.truncate(len));
        self.len = len;
    }
}

impl Model for Gemma4 {
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
        let kept = self.caches.iter_mut().flatten().try_for_each(|cache| cache.retain(base, path));
        // where some caches keep the path and others could not, none does
        self.cut(if kept.is_ok() { base + path.len() } else { base });
        kept
    }

    fn set_tap(&mut self, tap: &Tap) -> Result<(), ModelError> {
        tap.places(self.caches.len())?;
        self.tap = tap.clone();
        Ok(())
    }

    fn pass_bytes(&self) -> u64 {
        self.weights.pass_bytes()
    }

    fn lend(&self) -> Result<Option<Lent>, ModelError> {
        let cache = |reach| self.caches.get(self.weights.gemma.lender(reach)?)?.as_ref();
        Lent::of(cache(Reach::Sliding), cache(Reach::Full), self.len).map(Some)
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
        let copy = |cache: &Option<KvCache>| cache.as_ref().map(KvCache::copy).transpose();
        let caches = self.caches.iter().map(copy).collect::<Result<_, _>>()?;
        let (weights, spec, tap) = (Arc::clone(&self.weights), self.spec.clone(), self.tap.clone());
        Ok(Box::new(Self { weights, spec, caches, len: self.len, tap }))
    }
}
