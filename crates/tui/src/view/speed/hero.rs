//! The number of the page: the speedup in large digits, how sure it is, and what it consists of.
//!
//! Invariant: every number is measured in the shown turn. Without a measured plain lane there is no speedup, and tokens
//! per round stand in its place; a slowdown is as large as a gain; a figure that cannot be true has no colour, a badge,
//! and as its value the bound that it breaks.

use crate::widgets::digits;
use draftscope_protocol::{Baseline, DrafterKind, Settings};
use draftscope_session::Speedup;

use crate::view::prelude::*;
use crate::view::values::{number, role_of};

/// A text and its role.
type Part = (String, Role);

/// The figure and its words, in the order of preference.
struct Hero {
    role: Role,
    /// The digits, and three lines beside them; a narrower number comes before fewer words.
    beside: Vec<(String, [Vec<Part>; digits::ROWS])>,
    /// What stands below them, in the forms that go with those beside.
    below: Vec<Vec<Part>>,
    /// Why there is no speedup.
    why: String,
}

/// Least height of the plot of the speedup.
pub(in crate::view) const PLOT: u16 = 8;

/// Height of the figure: with some room around it on a large screen.
pub(in crate::view) fn hero_height(screen: Screen, area: Rect) -> u16 {
    let least = height(screen, area.width);
    if area.height >= 30 { least + 2 } else { least }.min(area.height)
}

/// Height of the panel at a width.
pub(in crate::view) fn height(screen: Screen, width: u16) -> u16 {
    let inner = width.saturating_sub(2);
    let Some(hero) = screen.turn().and_then(|turn| of(screen, turn)) else { return FRAME + digits::ROWS as u16 };
    FRAME + (digits::ROWS + below(screen, &hero, inner).len()) as u16
}

pub(in crate::view) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    if area.is_empty() {
        return;
    }
    let inner = framed(screen.panel(" Speedup ").title_right(badge(screen)), area, frame);
    let Some(hero) = screen.turn().and_then(|turn| of(screen, turn)) else {
        let text = "How much faster drafts make an answer is measured here, beside plain decoding.";
        put(wrapped(text, inner.width, screen.theme[Role::TextDim]), inner, frame);
        return;
    };
    let is_ascii = screen.app.options.ascii;
    let below = below(screen, &hero, inner.width);
    let taken = (digits::ROWS + below.len()) as u16;
    // where there is room, the figure has some around it
    let gap = u16::from(inner.height >= taken + 3);
    let (figure, beside) = beside(&hero, inner.width);
    let rows = digits::rows(&figure, is_ascii);
    let width = digits::width(&figure, is_ascii) as u16;
    let style = screen.theme[hero.role].patch(screen.theme[Role::Hero]);
    let lines = rows.into_iter().zip(beside).map(|(row, parts)| {
        let mut spans = vec![Span::styled(row, style), Span::raw("  ")];
        spans.extend(parts.into_iter().map(|(text, role)| Span::styled(text, screen.theme[role])));
        Line::from(spans)
    });
    let shift = gap.min(inner.width.saturating_sub(width));
    let place = Rect {
        x: inner.x + shift,
        width: inner.width - shift,
        y: inner.y + gap,
        height: inner.height.saturating_sub(gap),
    };
    put(lines.collect(), Rect { height: place.height.min(digits::ROWS as u16), ..place }, frame);
    let down = digits::ROWS as u16 + gap;
    put(below, Rect { y: place.y + down, height: place.height.saturating_sub(down), ..place }, frame);
}

/// The figure in one line, for the title of a page whose rows are needed for something else; without the tokens per round
/// where there is no room for them.
pub(in crate::view) fn in_title(screen: Screen, room: u16) -> Line<'static> {
    let all = title(screen, true);
    if all.width() <= room.into() { all } else { title(screen, false) }
}

/// The same above a list of rounds: the tokens per round of those listed, and the speedup of the turn on show, which is
/// named where the list has other rounds; without the speedup where there is no room for it.
pub(in crate::view) fn above_list(screen: Screen, listed: Option<f64>, has_others: bool, room: u16) -> Line<'static> {
    let Some(turn) = screen.turn().filter(|_| has_others) else { return in_title(screen, room) };
    let tokens = listed.map_or_else(Vec::new, |mean| tokens_per_round(screen, mean));
    let mut all = tokens.clone();
    if let Some(speedup) = turn.speedup() {
        all.push(Span::styled(format!("  turn {}:", turn.number), screen.dim_title()));
        all.extend(in_words(screen, &speedup));
    }
    let all = Line::from(all);
    if all.width() <= room.into() { all } else { Line::from(tokens) }
}

fn title(screen: Screen, has_tokens: bool) -> Line<'static> {
    let Some(turn) = screen.turn() else { return Line::default() };
    let mut spans = Vec::new();
    let mean = mean(turn);
    if let Some(mean) = mean.filter(|_| has_tokens || turn.speedup().is_none()) {
        spans.extend(tokens_per_round(screen, mean));
    }
    if let Some(speedup) = turn.speedup() {
        spans.extend(in_words(screen, &speedup));
    }
    Line::from(spans)
}

fn tokens_per_round(screen: Screen, mean: f64) -> Vec<Span<'static>> {
    vec![
        Span::styled(format!(" {mean:.2}"), screen.theme[Role::TextStrong]),
        Span::styled(" tokens per round ", screen.dim_title()),
    ]
}

/// A speedup in a title; beside a rival it says that it is the one over plain decoding.
fn in_words(screen: Screen, speedup: &Speedup) -> Vec<Span<'static>> {
    let style = screen.theme[role_of(speedup)].patch(screen.theme[Role::Hero]);
    let mut spans = vec![Span::styled(format!("  {} ±{:.2} ", figure(speedup), speedup.margin()), style)];
    if screen.beside() == Lane::Rival {
        spans.push(Span::styled("over plain ", screen.dim_title()));
    }
    spans.extend(badge(screen).spans);
    spans
}

/// A word for a figure that cannot be true, and the key that says why.
fn badge(screen: Screen) -> Line<'static> {
    if screen.turn().and_then(Turn::disturbance).is_none() {
        return Line::default();
    }
    let mut spans = vec![Span::styled(" disturbed ", screen.theme[Role::Badge])];
    spans.extend(screen.hint(Action::WhyDisturbed, "why"));
    Line::from(spans)
}

/// The value, or the bound that it would break.
fn figure(speedup: &Speedup) -> String {
    match speedup.is_disturbed() && speedup.value > speedup.tokens_per_round {
        true => format!("≤{:.2}×", speedup.tokens_per_round),
        false => format!("{:.2}×", speedup.value),
    }
}

fn of(screen: Screen, turn: &Turn) -> Option<Hero> {
    let stats = turn.answer(Lane::Speculative).stats();
    let mean = mean(turn);
    match turn.speedup() {
        Some(speedup) => Some(measured(screen, turn, &speedup, mean.unwrap_or(speedup.tokens_per_round))),
        None if mean.is_none() && stats.rounds() == 0 => None,
        None => Some(unmeasured(screen, turn, mean.unwrap_or(1.0))),
    }
}

/// Tokens per round under the newest settings.
fn mean(turn: &Turn) -> Option<f64> {
    match turn.settings_spans() {
        [.., _, newest] => newest.tokens_per_round,
        _ => turn.answer(Lane::Speculative).stats().mean_tokens_per_round(),
    }
}

/// From which round on the figures hold, and what they were before, if the settings changed within the answer.
fn since(turn: &Turn, width: usize) -> Option<String> {
    let [.., before, newest] = turn.settings_spans() else { return None };
    let first = turn.answer(Lane::Speculative).rounds.get(newest.rounds.start)?.number();
    let was = match (before.speedup, before.tokens_per_round) {
        (Some(speedup), _) => format!(", before {:.2}×", speedup.value),
        (None, Some(mean)) => format!(", before {mean:.2} tokens per round"),
        (None, None) => String::new(),
    };
    let changed = changed_settings(&before.settings, &newest.settings);
    let forms = [format!("from round {first} on: {changed}{was}"), format!("{changed}{was}"), changed];
    forms.into_iter().find(|form| form.width() < width)
}

/// What differs, in the words of the settings; k first.
fn changed_settings(before: &Settings, now: &Settings) -> String {
    let mut all = Vec::new();
    if before.asked_draft_len() != now.asked_draft_len() {
        all.push(format!("k = {}", now.asked_draft_len()));
    }
    if before.rule != now.rule {
        all.push(now.rule.to_string());
    }
    if before.drafter != now.drafter {
        all.push(now.drafter.to_string());
    }
    if before.sampling.temperature.to_bits() != now.sampling.temperature.to_bits() {
        all.push(format!("T {}", now.sampling.temperature));
    }
    if all.is_empty() { "other settings".to_owned() } else { all.join(", ") }
}

fn strong(text: String) -> Part {
    (text, Role::TextStrong)
}

fn dim(text: impl Into<String>) -> Part {
    (text.into(), Role::TextDim)
}

fn measured(screen: Screen, turn: &Turn, speedup: &Speedup, mean: f64) -> Hero {
    let stats = turn.answer(Lane::Speculative).stats();
    let speed = |lane, whole_from| {
        let speed = turn.tokens_per_second(lane);
        number(speed, usize::from(speed < Some(whole_from)))
    };
    let (own, plain) = (speed(Lane::Speculative, 100.0), speed(Lane::Plain, 100.0));
    let margin = || strong(format!("±{:.2}", speedup.margin()));
    let cost = mean / speedup.value;
    let is_typed = screen.settings().drafter == DrafterKind::Human;
    let of = if is_typed { " without your time" } else { " the plain speed" };
    let wide = [
        vec![margin(), dim(of)],
        vec![dim("= "), strong(format!("{mean:.2} tokens per round"))],
        vec![dim("÷ time of "), strong(format!("{cost:.2}")), dim(" plain tokens")],
    ];
    let short = [
        vec![margin()],
        vec![strong(speed(Lane::Speculative, 10.0)), dim(" tok/s")],
        vec![strong(speed(Lane::Plain, 10.0)), dim(" plain")],
    ];
    // without its sign as a large one, a figure is three columns narrower
    let bare = vec![strong("× ".to_owned()), margin()];
    let [_, own_speed, plain_speed] = short.clone();
    let narrow = [bare.clone(), own_speed, plain_speed];
    let least = [
        bare,
        vec![strong(speed(Lane::Speculative, 10.0)), dim(" t/s")],
        vec![strong(speed(Lane::Plain, 10.0)), dim(" plain")],
    ];
    let digits = figure(speedup);
    let without_sign = digits.trim_end_matches('×').to_owned();
    let (saved, needed) = (stats.committed().saturating_sub(stats.rounds()), stats.committed());
    let speeds = vec![strong(own), dim(" tokens/s, plain "), strong(plain)];
    let passes = vec![dim("   "), strong(saved.to_string()), dim(format!(" of {needed} passes saved"))];
    let tokens = |rest: String| vec![strong(format!("{mean:.2} tokens per round")), dim(rest)];
    Hero {
        role: role_of(speedup),
        beside: vec![(digits.clone(), wide), (digits, short), (without_sign.clone(), narrow), (without_sign, least)],
        below: vec![
            speeds.iter().cloned().chain(passes).collect(),
            speeds,
            tokens(format!(", {} at most", turn.most_tokens_per_round())),
            tokens(format!(", of {}", turn.most_tokens_per_round())),
            tokens(String::new()),
        ],
        why: String::new(),
    }
}

fn unmeasured(screen: Screen, turn: &Turn, mean: f64) -> Hero {
    let is_over = turn.answer(Lane::Speculative).finished.is_some();
    let plain = if is_over { "plain decoding: 1" } else { "so far; plain decoding 1" };
    let most = format!("{} at most", turn.most_tokens_per_round());
    let wide = [vec![strong("tokens per round".to_owned())], vec![dim(plain)], vec![dim(most)]];
    let narrow = [vec![strong("tokens".to_owned())], vec![strong("per round".to_owned())], vec![dim("plain: 1")]];
    let key = screen.app.key(Action::ViewCompare);
    let why = match screen.settings().baseline {
        Baseline::Off => "speedup: plain decoding is not measured".to_owned(),
        _ if is_over && turn.settings_spans().len() > 1 => {
            "speedup: too few measurements since the settings changed".to_owned()
        }
        _ if is_over => {
            format!("speedup: too few measurements in so short an answer; {key} runs plain decoding over all of it")
        }
        _ if screen.app.is_paced(screen.time.live()) => "speedup: once it runs at full speed".to_owned(),
        _ => "speedup: measuring plain decoding".to_owned(),
    };
    let digits = format!("{mean:.2}");
    let beside = vec![(digits.clone(), wide), (digits, narrow)];
    Hero { role: Role::TextStrong, beside, below: Vec::new(), why }
}

fn wide(parts: &[Part]) -> usize {
    parts.iter().map(|(text, _)| text.width()).sum()
}

/// The digits and the longest words that fit beside them.
fn beside(hero: &Hero, width: u16) -> (String, [Vec<Part>; digits::ROWS]) {
    let fits = |(digits, lines): &&(String, [Vec<Part>; digits::ROWS])| {
        let room = usize::from(width).saturating_sub(digits::width(digits, false).max(12) + 3);
        lines.iter().all(|parts| wide(parts) <= room)
    };
    let first = || hero.beside.first().map(|(digits, _)| (digits.clone(), Default::default()));
    hero.beside.iter().find(fits).cloned().or_else(first).unwrap_or_default()
}

/// What stands below the digits: what is not beside them already, or why there is no speedup.
fn below(screen: Screen, hero: &Hero, width: u16) -> Vec<Line<'static>> {
    let line = |parts: Vec<Part>| {
        Line::from_iter(parts.into_iter().map(|(text, role)| Span::styled(text, screen.theme[role])))
    };
    let since = screen.turn().and_then(|turn| since(turn, width.into()));
    let since = since.map(|text| line(vec![dim(text)]));
    if !hero.why.is_empty() {
        let why = wrapped(&hero.why, width.saturating_sub(1), screen.theme[Role::TextDim]);
        return why.into_iter().chain(since).collect();
    }
    let has_tokens = wide(&beside(hero, width).1[1]) > 15;
    let forms = if has_tokens { &hero.below[..2] } else { &hero.below[2..] };
    let fits = |parts: &&Vec<Part>| wide(parts) < usize::from(width);
    let parts = forms.iter().find(fits).or(forms.last()).cloned().unwrap_or_default();
    std::iter::once(line(parts)).chain(since).collect()
}
