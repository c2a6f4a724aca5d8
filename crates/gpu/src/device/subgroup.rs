//! How many neighbouring invocations of a workgroup can add their sums by shuffles.
//!
//! A driver tells how narrow its subgroups may be, but not that neighbours share one. So a kernel tries, and what it
//! finds decides: no width is assumed, and where shuffles do something else the kernels do without.

/// Steps of the tree that shuffles may take.
const STEPS: [usize; 4] = [1, 2, 4, 8];

/// Neighbours that can add by shuffles, a power of two up to 16; 1 if there are none. `narrowest` is the narrowest
/// subgroup that the driver reports.
pub(crate) fn measured(device: &wgpu::Device, queue: &wgpu::Queue, narrowest: u32) -> u32 {
    let scope = device.push_error_scope(wgpu::ErrorFilter::Validation);
    let found = shuffled(device, queue);
    let failed = pollster::block_on(scope.pop()).is_some();
    if failed { 1 } else { found.map_or(1, |found| joined(&found, narrowest)) }
}

/// The most neighbours, in groups aligned to their number, among which every shuffle found the right one.
fn joined(found: &[u32], narrowest: u32) -> u32 {
    let allowed = if narrowest < 2 { 1 } else { 1 << narrowest.min(16).ilog2() };
    let is_right = |step: usize, width: usize| {
        let inside = |t: usize| t % width + step < width;
        (0..found.len() / STEPS.len())
            .filter(|t| inside(*t))
            .all(|t| found[t * STEPS.len() + step.ilog2() as usize] as usize == t + step)
    };
    let works = |width: usize| STEPS.iter().filter(|step| **step < width).all(|step| is_right(*step, width));
    [16, 8, 4, 2].into_iter().filter(|width| *width <= allowed).find(|width| works(*width as usize)).unwrap_or(1)
}

fn shuffled(device: &wgpu::Device, queue: &wgpu::Queue) -> Option<Vec<u32>> {
    let bytes = 64 * size_of::<[u32; 4]>() as u64;
    let buffer = |usage| {
        device.create_buffer(&wgpu::BufferDescriptor { label: None, size: bytes, usage, mapped_at_creation: false })
    };
    let found = buffer(wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC);
    let readable = buffer(wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST);
    let source = wgpu::ShaderSource::Wgsl(include_str!("subgroup.wgsl").into());
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor { label: None, source });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: None,
        layout: None,
        module: &module,
        entry_point: Some("main"),
        cache: None,
        compilation_options: wgpu::PipelineCompilationOptions::default(),
    });
    let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &pipeline.get_bind_group_layout(0),
        entries: &[wgpu::BindGroupEntry { binding: 0, resource: found.as_entire_binding() }],
    });
    let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
    pass.set_pipeline(&pipeline);
    pass.set_bind_group(0, &group, &[]);
    pass.dispatch_workgroups(1, 1, 1);
    drop(pass);
    encoder.copy_buffer_to_buffer(&found, 0, &readable, 0, bytes);
    queue.submit([encoder.finish()]);
    readable.slice(..).map_async(wgpu::MapMode::Read, |_| ()); // a failure leaves nothing to read
    device.poll(wgpu::PollType::wait_indefinitely()).ok()?;
    let view = readable.slice(..).get_mapped_range().ok()?;
    Some(view.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What subgroups of so many neighbours find; a shuffle from outside finds 7.
    fn of_width(width: usize) -> Vec<u32> {
        let shuffle = |t: usize, step: usize| if t % width + step < width { (t + step) as u32 } else { 7 };
        (0..64).flat_map(|t| STEPS.map(|step| shuffle(t, step))).collect()
    }

    #[test]
    fn as_many_neighbours_are_joined_as_share_a_subgroup() {
        for (width, joins) in [(1, 1), (2, 2), (8, 8), (16, 16), (32, 16), (64, 16)] {
            assert_eq!(joined(&of_width(width), 128), joins, "{width} wide");
        }
        // the driver may compile another kernel for narrower ones
        assert_eq!(joined(&of_width(32), 8), 8);
        // neighbours in other subgroups
        let mut odd = of_width(32);
        odd[4 * 8] = 3;
        assert_eq!(joined(&odd, 32), 1);
        assert_eq!(joined(&[], 0), 1);
    }
}
