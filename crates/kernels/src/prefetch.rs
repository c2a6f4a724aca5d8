//! What a waiting thread prefetches: the weights that it will multiply next.
//!
//! Between two regions threads wait for the last item and for the preparation of the next region, and memory is idle. A
//! waiting thread prefetches the beginning of its own share of the next weights, a few cache lines between two checks
//! for work. It reads nothing: any address is allowed, and a prefetch that comes too late does no harm.

/// Most bytes that one thread prefetches: a fraction of a second-level cache.
const MOST: usize = 256 << 10;

/// Bytes between two checks for work.
const STRIDE: usize = 4 * LINE;

const LINE: usize = 64;

/// Address and length of the next weights.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Next(usize, usize);

impl Next {
    pub(crate) fn new(weights: &[u8]) -> Self {
        Self(weights.as_ptr().addr(), weights.len())
    }
}

/// One thread's share, and how far it got.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Walk {
    from: usize,
    len: usize,
    done: usize,
}

impl Walk {
    /// The share that begins where the items of thread `thread` of `threads` begin.
    pub(crate) fn new(Next(start, len): Next, thread: usize, threads: usize) -> Self {
        Self { from: start.wrapping_add(len / threads * thread), len: (len / threads).min(MOST), done: 0 }
    }

    /// Prefetches a little more; returns whether there was more.
    pub(crate) fn step(&mut self) -> bool {
        if self.done >= self.len {
            return false;
        }
        (0..STRIDE).step_by(LINE).for_each(|line| ask(self.from.wrapping_add(self.done + line)));
        self.done += STRIDE;
        true
    }
}

/// Prefetches a cache line into the second-level cache, where the processor can.
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
