//! The top line: what runs, how it is set, what it is doing.
//!
//! Invariant: settings asked for and not yet in force carry a `→`. Where the line is short, words are shortened and
//! parts left out from the least telling one on; the state, and a rule that changes the text, never are.

use crate::app::clock::pacing::round_number;
use draftscope_protocol::{Ability, Baseline, DraftLenMode, DrafterKind, Settings, VerifyRule};
use draftscope_session::Phase;

use crate::view::bars::player;
use crate::view::overlays::rival;
use crate::view::prelude::*;

pub(in crate::view) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    let (state, style) = state(screen);
    let state = Span::styled(format!(" {state} "), style);
    let room = usize::from(area.width).saturating_sub(state.width());
    let width = |parts: &[Part]| parts.iter().map(|part| part.width() + 2).sum::<usize>();
    let fitting = (0..=EVERYTHING).rev().map(|level| parts(screen, level)).find(|parts| width(parts) <= room);
    let mut shown = fitting.unwrap_or_else(|| parts(screen, 0));
    // rather the beginning of a name than none
    if let Some(first) = shown.first().map(Part::width) {
        let rest = width(&shown).saturating_sub(first + 2);
        shown[0].value = cut(&shown[0].value, room.saturating_sub(rest + 2));
    }
    let mut spans: Vec<_> = shown.into_iter().flat_map(|part| part.spans(screen)).collect();
    let used: usize = spans.iter().map(Span::width).sum();
    spans.extend([Span::raw(" ".repeat(room.saturating_sub(used))), state]);
    frame.render_widget(Line::from(spans), area);
}

/// A value and what it is called; without a name where the value says it.
struct Part {
    name: &'static str,
    value: String,
    role: Role,
}

impl Part {
    fn new(name: &'static str, value: String) -> Self {
        Self { name, value, role: Role::Text }
    }

    fn width(&self) -> usize {
        let name = if self.name.is_empty() { 0 } else { self.name.width() + 1 };
        name + self.value.width()
    }

    fn spans(self, screen: Screen) -> [Span<'static>; 3] {
        let name = if self.name.is_empty() { String::new() } else { format!("{} ", self.name) };
        [
            Span::styled(format!(" {name}"), screen.theme[Role::Status]),
            Span::styled(self.value, screen.theme[self.role]),
            Span::raw(" "),
        ]
    }
}

/// How much the line says: at the highest level everything, with each step down less.
type Level = u8;

const EVERYTHING: Level = 9;

// What the line says from this level on, the least telling first.
const WEIGHTS: Level = 9;
const PLAIN: Level = 8;
const EXPLAINED: Level = 7;
const RULE_EXPLAINED: Level = 6;
const NAMES: Level = 5;
const GREEDY: Level = 4;
const RULE: Level = 3;
const RIVAL: Level = 2;
const WORDS: Level = 1;

fn parts(screen: Screen, level: Level) -> Vec<Part> {
    let settings = screen.app.requests.settings(screen.session);
    let now = *screen.session.settings();
    let waits = !screen.time.is_past();
    let arrow = |changes: bool| if changes && waits { "→ " } else { "" };
    let named = |from: Level, name: &'static str| if level >= from { name } else { "" };
    let mut parts = Vec::new();
    match screen.session.header() {
        Some(header) => {
            parts.push(Part::new(named(NAMES, "Model"), text::one_line(&header.model.name).into_owned()));
            if level >= WEIGHTS {
                let of = format!("{} on {}", text::one_line(&header.dtype), text::one_line(&header.device));
                parts.push(Part::new("Weights", of));
            }
        }
        None => parts.push(Part::new("", "draftscope".to_owned())),
    }
    if screen.app.learning.aside.is_some() {
        let what = match () {
            () if screen.app.learning.is_demo() => "recording",
            () if screen.app.learning.runs_lesson => "lesson's run",
            () => "lesson's recording",
        };
        parts.push(Part { role: Role::Warning, ..Part::new("", what.to_owned()) });
    }
    if screen.session.header().is_some() {
        let drafts = drafts(screen, (&settings, &now), level, arrow);
        parts.push(Part::new(named(WORDS, "Drafter"), drafts));
    }
    if let Some(grammar) = screen.session.header().and_then(|header| header.grammar.as_ref()).filter(|_| level >= RIVAL)
    {
        parts.push(Part::new(named(NAMES, "Answer"), grammar.kind.noun().to_owned()));
    }
    let is_lossless = settings.rule.is_lossless();
    if level >= RULE || !is_lossless {
        let rule = match screen.session.reports_rule() {
            true => format!("{}{}", arrow(settings.rule != now.rule), rule(&settings, level)),
            false => "set by the server".to_owned(),
        };
        let role = if is_lossless { Role::Text } else { Role::Warning };
        parts.push(Part { role, ..Part::new(named(NAMES, "Rule"), rule) });
    }
    if settings.threads > 0 || now.threads > 0 {
        let value = match settings.threads {
            0 => "all".to_owned(),
            threads => threads.to_string(),
        };
        parts.push(Part::new("Threads", format!("{}{value}", arrow(settings.threads != now.threads))));
    }
    let temperature = settings.sampling.temperature;
    if level >= GREEDY || (temperature > 0.0 && level >= WORDS) || settings.sampling != now.sampling {
        let value = format!("{}{temperature}", arrow(settings.sampling != now.sampling));
        let name = if level >= NAMES { "Temperature" } else { "T" };
        parts.push(Part::new(name, value));
    }
    if let Some(rival) = settings.rival.filter(|_| level >= RIVAL) {
        let than = rival::difference(&rival.settings(&settings), &settings);
        parts.push(Part::new("Rival", format!("{}{than}", arrow(settings.rival != now.rival))));
    }
    if level >= PLAIN || (level >= RULE && settings.baseline == Baseline::Race) {
        let value = format!("{}{}", arrow(settings.baseline != now.baseline), baseline(settings.baseline));
        parts.push(Part::new("Plain", value));
    }
    parts
}

/// The drafter, and how it drafts.
fn drafts(
    screen: Screen,
    (settings, now): (&Settings, &Settings),
    level: Level,
    arrow: impl Fn(bool) -> &'static str,
) -> String {
    let drafter = match screen.session.drafter() {
        _ if settings.drafter != now.drafter => format!("{}{}", arrow(true), drafter_name(settings.drafter)),
        Some(kind) => drafter_name(kind),
        None => "none".to_owned(),
    };
    let mut words = vec![drafter];
    let of_k = |settings: &Settings| (settings.draft_len, settings.draft_len_mode);
    let is_ours = screen.session.header().is_none_or(|header| header.can(Ability::SetDraftLen));
    let k = if is_ours { k(settings, level) } else { "k set by the server".to_owned() };
    words.push(format!("{}{k}", arrow(of_k(settings) != of_k(now))));
    let (wanted, is) = (&settings.drafting, &now.drafting);
    if let Some(tree) = tree(wanted.tree, is.tree) {
        words.push(format!("{}{tree}", arrow(wanted.tree != is.tree)));
    }
    if wanted.p_min > 0.0 || is.p_min > 0.0 {
        let p_min = (wanted.p_min * 100.0).round() / 100.0;
        words.push(format!("{}p-min {p_min}", arrow(wanted.p_min != is.p_min)));
    }
    if settings.drafter == DrafterKind::Dial {
        let drawing = if level >= WORDS { slider(wanted.dial) } else { String::new() };
        words.push(format!("{}{drawing}{:.2} right", arrow(wanted.dial != is.dial), wanted.dial));
    }
    words.join(", ")
}

/// The dial as a slider, with a blank after it.
fn slider(share: f32) -> String {
    const STEPS: usize = 10;
    let at = ((share.clamp(0.0, 1.0) * STEPS as f32).round() as usize).min(STEPS);
    format!("{}●{} ", "━".repeat(at), "─".repeat(STEPS - at))
}

/// A drafter in words.
fn drafter_name(kind: DrafterKind) -> String {
    let simple = |kind: &DrafterKind| match kind {
        DrafterKind::Mtp => "module",
        DrafterKind::DraftModel => "second model",
        DrafterKind::Ngram => "n-gram lookup",
        DrafterKind::Suffix => "copies",
        DrafterKind::EarlyExit => "first layers",
        DrafterKind::Oracle => "oracle",
        DrafterKind::Dial => "dial",
        DrafterKind::Random => "random tokens",
        DrafterKind::Human => "you",
        DrafterKind::Joined(_) | DrafterKind::None | DrafterKind::Unknown => "none",
    };
    if kind == DrafterKind::Unknown {
        return "not named by the server".to_owned();
    }
    let chain: Vec<_> = kind.chain().iter().map(simple).collect();
    if chain.is_empty() { "none".to_owned() } else { chain.join(if kind.stacks_copies() { " and " } else { " or " }) }
}

/// The drafted tree, or the one that is no longer drafted.
fn tree(wanted: Option<u8>, is: Option<u8>) -> Option<String> {
    match wanted {
        Some(nodes) => Some(format!("tree {nodes}")),
        None => is.map(|_| "no tree".to_owned()),
    }
}

/// k; where the engine chooses, the most that a round may draft.
fn k(settings: &Settings, level: Level) -> String {
    let words = if level >= EXPLAINED { " tokens a round" } else { "" };
    match (settings.draft_len_mode, settings.draft_len) {
        (DraftLenMode::Fixed, 0) => "k = 0".to_owned(),
        (DraftLenMode::Fixed, k) => format!("k = {k}{words}"),
        (DraftLenMode::Auto, 0) => "k = 0 (auto)".to_owned(),
        (DraftLenMode::Auto, k) => format!("k ≤ {k}{words} (auto)"),
    }
}

fn rule(settings: &Settings, level: Level) -> String {
    let judges_trees = settings.drafting.tree.is_none() || settings.rule != VerifyRule::Block;
    let instead = if judges_trees { "" } else { "; trees: rejection" };
    let means = match settings.rule {
        _ if level < RULE_EXPLAINED => "",
        rule if !rule.is_lossless() => ": changes the text",
        VerifyRule::Exact => ": same text",
        _ if settings.sampling.is_greedy() => ": same text",
        _ => ": same distribution",
    };
    format!("{} ({}{means}{instead})", settings.rule, settings.rule.label())
}

/// How plain decoding is measured.
fn baseline(baseline: Baseline) -> String {
    match baseline {
        Baseline::Off => "not measured".to_owned(),
        Baseline::Probe(_) => "timed beside".to_owned(),
        Baseline::Race => "runs in full".to_owned(),
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
    if screen.app.clock.is_recording && player::is_over(screen) {
        return ("■ the end".to_owned(), screen.theme[Role::StatusPaused]);
    }
    if session.is_paused() && screen.app.clock.plays {
        return (format!("● {}", screen.app.clock.pace.name(round_number(session))), active);
    }
    if session.is_paused() {
        let at = phase.map_or(String::new(), |phase| format!(" · {phase}"));
        return (format!("‖ paused{at}"), screen.theme[Role::StatusPaused]);
    }
    if let Some(loading) = session.loading() {
        return (format!("loading {}", text::one_line(&loading.stage)), active);
    }
    match phase {
        _ if session.failure().is_some() || screen.app.requests.lost.is_some() => {
            ("✗ stopped".to_owned(), screen.theme[Role::Error])
        }
        Some(phase) => (format!("● {phase}"), active),
        None if screen.app.requests.is_awaiting(session) => ("● sent".to_owned(), active),
        None if session.header().is_none() => ("starting".to_owned(), active),
        None => ("○ ready".to_owned(), screen.theme[Role::Status]),
    }
}
