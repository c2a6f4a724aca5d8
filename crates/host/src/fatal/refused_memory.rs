//! The allocator of the program, which notes what the system refuses, so that an abort is reported with its cause.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use draftscope_kernels::OutOfMemory;

thread_local! {
    /// Bytes of the newest request of this thread that the system refused; 0 if it refused none. It needs no start and no
    /// end, so a signal handler may read it.
    static REFUSED: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator. A program makes it its `#[global_allocator]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct NotingAllocator;

/// What the system refused this thread at last. The program aborts in the thread whose request was refused.
pub(super) fn refused() -> Option<OutOfMemory> {
    Some(REFUSED.get()).filter(|bytes| *bytes > 0).map(OutOfMemory)
}

fn noted(memory: *mut u8, bytes: usize) -> *mut u8 {
    if memory.is_null() {
        REFUSED.set(bytes);
    }
    memory
}

// SAFETY: every call is passed on to the system's allocator unchanged; noting a size allocates nothing.
#[allow(unsafe_code, reason = "the interface of allocators is unsafe, see above")]
unsafe impl GlobalAlloc for NotingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those that the system's allocator asks for; so below.
        noted(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        noted(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        noted(unsafe { System.realloc(memory, layout, size) }, size)
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}
