//! Weights of norms in the form that kernels read.

use super::layer::NormWeight;
use draftscope_kernels::LANES;

/// A norm's weights by lanes.
pub(crate) fn lanes(weight: &[f32]) -> NormWeight {
    weight.as_chunks::<LANES>().0.to_vec()
}
