//! Memory for weights: aligned to cache lines, contiguous, in huge pages where the system has them. Memory for caches,
//! which takes physical pages only as it fills.
//!
//! With pages of 4 KiB a pass over the weights spends a tenth of its time on address translation.
//! Allocations are cut from chunks large enough for huge pages; a chunk is freed with its last allocation.

use std::{
    alloc::{Layout, alloc, dealloc},
    ops::{Deref, DerefMut},
    ptr::NonNull,
    sync::{Arc, Mutex, PoisonError},
};

use crate::out_of_memory::OutOfMemory;
use crate::simd::LANES;

/// Size and alignment of a huge page; also the size of a chunk, unless an allocation is larger.
const HUGE_PAGE: usize = 2 << 20;
const CHUNK: usize = 32 << 20;

/// Bytes in a cache line.
const LINE: usize = 64;

/// Fewer bytes at the end of a chunk than these are left unused.
const LITTLE: usize = 64 << 10;

/// Cuts allocations from chunks.
#[derive(Debug, Default)]
pub struct Arena {
    /// Chunks that have room, and how much of each is taken.
    open: Mutex<Vec<(Arc<Chunk>, usize)>>,
}

/// Memory from the system, freed when dropped.
#[derive(Debug)]
struct Chunk {
    start: NonNull<u8>,
    layout: Layout,
}

/// Part of a chunk, with a single owner.
#[derive(Debug)]
pub struct Bytes {
    start: NonNull<u8>,
    len: usize,
    /// Keeps the chunk alive.
    _chunk: Arc<Chunk>,
}

// SAFETY: a chunk is an address and a size; its memory belongs to the pieces.
unsafe impl Send for Chunk {}
// SAFETY: as above.
unsafe impl Sync for Chunk {}
// SAFETY: `Bytes` owns its memory as a `Box<[u8]>` does: no other piece overlaps it.
unsafe impl Send for Bytes {}
// SAFETY: as above.
unsafe impl Sync for Bytes {}

/// Zeros that take physical memory when first written, in huge pages from the first one on.
#[derive(Debug)]
pub struct LazyZeros {
    memory: Vec<[u16; LANES]>, // the system gives large zeros as pages that it has not filled yet
    first: usize,
    len: usize,
}

impl LazyZeros {
    /// A number of groups of [`LANES`] halves.
    pub fn new(len: usize) -> Self {
        const SIZE: usize = size_of::<[u16; LANES]>();
        OutOfMemory::unless_there_are((len * SIZE).saturating_add(2 * HUGE_PAGE));
        if len * SIZE < HUGE_PAGE {
            return Self { memory: vec![[0; LANES]; len], first: 0, len };
        }
        let memory = vec![[0; LANES]; (len + 1).next_multiple_of(HUGE_PAGE / SIZE) + HUGE_PAGE / SIZE];
        let start = memory.as_ptr().addr();
        let skip = start.next_multiple_of(HUGE_PAGE) - start;
        let whole = (memory.len() * SIZE - skip) / HUGE_PAGE * HUGE_PAGE;
        if let Some(start) = NonNull::new(memory.as_ptr().cast::<u8>().cast_mut().wrapping_add(skip)) {
            advise_huge_pages(start, whole);
        }
        Self { memory, first: skip.div_ceil(SIZE), len }
    }
}

impl Deref for LazyZeros {
    type Target = [[u16; LANES]];

    fn deref(&self) -> &Self::Target {
        &self.memory[self.first..self.first + self.len]
    }
}

impl DerefMut for LazyZeros {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.memory[self.first..self.first + self.len]
    }
}

impl Arena {
    /// Makes room for allocations of so many bytes together, so that they lie in one piece and no end of a chunk stays
    /// unused.
    pub fn expect(&self, len: usize) {
        if len > 0 {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.push((Arc::new(Chunk::new(len)), 0));
        }
    }

    /// `len` zeros that start on a cache line.
    pub fn zeroed(&self, len: usize) -> Bytes {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let room = len.next_multiple_of(LINE);
        let left = |(chunk, used): &(Arc<Chunk>, usize)| chunk.layout.size() - used;
        // the first chunk that has room: a small matrix fills the end that a large one left
        let at = open.iter().position(|chunk| room <= left(chunk)).unwrap_or_else(|| {
            open.push((Arc::new(Chunk::new(room.max(CHUNK))), 0));
            open.len() - 1
        });
        let (chunk, used) = (Arc::clone(&open[at].0), open[at].1);
        open[at].1 += room;
        if left(&open[at]) < LITTLE {
            open.swap_remove(at);
        }
        // SAFETY: `used + len` bytes lie inside the chunk, and no other allocation has them.
        let start = unsafe {
            let start = chunk.start.add(used);
            start.write_bytes(0, len);
            start
        };
        Bytes { start, len, _chunk: chunk }
    }
}

impl Chunk {
    /// At least `len` bytes.
    fn new(len: usize) -> Self {
        let size = len.max(LINE).next_multiple_of(HUGE_PAGE);
        let layout = Layout::from_size_align(size, HUGE_PAGE).expect("less than half of the address space");
        // SAFETY: the layout is not of size zero.
        let start = unsafe { alloc(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| OutOfMemory(size).unwind());
        advise_huge_pages(start, size);
        Self { start, layout }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout and not freed before.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// Asks the system for huge pages. It may ignore the request.
#[cfg(target_os = "linux")]
fn advise_huge_pages(start: NonNull<u8>, len: usize) {
    unsafe extern "C" {
        fn madvise(start: *mut std::ffi::c_void, len: usize, advice: std::ffi::c_int) -> std::ffi::c_int;
    }
    const MADV_HUGEPAGE: std::ffi::c_int = 14;
    // SAFETY: the range is ours; this advice changes no content.
    unsafe { madvise(start.as_ptr().cast(), len, MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn advise_huge_pages(_start: NonNull<u8>, _len: usize) {}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: initialised with zeros, ours alone, borrowed with `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Bytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lazy_zeros_are_as_many_as_asked_for_and_start_where_a_huge_page_does() {
        const IN_A_PAGE: usize = HUGE_PAGE / size_of::<[u16; LANES]>();
        for len in [0, 1, 1000, IN_A_PAGE - 1, IN_A_PAGE, IN_A_PAGE + 1, 3 * IN_A_PAGE - 1, 3 * IN_A_PAGE] {
            let mut zeros = LazyZeros::new(len);
            assert!(zeros.len() == len && zeros.iter().all(|lanes| *lanes == [0; LANES]), "{len}");
            assert!(len < IN_A_PAGE || zeros.as_ptr().addr() % HUGE_PAGE < size_of::<[u16; LANES]>(), "{len}");
            zeros.fill([7; LANES]);
        }
    }

    #[test]
    fn what_was_expected_lies_in_one_piece() {
        let arena = Arena::default();
        arena.expect(0);
        arena.expect(3 * CHUNK);
        let pieces = [CHUNK + 64, CHUNK - 64, CHUNK].map(|len| arena.zeroed(len));
        let starts = pieces.each_ref().map(|piece| piece.as_ptr().addr());
        assert_eq!((starts[1] - starts[0], starts[2] - starts[1]), (CHUNK + 64, CHUNK - 64));
        assert_eq!(arena.zeroed(64).len(), 64); // more than expected
    }

    #[test]
    fn pieces_are_zero_aligned_and_apart() {
        let arena = Arena::default();
        let mut pieces: Vec<_> = [1, 64, 1000, CHUNK, 5, CHUNK + 1, 0, 77].map(|len| arena.zeroed(len)).into();
        for (value, piece) in pieces.iter_mut().enumerate() {
            assert!(piece.as_ptr().addr().is_multiple_of(LINE) && piece.iter().all(|&byte| byte == 0));
            piece.fill(value as u8 + 1);
        }
        drop(arena);
        for (value, piece) in pieces.iter().enumerate() {
            assert!(piece.iter().all(|&byte| byte == value as u8 + 1));
        }
    }
}
