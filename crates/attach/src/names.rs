//! Texts of tokens, learned from what a server sent.

use std::collections::HashMap;

use draftscope_protocol::{Piece, TokenId};

/// Most tokens that are remembered: more than any vocabulary has.
const MAX_NAMES: usize = 1 << 20;

/// Ids and texts of tokens, in both directions.
#[derive(Clone, Debug, Default)]
pub struct Names {
    pieces: HashMap<TokenId, Piece>,
    ids: HashMap<Box<[u8]>, TokenId>,
}

impl Names {
    /// Remembers a token; one without an id or a text is left out.
    pub fn learn(&mut self, piece: &Piece) {
        if piece.id.is_unknown() || piece.bytes.is_empty() || self.pieces.len() >= MAX_NAMES {
            return;
        }
        self.pieces.entry(piece.id).or_insert_with(|| piece.clone());
        self.ids.entry((*piece.bytes).into()).or_insert(piece.id);
    }

    /// The token with this id, if its text is known.
    #[must_use]
    pub fn piece(&self, id: TokenId) -> Option<&Piece> {
        self.pieces.get(&id)
    }

    /// The token with this id, without text if that is not known.
    #[must_use]
    pub fn of(&self, id: TokenId) -> Piece {
        self.piece(id).cloned().unwrap_or_else(|| Piece::new(id, ""))
    }

    /// The id of a token with this text; [`TokenId::UNKNOWN`] if none was seen.
    #[must_use]
    pub fn id(&self, text: &[u8]) -> TokenId {
        self.ids.get(text).copied().unwrap_or(TokenId::UNKNOWN)
    }

    /// A token that adds no text: a control token, named after what is known of it.
    #[must_use]
    pub fn control(&self, id: TokenId) -> Piece {
        let name = self.piece(id).map_or_else(|| format!("<token {id}>"), |piece| piece.lossy().into_owned());
        Piece::special(id, &name)
    }

    /// The tokens with these ids, for a request that continues after them.
    ///
    /// # Errors
    /// A sentence if one of them is not known.
    pub fn all(&self, tokens: &[TokenId], server: &str) -> Result<Vec<Piece>, String> {
        match tokens.iter().any(|id| id.is_unknown()) {
            true => Err(format!("{server} did not report the id of a token before this place")),
            false => Ok(tokens.iter().map(|id| self.of(*id)).collect()),
        }
    }
}
