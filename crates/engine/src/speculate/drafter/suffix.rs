//! Copying: drafts what followed the longest end of the text, prompt and answer included, that occurred before. Unlike
//! [`NgramDrafter`](super::NgramDrafter) it knows no limit to the length of a match, prefers the more frequent
//! continuation, and finds it in constant time.

use super::copier::Copier;
use super::{DraftCtx, Drafter};
use draftscope_model::ModelError;
use draftscope_protocol::TokenId;

/// Copies, alone or weighed against another drafter.
#[derive(Default)]
pub struct SuffixDrafter {
    copier: Copier,
}

impl Drafter for SuffixDrafter {
    fn fork(&self) -> Result<Box<dyn Drafter>, ModelError> {
        Ok(Box::new(Self { copier: self.copier.clone() }))
    }

    fn settle(&mut self, committed: &[TokenId]) -> Result<(), ModelError> {
        self.copier.read(committed);
        Ok(())
    }

    fn rewind(&mut self, len: usize) -> Result<(), ModelError> {
        self.copier.cut(len);
        Ok(())
    }

    fn copier(&mut self) -> Option<&mut Copier> {
        Some(&mut self.copier)
    }

    fn draft(&mut self, ctx: &mut DraftCtx<'_>) -> Result<(), ModelError> {
        ctx.copier = Some(std::mem::take(&mut self.copier));
        if ctx.begin_copying() {
            let most = ctx.drafts().len() + ctx.left();
            ctx.propose_copies(most);
        }
        self.copier = ctx.copier.take().unwrap_or_default();
        Ok(())
    }
}
