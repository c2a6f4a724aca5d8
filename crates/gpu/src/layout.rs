//! What kernels bind: dimensions, the slots of passes, and their buffers.

use crate::kernel::{Access, Kernel};

/// Dimensions of a kernel, as its shader describes them.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, bytemuck::Pod, bytemuck::Zeroable)]
pub(crate) struct Dims {
    pub(crate) a: [u32; 4],
    pub(crate) b: [u32; 4],
    pub(crate) c: [f32; 4],
}

/// Dimensions, slots, then the kernel's buffers. Of a kernel that binds more than the device allows, and so is not compiled
/// there, the first ones: drivers reject a layout with more.
pub(crate) fn layout(device: &wgpu::Device, kernel: Kernel) -> wgpu::BindGroupLayout {
    let uniform = |has_dynamic_offset| wgpu::BindingType::Buffer {
        ty: wgpu::BufferBindingType::Uniform,
        has_dynamic_offset,
        min_binding_size: None,
    };
    let most = device.limits().max_storage_buffers_per_shader_stage as usize;
    let storage = kernel.buffers().iter().take(most).map(|access| wgpu::BindingType::Buffer {
        ty: wgpu::BufferBindingType::Storage { read_only: *access == Access::Read },
        has_dynamic_offset: false,
        min_binding_size: None,
    });
    let entries: Vec<_> = (0..)
        .zip([uniform(false), uniform(true)].into_iter().chain(storage))
        .map(|(binding, ty)| wgpu::BindGroupLayoutEntry {
            binding,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty,
            count: None,
        })
        .collect();
    device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::{LAYER_INPUT_BUFFERS, STORAGE_BUFFERS};
    use crate::{adapters, choose};

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
