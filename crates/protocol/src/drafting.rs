//! The drafters and their settings. A new drafter is one row of [`drafters!`] here and one row of the table in
//! `speculate::drafter`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::mtp::MtpOverride;
use super::settings_error::{MAX_DRAFT_LEN, SettingsError, named, within};

/// Defines [`DrafterKind`] from one row per drafter: its documentation, its name, its line in the help and, optionally,
/// others that it can be joined with: `ngram`, which is tried first, and `suffix`, which is weighed against it.
macro_rules! drafters {
    ($($(#[$doc:meta])* $kind:ident = $name:literal, $help:literal $(, also after $($first:ident = $first_name:literal),+)?;)+) => {
        /// The drafter, which proposes the draft tokens. It affects only the speed if the rule is lossless; the rule
        /// decides the text.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        #[serde(try_from = "String", into = "&'static str")]
        pub enum DrafterKind {
            $($(#[$doc])* $kind,)+
            /// Two drafters: in turn, or weighed against each other in each round.
            Joined(&'static Joined),
            /// No drafter: plain decoding.
            None,
            /// A drafter that an attached engine does not name.
            Unknown,
        }

        impl DrafterKind {
            /// Drafts if the user chooses no drafter: the draft module, and copies where they promise more. Lessons and
            /// `explain` are about the module and choose `mtp`.
            pub const DEFAULT: Self =
                Self::Joined(&Joined { name: "suffix+mtp", chain: &[Self::Suffix, Self::Mtp] });

            /// Every kind, in the order help lists them.
            pub const ALL: &'static [Self] = &[
                $(Self::$kind,)+
                $($($(Self::Joined(&Joined {
                    name: concat!($first_name, "+", $name),
                    chain: &[Self::$first, Self::$kind],
                }),)+)?)+
                Self::None,
            ];

            /// Name in flags, JSON and on screen; names of two drafters are joined by `+`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)+
                    Self::Joined(joined) => joined.name,
                    Self::None => "none",
                    Self::Unknown => UNKNOWN,
                }
            }

            /// What it does, for the help.
            #[must_use]
            pub fn describe(self) -> Cow<'static, str> {
                match self {
                    $(Self::$kind => $help.into(),)+
                    Self::Joined(joined) => joined.describe().into(),
                    Self::None => "no drafter: plain decoding".into(),
                    Self::Unknown => "a drafter that the server does not name".into(),
                }
            }

            /// The simple drafters in order.
            #[must_use]
            pub const fn chain(self) -> &'static [Self] {
                match self {
                    $(Self::$kind => &[Self::$kind],)+
                    Self::Joined(joined) => joined.chain,
                    Self::None | Self::Unknown => &[],
                }
            }

            /// Whether it replays the plain answer, which is computed for it first.
            #[must_use]
            pub const fn replays_plain(self) -> bool {
                matches!(self, Self::Oracle | Self::Dial)
            }

            /// Whether copies of the text are weighed against the drafts of another drafter in each round, and may
            /// follow them: `suffix+…`. k then limits the other drafter's drafts.
            #[must_use]
            pub const fn stacks_copies(self) -> bool {
                matches!(self.chain(), [Self::Suffix, _, ..])
            }
        }
    };
}

/// Name in files of a drafter that is not known. It cannot be asked for.
const UNKNOWN: &str = "unknown";

/// Two drafters. After `ngram` the second is tried if it found nothing; `suffix` is weighed against the second.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Joined {
    name: &'static str,
    chain: &'static [DrafterKind],
}

impl Joined {
    fn describe(&self) -> String {
        let names: Vec<_> = self.chain.iter().map(|kind| kind.name()).collect();
        if let [DrafterKind::Suffix, other] = self.chain {
            return format!("copies of the text and drafts of {other}: what promises more, or both in one draft");
        }
        let next = names.windows(2).map(|pair| format!("if {} finds nothing, {}", pair[0], pair[1]));
        format!("{}; {}", names[0], next.collect::<Vec<_>>().join("; "))
    }
}

drafters! {
    /// A draft module that reads the target's hidden states: MTP, a stack of MTP modules, EAGLE-3, a block drafter, or
    /// an assistant.
    Mtp = "mtp", "the draft module: MTP, a stack of MTP modules, an EAGLE-3 head, a block drafter, or an assistant",
        also after Ngram = "ngram", Suffix = "suffix";
    /// A second, smaller model with the same tokenizer and its own cache.
    DraftModel = "draft-model", "a second model: --draft-model", also after Ngram = "ngram", Suffix = "suffix";
    /// Prompt lookup: what followed the last n tokens where they last occurred in the text.
    Ngram = "ngram", "prompt lookup: what followed the last tokens where they last occurred in the text";
    /// Copies what followed the longest end of the text that occurred before.
    Suffix = "suffix", "copies what followed the longest end of the text that occurred before";
    /// The target's first layers with its final norm and head.
    EarlyExit = "early-exit", "the target's own first layers", also after Ngram = "ngram", Suffix = "suffix";
    /// Replays the plain answer, computed first: the upper limit of any drafter.
    Oracle = "oracle", "replays the plain answer, computed first: the upper limit";
    /// The plain answer with a share of its tokens spoilt: acceptance is what one sets, see [`Drafting::dial`].
    Dial = "dial", "the plain answer with tokens spoilt, to be accepted as often as --dial says";
    /// Random tokens: the lower limit.
    Random = "random", "random tokens: the lower limit";
    /// The person types the draft.
    Human = "human", "you type the draft (in the terminal view)";
}

impl TryFrom<String> for DrafterKind {
    type Error = SettingsError;
    fn try_from(name: String) -> Result<Self, SettingsError> {
        if name == UNKNOWN { Ok(Self::Unknown) } else { name.parse() }
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

/// Where a draft was copied from.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Copied {
    /// Position in the context (prompt and answer, from 0) of the token that was copied. Beyond the round's anchor it is a
    /// draft of the same round.
    pub from: u32,
    /// Tokens before it that equal the end of text and drafts.
    pub len: u32,
    /// Predicted chance that the target accepts it if it accepts the drafts before it, 0 to 1; none if that was not
    /// estimated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(transform = super::schema::probability))]
    pub chance: Option<f32>,
}

named_enum! {
    /// How a drafter picks from its distribution q.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[cfg_attr(test, derive(schemars::JsonSchema))]
    #[serde(rename_all = "kebab-case")]
    pub enum DraftPick {
        /// Drawn from q at the run's temperature; at temperature 0 the most probable.
        #[default]
        Sample = "sample",
        /// Always the most probable; the rules then count the drafter as certain.
        Argmax = "argmax",
    }
    from "way of picking drafts"
}

/// How drafters draft.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(transform = super::schema::has_defaults))]
#[serde(default)]
pub struct Drafting {
    /// How a drafter picks from q.
    pub pick: DraftPick,
    /// A draft ends before a token if the largest probability of q is below this; 0 to 1, 0 never ends it.
    pub p_min: f32,
    /// Shortest n-gram that is looked up, 1 to `ngram_max`.
    pub ngram_min: u8,
    /// Longest n-gram that is looked up, 1 to 64.
    pub ngram_max: u8,
    /// Layers of the target that `early-exit` drafts with; 0 takes a third of them.
    pub exit_layers: u16,
    /// Chance that a draft of `dial` is the token of the plain answer, 0 to 1, at each position alike: under the rule
    /// `exact` the target accepts so many of the drafts that it judges.
    pub dial: f32,
    /// Nodes of a draft tree, 0 to [`MAX_DRAFT_LEN`]; none drafts a chain. In a tree k is the depth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<u8>,
    /// Conventions of the draft module that differ from those it was made for.
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
            dial: 0.8,
            tree: None,
            mtp: MtpOverride::default(),
        }
    }
}

impl Drafting {
    /// Whether all values are the defaults.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// # Errors
    /// Names the first value outside its range.
    pub fn validate(&self) -> Result<(), SettingsError> {
        within("p-min", self.p_min.into(), 0.0, 1.0)?;
        within("dial", self.dial.into(), 0.0, 1.0)?;
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
            assert_eq!(kind.stacks_copies(), kind.name().starts_with("suffix+"));
            assert_eq!(serde_json::from_str::<DrafterKind>(&format!("\"{kind}\"")).unwrap(), *kind);
        }
        assert!(DrafterKind::ALL.contains(&DrafterKind::DEFAULT));
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
        assert!(Drafting { dial: 1.01, ..Drafting::default() }.validate().is_err());
    }
}
