//! Tokens in events: id and bytes together, because a token may be a part of a UTF-8 character and a viewer has no
//! tokenizer. The reader joins such parts.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// First token id in a recording without texts. Such a recording numbers its tokens anew from here on; control tokens
/// keep their ids, which are smaller.
pub const FIRST_DIGESTED: TokenId = TokenId(1_000_000);

/// Index of a token in the target's vocabulary.
///
/// In JSON it is a number, or null for [`TokenId::UNKNOWN`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("maximum" = u32::MAX, "type" = ["integer", "null"])))]
#[serde(from = "Option<u32>", into = "Option<u32>")]
pub struct TokenId(pub u32);

impl From<Option<u32>> for TokenId {
    fn from(id: Option<u32>) -> Self {
        id.map_or(Self::UNKNOWN, Self)
    }
}

impl From<TokenId> for Option<u32> {
    fn from(id: TokenId) -> Self {
        (!id.is_unknown()).then_some(id.0)
    }
}

impl TokenId {
    /// A token of which the engine reports no id, such as a rejected draft of an attached engine. No vocabulary is so
    /// large that it is an id.
    pub const UNKNOWN: Self = Self(u32::MAX);

    /// Whether the engine did not report the id.
    #[must_use]
    pub const fn is_unknown(self) -> bool {
        self.0 == Self::UNKNOWN.0
    }

    /// The id as an index into a vocabulary-wide row.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_unknown() { f.pad("?") } else { self.0.fmt(f) }
    }
}

/// Bytes of a token. Few bytes, as nearly all tokens have, need no allocation: a recording has millions of tokens.
#[derive(Clone)]
pub struct TokenBytes(Stored);

/// Has the size of a vector.
#[derive(Clone)]
enum Stored {
    Short { len: u8, bytes: [u8; SHORT] },
    Long(Box<[u8]>),
}

/// Most bytes that fit without an allocation.
const SHORT: usize = 22;

impl TokenBytes {
    /// Removes the bytes.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Deref for TokenBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Stored::Short { len, bytes } => &bytes[..usize::from(*len)],
            Stored::Long(bytes) => bytes,
        }
    }
}

impl From<&[u8]> for TokenBytes {
    fn from(bytes: &[u8]) -> Self {
        let mut short = [0; SHORT];
        Self(match short.get_mut(..bytes.len()) {
            Some(place) => {
                place.copy_from_slice(bytes);
                Stored::Short { len: bytes.len() as u8, bytes: short }
            }
            None => Stored::Long(bytes.into()),
        })
    }
}

impl From<Vec<u8>> for TokenBytes {
    fn from(bytes: Vec<u8>) -> Self {
        bytes.as_slice().into()
    }
}

impl From<&str> for TokenBytes {
    fn from(text: &str) -> Self {
        text.as_bytes().into()
    }
}

impl From<String> for TokenBytes {
    fn from(text: String) -> Self {
        text.as_bytes().into()
    }
}

impl Default for TokenBytes {
    fn default() -> Self {
        Self(Stored::Short { len: 0, bytes: [0; SHORT] })
    }
}

impl PartialEq for TokenBytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for TokenBytes {}

impl Hash for TokenBytes {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (**self).hash(hasher);
    }
}

impl fmt::Debug for TokenBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// A token with the bytes it stands for.
///
/// In JSON the bytes are `"text"` when they are valid UTF-8 on their own, else `"bytes"`, a list
/// of numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(from = "Read")]
pub struct Piece {
    /// Vocabulary index.
    pub id: TokenId,
    /// The bytes that the token adds to the text, not necessarily valid UTF-8; for a special token its name.
    pub bytes: TokenBytes,
    /// A control token, such as the end of an answer: shown by name, never part of the text.
    pub special: bool,
}

impl Piece {
    /// A piece of text from an id and its bytes.
    #[must_use]
    pub fn new(id: TokenId, bytes: impl Into<TokenBytes>) -> Self {
        Self { id, bytes: bytes.into(), special: false }
    }

    /// A token that the engine did not report.
    #[must_use]
    pub fn unknown() -> Self {
        Self::new(TokenId::UNKNOWN, "")
    }

    /// Whether both are the same token: the same id or, where one of them is unknown, the same text.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match self.id.is_unknown() || other.id.is_unknown() {
            true => self.bytes == other.bytes && !self.bytes.is_empty(),
            false => self.id == other.id,
        }
    }

    /// A control token and its name.
    #[must_use]
    pub fn special(id: TokenId, name: &str) -> Self {
        Self { id, bytes: name.into(), special: true }
    }

    /// The bytes that the token adds to the text; none for a special token.
    #[must_use]
    pub fn text_bytes(&self) -> &[u8] {
        if self.special { &[] } else { &self.bytes }
    }

    /// The bytes as text, with U+FFFD for invalid UTF-8.
    #[must_use]
    pub fn lossy(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }
}

/// One alternative of a distribution, most probable first in any list of them.
///
/// In JSON it has the fields of its piece, and `"prob"`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Read")]
pub struct Candidate {
    /// The token.
    pub piece: Piece,
    /// Its probability, 0 to 1.
    pub prob: f32,
}

/// A piece or a candidate, for reading JSON. Most of a trace is candidates: reading a short token allocates nothing,
/// and the fields are not flattened, since serde would then read each of them twice.
#[derive(Deserialize)]
struct Read {
    id: TokenId,
    #[serde(default)]
    text: Option<Text>,
    #[serde(default)]
    bytes: Option<Vec<u8>>,
    #[serde(default)]
    special: bool,
    #[serde(default, deserialize_with = "finite")]
    prob: Option<f32>,
}

/// A finite number; none for one that is too large for an `f32`, since JSON could not store it again.
pub(super) fn finite<'de, D: Deserializer<'de>>(json: D) -> Result<Option<f32>, D::Error> {
    Ok(Option::<f32>::deserialize(json)?.filter(|number| number.is_finite()))
}

/// A required finite number.
pub(super) fn written<'de, D: Deserializer<'de>>(json: D) -> Result<f32, D::Error> {
    finite(json)?.ok_or_else(|| serde::de::Error::custom("a number too large for f32"))
}

/// A JSON string, as bytes.
struct Text(TokenBytes);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        struct Letters;
        impl Visitor<'_> for Letters {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E>(self, text: &str) -> Result<Text, E> {
                Ok(Text(text.into()))
            }
        }
        json.deserialize_str(Letters)
    }
}

impl From<Read> for Piece {
    fn from(json: Read) -> Self {
        let bytes = json.bytes.map(TokenBytes::from).or(json.text.map(|text| text.0));
        Self { id: json.id, bytes: bytes.unwrap_or_default(), special: json.special }
    }
}

impl TryFrom<Read> for Candidate {
    type Error = &'static str;

    fn try_from(json: Read) -> Result<Self, &'static str> {
        let prob = json.prob.ok_or("missing field `prob`")?;
        Ok(Self { piece: json.into(), prob })
    }
}

/// A piece or a candidate, for writing JSON.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Written<'a> {
    id: TokenId,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<&'a [u8]>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    special: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(transform = super::schema::probability))]
    prob: Option<f32>,
}

impl<'a> Written<'a> {
    fn of(piece: &'a Piece, prob: Option<f32>) -> Self {
        let text = std::str::from_utf8(&piece.bytes).ok();
        let bytes = text.is_none().then_some(&*piece.bytes);
        Self { id: piece.id, text, bytes, special: piece.special, prob }
    }
}

impl Serialize for Piece {
    fn serialize<S: Serializer>(&self, json: S) -> Result<S::Ok, S::Error> {
        Written::of(self, None).serialize(json)
    }
}

impl Serialize for Candidate {
    fn serialize<S: Serializer>(&self, json: S) -> Result<S::Ok, S::Error> {
        Written::of(&self.piece, Some(self.prob)).serialize(json)
    }
}

/// A model's prediction at one position: its best candidates and the total probability of all others.
///
/// Probabilities are those that the run samples from (after temperature, top-k, top-p, min-p). At temperature 0, where
/// the most probable token is taken, they are those at temperature 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Prediction {
    /// Most probable first.
    pub top: Vec<Candidate>,
    /// Probability outside `top`, 0 to 1.
    #[serde(deserialize_with = "written")]
    #[cfg_attr(test, schemars(transform = super::schema::probability))]
    pub tail: f32,
}

impl Prediction {
    /// The most probable candidate.
    #[must_use]
    pub fn best(&self) -> Option<&Candidate> {
        self.top.first()
    }

    /// Rank (0 = best) and probability of a token, if it is among the recorded candidates. A token of unknown id is none of
    /// them.
    #[must_use]
    pub fn find(&self, id: TokenId) -> Option<(usize, f32)> {
        if id.is_unknown() {
            return None;
        }
        self.top.iter().enumerate().find(|(_, c)| c.piece.id == id).map(|(rank, c)| (rank, c.prob))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complete_characters_are_text_and_partial_ones_bytes() {
        let whole = Piece::new(TokenId(5), "é".as_bytes());
        let half = Piece::new(TokenId(6), vec![0xc3]);
        assert_eq!(serde_json::to_string(&whole).unwrap(), r#"{"id":5,"text":"é"}"#);
        assert_eq!(serde_json::to_string(&half).unwrap(), r#"{"id":6,"bytes":[195]}"#);
        for piece in [whole, half] {
            let json = serde_json::to_string(&piece).unwrap();
            assert_eq!(serde_json::from_str::<Piece>(&json).unwrap(), piece);
        }
    }

    #[test]
    fn bytes_of_any_length_are_stored_compactly() {
        for len in [0, 1, SHORT - 1, SHORT, SHORT + 1, 1000] {
            let bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let kept = TokenBytes::from(bytes.clone());
            assert_eq!((&*kept, &kept), (bytes.as_slice(), &kept.clone()));
        }
        assert!(size_of::<TokenBytes>() <= size_of::<Vec<u8>>() && size_of::<Candidate>() <= 40);
    }

    #[test]
    fn find_gives_rank_and_probability() {
        let top = vec![
            Candidate { piece: Piece::new(TokenId(3), "a"), prob: 0.5 },
            Candidate { piece: Piece::new(TokenId(9), "b"), prob: 0.25 },
        ];
        let prediction = Prediction { top, tail: 0.25 };
        assert_eq!(prediction.find(TokenId(9)), Some((1, 0.25)));
        assert_eq!(prediction.find(TokenId(1)), None);
    }
}
