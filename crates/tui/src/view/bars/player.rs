//! The line of a recording: the current place, how it plays, its marks.
//!
//! Invariant: the bar is the shown turn in its own time, so that idle time between turns is no part of it; of a recording
//! that is known as a whole, by rounds. What has played is drawn thick, the current moment is the dot. It is shown as long as a recording is.

use std::collections::HashMap;

use crate::app::place::marks::mark_sign;
use crate::view::bars::round_scale::RoundScale;
use crate::view::prelude::*;
use draftscope_protocol::{Committed, EventKind, Prefilled};
use draftscope_session::text::one_line;
use draftscope_session::{Mark, PassId, TurnSpan};

pub(in crate::view) fn render(screen: Screen, area: Rect, frame: &mut Frame, hit_map: &mut HitMap) {
    if area.is_empty() {
        return;
    }
    let live = screen.time.live();
    let recorded = live.header().and_then(|header| header.capabilities.ends_at_us);
    let end_us = recorded.unwrap_or_default().max(live.at_us());
    let span = screen.time.turn_span();
    let time_us = span.as_ref().map_or(screen.time.origin_us()..end_us, |span| span.time_us.clone());
    let (origin_us, len_us) = (time_us.start, time_us.end.saturating_sub(time_us.start).max(1));
    let into = |at_us: u64| at_us.saturating_sub(origin_us).min(len_us);
    let turn = which_turn(span.as_ref()).map_or(String::new(), |turn| format!("{turn} "));
    let start = format!(" {}{} {turn}{} ", which(screen), state(screen), clock(into(screen.time.at_us())));
    let playback = screen.app.clock.playback.label();
    let long = format!(" {} · {playback} ", clock(len_us));
    let short = format!(" {} · {}× ", clock(len_us), screen.app.clock.playback.speed);
    let width = |text: &str| Span::raw(text).width();
    let end = if usize::from(area.width) >= width(&start) + width(&long) + 16 { long } else { short };
    let room = usize::from(area.width).saturating_sub(width(&start) + width(&end)).max(2);
    let is_whole = screen.app.learning.shows_recording(); // all its rounds are known
    let rounds = span.as_ref().filter(|_| is_whole).map(|span| RoundScale::of(screen.time, span, room));
    let cell = |at_us: u64| match &rounds {
        Some(rounds) => rounds.cell(screen.time.at_time(at_us).unwrap_or_default()),
        None => (u128::from(into(at_us)) * (room as u128 - 1) / u128::from(len_us)) as usize,
    };
    for place in 0..room {
        let x = area.x + (width(&start) + place) as u16;
        let by_time = || origin_us.saturating_add((u128::from(len_us) * place as u128 / (room as u128 - 1)) as u64);
        let target = rounds.as_ref().map(|rounds| Target::Moment(rounds.moment(place)));
        let target = target.unwrap_or_else(|| Target::Time(by_time()));
        hit_map.hit(Rect { x, width: 1, ..area }.intersection(area), target);
    }
    let strong = screen.theme[Role::StatusPaused];
    let mut spans = vec![Span::styled(start, strong)];
    let here_us = moments(screen).into_iter().filter(|(at_us, _)| (time_us.start..=time_us.end).contains(at_us));
    let marks: Vec<_> = here_us.map(|(at_us, sign)| (cell(at_us), sign)).collect();
    let here = rounds.as_ref().map_or_else(|| cell(screen.time.at_us()), |rounds| rounds.cell(screen.time.at()));
    // what has played; of a recording that is known as a whole, what is on show
    let told = if is_whole { here } else { cell(live.at_us()) };
    for place in 0..room {
        let mark = marks.iter().rev().find(|(at, _)| *at == place).map(|(_, sign)| *sign);
        let (glyph, style) = match mark {
            _ if place == here => ('●', strong),
            Some(sign) => (sign, screen.theme[Role::Key]),
            None if place <= told => ('━', strong),
            None => ('─', screen.theme[Role::PlotAxis]),
        };
        spans.push(Span::styled(glyph.to_string(), style));
    }
    spans.push(Span::styled(end, strong));
    frame.render_widget(Line::from(spans), area);
}

/// Which of several turns is shown.
pub(in crate::view) fn which_turn(span: Option<&TurnSpan>) -> Option<String> {
    span.filter(|span| span.of > 1).map(|span| format!("turn {} of {}", span.index + 1, span.of))
}

/// Which of several recordings plays.
fn which(screen: Screen) -> String {
    let listed = screen.time.live().header().and_then(|header| header.capabilities.listed.as_ref());
    listed.map_or_else(String::new, |l| format!("{} {}/{} · ", one_line(&l.name), l.number, l.of))
}

/// Times of the marks: the end of the round that a mark is about, if it is kept.
pub(in crate::view) fn moments(screen: Screen) -> Vec<(u64, char)> {
    let marks = screen.time.live().marks();
    let mut ends = HashMap::new();
    if !marks.is_empty() {
        ends.extend(screen.time.events().filter_map(|event| match event.kind {
            EventKind::Committed(Committed { round, .. }) if event.lane == Lane::Speculative => {
                Some(((0, round), event.at_us))
            }
            EventKind::Prefilled(Prefilled { turn, .. }) if event.lane == Lane::Speculative => {
                Some(((turn, 0), event.at_us))
            }
            _ => None,
        }));
    }
    let key = |place: PassId| if place.round > 0 { (0, place.round) } else { (place.turn, 0) };
    let at = |mark: &Mark| mark.place.and_then(|place| ends.get(&key(place))).copied().unwrap_or(mark.at_us);
    marks.iter().map(|mark| (at(mark), mark_sign(mark))).collect()
}

/// Whether the recording has played to its end.
pub(in crate::view) fn is_over(screen: Screen) -> bool {
    let live = screen.time.live();
    let ends_at_us = live.header().and_then(|header| header.capabilities.ends_at_us).unwrap_or(u64::MAX);
    screen.app.requests.has_ended || (live.is_paused() && live.at_us() >= ends_at_us)
}

/// What time does now.
fn state(screen: Screen) -> &'static str {
    let live = screen.time.live();
    let is_past = screen.time.is_past();
    match () {
        // all of it is known before it plays, and going on in it is no past
        () if is_past && screen.app.learning.shows_recording() => {
            if screen.app.clock.plays {
                "▶"
            } else {
                "‖ paused"
            }
        }
        () if is_past && screen.app.clock.plays => "▸ the past",
        () if is_past => "◀ the past",
        () if is_over(screen) => "■ the end",
        () if live.is_paused() => "‖ paused",
        () => "▶",
    }
}

/// Microseconds as minutes and seconds.
fn clock(us: u64) -> String {
    let tenths = us / 100_000;
    format!("{}:{:02}.{}", tenths / 600, tenths / 10 % 60, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_count_minutes() {
        assert_eq!(clock(65_432_100), "1:05.4");
        assert_eq!(clock(999_999), "0:00.9");
    }
}
