//! Who drafts, and how. A new drafter is one row of [`drafters!`] here and one of the table in
//! `speculate::drafter`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::settings::{named, within};
use super::{MAX_DRAFT_LEN, MtpOverride, SettingsError};

/// Defines [`DrafterKind`] from one row per drafter: its documentation, its name, its line in the help and, where it
/// may be asked after another one that found nothing, that one.
macro_rules! drafters {
    ($($(#[$doc:meta])* $kind:ident = $name:literal, $help:literal $(, also after $first:ident = $first_name:literal)?;)+) => {
        /// Who proposes the draft tokens. All of them are lossless under a lossless rule: who drafts decides
        /// the speed, the rule decides the text.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        #[serde(try_from = "String", into = "&'static str")]
        pub enum DrafterKind {
            $($(#[$doc])* $kind,)+
            /// Several of them, in turn.
            Joined(&'static Joined),
            /// Nobody: plain decoding.
            None,
        }

        impl DrafterKind {
            /// Every kind, in the order help lists them.
            pub const ALL: &'static [Self] = &[
                $(Self::$kind,)+
                $($(Self::Joined(&Joined {
                    name: concat!($first_name, "+", $name),
                    chain: &[Self::$first, Self::$kind],
                }),)?)+
                Self::None,
            ];

            /// Name in flags, JSON and on screen; names of drafters in turn are joined by `+`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)+
                    Self::Joined(joined) => joined.name,
                    Self::None => "none",
                }
            }

            /// What it does, for the help.
            #[must_use]
            pub fn describe(self) -> Cow<'static, str> {
                match self {
                    $(Self::$kind => $help.into(),)+
                    Self::Joined(joined) => joined.describe().into(),
                    Self::None => "nobody: plain decoding".into(),
                }
            }

            /// The simple drafters that are asked, the first one first; the next is asked when one finds
            /// nothing.
            #[must_use]
            pub const fn chain(self) -> &'static [Self] {
                match self {
                    $(Self::$kind => &[Self::$kind],)+
                    Self::Joined(joined) => joined.chain,
                    Self::None => &[],
                }
            }
        }
    };
}

/// Drafters in turn: the next is asked when one finds nothing.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Joined {
    name: &'static str,
    chain: &'static [DrafterKind],
}

impl Joined {
    fn describe(&self) -> String {
        let names: Vec<_> = self.chain.iter().map(|kind| kind.name()).collect();
        let next = names.windows(2).map(|pair| format!("{} when {} finds nothing", pair[1], pair[0]));
        format!("{} first, {}", names[0], next.collect::<Vec<_>>().join(", "))
    }
}

drafters! {
    /// The multi-token-prediction module, or a stack of them.
    #[default]
    Mtp = "mtp", "the MTP module, or a stack of them, or an EAGLE-3 head, or an assistant",
        also after Ngram = "ngram";
    /// A second, smaller model with the same tokenizer and its own cache.
    DraftModel = "draft-model", "a second model: --draft-model", also after Ngram = "ngram";
    /// Prompt lookup: what followed the last n tokens when they last stood in the text.
    Ngram = "ngram", "prompt lookup: what followed the last tokens when they last stood in the text";
    /// The target's first layers with its final norm and head.
    EarlyExit = "early-exit", "the target's own first layers", also after Ngram = "ngram";
    /// Replays the plain answer, computed first: the ceiling on this machine.
    Oracle = "oracle", "replays the plain answer, computed first: the ceiling";
    /// Random tokens: the floor.
    Random = "random", "random tokens: the floor";
    /// The person types the draft.
    Human = "human", "you type the draft (in the terminal view)";
}

impl TryFrom<String> for DrafterKind {
    type Error = SettingsError;
    fn try_from(name: String) -> Result<Self, SettingsError> {
        name.parse()
    }
}

impl From<DrafterKind> for &'static str {
    fn from(kind: DrafterKind) -> Self {
        kind.name()
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

/// How a drafter picks from its distribution q.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum DraftPick {
    /// Drawn from q at the run's temperature; at temperature 0 the most probable.
    #[default]
    Sample,
    /// Always the most probable; the rules then count the drafter as certain.
    Argmax,
}

impl DraftPick {
    /// Both.
    pub const ALL: &'static [Self] = &[Self::Sample, Self::Argmax];

    /// Name in flags and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sample => "sample",
            Self::Argmax => "argmax",
        }
    }
}

impl FromStr for DraftPick {
    type Err = SettingsError;
    fn from_str(name: &str) -> Result<Self, SettingsError> {
        named(Self::ALL, name, |pick| pick.name(), "way to pick drafts")
    }
}

/// How drafters draft.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(transform = super::schema::has_defaults))]
#[serde(default)]
pub struct Drafting {
    /// How a drafter picks from q.
    pub pick: DraftPick,
    /// Drafting stops where the largest probability of q falls below this; 0 never stops, 0 to 1.
    pub p_min: f32,
    /// Shortest n-gram that is looked up, 1 to `ngram_max`.
    pub ngram_min: u8,
    /// Longest n-gram that is looked up, to 64.
    pub ngram_max: u8,
    /// Layers of the target that `early-exit` drafts with; 0 takes a third of them.
    pub exit_layers: u16,
    /// Nodes of a draft tree, 0 to [`MAX_DRAFT_LEN`]; none drafts a chain. In a tree k is its depth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<u8>,
    /// Conventions of the MTP module that are to be others than it was made for.
    #[serde(skip_serializing_if = "MtpOverride::is_default")]
    pub mtp: MtpOverride,
}

impl Default for Drafting {
    fn default() -> Self {
        Self {
            pick: DraftPick::Sample,
            p_min: 0.0,
            ngram_min: 2,
            ngram_max: 5,
            exit_layers: 0,
            tree: None,
            mtp: MtpOverride::default(),
        }
    }
}

impl Drafting {
    /// Whether nothing was changed.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// # Errors
    /// Names the first value outside its range.
    pub fn validate(&self) -> Result<(), SettingsError> {
        within("p-min", self.p_min.into(), 0.0, 1.0)?;
        within("ngram-max", self.ngram_max.into(), 1.0, 64.0)?;
        within("ngram-min", self.ngram_min.into(), 1.0, self.ngram_max.into())?;
        within("tree", self.tree.unwrap_or(0).into(), 0.0, MAX_DRAFT_LEN.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_through_text_and_json() {
        for kind in DrafterKind::ALL {
            assert_eq!(kind.name().parse(), Ok(*kind));
            assert_eq!(serde_json::to_string(kind).unwrap(), format!("\"{kind}\""));
            assert!(kind.chain().iter().all(|simple| simple.chain() == [*simple]));
            let joined = kind.chain().iter().map(|simple| simple.name()).collect::<Vec<_>>().join("+");
            assert!(joined == kind.name() || *kind == DrafterKind::None);
            assert_eq!(serde_json::from_str::<DrafterKind>(&format!("\"{kind}\"")).unwrap(), *kind);
        }
        for pick in DraftPick::ALL {
            assert_eq!(pick.name().parse(), Ok(*pick));
            assert_eq!(serde_json::to_string(pick).unwrap(), format!("\"{}\"", pick.name()));
        }
    }

    #[test]
    fn values_outside_their_range_are_named() {
        let drafting = Drafting { ngram_min: 6, ..Drafting::default() };
        assert_eq!(drafting.validate().unwrap_err().to_string(), "ngram-min is 6; it must lie between 1 and 5");
        assert!(Drafting { tree: Some(16), ..Drafting::default() }.validate().is_err());
        assert!(Drafting { tree: Some(0), ..Drafting::default() }.validate().is_ok());
        assert!(Drafting { p_min: f32::NAN, ..Drafting::default() }.validate().is_err());
    }
}
