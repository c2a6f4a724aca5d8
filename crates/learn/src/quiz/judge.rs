//! A judge who knows the rules and sees only what is on screen.
//!
//! Invariant: numbers are taken as ranges of what their two digits can mean, and nothing is decided that they leave
//! open. An item that this judge cannot decide is not asked.

use draftscope_protocol::{Outcome, VerifyRule};

use super::shown::{Answer, Hundredths, Shown, ShownCandidate};

/// Hundredths of probability from which on the shown candidates are taken for all: what rounding leaves of 1.
const WHOLE: u32 = 99;

/// The answer that follows from what is shown; none where it leaves something open.
pub(super) fn judge(shown: &Shown) -> Option<Answer> {
    let verdicts = walk(shown, |index| accepts(shown, index))?;
    let committed = committed(shown, &verdicts)?;
    Some(Answer { verdicts, committed })
}

/// Verdicts of a rule that answers for one draft at a time: from the text on, drafts that continue a row are tried in
/// order until one is accepted; where none is, the round ends.
pub(super) fn walk(shown: &Shown, accepts: impl Fn(usize) -> Option<bool>) -> Option<Vec<Outcome>> {
    let mut verdicts = vec![Outcome::NotReached; shown.drafts.len()];
    let mut row = 0;
    loop {
        let mut next = None;
        for index in shown.children(row) {
            verdicts[index] = if accepts(index)? { Outcome::Accepted } else { Outcome::Rejected };
            if verdicts[index] == Outcome::Accepted {
                next = Some(index + 1);
                break;
            }
        }
        match next {
            Some(after) if after > row => row = after,
            _ => return Some(verdicts),
        }
    }
}

/// The row after the accepted drafts.
pub(super) fn end_row(verdicts: &[Outcome]) -> usize {
    verdicts.iter().rposition(|verdict| *verdict == Outcome::Accepted).map_or(0, |index| index + 1)
}

/// Whether the rule accepts a draft.
fn accepts(shown: &Shown, index: usize) -> Option<bool> {
    let draft = &shown.drafts[index];
    let row = shown.rows.get(draft.row)?;
    let is_own = || Some(own(shown, row, draft.u)?.token == draft.token);
    match shown.rule {
        VerifyRule::Rejection if shown.is_tree && !shown.is_greedy => None,
        VerifyRule::Rejection if !shown.is_greedy => is_below_ratio(draft.u?, draft.p, draft.q?),
        VerifyRule::Exact | VerifyRule::Rejection => is_own(),
        VerifyRule::Block if shown.is_greedy => is_own(),
        _ if shown.is_tree => None,
        VerifyRule::TopK => {
            let place = row.iter().position(|candidate| candidate.token == draft.token);
            match (place, usize::from(shown.accepts_best?)) {
                (Some(place), best) if place < best => Some(true),
                (_, best) if best <= row.len() => Some(is_own()?),
                _ => None,
            }
        }
        VerifyRule::Threshold => either(is_own, || is_at_least(draft.p, shown.limit?)),
        VerifyRule::Confidence => either(is_own, || is_at_least(draft.q?, shown.limit?)),
        VerifyRule::Block | VerifyRule::Typical => None,
    }
}

fn either(a: impl Fn() -> Option<bool>, b: impl Fn() -> Option<bool>) -> Option<bool> {
    match (a(), b()) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (Some(false), Some(false)) => Some(false),
        _ => None,
    }
}

/// u < p/q, where the digits decide it.
fn is_below_ratio(u: Hundredths, p: Hundredths, q: Hundredths) -> Option<bool> {
    let ((u_min, u_max), (p_min, p_max), (q_min, q_max)) = (u.range(), p.range(), q.range());
    match () {
        () if u_max.min(1.0) * q_max < p_min => Some(true),
        () if u_min * q_min >= p_max => Some(false),
        () => None,
    }
}

fn is_at_least(value: Hundredths, limit: Hundredths) -> Option<bool> {
    match value.0.cmp(&limit.0) {
        std::cmp::Ordering::Equal => None,
        order => Some(order.is_gt()),
    }
}

/// The target's own token in a row: the most probable one, or the one that the draw picks.
fn own<'a>(shown: &Shown, row: &'a [ShownCandidate], u: Option<Hundredths>) -> Option<&'a ShownCandidate> {
    if shown.is_greedy {
        let best = row.first()?;
        let is_clear = row.get(1).is_none_or(|second| second.p < best.p);
        return Some(best).filter(|_| is_clear);
    }
    let u = u?;
    row.iter().find(|candidate| candidate.draws.is_some_and(|(from, to)| from < u && u < to))
}

/// The choice that names what is committed after the accepted drafts.
fn committed(shown: &Shown, verdicts: &[Outcome]) -> Option<usize> {
    let at = end_row(verdicts);
    let row = shown.rows.get(at)?;
    let rejected = shown.children(at).next();
    let Some(index) = rejected else {
        return shown.choice("bonus", &own(shown, row, shown.next_u)?.token);
    };
    if !shown.compares_ratio() {
        return shown.choice("recovered", &own(shown, row, shown.drafts[index].u)?.token);
    }
    // drawn from max(0, p − q): the only choice that has something left
    let is_whole = row.iter().map(|candidate| u32::from(candidate.p.0)).sum::<u32>() >= WHOLE;
    let is_left = |token: &str| {
        let Some(candidate) = row.iter().find(|candidate| candidate.token == token) else {
            return Some(false).filter(|_| is_whole || token == shown.drafts[index].token);
        };
        match candidate.p.0.cmp(&candidate.q?.0) {
            std::cmp::Ordering::Equal => None,
            order => Some(order.is_gt()),
        }
    };
    let mut left = Vec::new();
    for (at, choice) in shown.choices.iter().enumerate().filter(|(_, choice)| choice.kind == "recovered") {
        if is_left(&choice.token)? {
            left.push(at);
        }
    }
    (left.len() == 1).then(|| left[0])
}
