//! Costs that an earlier run measured.

use draftscope_protocol::{Costs, Header};
use serde::{Deserialize, Serialize};

/// What measured costs depend on: they are valid only for an equal key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CostKey {
    /// Name and version of the program.
    pub program: String,
    /// The target's file, and its sha256 when known.
    pub model: String,
    /// Bytes of its weights.
    pub weight_bytes: u64,
    /// The drafter, and its sha256 when known.
    pub drafter: String,
    /// The device that computes.
    pub device: String,
    /// The kernels that compute.
    pub backend: String,
    /// Dtype of the weights.
    pub dtype: String,
    /// Threads that compute.
    pub threads: u32,
}

impl CostKey {
    /// The key of a run.
    #[must_use]
    pub fn of(header: &Header) -> Self {
        let name = |name: &str, sha256: Option<&str>| format!("{name} {}", sha256.unwrap_or("unknown"));
        let drafter = header.drafter.as_ref();
        Self {
            program: header.program.clone(),
            model: name(&header.model.file, header.model.sha256.as_deref()),
            weight_bytes: header.model.weight_bytes,
            drafter: drafter
                .map_or("none".to_owned(), |d| format!("{} {}", d.kind, name(&d.name, d.sha256.as_deref()))),
            device: header.device.clone(),
            backend: header.backend.clone(),
            dtype: header.dtype.clone(),
            threads: header.threads,
        }
    }
}

/// Stores measured costs between runs. If it fails, the costs are measured again.
pub trait CostMemory: Send + Sync {
    /// Costs measured under an equal key.
    fn recall(&self, key: &CostKey) -> Option<Costs>;
    /// Stores costs.
    fn remember(&self, key: &CostKey, costs: &Costs);
}

/// Stores nothing.
pub(super) struct NoMemory;

impl CostMemory for NoMemory {
    fn recall(&self, _: &CostKey) -> Option<Costs> {
        None
    }
    fn remember(&self, _: &CostKey, _: &Costs) {}
}
