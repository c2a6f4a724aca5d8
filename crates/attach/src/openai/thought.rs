//! Thought that a server sends in a field of its own, marked in the text as models mark it themselves.
//!
//! Invariant: no token is added or lost. The mark that ends a thought belongs to its last token, so the last tokens of an
//! open thought wait until it is known whether the thought goes on.

use crate::step::Part;
use draftscope_protocol::Piece;

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// Marks the thought of one answer.
#[derive(Debug, Default)]
pub(super) struct ThoughtMarks {
    is_open: bool,
    /// The last tokens of the open thought, and what came after them.
    held: Vec<Part>,
}

impl ThoughtMarks {
    /// Takes the parts of a chunk that adds so many bytes of thought and then this answer; returns those that are ready.
    pub(super) fn take(&mut self, thought: usize, answer: &str, mut parts: Vec<Part>) -> Vec<Part> {
        if thought == 0 && !self.is_open {
            return parts;
        }
        let mut before = std::mem::take(&mut self.held);
        let mut end = thought;
        if thought > 0 && !self.is_open {
            insert(&mut parts, 0, OPEN);
            end += OPEN.len();
            self.is_open = true;
        }
        if answer.is_empty() {
            before.append(&mut parts);
            let last = before.iter().rposition(|part| matches!(part, Part::First { .. } | Part::Step(_)));
            self.held = before.split_off(last.unwrap_or(before.len()));
            return before;
        }
        // the answer is a paragraph of its own
        let close = if answer.starts_with('\n') { CLOSE.to_owned() } else { format!("{CLOSE}\n\n") };
        let length = before.iter_mut().flat_map(pieces).map(|piece| piece.text_bytes().len()).sum();
        if thought > 0 || !insert(&mut before, length, &close) {
            insert(&mut parts, end, &close);
        }
        self.is_open = false;
        before.append(&mut parts);
        before
    }

    /// Nothing more comes: what waits is ready. A thought that never ended has no mark at its end.
    pub(super) fn flush(&mut self) -> Vec<Part> {
        std::mem::take(&mut self.held)
    }
}

/// The tokens of a part.
fn pieces(part: &mut Part) -> &mut [Piece] {
    match part {
        Part::First { token, .. } => std::slice::from_mut(token),
        Part::Step(step) => &mut step.tokens,
        _ => &mut [],
    }
}

/// Puts a mark after so many bytes of the text of these parts, into the token that reaches that far; false without one.
fn insert(parts: &mut [Part], after: usize, mark: &str) -> bool {
    let mut left = after;
    for piece in parts.iter_mut().flat_map(pieces).filter(|piece| !piece.special) {
        let len = piece.bytes.len();
        if left > len {
            left -= len;
            continue;
        }
        let mut bytes = piece.bytes.to_vec();
        bytes.splice(left..left, mark.bytes());
        *piece = Piece::new(piece.id, bytes);
        return true;
    }
    false
}
