//! The figures of a device, as the report writes them.

use draftscope::engine::measure::CostCurve;
use draftscope::protocol::Header;
use serde::Serialize;

use crate::commands::bench::row::Row;

/// Everything that the report shows.
#[derive(Serialize)]
pub(super) struct DeviceReport {
    /// Name and version of the program.
    pub(super) program: &'static str,
    /// Operating system and architecture.
    pub(super) system: String,
    /// The target's name and its file.
    pub(super) model: String,
    /// sha256 of the prompts.
    pub(super) suite_sha256: String,
    pub(super) prompts: usize,
    pub(super) repeats: u32,
    pub(super) max_tokens: u32,
    /// The device that was asked for, then the CPU if that is another one.
    pub(super) devices: Vec<DeviceFigures>,
}

/// The figures of one device.
#[derive(Serialize)]
pub(super) struct DeviceFigures {
    /// As `--device` names it.
    pub(super) asked: String,
    pub(super) header: Header,
    /// The adapter of the GPU backend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) adapter: Option<AdapterFigures>,
    /// Whether a row's bits stay the same beside other rows on the device.
    pub(super) self_test: SelfTest,
    /// What the program said about the device, in sentences.
    pub(super) notices: Vec<String>,
    pub(super) costs: CostCurve,
    /// k = 0, 1, … and auto, over all prompts.
    pub(super) speeds: Vec<Row>,
}

/// The adapter of the GPU backend.
#[derive(Serialize)]
#[cfg_attr(not(feature = "gpu"), allow(dead_code))]
pub(super) struct AdapterFigures {
    pub(super) name: String,
    pub(super) api: String,
    pub(super) kind: String,
    pub(super) driver: String,
    pub(super) max_buffer_bytes: u64,
    pub(super) max_binding_bytes: u64,
    pub(super) subgroup_lanes: [u32; 2],
}

/// Verdict of the comparison of rows alone with rows beside others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SelfTest {
    /// They have the same bits.
    Passed,
    /// They differ, so drafts are verified one by one.
    Failed,
    /// The kernels of the CPU are tested when the program is built.
    NotNeeded,
}

/// Whether the CPU computes.
pub(super) fn is_cpu(header: &Header) -> bool {
    match header.backend.as_str() {
        "gpu" => false,
        "candle" => header.device.starts_with("cpu"), // its other devices are called cuda and metal
        _ => true,
    }
}
