//! The what-if panel: the form, and below it what happened and what would have happened.
//!
//! Invariant: the reply is computed from the recording when it is drawn; it says whether the recording sufficed and
//! whether the text would still be the target's own.

use crate::app::overlay::what_if_form::{Row, WhatIfForm};
use draftscope_protocol::{Ability, Outcome, Piece};
use draftscope_session::round_at::round_at;
use draftscope_session::{Reply, what_if};

use crate::view::prelude::*;
use crate::view::screens;
use crate::view::values::sign;

/// Width of the names.
const NAME: usize = 17;

pub(in crate::view) fn render(screen: Screen, form: &WhatIfForm, area: Rect, frame: &mut Frame) {
    let Some(round) = round_at(screen.session, form.at) else {
        return;
    };
    let area = screens::centre(area, area.width.min(90), 18.min(area.height));
    let block = screen.panel(format!(" What if: round {} ", round.number()));
    // a recording can be judged again, not asked
    let asks = screen
        .time
        .live()
        .header()
        .is_some_and(|header| header.capabilities.can_generate && header.can(Ability::WhatIf));
    let goes: (&[Action], _) = (&[Action::Confirm], "goes on from there");
    let keys = match asks {
        true => screen.keys(Context::Panel, &[(CHOOSE, "choose"), (CHANGE, "change"), goes, (LEAVE, "closes")]),
        false => screen.keys(Context::Panel, &[(CHOOSE, "choose"), (CHANGE, "change"), (LEAVE, "closes")]),
    };
    let block = block.bottom(Line::styled(format!(" {keys} "), screen.theme[Role::TextDim]));
    let inner = screen.over(block, area, frame);
    let mut lines: Vec<_> = Row::ALL.iter().map(|row| line(screen, form, *row, round)).collect();
    lines.push(Line::default());
    lines.extend(happened(screen, round, inner.width));
    let change = form.change();
    match what_if(round, &change) {
        _ if change.is_empty() => {
            let text = "Change something above: the round is judged again from what was recorded of it.";
            lines.extend(wrapped(text, inner.width, screen.theme[Role::TextDim]));
        }
        Some(reply) => lines.extend(answer(screen, &reply, asks, inner.width)),
        None => lines.extend(wrapped("The target has not run yet.", inner.width, screen.theme[Role::TextDim])),
    }
    if asks && screen.app.is_busy(screen.time.live()) {
        let (go, back) =
            (screen.app.keymap.label(Context::Panel, Action::Confirm), screen.app.key(Action::ReturnBranch));
        let text = format!("{go} ends the answer under way; {back} brings it back afterwards, and it goes on.");
        lines.extend(wrapped(&text, inner.width, screen.theme[Role::Warning]));
    }
    put(lines, inner, frame);
}

fn line(screen: Screen, form: &WhatIfForm, row: Row, round: &Round) -> Line<'static> {
    let chosen = form.row() == row;
    let (name, value) = form.shown(row, round);
    let line = Line::from(vec![
        Span::styled(if chosen { "▸ " } else { "  " }, screen.theme[Role::Key]),
        Span::styled(fit(name, NAME), screen.theme[Role::Text]),
        Span::styled(value, screen.theme[Role::TextStrong]),
    ]);
    if chosen { line.patch_style(screen.theme[Role::Selected]) } else { line }
}

/// The tokens that were really committed.
fn happened(screen: Screen, round: &Round, width: u16) -> Vec<Line<'static>> {
    let mut flow = Flow::new(width);
    flow.push("it was:  ", screen.theme[Role::TextDim]);
    if round.committed().is_empty() {
        flow.push("not committed yet at this moment", screen.theme[Role::TextDim]);
    }
    pieces(screen, round.committed(), Role::Text, &mut flow);
    flow.finish()
}

fn answer(screen: Screen, reply: &Reply, asks: bool, width: u16) -> Vec<Line<'static>> {
    let mut flow = Flow::new(width);
    flow.push("what if: ", screen.theme[Role::TextDim]);
    for (piece, outcome) in &reply.judged {
        let (role, mark) = sign(match outcome {
            Outcome::Accepted => Fate::Committed(Provenance::Accepted),
            Outcome::Rejected => Fate::Rejected,
            Outcome::NotReached => Fate::NotReached,
        });
        flow.push(&format!("{mark}{} ", text::inline(piece)), screen.theme[role]);
    }
    flow.break_line();
    flow.push("commits: ", screen.theme[Role::TextDim]);
    pieces(screen, &reply.committed, Role::TextStrong, &mut flow);
    if reply.open.is_some() {
        flow.push("…", screen.theme[Role::TextDim]);
    }
    flow.break_line();
    let (known, role) = match &reply.open {
        None => ("computed from the recorded distributions".to_owned(), Role::Good),
        Some(open) if asks => {
            let go = screen.app.keymap.label(Context::Panel, Action::Confirm);
            (format!("not known from the record: {open}; with {go} the engine goes on and shows it"), Role::Warning)
        }
        Some(open) => (format!("not known from the record: {open}"), Role::Warning),
    };
    flow.push(&known, screen.theme[role]);
    flow.break_line();
    if !reply.is_lossless {
        flow.push("from here on the text is no longer what the target would have written", screen.theme[Role::Warning]);
    }
    flow.finish()
}

fn pieces(screen: Screen, pieces: &[Piece], role: Role, flow: &mut Flow) {
    for piece in pieces {
        flow.push(&text::inline(piece), screen.theme[role]);
        flow.push(" ", screen.theme[Role::Text]);
    }
}
