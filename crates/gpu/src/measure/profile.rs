//! Which kernels a pass spends its time in, measured on the device.

use std::collections::BTreeMap;

use crate::GpuError;
use crate::device::Gpu;
use crate::kernels::PassRows;
use crate::launches::Op;
use crate::passes::Sequence;

/// What the launches of one kernel take in a pass.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelTime {
    /// What it computes; of a product, outputs × inputs too.
    pub kernel: String,
    /// Launches in a pass.
    pub launches: usize,
    /// Time of all of them on the device in nanoseconds: the median of a few passes.
    pub ns: f64,
}

/// Passes that are timed; one before them is a warm-up.
const TURNS: usize = 5;

/// Most launches of which a device notes the start and the end.
const MOST_LAUNCHES: usize = 2048;

impl Sequence {
    /// Times every launch of a pass over `m` rows (1 to [`crate::MAX_ROWS`]) at the end of the cache, which stays as it is.
    /// Each launch is begun and ended for itself, so their sum exceeds the time of a pass. Empty where the device notes no
    /// times; launches after the 2048th are not timed. Slowest kernels first.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn kernel_times(&mut self, m: usize) -> Result<Vec<KernelTime>, GpuError> {
        let gpu = &*self.network().gpu;
        let pass = PassRows::chain(self.len(), m);
        self.write_pass(&pass);
        let ops: Vec<&Op> = self.ops().filter(|op| op.workgroups(&pass).is_some()).take(MOST_LAUNCHES).collect();
        let mut times = vec![Vec::new(); ops.len()];
        for turn in 0..=TURNS {
            let Some(turns) = times_of(gpu, &ops, &pass)? else { return Ok(Vec::new()) };
            if turn > 0 {
                times.iter_mut().zip(turns).for_each(|(all, ns)| all.push(ns));
            }
        }
        let mut of_kernels = BTreeMap::<String, KernelTime>::new();
        for (op, times) in ops.iter().zip(&mut times) {
            times.sort_unstable();
            let size = op.size.map_or_else(String::new, |[outputs, inputs]| format!(" {outputs} × {inputs}"));
            let kernel = op.kernel.name() + &size;
            let time = of_kernels.entry(kernel.clone()).or_insert(KernelTime { kernel, launches: 0, ns: 0.0 });
            time.launches += 1;
            time.ns += times[times.len() / 2] as f64;
        }
        let mut of_kernels: Vec<_> = of_kernels.into_values().collect();
        of_kernels.sort_by(|a, b| b.ns.total_cmp(&a.ns));
        Ok(of_kernels)
    }
}

/// Nanoseconds of each launch in one submission; `None` if the device notes no times.
fn times_of(gpu: &Gpu, ops: &[&Op], pass: &PassRows) -> Result<Option<Vec<u64>>, GpuError> {
    let stamps = 2 * ops.len() as u32;
    let bytes = 8 * u64::from(stamps);
    let Some((set, resolved)) = gpu.time_stamps(stamps, bytes) else { return Ok(None) };
    let back = gpu.readable(bytes);
    let mut encoder = gpu.encoder();
    for (index, op) in (0..).zip(ops) {
        let timestamp_writes = Some(wgpu::ComputePassTimestampWrites {
            query_set: &set,
            beginning_of_pass_write_index: Some(2 * index),
            end_of_pass_write_index: Some(2 * index + 1),
        });
        let mut launches = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor { label: None, timestamp_writes });
        op.launch(gpu, &mut launches, (pass, 0));
    }
    encoder.resolve_query_set(&set, 0..stamps, &resolved, 0);
    encoder.copy_buffer_to_buffer(&resolved, 0, &back, 0, bytes);
    gpu.submit(encoder);
    let words = gpu.read(&back, bytes)?;
    let times: Vec<u64> =
        words.as_chunks().0.iter().map(|[low, high]| u64::from(*high) << 32 | u64::from(*low)).collect();
    Ok(Some(times.as_chunks().0.iter().map(|[from, to]| gpu.nanoseconds(to.saturating_sub(*from))).collect()))
}
