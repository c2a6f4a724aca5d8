//! What a thread with nothing to do asks of memory: the weights that it will multiply next.
//!
//! Between two regions of work the threads wait for the last of them, and for the one that prepares the next region;
//! memory rests. A waiting thread uses that to have the beginning of its own share of the next weights brought near, a few
//! cache lines between two looks at whether there is work. Nothing is read: addresses may be anything, and what comes
//! too late is forgotten.

/// Bytes that one thread asks for at most: a fraction of a second-level cache.
const MOST: usize = 256 << 10;

/// Bytes between two looks.
const STRIDE: usize = 4 * LINE;

const LINE: usize = 64;

/// Address and length of what comes next.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Next(usize, usize);

impl Next {
    pub(crate) fn new(weights: &[u8]) -> Self {
        Self(weights.as_ptr().addr(), weights.len())
    }
}

/// The share of one thread, and how far it got.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Walk {
    from: usize,
    len: usize,
    done: usize,
}

impl Walk {
    /// The share that begins where the items of `thread` of `threads` begin.
    pub(crate) fn new(Next(start, len): Next, thread: usize, threads: usize) -> Self {
        Self { from: start.wrapping_add(len / threads * thread), len: (len / threads).min(MOST), done: 0 }
    }

    /// Asks for a little more; whether it did.
    pub(crate) fn step(&mut self) -> bool {
        if self.done >= self.len {
            return false;
        }
        (0..STRIDE).step_by(LINE).for_each(|line| ask(self.from.wrapping_add(self.done + line)));
        self.done += STRIDE;
        true
    }
}

/// Has a cache line brought into the second-level cache, where the processor has a way to ask.
#[inline]
fn ask(address: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: a prefetch reads nothing, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(std::ptr::without_provenance(address)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_walks_over_the_beginning_of_its_own_share() {
        let weights = vec![0u8; 8000];
        let next = Next::new(&weights);
        let mut walk = Walk::new(next, 3, 4);
        assert_eq!(walk.from, weights.as_ptr().addr() + 6000);
        let steps = std::iter::from_fn(|| walk.step().then_some(())).count();
        assert_eq!(steps, 2000usize.div_ceil(STRIDE));
        assert!(!Walk::new(Next::default(), 1, 2).step());
    }

    #[test]
    fn large_weights_are_asked_for_only_as_far_as_caches_reach() {
        let mut walk = Walk::new(Next(1 << 30, 1 << 40), 1, 2);
        let steps = std::iter::from_fn(|| walk.step().then_some(())).count();
        assert_eq!(steps * STRIDE, MOST);
    }
}
