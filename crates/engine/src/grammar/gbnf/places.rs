//! Which lexemes can come in place of each other, and so which of them can be read as a whole.
//!
//! Two places of a grammar are reached together if a text leads to both: at the beginning, and after two places that are
//! reached together and can have the same text. What rules lead to a place is not looked at, so more places count as reached
//! together than are, never fewer.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::automaton::{Automaton, Budget};
use super::char_set::CharSet;
use super::tree::Tree;

/// A grammar by its lexemes.
pub(super) struct Grammar<'a> {
    /// Number of all rules.
    pub(super) rules: usize,
    /// The rules that consist of lexemes; the first is `root`.
    pub(super) trees: &'a [(usize, Tree)],
    /// The lexeme of each leaf; none of a token.
    pub(super) leaves: &'a [Option<usize>],
    pub(super) automata: &'a [Automaton],
}

/// A place where reading stands: before a leaf that is read as a whole, or before a character of another one.
type Place = (usize, Option<usize>);

/// Which lexemes are read as a whole.
///
/// # Errors
/// A sentence when the budget is spent.
pub(super) fn whole(grammar: &Grammar<'_>, budget: &mut Budget) -> Result<Vec<bool>, String> {
    let follow = Follow::of(grammar, budget)?;
    let mut search = Search { grammar, whole: vec![true; grammar.automata.len()], goes_on: HashMap::new(), follow };
    while search.divides(budget)? {}
    Ok(search.whole)
}

struct Search<'a> {
    grammar: &'a Grammar<'a>,
    whole: Vec<bool>,
    /// Whether a lexeme can be read on as another one.
    goes_on: HashMap<(usize, usize), bool>,
    follow: Follow<'a>,
}

impl Search<'_> {
    /// Divides the lexemes into characters that could be read past their end; returns whether there were any.
    fn divides(&mut self, budget: &mut Budget) -> Result<bool, String> {
        let start = self.entries(&self.follow.first[0].0);
        let mut known: HashSet<(Place, Place)> = HashSet::new();
        let mut left: Vec<(Place, Place)> = Vec::new();
        let mut divided = BTreeSet::new();
        reach((&start, &start), (&mut known, &mut left), budget)?;
        while let Some((a, b)) = left.pop() {
            for (from, to) in [(a, b), (b, a)] {
                if self.is_read_on(from, to, budget)? {
                    divided.extend([from, to].iter().filter_map(|(leaf, _)| self.grammar.leaves[*leaf]));
                }
            }
            if self.can_be_equal(a, b) {
                let [after_a, after_b] = [self.after(a), self.after(b)];
                reach((&after_a, &after_b), (&mut known, &mut left), budget)?;
            }
        }
        let mut has_new = false;
        for lexeme in divided {
            has_new |= std::mem::replace(&mut self.whole[lexeme], false);
        }
        Ok(has_new)
    }

    /// Whether a text of the first place, with a character after it, is the beginning of the lexeme at the second one.
    fn is_read_on(&mut self, from: Place, to: Place, budget: &mut Budget) -> Result<bool, String> {
        let leaves = self.grammar.leaves;
        let (Some(lexeme), (leaf, None)) = (leaves[from.0], to) else { return Ok(false) };
        let Some(other) = leaves[leaf] else { return Ok(false) };
        let automata = self.grammar.automata;
        let Some(place) = from.1 else {
            if let Some(known) = self.goes_on.get(&(lexeme, other)) {
                return Ok(*known);
            }
            let goes_on = automata[lexeme].goes_on_as(&automata[other], &self.follow.after[lexeme], budget)?;
            self.goes_on.insert((lexeme, other), goes_on);
            return Ok(goes_on);
        };
        budget.spend(1)?;
        let (set, then) = automata[lexeme].place_with_next(place, &self.follow.after[lexeme]);
        Ok(automata[other].begins_with(set, &then))
    }

    /// The places at which these leaves begin.
    fn entries(&self, leaves: &BTreeSet<usize>) -> Vec<Place> {
        let of_leaf = |leaf: &usize| -> Vec<Place> {
            match self.grammar.leaves[*leaf].filter(|lexeme| !self.whole[*lexeme]) {
                Some(lexeme) => self.grammar.automata[lexeme].begin().iter().map(|at| (*leaf, Some(*at))).collect(),
                None => vec![(*leaf, None)],
            }
        };
        leaves.iter().flat_map(of_leaf).collect()
    }

    /// The places after a place.
    fn after(&self, (leaf, at): Place) -> Vec<Place> {
        let (Some(at), Some(lexeme)) = (at, self.grammar.leaves[leaf]) else {
            return self.entries(&self.follow.leaves[leaf]);
        };
        let (next, is_last) = self.grammar.automata[lexeme].after(at);
        let mut places: Vec<Place> = next.iter().map(|next| (leaf, Some(*next))).collect();
        if is_last {
            places.extend(self.entries(&self.follow.leaves[leaf]));
        }
        places
    }

    /// Whether both places can have the same text: they begin with a common character.
    fn can_be_equal(&self, a: Place, b: Place) -> bool {
        if a == b {
            return true;
        }
        let first = |(leaf, at): Place| {
            let automaton = &self.grammar.automata[self.grammar.leaves[leaf]?];
            Some(at.map_or_else(|| automaton.first(), |at| automaton.set(at).clone()))
        };
        first(a).zip(first(b)).is_some_and(|(a, b)| a.meets(&b))
    }
}

/// Two places that are reached together.
type Pair = (Place, Place);

/// Notes that each of some places is reached together with each of others.
fn reach(
    (some, others): (&[Place], &[Place]),
    (known, left): (&mut HashSet<Pair>, &mut Vec<Pair>),
    budget: &mut Budget,
) -> Result<(), String> {
    budget.spend(1 + some.len() * others.len())?;
    for a in some {
        for b in others {
            let pair = (*a.min(b), *a.max(b));
            if known.insert(pair) {
                left.push(pair);
            }
        }
    }
    Ok(())
}

/// What may follow each rule, leaf and lexeme, and what rules begin with, as leaves.
struct Follow<'a> {
    grammar: &'a Grammar<'a>,
    /// The leaves with which each rule of `trees` begins, by the rule's place there, and whether it can be empty.
    first: Vec<(BTreeSet<usize>, bool)>,
    /// The place of each rule in `trees`.
    at: Vec<usize>,
    rules: Vec<BTreeSet<usize>>,
    leaves: Vec<BTreeSet<usize>>,
    /// The characters after each lexeme.
    after: Vec<CharSet>,
    has_grown: bool,
}

impl<'a> Follow<'a> {
    fn of(grammar: &'a Grammar<'a>, budget: &mut Budget) -> Result<Self, String> {
        let mut at = vec![0; grammar.rules];
        grammar.trees.iter().enumerate().for_each(|(place, (rule, _))| at[*rule] = place);
        let mut follow = Self {
            grammar,
            first: vec![(BTreeSet::new(), false); grammar.trees.len()],
            at,
            rules: vec![BTreeSet::new(); grammar.trees.len()],
            leaves: vec![BTreeSet::new(); grammar.leaves.len()],
            after: vec![CharSet::default(); grammar.automata.len()],
            has_grown: true,
        };
        while std::mem::take(&mut follow.has_grown) {
            for (place, (_, tree)) in grammar.trees.iter().enumerate() {
                let found = follow.first(tree);
                budget.spend(1 + found.0.len() + size(tree))?;
                follow.has_grown |= found != follow.first[place];
                follow.first[place] = found;
            }
        }
        follow.has_grown = true;
        while std::mem::take(&mut follow.has_grown) {
            for (place, (_, tree)) in grammar.trees.iter().enumerate() {
                let after = follow.rules[place].clone();
                budget.spend((1 + after.len()) * size(tree))?;
                follow.note(tree, &after);
            }
        }
        for (leaf, lexeme) in grammar.leaves.iter().enumerate() {
            let Some(lexeme) = lexeme else { continue };
            budget.spend(1 + follow.leaves[leaf].len())?;
            for next in &follow.leaves[leaf] {
                if let Some(next) = grammar.leaves[*next] {
                    follow.after[*lexeme].add(&grammar.automata[next].first());
                }
            }
        }
        Ok(follow)
    }

    /// The leaves with which a part begins, and whether it can be empty.
    fn first(&self, tree: &Tree) -> (BTreeSet<usize>, bool) {
        match tree {
            Tree::Lexeme { lexeme, leaf } => (BTreeSet::from([*leaf]), self.grammar.automata[*lexeme].is_nullable),
            Tree::Token { leaf, .. } => (BTreeSet::from([*leaf]), false),
            Tree::Rule(rule) => self.first[self.at[*rule]].clone(),
            Tree::Seq(parts) => {
                let mut all = BTreeSet::new();
                for part in parts {
                    let (first, is_nullable) = self.first(part);
                    all.extend(first);
                    if !is_nullable {
                        return (all, false);
                    }
                }
                (all, true)
            }
            Tree::Alt(parts) => parts.iter().fold((BTreeSet::new(), false), |(mut all, is_nullable), part| {
                let (first, is_empty) = self.first(part);
                all.extend(first);
                (all, is_nullable || is_empty)
            }),
            Tree::Repeat(part, least, _) => {
                let (first, is_nullable) = self.first(part);
                (first, is_nullable || *least == 0)
            }
        }
    }

    /// Notes what may follow the parts of a part that `after` follows.
    fn note(&mut self, tree: &Tree, after: &BTreeSet<usize>) {
        let add = |known: &mut BTreeSet<usize>, has_grown: &mut bool| {
            let before = known.len();
            known.extend(after);
            *has_grown |= known.len() > before;
        };
        match tree {
            Tree::Lexeme { leaf, .. } | Tree::Token { leaf, .. } => add(&mut self.leaves[*leaf], &mut self.has_grown),
            Tree::Rule(rule) => add(&mut self.rules[self.at[*rule]], &mut self.has_grown),
            Tree::Alt(parts) => parts.iter().for_each(|part| self.note(part, after)),
            Tree::Seq(parts) => {
                let mut after = after.clone();
                for part in parts.iter().rev() {
                    self.note(part, &after);
                    let (mut first, is_nullable) = self.first(part);
                    if is_nullable {
                        first.extend(after);
                    }
                    after = first;
                }
            }
            Tree::Repeat(part, _, most) => {
                let mut after = after.clone();
                if *most != Some(1) {
                    after.extend(self.first(part).0);
                }
                self.note(part, &after);
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
