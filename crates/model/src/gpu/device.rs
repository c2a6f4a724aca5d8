//! Opens the adapter that a user chose, once for all models of a process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use draftscope_gpu::{Gpu, GpuError, Work, adapters, choose};

use crate::ModelError;
use draftscope_protocol::{DeviceWork, GpuInfo};

impl From<GpuError> for ModelError {
    fn from(error: GpuError) -> Self {
        let text = error.to_string();
        match error {
            GpuError::OutOfMemory(_) | GpuError::TooLarge { .. } => Self::DoesNotFit(text),
            GpuError::Failed(_) => Self::Device(text),
            GpuError::NoAdapter
            | GpuError::OnlySoftware(_)
            | GpuError::UnknownAdapter { .. }
            | GpuError::Unsuitable { .. } => Self::Unsupported(text),
        }
    }
}

/// What passes did.
pub(crate) fn work(work: Work) -> DeviceWork {
    DeviceWork {
        submissions: work.submissions,
        launches: work.dispatches,
        read_bytes: work.read_bytes,
        state_bytes: work.state_bytes,
        nanoseconds: work.device_ns,
    }
}

/// A device as the header describes it, but for what passes read.
pub(crate) fn info(gpu: &Gpu, row_by_row: Option<String>) -> GpuInfo {
    let adapter = gpu.info();
    GpuInfo {
        adapter: adapter.name.clone(),
        api: adapter.api.to_owned(),
        kind: adapter.kind.name().to_owned(),
        driver: adapter.driver.clone(),
        memory_bytes: gpu.memory_in_use().unwrap_or(0),
        notes_times: adapter.has_timestamps,
        read_bytes_per_second: 0,
        pass_bytes: 0,
        row_by_row,
    }
}

/// Open devices by the name that was asked for. A device that nothing uses any more is closed.
type Open = Mutex<HashMap<Option<String>, Weak<Gpu>>>;

/// The device of the adapter with this name or number, or of the first GPU.
///
/// # Errors
/// [`ModelError::Unsupported`] if there is no such adapter, or it cannot run the kernels.
pub(crate) fn open(adapter: Option<&str>) -> Result<Arc<Gpu>, ModelError> {
    static OPEN: OnceLock<Open> = OnceLock::new();
    let mut open = OPEN.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    let wanted = adapter.map(str::to_owned);
    // a device that failed is opened afresh
    if let Some(gpu) = open.get(&wanted).and_then(Weak::upgrade).filter(|gpu| gpu.check().is_ok()) {
        return Ok(gpu);
    }
    let gpu = Gpu::open(&choose(adapters(), adapter)?)?;
    open.insert(wanted, Arc::downgrade(&gpu));
    Ok(gpu)
}
