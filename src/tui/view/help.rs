//! The help overlay: every key from the keymap, every mark, every number defined.
//!
//! Invariant: keys and their descriptions come from the table, so the help cannot be wrong about them. The glossary
//! uses the words of the crate.

use ratatui::layout::Margin;

use super::prelude::*;
use crate::tui::editor;

/// Width of the key column.
const KEYS: usize = 18;

/// Words and numbers on screen.
const GLOSSARY: &[(&str, &str)] = &[
    ("target", "the model that decides; drafter: the small one that proposes"),
    ("round", "k draft tokens, one target pass over all of them, a verdict, a commit"),
    ("k", "draft tokens asked for per round"),
    ("q, p", "drafter's and target's probability of a token"),
    ("bonus", "all drafts accepted: the same pass gives one more token"),
    ("recovered", "the target's token in place of a rejected draft"),
    ("tokens/s", "tokens committed in rounds ÷ the lane's clock (prefill and first token not counted)"),
    ("curve", "the same over the last 16 tokens"),
    ("lane's clock", "measured time of its rounds; lanes take turns on one device, each on its own clock"),
    ("speedup", "speculative ÷ plain tokens/s at the same moments of this turn, ± its 95 % interval"),
    ("disturbed", "a figure that cannot be: other work slowed some passes and not those beside them"),
    ("session", "the same numbers over all turns (speedup: their mean by the time of their rounds)"),
    ("tokens/round", "committed ÷ rounds, bonus and recovered included"),
    ("accepted", "accepted ÷ drafted; of tested: only drafts that were compared"),
    ("by position", "accepted ÷ offered at that place of the draft"),
    ("n/m tokens", "of the target's m tokens the drafter can propose n"),
    ("+ text", "and those that stand in the text, while there is room"),
    ("break-even", "the share of drafts after accepted ones to accept for a k to be as fast as plain decoding"),
    ("T(m)", "time of one target pass over m rows, ± its 95 % interval; (16) after it: so many passes"),
    ("context 170", "position in the context, the prompt's tokens included"),
    ("residual", "max(0, p − q), once normalised: what a rejected draft is redrawn from"),
    ("the past", "an earlier moment, rebuilt from the recorded events; the present waits or goes on"),
    ("rival", "the same target with other settings, raced beside on caches and a clock of its own"),
    ("branch", "an answer that goes on from a committed point of another one"),
    ("near tie", "the target's two best candidates differ by less than 0.05"),
    ("lossless", "the output follows the target's own distribution, whatever the drafter says"),
    ("· ⏎ ⇥ ␛", "a space, line break, tab, control character in a token"),
    ("<F0 9F>", "bytes of a token that are only a part of a character"),
];

/// Draws the overlay from line `top`; returns the largest possible top line.
pub(super) fn render(screen: Screen, top: usize, area: Rect, frame: &mut Frame) -> usize {
    let area = area.inner(Margin::new(area.width / 16, 1));
    let key = |action| screen.app.keymap.label(Context::Help, action);
    let (end, leave) = (key(Action::Follow), key(Action::Leave));
    let keys = format!(" {end}: marks and words · {leave} closes ");
    let block = screen.panel(" Help ");
    let inner = screen.over(block.title_bottom(Line::styled(keys, screen.theme[Role::TextDim])), area, frame);
    let lines = lines(screen, inner.width);
    let max = lines.len().saturating_sub(inner.height.into());
    let shown: Vec<_> = lines.into_iter().skip(top.min(max)).collect();
    frame.render_widget(Paragraph::new(shown).style(screen.theme[Role::Text]), inner);
    max
}

fn lines(screen: Screen, width: u16) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for context in Context::ALL {
        lines.push(headline(screen, context.title()));
        for binding in screen.app.keymap.of(*context) {
            entry(screen, &screen.app.keymap.keys(binding), binding.run.describe(), width, &mut lines);
        }
        if *context == Context::Prompt {
            for (keys, meaning) in editor::KEYS {
                entry(screen, keys, meaning, width, &mut lines);
            }
        }
        lines.push(Line::default());
    }
    lines.push(headline(screen, "Marks in the answer"));
    lines.extend(marks(screen));
    lines.push(Line::default());
    lines.push(headline(screen, "Words and numbers"));
    for (word, meaning) in GLOSSARY {
        entry(screen, word, meaning, width, &mut lines);
    }
    lines
}

/// Every mark of a token, as it looks in the answer or in a table.
fn marks(screen: Screen) -> Vec<Line<'static>> {
    let line = |sign, name, role| {
        let sign = Span::styled(fit(sign, 3), screen.theme[Role::Key]);
        Line::from(vec![sign, Span::styled(name, screen.theme[role])])
    };
    let more = [
        (Fate::Pending, "drafted, not judged yet"),
        (Fate::Committed(Provenance::Plain), "the first token, or one of a round without drafts (in tables)"),
        (Fate::Committed(Provenance::Kept), "taken over by a branch (in tables)"),
    ];
    let named = fate::LEGEND.iter().map(|(fate, [name, ..])| (*fate, *name));
    let mut lines: Vec<_> =
        named.chain(more).map(|(fate, name)| line(fate::sign(fate), name, fate::role(fate))).collect();
    lines.push(line(fate::DEPARTED, fate::DEPARTED_NAMES[0], Role::TokenDeparted));
    lines
}

fn headline(screen: Screen, text: &str) -> Line<'static> {
    Line::styled(text.to_owned(), screen.theme[Role::PanelTitle])
}

fn entry(screen: Screen, left: &str, right: &str, width: u16, lines: &mut Vec<Line<'static>>) {
    let mut flow = Flow::new(width.saturating_sub(KEYS as u16).max(1));
    flow.push(right, screen.theme[Role::Text]);
    for (i, line) in flow.finish().into_iter().enumerate() {
        let label = fit(if i == 0 { left } else { "" }, KEYS);
        let mut spans = vec![Span::styled(label, screen.theme[Role::Key])];
        spans.extend(line.spans);
        lines.push(Line::from(spans));
    }
}
