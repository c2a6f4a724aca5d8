//! The tensors of a module in files of its own, in the form in which a backend multiplies with them.

use draftscope_kernels::{BLOCK, Encoding};

use crate::ModelError;
use crate::files::{Stored, TensorSource};

/// Tensors as plain numbers, by name.
pub(crate) trait NamedNumbers {
    /// Whether there is such a tensor.
    fn has(&self, name: &str) -> bool;

    /// A tensor of this shape.
    ///
    /// # Errors
    /// When it is missing, misshapen or damaged.
    fn numbers(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, ModelError>;
}

/// Tensors whose matrices are encoded as they are read.
#[derive(Clone, Copy)]
pub(crate) struct ModuleTensors<'a> {
    file: &'a dyn NamedNumbers,
    matrices: Encoding,
    head: (&'a str, Encoding),
}

impl<'a> ModuleTensors<'a> {
    /// With matrices in this encoding; those that are to be exact stay f32.
    pub(crate) fn new(file: &'a dyn NamedNumbers, exact: bool, matrices: Encoding) -> Self {
        let matrices = if exact { Encoding::F32 } else { matrices };
        Self { file, matrices, head: ("", matrices) }
    }

    /// The same with the matrix of this name in codes of 4 bits, unless matrices are exact.
    pub(crate) fn with_head(self, name: &'a str) -> Self {
        let encoding = if self.matrices == Encoding::F32 { Encoding::F32 } else { Encoding::Q4_1 };
        Self { head: (name, encoding), ..self }
    }
}

impl TensorSource for ModuleTensors<'_> {
    fn has(&self, name: &str) -> bool {
        self.file.has(name)
    }

    fn stored(&self, name: &str, shape: &[usize]) -> Result<Stored<'_>, ModelError> {
        let numbers = self.file.numbers(name, shape)?;
        let encoding = if name == self.head.0 { self.head.1 } else { self.matrices };
        Ok(match shape {
            [_, columns] if columns.is_multiple_of(BLOCK) => Stored::encoded(&numbers, encoding),
            _ => Stored::of_numbers(&numbers),
        })
    }
}
