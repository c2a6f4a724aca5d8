//! The screen of two recordings.
//!
//! ```text
//!   names ─────────────────────────────────
//!   figures of both │ what they differ in
//!   tokens, pair by pair
//!   first: two best  │ second: two best
//!   footer ────────────────────────────────
//! ```
//!
//! Invariant: as of every screen: drawing changes nothing, any size draws. One panel per file.

mod figures;
mod sides;
mod tokens;

use crate::app::Overlay;
use crate::other_screens::diff::Compared;
use crate::terminal::plain_glyphs;

use crate::view::bars::footer;
use crate::view::chat::transcript_cache::TranscriptCache;
use crate::view::overlays::{help, palette};
use crate::view::prelude::*;
use crate::view::screen::MIN_SIZE;
use crate::view::screens;

/// Draws one frame; returns its measurements.
pub(crate) fn render(compared: &Compared, frame: &mut Frame) -> ((usize, usize, u16), HitMap) {
    let (app, lines) = (&compared.app, TranscriptCache::default()); // there is no transcript
    let screen =
        Screen { time: &compared.time, session: compared.time.shown(), app, theme: app.theme(), lines: &lines };
    let area = frame.area();
    let mut measured =
        (compared.measured, HitMap { page: area.height.saturating_sub(4).into(), ..app.place.hit_map.clone() });
    frame.buffer_mut().set_style(area, screen.theme[Role::Text]);
    if area.width < MIN_SIZE.0 || area.height < MIN_SIZE.1 {
        screens::too_small(screen, area, frame);
    } else {
        measured.0 = main(screen, compared, area, frame);
        match &app.place.overlay {
            Some(Overlay::Help(help)) => measured.1.help_max = help::render(screen, (Context::Diff, help), area, frame),
            Some(Overlay::Palette(entry)) => palette::render(screen, entry, area, frame),
            _ => {}
        }
    }
    if app.options.ascii {
        plain_glyphs::replace(frame.buffer_mut());
    }
    measured
}

fn main(screen: Screen, compared: &Compared, area: Rect, frame: &mut Frame) -> (usize, usize, u16) {
    let [names, figures, tokens, sides, footer] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(figures::height(compared, area)),
        Constraint::Min(4),
        Constraint::Length(sides::HEIGHT),
        Constraint::Length(1),
    ])
    .areas(area);
    self::names(screen, compared, names, frame);
    figures::render(screen, compared, figures, frame);
    let measured = tokens::render(screen, compared, tokens, frame);
    sides::render(screen, compared, sides, frame);
    footer::of(screen, compared.context(), footer, frame);
    measured
}

/// Which files, and whether they are the same.
fn names(screen: Screen, compared: &Compared, area: Rect, frame: &mut Frame) {
    let (verdict, role) = verdict(compared);
    let verdict = format!(" {verdict} ");
    let room = usize::from(area.width).saturating_sub(Span::raw(&verdict).width());
    let name = |side: usize| {
        let name = text::one_line(&compared.sides[side].name).into_owned();
        format!(" {}: {}", sides::NAMES[side], cut_front(&name, (room / 2).saturating_sub(11)))
    };
    let line = Line::from(vec![
        Span::styled(fit(&format!("{} │{}", name(0), name(1)), room), screen.theme[Role::Status]),
        Span::styled(verdict, screen.theme[role]),
    ]);
    frame.render_widget(line, area);
}

fn verdict(compared: &Compared) -> (String, Role) {
    let parted = compared.turns.iter().filter(|turn| !turn.diff.is_same()).count();
    match (compared.turns.len(), parted) {
        (0, _) => ("no turn stands in both".to_owned(), Role::Warning),
        (_, 0) if compared.diff.unpaired_turns > 0 => ("same where both have turns".to_owned(), Role::Warning),
        (_, 0) => ("= the same tokens".to_owned(), Role::Good),
        (1, _) => ("≠ they part".to_owned(), Role::Warning),
        (all, parted) => (format!("≠ {parted} of {all} turns part"), Role::Warning),
    }
}

/// Cuts a path at its beginning, because its end says more.
fn cut_front(name: &str, width: usize) -> String {
    if Span::raw(name).width() <= width {
        return name.to_owned();
    }
    let backwards: String = name.chars().rev().collect();
    cut(&backwards, width).chars().rev().collect()
}
