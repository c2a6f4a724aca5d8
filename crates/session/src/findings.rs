//! Why a token was accepted, rejected, not reached or added, in one sentence.
//!
//! Invariant: a sentence uses only numbers from the events and words from the glossary, and is safe to print. A "near
//! tie" has one definition, [`NEAR_TIE`].

use draftscope_protocol::{Candidate, Judgement, NextKind, Outcome, Piece, Prediction, VerifyRule};

use super::round::Round;
use super::text::quoted;

/// Two best candidates closer than this (in probability) are called a near tie.
pub const NEAR_TIE: f32 = 0.05;

/// What is known about one column of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// One sentence without a final stop.
    pub text: String,
    /// Whether the target's two best candidates there were almost equal.
    pub near_tie: bool,
}

/// Explains column `index` of a round: a draft, or the token after them.
///
/// `None` for a column that the round does not have or about which nothing is known yet.
#[must_use]
pub fn explain(round: &Round, index: usize) -> Option<Finding> {
    let row = round.prediction(index);
    let margin = row.and_then(margin);
    let near_tie = margin.is_some_and(|m| m < NEAR_TIE);
    let mut text = match round.drafts.get(index) {
        Some(_) => draft_text(round, index)?,
        None => next_text(round, index)?,
    };
    if let Some(stopped) = round.stopped.as_ref().filter(|_| index == round.drafts.len()) {
        let (name, q, p_min) = (quoted(&stopped.token), stopped.q, stopped.p_min);
        text.push_str(&format!("; the drafter's {name} (q {q:.2}, below the {p_min:.2} asked of it) was left out"));
    }
    if round.next_is_undraftable() && round.next_index() == Some(index) {
        text.push_str("; the drafter's vocabulary has no such token, so it could not draft it");
    }
    if round.is_cut(index) {
        text.push_str("; past the end of the answer, unused");
    }
    if let Some(margin) = margin.filter(|_| near_tie && round.verdict.is_some()) {
        text.push_str(&format!(" (near tie, margin {margin:.2})"));
    }
    Some(Finding { text, near_tie })
}

/// Best minus second best.
fn margin(row: &Prediction) -> Option<f32> {
    Some(row.top.first()?.prob - row.top.get(1)?.prob)
}

fn draft_text(round: &Round, index: usize) -> Option<String> {
    let draft = round.drafts.get(index)?;
    let name = match draft.token.id.is_unknown() {
        true => format!("draft {} (id not reported)", index + 1),
        false => quoted(&draft.token),
    };
    let Some(judgement) = round.judgement(index) else {
        let sure = draft.q.map_or(String::new(), |q| format!(" with q {q:.2}"));
        return Some(format!("the drafter proposes {name}{sure}; not judged yet"));
    };
    if let Some(text) = by_confidence(round, index, &name, judgement) {
        return Some(text);
    }
    Some(match judgement.outcome {
        Outcome::Accepted => accepted(round, index, &name, judgement),
        Outcome::Rejected => rejected(round, index, &name, judgement),
        Outcome::NotReached => not_reached(round, index, &name),
    })
}

/// The rule `confidence` looks at q first: what it says of a draft that has one.
fn by_confidence(round: &Round, index: usize, name: &str, judgement: &Judgement) -> Option<String> {
    if round.rule != VerifyRule::Confidence || judgement.outcome == Outcome::NotReached {
        return None;
    }
    let (q, bar) = (round.drafts.get(index)?.q?, round.leniency.confidence);
    if q < bar {
        let rest = match judgement.outcome {
            Outcome::Accepted => accepted(round, index, name, judgement),
            _ => rejected(round, index, name, judgement),
        };
        return Some(format!("q {q:.2} is below the threshold {bar:.2}, so the target decides: {rest}"));
    }
    let own = match round.departure(index) {
        None => "it happens to be the target's own pick".to_owned(),
        Some(_) => match round.own_piece(index) {
            Some(own) => {
                let p = prob_of(round, index, &own).map_or(String::new(), |p| format!(" {p:.2}"));
                format!("the target would have picked {}{p}", quoted(&own))
            }
            None => "the target would have picked another".to_owned(),
        },
    };
    Some(format!("q {q:.2} ≥ the threshold {bar:.2}, so draft {name} is accepted whatever its p is; {own}"))
}

fn accepted(round: &Round, index: usize, name: &str, judgement: &Judgement) -> String {
    let Some(p) = judgement.p else {
        return format!("draft {name} accepted; the engine does not report its probabilities");
    };
    if round.departure(index).is_some() {
        return departed(round, index, name, p);
    }
    if is_drawn_unseen(round, judgement) {
        return format!(
            "draft {name} accepted with a chance of {:.2} ({})",
            chance(judgement, p),
            p_and_q(judgement, p)
        );
    }
    let (q, u) = (judgement.q.unwrap_or(1.0), judgement.u);
    match (round.judged_by(), u) {
        (VerifyRule::Block, Some(_)) => {
            format!("drafts are judged together: up to {name} (p {p:.2}, q {q:.2}) they are accepted")
        }
        (VerifyRule::Rejection, Some(_)) if round.is_tree() => {
            format!("draft {name} (p {p:.2}, q {q:.2}) accepted against what the drafts beside it left of p")
        }
        (VerifyRule::Rejection, Some(_)) if p >= q => {
            format!("p {p:.2} ≥ q {q:.2}, so draft {name} is always accepted")
        }
        (VerifyRule::Rejection, Some(u)) => {
            format!("u {u:.2} < p/q {:.2} ({}/{}); draft {name} accepted", over(p, q), small(p), small(q))
        }
        (_, Some(u)) => {
            format!("the target's own draw (u {u:.2}) is {name} {p:.2} too; draft accepted")
        }
        (_, None) => match best(round, index).filter(|best| quoted(&best.piece) != name) {
            Some(best) => {
                let best = format!("{} {:.2}", quoted(&best.piece), best.prob);
                format!("the target picks {name} {p:.2} too (its best was {best}); draft accepted")
            }
            None => format!("the target says {name} {p:.2} too; draft accepted"),
        },
    }
}

/// Whether the engine drew and does not say what.
fn is_drawn_unseen(round: &Round, judgement: &Judgement) -> bool {
    judgement.u.is_none() && !round.sampling.is_greedy() && round.judged_by().is_lossless()
}

/// The chance of acceptance; a drafter without a distribution is certain.
fn chance(judgement: &Judgement, p: f32) -> f32 {
    over(p, judgement.q.unwrap_or(1.0)).min(1.0)
}

fn p_and_q(judgement: &Judgement, p: f32) -> String {
    judgement.q.map_or(format!("p {}", small(p)), |q| format!("p {}, q {}", small(p), small(q)))
}

/// A lenient rule accepted a token that the target would not have picked.
fn departed(round: &Round, index: usize, name: &str, p: f32) -> String {
    let best = best(round, index)
        .map_or(String::new(), |best| format!(" (its best was {} {:.2})", quoted(&best.piece), best.prob));
    format!("{} is not lossless: draft {name} {p:.2} accepted, the target's own pick is another{best}", round.rule)
}

/// The alternative draft that was accepted instead of this one.
fn instead(round: &Round, index: usize) -> Option<String> {
    let beside = round.path().find(|other| round.row_of(*other) == round.row_of(index))?;
    Some(quoted(&round.drafts.get(beside)?.token))
}

fn rejected(round: &Round, index: usize, name: &str, judgement: &Judgement) -> String {
    let next = round.next_piece().unwrap_or_default();
    let chosen = quoted(&next);
    let Some(p) = judgement.p else {
        return format!("{name} rejected, {chosen} committed; the engine reports no more of rejected drafts");
    };
    if is_drawn_unseen(round, judgement) {
        let lost = small(1.0 - chance(judgement, p));
        return format!(
            "draft {name} rejected with a chance of {lost} ({}); recovered: {chosen}",
            p_and_q(judgement, p)
        );
    }
    let (q, u) = (judgement.q.unwrap_or(1.0), judgement.u);
    if round.is_tree() {
        return format!("draft {name} {p:.2} rejected; {} continues the text", instead(round, index).unwrap_or(chosen));
    }
    if let (VerifyRule::Block, Some(u), Some(limit)) = (round.rule, u, judgement.limit) {
        return format!(
            "u {u:.2} ≥ {limit:.2}, and no longer prefix passed; draft {name} rejected, recovered: {chosen}"
        );
    }
    if let (VerifyRule::Rejection, Some(u)) = (round.rule, u) {
        return format!(
            "u {u:.2} ≥ p/q {:.2} ({}/{}); draft {name} rejected, {chosen} drawn from max(0, p − q)",
            over(p, q),
            small(p),
            small(q)
        );
    }
    let prob = prob_of(round, index, &next);
    let shown = prob.map_or(String::new(), |prob| format!(" {prob:.2}"));
    match (u, prob) {
        (Some(u), _) => format!(
            "the target's own draw (u {u:.2}) is {chosen}{shown}, not {name} {p:.2}; draft rejected, recovered: {chosen}"
        ),
        (None, None) => format!("the target took {chosen}, not {name} {p:.2}; draft rejected, recovered: {chosen}"),
        (None, Some(_)) => {
            format!("the target preferred {chosen}{shown} over {name} {p:.2}; draft rejected, recovered: {chosen}")
        }
    }
}

fn not_reached(round: &Round, index: usize, name: &str) -> String {
    if round.is_tree() {
        return format!("the text does not lead to {name}, so it was never judged and is discarded");
    }
    let at = round.accepted() + 1;
    let said = |row: usize| best(round, row).map(|best| format!("{} {:.2}", quoted(&best.piece), best.prob));
    let would = match (said(index), said(index + 1)) {
        (None, _) => String::new(),
        (Some(here), None) => format!("; in its place the target would have chosen {here}"),
        (Some(here), Some(after)) => {
            format!("; in its place the target would have chosen {here}; after it, {after}")
        }
    };
    format!("draft {at} was rejected, so {name} was never judged and is discarded{would}")
}

fn next_text(round: &Round, index: usize) -> Option<String> {
    round.next_index()?;
    let verdict = round.verdict.as_ref()?;
    let drafts = round.drafts.len();
    if index != drafts {
        return None;
    }
    let best = best(round, index);
    if round.is_tree() {
        let next = quoted(&round.next_piece().unwrap_or_default());
        let path = match round.accepted() {
            0 => "no draft accepted:".to_owned(),
            1 => "after 1 accepted draft".to_owned(),
            count => format!("after {count} accepted drafts"),
        };
        return Some(format!("{path} the target's own {next} is committed"));
    }
    if verdict.next_kind == NextKind::Recovered {
        let best = best?;
        return Some(format!(
            "after the discarded drafts the target would choose {} {:.2}; it cannot be used",
            quoted(&best.piece),
            best.prob
        ));
    }
    let next = round.next_piece().unwrap_or_default();
    let prob = prob_of(round, index, &next).map_or(String::new(), |p| format!(" {p:.2}"));
    let name = quoted(&next);
    Some(match drafts {
        0 if round.number() == 0 => {
            format!("the prompt's last row gives the first token: the target's own {name}{prob}, not a draft")
        }
        0 if round.drafts_unknown => {
            format!("{name}{prob} is committed; whether drafts of this round were rejected is not reported")
        }
        _ if round.drafts_unknown => {
            format!("{name}{prob} from the same pass; whether further drafts were rejected is not reported")
        }
        0 => format!("no drafts: the target's own {name}{prob} is committed"),
        1 => format!("the draft was accepted: bonus {name}{prob} from the same pass"),
        _ => format!("all {drafts} drafts accepted: bonus {name}{prob} from the same pass"),
    })
}

fn best(round: &Round, index: usize) -> Option<&Candidate> {
    round.prediction(index)?.best()
}

fn prob_of(round: &Round, index: usize, piece: &Piece) -> Option<f32> {
    round.prediction(index)?.find(piece.id).map(|(_, prob)| prob)
}

/// A probability with two digits; one too small for two digits with its first significant digit.
fn small(p: f32) -> String {
    if p == 0.0 || p >= 0.01 { format!("{p:.2}") } else { format!("{p:.0e}") }
}

fn over(p: f32, q: f32) -> f32 {
    if q > 0.0 { p / q } else { 0.0 }
}
