//! What passes do on a device other than the processor: submissions, launches, bytes read back, and time there.

use serde::{Deserialize, Serialize};

/// Work of one or more passes on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DeviceWork {
    /// Submissions to the driver; the program waits for the end of each.
    pub submissions: u64,
    /// Kernels launched.
    pub launches: u64,
    /// Bytes copied to the program, hidden states included.
    pub read_bytes: u64,
    /// Of these, bytes of hidden states.
    pub state_bytes: u64,
    /// Time on the device in nanoseconds, from the start of a submission's first launch to the end of its last; 0 where the
    /// device notes no times.
    pub nanoseconds: u64,
}

/// What the launches of one kernel take in a pass on a device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelTime {
    /// What it computes; of a product with a matrix, type, outputs × inputs too.
    pub kernel: String,
    /// Launches in a pass.
    pub launches: usize,
    /// Time of all of them in microseconds: the median of a few passes, each launch begun and ended for itself.
    pub median_us: f64,
}

impl DeviceWork {
    /// What was done since `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        self.with(before, u64::saturating_sub)
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    fn with(self, other: Self, each: fn(u64, u64) -> u64) -> Self {
        Self {
            submissions: each(self.submissions, other.submissions),
            launches: each(self.launches, other.launches),
            read_bytes: each(self.read_bytes, other.read_bytes),
            state_bytes: each(self.state_bytes, other.state_bytes),
            nanoseconds: each(self.nanoseconds, other.nanoseconds),
        }
    }
}

/// What a round did on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RoundOnDevice {
    /// The drafter's passes.
    pub draft: DeviceWork,
    /// The target's pass.
    pub verify: DeviceWork,
}

impl RoundOnDevice {
    /// All of it.
    #[must_use]
    pub fn total(self) -> DeviceWork {
        self.draft.and(self.verify)
    }
}

/// The device that computes, where it is a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GpuInfo {
    /// Name that its driver gives it.
    pub adapter: String,
    /// `vulkan`, `metal` or `dx12`.
    pub api: String,
    /// What kind of device it is, e.g. `discrete GPU`.
    pub kind: String,
    /// Its driver and the driver's version.
    pub driver: String,
    /// Bytes of all its buffers when the models were loaded: weights, caches and what passes need. 0 where its API does not
    /// report them.
    pub memory_bytes: u64,
    /// Whether it notes times, so that those of [`DeviceWork`] are known.
    pub notes_times: bool,
    /// Bytes that it reads from its memory in a second, by a kernel that only reads, measured when the models were loaded. 0
    /// where it was not.
    #[serde(default)]
    #[cfg_attr(test, schemars(transform = super::schema::added_later))]
    pub read_bytes_per_second: u64,
    /// Bytes of weights that a pass over one row reads; 0 if not known.
    #[serde(default)]
    #[cfg_attr(test, schemars(transform = super::schema::added_later))]
    pub pass_bytes: u64,
    /// Why drafts are verified one by one; none if the self-test found that rows run together have the bits of rows run
    /// alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row_by_row: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_adds_up() {
        let some = DeviceWork { submissions: 1, launches: 9, read_bytes: 64, state_bytes: 4, nanoseconds: 5 };
        let both = some.and(some);
        assert_eq!((both.launches, both.since(some)), (18, some));
        assert_eq!(RoundOnDevice { draft: some, verify: some }.total(), both);
        assert_eq!(some.since(both), DeviceWork::default(), "never below 0");
    }
}
