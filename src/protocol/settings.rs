//! What a run can be set to, and the limits of each setting.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Longest draft a round may carry. Verification runs one row more.
pub const MAX_DRAFT_LEN: u8 = 15;

/// Time that the speculative lane gets for each unit of a probe's.
pub const PROBE_WEIGHT: u32 = 4;

/// How a token is picked from the target's distribution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sampling {
    /// 0 takes the most probable token; above, logits are divided by it first.
    pub temperature: f32,
    /// Keep the `top_k` most probable tokens; 0 keeps all.
    pub top_k: u32,
    /// Keep the smallest set whose probabilities add up to `top_p`; 1 keeps all.
    pub top_p: f32,
    /// Keep tokens of at least `min_p` times the best one's probability; 0 keeps all.
    pub min_p: f32,
    /// Seed of every draw of the run.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: 0 }
    }
}

impl Sampling {
    /// Whether the most probable token is always taken.
    #[must_use]
    pub fn is_greedy(&self) -> bool {
        self.temperature <= 0.0
    }

    /// # Errors
    /// Names the first value outside its range.
    pub fn validate(&self) -> Result<(), SettingsError> {
        let check = |name, value: f32, low, high| {
            if value.is_finite() && (low..=high).contains(&value) {
                Ok(())
            } else {
                Err(SettingsError::OutOfRange {
                    name,
                    value: f64::from(value),
                    low: f64::from(low),
                    high: f64::from(high),
                })
            }
        };
        check("temperature", self.temperature, 0.0, 100.0)?;
        check("top-p", self.top_p, 0.0, 1.0)?;
        check("min-p", self.min_p, 0.0, 1.0)
    }
}

/// How drafts are judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VerifyRule {
    /// A draft must equal the token the target picks at its position.
    #[default]
    Exact,
    /// Speculative sampling: accept with probability min(1, p/q), else draw from max(0, p − q).
    Rejection,
}

impl VerifyRule {
    /// Every rule, in the order help lists them.
    pub const ALL: &'static [Self] = &[Self::Exact, Self::Rejection];

    /// Name in flags, JSON and on screen.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Rejection => "rejection",
        }
    }

    /// Whether the output follows the target's own distribution under this rule.
    #[must_use]
    pub const fn is_lossless(self) -> bool {
        match self {
            Self::Exact | Self::Rejection => true,
        }
    }
}

impl fmt::Display for VerifyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for VerifyRule {
    type Err = SettingsError;
    fn from_str(name: &str) -> Result<Self, SettingsError> {
        named(Self::ALL, name, |rule| rule.name(), "verification rule")
    }
}

/// Who proposes the draft tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DrafterKind {
    /// The multi-token-prediction module.
    #[default]
    Mtp,
    /// Nobody: plain decoding.
    None,
}

impl DrafterKind {
    /// Every kind, in the order help lists them.
    pub const ALL: &'static [Self] = &[Self::Mtp, Self::None];

    /// Name in flags, JSON and on screen.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mtp => "mtp",
            Self::None => "none",
        }
    }
}

impl fmt::Display for DrafterKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DrafterKind {
    type Err = SettingsError;
    fn from_str(name: &str) -> Result<Self, SettingsError> {
        named(Self::ALL, name, |kind| kind.name(), "drafter")
    }
}

/// How plain decoding is measured beside the speculative run, on the same engine and prompt.
///
/// Each lane has its own clock of measured compute time and the lane that is behind runs next; a
/// probe's clock counts [`PROBE_WEIGHT`]-fold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Baseline {
    /// Not at all: no speedup can be shown.
    Off,
    /// The plain lane runs one part in [`PROBE_WEIGHT`] + 1 of the time, spread over the turn so that
    /// both lanes see the same machine, until it has committed this many tokens.
    Probe(u32),
    /// The plain lane writes its whole answer.
    Race,
}

impl Baseline {
    /// A probe of enough tokens for a steady figure.
    pub const PROBE: Self = Self::Probe(64);
}

/// Everything that can change between rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// k: draft tokens per round, 0 (plain) to [`MAX_DRAFT_LEN`].
    pub draft_len: u8,
    /// Who drafts.
    pub drafter: DrafterKind,
    /// How drafts are judged.
    pub rule: VerifyRule,
    /// How the target picks.
    pub sampling: Sampling,
    /// Longest answer, in tokens.
    pub max_tokens: u32,
    /// How plain decoding is measured.
    pub baseline: Baseline,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            draft_len: 3,
            drafter: DrafterKind::default(),
            rule: VerifyRule::default(),
            sampling: Sampling::default(),
            max_tokens: 512,
            baseline: Baseline::PROBE,
        }
    }
}

impl Settings {
    /// # Errors
    /// Names the first value outside its range.
    pub fn validate(&self) -> Result<(), SettingsError> {
        let range = |name, value: u32, low: u32, high: u32| {
            if (low..=high).contains(&value) {
                Ok(())
            } else {
                Err(SettingsError::OutOfRange { name, value: value.into(), low: low.into(), high: high.into() })
            }
        };
        range("draft length k", self.draft_len.into(), 0, MAX_DRAFT_LEN.into())?;
        range("max-tokens", self.max_tokens, 1, 1_000_000)?;
        self.sampling.validate()
    }
}

/// A setting that cannot be taken.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SettingsError {
    /// A number outside its range.
    #[error("{name} is {value}; it must lie between {low} and {high}")]
    OutOfRange {
        /// The setting.
        name: &'static str,
        /// What was asked.
        value: f64,
        /// Smallest value allowed.
        low: f64,
        /// Largest value allowed.
        high: f64,
    },
    /// A name that is not on the list.
    #[error("there is no {what} '{name}'; there are: {known}")]
    UnknownName {
        /// What kind of name was looked up.
        what: &'static str,
        /// What was asked.
        name: String,
        /// The names there are.
        known: String,
    },
}

/// Looks a name up in a closed list.
fn named<T: Copy>(
    all: &[T],
    name: &str,
    name_of: impl Fn(T) -> &'static str,
    what: &'static str,
) -> Result<T, SettingsError> {
    all.iter().copied().find(|item| name_of(*item) == name).ok_or_else(|| SettingsError::UnknownName {
        what,
        name: name.to_owned(),
        known: all.iter().map(|item| name_of(*item)).collect::<Vec<_>>().join(", "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_through_text_and_json() {
        for rule in VerifyRule::ALL {
            assert_eq!(rule.name().parse(), Ok(*rule));
            assert_eq!(serde_json::to_string(rule).unwrap(), format!("\"{rule}\""));
        }
        for kind in DrafterKind::ALL {
            assert_eq!(kind.name().parse(), Ok(*kind));
            assert_eq!(serde_json::to_string(kind).unwrap(), format!("\"{kind}\""));
        }
        let error = "exakt".parse::<VerifyRule>().unwrap_err().to_string();
        assert_eq!(error, "there is no verification rule 'exakt'; there are: exact, rejection");
    }

    #[test]
    fn values_outside_their_range_are_named() {
        let settings = Settings { draft_len: 16, ..Settings::default() };
        assert_eq!(settings.validate().unwrap_err().to_string(), "draft length k is 16; it must lie between 0 and 15");
        let sampling = Sampling { top_p: f32::NAN, ..Sampling::default() };
        assert!(sampling.validate().is_err());
        assert!(Settings::default().validate().is_ok());
    }
}
