//! The draw that a rule compares, or would have compared, for a draft.

use draftscope_protocol::VerifyRule;
use draftscope_protocol::random::{Purpose, SeededDraws};
use draftscope_protocol::verify::{OfRound, RoundCtx};

use super::round::Round;

/// The uniform draw, 0 to 1, that belongs to draft `index` of a chain, whether it was judged or not. None at
/// temperature 0, in a tree, under `block`, and where a recorded draw is not the run's own (an attached engine).
#[must_use]
pub fn draw_for(round: &Round, index: usize) -> Option<f32> {
    if round.sampling.is_greedy() || round.is_tree() || round.rule == VerifyRule::Block {
        return None;
    }
    let draws = SeededDraws::new(round.sampling.seed);
    let start = round.base_len() as usize + 1;
    let ctx = RoundCtx {
        position: start,
        draft_len: round.drafts.len(),
        greedy: false,
        fresh: round.shapes_drafts.then_some(OfRound { start, first: 0 }),
        leniency: round.leniency,
        draws: &draws,
    };
    let draw = |index: usize| match round.rule {
        VerifyRule::Rejection => ctx.draw(Purpose::Accept, index),
        _ => ctx.draws.uniform(Purpose::Next, start + index),
    };
    let is_own = |index: usize| {
        let recorded = round.judgement(index).and_then(|judgement| judgement.u);
        recorded.is_none_or(|u| u == draw(index))
    };
    (0..round.drafts.len()).all(is_own).then(|| draw(index))
}
