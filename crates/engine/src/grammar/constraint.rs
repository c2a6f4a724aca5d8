//! A grammar at work on an answer.

use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::time::{Duration, Instant};

use draftscope_protocol::{Grammar, TokenId};
use llguidance::toktrie::SimpleVob;
use llguidance::{TokenParser, panic_utils};

use super::error::GrammarError;
use super::limits::reason;
use super::mask::Mask;
use super::source::compile;
use super::vocabulary::Vocabulary;

/// Follows an answer and the drafts after it, and says which tokens may come next.
pub struct Constraint {
    noun: &'static str,
    /// At the beginning of an answer.
    start: TokenParser,
    /// After `read`.
    parser: TokenParser,
    /// What the parser has read. It reads nothing after the end of an answer.
    read: Vec<TokenId>,
    ends: SimpleVob,
    /// The answer's committed tokens, to which the masks belong.
    committed: Vec<TokenId>,
    /// Masks after the drafts of this round, by the drafts before them.
    masks: Vec<(Vec<TokenId>, Rc<Mask>)>,
    took: Duration,
}

impl Constraint {
    /// A grammar for the tokens of this vocabulary.
    ///
    /// # Errors
    /// [`GrammarError::Invalid`] if it is wrong or too complex, [`GrammarError::AllowsNothing`] if no text matches.
    pub fn new(vocabulary: &Vocabulary, grammar: &Grammar) -> Result<Self, GrammarError> {
        let start = compile(vocabulary.factory(), grammar)?;
        let ends = vocabulary.factory().tok_env().tok_trie().eos_token_set();
        Ok(Self {
            noun: grammar.kind.noun(),
            parser: start.clone(),
            start,
            read: Vec::new(),
            ends,
            committed: Vec::new(),
            masks: Vec::new(),
            took: Duration::ZERO,
        })
    }

    /// The same grammar for another lane.
    #[must_use]
    pub fn fork(&self) -> Self {
        let start = self.start.deep_clone();
        Self {
            noun: self.noun,
            parser: start.clone(),
            start,
            read: Vec::new(),
            ends: self.ends.clone(),
            committed: Vec::new(),
            masks: Vec::new(),
            took: Duration::ZERO,
        }
    }

    /// Whether a token ends an answer.
    #[must_use]
    pub fn is_end(&self, token: TokenId) -> bool {
        token.index() < self.ends.len() && self.ends.is_allowed(token.0)
    }

    /// What the grammar is, in a sentence.
    #[must_use]
    pub fn noun(&self) -> &'static str {
        self.noun
    }

    /// Which tokens may follow the answer's `committed` tokens and the drafts of `path`.
    pub fn mask(&mut self, committed: &[TokenId], path: &[TokenId]) -> Rc<Mask> {
        if self.committed != committed {
            self.committed = committed.to_vec();
            self.masks.clear();
        }
        if let Some((_, mask)) = self.masks.iter().find(|(known, _)| known == path) {
            return Rc::clone(mask);
        }
        let started = Instant::now();
        let mask = Rc::new(self.compute(path));
        self.took += started.elapsed();
        self.masks.push((path.to_vec(), Rc::clone(&mask)));
        mask
    }

    /// Checks the beginning of an answer that was not picked under this grammar.
    ///
    /// # Errors
    /// [`GrammarError::Broken`] at its first token that the grammar forbids.
    pub fn check(&mut self, kept: &[TokenId]) -> Result<(), GrammarError> {
        for at in 0..kept.len() {
            if !self.mask(&kept[..at], &[]).allows(kept[at]) {
                return Err(GrammarError::Broken { noun: self.noun, at: at + 1 });
            }
        }
        Ok(())
    }

    /// Whether an answer of these tokens is complete: it may end here, or has ended.
    pub fn is_complete(&mut self, answer: &[TokenId]) -> bool {
        let has_ended = answer.last().is_some_and(|token| self.is_end(*token));
        let mask = self.mask(&answer[..answer.len() - usize::from(has_ended)], &[]);
        mask.reason().is_none() && self.ends.iter().any(|end| mask.allows(TokenId(end)))
    }

    /// What the grammar expects after this path, in a few words: the bytes that must come; else the names of the rules of which
    /// one must match, where they have names; else some of the tokens that may come.
    pub fn expected(&mut self, path: &[TokenId]) -> String {
        let started = Instant::now();
        let named = self.named(path);
        self.took += started.elapsed();
        match named {
            Named::End => END.to_owned(),
            Named::Words(words) => words,
            Named::Nothing => {
                let mask = self.mask(&self.committed.clone(), path);
                let trie = self.parser.token_env.tok_trie();
                let word = |token: u32| format!("{:?}", String::from_utf8_lossy(trie.token(token)));
                let words = listed(mask.tokens().take(NAMED + 1).map(|token| word(token.0)));
                if words.is_empty() { END.to_owned() } else { words }
            }
        }
    }

    /// What the grammar itself calls what it expects.
    fn named(&mut self, path: &[TokenId]) -> Named {
        let text = [&self.committed, path].concat();
        let read = self.follow(&text);
        if read.is_err() || self.parser.stopped() || text.len() > self.read.len() {
            return Named::End;
        }
        self.guarded(|this| Ok(named(&mut this.parser))).unwrap_or(Named::End)
    }

    /// Time that masks took since the last call.
    pub fn take_cost(&mut self) -> Duration {
        std::mem::take(&mut self.took)
    }

    fn compute(&mut self, path: &[TokenId]) -> Mask {
        let text = [&self.committed, path].concat();
        let computed = self.follow(&text).and_then(|()| {
            let has_ended = self.parser.stopped() || text.len() > self.read.len();
            if has_ended { Ok(self.ends.clone()) } else { self.guarded(|this| this.parser.compute_mask()) }
        });
        match computed {
            Ok(allowed) => Mask::new(allowed),
            Err(error) => {
                let why = if self.parser.stop_reason().is_ok() { String::new() } else { reason(&error) };
                self.restart();
                Mask::dead_end(self.ends.clone(), why)
            }
        }
    }

    /// Brings the parser to this text.
    fn follow(&mut self, text: &[TokenId]) -> anyhow::Result<()> {
        let same = self.read.iter().zip(text).take_while(|(a, b)| a == b).count();
        let back = self.read.len() - same;
        if back > 0 {
            let rolled_back = self.guarded(|this| this.parser.rollback(back));
            self.read.truncate(same);
            if rolled_back.is_err() {
                self.restart();
            }
        }
        for token in &text[self.read.len()..] {
            if self.parser.stopped() || self.is_end(*token) {
                break; // nothing is read after the end
            }
            self.guarded(|this| {
                this.parser.consume_token(token.0)?;
                this.parser.check_stop()
            })?;
            self.read.push(*token);
        }
        Ok(())
    }

    fn guarded<T>(&mut self, act: impl FnOnce(&mut Self) -> anyhow::Result<T>) -> anyhow::Result<T> {
        panic_utils::catch_unwind(AssertUnwindSafe(|| act(self)))
    }

    /// A fresh parser, which reads from the beginning.
    fn restart(&mut self) {
        self.parser = self.start.deep_clone();
        self.read.clear();
    }
}

/// Most rules, or tokens, that are named.
const NAMED: usize = 3;

/// Longest name, in characters.
const LONGEST: usize = 60;

/// What stands where nothing else may come.
const END: &str = "the end of the answer";

/// A name for what is expected.
enum Named {
    /// The answer ends there.
    End,
    /// Bytes, or names of rules.
    Words(String),
    /// The grammar has no name for it.
    Nothing,
}

/// The bytes that must come, or the names of the rules of which one must match.
fn named(parser: &mut TokenParser) -> Named {
    let forced = parser.force_bytes();
    if !forced.is_empty() {
        let text = String::from_utf8_lossy(&forced);
        return Named::Words(if text.trim().is_empty() { cut(&format!("{text:?}")) } else { cut(&text) });
    }
    let rules: Vec<_> = parser.parser.with_recognizer(|state| {
        let lexer_state = state.lexer_state();
        state.lexer().possible_lexemes(lexer_state).iter().collect()
    });
    let spec = parser.parser.grammar().lexer_spec();
    let names: Option<Vec<String>> = rules.iter().map(|rule| name(&spec.lexeme_def_to_string(*rule))).collect();
    let names = names.filter(|names| !names.is_empty());
    names.map_or(Named::Nothing, |names| Named::Words(listed(names.into_iter())))
}

/// The name of a rule; none if the grammar gave it none. It stands after a number in brackets, and is such a number where
/// it was made up.
fn name(rule: &str) -> Option<String> {
    let name = rule.split_whitespace().nth(1)?;
    let is_own = name.starts_with(|first: char| first.is_alphabetic() || first == '_');
    is_own.then(|| cut(name))
}

fn listed(mut names: impl Iterator<Item = String>) -> String {
    let first: Vec<String> = names.by_ref().take(NAMED).map(|name| cut(&name)).collect();
    first.join(" or ") + if names.next().is_some() { " or …" } else { "" }
}

fn cut(text: &str) -> String {
    let short: String = text.trim().chars().take(LONGEST).collect();
    if text.trim().chars().count() > LONGEST { short + "…" } else { short }
}
