//! What a device did: counts.

use std::sync::atomic::AtomicU64;

/// What was done since the device was opened.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) buffers: AtomicU64,
    pub(crate) buffer_bytes: AtomicU64,
    pub(crate) submissions: AtomicU64,
    pub(crate) dispatches: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) state_bytes: AtomicU64,
    pub(crate) device_ns: AtomicU64,
}

/// Work of a device since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Buffers created.
    pub buffers: u64,
    /// Bytes of all buffers created.
    pub buffer_bytes: u64,
    /// Submissions.
    pub submissions: u64,
    /// Kernel launches.
    pub dispatches: u64,
    /// Bytes read back.
    pub read_bytes: u64,
    /// Of these, bytes of hidden states.
    pub state_bytes: u64,
    /// Time of submissions on the device, from the first launch's start to the last one's end, in nanoseconds. 0 where the
    /// device notes no times.
    pub device_ns: u64,
}

impl Work {
    /// What was done since `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            buffers: self.buffers - before.buffers,
            buffer_bytes: self.buffer_bytes - before.buffer_bytes,
            submissions: self.submissions - before.submissions,
            dispatches: self.dispatches - before.dispatches,
            read_bytes: self.read_bytes - before.read_bytes,
            state_bytes: self.state_bytes - before.state_bytes,
            device_ns: self.device_ns - before.device_ns,
        }
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            buffers: self.buffers + other.buffers,
            buffer_bytes: self.buffer_bytes + other.buffer_bytes,
            submissions: self.submissions + other.submissions,
            dispatches: self.dispatches + other.dispatches,
            read_bytes: self.read_bytes + other.read_bytes,
            state_bytes: self.state_bytes + other.state_bytes,
            device_ns: self.device_ns + other.device_ns,
        }
    }
}
