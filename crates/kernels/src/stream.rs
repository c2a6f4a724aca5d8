//! How fast this machine reads memory: the ceiling that plain decoding is compared with.
//!
//! It reads bytes in order, in huge pages, with the threads and the prefetching that decoding uses, and computes only a
//! sum. The caller chooses how many: as many as the weights have, so that caches keep the same part of them, or far
//! more than caches can keep.

use crate::{
    isa::{Isa, Kernel},
    memory::{Arena, Bytes},
    pool::Pool,
    simd::{self, LANES, Lanes},
};

/// Bytes of one vector, and of one item of work.
const VECTOR: usize = 4 * LANES;
const ITEM: usize = 64 << 10;

/// Prefetch distances; the best one counts.
const AHEAD: [usize; 4] = [1 << 10, 4 << 10, 6 << 10, 12 << 10];

/// Memory to read, and the threads that read it.
#[derive(Debug)]
pub struct Stream {
    pool: Pool,
    isa: Isa,
    memory: Bytes,
}

impl Stream {
    /// `bytes` of memory for `threads` threads.
    #[must_use]
    pub fn new(threads: usize, bytes: usize) -> Self {
        Self { pool: Pool::new(threads), isa: Isa::detect(), memory: Arena::default().zeroed(bytes.max(ITEM)) }
    }

    /// Seconds for reading everything once, by the fastest of several ways.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        AHEAD.iter().map(|&ahead| self.read(ahead)).fold(f64::INFINITY, f64::min)
    }

    fn read(&self, ahead: usize) -> f64 {
        let started = std::time::Instant::now();
        self.pool.run(self.memory.len().div_ceil(ITEM), |item| {
            let end = self.memory.len().min((item + 1) * ITEM);
            std::hint::black_box(self.isa.run(Read { memory: &self.memory[item * ITEM..end], ahead }));
        });
        started.elapsed().as_secs_f64()
    }
}

struct Read<'a> {
    memory: &'a [u8],
    ahead: usize,
}

impl Kernel for Read<'_> {
    type Output = f32;

    /// Several sums, so that additions do not wait for each other.
    #[inline(always)]
    fn run<S: Lanes>(self, s: S) -> f32 {
        let mut sums = [s.splat(0.0); 8];
        for vectors in self.memory.as_chunks::<{ 8 * VECTOR }>().0 {
            for (sum, vector) in sums.iter_mut().zip(vectors.as_chunks::<VECTOR>().0) {
                s.prefetch(vector, self.ahead);
                *sum = s.add(*sum, s.load_f32_le(vector));
            }
        }
        let sum = sums.into_iter().reduce(|a, b| s.add(a, b)).unwrap_or(s.splat(0.0));
        simd::sum(s, sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_vector_is_read_whatever_the_instruction_set() {
        let mut memory = vec![0; 3 * 8 * VECTOR];
        for (i, value) in memory.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            *value = (i as f32).to_le_bytes();
        }
        let count = memory.len() / 4;
        for isa in Isa::available() {
            assert_eq!(isa.run(Read { memory: &memory, ahead: 64 }), (count * (count - 1) / 2) as f32);
        }
        assert!(Stream::new(2, 1 << 20).seconds() > 0.0);
    }
}
