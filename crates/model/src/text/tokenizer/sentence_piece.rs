//! SentencePiece tokenizers in GGUF files (`tokenizer.ggml.model` = `llama` or `gemma4`): byte-pair merges by score, or
//! in the file's own order, with bytes for characters without a token.
//!
//! The rules are those of llama.cpp's `llm_tokenizer_spm`: `▁` is a space; of all neighbouring parts that form a token
//! together, those with the highest score merge first, and among equals the leftmost. The `tokenizers` library merges by
//! rank, so every pair of tokens that forms a third becomes a merge, in the order of the third's score
//! (`convert_slow_tokenizer.py` of `transformers`).

use ahash::AHashMap;
use tokenizers::models::bpe::BPE;
use tokenizers::normalizers::{NormalizerWrapper, Prepend, Replace, Sequence};
use tokenizers::{AddedToken, Tokenizer};

use crate::ModelError;
use crate::files::{GgufFile, whole};
use crate::text::tokenizer::codec::{Ends, TextCodec};
use crate::text::tokenizer::named::{more_ends, named_token};
use draftscope_protocol::{Piece, TokenId};

/// Types of tokens in GGUF files, besides 1 (normal).
const UNKNOWN: u64 = 2;
const CONTROL: u64 = 3;
const USER_DEFINED: u64 = 4;
const BYTE: u64 = 6;

/// Factor by which a text can grow, in bytes: three bytes for a space, and three more before each part of the text.
const GROWTH: usize = 9;

/// Names of tokens that always end an answer, as in llama.cpp.
const ENDS: [&str; 3] = ["<end_of_turn>", "<turn|>", "<eos>"];

/// Longest name, in bytes, for which merges are built: every split of a name is looked up, and real names are far shorter.
const MAX_NAME: usize = 256;

/// Bytes of a name in which `▁` is a space.
pub(super) fn spaces(name: &str) -> Vec<u8> {
    name.replace('▁', " ").into_bytes()
}

/// Bytes of a token: `<0x0A>` is a byte, `▁` a space.
pub(super) fn bytes_of(name: &str) -> Vec<u8> {
    byte_of(name).map_or_else(|| spaces(name), |byte| vec![byte])
}

fn byte_of(name: &str) -> Option<u8> {
    let digits = name.strip_prefix("<0x")?.strip_suffix('>')?;
    u8::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 2)
}

/// A file's vocabulary.
struct Vocabulary<'a> {
    names: Vec<&'a str>,
    types: Vec<u64>,
    scores: Vec<f32>,
    /// The file's own, first those that come first; none if scores define them.
    merges: Option<Vec<(String, String)>>,
}

impl<'a> Vocabulary<'a> {
    fn read(
        gguf: &'a GgufFile,
        names: Vec<&'a str>,
        merges: Option<Vec<(String, String)>>,
    ) -> Result<Self, ModelError> {
        let has_scores = merges.is_none();
        let scores = match has_scores {
            true => gguf.list("tokenizer.ggml.scores")?.iter().map(|value| value.to_f32().ok()).collect(),
            false => Some(vec![0.0; names.len()]),
        };
        let scores: Option<Vec<f32>> = scores;
        let scores = scores.filter(|scores| scores.len() == names.len() && scores.iter().all(|score| !score.is_nan()));
        let scores = scores.ok_or_else(|| {
            ModelError::Tokenizer("'tokenizer.ggml.scores' does not have a number for each token".into())
        })?;
        let types = gguf.list("tokenizer.ggml.token_type").unwrap_or(&[]);
        let of = |(index, name): (usize, &&str)| match types.get(index).and_then(whole) {
            _ if ENDS.contains(name) => CONTROL,
            kind => kind.unwrap_or(1),
        };
        let types = names.iter().enumerate().map(of).collect();
        Ok(Self { names, types, scores, merges })
    }

    fn of_types(&self, types: &'static [u64]) -> impl Iterator<Item = &'a str> {
        self.names.iter().zip(&self.types).filter(|(_, kind)| types.contains(kind)).map(|(name, _)| *name)
    }

    /// Every pair of tokens that forms a third, those whose third has the highest score first.
    fn merges_by_score(&self, ids: &AHashMap<String, u32>) -> Vec<(String, String)> {
        let mut merges: Vec<(usize, u32, u32)> = Vec::new();
        for (index, name) in
            self.names.iter().enumerate().filter(|(index, name)| self.types[*index] == 1 && name.len() <= MAX_NAME)
        {
            for (at, _) in name.char_indices().skip(1) {
                let (left, right) = name.split_at(at);
                if let (Some(left), Some(right)) = (ids.get(left), ids.get(right)) {
                    merges.push((index, *left, *right));
                }
            }
        }
        let score = |index: usize| self.scores[index];
        merges.sort_by(|a, b| score(b.0).total_cmp(&score(a.0)).then(a.cmp(b)));
        let name = |id: u32| self.names[id as usize].to_owned();
        merges.into_iter().map(|(_, left, right)| (name(left), name(right))).collect()
    }

    fn tokenizer(&self, begins_with_space: bool) -> Result<Tokenizer, ModelError> {
        let failed = |error: &dyn std::fmt::Display| ModelError::Tokenizer(error.to_string());
        let ids: AHashMap<String, u32> =
            self.names.iter().enumerate().map(|(id, name)| ((*name).to_owned(), id as u32)).collect();
        let merges = self.merges.clone().unwrap_or_else(|| self.merges_by_score(&ids));
        let unknown = self.of_types(&[UNKNOWN]).next().unwrap_or("<unk>").to_owned();
        let bpe = BPE::builder().vocab_and_merges(ids, merges).byte_fallback(true).fuse_unk(true).unk_token(unknown);
        let mut tokenizer = Tokenizer::new(bpe.build().map_err(|error| failed(&error))?);
        let mut steps: Vec<NormalizerWrapper> = Vec::new();
        if begins_with_space {
            steps.push(Prepend::new("▁".to_owned()).into());
        }
        steps.push(Replace::new(" ", "▁").map_err(|error| failed(&error))?.into());
        tokenizer.with_normalizer(Some(Sequence::new(steps))).map_err(|error| failed(&error))?;
        // user-defined tokens contain spaces as such, so they are matched before spaces are replaced
        let own = self.of_types(&[USER_DEFINED]).map(|name| AddedToken::from(name, false).normalized(false));
        tokenizer
            .add_special_tokens(self.of_types(&[CONTROL, UNKNOWN]).map(|name| AddedToken::from(name, true)))
            .and_then(|_| tokenizer.add_tokens(own))
            .map_err(|error| failed(&error))?;
        Ok(tokenizer)
    }

    fn pieces(&self) -> Vec<Piece> {
        let tokens = self.names.iter().zip(&self.types).zip(0..);
        let piece = |((name, kind), id): ((&&str, &u64), u32)| match *kind {
            CONTROL | UNKNOWN => Piece::special(TokenId(id), name),
            USER_DEFINED => Piece::new(TokenId(id), name.as_bytes().to_vec()),
            BYTE => Piece::new(TokenId(id), bytes_of(name)),
            _ => Piece::new(TokenId(id), spaces(name)),
        };
        tokens.map(piece).collect()
    }
}

/// Reads the tokenizer of a file with these tokens; `merges` are those of the kind `gemma4`, whose texts begin without a
/// space and with `<bos>`.
pub(super) fn codec(
    gguf: &GgufFile,
    names: Vec<&str>,
    merges: Option<Vec<(String, String)>>,
) -> Result<TextCodec, ModelError> {
    let is_gemma4 = merges.is_some();
    let vocabulary = Vocabulary::read(gguf, names, merges)?;
    let flag = |key: &str| gguf.value(key).ok().and_then(|value| value.to_bool().ok()).unwrap_or(true);
    let vocab = vocabulary.names.len();
    let id = |key: &str, usual: u32| -> Result<Option<TokenId>, ModelError> {
        let usual = Some(TokenId(usual)).filter(|id| id.index() < vocab);
        Ok(named_token(gguf, key, vocab)?.or(usual))
    };
    // defaults of llama.cpp for this kind
    let tokenizer = vocabulary.tokenizer(!is_gemma4 && flag("tokenizer.ggml.add_space_prefix"))?;
    let named = vocabulary.names.iter().position(|name| ENDS[..2].contains(name));
    let ends = Ends {
        bos: id("tokenizer.ggml.bos_token_id", 1)?,
        begins: is_gemma4 || flag("tokenizer.ggml.add_bos_token"),
        eos: id("tokenizer.ggml.eos_token_id", 2)?,
        others: more_ends(gguf, vocab)?.into_iter().chain(named.map(|at| TokenId(at as u32))).collect(),
    };
    let kind = if is_gemma4 { "SentencePiece (gemma4)" } else { "SentencePiece (llama)" };
    Ok(TextCodec::new((tokenizer, kind.to_owned()), GROWTH, vocabulary.pieces(), &ends))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens by score, highest first: `▁a` before `ab`, and `abab` in two ways.
    fn vocabulary() -> Vocabulary<'static> {
        let names = ["<unk>", "<s>", "</s>", "\n\n", "▁", "a", "b", "▁a", "ab", "abab", "b▁", "  "];
        let mut types = vec![1; names.len()];
        (types[0], types[1], types[2], types[3], types[11]) = (UNKNOWN, CONTROL, CONTROL, USER_DEFINED, USER_DEFINED);
        let bytes: Vec<&str> = (0..=255u8).map(|byte| &*format!("<0x{byte:02X}>").leak()).collect();
        types.extend(bytes.iter().map(|_| BYTE));
        let names: Vec<&str> = names.into_iter().chain(bytes).collect();
        let scores = (0..names.len()).map(|id| -(id as f32)).collect();
        Vocabulary { names, types, scores, merges: None }
    }

    fn tokens(text: &str, begins_with_space: bool) -> Vec<&'static str> {
        let vocabulary = vocabulary();
        let tokenizer = vocabulary.tokenizer(begins_with_space).unwrap();
        let encoding = tokenizer.encode_fast(text, false).unwrap();
        encoding.get_ids().iter().map(|id| vocabulary.names[*id as usize]).collect()
    }

    #[test]
    fn the_highest_score_merges_first() {
        assert_eq!(tokens("abab", false), ["abab"]);
        // `▁a` has a higher score than `ab`
        assert_eq!(tokens("b ab", false), ["b", "▁a", "b"]);
        assert_eq!(tokens("b b", false), ["b▁", "b"]);
        assert_eq!(tokens("ab", true), ["▁a", "b"]);
    }

    #[test]
    fn characters_without_a_token_become_bytes_and_user_defined_tokens_are_not_split() {
        assert_eq!(tokens("aé\n\n  b", false), ["a", "<0xC3>", "<0xA9>", "\n\n", "  ", "b"]);
        assert_eq!(tokens("a<s>b", false), ["a", "<s>", "b"]);
    }

    #[test]
    fn the_bytes_of_pieces_are_the_text() {
        let vocabulary = vocabulary();
        let pieces = vocabulary.pieces();
        let tokenizer = vocabulary.tokenizer(false).unwrap();
        let text = "ab é\n\n  b \u{1f600}";
        let ids = tokenizer.encode_fast(text, false).unwrap().get_ids().to_vec();
        let bytes: Vec<u8> = ids.iter().flat_map(|id| pieces[*id as usize].bytes.to_vec()).collect();
        assert_eq!(String::from_utf8(bytes).unwrap(), text);
    }
}
