//! Where the time of each round went: draft, verify, sample, rollback and the rest, stacked.
//!
//! Invariant: parts are measured; "other" is the rest of the lane's clock. One bar per round, the newest at the bottom,
//! on one scale; the first bar is the mean of the turn.

use crate::view::prelude::*;
use draftscope_session::Answer;

/// Names of the parts, in order, and how each is drawn: by glyph as well as by colour.
const PARTS: [(&str, &str, Role); 5] = [
    ("draft", "▒", Role::PhaseDraft),
    ("verify", "█", Role::PhaseVerify),
    ("sample", "▓", Role::PhaseRest),
    ("rollback", "░", Role::PhaseRest),
    ("other", "·", Role::PhaseRest),
];

/// Width of the captions at both ends.
const LABEL: usize = 6;
const TAIL: usize = 9;

/// Times of the parts, and of the whole, in microseconds.
type Parts = ([f64; 5], f64);

pub(in crate::view) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    let inner = framed(screen.panel(" Time per round ").bottom(legend(screen, area.width)), area, frame);
    let answer = screen.turn().map(|turn| turn.answer(Lane::Speculative));
    let Some(answer) = answer.filter(|_| !inner.is_empty()) else {
        return;
    };
    let rounds = parts(answer, usize::from(inner.height) - 1);
    let Some(mean) = mean(answer) else {
        return;
    };
    let most = rounds.iter().map(|(_, parts)| parts.1).fold(mean.1, f64::max).max(1.0);
    let mut lines = vec![bar(screen, "mean", &mean, (most, inner.width))];
    for (number, parts) in &rounds {
        lines.push(bar(screen, &format!("#{number}"), parts, (most, inner.width)));
    }
    put(lines, inner, frame);
}

/// Height of [`short`], with its frame.
pub(in crate::view) const SHORT: u16 = 1 + FRAME + 1;

/// The mean round of the turn in one bar, and its parts in words.
pub(in crate::view) fn short(screen: Screen, area: Rect, frame: &mut Frame) {
    let mean = screen.turn().and_then(|turn| mean(turn.answer(Lane::Speculative)));
    let whole = mean.as_ref().map_or(String::new(), |(_, whole)| format!(" mean {:.1} ms ", whole / 1e3));
    let panel = screen.panel(" Time of a round ").title_right(Line::styled(whole, screen.dim_title()));
    let inner = framed(panel, area, frame);
    let Some((parts, whole)) = mean.filter(|(_, whole)| *whole > 0.0 && inner.width > 0) else { return };
    let [draft, verify, rest] = [parts[0], parts[1], parts[2] + parts[3] + parts[4]];
    let shown =
        [("draft", draft, Role::PhaseDraft), ("verify", verify, Role::PhaseVerify), ("rest", rest, Role::PhaseRest)];
    let (mut line, mut words, mut drawn, mut reached) = (Vec::new(), Vec::new(), 0, 0.0);
    for (name, us, role) in shown {
        reached += us;
        let end = (reached / whole * f64::from(inner.width)).round() as usize;
        let cells = end.min(inner.width.into()).saturating_sub(drawn);
        drawn += cells;
        line.push(Span::styled("━".repeat(cells), screen.theme[role]));
        words.push(Span::styled(format!("{name} "), screen.theme[role]));
        words.push(Span::styled(format!("{:.1}  ", us / 1e3), screen.theme[Role::Text]));
    }
    put(vec![Line::from(line), Line::from(words)], inner, frame);
}

fn legend(screen: Screen, width: u16) -> Line<'static> {
    let spans = PARTS.iter().flat_map(|(name, glyph, role)| {
        let name = match width {
            44.. => name,
            38.. if *name == "rollback" => "roll",
            38.. => name,
            _ => &name[..name.len().min(4)],
        };
        [Span::styled(*glyph, screen.theme[*role]), Span::styled(format!("{name} "), screen.theme[Role::TextDim])]
    });
    Line::from(spans.collect::<Vec<_>>())
}

/// The newest complete rounds, oldest first.
fn parts(answer: &Answer, count: usize) -> Vec<(u32, Parts)> {
    let mut done = answer.rounds.iter().rev().filter(|round| round.is_complete()).peekable();
    let mut shown = Vec::new();
    while let Some(round) = done.next_if(|_| shown.len() < count) {
        let before = done.peek().map_or(0, |before| before.clock_us());
        let took = round.clock_us().saturating_sub(before);
        let parts = [round.draft_us(), round.verify_us(), round.sample_us(), round.rollback_us()];
        shown.push((round.number(), split(parts, took)));
    }
    shown.reverse();
    shown
}

fn mean(answer: &Answer) -> Option<Parts> {
    let stats = answer.stats();
    let rounds = (stats.timed_rounds() > 0).then(|| stats.timed_rounds() as f64)?;
    let sums = [stats.draft_us(), stats.verify_us(), stats.sample_us(), stats.rollback_us()];
    let (parts, whole) = split(sums, stats.decode_us());
    Some((parts.map(|part| part / rounds), whole / rounds))
}

fn split(known: [u64; 4], whole: u64) -> Parts {
    let sum = known.iter().fold(0_u64, |sum, part| sum.saturating_add(*part));
    let rest = whole.saturating_sub(sum) as f64;
    let [draft, verify, sample, rollback] = known.map(|us| us as f64);
    ([draft, verify, sample, rollback, rest], whole.max(sum) as f64)
}

fn bar(screen: Screen, label: &str, parts: &Parts, scale: (f64, u16)) -> Line<'static> {
    let (most, width) = scale;
    let room = usize::from(width).saturating_sub(LABEL + TAIL);
    let mut spans = vec![Span::styled(fit(label, LABEL), screen.theme[Role::TextDim])];
    let (mut drawn, mut reached) = (0, 0.0);
    for (part, (_, glyph, role)) in parts.0.iter().zip(PARTS) {
        reached += part;
        let end = ((reached / most) * room as f64).round() as usize;
        let cells = end.min(room).saturating_sub(drawn);
        drawn += cells;
        spans.push(Span::styled(glyph.repeat(cells), screen.theme[role]));
    }
    spans.push(Span::styled(" ".repeat(room.saturating_sub(drawn)), Style::new()));
    spans.push(Span::styled(format!("{:>6.1} ms", parts.1 / 1e3), screen.theme[Role::Text]));
    Line::from(spans)
}
