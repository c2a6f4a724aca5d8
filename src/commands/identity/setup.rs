//! What all checks of a model share: its prompts, drafters and settings.

use std::sync::Arc;

use anyhow::{Result, bail};
use draftscope::cli::DraftLenArg;
use draftscope::engine::grammar::{Constraint, Vocabulary};
use draftscope::engine::speculate::decoder::{Decoder, TIMING};
use draftscope::model::Model;
use draftscope::model::text::prompt;
use draftscope::model::text::template::ChatTemplate;
use draftscope::model::text::tokenizer::TextCodec;
use draftscope::protocol::policy::Policy;
use draftscope::protocol::{DrafterKind, Grammar, Message, ModelInfo, Settings, Speaker, TokenId, VerifyRule};
use serde::Serialize;

/// Both modes over one model, and what to try on them.
pub(super) struct Bench {
    pub(super) plain: Decoder,
    pub(super) speculative: Decoder,
    /// The same model with an empty cache, for computing positions again.
    pub(super) fresh: Box<dyn Model>,
    pub(super) codec: Arc<TextCodec>,
    pub(super) template: Option<ChatTemplate>,
    pub(super) model: ModelInfo,
    pub(super) drafters: Vec<DrafterKind>,
    pub(super) settings: Settings,
    /// What answers must match, as it is written, and at work.
    pub(super) grammar: Option<(Grammar, Constraint)>,
}

/// The grammar for this tokenizer.
pub(super) fn constraint(grammar: Grammar, codec: &Arc<TextCodec>) -> Result<(Grammar, Constraint)> {
    let constraint = Constraint::new(&Vocabulary::new(Arc::clone(codec))?, &grammar)?;
    Ok((grammar, constraint))
}

/// A drafter with a k, and the policy that chooses k if it is automatic.
pub(super) struct Trial {
    pub(super) drafter: DrafterKind,
    pub(super) k: DraftLenArg,
    pub(super) policy: Option<Policy>,
}

impl Bench {
    pub(super) fn described<'a, T>(&'a self, report: &'a T) -> Described<'a, T> {
        let grammar = self.grammar.as_ref().map(|(grammar, _)| grammar.shortened());
        Described { model: &self.model, rule: self.settings.rule, grammar, report }
    }

    /// Every drafter with every k. Called before anything is decoded, so that whole rounds can be timed.
    pub(super) fn trials(&mut self, ks: &[DraftLenArg]) -> Result<Vec<Trial>> {
        let pairs: Vec<_> = self.drafters.iter().flat_map(|drafter| ks.iter().map(|k| (*drafter, *k))).collect();
        let trial = |(drafter, k)| {
            let policy = (k == DraftLenArg::Auto).then(|| self.policy(drafter)).transpose()?;
            Ok(Trial { drafter, k, policy })
        };
        pairs.into_iter().map(trial).collect()
    }

    pub(super) fn policy(&mut self, drafter: DrafterKind) -> Result<Policy> {
        if self.settings.drafting.tree.is_some() {
            bail!("with a draft tree there is no automatic choice of k; give numbers with -k");
        }
        self.speculative.set(&Settings { drafter, ..self.settings });
        let costs = self.speculative.measure_costs(TIMING)?.costs;
        if !costs.is_usable() {
            bail!("passes could not be timed here, so there is no automatic k; give numbers with -k");
        }
        Ok(Policy::new(costs, 0))
    }
}

impl Trial {
    /// Settings of its runs; an automatic k is set round by round.
    pub(super) fn settings(&self, base: &Settings) -> Settings {
        let draft_len = match self.k {
            DraftLenArg::Fixed(draft_len) => draft_len,
            DraftLenArg::Auto => base.draft_len,
        };
        Settings { drafter: self.drafter, draft_len, ..*base }
    }
}

impl Bench {
    pub(super) fn tokens(&self, text: &str, raw: bool) -> Result<Vec<TokenId>> {
        let ctx_len = self.plain.target().spec().ctx_len;
        if raw {
            self.codec.check_length(text, ctx_len)?;
            return Ok(self.codec.encode_raw(text)?);
        }
        let message = Message { role: Speaker::User, content: text.to_owned() };
        Ok(prompt::tokens_of(&self.codec, self.template.as_ref(), &[message], ctx_len)?)
    }
}

/// A report, with its model and rule.
#[derive(Serialize)]
pub(super) struct Described<'a, T> {
    model: &'a ModelInfo,
    rule: VerifyRule,
    /// What every answer had to match, in both modes.
    #[serde(skip_serializing_if = "Option::is_none")]
    grammar: Option<Grammar>,
    #[serde(flatten)]
    report: &'a T,
}
