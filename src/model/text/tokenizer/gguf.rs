//! The tokenizer in a GGUF file: byte-level BPE with the pre-tokenizer that the file names, or SentencePiece.
//!
//! The rules are those of llama.cpp (`llama-vocab.cpp`), which follows the models' own tokenizers.

use tokenizers::models::bpe::BPE;
use tokenizers::normalizers::unicode::NFC;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, SplitDelimiterBehavior, Tokenizer};

use crate::model::ModelError;
use crate::model::error::clean;
use crate::model::files::{GgufFile, whole};
use crate::model::text::tokenizer::named::{more_ends, named_token};
use crate::model::text::tokenizer::{Ends, TextCodec, byte_level, byte_table, is_end_mark, sentence_piece};
use crate::protocol::{Piece, TokenId};

/// GGUF's types of a control token, and of a text token that is matched before text is split.
const CONTROL: u64 = 3;
const USER_DEFINED: u64 = 4;

/// Factor by which a text can grow, in bytes: 3 by composition (NFC), then 2 by byte-level letters.
const GROWTH: usize = 6;

/// Qwen2's splits: digits one by one, words with the character before them.
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Qwen3.5's splits: combining marks belong to the letters before them.
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Llama 3's splits: Qwen2's, with digits in groups of three.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// DeepSeek-V3's splits, one after the other: digits in groups of three, Chinese and Japanese, words and marks.
const DEEPSEEK3: [&str; 3] = [
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
];
/// DeepSeek-V2's splits: digits and line ends one by one, letters and marks with a space before them, Han and Hangul apart.
const DEEPSEEK_LLM: [&str; 6] = [
    r"[\r\n]",
    r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+",
    r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
    r"\s+$",
    r"[一-龥ࠀ-一가-퟿]+",
    r"\p{N}",
];
/// Kimi K2's splits: Han characters apart, words by the case of their letters (`tokenization_kimi.py`).
const KIMI_K2: &str = r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// llama.cpp's splits for a file that names no rule; each one splits the parts that the previous one left.
const DEFAULT: [&str; 4] = [
    r"[\p{P}\$\+<=>\^~\|]+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
    r"\p{N}+",
    r"[0-9][0-9][0-9]",
];

/// The key that names the rule.
const PRE: &str = "tokenizer.ggml.pre";

/// How text is split before merges are applied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pre {
    /// The file names no rule: [`DEFAULT`].
    Default,
    /// GPT-2's own rule.
    Gpt2,
    /// Digits one by one, then GPT-2's rule.
    SmolLm,
    Qwen2,
    Qwen35,
    /// A word that is a token is not split, even if merges would not build it.
    Llama3,
    /// Llama 3's splits for GLM-4.5 and later: a text does not begin with a token.
    Glm4,
    /// That of DeepSeek-V2.
    DeepSeekLlm,
    DeepSeek3,
    KimiK2,
}

impl Pre {
    fn by_name(name: &str) -> Result<Self, ModelError> {
        match name {
            "default" => Ok(Self::Default),
            "gpt-2" => Ok(Self::Gpt2),
            "smollm" => Ok(Self::SmolLm),
            "qwen2" | "deepseek-r1-qwen" => Ok(Self::Qwen2),
            "qwen35" => Ok(Self::Qwen35),
            "llama3" | "llama-v3" | "llama-bpe" => Ok(Self::Llama3),
            "glm4" => Ok(Self::Glm4),
            "deepseek-llm" => Ok(Self::DeepSeekLlm),
            "deepseek-v3" => Ok(Self::DeepSeek3),
            "kimi-k2" => Ok(Self::KimiK2),
            other => Err(ModelError::Unsupported(format!(
                "the pre-tokenizer '{}' ('tokenizer.ggml.pre') is not supported yet; gpt-2, smollm, qwen2, qwen35, llama-bpe, glm4, deepseek-llm, deepseek-v3 and kimi-k2 are",
                clean(other)
            ))),
        }
    }

    /// Whether a text begins with `bos` if the file does not say.
    const fn begins(self) -> bool {
        matches!(self, Self::Llama3)
    }

    fn rule(self) -> Result<PreTokenizerWrapper, ModelError> {
        let split = |pattern: &&str| -> Result<PreTokenizerWrapper, ModelError> {
            let pattern = SplitPattern::Regex((*pattern).to_owned());
            let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false);
            split.map(Into::into).map_err(|error| ModelError::Tokenizer(error.to_string()))
        };
        let splits = |patterns: &[&str]| -> Result<PreTokenizerWrapper, ModelError> {
            let mut steps = patterns.iter().map(split).collect::<Result<Vec<_>, _>>()?;
            steps.push(ByteLevel::new(false, true, false).into());
            Ok(Sequence::new(steps).into())
        };
        let gpt2 = PreTokenizerWrapper::from(ByteLevel::new(false, true, true));
        match self {
            Self::Gpt2 => Ok(gpt2),
            Self::SmolLm => Ok(Sequence::new(vec![Digits::new(true).into(), gpt2]).into()),
            Self::Default => splits(&DEFAULT),
            Self::Qwen2 => splits(&[QWEN2]),
            Self::Qwen35 => splits(&[QWEN35]),
            Self::Llama3 | Self::Glm4 => splits(&[LLAMA3]),
            Self::DeepSeekLlm => splits(&DEEPSEEK_LLM),
            Self::DeepSeek3 => splits(&DEEPSEEK3),
            Self::KimiK2 => splits(&[KIMI_K2]),
        }
    }
}

/// A warning if the file names no rule: the model was trained on other splits than it will get.
pub(in crate::model) fn guess(gguf: &GgufFile) -> Option<String> {
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
pub(in crate::model) fn codec(gguf: &GgufFile) -> Result<TextCodec, ModelError> {
    let pre_name = gguf.text(PRE).unwrap_or("default");
    let names = texts(gguf, "tokenizer.ggml.tokens")?;
    match kind(gguf) {
        "gpt2" => {}
        "llama" => return sentence_piece::codec(gguf, names, None),
        "gemma4" => {
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
            Err(_) => pre.begins(), // as in llama.cpp
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

fn build(names: &[&str], merges: &[&str], types: &[u64], pre: Pre) -> Result<Tokenizer, ModelError> {
    let failed = |what: String| ModelError::Tokenizer(what);
    let vocab = names.iter().enumerate().map(|(id, name)| ((*name).to_owned(), id as u32));
    let bpe = BPE::builder()
        .vocab_and_merges(vocab.collect::<ahash::AHashMap<_, _>>(), self::merges(merges)?)
        .ignore_merges(matches!(pre, Pre::Llama3 | Pre::Glm4))
        .build();
    let mut tokenizer = Tokenizer::new(bpe.map_err(|error| failed(error.to_string()))?);
    if matches!(pre, Pre::Qwen2 | Pre::Qwen35) {
        tokenizer.with_normalizer(Some(NFC)).map_err(|error| failed(error.to_string()))?;
    }
    tokenizer.with_pre_tokenizer(Some(pre.rule()?));
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

#[cfg(test)]
mod tests {
    use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer};

    use super::*;

    fn cut(pre: Pre, text: &str) -> Vec<String> {
        let mut cut = PreTokenizedString::from(text);
        pre.rule().unwrap().pre_tokenize(&mut cut).unwrap();
        let parts = cut.get_splits(OffsetReferential::Original, OffsetType::Byte);
        parts.into_iter().map(|(_, (from, to), _)| text[from..to].to_owned()).collect()
    }

    #[test]
    fn without_a_rule_text_is_split_as_in_llama_cpp() {
        let text = "Hello world, it's 12345 $a";
        let parts = ["Hello", " world", ",", " it", "'", "s", " ", "123", "45", " ", "$", "a"];
        assert_eq!(cut(Pre::Default, text), parts);
        assert_eq!(cut(Pre::Gpt2, text), ["Hello", " world", ",", " it", "'s", " 12345", " $", "a"]);
    }

    #[test]
    fn families_of_experts_have_their_own_splits() {
        let text = "Hello世界, it's 12345abcDEF\n\n ok";
        // digits in threes, Chinese apart, a mark with the letters after it
        let deepseek = ["Hello", "世界", ",", " it", "'s", " ", "123", "45", "abcDEF", "\n\n", " ok"];
        assert_eq!(cut(Pre::DeepSeek3, text), deepseek);
        // digits and line ends one by one, a space before letters and marks
        let older = ["Hello", "世界", ",", " it", "'", "s", " ", "1", "2", "3", "4", "5", "abcDEF", "\n", "\n", " ok"];
        assert_eq!(cut(Pre::DeepSeekLlm, text), older);
        // words end where lower case turns into upper case, and keep their contractions
        let kimi = ["Hello", "世界", ",", " it's", " ", "123", "45", "abc", "DEF", "\n\n", " ok"];
        assert_eq!(cut(Pre::KimiK2, text), kimi);
        assert_eq!(cut(Pre::Glm4, text), cut(Pre::Llama3, text));
    }
}
