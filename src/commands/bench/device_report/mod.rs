//! `bench --report`: one report about a device beside the CPU, for people who own one: adapter and driver, the self-test,
//! identity over the suite, T(m), prefill, and tokens per second for every k.
//!
//! Invariant: a figure that was not measured is left out, and both devices answer the same prompts with the same settings.

mod figures;
mod markdown;

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use draftscope::cli::{BenchArgs, DraftLenArg, ModelArgs};
use draftscope::engine::measure::{MAX_ROWS, measure};
use draftscope::export::{try_file, write_file};
use draftscope::model::ModelError;
use draftscope::model::options::DeviceChoice;
use draftscope::protocol::{Header, Settings};

use super::super::run_args::ANSWER_TOKENS;
use super::super::signals::StopSignal;
use super::super::suite::{ALL, SuitePrompt};
use super::row::Row;
use figures::{AdapterFigures, DeviceFigures, DeviceReport, SelfTest, is_cpu};

/// Longest k that is measured.
const LONGEST: u8 = 8;

/// Cached positions while passes are timed, fewer where the context is short, and the number of timed passes of each width.
const POSITIONS: usize = 256;
const TURNS: usize = 9;

/// Measures both devices and writes the report.
pub(super) fn run(args: &BenchArgs, suite: &[SuitePrompt]) -> Result<ExitCode> {
    let path = args.report.as_deref().context("no file is named; please report this")?;
    let files = std::iter::once(path).chain(args.json.as_deref());
    for file in files {
        if file.as_os_str() == "-" {
            bail!("--report and --json take files");
        }
        try_file(file, args.force)?;
    }
    if args.decode.sample.temperature > 0.0 {
        bail!("a report about a device compares texts, so it decodes greedily; leave out --temperature");
    }
    let stop = StopSignal::listen()?;
    let mut devices = vec![figures(args, &args.model, suite, &stop)?];
    if !is_cpu(&devices[0].header) {
        let cpu = ModelArgs { device: DeviceChoice::Cpu, adapter: None, ..args.model.clone() };
        devices.push(figures(args, &cpu, suite, &stop)?);
    }
    let info = &devices[0].header.model;
    let report = DeviceReport {
        program: concat!("draftscope ", env!("CARGO_PKG_VERSION")),
        system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        model: format!("{} ({})", info.name, info.file),
        suite_sha256: super::digest(suite),
        prompts: suite.len(),
        repeats: args.repeat,
        max_tokens: args.decode.sample.max_tokens.min(ANSWER_TOKENS),
        devices,
    };
    write_file(path, args.force, markdown::text(&report).as_bytes())?;
    if let Some(json) = &args.json {
        write_file(json, args.force, &serde_json::to_vec_pretty(&report)?)?;
    }
    super::super::links::say_path("wrote ", path);
    let differs = report.devices.iter().flat_map(|device| &device.speeds).any(Row::differs);
    Ok(if differs { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Measures one device: passes alone, then every k over the suite.
fn figures(args: &BenchArgs, model: &ModelArgs, suite: &[SuitePrompt], stop: &StopSignal) -> Result<DeviceFigures> {
    let asked = model.device.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
    super::super::output::say(&format!("--device {asked}: timing passes"));
    let recipe = super::super::recipe::recipe(model, &Settings::default())?;
    let costs = match measure(&recipe, POSITIONS, TURNS) {
        Err(ModelError::ContextFull { ctx_len, .. }) if ctx_len > MAX_ROWS => {
            measure(&recipe, ctx_len - MAX_ROWS, TURNS)
        }
        measured => measured,
    }?;
    let ks = (0..=LONGEST).map(DraftLenArg::Fixed).chain([DraftLenArg::Auto]).collect();
    let args = BenchArgs { model: model.clone(), ks, rules: Vec::new(), drafters: Vec::new(), ..args.clone() };
    let plan = super::plan(&args, model.drafter.clone())?;
    let mut samples = BTreeMap::new();
    let super::Measured { header, loaded, notices } = super::measure((&args, stop), &plan, suite, &mut samples)?;
    let header = header.context("nothing was measured; please report this")?;
    let speeds = samples.into_iter().filter(|(case, _)| case.category == ALL);
    let mut speeds: Vec<Row> = speeds.map(|(case, samples)| Row::of(case, &samples)).collect();
    speeds.sort_by_key(|row| row.case.k.parse::<u8>().unwrap_or(u8::MAX));
    Ok(DeviceFigures {
        asked,
        adapter: adapter(model, &header),
        self_test: self_test(&header, &loaded),
        header,
        notices,
        costs,
        speeds,
    })
}

/// The verdict that loading reported: the GPU backend and candle's GPU kernels are tested whenever a target is loaded.
/// candle's is only in the notices of loading.
fn self_test(header: &Header, loaded: &[String]) -> SelfTest {
    let failed = match &header.gpu {
        Some(gpu) => gpu.row_by_row.is_some(),
        None if is_cpu(header) => return SelfTest::NotNeeded,
        None => loaded.iter().any(|notice| notice.contains("drafts are verified one by one")),
    };
    if failed { SelfTest::Failed } else { SelfTest::Passed }
}

#[cfg(feature = "gpu")]
fn adapter(model: &ModelArgs, header: &Header) -> Option<AdapterFigures> {
    if header.backend != "gpu" {
        return None;
    }
    let gpu = draftscope::model::gpu::opened(model.adapter.as_deref()).ok()?;
    let info = gpu.info();
    Some(AdapterFigures {
        name: info.name.clone(),
        api: info.api.to_owned(),
        kind: info.kind.name().to_owned(),
        driver: info.driver.clone(),
        max_buffer_bytes: info.max_buffer,
        max_binding_bytes: info.max_binding,
        subgroup_lanes: [info.subgroups.0, info.subgroups.1],
    })
}

#[cfg(not(feature = "gpu"))]
fn adapter(_model: &ModelArgs, _header: &Header) -> Option<AdapterFigures> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use draftscope::protocol::GpuInfo;

    fn header(backend: &str, device: &str, gpu: Option<GpuInfo>) -> Header {
        Header { backend: backend.into(), device: device.into(), gpu, ..Header::default() }
    }

    #[test]
    fn the_verdict_is_the_headers_and_only_candles_is_a_sentence() {
        let differs = ["rows differ, so drafts are verified one by one".to_owned()];
        let gpu = |row_by_row: Option<&str>| {
            Some(GpuInfo { row_by_row: row_by_row.map(str::to_owned), ..GpuInfo::default() })
        };
        assert_eq!(self_test(&header("gpu", "cpu-like (vulkan)", gpu(None)), &differs), SelfTest::Passed);
        assert_eq!(self_test(&header("gpu", "a (vulkan)", gpu(Some("rows differ"))), &[]), SelfTest::Failed);
        assert_eq!(self_test(&header("native", "cpu", None), &differs), SelfTest::NotNeeded);
        assert_eq!(self_test(&header("candle", "cpu", None), &differs), SelfTest::NotNeeded);
        assert_eq!(self_test(&header("candle", "cuda", None), &differs), SelfTest::Failed);
        assert_eq!(self_test(&header("candle", "cuda", None), &[]), SelfTest::Passed);
        assert!(!is_cpu(&header("gpu", "cpu-like (vulkan)", gpu(None))) && is_cpu(&header("native", "cpu", None)));
    }
}
