//! A long recording: time to open it, time to fold it, and memory.
//!
//! The ignored test with a million events needs a quiet machine:
//! `cargo test --release --test long_trace -- --ignored --nocapture`

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

#[path = "common/long.rs"]
#[allow(dead_code, reason = "shared with another test")]
mod long;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use draftscope::protocol::Event;
use draftscope::session::Timeline;
use draftscope::session::trace::Recording;
use long::Renumber;

/// Writes this many events of the real engine: those of a bundled recording, repeated.
fn write(path: &Path, events: u64) {
    write_changed(path, events, |event| event);
}

/// The same, each event changed.
fn write_changed(path: &Path, events: u64, change: fn(Event) -> Event) {
    let (start, body) = long::bundled();
    let mut file = BufWriter::new(File::create(path).unwrap());
    let mut line = |event: &Event| {
        serde_json::to_writer(&mut file, event).unwrap();
        file.write_all(b"\n").unwrap();
    };
    line(&start);
    let mut number = Renumber::default();
    let mut seq = 0;
    while seq < events {
        for event in &body {
            seq += 1;
            line(&change(number.event(event, seq)));
        }
        number = number.next();
    }
    file.flush().unwrap();
}

/// Peak memory of this process in MB; `None` if the system does not report it.
fn peak_mb() -> Option<u64> {
    peak_mb_of("self")
}

fn peak_mb_of(process: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? / 1024)
}

/// Opens and folds a recording; returns both times and the number of lines.
fn read(path: &Path) -> (Duration, Duration, u64) {
    let began = Instant::now();
    let recording = Recording::open(path).unwrap();
    let opened = began.elapsed();
    let began = Instant::now();
    let mut time = Timeline::new();
    recording.events().unwrap().for_each(|event| time.apply(event.unwrap()));
    assert_eq!(time.live().events(), recording.lines());
    (opened, began.elapsed(), recording.lines())
}

fn measure(events: u64) -> (Duration, Duration) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.dscope.jsonl");
    write(&path, events);
    let (opened, folded, lines) = read(&path);
    let mb = std::fs::metadata(&path).unwrap().len() >> 20;
    println!("{lines} events, {mb} MB: opened in {opened:.2?}, folded in {folded:.2?}");
    println!("most memory: {:?} MB", peak_mb());
    (opened, folded)
}

#[test]
fn memory_grows_by_less_than_a_kilobyte_an_event() {
    const EVENTS: u64 = 60_000;
    measure(EVENTS);
    if let Some(peak) = peak_mb() {
        assert!(peak < 60 + EVENTS / 1024, "{peak} MB");
    }
}

/// A page shows all of these rounds, and yet the recording is in memory at most once.
#[cfg(target_os = "linux")]
#[test]
fn a_page_is_written_as_it_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wide.dscope.jsonl");
    write_changed(&path, 14_000, long::with_many_candidates);
    let bytes = std::fs::metadata(&path).unwrap().len();
    let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_draftscope"));
    program.args(["export", "--to", "html", "--out"]).arg(folder.path().join("page.html")).arg(&path);
    let mut running = program.stdout(std::process::Stdio::null()).spawn().unwrap();
    let mut most = 0;
    let status = loop {
        most = most.max(peak_mb_of(&running.id().to_string()).unwrap_or(0));
        if let Some(status) = running.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    assert!(status.success());
    let page = std::fs::metadata(folder.path().join("page.html")).unwrap().len();
    println!("{} MB, page of {} MB: most memory {most} MB", bytes >> 20, page >> 20);
    assert!(page > bytes / 4, "the page shows the candidates of all rounds");
    assert!(most > 10 && most < 60 + (bytes >> 20), "{most} MB for {} MB", bytes >> 20);
}

#[test]
#[ignore = "takes some 500 MB of disk, and a quiet machine"]
fn a_million_events_open_in_two_seconds_and_a_gigabyte() {
    let (opened, folded) = measure(1_000_000);
    assert!(opened < Duration::from_secs(2), "{opened:?} to open");
    assert!(folded < Duration::from_secs(4), "{folded:?} to fold");
    assert!(peak_mb().is_none_or(|peak| peak < 1000), "{:?} MB", peak_mb());
}
