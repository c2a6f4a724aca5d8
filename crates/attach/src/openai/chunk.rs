//! One chunk of a stream of an OpenAI route (`/v1/completions`, `/v1/chat/completions`), with the fields that vLLM and
//! SGLang add.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::lenient::{count, entries, field, number};

/// A chunk. Fields that a server leaves out, or sends in another form, have their defaults.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Chunk {
    /// What the answer grew by, the only one that is asked for. None in the last chunk.
    #[serde(skip)]
    pub choice: Option<Choice>,
    /// vLLM, chat: ids of the prompt, in the first chunk.
    #[serde(deserialize_with = "field")]
    pub prompt_token_ids: Option<Vec<u32>>,
    /// Number of tokens, in the last chunk.
    #[serde(deserialize_with = "field")]
    pub usage: Option<Usage>,
    /// vLLM: figures of the request, in the last chunk.
    #[serde(deserialize_with = "field")]
    pub metrics: Option<Metrics>,
    /// SGLang: its additions.
    #[serde(deserialize_with = "field")]
    pub sglext: Option<SglExt>,
}

/// What an answer grew by.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Choice {
    /// What a thinking model writes before its answer.
    #[serde(skip)]
    pub thought: String,
    /// The answer.
    #[serde(skip)]
    pub text: String,
    /// Why the answer ended; none while it goes on.
    #[serde(skip)]
    pub finish_reason: Option<String>,
    /// The chunk has a form in which servers repeat the whole answer at its end.
    #[serde(skip)]
    pub repeats: bool,
    /// Probabilities of the tokens.
    #[serde(deserialize_with = "field")]
    pub logprobs: Option<LogProbs>,
    /// Ids of the tokens.
    #[serde(deserialize_with = "field")]
    pub token_ids: Option<Vec<u32>>,
    /// vLLM, completions: ids of the prompt, in the first chunk.
    #[serde(deserialize_with = "field")]
    pub prompt_token_ids: Option<Vec<u32>>,
}

/// Probabilities, in the form of the chat route or of the older one.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct LogProbs {
    /// Chat: one entry a token.
    #[serde(deserialize_with = "field")]
    pub content: Option<Vec<Logged>>,
    /// Completions: the tokens.
    #[serde(deserialize_with = "field")]
    pub tokens: Option<Vec<String>>,
    /// Completions: the logarithm of each one's probability.
    #[serde(deserialize_with = "field")]
    pub token_logprobs: Option<Vec<Option<f64>>>,
    /// Completions: the best candidates of each position.
    #[serde(deserialize_with = "field")]
    pub top_logprobs: Option<Vec<Option<BTreeMap<String, f64>>>>,
}

/// A token with the logarithm of its probability.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct Logged {
    /// Its text, which may have lost a part of a character.
    #[serde(deserialize_with = "field")]
    pub token: String,
    /// Natural logarithm; NaN if the server sends none.
    #[serde(deserialize_with = "number")]
    pub logprob: f64,
    /// Its bytes.
    #[serde(deserialize_with = "field")]
    pub bytes: Option<Vec<u8>>,
    /// The best candidates.
    #[serde(deserialize_with = "entries")]
    pub top_logprobs: Vec<Logged>,
}

/// Numbers of tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// In the answer.
    #[serde(deserialize_with = "count")]
    pub completion_tokens: u64,
}

/// vLLM's figures of a request.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Metrics {
    /// With `--per-request-spec-decode-metrics`.
    #[serde(deserialize_with = "field")]
    pub speculative_decoding: Option<PerRequest>,
}

/// What vLLM counted in a request. Steps without drafts are in none of the figures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PerRequest {
    /// Steps with drafts.
    #[serde(deserialize_with = "count")]
    pub num_spec_steps: u64,
    /// Accepted drafts.
    #[serde(deserialize_with = "count")]
    pub num_accepted_draft_tokens: u64,
    /// Drafted tokens.
    #[serde(deserialize_with = "count")]
    pub num_draft_tokens: u64,
    /// k: the longest draft.
    #[serde(deserialize_with = "field")]
    pub num_spec_tokens: Option<u64>,
    /// Accepted drafts of each step, with `detailed`.
    #[serde(deserialize_with = "field")]
    pub per_step_accepted: Option<Vec<u64>>,
    /// Drafted tokens of each step, with `detailed`.
    #[serde(deserialize_with = "field")]
    pub per_step_drafted: Option<Vec<u64>>,
}

/// SGLang's additions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SglExt {
    /// With `return_spec_tokens_details`.
    #[serde(deserialize_with = "field")]
    pub spec_tokens_details: Option<SpecTokens>,
    /// With `return_output_ids_in_sglext`.
    #[serde(deserialize_with = "field")]
    pub output_ids: Option<Vec<u32>>,
}

/// What SGLang counted in a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SpecTokens {
    /// Accepted drafts.
    #[serde(deserialize_with = "field")]
    pub spec_num_correct_drafts: Option<u64>,
    /// Drafted tokens.
    #[serde(deserialize_with = "field")]
    pub spec_num_proposed_drafts: Option<u64>,
    /// Verification steps.
    #[serde(deserialize_with = "field")]
    pub spec_verify_ct: Option<u64>,
}

impl Default for Logged {
    fn default() -> Self {
        Self { token: String::new(), logprob: f64::NAN, bytes: None, top_logprobs: Vec::new() }
    }
}

impl Choice {
    /// Leaves the end only.
    pub fn clear_tokens(&mut self) {
        let (finish_reason, prompt_token_ids) = (self.finish_reason.take(), self.prompt_token_ids.take());
        *self = Self { finish_reason, prompt_token_ids, ..Self::default() };
    }

    /// The text that the chunk adds, thought first.
    #[must_use]
    pub fn added_text(&self) -> String {
        [self.thought.as_str(), &self.text].concat()
    }
}
