//! Values of options: names, and numbers that may also be `auto`.

use std::fmt;
use std::path::PathBuf;

use clap::ValueEnum;
use clap::builder::{OsStringValueParser, TypedValueParser};
use draftscope_protocol::VocabMethod;
use serde::{Serialize, Serializer};

/// `--output`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputArg {
    /// Plain text, no escape codes
    Text,
    /// One JSON object
    Summary,
    /// The event stream, one JSON object a line
    Jsonl,
}

/// What a command with a report writes to standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReportArg {
    /// A report for people
    Text,
    /// One JSON object
    Summary,
}

/// `--trace-text`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TraceTextArg {
    /// Text as it is
    Full,
    /// Digests in place of text
    Digest,
}

/// `--draft-len`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DraftLenArg {
    /// The engine chooses, round by round.
    Auto,
    /// This many tokens.
    Fixed(u8),
}

impl DraftLenArg {
    /// The value without `-k`.
    pub const DEFAULT: Self = Self::Fixed(2);
}

impl fmt::Display for DraftLenArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::Fixed(draft_len) => f.pad(&draft_len.to_string()),
        }
    }
}

impl Serialize for DraftLenArg {
    /// A number, or `"auto"`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Fixed(draft_len) => serializer.serialize_u8(*draft_len),
        }
    }
}

pub(crate) fn parse_draft_len(text: &str) -> Result<DraftLenArg, String> {
    match text.parse::<u8>() {
        _ if text == "auto" => Ok(DraftLenArg::Auto),
        Ok(k @ 0..=15) => Ok(DraftLenArg::Fixed(k)),
        _ => Err("it must be auto or a number from 0 to 15".to_owned()),
    }
}

/// `auto`, or a draft length of at least 1.
pub(super) fn parse_drafting_len(text: &str) -> Result<DraftLenArg, String> {
    let parsed = parse_draft_len(text).ok().filter(|k| *k != DraftLenArg::Fixed(0));
    parsed.ok_or_else(|| "it must be auto or a number from 1 to 15".to_owned())
}

/// `--threads`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// As many as are fastest, measured at start.
    Auto,
    /// This many.
    Count(u16),
}

/// Name or path of a model: any text, UTF-8 or not. Empty text is accepted, because an environment variable may be
/// empty.
pub(super) fn model_name() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

/// `on` or `off`.
pub(super) fn parse_switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("it must be on or off".to_owned()),
    }
}

/// How a draft model with another tokenizer drafts; none for `auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VocabMethodArg(pub Option<VocabMethod>);

pub(super) fn parse_vocab_method(text: &str) -> Result<VocabMethodArg, String> {
    if text == "auto" {
        return Ok(VocabMethodArg(None));
    }
    let method = VocabMethod::ALL.iter().find(|method| method.name() == text);
    method
        .map(|method| VocabMethodArg(Some(*method)))
        .ok_or_else(|| "it must be auto, intersection or strings".to_owned())
}

pub(super) fn parse_threads(text: &str) -> Result<Threads, String> {
    match text.parse::<u16>() {
        _ if text == "auto" => Ok(Threads::Auto),
        Ok(count @ 1..=256) => Ok(Threads::Count(count)),
        _ => Err("it must be auto or a number from 1 to 256".to_owned()),
    }
}
