//! The adapters of this machine, and the choice of one.
//!
//! Invariant: an adapter that computes on the CPU is chosen only by name or number.

use super::quiet;
use crate::GpuError;

/// What computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdapterKind {
    /// A GPU with its own memory.
    Discrete,
    /// A GPU that shares the processor's memory.
    Integrated,
    /// A GPU passed to a virtual machine, or of unknown kind.
    Other,
    /// The CPU.
    Software,
}

impl AdapterKind {
    /// As shown to the user.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Discrete => "discrete GPU",
            Self::Integrated => "integrated GPU",
            Self::Other => "GPU",
            Self::Software => "software on the CPU",
        }
    }
}

/// An adapter, described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdapterInfo {
    /// Name that the driver gives it.
    pub name: String,
    /// `vulkan`, `metal` or `dx12`.
    pub api: &'static str,
    /// What computes.
    pub kind: AdapterKind,
    /// Driver and its version.
    pub driver: String,
    /// Largest buffer, in bytes.
    pub max_buffer: u64,
    /// Most bytes of a buffer that a kernel can see at once.
    pub max_binding: u64,
    /// Narrowest and widest subgroup; the kernels assume none.
    pub subgroups: (u32, u32),
    /// Whether it can measure times on the device.
    pub has_timestamps: bool,
    /// Storage buffers that one kernel may bind.
    pub storage_buffers: u32,
    /// What it lacks to run the kernels that every model needs.
    pub lacks: Option<String>,
}

/// Storage buffers that a kernel binds at most, but for that of [`LayerInput`](crate::LayerInput).
pub(crate) const STORAGE_BUFFERS: u32 = 10;

/// Storage buffers that the kernel of [`LayerInput`](crate::LayerInput) binds.
pub(crate) const LAYER_INPUT_BUFFERS: u32 = 11;

impl AdapterInfo {
    /// What it lacks to run blocks that add an input for each token.
    #[must_use]
    pub fn lacks_for_layer_inputs(&self) -> Option<String> {
        shortage("storage buffers per kernel", self.storage_buffers, LAYER_INPUT_BUFFERS)
    }
}

/// An adapter and its description.
pub struct Adapter {
    pub(crate) adapter: wgpu::Adapter,
    /// Its description.
    pub info: AdapterInfo,
}

/// All adapters, GPUs first. Loads the drivers; none is linked.
#[must_use]
pub fn adapters() -> Vec<Adapter> {
    let found = quiet::quietly(|| {
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
        let backends = wgpu::Backends::VULKAN | wgpu::Backends::METAL | wgpu::Backends::DX12;
        pollster::block_on(instance.enumerate_adapters(backends))
    });
    let mut all: Vec<_> = found.into_iter().map(|adapter| Adapter { info: describe(&adapter), adapter }).collect();
    all.sort_by_key(|adapter| match adapter.info.kind {
        AdapterKind::Discrete => 0,
        AdapterKind::Integrated => 1,
        AdapterKind::Other => 2,
        AdapterKind::Software => 3,
    });
    all
}

/// The adapter with this number (as listed, from 0) or with a name that contains these letters; `None` takes the
/// [`first_gpu`].
///
/// # Errors
/// [`GpuError::NoAdapter`], [`GpuError::OnlySoftware`] or [`GpuError::UnknownAdapter`].
pub fn choose(mut all: Vec<Adapter>, wanted: Option<&str>) -> Result<Adapter, GpuError> {
    let infos: Vec<&AdapterInfo> = all.iter().map(|adapter| &adapter.info).collect();
    let index = position(&infos, wanted)?;
    Ok(all.swap_remove(index))
}

/// Number of the first GPU that runs the kernels; if none does, of the first GPU. An adapter that computes on the CPU is
/// none.
#[must_use]
pub fn first_gpu(all: &[&AdapterInfo]) -> Option<usize> {
    let is_gpu = |info: &&AdapterInfo| info.kind != AdapterKind::Software;
    let runs = all.iter().position(|info| is_gpu(info) && info.lacks.is_none());
    runs.or_else(|| all.iter().position(is_gpu))
}

fn position(all: &[&AdapterInfo], wanted: Option<&str>) -> Result<usize, GpuError> {
    let first = all.first().ok_or(GpuError::NoAdapter)?;
    let Some(wanted) = wanted else {
        return first_gpu(all).ok_or_else(|| GpuError::OnlySoftware(first.name.clone()));
    };
    let by_number = wanted.parse::<usize>().ok().filter(|number| *number < all.len());
    let letters = wanted.to_lowercase();
    let by_name = || all.iter().position(|info| info.name.to_lowercase().contains(&letters));
    by_number.or_else(by_name).ok_or_else(|| GpuError::UnknownAdapter {
        wanted: wanted.to_owned(),
        there: all.iter().enumerate().map(|(i, info)| format!("{i} {}", info.name)).collect::<Vec<_>>().join(", "),
    })
}

fn describe(adapter: &wgpu::Adapter) -> AdapterInfo {
    let (info, limits) = (adapter.get_info(), adapter.limits());
    let printable = |text: &str| text.chars().filter(|c| !c.is_control()).take(100).collect::<String>();
    AdapterInfo {
        name: printable(&info.name),
        api: match info.backend {
            wgpu::Backend::Vulkan => "vulkan",
            wgpu::Backend::Metal => "metal",
            wgpu::Backend::Dx12 => "dx12",
            _ => "other",
        },
        kind: match info.device_type {
            wgpu::DeviceType::DiscreteGpu => AdapterKind::Discrete,
            wgpu::DeviceType::IntegratedGpu => AdapterKind::Integrated,
            wgpu::DeviceType::Cpu => AdapterKind::Software,
            wgpu::DeviceType::VirtualGpu | wgpu::DeviceType::Other => AdapterKind::Other,
        },
        driver: printable(format!("{} {}", info.driver, info.driver_info).trim()),
        max_buffer: limits.max_buffer_size,
        max_binding: limits.max_storage_buffer_binding_size.min(limits.max_buffer_size),
        subgroups: (info.subgroup_min_size, info.subgroup_max_size),
        has_timestamps: adapter.features().contains(wgpu::Features::TIMESTAMP_QUERY),
        storage_buffers: limits.max_storage_buffers_per_shader_stage,
        lacks: lacks(&limits),
    }
}

/// What the kernels need and these limits do not allow.
fn lacks(limits: &wgpu::Limits) -> Option<String> {
    let needs = [
        ("storage buffers per kernel", limits.max_storage_buffers_per_shader_stage, STORAGE_BUFFERS),
        ("invocations per workgroup", limits.max_compute_invocations_per_workgroup, 256),
        ("bytes of workgroup memory", limits.max_compute_workgroup_storage_size, 16 << 10),
        ("workgroups along one axis", limits.max_compute_workgroups_per_dimension, (1 << 16) - 1),
    ];
    needs.into_iter().find_map(|(what, has, needs)| shortage(what, has, needs))
}

/// Says that more is needed than there is.
fn shortage(what: &str, has: u32, needs: u32) -> Option<String> {
    (has < needs).then(|| format!("it allows {has} {what} and {needs} are needed"))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::Kernel;

    pub(crate) fn info(name: &str, kind: AdapterKind) -> AdapterInfo {
        AdapterInfo {
            name: name.to_owned(),
            api: "vulkan",
            kind,
            driver: String::new(),
            max_buffer: 0,
            max_binding: 0,
            subgroups: (0, 0),
            has_timestamps: false,
            storage_buffers: 16,
            lacks: None,
        }
    }

    #[test]
    fn software_runs_only_if_it_is_named() {
        let (gpu, soft) = (info("GeForce 9", AdapterKind::Discrete), info("llvmpipe", AdapterKind::Software));
        assert_eq!(position(&[], None), Err(GpuError::NoAdapter));
        assert_eq!(position(&[], Some("0")), Err(GpuError::NoAdapter));
        assert_eq!(position(&[&soft], None), Err(GpuError::OnlySoftware("llvmpipe".into())));
        assert_eq!(position(&[&soft, &gpu], None), Ok(1));
        assert_eq!(position(&[&gpu, &soft], Some("1")), Ok(1));
        assert_eq!(position(&[&gpu, &soft], Some("LLVM")), Ok(1));
        // 9 is no number of an adapter, but part of a name
        assert_eq!(position(&[&gpu, &soft], Some("9")), Ok(0));
        let error = position(&[&gpu, &soft], Some("Radeon")).unwrap_err().to_string();
        assert_eq!(error, "no adapter is named 'Radeon'; there are: 0 GeForce 9, 1 llvmpipe");
    }

    #[test]
    fn a_gpu_that_runs_the_kernels_comes_before_one_that_does_not() {
        let lacks = |name| AdapterInfo { lacks: Some("memory".into()), ..info(name, AdapterKind::Discrete) };
        let (old, older) = (lacks("old"), lacks("older"));
        let (new, soft) = (info("new", AdapterKind::Integrated), info("llvmpipe", AdapterKind::Software));
        assert_eq!(position(&[&old, &new, &soft], None), Ok(1));
        assert_eq!(position(&[&old, &older, &soft], None), Ok(0), "its lack is named");
        assert_eq!(first_gpu(&[&soft]), None);
    }

    #[test]
    fn limits_that_do_not_suffice_are_named() {
        let with =
            |buffers| lacks(&wgpu::Limits { max_storage_buffers_per_shader_stage: buffers, ..wgpu::Limits::default() });
        assert_eq!([10, 11, 16].map(with), [None, None, None]);
        assert_eq!(with(8).unwrap(), "it allows 8 storage buffers per kernel and 10 are needed");
        // a model with inputs for each token needs one more
        let gpu = |storage_buffers| AdapterInfo { storage_buffers, ..info("GPU", AdapterKind::Discrete) };
        assert_eq!(gpu(11).lacks_for_layer_inputs(), None);
        let why = gpu(10).lacks_for_layer_inputs().unwrap();
        assert_eq!(why, "it allows 10 storage buffers per kernel and 11 are needed");
    }

    #[test]
    fn buffers_that_are_needed_are_those_that_kernels_bind() {
        let most = |is_of_inputs: bool| {
            let kernels = Kernel::all().into_iter();
            let some = kernels.filter(|kernel| matches!(kernel, Kernel::LayerInput(_)) == is_of_inputs);
            some.map(|kernel| kernel.buffers().len() as u32).max()
        };
        assert_eq!((most(false), most(true)), (Some(STORAGE_BUFFERS), Some(LAYER_INPUT_BUFFERS)));
    }
}
