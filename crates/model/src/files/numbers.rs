//! Numbers of safetensors files.

use half::{bf16, f16};
use safetensors::Dtype;

/// Numbers as f32; `None` unless they are stored as f32, f16 or bf16.
pub(crate) fn widened(dtype: Dtype, bytes: &[u8]) -> Option<Vec<f32>> {
    Some(match dtype {
        Dtype::F32 => bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
        Dtype::F16 => bytes.as_chunks().0.iter().map(|bytes| f16::from_le_bytes(*bytes).to_f32()).collect(),
        Dtype::BF16 => bytes.as_chunks().0.iter().map(|bytes| bf16::from_le_bytes(*bytes).to_f32()).collect(),
        _ => return None,
    })
}
