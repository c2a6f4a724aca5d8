//! Checks whether a model fits into memory before anything large is allocated.
//!
//! Invariant: the figures are what weights, a full cache and passes take. If memory cannot be measured, no
//! model is rejected.

use candle_core::Device;
use indicatif::DecimalBytes;

use crate::error::ModelError;
use draftscope_protocol::MemoryAccount;

/// The memory that a model will take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryNeed {
    /// Bytes of everything.
    pub account: MemoryAccount,
    /// Dtype of the loaded weights.
    pub dtype: String,
}

impl MemoryNeed {
    /// Rejects a model that does not fit into `available` bytes; `None` means unknown.
    ///
    /// # Errors
    /// [`ModelError::DoesNotFit`] with the figures and what to do.
    pub fn check(&self, available: Option<u64>) -> Result<(), ModelError> {
        self.check_in("memory", available)
    }

    /// Rejects a model that does not fit into what is free of the memory that a device of candle computes in.
    ///
    /// # Errors
    /// As [`MemoryNeed::check`].
    pub fn check_on(&self, device: &Device) -> Result<(), ModelError> {
        self.check_in(if device.is_cuda() { "the GPU's memory" } else { "memory" }, available_on(device))
    }

    fn check_in(&self, memory: &str, available: Option<u64>) -> Result<(), ModelError> {
        let account = &self.account;
        let Some(available) = available.filter(|available| account.total() > *available) else {
            return Ok(());
        };
        let advice = if account.weights() <= available {
            "choose a smaller --ctx"
        } else if self.dtype == "f32" {
            "choose --dtype stored, a smaller model, or free some memory"
        } else {
            "choose a smaller model, or free some memory"
        };
        let passes = match account.passes {
            0 => String::new(),
            bytes => format!(", its passes {}", DecimalBytes(bytes)),
        };
        Err(ModelError::DoesNotFit(format!(
            "the model does not fit: its weights take {} as {}, its cache {} for {} positions{passes}, and {} of {memory} are free; {advice}",
            DecimalBytes(account.weights()),
            self.dtype,
            DecimalBytes(account.cache()),
            account.ctx_len,
            DecimalBytes(available),
        )))
    }
}

/// Rejects a model whose weights, in their narrowest dtype, take more than `memory`, all bytes that this machine has; `None`
/// means unknown. Memory in use at the moment counts as free, because a downloaded model is kept for later.
///
/// # Errors
/// [`ModelError::DoesNotFit`] with the figures and what to do.
pub fn check_weights(weights: u64, dtype: &str, memory: Option<u64>) -> Result<(), ModelError> {
    let Some(memory) = memory.filter(|memory| weights > *memory) else {
        return Ok(());
    };
    Err(ModelError::DoesNotFit(format!(
        "the model does not fit: its weights take {} even as {dtype}, and this machine has {} of memory; take a smaller model or a machine with more memory",
        DecimalBytes(weights),
        DecimalBytes(memory),
    )))
}

/// All memory, in bytes, that this process may use, within a container's limit; `None` if the system does not report it.
#[must_use]
pub fn installed() -> Option<u64> {
    let mut system = sysinfo::System::new();
    system.refresh_memory();
    let total = Some(system.total_memory()).filter(|bytes| *bytes > 0)?;
    Some(system.cgroup_limits().map_or(total, |limits| total.min(limits.total_memory)))
}

/// Bytes that are available without swapping, within a container's limit; `None` if the system does not report
/// them.
#[must_use]
pub fn available() -> Option<u64> {
    let mut system = sysinfo::System::new();
    system.refresh_memory();
    let free = Some(system.available_memory()).filter(|bytes| *bytes > 0)?;
    // a container's file cache counts as its memory but can be reclaimed, so rss is used
    let within = system.cgroup_limits().map(|limits| limits.total_memory.saturating_sub(limits.rss));
    Some(within.map_or(free, |within| free.min(within)))
}

/// Free bytes of the memory that a device of candle computes in: a GPU's own, unless it shares the machine's; `None` if
/// they are not reported.
#[must_use]
pub fn available_on(device: &Device) -> Option<u64> {
    match device {
        Device::Cuda(_) => cuda(device),
        Device::Cpu | Device::Metal(_) => available(),
    }
}

#[cfg(feature = "cuda")]
fn cuda(device: &Device) -> Option<u64> {
    let Device::Cuda(device) = device else { return None };
    device.cuda_stream().context().mem_get_info().ok().map(|(free, _)| free as u64)
}

#[cfg(not(feature = "cuda"))]
fn cuda(_device: &Device) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejection_has_the_figures_and_says_what_to_do() {
        let account = MemoryAccount {
            target_weights: 7_500_000_000,
            drafter_weights: 500_000_000,
            states: 2_000_000_000,
            ctx_len: 4096,
            ..MemoryAccount::default()
        };
        let need = MemoryNeed { account, dtype: "f32".into() };
        need.check(None).unwrap();
        need.check(Some(10_000_000_000)).unwrap();
        let says = |available| need.check(Some(available)).unwrap_err().to_string();
        assert_eq!(
            says(5_500_000_000),
            "the model does not fit: its weights take 8.00 GB as f32, its cache 2.00 GB for 4096 positions, and 5.50 GB of memory are free; choose --dtype stored, a smaller model, or free some memory"
        );
        assert!(says(9_999_999_999).ends_with("choose a smaller --ctx"));
        let with_passes = MemoryNeed { account: MemoryAccount { passes: 1_000_000, ..account }, ..need.clone() };
        let says = with_passes.check(Some(10_000_000_000)).unwrap_err().to_string();
        assert!(says.contains("for 4096 positions, its passes 1.00 MB, and 10.00 GB"), "{says}");
        let says = need.check_in("the GPU's memory", Some(5_500_000_000)).unwrap_err().to_string();
        assert!(says.contains("and 5.50 GB of the GPU's memory are free; choose"), "{says}");
        let narrow = MemoryNeed { dtype: "bf16".into(), ..need };
        let says = narrow.check(Some(5_500_000_000)).unwrap_err().to_string();
        assert!(says.ends_with("free; choose a smaller model, or free some memory"), "{says}");
    }

    #[test]
    fn weights_beyond_all_memory_are_rejected_with_advice() {
        check_weights(8, "bf16", None).unwrap();
        check_weights(8, "bf16", Some(8)).unwrap();
        assert_eq!(
            check_weights(8_000_000_000, "bf16", Some(5_500_000_000)).unwrap_err().to_string(),
            "the model does not fit: its weights take 8.00 GB even as bf16, and this machine has 5.50 GB of memory; take a smaller model or a machine with more memory"
        );
    }

    #[test]
    fn this_system_reports_its_memory() {
        assert!(available().is_none_or(|bytes| bytes > 1 << 20));
        assert_eq!(available_on(&Device::Cpu).is_some(), available().is_some());
        assert!(installed().is_none_or(|all| available().is_some_and(|free| free <= all)));
    }
}
