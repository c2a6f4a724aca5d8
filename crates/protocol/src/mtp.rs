//! The conventions of draft modules that read hidden states.
//!
//! A wrong convention does not fail: verification keeps the text right, and only the acceptance falls. So every module
//! names its conventions when it is loaded, and each can be overridden to see its effect. Invariant: an [`MtpSpec`]
//! says how a module is run, an [`MtpOverride`] which conventions the user changed.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::settings_error::{SettingsError, named};

named_enum! {
    /// Which of the target's hidden states a settled slot reads.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[cfg_attr(test, derive(schemars::JsonSchema))]
    #[serde(rename_all = "kebab-case")]
    pub enum Feed {
        /// The state after the final norm.
        #[default]
        PostNorm = "post-norm",
        /// The residual stream before the final norm.
        PreNorm = "pre-norm",
        /// The residual streams after several layers, concatenated: EAGLE-3.
        Layers = "layers",
    }
    from "hidden state to feed a module with"
}

named_enum! {
    /// Which of the module's own states replaces the target's from depth 2 on.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[cfg_attr(test, derive(schemars::JsonSchema))]
    #[serde(rename_all = "kebab-case")]
    pub enum Recycle {
        /// The state after the module's last norm.
        #[default]
        PostNorm = "post-norm",
        /// The residual stream before that norm.
        PreNorm = "pre-norm",
    }
    from "hidden state to recycle"
}

named_enum! {
    /// The order of the two halves of the projection's input.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[cfg_attr(test, derive(schemars::JsonSchema))]
    #[serde(rename_all = "kebab-case")]
    pub enum ConcatOrder {
        /// `[embedding ; hidden]`
        #[default]
        EmbeddingFirst = "embedding-first",
        /// `[hidden ; embedding]`
        HiddenFirst = "hidden-first",
    }
    from "order of a module's input"
}

named_enum! {
    /// Which token slot p combines with the state of position p.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[cfg_attr(test, derive(schemars::JsonSchema))]
    #[serde(rename_all = "kebab-case")]
    pub enum Pairing {
        /// The token of position p + 1, which the state predicted.
        #[default]
        Next = "next",
        /// The token of position p.
        Own = "own",
    }
    from "pairing of states and tokens"
}

named_enum! {
    /// Rotary position of slot p.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[cfg_attr(test, derive(schemars::JsonSchema))]
    #[serde(rename_all = "kebab-case")]
    pub enum SlotPosition {
        /// p
        #[default]
        Own = "own",
        /// p + 1, the token's position. It gives the same result, since rotary attention depends only on differences.
        Next = "next",
        /// The position of the state that predicted the anchor, for every draft of a round.
        Constant = "constant",
        /// The anchor's position, for every draft of a round.
        ConstantNext = "constant-next",
    }
    from "position of a slot"
}

named_enum! {
    /// Special treatment of the first slot.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[cfg_attr(test, derive(schemars::JsonSchema))]
    #[serde(rename_all = "kebab-case")]
    pub enum SlotZero {
        /// None.
        #[default]
        Plain = "plain",
        /// One more slot before it, with a zero state and the first token: llama.cpp.
        Extra = "extra",
        /// Its embedding is zero: vLLM, for some families.
        Zeroed = "zeroed",
    }
    from "treatment of slot 0"
}

named_enum! {
    /// Meaning of the stored weights of the module's norms.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[cfg_attr(test, derive(schemars::JsonSchema))]
    #[serde(rename_all = "kebab-case")]
    pub enum NormForm {
        /// The factor w.
        #[default]
        Weight = "weight",
        /// Zero-centred: the factor is 1 + w.
        OnePlus = "one-plus",
    }
    from "form of norm weights"
}

/// How a module is run. The default is that of DeepSeek-V3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MtpSpec {
    /// The target's state that a slot reads.
    pub feed: Feed,
    /// The module's own state that a slot reads from depth 2 on.
    pub recycle: Recycle,
    /// Order of the projection's input.
    pub order: ConcatOrder,
    /// Which token a slot combines with which state.
    pub pairing: Pairing,
    /// Rotary position of a slot.
    pub position: SlotPosition,
    /// Treatment of the first slot.
    pub slot0: SlotZero,
    /// Meaning of the norms' weights.
    pub norm: NormForm,
}

impl MtpSpec {
    /// Rotary position of a slot minus its index in the module's cache: 0 or 1.
    #[must_use]
    pub fn ahead(&self) -> usize {
        // after an extra slot 0 every index is already one larger
        let is_next = matches!(self.position, SlotPosition::Next | SlotPosition::ConstantNext);
        usize::from(is_next && self.slot0 != SlotZero::Extra)
    }

    /// Whether all drafts of a round have the same position.
    #[must_use]
    pub fn holds_position(&self) -> bool {
        matches!(self.position, SlotPosition::Constant | SlotPosition::ConstantNext)
    }
}

/// Conventions that the user sets differently from those that a module was made for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct MtpOverride {
    /// See [`MtpSpec::feed`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feed: Option<Feed>,
    /// See [`MtpSpec::recycle`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recycle: Option<Recycle>,
    /// See [`MtpSpec::order`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<ConcatOrder>,
    /// See [`MtpSpec::pairing`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pairing: Option<Pairing>,
    /// See [`MtpSpec::position`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<SlotPosition>,
    /// See [`MtpSpec::slot0`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot0: Option<SlotZero>,
    /// See [`MtpSpec::norm`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub norm: Option<NormForm>,
}

/// The conventions, to list them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Convention {
    /// [`MtpSpec::feed`]
    Feed,
    /// [`MtpSpec::recycle`]
    Recycle,
    /// [`MtpSpec::order`]
    Order,
    /// [`MtpSpec::pairing`]
    Pairing,
    /// [`MtpSpec::position`]
    Position,
    /// [`MtpSpec::slot0`]
    SlotZero,
    /// [`MtpSpec::norm`]
    Norm,
}

impl Convention {
    /// Every convention.
    pub const ALL: &'static [Self] =
        &[Self::Feed, Self::Recycle, Self::Order, Self::Pairing, Self::Position, Self::SlotZero, Self::Norm];

    /// Key in flags and JSON.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Feed => "feed",
            Self::Recycle => "recycle",
            Self::Order => "order",
            Self::Pairing => "pairing",
            Self::Position => "position",
            Self::SlotZero => "slot0",
            Self::Norm => "norm",
        }
    }

    /// Names of the values that a user can set.
    #[must_use]
    pub const fn names(self) -> &'static [&'static str] {
        match self {
            // the layers that a module reads are fixed by its weights
            Self::Feed => &["post-norm", "pre-norm"],
            Self::Recycle => Recycle::NAMES,
            Self::Order => ConcatOrder::NAMES,
            Self::Pairing => Pairing::NAMES,
            Self::Position => SlotPosition::NAMES,
            Self::SlotZero => SlotZero::NAMES,
            Self::Norm => NormForm::NAMES,
        }
    }
}

impl MtpOverride {
    /// Whether nothing is overridden.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The conventions in force for a module that was made for `spec`. The layers that an EAGLE-3 head reads cannot be
    /// overridden.
    #[must_use]
    pub fn apply(&self, spec: MtpSpec) -> MtpSpec {
        let feed = if spec.feed == Feed::Layers { None } else { self.feed };
        MtpSpec {
            feed: feed.unwrap_or(spec.feed),
            recycle: self.recycle.unwrap_or(spec.recycle),
            order: self.order.unwrap_or(spec.order),
            pairing: self.pairing.unwrap_or(spec.pairing),
            position: self.position.unwrap_or(spec.position),
            slot0: self.slot0.unwrap_or(spec.slot0),
            norm: self.norm.unwrap_or(spec.norm),
        }
    }

    /// Name of the value that overrides a convention; none uses the module's own.
    #[must_use]
    pub fn get(&self, convention: Convention) -> Option<&'static str> {
        match convention {
            Convention::Feed => self.feed.map(Feed::name),
            Convention::Recycle => self.recycle.map(Recycle::name),
            Convention::Order => self.order.map(ConcatOrder::name),
            Convention::Pairing => self.pairing.map(Pairing::name),
            Convention::Position => self.position.map(SlotPosition::name),
            Convention::SlotZero => self.slot0.map(SlotZero::name),
            Convention::Norm => self.norm.map(NormForm::name),
        }
    }

    /// Overrides a convention with a value by its name; none uses the module's own.
    ///
    /// # Errors
    /// [`SettingsError::UnknownName`] when no value of the convention has this name.
    pub fn set(&mut self, convention: Convention, name: Option<&str>) -> Result<(), SettingsError> {
        match convention {
            Convention::Feed => {
                let name = name.map(|name| named(Convention::Feed.names(), name, |name| name, "hidden state to feed"));
                self.feed = name.transpose()?.map(str::parse).transpose()?;
            }
            Convention::Recycle => self.recycle = name.map(str::parse).transpose()?,
            Convention::Order => self.order = name.map(str::parse).transpose()?,
            Convention::Pairing => self.pairing = name.map(str::parse).transpose()?,
            Convention::Position => self.position = name.map(str::parse).transpose()?,
            Convention::SlotZero => self.slot0 = name.map(str::parse).transpose()?,
            Convention::Norm => self.norm = name.map(str::parse).transpose()?,
        }
        Ok(())
    }
}

impl fmt::Display for MtpOverride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = Convention::ALL.iter().filter_map(|c| Some(format!("{}={}", c.key(), self.get(*c)?)));
        f.write_str(&named.collect::<Vec<_>>().join(","))
    }
}

impl FromStr for MtpOverride {
    type Err = SettingsError;

    /// `feed=pre-norm,order=hidden-first`
    fn from_str(text: &str) -> Result<Self, SettingsError> {
        let mut wanted = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (key, name) = part.split_once('=').unwrap_or((part, ""));
            let convention = named(Convention::ALL, key, Convention::key, "MTP convention")?;
            wanted.set(convention, Some(name))?;
        }
        Ok(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_can_be_set_by_name_and_round_trips() {
        for convention in Convention::ALL {
            for name in convention.names() {
                let text = format!("{}={name}", convention.key());
                let wanted: MtpOverride = text.parse().unwrap();
                assert_eq!((wanted.get(*convention), wanted.to_string()), (Some(*name), text));
                let json = serde_json::to_value(wanted).unwrap();
                assert_eq!(json, serde_json::json!({convention.key(): name}));
                assert_eq!(serde_json::from_value::<MtpOverride>(json).unwrap(), wanted);
                let spec = serde_json::to_value(wanted.apply(MtpSpec::default())).unwrap();
                assert_eq!(spec[convention.key()], *name);
            }
        }
        let both: MtpOverride = "feed=pre-norm,norm=one-plus".parse().unwrap();
        assert_eq!((both.feed, both.norm, both.order), (Some(Feed::PreNorm), Some(NormForm::OnePlus), None));
    }

    #[test]
    fn the_error_for_an_unknown_name_lists_the_valid_names() {
        let error = |text: &str| text.parse::<MtpOverride>().unwrap_err().to_string();
        assert!(error("fed=pre-norm").contains("feed, recycle, order"), "{}", error("fed=pre-norm"));
        assert!(error("order=x").contains("embedding-first, hidden-first"));
        assert!(error("feed=layers").contains("post-norm, pre-norm"));
        assert!(error("norm").contains("weight, one-plus"));
    }

    #[test]
    fn the_layers_that_a_head_reads_cannot_be_overridden() {
        let own = MtpSpec { feed: Feed::Layers, ..MtpSpec::default() };
        let wanted = MtpOverride { feed: Some(Feed::PreNorm), ..MtpOverride::default() };
        assert_eq!(wanted.apply(own).feed, Feed::Layers);
    }
}
