//! DeepSeek-V3's layout, which GLM-4.7-Flash shares: latent attention, dense layers and then layers of experts, and a
//! stack of draft modules of its own. Matrices run on candle or on the native kernels.
//!
//! Invariant: between calls every cache holds exactly `len` positions, also after an error; behind an early pass those of
//! layers that did not run hold fewer, until it is cut back. What is kept of a position is its latent row, which is cut
//! back like any other key.

mod attention;
mod block;
mod config;
mod experts;
mod module;
mod names;
mod reader;

use std::sync::Arc;

use candle_core::{Device, Tensor};

use self::block::Layer;
use self::reader::Reader;
use super::block::{Linear, PairOrder, Place, RmsNorm, Rope, TreeRows};
use super::cache::KvCache;
use super::config::LlamaConfig;
use super::mtp::Embedding;
use super::qwen35::Held;
use super::source::Source;
use super::tap::Streams;
use super::{Checkpoint, Forward, LogitRows, Model, ModelError, ModelSpec, Rows, Tap, check_path};
use crate::protocol::TokenId;

pub(super) use self::config::LatentKeys;
pub use self::config::{ExpertShape, Latent, LatentShape};
pub(super) use self::module::{check_modules, load_modules, own_tables};
pub(super) use self::names::part;

/// Rows of a prefill that run at once: bounds the memory of attention scores.
const PREFILL_ROWS: usize = 256;

/// Weights of a target; shared by its forks and by its draft modules.
pub struct DeepSeekWeights {
    /// Sizes.
    pub config: LlamaConfig,
    latent: Latent,
    device: Device,
    embedding: Linear, // [v, d]
    head: Linear,      // [v, d]; the embedding again when tied
    layers: Vec<Layer>,
    norm: RmsNorm,
    rope: Rope, // one position more than the context, for modules that stand one further
}

impl DeepSeekWeights {
    /// Reads all tensors but those of draft modules. `progress` hears (layers read, layers in all).
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
        let other = || ModelError::Unsupported("this model has no latent attention".into());
        let latent = config.latent.clone().ok_or_else(other)?;
        let reader = Reader { source, held, device, config: &config, latent: &latent };
        let (v, d) = (config.vocab, config.d_model);
        // the largest first: while a matrix is widened it takes room twice
        let embedding = reader.linear("token_embd.weight", v, d)?;
        let head = if config.tied { embedding.clone() } else { reader.linear("output.weight", v, d)? };
        let mut layers = Vec::with_capacity(config.layers);
        for layer in 0..config.layers {
            progress(layer, config.layers);
            layers.push(reader.layer(layer)?);
        }
        progress(config.layers, config.layers);
        let norm = reader.norm("output_norm.weight", d)?;
        let order = if latent.attention.interleaved { PairOrder::Interleaved } else { PairOrder::HalfSplit };
        let rope = Rope::new(&config.rope, latent.attention.rotary, ctx_len + 1, (order, device))?;
        Ok(Self { device: device.clone(), embedding, head, layers, norm, rope, latent, config })
    }

    /// Bytes the matrices take in memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let head = if self.config.tied { 0 } else { self.head.bytes() };
        self.embedding.bytes() + head + self.layers.iter().map(Layer::bytes).sum::<u64>()
    }

    fn caches(&self, ctx: usize) -> Result<Vec<KvCache>, ModelError> {
        self.layers.iter().map(|layer| layer.cache(ctx, &self.device)).collect()
    }
}

/// Rows of an embedding of so many tokens.
fn look_up(embedding: &Linear, (tokens, vocab): (&[TokenId], usize), device: &Device) -> Result<Tensor, ModelError> {
    if let Some(token) = tokens.iter().find(|token| token.index() >= vocab) {
        return Err(ModelError::Vocabulary { token: token.0, vocab });
    }
    let ids: Vec<u32> = tokens.iter().map(|token| token.0).collect();
    embedding.rows(&Tensor::from_vec(ids, tokens.len(), device)?)
}

impl Embedding for DeepSeekWeights {
    fn device(&self) -> &Device {
        &self.device
    }

    fn embed(&self, tokens: &[TokenId]) -> Result<Tensor, ModelError> {
        look_up(&self.embedding, (tokens, self.config.vocab), &self.device)
    }
}

/// How far a pass goes, and in what shape.
#[derive(Clone, Copy)]
struct Course<'a> {
    /// Layers that run, from the first on.
    layers: usize,
    tree: Option<&'a TreeRows>,
}

/// A target: shared weights and its own caches.
pub struct DeepSeek {
    weights: Arc<DeepSeekWeights>,
    spec: ModelSpec,
    caches: Vec<KvCache>, // one per layer
    len: usize,
    tap: Tap,
}

impl DeepSeek {
    /// Empty caches over these weights.
    ///
    /// # Errors
    /// When memory is short.
    pub fn new(weights: Arc<DeepSeekWeights>, mut spec: ModelSpec) -> Result<Self, ModelError> {
        let caches = weights.caches(spec.ctx_len)?;
        spec.info.weight_bytes = weights.bytes();
        spec.info.kv_bytes_per_token = caches.iter().map(KvCache::position_bytes).sum();
        spec.info.unfolded_kv_bytes_per_token = 4 * (weights.layers.len() * weights.latent.unfolded()) as u64;
        Ok(Self { weights, spec, caches, len: 0, tap: Tap::default() })
    }

    /// Runs some rows: states behind the final norm, and those of the tap.
    fn hidden(&mut self, tokens: &[TokenId], course: Course<'_>) -> Result<[Tensor; 2], ModelError> {
        let weights = Arc::clone(&self.weights);
        let all = course.layers == weights.layers.len();
        let places = if all { self.tap.places(course.layers)? } else { vec![None] };
        let place = Place { rope: &weights.rope, tree: course.tree, at: None };
        let mut x = weights.embed(tokens)?;
        let mut streams = Streams::new(&places);
        streams.keep(0, &x);
        for (index, (layer, cache)) in weights.layers.iter().zip(&mut self.caches).take(course.layers).enumerate() {
            x = layer.forward(&x, place, cache)?;
            streams.keep(index + 1, &x);
        }
        self.len += tokens.len();
        let normed = weights.norm.forward(&x)?;
        let tapped = streams.tapped(&normed)?;
        Ok([normed, tapped])
    }

    fn run(&mut self, tokens: &[TokenId], rows: LogitRows, course: Course<'_>) -> Result<Forward, ModelError> {
        let (mut hidden, mut last, mut width) = (Vec::new(), None, self.weights.config.d_model);
        let widest = if rows == LogitRows::All { tokens.len().max(1) } else { PREFILL_ROWS };
        for block in tokens.chunks(widest) {
            let [normed, tapped] = self.hidden(block, course)?;
            width = tapped.dim(1)?;
            hidden.extend(tapped.flatten_all()?.to_vec1::<f32>()?);
            last = Some(normed);
        }
        let normed = last.ok_or_else(|| ModelError::Unsupported("a pass needs at least one token".into()))?;
        let m = normed.dim(0)?;
        let normed = if rows == LogitRows::All { normed } else { normed.narrow(0, m - 1, 1)?.contiguous()? };
        let logits = self.weights.head.forward(&normed)?.flatten_all()?.to_vec1::<f32>()?;
        let logits = Rows::new(logits, self.weights.config.vocab);
        Ok(Forward { logits, hidden: Rows::new(hidden, width), stats: Vec::new() })
    }

    /// Runs at the end of the caches, which after an error are as before.
    fn start(&mut self, tokens: &[TokenId], rows: LogitRows, course: Course<'_>) -> Result<Forward, ModelError> {
        let (before, ctx_len) = (self.len, self.spec.ctx_len);
        if before + tokens.len() > ctx_len {
            return Err(ModelError::ContextFull { needed: before + tokens.len(), ctx_len });
        }
        self.run(tokens, rows, course).inspect_err(|_| self.cut(before))
    }

    fn cut(&mut self, len: usize) {
        self.caches.iter_mut().for_each(|cache| cache.truncate(len));
        self.len = len;
    }
}

impl Model for DeepSeek {
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::model::block::WeightType;

    fn opened() -> DeepSeek {
        let source =
            Source::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/checkpoints/deepseek")).unwrap();
        let held = (Held::Candle(WeightType::F32), &Device::Cpu);
        let weights = DeepSeekWeights::load(&source, 16, held, &mut |_, _| {}).unwrap();
        let info = source.describe(&weights.config);
        let spec =
            ModelSpec { info, ctx_len: 16, backend: "candle", device: "cpu".into(), dtype: "f32".into(), threads: 1 };
        DeepSeek::new(Arc::new(weights), spec).unwrap()
    }

    #[test]
    fn a_path_that_is_none_changes_nothing_and_one_that_fails_leaves_what_stood_before_it() {
        let mut model = opened();
        model.forward(&[TokenId(5); 3], LogitRows::All).unwrap();
        model.forward_tree(&[TokenId(7); 3], &[0, 0, 0]).unwrap();
        for (base, path) in [(7, &[][..]), (3, &[0, 3]), (3, &[2, 1]), (9, &[0])] {
            assert!(matches!(model.retain(base, path), Err(ModelError::Rewind { .. })), "{base} {path:?}");
            assert!(model.len == 6 && model.caches.iter().all(|cache| cache.len() == 6), "{base} {path:?}");
        }
        // the second layer's cache has no such rows
        model.caches[1] = model.weights.layers[1].cache(4, &Device::Cpu).unwrap();
        let row = Tensor::zeros((1, 4, model.weights.latent.cached()), candle_core::DType::F32, &Device::Cpu).unwrap();
        model.caches[1].append(&row, &row).unwrap();
        model.retain(3, &[0, 2]).unwrap_err();
        assert!(model.len == 3 && model.caches.iter().all(|cache| cache.len() == 3));
    }
}
