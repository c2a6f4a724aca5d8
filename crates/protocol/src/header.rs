//! The header of a run, with models, settings and machine: the first event, and the first line of a trace.

use serde::{Deserialize, Serialize};

use super::device::GpuInfo;
use super::drafting::DrafterKind;
use super::engine::{Ability, EngineInfo};
use super::grammar::Grammar;
use super::memory::MemoryAccount;
use super::settings::Settings;
use super::turn_times::TurnTimes;

/// Version of the trace format that this program writes. It rises when an older reader would misread a newer file. From
/// version 2 on a run that ended normally has an `ended` line; from version 4 on an id may be null, and `p` and `q` of a
/// judgement may be absent.
pub const TRACE_VERSION: u32 = 4;

/// Everything that is fixed for a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Header {
    /// Trace format, [`TRACE_VERSION`].
    #[cfg_attr(test, schemars(range(min = 1, max = TRACE_VERSION)))]
    pub version: u32,
    /// Name and version of the writer.
    pub program: String,
    /// The target.
    pub model: ModelInfo,
    /// The drafter at the start; none for a plain run.
    pub drafter: Option<DrafterInfo>,
    /// All drafters that can be switched to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drafters: Vec<DrafterInfo>,
    /// Whether the rule at the start is lossless; none where an attached engine did not say which rule it uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lossless: Option<bool>,
    /// Settings at the start; changes follow as events.
    pub settings: Settings,
    /// What every answer must match; none for free text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grammar: Option<Grammar>,
    /// Positions that fit into the target's cache.
    pub ctx_len: u32,
    /// What the loaded models take in memory; none where another program runs them, and in older traces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryAccount>,
    /// The device that computes the target, e.g. `cpu`.
    pub device: String,
    /// The kernels that compute it, e.g. `candle`.
    pub backend: String,
    /// Dtype of the target's weights in memory, e.g. `q4_1` or `f32`.
    pub dtype: String,
    /// Threads that compute.
    pub threads: u32,
    /// The GPU that computes; none where the processor does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuInfo>,
    /// Start of the run, milliseconds since 1970-01-01 UTC; `at_us` counts from here.
    pub started_unix_ms: u64,
    /// Capabilities of this source.
    pub capabilities: Capabilities,
    /// The engine of somebody else that ran the models; none for draftscope's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineInfo>,
}

impl Header {
    /// Whether the engine can do this. draftscope's own engine can do everything.
    #[must_use]
    pub fn can(&self, ability: Ability) -> bool {
        self.engine.as_ref().is_none_or(|engine| engine.abilities.contains(&ability))
    }
}

/// The target model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ModelInfo {
    /// Name as people write it.
    pub name: String,
    /// The name that the file gives itself, where it is another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_name: Option<String>,
    /// Architecture family, e.g. `llama`.
    pub architecture: String,
    /// File name without its folder.
    pub file: String,
    /// SHA-256 of the file, lower-case hex; none when not computed.
    #[cfg_attr(test, schemars(transform = super::schema::sha256))]
    pub sha256: Option<String>,
    /// Transformer blocks.
    pub layers: u32,
    /// Width of the hidden state.
    pub d_model: u32,
    /// Vocabulary size.
    pub vocab: u32,
    /// Longest context the model was made for.
    pub context_length: u32,
    /// Bytes that the weights take in memory.
    pub weight_bytes: u64,
    /// Weights that a row is multiplied with: without tables that are only looked up and experts that do not run; 0 if
    /// unknown, and in older traces.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub active_weights: u64,
    /// Bytes of KV cache per position.
    pub kv_bytes_per_token: u64,
    /// Bytes per position that keys and values of all heads would take, if the cache stores a latent row instead of
    /// them; else 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unfolded_kv_bytes_per_token: u64,
    /// Of the weights, bytes of experts, of which a row runs some; 0 without experts.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub expert_bytes: u64,
    /// Bytes of the experts that one row runs.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub expert_row_bytes: u64,
    /// Bytes of recurrent state, which does not grow with the text; 0 without linear layers.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub state_bytes: u64,
    /// Bytes kept for each row that may be rolled back: a copy of the recurrent state, or what is needed to compute it
    /// again; 0 without linear layers.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub snapshot_bytes: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The drafter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DrafterInfo {
    /// Its kind.
    pub kind: DrafterKind,
    /// Its name.
    pub name: String,
    /// SHA-256 of its weights, lower-case hex; none when not computed.
    #[cfg_attr(test, schemars(transform = super::schema::sha256))]
    pub sha256: Option<String>,
    /// Dtype of its weights, e.g. `f8_e4m3`; `none` without weights.
    pub dtype: String,
    /// Bytes of its own weights in memory, without those that it shares with the target.
    pub weight_bytes: u64,
    /// Bytes of its own KV cache per position; 0 when it uses the target's.
    pub kv_bytes_per_token: u64,
    /// Number of tokens that it can propose.
    pub draft_vocab: u32,
    /// Most further tokens that it can propose because they occur in the text.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub context_vocab: u64,
    /// Positions that one pass drafts together at most: a block drafter, a PARD model; 0 when tokens are drafted one after the other.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub block: u64,
    /// How it drafts with another tokenizer than the target's; absent if it has the target's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vocab_method: Option<VocabMethod>,
}

named_enum! {
    /// How a model with another tokenizer drafts.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[cfg_attr(test, derive(schemars::JsonSchema))]
    #[serde(rename_all = "kebab-case")]
    pub enum VocabMethod {
        /// It drafts the tokens that both vocabularies have.
        Intersection = "intersection",
        /// It writes in its own tokens, and the target's tokenizer makes tokens of the text.
        Strings = "strings",
    }
}

impl DrafterInfo {
    /// Whether the drafter of a server may draft from what it answered before, to anybody: a prompt that it has seen then
    /// drafts better than a new one. Only drafters that are known to begin anew with each request do not.
    #[must_use]
    pub fn may_remember(&self) -> bool {
        let begins_anew = |name: &str| {
            ["draft-", "eagle", "nextn", "standalone", "mtp", "dflash"].iter().any(|known| name.starts_with(known))
                || matches!(name, "ngram-simple" | "ngram-map-k" | "ngram-map-k4v")
        };
        !self.name.split(',').all(|name| begins_anew(name.trim()))
    }

    /// A drafter without weights of its own.
    #[must_use]
    pub fn weightless(kind: DrafterKind, draft_vocab: u32) -> Self {
        Self {
            kind,
            name: kind.name().to_owned(),
            sha256: None,
            dtype: "none".to_owned(),
            weight_bytes: 0,
            kv_bytes_per_token: 0,
            draft_vocab,
            context_vocab: 0,
            block: 0,
            vocab_method: None,
        }
    }
}

/// What a source supports besides sending events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Capabilities {
    /// A live engine takes prompts; a replay does not.
    pub can_generate: bool,
    /// Length of the run in microseconds, if known before its end: the last event's `at_us`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at_us: Option<u64>,
    /// When its turns begin and end, where a recording is played; no file has it.
    #[serde(skip)]
    pub turns: TurnTimes,
    /// The place of this recording among several that play one after the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listed: Option<Listed>,
}

/// One of several recordings that play one after the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Its number, from 1.
    #[cfg_attr(test, schemars(range(min = 1)))]
    pub number: u32,
    /// Number of recordings.
    #[cfg_attr(test, schemars(range(min = 1)))]
    pub of: u32,
}
