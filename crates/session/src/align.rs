//! Aligns two answers token by token, also after their first difference.
//!
//! Invariant: every token of both is in exactly one pair, in order. Up to the first difference, and at it, both tokens
//! of a pair have the same index; after it the texts are aligned by their longest common subsequence (Myers, 1986), so
//! that text that is the same again is found. The distributions of both are comparable only up to the first difference.

use similar::{Algorithm, DiffOp, capture_diff_slices};

use draftscope_protocol::TokenId;

/// Tokens after the first difference, of both answers together, that are aligned; more are paired by index, because the
/// search takes time quadratic in the number of differences.
const MAX_ALIGNED: usize = 8_000;

/// Two tokens in the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Index in the first answer; `None` if only the second has a token here.
    pub a: Option<usize>,
    /// Index in the second.
    pub b: Option<usize>,
    /// Whether both are the same token.
    pub is_same: bool,
}

/// Aligns two answers.
#[must_use]
pub fn align(a: &[TokenId], b: &[TokenId]) -> Vec<Pair> {
    let same = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let mut pairs: Vec<Pair> = (0..same).map(|i| Pair { a: Some(i), b: Some(i), is_same: true }).collect();
    let parts = usize::from(same < a.len() && same < b.len());
    pairs.extend(beside((same, parts), (same, parts), |_| false));
    let same = same + parts;
    let (rest_a, rest_b) = (&a[same..], &b[same..]);
    if rest_a.len() + rest_b.len() > MAX_ALIGNED {
        pairs.extend(beside((same, a.len() - same), (same, b.len() - same), |i| a[i] == b[i]));
        return pairs;
    }
    for op in capture_diff_slices(Algorithm::Myers, rest_a, rest_b) {
        pairs.extend(match op {
            DiffOp::Equal { old_index, new_index, len } => {
                beside((same + old_index, len), (same + new_index, len), |_| true)
            }
            DiffOp::Delete { old_index, old_len, new_index } => {
                beside((same + old_index, old_len), (same + new_index, 0), |_| false)
            }
            DiffOp::Insert { old_index, new_index, new_len } => {
                beside((same + old_index, 0), (same + new_index, new_len), |_| false)
            }
            DiffOp::Replace { old_index, old_len, new_index, new_len } => {
                beside((same + old_index, old_len), (same + new_index, new_len), |_| false)
            }
        });
    }
    pairs
}

/// Aligns two runs of tokens, each given by start and length.
fn beside(a: (usize, usize), b: (usize, usize), is_same: impl Fn(usize) -> bool) -> Vec<Pair> {
    let at = |(start, len): (usize, usize), i: usize| (i < len).then_some(start + i);
    let pair = |i| {
        let (a, b) = (at(a, i), at(b, i));
        Pair { a, b, is_same: a.is_some() && b.is_some() && a.is_some_and(&is_same) }
    };
    (0..a.1.max(b.1)).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ids(text: &str) -> Vec<TokenId> {
        text.bytes().map(|b| TokenId(b.into())).collect()
    }

    fn drawn(a: &str, b: &str) -> String {
        let sign = |text: &str, at: Option<usize>| at.map_or('_', |i| char::from(text.as_bytes()[i]));
        let pair = |p: &Pair| format!("{}{}{}", sign(a, p.a), if p.is_same { '=' } else { '!' }, sign(b, p.b));
        align(&ids(a), &ids(b)).iter().map(pair).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn texts_that_meet_again_stand_beside_each_other() {
        assert_eq!(drawn("abcd", "abcd"), "a=a b=b c=c d=d");
        assert_eq!(drawn("abcdef", "abXYdef"), "a=a b=b c!X _!Y d=d e=e f=f");
        assert_eq!(drawn("abcd", "aXbcd"), "a=a b!X _!b c=c d=d", "where they part stands what both took");
        assert_eq!(drawn("ab", "abc"), "a=a b=b _!c");
        assert_eq!(drawn("", ""), "");
    }

    #[test]
    fn very_long_differences_are_paired_by_index() {
        let (a, b) = (vec![TokenId(1); 9000], vec![TokenId(2); 8000]);
        let pairs = align(&a, &b);
        assert_eq!((pairs.len(), pairs[8000]), (9000, Pair { a: Some(8000), b: None, is_same: false }));
    }

    proptest! {
        #[test]
        fn every_token_stands_once_in_order(a in "[abc]{0,40}", b in "[abc]{0,40}") {
            let pairs = align(&ids(&a), &ids(&b));
            let side = |pick: fn(&Pair) -> Option<usize>| pairs.iter().filter_map(pick).collect::<Vec<_>>();
            prop_assert_eq!(side(|p| p.a), (0..a.len()).collect::<Vec<_>>());
            prop_assert_eq!(side(|p| p.b), (0..b.len()).collect::<Vec<_>>());
            let says = |p: &Pair| match (p.a, p.b) {
                (Some(i), Some(j)) => (a.as_bytes()[i] == b.as_bytes()[j]) == p.is_same || !p.is_same,
                _ => !p.is_same,
            };
            prop_assert!(pairs.iter().all(says));
        }
    }
}
