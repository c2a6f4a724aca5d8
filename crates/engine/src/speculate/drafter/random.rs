//! Random tokens: the lower limit of any drafter, where almost no draft is accepted.

use super::{DraftCtx, Drafter};
use draftscope_model::ModelError;
use draftscope_protocol::TokenId;
use draftscope_protocol::random::Purpose;
use draftscope_protocol::verify::Draft;

/// Drafts every token of the vocabulary with equal probability, from the run's seed.
pub struct RandomDrafter;

impl Drafter for RandomDrafter {
    fn fork(&self) -> Result<Box<dyn Drafter>, ModelError> {
        Ok(Box::new(Self))
    }

    fn draft(&mut self, ctx: &mut DraftCtx<'_>) -> Result<(), ModelError> {
        let vocab = ctx.target.spec().info.vocab;
        while ctx.left() > 0 {
            let u = ctx.round.draw(Purpose::Draft, ctx.drafts().len());
            let token = ((f64::from(u) * f64::from(vocab)) as u32).min(vocab.saturating_sub(1));
            if !ctx.propose(Draft::certain(TokenId(token))) {
                break;
            }
        }
        Ok(())
    }
}
