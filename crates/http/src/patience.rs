//! How long a client waits.

use std::time::Duration;

/// The longest wait at each stage.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// From name lookup to an open connection.
    pub connect: Duration,
    /// From a sent request to the first byte of the answer's body. A question without a body waits for a minute at most.
    pub answer: Duration,
    /// Between two later pieces of the answer.
    pub silence: Duration,
}
