//! What a paced answer is doing now, in words, and the keys for its pace.
//!
//! Invariant: it is shown exactly while an answer runs slower than the engine could.

use crate::app::clock::pace::{Pace, RAMP_ROUNDS};
use crate::app::clock::pacing::round_number;
use crate::view::prelude::*;
use draftscope_protocol::{NextKind, Outcome};
use draftscope_session::Phase;

/// The title of its box and the line in it; `None` at full speed, in the past and while the user pauses it.
pub(in crate::view) fn words(screen: Screen) -> Option<(String, String)> {
    let (app, live) = (screen.app, screen.time.live());
    if !app.clock.plays || app.learning.shows_recording() || screen.time.is_past() || !app.is_paced(live) {
        return None;
    }
    let pace = app.clock.pace.name(round_number(live));
    let pace = format!("{}{}", pace[..1].to_uppercase(), &pace[1..]);
    let key = |action| app.keymap.label(Context::Browse, action);
    let (slower, faster, pause) = (key(Action::Slower), key(Action::Faster), key(Action::PauseResume));
    let keys = match app.clock.pace {
        Pace::Ramp => {
            format!("full speed by round {RAMP_ROUNDS} · {slower} slower · {faster} full speed now · {pause} pauses")
        }
        _ => format!("{slower} slower · {faster} faster · {pause} pauses"),
    };
    Some((format!(" {pace} · {} ", now(screen)), keys))
}

/// The shown phase, in words.
fn now(screen: Screen) -> String {
    let session = screen.session; // with the verdicts that are shown by now
    let round = session.turn().and_then(|turn| turn.answer(Lane::Speculative).rounds.last());
    let Some(round) = round.filter(|_| session.phase(Lane::Speculative) != Phase::Prefilling) else {
        return "the target reads the prompt".to_owned();
    };
    let name = |index: usize| round.drafts.get(index).map_or(String::new(), |draft| text::inline(&draft.token));
    match session.phase(Lane::Speculative) {
        Phase::Drafting if round.drafts.is_empty() => {
            format!("draft: the drafter guesses {}", counted(round.draft_len().into(), "token"))
        }
        Phase::Drafting | Phase::Verifying if !round.drafts.is_empty() => {
            let (made, last) = (round.drafts.len(), name(round.drafts.len() - 1));
            format!("draft: token {made} of {}, '{last}'", made.max(round.draft_len().into()))
        }
        Phase::Judging => {
            format!("verify: one pass of the target over {}", counted(round.rows().len(), "position"))
        }
        Phase::Committing => verdict(round, &name),
        Phase::Between if round.committed().len() == 1 => "commit: 1 token is output".to_owned(),
        Phase::Between => format!("commit: {} tokens are output", round.committed().len()),
        _ => "plain: the target alone, no draft".to_owned(),
    }
}

/// The newest shown verdict.
fn verdict(round: &Round, name: &dyn Fn(usize) -> String) -> String {
    let shown = (0..round.drafts.len()).take_while(|index| round.outcome(*index).is_some()).count();
    let last = shown.checked_sub(1).and_then(|index| Some((index, round.outcome(index)?)));
    match (last, round.next_kind()) {
        (Some((index, Outcome::Accepted)), None) => format!("verdict: '{}' is accepted", name(index)),
        (Some((index, Outcome::Accepted)), Some(NextKind::Bonus)) => {
            format!("verdict: '{}' is accepted, and a bonus", name(index))
        }
        (Some((index, Outcome::Rejected)), _) => format!("verdict: '{}' is rejected", name(index)),
        (Some((_, Outcome::NotReached)), _) => "discard: what follows a rejected token".to_owned(),
        _ => "verdict".to_owned(),
    }
}
