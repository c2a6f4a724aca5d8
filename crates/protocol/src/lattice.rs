//! The candidates among which a block drafter's selector chose a path: DFlash 2.

use serde::{Deserialize, Serialize};

use super::token::{Piece, TokenId};

/// Most candidates of a column.
pub const MOST_CANDIDATES: usize = 16;

/// The candidates of one position. The draft of that index is the chosen one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LatticeColumn {
    /// Index in the draft.
    pub index: u8,
    /// The best by the position's own logits, best first, at most 16; the draft is among them unless it was copied.
    #[cfg_attr(test, schemars(length(max = MOST_CANDIDATES)))]
    pub candidates: Vec<LatticeCandidate>,
}

/// A candidate of a position, with its probability among the position's candidates at temperature 1, before a grammar.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LatticeCandidate {
    /// The token.
    pub token: Piece,
    /// By the position's own logits: without the selector.
    #[cfg_attr(test, schemars(transform = super::schema::probability))]
    pub alone: f32,
    /// With the selector's scores after the token before.
    #[cfg_attr(test, schemars(transform = super::schema::probability))]
    pub after: f32,
}

/// Probabilities of logits at temperature 1.
fn softmax(logits: &[f32]) -> impl Iterator<Item = f32> {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f32 = logits.iter().map(|logit| (logit - most).exp()).sum();
    logits.iter().map(move |logit| (logit - most).exp() / sum)
}

impl LatticeColumn {
    /// The column of these tokens, best first, with their logits before and after the selector; tokens have no bytes yet.
    #[must_use]
    pub fn new(index: usize, tokens: &[TokenId], [alone, after]: [&[f32]; 2], chosen: Option<TokenId>) -> Self {
        let all = tokens.iter().zip(softmax(alone)).zip(softmax(after));
        let all = all.map(|((token, alone), after)| LatticeCandidate { token: Piece::new(*token, ""), alone, after });
        let mut candidates: Vec<_> = all.collect();
        let place = chosen.and_then(|token| tokens.iter().position(|other| *other == token));
        if let Some(place) = place.filter(|place| *place >= MOST_CANDIDATES) {
            candidates.swap(MOST_CANDIDATES - 1, place);
        }
        candidates.truncate(MOST_CANDIDATES);
        Self { index: u8::try_from(index).unwrap_or(u8::MAX), candidates }
    }

    /// The place of a token among the candidates.
    #[must_use]
    pub fn place(&self, token: TokenId) -> Option<usize> {
        self.candidates.iter().position(|candidate| candidate.token.id == token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_has_the_best_candidates_and_the_chosen_one() {
        let tokens: Vec<TokenId> = (0..40).map(TokenId).collect();
        let alone: Vec<f32> = (0..40).map(|i| -(i as f32)).collect();
        let after = vec![0.5; 40];
        let column = LatticeColumn::new(3, &tokens, [&alone, &after], Some(TokenId(30)));
        assert_eq!((column.index, column.candidates.len()), (3, MOST_CANDIDATES));
        assert_eq!(
            (column.place(TokenId(0)), column.place(TokenId(30)), column.place(TokenId(15))),
            (Some(0), Some(15), None)
        );
        assert!((column.candidates[0].alone - (1.0 - (-1f32).exp())).abs() < 1e-6);
        assert!(column.candidates.iter().all(|candidate| (candidate.after - 1.0 / 40.0).abs() < 1e-6));
        let two = LatticeColumn::new(300, &tokens[..2], [&[2.0, 2.0], &[f32::NEG_INFINITY, 1.0]], None);
        assert_eq!((two.index, two.candidates[0].alone, two.candidates[1].after), (u8::MAX, 0.5, 1.0));
        assert!(LatticeColumn::new(0, &[], [&[], &[]], None).candidates.is_empty());
    }
}
