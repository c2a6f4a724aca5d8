//! The allocator of the program, which notes what the system refuses, so that an abort is reported with its cause.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use draftscope_kernels::OutOfMemory;

thread_local! {
    /// Bytes of the newest request of this thread that the system refused; 0 if it refused none. It needs no start and no
    /// end, so a signal handler may read it.
    static REFUSED: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator. A program makes it its `#[global_allocator]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct NotingAllocator;

/// Bytes of the newest request of any thread that the system refused; 0 if it refused none.
static NEWEST: AtomicUsize = AtomicUsize::new(0);

/// Bytes of address space without which an abort is one for want of memory.
#[cfg(unix)]
const LEAST: usize = 1 << 20;

/// What the system refused at last: this thread, in which the program aborts, or else another one. The C library aborts
/// when it gets no memory itself, which no allocator sees: then it is what a thread needs, if there is no room for that.
#[cfg(unix)]
pub(super) fn refused() -> Option<OutOfMemory> {
    let noted = [REFUSED.get(), NEWEST.load(Ordering::Relaxed)].into_iter().find(|bytes| *bytes > 0);
    noted.or_else(|| has_no_room().then_some(LEAST)).map(OutOfMemory)
}

/// Whether the system has no address space left for anything.
#[cfg(unix)]
#[allow(unsafe_code, reason = "the system's interface is unsafe, see below")]
fn has_no_room() -> bool {
    // SAFETY: a new mapping that nothing refers to touches no memory in use.
    let room = unsafe {
        libc::mmap(std::ptr::null_mut(), LEAST, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    };
    room == libc::MAP_FAILED
}

fn noted(memory: *mut u8, bytes: usize) -> *mut u8 {
    if memory.is_null() {
        REFUSED.set(bytes);
        NEWEST.store(bytes, Ordering::Relaxed);
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
