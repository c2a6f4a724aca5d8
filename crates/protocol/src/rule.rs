//! The verification rules: which are lossless, and the limits of those that are not.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::settings_error::{SettingsError, within};
use super::token::TokenId;

named_enum! {
    /// How drafts are judged.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[cfg_attr(test, derive(schemars::JsonSchema))]
    #[serde(rename_all = "kebab-case")]
    pub enum VerifyRule {
        /// A draft must equal the token the target picks at its position.
        #[default]
        Exact = "exact",
        /// Speculative sampling: accept with probability min(1, p/q), else draw from max(0, p − q).
        Rejection = "rejection",
        /// Speculative sampling that judges the drafts of a round together.
        Block = "block",
        /// Not lossless: accept a draft that is typical for the target, p > min(ε, δ·e^(−entropy)).
        Typical = "typical",
        /// Not lossless: accept a draft among the target's most probable tokens.
        TopK = "top-k",
        /// Not lossless: accept a draft if p is at least a threshold.
        Threshold = "threshold",
        /// Not lossless: accept a draft unverified if q is at least a threshold.
        Confidence = "confidence",
    }
    from "verification rule"
}

impl VerifyRule {
    /// Whether the output follows the target's own distribution under this rule.
    #[must_use]
    pub const fn is_lossless(self) -> bool {
        match self {
            Self::Exact | Self::Rejection | Self::Block => true,
            Self::Typical | Self::TopK | Self::Threshold | Self::Confidence => false,
        }
    }

    /// `lossless` or `not lossless`: shown wherever the rule is named.
    #[must_use]
    pub const fn label(self) -> &'static str {
        if self.is_lossless() { "lossless" } else { "not lossless" }
    }

    /// The rule to compare this one with: `typical` for a lossless one, `exact` for the others.
    #[must_use]
    pub const fn counterpart(self) -> Self {
        if self.is_lossless() { Self::Typical } else { Self::Exact }
    }
}

impl fmt::Display for VerifyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Limits of the rules that are not lossless.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(transform = super::schema::has_defaults))]
#[serde(default)]
pub struct Leniency {
    /// ε of `typical`, 0 to 1: a draft with p > ε is accepted.
    pub epsilon: f32,
    /// δ of `typical`, 0 to 1: a draft with p > δ·e^(−entropy of p) is accepted, too.
    pub delta: f32,
    /// `top-k` accepts a draft among this many of the target's most probable tokens, 1 to 10.
    pub top_k: u8,
    /// `threshold` accepts a draft of at least this p, 0 to 1.
    pub threshold: f32,
    /// `confidence` accepts a draft of at least this q whatever its p is, 0 to 1.
    pub confidence: f32,
}

impl Default for Leniency {
    fn default() -> Self {
        Self { epsilon: 0.3, delta: 0.3, top_k: 3, threshold: 0.1, confidence: 0.6 }
    }
}

impl Leniency {
    /// Whether all values are the defaults.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// # Errors
    /// Names the first value outside its range.
    pub fn validate(&self) -> Result<(), SettingsError> {
        let share = |name, value: f32| within(name, value.into(), 0.0, 1.0);
        share("epsilon", self.epsilon)?;
        share("delta", self.delta)?;
        within("lenient top-k", self.top_k.into(), 1.0, 10.0)?;
        share("threshold", self.threshold)?;
        share("confidence", self.confidence)
    }
}

/// A departure: after the same tokens a lossless rule would have committed another token than this rule did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Departure {
    /// Index of the draft in its round.
    pub index: u8,
    /// The token that the target would have picked there.
    pub instead: TokenId,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_through_text_and_json() {
        for rule in VerifyRule::ALL {
            assert_eq!(rule.name().parse(), Ok(*rule));
            assert_eq!(serde_json::to_string(rule).unwrap(), format!("\"{rule}\""));
            assert_ne!(rule.is_lossless(), rule.counterpart().is_lossless());
        }
        let error = "exakt".parse::<VerifyRule>().unwrap_err().to_string();
        assert!(error.starts_with("there is no verification rule 'exakt'; there are: exact, rejection, block"));
    }

    #[test]
    fn limits_outside_their_range_are_named() {
        let leniency = Leniency { top_k: 11, ..Leniency::default() };
        assert_eq!(leniency.validate().unwrap_err().to_string(), "lenient top-k is 11; it must lie between 1 and 10");
        assert!(Leniency { epsilon: f32::NAN, ..Leniency::default() }.validate().is_err());
    }
}
