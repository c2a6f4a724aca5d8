//! Which backend multiplies a model's matrices, and reading a model's tensors for it.
//!
//! Invariant: a tensor has the requested shape, and its file pages are released at once.

use std::fmt::Debug;
use std::sync::Arc;

use candle_core::{Device, Tensor};
use draftscope_kernels::HeadAttention;

use crate::ModelError;
use crate::files::{ModelFiles, Stored};
use crate::nn::{
    Activation, ExpertKernel, ExpertNames, ExpertSizes, Experts, Gated, Linear, MatMul, RmsNorm, StoredExperts,
    TransformerConfig, unread,
};
use crate::options::{PassForm, WeightType};

/// Matrix kernels other than candle's.
pub trait Kernels: Debug + Send + Sync {
    /// Packs a tensor of this shape, `[out, in]`.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] for encodings and widths that the kernels do not support.
    fn load(&self, source: &ModelFiles, name: &str, shape: [usize; 2]) -> Result<Arc<dyn MatMul>, ModelError>;

    /// Packs a matrix of this shape, `[out, in]`; the tensor's name is for messages.
    ///
    /// # Errors
    /// As [`Kernels::load`].
    fn pack(&self, stored: Stored<'_>, name: &str, shape: [usize; 2]) -> Result<Arc<dyn MatMul>, ModelError>;

    /// Packs the experts of a layer.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] for widths that the kernels do not support.
    fn experts(&self, stored: &StoredExperts<'_>, activation: Activation) -> Result<Arc<dyn ExpertKernel>, ModelError>;

    /// Runs jobs of attention.
    fn attend(&self, jobs: &mut [HeadAttention<'_>]);

    /// Its name in the header, e.g. `native`.
    fn backend(&self) -> &'static str;

    /// Its device in the header, e.g. `cpu (avx512)`.
    fn device(&self) -> String;

    /// Threads that compute.
    fn threads(&self) -> usize;
}

/// The backend that multiplies, and the weight dtype.
#[derive(Clone, Debug)]
pub enum MatmulBackend {
    /// candle.
    Candle(WeightType),
    /// Other kernels, weights as stored.
    Kernels(Arc<dyn Kernels>),
    /// Nothing multiplies: names, shapes and types of tensors are checked, and matrices are not read.
    Unread,
}

impl MatmulBackend {
    /// The kernels, unless candle multiplies.
    #[must_use]
    pub fn kernels(&self) -> Option<&dyn Kernels> {
        match self {
            Self::Kernels(kernels) => Some(kernels.as_ref()),
            Self::Candle(_) | Self::Unread => None,
        }
    }
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

    /// Those of one block.
    pub(crate) fn block(&self, block: usize) -> BlockTensors<'_> {
        BlockTensors { tensors: self, block }
    }

    /// `[out, input]`
    pub(crate) fn linear(&self, name: &str, out: usize, input: usize) -> Result<Linear, ModelError> {
        match &self.backend {
            MatmulBackend::Candle(weight_type) => self.linear_as(name, [out, input], *weight_type),
            MatmulBackend::Kernels(kernels) => kernels.load(self.source, name, [out, input]).map(Linear::of),
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
        match &self.backend {
            MatmulBackend::Candle(weight_type) => {
                if *weight_type == WeightType::Stored {
                    stored.check_candle(name)?;
                }
                Linear::new(stored, shape, *weight_type, self.device)
            }
            MatmulBackend::Kernels(kernels) => kernels.pack(stored, name, shape).map(Linear::of),
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
        if self.is_unread() {
            return unread::experts(self.source, names, sizes);
        }
        let stored = StoredExperts::find(self.source, names, sizes)?;
        let experts = match &self.backend {
            MatmulBackend::Kernels(kernels) => Experts::of(kernels.experts(&stored.compact(), activation)?, sizes),
            MatmulBackend::Candle(weight_type) => Experts::on_candle(&stored, activation, (*weight_type, self.device))?,
            MatmulBackend::Unread => unread::experts(self.source, names, sizes)?,
        };
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

/// Tensors of one block, by the part of the name after its number and before `.weight`.
#[derive(Clone, Copy)]
pub(crate) struct BlockTensors<'a> {
    tensors: &'a Tensors<'a>,
    block: usize,
}

impl BlockTensors<'_> {
    /// The whole name of a tensor.
    pub(crate) fn name(&self, part: &str) -> String {
        format!("blk.{}.{part}.weight", self.block)
    }

    /// Whether this part has a tensor.
    pub(crate) fn has(&self, part: &str) -> bool {
        self.tensors.source.has(&self.name(part))
    }

    /// `[out, input]`
    pub(crate) fn linear(&self, part: &str, out: usize, input: usize) -> Result<Linear, ModelError> {
        self.tensors.linear(&self.name(part), out, input)
    }

    /// As [`Tensors::norm`].
    pub(crate) fn norm(&self, part: &str, width: usize) -> Result<RmsNorm, ModelError> {
        self.tensors.norm(&self.name(part), width)
    }

    /// A feed-forward layer of this width between rows of the model's; `suffix` ends the names of its parts.
    pub(crate) fn gated(&self, suffix: &str, width: usize, activation: Activation) -> Result<Gated, ModelError> {
        let linear = |part: &str, out, input| self.linear(&format!("ffn_{part}{suffix}"), out, input);
        Gated::read((self.tensors.config.d_model, width), activation, linear)
    }

    /// The experts of the block: `ffn_gate_up_exps`, or `ffn_gate_exps` and `ffn_up_exps`, with `ffn_down_exps`; or
    /// matrices of each expert, whose number follows the part (`ffn_up.17`).
    pub(crate) fn experts(&self, sizes: ExpertSizes, activation: Activation) -> Result<Experts, ModelError> {
        let of = |part: &str| self.name(part);
        let names = match (self.has("ffn_gate_up_exps"), self.has("ffn_gate.0")) {
            (true, _) => ExpertNames::Joined(["ffn_gate_up_exps", "ffn_down_exps"].map(of)),
            (false, true) => {
                let of_expert = |expert| ["gate", "up", "down"].map(|part| of(&format!("ffn_{part}.{expert}")));
                ExpertNames::Single((0..sizes.count).map(of_expert).collect())
            }
            (false, false) => ExpertNames::Stacked(["ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"].map(of)),
        };
        self.tensors.experts(&names, sizes, activation)
    }

    /// The matrix `[experts, d]` that chooses experts: its products decide which of them run, so it is never rounded.
    pub(crate) fn router(&self, experts: usize) -> Result<Linear, ModelError> {
        let (name, d) = (self.name("ffn_gate_inp"), self.tensors.config.d_model);
        match &self.tensors.backend {
            MatmulBackend::Candle(_) => self.tensors.linear_as(&name, [experts, d], WeightType::F32),
            MatmulBackend::Kernels(_) | MatmulBackend::Unread => self.tensors.linear(&name, experts, d),
        }
    }
}
