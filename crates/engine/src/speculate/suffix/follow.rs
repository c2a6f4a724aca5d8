//! What followed a text: the tree searched from a place in it.

use draftscope_protocol::TokenId;

use super::cursor::{Cursor, Next};
use super::tree::{NONE, ROOT, SuffixTree, is_leaf};

/// Longest text that is shortened token by token when another token follows; longer ones are cut to this.
const MOST_SHORTENED: usize = 64;

/// Occurrences of a continuation that are counted.
const MOST_COUNTED: usize = 32;

/// Continuations that are compared.
const MOST_COMPARED: usize = 32;

impl SuffixTree {
    /// The place of `text[from..end]`, which occurs below `node`: the node of its beginning.
    pub(super) fn locus(&self, from: usize, end: usize, node: u32) -> Cursor {
        let above = self.depth(node);
        let (node, below, rest) = self.walk(node, from + above, (end - from).saturating_sub(above));
        let at = if below == NONE { 0 } else { self.start(below) + self.depth(node) };
        Cursor { node, rest, at, len: self.depth(node) + rest }
    }

    /// The child on whose edge the place lies; none at a node.
    fn edge(&self, cursor: &Cursor) -> Option<u32> {
        if cursor.rest == 0 { None } else { self.child(cursor.node, self.text()[cursor.at]) }
    }

    /// The most frequent continuation, the newest of equally frequent ones. Of more than 32 occurrences of a
    /// continuation only 32 count, and of more than 32 continuations only the newest. None after the empty text.
    #[must_use]
    pub fn next(&self, cursor: &Cursor) -> Option<Next> {
        if cursor.is_empty() {
            return None;
        }
        let child = match self.edge(cursor) {
            Some(child) => child,
            None => self.most_frequent(cursor.node)?,
        };
        let from = self.start(child) + cursor.len;
        self.text().get(from).map(|token| Next { token: *token, from })
    }

    /// The place after the text of `cursor` and then `token`, without as many tokens at its beginning as it takes for the
    /// rest to have occurred.
    #[must_use]
    pub fn follow(&self, mut cursor: Cursor, token: TokenId) -> Cursor {
        loop {
            if let Some(next) = self.step(&cursor, token) {
                return next;
            }
            if cursor.is_empty() {
                return Cursor::default();
            }
            cursor = self.shortened(&cursor);
        }
    }

    /// One token further down, if that occurred.
    fn step(&self, cursor: &Cursor, token: TokenId) -> Option<Cursor> {
        let child = match self.edge(cursor) {
            Some(child) => child,
            None => self.child(cursor.node, token)?,
        };
        let start = self.start(child);
        if self.text().get(start + cursor.len) != Some(&token) {
            return None;
        }
        let len = cursor.len + 1;
        if start + len == self.text().len() {
            return Some(self.cursor()); // the end of the text: nothing has followed all of it
        }
        if !is_leaf(child) && self.depth(child) == len {
            return Some(Cursor { node: child, rest: 0, at: 0, len });
        }
        Some(Cursor { rest: cursor.rest + 1, at: start + self.depth(cursor.node), len, ..*cursor })
    }

    /// The same text without its first token, or without more of them if that cannot help.
    fn shortened(&self, cursor: &Cursor) -> Cursor {
        let start = self.edge(cursor).map_or_else(|| self.start(cursor.node), |child| self.start(child));
        let end = start + cursor.len;
        if cursor.len > MOST_SHORTENED {
            return self.locus(end - MOST_SHORTENED, end, ROOT);
        }
        let from = start + 1;
        let node = if cursor.node == ROOT { ROOT } else { self.shorter(cursor.node) };
        self.locus(from, end, node)
    }

    fn most_frequent(&self, node: u32) -> Option<u32> {
        let mut best = None;
        for child in self.children(node).take(MOST_COMPARED) {
            let count = self.occurrences(child);
            if best.is_none_or(|(most, _)| count > most) {
                best = Some((count, child));
            }
        }
        best.map(|(_, child)| child)
    }

    /// Leaves below a node, at most [`MOST_COUNTED`].
    fn occurrences(&self, node: u32) -> usize {
        let (mut open, mut count) = (vec![node], 0);
        while let Some(node) = open.pop() {
            if count >= MOST_COUNTED {
                break;
            }
            if is_leaf(node) {
                count += 1;
                continue;
            }
            open.extend(self.children(node).take(MOST_COUNTED));
        }
        count
    }
}
