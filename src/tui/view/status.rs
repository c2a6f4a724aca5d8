//! The top line: what runs, how it is set, what it is doing.
//!
//! Invariant: requested settings that are not in force yet have a `→`. If the line is short, parts are dropped by rank;
//! the state never is.

use crate::protocol::{Ability, Baseline, DraftLenMode, Settings, VerifyRule};
use crate::session::Phase;
use crate::tui::pacing::round_number;

use super::prelude::*;
use super::rival;

pub(super) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    let (state, style) = state(screen);
    let state = Span::styled(format!(" {state} "), style);
    let room = usize::from(area.width).saturating_sub(state.width());
    let mut parts = parts(screen);
    let whole = parts.clone();
    let width = |parts: &[(u8, String)]| parts.iter().map(|p| Span::raw(&p.1).width() + 3).sum::<usize>();
    while width(&parts) > room {
        let Some(least) = parts.iter().map(|p| p.0).max().filter(|rank| *rank > 0) else {
            break;
        };
        parts.retain(|part| part.0 != least);
    }
    // rather the beginning of the model's name than none
    let left = room.saturating_sub(width(&parts) + 3);
    if let Some(at) =
        whole.iter().position(|part| part.0 == NAME).filter(|at| left >= 12 && parts.get(*at) != whole.get(*at))
    {
        parts.insert(at, (NAME, cut(&whole[at].1, left)));
    }
    let list: Vec<_> = parts.into_iter().map(|part| part.1).collect();
    let text = cut(&format!(" {}", list.join(" │ ")), room);
    let used = Span::raw(&text).width();
    let gap = Span::raw(" ".repeat(room.saturating_sub(used)));
    let line = Line::from(vec![Span::styled(text, screen.theme[Role::Status]), gap, state]);
    frame.render_widget(line, area);
}

/// Rank of the model's name.
const NAME: u8 = 4;

/// Parts of the line, with the rank by which they are dropped (highest first, 0 stays).
fn parts(screen: Screen) -> Vec<(u8, String)> {
    let settings = screen.app.settings(screen.session);
    let now = *screen.session.settings();
    let wait = !screen.time.is_past();
    let arrow = |changes: bool| if changes && wait { "→ " } else { "" };
    let mut parts = Vec::new();
    if screen.app.aside.is_some() {
        parts.push((0, if screen.app.is_demo() { "recording" } else { "lesson's recording" }.to_owned()));
    }
    if let Some(header) = screen.session.header() {
        parts.push((NAME, text::one_line(&header.model.name).into_owned()));
        parts.push((6, format!("{} {}", header.dtype, header.device)));
        let drafter = match screen.session.drafter() {
            _ if settings.drafter != now.drafter => format!("{}{}", arrow(true), settings.drafter.name()),
            Some(kind) => kind.name().to_owned(),
            None => "no drafter".to_owned(),
        };
        parts.push((2, drafter));
    } else {
        parts.push((2, "draftscope".to_owned()));
    }
    let of_k = |settings: &Settings| (settings.draft_len, settings.draft_len_mode);
    let is_ours = screen.session.header().is_none_or(|header| header.can(Ability::SetDraftLen));
    let k = if is_ours { k(&settings) } else { "k set by the server".to_owned() };
    parts.push((0, format!("{}{k}", arrow(of_k(&settings) != of_k(&now)))));
    let (wanted, is) = (&settings.drafting, &now.drafting);
    if let Some(tree) = tree(wanted.tree, is.tree) {
        parts.push((2, format!("{}{tree}", arrow(wanted.tree != is.tree))));
    }
    if wanted.p_min > 0.0 || is.p_min > 0.0 {
        let p_min = (wanted.p_min * 100.0).round() / 100.0;
        parts.push((2, format!("{}p-min {p_min}", arrow(wanted.p_min != is.p_min))));
    }
    parts.push((1, format!("{}{}", arrow(settings.rule != now.rule), rule(&settings))));
    parts.push((3, format!("{}T {}", arrow(settings.sampling != now.sampling), settings.sampling.temperature)));
    if let Some(rival) = &settings.rival {
        parts.push((
            5,
            format!(
                "{}rival: {}",
                arrow(settings.rival != now.rival),
                rival::difference(&rival.settings(&settings), &settings)
            ),
        ));
    }
    parts.push((7, format!("{}plain: {}", arrow(settings.baseline != now.baseline), baseline(settings.baseline))));
    parts
}

/// The drafted tree, or the one that is no longer drafted.
fn tree(wanted: Option<u8>, is: Option<u8>) -> Option<String> {
    match wanted {
        Some(nodes) => Some(format!("tree {nodes}")),
        None => is.map(|_| "no tree".to_owned()),
    }
}

/// k; if the engine chooses, the most that a round may draft.
fn k(settings: &Settings) -> String {
    match (settings.draft_len_mode, settings.draft_len) {
        (DraftLenMode::Fixed, k) => format!("k={k}"),
        (DraftLenMode::Auto, 0) => "k=0 auto".to_owned(),
        (DraftLenMode::Auto, k) => format!("k≤{k} auto"),
    }
}

fn rule(settings: &Settings) -> String {
    let judges_trees = settings.drafting.tree.is_none() || settings.rule != VerifyRule::Block;
    let instead = if judges_trees { "" } else { "; trees: rejection" };
    format!("{} ({}{instead})", settings.rule, settings.rule.label())
}

fn baseline(baseline: Baseline) -> String {
    match baseline {
        Baseline::Off => "off".to_owned(),
        Baseline::Probe(tokens) => format!("probe {tokens}"),
        Baseline::Race => "race".to_owned(),
    }
}

fn state(screen: Screen) -> (String, Style) {
    let session = screen.session;
    let active = screen.theme[Role::StatusActive];
    if screen.time.is_past() {
        let live = screen.time.live();
        let now = match (live.is_generating(), live.is_paused()) {
            (false, _) => "",
            (true, true) => " · the present is paused",
            (true, false) => " · the present goes on",
        };
        return (format!("◀ the past{now}"), screen.theme[Role::StatusPaused]);
    }
    let phase = match (session.phase(Lane::Speculative), session.phase(Lane::Plain)) {
        _ if session.draft_asked().is_some() => Some("your draft".to_owned()),
        (Phase::Idle, Phase::Idle) => None,
        (Phase::Idle, _) => Some("plain lane".to_owned()),
        (phase, _) => Some(phase.name().to_owned()),
    };
    if session.is_paused() && screen.app.plays {
        return (format!("● {}", screen.app.pace.name(round_number(session))), active);
    }
    if session.is_paused() {
        let at = phase.map_or(String::new(), |phase| format!(" · {phase}"));
        return (format!("‖ paused{at}"), screen.theme[Role::StatusPaused]);
    }
    if let Some(loading) = session.loading() {
        return (format!("loading {}", text::one_line(&loading.stage)), active);
    }
    match phase {
        _ if session.failure().is_some() || screen.app.lost.is_some() => {
            ("✗ stopped".to_owned(), screen.theme[Role::Error])
        }
        Some(phase) => (format!("● {phase}"), active),
        None if screen.app.is_awaiting(session) => ("● sent".to_owned(), active),
        None => ("○ ready".to_owned(), screen.theme[Role::Status]),
    }
}
