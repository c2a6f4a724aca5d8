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
    let Some(anchor) = ctx.committed.last().copied() else {
        return Ok(());
    };
    let mut read = 0; // the anchor, then drafts
    while ctx.left() > 0 {
        let mut out = None;
        while read <= ctx.drafts().len() {
            let token = read.checked_sub(1).map_or(anchor, |index| ctx.drafts()[index].token);
            out = Some(ctx.target.forward_early(&[token], layers)?);
            read += 1;
        }
        let Some(out) = out else { break };
        let Some(draft) = ctx.pick(&out, None, ctx.drafts().len())? else {
            break;
        };
        if !ctx.propose(draft) {
            break;
        }
    }
    Ok(())
}
