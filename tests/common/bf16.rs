//! An MTP module's file in FP8, widened to bf16.

use candle_core::{DType, Device, safetensors::load_buffer};

/// The bytes of the module with every matrix in bf16 instead of E4M3 with a scale per row.
pub(crate) fn in_bf16(fp8: &[u8]) -> Vec<u8> {
    let tensors = load_buffer(fp8, &Device::Cpu).unwrap();
    let widened = tensors.iter().filter(|(name, _)| !name.ends_with("_scale")).map(|(name, tensor)| {
        let Some(scale) = tensors.get(&format!("{name}_scale")) else { return (name, tensor.clone()) };
        let matrix = tensor.to_dtype(DType::F32).unwrap().broadcast_mul(&scale.unsqueeze(1).unwrap()).unwrap();
        (name, matrix.to_dtype(DType::BF16).unwrap())
    });
    safetensors::serialize(widened, None).unwrap()
}
