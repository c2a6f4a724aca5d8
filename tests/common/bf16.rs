//! An MTP module's file in bf16, written again in FP8, as `training/mtp_training/export.py` writes it.

use candle_core::{D, DType, Device, Tensor, safetensors::load_buffer};

/// The bytes of a module in E4M3: every matrix with one scale per row, its largest absolute value over 448.
pub(crate) fn in_fp8(bf16: &[u8]) -> Vec<u8> {
    let tensors = load_buffer(bf16, &Device::Cpu)
        .unwrap()
        .into_iter()
        .flat_map(|(name, tensor)| if tensor.rank() == 2 { quantised(&name, &tensor) } else { vec![(name, tensor)] });
    safetensors::serialize(tensors, None).unwrap()
}

fn quantised(name: &str, matrix: &Tensor) -> Vec<(String, Tensor)> {
    let matrix = matrix.to_dtype(DType::F32).unwrap();
    let scale = (matrix.abs().unwrap().max_keepdim(D::Minus1).unwrap() / 448.0).unwrap().maximum(1e-12f32).unwrap();
    let codes = matrix.broadcast_div(&scale).unwrap().to_dtype(DType::F8E4M3).unwrap();
    vec![(name.to_owned(), codes), (format!("{name}_scale"), scale.squeeze(1).unwrap())]
}
