//! Values of a run in the form that panels print.

use std::cmp::Ordering;

use super::prelude::*;
use draftscope_protocol::{NextKind, Outcome};
use draftscope_session::Speedup;

/// Role and sign of a fate, for tables.
pub(super) fn sign(fate: Fate) -> (Role, &'static str) {
    (fate::role(fate), fate::sign(fate))
}

/// Position in the context of a column of a round; in a tree, columns of one depth share it.
pub(super) fn position(round: &Round, column: usize) -> u64 {
    let depth = match round.drafts.get(column) {
        None if round.is_tree() => round.accepted(),
        _ => round.depth(column),
    };
    u64::from(round.base_len()) + 1 + depth as u64
}

/// Microseconds as milliseconds or seconds.
pub(super) fn duration(us: u64) -> String {
    match us {
        0..100_000 => format!("{:.1} ms", us as f64 / 1e3),
        100_000..1_000_000 => format!("{:.0} ms", us as f64 / 1e3),
        _ => format!("{:.1} s", us as f64 / 1e6),
    }
}

/// A probability in a table: without the zero before the point.
pub(super) fn short(p: f32) -> String {
    match p {
        0.995.. => "1.0".to_owned(),
        0.01.. => format!("{p:.2}").trim_start_matches('0').to_owned(),
        p if p.is_finite() => "<.01".to_owned(),
        _ => "–".to_owned(),
    }
}

/// A quotient, or a dash if nothing was measured.
pub(super) fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"))
}

/// The role of a speedup's finding: gain, loss, or neither while 1 lies in the interval or other work disturbed it.
pub(super) fn role_of(speedup: &Speedup) -> Role {
    match speedup.against_one() {
        _ if speedup.is_disturbed() => Role::TextStrong,
        Ordering::Greater => Role::Good,
        Ordering::Equal => Role::TextStrong,
        Ordering::Less => Role::Bad,
    }
}

/// The outcome of a draft.
pub(super) fn fate_of(round: &Round, index: usize) -> Fate {
    match round.outcome(index) {
        Some(Outcome::Accepted) => Fate::Committed(Provenance::Accepted),
        Some(Outcome::Rejected) => Fate::Rejected,
        Some(Outcome::NotReached) => Fate::NotReached,
        None => Fate::Pending,
    }
}

/// Role and sign of a draft, with special ones for an accepted draft that the target would not have picked, and for one that
/// the grammar forced.
pub(super) fn draft_sign(round: &Round, index: usize) -> (Role, &'static str) {
    match round.departure(index) {
        Some(_) => (Role::TokenDeparted, fate::DEPARTED),
        None if is_forced(round, index) => (Role::TokenForced, fate::FORCED),
        None => sign(fate_of(round, index)),
    }
}

/// Whether a draft was accepted and the grammar had forced it.
fn is_forced(round: &Round, index: usize) -> bool {
    let forced = round.drafts.get(index).is_some_and(|draft| draft.forced);
    forced && round.outcome(index) == Some(Outcome::Accepted)
}

/// What the target's own token is.
pub(super) fn next_fate(round: &Round) -> Fate {
    Fate::Committed(match round.next_kind() {
        _ if round.number() == 0 => Provenance::Prefill,
        _ if round.drafts.is_empty() => Provenance::Plain,
        Some(NextKind::Recovered) => Provenance::Recovered,
        _ => Provenance::Bonus,
    })
}

/// Role and mark of the target's own token; one that the drafter's vocabulary lacks has its own mark.
pub(super) fn next_sign(round: &Round) -> (Role, &'static str) {
    let (role, mark) = sign(next_fate(round));
    (role, if round.next_is_undraftable() { fate::UNDRAFTABLE } else { mark })
}

/// The target's probability of the draft itself.
pub(super) fn draft_p(round: &Round, column: usize) -> Option<f32> {
    let judged = round.judgement(column).and_then(|judgement| judgement.p);
    let id = round.drafts.get(column)?.token.id;
    judged.or_else(|| round.prediction(column)?.find(id).map(|found| found.1))
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
