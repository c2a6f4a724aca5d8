//! The line that says that the past is shown, at which moment, and how to return.
//!
//! Invariant: it is shown exactly while the past is; its bar is the shown turn, by rounds, so that waits have no part in
//! it.

use draftscope_session::Session;

use crate::view::bars::player;
use crate::view::bars::round_scale::RoundScale;
use crate::view::prelude::*;
use crate::view::values::duration;

pub(in crate::view) fn render(screen: Screen, area: Rect, frame: &mut Frame, hit_map: &mut HitMap) {
    if area.is_empty() {
        return;
    }
    let time = screen.time;
    let Some(span) = time.turn_span() else {
        return;
    };
    let newest = |session: &Session| {
        let rounds = session.turns().get(span.index).map_or(&[][..], |turn| &turn.answer(Lane::Speculative).rounds);
        rounds.last().map_or(0, |round| round.number())
    };
    let state = match screen.app.clock.replay {
        Some(pace) if screen.app.clock.plays => format!("▸ again, {}", pace.name(1)),
        _ if screen.app.clock.plays => "▸ playing the past".to_owned(),
        _ => "◀ the past".to_owned(),
    };
    let turn = screen.session.turns().get(span.index);
    let tokens = turn.map_or(0, |turn| turn.answer(Lane::Speculative).tokens.len());
    let (round, rounds) = (newest(screen.session), newest(time.live()));
    let turn = player::which_turn(Some(&span)).map_or(String::new(), |turn| format!("{turn}, "));
    let at = format!(" {state}: {turn}round {round} of {rounds}, token {tokens} ");
    let key = |action| {
        let binding = screen.app.keymap.binding(Context::Browse, action);
        binding.map_or(String::new(), |binding| screen.app.keymap.first_key(binding))
    };
    let into_us = time.at_us().saturating_sub(span.time_us.start);
    let end = format!(" {} · {} now ", duration(into_us), key(Action::Follow));
    let used = Span::raw(&at).width() + Span::raw(&end).width();
    let room = usize::from(area.width).saturating_sub(used).max(1);
    let scale = RoundScale::of(time, &span, room);
    let place = scale.cell(time.at());
    for cell in 0..room {
        let x = area.x + (Span::raw(&at).width() + cell) as u16;
        hit_map.hit(Rect { x, width: 1, ..area }.intersection(area), Target::Moment(scale.moment(cell)));
    }
    let style = screen.theme[Role::StatusPaused];
    let marked = player::moments(screen).into_iter();
    let marked = marked.filter_map(|(at_us, sign)| Some((time.at_time(at_us)?, sign)));
    let marks: Vec<_> =
        marked.filter(|(at, _)| span.events.contains(at)).map(|(at, sign)| (scale.cell(at), sign)).collect();
    let mut spans = vec![Span::styled(at, style)];
    for here in 0..room {
        let mark = marks.iter().rev().find(|(at, _)| *at == here);
        spans.push(match mark {
            _ if here == place => Span::styled("●", style),
            Some((_, sign)) => Span::styled(sign.to_string(), screen.theme[Role::Key]),
            None if here < place => Span::styled("━", style),
            None => Span::styled("─", screen.theme[Role::PlotAxis]),
        });
    }
    spans.push(Span::styled(end, style));
    frame.render_widget(Line::from(spans), area);
}
