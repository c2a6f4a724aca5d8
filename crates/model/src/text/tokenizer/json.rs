//! The tokenizer in a `tokenizer.json`, and in the files beside it the tokens that begin and end a text.
//!
//! The `tokenizers` library runs it; this module computes the bytes of each token. Two ways of spelling bytes
//! are supported: byte-level (a letter for every byte) and SentencePiece's (`▁` for a space, `<0x0A>` for a byte).

use serde::Deserialize;
use serde_json::Value;
use tokenizers::{DecoderWrapper, Tokenizer};

use super::growth::Steps;
use crate::ModelError;
use crate::error::clean;
use crate::files::SideFiles;
use crate::text::tokenizer::codec::{Ends, TextCodec, byte_level, byte_table};
use crate::text::tokenizer::sentence_piece::{bytes_of as sentence_piece, spaces};
use draftscope_protocol::{Piece, TokenId};

/// How the names of tokens spell bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spelling {
    ByteLevel,
    SentencePiece,
}

/// The keys of `tokenizer_config.json` that are used.
#[derive(Default, Deserialize)]
struct TokenizerConfig {
    #[serde(default)]
    bos_token: Value,
    #[serde(default)]
    eos_token: Value,
    add_bos_token: Option<bool>,
}

/// `generation_config.json` or `config.json`.
#[derive(Default, Deserialize)]
struct Generation {
    #[serde(default)]
    eos_token_id: Value,
    #[serde(default)]
    text_config: Value,
}

/// Reads the folder's tokenizer.
pub(crate) fn codec(folder: &SideFiles, begins: bool) -> Result<TextCodec, ModelError> {
    let Some(text) = folder.json("tokenizer.json")? else {
        return Err(folder.without_tokenizer());
    };
    let failed = |name: &str, error: &dyn std::fmt::Display| {
        ModelError::Tokenizer(format!("{name}: {}", clean(&error.to_string())))
    };
    let growth = Steps::of(&text).map_err(|error| failed("tokenizer.json", &error))?.checked()?;
    let mut tokenizer = Tokenizer::from_bytes(&text).map_err(|error| failed("tokenizer.json", &error))?;
    // both are left over from training; a prompt is neither truncated nor padded
    tokenizer.with_padding(None);
    tokenizer.with_truncation(None).map_err(|error| failed("tokenizer.json", &error))?;
    let spelling = spelling(&tokenizer)?;
    let pieces = pieces(&tokenizer, spelling)?;
    let config: TokenizerConfig = match folder.json("tokenizer_config.json")? {
        Some(text) => serde_json::from_slice(&text).map_err(|error| failed("tokenizer_config.json", &error))?,
        None => TokenizerConfig::default(),
    };
    let mut ends = ends(&tokenizer, &config)?;
    ends.begins |= begins;
    // every token that any of the files names ends an answer; models with further towers nest the key
    for name in ["generation_config.json", "config.json"] {
        let Some(text) = folder.json(name)? else { continue };
        let generation: Generation = serde_json::from_slice(&text).map_err(|error| failed(name, &error))?;
        for named in [&generation.eos_token_id, &generation.text_config["eos_token_id"]] {
            ends.others.extend(ids(named).into_iter().filter(|id| id.index() < pieces.len()));
        }
    }
    let kind = match spelling {
        Spelling::ByteLevel => "byte-level BPE (tokenizer.json)",
        Spelling::SentencePiece => "BPE with byte fallback (tokenizer.json)",
    };
    Ok(TextCodec::new((tokenizer, kind.to_owned()), growth, pieces, &ends))
}

/// The spelling, which the decoder undoes.
fn spelling(tokenizer: &Tokenizer) -> Result<Spelling, ModelError> {
    match tokenizer.get_decoder() {
        Some(DecoderWrapper::ByteLevel(_)) => Ok(Spelling::ByteLevel),
        Some(DecoderWrapper::Sequence(steps)) => {
            let steps = steps.get_decoders();
            if steps.iter().any(|step| matches!(step, DecoderWrapper::ByteLevel(_))) {
                return Ok(Spelling::ByteLevel);
            }
            if steps.iter().any(|step| matches!(step, DecoderWrapper::ByteFallback(_))) {
                return Ok(Spelling::SentencePiece);
            }
            Err(unsupported())
        }
        _ => Err(unsupported()),
    }
}

fn unsupported() -> ModelError {
    ModelError::Unsupported(
        "tokenizer.json spells bytes in a way that is not supported; byte-level and byte-fallback decoders are".into(),
    )
}

fn pieces(tokenizer: &Tokenizer, spelling: Spelling) -> Result<Vec<Piece>, ModelError> {
    let vocab = tokenizer.get_vocab(true);
    let count = vocab.values().max().map_or(0, |last| *last as usize + 1);
    if count > 1 << 24 {
        return Err(ModelError::Tokenizer(format!("tokenizer.json names a token {}", count - 1)));
    }
    let mut pieces: Vec<Piece> = (0..count).map(|id| Piece::new(TokenId(id as u32), Vec::new())).collect();
    let bytes_of = byte_table();
    for (name, id) in &vocab {
        pieces[*id as usize] = Piece::new(
            TokenId(*id),
            match spelling {
                Spelling::ByteLevel => byte_level(name, &bytes_of),
                Spelling::SentencePiece => sentence_piece(name),
            },
        );
    }
    for (id, token) in tokenizer.get_added_tokens_decoder() {
        pieces[id as usize] = match spelling {
            _ if token.special => Piece::special(TokenId(id), &token.content),
            Spelling::ByteLevel => Piece::new(TokenId(id), token.content.into_bytes()),
            // in Gemma's files, tokens of several spaces are added tokens, spelt like all others
            Spelling::SentencePiece => Piece::new(TokenId(id), spaces(&token.content)),
        };
    }
    Ok(pieces)
}

/// The tokens that begin and end a text. The file names a token by its text or by an object with that text as `content`;
/// it must be in the vocabulary.
fn ends(tokenizer: &Tokenizer, config: &TokenizerConfig) -> Result<Ends, ModelError> {
    let named = |key: &str, value: &Value| -> Result<Option<TokenId>, ModelError> {
        let Some(name) = value.as_str().or_else(|| value["content"].as_str()) else {
            return Ok(None);
        };
        match tokenizer.token_to_id(name) {
            Some(id) => Ok(Some(TokenId(id))),
            None => Err(ModelError::Tokenizer(format!(
                "tokenizer_config.json names '{}' as '{key}' and tokenizer.json has no such token",
                clean(name)
            ))),
        }
    };
    let bos = named("bos_token", &config.bos_token)?;
    // without the key: whether the tokenizer itself begins a text with it
    let first = |text: &str| tokenizer.encode_fast(text, true).ok().and_then(|e| e.get_ids().first().copied());
    let begins = config.add_bos_token.unwrap_or_else(|| bos.is_some_and(|bos| first("a") == Some(bos.0)));
    Ok(Ends { bos, begins, eos: named("eos_token", &config.eos_token)?, others: Vec::new() })
}

/// Reads one id or a list of ids.
fn ids(value: &Value) -> Vec<TokenId> {
    let one = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok()).map(TokenId);
    match value.as_array() {
        Some(several) => several.iter().filter_map(one).collect(),
        None => one(value).into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::{super::growth::MAX_GROWTH, *};

    /// A tokenizer like TinyLlama's: a space before a text, `▁` for spaces, bytes for characters without a token.
    fn sentence_piece_like() -> Value {
        let names = ["<unk>", "<s>", "</s>", "▁", "h", "i", "▁h", "▁hi"].into_iter().map(str::to_owned);
        let names = names.chain((0..256).map(|byte| format!("<0x{byte:02X}>")));
        let vocab: Map<String, Value> = names.enumerate().map(|(id, name)| (name, json!(id))).collect();
        let added = |id: u32, content: &str| {
            json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
                   "normalized": false, "special": true})
        };
        json!({
            "version": "1.0", "truncation": null, "padding": null,
            "added_tokens": [added(0, "<unk>"), added(1, "<s>"), added(2, "</s>")],
            "normalizer": {"type": "Sequence", "normalizers": [
                {"type": "Prepend", "prepend": "▁"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
            "pre_tokenizer": null, "post_processor": null,
            "decoder": {"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
                {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
            "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
                      "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true,
                      "vocab": vocab, "merges": ["▁ h", "▁h i"]}
        })
    }

    #[test]
    fn steps_that_make_a_text_very_long_are_noticed() {
        let growth = |json: Value| serde_json::from_value::<Steps>(json).unwrap().growth();
        assert!(growth(sentence_piece_like()) <= 9);
        let mut bomb = sentence_piece_like();
        let step = json!({"type": "Replace", "pattern": {"String": "a"}, "content": "a".repeat(20)});
        bomb["normalizer"] = json!({"type": "Sequence", "normalizers": [step, step]});
        assert!(growth(bomb) > MAX_GROWTH);
    }

    #[test]
    fn pieces_with_byte_fallback_spell_the_text() {
        let tokenizer = Tokenizer::from_bytes(sentence_piece_like().to_string()).unwrap();
        let pieces = pieces(&tokenizer, spelling(&tokenizer).unwrap()).unwrap();
        for text in ["hi hi", "h é 日\n\u{1f642} hi", "  hi  "] {
            let ids = tokenizer.encode(text, false).unwrap().get_ids().to_vec();
            let bytes: Vec<u8> = ids.iter().flat_map(|id| pieces[*id as usize].bytes.to_vec()).collect();
            assert_eq!(String::from_utf8(bytes).unwrap(), format!(" {text}"));
            assert_eq!(tokenizer.decode(&ids, true).unwrap(), text, "the library's decoder drops the first space");
        }
        assert_eq!(&*pieces[8 + 0xe6].bytes, [0xe6], "each byte of the letter is a token");
    }

    #[test]
    fn marks_that_end_answers_are_special_even_if_the_file_does_not_say_so() {
        let mut forgetful = sentence_piece_like();
        for (id, name) in [(264, "<|im_end|>"), (265, "<|end|>"), (266, "<EOT>"), (267, "<|think|>")] {
            let added = json!({"id": id, "content": name, "single_word": false, "lstrip": false, "rstrip": false,
                               "normalized": false, "special": false});
            forgetful["added_tokens"].as_array_mut().unwrap().push(added);
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("tokenizer.json"), forgetful.to_string()).unwrap();
        let codec = TextCodec::from_folder(&SideFiles::of(folder.path()), false).unwrap();
        assert_eq!(codec.end_names(), ["</s>", "<|im_end|>", "<|end|>"]);
        assert_eq!(codec.encode("hi<|im_end|>").unwrap().last(), Some(&TokenId(264)));
        let special: Vec<bool> = (264..268).map(|id| codec.piece(TokenId(id)).special).collect();
        assert_eq!(special, [true, true, false, false], "for a name that may be text, the file decides");
    }

    #[test]
    fn settings_that_make_the_library_panic_are_one_error_message() {
        let unknown = json!([{"SpecialToken": {"id": "[X]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]);
        let mut hostile = sentence_piece_like();
        hostile["post_processor"] =
            json!({"type": "TemplateProcessing", "single": unknown, "pair": unknown, "special_tokens": {}});
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("tokenizer.json"), hostile.to_string()).unwrap();
        std::fs::write(folder.path().join("tokenizer_config.json"), r#"{"bos_token": "<s>"}"#).unwrap();
        let error = TextCodec::from_folder(&SideFiles::of(folder.path()), false).err().unwrap().to_string();
        assert!(error.contains("the tokenizers library fails (") && error.lines().count() == 1, "{error}");
    }

    #[test]
    fn another_spelling_is_rejected() {
        let mut other = sentence_piece_like();
        other["decoder"] = json!({"type": "WordPiece", "prefix": "##", "cleanup": true});
        let tokenizer = Tokenizer::from_bytes(other.to_string()).unwrap();
        assert!(spelling(&tokenizer).err().unwrap().to_string().contains("spells bytes in a way"));
    }
}
