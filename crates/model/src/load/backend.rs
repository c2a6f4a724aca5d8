//! Checks the memory of a target on a backend, and loads it there.

#[cfg(feature = "gpu")]
use draftscope_gpu::AdapterKind;

use super::dtype::weight_type;
use super::memory_need;
use super::on_reference::OnReference;
#[cfg(feature = "gpu")]
use crate::gpu;
use crate::interfaces::{self, LoadContext, LoadedTarget, Progress};
use crate::options::{Backend, DeviceChoice, Dtype, LoadOptions, WeightType};
use crate::{ModelError, memory, native};
use draftscope_protocol::MemoryAccount;

/// A target, its memory, and what the user should know about the backend.
pub(super) struct OnBackend {
    pub(super) target: Box<dyn LoadedTarget>,
    pub(super) account: MemoryAccount,
    pub(super) notice: Option<String>,
    pub(super) runs_on: RunsOn,
    /// Bytes of all buffers that were made on a GPU since loading began; `None` on the CPU.
    pub(super) buffers: Option<Buffers>,
}

/// Counts bytes of buffers.
pub(super) type Buffers = Box<dyn Fn() -> u64>;

/// Where a target runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunsOn {
    /// On the CPU: native kernels or candle.
    Cpu,
    /// On the GPU backend.
    #[cfg(feature = "gpu")]
    Gpu,
    /// On a GPU through candle.
    Candle,
}

impl RunsOn {
    /// Whether rows must be compared alone and beside others before drafts are verified together: candle's kernels for GPUs
    /// are chosen by the number of rows.
    pub(super) fn needs_batch_test(self) -> bool {
        self == Self::Candle
    }

    /// The options for a draft model: beside a target on the CPU it runs there, beside one on a GPU where the options say.
    pub(super) fn of_draft_model(self, options: &LoadOptions) -> LoadOptions {
        let device = if self == Self::Cpu { DeviceChoice::Cpu } else { options.device };
        LoadOptions { device, ..options.clone() }
    }
}

/// Loads the target on the CPU, or on candle's device if the options name one.
pub(super) fn load_elsewhere(context: &LoadContext<'_>, progress: &mut Progress<'_>) -> Result<OnBackend, ModelError> {
    let options = context.options;
    if options.backend == Backend::Candle || (options.backend == Backend::Auto && !suits_native(options)) {
        return load_candle(context, progress);
    }
    match load_native(context, progress) {
        // a file that the native kernels do not support still runs on candle, unless native was requested
        Err(ModelError::Unsupported(reason)) if options.backend == Backend::Auto => {
            let loaded = load_candle(context, progress).map_err(|error| match error {
                ModelError::DoesNotFit(figures) => ModelError::DoesNotFit(format!("{figures} ({reason})")),
                error => error,
            });
            let notice = Some(format!("candle runs this target: {}", cause(&reason)));
            loaded.map(|loaded| OnBackend { notice, ..loaded })
        }
        loaded => loaded,
    }
}

/// The cause in an error message: the advice after it was followed.
pub(super) fn cause(message: &str) -> &str {
    message.split_once("; ").map_or(message, |(cause, _)| cause)
}

/// Whether weights run as stored, as native kernels and the GPU backend need it.
fn is_stored(options: &LoadOptions) -> bool {
    matches!(options.dtype, Dtype::Auto | Dtype::Stored | Dtype::Q4_1)
}

/// Whether the GPU backend runs the target with these options.
///
/// # Errors
/// [`ModelError::Unsupported`] with the option or the part of the model that it does not run.
#[cfg(feature = "gpu")]
pub(super) fn check_gpu(context: &LoadContext<'_>) -> Result<(), ModelError> {
    let options = context.options;
    let why = if options.backend != Backend::Auto {
        "--backend is for the CPU; leave it out with --device gpu".to_owned()
    } else if !is_stored(options) {
        "the GPU backend runs weights as stored; leave --dtype out".to_owned()
    } else {
        return gpu::parts::check(context.config.plan());
    };
    Err(ModelError::Unsupported(why))
}

/// Loads a target for the GPU backend on an adapter, or says what runs there.
#[cfg(feature = "gpu")]
pub(super) fn load_gpu(
    context: &LoadContext<'_>,
    adapter: Option<&str>,
    progress: &mut Progress<'_>,
) -> Result<OnBackend, ModelError> {
    check_gpu(context)?;
    let gpu = gpu::device::open(adapter)?;
    // memory of other adapters is checked by allocating it
    let need = memory_need::on_gpu(context);
    if shares_memory(gpu.info().kind) {
        need.check(memory::available())?;
    }
    let made = |gpu: &draftscope_gpu::Gpu| gpu.work().buffer_bytes;
    let (counted, before) = (std::sync::Arc::clone(&gpu), made(&gpu));
    let buffers: Buffers = Box::new(move || made(&counted) - before);
    let (source, plan) = (context.source, context.config.plan());
    let mut on_layer = |done: usize, total: usize| progress("target", done as u64, total as u64);
    let model = gpu::load::target(&gpu, (source, plan), (context.ctx_len, context.info()), &mut on_layer)?;
    let target = Box::new(super::on_gpu::OnGpu { model, no_sharing: context.config.drafting(source).no_sharing });
    Ok(OnBackend { target, account: need.account, notice: None, runs_on: RunsOn::Gpu, buffers: Some(buffers) })
}

/// Whether an adapter's memory is the machine's.
#[cfg(feature = "gpu")]
pub(super) fn shares_memory(kind: AdapterKind) -> bool {
    matches!(kind, AdapterKind::Integrated | AdapterKind::Software)
}

/// Whether it may be: that of a GPU of unknown kind, such as one passed to a virtual machine, is either.
#[cfg(feature = "gpu")]
pub(super) fn may_share_memory(kind: AdapterKind) -> bool {
    shares_memory(kind) || kind == AdapterKind::Other
}

#[cfg(not(feature = "gpu"))]
pub(super) fn load_gpu(
    _context: &LoadContext<'_>,
    _adapter: Option<&str>,
    _progress: &mut Progress<'_>,
) -> Result<OnBackend, ModelError> {
    Err(ModelError::Unsupported(
        "this build has no GPU backend; build without `--no-default-features`, or choose --device cpu".into(),
    ))
}

/// The native backend runs weights as stored, on the CPU.
fn suits_native(options: &LoadOptions) -> bool {
    is_stored(options) && !options.device.is_candles()
}

fn load_native(context: &LoadContext<'_>, progress: &mut Progress<'_>) -> Result<OnBackend, ModelError> {
    if !suits_native(context.options) {
        return Err(ModelError::Unsupported(
            "the native backend runs stored weights on the CPU; choose --backend candle for another dtype or device"
                .into(),
        ));
    }
    native::check(context.config.plan())?;
    let need = memory_need::of(context, WeightType::Stored, true);
    need.check(memory::available())?;
    let target = Box::new(super::on_native::OnNative::load(context, progress)?);
    Ok(OnBackend { target, account: need.account, notice: None, runs_on: RunsOn::Cpu, buffers: None })
}

fn load_candle(context: &LoadContext<'_>, progress: &mut Progress<'_>) -> Result<OnBackend, ModelError> {
    let device = context.options.device.open()?;
    let (weight_type, dtype) = weight_type(context.options.dtype, context.source, &device);
    let need = memory_need::of(context, weight_type, false);
    need.check_on(&device)?;
    let backend = interfaces::Backend::Candle(weight_type, dtype, &device);
    let target = Box::new(OnReference::load(context, &backend, progress)?);
    let (runs_on, notice) = match device.is_cpu() {
        true => (RunsOn::Cpu, None),
        false => (RunsOn::Candle, Some(EXPERIMENTAL.to_owned())),
    };
    Ok(OnBackend { target, account: need.account, notice, runs_on, buffers: None })
}

/// What a user of candle's GPU kernels should know.
const EXPERIMENTAL: &str = "candle's CUDA and Metal kernels are experimental here: on an H200, 27 of 40 answers with drafts differed from plain ones";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draft_model_goes_where_the_target_is() {
        let options = LoadOptions { device: DeviceChoice::Auto, ..LoadOptions::on_cpu("a".into(), None) };
        assert_eq!(RunsOn::Cpu.of_draft_model(&options).device, DeviceChoice::Cpu);
        assert_eq!(RunsOn::Candle.of_draft_model(&options).device, DeviceChoice::Auto);
        #[cfg(feature = "gpu")]
        assert_eq!(RunsOn::Gpu.of_draft_model(&options).device, DeviceChoice::Auto);
    }

    #[test]
    fn options_alone_decide_about_native_kernels_and_open_no_device() {
        let with =
            |device, dtype| suits_native(&LoadOptions { device, dtype, ..LoadOptions::on_cpu("a".into(), None) });
        assert!(with(DeviceChoice::Auto, Dtype::Auto) && with(DeviceChoice::Cpu, Dtype::Stored));
        assert!(!with(DeviceChoice::Cuda, Dtype::Auto) && !with(DeviceChoice::Metal, Dtype::Auto));
        assert!(!with(DeviceChoice::Auto, Dtype::F32));
    }

    #[test]
    fn the_cause_is_shown_without_the_advice() {
        assert_eq!(cause("it is small; choose another"), "it is small");
        assert_eq!(cause("it is small"), "it is small");
    }
}
