//! The target's tokens as `llguidance` sees them: a trie of their bytes, and how a text becomes tokens.

use std::sync::Arc;

use draftscope_model::text::tokenizer::TextCodec;
use draftscope_protocol::TokenId;
use llguidance::toktrie::{InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenizerEnv};
use llguidance::{ParserFactory, panic_utils};

use super::error::GrammarError;
use super::limits::{limits, reason};

/// Longest token in bytes; longer ones are never allowed.
const LONGEST: usize = 255;

/// A text with all that JSON has, to see whether its tokens have its bytes.
const PROBE: &str = "{\"name\": \"Ada\", \"n\": [1, 2.5, true]}";

/// The tokens of a target, ready for grammars.
#[derive(Clone)]
pub struct Vocabulary {
    factory: Arc<ParserFactory>,
}

impl Vocabulary {
    /// The tokens of this tokenizer.
    ///
    /// # Errors
    /// [`GrammarError::Vocabulary`] when it has no token that ends an answer, or too many tokens.
    pub fn new(codec: Arc<TextCodec>) -> Result<Self, GrammarError> {
        let made = panic_utils::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let env: TokEnv = Arc::new(Tokens::new(codec)?);
            let slices = llguidance::earley::SlicedBiasComputer::json_slices();
            let mut factory = ParserFactory::new(&env, InferenceCapabilities::default(), &slices)?;
            *factory.quiet().limits_mut() = limits();
            Ok(factory)
        }));
        let factory = made.map_err(|error| GrammarError::Vocabulary(reason(&error)))?;
        Ok(Self { factory: Arc::new(factory) })
    }

    pub(super) fn factory(&self) -> &ParserFactory {
        &self.factory
    }
}

/// The tokenizer of a target.
struct Tokens {
    codec: Arc<TextCodec>,
    trie: TokTrie,
    /// Whether tokens of a text have exactly its bytes, so that forced bytes become the tokens that the model knows.
    is_exact: bool,
}

impl Tokens {
    fn new(codec: Arc<TextCodec>) -> Result<Self, GrammarError> {
        let ends: Vec<u32> = codec.ends().iter().filter(|end| end.index() < codec.len()).map(|end| end.0).collect();
        let Some(first) = ends.first() else {
            return Err(GrammarError::Vocabulary("it has no token that ends an answer".to_owned()));
        };
        let words: Vec<Vec<u8>> = (0..codec.len()).map(|id| word(&codec, TokenId(id as u32))).collect();
        let trie = TokTrie::from(&TokRxInfo::new(words.len() as u32, *first), &words).with_eos_tokens(&ends);
        let mut tokens = Self { codec, trie, is_exact: true };
        tokens.is_exact = tokens.exactly(PROBE).is_some();
        Ok(tokens)
    }

    /// The tokens of a text if they have its bytes: no added space, no control token that the text names.
    fn exactly(&self, text: &str) -> Option<Vec<u32>> {
        let tokens = self.codec.encode(text).ok()?;
        let mut rest = text.as_bytes();
        for token in &tokens {
            let piece = self.codec.piece(*token);
            rest = rest.strip_prefix(&*piece.bytes).filter(|_| !piece.special && !piece.bytes.is_empty())?;
        }
        rest.is_empty().then(|| tokens.iter().map(|token| token.0).collect())
    }
}

/// The bytes of a token; a control token begins with a byte that no text has.
fn word(codec: &TextCodec, id: TokenId) -> Vec<u8> {
    let piece = codec.piece(id);
    match piece.bytes.len() {
        len if len >= LONGEST => Vec::new(),
        _ if piece.special => [&[TokTrie::SPECIAL_TOKEN_MARKER], &*piece.bytes].concat(),
        _ => piece.bytes.to_vec(),
    }
}

impl TokenizerEnv for Tokens {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<u32> {
        let exact = std::str::from_utf8(bytes).ok().and_then(|text| self.exactly(text));
        exact.unwrap_or_else(|| self.trie.greedy_tokenize(bytes))
    }

    fn tokenize_is_canonical(&self) -> bool {
        self.is_exact
    }
}
