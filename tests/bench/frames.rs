//! `cargo bench --bench frames`: what a frame of each page costs at 140 × 42, by the length of the answer.
//!
//! The first table redraws a finished state. In the second an answer streams at 500 tokens a second: each frame first takes the
//! events of a sixtieth of a second, then is drawn. Both include the difference to the frame before and its escape codes.
//! `-- Speed 10000` measures one page, or one length, or both.

#![allow(clippy::unwrap_used)] // a benchmark that cannot go on should stop

use std::io::{self, Sink};
use std::time::{Duration, Instant};

use draftscope::session::Timeline;
use draftscope::session::fixture::Script;
use draftscope::tui::{App, Page, TuiOptions, View};
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};

/// Columns and rows.
const SIZE: (u16, u16) = (140, 42);

/// Tokens of the answer.
const LENGTHS: [usize; 3] = [1_000, 10_000, 100_000];

const PAGES: [Page; 5] = [Page::Chat, Page::Rounds, Page::Speed, Page::Inspect, Page::Compare];

/// Frames of a measurement, after [`WARM_UP`].
const FRAMES: usize = 200;

/// Frames that fill the caches.
const WARM_UP: usize = 5;

/// Tokens that come between two of 60 frames a second, at 500 tokens a second.
const TOKENS_OF_A_FRAME: usize = 9;

fn main() {
    println!("{:<8} {:>8}  {:>22}  {:>22}", "", "", "redrawn, ms", "streaming, ms");
    println!("{:<8} {:>8}  {:>10} {:>11}  {:>10} {:>11}", "page", "tokens", "median", "95 %", "median", "95 %");
    let asked: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let is_asked = |all: &[String], one: &str| {
        !all.iter().any(|name| asked.contains(name)) || asked.iter().any(|name| name == one)
    };
    let (lengths, pages) = (LENGTHS.map(|length| length.to_string()), PAGES.map(|page| format!("{page:?}")));
    for length in LENGTHS.into_iter().filter(|length| is_asked(&lengths, &length.to_string())) {
        for page in PAGES.into_iter().filter(|page| is_asked(&pages, &format!("{page:?}"))) {
            let mut stage = Stage::new(page, length);
            let (median, most) = stage.measure(|_| ());
            let (streaming, most_streaming) = stage.measure(|stage| stage.write(TOKENS_OF_A_FRAME));
            let name = format!("{page:?}");
            println!("{name:<8} {length:>8}  {median:>10.2} {most:>11.2}  {streaming:>10.2} {most_streaming:>11.2}");
        }
    }
}

/// A front end without a terminal, and an answer that grows.
struct Stage {
    script: Script,
    time: Timeline,
    app: App,
    view: View,
    terminal: Terminal<CrosstermBackend<Sink>>,
    rounds: usize,
}

impl Stage {
    fn new(page: Page, tokens: usize) -> Self {
        let viewport = Viewport::Fixed(Rect::new(0, 0, SIZE.0, SIZE.1));
        let backend = CrosstermBackend::new(io::sink());
        let mut stage = Self {
            script: Script::prompted("go on", "It"),
            time: Timeline::new(),
            app: App::new(TuiOptions { page, ..TuiOptions::default() }),
            view: View::default(),
            terminal: Terminal::with_options(backend, TerminalOptions { viewport }).unwrap(),
            rounds: 0,
        };
        stage.write(tokens);
        stage
    }

    /// The answer goes on by at least so many tokens, in rounds that keep one, two or all three; so does the plain one.
    fn write(&mut self, tokens: usize) {
        let drafts = [(" one", 0.5), (" two", 0.4)];
        let mut written = 0;
        while written < tokens {
            let target = match self.rounds % 3 {
                0 => vec![(" one", 0.6), (" two", 0.5), (" three", 0.9)],
                1 => vec![(" one", 0.6), (" too", 0.5), (" three", 0.9)],
                _ => vec![(" won", 0.6), (" two", 0.5), (" three", 0.9)],
            };
            self.script.round(&drafts, &target);
            let kept = 3 - self.rounds % 3;
            target[..kept].iter().for_each(|(token, _)| self.script.plain(token));
            (written, self.rounds) = (written + kept, self.rounds + 1);
            std::mem::take(&mut self.script.events).into_iter().for_each(|event| self.time.apply(event));
        }
    }

    fn draw(&mut self) {
        let (view, time, app) = (&self.view, &self.time, &self.app);
        let mut hit_map = None;
        self.terminal.draw(|frame| hit_map = Some(view.draw(time, app, app.theme(), frame))).unwrap();
        self.app.set_hit_map(hit_map.unwrap());
    }

    /// Median and 95 % of the time of a frame in ms, `before` included.
    fn measure(&mut self, before: impl Fn(&mut Self)) -> (f64, f64) {
        (0..WARM_UP).for_each(|_| self.draw());
        let mut took: Vec<Duration> = (0..FRAMES)
            .map(|_| {
                let began = Instant::now();
                before(self);
                self.draw();
                began.elapsed()
            })
            .collect();
        took.sort_unstable();
        let ms = |share: f64| took[(share * (FRAMES - 1) as f64) as usize].as_secs_f64() * 1e3;
        (ms(0.5), ms(0.95))
    }
}
