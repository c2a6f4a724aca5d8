//! Weight dtypes and their names.

use candle_core::Device;

use crate::ModelError;
use crate::files::ModelFiles;
use crate::options::{Dtype, WeightType};

/// Checks that a file of `q4_1` weights is one, whatever backend runs it.
pub(super) fn check_dtype(dtype: Dtype, source: &ModelFiles) -> Result<(), ModelError> {
    let stored = source.stored_dtype();
    if dtype == Dtype::Q4_1 && stored != "q4_1" {
        return Err(ModelError::Unsupported(format!(
            "--dtype q4_1 was asked for and this file holds {stored}; use --dtype stored, f32 or bf16"
        )));
    }
    Ok(())
}

/// Type of the matrices on candle, and what the header calls it.
///
/// `auto` on a CPU widens to f32: candle decodes Q4_1 without SIMD there, several times slower.
pub(super) fn weight_type(dtype: Dtype, source: &ModelFiles, device: &Device) -> (WeightType, String) {
    match dtype {
        Dtype::Auto if device.is_cpu() => (WeightType::F32, "f32".to_owned()),
        Dtype::Auto | Dtype::Stored | Dtype::Q4_1 => (WeightType::Stored, source.loaded_dtype()),
        Dtype::F32 => (WeightType::F32, "f32".to_owned()),
        Dtype::Bf16 => (WeightType::Bf16, "bf16".to_owned()),
    }
}
