//! The arithmetic of draftscope's native CPU backend: products of quantised weights, attention, recurrent
//! states, norms, rotary embedding, and the threads and memory that they use. Nearly all of the program's `unsafe` code is here.
//!
//! Kernels are written once, over `simd::Lanes`, and compiled for each instruction set; [`Isa`] picks one at run
//! time. Two invariants hold for every kernel: all instruction sets give the same bits, and a row's result does not
//! depend on how many rows run with it. The first lets one machine reproduce another's trace; the second makes greedy
//! speculation equal plain decoding.
//!
//! `unsafe` is used for intrinsics (with a proof that the processor has them), for entering a function compiled for an
//! instruction set, and for handing parts of a slice to threads.
//!
//! It is a crate of its own so that its many instantiations (instruction sets × tile forms × rows) are compiled once,
//! not at each change of the program. Models are built outside. Kernels are public structs; `run_on(isa)` runs one.
#![allow(unsafe_code)] // reasons stand at each block
#![allow(clippy::needless_range_loop)] // kernels walk several arrays of registers with one index

mod activations;
mod attention;
mod attention_f32;
mod attention_join;
mod attention_partial;
mod attention_prompt;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod delta;
mod dot;
mod dot_steps;
mod elementwise;
mod encoding;
mod form;
mod isa;
mod memory;
#[cfg(target_arch = "aarch64")]
mod neon;
mod norm;
mod out_of_memory;
mod pack;
mod pool;
mod portable;
mod prefetch;
mod rope;
mod simd;
mod span;
mod stream;
mod super_block;
mod super_dot;
#[doc(hidden)]
pub mod testing;

pub use isa::Isa;
pub use out_of_memory::OutOfMemory;
pub use pool::Pool;
pub use stream::Stream;

pub use activations::{Acts, Column, Operand, PROMPT_ROWS};
pub use attention::{MAX_HEAD_DIM, PARTIAL_EXTRA, Queries, SEGMENT, SLAB, Stretch, attend, rows_at_once};
pub use attention_f32::{HEAD_CHUNK, HEAD_SEGMENT, HeadAttention, HeadRows, ScoreRule};
pub use attention_join::Join;
pub use attention_partial::{HEAD_EXTRA, JoinHead};
pub use attention_prompt::{attend_prompt, prompt_scratch_bytes};
pub use delta::{DeltaHead, DeltaLayer};
pub use dot::{Onto, Tile, multiply};
pub use elementwise::{Cap, Gate, GateActivation, Sigmoid};
pub use encoding::Encoding;
pub use form::{BLOCK, Form, copy_row};
pub use memory::{Arena, Bytes, LazyZeros};
pub use norm::{AddNormed, GeluMul, Load, Norm, NormHead, NormPart, ScaleRows, SiluMul, Survey, divisors};
pub use pack::{decode_block, read_block, write_block};
pub use rope::{Angles, Rotate, StoreKeys, StoreValues};
pub use simd::LANES;

/// Rows that one pass over the weights can serve, except over a prompt.
pub const MAX_ROWS: usize = 16;

isa::kernels! {
    AddNormed<'_> => (),
    Cap<'_> => (),
    Gate<'_> => (),
    GeluMul<'_, '_> => (),
    Join<'_, '_> => (),
    JoinHead<'_> => (),
    Load<'_> => (),
    Norm<'_> => bool,
    NormHead<'_> => (),
    NormPart<'_, '_> => (),
    Rotate<'_> => (),
    ScaleRows<'_> => (),
    Sigmoid<'_> => (),
    SiluMul<'_, '_> => (),
    StoreKeys<'_, '_> => (),
    StoreValues<'_, '_> => (),
    Survey<'_> => (f32, f32),
}
