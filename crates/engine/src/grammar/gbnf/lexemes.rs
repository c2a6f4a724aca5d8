//! The lexemes of a grammar: the regular parts of its other rules, and which of them can be read as a whole.
//!
//! A reader takes the longest lexeme that may come. That reads all texts if no text of a lexeme, together with a character
//! that may follow, is the beginning of a lexeme; since it reads bytes, the first byte of the character counts. Those for which it is are read character by character; then single
//! characters are lexemes, too, and the others are looked at again.

use super::TOO_LARGE;
use super::automaton::{Automaton, Budget};
use super::char_set::CharSet;
use super::parse::Node;
use super::regular::Rules;

/// Most lexemes of a grammar.
const MOST: usize = 500;

/// Steps that a grammar may take: some tenths of a second.
const STEPS: usize = 3_000_000;

/// A part of a rule that is not regular.
pub(super) enum Tree {
    Lexeme(usize),
    Rule(usize),
    Token(String),
    Seq(Vec<Tree>),
    Alt(Vec<Tree>),
    Repeat(Box<Tree>, u32, Option<u32>),
}

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
        return Ok(Lexemes { trees: vec![(0, Tree::Lexeme(0))], all: vec![(Node::Rule(0), true)] });
    }
    let mut found = Found { rules, lexemes: Vec::new(), wanted: vec![0] };
    let mut trees: Vec<(usize, Tree)> = Vec::new();
    let mut at = 0;
    while let Some(rule) = found.wanted.get(at).copied() {
        trees.push((rule, found.tree(rules.body(rule))?));
        at += 1;
    }
    let whole = whole(rules, &trees, &found.lexemes)?;
    Ok(Lexemes { trees, all: found.lexemes.into_iter().zip(whole).collect() })
}

struct Found<'a> {
    rules: &'a Rules,
    lexemes: Vec<Node>,
    /// The rules that are not regular, in the order in which they were met.
    wanted: Vec<usize>,
}

impl Found<'_> {
    fn tree(&mut self, node: &Node) -> Result<Tree, String> {
        Ok(match node {
            Node::Seq(parts) => Tree::Seq(self.trees(parts)?),
            _ if self.rules.is_regular(node) => Tree::Lexeme(self.lexeme(node)?),
            Node::Rule(rule) => {
                if !self.wanted.contains(rule) {
                    self.wanted.push(*rule);
                }
                Tree::Rule(*rule)
            }
            Node::Token(token) => Tree::Token(token.clone()),
            Node::Alt(parts) => Tree::Alt(self.trees(parts)?),
            Node::Repeat(part, least, most) => Tree::Repeat(Box::new(self.tree(part)?), *least, *most),
            Node::Text(_) | Node::Chars(_) => Tree::Seq(Vec::new()), // regular, as above
        })
    }

    fn trees(&mut self, parts: &[Node]) -> Result<Vec<Tree>, String> {
        parts.iter().map(|part| self.tree(part)).collect()
    }

    fn lexeme(&mut self, node: &Node) -> Result<usize, String> {
        if let Some(known) = self.lexemes.iter().position(|known| known == node) {
            return Ok(known);
        }
        if self.lexemes.len() >= MOST || self.wanted.len() > 10 * MOST {
            return Err(TOO_LARGE.to_owned());
        }
        self.lexemes.push(node.clone());
        Ok(self.lexemes.len() - 1)
    }
}

/// Which lexemes are read as a whole.
fn whole(rules: &Rules, trees: &[(usize, Tree)], lexemes: &[Node]) -> Result<Vec<bool>, String> {
    let mut budget = Budget(STEPS);
    let automata: Vec<Automaton> =
        lexemes.iter().map(|node| Automaton::of(node, rules, &mut budget)).collect::<Result<_, _>>()?;
    let follow = Follow::of(rules.rules.len(), trees, &automata, &mut budget)?.lexemes;
    let mut whole = vec![true; lexemes.len()];
    loop {
        let mut is_settled = true;
        for (at, automaton) in automata.iter().enumerate() {
            let places = automaton.places(&follow[at]);
            for (of, other) in automata.iter().enumerate() {
                budget.spend(1 + places.len())?;
                let goes_on = match (whole[at], whole[of]) {
                    (_, false) => false,
                    (true, true) => automaton.goes_on_as(other, &follow[at], &mut budget)?,
                    (false, true) => places.iter().any(|(set, then)| other.begins_with(set, then)),
                };
                if goes_on {
                    (whole[at], whole[of], is_settled) = (false, false, false);
                }
            }
        }
        if is_settled {
            return Ok(whole);
        }
    }
}

/// What may follow each rule and each lexeme, and what rules begin with.
struct Follow<'a> {
    automata: &'a [Automaton],
    first: Vec<(CharSet, bool)>,
    rules: Vec<CharSet>,
    lexemes: Vec<CharSet>,
    has_grown: bool,
}

impl<'a> Follow<'a> {
    fn of(
        rules: usize,
        trees: &[(usize, Tree)],
        automata: &'a [Automaton],
        budget: &mut Budget,
    ) -> Result<Self, String> {
        let mut follow = Self {
            automata,
            first: vec![(CharSet::default(), false); rules],
            rules: vec![CharSet::default(); rules],
            lexemes: vec![CharSet::default(); automata.len()],
            has_grown: true,
        };
        while std::mem::take(&mut follow.has_grown) {
            for (rule, tree) in trees {
                budget.spend(size(tree))?;
                let (first, is_nullable) = follow.first(tree);
                let known = &mut follow.first[*rule];
                let is_new = known.0.add(&first) | (is_nullable && !known.1);
                known.1 |= is_nullable;
                follow.has_grown |= is_new;
            }
        }
        follow.has_grown = true;
        while std::mem::take(&mut follow.has_grown) {
            for (rule, tree) in trees {
                budget.spend(size(tree))?;
                let after = follow.rules[*rule].clone();
                follow.after(tree, &after);
            }
        }
        Ok(follow)
    }

    /// The characters with which a part begins, and whether it can be empty.
    fn first(&self, tree: &Tree) -> (CharSet, bool) {
        match tree {
            Tree::Lexeme(lexeme) => (self.automata[*lexeme].first(), self.automata[*lexeme].is_nullable),
            Tree::Rule(rule) => self.first[*rule].clone(),
            Tree::Token(_) => (CharSet::default(), false), // no text
            Tree::Seq(parts) => self.first_of(parts),
            Tree::Alt(parts) => parts.iter().fold((CharSet::default(), false), |(mut all, is_nullable), part| {
                let (first, is_empty) = self.first(part);
                all.add(&first);
                (all, is_nullable || is_empty)
            }),
            Tree::Repeat(part, least, _) => {
                let (first, is_nullable) = self.first(part);
                (first, is_nullable || *least == 0)
            }
        }
    }

    fn first_of(&self, parts: &[Tree]) -> (CharSet, bool) {
        let mut all = CharSet::default();
        for part in parts {
            let (first, is_nullable) = self.first(part);
            all.add(&first);
            if !is_nullable {
                return (all, false);
            }
        }
        (all, true)
    }

    /// Notes what may follow the parts of a part that `after` follows.
    fn after(&mut self, tree: &Tree, after: &CharSet) {
        match tree {
            Tree::Lexeme(lexeme) => self.has_grown |= self.lexemes[*lexeme].add(after),
            Tree::Rule(rule) => self.has_grown |= self.rules[*rule].add(after),
            Tree::Token(_) => {}
            Tree::Alt(parts) => parts.iter().for_each(|part| self.after(part, after)),
            Tree::Seq(parts) => {
                let mut after = after.clone();
                for part in parts.iter().rev() {
                    self.after(part, &after);
                    let (mut first, is_nullable) = self.first(part);
                    if is_nullable {
                        first.add(&after);
                    }
                    after = first;
                }
            }
            Tree::Repeat(part, _, most) => {
                let mut after = after.clone();
                if *most != Some(1) {
                    after.add(&self.first(part).0);
                }
                self.after(part, &after);
            }
        }
    }
}

/// Parts of a part.
fn size(tree: &Tree) -> usize {
    match tree {
        Tree::Seq(parts) | Tree::Alt(parts) => 1 + parts.iter().map(size).sum::<usize>(),
        Tree::Repeat(part, ..) => 1 + size(part),
        _ => 1,
    }
}
