//! What the tensors of a model take in memory once they are loaded, from headers alone.
//!
//! Invariant: a tensor counts as its loader keeps it. Matrices have the form of the backend; norms, biases and
//! convolutions are f32 everywhere. Tensors that no loader of text models reads, such as those of a vision tower, do not
//! count.

use draftscope_kernels::{BLOCK, Encoding, LANES};

use crate::options::WeightType;

/// A tensor that loading reads.
#[derive(Clone, Copy, Debug)]
pub struct LoadedTensor<'a> {
    /// Shape, outermost dimension first.
    pub(crate) shape: &'a [usize],
    /// How it is stored; FP8 counts as bf16, which it becomes. `None` for a type that does not run.
    pub(crate) encoding: Option<Encoding>,
    /// Bytes in the file.
    pub(crate) stored: u64,
    /// Whether it belongs to a draft module of the same files.
    pub(crate) of_module: bool,
}

/// How matrices are loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatrixForm {
    /// In tiles of the native kernels.
    Tiles,
    /// On candle.
    Candle(WeightType),
}

impl LoadedTensor<'_> {
    fn numbers(&self) -> u64 {
        self.shape.iter().fold(1u64, |numbers, dim| numbers.saturating_mul(*dim as u64))
    }

    /// Bytes that it takes in f32 beyond those in this form: of matrices that loaders keep wide whatever the form is.
    #[must_use]
    pub fn more_in_f32(&self, form: MatrixForm) -> u64 {
        self.numbers().saturating_mul(4).saturating_sub(self.bytes(form))
    }

    /// Bytes in memory.
    #[must_use]
    pub fn bytes(&self, form: MatrixForm) -> u64 {
        let numbers = self.numbers();
        match (self.shape, self.encoding, form) {
            ([1], ..) => 0, // a field of its layer
            // those of experts are stacked
            ([outer @ .., rows, k], Some(encoding), MatrixForm::Tiles) if k % BLOCK == 0 => {
                let tiles = outer.iter().fold(rows.div_ceil(LANES), |tiles, dim| tiles.saturating_mul(*dim));
                tiles.saturating_mul(encoding.form().tile_bytes(*k)) as u64
            }
            ([.., _, k], Some(encoding), MatrixForm::Candle(weight_type)) if *k >= LANES => match weight_type {
                WeightType::F32 => numbers.saturating_mul(4),
                WeightType::Bf16 => numbers.saturating_mul(2),
                WeightType::Stored if encoding.form().is_dense() => numbers.saturating_mul(encoding.block().1 as u64),
                WeightType::Stored => self.stored,
            },
            (_, Some(_), _) => numbers.saturating_mul(4),
            (_, None, _) => self.stored,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_takes_what_its_form_takes() {
        let bytes = |shape: &[usize], encoding, form| {
            LoadedTensor { shape, encoding: Some(encoding), stored: 1000, of_module: false }.bytes(form)
        };
        let candle = MatrixForm::Candle;
        // rows fill up sixteens
        assert_eq!(bytes(&[17, 32], Encoding::Bf16, MatrixForm::Tiles), 2 * 32 * 32);
        assert_eq!(bytes(&[17, 33], Encoding::Bf16, candle(WeightType::Stored)), 2 * 17 * 33);
        assert_eq!(bytes(&[17, 32], Encoding::Q4_0, candle(WeightType::Stored)), 1000);
        assert_eq!(bytes(&[17, 32], Encoding::Q4_0, candle(WeightType::F32)), 4 * 17 * 32);
        assert_eq!(bytes(&[17, 32], Encoding::F32, candle(WeightType::Bf16)), 2 * 17 * 32);
        assert_eq!(bytes(&[3, 17, 32], Encoding::Bf16, MatrixForm::Tiles), 3 * 2 * 32 * 32);
        // norms and convolutions are f32 everywhere, a single number is none of its own
        for form in [MatrixForm::Tiles, candle(WeightType::Bf16)] {
            assert_eq!(bytes(&[64], Encoding::Bf16, form), 256);
            assert_eq!(bytes(&[8, 1, 4], Encoding::Bf16, form), 128);
            assert_eq!(bytes(&[1], Encoding::Bf16, form), 0);
        }
        assert_eq!(bytes(&[8, 4], Encoding::F32, MatrixForm::Tiles), 128); // a convolution over four rows
        assert_eq!(bytes(&[8, 4], Encoding::F32, candle(WeightType::Bf16)), 128);
        let wide = |encoding, form| {
            LoadedTensor { shape: &[17, 32], encoding: Some(encoding), stored: 1000, of_module: false }
                .more_in_f32(form)
        };
        assert_eq!(wide(Encoding::Q4_0, candle(WeightType::Stored)), 4 * 17 * 32 - 1000);
        assert_eq!(wide(Encoding::Bf16, MatrixForm::Tiles), 4 * 17 * 32 - 2 * 32 * 32);
        assert_eq!(wide(Encoding::F32, candle(WeightType::F32)), 0);
        let huge = [usize::MAX, 3, 3];
        assert_eq!(bytes(&huge, Encoding::F32, MatrixForm::Tiles), u64::MAX);
    }
}
