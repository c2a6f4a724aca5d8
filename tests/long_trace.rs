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

use draftscope::protocol::{Drafted, Event, EventKind, Prefilled, Scored};
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
    Some(peak_kb_of("self")? / 1024)
}

fn peak_kb_of(process: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
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

/// The event with one candidate in every list, as an engine may report it.
#[cfg(target_os = "linux")]
fn with_one_candidate(mut event: Event) -> Event {
    match &mut event.kind {
        EventKind::Drafted(Drafted { top, .. }) | EventKind::Prefilled(Prefilled { row: top, .. }) => {
            top.top.truncate(1);
        }
        EventKind::Scored(Scored { rows, .. }) => rows.iter_mut().for_each(|row| row.top.truncate(1)),
        _ => {}
    }
    event
}

/// The program writes a page of a recording with so many events: size of the recording, size of the page, and the most
/// memory that it took, in MB.
#[cfg(target_os = "linux")]
fn page_of(events: u64, change: fn(Event) -> Event) -> [f64; 3] {
    let folder = tempfile::tempdir().unwrap();
    let (path, page) = (folder.path().join("long.dscope.jsonl"), folder.path().join("page.html"));
    write_changed(&path, events, change);
    let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_draftscope"));
    program.args(["export", "--to", "html", "--out"]).arg(&page).arg(&path);
    let mut running = program.stdout(std::process::Stdio::null()).spawn().unwrap();
    let mut most = 0;
    let status = loop {
        most = most.max(peak_kb_of(&running.id().to_string()).unwrap_or(0));
        if let Some(status) = running.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    assert!(status.success());
    let mb = |path: &Path| std::fs::metadata(path).unwrap().len() as f64 / f64::from(1 << 20);
    let found = [mb(&path), mb(&page), most as f64 / 1024.0];
    println!("{events} events: {found:.1?} MB of recording, page and memory");
    found
}

/// A page shows the first rounds, and a longer recording takes no more memory than it is longer.
#[cfg(target_os = "linux")]
#[test]
fn a_page_is_written_as_it_is_made() {
    let wide = [16_000, 48_000].map(|events| page_of(events, long::with_many_candidates));
    let narrow = [80_000, 200_000].map(|events| page_of(events, with_one_candidate));
    assert!(wide[0][1] > wide[0][0] / 4.0, "the page shows the candidates of all rounds");
    for [small, large] in [wide, narrow] {
        assert!(small[2] > 10.0 && small[2] < 60.0 + small[0], "{small:?}");
        let (longer, more) = (large[0] - small[0], large[2] - small[2]);
        // 4 MB, by which two runs differ: so one of 200 MB takes less than 300
        assert!(longer > 20.0 && more <= 1.2 * longer + 4.0, "{more} MB more for {longer} MB");
    }
}

#[cfg(target_os = "linux")]
#[test]
#[ignore = "takes 200 MB of disk, and minutes; run by tests/nightly.sh"]
fn pages_of_200_megabytes_take_less_than_300() {
    let bytes = |change| page_of(20_000, change)[0] / 20_000.0;
    for change in [long::with_many_candidates, with_one_candidate] {
        let events = (200.0 / bytes(change)) as u64;
        let [size, _, most] = page_of(events, change);
        assert!(size > 190.0 && most < 300.0, "{most} MB for {size} MB");
    }
}

#[test]
#[ignore = "takes some 500 MB of disk, and a quiet machine"]
fn a_million_events_open_in_two_seconds_and_a_gigabyte() {
    let (opened, folded) = measure(1_000_000);
    assert!(opened < Duration::from_secs(2), "{opened:?} to open");
    assert!(folded < Duration::from_secs(4), "{folded:?} to fold");
    assert!(peak_mb().is_none_or(|peak| peak < 1000), "{:?} MB", peak_mb());
}
