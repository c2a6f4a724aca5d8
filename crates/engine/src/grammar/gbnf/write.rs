//! Writes the converted grammar in Lark.
//!
//! A rule that is a lexeme has a name in capitals, as Lark wants it; one that is read character by character or is not
//! regular has a name in small letters.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use super::lexemes::Lexemes;
use super::parse::Node;
use super::regular::Rules;
use super::tree::Tree;

/// How a rule is used: each use has a definition of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Use {
    /// As a lexeme, or a part of one.
    Lexeme,
    /// Character by character.
    Characters,
    /// As a rule with lexemes.
    Rule,
}

/// The grammar in Lark; its first rule is `start`.
pub(super) fn lark(rules: &Rules, lexemes: &Lexemes) -> String {
    let mut writer =
        Writer { rules, lexemes, names: HashMap::new(), taken: HashSet::new(), wanted: Vec::new(), out: String::new() };
    writer.taken.insert("start".to_owned());
    writer.names.insert((0, Use::Rule), "start".to_owned());
    for (rule, tree) in &lexemes.trees {
        let name = writer.name(*rule, Use::Rule);
        let body = writer.tree(tree, &rules.rules[*rule].name);
        writer.define(&name, &body);
    }
    let mut at = 0;
    while let Some((rule, of)) = writer.wanted.get(at).copied() {
        let name = writer.name(rule, of);
        let body = writer.node(rules.body(rule), of);
        writer.define(&name, &body);
        at += 1;
    }
    writer.out
}

struct Writer<'a> {
    rules: &'a Rules,
    lexemes: &'a Lexemes,
    names: HashMap<(usize, Use), String>,
    taken: HashSet<String>,
    /// Rules with a name in this use and without a definition so far, in the order in which they were met.
    wanted: Vec<(usize, Use)>,
    out: String,
}

impl Writer<'_> {
    fn define(&mut self, name: &str, body: &str) {
        let _ = writeln!(self.out, "{name}: {body}"); // writing to a String cannot fail
    }

    /// The name of a rule in a use.
    fn name(&mut self, rule: usize, of: Use) -> String {
        if let Some(name) = self.names.get(&(rule, of)) {
            return name.clone();
        }
        let name = self.free(&self.rules.rules[rule].name, of);
        self.names.insert((rule, of), name.clone());
        if of != Use::Rule {
            self.wanted.push((rule, of));
        }
        name
    }

    /// A name that nothing has, from one of GBNF.
    fn free(&mut self, name: &str, of: Use) -> String {
        let (letter, name) = match of {
            Use::Lexeme => ("R", name.to_ascii_uppercase()),
            _ => ("r", name.to_ascii_lowercase()),
        };
        let name = name.replace('-', "_");
        let begins = name.starts_with(|first: char| first.is_ascii_alphabetic());
        let name = if begins { name } else { format!("{letter}{name}") };
        let mut free = name.clone();
        let mut number = 2;
        while !self.taken.insert(free.clone()) {
            free = format!("{name}_{number}");
            number += 1;
        }
        free
    }

    fn tree(&mut self, tree: &Tree, within: &str) -> String {
        match tree {
            Tree::Lexeme { lexeme, .. } => self.lexeme(*lexeme, within),
            Tree::Rule(rule) => self.name(*rule, Use::Rule),
            Tree::Token { token, .. } => token.clone(),
            Tree::Seq(parts) => sequence(&parts.iter().map(|part| self.tree(part, within)).collect::<Vec<_>>()),
            Tree::Alt(parts) => alternatives(&parts.iter().map(|part| self.tree(part, within)).collect::<Vec<_>>()),
            Tree::Repeat(part, least, most) => repeated(&self.tree(part, within), *least, *most),
        }
    }

    fn lexeme(&mut self, lexeme: usize, within: &str) -> String {
        let lexemes = self.lexemes;
        let (node, is_whole) = &lexemes.all[lexeme];
        match node {
            _ if !is_whole => self.node(node, Use::Characters),
            Node::Text(_) | Node::Chars(_) | Node::Rule(_) => self.node(node, Use::Lexeme),
            _ => {
                // in a rule its parts would be lexemes
                let name = self.free(within, Use::Lexeme);
                let body = self.node(node, Use::Lexeme);
                self.define(&name, &body);
                name
            }
        }
    }

    /// A regular part.
    fn node(&mut self, node: &Node, of: Use) -> String {
        match node {
            Node::Text(text) if of == Use::Characters => {
                sequence(&text.chars().map(|c| quoted(c.encode_utf8(&mut [0; 4]))).collect::<Vec<_>>())
            }
            Node::Text(text) => quoted(text),
            Node::Chars(set) => format!("/{}/", set.regex()),
            Node::Rule(rule) => self.name(*rule, of),
            Node::Token(token) => token.clone(),
            Node::Seq(parts) => sequence(&parts.iter().map(|part| self.node(part, of)).collect::<Vec<_>>()),
            Node::Alt(parts) => alternatives(&parts.iter().map(|part| self.node(part, of)).collect::<Vec<_>>()),
            Node::Repeat(part, least, most) => repeated(&self.node(part, of), *least, *most),
        }
    }
}

fn sequence(parts: &[String]) -> String {
    if parts.is_empty() { quoted("") } else { parts.join(" ") }
}

fn alternatives(parts: &[String]) -> String {
    format!("({})", parts.join(" | "))
}

fn repeated(part: &str, least: u32, most: Option<u32>) -> String {
    match (least, most) {
        (_, Some(0)) => quoted(""),
        (0, None) => format!("({part})*"),
        (1, None) => format!("({part})+"),
        (0, Some(1)) => format!("({part})?"),
        (least, None) => format!("({part}){{{least},}}"),
        (least, Some(most)) => format!("({part}){{{least},{most}}}"),
    }
}

fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            ' '..='\u{7e}' | '\u{80}'.. => quoted.push(c),
            _ => drop(write!(quoted, "\\u{:04x}", u32::from(c))),
        }
    }
    quoted.push('"');
    quoted
}
