//! Drafts from another source: the plain answer, computed first (the upper limit of any drafter), the same with a share of
//! its tokens spoilt, or a person's draft.

use super::{DraftCtx, Drafter};
use draftscope_model::ModelError;
use draftscope_protocol::random::Purpose;
use draftscope_protocol::verify::Draft;
use draftscope_protocol::{DrafterKind, Settings, TokenId};

/// Replays the plain answer that it was offered. If the text differs from that answer (sampling, a lenient rule), it
/// has nothing to replay and reports this.
#[derive(Clone)]
pub struct OracleDrafter {
    /// [`DrafterKind::Oracle`], or [`DrafterKind::Dial`], which spoils tokens.
    kind: DrafterKind,
    /// Prompt and plain answer.
    answer: Vec<TokenId>,
    notice: Option<String>,
}

impl OracleDrafter {
    /// Without an answer yet. `kind` says whether tokens are spoilt: [`DrafterKind::Dial`] spoils them.
    #[must_use]
    pub fn new(kind: DrafterKind) -> Self {
        Self { kind, answer: Vec::new(), notice: None }
    }

    /// The draft for a position whose token in the plain answer is `right`. The dial takes another token of the text, for
    /// a share of the draws: a word that could stand there shows more than a random one.
    fn draft_of(&self, right: TokenId, ctx: &DraftCtx<'_>) -> TokenId {
        let share = ctx.drafting.dial;
        let u = ctx.round.draw(Purpose::Draft, ctx.drafts().len());
        if self.kind != DrafterKind::Dial || u < share {
            return right;
        }
        let len = self.answer.len();
        let start = (f64::from((u - share) / (1.0 - share)) * len as f64) as usize;
        let others = (0..len).map(|i| self.answer[(start + i) % len]);
        let vocab = ctx.target.spec().info.vocab;
        others.into_iter().find(|other| *other != right).unwrap_or(TokenId((right.0 + 1) % vocab.max(1)))
    }
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
                let name = self.kind.name();
                let text =
                    format!("the text differs from the plain answer, so the {name} cannot draft any more in this turn");
                self.notice = Some(text);
            }
            return Ok(());
        }
        while ctx.left() > 0 {
            let next = self.answer.get(ctx.committed.len() + ctx.drafts().len());
            let Some(token) = next.map(|right| self.draft_of(*right, ctx)) else { break };
            if !ctx.propose(Draft::certain(token)) {
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
