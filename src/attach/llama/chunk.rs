//! One chunk of llama-server's `/completion` stream.

use serde::Deserialize;

/// A chunk: one token, or the end. Fields that a server leaves out have their defaults.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Chunk {
    /// Text that the token adds; empty for a control token.
    pub content: String,
    /// Its id: one element, or none in the last chunk.
    pub tokens: Vec<u32>,
    /// Whether the answer ended.
    pub stop: bool,
    /// Why: `eos`, `limit` or `word`.
    pub stop_type: String,
    /// Counts and times so far, in the request.
    pub timings: Option<Timings>,
    /// The settings of the request, in the last chunk.
    pub generation_settings: Option<GenerationSettings>,
    /// An error that ended the stream.
    pub error: Option<ServerError>,
}

/// `timings` of a chunk. The counts of drafts are cumulative, and all chunks of a step have the same.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Timings {
    /// Tokens of the prompt found in the cache.
    pub cache_n: u64,
    /// Milliseconds for the prompt.
    pub prompt_ms: f64,
    /// Tokens of the answer so far.
    pub predicted_n: u64,
    /// Milliseconds since the first token.
    pub predicted_ms: f64,
    /// Drafted tokens so far.
    pub draft_n: u64,
    /// Accepted ones so far.
    pub draft_n_accepted: u64,
}

/// The settings of a request that matter here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct GenerationSettings {
    /// The drafters, separated by commas; `none` without one.
    #[serde(rename = "speculative.types")]
    pub drafters: String,
}

/// An error in a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ServerError {
    /// What went wrong.
    pub message: String,
}
