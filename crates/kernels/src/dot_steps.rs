//! The steps that products of all forms share.

use crate::activations::Block;
use crate::form::{BLOCK, Layout};
use crate::simd::{LANES, Lanes};

/// How many bytes ahead weights are prefetched into the first-level and the second-level cache.
const AHEAD: usize = 2048;
const FAR_AHEAD: usize = 16_384;

/// The same for up to [`FEW`] rows, into the first-level cache alone: their arithmetic is so short that memory would wait
/// for a second prefetch of each line.
const FEW_AHEAD: usize = 8192;
const FEW: usize = 4;

/// Prefetches what a pass reads some blocks later. With several rows the arithmetic leaves the processor too little
/// room to look that far ahead by itself; threads that compete for memory do the same, and so does unpacking a block of
/// 256, even for one row on one thread (`alone`), which is faster without it in other forms.
#[inline(always)]
pub(crate) fn prefetch<S: Lanes, const M: usize>(s: S, block: &[u8], lines: usize, alone: bool) {
    if M == 1 && alone {
        return;
    }
    if M <= FEW {
        return (0..lines).for_each(|line| s.prefetch(block, FEW_AHEAD + 64 * line));
    }
    for line in 0..lines {
        s.prefetch(block, AHEAD + 64 * line);
        s.prefetch_far(block, FAR_AHEAD + 64 * line);
    }
}

/// `N` bytes of a block. The compiler knows both lengths, so no bounds are checked at run time.
#[inline(always)]
pub(crate) fn bytes_at<const N: usize>(block: &[u8], at: usize) -> &[u8; N] {
    block[at..].first_chunk().expect("inside a block")
}

/// [`Lanes::open`] of every row.
#[inline(always)]
pub(crate) fn open<S: Lanes, const M: usize>(s: S, start: &[S::I; M]) -> [S::Sums; M] {
    let mut opened = [s.open(start[0]); M];
    for i in 1..M {
        opened[i] = s.open(start[i]);
    }
    opened
}

/// [`Lanes::close`] of every row.
#[inline(always)]
pub(crate) fn close<S: Lanes, const M: usize>(s: S, sums: &mut [S::I; M], opened: [S::Sums; M]) {
    for i in 0..M {
        sums[i] = s.close(sums[i], opened[i]);
    }
}

/// Of nibbles that number the entries of a table.
#[inline(always)]
pub(crate) fn add_entries<S: Lanes, L: Layout, const M: usize>(s: S, codes: &[u8], acts: &[Block; M]) -> [S::I; M] {
    let Some(table) = (const { L::FORM.table() }) else { return [s.splat_i(0); M] };
    let mut sums = [s.splat_i(0); M];
    for i in 0..M {
        sums[i] = s.bytes_start(acts[i].total_down);
    }
    for group in 0..BLOCK / 8 {
        let [low, high] = s.nibbles(bytes_at(codes, group * 4 * LANES));
        let (low, high) = (s.look_up(table, low), s.look_up(table, high));
        for i in 0..M {
            sums[i] = s.dot_bytes(sums[i], low, acts[i].words[2 * group]);
            sums[i] = s.dot_bytes(sums[i], high, acts[i].words[2 * group + 1]);
        }
    }
    sums
}
