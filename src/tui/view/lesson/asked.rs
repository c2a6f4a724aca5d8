//! The question of the quiz, and the reason that answers it.

use crate::session::Session;
use crate::tui::selection::{RoundAt, round_at};

use super::super::prelude::*;
use super::capital;

/// The question of the quiz.
pub(super) fn quiz(screen: Screen) -> (String, Vec<String>) {
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
pub(super) fn quiz_reveal(screen: Screen) -> String {
    let found =
        screen.app.lesson.quiz.and_then(|(at, index)| crate::session::explain(round_at(screen.session, at)?, index));
    found.map_or(String::new(), |finding| format!("{}.", capital(&finding.text)))
}
