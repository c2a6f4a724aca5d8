//! Self-speculation: the target's first layers draft, with its own final norm and head (Zhang et al.,
//! "Draft & Verify", arXiv:2309.08168; Elhoushi et al., "LayerSkip", arXiv:2404.16710).
//!
//! It uses the target's cache of those layers: the rows that it writes after the committed positions are rolled back,
//! and the verify pass writes them again.

use super::{DraftCtx, Drafter};
use draftscope_model::ModelError;

/// Drafts with [`Drafting::exit_layers`](draftscope_protocol::Drafting::exit_layers) layers.
pub struct EarlyExitDrafter;

impl Drafter for EarlyExitDrafter {
    fn fork(&self) -> Result<Box<dyn Drafter>, ModelError> {
        Ok(Box::new(Self))
    }

    fn draft(&mut self, ctx: &mut DraftCtx<'_>) -> Result<(), ModelError> {
        let since = ctx.target.checkpoint()?;
        let drafted = chain(ctx);
        ctx.target.truncate(since.len, &since)?;
        drafted
    }
}

fn chain(ctx: &mut DraftCtx<'_>) -> Result<(), ModelError> {
    let layers = ctx.target.spec().info.layers as usize;
    let layers = match ctx.drafting.exit_layers {
        0 => (layers / 3).max(1),
        asked => usize::from(asked).min(layers),
    };
    let Some(mut token) = ctx.committed.last().copied() else {
        return Ok(());
    };
    for depth in 0..ctx.limit().min(ctx.round.draft_len) {
        let out = ctx.target.forward_early(&[token], layers)?;
        let Some(draft) = ctx.pick(&out, None, depth)? else {
            break;
        };
        token = draft.token;
        if !ctx.propose(draft) {
            break;
        }
    }
    Ok(())
}
