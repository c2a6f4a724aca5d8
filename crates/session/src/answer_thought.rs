//! Which part of an answer is thought, and the reply that follows it.

use super::thought::MARKS;
use super::turn::{Answer, Token};

impl Answer {
    /// Tokens that are thought.
    #[must_use]
    pub fn thought_tokens(&self) -> usize {
        self.thought[0].tokens
    }

    /// Whether thought goes on at the end of what there is.
    #[must_use]
    pub fn is_thinking(&self) -> bool {
        self.thought[0].is_open()
    }

    /// The text after the thought, as a conversation goes on with it; empty if the thought never ended.
    #[must_use]
    pub fn reply(&self) -> String {
        let Some(last) = self.tokens.iter().rposition(|token| token.is_thought) else { return self.text() };
        if self.is_thinking() {
            return String::new();
        }
        let mut joiner = super::text::Joiner::default();
        let mut join = |tokens: &[Token]| tokens.iter().map(|t| joiner.push(t.piece.text_bytes())).collect::<String>();
        let before = join(&self.tokens[..last]);
        let token = join(&self.tokens[last..=last]);
        let after = join(&self.tokens[last + 1..]) + &joiner.finish();
        // the token that completes the mark may hold text of the answer, too
        let head = before.clone() + &token;
        let ends = MARKS.iter().filter_map(|(_, close)| Some(head.rfind(close)? + close.len()));
        let cut = ends.filter(|end| *end > before.len()).max().unwrap_or(head.len());
        (head[cut..].to_owned() + &after).trim_start().to_owned()
    }

    /// Whether the token of this index is thought; for one that is not there yet, whether thought goes on.
    pub(super) fn is_thought_at(&self, index: usize) -> bool {
        self.tokens.get(index).map_or_else(|| self.thought[0].is_open(), |token| token.is_thought)
    }

    /// Reads the tokens again, after some were dropped.
    pub(super) fn rescan_thought(&mut self) {
        let mut scan = self.thought[1].clone();
        for token in &self.tokens {
            scan.read(&token.piece);
        }
        self.thought[0] = scan;
    }
}
