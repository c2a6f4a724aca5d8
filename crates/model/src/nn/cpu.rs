//! Gates and caps on a CPU, with the vector instructions of the native kernels; candle computes them number by number.

use std::ops::Deref;

use candle_core::{CpuStorage, Storage, Tensor};
use draftscope_kernels::{Cap, Gate, GateActivation, HeadRows, Isa};

use crate::ModelError;
use crate::nn::Activation;

/// The numbers of an f32 tensor on a CPU, not copied; `G` keeps them from being written.
pub(super) struct Numbers<'a, G> {
    storage: G,
    start: usize,
    strides: &'a [usize],
    dims: &'a [usize],
}

/// `None` for numbers that are elsewhere, of another type, or not adjacent in the last dimension.
pub(super) fn numbers(tensor: &Tensor) -> Option<Numbers<'_, impl Deref<Target = Storage>>> {
    let (storage, layout) = tensor.storage_and_layout();
    let is_plain = matches!(&*storage, Storage::Cpu(CpuStorage::F32(_))) && layout.stride().last() == Some(&1);
    let (start, strides, dims) = (layout.start_offset(), layout.stride(), layout.dims());
    is_plain.then_some(Numbers { storage, start, strides, dims })
}

impl<G: Deref<Target = Storage>> Numbers<'_, G> {
    /// From the tensor's first number on.
    fn all(&self) -> &[f32] {
        match &*self.storage {
            Storage::Cpu(CpuStorage::F32(numbers)) => &numbers[self.start..],
            _ => &[],
        }
    }

    /// The heads of `[heads, n, width]`.
    pub(super) fn heads(&self) -> Vec<HeadRows<'_>> {
        let (&[heads, _, width], &[next, stride, _]) = (self.dims, self.strides) else { return Vec::new() };
        let numbers = self.all();
        (0..heads).map(|head| HeadRows { numbers: &numbers[head * next..], stride, width }).collect()
    }
}

/// Calls `work` with the numbers of a tensor, one row after the other; they are copied only if they are not stored so.
///
/// # Errors
/// When they are not f32, or memory is short.
pub(super) fn with_numbers<R>(tensor: &Tensor, work: impl FnOnce(&[f32]) -> R) -> Result<R, ModelError> {
    if tensor.is_contiguous()
        && let Some(numbers) = numbers(tensor)
    {
        return Ok(work(&numbers.all()[..tensor.elem_count()]));
    }
    Ok(work(&tensor.flatten_all()?.to_vec1()?))
}

/// `activation(gate) · up`, `[m, n]` each.
///
/// # Errors
/// When shapes do not fit.
pub fn gated(gate: Tensor, up: &Tensor, activation: Activation) -> Result<Tensor, ModelError> {
    if gate.device().is_cpu() && gate.dims() == up.dims() {
        let (mut products, shape): (Vec<f32>, _) = (gate.flatten_all()?.to_vec1()?, gate.shape().clone());
        drop(gate); // a prompt's is large
        let activation = match activation {
            Activation::Silu => GateActivation::Silu,
            Activation::Gelu => GateActivation::Gelu,
        };
        with_numbers(up, |up| Gate { gate: &mut products, up, activation }.run_on(Isa::detect()))?;
        return Ok(Tensor::from_vec(products, shape, up.device())?);
    }
    let gate = match activation {
        Activation::Silu => gate.silu()?,
        Activation::Gelu => gate.gelu()?,
    };
    Ok((gate * up)?)
}

/// `cap · tanh(x / cap)`.
///
/// # Errors
/// When memory is short.
pub fn capped(x: &Tensor, cap: f64) -> Result<Tensor, ModelError> {
    if x.device().is_cpu() {
        let mut numbers: Vec<f32> = x.flatten_all()?.to_vec1()?;
        Cap { numbers: &mut numbers, cap: cap as f32 }.run_on(Isa::detect());
        return Ok(Tensor::from_vec(numbers, x.shape(), x.device())?);
    }
    Ok(((x / cap)?.tanh()? * cap)?)
}
