//! The report as Markdown: a table of facts, T(m), and speeds by k, a column or a group of columns for each device.

use std::fmt::Write as _;

use draftscope::engine::measure::Timing;
use draftscope::session::text::one_line;

use super::super::sample::Quantiles;
use super::figures::{DeviceFigures, DeviceReport, SelfTest};
use crate::commands::bench::row::Row;

/// What a cell without a figure shows.
const NONE: &str = "–";

/// The whole report.
pub(super) fn text(report: &DeviceReport) -> String {
    let devices = &report.devices;
    let title = devices.first().map_or_else(String::new, |device| cell(&device.header.device));
    let mut out = format!("# {} on {title}\n\n", cell(&report.model));
    let _ = writeln!(
        out,
        "Measured with {} on {}: prompts: {} (sha256 {}…), repeats: {}, greedy answers of at most {} tokens, each raced against \
         plain decoding on the same device.\n",
        report.program,
        report.system,
        report.prompts,
        report.suite_sha256.chars().take(8).collect::<String>(),
        report.repeats,
        report.max_tokens,
    ); // writing to a String cannot fail
    table(&mut out, &head("", devices, |device| format!("--device {}", device.asked)), &facts(devices));
    let _ = write!(
        out,
        "\n## T(m): a pass over m rows\n\nMedian (10th–90th percentile) in ms, {} cached positions; T(m) ÷ T(1).\n\n",
        positions(devices)
    );
    let names = head("m", devices, |device| cell(&device.header.device));
    table(&mut out, &twice(&names, "T(m) ÷ T(1)"), &passes(devices));
    out.push_str("\n## Tokens/s\n\nMedians over the answers.\n\n");
    table(&mut out, &speed_head(devices), &speeds(devices));
    let notices: Vec<&String> = devices.iter().flat_map(|device| &device.notices).collect();
    if !notices.is_empty() {
        out.push_str("\n## Notices\n\n");
        notices.iter().for_each(|notice| {
            let _ = writeln!(out, "- {}", cell(notice));
        });
    }
    out
}

/// Text of models and drivers: one line that cannot end a cell.
fn cell(text: &str) -> String {
    one_line(text).replace('|', "/")
}

type Line = Vec<String>;

fn head(first: &str, devices: &[DeviceFigures], name: fn(&DeviceFigures) -> String) -> Line {
    std::iter::once(first.to_owned()).chain(devices.iter().map(name)).collect()
}

/// Each column but the first, followed by another one.
fn twice(names: &[String], other: &str) -> Line {
    let mut names = names.iter().cloned();
    let first: Vec<String> = names.next().into_iter().collect();
    first.into_iter().chain(names.flat_map(|name| [name, other.to_owned()])).collect()
}

fn table(out: &mut String, head: &[String], lines: &[Line]) {
    let row = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    out.push_str(&row(head));
    out.push_str(&row(&vec!["---".to_owned(); head.len()]));
    lines.iter().for_each(|line| out.push_str(&row(line)));
}

/// Value of a fact for a device.
type Fact = (&'static str, fn(&DeviceFigures) -> Option<String>);

const FACTS: [Fact; 12] = [
    ("device", |device| Some(cell(&device.header.device))),
    ("adapter", |device| device.adapter.as_ref().map(|adapter| cell(&format!("{}, {}", adapter.name, adapter.kind)))),
    ("API", |device| device.adapter.as_ref().map(|adapter| cell(&adapter.api))),
    ("driver", |device| device.adapter.as_ref().map(|adapter| cell(&adapter.driver))),
    ("largest buffer, and what a kernel sees of one", |device| {
        let adapter = device.adapter.as_ref()?;
        Some(format!("{} and {} MiB", adapter.max_buffer_bytes >> 20, adapter.max_binding_bytes >> 20))
    }),
    ("backend, weights", |device| Some(cell(&format!("{}, {}", device.header.backend, device.header.dtype)))),
    ("threads", |device| super::figures::is_cpu(&device.header).then(|| device.header.threads.to_string())),
    ("rows alone and beside others have the same bits", |device| match device.self_test {
        SelfTest::Passed => Some("yes: the self-test passed".to_owned()),
        SelfTest::Failed => Some("NO: drafts are verified one by one".to_owned()),
        SelfTest::NotNeeded => None,
    }),
    ("answers equal to plain decoding", |device| {
        let counts = device.speeds.iter().filter_map(Row::same);
        let (same, all) = counts.fold((0, 0), |(same, all), (s, a)| (same + s, all + a));
        (all > 0).then(|| format!("{same} of {all}"))
    }),
    ("plain decoding, tokens/s", |device| {
        let plain = device.speeds.iter().filter_map(|row| row.plain_tokens_per_second).map(|q| q.median);
        Quantiles::of(plain).map(|q| format!("{:.1}", q.median))
    }),
    ("prompt, tokens/s", |device| Some(format!("{:.0}", device.costs.prefill_tokens_per_second))),
    ("one drafted token, ms", |device| device.costs.draft.map(|draft| ms(&draft))),
];

fn facts(devices: &[DeviceFigures]) -> Vec<Line> {
    let lines = FACTS.iter().map(|(name, value)| (name, devices.iter().map(value).collect::<Vec<_>>()));
    let known = lines.filter(|(_, values)| values.iter().any(Option::is_some));
    known
        .map(|(name, values)| {
            let values = values.into_iter().map(|value| value.unwrap_or_else(|| NONE.to_owned()));
            std::iter::once((*name).to_owned()).chain(values).collect()
        })
        .collect()
}

fn positions(devices: &[DeviceFigures]) -> String {
    let mut all: Vec<usize> = devices.iter().map(|device| device.costs.ctx).collect();
    all.dedup();
    all.iter().map(usize::to_string).collect::<Vec<_>>().join(" and ")
}

fn ms(timing: &Timing) -> String {
    let [p10, median, p90] = [timing.p10_us, timing.median_us, timing.p90_us].map(|us| us / 1e3);
    format!("{median:.2} ({p10:.2}–{p90:.2})")
}

fn passes(devices: &[DeviceFigures]) -> Vec<Line> {
    let rows = devices.iter().map(|device| device.costs.verify.len()).max().unwrap_or(0);
    let cells = |device: &DeviceFigures, row: usize| {
        let times = &device.costs.verify;
        let (Some(time), Some(first)) = (times.get(row), times.first()) else {
            return [NONE.to_owned(), NONE.to_owned()];
        };
        [ms(time), format!("{:.2}", time.median_us / first.median_us)]
    };
    let line = |row: usize| {
        let cells = devices.iter().flat_map(|device| cells(device, row));
        std::iter::once((row + 1).to_string()).chain(cells).collect()
    };
    (0..rows).map(line).collect()
}

fn speed_head(devices: &[DeviceFigures]) -> Line {
    let of = |device: &DeviceFigures| {
        let name = cell(&device.asked);
        ["plain", "speculative", "speedup", "tokens/round", "identical"].map(|what| format!("{name}: {what}"))
    };
    std::iter::once("k".to_owned()).chain(devices.iter().flat_map(of)).collect()
}

fn speeds(devices: &[DeviceFigures]) -> Vec<Line> {
    let number = |value: Option<Quantiles>, digits: usize| {
        value.map_or_else(|| NONE.to_owned(), |q| format!("{:.digits$}", q.median))
    };
    let cells = |row: Option<&Row>| {
        let same = row.and_then(Row::same);
        [
            number(row.and_then(|row| row.plain_tokens_per_second), 1),
            number(row.and_then(|row| row.speculative_tokens_per_second), 1),
            number(row.and_then(|row| row.speedup), 2),
            number(row.and_then(|row| row.tokens_per_round), 2),
            same.map_or_else(|| NONE.to_owned(), |(same, all)| format!("{same}/{all}")),
        ]
    };
    let ks: Vec<&String> =
        devices.first().into_iter().flat_map(|device| device.speeds.iter().map(|row| &row.case.k)).collect();
    let line = |k: &&String| {
        let of_k = |device: &DeviceFigures| cells(device.speeds.iter().find(|row| row.case.k == **k));
        std::iter::once(k.to_string()).chain(devices.iter().flat_map(of_k)).collect()
    };
    ks.iter().map(line).collect()
}
