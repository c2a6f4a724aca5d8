//! What kernels bind: dimensions, the slots of passes, and their buffers.

use super::kernel::{Access, Kernel};

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
