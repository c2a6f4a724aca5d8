//! A cell of a table with a token: a mark, the word, and a number after it.
//!
//! Invariant: a line through or under the token decorates its word, never the mark, the number or the padding; the
//! number is never cut.

use crate::view::prelude::*;

/// A mark, a word and a number, each possibly empty.
#[derive(Clone, Debug, Default)]
pub(in crate::view) struct TokenCell {
    mark: &'static str,
    pub(in crate::view) word: String,
    pub(in crate::view) number: String,
    pub(in crate::view) style: Style,
}

impl TokenCell {
    /// A word alone.
    pub(in crate::view) fn word(word: impl Into<String>, style: Style) -> Self {
        Self { word: word.into(), style, ..Self::default() }
    }

    /// A token with its probability.
    pub(in crate::view) fn token(word: String, prob: Option<f32>, style: Style) -> Self {
        let number = prob.map_or(String::new(), |p| if p < 0.005 { "<0.01".to_owned() } else { format!("{p:.2}") });
        Self { mark: "", word, number, style }
    }

    /// The same after a mark.
    pub(in crate::view) fn marked(self, mark: &'static str) -> Self {
        Self { mark, ..self }
    }

    /// Exactly as wide as asked; `over` is the look of a selected cell.
    pub(in crate::view) fn spans(&self, width: usize, over: Style) -> [Span<'static>; 4] {
        let style = self.style.patch(over);
        let bare = undecorated(style);
        let gap = usize::from(!self.number.is_empty());
        let word = cut(&self.word, width.saturating_sub(self.mark.width() + gap + self.number.width()));
        let number = cut(&format!("{}{}", " ".repeat(gap), self.number), width);
        let used = self.mark.width() + word.width() + number.width();
        let padding = " ".repeat(width.saturating_sub(used));
        [
            Span::styled(self.mark, bare),
            Span::styled(word, style),
            Span::styled(number, bare),
            Span::styled(padding, bare),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_word_is_decorated_and_the_number_is_whole() {
        let style = Style::new().add_modifier(Modifier::CROSSED_OUT | Modifier::BOLD);
        let cell = TokenCell::token("·through".to_owned(), Some(0.47), style).marked("✗");
        for width in [8, 10, 13, 30] {
            let spans = cell.spans(width, Style::new());
            assert_eq!(spans.iter().map(Span::width).sum::<usize>(), width);
            let struck = spans.iter().filter(|span| span.style.add_modifier.contains(Modifier::CROSSED_OUT));
            let struck: String = struck.map(|span| span.content.to_string()).collect();
            assert!("·through".starts_with(struck.trim_end_matches('…')), "{struck}");
            assert_eq!(spans[2].content, " 0.47");
        }
    }
}
