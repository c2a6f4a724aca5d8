//! Why the speed is what it is: break-even, best k, and what limits it, in a few sentences.
//!
//! Invariant: the sentences follow from `session::account`'s account of the shown turn, from its own rounds.

use std::cmp::Ordering;

use draftscope_protocol::{Baseline, DraftLenMode, Settings};
use draftscope_session::account::{Account, Worth};

use crate::view::prelude::*;
use crate::view::values::capital;
use crate::view::values::number;

/// Height with its frame.
pub(in crate::view) const HEIGHT: u16 = 6;

pub(in crate::view) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    let inner = framed(screen.panel(" What limits it "), area, frame);
    let settings = screen.settings();
    let text = screen.turn().and_then(|turn| words(turn, &settings));
    let fits = |text: &str| wrapped(text, inner.width, screen.theme[Role::Text]).len() <= inner.height.into();
    let (mut text, role) = match text {
        Some((text, even)) => {
            let whole = format!("{text} {even}");
            (if fits(&whole) { whole } else { text }, Role::Text)
        }
        None if screen.turn().and_then(Turn::disturbance).is_some() => (disturbed(screen), Role::Text),
        None if screen.engine().is_some() => (attached(screen), Role::Text),
        None => {
            let text = "Not known yet: a turn with drafts and plain rounds beside it (a probe or a race) tells what passes \
                        cost here, which k pays, and what limits it.";
            (text.to_owned(), Role::TextDim)
        }
    };
    // remarks stand where there is room for them
    for remark in screen.turn().map(|turn| remarks(screen, turn)).into_iter().flatten() {
        let longer = format!("{} {}.", text.trim_end(), capital(&remark));
        if fits(&longer) {
            text = longer;
        }
    }
    put(wrapped(&text, inner.width, screen.theme[role]), inner, frame);
}

/// What is said instead of a conclusion from figures that cannot be true.
fn disturbed(screen: Screen) -> String {
    let key = screen.app.key(Action::WhyDisturbed);
    format!(
        "Not known on this busy machine: other work disturbed the times, so nothing is predicted from them. {key} says why."
    )
}

/// What else there is to say about the speed of a turn.
fn remarks(screen: Screen, turn: &Turn) -> Vec<String> {
    let note = turn.speedup().filter(|speedup| !speedup.is_disturbed()).and_then(|speedup| speedup.note());
    let note = note.map(|note| note.trim_end_matches('.').to_owned());
    let all = [note, thought(turn), rollback(screen, turn), sampled(screen, turn), whole_session(screen)];
    all.into_iter().flatten().collect()
}

/// Speed and speedup over all turns.
fn whole_session(screen: Screen) -> Option<String> {
    let speed = screen.session.stats(Lane::Speculative).tokens_per_second()?;
    let speedup = screen.session.speedup().map_or(String::new(), |speedup| format!(", {speedup} plain"));
    let turns = screen.session.turns();
    let all = turns.iter().flat_map(Turn::settings_spans);
    let are_alike = turns
        .last()
        .and_then(|turn| turn.settings_spans().last())
        .is_none_or(|newest| all.clone().all(|span| span.settings.makes_rounds_like(&newest.settings)));
    match are_alike {
        _ if turns.len() < 2 => None,
        true => Some(format!("over all turns: {speed:.1} tokens/s{speedup}")),
        // speeds under several settings have no common figure
        false => screen.session.speedup().map(|of| format!("over the turns with these settings: {of} plain")),
    }
}

/// The cost of measuring plain decoding within the turn.
fn sampled(screen: Screen, turn: &Turn) -> Option<String> {
    let is_sampled = matches!(screen.settings().baseline, Baseline::Probe(_)) && !turn.is_whole(Lane::Plain);
    let share = turn.plain_share().filter(|_| is_sampled)?;
    Some(format!("measuring plain decoding took {:.0} % of the time", share * 100.0))
}

/// Acceptance of thought and answer apart.
fn thought(turn: &Turn) -> Option<String> {
    let parts = turn.answer(Lane::Speculative).stats().thought_and_answer()?;
    let [thought, answer] = parts.map(|part| {
        if part.rounds == 0 {
            return "no round yet".to_owned();
        }
        let percent = part.acceptance_rate().map_or("–".to_owned(), |rate| format!("{:.0} %", rate * 100.0));
        format!("{percent} of drafts, {} tokens a round", number(part.tokens_per_round(), 2))
    });
    Some(format!("accepted in the thought: {thought}; in the answer: {answer}"))
}

/// The cost of rolling back rejected rows, with recurrent layers.
fn rollback(screen: Screen, turn: &Turn) -> Option<String> {
    let model = &screen.session.header().filter(|header| header.model.state_bytes > 0)?.model;
    let stats = turn.answer(Lane::Speculative).stats();
    let took = stats.rollback_us().checked_div(stats.timed_rounds())?;
    let how = if model.snapshot_bytes == model.state_bytes { "from copies of the state" } else { "by replaying rows" };
    Some(format!("rollback {how}: {took} µs a round"))
}

/// What an attached engine counted before this session, and the same of this session.
fn attached(screen: Screen) -> String {
    let share = |accepted: u64, drafted: u64, steps: u64| {
        let (rate, mean) = (accepted as f64 / drafted as f64 * 100.0, 1.0 + accepted as f64 / steps.max(1) as f64);
        format!("{rate:.0} % of {drafted} drafts accepted, {mean:.2} tokens per step")
    };
    let own = screen.session.stats(Lane::Speculative).summary();
    let (drafted, accepted, steps) = (own.num_draft_tokens, own.num_accepted_draft_tokens, own.num_spec_steps);
    let counts = drafted.filter(|drafted| *drafted > 0).zip(accepted.zip(steps));
    let own = counts.map(|(drafted, (accepted, steps))| format!("This session: {}.", share(accepted, drafted, steps)));
    let before = screen.engine().and_then(|engine| {
        let totals = engine.counted.filter(|totals| totals.drafted > 0)?;
        let (name, counts) = (text::one_line(&engine.name), share(totals.accepted, totals.drafted, totals.steps));
        Some(format!("{name} since its start, all users, before this session: {counts}."))
    });
    let cost = "Whether speculation pays is measured beside a server without it: --plain-url.".to_owned();
    [own, before, Some(cost)].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// Rounds after which a turn's numbers are stated without a reservation.
const ENOUGH: u64 = 5;

/// What limits the speed, and the break-even of the k in use.
fn words(turn: &Turn, settings: &Settings) -> Option<(String, String)> {
    let answer = turn.answer(Lane::Speculative);
    let account = Account::of_turn(turn)?;
    if let Some(round) = answer.rounds.iter().rev().find(|round| round.is_tree()) {
        return Some((tree(turn, &account, round)?, String::new()));
    }
    let mut rounds = answer.rounds.iter().filter(|round| round.is_complete());
    let differs = |round: &Round| match round.drafts.len().cmp(&round.draft_len().into()) {
        Ordering::Less => true,
        Ordering::Equal => false,
        Ordering::Greater => settings.drafter.stacks_copies(),
    };
    if rounds.any(|round| differs(round)) {
        return Some((ended(turn, &account, settings)?, String::new()));
    }
    let count = answer.stats().rounds();
    let text = match count {
        ENOUGH.. => account.sentence.clone(),
        1 => format!("after 1 round: {}", account.sentence),
        _ => format!("after {count} rounds: {}", account.sentence),
    };
    Some((format!("{}.", capital(&text)), account.worth(settings.draft_len.into()).map_or(String::new(), even)))
}

/// The account covers chains; for trees only measurements are stated.
fn tree(turn: &Turn, account: &Account, round: &Round) -> Option<String> {
    let rows = round.rows().len();
    let (one, all) = (account.costs.verify_us.first()?, account.costs.verify_us.get(rows.checked_sub(1)?)?);
    let tokens = turn.answer(Lane::Speculative).stats().mean_tokens_per_round()?;
    let speedup = turn.speedup().map_or(String::new(), |speedup| format!(", {speedup} plain"));
    Some(format!(
        "Rounds draft a tree here: verifying its {rows} rows costs {:.2}× one row, and a round commits {tokens:.2} \
         tokens{speedup}. A wider tree finds more and costs more rows. The best k is worked out for chains only.",
        all / one
    ))
}

/// The account covers drafts of one length; for drafts that end earlier, that the drafter lacks, or that copies follow, only
/// measurements are stated.
fn ended(turn: &Turn, account: &Account, settings: &Settings) -> Option<String> {
    let stats = turn.answer(Lane::Speculative).stats();
    let drafts = stats.drafted() as f64 / stats.rounds().max(1) as f64;
    let tokens = stats.mean_tokens_per_round()?;
    let speedup = turn.speedup().map_or(String::new(), |speedup| format!(", {speedup} plain"));
    let one = account.costs.verify_us.first().filter(|us| **us > 0.0)?;
    let two = account.costs.verify_us.get(1).map_or(String::new(), |two| format!("two rows cost {:.2}×, ", two / one));
    let why = match settings.draft_len_mode {
        DraftLenMode::Auto => {
            "The engine ends each draft where the drafter's probabilities promise less than another token costs"
        }
        DraftLenMode::Fixed if settings.drafter.stacks_copies() => {
            "Copies of repeated text join the k drafts, or replace them, where they promise more than their rows cost"
        }
        DraftLenMode::Fixed => "Drafts are shorter than k where the drafter has nothing more to offer",
    };
    Some(format!(
        "A round drafts {drafts:.2} tokens on average and commits {tokens:.2}{speedup}. {why}: of one row's time, {two}\
         {}×.",
        match account.costs.draft_pass_us > 0.0 {
            true => format!("the drafts' one pass {:.2}", account.costs.draft_pass_us / one),
            false => format!("a draft {:.2}", account.costs.draft_us / one),
        }
    ))
}

fn even(now: &Worth) -> String {
    let k = now.draft_len;
    match now.break_even {
        Some(a) if a < 0.005 => format!("k = {k} pays off even if no draft is accepted."),
        Some(a) => {
            format!("k = {k} pays off if more than {:.0} % of the drafts that are tested are accepted.", a * 100.0)
        }
        None => format!("k = {k} cannot pay at these costs, even if every draft were accepted."),
    }
}
