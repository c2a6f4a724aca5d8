//! What few rows do between matrices, on a CPU: plain loops over the numbers of tensors with the instructions of the
//! native kernels. candle computes them number by number on one thread, and its products are made for many rows.

use std::ops::Deref;

use candle_core::{CpuStorage, Storage, Tensor};
use draftscope_kernels::{Cap, Gate, GateActivation, Isa, PLAIN_HEADS, PlainAttention, PlainRows};

use crate::model::ModelError;
use crate::model::nn::{Activation, Kernels, Scores};

/// The numbers of an f32 tensor on a CPU, not copied; `G` keeps them from being written.
struct Numbers<'a, G> {
    storage: G,
    start: usize,
    strides: &'a [usize],
    dims: &'a [usize],
}

/// `None` for numbers that are elsewhere, of another type, or not adjacent in the last dimension.
fn numbers(tensor: &Tensor) -> Option<Numbers<'_, impl Deref<Target = Storage>>> {
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

    /// Rows of a head of `[heads, n, width]`.
    fn head(&self, head: usize) -> PlainRows<'_> {
        PlainRows { numbers: &self.all()[head * self.strides[0]..], stride: self.strides[1], width: self.dims[2] }
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

/// Attention of the rows of `q [heads, m, hd]`, each over the keys and values `[kv_heads, n, …]` that it sees: `[m, heads ·
/// width of a value]`. `None` where candle must do it.
///
/// # Errors
/// When shapes do not fit.
pub(super) fn attend_rows(
    q: &Tensor,
    seen: &[(Tensor, Tensor)],
    scores: Scores,
    kernels: Option<&dyn Kernels>,
) -> Result<Option<Tensor>, ModelError> {
    let plain = seen.iter().map(|(keys, values)| numbers(keys).zip(numbers(values)));
    let Some(seen) = plain.collect::<Option<Vec<_>>>() else { return Ok(None) };
    let (heads, m, head_dim) = q.dims3()?;
    let Some((keys, values)) = seen.first().filter(|_| q.device().is_cpu() && seen.len() == m) else {
        return Ok(None);
    };
    if keys.dims[2] != head_dim {
        return Ok(None);
    }
    let (group, width) = (heads / keys.dims[0], values.dims[2]);
    let queries: Vec<f32> = q.transpose(0, 1)?.flatten_all()?.to_vec1()?; // [m][heads][hd]
    let mut out = vec![0.0; m * heads * width];
    let mut parts = Vec::new();
    let (mut queries_left, mut out_left) = (&queries[..], &mut out[..]);
    for (keys, values) in &seen {
        for head in 0..heads / group {
            for first in (0..group).step_by(PLAIN_HEADS) {
                let count = PLAIN_HEADS.min(group - first);
                let (own, rest) = queries_left.split_at(count * head_dim);
                let (own_out, rest_out) = std::mem::take(&mut out_left).split_at_mut(count * width);
                (queries_left, out_left) = (rest, rest_out);
                parts.push(PlainAttention {
                    queries: own,
                    keys: keys.head(head),
                    values: values.head(head),
                    seen: keys.dims[1],
                    scale: scores.scale as f32,
                    softcap: scores.softcap.map(|cap| cap as f32),
                    out: own_out,
                });
            }
        }
    }
    match kernels {
        Some(kernels) => kernels.attend(&mut parts),
        None => parts.iter_mut().for_each(|part| part.run_on(Isa::detect())),
    }
    drop(parts);
    Ok(Some(Tensor::from_vec(out, (m, heads * width), q.device())?))
}
