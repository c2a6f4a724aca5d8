//! The threads on which candle computes.

use rayon::ThreadPoolBuilder;

/// Starts candle's threads. By itself candle starts them at its first product, and panics if the system refuses one; here
/// the calling thread computes alone if so.
pub(crate) fn start() {
    // an error that says nothing of a cause: they have been started before
    if ThreadPoolBuilder::new().build_global().is_err_and(|error| std::error::Error::source(&error).is_some()) {
        let _ = ThreadPoolBuilder::new().num_threads(1).use_current_thread().build_global();
    }
}
