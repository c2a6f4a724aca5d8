//! Drafts from another source: the plain answer, computed first (the upper limit of any drafter), or a person's draft.

use super::{DraftCtx, Drafter};
use draftscope_model::ModelError;
use draftscope_protocol::verify::Draft;
use draftscope_protocol::{Settings, TokenId};

/// Replays the plain answer that it was offered. If the text differs from that answer (sampling, a lenient rule), it
/// has nothing to replay and reports this.
#[derive(Clone, Default)]
pub struct OracleDrafter {
    /// Prompt and plain answer.
    answer: Vec<TokenId>,
    notice: Option<String>,
}

impl Drafter for OracleDrafter {
    fn fork(&self) -> Result<Box<dyn Drafter>, ModelError> {
        Ok(Box::new(self.clone()))
    }

    fn offer(&mut self, tokens: &[TokenId]) {
        self.answer = tokens.to_vec();
    }

    fn draft(&mut self, ctx: &mut DraftCtx<'_>) -> Result<(), ModelError> {
        let forced: Vec<TokenId> = ctx.drafts().iter().map(|draft| draft.token).collect();
        let rest = self.answer.strip_prefix(ctx.committed).and_then(|rest| rest.strip_prefix(&forced[..]));
        if rest.is_none() {
            if !std::mem::take(&mut self.answer).is_empty() {
                let text = "the text differs from the plain answer, so the oracle cannot draft any more in this turn";
                self.notice = Some(text.to_owned());
            }
            return Ok(());
        }
        while ctx.left() > 0 {
            let next = self.answer.get(ctx.committed.len() + ctx.drafts().len());
            if next.is_none_or(|token| !ctx.propose(Draft::certain(*token))) {
                break;
            }
        }
        Ok(())
    }

    fn notice(&mut self) -> Option<String> {
        self.notice.take()
    }
}

/// Proposes what a person typed, once.
#[derive(Clone, Default)]
pub struct HumanDrafter {
    typed: Vec<TokenId>,
}

impl Drafter for HumanDrafter {
    fn fork(&self) -> Result<Box<dyn Drafter>, ModelError> {
        Ok(Box::new(self.clone()))
    }

    fn offer(&mut self, tokens: &[TokenId]) {
        self.typed = tokens.to_vec();
    }

    fn configure(&mut self, _: &Settings) {
        self.typed.clear(); // it was typed for a round with other settings
    }

    fn draft(&mut self, ctx: &mut DraftCtx<'_>) -> Result<(), ModelError> {
        let limit = ctx.limit().min(ctx.round.draft_len);
        for token in std::mem::take(&mut self.typed).into_iter().take(limit) {
            ctx.propose(Draft::certain(token));
        }
        Ok(())
    }
}
