//! The tree: one leaf for each suffix that occurs once, an inner node wherever two continuations part.
//!
//! Invariants between two tokens: leaf `i` stands for the suffix that begins at token `i`, and leaves are numbered
//! without gaps, so the first suffix without a leaf begins at their number; it is the longest end of the text that
//! occurred before. All earlier occurrences of it are the leaves below its place in the tree (the *active* place).

use super::cursor::Cursor;
use super::index::{ChildIndex, Key};
use draftscope_protocol::TokenId;

/// The node for the empty text.
pub(super) const ROOT: u32 = 0;
/// No node.
pub(super) const NONE: u32 = u32::MAX;
/// Set in the id of a leaf; the rest is its number.
const LEAF: u32 = 1 << 31;

/// A child's place among its siblings.
#[derive(Clone, Copy, Debug)]
struct Links {
    parent: u32,
    before: u32,
    after: u32,
}

/// A node with children.
#[derive(Clone, Copy, Debug)]
struct Inner {
    links: Links,
    /// Length of the text from the root to here, in tokens.
    depth: u32,
    /// Where that text occurs.
    start: u32,
    /// The node for the same text without its first token.
    shorter: u32,
    /// The newest child.
    child: u32,
}

/// A text and its suffix tree.
#[derive(Clone, Debug)]
pub struct SuffixTree {
    text: Vec<TokenId>,
    /// Number of leaves after each token of the text.
    leaves_at: Vec<u32>,
    leaves: Vec<Links>,
    inner: Vec<Inner>,
    index: ChildIndex,
    /// The node at or above the active place.
    active: u32,
}

impl Default for SuffixTree {
    fn default() -> Self {
        let links = Links { parent: NONE, before: NONE, after: NONE };
        let root = Inner { links, depth: 0, start: 0, shorter: ROOT, child: NONE };
        Self {
            text: Vec::new(),
            leaves_at: Vec::new(),
            leaves: Vec::new(),
            inner: vec![root],
            index: ChildIndex::default(),
            active: ROOT,
        }
    }
}

impl SuffixTree {
    /// The text.
    #[must_use]
    pub fn text(&self) -> &[TokenId] {
        &self.text
    }

    /// Length in tokens of the longest end of the text that occurred before.
    #[must_use]
    pub fn match_len(&self) -> usize {
        self.text.len() - self.leaves.len()
    }

    /// Bytes of memory, spare capacity included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let lists = self.text.capacity() * size_of::<TokenId>() + self.leaves_at.capacity() * size_of::<u32>();
        let nodes = self.leaves.capacity() * size_of::<Links>() + self.inner.capacity() * size_of::<Inner>();
        lists + nodes + self.index.bytes()
    }

    /// Everything that two trees of the same text have in common.
    #[cfg(test)]
    pub(super) fn nodes(&self) -> String {
        format!("{:?}", (&self.leaves_at, &self.leaves, &self.inner))
    }

    /// Adds a token at the end, in amortised constant time.
    pub fn push(&mut self, token: TokenId) {
        let end = self.text.len();
        push(&mut self.text, token);
        // an inner node of this token whose link to the shorter text is still to be set
        let mut unlinked = None;
        loop {
            let (below, rest) = self.descend(end);
            let parent = if rest == 0 {
                self.link(&mut unlinked, self.active);
                if self.child(self.active, token).is_some() {
                    break;
                }
                self.active
            } else {
                let depth = self.depth(self.active) + rest;
                if self.text.get(self.start(below) + depth) == Some(&token) {
                    break;
                }
                let node = self.split(below, depth);
                self.link(&mut unlinked, node);
                unlinked = Some(node);
                node
            };
            let leaf = LEAF | self.leaves.len() as u32;
            push(&mut self.leaves, Links { parent: NONE, before: NONE, after: NONE });
            self.attach(parent, leaf);
            if self.active != ROOT {
                self.active = self.inner[self.active as usize].shorter;
            } else if self.leaves.len() > end {
                break;
            }
        }
        push(&mut self.leaves_at, self.leaves.len() as u32);
    }

    /// Removes all tokens but the first `len`, in the time that adding them took. The tree is then as it was.
    pub fn truncate(&mut self, len: usize) {
        if len >= self.text.len() {
            return;
        }
        let leaves = len.checked_sub(1).map_or(0, |last| self.leaves_at[last] as usize);
        while self.leaves.len() > leaves {
            let leaf = LEAF | (self.leaves.len() - 1) as u32;
            let parent = self.links(leaf).parent;
            self.detach(leaf);
            self.leaves.pop();
            self.join(parent);
        }
        self.text.truncate(len);
        self.leaves_at.truncate(len);
        self.active = ROOT;
        self.descend(len);
    }

    /// The place of the longest end of the text that occurred before.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        self.locus(self.leaves.len(), self.text.len(), self.active)
    }

    /// Moves the active node down as far as the active text reaches, which ends before token `end`. Returns the child
    /// on whose edge the rest of that text lies, and its length; [`NONE`] and 0 if it ends at the node.
    fn descend(&mut self, end: usize) -> (u32, usize) {
        let from = self.leaves.len() + self.depth(self.active);
        let (node, below, rest) = self.walk(self.active, from, end.saturating_sub(from));
        self.active = node;
        (below, rest)
    }

    /// Walks down from a node along `rest` tokens of the text from `at` on. Returns the last node that is reached, the
    /// child after it, and the number of tokens on its edge.
    pub(super) fn walk(&self, mut node: u32, mut at: usize, mut rest: usize) -> (u32, u32, usize) {
        while rest > 0 {
            let Some(child) = self.text.get(at).and_then(|token| self.child(node, *token)) else {
                return (node, NONE, 0);
            };
            let span = self.span(node, child);
            if span > rest {
                return (node, child, rest);
            }
            (node, at, rest) = (child, at + span, rest - span);
        }
        (node, NONE, 0)
    }

    /// Tokens of the edge to a child; a leaf's has no end.
    fn span(&self, node: u32, child: u32) -> usize {
        if is_leaf(child) { usize::MAX } else { self.depth(child) - self.depth(node) }
    }

    /// The child of a node whose edge begins with this token.
    pub(super) fn child(&self, node: u32, token: TokenId) -> Option<u32> {
        self.index.find((node, token.0), |child| self.key(child))
    }

    /// The children of a node, newest first; a leaf has none.
    pub(super) fn children(&self, node: u32) -> impl Iterator<Item = u32> {
        let newest = if is_leaf(node) { NONE } else { self.inner[node as usize].child };
        let some = |child: u32| Some(child).filter(|child| *child != NONE);
        std::iter::successors(some(newest), move |child| some(self.links(*child).after))
    }

    /// Length of the text from the root to an inner node.
    pub(super) fn depth(&self, node: u32) -> usize {
        self.inner[node as usize].depth as usize
    }

    /// The node for the text of an inner node without its first token.
    pub(super) fn shorter(&self, node: u32) -> u32 {
        self.inner[node as usize].shorter
    }

    /// Where the text of a node occurs.
    pub(super) fn start(&self, node: u32) -> usize {
        let start = if is_leaf(node) { node & !LEAF } else { self.inner[node as usize].start };
        start as usize
    }

    fn links(&self, node: u32) -> &Links {
        if is_leaf(node) { &self.leaves[(node & !LEAF) as usize] } else { &self.inner[node as usize].links }
    }

    fn links_mut(&mut self, node: u32) -> &mut Links {
        if is_leaf(node) { &mut self.leaves[(node & !LEAF) as usize] } else { &mut self.inner[node as usize].links }
    }

    /// The key of a child in the index.
    fn key(&self, child: u32) -> Key {
        let parent = self.links(child).parent;
        (parent, self.text[self.start(child) + self.depth(parent)].0)
    }

    fn link(&mut self, unlinked: &mut Option<u32>, to: u32) {
        if let Some(node) = unlinked.take() {
            self.inner[node as usize].shorter = to;
        }
    }

    /// Adds a child, as the newest.
    fn attach(&mut self, parent: u32, child: u32) {
        let after = std::mem::replace(&mut self.inner[parent as usize].child, child);
        *self.links_mut(child) = Links { parent, before: NONE, after };
        if after != NONE {
            self.links_mut(after).before = child;
        }
        let mut index = std::mem::take(&mut self.index);
        index.insert(child, |child| self.key(child));
        self.index = index;
    }

    fn detach(&mut self, child: u32) {
        let mut index = std::mem::take(&mut self.index);
        index.remove(child, self.key(child), |child| self.key(child));
        self.index = index;
        let Links { parent, before, after } = *self.links(child);
        if before == NONE {
            self.inner[parent as usize].child = after;
        } else {
            self.links_mut(before).after = after;
        }
        if after != NONE {
            self.links_mut(after).before = before;
        }
    }

    /// Puts a node in the place of another, whose text begins alike.
    fn replace(&mut self, old: u32, new: u32) {
        self.index.replace(old, new, self.key(old));
        let links = *self.links(old);
        *self.links_mut(new) = links;
        if links.before == NONE {
            self.inner[links.parent as usize].child = new;
        } else {
            self.links_mut(links.before).after = new;
        }
        if links.after != NONE {
            self.links_mut(links.after).before = new;
        }
    }

    /// Puts a node onto the edge to a child, at this depth.
    fn split(&mut self, child: u32, depth: usize) -> u32 {
        let node = self.inner.len() as u32;
        let links = *self.links(child);
        let start = self.start(child) as u32;
        push(&mut self.inner, Inner { links, depth: depth as u32, start, shorter: ROOT, child: NONE });
        self.replace(child, node);
        self.attach(node, child);
        node
    }

    /// Removes an inner node that has only one child left. It is the newest, since leaves go in reverse order.
    fn join(&mut self, node: u32) {
        let child = self.inner[node as usize].child;
        if node == ROOT || self.links(child).after != NONE {
            return;
        }
        self.detach(child);
        self.replace(node, child);
        self.inner.pop();
    }
}

/// Whether this is the id of a leaf.
pub(super) const fn is_leaf(node: u32) -> bool {
    node & LEAF != 0
}

/// Adds to a list that grows by a quarter, not to the double.
fn push<T>(list: &mut Vec<T>, item: T) {
    if list.len() == list.capacity() {
        list.reserve_exact(list.len() / 4 + 16);
    }
    list.push(item);
}
