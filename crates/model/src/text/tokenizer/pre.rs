//! How text is split before merges are applied: the rules that `tokenizer.ggml.pre` names in GGUF files.
//!
//! The names are those of llama.cpp (`llama-vocab.cpp`). The patterns are those of the models' own `tokenizer.json`;
//! llama.cpp writes some of them differently, because its own engine does not know the classes of letters.

use tokenizers::SplitDelimiterBehavior;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};

use crate::ModelError;
use crate::error::clean;

/// GPT-2's own splits.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// Qwen2's splits: digits one by one, words with the character before them.
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Qwen3.5's splits: combining marks belong to the letters before them.
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Llama 3's splits: Qwen2's, with digits in groups of three.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Jais 2's splits: Llama 3's, with runs of blanks in powers of two.
const JAIS2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}";
/// Seed-Coder's splits: Qwen2's, but line ends do not belong to the marks before them.
const SEED_CODER: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Ling's splits: Qwen2's, but each line end stands alone.
const LING: &str =
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";
/// Qwen2's splits without English contractions, so that Turkish suffixes stay with their apostrophe.
const UFAKZEKA: &str = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// K-EXAONE's splits: several words separated by single spaces are one part.
const EXAONE_MOE: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+";
/// MiniCPM5's splits after digits in groups of three.
const MINICPM5: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// GPT-4o's splits (o200k): words by the case of their letters, with their contractions; digits in groups of three.
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Youtu's splits: GPT-4o's with digits one by one.
const YOUTU: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Mistral's splits (Tekken): GPT-4o's without contractions, digits one by one.
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Kimi K2's splits: Han characters apart, words by the case of their letters (`tokenization_kimi.py`).
const KIMI_K2: &str = r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// DeepSeek-V3's words and marks; a mark belongs to the letters after it.
const DEEPSEEK3_WORDS: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;
/// Spark's words and marks: DeepSeek-V3's, with line ends one by one.
const SPARK_WORDS: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+"##;
/// Chinese and Japanese.
const CJK: &str = r"[一-龥぀-ゟ゠-ヿ]+";
/// Chinese and Japanese with the scripts that put no space between words.
const WITHOUT_SPACES: &str = r"[一-鿿㐀-䶿豈-﫿぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]+";
/// Han and Hangul as DeepSeek's first models saw them.
const HAN_HANGUL: &str = r"[一-龥ࠀ-一가-퟿]+";
/// Letters of scripts with upper and lower case, with a blank before them.
const CASED: &str = r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+";
/// Bloom's words, with the space before them; marks of several scripts stand apart.
const BLOOM: &str = r" ?[^(\s|.,!?…。，、।۔،)]+";

/// Digits in groups of three from the left.
const THREES: &str = r"\p{N}{1,3}";
/// One digit.
const DIGIT: &str = r"\p{N}";
/// A run of digits; [`HEAD`] and [`GROUPS`] split it.
const DIGITS: &str = r"\p{N}+";
/// The digits to the left of the groups of three from the right. Each part is one run of digits, so this is tried once a
/// run; the models' own patterns try it at each digit, in quadratic time.
const HEAD: &str = r"\A\p{N}{1,2}(?=(?:\p{N}{3})+\z)";
/// Groups of three.
const GROUPS: &str = r"\p{N}{3}";
/// As [`HEAD`], of decimal digits alone.
const DECIMAL_HEAD: &str = r"\A\d{1,2}(?=(?:\d{3})+\z)";
/// Runs of decimal digits that neither a letter nor another kind of digit follows: Aya groups only these from the right.
const WHOLE_NUMBERS: &str = r"(?<!\d)\d++(?![\w\p{N}])";

/// llama.cpp's splits for a file that names no rule; each one splits the parts that the previous one left.
const DEFAULT: &[&str] = &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, DIGITS, r"[0-9][0-9][0-9]"];
/// Falcon's: marks apart, ASCII digits in threes.
const FALCON: &[&str] = &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, r"[0-9][0-9][0-9]"];
/// DeepSeek-V2's: digits and line ends one by one, letters and marks with a space before them, Han and Hangul apart.
const DEEPSEEK_LLM: &[&str] = &[r"[\r\n]", CASED, r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", HAN_HANGUL, DIGIT];
const DEEPSEEK_CODER: &[&str] = &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", HAN_HANGUL, DIGIT];
const DEEPSEEK3: &[&str] = &[THREES, CJK, DEEPSEEK3_WORDS];
/// Chameleon's: names of image tokens, blanks, digits and marks one by one.
const CHAMELEON: &[&str] = &[
    "<sentinel:[0-9]+>",
    "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
    r"([\t\n]|    |  )",
    DIGIT,
    r"[\p{P}!-/:-@\[-`{-~]",
    GPT2,
];

/// A rule for splitting text.
#[derive(Debug)]
pub(super) struct Pre {
    /// The names under which files ask for it.
    names: &'static [&'static str],
    /// Each pattern splits the parts that the previous one left.
    splits: &'static [&'static str],
    /// Whether text is composed (NFC) before it is split.
    pub(super) composes: bool,
    /// Whether a word that is a token is not split, even if merges would not build it.
    pub(super) whole_words: bool,
    /// Whether a text begins with `bos` if the file does not say.
    pub(super) begins: bool,
}

/// A rule without special features.
const fn plain(names: &'static [&'static str], splits: &'static [&'static str]) -> Pre {
    Pre { names, splits, composes: false, whole_words: false, begins: false }
}

/// A rule that composes text: as in the models' own tokenizers, not in llama.cpp.
const fn composing(names: &'static [&'static str], splits: &'static [&'static str]) -> Pre {
    Pre { composes: true, ..plain(names, splits) }
}

/// A rule that does not split words that are tokens.
const fn whole(names: &'static [&'static str], splits: &'static [&'static str]) -> Pre {
    Pre { whole_words: true, ..plain(names, splits) }
}

/// All rules, the default first.
static RULES: &[Pre] = &[
    plain(&["default"], DEFAULT),
    plain(
        &[
            "gpt-2",
            "phi-2",
            "jina-es",
            "jina-de",
            "jina-v2-es",
            "jina-v2-de",
            "jina-v1-en",
            "jina-v2-code",
            "roberta-bpe",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "exaone4",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "granite-docling",
        ],
        &[GPT2],
    ),
    plain(
        &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"],
        &[DIGIT, GPT2],
    ),
    composing(&["qwen2", "deepseek-r1-qwen", "f2llmv2"], &[QWEN2]),
    plain(&["kormo", "megrez", "stablelm2", "hunyuan", "solar-open", "grok-2"], &[QWEN2]),
    composing(&["qwen35"], &[QWEN35]),
    Pre {
        begins: true,
        ..whole(
            &["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"],
            &[LLAMA3],
        )
    },
    whole(&["glm4", "glm5"], &[LLAMA3]),
    plain(&["chatglm-bpe", "dbrx", "smaug-bpe"], &[LLAMA3]),
    plain(&["jais-2"], &[JAIS2]),
    plain(&["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"], &[GPT4O]),
    whole(&["granite-embed-multi-97m"], &[GPT4O]),
    Pre { begins: true, ..whole(&["tekken"], &[TEKKEN]) },
    whole(&["youtu"], &["[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+", YOUTU]),
    plain(&["kimi-k2"], &[KIMI_K2]),
    plain(&["deepseek-llm"], DEEPSEEK_LLM),
    plain(&["deepseek-coder"], DEEPSEEK_CODER),
    plain(&["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"], DEEPSEEK3),
    plain(&["spark2_5"], &[THREES, CJK, SPARK_WORDS, DIGIT]),
    plain(&["falcon"], FALCON),
    plain(&["bloom", "poro-chat", "gpt3-finnish"], &[BLOOM]),
    plain(&["viking"], &[BLOOM, DIGIT]),
    Pre { begins: true, ..plain(&["chameleon"], CHAMELEON) },
    plain(&["tiny_aya", "cohere2moe"], &[WHOLE_NUMBERS, DECIMAL_HEAD, GPT4O]),
    plain(&["superbpe"], &[DIGITS, DECIMAL_HEAD, r"\d{3}"]),
    plain(&["bailingmoe", "bailingmoe2", "llada-moe"], &[LING]),
    plain(&["seed-coder"], &[SEED_CODER]),
    plain(&["ufakzeka"], &[UFAKZEKA]),
    plain(&["afmoe"], &[DIGITS, HEAD, GROUPS, WITHOUT_SPACES, DEEPSEEK3_WORDS]),
    plain(&["laguna"], &[r"[^\n]+|[\n]+", QWEN2]),
    plain(&["exaone-moe"], &[EXAONE_MOE]),
    whole(&["minicpm5"], &[THREES, MINICPM5]),
];

impl Pre {
    /// The rule of a name in a file.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] with the name if no rule has it.
    pub(super) fn by_name(name: &str) -> Result<&'static Self, ModelError> {
        RULES.iter().find(|rule| rule.names.contains(&name)).ok_or_else(|| {
            ModelError::Unsupported(format!(
                "the pre-tokenizer '{}' ('tokenizer.ggml.pre') is not supported, so text would be split into the wrong tokens; use the model's folder with its tokenizer.json instead of the GGUF file",
                clean(name)
            ))
        })
    }

    /// The steps of the `tokenizers` library: the splits, then a letter for each byte.
    ///
    /// # Errors
    /// [`ModelError::Tokenizer`] if a pattern is not one.
    pub(super) fn steps(&self) -> Result<PreTokenizerWrapper, ModelError> {
        let split = |pattern: &&str| {
            let pattern = SplitPattern::Regex((*pattern).to_owned());
            let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false);
            split.map(PreTokenizerWrapper::from).map_err(|error| ModelError::Tokenizer(error.to_string()))
        };
        let mut steps = self.splits.iter().map(split).collect::<Result<Vec<_>, _>>()?;
        steps.push(ByteLevel::new(false, true, false).into());
        Ok(Sequence::new(steps).into())
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer};

    use super::*;

    fn cut(pre: &Pre, text: &str) -> Vec<String> {
        cut_by(&pre.steps().unwrap(), text)
    }

    fn cut_by(steps: &PreTokenizerWrapper, text: &str) -> Vec<String> {
        let mut cut = PreTokenizedString::from(text);
        steps.pre_tokenize(&mut cut).unwrap();
        let parts = cut.get_splits(OffsetReferential::Original, OffsetType::Byte);
        parts.into_iter().map(|(_, (from, to), _)| text[from..to].to_owned()).collect()
    }

    fn named(name: &str) -> &'static Pre {
        Pre::by_name(name).unwrap()
    }

    /// Between the parts of a text.
    const CUT: char = '\u{205e}';

    /// What other programs make of `texts`. The parts are those of llama.cpp (`unicode_regex_split` with the patterns of
    /// its `llm_tokenizer_bpe`; the sources in llama-cpp-python 0.3.36). For gpt-4o, granite-embed-multi-97m, tekken,
    /// youtu, kimi-k2, tiny_aya, superbpe, deepseek-llm and deepseek-coder, llama.cpp approximates the models' own
    /// patterns; there the parts are those of the `tokenizers` package for Python with the pattern of the model's
    /// `tokenizer.json`. Its regular expressions come from another engine (Oniguruma) than those used here.
    #[derive(Deserialize)]
    struct Reference {
        texts: Vec<String>,
        rules: Vec<Expected>,
    }

    #[derive(Deserialize)]
    struct Expected {
        names: Vec<String>,
        parts: Vec<String>,
    }

    fn reference() -> Reference {
        serde_json::from_str(include_str!("../../../../../tests/fixtures/pre_tokenizers.json")).unwrap()
    }

    #[test]
    fn every_rule_splits_text_as_its_reference() {
        let Reference { texts, rules } = reference();
        for Expected { names, parts } in &rules {
            for name in names {
                let steps = named(name).steps().unwrap();
                for (text, parts) in texts.iter().zip(parts) {
                    assert_eq!(cut_by(&steps, text), parts.split(CUT).collect::<Vec<_>>(), "{name}");
                }
            }
        }
        let checked = |name: &&str| rules.iter().any(|rule| rule.names.iter().any(|checked| checked == name));
        assert!(RULES.iter().flat_map(|rule| rule.names).all(checked));
    }

    #[test]
    fn long_runs_of_digits_take_linear_time() {
        let digits = "1".repeat(300_001);
        for name in ["tiny_aya", "superbpe", "afmoe"] {
            assert_eq!(cut(named(name), &digits).len(), 100_001, "{name}");
            assert_eq!(cut(named(name), &digits)[0], "1", "{name}");
        }
    }

    #[test]
    fn an_unknown_name_is_refused_by_name() {
        for name in ["gemma9", "Llama-BPE", "", "a\u{1b}[31m\nb"] {
            let error = Pre::by_name(name).unwrap_err().to_string();
            assert!(error.contains(&format!("'{}'", clean(name))) && error.contains("tokenizer.json"), "{error}");
            assert!(!error.contains(char::is_control), "{error:?}");
        }
    }

    #[test]
    fn without_a_rule_text_is_split_as_in_llama_cpp() {
        let text = "Hello world, it's 12345 $a";
        let parts = ["Hello", " world", ",", " it", "'", "s", " ", "123", "45", " ", "$", "a"];
        assert_eq!(cut(named("default"), text), parts);
        assert_eq!(cut(named("gpt-2"), text), ["Hello", " world", ",", " it", "'s", " 12345", " $", "a"]);
    }

    #[test]
    fn families_of_experts_have_their_own_splits() {
        let text = "Hello世界, it's 12345abcDEF\n\n ok";
        // digits in threes, Chinese apart, a mark with the letters after it
        let deepseek = ["Hello", "世界", ",", " it", "'s", " ", "123", "45", "abcDEF", "\n\n", " ok"];
        assert_eq!(cut(named("deepseek-v3"), text), deepseek);
        // digits and line ends one by one, a space before letters and marks
        let older = ["Hello", "世界", ",", " it", "'", "s", " ", "1", "2", "3", "4", "5", "abcDEF", "\n", "\n", " ok"];
        assert_eq!(cut(named("deepseek-llm"), text), older);
        // words end where lower case turns into upper case, and keep their contractions
        let kimi = ["Hello", "世界", ",", " it's", " ", "123", "45", "abc", "DEF", "\n\n", " ok"];
        assert_eq!(cut(named("kimi-k2"), text), kimi);
        assert_eq!(cut(named("glm4"), text), cut(named("llama-bpe"), text));
    }
}
