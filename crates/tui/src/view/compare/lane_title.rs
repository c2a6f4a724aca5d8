//! The name of a lane, with its speed.

use crate::view::learn::hidden::hides;
use crate::view::overlays::rival;
use crate::view::prelude::*;
use crate::view::values::{duration, number, role_of};
use draftscope_learn::lesson::Hidden;

/// The title of a lane that stands beside others.
pub(in crate::view) fn title(screen: Screen, lane: Lane, width: u16) -> Line<'static> {
    let (name, role) = name(screen, lane, width);
    let mut spans = vec![Span::styled(format!(" {name} "), screen.theme[role])];
    if let Some(turn) = screen.turn().filter(|_| !hides(screen, Hidden::Agreement)) {
        let speed = number(turn.tokens_per_second(lane), 1);
        let speedup = turn.speedup_over(screen.beside()).filter(|_| lane == Lane::Speculative);
        let ratio = speedup.map_or(String::new(), |speedup| format!("· {speedup} "));
        let bare = speedup.map_or(String::new(), |speedup| format!("{speedup} "));
        let (short, long) = (format!("{speed} tok/s "), format!("{speed} tok/s · {} ", duration(turn.decode_us(lane))));
        let used = spans.iter().map(Span::width).sum::<usize>() + 2;
        // a figure is whole or not there
        let forms = [(long, ratio.clone()), (short.clone(), ratio), (String::new(), bare), (short, String::new())];
        let fits = |(speed, ratio): &(String, String)| {
            used + speed.width() + ratio.width() <= width.into() && speed.width() + ratio.width() > 0
        };
        let (speed, ratio) = forms.into_iter().find(fits).unwrap_or_default();
        spans.push(Span::styled(speed, screen.theme[Role::TextStrong]));
        let role = speedup.map_or(Role::Good, |speedup| role_of(&speedup));
        spans.push(Span::styled(ratio, screen.theme[role]));
    }
    Line::from(spans)
}

/// The name of a lane: with a rival, both titles list the settings that differ.
fn name(screen: Screen, lane: Lane, width: u16) -> (String, Role) {
    let settings = screen.turn().map_or(screen.session.settings(), |turn| &turn.begun);
    let rival = settings.rival.filter(|_| screen.beside() == Lane::Rival).map(|rival| rival.settings(settings));
    match (lane, rival) {
        (Lane::Rival, Some(rival)) => (format!("Rival {}", rival::difference(&rival, settings)), Role::PlotPlain),
        (Lane::Rival, None) => ("Rival".to_owned(), Role::PlotPlain),
        (Lane::Speculative, Some(rival)) => {
            (format!("Yours {}", rival::difference(settings, &rival)), Role::PlotSpeculative)
        }
        (Lane::Speculative, None) if width < 46 => ("Spec.".to_owned(), Role::PlotSpeculative),
        (Lane::Speculative, None) => ("Speculative".to_owned(), Role::PlotSpeculative),
        (Lane::Plain, _) => ("Plain".to_owned(), Role::PlotPlain),
    }
}
