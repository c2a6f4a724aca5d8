//! An item of the quiz: a round without its verdict, the user's marks, and after the answer what became of it.
//!
//! Invariant: everything printed before the answer comes from [`Shown`], which is all that a judge needs.

use crate::view::prelude::*;
use draftscope_learn::quiz::{Given, Item, Run, Shown, minutes, reason, row_kind, row_text, word};
use draftscope_protocol::Outcome;

/// Widths: a token, a number, a mark, a branch of a tree.
const TOKEN: usize = 12;
const NUMBER: usize = 5;
const MARK: usize = 14;
const BRANCH: usize = 6;

/// Height from which the parts are set apart.
const ROOMY: u16 = 22;

/// Lines of the text before the round.
const CONTEXT: usize = 2;

pub(in crate::view) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    let Some((run, item)) = screen.app.learning.quiz.run.as_ref().and_then(|run| Some((run, run.item()?))) else {
        return;
    };
    let shown = Shown::of(item);
    let title = format!(" Quiz · item {} of {} · {} ", run.at + 1, run.items.len(), shown.settings);
    let mut block = screen.panel(cut(&title, usize::from(area.width).saturating_sub(2)));
    if !run.given.is_empty() {
        let score = format!(" right: {} of {} · {} ", run.score(), run.given.len(), minutes(run.took));
        block = block.bottom(Line::styled(score, screen.theme[Role::TextStrong]));
    }
    let inner = framed(block, area, frame);
    let gap = usize::from(inner.height >= ROOMY);
    let mut lines = head(screen, &shown, inner);
    lines.extend(vec![Line::default(); gap]);
    lines.extend(table(screen, run, &shown, inner.width));
    lines.extend(vec![Line::default(); gap]);
    match run.answered() {
        None => lines.extend(choices(screen, run, &shown, inner.width)),
        Some(given) => lines.extend(outcome(screen, item, (&shown, given), inner.width)),
    }
    put(lines, inner, frame);
}

/// The prompt and the end of the answer so far.
fn head(screen: Screen, shown: &Shown, inner: Rect) -> Vec<Line<'static>> {
    let dim = screen.theme[Role::TextDim];
    let width = usize::from(inner.width);
    let mut lines = vec![Line::styled(cut(&format!("prompt: {}", text::one_line(&shown.prompt)), width), dim)];
    let context = text::one_line(&shown.context).into_owned();
    let mut before = wrapped(&format!("answer so far: {context}"), inner.width, screen.theme[Role::Text]);
    // the end counts: it is what the drafts continue
    before.drain(..before.len().saturating_sub(CONTEXT));
    lines.extend(before);
    lines
}

/// Drafts with their marks, and what the target says at every place.
fn table(screen: Screen, run: &Run, shown: &Shown, width: u16) -> Vec<Line<'static>> {
    let mut lines = vec![heading(screen, shown)];
    if shown.is_tree {
        let text = format!("{}after the text: {}", " ".repeat(4), row_text(shown, 0, "  "));
        lines.push(row_line(screen, &text, width));
    }
    for (place, index) in run.order.iter().enumerate() {
        let mut line = draft_line(screen, run, shown, (place, *index));
        if shown.is_tree && run.answered().is_none() {
            let text = row_text(shown, index + 1, "  ");
            let room = usize::from(width).saturating_sub(line.width());
            line.spans.push(Span::styled(cut(&text, room), screen.theme[Role::Text]));
        }
        lines.push(line);
        if !shown.is_tree {
            let text = format!("      {}: {}", row_kind(shown, *index), row_text(shown, *index, "  "));
            lines.push(row_line(screen, &text, width));
        }
    }
    if !shown.is_tree {
        let last = shown.drafts.len();
        let what = shown.next_u.map_or("target p".to_owned(), |u| format!("u {u}"));
        let text = format!("  after {last}, {what}: {}", row_text(shown, last, "  "));
        lines.push(row_line(screen, &text, width));
    }
    lines
}

fn row_line(screen: Screen, text: &str, width: u16) -> Line<'static> {
    Line::styled(cut(text, width.into()), screen.theme[Role::Text])
}

fn heading(screen: Screen, shown: &Shown) -> Line<'static> {
    let branch = if shown.is_tree { BRANCH } else { 0 };
    let mut text = format!("    {}", fit("draft", branch + TOKEN));
    text.push_str(&fit("q", NUMBER));
    if !shown.is_tree {
        text.push_str(&fit("p", NUMBER));
        text.push_str(&fit(if has_draws(shown) { "u" } else { "" }, NUMBER));
    }
    text.push_str(&fit("verdict", MARK));
    if shown.is_tree {
        text.push_str("the target after it");
    }
    Line::styled(text, screen.theme[Role::TextDim])
}

fn has_draws(shown: &Shown) -> bool {
    shown.drafts.iter().any(|draft| draft.u.is_some())
}

fn draft_line(screen: Screen, run: &Run, shown: &Shown, (place, index): (usize, usize)) -> Line<'static> {
    let draft = &shown.drafts[index];
    let chosen = run.answered().is_none() && run.cursor == place;
    let number = |value: Option<String>| fit(&value.unwrap_or_default(), NUMBER);
    let mut spans = vec![
        Span::styled(if chosen { " ▸" } else { "  " }, screen.theme[Role::Key]),
        Span::styled(format!("{} ", index + 1), screen.theme[Role::TextDim]),
    ];
    if shown.is_tree {
        spans.push(Span::styled(fit(&branch(shown, index), BRANCH), screen.theme[Role::TextDim]));
    }
    spans.push(Span::styled(fit(&draft.token, TOKEN - 1), screen.theme[Role::TextStrong]));
    spans.push(Span::raw(" "));
    spans.push(Span::raw(number(draft.q.map(|q| q.to_string()))));
    if !shown.is_tree {
        spans.push(Span::raw(number(Some(draft.p.to_string()))));
        spans.push(Span::raw(number(draft.u.map(|u| u.to_string()))));
    }
    spans.push(mark(screen, run, shown, index));
    let line = Line::from(spans);
    if chosen { line.patch_style(screen.theme[Role::Selected]) } else { line }
}

/// Lines from the draft that a node continues.
fn branch(shown: &Shown, index: usize) -> String {
    let parent = |index: usize| shown.drafts[index].row.checked_sub(1).filter(|parent| *parent < index);
    let depth = std::iter::successors(parent(index), |at| parent(*at)).count();
    format!("{}└─", "  ".repeat(depth))
}

/// The user's mark; after the answer whether it was right, and what was.
fn mark(screen: Screen, run: &Run, shown: &Shown, index: usize) -> Span<'static> {
    let right = shown.right.verdicts[index];
    let Some(given) = run.answered() else {
        return match run.marks[index] {
            Some(outcome) => Span::styled(fit(&marked(outcome), MARK), style(screen, outcome)),
            None => Span::styled(fit("?", MARK), screen.theme[Role::TextDim]),
        };
    };
    let own = given.answer.verdicts[index];
    if own == right {
        return Span::styled(format!("{} · right", marked(right)), style(screen, right));
    }
    Span::styled(format!("{} · you: {}", marked(right), word(own)), screen.theme[Role::Warning])
}

fn marked(outcome: Outcome) -> String {
    format!("{} {}", fate::sign(fate_of(outcome)), word(outcome))
}

fn fate_of(outcome: Outcome) -> Fate {
    match outcome {
        Outcome::Accepted => Fate::Committed(Provenance::Accepted),
        Outcome::Rejected => Fate::Rejected,
        Outcome::NotReached => Fate::NotReached,
    }
}

fn style(screen: Screen, outcome: Outcome) -> Style {
    screen.theme[fate::role(fate_of(outcome))].remove_modifier(Modifier::CROSSED_OUT)
}

/// What may be committed, and the keys.
fn choices(screen: Screen, run: &Run, shown: &Shown, width: u16) -> Vec<Line<'static>> {
    let mut lines = vec![Line::styled("after the accepted drafts the target adds:", screen.theme[Role::TextDim])];
    for (index, choice) in shown.choices.iter().enumerate() {
        let chosen = run.cursor == run.order.len() + index;
        let marker = if chosen { " ▸ " } else { "   " };
        let sign = if run.committed == Some(index) { "● " } else { "○ " };
        let line = Line::from(vec![
            Span::styled(format!("{marker}{sign}"), screen.theme[Role::Key]),
            Span::styled(
                cut(&choice.to_string(), usize::from(width).saturating_sub(6)),
                screen.theme[Role::TextStrong],
            ),
        ]);
        lines.push(if chosen { line.patch_style(screen.theme[Role::Selected]) } else { line });
    }
    lines
}

/// What became of the answer.
fn outcome(screen: Screen, item: &Item, (shown, given): (&Shown, &Given), width: u16) -> Vec<Line<'static>> {
    let name = |index: usize| shown.choices.get(index).map_or(String::new(), ToString::to_string);
    let right = name(shown.right.committed);
    let added = match given.answer.committed == shown.right.committed {
        true => format!("added: {right} · right"),
        false => format!("added: {right} · you: {}", name(given.answer.committed)),
    };
    let (word, role) = if given.is_right { ("Right", Role::Good) } else { ("No", Role::Warning) };
    let mut lines = wrapped(&added, width, screen.theme[Role::Text]);
    lines.push(Line::styled(format!("{word}."), screen.theme[role]));
    let because = format!("{}.", crate::view::values::capital(&reason(item)));
    lines.extend(wrapped(&because, width, screen.theme[Role::Text]));
    let mut keys: Vec<(&[Action], &str)> = vec![(&[Action::Confirm], "goes on"), (LEAVE, "leaves")];
    if let Some(belief) = given.beliefs.first() {
        let text = format!("{}.", crate::view::values::capital(belief.sentence()));
        lines.extend(wrapped(&text, width, screen.theme[Role::Warning]));
        keys.insert(1, (&[Action::OpenLesson], "opens the lesson on it"));
    }
    lines.push(Line::styled(screen.keys(Context::Quiz, &keys), screen.theme[Role::TextDim]));
    lines
}
