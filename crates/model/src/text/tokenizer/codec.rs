//! Encodes texts, and gives the text of tokens.

use std::collections::HashMap;

use draftscope_protocol::{Piece, TokenId};
use tokenizers::Tokenizer;

use super::growth;
use crate::ModelError;
use crate::catch_panic::catch_panic;

/// Names of tokens that end an answer in some family, if the file marks them as special: otherwise they may be text.
const END_NAMES: &[&str] = &[
    "</s>",
    "<end_of_turn>",
    "<turn|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "[e~[",
    "<end_of_utterance>",
    "<｜end▁of▁sentence｜>",
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
];

/// Names that no text contains: such tokens always end an answer and are always special, as in llama.cpp.
const END_MARKS: &[&str] = &["<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|end|>"];

/// Tokens that one of two vocabularies may have more at its end for one model to draft for the other, as in llama.cpp
/// (`SPEC_VOCAB_MAX_SIZE_DIFFERENCE`).
const MOST_EXTRA: usize = 128;

/// Ends a message and not the answer in vocabularies with other tokens for that (gpt-oss, Solar), as in llama.cpp.
const END_OF_MESSAGE: &str = "<|end|>";

/// Pairs of names of special tokens that together say that [`END_OF_MESSAGE`] does not end an answer.
const ENDS_OF_ANSWERS: [[&str; 2]; 3] =
    [["<|return|>", "<|call|>"], ["<|return|>", "<|calls|>"], ["<|flush|>", "<|calls|>"]];

pub(super) fn is_end_mark(name: &[u8]) -> bool {
    END_MARKS.iter().any(|mark| mark.as_bytes() == name)
}

/// Text to tokens and back.
pub struct TextCodec {
    pub(super) tokenizer: Tokenizer,
    /// Factor by which the tokenizer's steps can lengthen a text, in bytes.
    pub(super) growth: usize,
    pub(super) pieces: Vec<Piece>, // by id
    pub(super) ends: Vec<TokenId>,
    /// The end token that the file names, for chat templates.
    pub(super) eos: Option<TokenId>,
    pub(super) bos: Option<TokenId>,
    /// Whether a text begins with `bos`.
    pub(super) begins: bool,
    pub(super) kind: String,
    /// Whether names of special tokens in messages become those tokens.
    pub(super) parses_typed: bool,
}

/// The tokens with which a text begins and ends, as a file names them.
#[derive(Default)]
pub(super) struct Ends {
    pub(super) bos: Option<TokenId>,
    pub(super) begins: bool,
    pub(super) eos: Option<TokenId>,
    pub(super) others: Vec<TokenId>,
}

impl TextCodec {
    pub(super) fn new(
        (tokenizer, kind): (Tokenizer, String),
        growth: usize,
        mut pieces: Vec<Piece>,
        ends: &Ends,
    ) -> Self {
        pieces.iter_mut().filter(|piece| is_end_mark(&piece.bytes)).for_each(|mark| mark.special = true);
        let is_end = |name: &[u8]| is_end_mark(name) || END_NAMES.iter().any(|end| end.as_bytes() == name);
        let has = |name: &str| pieces.iter().any(|piece| piece.special && *piece.bytes == *name.as_bytes());
        let has_others = has(END_OF_MESSAGE) && ENDS_OF_ANSWERS.iter().any(|names| names.iter().all(|name| has(name)));
        let is_end = |name: &[u8]| is_end(name) && !(has_others && name == END_OF_MESSAGE.as_bytes());
        let by_name = pieces.iter().filter(|piece| piece.special && is_end(&piece.bytes));
        let mut all: Vec<TokenId> = by_name.map(|p| p.id).chain(ends.eos).chain(ends.others.iter().copied()).collect();
        all.sort_unstable();
        all.dedup();
        let eos = ends.eos.or(all.last().copied());
        Self {
            tokenizer,
            growth,
            pieces,
            ends: all,
            eos,
            bos: ends.bos,
            begins: ends.begins && ends.bos.is_some(),
            kind,
            parses_typed: false,
        }
    }

    /// Tokens of a text; names of special tokens become those tokens.
    ///
    /// # Errors
    /// [`ModelError::Tokenizer`] if the text cannot be tokenised, or is so long that this would take gigabytes.
    pub fn encode(&self, text: &str) -> Result<Vec<TokenId>, ModelError> {
        growth::check_text(text.len(), self.growth)?;
        catch_panic(broken, || {
            let encoding =
                self.tokenizer.encode_fast(text, false).map_err(|error| ModelError::Tokenizer(error.to_string()))?;
            Ok(encoding.get_ids().iter().copied().map(TokenId).collect())
        })
    }

    /// Tokens of a text without chat template: if the model expects it, the token that begins a text comes
    /// first.
    ///
    /// # Errors
    /// As [`TextCodec::encode`].
    pub fn encode_raw(&self, text: &str) -> Result<Vec<TokenId>, ModelError> {
        Ok(self.begun(self.encode(text)?))
    }

    /// Tokens after the one that begins a text, if the model expects it and it is not there.
    pub(crate) fn begun(&self, mut tokens: Vec<TokenId>) -> Vec<TokenId> {
        if let Some(bos) = self.bos.filter(|bos| self.begins && tokens.first() != Some(bos)) {
            tokens.insert(0, bos);
        }
        tokens
    }

    /// A token with its bytes; no bytes if the id is outside the vocabulary.
    #[must_use]
    pub fn piece(&self, id: TokenId) -> Piece {
        self.pieces.get(id.index()).cloned().unwrap_or_else(|| Piece::new(id, Vec::new()))
    }

    /// A token with its bytes, if it is in the vocabulary.
    pub(crate) fn get(&self, id: TokenId) -> Option<&Piece> {
        self.pieces.get(id.index())
    }

    /// Number of tokens; a model may have a few more rows, which are padding.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Whether there is no token.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Kind of the tokenizer, e.g. `byte-level BPE (qwen2)`.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// How the ids of another vocabulary differ from those of this one; `None` if the ids that both have mean the same. Padding
    /// at the end does not count, and one side may have up to 128 tokens more at its end.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Option<String> {
        let (a, b) = (self.without_padding(), other.without_padding());
        if let Some((a, b)) = a.iter().zip(b).find(|(a, b)| a.bytes != b.bytes) {
            // Rust's quotes escape control characters, which a file may contain
            return Some(format!("token {} is {:?} there and {:?} in the target", a.id, b.lossy(), a.lossy()));
        }
        (a.len().abs_diff(b.len()) > MOST_EXTRA).then(|| format!("{} tokens, the target has {}", b.len(), a.len()))
    }

    /// The tokens without the padding at the end.
    fn without_padding(&self) -> &[Piece] {
        let is_padding = |piece: &Piece| piece.bytes.is_empty() || piece.bytes.starts_with(b"[PAD");
        let end = self.pieces.iter().rposition(|piece| !is_padding(piece)).map_or(0, |last| last + 1);
        &self.pieces[..end]
    }

    /// Whether the token ends an answer.
    #[must_use]
    pub fn is_end(&self, id: TokenId) -> bool {
        self.ends.contains(&id)
    }

    /// Tokens that end an answer.
    #[must_use]
    pub fn ends(&self) -> &[TokenId] {
        &self.ends
    }

    /// Tokens that end an answer, as text.
    #[must_use]
    pub fn end_names(&self) -> Vec<String> {
        self.ends.iter().map(|id| self.piece(*id).lossy().into_owned()).collect()
    }

    /// The token that ends an answer, as the file names it.
    pub(crate) fn eos(&self) -> Option<TokenId> {
        self.eos
    }

    /// The token that begins a text.
    pub(crate) fn bos(&self) -> Option<TokenId> {
        self.bos
    }

    /// Whether every text begins with it.
    pub(crate) fn begins(&self) -> bool {
        self.begins
    }

    /// Name of the token that begins a text, for chat templates.
    #[must_use]
    pub fn bos_name(&self) -> String {
        self.bos.map_or_else(String::new, |id| self.piece(id).lossy().into_owned())
    }

    /// Name of the token that ends an answer, for chat templates.
    #[must_use]
    pub fn eos_name(&self) -> String {
        self.eos.map_or_else(String::new, |id| self.piece(id).lossy().into_owned())
    }
}

/// The error for a panic of the library.
pub(super) fn broken(why: &str) -> ModelError {
    ModelError::Tokenizer(format!(
        "its settings are inconsistent, and the tokenizers library fails ({why}); get the model's own tokenizer.json"
    ))
}

/// The byte that each character of a byte-level token represents (Radford et al., 2019): printable bytes
/// represent themselves, the other 68 are moved to U+0100 and up.
pub(super) fn byte_table() -> HashMap<char, u8> {
    let printable = |byte: u8| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let mut moved = 0x100u32..;
    let chars = (0..=255u8).filter_map(|byte| {
        let code = if printable(byte) { u32::from(byte) } else { moved.next()? };
        char::from_u32(code).map(|c| (c, byte))
    });
    chars.collect()
}

/// Bytes of a byte-level token; a name with other characters is taken as plain text.
pub(super) fn byte_level(name: &str, bytes_of: &HashMap<char, u8>) -> Vec<u8> {
    let bytes: Option<Vec<u8>> = name.chars().map(|c| bytes_of.get(&c).copied()).collect();
    bytes.unwrap_or_else(|| name.as_bytes().to_vec())
}
