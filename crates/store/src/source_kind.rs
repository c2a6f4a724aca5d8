//! Where a file comes from.

use std::fmt::{self, Display};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The kinds of places a model comes from, in the order in which they are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceKind {
    /// The Hugging Face Hub.
    Hub,
    /// A Python package, through pip.
    Pip,
}

impl Display for SourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hub => "hub",
            Self::Pip => "pip",
        })
    }
}

impl FromStr for SourceKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "hub" => Ok(Self::Hub),
            "pip" => Ok(Self::Pip),
            _ => Err(format!("no source '{text}'; it is hub or pip")),
        }
    }
}
