//! One chunk of llama-server's `/completion` stream.

use serde::Deserialize;

use crate::lenient::{count, field, number, text};

/// A chunk: one token, or the end. Fields that a server leaves out have their defaults.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Chunk {
    /// Text that the token adds; empty for a control token.
    #[serde(deserialize_with = "text")]
    pub content: String,
    /// Its id: one element, or none in the last chunk.
    #[serde(deserialize_with = "field")]
    pub tokens: Vec<u32>,
    /// Whether the answer ended.
    #[serde(deserialize_with = "field")]
    pub stop: bool,
    /// Why: `eos`, `limit` or `word`.
    #[serde(deserialize_with = "field")]
    pub stop_type: String,
    /// Counts and times so far, in the request.
    #[serde(deserialize_with = "field")]
    pub timings: Option<Timings>,
    /// The settings of the request, in the last chunk.
    #[serde(deserialize_with = "field")]
    pub generation_settings: Option<GenerationSettings>,
}

/// `timings` of a chunk. The counts of drafts are cumulative, and all chunks of a step have the same.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Timings {
    /// Tokens of the prompt found in the cache.
    #[serde(deserialize_with = "count")]
    pub cache_n: u64,
    /// Milliseconds for the prompt.
    #[serde(deserialize_with = "number")]
    pub prompt_ms: f64,
    /// Tokens of the answer so far.
    #[serde(deserialize_with = "count")]
    pub predicted_n: u64,
    /// Milliseconds since the first token.
    #[serde(deserialize_with = "number")]
    pub predicted_ms: f64,
    /// Drafted tokens so far.
    #[serde(deserialize_with = "count")]
    pub draft_n: u64,
    /// Accepted ones so far.
    #[serde(deserialize_with = "count")]
    pub draft_n_accepted: u64,
}

/// The settings of a request that matter here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct GenerationSettings {
    /// The drafters, separated by commas; `none` without one.
    #[serde(rename = "speculative.types", deserialize_with = "field")]
    pub drafters: String,
}
