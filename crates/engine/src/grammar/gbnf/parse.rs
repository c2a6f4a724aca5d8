//! Reads GBNF.

use std::collections::HashMap;

use super::char_set::CharSet;

/// Deepest nesting of groups.
const DEEPEST: usize = 20;

/// Most parts of all rules together.
const MOST_PARTS: usize = 100_000;

/// Most repetitions that a pair of braces can ask for, as in llama.cpp.
const MOST_REPEATS: u32 = 2_000;

/// What is said of a grammar that needs more than the limits allow.
pub(super) const TOO_LARGE: &str = "it is too large to be converted from GBNF; make it shorter, or write it in Lark";

/// A part of a rule.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    /// These characters.
    Text(String),
    /// One of these characters.
    Chars(CharSet),
    /// What the rule with this index matches.
    Rule(usize),
    /// A token of the model, as Lark writes it.
    Token(String),
    /// One after the other; nothing if there is none.
    Seq(Vec<Node>),
    /// One of them.
    Alt(Vec<Node>),
    /// At least so often, and at most so often.
    Repeat(Box<Node>, u32, Option<u32>),
}

/// A rule with its name.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) name: String,
    pub(super) body: Node,
}

/// Whether a name can have this character.
pub(super) fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}

/// The rules; that with the index 0 is `root`.
///
/// # Errors
/// A sentence that says what is wrong, and on which line.
pub(super) fn rules(text: &str) -> Result<Vec<Rule>, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut parser = Parser { rest: text, line: 1, parts: 0, depth: 0, names: HashMap::new(), rules: Vec::new() };
    parser.index("root");
    parser.space(true);
    while !parser.rest.is_empty() {
        parser.rule()?;
    }
    let rule = |(name, body): (&str, Option<Node>)| match body {
        Some(body) => Ok(Rule { name: name.to_owned(), body }),
        None if name == "root" => Err("it has no rule 'root', with which every text begins".to_owned()),
        None => Err(format!("it uses the rule '{}' and does not define it", shortened(name))),
    };
    parser.rules.into_iter().map(rule).collect()
}

fn shortened(name: &str) -> String {
    name.chars().take(60).collect()
}

struct Parser<'a> {
    rest: &'a str,
    line: usize,
    parts: usize,
    depth: usize,
    names: HashMap<&'a str, usize>,
    rules: Vec<(&'a str, Option<Node>)>,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.rest = &self.rest[c.len_utf8()..];
        self.line += usize::from(c == '\n');
        Some(c)
    }

    /// Takes this text, if it is next.
    fn takes(&mut self, text: &str) -> bool {
        let is_next = self.rest.starts_with(text);
        if is_next {
            self.rest = &self.rest[text.len()..];
        }
        is_next
    }

    fn error<T>(&self, what: &str) -> Result<T, String> {
        Err(format!("line {}: {what}", self.line))
    }

    /// Skips spaces and comments, and the ends of lines if they may come here.
    fn space(&mut self, has_lines: bool) {
        loop {
            match self.peek() {
                Some('#') => {
                    let end = self.rest.find(['\r', '\n']).unwrap_or(self.rest.len());
                    self.rest = &self.rest[end..];
                }
                Some(' ' | '\t') => drop(self.next()),
                Some('\r' | '\n') if has_lines => drop(self.next()),
                _ => return,
            }
        }
    }

    fn name(&mut self) -> Option<&'a str> {
        let end = self.rest.find(|c| !is_of_name(c)).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        Some(name).filter(|name| !name.is_empty())
    }

    /// The index of the rule with this name.
    fn index(&mut self, name: &'a str) -> usize {
        let next = self.rules.len();
        let index = *self.names.entry(name).or_insert(next);
        if index == next {
            self.rules.push((name, None));
        }
        index
    }

    fn rule(&mut self) -> Result<(), String> {
        let Some(name) = self.name() else { return self.error("a rule begins with its name") };
        let index = self.index(name);
        self.space(false);
        if !self.takes("::=") {
            return self.error(&format!("after the name '{}' comes ::=", shortened(name)));
        }
        self.space(true);
        let body = self.alternatives(false)?;
        if !matches!(self.peek(), None | Some('\r' | '\n')) {
            return self.error("a rule ends with its line; what goes on stands in brackets or after |");
        }
        self.space(true);
        self.rules[index].1 = Some(body); // the last one counts, as in llama.cpp
        Ok(())
    }

    fn alternatives(&mut self, is_nested: bool) -> Result<Node, String> {
        let mut alternatives = vec![self.sequence(is_nested)?];
        while self.takes("|") {
            self.space(true);
            alternatives.push(self.sequence(is_nested)?);
        }
        Ok(single(alternatives).unwrap_or_else(Node::Alt))
    }

    fn sequence(&mut self, is_nested: bool) -> Result<Node, String> {
        let mut sequence = Vec::new();
        while let Some(mut node) = self.part()? {
            self.parts += 1;
            if self.parts > MOST_PARTS {
                return Err(TOO_LARGE.to_owned());
            }
            self.space(is_nested);
            while let Some((least, most)) = self.repeats(is_nested)? {
                self.parts += 1;
                node = Node::Repeat(Box::new(node), least, most);
                if self.parts > MOST_PARTS || depth(&node) > DEEPEST {
                    return Err(TOO_LARGE.to_owned());
                }
                self.space(is_nested);
            }
            sequence.push(node);
        }
        Ok(single(sequence).unwrap_or_else(Node::Seq))
    }

    fn part(&mut self) -> Result<Option<Node>, String> {
        Ok(Some(match self.peek() {
            Some('"') => self.text()?,
            Some('[') => self.class()?,
            Some('(') => self.group()?,
            Some('<' | '!') => self.token()?,
            Some('.') => {
                self.next();
                Node::Chars(CharSet::all())
            }
            Some(c) if is_of_name(c) => {
                let name = self.name().unwrap_or_default();
                Node::Rule(self.index(name))
            }
            _ => return Ok(None),
        }))
    }

    fn group(&mut self) -> Result<Node, String> {
        self.next();
        self.depth += 1;
        if self.depth > DEEPEST {
            return self.error(&format!("groups are nested more than {DEEPEST} deep"));
        }
        self.space(true);
        let group = self.alternatives(true)?;
        self.depth -= 1;
        if !self.takes(")") {
            return self.error("a group lacks its closing bracket");
        }
        Ok(group)
    }

    fn text(&mut self) -> Result<Node, String> {
        self.next();
        let mut text = String::new();
        while !self.takes("\"") {
            text.push(self.char()?);
        }
        Ok(Node::Text(text))
    }

    fn class(&mut self) -> Result<Node, String> {
        self.next();
        let is_negated = self.takes("^");
        let mut ranges = Vec::new();
        while !self.takes("]") {
            let from = self.char()?;
            let is_range = self.rest.starts_with('-') && !self.rest.starts_with("-]");
            let to = if is_range && self.takes("-") { self.char()? } else { from };
            if to < from {
                return self.error("a range of characters ends before it begins");
            }
            ranges.push((from.into(), to.into()));
        }
        let set = CharSet::of(ranges);
        let set = if is_negated { set.complement() } else { set };
        if set.is_empty() { self.error("a class of characters has none") } else { Ok(Node::Chars(set)) }
    }

    /// A character of a text or a class.
    fn char(&mut self) -> Result<char, String> {
        let escape = match self.next() {
            Some('\\') => self.next(),
            Some(c) => return Ok(c),
            None => return self.error("a text or a class does not end"),
        };
        let digits = match escape {
            Some('t') => return Ok('\t'),
            Some('r') => return Ok('\r'),
            Some('n') => return Ok('\n'),
            Some(c @ ('\\' | '"' | '[' | ']')) => return Ok(c),
            Some('x') => 2,
            Some('u') => 4,
            Some('U') => 8,
            _ => return self.error("after \\ comes one of t, r, n, x, u, U, \\, \", [ and ]"),
        };
        let hex = self.rest.get(..digits).filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let code = hex.and_then(|hex| u32::from_str_radix(hex, 16).ok()).and_then(char::from_u32);
        let Some(c) = code else {
            return self.error(&format!("an escape has {digits} hexadecimal digits, the number of a character"));
        };
        self.rest = &self.rest[digits..];
        Ok(c)
    }

    /// A token by its text or number.
    fn token(&mut self) -> Result<Node, String> {
        let is_negated = self.takes("!");
        let end = self.rest.find('>').map(|end| self.rest.split_at(end + 1));
        let Some((token, rest)) =
            end.filter(|(token, _)| token.starts_with('<') && !token.contains(char::is_whitespace))
        else {
            return self.error("a token is <its text> or <[its number]>");
        };
        self.rest = rest;
        let number = token.strip_prefix("<[").and_then(|token| token.strip_suffix("]>"));
        match number {
            Some(number) if number.parse::<u32>().is_err() => self.error("a token in <[ ]> is a number"),
            Some(number) if is_negated => Ok(Node::Token(format!("<[^{number}]>"))),
            None if is_negated => self.error("after ! a token is given by its number, such as !<[1000]>"),
            _ => Ok(Node::Token(token.to_owned())),
        }
    }

    /// How often the part before is repeated, if something says so.
    fn repeats(&mut self, is_nested: bool) -> Result<Option<(u32, Option<u32>)>, String> {
        for (sign, range) in [("*", (0, None)), ("+", (1, None)), ("?", (0, Some(1)))] {
            if self.takes(sign) {
                return Ok(Some(range));
            }
        }
        if !self.takes("{") {
            return Ok(None);
        }
        self.space(is_nested);
        let least = self.number()?;
        self.space(is_nested);
        let mut most = Some(least);
        if self.takes(",") {
            self.space(is_nested);
            let has_most = self.peek().is_some_and(|c| c.is_ascii_digit());
            most = if has_most { Some(self.number()?) } else { None };
            self.space(is_nested);
        }
        match most {
            _ if !self.takes("}") => self.error("braces have one number, or two with a comma between them"),
            Some(most) if most < least => self.error("the greatest number of repetitions is below the least"),
            most => Ok(Some((least, most))),
        }
    }

    fn number(&mut self) -> Result<u32, String> {
        let end = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        self.rest = rest;
        match digits.parse() {
            Ok(number) if number <= MOST_REPEATS => Ok(number),
            _ => self.error(&format!("a number of repetitions is from 0 to {MOST_REPEATS}")),
        }
    }
}

/// The only part, if there is just one.
fn single(mut parts: Vec<Node>) -> Result<Node, Vec<Node>> {
    match parts.len() {
        1 => parts.pop().ok_or(parts),
        _ => Err(parts),
    }
}

/// How deep repetitions of repetitions are.
fn depth(node: &Node) -> usize {
    let mut depth = 0;
    let mut inner = node;
    while let Node::Repeat(of, ..) = inner {
        (inner, depth) = (of, depth + 1);
    }
    depth
}
