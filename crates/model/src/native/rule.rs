//! What attention computes in a block besides its products: which positions a row sees, scales, caps, and which table
//! rotates.

use crate::plan::Attention;
use draftscope_kernels::SEGMENT;

/// Differences between blocks of the same sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rule {
    /// Most positions that a row sees, its own included; `usize::MAX` = all.
    pub(crate) window: usize,
    /// `c` of c·tanh(score / c), if scores are capped.
    pub(crate) cap: Option<f32>,
    /// Factor of rotated queries, and so of scores.
    pub(crate) query_scale: f32,
    /// Index of the table of angles that queries and keys are rotated by; `None`: they are not.
    pub(crate) table: Option<usize>,
}

impl Rule {
    /// The usual one: scores are divided by √(width of a head), and a row sees all positions before it.
    pub(crate) fn usual(head_dim: usize) -> Self {
        Self { window: usize::MAX, cap: None, query_scale: 1.0 / (head_dim as f32).sqrt(), table: Some(0) }
    }

    /// That of a plan's attention.
    pub(crate) fn of(attention: &Attention) -> Self {
        let usual = Self::usual(attention.key_width);
        // the usual factor is a quotient in f32, which the rounded f64 need not be
        let is_usual = attention.scale == 1.0 / (attention.key_width as f64).sqrt();
        Self {
            window: attention.sight.window.unwrap_or(usize::MAX),
            cap: attention.cap.map(|cap| cap as f32),
            query_scale: if is_usual { usual.query_scale } else { attention.scale as f32 },
            table: attention.rotation.map(|rotation| rotation.table),
        }
    }

    /// Number of the first segment of the cache of which a row sees something; it is the last of `seen` positions.
    pub(crate) fn first_segment(self, seen: usize) -> usize {
        seen.saturating_sub(self.window) / SEGMENT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_before_a_window_are_left_out() {
        let all = Rule::usual(64);
        assert_eq!((all.first_segment(1), all.first_segment(9999), all.query_scale), (0, 0, 0.125));
        let near = Rule { window: 256, ..all };
        assert_eq!([1, 256, 511, 512, 513].map(|seen| near.first_segment(seen)), [0, 0, 0, 1, 1]);
        assert_eq!(Rule { window: 1, ..all }.first_segment(257), 1);
    }
}
