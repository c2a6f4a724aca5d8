//! Work and memory in long sessions: a frame, a turn and an export cost what is new, not what is old.
//!
//! Work is counted in allocations and memory in bytes that are in use, by the allocator of this test, so that a busy
//! machine changes neither.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

#[path = "common/long.rs"]
#[allow(dead_code, reason = "shared with another test")]
mod long;

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use draftscope::export::{ExportOptions, Format, export};
use draftscope::protocol::Event;
use draftscope::session::Timeline;
use draftscope::session::trace::Recording;
use draftscope::tui::{App, Page, TuiOptions, View};
use long::Renumber;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

/// Counts allocations, and bytes in use.
struct Counting;

static COUNT: AtomicUsize = AtomicUsize::new(0);
static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// The counts are those of the process, so one test runs at a time.
static ALONE: Mutex<()> = Mutex::new(());

#[allow(unsafe_code)] // an allocator is unsafe by its trait
// SAFETY: every call is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        let now = IN_USE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: as above
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn counted(work: impl FnOnce()) -> usize {
    let before = COUNT.load(Ordering::Relaxed);
    work();
    COUNT.load(Ordering::Relaxed) - before
}

/// Most bytes in use during some work, beyond those in use before it.
fn peak(work: impl FnOnce()) -> usize {
    let before = IN_USE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    work();
    PEAK.load(Ordering::Relaxed) - before
}

/// A front end that draws a frame after every round.
struct Screen {
    time: Timeline,
    app: App,
    view: View,
    terminal: Terminal<TestBackend>,
    number: Renumber,
    seq: u64,
}

impl Screen {
    fn new(page: Page) -> Self {
        Self {
            time: Timeline::new(),
            app: App::new(TuiOptions { page, ..TuiOptions::default() }),
            view: View::default(),
            terminal: Terminal::new(TestBackend::new(120, 40)).unwrap(),
            number: Renumber::default(),
            seq: 0,
        }
    }

    fn draw(&mut self) {
        let (time, app, view) = (&self.time, &self.app, &self.view);
        let mut hit_map = None;
        self.terminal.draw(|frame| hit_map = Some(view.draw(time, app, app.theme(), frame))).unwrap();
        self.app.set_hit_map(hit_map.unwrap());
    }

    /// The next turn, with a frame after every tenth event, or without any.
    fn turn(&mut self, events: &[Event], draws: bool) {
        for (at, event) in events.iter().enumerate() {
            self.seq += 1;
            self.time.apply(self.number.event(event, self.seq));
            if draws && at % 10 == 0 {
                self.app.follow(self.time.live());
                self.draw();
            }
        }
        self.number = self.number.next();
    }
}

#[test]
fn a_turn_costs_as_much_after_two_thousand_turns_as_after_a_hundred() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let (start, turn) = long::short_turn(16);
    for page in Page::ALL {
        let mut screen = Screen::new(*page);
        screen.time.apply(start.clone());
        let at = |turns: usize, screen: &mut Screen| {
            while screen.time.live().turns().len() < turns {
                screen.turn(&turn, screen.time.live().turns().len().is_multiple_of(50));
            }
            // the first turns settle what was begun without a frame; a block of turns is laid out once in 64
            (0..4).for_each(|_| screen.turn(&turn, true));
            counted(|| (0..64).for_each(|_| screen.turn(&turn, true)))
        };
        let (early, late) = (at(100, &mut screen), at(2000, &mut screen));
        println!("{page:?}: {early} allocations in 64 turns after 100, {late} after 2000");
        assert!(late < early + early / 10, "{page:?}: {early} allocations in 64 turns after 100, {late} after 2000");
    }
}

/// Writes a recording of so many turns.
fn record(path: &Path, turns: usize) {
    let (start, turn) = long::short_turn(24);
    let mut file = std::io::BufWriter::new(std::fs::File::create(path).unwrap());
    let mut line = |event: &Event| writeln!(file, "{}", serde_json::to_string(event).unwrap()).unwrap();
    line(&start);
    let (mut number, mut seq) = (Renumber::default(), 0);
    for _ in 0..turns {
        for event in &turn {
            seq += 1;
            line(&number.event(event, seq));
        }
        number = number.next();
    }
}

#[test]
fn twice_the_recording_takes_twice_the_work_to_film() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let folder = tempfile::tempdir().unwrap();
    let film = |turns: usize| {
        let path = folder.path().join(format!("{turns}.jsonl"));
        record(&path, turns);
        let recording = Recording::open(&path).unwrap();
        let options = ExportOptions { force: true, ..ExportOptions::default() };
        let mut work = 0;
        let most = peak(|| {
            work = counted(|| {
                export(&recording, Format::Cast, &folder.path().join("a.cast"), &options).unwrap();
            });
        });
        println!("{turns} turns, {} events: {work} allocations, at most {} kB", recording.lines(), most >> 10);
        (work, most)
    };
    film(20); // what is made once
    let ((half, half_memory), (whole, memory)) = (film(150), film(300));
    assert!(whole < half * 23 / 10, "{half} allocations for 150 turns, {whole} for 300");
    assert!(memory < half_memory * 23 / 10, "{half_memory} bytes for 150 turns, {memory} for 300");
}

/// The most bytes in use while a recording of so many prompts without answers is filmed.
fn film_prompts(folder: &Path, prompts: u32) -> usize {
    let (start, turn) = long::short_turn(1);
    let path = folder.join(format!("{prompts}.jsonl"));
    let mut file = std::io::BufWriter::new(std::fs::File::create(&path).unwrap());
    writeln!(file, "{}", serde_json::to_string(&start).unwrap()).unwrap();
    let at_us = turn[0].at_us;
    for turn in 1..=prompts {
        writeln!(file, r#"{{"seq":{turn},"at_us":{at_us},"type":"prompted","turn":{turn},"text":"x"}}"#).unwrap();
    }
    drop(file);
    let recording = Recording::open(&path).unwrap();
    let options = ExportOptions { force: true, ..ExportOptions::default() };
    peak(|| export(&recording, Format::Cast, &folder.join("a.cast"), &options).unwrap())
}

#[test]
fn prompts_without_end_take_bounded_memory() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let folder = tempfile::tempdir().unwrap();
    let (some, more) = (film_prompts(folder.path(), 80_000), film_prompts(folder.path(), 240_000));
    println!("{} MB for 80,000 prompts, {} MB for 240,000", some >> 20, more >> 20);
    assert!(more < some + some / 4 && more < 64 << 20, "{some} bytes for 80,000 prompts, {more} for 240,000");
}

/// Plays a run with 32 candidates in every list; returns the most bytes in use.
fn play(events: usize) -> usize {
    let (start, turn) = long::bundled();
    peak(|| {
        let mut time = Timeline::new();
        time.apply(start);
        let (mut number, mut seq) = (Renumber::default(), 0);
        while seq < events {
            for event in &turn {
                seq += 1;
                time.apply(long::with_many_candidates(number.event(event, seq as u64)));
            }
            number = number.next();
        }
        assert!(time.live().events() > events as u64);
    })
}

#[test]
fn old_events_take_little_memory_whatever_they_recorded() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let (some, more) = (play(120_000), play(200_000));
    let each = (more - some) / 80_000;
    println!("{} MB for 120,000 events, {} MB for 200,000: {each} bytes an event", some >> 20, more >> 20);
    assert!(each < 200, "{each} bytes for each event more");
    assert!(more < 150 << 20, "{} MB for 200,000 events", more >> 20);
}

#[test]
#[ignore = "takes half a minute"]
fn a_million_events_take_less_than_250_mb() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let most = play(1_000_000);
    println!("{} MB", most >> 20);
    assert!(most < 250 << 20, "{} MB", most >> 20);
}
