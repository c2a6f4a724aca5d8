//! An open device: buffers, pipelines, uploads and reading back.
//!
//! The driver reports errors some time after a call, so they are collected, and [`Gpu::check`] returns the first.
//! Pipelines are compiled at their first use. Invariant: after loading, a pass creates no buffer.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use wgpu::util::DeviceExt;

use super::adapter::{Adapter, AdapterInfo};
use super::open_device::OpenDevice;
use super::subgroup;
use super::work::{Counts, Work};
use crate::GpuError;
use crate::kernels::{Dims, Kernel, SLOT_BYTES, Variant, layout};

/// An open device.
#[derive(Debug)]
pub struct Gpu {
    device: wgpu::Device,
    queue: wgpu::Queue,
    info: AdapterInfo,
    /// Neighbours that add by shuffles.
    subgroup: u32,
    layouts: Vec<wgpu::BindGroupLayout>,
    pipelines: Mutex<HashMap<Variant, Arc<wgpu::ComputePipeline>>>,
    failure: Arc<Mutex<Option<GpuError>>>,
    counts: Counts,
    part_bytes: u64,
    /// Dropped last.
    _open: OpenDevice,
}

/// Longest time from the end of all submissions until it is reported that a buffer can be read.
const REPORTED: Duration = Duration::from_secs(10);

impl Gpu {
    /// Opens an adapter.
    ///
    /// # Errors
    /// [`GpuError::Unsuitable`] if it lacks what kernels need, [`GpuError::Failed`] if the driver does not open it.
    pub fn open(adapter: &Adapter) -> Result<Arc<Self>, GpuError> {
        let info = adapter.info.clone();
        if let Some(lacks) = info.lacks.clone() {
            return Err(GpuError::Unsuitable { name: info.name, lacks });
        }
        let wanted = wgpu::Features::SUBGROUP | wgpu::Features::TIMESTAMP_QUERY;
        let has = adapter.adapter.features() & wanted;
        let descriptor = wgpu::DeviceDescriptor {
            required_limits: adapter.adapter.limits(),
            required_features: has,
            ..Default::default()
        };
        let opened = pollster::block_on(adapter.adapter.request_device(&descriptor));
        let (device, queue) = opened.map_err(|error| GpuError::Failed(one_line(&error)))?;
        let failure = Arc::new(Mutex::new(None));
        let of_errors = Arc::clone(&failure);
        device.on_uncaptured_error(Arc::new(move |error| {
            note(
                &of_errors,
                match error {
                    wgpu::Error::OutOfMemory { source } => GpuError::OutOfMemory(one_line(&source)),
                    error => GpuError::Failed(one_line(&error)),
                },
            );
        }));
        let of_loss = Arc::clone(&failure);
        device.set_device_lost_callback(move |reason, message| {
            if reason != wgpu::DeviceLostReason::Destroyed {
                note(&of_loss, GpuError::Failed(one_line(&message)));
            }
        });
        let subgroup = if !has.contains(wgpu::Features::SUBGROUP) {
            1
        } else {
            subgroup::measured(&device, &queue, info.subgroups.0)
        };
        let layouts = Kernel::LAYOUTS.iter().map(|kernel| layout(&device, *kernel)).collect();
        let (pipelines, counts, part_bytes) = (Mutex::default(), Counts::default(), info.max_binding);
        let _open = OpenDevice::new();
        Ok(Arc::new(Self { device, queue, info, subgroup, layouts, pipelines, failure, counts, part_bytes, _open }))
    }

    /// Its adapter.
    #[must_use]
    pub fn info(&self) -> &AdapterInfo {
        &self.info
    }

    /// Work so far.
    #[must_use]
    pub fn work(&self) -> Work {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Work {
            buffers: get(&self.counts.buffers),
            buffer_bytes: get(&self.counts.buffer_bytes),
            submissions: get(&self.counts.submissions),
            dispatches: get(&self.counts.dispatches),
            read_bytes: get(&self.counts.read_bytes),
            state_bytes: get(&self.counts.state_bytes),
            device_ns: get(&self.counts.device_ns),
        }
    }

    /// Bytes of device memory that buffers take now; `None` where the API does not report them.
    #[must_use]
    pub fn memory_in_use(&self) -> Option<u64> {
        Some(self.device.generate_allocator_report()?.total_allocated_bytes)
    }

    /// The first error that the driver reported.
    ///
    /// # Errors
    /// That error.
    pub fn check(&self) -> Result<(), GpuError> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone().map_or(Ok(()), Err)
    }

    fn count_buffer(&self, bytes: u64) {
        self.counts.buffers.fetch_add(1, Ordering::Relaxed);
        self.counts.buffer_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A buffer of zeros for kernels, copies and uploads, of at least 16 bytes.
    #[must_use]
    pub fn storage(&self, bytes: usize) -> wgpu::Buffer {
        use wgpu::BufferUsages as Usage;
        let size = (bytes as u64).next_multiple_of(16).max(16);
        self.count_buffer(size);
        let usage = Usage::STORAGE | Usage::COPY_DST | Usage::COPY_SRC;
        self.device.create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false })
    }

    /// As `storage`, but where memory does not suffice an error is returned and the device stays usable.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`].
    pub(crate) fn spare_storage(&self, bytes: usize) -> Result<wgpu::Buffer, GpuError> {
        let scope = self.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let buffer = self.storage(bytes);
        match pollster::block_on(scope.pop()) {
            Some(error) => Err(GpuError::OutOfMemory(one_line(&error))),
            None => Ok(buffer),
        }
    }

    /// A buffer with these words or numbers.
    #[must_use]
    pub fn upload<T: bytemuck::Pod>(&self, data: &[T]) -> wgpu::Buffer {
        let buffer = self.storage(size_of_val(data));
        if !data.is_empty() {
            self.queue.write_buffer(&buffer, 0, bytemuck::cast_slice(data));
        }
        buffer
    }

    /// Hands pending uploads to the driver, so that their memory can be freed.
    pub fn flush(&self) {
        self.queue.submit([]);
        let _ = self.device.poll(wgpu::PollType::Poll);
    }

    pub(crate) fn uniform(&self, bytes: u64) -> wgpu::Buffer {
        self.count_buffer(bytes);
        let usage = wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST;
        self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: bytes,
            usage,
            mapped_at_creation: false,
        })
    }

    pub(crate) fn dims(&self, dims: Dims) -> wgpu::Buffer {
        self.count_buffer(48);
        self.device.create_buffer_init(&wgpu::util::BufferInitDescriptor {
            label: None,
            contents: bytemuck::bytes_of(&dims),
            usage: wgpu::BufferUsages::UNIFORM,
        })
    }

    /// A buffer that results are copied to, to be read.
    pub(crate) fn readable(&self, bytes: u64) -> wgpu::Buffer {
        self.count_buffer(bytes);
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: bytes,
            usage,
            mapped_at_creation: false,
        })
    }

    pub(crate) fn write(&self, buffer: &wgpu::Buffer, offset: u64, bytes: &[u8]) {
        self.queue.write_buffer(buffer, offset, bytes);
    }

    pub(crate) fn encoder(&self) -> wgpu::CommandEncoder {
        self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
    }

    /// Submits what no recording of a pass counts.
    pub(crate) fn submit(&self, encoder: wgpu::CommandEncoder) {
        self.submit_recorded(encoder.finish());
        self.count(Work { submissions: 1, ..Work::default() });
    }

    pub(crate) fn submit_recorded(&self, commands: wgpu::CommandBuffer) {
        self.queue.submit([commands]);
    }

    /// Adds what a submission did; its buffers are counted already.
    pub(crate) fn count(&self, work: Work) {
        let add = |count: &AtomicU64, more: u64| count.fetch_add(more, Ordering::Relaxed);
        add(&self.counts.submissions, work.submissions);
        add(&self.counts.dispatches, work.dispatches);
        add(&self.counts.read_bytes, work.read_bytes);
        add(&self.counts.state_bytes, work.state_bytes);
        add(&self.counts.device_ns, work.device_ns);
    }

    /// Where the device can note so many times, and a buffer of so many bytes to copy them from; `None` if it notes none.
    pub(crate) fn time_stamps(&self, count: u32, bytes: u64) -> Option<(wgpu::QuerySet, wgpu::Buffer)> {
        if !self.info.has_timestamps {
            return None;
        }
        let set = self.device.create_query_set(&wgpu::QuerySetDescriptor {
            label: None,
            ty: wgpu::QueryType::Timestamp,
            count,
        });
        self.count_buffer(bytes);
        let resolved = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: bytes,
            usage: wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: false,
        });
        Some((set, resolved))
    }

    /// Nanoseconds of so many ticks of the device's clock.
    pub(crate) fn nanoseconds(&self, ticks: u64) -> u64 {
        (ticks as f64 * f64::from(self.queue.get_timestamp_period())) as u64
    }

    /// Waits for all submissions, and reads the first bytes of a buffer.
    pub(crate) fn read(&self, buffer: &wgpu::Buffer, bytes: u64) -> Result<Vec<u32>, GpuError> {
        self.check()?;
        if bytes == 0 {
            return Ok(Vec::new());
        }
        let slice = buffer.slice(..bytes);
        let (done, mapped) = std::sync::mpsc::channel();
        slice.map_async(wgpu::MapMode::Read, move |result| {
            let _ = done.send(result.is_ok()); // nobody waits for it after an error
        });
        let failed = |error: &dyn std::fmt::Display| GpuError::Failed(one_line(error));
        self.device.poll(wgpu::PollType::wait_indefinitely()).map_err(|error| failed(&error))?;
        self.check()?;
        // another thread that waits for the device may be the one that reports it, a moment later
        if !mapped.recv_timeout(REPORTED).unwrap_or(false) {
            return Err(GpuError::Failed("results cannot be read".to_owned()));
        }
        let view = slice.get_mapped_range().map_err(|error| failed(&error))?;
        let words = view.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
        drop(view);
        buffer.unmap();
        Ok(words)
    }

    /// Binds the buffers of a kernel; `run` contains the slots of passes.
    pub(crate) fn bind(
        &self,
        kernel: Kernel,
        (dims, run): (&wgpu::Buffer, &wgpu::Buffer),
        buffers: &[&wgpu::Buffer],
    ) -> wgpu::BindGroup {
        let run = wgpu::BufferBinding { buffer: run, offset: 0, size: std::num::NonZeroU64::new(SLOT_BYTES) };
        let uniforms = [dims.as_entire_binding(), wgpu::BindingResource::Buffer(run)];
        let storage = buffers.iter().map(|buffer| buffer.as_entire_binding());
        let entries: Vec<_> = (0..)
            .zip(uniforms.into_iter().chain(storage))
            .map(|(binding, resource)| wgpu::BindGroupEntry { binding, resource })
            .collect();
        let layout = &self.layouts[kernel.layout()];
        self.device.create_bind_group(&wgpu::BindGroupDescriptor { label: None, layout, entries: &entries })
    }

    /// Launches a kernel with bound buffers, for the pass in a slot.
    pub(crate) fn dispatch(
        &self,
        pass: &mut wgpu::ComputePass<'_>,
        variant: Variant,
        (group, slot): (&wgpu::BindGroup, usize),
        [x, y, z]: [u32; 3],
    ) {
        pass.set_pipeline(&self.pipeline(variant));
        pass.set_bind_group(0, group, &[(slot as u64 * SLOT_BYTES) as u32]);
        pass.dispatch_workgroups(x, y, z);
    }

    fn pipeline(&self, variant: Variant) -> Arc<wgpu::ComputePipeline> {
        let mut pipelines = self.pipelines.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(pipelines.entry(variant).or_insert_with(|| Arc::new(self.compile(variant, &self.source(variant)))))
    }

    /// A kernel as this device runs it.
    pub(crate) fn source(&self, variant: Variant) -> String {
        variant.source_for(self.subgroup)
    }

    /// Replaces a kernel by other source: tests run wrong kernels.
    #[cfg(test)]
    pub(crate) fn replace(&self, variant: Variant, source: &str) {
        let pipeline = Arc::new(self.compile(variant, source));
        self.pipelines.lock().unwrap_or_else(PoisonError::into_inner).insert(variant, pipeline);
    }

    /// Loses the device, as a crash of its driver does: for tests.
    #[doc(hidden)]
    pub fn lose(&self) {
        self.device.destroy();
    }

    /// Most bytes of a matrix that a kernel sees at once.
    pub(crate) fn part_bytes(&self) -> u64 {
        self.part_bytes
    }

    /// Lowers that: tests cut matrices into parts.
    #[cfg(test)]
    pub(crate) fn limit_parts(&mut self, bytes: u64) {
        self.part_bytes = bytes;
    }

    fn compile(&self, variant: Variant, source: &str) -> wgpu::ComputePipeline {
        let descriptor = wgpu::ShaderModuleDescriptor { label: None, source: wgpu::ShaderSource::Wgsl(source.into()) };
        // wgpu adds a counter to each loop that ends it after 2^64 turns, which keeps compilers from unrolling: it cost a
        // sixth of a pass. Accesses stay checked.
        let checks = wgpu::ShaderRuntimeChecks { force_loop_bounding: false, ..wgpu::ShaderRuntimeChecks::checked() };
        // SAFETY: every loop of every kernel ends: it counts to a bound, up or down, that it does not change.
        #[allow(unsafe_code)]
        let module = unsafe { self.device.create_shader_module_trusted(descriptor, checks) };
        let layout = self.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: &[Some(&self.layouts[variant.kernel.layout()])],
            ..Default::default()
        });
        self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: Some(&layout),
            module: &module,
            entry_point: Some("main"),
            cache: None,
            compilation_options: wgpu::PipelineCompilationOptions {
                constants: &[],
                zero_initialize_workgroup_memory: false,
            },
        })
    }
}

fn note(failure: &Mutex<Option<GpuError>>, error: GpuError) {
    failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
}

fn one_line(error: &dyn std::fmt::Display) -> String {
    let text = error.to_string();
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no reason given");
    line.chars().filter(|c| !c.is_control()).take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::adapter::{LAYER_INPUT_BUFFERS, STORAGE_BUFFERS, adapters, choose};

    /// A device may allow fewer storage buffers than its adapter.
    #[test]
    fn a_device_that_allows_just_the_buffers_of_usual_kernels_takes_all_layouts() {
        let Ok(adapter) = choose(adapters(), Some("0")) else {
            assert!(std::env::var("DRAFTSCOPE_GPU_TESTS").is_err(), "DRAFTSCOPE_GPU_TESTS is set and no adapter found");
            println!("not run: no adapter");
            return;
        };
        for max_storage_buffers_per_shader_stage in [STORAGE_BUFFERS, LAYER_INPUT_BUFFERS] {
            let required_limits = wgpu::Limits { max_storage_buffers_per_shader_stage, ..adapter.adapter.limits() };
            let descriptor = wgpu::DeviceDescriptor { required_limits, ..Default::default() };
            let (device, _) = pollster::block_on(adapter.adapter.request_device(&descriptor)).unwrap();
            let scope = device.push_error_scope(wgpu::ErrorFilter::Validation);
            Kernel::LAYOUTS.iter().for_each(|kernel| drop(layout(&device, *kernel)));
            let error = pollster::block_on(scope.pop());
            assert!(error.is_none(), "{max_storage_buffers_per_shader_stage}: {error:?}");
        }
    }
}
