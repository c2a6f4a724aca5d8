//! The lessons: the list, or one step of one.
//!
//! Invariant: an answer is shown only after a choice was made.

use super::prelude::*;
use crate::session::Session;
use crate::tui::lesson::{BUNDLED, Lesson, Step, filled, lesson};
use crate::tui::selection::{RoundAt, round_at};

pub(super) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    let study = &screen.app.lesson;
    let Some((lesson, step)) = study.at() else {
        list(screen, area, frame);
        return;
    };
    let number = study.lesson.unwrap_or(0) + 1;
    let mut block =
        screen.panel(format!(" {number} · {} · {} of {} ", lesson.title, study.step + 1, lesson.step.len()));
    if study.asked > 0 {
        let score = format!(" right: {} of {} ", study.right, study.asked);
        block = block.title_bottom(Line::styled(score, screen.theme[Role::TextStrong]));
    }
    let inner = framed(block, area, frame);
    let lines = body(screen, &lesson, &step, inner.width);
    frame.render_widget(Paragraph::new(lines), inner);
}

/// Height that shows all of what is on show, with its frame.
pub(super) fn height(screen: Screen, width: u16) -> u16 {
    let lines =
        screen.app.lesson.at().map_or(0, |(lesson, step)| body(screen, &lesson, &step, width.saturating_sub(2)).len());
    u16::try_from(lines).unwrap_or(u16::MAX).saturating_add(2)
}

/// Whether the round on show would give a quiz's answer away.
pub(super) fn hides_round(screen: Screen) -> bool {
    screen.app.lesson.quiz.is_some() && !screen.app.lesson.is_revealed
}

fn list(screen: Screen, area: Rect, frame: &mut Frame) {
    let block = screen.panel(" Lessons ");
    let keys = screen.keys(Context::Browse, &[(CHOOSE, "choose"), (&[Action::Open], "begins")]);
    let block = block.title_bottom(Line::styled(format!(" {keys} "), screen.theme[Role::TextDim]));
    let inner = framed(block, area, frame);
    let roomy = usize::from(inner.height) >= BUNDLED.len() * 2;
    let mut lines = Vec::new();
    for index in 0..BUNDLED.len() {
        let Some(lesson) = lesson(index) else {
            continue;
        };
        let chosen = index == screen.app.lesson.choice;
        let marker = if chosen { "▸" } else { " " };
        let mut line =
            Line::styled(format!(" {marker} {} {}", index + 1, lesson.title), screen.theme[Role::TextStrong]);
        if chosen {
            line = line.patch_style(screen.theme[Role::Selected]);
        }
        lines.push(line);
        if roomy {
            lines.push(Line::styled(format!("     {}", lesson.summary), screen.theme[Role::TextDim]));
        }
    }
    frame.render_widget(Paragraph::new(lines), inner);
}

fn body(screen: Screen, lesson: &Lesson, step: &Step, width: u16) -> Vec<Line<'static>> {
    let study = &screen.app.lesson;
    let (question, choices) = if step.quiz { quiz(screen) } else { (step.text.clone(), step.choices.clone()) };
    let mut lines = wrapped(&filled(&question, screen.session), width, screen.theme[Role::Text]);
    lines.push(Line::default());
    let right = study.is_revealed.then(|| study.right_choice(step, screen.session)).flatten();
    for (index, choice) in choices.iter().enumerate() {
        lines.push(line(screen, index, choice, right));
    }
    if study.is_revealed && !choices.is_empty() {
        lines.push(Line::default());
        let (word, role) = if Some(study.choice) == right { ("Right. ", Role::Good) } else { ("No. ", Role::Warning) };
        let reveal = if step.quiz { quiz_reveal(screen) } else { filled(&step.reveal, screen.session) };
        let mut told = wrapped(&format!("{word}{reveal}"), width, screen.theme[Role::Text]);
        if let Some(first) = told.first_mut() {
            *first = first.clone().patch_style(screen.theme[role]);
        }
        lines.extend(told);
    }
    lines.push(Line::default());
    lines.push(Line::styled(hint(screen, lesson, step, !choices.is_empty()), screen.theme[Role::TextDim]));
    lines
}

fn line(screen: Screen, index: usize, choice: &str, right: Option<usize>) -> Line<'static> {
    let chosen = index == screen.app.lesson.choice;
    let mark = match right {
        Some(right) if right == index => "✓",
        Some(_) if chosen => "✗",
        _ => " ",
    };
    let marker = if chosen { "▸" } else { " " };
    let line = Line::from(vec![
        Span::styled(format!(" {marker} {mark} "), screen.theme[Role::Key]),
        Span::styled(choice.to_owned(), screen.theme[Role::TextStrong]),
    ]);
    if chosen { line.patch_style(screen.theme[Role::Selected]) } else { line }
}

fn hint(screen: Screen, lesson: &Lesson, step: &Step, asks: bool) -> String {
    let study = &screen.app.lesson;
    let opens = match () {
        () if step.run.is_some() && !study.is_revealed => "runs it",
        () if asks && !study.is_revealed => "answers",
        () if step.quiz => "asks the next one",
        () if study.step + 1 == lesson.step.len() => "ends the lesson",
        () => "goes on",
    };
    let rest: [(&[Action], &str); 3] = [(&[Action::Open], opens), (CHANGE, "steps"), (LEAVE, "to the lessons")];
    let chooses = step.run.is_none() && asks && !study.is_revealed;
    screen.keys(Context::Browse, &if chooses { [&[(CHOOSE, "choose")], &rest[..]].concat() } else { rest.to_vec() })
}

/// The question of the quiz.
fn quiz(screen: Screen) -> (String, Vec<String>) {
    let found =
        screen.app.lesson.quiz.and_then(|(at, index)| Some((at, round_at(screen.session, at)?.drafts.get(index)?)));
    let choices = vec!["accepted".to_owned(), "rejected".to_owned()];
    let Some((at, draft)) = found else {
        return (
            format!("{}.", screen.keys(Context::Browse, &[(&[Action::Open], "asks about a draft of this session")])),
            choices,
        );
    };
    let index = screen.app.lesson.quiz.map_or(0, |(_, index)| index);
    let round = round_at(screen.session, at);
    let before = round.map_or(String::new(), |round| {
        let mut path: Vec<usize> = std::iter::successors(round.parent(index), |at| round.parent(*at)).collect();
        path.reverse();
        path.into_iter().map(|at| round.drafts[at].piece.lossy().into_owned()).collect()
    });
    let lead = lead(screen.session, at);
    let q = draft.q.map_or(String::new(), |q| format!(" with q = {q:.2}"));
    let text = format!("…{lead}{before}");
    let name = text::quoted(&draft.piece);
    (format!("{}\n\nHere the drafter proposes {name}{q}. Was it accepted?", text::printable(&text)), choices)
}

/// Text of the answer before a round, its end only.
fn lead(session: &Session, at: RoundAt) -> String {
    let Some((turn, round)) = session.turns().get(at.turn).zip(round_at(session, at)) else {
        return String::new();
    };
    let tokens = &turn.answer(Lane::Speculative).tokens;
    let end = round.first_token.min(tokens.len());
    let shown = &tokens[end.saturating_sub(12)..end];
    let bytes: Vec<u8> = shown.iter().flat_map(|token| token.piece.text_bytes()).copied().collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The reason for the verdict that the quiz asked about.
fn quiz_reveal(screen: Screen) -> String {
    let found =
        screen.app.lesson.quiz.and_then(|(at, index)| crate::session::explain(round_at(screen.session, at)?, index));
    found.map_or(String::new(), |finding| format!("{}.", capital(&finding.text)))
}

/// With a capital letter, unless it begins with a symbol of one letter, such as u.
pub(super) fn capital(text: &str) -> String {
    let word = text.split(' ').next().unwrap_or("");
    let mut chars = text.chars();
    match chars.next().filter(|_| word.chars().count() > 1) {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::capital;

    #[test]
    fn a_sentence_begins_with_a_capital_and_a_symbol_stays() {
        assert_eq!(capital("the target agrees"), "The target agrees");
        assert_eq!(capital("u 0.30 < p/q 0.80"), "u 0.30 < p/q 0.80");
        assert_eq!(capital(""), "");
    }
}
