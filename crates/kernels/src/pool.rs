//! Threads that share short pieces of work, many thousand times a second.
//!
//! One region of work is open at a time. Its caller works too, and takes items until none are left; a worker joins when
//! it notices the region, so the caller waits for a preempted worker only if that worker is inside an item. Between
//! regions workers prefetch the next weights ([`Walk`]), spin for some tenths of a millisecond, then park. Every thread
//! has a [`Span`] of adjacent items, so that in the next region it works near what it wrote in this one; when its span
//! is empty it takes half of another's. Which thread does which item is not determined: results must not depend on it.

use std::{
    cell::UnsafeCell,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
};

use crate::{
    prefetch::{Next, Walk},
    span::{self, Span},
};

/// Checks of the state before a worker parks: some tenths of a millisecond, so that it stays awake while the caller
/// samples and sends events between two passes. Waking a worker takes as long as several regions.
const SPINS_BEFORE_PARKING: u32 = 20_000;

/// Checks of the state before a waiting caller yields its core.
const SPINS_BEFORE_YIELDING: u32 = 2_000;

/// A region is open. Lower bits count the workers in it, higher bits number regions.
const OPEN: u64 = 1 << 31;
const ACTIVE: u64 = OPEN - 1;
const REGION: u64 = 1 << 32;

/// Threads; dropping it ends them.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Most threads that work in a region, set by [`Pool::limit`].
    most: AtomicUsize,
}

#[derive(Debug)]
struct Shared {
    /// What workers watch while they wait: the state, and the job with it.
    region: Line<Region>,
    /// Each thread's items, the caller's first.
    spans: Box<[Line<Span>]>,
    /// A caller uses the pool; a second caller works alone.
    taken: AtomicBool,
    /// The argument of the last [`Pool::soon`].
    soon: Mutex<Next>,
    parked: Box<[AtomicBool]>,
    stop: AtomicBool,
    panicked: AtomicBool,
}

#[derive(Debug)]
struct Region {
    /// Region number, [`OPEN`], and how many workers are in the region.
    state: AtomicU64,
    job: UnsafeCell<LoadContext>,
}

/// Has its cache lines to itself.
#[derive(Debug)]
#[repr(align(128))]
struct Line<T>(T);

#[derive(Clone, Copy, Debug)]
struct LoadContext {
    /// A `&F` of the caller that opened the region.
    work: *const (),
    call: unsafe fn(*const (), usize),
    /// What the next region reads.
    next: Next,
    /// Threads that work, the caller included: the first ones.
    threads: usize,
}

// SAFETY: `job` is written only while no region is open and no worker is active, and read only by workers that have
// entered an open region; `state` orders the two. It points to a `Sync` value.
unsafe impl Sync for Shared {}
// SAFETY: the pointer in `job` is not used outside a region.
unsafe impl Send for Shared {}

/// # Safety
/// `work` must point to a live `F`.
unsafe fn call<F: Fn(usize)>(work: *const (), item: usize) {
    // SAFETY: promised by the caller.
    unsafe { (*work.cast::<F>())(item) };
}

impl Pool {
    /// A pool of `threads` threads, including the caller.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        let workers = threads.saturating_sub(1);
        let shared = Arc::new(Shared {
            region: Line(Region {
                state: AtomicU64::new(0),
                job: UnsafeCell::new(LoadContext {
                    work: std::ptr::null(),
                    call: call::<fn(usize)>,
                    next: Next::default(),
                    threads: 1,
                }),
            }),
            spans: (0..threads.max(1)).map(|_| Line(Span::default())).collect(),
            taken: AtomicBool::new(false),
            soon: Mutex::default(),
            parked: (0..workers).map(|_| AtomicBool::new(false)).collect(),
            stop: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
        });
        let spawn = |index| {
            let shared = Arc::clone(&shared);
            let name = format!("kernel-{index}");
            thread::Builder::new().name(name).spawn(move || shared.serve(index))
        };
        // If a thread cannot be started, the pool works without it.
        let workers = (0..workers).map_while(|index| spawn(index).ok()).collect();
        Self { shared, workers, most: AtomicUsize::new(usize::MAX) }
    }

    /// Threads that compute, including the caller.
    #[must_use]
    pub fn threads(&self) -> usize {
        (self.workers.len() + 1).min(self.most.load(Ordering::Relaxed))
    }

    /// Lets at most so many threads compute, at least one, from the next region on. The others stay parked.
    pub fn limit(&self, most: usize) {
        self.most.store(most.max(1), Ordering::Relaxed);
    }

    /// Calls `work` once for each of `0..items`, on any thread, and waits.
    pub fn run<F: Fn(usize) + Sync>(&self, items: usize, work: F) {
        let shared = &*self.shared;
        assert!(items <= span::MAX_ITEMS, "{items} items of work");
        let threads = self.threads();
        if items <= 1 || threads == 1 || shared.taken.swap(true, Ordering::Acquire) {
            return (0..items).for_each(work);
        }
        let next = std::mem::take(&mut *shared.soon.lock().unwrap_or_else(PoisonError::into_inner));
        let job = LoadContext { work: std::ptr::from_ref(&work).cast(), call: call::<F>, next, threads };
        // SAFETY: we hold `taken`, the last region is closed and its workers have left.
        unsafe { *shared.region.0.job.get() = job };
        // a thread beyond the limit has nothing to do
        let share = |thread: usize| thread.min(threads) * items / threads;
        for (thread, span) in shared.spans.iter().enumerate() {
            span.0.set(&(share(thread)..share(thread + 1)));
        }
        // SeqCst, as are the worker's steps before parking: one of the two sees the other.
        shared.region.0.state.fetch_add(REGION + OPEN, Ordering::SeqCst);
        self.wake(threads - 1);
        // `work` must outlive every worker's use of it, a panic here notwithstanding.
        let outcome = catch_unwind(AssertUnwindSafe(|| shared.take_items(0, job)));
        shared.close();
        let panicked = shared.panicked.swap(false, Ordering::Relaxed);
        shared.taken.store(false, Ordering::Release);
        if let Err(panic) = outcome {
            resume_unwind(panic);
        }
        assert!(!panicked, "a kernel thread panicked");
    }

    /// A hint: the weights that the region after the next one will read. Threads that wait for that region prefetch the
    /// beginning of their share.
    pub fn soon(&self, weights: &[u8]) {
        *self.shared.soon.lock().unwrap_or_else(PoisonError::into_inner) = Next::new(weights);
    }

    /// Calls `work` once for each item.
    pub fn each<T: Send>(&self, items: &mut [T], work: impl Fn(usize, &mut T) + Sync) {
        self.chunks(items, 1, |index, items| {
            items.iter_mut().for_each(|item| work(index, item));
        });
    }

    /// Calls `work` once for each chunk of `len` items; the last may be shorter.
    pub fn chunks<T: Send>(&self, items: &mut [T], len: usize, work: impl Fn(usize, &mut [T]) + Sync) {
        let total = items.len();
        let base = Base(items.as_mut_ptr());
        self.run(total.div_ceil(len), |index| {
            let base = &base;
            let (start, end) = (index * len, total.min((index + 1) * len));
            // SAFETY: `run` hands out each index once, so chunks never overlap; `items` is borrowed
            // for the whole call, and `T: Send` lets another thread write it.
            work(index, unsafe { std::slice::from_raw_parts_mut(base.0.add(start), end - start) });
        });
    }

    /// Calls `work` once for each chunk of `len` items, and `finish` once for each group of adjacent chunks when all of
    /// them are done, on the thread that did the last one: one region instead of two. There are as many groups as
    /// chunks of `each` in `ends`; `finish` gets the group's own chunk.
    ///
    /// # Panics
    /// If `items` or `ends` is not a whole number of chunks.
    pub fn chunks_then<T: Send, U: Send>(
        &self,
        (items, len): (&mut [T], usize),
        (ends, each): (&mut [U], usize),
        work: impl Fn(usize, &mut [T]) + Sync,
        finish: impl Fn(usize, &mut [T], &mut [U]) + Sync,
    ) {
        let groups = ends.len() / each;
        let group = items.len() / len / groups.max(1);
        assert!(items.len() == len * group * groups && ends.len() == each * groups, "chunks that do not come out even");
        let left: Vec<_> = (0..if group > 1 { groups } else { 0 }).map(|_| AtomicUsize::new(group)).collect();
        let (items, ends) = (Base(items.as_mut_ptr()), Base(ends.as_mut_ptr()));
        self.run(group * groups, |index| {
            let (items, ends, own) = (&items, &ends, index / group);
            // SAFETY: `run` hands out each index once, so chunks never overlap; `items` is borrowed for the whole call,
            // and `T: Send` lets another thread write it.
            work(index, unsafe { std::slice::from_raw_parts_mut(items.0.add(index * len), len) });
            if left.get(own).is_some_and(|left| left.fetch_sub(1, Ordering::AcqRel) > 1) {
                return;
            }
            // SAFETY: every other chunk of the group was finished before it was counted, and its index is not handed
            // out again: from here on only this thread uses the group and its part of `ends`.
            let (items, ends) = unsafe {
                let items = std::slice::from_raw_parts_mut(items.0.add(own * group * len), group * len);
                (items, std::slice::from_raw_parts_mut(ends.0.add(own * each), each))
            };
            finish(own, items, ends);
        });
    }

    fn wake(&self, workers: usize) {
        for (worker, parked) in self.workers.iter().zip(&self.shared.parked).take(workers) {
            if parked.load(Ordering::SeqCst) {
                worker.thread().unpark();
            }
        }
    }
}

/// Start of a slice that threads divide between them.
struct Base<T>(*mut T);

// SAFETY: see `Pool::chunks` and `Pool::chunks_then`, its only users.
unsafe impl<T: Send> Sync for Base<T> {}

impl Shared {
    /// Does the items of the thread's own span, then shares of the others'.
    fn take_items(&self, thread: usize, job: LoadContext) {
        let own = &self.spans[thread].0;
        let others = || self.spans[thread + 1..].iter().chain(&self.spans[..thread]);
        loop {
            while let Some(item) = own.take() {
                // SAFETY: the region is open or its caller waits for us, so the work lives.
                unsafe { (job.call)(job.work, item) };
            }
            match others().find_map(|span| span.0.steal()) {
                Some(items) => own.set(&items),
                None => return,
            }
        }
    }

    /// Closes the region to further workers and waits for those inside.
    fn close(&self) {
        let mut state = self.region.0.state.fetch_and(!OPEN, Ordering::AcqRel);
        let mut spins = 0;
        while state & ACTIVE != 0 {
            spins += 1;
            if spins < SPINS_BEFORE_YIELDING {
                std::hint::spin_loop();
            } else {
                thread::yield_now();
            }
            state = self.region.0.state.load(Ordering::Acquire);
        }
    }

    /// A worker's loop.
    fn serve(&self, index: usize) {
        let mut seen = 0;
        let mut walk = Walk::default();
        while let Some(region) = self.next_region(index, seen, &mut walk) {
            seen = region;
            // SAFETY: we are counted as active in an open region, so the job is complete and stays.
            let job = unsafe { *self.region.0.job.get() };
            walk = Walk::default();
            if index + 1 < job.threads {
                if catch_unwind(AssertUnwindSafe(|| self.take_items(index + 1, job))).is_err() {
                    self.panicked.store(true, Ordering::Relaxed);
                }
                walk = Walk::new(job.next, index + 1, job.threads);
            }
            self.region.0.state.fetch_sub(1, Ordering::Release);
        }
    }

    /// Enters the next open region after `seen`; none when the pool ends.
    fn next_region(&self, index: usize, seen: u64, walk: &mut Walk) -> Option<u64> {
        let mut spins = 0;
        loop {
            let state = self.region.0.state.load(Ordering::Acquire);
            if state & OPEN != 0 && state / REGION != seen {
                let entered =
                    self.region.0.state.compare_exchange(state, state + 1, Ordering::AcqRel, Ordering::Relaxed);
                if entered.is_ok() {
                    return Some(state / REGION);
                }
                continue;
            }
            if self.stop.load(Ordering::Relaxed) {
                return None;
            }
            if walk.step() {
                continue;
            }
            spins += 1;
            if spins < SPINS_BEFORE_PARKING {
                std::hint::spin_loop();
            } else {
                self.park(index, state);
                spins = 0;
            }
        }
    }

    /// Sleeps unless the state has changed since it was read.
    fn park(&self, index: usize, state: u64) {
        self.parked[index].store(true, Ordering::SeqCst);
        if self.region.0.state.load(Ordering::SeqCst) == state && !self.stop.load(Ordering::SeqCst) {
            thread::park();
        }
        self.parked[index].store(false, Ordering::Relaxed);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // A worker only ends with the pool; its panics were reported to a caller.
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limited_pool_does_every_item_once() {
        let pool = Pool::new(4);
        for most in [1, 3, 2, 0, 9] {
            pool.limit(most);
            assert_eq!(pool.threads(), most.clamp(1, 4));
            for len in [1, 2, 7, 100] {
                let mut items = vec![0; len];
                pool.each(&mut items, |_, item| *item += 1);
                assert!(items.iter().all(|item| *item == 1), "{most} threads, {len} items");
            }
        }
    }

    #[test]
    fn every_item_is_done_once_whatever_the_threads() {
        for threads in 1..=4 {
            let pool = Pool::new(threads);
            for len in [0, 1, 2, 7, 64, 1000] {
                for chunk in [1, 3, 16] {
                    let mut items = vec![0u32; len];
                    pool.chunks(&mut items, chunk, |_, items| {
                        items.iter_mut().for_each(|item| *item += 1);
                    });
                    assert!(items.iter().all(|&item| item == 1), "{threads} threads, {len} by {chunk}");
                }
            }
        }
    }

    #[test]
    fn a_group_is_finished_once_behind_all_of_its_chunks() {
        for threads in 1..=4 {
            let pool = Pool::new(threads);
            for (groups, group, len, each) in [(6, 1, 3, 2), (6, 4, 3, 2), (1, 50, 1, 5), (40, 7, 2, 1), (0, 3, 2, 1)] {
                let (mut items, mut ends) = (vec![0usize; groups * group * len], vec![0usize; groups * each]);
                let work = |index: usize, items: &mut [usize]| items.fill(index + 1);
                pool.chunks_then((&mut items, len), (&mut ends, each), work, |own, items, ends| {
                    assert!(items.iter().enumerate().all(|(i, &item)| item == own * group + i / len + 1));
                    ends.iter_mut().for_each(|end| *end += items.iter().sum::<usize>());
                });
                let sum = |own: usize| (own * group + 1..=(own + 1) * group).sum::<usize>() * len;
                assert!(
                    ends.iter().enumerate().all(|(i, &end)| end == sum(i / each)),
                    "{threads} threads, {group} a group"
                );
            }
        }
    }

    #[test]
    fn regions_after_a_pause_find_parked_workers() {
        let pool = Pool::new(3);
        for round in 0..50 {
            if round % 10 == 0 {
                thread::sleep(std::time::Duration::from_millis(2));
            }
            let mut items = [0usize; 100];
            pool.each(&mut items, |index, item| *item = index);
            assert!(items.iter().enumerate().all(|(index, &item)| index == item));
        }
    }

    #[test]
    fn a_region_inside_a_region_is_done_by_its_caller() {
        let pool = Pool::new(2);
        let mut sums = [0usize; 8];
        pool.each(&mut sums, |_, sum| {
            let mut inner = [1usize; 10];
            pool.each(&mut inner, |index, item| *item += index);
            *sum = inner.iter().sum();
        });
        assert_eq!(sums, [55; 8]);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_leaves_the_pool_usable() {
        let pool = Pool::new(2);
        let outcome = catch_unwind(AssertUnwindSafe(|| pool.run(100, |item| assert!(item != 57, "boom"))));
        assert!(outcome.is_err());
        let mut items = [0u8; 32];
        pool.each(&mut items, |_, item| *item = 1);
        assert_eq!(items, [1; 32]);
    }
}
