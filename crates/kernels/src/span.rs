//! Items of work that one thread takes one by one; another thread takes half of them when it has none left.
//!
//! Halves, because a thread that changes a span takes its cache line from the owner, which costs as much as a small
//! item: with halves that happens a few times per region, not once per item. Invariant: between two calls of
//! [`Span::set`] each item is handed out once.

use std::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
};

/// End in the upper 32 bits, next item in the lower 32.
#[derive(Debug, Default)]
pub(crate) struct Span(AtomicU64);

/// Most items that a span can number, so that its owner's attempts after the end stay below 2³².
pub(crate) const MAX_ITEMS: usize = 1 << 31;

fn pack(items: &Range<usize>) -> u64 {
    (items.end as u64) << 32 | items.start as u64
}

/// Items not handed out; 0 if the owner has tried to take one after the end.
fn unpack(packed: u64) -> Range<usize> {
    (packed as u32) as usize..(packed >> 32) as usize
}

impl Span {
    /// Sets the items. All earlier items must have been handed out. Only the owner may call it, or a thread that knows
    /// that no other thread uses the span.
    pub(crate) fn set(&self, items: &Range<usize>) {
        self.0.store(pack(items), Ordering::Relaxed);
    }

    /// The owner's next item.
    pub(crate) fn take(&self) -> Option<usize> {
        let items = unpack(self.0.fetch_add(1, Ordering::Relaxed));
        (!items.is_empty()).then_some(items.start)
    }

    /// The second half of what is left (the larger one), for another thread.
    pub(crate) fn steal(&self) -> Option<Range<usize>> {
        let mut packed = self.0.load(Ordering::Relaxed);
        loop {
            let items = unpack(packed);
            if items.is_empty() {
                return None;
            }
            let middle = items.start + items.len() / 2;
            let left = pack(&(items.start..middle));
            match self.0.compare_exchange_weak(packed, left, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(middle..items.end),
                Err(now) => packed = now,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_and_thief_share_and_end() {
        let span = Span::default();
        assert_eq!((span.take(), span.steal()), (None, None));
        span.set(&(10..15));
        assert_eq!(span.take(), Some(10));
        assert_eq!(span.steal(), Some(13..15));
        assert_eq!(span.take(), Some(11));
        assert_eq!(span.steal(), Some(12..13), "the last one too");
        assert_eq!((span.take(), span.take(), span.steal()), (None, None, None));
        span.set(&(0..1));
        assert_eq!((span.take(), span.steal()), (Some(0), None));
    }

    #[test]
    fn threads_that_take_and_steal_at_once_get_each_item_once() {
        let items = 200_000;
        let span = Span::default();
        span.set(&(0..items));
        let counts: Vec<AtomicU64> = (0..items).map(|_| AtomicU64::new(0)).collect();
        let count = |item: usize| {
            counts[item].fetch_add(1, Ordering::Relaxed);
        };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while let Some(stolen) = span.steal() {
                        stolen.for_each(count);
                    }
                });
            }
            while let Some(item) = span.take() {
                count(item);
            }
        });
        assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1));
    }
}
