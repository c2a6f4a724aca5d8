//! How fast a device reads its own memory, measured: what the rate of a pass is compared with.

use std::time::Instant;

use crate::GpuError;
use crate::device::{AdapterKind, Gpu};
use crate::kernels::{PassRows, SLOT_BYTES};
use crate::launches::Binder;
use crate::passes::{Readback, Recording};

/// Bytes that are read, if one kernel can see so many: more than the caches of most devices.
const BYTES: u64 = 256 << 20;

/// The same where the CPU computes.
const SOFTWARE_BYTES: u64 = 32 << 20;

/// Workgroups, of 256 threads each.
const WORKGROUPS: u32 = 2048;

/// Readings; the first is a warm-up.
const TURNS: usize = 6;

impl Gpu {
    /// Bytes that the device reads from its memory in a second: the median of a few launches of a kernel that reads a
    /// buffer once and does nothing else. Times are the device's own where it notes them, else those of the host.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`], after which the device still works, or what the driver reports.
    pub fn read_rate(&self) -> Result<f64, GpuError> {
        let wanted = if self.info().kind == AdapterKind::Software { SOFTWARE_BYTES } else { BYTES };
        let bytes = wanted.min(self.info().max_binding) / 16 * 16;
        let memory = self.spare_storage(bytes as usize)?;
        let sums = self.storage(4 * 256 * WORKGROUPS as usize);
        let run = self.uniform(SLOT_BYTES);
        let pass = PassRows::chain(0, 1);
        self.write(&run, 0, bytemuck::cast_slice(&pass.words(0)));
        let op = Binder { gpu: self, run: &run }.stream(&memory, bytes as usize, (WORKGROUPS, &sums));
        let back = Readback::new(self, 16);
        let mut rates = Vec::new();
        for turn in 0..TURNS {
            let mut recording = Recording::new(self, &back);
            recording.launch([&op], (&pass, 0));
            recording.read(&sums, 0, 16);
            let started = Instant::now();
            let (_, work) = recording.finish()?;
            let host = started.elapsed().as_secs_f64();
            let seconds = if work.device_ns > 0 { work.device_ns as f64 / 1e9 } else { host };
            if turn > 0 {
                rates.push(bytes as f64 / seconds.max(1e-9));
            }
        }
        rates.sort_unstable_by(f64::total_cmp);
        Ok(rates[rates.len() / 2])
    }
}
