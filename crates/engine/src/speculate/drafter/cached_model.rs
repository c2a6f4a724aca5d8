//! A second model and the tokens in its cache, which follow a text from round to round.
//!
//! Before each draft they are compared with the text: differing positions are cut off, missing ones are run. So a drafter
//! can be switched on at any time and needs no separate rollback.

use draftscope_model::{Checkpoint, Forward, LogitRows, Model, ModelError};
use draftscope_protocol::{DeviceWork, TokenId};

const START: Checkpoint = Checkpoint { len: 0 };

/// A model and what its cache has.
pub(super) struct CachedModel {
    model: Box<dyn Model>,
    /// The tokens in its cache.
    cached: Vec<TokenId>,
    is_full: bool,
    notice: Option<String>,
}

impl CachedModel {
    /// A model whose cache is empty.
    pub(super) fn new(model: Box<dyn Model>) -> Self {
        Self { model, cached: Vec::new(), is_full: false, notice: None }
    }

    pub(super) fn fork(&self) -> Result<Self, ModelError> {
        Ok(Self { model: self.model.fork()?, cached: self.cached.clone(), is_full: self.is_full, notice: None })
    }

    /// Tokens in the cache.
    pub(super) fn len(&self) -> usize {
        self.cached.len()
    }

    /// Cuts the cache to the tokens that it has in common with these.
    pub(super) fn agree(&mut self, tokens: &[TokenId]) -> Result<(), ModelError> {
        let same = self.cached.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        self.cut(same)
    }

    /// Brings the cache to these tokens. Returns the pass that ran the last of them, if one was needed.
    pub(super) fn follow(&mut self, tokens: &[TokenId]) -> Result<Option<Forward>, ModelError> {
        self.agree(tokens)?;
        let same = self.cached.len();
        if same == tokens.len() {
            return Ok(None);
        }
        self.run(&tokens[same..], 0, LogitRows::Last)
    }

    /// Runs tokens, of which the last `masks` stand for drafts and are the caller's to cut; none if they do not fit: of a text in another
    /// tokenizer's tokens it is known only then.
    pub(super) fn run(
        &mut self,
        tokens: &[TokenId],
        masks: usize,
        rows: LogitRows,
    ) -> Result<Option<Forward>, ModelError> {
        let vocab = self.model.spec().info.vocab;
        let known: Vec<TokenId> = tokens.iter().map(|token| known(*token, vocab)).collect();
        match self.model.forward(&known, rows) {
            Err(ModelError::ContextFull { .. }) => {
                self.say_full();
                Ok(None)
            }
            out => {
                self.is_full = false;
                let out = out?;
                self.cached.extend_from_slice(&tokens[..tokens.len() - masks]);
                Ok(Some(out))
            }
        }
    }

    /// Says once that the context is full.
    fn say_full(&mut self) {
        if !self.is_full {
            let ctx_len = self.model.spec().ctx_len;
            let message =
                format!("the draft model's context of {ctx_len} is full, so decoding continues without drafts");
            self.notice = Some(message);
        }
        self.is_full = true;
    }

    /// Number of drafts that fit into its context after `tokens` tokens. If none fit, a notice says so once.
    pub(super) fn room(&mut self, tokens: usize) -> usize {
        let room = (self.model.spec().ctx_len + 1).saturating_sub(tokens);
        if room == 0 {
            self.say_full();
        }
        room
    }

    /// Cuts the cache to `len` tokens, or to fewer if a recurrent model can only return to an earlier position.
    pub(super) fn cut(&mut self, len: usize) -> Result<(), ModelError> {
        let len = self.model.rewindable(len);
        self.cached.truncate(len);
        self.model.truncate(len, &START)
    }

    pub(super) fn device_work(&self) -> Option<DeviceWork> {
        self.model.device_work()
    }

    pub(super) fn writes(&self, token: TokenId) -> Option<bool> {
        self.model.writes(token)
    }

    pub(super) fn notice(&mut self) -> Option<String> {
        self.notice.take()
    }
}

/// What a draft model with so many tokens reads of a text: its first token for one that only the target has at the end of
/// its vocabulary. The target decides about every draft, so this only makes drafts after it worse.
fn known(token: TokenId, vocab: u32) -> TokenId {
    if token.0 < vocab { token } else { TokenId(0) }
}
