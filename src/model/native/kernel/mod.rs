//! Arithmetic on the processor: the only place of the crate with `unsafe` code, but for mapping files
//! (`model/mapped.rs`).
//!
//! Kernels are written once, over `lanes::Lanes`, and compiled for each instruction set; [`Isa`]
//! picks one at run time. Two invariants hold for every kernel here: all instruction sets give the
//! same bits, and a row's result does not depend on how many rows run with it. The first makes one
//! machine's trace another machine's; the second makes greedy speculation equal plain decoding.
//! Unsafe are: intrinsics (behind proofs that the processor has them), entering a function compiled
//! for an instruction set, and lending a slice to threads piece by piece. Models are built outside.
#![allow(unsafe_code)] // reasons stand at each block
#![allow(clippy::needless_range_loop)] // kernels walk several arrays of registers with one index

mod acts;
mod ahead;
mod attention;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod dot;
mod encoding;
mod form;
mod isa;
mod lanes;
mod memory;
#[cfg(target_arch = "aarch64")]
mod neon;
mod norm;
mod pack;
mod pool;
mod portable;
mod rope;
mod span;
mod stream;

pub use isa::Isa;
pub use pool::Pool;
pub use stream::Stream;

pub(crate) use acts::{Acts, Column, Operand};
pub(crate) use attention::{Join, MAX_HEAD_DIM, PARTIAL_EXTRA, Queries, SEGMENT, SLAB, Stretch, attend, rows_at_once};
pub(crate) use dot::{Onto, Tile, multiply};
pub(crate) use encoding::{Encoding, Unit};
pub(crate) use form::{BLOCK, Form, copy_row};
pub(crate) use lanes::LANES;
pub(crate) use memory::{Arena, Bytes, LazyZeros};
pub(crate) use norm::{Load, Norm, NormHead, NormPart, SiluMul, Survey, divisors};
pub(crate) use pack::{read_unit, write_unit};
pub(crate) use rope::{Angles, Rotate, StoreKeys, StoreValues};

/// Rows that one pass over the weights can serve.
pub const MAX_ROWS: usize = 16;
