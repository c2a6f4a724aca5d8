//! The lexemes of a grammar: the regular parts of its other rules, and which of them can be read as a whole.
//!
//! A reader takes the longest lexeme that may come. That reads all texts if no text of a lexeme, together with a character
//! that may follow, is the beginning of a lexeme that may come in its place; since it reads bytes, the first byte of the
//! character counts. Those for which it is are read character by character; then single characters are lexemes, too, and the
//! others are looked at again (`places.rs`).

use super::automaton::{Automaton, Budget};
use super::parse::{Node, TOO_LARGE};
use super::places;
use super::regular::Rules;
use super::tree::Tree;

/// Most lexemes of a grammar.
const MOST: usize = 500;

/// Most rules that are not regular.
const MOST_RULES: usize = 5_000;

/// Most places at which lexemes and tokens stand in rules.
const MOST_LEAVES: usize = 20_000;

/// Steps that a grammar may take: some tenths of a second.
const STEPS: usize = 3_000_000;

/// The lexemes of a grammar, and the rules that consist of them.
pub(super) struct Lexemes {
    /// The rules that texts need and that are not regular, by their indices; `root` in any case.
    pub(super) trees: Vec<(usize, Tree)>,
    /// Each lexeme, and whether it is read as a whole.
    pub(super) all: Vec<(Node, bool)>,
}

/// Finds the lexemes.
///
/// # Errors
/// A sentence when the grammar is too large.
pub(super) fn of(rules: &Rules) -> Result<Lexemes, String> {
    if rules.is_regular_rule(0) {
        let tree = Tree::Lexeme { lexeme: 0, leaf: 0 };
        return Ok(Lexemes { trees: vec![(0, tree)], all: vec![(Node::Rule(0), true)] });
    }
    let mut found = Found { rules, lexemes: Vec::new(), leaves: Vec::new(), wanted: vec![0] };
    let mut trees: Vec<(usize, Tree)> = Vec::new();
    let mut at = 0;
    while let Some(rule) = found.wanted.get(at).copied() {
        trees.push((rule, found.tree(rules.body(rule))?));
        at += 1;
    }
    let mut budget = Budget(STEPS);
    let automata = found.lexemes.iter().map(|node| Automaton::of(node, rules, &mut budget));
    let automata: Vec<Automaton> = automata.collect::<Result<_, _>>()?;
    let grammar =
        places::Grammar { rules: rules.rules.len(), trees: &trees, leaves: &found.leaves, automata: &automata };
    // character by character everything is read, if not fast
    let whole = places::whole(&grammar, &mut budget).unwrap_or_else(|_| vec![false; automata.len()]);
    Ok(Lexemes { trees, all: found.lexemes.into_iter().zip(whole).collect() })
}

struct Found<'a> {
    rules: &'a Rules,
    lexemes: Vec<Node>,
    /// The lexeme of each leaf; none of a token.
    leaves: Vec<Option<usize>>,
    /// The rules that are not regular, in the order in which they were met.
    wanted: Vec<usize>,
}

impl Found<'_> {
    fn tree(&mut self, node: &Node) -> Result<Tree, String> {
        Ok(match node {
            Node::Seq(parts) => Tree::Seq(self.trees(parts)?),
            _ if self.rules.is_regular(node) => {
                let lexeme = self.lexeme(node)?;
                Tree::Lexeme { lexeme, leaf: self.leaf(Some(lexeme))? }
            }
            Node::Rule(rule) => {
                if !self.wanted.contains(rule) {
                    if self.wanted.len() >= MOST_RULES {
                        return Err(TOO_LARGE.to_owned());
                    }
                    self.wanted.push(*rule);
                }
                Tree::Rule(*rule)
            }
            Node::Token(token) => Tree::Token { token: token.clone(), leaf: self.leaf(None)? },
            Node::Alt(parts) => Tree::Alt(self.trees(parts)?),
            Node::Repeat(part, least, most) => Tree::Repeat(Box::new(self.tree(part)?), *least, *most),
            Node::Text(_) | Node::Chars(_) => Tree::Seq(Vec::new()), // regular, as above
        })
    }

    fn trees(&mut self, parts: &[Node]) -> Result<Vec<Tree>, String> {
        parts.iter().map(|part| self.tree(part)).collect()
    }

    fn leaf(&mut self, lexeme: Option<usize>) -> Result<usize, String> {
        if self.leaves.len() >= MOST_LEAVES {
            return Err(TOO_LARGE.to_owned());
        }
        self.leaves.push(lexeme);
        Ok(self.leaves.len() - 1)
    }

    fn lexeme(&mut self, node: &Node) -> Result<usize, String> {
        if let Some(known) = self.lexemes.iter().position(|known| known == node) {
            return Ok(known);
        }
        if self.lexemes.len() >= MOST {
            return Err(TOO_LARGE.to_owned());
        }
        self.lexemes.push(node.clone());
        Ok(self.lexemes.len() - 1)
    }
}
