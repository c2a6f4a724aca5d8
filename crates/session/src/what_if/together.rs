//! Rounds whose drafts cannot be judged one after the other: trees, and the rule `block` when sampling. All drafts go
//! to the rule at once, as in the engine.
//!
//! Invariant: as in the whole module, nothing is guessed; a row or a distribution that was cut to its best candidates
//! leaves the reply open unless the rule does not use the rest.

use super::case::{Case, WHOLE};
use super::question::Reply;
use draftscope_protocol::verify::{Draft, OfRound, RoundCtx, verifier};
use draftscope_protocol::{Outcome, Piece, TokenId, Verification, VerifyRule};

/// Judges a round as a whole.
pub(super) fn together(case: &Case) -> Reply {
    let mut reply = Reply {
        judged: Vec::new(),
        committed: Vec::new(),
        open: missing(case),
        is_lossless: case.rule.is_lossless() && overruled(case).is_none(),
    };
    if reply.open.is_some() {
        return reply;
    }
    let whole = judge(case, 0);
    let (verdict, is_reached) = match overruled(case) {
        Some(index) => overrule(case, whole, index),
        None => (whole, true),
    };
    if !is_reached {
        reply.open = Some("the text does not lead to that draft: overrule the one before it first".to_owned());
        return reply;
    }
    add_judged(case, &verdict, &mut reply);
    reply
}

/// What the recording lacks.
fn missing(case: &Case) -> Option<String> {
    let round = case.round;
    if let Some(says) = case.undrawable() {
        return Some(says);
    }
    if let Some((index, _)) = &case.change.replace {
        return Some(format!("with another draft at place {} the target has to read again", index + 1));
    }
    let depth = (0..round.drafts.len()).map(|index| round.depth(index) + 1).max().unwrap_or(0);
    if case.change.draft_len.is_some_and(|wanted| wanted > depth) {
        return Some(format!("draft {} was never made: the drafter must be asked", depth + 1));
    }
    if round.rows().len() <= round.drafts.len() {
        return Some("the target's choice is not recorded at every place".to_owned());
    }
    let is_cut = |index: usize| round.drafts.get(index).is_some_and(|cell| cell.q.is_some() && cell.top.tail > WHOLE);
    for (number, row) in round.rows().iter().enumerate() {
        let judged = (0..round.drafts.len()).filter(|index| round.row_of(*index) == number);
        for index in judged.map(Some).chain([None]) {
            let draft = index.and_then(|index| round.drafts.get(index)).map(|cell| &cell.token);
            let needs_q = !case.sampling.is_greedy() && index.is_some_and(is_cut);
            let is_known = case.has(row, draft) && !needs_q;
            if !is_known {
                let count = row.top.len();
                return Some(format!("row {number} was recorded with its best {count} candidates only"));
            }
        }
    }
    None
}

/// Drafts that a smaller k would not have made are left out.
fn is_made(case: &Case, index: usize) -> bool {
    case.change.draft_len.is_none_or(|wanted| case.round.depth(index) < wanted)
}

/// The draft whose verdict is reversed; `None` if that draft is not made.
fn overruled(case: &Case) -> Option<usize> {
    case.change.overrule.filter(|index| *index < case.round.drafts.len() && is_made(case, *index))
}

/// Judges what continues a row, as if the round began there. Outcomes are those of all drafts.
fn judge(case: &Case, root: usize) -> Verification {
    let round = case.round;
    let leads_here = |index: usize| {
        let row = round.row_of(index);
        root == 0
            || row == root
            || std::iter::successors(round.parent(index), |at| round.parent(*at)).any(|at| at + 1 == root)
    };
    let below: Vec<usize> =
        (0..round.drafts.len()).filter(|index| is_made(case, *index) && leads_here(*index)).collect();
    // row 0 is the root, row i + 1 that after the i-th draft below it
    let row =
        |old: usize| if old == root { 0 } else { below.iter().position(|at| at + 1 == old).map_or(0, |at| at + 1) };
    let drafts: Vec<Draft> = below
        .iter()
        .map(|index| {
            let draft = case.drawn(*index, &round.drafts[*index].token);
            if round.is_tree() { draft.at_row(row(round.row_of(*index))) } else { draft }
        })
        .collect();
    let rows: Vec<_> = std::iter::once(root)
        .chain(below.iter().map(|index| index + 1))
        .filter_map(|row| round.rows().get(row).map(super::case::distribution))
        .collect();
    let depth = root.checked_sub(1).map_or(0, |index| round.depth(index) + 1);
    let start = round.base_len() as usize + 1;
    let is_fresh = round.is_tree() || round.shapes_drafts || case.rule == VerifyRule::Block;
    let ctx = RoundCtx {
        position: start + depth,
        draft_len: drafts.len(),
        greedy: case.sampling.is_greedy(),
        fresh: is_fresh.then_some(OfRound { start, first: root }),
        leniency: round.leniency,
        draws: &case.draws,
    };
    let mut verdict = verifier(case.rule).verify(&ctx, &drafts, &rows);
    let judged = std::mem::take(&mut verdict.judgements);
    let mut all = vec![judgement(); round.drafts.len()];
    for (index, judgement) in below.into_iter().zip(judged) {
        all[index] = judgement;
    }
    verdict.judgements = all;
    verdict
}

fn judgement() -> draftscope_protocol::Judgement {
    draftscope_protocol::Judgement { p: None, q: None, u: None, limit: None, outcome: Outcome::NotReached }
}

/// Reverses one verdict; false if the text does not lead to that draft.
fn overrule(case: &Case, mut whole: Verification, index: usize) -> (Verification, bool) {
    let round = case.round;
    let is_on_path = |at: usize| whole.judgements[at].outcome == Outcome::Accepted;
    if round.parent(index).is_some_and(|parent| !is_on_path(parent)) {
        return (whole, false);
    }
    if is_on_path(index) {
        let row = round.rows().get(round.row_of(index));
        let draft = round.drafts[index].token.id;
        let other = row.and_then(|row| row.top.iter().map(|c| c.piece.id).find(|id| *id != draft));
        for at in index..round.drafts.len() {
            whole.judgements[at].outcome = Outcome::NotReached;
        }
        whole.judgements[index].outcome = Outcome::Rejected;
        whole.next = other.unwrap_or(TokenId::UNKNOWN);
        return (whole, true);
    }
    let mut below = judge(case, index + 1);
    let ancestors: Vec<usize> = std::iter::successors(round.parent(index), |at| round.parent(*at)).collect();
    for at in ancestors.into_iter().chain([index]) {
        below.judgements[at].outcome = Outcome::Accepted;
    }
    (below, true)
}

fn add_judged(case: &Case, verdict: &Verification, reply: &mut Reply) {
    let drafts = &case.round.drafts;
    let mut rows = vec![0];
    for (index, (cell, judgement)) in drafts.iter().zip(&verdict.judgements).enumerate() {
        if !is_made(case, index) {
            continue;
        }
        reply.judged.push((cell.token.clone(), judgement.outcome));
        if judgement.outcome == Outcome::Accepted {
            reply.committed.push(cell.token.clone());
            rows.push(index + 1);
        }
    }
    if verdict.next.is_unknown() {
        reply.open = Some("the token in its place is drawn from more than was recorded".to_owned());
        return;
    }
    let next: Piece = case.piece(rows.last().copied().unwrap_or(0), verdict.next);
    reply.committed.push(next);
    reply.is_lossless |= case.is_own(&reply.committed, rows);
}

#[cfg(test)]
mod tests {
    use crate::fixture::{Script, fold, tree_round};

    use crate::{Reply, Round, WhatIf, what_if};
    use draftscope_protocol::{Lane, Outcome, VerifyRule};

    /// anchor ─ ' a', anchor ─ ' the' ─ (' sky', ' sea'); the target says ' the', then ' moon'.
    fn tree() -> Round {
        let mut script = Script::prompted("hi", "Look");
        tree_round(&mut script);
        (*fold(&script.events).turns()[0].answer(Lane::Speculative).rounds[0]).clone()
    }

    fn ask(round: &Round, change: &WhatIf) -> Reply {
        what_if(round, change).unwrap()
    }

    fn texts(reply: &Reply) -> Vec<String> {
        reply.committed.iter().map(|piece| piece.lossy().into_owned()).collect()
    }

    #[test]
    fn a_tree_is_judged_again_on_its_rows() {
        let reply = ask(&tree(), &WhatIf { rule: Some(VerifyRule::Exact), ..WhatIf::default() });
        assert_eq!((texts(&reply), reply.open), (vec![" the".to_owned(), " moon".to_owned()], None));
        let outcomes: Vec<_> = reply.judged.iter().map(|(_, outcome)| *outcome).collect();
        assert_eq!(outcomes, [Outcome::Rejected, Outcome::Accepted, Outcome::Rejected, Outcome::Rejected]);
        let flat = ask(&tree(), &WhatIf { draft_len: Some(1), ..WhatIf::default() });
        assert_eq!((texts(&flat), flat.judged.len()), (vec![" the".to_owned(), " moon".to_owned()], 2));
        let deep = ask(&tree(), &WhatIf { draft_len: Some(3), ..WhatIf::default() });
        assert_eq!(deep.open.unwrap(), "draft 3 was never made: the drafter must be asked");
    }

    #[test]
    fn a_node_is_overruled_where_the_text_leads_to_it() {
        let overrule = |index| ask(&tree(), &WhatIf { overrule: Some(index), ..WhatIf::default() });
        let kept = overrule(2);
        assert_eq!((texts(&kept), kept.is_lossless), (vec![" the".into(), " sky".into(), " x".into()], false));
        assert_eq!(texts(&overrule(0)), [" a", " b"]);
        let left_out = ask(&tree(), &WhatIf { overrule: Some(2), draft_len: Some(1), ..WhatIf::default() });
        assert_eq!((texts(&left_out), left_out.is_lossless), (vec![" the".into(), " moon".into()], true));
        let dropped = overrule(1);
        assert_eq!(texts(&dropped), Vec::<String>::new());
        assert!(dropped.open.unwrap().contains("more than was recorded"), "its row lists one candidate only");
        let mut astray = tree();
        astray.drafts[2].row = Some(1); // after ' a', which the target does not say
        let reply = ask(&astray, &WhatIf { overrule: Some(2), ..WhatIf::default() });
        assert!(reply.open.unwrap().contains("does not lead to that draft"));
    }

    #[test]
    fn a_drawn_block_is_computed_from_whole_rows_only() {
        let mut round = tree();
        round.drafts.truncate(2);
        for cell in &mut round.drafts {
            (cell.row, cell.q) = (None, None);
        }
        round.rows_mut().truncate(3);
        round.sampling.temperature = 1.0;
        let change = WhatIf { rule: Some(VerifyRule::Block), ..WhatIf::default() };
        assert!(ask(&round, &change).open.unwrap().contains("candidates only"));
        for (index, row) in round.scored.iter_mut().flat_map(|scored| &mut scored.rows).enumerate() {
            row.tail = 0.0;
            row.top[0].prob = 1.0;
            if let Some(draft) = round.drafts.get(index) {
                row.top[0].piece = draft.token.clone();
            }
        }
        let reply = ask(&round, &change);
        assert_eq!((texts(&reply), reply.open), (vec![" a".into(), " the".into(), " moon".into()], None));
        assert!(reply.is_lossless);
    }
}
