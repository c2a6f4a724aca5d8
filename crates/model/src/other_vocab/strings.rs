//! Drafting with another tokenizer by strings: the model writes in its own tokens, and the target's tokenizer makes tokens
//! of what it wrote (string-level exact match: Timor et al., arXiv:2502.05202, algorithm 2).
//!
//! Whatever comes out is a draft without a distribution, so a lossless rule keeps the target's text. What is wrong here
//! only makes drafts worse: a seam at which the tokenizers would have split otherwise, a normalised character.

use std::sync::Arc;

use super::SharedVocab;
use crate::ModelError;
use crate::text::tokenizer::TextCodec;
use draftscope_protocol::TokenId;

/// Most tokens of the target that are tokenised together: of a text without a break no more are read again.
const MOST_RUN: usize = 256;

/// Most tokens of the target among which a break before a draft is looked for.
const MOST_SEAM: usize = 32;

/// What an own token writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written<'a> {
    /// These bytes.
    Text(&'a [u8]),
    /// A control token of the target.
    Control(TokenId),
    /// Nothing that the target could read.
    Nothing,
}

/// Two tokenizers, and what their vocabularies share.
pub struct Strings {
    target: Side,
    own: Side,
    shared: SharedVocab,
    /// Own tokens of text by their bytes.
    sorted: Vec<TokenId>,
}

/// A tokenizer.
struct Side {
    codec: Arc<TextCodec>,
    /// Tokens of a line break, if it begins every text with a space: after them a text goes on without one.
    seed: Option<Vec<TokenId>>,
}

impl Side {
    fn of(codec: Arc<TextCodec>) -> Result<Self, ModelError> {
        let bytes: Vec<u8> = codec.encode("a")?.iter().flat_map(|token| codec.piece(*token).bytes.to_vec()).collect();
        let seed = if bytes == b"a" { None } else { Some(codec.encode("\n")?) };
        Ok(Self { codec, seed })
    }

    /// Tokens of a text that goes on after another one.
    fn go_on(&self, text: &str) -> Result<Vec<TokenId>, ModelError> {
        if let Some(seed) = &self.seed {
            let all = self.codec.encode(&format!("\n{text}"))?;
            if let Some(rest) = all.strip_prefix(&seed[..]) {
                return Ok(rest.to_vec());
            }
        }
        self.codec.encode(text)
    }
}

impl Strings {
    /// Between the tokenizers of a target and of a model that drafts for it.
    ///
    /// # Errors
    /// When a tokenizer fails.
    pub fn new(target: Arc<TextCodec>, own: Arc<TextCodec>, shared: SharedVocab) -> Result<Self, ModelError> {
        let mut sorted: Vec<(&[u8], TokenId)> =
            shared.own_text.iter().map(|(bytes, token)| (&**bytes, *token)).collect();
        sorted.sort_unstable();
        let sorted = sorted.into_iter().map(|(_, token)| token).collect();
        Ok(Self { target: Side::of(target)?, own: Side::of(own)?, shared, sorted })
    }

    /// Whether the model can write a token of the target.
    #[must_use]
    pub fn has(&self, token: TokenId) -> bool {
        let mut spelled = self.shared.spelled(self.shared.bytes(token)).peekable();
        match self.shared.is_control(token) {
            true => self.shared.has(token),
            false => spelled.peek().is_some() && spelled.all(|own| own.is_some()),
        }
    }

    /// Tokens of the target that the model can write.
    #[must_use]
    pub fn count(&self) -> usize {
        (0..self.shared.target_len() as u32).filter(|id| self.has(TokenId(*id))).count()
    }

    /// Own tokens, without the padding of the model's head.
    #[must_use]
    pub fn own_len(&self) -> u32 {
        self.own.codec.len() as u32
    }

    /// What an own token writes.
    #[must_use]
    pub fn written(&self, own: TokenId) -> Written<'_> {
        match self.own.codec.get(own) {
            Some(piece) if piece.special => {
                self.shared.written.get(own.index()).copied().flatten().map_or(Written::Nothing, Written::Control)
            }
            Some(piece) if !piece.bytes.is_empty() => Written::Text(&piece.bytes),
            _ => Written::Nothing,
        }
    }

    /// Bytes of an own token; of a control token its name.
    #[must_use]
    pub fn own_bytes(&self, own: TokenId) -> &[u8] {
        self.own.codec.get(own).map_or(&[], |piece| &piece.bytes)
    }

    /// Own tokens of text that begin with these bytes and go on after them.
    pub fn going_on<'a>(&'a self, bytes: &'a [u8]) -> impl Iterator<Item = TokenId> + 'a {
        let first = self.sorted.partition_point(|own| self.own_bytes(*own) <= bytes);
        self.sorted[first..].iter().copied().take_while(move |own| self.own_bytes(*own).starts_with(bytes))
    }

    /// Bytes of a token of the target.
    #[must_use]
    pub fn bytes(&self, token: TokenId) -> &[u8] {
        self.shared.bytes(token)
    }

    /// Tokens of the target for a text that follows `before`. An incomplete character at its end is left out; of bytes that
    /// are no text there are none.
    ///
    /// The tokenizer reads from the last break on. If it would split what stands there otherwise, it reads the new text
    /// alone: the target did not write those tokens, and the seam is where it left off.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn continued(&self, before: &[TokenId], text: &[u8]) -> Result<Vec<TokenId>, ModelError> {
        match self.joined(before, text)? {
            Some(tokens) => Ok(tokens),
            None => complete(text).map_or(Ok(Vec::new()), |text| self.target.go_on(text)),
        }
    }

    /// Whether the target, which wrote `before`, could have written it before this text: its tokenizer splits it so. If not,
    /// the text hardly follows, since the target would have taken other tokens.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn joins(&self, before: &[TokenId], text: &[u8]) -> Result<bool, ModelError> {
        Ok(self.joined(before, text)?.is_some())
    }

    /// Tokens for a text that follows `before`, if the tokenizer splits what stands there as the target did.
    fn joined(&self, before: &[TokenId], text: &[u8]) -> Result<Option<Vec<TokenId>>, ModelError> {
        let Some(from) = self.seam(before) else { return Ok(None) };
        let mut whole = self.text_of(&before[from..]);
        let written = whole.len();
        whole.extend_from_slice(text);
        // a character that is still incomplete says nothing
        let Some(whole) = complete(&whole).filter(|whole| whole.len() >= written) else { return Ok(Some(Vec::new())) };
        let tokens = self.target.go_on(whole)?;
        Ok(tokens.strip_prefix(&before[from..]).map(<[TokenId]>::to_vec))
    }

    /// Where the tokenizer may begin to read before a text that follows these tokens.
    fn seam(&self, before: &[TokenId]) -> Option<usize> {
        let is_seam = |at: &usize| {
            let Some(last) = at.checked_sub(1).map(|last| before[last]) else { return true };
            let next = before.get(*at).map_or(&[][..], |next| self.shared.bytes(*next));
            self.shared.is_control(last) || is_break(self.shared.bytes(last), next)
        };
        (before.len().saturating_sub(MOST_SEAM)..=before.len()).rev().find(is_seam)
    }

    fn text_of(&self, tokens: &[TokenId]) -> Vec<u8> {
        tokens.iter().flat_map(|token| self.shared.bytes(*token)).copied().collect()
    }

    /// Own tokens of bytes, after other text if they go on. What is no text is spelled byte by byte, as far as the model
    /// has bytes.
    fn own_tokens(&self, bytes: &[u8], goes_on: bool) -> Result<Vec<TokenId>, ModelError> {
        let mut own = Vec::new();
        let mut goes_on = goes_on;
        for chunk in bytes.utf8_chunks() {
            if !chunk.valid().is_empty() {
                own.extend(if goes_on {
                    self.own.go_on(chunk.valid())?
                } else {
                    self.own.codec.encode(chunk.valid())?
                });
            }
            own.extend(self.shared.spelled(chunk.invalid()).flatten());
            goes_on = true;
        }
        Ok(own)
    }
}

/// The text of bytes, without an incomplete character at their end; `None` if there is none, or they are no text.
fn complete(bytes: &[u8]) -> Option<&str> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()?,
        Err(_) => return None,
    };
    Some(text).filter(|text| !text.is_empty())
}

/// Whether tokenizers split between these bytes whatever stands around them: before a space that follows no blank.
fn is_break(before: &[u8], after: &[u8]) -> bool {
    after.first() == Some(&b' ') && before.last().is_some_and(|last| !last.is_ascii_whitespace())
}

/// A beginning of the target's text, and the own tokens of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cut {
    read: usize,
    own: usize,
}

/// The target's text in own tokens, which follows it from round to round.
///
/// Only what stands after the last break that stays is tokenised again, and of a text without breaks a bounded part.
#[derive(Clone, Debug, Default)]
pub struct OwnText {
    read: Vec<TokenId>,
    own: Vec<TokenId>,
    /// Where both were split, whatever follows; ascending.
    cuts: Vec<Cut>,
}

impl OwnText {
    /// Brings it to these tokens of the target and returns the own ones.
    ///
    /// # Errors
    /// When a tokenizer fails; then nothing is known of the text.
    pub fn follow(&mut self, strings: &Strings, tokens: &[TokenId]) -> Result<&[TokenId], ModelError> {
        let same = self.read.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        if same < self.read.len() || same < tokens.len() {
            // it is a cut because of the token after it, which must be the same
            self.cuts.truncate(self.cuts.partition_point(|cut| cut.read < same));
            let from = self.cuts.last().copied().unwrap_or_default();
            self.own.truncate(from.own);
            self.read.clear();
            self.extend(strings, tokens, from.read)?;
            self.read.extend_from_slice(tokens);
        }
        Ok(&self.own)
    }

    /// Own tokens that no further text changes.
    #[must_use]
    pub fn settled(&self) -> &[TokenId] {
        &self.own[..self.cuts.last().map_or(0, |cut| cut.own)]
    }

    /// Adds the own tokens of those from index `at` on, which is a cut.
    fn extend(&mut self, strings: &Strings, tokens: &[TokenId], mut at: usize) -> Result<(), ModelError> {
        let shared = &strings.shared;
        if at == 0 {
            self.own
                .extend(shared.begins_with.filter(|own| tokens.first().and_then(|t| shared.control(*t)) != Some(*own)));
        }
        while at < tokens.len() {
            if let Some(control) = shared.control(tokens[at]) {
                self.cut(at);
                self.own.push(control);
                at += 1;
                self.cut(at);
                continue;
            }
            let rest = &tokens[at..];
            let most = rest.len().min(MOST_RUN);
            let len = rest[..most].iter().position(|token| shared.control(*token).is_some()).unwrap_or(most);
            let goes_on = at.checked_sub(1).is_some_and(|last| shared.control(tokens[last]).is_none());
            let cuts = self.cuts.len();
            self.read_run(strings, (&rest[..len], at), goes_on)?;
            at += len;
            if len == MOST_RUN && at < tokens.len() {
                // what follows the last break may belong to what is not read yet
                if let Some(last) = self.cuts.get(cuts..).and_then(<[Cut]>::last) {
                    at = last.read;
                    self.own.truncate(last.own);
                } else {
                    self.cut(at);
                }
            }
        }
        Ok(())
    }

    fn cut(&mut self, read: usize) {
        let cut = Cut { read, own: self.own.len() };
        if read > 0 && self.cuts.last().is_none_or(|last| last.read < read) {
            self.cuts.push(cut);
        }
    }

    /// Adds the own tokens of a run of text, which begins at index `at`, and the breaks in it where tokens of both sides end.
    fn read_run(&mut self, strings: &Strings, (run, at): (&[TokenId], usize), goes_on: bool) -> Result<(), ModelError> {
        let bytes = strings.text_of(run);
        let new = strings.own_tokens(&bytes, goes_on)?;
        let own_bytes = |own: &TokenId| strings.own_bytes(*own).len();
        // a tokenizer may put a space before a text; a cut needs that all else is the same
        let added = new.iter().map(own_bytes).sum::<usize>().wrapping_sub(bytes.len());
        let (mut own_end, mut own) = (0, 0);
        let mut end = 0;
        for (index, pair) in run.windows(2).enumerate().filter(|_| added <= 1) {
            end += strings.bytes(pair[0]).len();
            while own < new.len() && own_end < end + added {
                own_end += own_bytes(&new[own]);
                own += 1;
            }
            if own_end == end + added && is_break(strings.bytes(pair[0]), strings.bytes(pair[1])) {
                self.cuts.push(Cut { read: at + index + 1, own: self.own.len() + own });
            }
        }
        self.own.extend(new);
        Ok(())
    }
}
