//! The tokenizer in a GGUF file: byte-level BPE with the pre-tokenizer that the file names, or SentencePiece.
//!
//! The rules are those of llama.cpp (`llama-vocab.cpp`), which follows the models' own tokenizers.

use tokenizers::models::bpe::BPE;
use tokenizers::normalizers::unicode::NFC;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, Tokenizer};

use crate::ModelError;
use crate::error::clean;
use crate::files::{GgufFile, whole};
use crate::text::tokenizer::codec::{Ends, TextCodec, byte_level, byte_table, is_end_mark};
use crate::text::tokenizer::named::{more_ends, named_token};
use crate::text::tokenizer::pre::Pre;
use crate::text::tokenizer::sentence_piece;
use draftscope_protocol::{Piece, TokenId};

/// GGUF's types of a control token, and of a text token that is matched before text is split.
const CONTROL: u64 = 3;
const USER_DEFINED: u64 = 4;

/// Factor by which a text can grow, in bytes: 3 by composition (NFC), then 2 by byte-level letters.
const GROWTH: usize = 6;

/// The key that names the rule.
const PRE: &str = "tokenizer.ggml.pre";

/// A warning if the file names no rule: the model was trained on other splits than it will get.
pub(crate) fn guess(gguf: &GgufFile) -> Option<String> {
    if ["llama", "gemma4"].contains(&kind(gguf)) {
        return None; // SentencePiece has no pre-tokenizer
    }
    let says = match gguf.text(PRE) {
        None => "is missing",
        Some("default") => "is 'default'",
        Some(_) => return None,
    };
    Some(format!(
        "'{PRE}' {says}, so text is split by llama.cpp's default rule and not by the model's own, and answers may be worse; use a GGUF file that names it"
    ))
}

fn kind(gguf: &GgufFile) -> &str {
    gguf.text("tokenizer.ggml.model").unwrap_or("(none)")
}

/// Reads the `tokenizer.ggml.*` keys.
pub(crate) fn codec(gguf: &GgufFile) -> Result<TextCodec, ModelError> {
    let pre_name = gguf.text(PRE).unwrap_or("default");
    let names = texts(gguf, "tokenizer.ggml.tokens")?;
    match kind(gguf) {
        "gpt2" if pre_name != "gemma4" => {}
        "llama" => return sentence_piece::codec(gguf, names, None),
        "gemma4" | "gpt2" => {
            let merges = merges(&texts(gguf, "tokenizer.ggml.merges")?)?;
            return sentence_piece::codec(gguf, names, Some(merges));
        }
        other => {
            return Err(ModelError::Unsupported(format!(
                "tokenizers of kind '{}' ('tokenizer.ggml.model') are not supported yet; gpt2, llama and gemma4 are",
                clean(other)
            )));
        }
    }
    let types = types(gguf, &names);
    let pre = Pre::by_name(pre_name)?;
    let tokenizer = build(&names, &texts(gguf, "tokenizer.ggml.merges")?, &types, pre)?;
    let bytes_of = byte_table();
    let pieces = names.iter().zip(&types).zip(0..).map(|((name, kind), id)| match *kind {
        CONTROL => Piece::special(TokenId(id), name),
        USER_DEFINED => Piece::new(TokenId(id), name.as_bytes().to_vec()),
        _ => Piece::new(TokenId(id), byte_level(name, &bytes_of)),
    });
    let known = |key: &str| named_token(gguf, key, names.len());
    let ends = Ends {
        bos: known("tokenizer.ggml.bos_token_id")?,
        begins: match gguf.value("tokenizer.ggml.add_bos_token") {
            Ok(value) => value.to_bool().unwrap_or(false),
            Err(_) => pre.begins, // as in llama.cpp
        },
        eos: known("tokenizer.ggml.eos_token_id")?,
        others: more_ends(gguf, names.len())?,
    };
    let kind = format!("byte-level BPE ({})", clean(pre_name));
    Ok(TextCodec::new((tokenizer, kind), GROWTH, pieces.collect(), &ends))
}

fn texts<'a>(gguf: &'a GgufFile, key: &str) -> Result<Vec<&'a str>, ModelError> {
    let texts: Result<Vec<&str>, _> =
        gguf.list(key)?.iter().map(|value| value.to_string().map(String::as_str)).collect();
    texts.map_err(|_| ModelError::Tokenizer(format!("'{key}' is not a list of texts")))
}

/// Types of these tokens; one that ends answers is a control token even if the file says that it is text.
fn types(gguf: &GgufFile, names: &[&str]) -> Vec<u64> {
    let types = gguf.list("tokenizer.ggml.token_type").unwrap_or(&[]);
    let own = |(index, name): (usize, &&str)| match types.get(index).and_then(whole) {
        _ if is_end_mark(name.as_bytes()) => CONTROL,
        kind => kind.unwrap_or(1),
    };
    names.iter().enumerate().map(own).collect()
}

/// Pairs of parts that merge.
fn merges(rules: &[&str]) -> Result<Vec<(String, String)>, ModelError> {
    let merges = rules.iter().map(|rule| rule.split_once(' ').map(|(a, b)| (a.to_owned(), b.to_owned())));
    let merges: Option<Vec<_>> = merges.collect();
    merges.ok_or_else(|| ModelError::Tokenizer("a merge rule is not two parts".into()))
}

fn build(names: &[&str], merges: &[&str], types: &[u64], pre: &Pre) -> Result<Tokenizer, ModelError> {
    let failed = |what: String| ModelError::Tokenizer(what);
    let vocab = names.iter().enumerate().map(|(id, name)| ((*name).to_owned(), id as u32));
    let bpe = BPE::builder()
        .vocab_and_merges(vocab.collect::<ahash::AHashMap<_, _>>(), self::merges(merges)?)
        .ignore_merges(pre.whole_words)
        .build();
    let mut tokenizer = Tokenizer::new(bpe.map_err(|error| failed(error.to_string()))?);
    if pre.composes {
        tokenizer.with_normalizer(Some(NFC)).map_err(|error| failed(error.to_string()))?;
    }
    tokenizer.with_pre_tokenizer(Some(pre.steps()?));
    tokenizer.with_decoder(Some(ByteLevel::new(false, true, true)));
    let of_type = |kind: u64| names.iter().zip(types).filter(move |(_, own)| **own == kind).map(|(name, _)| *name);
    // this order keeps a text token from taking the id of a control token of the same name
    tokenizer
        .add_special_tokens(of_type(CONTROL).map(|name| AddedToken::from(name, true)))
        .and_then(|_| {
            tokenizer.add_tokens(of_type(USER_DEFINED).map(|name| AddedToken::from(name, false).normalized(false)))
        })
        .map_err(|error| failed(error.to_string()))?;
    Ok(tokenizer)
}
