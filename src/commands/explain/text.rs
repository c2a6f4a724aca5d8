//! The report of `explain` as plain text.

use std::fmt::Write as _;

use draftscope::engine::measure::{CostCurve, DeviceCost};
use draftscope::protocol::counted;
use draftscope::session::account::tested;

use super::measured::Measured;
use super::report::Report;

/// Lines of a report.
struct Lines(String);

impl Lines {
    fn add(&mut self, line: impl AsRef<str>) {
        let _ = writeln!(self.0, "{}", line.as_ref()); // writing to a String cannot fail
    }
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or("–".to_owned(), |value| format!("{value:.digits$}"))
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "–".to_owned() } else { format!("{:.0} %", part as f64 / whole as f64 * 100.0) }
}

pub(super) fn cost(cost: &CostCurve) -> String {
    let mut out = Lines(String::new());
    let plain = cost.verify[0];
    out.add(format!(
        "{}, {}, {} in the cache",
        cost.backend,
        counted(cost.threads, "thread"),
        counted(cost.ctx, "position")
    ));
    let host = cost.bandwidth_share.zip(cost.memory_bandwidth).zip(cost.read_share);
    let read = host.map_or_else(String::new, |((share, bandwidth), read_share)| {
        format!(
            ", weights and cached positions read at {:.0} % of the {:.1} GB/s that memory gives; a loop that only reads as many bytes takes {:.0} % of the time",
            share * 100.0,
            bandwidth / 1e9,
            read_share * 100.0,
        )
    });
    out.add(format!(
        "one row {:.2} ms ({:.2}–{:.2}), {:.0} tokens/s{read}; prefill {:.0} tokens/s",
        plain.median_us / 1e3,
        plain.p10_us / 1e3,
        plain.p90_us / 1e3,
        1e6 / plain.median_us,
        cost.prefill_tokens_per_second,
    ));
    let mb = |bytes: u64| bytes as f64 / 1e6;
    let read = match cost.pass_bytes == cost.weight_bytes {
        true => String::new(),
        false => format!(" (a pass reads {:.1} MB of them)", mb(cost.pass_bytes)),
    };
    out.add(format!(
        "memory: target weights {:.1} MB{read}, drafter weights {:.1} MB, KV cache {:.1} kB a position, passes {:.1} MB; {:.1} MB in all with {} positions",
        mb(cost.memory.target_weights),
        mb(cost.memory.drafter_weights),
        cost.memory.kv(1) as f64 / 1e3,
        mb(cost.memory.passes),
        mb(cost.memory.total()),
        cost.memory.ctx_len,
    ));
    let curve =
        cost.verify.iter().enumerate().map(|(i, t)| format!("T({}) {:.2}", i + 1, t.median_us / plain.median_us));
    out.add(format!("in units of T(1):  {}", curve.collect::<Vec<_>>().join("  ")));
    if let Some(line) = experts(cost) {
        out.add(line);
    }
    if let Some(device) = &cost.device {
        on_gpu(device, &mut out);
    }
    if let Some(draft) = cost.draft {
        let (ms, share) = (draft.median_us / 1e3, draft.median_us / plain.median_us * 100.0);
        out.add(match cost.drafts_of_a_pass {
            1 => format!("one drafted token {ms:.2} ms, {share:.1} % of T(1)"),
            drafts => format!(
                "one pass drafts {drafts} tokens in {:.2} ms, {:.1} % of T(1); {ms:.2} ms a token if all are drafted{}",
                ms * drafts as f64,
                share * drafts as f64,
                cost.draft_one
                    .map_or(String::new(), |one| format!("; a pass for one token takes {:.2} ms", one.median_us / 1e3)),
            ),
        });
    }
    out.0
}

/// What passes cost on a GPU.
fn on_gpu(device: &DeviceCost, out: &mut Lines) {
    let (gpu, pass) = (&device.gpu, device.pass);
    let verdict =
        gpu.row_by_row.as_deref().unwrap_or("self-test passed: rows run together have the bits of rows run alone");
    let memory = match gpu.memory_bytes {
        0 => String::new(), // its API does not report it
        bytes => format!(", {:.1} MB of its memory in use", bytes as f64 / 1e6),
    };
    out.add(format!("GPU: {}, {}, {}{memory}; {verdict}", gpu.adapter, gpu.kind, gpu.api));
    out.add(format!(
        "a pass of one row: {} submission{}, {} launches, {:.1} kB read back; weights and cached positions read at {:.0} % of the {:.1} GB/s at which a kernel that only reads reads this device's memory",
        pass.submissions,
        if pass.submissions == 1 { "" } else { "s" },
        pass.launches,
        pass.read_bytes as f64 / 1e3,
        device.read_share * 100.0,
        device.read_rate / 1e9,
    ));
    let Some(one) = device.verify.first() else {
        out.add("the device reports no timestamps, so T(m) is measured by the program's clock alone");
        return;
    };
    let curve = device.verify.iter().enumerate();
    let curve = curve.map(|(i, t)| format!("T({}) {:.2}", i + 1, t.median_us / one.median_us.max(f64::MIN_POSITIVE)));
    let curve = curve.collect::<Vec<_>>().join("  ");
    out.add(format!("on the device: one row {:.2} ms; in units of that:  {curve}", one.median_us / 1e3));
    out.add("launches of a pass of one row, each begun and ended for itself: the kernels that take longest");
    kernels(device, out);
}

/// The slowest kernels of a pass.
const SHOWN_KERNELS: usize = 12;

/// What kernels take in passes of one row and of four.
fn kernels(device: &DeviceCost, out: &mut Lines) {
    let all: f64 = device.kernels.iter().map(|kernel| kernel.median_us).sum();
    for kernel in device.kernels.iter().take(SHOWN_KERNELS) {
        let of_four = device.kernels_of_four.iter().find(|of_four| of_four.kernel == kernel.kernel);
        out.add(format!(
            "  {:<40} {:>4} × {:>8.1} µs  {:>4.1} %  four rows {:>8.1} µs",
            kernel.kernel,
            kernel.launches,
            kernel.median_us / kernel.launches.max(1) as f64,
            kernel.median_us / all.max(f64::MIN_POSITIVE) * 100.0,
            of_four.map_or(0.0, |of_four| of_four.median_us / of_four.launches.max(1) as f64),
        ));
    }
}

/// Why T(m) grows where layers have experts.
fn experts(cost: &CostCurve) -> Option<String> {
    let count = cost.experts.first()?.count;
    let rows = [1, 2, 4, 8, 16].into_iter().filter_map(|m: usize| Some((m, cost.experts.get(m - 1)?)));
    let met = rows.map(|(m, at)| format!("m = {m}: {:.1} ({:.1} MB)", at.met, at.pass_bytes as f64 / 1e6));
    Some(format!(
        "T(m) grows with the experts that m rows choose: each is read once a pass. Of {count:.0} experts, a layer ran (the pass read)  {}",
        met.collect::<Vec<_>>().join("  ")
    ))
}

pub(super) fn report(report: &Report) -> String {
    let mut out = Lines(cost(&report.cost));
    acceptance(report, &mut out);
    draft_lengths(report, &mut out);
    tree(report, &mut out);
    candidates(report, &mut out);
    kinds(report, &mut out);
    if let Some(measured) = &report.measured {
        race(measured, &mut out);
    }
    out.add("");
    out.add(conclusion(report));
    out.0
}

/// The account in one sentence, and what the race measured beside its prediction.
fn conclusion(report: &Report) -> String {
    let sentence = &report.account.sentence;
    let measured = report.measured.as_ref().and_then(|race| Some((race.draft_len, race.speedup?)));
    match measured {
        Some((_, speedup)) if speedup.is_disturbed() => {
            format!("{sentence}; the race was disturbed by other work, so the prediction is not checked")
        }
        Some((k, speedup)) => format!("{sentence}; measured at k = {k}: {speedup}"),
        None => sentence.clone(),
    }
}

fn acceptance(report: &Report, out: &mut Lines) {
    let shares = tested(&report.account.acceptance)
        .map(|share| share.map_or("–".to_owned(), |a| format!("{:.0} %", a * 100.0)));
    out.add("");
    out.add(format!(
        "accepted at position 1, 2, … in rounds that accepted all before:  {}",
        shares.collect::<Vec<_>>().join("  ")
    ));
}

fn draft_lengths(report: &Report, out: &mut Lines) {
    out.add("tokens per round = 1 + Σ_i Π_{j ≤ i} a_j; simulated: every round of the probe run, exactly");
    out.add("  k   by formula   simulated   round in plain tokens   predicted speedup   break-even acceptance");
    for point in &report.simulated {
        let Some(k) = point.draft_len else { continue };
        let worth = report.account.worth(k);
        out.add(format!(
            "{:>3} {:>12} {:>11} {:>23} {:>18}× {:>23}",
            k,
            number(worth.map(|w| w.tokens_per_round), 2),
            number(point.tokens_per_round, 2),
            number(worth.map(|w| w.round_cost), 2),
            number(point.speedup, 2),
            worth.map_or(String::new(), |w| w.break_even.map_or("never".to_owned(), |a| format!("{:.0} %", a * 100.0))),
        ));
    }
    out.add(format!(
        "auto {:>11} {:>11} {:>23} {:>18}×",
        "",
        number(report.automatic.tokens_per_round, 2),
        "",
        number(report.automatic.speedup, 2)
    ));
    let plain = report.simulated.first().and_then(|p| p.tokens_per_second);
    let stops = report.p_min.iter().map(|c| {
        let speedup = c.tokens_per_second.zip(plain).map(|(speed, plain)| speed / plain);
        format!("{:.1}: {}× ({} of {} drafts accepted)", c.p_min, number(speedup, 2), c.accepted, c.drafted)
    });
    let k = report.account.best.max(1);
    out.add(format!("k = {k} with p-min  {}", stops.collect::<Vec<_>>().join("  ")));
}

fn tree(report: &Report, out: &mut Lines) {
    let Some(tree) = &report.tree else {
        return;
    };
    let counts = &tree.point.counts;
    let chain = report.simulated.get(usize::from(tree.depth)).and_then(|point| point.tokens_per_round);
    out.add(format!(
        "a tree of at most {} nodes, {} deep: {} of {} drafts accepted in {} rounds, {} tokens per round (a chain of {} {}), predicted speedup {}×; a node costs {:.2} ms",
        tree.nodes,
        tree.depth,
        counts.accepted,
        counts.drafted,
        counts.rounds,
        number(tree.point.tokens_per_round, 2),
        tree.depth,
        number(chain, 2),
        number(tree.point.speedup, 2),
        tree.node_us / 1e3,
    ));
}

fn candidates(report: &Report, out: &mut Lines) {
    out.add("");
    out.add("the target's choice among the drafter's candidates (what wider drafts could gain):");
    out.add("  depth   reached    best   second    third   fourth   none of them");
    for (depth, tally) in report.ranks.iter().enumerate().filter(|(_, tally)| tally.reached > 0) {
        let [first, second, third, fourth] = tally.by_rank.map(|count| percent(count, tally.reached));
        let none = percent(tally.reached - tally.by_rank.iter().sum::<u64>(), tally.reached);
        out.add(format!(
            "{:>7} {:>9} {:>7} {:>8} {:>8} {:>8} {:>14}",
            depth + 1,
            tally.reached,
            first,
            second,
            third,
            fourth,
            none
        ));
    }
}

fn kinds(report: &Report, out: &mut Lines) {
    let classes = report.by_class.iter();
    let classes = classes.map(|t| format!("{} {} of {}", t.class.name(), percent(t.accepted, t.tested), t.tested));
    out.add("");
    out.add(format!("first drafts accepted by class of token:  {}", classes.collect::<Vec<_>>().join("  ")));
    out.add("category      first draft   best k   tokens per round   predicted speedup");
    for (name, category) in &report.by_category {
        out.add(format!(
            "{:<13} {:>11} {:>8} {:>18} {:>18}×",
            name,
            category.first_draft.map_or("–".to_owned(), |a| format!("{:.0} %", a * 100.0)),
            category.best_draft_len.map_or("–".to_owned(), |k| k.to_string()),
            number(category.tokens_per_round, 2),
            number(category.speedup, 2),
        ));
    }
}

fn race(m: &Measured, out: &mut Lines) {
    let w = &m.waterfall;
    let ms = |us: f64| format!("{:.2} ms", us / 1e3);
    let more = format!("{} {}", if w.more_rows < 0.0 { "−" } else { "+" }, ms(w.more_rows.abs()));
    out.add("");
    out.add(format!(
        "a round at k = {}:  {} first row {more} more rows + {} drafts + {} rest = {}; ÷ {} tokens = {} a token (plain {})",
        m.draft_len,
        ms(w.first_row),
        ms(w.drafts),
        ms(w.overhead),
        ms(w.round),
        number(m.tokens_per_round, 2),
        ms(w.per_token),
        ms(w.plain_token),
    ));
    out.add(format!(
        "measured at k = {} over {} prompts: plain {} tokens/s, speculative {} tokens/s, {} (predicted {}× from passes timed {}), {} tokens per round, overhead {:.1} %, {} of {} answers identical",
        m.draft_len,
        m.prompts,
        number(m.plain_tokens_per_second, 1),
        number(m.speculative_tokens_per_second, 1),
        m.speedup.map_or("too few rounds for a speedup".to_owned(), |speedup| speedup.to_string()),
        number(m.predicted_speedup, 2),
        if m.timed_in_turns { "in turns with it" } else { "before" },
        number(m.tokens_per_round, 2),
        m.overhead_share * 100.0,
        m.identical,
        m.prompts,
    ));
    m.speedup.and_then(|speedup| speedup.note()).into_iter().for_each(|note| out.add(note));
}
