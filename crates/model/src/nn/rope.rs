//! Rotary positions: the angles by which the pairs of a head turn, and the ways to extend a context.
//!
//! Invariant: all backends rotate by the angles computed here, `position · frequency(i)`, and multiply cosines and
//! sines by [`RopeSpec::amplitude`]. [`PairOrder`] says which values of a head form a pair; each backend has its own
//! layout of the tables.

/// Which two values of a head form a rotated pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairOrder {
    /// 0 with 1, 2 with 3 …: the order of GGUF's llama files.
    Interleaved,
    /// 0 with d/2, 1 with d/2 + 1 …: the order of Hugging Face checkpoints, and of GGUF's other files.
    HalfSplit,
}

/// How positions become angles.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeSpec {
    /// Base of the frequencies.
    pub theta: f64,
    /// How they are scaled for longer contexts.
    pub scaling: RopeScaling,
}

/// Scaling of the frequencies for contexts longer than in the first training.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum RopeScaling {
    /// None.
    #[default]
    Plain,
    /// Positions are divided by a factor (Chen et al., arXiv:2306.15595).
    Linear(f64),
    /// Long waves are stretched, short ones kept, those between interpolated: Llama 3.1.
    Llama3 {
        /// Factor by which long waves are stretched.
        factor: f64,
        /// Waves longer than the original context over this are long.
        low: f64,
        /// Waves shorter than the original context over this are short.
        high: f64,
        /// Context of the first training.
        original: f64,
    },
    /// The same by number of turns instead of wave lengths, with sharper attention (Peng et al., arXiv:2309.00071).
    Yarn {
        /// Factor by which slow pairs are stretched.
        factor: f64,
        /// Context of the first training.
        original: f64,
        /// Pairs that turn more often than this in it are kept.
        fast: f64,
        /// Pairs that turn less often than this in it are stretched.
        slow: f64,
        /// Factor of cosines and sines.
        amplitude: f64,
    },
    /// Every frequency is divided by its own factor: `rope_freqs` of GGUF files.
    Factors(Vec<f32>),
    /// The same with factors that depend on the length of the context (LongRoPE, Ding et al., arXiv:2402.13753). They are chosen
    /// once, so that a position's bits do not depend on how far a text has come.
    ByContext {
        /// Those of a context that is no longer than `original`.
        short: Vec<f32>,
        /// Those of a longer one.
        long: Vec<f32>,
        /// Context of the first training.
        original: usize,
        /// Factor of cosines and sines, whatever the context.
        amplitude: f64,
    },
}

impl RopeSpec {
    /// Frequencies without scaling (Su et al., arXiv:2104.09864).
    #[must_use]
    pub fn plain(theta: f64) -> Self {
        Self { theta, scaling: RopeScaling::Plain }
    }

    /// One frequency per pair of a head of `head_dim` values, radians per position, in a context of so many positions.
    #[must_use]
    pub fn frequencies(&self, head_dim: usize, context: usize) -> Vec<f64> {
        (0..head_dim / 2).map(|pair| self.frequency(pair, head_dim, context)).collect()
    }

    /// `theta^(−2 pair / head_dim)`, scaled.
    fn frequency(&self, pair: usize, head_dim: usize, context: usize) -> f64 {
        let plain = self.theta.powf(-2.0 * pair as f64 / head_dim as f64);
        let over = |factors: &[f32]| plain / factors.get(pair).map_or(1.0, |&factor| f64::from(factor));
        match &self.scaling {
            RopeScaling::Plain => plain,
            RopeScaling::Linear(factor) => plain / factor,
            RopeScaling::Factors(factors) => over(factors),
            RopeScaling::ByContext { short, long, original, .. } => {
                over(if context > *original { long } else { short })
            }
            &RopeScaling::Llama3 { factor, low, high, original } => {
                let turns = original * plain / std::f64::consts::TAU; // of this pair in the original context
                let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                plain * (kept + (1.0 - kept) / factor)
            }
            &RopeScaling::Yarn { factor, original, fast, slow, .. } => {
                // the pair with that many turns in the original context
                let pair_of = |turns: f64| {
                    head_dim as f64 * (original / (turns * std::f64::consts::TAU)).ln() / (2.0 * self.theta.ln())
                };
                let first = pair_of(fast).floor().max(0.0);
                let last = pair_of(slow).ceil().min(head_dim as f64 - 1.0);
                let stretched = ((pair as f64 - first) / (last - first).max(0.001)).clamp(0.0, 1.0);
                plain * (1.0 - stretched + stretched / factor)
            }
        }
    }

    /// Factor of cosines and sines: more than 1 makes attention sharper.
    #[must_use]
    pub fn amplitude(&self) -> f64 {
        match self.scaling {
            RopeScaling::Yarn { amplitude, .. } | RopeScaling::ByContext { amplitude, .. } => amplitude,
            _ => 1.0,
        }
    }
}

/// YaRN's amplitude if a file states none: `0.1 ln(factor) + 1`.
#[must_use]
pub fn yarn_amplitude(factor: f64) -> f64 {
    if factor > 1.0 { 0.1 * factor.ln() + 1.0 } else { 1.0 }
}

/// `0.1 · scale · ln(factor) + 1`: YaRN's amplitude with a weight, as in DeepSeek.
#[must_use]
pub fn scaled_amplitude(factor: f64, scale: f64) -> f64 {
    if factor > 1.0 { 0.1 * scale * factor.ln() + 1.0 } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn llama3_keeps_short_waves_and_stretches_long_ones() {
        // values of transformers' `_compute_llama3_parameters` for Llama 3.1 (theta 5e5, head 128)
        let scaling = RopeScaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, original: 8192.0 };
        let scaled = RopeSpec { theta: 5e5, scaling }.frequencies(128, 64);
        let plain = RopeSpec::plain(5e5).frequencies(128, 64);
        assert_eq!(scaled[..28], plain[..28]);
        assert!(plain[36..].iter().zip(&scaled[36..]).all(|(p, s)| (p / 8.0 - s).abs() < 1e-15));
        assert!(scaled[30] < plain[30] && scaled[30] > plain[30] / 8.0);
    }

    #[test]
    fn the_length_of_the_context_chooses_factors() {
        let scaling =
            RopeScaling::ByContext { short: vec![2.0; 4], long: vec![4.0; 4], original: 100, amplitude: 1.19 };
        let (rope, plain) = (RopeSpec { theta: 1e4, scaling }, RopeSpec::plain(1e4).frequencies(8, 100));
        let over = |factor: f64| plain.iter().map(|frequency| frequency / factor).collect::<Vec<_>>();
        assert_eq!((rope.frequencies(8, 100), rope.frequencies(8, 101)), (over(2.0), over(4.0)));
        assert_eq!(rope.amplitude(), 1.19);
    }

    #[test]
    fn yarn_of_factor_one_changes_nothing() {
        let yarn = |factor| RopeSpec {
            theta: 1e6,
            scaling: RopeScaling::Yarn {
                factor,
                original: 32768.0,
                fast: 32.0,
                slow: 1.0,
                amplitude: yarn_amplitude(factor),
            },
        };
        assert_eq!(yarn(1.0).frequencies(128, 64), RopeSpec::plain(1e6).frequencies(128, 64));
        assert_eq!(yarn(1.0).amplitude(), 1.0);
        let (four, plain) = (yarn(4.0), RopeSpec::plain(1e6).frequencies(128, 64));
        assert_eq!(four.frequencies(128, 64)[0], plain[0]);
        assert_eq!(four.frequencies(128, 64)[63], plain[63] / 4.0);
        assert!((four.amplitude() - 1.138_629_436).abs() < 1e-9);
    }
}
