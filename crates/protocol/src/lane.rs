//! The lanes of a run: the speculative one, and those measured beside it.

use serde::{Deserialize, Serialize};

named_enum! {
    /// A decoder with its own caches and its own clock.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[cfg_attr(test, derive(schemars::JsonSchema))]
    #[serde(rename_all = "snake_case")]
    pub enum Lane {
        /// The run itself, with the user's settings.
        #[default]
        Speculative = "speculative",
        /// The same target with k = 0, measured beside it.
        Plain = "plain",
        /// The same target with the settings of [`Settings::rival`](super::Settings::rival), measured beside it.
        Rival = "rival",
    }
}

impl Lane {
    /// Its place in [`Lane::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether it is the main lane (the one left out in JSON).
    #[must_use]
    pub fn is_speculative(&self) -> bool {
        *self == Self::Speculative
    }
}
