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

    /// The same for tokens 0, 1, 2 …, a bit each, the lowest bit first.
    pub(crate) fn words(&self) -> &[u32] {
        self.allowed.as_slice()
    }

    /// How many tokens it is about.
    pub(crate) fn len(&self) -> usize {
        self.allowed.len()
    }

    /// A mask that allows a token where this is true.
    #[cfg(test)]
    pub(crate) fn of(allowed: impl Iterator<Item = bool>) -> Self {
        Self::new(SimpleVob::from_slice(&allowed.collect::<Vec<_>>()))
    }

    /// The tokens that may, ascending.
    pub fn tokens(&self) -> impl Iterator<Item = TokenId> {
        self.allowed.iter().map(TokenId)
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
