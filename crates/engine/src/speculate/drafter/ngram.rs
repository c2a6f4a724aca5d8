//! Prompt lookup: drafts what followed the last n tokens where they last occurred in the text, prompt and answer
//! included (Saxena, "Prompt Lookup Decoding", 2023).
//!
//! It searches the committed tokens once, backwards. It has no state to catch up or roll back.

use super::{DraftCtx, Drafter};
use draftscope_model::ModelError;
use draftscope_protocol::verify::Draft;
use draftscope_protocol::{Copied, TokenId};

/// Looks up the longest n-gram within the configured bounds, the latest of equally long ones.
pub struct NgramDrafter;

impl Drafter for NgramDrafter {
    fn fork(&self) -> Result<Box<dyn Drafter>, ModelError> {
        Ok(Box::new(Self))
    }

    fn draft(&mut self, ctx: &mut DraftCtx<'_>) -> Result<(), ModelError> {
        let (min, max) = (ctx.drafting.ngram_min.into(), ctx.drafting.ngram_max.into());
        let forced: Vec<TokenId> = ctx.drafts().iter().map(|draft| draft.token).collect();
        let found = if forced.is_empty() {
            find(ctx.committed, min, max)
        } else {
            find(&[ctx.committed, &forced].concat(), min, max)
        };
        let Some((mut from, len)) = found else {
            return Ok(());
        };
        let before = forced.len();
        while ctx.left() > 0 {
            // a repetition shorter than the draft continues within the draft itself
            let token = match ctx.committed.get(from) {
                Some(token) => *token,
                None => ctx.drafts()[from - ctx.committed.len()].token,
            };
            let index = ctx.drafts().len();
            let copied = Copied { from: from as u32, len: (len + index - before) as u32, chance: None };
            if !ctx.propose(Draft::copy(token, copied)) {
                break;
            }
            from += 1;
            // the copy goes on after tokens that the grammar forces only if it has them, too
            for forced in index + 1..ctx.drafts().len() {
                let token =
                    ctx.committed.get(from).copied().unwrap_or_else(|| ctx.drafts()[from - ctx.committed.len()].token);
                if token != ctx.drafts()[forced].token {
                    return Ok(());
                }
                from += 1;
            }
        }
        Ok(())
    }
}

/// Index after the latest earlier occurrence of the text's longest suffix of `min` to `max` tokens, and its length.
fn find(tokens: &[TokenId], min: usize, max: usize) -> Option<(usize, usize)> {
    let mut best = (0, None);
    for end in (1..tokens.len()).rev() {
        let equal = tokens[..end].iter().rev().zip(tokens.iter().rev()).take(max).take_while(|(a, b)| a == b).count();
        if equal > best.0 && equal >= min {
            best = (equal, Some(end));
            if equal == max {
                break;
            }
        }
    }
    best.1.map(|end| (end, best.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, min: usize, max: usize) -> Option<usize> {
        find(&text.bytes().map(|b| TokenId(b.into())).collect::<Vec<_>>(), min, max).map(|(end, _)| end)
    }

    #[test]
    fn the_longest_and_then_the_latest_match_wins() {
        assert_eq!(found("abcXabcYab", 2, 5), Some(6));
        assert_eq!(found("zabcXYabQzabc", 2, 5), Some(4));
        assert_eq!(found("abcd", 1, 3), None);
        assert_eq!(found("a b", 2, 3), None);
        assert_eq!(found("", 1, 3), None);
        assert_eq!(found("xx", 1, 1), Some(1));
        assert_eq!(found("ababab", 2, 4), Some(4));
    }
}
