//! The kernels on a real driver against the plain Rust reference, bit for bit, and whole sequences.
//!
//! Any adapter serves, software too. Without one the tests say that they did not run; with `DRAFTSCOPE_GPU_TESTS=1` in
//! the environment they fail.

mod blocks;
mod kernels;
mod recurrent;
mod reference;
mod reference_delta;
mod sequences;
mod timing;

use std::sync::{Arc, OnceLock};

use draftscope_kernels::{Encoding, testing::Noise};
use half::{bf16, f16};

use crate::{Gpu, adapters, choose};

/// The first adapter; `None` if there is no driver.
pub(crate) fn gpu() -> Option<Arc<Gpu>> {
    static GPU: OnceLock<Option<Arc<Gpu>>> = OnceLock::new();
    GPU.get_or_init(own_gpu).clone()
}

/// The same, with counts of its own.
pub(crate) fn own_gpu() -> Option<Arc<Gpu>> {
    match choose(adapters(), Some("0")) {
        Ok(adapter) => Some(Gpu::open(&adapter).unwrap()),
        Err(error) => {
            assert!(std::env::var("DRAFTSCOPE_GPU_TESTS").is_err(), "DRAFTSCOPE_GPU_TESTS is set, but {error}");
            println!("not run: {error}");
            None
        }
    }
}

/// Random rows of `k` weights in a file's encoding.
pub(crate) fn stored(encoding: Encoding, rows: usize, k: usize, noise: &mut Noise) -> Vec<u8> {
    let numbers = noise.numbers(rows * k);
    match encoding {
        Encoding::F32 => numbers.iter().flat_map(|x| x.to_le_bytes()).collect(),
        Encoding::F16 => numbers.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes()).collect(),
        Encoding::Bf16 => numbers.iter().flat_map(|x| bf16::from_f32(*x).to_le_bytes()).collect(),
        _ => {
            let (weights, bytes) = encoding.block();
            let blocks = (0..rows * k / weights).flat_map(|_| {
                let mut block: Vec<u8> = (0..bytes).map(|_| noise.bits() as u8).collect();
                crate::forms::finite_scales(encoding, &mut block);
                block
            });
            blocks.collect()
        }
    }
}
