//! Names of special tokens in text that somebody typed: `<|im_end|>` in a message is text and ends nothing.
//!
//! A chat template joins its own special tokens and the messages to one text. Before it runs, each name of a special
//! token in a message gets a mark after its first character: a character that no message contains. The tokenizer then
//! finds only the template's own special tokens. It removes the marks before it splits and merges the rest, so the
//! message gets the tokens of the text as it was typed.

use std::borrow::Cow;
use std::ops::Range;

use tokenizers::{Model, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer};

use super::codec::{TextCodec, broken};
use super::growth;
use crate::ModelError;
use crate::catch_panic::catch_panic;
use draftscope_protocol::TokenId;

/// Most times that a text is marked: a mark can reveal another name, of which the first one was a part.
const MAX_ROUNDS: usize = 16;

/// Texts in which every name of a special token has a mark.
#[derive(Debug, PartialEq, Eq)]
pub struct Marked<'a> {
    /// The character that marks; the texts contain it nowhere else.
    pub mark: char,
    /// The texts in their order.
    pub texts: Vec<Cow<'a, str>>,
}

impl Marked<'_> {
    /// A text without its marks.
    #[must_use]
    pub fn unmark(&self, text: &str) -> String {
        text.replace(self.mark, "")
    }
}

impl TextCodec {
    /// With `true`, names of special tokens in messages become those tokens.
    #[must_use]
    pub fn with_special_names(self, parse: bool) -> Self {
        Self { parses_typed: parse, ..self }
    }

    /// Marks the names of special tokens in these texts; `None` if there is none, or if they are to become tokens.
    ///
    /// # Errors
    /// [`ModelError::Tokenizer`] if a name cannot be marked.
    pub fn mark<'a>(&self, texts: &[&'a str]) -> Result<Option<Marked<'a>>, ModelError> {
        if self.parses_typed {
            return Ok(None);
        }
        for text in texts {
            growth::check_text(text.len(), self.growth)?;
        }
        catch_panic(broken, || {
            if texts.iter().all(|text| self.special_names(text).is_empty()) {
                return Ok(None);
            }
            let mark = unused(texts)?;
            let texts = texts.iter().map(|text| self.marked(text, mark)).collect::<Result<_, _>>()?;
            Ok(Some(Marked { mark, texts }))
        })
    }

    /// Tokens of a text as [`TextCodec::encode`] computes them, but names with a mark in them stay text.
    ///
    /// # Errors
    /// As [`TextCodec::encode`].
    pub fn encode_marked(&self, text: &str, mark: char) -> Result<Vec<TokenId>, ModelError> {
        growth::check_text(text.len(), self.growth)?;
        let failed = |error: tokenizers::Error| ModelError::Tokenizer(error.to_string());
        catch_panic(broken, || {
            let mut parts = self.parts(text);
            parts
                .normalize(|part| {
                    part.filter(|c| c != mark);
                    Ok(())
                })
                .map_err(failed)?;
            if let Some(splits) = self.tokenizer.get_pre_tokenizer() {
                splits.pre_tokenize(&mut parts).map_err(failed)?;
            }
            parts.tokenize(|part| self.tokenizer.get_model().tokenize(part.get())).map_err(failed)?;
            let encoding = parts.into_encoding(None, 0, OffsetType::None).map_err(failed)?;
            Ok(encoding.get_ids().iter().copied().map(TokenId).collect())
        })
    }

    /// Tokens of a typed text between two texts of a chat template.
    ///
    /// # Errors
    /// As [`TextCodec::encode`] and [`TextCodec::mark`].
    pub fn encode_between(&self, before: &str, typed: &str, after: &str) -> Result<Vec<TokenId>, ModelError> {
        match self.mark(&[typed])? {
            None => self.encode(&format!("{before}{typed}{after}")),
            Some(marked) if !before.contains(marked.mark) && !after.contains(marked.mark) => {
                self.encode_marked(&format!("{before}{}{after}", marked.texts[0]), marked.mark)
            }
            Some(_) => Err(cannot_mark()),
        }
    }

    /// The text, cut where tokens have names; those have their tokens already.
    fn parts(&self, text: &str) -> PreTokenizedString {
        self.tokenizer.get_added_vocabulary().extract_and_normalize(self.tokenizer.get_normalizer(), text)
    }

    /// Where names of special tokens are, in bytes. A name of one character cannot be marked.
    fn special_names(&self, text: &str) -> Vec<Range<usize>> {
        let is_special = |id: u32| self.pieces.get(id as usize).is_some_and(|piece| piece.special);
        let parts = self.parts(text);
        let parts = parts.get_splits(OffsetReferential::Original, OffsetType::Byte);
        let names = parts.into_iter().filter_map(|(_, (from, to), tokens)| {
            let special = tokens.as_ref().is_some_and(|tokens| tokens.iter().any(|token| is_special(token.id)));
            // the library counts blanks around some names as parts of them
            let name = text.get(from..to)?;
            let from = from + (name.len() - name.trim_start().len());
            (special && name.trim().chars().nth(1).is_some()).then_some(from..to)
        });
        names.collect()
    }

    fn marked<'a>(&self, text: &'a str, mark: char) -> Result<Cow<'a, str>, ModelError> {
        let mut marked = Cow::Borrowed(text);
        for _ in 0..MAX_ROUNDS {
            let names = self.special_names(&marked);
            if names.is_empty() {
                return Ok(marked);
            }
            marked = Cow::Owned(with_marks(&marked, &names, mark));
        }
        Err(cannot_mark())
    }
}

/// The text with a mark after the first character of each name.
fn with_marks(text: &str, names: &[Range<usize>], mark: char) -> String {
    let mut out = String::with_capacity(text.len() + names.len() * mark.len_utf8());
    let mut from = 0;
    for name in names {
        let first = text[name.start..].chars().next().map_or(0, char::len_utf8);
        out.push_str(&text[from..name.start + first]);
        out.push(mark);
        from = name.start + first;
    }
    out + &text[from..]
}

/// A character that none of these texts contains: one that Unicode assigns to nothing, or else for private use.
fn unused(texts: &[&str]) -> Result<char, ModelError> {
    let mut free = ('\u{fdd0}'..='\u{fdef}').chain('\u{f0000}'..='\u{ffffd}');
    free.find(|mark| !texts.iter().any(|text| text.contains(*mark))).ok_or_else(cannot_mark)
}

fn cannot_mark() -> ModelError {
    ModelError::Tokenizer(
        "a message contains names of special tokens that cannot be kept as text; remove them, or start with --special-tokens".into(),
    )
}
