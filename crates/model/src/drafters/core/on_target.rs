//! What a module takes from its target, wherever that runs, and how its own matrices are stored there: on the native
//! kernels as blocks of 8-bit codes, on candle as f32.

use std::sync::Arc;

use candle_core::Device;

use crate::interfaces::SharedWeights;
use crate::native::{NativeCpu, NativeLlama};
use crate::nn::{Embedding, Linear, OwnEmbedding};
use crate::options::PassForm;
use crate::{Model, ModelError};

/// Stores a matrix of this name and shape, `[out, in]`.
pub(crate) type Store = dyn Fn(&str, Vec<f32>, [usize; 2]) -> Result<Linear, ModelError>;

/// A target as a module sees it.
pub(crate) struct OnTarget {
    /// Its embedding, which also knows the device.
    pub(crate) embedding: Arc<dyn Embedding>,
    /// Its output head, memory shared.
    pub(crate) head: Linear,
    /// Positions of the context.
    pub(crate) ctx_len: usize,
    /// Stores a matrix of the module.
    pub(crate) linear: Box<Store>,
    /// How its passes run, and those of the module.
    pub(crate) form: PassForm,
    /// Bits of a weight so stored, and the name of that type.
    pub(crate) storage: (u64, &'static str),
}

impl OnTarget {
    /// Of a target on the kernels or on candle.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] for a target on a GPU.
    pub(crate) fn of(shared: &SharedWeights<'_>) -> Result<Self, ModelError> {
        match shared {
            SharedWeights::Native(target) => Ok(native(target)),
            SharedWeights::Candle(target, ctx_len) => {
                let (device, head, form) = (target.device().clone(), target.head(), target.form());
                Ok(Self {
                    embedding: Arc::clone(target) as Arc<dyn Embedding>,
                    head,
                    ctx_len: *ctx_len,
                    linear: Box::new(move |_, rows, shape| Linear::of_numbers(rows, shape, &device)),
                    form,
                    storage: (32, "f32"),
                })
            }
            #[cfg(feature = "gpu")]
            SharedWeights::Gpu(_) => Err(ModelError::Unsupported(
                "block drafters do not run on the GPU yet; choose --device cpu, or another drafter".into(),
            )),
        }
    }
}

fn native(target: &NativeLlama) -> OnTarget {
    let cpu = NativeCpu::of_target(target);
    let weights = &target.weights;
    let of = |matrix: &crate::native::matrix::Matrix| Linear::of(Arc::new(cpu.wrapped(matrix.clone())));
    let table = of(weights.embedding.as_ref().unwrap_or(&weights.head));
    let head = of(&weights.head);
    let vocab = target.spec().info.vocab as usize;
    OnTarget {
        embedding: Arc::new(OwnEmbedding { table, vocab, device: Device::Cpu }),
        head,
        ctx_len: target.spec().ctx_len,
        linear: Box::new(move |name, rows, [_, k]| Ok(Linear::of(Arc::new(cpu.quantised(name, &rows, k)?)))),
        form: PassForm::CPU,
        storage: (9, "q8_0"),
    }
}
