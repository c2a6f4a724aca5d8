//! The settings of a run, and the range of each.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::drafting::{DraftPick, DrafterKind, Drafting};
use super::lane::Lane;
use super::rule::{Leniency, VerifyRule};
use super::settings_error::{MAX_DRAFT_LEN, SettingsError, within};

/// Time of the speculative lane for each unit of time of a sampled plain lane ([`Baseline::Probe`]).
pub const PROBE_WEIGHT: u32 = 4;

/// The same once a probe has its tokens: one plain pass in some ten rounds still meets every slow stretch of the machine,
/// and takes a thirteenth of the time.
pub const SPARSE_WEIGHT: u32 = 12;

/// How a token is picked from the target's distribution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(transform = super::schema::has_defaults))]
#[serde(default)]
pub struct Sampling {
    /// 0 takes the most probable token; above 0, logits are divided by it before sampling.
    #[cfg_attr(test, schemars(range(min = 0)))]
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

/// Smallest temperature above 0.
pub const LEAST_TEMPERATURE: f64 = 1e-3;

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

    /// Whether no token is cut off.
    #[must_use]
    pub fn keeps_all(&self) -> bool {
        self.top_k == 0 && self.top_p >= 1.0 && self.min_p <= 0.0
    }

    /// # Errors
    /// Names the first value outside its range.
    pub fn validate(&self) -> Result<(), SettingsError> {
        within("temperature", self.temperature.into(), 0.0, 100.0)?;
        if self.temperature > 0.0 {
            // with a smaller T, logits ÷ T could overflow
            within("a temperature above 0", self.temperature.into(), LEAST_TEMPERATURE, 100.0)?;
        }
        within("top-p", self.top_p.into(), 0.0, 1.0)?;
        within("min-p", self.min_p.into(), 0.0, 1.0)
    }
}

/// How plain decoding is measured beside the speculative run, with the same engine and prompt.
///
/// Each lane has its own clock of measured compute time, and the lane with the lowest clock runs next; a
/// probe's clock counts several times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Baseline {
    /// Not measured: no speedup can be shown.
    Off,
    /// The plain lane runs beside the whole turn, so that both lanes see the same machine: one part in
    /// [`PROBE_WEIGHT`] + 1 of the time until it has committed this many tokens, and one in [`SPARSE_WEIGHT`] + 1 from
    /// there on.
    Probe(u32),
    /// The plain lane writes its whole answer.
    Race,
}

impl Baseline {
    /// A sample with enough tokens for a stable figure.
    pub const PROBE: Self = Self::Probe(64);

    /// How many times a round of the plain lane counts on its clock, when it has committed so many tokens: the lane with
    /// the lowest clock runs next.
    #[must_use]
    pub const fn weight(self, tokens: u32) -> u32 {
        match self {
            Self::Off | Self::Race => 1,
            Self::Probe(dense) if tokens < dense => PROBE_WEIGHT,
            Self::Probe(_) => SPARSE_WEIGHT,
        }
    }
}

/// Whether the user or the engine chooses k.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DraftLenMode {
    /// The user: k stays as set.
    #[default]
    Fixed,
    /// The engine: it chooses the k, plain decoding included, with the most expected tokens per second.
    Auto,
}

/// Settings of a rival lane that answers the same prompt beside the run, with its own caches and clock. All other
/// settings are the run's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Rival {
    /// k, 0 to [`MAX_DRAFT_LEN`].
    pub draft_len: u8,
    /// The drafter. A rival asks no person: with `human` it drafts nothing.
    pub drafter: DrafterKind,
    /// How drafts are judged.
    pub rule: VerifyRule,
    /// Temperature; the rest of the sampling is the run's.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub temperature: f32,
}

impl Rival {
    /// A rival with the run's own settings.
    #[must_use]
    pub const fn like(settings: &Settings) -> Self {
        Self {
            draft_len: settings.draft_len,
            drafter: settings.drafter,
            rule: settings.rule,
            temperature: settings.sampling.temperature,
        }
    }

    /// Names of the settings that a rival has of its own.
    const NAMES: [&'static str; 4] = ["k", "drafter", "rule", "temperature"];

    /// Reads the settings that differ from the run's, for example `k=4,rule=rejection`. Empty text changes nothing.
    ///
    /// # Errors
    /// Names the first unknown setting or the first value outside its range.
    pub fn parse(text: &str, run: &Settings) -> Result<Self, SettingsError> {
        let mut rival = Self::like(run);
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let (name, value) = (name.trim(), value.trim());
            match name {
                "k" => rival.draft_len = number("the rival's k", value)?,
                "drafter" => rival.drafter = value.parse()?,
                "rule" => rival.rule = value.parse()?,
                "temperature" => rival.temperature = number("the rival's temperature", value)?,
                _ => {
                    let known = Self::NAMES.map(|name| format!("{name}=…")).join(", ");
                    return Err(SettingsError::UnknownName {
                        what: "setting of a rival",
                        name: part.to_owned(),
                        known,
                    });
                }
            }
        }
        if rival.drafter == DrafterKind::Human {
            return Err(SettingsError::NotHere {
                what: "the rival's drafter",
                value: "human",
                why: "a rival asks no person for drafts",
            });
        }
        rival.settings(run).validate()?;
        Ok(rival)
    }

    /// All settings of the rival's lane.
    #[must_use]
    pub const fn settings(&self, run: &Settings) -> Settings {
        Settings {
            draft_len: self.draft_len,
            draft_len_mode: DraftLenMode::Fixed,
            probe_depth: 0,
            drafter: self.drafter,
            rule: self.rule,
            sampling: Sampling { temperature: self.temperature, ..run.sampling },
            rival: None,
            ..*run
        }
    }
}

/// Everything that can change between rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Settings {
    /// k: most drafts of a round, 0 (plain) to [`MAX_DRAFT_LEN`]. If the engine chooses k, its last choice.
    pub draft_len: u8,
    /// Whether the user or the engine chooses k.
    #[serde(default)]
    #[cfg_attr(test, schemars(transform = super::schema::added_later))]
    pub draft_len_mode: DraftLenMode,
    /// Above 0 this is a probe run: every round is plain, and the drafter's chain of this depth is recorded at each
    /// position without verifying it, so that every k can be computed from the recording.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub probe_depth: u8,
    /// Most threads that passes run on, to see what scarce compute does; 0 for all that were loaded.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub threads: u16,
    /// The drafter.
    pub drafter: DrafterKind,
    /// How it drafts.
    #[serde(default, skip_serializing_if = "Drafting::is_default")]
    pub drafting: Drafting,
    /// How drafts are judged.
    pub rule: VerifyRule,
    /// Limits of the rules that are not lossless.
    #[serde(default, skip_serializing_if = "Leniency::is_default")]
    pub leniency: Leniency,
    /// How the target picks.
    pub sampling: Sampling,
    /// Longest answer, in tokens.
    pub max_tokens: u32,
    /// How plain decoding is measured.
    pub baseline: Baseline,
    /// Settings of the rival lane; none runs no rival.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rival: Option<Rival>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            draft_len: 3,
            draft_len_mode: DraftLenMode::Fixed,
            probe_depth: 0,
            threads: 0,
            drafter: DrafterKind::DEFAULT,
            drafting: Drafting::default(),
            rule: VerifyRule::default(),
            leniency: Leniency::default(),
            sampling: Sampling::default(),
            max_tokens: 512,
            baseline: Baseline::PROBE,
            rival: None,
        }
    }
}

impl Settings {
    /// Whether the shape of a draft depends on the drafted tokens: in a tree, if the engine chooses k, and if copies are
    /// stacked on another drafter.
    #[must_use]
    pub fn shapes_drafts(&self) -> bool {
        self.drafting.tree.is_some() || self.draft_len_mode == DraftLenMode::Auto || self.drafter.stacks_copies()
    }

    /// Whether drafts are drawn and the rule divides by the probability q that they were drawn with.
    #[must_use]
    pub fn divides_by_q(&self) -> bool {
        let is_drawn = !self.sampling.is_greedy() && self.drafting.pick == DraftPick::Sample;
        is_drawn && matches!(self.rule, VerifyRule::Rejection | VerifyRule::Block)
    }

    /// Whether rounds under both can share figures: everything that shapes a round is the same. Where the engine chooses
    /// k, its choices are.
    #[must_use]
    pub fn makes_rounds_like(&self, other: &Self) -> bool {
        let chooses = self.draft_len_mode == DraftLenMode::Auto;
        let draft_len = if chooses { other.draft_len } else { self.draft_len };
        let same = Self { draft_len, max_tokens: other.max_tokens, baseline: other.baseline, ..*self };
        Self { rival: other.rival, ..same } == *other
    }

    /// k as requested: a number, or `auto`.
    #[must_use]
    pub fn asked_draft_len(&self) -> String {
        match self.draft_len_mode {
            DraftLenMode::Fixed => self.draft_len.to_string(),
            DraftLenMode::Auto => "auto".to_owned(),
        }
    }

    /// The settings of a lane.
    #[must_use]
    pub fn of_lane(&self, lane: Lane) -> Self {
        match (lane, self.rival) {
            (Lane::Rival, Some(rival)) => rival.settings(self),
            (Lane::Plain, _) => Self { draft_len: 0, draft_len_mode: DraftLenMode::Fixed, probe_depth: 0, ..*self },
            _ => *self,
        }
    }

    /// # Errors
    /// Names the first value outside its range.
    pub fn validate(&self) -> Result<(), SettingsError> {
        within("draft length k", self.draft_len.into(), 0.0, MAX_DRAFT_LEN.into())?;
        within("probe depth", self.probe_depth.into(), 0.0, MAX_DRAFT_LEN.into())?;
        within("max-tokens", self.max_tokens.into(), 1.0, 1e6)?;
        self.drafting.validate()?;
        self.leniency.validate()?;
        self.sampling.validate()?;
        self.rival.map_or(Ok(()), |rival| rival.settings(self).validate())
    }
}

fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

fn number<T: FromStr>(name: &'static str, value: &str) -> Result<T, SettingsError> {
    value.parse().map_err(|_| SettingsError::NoNumber { name, value: value.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_an_older_writer_have_a_fixed_k() {
        let old = r#"{"draft_len":2,"drafter":"mtp","rule":"exact","sampling":{"temperature":0.0},"max_tokens":9,"baseline":"off"}"#;
        let read: Settings = serde_json::from_str(old).unwrap();
        assert_eq!((read.draft_len, read.draft_len_mode, read.probe_depth), (2, DraftLenMode::Fixed, 0));
        let auto = Settings { draft_len_mode: DraftLenMode::Auto, probe_depth: 4, ..read };
        let json = serde_json::to_string(&auto).unwrap();
        assert!(json.contains(r#""draft_len_mode":"auto""#), "{json}");
        assert_eq!(serde_json::from_str::<Settings>(&json).unwrap(), auto);
    }

    #[test]
    fn a_rival_is_parsed_from_the_settings_that_differ() {
        let run = Settings { draft_len: 2, ..Settings::default() };
        let parse = |text| Rival::parse(text, &run);
        assert_eq!(parse("").unwrap(), Rival::like(&run));
        let other = parse(" k=4, rule=rejection ,drafter=ngram+mtp,temperature=0.7").unwrap();
        let drafter = "ngram+mtp".parse().unwrap();
        assert_eq!(other, Rival { draft_len: 4, drafter, rule: VerifyRule::Rejection, temperature: 0.7 });
        for (text, why) in [
            ("k", "the rival's k is ''; it must be a number"),
            ("k=16", "draft length k is 16; it must lie between 0 and 15"),
            ("temperature=NaN", "temperature is NaN; it must lie"),
            ("temperature=1e-39", "a temperature above 0 is "),
            ("rule=best", "there is no verification rule 'best'"),
            ("seed=4", "there is no setting of a rival 'seed=4'; there are: k=…, drafter=…, rule=…, temperature=…"),
            ("drafter=human", "the rival's drafter cannot be human: a rival asks no person for drafts"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_rule_divides_by_q_where_drafts_are_drawn() {
        let drawn = Sampling { temperature: 1.0, ..Sampling::default() };
        let of = |rule, sampling| Settings { rule, sampling, ..Settings::default() };
        for rule in VerifyRule::ALL {
            let divides = [VerifyRule::Rejection, VerifyRule::Block].contains(rule);
            assert_eq!(of(*rule, drawn).divides_by_q(), divides, "{rule}");
            assert!(!of(*rule, Sampling::default()).divides_by_q(), "{rule}");
            let drafting = Drafting { pick: DraftPick::Argmax, ..Drafting::default() };
            assert!(!Settings { drafting, ..of(*rule, drawn) }.divides_by_q(), "the most probable draft is certain");
        }
    }

    #[test]
    fn values_outside_their_range_are_named() {
        let settings = Settings { draft_len: 16, ..Settings::default() };
        assert_eq!(settings.validate().unwrap_err().to_string(), "draft length k is 16; it must lie between 0 and 15");
        let sampling = Sampling { top_p: f32::NAN, ..Sampling::default() };
        assert!(sampling.validate().is_err());
        assert!(Settings::default().validate().is_ok());
    }

    #[test]
    fn settings_of_older_traces_are_read() {
        let old = r#"{"draft_len":2,"drafter":"mtp","rule":"exact","sampling":{},"max_tokens":64,"baseline":"off"}"#;
        let settings: Settings = serde_json::from_str(old).unwrap();
        assert_eq!((settings.drafting, settings.leniency), (Drafting::default(), Leniency::default()));
        let json = serde_json::to_string(&Settings::default()).unwrap();
        assert!(!json.contains("leniency") && !json.contains("drafting"), "{json}");
    }
}
