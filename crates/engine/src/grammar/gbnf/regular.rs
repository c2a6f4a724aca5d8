//! Which rules match without recursion, so that a regular expression has the same texts.
//!
//! A rule that names itself at the end of an alternative only, such as `ws ::= " " ws | ""`, is a repetition, and becomes one.

use std::collections::BTreeSet;

use super::char_set::CharSet;
use super::parse::{Node, Rule};

/// Rules, and which of them are regular.
pub(super) struct Rules {
    pub(super) rules: Vec<Rule>,
    regular: Vec<bool>,
}

impl Rules {
    /// The body of a rule.
    pub(super) fn body(&self, rule: usize) -> &Node {
        &self.rules[rule].body
    }

    /// Whether a rule is regular.
    pub(super) fn is_regular_rule(&self, rule: usize) -> bool {
        self.regular[rule]
    }

    /// Whether a part of a rule is regular.
    pub(super) fn is_regular(&self, node: &Node) -> bool {
        match node {
            Node::Text(_) | Node::Chars(_) => true,
            Node::Token(_) => false,
            Node::Rule(rule) => self.regular[*rule],
            Node::Seq(parts) | Node::Alt(parts) => parts.iter().all(|part| self.is_regular(part)),
            Node::Repeat(part, ..) => self.is_regular(part),
        }
    }
}

/// Finds the regular rules.
pub(super) fn mark(mut rules: Vec<Rule>) -> Rules {
    for (index, rule) in rules.iter_mut().enumerate() {
        if let Some(body) = as_repetition(&rule.body, index) {
            rule.body = body;
        }
    }
    let mut named_by = vec![Vec::new(); rules.len()];
    let mut missing = Vec::with_capacity(rules.len());
    for (index, rule) in rules.iter().enumerate() {
        let (mut names, mut has_token) = (BTreeSet::new(), false);
        visit(&rule.body, &mut |node| match node {
            Node::Rule(of) => drop(names.insert(*of)),
            Node::Token(_) => has_token = true,
            _ => {}
        });
        names.iter().for_each(|of| named_by[*of].push(index));
        missing.push(names.len() + usize::from(has_token));
    }
    // a rule is regular as soon as all that it names are
    let mut regular = vec![false; rules.len()];
    let mut classes = vec![None; rules.len()];
    let mut found: Vec<usize> = (0..rules.len()).filter(|index| missing[*index] == 0).collect();
    while let Some(index) = found.pop() {
        regular[index] = true;
        unite(&mut rules[index].body, &classes);
        classes[index] = class(&rules[index].body, &classes);
        for of in &named_by[index] {
            missing[*of] -= 1;
            if missing[*of] == 0 {
                found.push(*of);
            }
        }
    }
    for (rule, _) in rules.iter_mut().zip(&regular).filter(|(_, is_regular)| !**is_regular) {
        unite(&mut rule.body, &classes);
    }
    Rules { rules, regular }
}

/// The characters of a part that is one of them; none if it is anything else. `classes` are those of rules.
fn class(node: &Node, classes: &[Option<CharSet>]) -> Option<CharSet> {
    match node {
        Node::Chars(set) => Some(set.clone()),
        Node::Rule(rule) => classes[*rule].clone(),
        Node::Text(text) => {
            let mut chars = text.chars();
            chars.next().filter(|_| chars.next().is_none()).map(CharSet::one)
        }
        _ => None,
    }
}

/// Makes alternatives that are one character each one class: llguidance 1.9 fails on some that overlap and are not ASCII.
fn unite(node: &mut Node, classes: &[Option<CharSet>]) {
    match node {
        Node::Repeat(part, ..) => unite(part, classes),
        Node::Seq(parts) => parts.iter_mut().for_each(|part| unite(part, classes)),
        Node::Alt(parts) => {
            parts.iter_mut().for_each(|part| unite(part, classes));
            let sets: Vec<CharSet> = parts.iter().filter_map(|part| class(part, classes)).collect();
            if sets.len() < 2 {
                return;
            }
            let mut all = CharSet::default();
            for set in &sets {
                all.add(set);
            }
            parts.retain(|part| class(part, classes).is_none());
            match parts.is_empty() {
                true => *node = Node::Chars(all),
                false => parts.push(Node::Chars(all)),
            }
        }
        _ => {}
    }
}

/// Calls this for a part and all parts of it.
pub(super) fn visit(node: &Node, act: &mut dyn FnMut(&Node)) {
    act(node);
    match node {
        Node::Seq(parts) | Node::Alt(parts) => parts.iter().for_each(|part| visit(part, act)),
        Node::Repeat(part, ..) => visit(part, act),
        _ => {}
    }
}

fn names(node: &Node, rule: usize) -> bool {
    let mut found = false;
    visit(node, &mut |part| found |= *part == Node::Rule(rule));
    found
}

/// The body of a rule without its own name, if that is only at the end of alternatives.
fn as_repetition(body: &Node, own: usize) -> Option<Node> {
    if !names(body, own) {
        return None;
    }
    let (again, ends) = split(body, own)?;
    let ends = any(ends)?;
    let again: Vec<Node> = again.into_iter().filter(|node| *node != Node::Seq(Vec::new())).collect();
    Some(match any(again) {
        Some(again) => Node::Seq(vec![Node::Repeat(Box::new(again), 0, None), ends]),
        None => ends,
    })
}

/// What stands before the rule's own name where it is at the end, and what has no such end.
fn split(node: &Node, own: usize) -> Option<(Vec<Node>, Vec<Node>)> {
    if !names(node, own) {
        return Some((Vec::new(), vec![node.clone()]));
    }
    match node {
        Node::Rule(_) => Some((vec![Node::Seq(Vec::new())], Vec::new())),
        Node::Alt(parts) => {
            let (mut again, mut ends) = (Vec::new(), Vec::new());
            for part in parts {
                let (more, last) = split(part, own)?;
                again.extend(more);
                ends.extend(last);
            }
            Some((again, ends))
        }
        Node::Seq(parts) => {
            let (last, before) = parts.split_last()?;
            if before.iter().any(|part| names(part, own)) {
                return None;
            }
            let (again, ends) = split(last, own)?;
            let after = |nodes: Vec<Node>| any(nodes).map(|node| Node::Seq([before, &[node]].concat()));
            Some((after(again).into_iter().collect(), after(ends).into_iter().collect()))
        }
        Node::Repeat(part, 0, Some(1)) => {
            let (again, mut ends) = split(part, own)?;
            ends.push(Node::Seq(Vec::new()));
            Some((again, ends))
        }
        _ => None,
    }
}

/// One of these; none if there are none.
fn any(mut nodes: Vec<Node>) -> Option<Node> {
    if nodes.len() > 1 { Some(Node::Alt(nodes)) } else { nodes.pop() }
}
