//! The top line: what runs, how it is set, what it is doing.
//!
//! Invariant: the settings are those of the answer on show, at the round on show; those that the next rounds or the
//! next prompt will have instead follow a `→`. Before a lesson's run they are those of that run. Where the line is short,
//! words are shortened and parts left out from the least telling one on; the state, and whether the rule is lossless,
//! never are.

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
const RACE: Level = 3;
const RIVAL: Level = 2;
const WORDS: Level = 1;

/// The settings on show, and those that come next; the same in the past, which nothing changes.
struct Shown {
    now: Settings,
    next: Settings,
}

impl Shown {
    fn of(screen: Screen) -> Self {
        let now = screen.settings();
        let next = if screen.time.is_past() { now } else { screen.app.requests.settings(screen.session) };
        let of_lesson = lesson_settings(screen, &next);
        Self { now: of_lesson.unwrap_or(now), next: of_lesson.unwrap_or(next) }
    }

    /// A part of the settings in words: what is in force, and what comes next if that is something else.
    fn words(&self, of: impl Fn(&Settings) -> String) -> String {
        let (now, next) = (of(&self.now), of(&self.next));
        if now == next { now } else { format!("{now} → {next}") }
    }
}

/// The settings of the run that a lesson's step is about to begin, or has begun without a token so far.
fn lesson_settings(screen: Screen, before: &Settings) -> Option<Settings> {
    let learning = &screen.app.learning;
    let begins = learning.step()?.run.is_some() && !learning.study.is_revealed;
    let is_new = begins || (learning.aside.is_some() && screen.turn().is_none());
    learning.run().filter(|_| screen.app.place.page == Page::Learn && is_new).map(|run| run.settings(before))
}

fn parts(screen: Screen, level: Level) -> Vec<Part> {
    let shown = Shown::of(screen);
    let Shown { now, next } = &shown;
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
        parts.push(Part::new(named(WORDS, "Drafter"), drafts(screen, &shown, level)));
    }
    if let Some(grammar) = screen.session.header().and_then(|header| header.grammar.as_ref()).filter(|_| level >= RIVAL)
    {
        parts.push(Part::new(named(NAMES, "Answer"), grammar.kind.noun().to_owned()));
    }
    let rule = match screen.session.reports_rule() {
        true if now.rule == next.rule => shown.words(|settings| rule(settings, level)),
        true => shown.words(|settings| rule(settings, level.min(NAMES))),
        false => "set by the server".to_owned(),
    };
    let is_lossless = now.rule.is_lossless() && next.rule.is_lossless();
    let role = if is_lossless { Role::Text } else { Role::Warning };
    parts.push(Part { role, ..Part::new(named(NAMES, "Rule"), rule) });
    if now.threads > 0 || next.threads > 0 {
        let threads = |settings: &Settings| match settings.threads {
            0 => "all".to_owned(),
            threads => threads.to_string(),
        };
        parts.push(Part::new("Threads", shown.words(threads)));
    }
    let is_greedy = now.sampling.temperature <= 0.0 && now.sampling == next.sampling;
    if level >= GREEDY || (!is_greedy && level >= WORDS) || now.sampling != next.sampling {
        let name = if level >= NAMES { "Temperature" } else { "T" };
        parts.push(Part::new(name, shown.words(|settings| settings.sampling.temperature.to_string())));
    }
    if (now.rival.is_some() || next.rival.is_some()) && level >= RIVAL {
        let than = |settings: &Settings| {
            let rival = settings.rival.map(|rival| rival::difference(&rival.settings(settings), settings));
            rival.unwrap_or_else(|| "none".to_owned())
        };
        parts.push(Part::new("Rival", shown.words(than)));
    }
    if level >= PLAIN || (level >= RACE && [now, next].iter().any(|settings| settings.baseline == Baseline::Race)) {
        parts.push(Part::new("Plain", shown.words(|settings| baseline(settings.baseline))));
    }
    parts
}

/// The drafter, and how it drafts; what comes next after an arrow.
fn drafts(screen: Screen, shown: &Shown, level: Level) -> String {
    let kind = |settings: &Settings| match screen.session.available(settings.drafter) {
        Some(kind) => drafter_name(kind),
        None => "none".to_owned(),
    };
    let mut words = vec![shown.words(kind)];
    if words[0] == "none" {
        return words.remove(0); // nothing is drafted
    }
    let is_ours = screen.session.header().is_none_or(|header| header.can(Ability::SetDraftLen));
    let (now, next) = (k(&shown.now, level), k(&shown.next, level));
    words.push(match is_ours {
        false => "k set by the server".to_owned(),
        true if now == next => now,
        true => format!("{} → {}", k(&shown.now, 0), next.trim_start_matches("k = ")),
    });
    let is_any = |of: fn(&Settings) -> bool| of(&shown.now) || of(&shown.next);
    if is_any(|settings| settings.drafting.tree.is_some()) {
        words.push(shown.words(|settings| tree(settings.drafting.tree)));
    }
    if is_any(|settings| settings.drafting.p_min > 0.0) {
        let p_min = |settings: &Settings| ((settings.drafting.p_min * 100.0).round() / 100.0).to_string();
        words.push(format!("p-min {}", shown.words(p_min)));
    }
    if shown.next.drafter == DrafterKind::Dial {
        let drawing = if level >= WORDS { slider(shown.next.drafting.dial) } else { String::new() };
        words.push(format!("{drawing}{} right", shown.words(|settings| format!("{:.2}", settings.drafting.dial))));
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
pub(in crate::view) fn drafter_name(kind: DrafterKind) -> String {
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

/// The drafted tree.
fn tree(nodes: Option<u8>) -> String {
    nodes.map_or_else(|| "no tree".to_owned(), |nodes| format!("tree {nodes}"))
}

/// k; where the engine chooses, the most that a round may draft.
fn k(settings: &Settings, level: Level) -> String {
    let words = match settings.drafter.stacks_copies() {
        _ if level < EXPLAINED => "",
        true => " besides copies",
        false => " drafts a round",
    };
    match (settings.draft_len_mode, settings.draft_len) {
        (DraftLenMode::Fixed, 0) => "k = 0".to_owned(),
        (DraftLenMode::Fixed, k) => format!("k = {k}{words}"),
        (DraftLenMode::Auto, 0) => "k = 0 (auto)".to_owned(),
        (DraftLenMode::Auto, k) => format!("k ≤ {k}{words} (auto)"),
    }
}

/// The rule, and always whether it is lossless.
fn rule(settings: &Settings, level: Level) -> String {
    if level < WORDS && settings.rule.is_lossless() {
        return settings.rule.label().to_owned();
    }
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
