//! `draftscope attach --watch`: follows servers that others use, on the terminal or as lines.
//!
//! Invariant: the exit status is 1 if a condition of `--alert` held for as long as it asks for.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use draftscope::attach::{self, WantedModel};
use draftscope::cli::AttachArgs;
use draftscope::headless::write_json_line;
use draftscope::host::config::UserFiles;
use draftscope::http::Access;
use draftscope::protocol::ServerSample;
use draftscope::session::text::printable;
use draftscope::session::{Alert, Fleet, Latency};
use draftscope::tui::FleetView;

use super::super::{output, terminal, watch_history};

/// Exit status when a condition held.
const FIRED: u8 = 1;

pub(super) fn run(args: &AttachArgs, access: &Access, files: &UserFiles) -> Result<ExitCode> {
    let alerts = args.alerts.iter().map(|text| text.parse::<Alert>().map_err(|why| anyhow::anyhow!("--alert: {why}")));
    let alerts: Vec<Alert> = alerts.collect::<Result<_>>()?;
    let history = args.history.as_deref().map(|path| watch_history::Writer::create(path, args));
    let history = history.transpose()?;
    let interval = Duration::from_secs_f64(args.interval);
    let urls: Vec<String> = args.urls.iter().map(|url| attach::address::base(url)).collect();
    let model = args.model.as_ref().map(|name| WantedModel { name: name.clone(), hint_of: None });
    let samples = attach::watch::watch(&urls, access, interval, model.as_ref()).map_err(anyhow::Error::msg)?;
    let samples = match history {
        Some(history) => history.record(samples)?,
        None => samples,
    };
    let has_fired = match terminal::can_draw() && !args.json && !args.once {
        true => FleetView::new(args.urls.len(), alerts, terminal::look(&args.screen.look, files)).run(&samples)?,
        false => lines(args, &samples, Fleet::new(args.urls.len()).with_alerts(alerts))?,
    };
    Ok(if has_fired { ExitCode::from(FIRED) } else { ExitCode::SUCCESS })
}

/// Writes a line for each look, or with `--once` one for each server; whether a condition was met.
fn lines(args: &AttachArgs, samples: &Receiver<ServerSample>, mut fleet: Fleet) -> Result<bool> {
    let mut out = io::stdout().lock();
    let (mut has_fired, mut looks) = (false, vec![0_u32; args.urls.len()]);
    for sample in samples {
        let server = sample.server;
        for fired in fleet.take(sample) {
            has_fired |= fired.begins;
            output::say(&fired.sentence);
        }
        if !args.once {
            write_line(&mut out, (&fleet, server), true)?;
            continue;
        }
        looks[server] += 1;
        if looks.iter().all(|looks| *looks > 1) && fleet.is_decided() {
            (0..looks.len()).try_for_each(|server| write_line(&mut out, (&fleet, server), args.json))?;
            return Ok(has_fired);
        }
    }
    bail!("the watch ended on an internal error; please report it")
}

fn write_line(out: &mut impl Write, (fleet, server): (&Fleet, usize), is_json: bool) -> Result<()> {
    let line = fleet.line(server).context("no look at this server; please report this")?;
    if is_json {
        write_json_line(out, &line)?;
    } else {
        writeln!(out, "{}", printable(&in_words(fleet, server)))?;
    }
    Ok(out.flush()?)
}

/// What is known of a server, on one line.
fn in_words(fleet: &Fleet, server: usize) -> String {
    let watched = &fleet.servers()[server];
    let Some(sample) = &watched.newest else { return String::new() };
    let name = format!("{}  {}", sample.host, sample.model);
    if !watched.is_up() {
        return format!("{name}  {}", sample.problem.as_deref().unwrap_or("nothing is known"));
    }
    let (now, since) = (watched.recent(), watched.since_start());
    let percent = |rate: Option<f64>| rate.map(|rate| format!("{:.0} %", rate * 100.0));
    let time = |time: Option<Latency>| time.map(|time| format!("{:.3} s", time.mean));
    let figures = [
        ("running", now.running.map(|count| count.to_string())),
        ("waiting", now.waiting.map(|count| count.to_string())),
        ("tokens/s", now.tokens_per_second.map(|speed| format!("{speed:.1}"))),
        ("accepted", percent(now.acceptance_rate)),
        ("accepted since start", percent(since.acceptance_rate)),
        ("tokens/step", now.tokens_per_step.map(|mean| format!("{mean:.2}"))),
        ("tokens/step since start", since.tokens_per_step.map(|mean| format!("{mean:.2}"))),
        ("first token", time(now.first_token.or(since.first_token))),
        ("between tokens", time(now.between_tokens.or(since.between_tokens))),
        ("KV cache", percent(now.kv_use)),
        ("prefix found", percent(now.prefix_hit_rate.or(since.prefix_hit_rate))),
    ];
    let known = figures.into_iter().filter_map(|(name, value)| Some(format!("{name} {}", value?)));
    let problem = sample.problem.iter().cloned();
    [name].into_iter().chain(known).chain(problem).collect::<Vec<_>>().join("  ")
}
