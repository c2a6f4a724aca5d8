//! An allocation that the system refuses, as a sentence instead of an abort.
//!
//! Weights and caches are by far the largest allocations, and the functions that make them return no `Result`. They
//! unwind with [`OutOfMemory`]; the engine and `main` catch it and report the sentence.

use std::any::Any;
use std::panic::resume_unwind;

/// The system refused memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is not enough memory: the system refuses {} MiB more; close other programs, or choose a smaller model or --ctx",
    .0.div_ceil(1 << 20)
)]
pub struct OutOfMemory(
    /// Bytes requested.
    pub usize,
);

impl OutOfMemory {
    /// The error, if a panic carried it.
    #[must_use]
    pub fn of(panic: &(dyn Any + Send)) -> Option<Self> {
        panic.downcast_ref().copied()
    }

    /// Unwinds to the code that catches the error. No panic hook runs.
    pub fn unwind(self) -> ! {
        resume_unwind(Box::new(self))
    }

    /// An empty list with room for so many values. Unwinds if the system refuses it.
    #[must_use]
    pub fn room_for<T>(values: usize) -> Vec<T> {
        let mut list = Vec::new();
        if list.try_reserve_exact(values).is_err() {
            Self(values.saturating_mul(size_of::<T>())).unwind();
        }
        list
    }

    /// Unwinds if the system refuses this many bytes now.
    pub fn unless_there_are(bytes: usize) {
        if Vec::<u8>::new().try_reserve_exact(bytes).is_err() {
            Self(bytes).unwind();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn what_the_system_refuses_is_one_sentence() {
        assert!(catch_unwind(|| OutOfMemory::unless_there_are(1 << 10)).is_ok());
        let room = catch_unwind(|| OutOfMemory::room_for::<u64>(1 << 57)).unwrap_err();
        assert_eq!(OutOfMemory::of(&*room), Some(OutOfMemory(1 << 60)));
        assert!(OutOfMemory::room_for::<u64>(7).capacity() >= 7);
        let refused = catch_unwind(|| OutOfMemory::unless_there_are(1 << 60)).unwrap_err();
        let error = OutOfMemory::of(&*refused).unwrap();
        assert_eq!(error, OutOfMemory(1 << 60));
        assert!(
            error.to_string().starts_with("there is not enough memory: the system refuses 1099511627776 MiB more;")
        );
    }
}
