//! Which tokens the grammar allows at a row.

use draftscope_protocol::TokenId;
use llguidance::toktrie::SimpleVob;

/// Which tokens may come next. At least one may.
#[derive(Clone, Debug)]
pub struct Mask {
    allowed: SimpleVob,
    count: usize,
    only: Option<TokenId>,
    dead_end: Option<String>,
}

impl Mask {
    pub(super) fn new(allowed: SimpleVob) -> Self {
        let count = allowed.num_set();
        let only = allowed.first_bit_set().filter(|_| count == 1).map(|token| TokenId(token as u32));
        Self { allowed, count, only, dead_end: None }
    }

    /// The end of the answer alone, because the grammar cannot go on, for this reason.
    pub(super) fn dead_end(ends: SimpleVob, reason: String) -> Self {
        Self { dead_end: Some(reason), ..Self::new(ends) }
    }

    /// Whether a token may come next.
    #[must_use]
    pub fn allows(&self, token: TokenId) -> bool {
        token.index() < self.allowed.len() && self.allowed.is_allowed(token.0)
    }

    /// How many tokens may.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// The only token that may: the grammar forces it.
    #[must_use]
    pub fn only(&self) -> Option<TokenId> {
        self.only
    }

    /// Why only the end may come although the grammar is not complete.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.dead_end.as_deref()
    }
}
