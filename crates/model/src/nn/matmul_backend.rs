//! Reading a model's tensors for candle, or only checking them.
//!
//! Invariant: a tensor has the requested shape, and its file pages are released at once.

use candle_core::{Device, Tensor};

use crate::ModelError;
use crate::files::{ModelFiles, Stored};
use crate::nn::config::TransformerConfig;
use crate::nn::experts::{ExpertNames, ExpertSizes, Experts, StoredExperts};
use crate::nn::feed_forward::Activation;
use crate::nn::linear::Linear;
use crate::nn::norm::RmsNorm;
use crate::nn::unread;
use crate::options::{PassForm, WeightType};

/// What is done with a model's matrices.
#[derive(Clone, Copy, Debug)]
pub enum MatmulBackend {
    /// candle multiplies with them, in this form.
    Candle(WeightType),
    /// Nothing multiplies: names, shapes and types of tensors are checked, and matrices are not read.
    Unread,
}

/// Tensors by name.
pub(crate) struct Tensors<'a> {
    pub(crate) source: &'a ModelFiles,
    pub(crate) backend: MatmulBackend,
    pub(crate) device: &'a Device,
    /// Sizes.
    pub(crate) config: &'a TransformerConfig,
    /// How passes run.
    pub(crate) form: PassForm,
    /// Whether norms are stored as the difference to 1.
    centred: bool,
}

impl<'a> Tensors<'a> {
    pub(crate) fn new(
        source: &'a ModelFiles,
        (backend, device): (MatmulBackend, &'a Device),
        config: &'a TransformerConfig,
    ) -> Self {
        Self { source, backend, device, config, form: PassForm::CPU, centred: false }
    }

    /// For passes that run so.
    pub(crate) fn run_as(self, form: PassForm) -> Self {
        Self { form, ..self }
    }

    /// For a family whose checkpoints store w for norms that multiply by 1 + w; GGUF files store the sum.
    pub(crate) fn centred(self) -> Self {
        Self { centred: self.source.is_checkpoint(), ..self }
    }

    /// `[out, input]`
    pub(crate) fn linear(&self, name: &str, out: usize, input: usize) -> Result<Linear, ModelError> {
        match self.backend {
            MatmulBackend::Candle(weight_type) => self.linear_as(name, [out, input], weight_type),
            MatmulBackend::Unread => unread::linear(self.source, name, &[out, input]),
        }
    }

    /// On candle, whatever multiplies the others.
    pub(crate) fn linear_as(
        &self,
        name: &str,
        shape: [usize; 2],
        weight_type: WeightType,
    ) -> Result<Linear, ModelError> {
        if weight_type == WeightType::Stored {
            Stored::new(self.source.check(name, &shape)?, &[]).check_candle(name)?;
        }
        if self.is_unread() {
            return unread::linear(self.source, name, &shape);
        }
        let stored = self.source.stored(name, &shape)?;
        let linear = Linear::new(stored, shape, weight_type, self.device)?;
        self.source.release(name);
        Ok(linear)
    }

    /// Some rows of a matrix `[all, input]`, in this order.
    pub(crate) fn linear_rows(
        &self,
        name: &str,
        (all, input): (usize, usize),
        rows: &[usize],
    ) -> Result<Linear, ModelError> {
        if self.is_unread() {
            return unread::linear(self.source, name, &[all, input]);
        }
        let stored = self.source.stored(name, &[all, input])?.rows([all, input], rows)?;
        self.linear_of(stored, name, [rows.len(), input])
    }

    /// A matrix `[out, input]` that a file may store as a vector, if it has one row.
    pub(crate) fn linear_row(&self, name: &str, input: usize) -> Result<Linear, ModelError> {
        if self.is_unread() {
            return unread::linear(self.source, name, &[1, input])
                .or_else(|_| unread::linear(self.source, name, &[input]));
        }
        let stored = self.source.stored(name, &[1, input]).or_else(|_| self.source.stored(name, &[input]))?;
        self.linear_of(stored, name, [1, input])
    }

    fn linear_of(&self, stored: Stored<'_>, name: &str, shape: [usize; 2]) -> Result<Linear, ModelError> {
        match self.backend {
            MatmulBackend::Candle(weight_type) => {
                if weight_type == WeightType::Stored {
                    stored.check_candle(name)?;
                }
                Linear::new(stored, shape, weight_type, self.device)
            }
            MatmulBackend::Unread => unread::linear(self.source, name, &shape),
        }
    }

    /// Whether matrices are not read.
    pub(crate) fn is_unread(&self) -> bool {
        matches!(self.backend, MatmulBackend::Unread)
    }

    /// The experts of a layer.
    pub(crate) fn experts(
        &self,
        names: &ExpertNames,
        sizes: ExpertSizes,
        activation: Activation,
    ) -> Result<Experts, ModelError> {
        let MatmulBackend::Candle(weight_type) = self.backend else {
            return unread::experts(self.source, names, sizes);
        };
        let stored = StoredExperts::find(self.source, names, sizes)?;
        let experts = Experts::read(&stored, activation, (weight_type, self.device))?;
        names.all().for_each(|name| self.source.release(name));
        Ok(experts)
    }

    /// Embedding and head, `[v, d]` each: one matrix if they are tied. Read them before smaller ones: a matrix takes
    /// memory twice while it is widened.
    pub(crate) fn embedding_and_head(&self) -> Result<[Linear; 2], ModelError> {
        let (v, d) = (self.config.vocab, self.config.d_model);
        let embedding = self.linear("token_embd.weight", v, d)?;
        let head = if self.config.tied { embedding.clone() } else { self.linear("output.weight", v, d)? };
        Ok([embedding, head])
    }

    /// A norm with the model's epsilon, as it runs.
    pub(crate) fn norm(&self, name: &str, width: usize) -> Result<RmsNorm, ModelError> {
        let norm = self.norm_of(name, width, self.config.norm_eps)?;
        if self.centred { norm.shifted(1.0) } else { Ok(norm) }
    }

    /// A norm with an epsilon of its own.
    pub(crate) fn norm_of(&self, name: &str, width: usize, eps: f32) -> Result<RmsNorm, ModelError> {
        if !self.centred {
            self.check_norm(name, width)?;
        }
        RmsNorm::new(&self.vector(name, width)?, eps)
    }

    /// In a dry run, checks the weights of a norm that multiply as they are stored.
    pub(crate) fn check_norm(&self, name: &str, width: usize) -> Result<(), ModelError> {
        if self.is_unread() { unread::norm(self.source, name, width) } else { Ok(()) }
    }

    /// `[width]`, f32.
    pub(crate) fn vector(&self, name: &str, width: usize) -> Result<Tensor, ModelError> {
        Ok(Tensor::from_vec(self.source.vector(name, width)?, width, self.device)?)
    }
}
