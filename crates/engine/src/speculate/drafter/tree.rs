//! Draft trees: several alternatives at each depth instead of one, within a budget of nodes.
//!
//! The tree grows at its most probable node, by the product of the drafter's probabilities along the path, with as many
//! module passes as a chain of the same k. At a temperature above 0 the alternatives of a row are drawn without
//! replacement. Invariant, needed for losslessness: whether an alternative is in the tree depends only on what was
//! drawn before it, never on its own value.

use super::DraftCtx;
use super::mtp::Reach;
use crate::speculate::sampler::LogitRow;
use draftscope_model::ModelError;
use draftscope_protocol::distribution::Distribution;
use draftscope_protocol::random::Purpose;
use draftscope_protocol::verify::Draft;
use draftscope_protocol::{DraftPick, TokenId};

/// Alternatives that a node is continued by, at most.
const MOST_CHILDREN: usize = 10;

/// A node, in the tree or not yet.
struct Node {
    draft: Draft,
    /// The node that it continues; none is the anchor.
    parent: Option<usize>,
    depth: usize,
    /// Priority for growing: at most that of its parent and of the sibling before it.
    weight: f64,
    is_expanded: bool,
}

/// Nodes in the order in which they were made.
struct Tree {
    nodes: Vec<Node>,
    budget: usize,
    /// Drafts before its root: a chain that the grammar forces.
    forced: Vec<TokenId>,
}

/// Drafts a tree of at most `ctx.limit()` nodes.
pub(super) fn grow(ctx: &mut DraftCtx<'_>, reach: &mut Reach<'_>) -> Result<(), ModelError> {
    let forced: Vec<TokenId> = ctx.drafts().iter().map(|draft| draft.token).collect();
    let budget = ctx.limit().min(ctx.most_copied.saturating_sub(forced.len()));
    let mut tree = Tree { nodes: Vec::new(), budget, forced };
    if !reach.go_to(&tree.forced)? {
        return Ok(());
    }
    tree.expand(ctx, reach, None)?;
    for _ in 1..ctx.round.draft_len {
        let Some(next) = tree.most_promising(ctx.round.draft_len) else {
            break;
        };
        tree.nodes[next].is_expanded = true;
        if !reach.go_to(&tree.path(next))? {
            break;
        }
        tree.expand(ctx, reach, Some(next))?;
    }
    tree.propose(ctx);
    Ok(())
}

impl Tree {
    /// Adds the alternatives that may follow `parent`; `reach` is at that node.
    fn expand(&mut self, ctx: &mut DraftCtx<'_>, reach: &Reach<'_>, parent: Option<usize>) -> Result<(), ModelError> {
        let (depth, weight) = parent.map_or((0, 1.0), |at| (self.nodes[at].depth + 1, self.nodes[at].weight));
        let row = LogitRow::of(reach.out(), 0, Some(reach.vocab()));
        let path = parent.map_or_else(|| self.forced.clone(), |at| self.path(at));
        let position = ctx.round.position + path.len();
        let Some(q) = ctx.distribution(&row, &path, position)? else {
            return Ok(());
        };
        if q.prob(q.argmax()) < ctx.drafting.p_min {
            return Ok(());
        }
        let count = self.budget.min(MOST_CHILDREN);
        let drafts = if ctx.round.greedy || ctx.drafting.pick == DraftPick::Argmax {
            best(&q, count, ctx.round.greedy)
        } else {
            drawn(&q, count, |i| ctx.round.draw(Purpose::Draft, self.nodes.len() + i))
        };
        for (draft, share) in drafts {
            let node = Node { draft, parent, depth, weight: weight * f64::from(share), is_expanded: false };
            self.nodes.push(node);
        }
        Ok(())
    }

    /// The nodes of the tree, largest weight first. Parents and earlier siblings have no smaller weight and were made
    /// earlier, so the first nodes always form a tree.
    fn chosen(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        order.sort_by(|a, b| self.nodes[*b].weight.total_cmp(&self.nodes[*a].weight));
        order.truncate(self.budget);
        order
    }

    /// The node with the largest weight that may get children.
    fn most_promising(&self, max_depth: usize) -> Option<usize> {
        let open = |at: &usize| !self.nodes[*at].is_expanded && self.nodes[*at].depth + 1 < max_depth;
        self.chosen().into_iter().find(open)
    }

    /// Tokens from the anchor to a node, forced ones included.
    fn path(&self, at: usize) -> Vec<TokenId> {
        let mut path: Vec<TokenId> =
            std::iter::successors(Some(at), |at| self.nodes[*at].parent).map(|at| self.nodes[at].draft.token).collect();
        path.extend(self.forced.iter().rev());
        path.reverse();
        path
    }

    /// Proposes the tree, parents before children.
    fn propose(self, ctx: &mut DraftCtx<'_>) {
        let mut chosen = self.chosen();
        chosen.sort_unstable();
        let root = self.forced.len();
        let mut rows = vec![root; self.nodes.len()];
        for (index, at) in chosen.into_iter().enumerate() {
            let node = &self.nodes[at];
            rows[at] = root + index + 1;
            ctx.propose(node.draft.clone().at_row(node.parent.map_or(root, |parent| rows[parent])));
        }
    }
}

/// The most probable tokens and their probabilities.
fn best(q: &Distribution, count: usize, greedy: bool) -> Vec<(Draft, f32)> {
    let draft = |(token, share)| (Draft { drawn: greedy, ..Draft::drawn(token, q.clone()) }, share);
    q.top(count).0.into_iter().map(draft).collect()
}

/// Tokens drawn one after the other without replacement, each with the largest probability among the tokens that were
/// left when it was drawn.
fn drawn(q: &Distribution, count: usize, draw: impl Fn(usize) -> f32) -> Vec<(Draft, f32)> {
    let mut left = q.clone();
    let mut drafts = Vec::new();
    for i in 0..count.min(q.entries().count()) {
        let token = left.pick(draw(i));
        drafts.push((Draft::drawn(token, q.clone()), q.prob(left.argmax())));
        left = left.without(token);
    }
    drafts
}
