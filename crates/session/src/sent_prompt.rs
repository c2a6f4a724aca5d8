//! The prompt as the model gets it: its text with the names of special tokens, which a template or a tokenizer adds.

use std::ops::Range;

use draftscope_protocol::Piece;

use super::text::{Joiner, printable};

/// What encloses a special token where there are no colours.
const MARKS: [char; 2] = ['⟨', '⟩'];

/// A prompt with its template, earlier turns and special tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SentPrompt {
    /// Number of its tokens.
    tokens: usize,
    /// Safe to print; control characters are pictures, but for newlines.
    text: String,
    /// Where special tokens are, in bytes.
    special: Vec<Range<usize>>,
}

impl SentPrompt {
    /// From the tokens of a `prefilled` event.
    #[must_use]
    pub fn new(prompt: &[Piece]) -> Self {
        let (mut text, mut special, mut joiner) = (String::new(), Vec::new(), Joiner::default());
        for piece in prompt {
            if piece.special {
                text.push_str(&joiner.finish());
                let start = text.len();
                text.push_str(&printable(&piece.lossy()));
                special.push(start..text.len());
            } else {
                text.push_str(&printable(&joiner.push(&piece.bytes)));
            }
        }
        text.push_str(&joiner.finish());
        Self { tokens: prompt.len(), text, special }
    }

    /// Number of tokens; 0 if the engine did not report them.
    #[must_use]
    pub const fn tokens(&self) -> usize {
        self.tokens
    }

    /// Parts of the text in their order, and whether each is a special token.
    pub fn parts(&self) -> impl Iterator<Item = (&str, bool)> {
        let ends = self.special.iter().map(|range| range.end);
        let starts = std::iter::once(0).chain(ends);
        let gaps = starts.zip(self.special.iter().map(|range| range.start).chain([self.text.len()]));
        let specials = self.special.iter().map(move |range| &self.text[range.clone()]).map(Some).chain([None]);
        gaps.zip(specials).flat_map(move |((start, end), special)| {
            let text = Some((&self.text[start..end], false)).filter(|(text, _)| !text.is_empty());
            text.into_iter().chain(special.map(|name| (name, true)))
        })
    }

    /// The text with special tokens in double brackets.
    #[must_use]
    pub fn marked(&self) -> String {
        let [open, close] = MARKS;
        self.parts()
            .map(|(text, special)| if special { format!("{open}{text}{close}") } else { text.to_owned() })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use draftscope_protocol::TokenId;

    #[test]
    fn special_tokens_are_apart_from_text_that_looks_like_them() {
        let text = |bytes: &[u8]| Piece::new(TokenId(1), bytes.to_vec());
        let special = |name: &str| Piece { special: true, ..text(name.as_bytes()) };
        let prompt =
            [special("<s>"), special("<|user|>"), text(b"\n<s> \xc3"), text(b"\xa9\x1b"), special("</s>"), text(b"\n")];
        let sent = SentPrompt::new(&prompt);
        assert_eq!(sent.marked(), "⟨<s>⟩⟨<|user|>⟩\n<s> é␛⟨</s>⟩\n");
        assert_eq!(sent.tokens(), 6);
        let parts: Vec<_> = sent.parts().collect();
        assert_eq!(parts, [("<s>", true), ("<|user|>", true), ("\n<s> é␛", false), ("</s>", true), ("\n", false)]);
        assert_eq!(SentPrompt::new(&[]).marked(), "");
    }
}
