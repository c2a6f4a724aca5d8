//! How many devices are open: a process ends after all of them are closed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Devices that are open.
static OPEN: AtomicU64 = AtomicU64::new(0);

/// Counts a device until it is closed.
#[derive(Debug)]
pub(crate) struct OpenDevice;

impl OpenDevice {
    pub(crate) fn new() -> Self {
        OPEN.fetch_add(1, Ordering::SeqCst);
        Self
    }
}

impl Drop for OpenDevice {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Waits until every device is closed, for at most `limit`. Drivers have threads and state of their own, which a process
/// must not tear down while another thread still closes a device.
pub fn wait_until_closed(limit: Duration) {
    let start = Instant::now();
    while OPEN.load(Ordering::SeqCst) > 0 && start.elapsed() < limit {
        std::thread::sleep(Duration::from_millis(2));
    }
}
