//! A lexeme as an automaton whose states are the places of its characters (Glushkov), to see whether it could be read as more
//! than it is.
//!
//! Repetitions are loops without a count, so the automaton may read more texts than the lexeme has, never fewer.

use std::collections::HashSet;

use super::char_set::CharSet;
use super::parse::{Node, TOO_LARGE};
use super::regular::Rules;

/// Deepest nesting of parts, rules within rules included.
const DEEPEST: usize = 400;

/// Most places of a lexeme.
const MOST_PLACES: usize = 2_000;

/// Steps that the conversion of a grammar may still take.
pub(super) struct Budget(pub(super) usize);

impl Budget {
    /// Takes so many steps.
    ///
    /// # Errors
    /// A sentence when none are left.
    pub(super) fn spend(&mut self, steps: usize) -> Result<(), String> {
        self.0 = self.0.checked_sub(steps).ok_or(TOO_LARGE)?;
        Ok(())
    }
}

/// A lexeme by the places of its characters.
#[derive(Default)]
pub(super) struct Automaton {
    /// The characters that each place can have.
    sets: Vec<CharSet>,
    /// The places that can follow each place.
    next: Vec<Vec<usize>>,
    first: Vec<usize>,
    last: Vec<usize>,
    /// Whether the lexeme can be empty.
    pub(super) is_nullable: bool,
}

/// Where a part begins and ends.
#[derive(Default)]
struct Ends {
    first: Vec<usize>,
    last: Vec<usize>,
    is_nullable: bool,
}

impl Automaton {
    /// The automaton of a regular part of a rule.
    ///
    /// # Errors
    /// A sentence when that is too large.
    pub(super) fn of(node: &Node, rules: &Rules, budget: &mut Budget) -> Result<Self, String> {
        let mut automaton = Self::default();
        let Ends { first, last, is_nullable } = automaton.build((node, DEEPEST), rules, budget)?;
        Ok(Self { first, last, is_nullable, ..automaton })
    }

    fn build(&mut self, (node, deeper): (&Node, usize), rules: &Rules, budget: &mut Budget) -> Result<Ends, String> {
        let deeper = deeper.checked_sub(1).ok_or(TOO_LARGE)?;
        budget.spend(1)?;
        match node {
            Node::Chars(set) => self.place(set.clone()),
            Node::Text(text) => {
                let mut all = Ends { is_nullable: true, ..Ends::default() };
                for c in text.chars() {
                    let place = self.place(CharSet::one(c))?;
                    all = self.joined(all, place, budget)?;
                }
                Ok(all)
            }
            Node::Rule(rule) => self.build((rules.body(*rule), deeper), rules, budget),
            Node::Seq(parts) => {
                let mut all = Ends { is_nullable: true, ..Ends::default() };
                for part in parts {
                    let part = self.build((part, deeper), rules, budget)?;
                    all = self.joined(all, part, budget)?;
                }
                Ok(all)
            }
            Node::Alt(parts) => {
                let mut all = Ends::default();
                for part in parts {
                    let Ends { first, last, is_nullable } = self.build((part, deeper), rules, budget)?;
                    all.first.extend(first);
                    all.last.extend(last);
                    all.is_nullable |= is_nullable;
                }
                Ok(all)
            }
            Node::Repeat(_, _, Some(0)) => Ok(Ends { is_nullable: true, ..Ends::default() }),
            Node::Repeat(part, least, most) => {
                let mut ends = self.build((part, deeper), rules, budget)?;
                if *most != Some(1) {
                    self.connect(&ends.last, &ends.first, budget)?;
                }
                ends.is_nullable |= *least == 0;
                Ok(ends)
            }
            Node::Token(_) => Ok(Ends::default()), // no lexeme has one
        }
    }

    fn place(&mut self, set: CharSet) -> Result<Ends, String> {
        let place = self.sets.len();
        if place >= MOST_PLACES {
            return Err(TOO_LARGE.to_owned());
        }
        self.sets.push(set);
        self.next.push(Vec::new());
        Ok(Ends { first: vec![place], last: vec![place], is_nullable: false })
    }

    fn joined(&mut self, mut before: Ends, after: Ends, budget: &mut Budget) -> Result<Ends, String> {
        self.connect(&before.last, &after.first, budget)?;
        if before.is_nullable {
            before.first.extend(after.first);
        }
        let mut last = after.last;
        if after.is_nullable {
            last.extend(before.last);
        }
        Ok(Ends { first: before.first, last, is_nullable: before.is_nullable && after.is_nullable })
    }

    fn connect(&mut self, from: &[usize], to: &[usize], budget: &mut Budget) -> Result<(), String> {
        budget.spend(from.len() * to.len())?;
        for place in from {
            let next = &mut self.next[*place];
            to.iter().for_each(|to| {
                if !next.contains(to) {
                    next.push(*to);
                }
            });
        }
        Ok(())
    }

    /// The characters with which it begins.
    pub(super) fn first(&self) -> CharSet {
        self.union(&self.first)
    }

    /// The places at which it begins.
    pub(super) fn begin(&self) -> &[usize] {
        &self.first
    }

    /// The characters of a place.
    pub(super) fn set(&self, place: usize) -> &CharSet {
        &self.sets[place]
    }

    /// The places after a place, and whether the lexeme can end there.
    pub(super) fn after(&self, place: usize) -> (&[usize], bool) {
        (&self.next[place], self.last.contains(&place))
    }

    /// The characters of a place, and those that can come next, where `after` follows the lexeme.
    pub(super) fn place_with_next(&self, place: usize, after: &CharSet) -> (&CharSet, CharSet) {
        let mut next = self.union(&self.next[place]);
        if self.last.contains(&place) {
            next.add(after);
        }
        (&self.sets[place], next)
    }

    fn union(&self, places: &[usize]) -> CharSet {
        let mut all = CharSet::default();
        for place in places {
            all.add(&self.sets[*place]);
        }
        all
    }

    /// Whether a text of this lexeme, followed by the first byte of one of the characters `after` it, is the beginning of the
    /// other lexeme: a reader of the longest lexemes would then go on with that one.
    ///
    /// # Errors
    /// A sentence when the budget is spent.
    pub(super) fn goes_on_as(&self, other: &Self, after: &CharSet, budget: &mut Budget) -> Result<bool, String> {
        let after = after.with_same_first_byte();
        let mut known = HashSet::new();
        let mut left: Vec<(usize, usize)> = Vec::new();
        let pairs = |of: &[usize], with: &[usize]| -> Vec<(usize, usize)> {
            of.iter().flat_map(|a| with.iter().map(move |b| (*a, *b))).collect()
        };
        let mut reach = |pairs: Vec<(usize, usize)>, left: &mut Vec<(usize, usize)>| {
            let meets = |(a, b): &(usize, usize)| self.sets[*a].meets(&other.sets[*b]);
            left.extend(pairs.into_iter().filter(|pair| meets(pair) && known.insert(*pair)));
        };
        reach(pairs(&self.first, &other.first), &mut left);
        while let Some((a, b)) = left.pop() {
            budget.spend(1 + self.next[a].len() * other.next[b].len())?;
            if self.last.contains(&a) && other.next[b].iter().any(|next| other.sets[*next].meets(&after)) {
                return Ok(true);
            }
            reach(pairs(&self.next[a], &other.next[b]), &mut left);
        }
        Ok(false)
    }

    /// Whether it can begin with one of these characters and then the first byte of one of those.
    pub(super) fn begins_with(&self, set: &CharSet, then: &CharSet) -> bool {
        let then = then.with_same_first_byte();
        let here = self.first.iter().filter(|place| self.sets[**place].meets(set));
        here.flat_map(|place| &self.next[*place]).any(|next| self.sets[*next].meets(&then))
    }
}
