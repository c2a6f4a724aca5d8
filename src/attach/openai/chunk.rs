//! One chunk of a stream of an OpenAI route (`/v1/completions`, `/v1/chat/completions`), with the fields that vLLM and
//! SGLang add.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// A chunk. Fields that a server leaves out have their defaults.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Chunk {
    /// The answers; only one is asked for. None in the last chunk.
    pub choices: Vec<Choice>,
    /// vLLM, chat: ids of the prompt, in the first chunk.
    pub prompt_token_ids: Option<Vec<u32>>,
    /// Number of tokens, in the last chunk.
    pub usage: Option<Usage>,
    /// vLLM: figures of the request, in the last chunk.
    pub metrics: Option<Metrics>,
    /// SGLang: its additions.
    pub sglext: Option<SglExt>,
    /// An error that ended the stream.
    pub error: Option<Value>,
}

/// What an answer grew by.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Choice {
    /// Chat: the text.
    pub delta: Option<Delta>,
    /// Completions: the text.
    pub text: Option<String>,
    /// Probabilities of the tokens.
    pub logprobs: Option<LogProbs>,
    /// Why the answer ended.
    pub finish_reason: Option<String>,
    /// Ids of the tokens.
    pub token_ids: Option<Vec<u32>>,
    /// vLLM, completions: ids of the prompt, in the first chunk.
    pub prompt_token_ids: Option<Vec<u32>>,
}

/// Text of a chat message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Delta {
    /// The answer.
    pub content: Option<String>,
    /// What a thinking model writes first.
    pub reasoning_content: Option<String>,
    /// The same under its newer name.
    pub reasoning: Option<String>,
}

/// Probabilities, in the form of the chat route or of the older one.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct LogProbs {
    /// Chat: one entry a token.
    pub content: Option<Vec<Logged>>,
    /// Completions: the tokens.
    pub tokens: Option<Vec<String>>,
    /// Completions: the logarithm of each one's probability.
    pub token_logprobs: Option<Vec<Option<f64>>>,
    /// Completions: the best candidates of each position.
    pub top_logprobs: Option<Vec<Option<BTreeMap<String, f64>>>>,
}

/// A token with the logarithm of its probability.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Logged {
    /// Its text, which may have lost a part of a character.
    pub token: String,
    /// Natural logarithm.
    pub logprob: f64,
    /// Its bytes.
    pub bytes: Option<Vec<u8>>,
    /// The best candidates.
    pub top_logprobs: Vec<Logged>,
}

/// Numbers of tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// In the answer.
    pub completion_tokens: u64,
}

/// vLLM's figures of a request.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Metrics {
    /// With `--per-request-spec-decode-metrics`.
    pub speculative_decoding: Option<PerRequest>,
}

/// What vLLM counted in a request. Steps without drafts are in none of the figures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PerRequest {
    /// Steps with drafts.
    pub num_spec_steps: u64,
    /// Accepted drafts.
    pub num_accepted_draft_tokens: u64,
    /// Drafted tokens.
    pub num_draft_tokens: u64,
    /// k: the longest draft.
    pub num_spec_tokens: Option<u64>,
    /// Accepted drafts of each step, with `detailed`.
    pub per_step_accepted: Option<Vec<u64>>,
    /// Drafted tokens of each step, with `detailed`.
    pub per_step_drafted: Option<Vec<u64>>,
}

/// SGLang's additions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SglExt {
    /// With `return_spec_tokens_details`.
    pub spec_tokens_details: Option<SpecTokens>,
    /// With `return_output_ids_in_sglext`.
    pub output_ids: Option<Vec<u32>>,
}

/// What SGLang counted in a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SpecTokens {
    /// Accepted drafts.
    pub spec_num_correct_drafts: Option<u64>,
    /// Drafted tokens.
    pub spec_num_proposed_drafts: Option<u64>,
    /// Verification steps.
    pub spec_verify_ct: Option<u64>,
}

impl Chunk {
    /// The error in a sentence.
    #[must_use]
    pub fn error_message(&self) -> Option<String> {
        let error = self.error.as_ref()?;
        let message = error.get("message").unwrap_or(error);
        Some(message.as_str().map_or_else(|| message.to_string(), str::to_owned).chars().take(300).collect())
    }
}

impl Choice {
    /// The text that the chunk adds.
    #[must_use]
    pub fn added_text(&self) -> String {
        let delta = self.delta.clone().unwrap_or_default();
        let parts = [delta.reasoning_content.or(delta.reasoning), delta.content, self.text.clone()];
        parts.into_iter().flatten().collect()
    }
}
