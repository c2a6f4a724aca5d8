//! The tokenizer a GGUF file carries, built into a `tokenizers::Tokenizer`.
//!
//! Invariant: `piece(id)` knows the exact bytes of every token, so that pieces in order give back
//! the text to the byte. Byte-level BPE only (`tokenizer.ggml.model = gpt2`); other kinds are
//! declined by name.

use std::collections::HashMap;

use tokenizers::models::bpe::BPE;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::{AddedToken, Tokenizer};

use super::ModelError;
use super::gguf::GgufFile;
use crate::protocol::{Piece, TokenId};

/// GGUF's type of a control token.
const CONTROL: u64 = 3;

/// Names of tokens that end an answer, in whatever family.
const END_NAMES: &[&str] = &["<|im_end|>", "<|endoftext|>", "</s>", "<|eot_id|>", "<|end_of_text|>", "<end_of_turn>"];

/// Text to tokens and back.
pub struct TextCodec {
    tokenizer: Tokenizer,
    pieces: Vec<Piece>, // by id
    ends: Vec<TokenId>,
    bos: Option<TokenId>,
}

impl TextCodec {
    /// Reads the `tokenizer.ggml.*` keys.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] for another kind of tokenizer, [`ModelError::Tokenizer`] when the
    /// vocabulary does not hold together.
    pub fn from_gguf(gguf: &GgufFile) -> Result<Self, ModelError> {
        let kind = gguf.text("tokenizer.ggml.model").unwrap_or("(none)");
        let pre = gguf.text("tokenizer.ggml.pre").unwrap_or("default");
        if kind != "gpt2" {
            return Err(ModelError::Unsupported(format!("tokenizers of kind '{kind}' are not supported yet; gpt2 is")));
        }
        let names = texts(gguf, "tokenizer.ggml.tokens")?;
        let special = special_flags(gguf, names.len());
        let tokenizer = build(&names, &texts(gguf, "tokenizer.ggml.merges")?, &special, pre)?;
        let bytes_of = byte_table();
        let pieces: Vec<Piece> = names
            .iter()
            .zip(&special)
            .enumerate()
            .map(|(id, (name, special))| piece_of(TokenId(id as u32), name, *special, &bytes_of))
            .collect();
        let known = |key: &str| gguf.number(key).and_then(|id| u32::try_from(id).ok()).map(TokenId);
        let ends = [known("tokenizer.ggml.eos_token_id"), known("tokenizer.ggml.eot_token_id")];
        let by_name = pieces.iter().filter(|p| p.special && END_NAMES.iter().any(|name| name.as_bytes() == &*p.bytes));
        let mut ends: Vec<TokenId> = ends.into_iter().flatten().chain(by_name.map(|p| p.id)).collect();
        ends.sort_unstable();
        ends.dedup();
        Ok(Self { tokenizer, pieces, ends, bos: known("tokenizer.ggml.bos_token_id") })
    }

    /// Tokens of a text in which the names of special tokens stand for those tokens.
    ///
    /// # Errors
    /// [`ModelError::Tokenizer`] when the text cannot be split.
    pub fn encode(&self, text: &str) -> Result<Vec<TokenId>, ModelError> {
        let encoding =
            self.tokenizer.encode_fast(text, false).map_err(|error| ModelError::Tokenizer(error.to_string()))?;
        Ok(encoding.get_ids().iter().copied().map(TokenId).collect())
    }

    /// A token with its bytes; empty bytes for an id that is none.
    #[must_use]
    pub fn piece(&self, id: TokenId) -> Piece {
        self.pieces.get(id.index()).cloned().unwrap_or_else(|| Piece::new(id, Vec::new()))
    }

    /// How another vocabulary differs from this one; none when every token has the same bytes.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Option<String> {
        let (own, theirs) = (self.pieces.len(), other.pieces.len());
        if own != theirs {
            return Some(format!("{theirs} tokens, the target has {own}"));
        }
        let (a, b) = self.pieces.iter().zip(&other.pieces).find(|(a, b)| a != b)?;
        // quoted as Rust does: whatever a file holds, no control character gets out
        Some(format!("token {} is {:?} there and {:?} in the target", a.id, b.lossy(), a.lossy()))
    }

    /// Whether the token ends an answer.
    #[must_use]
    pub fn is_end(&self, id: TokenId) -> bool {
        self.ends.contains(&id)
    }

    /// Name of the token that begins a text, for chat templates.
    #[must_use]
    pub fn bos_name(&self) -> String {
        self.bos.map_or_else(String::new, |id| self.piece(id).lossy().into_owned())
    }

    /// Name of the token that ends an answer, for chat templates.
    #[must_use]
    pub fn eos_name(&self) -> String {
        self.ends.last().map_or_else(String::new, |id| self.piece(*id).lossy().into_owned())
    }
}

fn texts<'a>(gguf: &'a GgufFile, key: &str) -> Result<Vec<&'a str>, ModelError> {
    let texts: Result<Vec<&str>, _> =
        gguf.list(key)?.iter().map(|value| value.to_string().map(String::as_str)).collect();
    texts.map_err(|_| ModelError::Tokenizer(format!("'{key}' holds something else than text")))
}

fn special_flags(gguf: &GgufFile, count: usize) -> Vec<bool> {
    let types = gguf.list("tokenizer.ggml.token_type").unwrap_or(&[]);
    let is_special = |i: usize| {
        types.get(i).is_some_and(|v| v.to_u64().ok().or_else(|| v.to_i32().ok().map(|v| v as u64)) == Some(CONTROL))
    };
    (0..count).map(is_special).collect()
}

fn build(names: &[&str], merges: &[&str], special: &[bool], pre: &str) -> Result<Tokenizer, ModelError> {
    let failed = |what: String| ModelError::Tokenizer(what);
    let vocab = names.iter().enumerate().map(|(id, name)| ((*name).to_owned(), id as u32));
    let merges: Option<Vec<_>> =
        merges.iter().map(|m| m.split_once(' ').map(|(a, b)| (a.to_owned(), b.to_owned()))).collect();
    let merges = merges.ok_or_else(|| failed("a merge rule is not two parts".into()))?;
    let bpe = BPE::builder().vocab_and_merges(vocab.collect::<ahash::AHashMap<_, _>>(), merges).build();
    let mut tokenizer = Tokenizer::new(bpe.map_err(|error| failed(error.to_string()))?);
    tokenizer.with_pre_tokenizer(Some(pre_tokenizer(pre)?));
    tokenizer.with_decoder(Some(ByteLevel::new(false, true, true)));
    let control = names.iter().zip(special).filter(|(_, special)| **special);
    tokenizer
        .add_special_tokens(control.map(|(name, _)| AddedToken::from(*name, true)))
        .map_err(|error| failed(error.to_string()))?;
    Ok(tokenizer)
}

fn pre_tokenizer(pre: &str) -> Result<PreTokenizerWrapper, ModelError> {
    let byte_level = PreTokenizerWrapper::from(ByteLevel::new(false, true, true));
    match pre {
        // digits one by one, then the GPT-2 rule
        "smollm" => Ok(Sequence::new(vec![Digits::new(true).into(), byte_level]).into()),
        "default" | "gpt-2" => Ok(byte_level),
        other => Err(ModelError::Unsupported(format!(
            "the pre-tokenizer '{other}' is not supported yet; smollm and gpt-2 are"
        ))),
    }
}

/// Byte that each character of a byte-level token stands for (Radford et al., 2019): printable bytes
/// stand for themselves, the other 68 are moved to U+0100 and up.
fn byte_table() -> HashMap<char, u8> {
    let printable = |byte: u8| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let mut moved = 0x100u32..;
    let chars = (0..=255u8).filter_map(|byte| {
        let code = if printable(byte) { u32::from(byte) } else { moved.next()? };
        char::from_u32(code).map(|c| (c, byte))
    });
    chars.collect()
}

fn piece_of(id: TokenId, name: &str, special: bool, bytes_of: &HashMap<char, u8>) -> Piece {
    if special {
        return Piece::special(id, name);
    }
    let bytes: Option<Vec<u8>> = name.chars().map(|c| bytes_of.get(&c).copied()).collect();
    Piece::new(id, bytes.unwrap_or_else(|| name.as_bytes().to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_byte_table_is_a_bijection() {
        let table = byte_table();
        let mut bytes: Vec<u8> = table.values().copied().collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
        assert_eq!((table[&'Ġ'], table[&'Ċ'], table[&'a']), (b' ', b'\n', b'a'));
    }
}
