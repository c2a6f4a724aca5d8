//! Reads a model from its files, and chooses threads and prefetching for it.

use draftscope_kernels::{Isa, Pool};

use super::llama::NativeLlama;
use super::load::{self, Source};
use super::matrix::Cpu;
use super::{read_ahead, threads};
use crate::ModelError;

impl NativeLlama {
    /// Reads a model, for `ctx_len` positions and `threads` threads, including the caller; `None` measures how many pay
    /// off.
    ///
    /// # Errors
    /// If the file cannot be read, is damaged, or contains a model that this backend does not run.
    pub fn load(from: Source<'_>, ctx_len: usize, threads: Option<usize>) -> Result<Self, ModelError> {
        Self::load_reporting((from, ctx_len), threads, &mut |_, _| {})
    }

    /// The same; `on_layer` is called with each layer's number and the number of layers.
    ///
    /// # Errors
    /// As [`NativeLlama::load`].
    pub fn load_reporting(
        (from, ctx_len): (Source<'_>, usize),
        threads: Option<usize>,
        on_layer: &mut dyn FnMut(usize, usize),
    ) -> Result<Self, ModelError> {
        let pool = Pool::new(threads.unwrap_or_else(threads::available));
        let mut model = load::llama(from, (ctx_len, Cpu::new(pool, Isa::detect())), on_layer)?;
        if threads.is_none() {
            threads::choose(&mut model)?;
        }
        read_ahead::choose(&mut model);
        Ok(model)
    }

    /// As [`NativeLlama::load`], with a given pool and instruction set.
    ///
    /// # Errors
    /// As [`NativeLlama::load`].
    pub fn load_with(from: Source<'_>, ctx_len: usize, pool: Pool, isa: Isa) -> Result<Self, ModelError> {
        load::llama(from, (ctx_len, Cpu::new(pool, isa)), &mut |_, _| {})
    }
}
