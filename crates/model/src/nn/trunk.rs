//! What targets on candle have around their layers: embedding, last norm and output head.

use candle_core::{Device, Tensor};

use crate::files::ModelFiles;
use crate::nn::config::TransformerConfig;
use crate::nn::embedding::{Embedding, SharedTarget, ids};
use crate::nn::feed_forward::capped;
use crate::nn::host::{best_rows, numbers_of};
use crate::nn::linear::Linear;
use crate::nn::matmul_backend::{MatmulBackend, Tensors};
use crate::nn::norm::RmsNorm;
use crate::options::PassForm;
use crate::{ExpertsMet, LogitRows, ModelError, RowStats, Rows};
use draftscope_protocol::TokenId;

/// A layer's weights.
pub trait LayerWeights: Send + Sync {
    /// Bytes they take in memory.
    fn bytes(&self) -> u64;

    /// Experts that the last pass ran; `None` in layers without experts.
    fn experts_met(&self) -> Option<ExpertsMet> {
        None
    }
}

/// What comes out of the layers for some rows.
pub struct States {
    /// `[m, d]`, after the final norm.
    pub normed: Tensor,
    /// `[m, states · d]`, those of the tap.
    pub tapped: Tensor,
}

/// What a pass returns of its last rows.
pub struct Output {
    /// States of the tap, row after row.
    pub hidden: Vec<f32>,
    /// Logits; none if the statistics list the best.
    pub logits: Rows,
    /// One for each row whose best logits are listed.
    pub stats: Vec<RowStats>,
}

/// Weights of a target on candle but for what is its family's own; shared with draft modules.
pub struct Trunk<L> {
    /// Sizes.
    pub config: TransformerConfig,
    /// Where the weights lie.
    pub device: Device,
    /// The output head `[v, d]`: the embedding again when tied.
    pub head: Linear,
    pub(crate) layers: Vec<L>,
    /// How its passes run, and those of its modules.
    pub(crate) form: PassForm,
    backend: MatmulBackend,
    embedding: Linear, // [v, d]
    norm: RmsNorm,
    embedding_scale: f64,
    logit_scale: f64,
    softcap: Option<f64>,
}

impl<L: LayerWeights> Trunk<L> {
    /// Reads all tensors, layers with `layer`. `progress` is called with ("target", layers read, layers in all).
    ///
    /// # Errors
    /// When a tensor is missing, misshapen or damaged.
    pub(crate) fn read(
        tensors: &Tensors<'_>,
        layer: impl Fn(usize) -> Result<L, ModelError>,
        progress: &mut dyn FnMut(&str, u64, u64),
    ) -> Result<Self, ModelError> {
        let config = tensors.config.clone();
        let [embedding, head] = tensors.embedding_and_head()?;
        let total = config.layers as u64;
        let mut layers = Vec::with_capacity(config.layers);
        for index in 0..config.layers {
            progress("target", index as u64, total);
            layers.push(layer(index)?);
        }
        progress("target", total, total);
        let norm = tensors.norm("output_norm.weight", config.d_model)?;
        let (device, backend, form) = (tensors.device.clone(), tensors.backend, tensors.form);
        let (embedding_scale, logit_scale, softcap) = (1.0, 1.0, None);
        Ok(Self { config, device, head, layers, form, backend, embedding, norm, embedding_scale, logit_scale, softcap })
    }

    /// The same with factors of embeddings and of logits, and a cap of logits; few rows meet the head one by one.
    #[must_use]
    pub(crate) fn with_ends(self, embedding_scale: f64, logit_scale: f64, softcap: Option<f64>) -> Self {
        let head = self.head.clone().one_by_one();
        Self { head, embedding_scale, logit_scale, softcap, ..self }
    }

    /// Reads more of the target's files for the same backend.
    pub(crate) fn tensors<'a>(&'a self, source: &'a ModelFiles) -> Tensors<'a> {
        Tensors::new(source, (self.backend, &self.device), &self.config).run_as(self.form)
    }

    /// Where and how caches are kept.
    pub(crate) fn caching(&self) -> (&Device, PassForm) {
        (&self.device, self.form)
    }

    /// Bytes the weights take in memory; a matrix that is embedding and head counts once.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.pass_bytes() + if self.config.tied { 0 } else { self.embedding.bytes() }
    }

    /// Those of them that a pass reads: all but an embedding that is no head.
    #[must_use]
    pub fn pass_bytes(&self) -> u64 {
        self.head.bytes() + self.norm.bytes() + self.layers.iter().map(L::bytes).sum::<u64>()
    }

    /// Experts of all layers; `None` if no layer has any.
    #[must_use]
    pub fn experts_met(&self) -> Option<ExpertsMet> {
        self.layers.iter().filter_map(L::experts_met).reduce(ExpertsMet::and)
    }

    /// What the head reads: `[m, d] -> [m, d]`.
    ///
    /// # Errors
    /// When a tensor operation fails.
    pub fn normed(&self, x: &Tensor) -> Result<Tensor, ModelError> {
        self.norm.forward(x)
    }

    /// What a pass returns of its last rows. `drafted`: tokens whose logits are read, and the rows that predict them.
    ///
    /// # Errors
    /// When a tensor operation fails.
    pub(crate) fn output(
        &self,
        States { normed, tapped }: &States,
        rows: LogitRows,
        drafted: &[(usize, u32)],
    ) -> Result<Output, ModelError> {
        let last = if rows == LogitRows::Last { normed.dim(0)? - 1 } else { 0 };
        let read = if last > 0 { &normed.narrow(0, last, 1)?.contiguous()? } else { normed };
        let (logits, vocab) = (self.logits(read)?, self.config.vocab);
        if rows == LogitRows::Best && self.form.best_only {
            let (stats, hidden) = best_rows(&logits, drafted, tapped)?;
            return Ok(Output { hidden, logits: Rows::empty(vocab), stats });
        }
        let [hidden, logits] = numbers_of([tapped, &logits])?;
        Ok(Output { hidden, logits: Rows::new(logits, vocab), stats: Vec::new() })
    }

    /// `[m, d] -> [m, v]`
    ///
    /// # Errors
    /// When a tensor operation fails.
    pub fn logits(&self, normed: &Tensor) -> Result<Tensor, ModelError> {
        let logits = self.head.forward(normed)?;
        let logits = if self.logit_scale == 1.0 { logits } else { (logits * self.logit_scale)? };
        self.softcap.map_or(Ok(logits.clone()), |cap| capped(&logits, cap))
    }
}

impl<L: LayerWeights> Embedding for Trunk<L> {
    fn device(&self) -> &Device {
        &self.device
    }

    fn embed(&self, tokens: &[TokenId]) -> Result<Tensor, ModelError> {
        let rows = self.embedding.rows(&ids(tokens, self.config.vocab, &self.device)?)?;
        if self.embedding_scale == 1.0 { Ok(rows) } else { Ok((rows * self.embedding_scale)?) }
    }
}

impl<L: LayerWeights> SharedTarget for Trunk<L> {
    fn config(&self) -> &TransformerConfig {
        &self.config
    }

    fn head(&self) -> Linear {
        self.head.clone()
    }

    fn form(&self) -> PassForm {
        self.form
    }
}
