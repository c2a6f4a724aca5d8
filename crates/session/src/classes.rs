//! Classes of tokens, because acceptance differs between them: the second half of a word is easy to draft, its
//! beginning is hard.
//!
//! Invariant: a token's class follows from its text, the character before it and whether a fenced code block is open;
//! it does not depend on the vocabulary.

use serde::Serialize;

use draftscope_protocol::{Piece, named_enum};

use super::Answer;

named_enum! {
    /// The class of a token.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum TokenClass {
        /// Begins a word: letters after a space or anything that is no letter.
        WordStart = "word start",
        /// Continues a word.
        Continuation = "continuation",
        /// Nothing but spaces and line breaks.
        Whitespace = "whitespace",
        /// Digits, a space before them or not.
        Digits = "digits",
        /// Anything else outside code.
        Punctuation = "punctuation",
        /// Anything between the fences of a code block.
        Code = "code",
        /// A control token: the end of an answer.
        Control = "control",
    }
}

/// Classifies the tokens of one text in order.
#[derive(Clone, Debug, Default)]
pub struct Classifier {
    last: Option<char>,
    /// The current line, as far as it may be a fence.
    line: String,
    in_code: bool,
}

/// The fence that opens or closes a code block, at the start of a line.
const FENCE: &str = "```";

impl Classifier {
    /// The class of the next token.
    pub fn push(&mut self, piece: &Piece) -> TokenClass {
        if piece.special {
            return TokenClass::Control;
        }
        let text = piece.lossy();
        let was_in_code = self.in_code;
        let last = self.last;
        self.last = text.chars().next_back().or(last);
        text.chars().for_each(|c| self.follow(c));
        if was_in_code && self.in_code { TokenClass::Code } else { class_of(&text, last) }
    }

    fn follow(&mut self, c: char) {
        if c == '\n' {
            self.line.clear();
        } else if self.line.len() < 16 {
            let before = self.line.trim_start() == FENCE;
            self.line.push(c);
            if !before && self.line.trim_start() == FENCE {
                self.in_code = !self.in_code;
            }
        }
    }
}

fn class_of(text: &str, last: Option<char>) -> TokenClass {
    let word = text.trim_start();
    let begins_apart = word.len() < text.len() || !last.is_some_and(char::is_alphabetic);
    match word.chars().next() {
        None => TokenClass::Whitespace,
        Some(_) if word.trim_end().chars().all(char::is_numeric) => TokenClass::Digits,
        // a character completed by later tokens is part of a word in most scripts
        Some(char::REPLACEMENT_CHARACTER) => TokenClass::Continuation,
        Some(c) if c.is_alphabetic() && begins_apart => TokenClass::WordStart,
        Some(c) if c.is_alphabetic() => TokenClass::Continuation,
        Some(_) => TokenClass::Punctuation,
    }
}

/// Acceptance within one class.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ClassTally {
    /// The class of the target's token.
    pub class: TokenClass,
    /// Drafts compared with such a token.
    pub tested: u64,
    /// Drafts accepted among them.
    pub accepted: u64,
}

/// Tested and accepted drafts by the class of the target's token. In a probe run the first draft of every position
/// counts.
#[must_use]
pub fn by_class<'a>(answers: impl Iterator<Item = &'a Answer>) -> Vec<ClassTally> {
    let mut tallies: Vec<_> =
        TokenClass::ALL.iter().map(|class| ClassTally { class: *class, tested: 0, accepted: 0 }).collect();
    for answer in answers {
        let mut classifier = Classifier::default();
        let classes: Vec<_> = answer.tokens.iter().map(|token| classifier.push(&token.piece)).collect();
        for round in answer.rounds.iter().filter(|round| round.is_complete()) {
            let probed = round.probed.iter().flat_map(|probed| &probed.drafts).next().zip(round.committed().first());
            let probed = probed.map(|(draft, token)| draft.token.id == token.id);
            let drafted = !round.drafts.is_empty();
            let tested = round.committed().len().min(round.drafts.len());
            let outcomes = probed.into_iter().chain((0..tested).filter(|_| drafted).map(|i| i < round.accepted()));
            for (class, accepted) in classes.iter().skip(round.first_token).zip(outcomes) {
                if let Some(tally) = tallies.iter_mut().find(|tally| tally.class == *class) {
                    tally.tested += 1;
                    tally.accepted += u64::from(accepted);
                }
            }
        }
    }
    tallies.retain(|tally| tally.tested > 0);
    tallies
}

#[cfg(test)]
mod tests {
    use super::*;
    use draftscope_protocol::TokenId;

    fn classes(pieces: &[&str]) -> Vec<TokenClass> {
        let mut classifier = Classifier::default();
        pieces.iter().map(|text| classifier.push(&Piece::new(TokenId(1), *text))).collect()
    }

    #[test]
    fn classes_follow_text_and_context() {
        use TokenClass::{Continuation, Digits, Punctuation, Whitespace, WordStart};
        let pieces = ["The", " quick", "ly", ",", " 42", "7", "\n\n", "(", "see", ")", " ", "é", " -", "th"];
        let want = [
            WordStart,
            WordStart,
            Continuation,
            Punctuation,
            Digits,
            Digits,
            Whitespace,
            Punctuation,
            WordStart,
            Punctuation,
            Whitespace,
            WordStart,
            Punctuation,
            WordStart,
        ];
        assert_eq!(classes(&pieces), want);
        let end = Classifier::default().push(&Piece::special(TokenId(2), "<|im_end|>"));
        assert_eq!(end, TokenClass::Control);
    }

    #[test]
    fn what_stands_between_fences_is_code() {
        use TokenClass::{Code, Punctuation, Whitespace, WordStart};
        let pieces = ["So", ":\n", "``", "`", "python", "\n", "x", " =", " 1", "\n", "```", "\n", "Done"];
        let got = classes(&pieces);
        assert_eq!(got[0], WordStart);
        assert_eq!(got[4..10], [Code; 6]);
        assert_eq!((got[10], got[11], got[12]), (Punctuation, Whitespace, WordStart));
    }
}
