//! Draws the program's screen as it was at any moment of a recording.
//!
//! Invariant: the terminal front end's own code draws these frames from the recorded events; only long waits are cut.
//! The caller decides what to do with a frame.

use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::Backend;

use draftscope_protocol::{Event, EventKind, Lane, Outcome};
use draftscope_session::Timeline;
use draftscope_session::trace::Recording;
use draftscope_tui::{self as tui, Action, App, ColorDepth, TuiOptions, View};

use super::as_replayed::as_replayed;
use super::error::WriteError;
use super::options::ExportOptions;

/// Shortest time between two frames.
const FRAME: Duration = Duration::from_micros(66_667);

/// Most markers of a frame: more than a viewer can tell apart.
const MAX_MARKERS: usize = 100;

/// How long the last frame stays.
pub(super) const LAST: Duration = Duration::from_secs(3);

/// The events so far, and the state of the screen that shows them.
pub(super) struct Stage {
    time: Timeline,
    app: App,
    view: View,
}

/// A moment that a viewer may want to jump to.
pub(super) struct Marker {
    pub(super) at: Duration,
    pub(super) label: String,
}

impl Stage {
    fn new(options: &ExportOptions) -> Self {
        let options = TuiOptions { theme: options.theme.clone(), depth: ColorDepth::True, ..TuiOptions::default() };
        let (mut time, mut app) = (Timeline::of_the_present(), App::new(options));
        // the input line has no focus, since nobody types: the key hints are those for navigation
        tui::update(&mut app, &mut time, Action::FocusNext);
        Self { time, app, view: View::default() }
    }

    fn apply(&mut self, event: Event) {
        self.time.apply(event);
        self.app.follow(self.time.live());
    }

    /// Draws the screen as it is now.
    pub(super) fn draw<B: Backend>(&mut self, terminal: &mut Terminal<B>) -> std::io::Result<()> {
        let (time, app, view) = (&self.time, &self.app, &self.view);
        let mut hit_map = None;
        let drawn = terminal.draw(|frame| hit_map = Some(view.draw(time, app, app.theme(), frame)));
        drawn.map_err(|error| std::io::Error::other(error.to_string()))?;
        if let Some(hit_map) = hit_map {
            self.app.set_hit_map(hit_map);
        }
        Ok(())
    }
}

/// The screen at `options.at`, or at the end if that is none.
pub(super) fn at(recording: &Recording, options: &ExportOptions) -> Result<Stage, WriteError> {
    let mut stage = Stage::new(options);
    for event in recording.events()? {
        let event = event?;
        if options.at.is_some_and(|at| Duration::from_micros(event.at_us) > at) {
            break;
        }
        stage.apply(as_replayed(event, recording));
    }
    Ok(stage)
}

/// Calls `on_frame` for every frame in order, with its time (long waits shortened) and the markers since the frame
/// before.
pub(super) fn film(
    recording: &Recording,
    options: &ExportOptions,
    mut on_frame: impl FnMut(&mut Stage, Duration, Vec<Marker>) -> Result<(), WriteError>,
) -> Result<(), WriteError> {
    let mut stage = Stage::new(options);
    let (mut now, mut at_us, mut shown) = (Duration::ZERO, None::<u64>, None::<Duration>);
    let mut markers = Vec::new();
    for event in recording.events()? {
        let event = event?;
        let gap = event.at_us.saturating_sub(at_us.unwrap_or(event.at_us));
        let next = now + Duration::from_micros(gap).min(options.idle_limit);
        if at_us.is_some() && next > now && shown.is_none_or(|last| next >= last + FRAME) {
            on_frame(&mut stage, now, std::mem::take(&mut markers))?;
            shown = Some(now);
        }
        (now, at_us) = (next, Some(event.at_us));
        markers.extend(marker(&event, now).filter(|_| markers.len() < MAX_MARKERS));
        stage.apply(as_replayed(event, recording));
    }
    on_frame(&mut stage, now, markers)
}

fn marker(event: &Event, at: Duration) -> Option<Marker> {
    let label = match &event.kind {
        EventKind::Verified { round, verdict } if event.lane == Lane::Speculative => {
            let position = verdict.judgements.iter().position(|j| j.outcome == Outcome::Rejected)?;
            format!("round {round}: draft {} rejected", position + 1)
        }
        EventKind::Bookmarked { label, .. } => format!("bookmark {}", draftscope_session::text::one_line(label)),
        EventKind::Prompted { turn, .. } => format!("turn {turn}"),
        _ => return None,
    };
    Some(Marker { at, label: label.trim().to_owned() })
}
