//! `cargo bench`: a round per k, folding events, drawing a frame. divan prints medians and spread;
//! `draftscope explain` measures passes of the model alone.

#![allow(clippy::unwrap_used)] // a benchmark that cannot go on should stop

#[path = "../common/mod.rs"]
mod common;

use std::time::Duration;

use common::real;
use divan::Bencher;
use draftscope::engine::speculate::decoder::Decoder;
use draftscope::engine::speculate::drafter::{Drafter, MtpDrafter};
use draftscope::engine::{self, EngineConfig};
use draftscope::headless::{Driver, Outcome};
use draftscope::model::load::Loaded;
use draftscope::protocol::stream::Consumer;
use draftscope::protocol::{
    Baseline, Candidate, Committed, Event, EventKind, Lane, Piece, Prediction, Prefilled, Prompt, RoundStarted, Scored,
    Settings, TokenId,
};
use draftscope::session::{Session, Timeline};
use draftscope::tui::{App, Theme, TuiOptions, View};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

fn main() {
    divan::main();
}

/// One round of the real model on the native backend at 200 positions, drafts included.
#[divan::bench(args = [0, 1, 2, 3, 4, 6, 8], sample_count = 60, sample_size = 1)]
fn round(bencher: Bencher, k: u8) {
    let Some(Loaded { target, mtp, .. }) = real::load_native() else { return };
    let drafter: Box<dyn Drafter> = Box::new(MtpDrafter::new(mtp.unwrap().0));
    let mut decoder = Decoder::new(target, drafter, &Settings { draft_len: k, ..Settings::default() });
    let prompt: Vec<TokenId> = (0..200u32).map(|i| TokenId((i * 7919 + 13) % 49_152)).collect();
    decoder.prefill(1, &prompt).unwrap();
    bencher.bench_local(|| decoder.round(&mut |_| Duration::ZERO).unwrap().len());
}

/// Keeps every event.
#[derive(Clone, Default)]
struct Tape(std::rc::Rc<std::cell::RefCell<Vec<Event>>>);

impl Consumer for Tape {
    fn name(&self) -> &str {
        "the tape"
    }
    fn event(&mut self, event: &Event) -> std::io::Result<()> {
        self.0.borrow_mut().push(event.clone());
        Ok(())
    }
    fn finish(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// At least 10,000 events of a race on the tiny model.
fn events() -> Vec<Event> {
    let files = common::tiny::Tiny::new(3);
    let settings = Settings { draft_len: 4, max_tokens: 180, baseline: Baseline::Race, ..Settings::default() };
    let tape = Tape::default();
    let mut driver =
        Driver::new(engine::spawn(EngineConfig { recipe: files.recipe(), settings, grammar: None }).unwrap());
    driver.add(Box::new(tape.clone()));
    while tape.0.borrow().len() < 10_000 {
        assert_eq!(driver.answer(Prompt::Raw("the thin inn".into())), Outcome::Answered);
    }
    driver.finish();
    tape.0.take()
}

fn fold(events: &[Event]) -> Session {
    let mut session = Session::new();
    events.iter().for_each(|event| session.apply(event));
    session
}

#[divan::bench(sample_count = 20)]
fn fold_10k_events(bencher: Bencher) {
    let events = events();
    bencher.bench_local(|| fold(&events).events());
}

/// An answer of 100,000 tokens in rounds of three.
fn long_answer() -> Timeline {
    let piece = |id: u32| Piece::new(TokenId(id), format!(" w{id}"));
    let row = |id| Prediction { top: vec![Candidate { piece: piece(id), prob: 0.9 }], tail: 0.1 };
    let mut kinds = vec![
        EventKind::Prompted { turn: 1, text: "go on".into(), branch: None },
        EventKind::Prefilled(Prefilled {
            turn: 1,
            prompt: vec![piece(1)],
            first: piece(2),
            row: row(2),
            took_us: 1,
            ..Prefilled::default()
        }),
    ];
    for round in 1..=33_334u32 {
        kinds.push(EventKind::RoundStarted(RoundStarted { round, base_len: round * 3, ..RoundStarted::default() }));
        kinds.push(EventKind::Scored(Scored { round, rows: vec![row(round)], verify_us: 1, sample_us: 1 }));
        let tokens = vec![piece(round), piece(round + 1), piece(round + 2)];
        kinds.push(EventKind::Committed(Committed {
            round,
            tokens,
            rollback_us: 1,
            clock_us: round.into(),
            ..Committed::default()
        }));
    }
    let mut time = Timeline::new();
    for (seq, kind) in kinds.into_iter().enumerate() {
        time.apply(Event { seq: seq as u64, at_us: seq as u64, lane: Lane::Speculative, kind });
    }
    time
}

/// The time must not depend on the length of the answer: only new text is laid out.
#[divan::bench(sample_count = 100)]
fn draw_a_frame_of_100k_tokens(bencher: Bencher) {
    let (time, app, view) = (long_answer(), App::new(TuiOptions::default()), View::default());
    let mut terminal = Terminal::new(TestBackend::new(120, 40)).unwrap();
    let mut draw = || {
        terminal.draw(|frame| drop(view.draw(&time, &app, app.theme(), frame))).unwrap();
    };
    draw();
    bencher.bench_local(draw);
}

#[divan::bench(args = [(80, 24), (200, 60)], sample_count = 100)]
fn draw_a_frame(bencher: Bencher, size: (u16, u16)) {
    let mut time = Timeline::new();
    events().into_iter().for_each(|event| time.apply(event));
    let (app, view) = (App::new(TuiOptions::default()), View::default());
    let theme: Theme = app.theme().clone();
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
    bencher.bench_local(|| {
        let draw = |frame: &mut ratatui::Frame<'_>| {
            view.draw(&time, &app, &theme, frame);
        };
        terminal.draw(draw).unwrap();
    });
}
