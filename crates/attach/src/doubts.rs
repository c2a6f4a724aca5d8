//! What of a stream was not understood: counted, and reported once with its beginning.

use super::step::Part;

/// Longest beginning that is repeated, in characters.
const SHOWN: usize = 120;

/// Parts of a stream that were left out.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    count: u64,
    first: String,
}

impl Doubts {
    /// Notes a part that is left out.
    pub(super) fn note(&mut self, text: &str) {
        if self.count == 0 {
            let clean = text.chars().map(|c| if c.is_control() { ' ' } else { c });
            self.first = clean.take(SHOWN).collect::<String>().trim().to_owned();
        }
        self.count += 1;
    }

    /// Whether nothing was left out.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The sentence about them, once.
    pub(super) fn notice(&mut self) -> Option<Part> {
        let Self { count, first } = std::mem::take(self);
        let parts =
            if count == 1 { "a part of the stream is".to_owned() } else { format!("{count} parts of the stream are") };
        (count > 0).then(|| Part::Notice(format!("{parts} not understood and left out, beginning with: {first}")))
    }
}
