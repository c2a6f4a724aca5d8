//! Tokens as they travel: id and bytes together, because a token may be half a UTF-8 character and
//! a viewer has no tokenizer. Joining halves is the reader's work.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Index of a token in the target's vocabulary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TokenId(pub u32);

impl TokenId {
    /// The id as an index into a vocabulary-wide row.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A token with the bytes it stands for.
///
/// In JSON the bytes are `"text"` when they are valid UTF-8 on their own, else `"bytes"`, a list
/// of numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "PieceJson", into = "PieceJson")]
pub struct Piece {
    /// Vocabulary index.
    pub id: TokenId,
    /// What the token adds to the text; not necessarily valid UTF-8. For a special token its name.
    pub bytes: Vec<u8>,
    /// A control token, such as the end of an answer: shown by name, never part of the text.
    pub special: bool,
}

impl Piece {
    /// A piece of text from an id and its bytes.
    #[must_use]
    pub fn new(id: TokenId, bytes: impl Into<Vec<u8>>) -> Self {
        Self { id, bytes: bytes.into(), special: false }
    }

    /// A control token and its name.
    #[must_use]
    pub fn special(id: TokenId, name: &str) -> Self {
        Self { id, bytes: name.into(), special: true }
    }

    /// What the token adds to the text: nothing for a special one.
    #[must_use]
    pub fn text_bytes(&self) -> &[u8] {
        if self.special { &[] } else { &self.bytes }
    }

    /// The bytes as text, with U+FFFD for what is not UTF-8 by itself.
    #[must_use]
    pub fn lossy(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }
}

/// How a [`Piece`] looks in JSON.
#[derive(Serialize, Deserialize)]
struct PieceJson {
    id: TokenId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bytes: Option<Vec<u8>>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    special: bool,
}

impl From<PieceJson> for Piece {
    fn from(json: PieceJson) -> Self {
        let bytes = json.bytes.or_else(|| json.text.map(String::into_bytes));
        Self { id: json.id, bytes: bytes.unwrap_or_default(), special: json.special }
    }
}

impl From<Piece> for PieceJson {
    fn from(piece: Piece) -> Self {
        let (text, bytes) = match String::from_utf8(piece.bytes) {
            Ok(text) => (Some(text), None),
            Err(raw) => (None, Some(raw.into_bytes())),
        };
        Self { id: piece.id, text, bytes, special: piece.special }
    }
}

/// One alternative of a distribution, most probable first in any list of them.
///
/// In JSON the fields of its piece and `"prob"`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "CandidateJson", into = "CandidateJson")]
pub struct Candidate {
    /// The token.
    pub piece: Piece,
    /// Its probability, 0 to 1.
    pub prob: f32,
}

/// How a [`Candidate`] looks in JSON. Spelled out rather than flattened: most of a trace is
/// candidates, and flattening reads each of them twice.
#[derive(Serialize, Deserialize)]
struct CandidateJson {
    id: TokenId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bytes: Option<Vec<u8>>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    special: bool,
    prob: f32,
}

impl From<CandidateJson> for Candidate {
    fn from(json: CandidateJson) -> Self {
        let CandidateJson { id, text, bytes, special, prob } = json;
        Self { piece: PieceJson { id, text, bytes, special }.into(), prob }
    }
}

impl From<Candidate> for CandidateJson {
    fn from(candidate: Candidate) -> Self {
        let PieceJson { id, text, bytes, special } = candidate.piece.into();
        Self { id, text, bytes, special, prob: candidate.prob }
    }
}

/// What a model said about one position: its best candidates and the mass of all others.
///
/// Probabilities are those the run samples from (after temperature, top-k, top-p, min-p); at
/// temperature 0, where the largest is taken, those at temperature 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Most probable first.
    pub top: Vec<Candidate>,
    /// Probability outside `top`, 0 to 1.
    pub tail: f32,
}

impl Prediction {
    /// The most probable candidate.
    #[must_use]
    pub fn best(&self) -> Option<&Candidate> {
        self.top.first()
    }

    /// Rank (0 = best) and probability of a token, if it is among the candidates kept.
    #[must_use]
    pub fn find(&self, id: TokenId) -> Option<(usize, f32)> {
        self.top.iter().enumerate().find(|(_, c)| c.piece.id == id).map(|(rank, c)| (rank, c.prob))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_characters_are_text_and_halves_are_bytes() {
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
