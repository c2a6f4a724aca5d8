//! What a model on disk is and needs, before any weight is read: `models info`.
//!
//! Invariant: everything is read from headers, so a card of a large model takes no longer; only a head that should
//! equal the embedding is compared with it.

use std::fmt::{self, Display};
use std::path::Path;

use indicatif::{DecimalBytes, HumanCount};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::ModelError;
use crate::error::clean;
use crate::load::OpenModel;
use crate::load::{gguf_summary::also_called, memory_need};
use crate::nn::{RopeScaling, TransformerConfig};
use crate::options::DEFAULT_CTX;
use crate::plan::Description;
use crate::text::tokenizer::TextCodec;
use draftscope_protocol::MemoryAccount;

/// Figures of a model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Card {
    /// The model's name, as people write it.
    pub title: String,
    /// The name in the file (`general.name`), if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own_name: Option<String>,
    /// The family.
    pub architecture: String,
    /// Weights of all matrices.
    pub parameters: u64,
    /// Transformer blocks.
    pub layers: usize,
    /// Width of the hidden state.
    pub d_model: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Width of the feed-forward layers.
    pub ffn: usize,
    /// Rows of the embedding.
    pub vocab: usize,
    /// Whether the embedding is the output head too.
    pub tied: bool,
    /// Longest context it was made for.
    pub context_length: usize,
    /// How rotary positions are scaled, if they are.
    pub rope_scaling: Option<String>,
    /// Dtype or file type of the weights.
    pub dtype: String,
    /// Bytes of the tensors on disk.
    pub tensor_bytes: u64,
    /// Bytes of the weights in memory, loaded as stored, those of its own draft modules included.
    pub weight_bytes: u64,
    /// Dtype of the weights in memory.
    #[serde(skip)]
    pub loaded_dtype: String,
    /// Bytes that passes need beside weights and cache, at the default context.
    pub working_bytes: u64,
    /// Bytes of KV cache per token: f16 on the native backend, twice as many on candle; f32 on both if only matrices
    /// are native.
    pub kv_bytes_per_token: u64,
    /// The account of memory at the default context.
    #[serde(rename = "memory")]
    pub account: MemoryAccount,
    /// Whether the cache takes the same on both backends.
    pub same_on_candle: bool,
    /// Facts about parts that not every model has; null or 0 if it lacks them.
    #[serde(flatten)]
    pub family: Map<String, Value>,
    /// Draft modules in the file, one for each depth.
    pub modules: usize,
    /// Draft modules that it announces.
    pub announced_modules: usize,
    /// Kind of tokenizer, or why there is none.
    pub tokenizer: String,
    /// Tokens that end an answer.
    pub ends: Vec<String>,
    /// Whether there is a chat template that runs.
    pub has_template: bool,
    /// Why the chat template does not run; `None` if it runs or does not exist.
    pub template_fault: Option<String>,
    /// Metadata and files that loading ignores or guesses, a sentence each.
    pub warnings: Vec<String>,
    /// Lines about parts that not every model has.
    #[serde(skip)]
    pub lines: Description,
    /// What drafts where the files bring no module, if the usual sentence does not suffice.
    #[serde(skip)]
    pub without_modules: Option<&'static str>,
}

impl Card {
    /// Reads the headers of a file or folder.
    ///
    /// # Errors
    /// If it is damaged or of an unsupported family.
    pub fn read(path: &Path) -> Result<Self, ModelError> {
        let opened = OpenModel::open(path)?;
        Ok(Self::of(path, &opened, &opened.codec()))
    }

    /// The same, and whether loading would accept the model: the outcome of [`check`](crate::load::check).
    ///
    /// # Errors
    /// As [`Card::read`].
    pub fn read_checked(path: &Path) -> Result<(Self, Result<(), ModelError>), ModelError> {
        let opened = OpenModel::open(path)?;
        let codec = opened.codec();
        let card = Self::of(path, &opened, &codec);
        Ok((card, codec.and_then(|codec| opened.check_with(&codec))))
    }

    fn of(path: &Path, opened: &OpenModel, codec: &Result<TextCodec, ModelError>) -> Self {
        let (source, family, config) = (&opened.source, &opened.config, opened.transformer());
        let (tokenizer, ends, (template, template_fault)) = match codec {
            Ok(codec) => {
                let template = opened.compile_template(codec, None).finish_or_why();
                let template = template.unwrap_or_else(|error| (None, Some(clean(&error.to_string()))));
                (format!("{}, {} tokens", codec.kind(), codec.len()), codec.end_names(), template)
            }
            Err(error) => (format!("none that runs: {error}"), Vec::new(), (None, None)),
        };
        let plan = family.plan();
        let in_f32 = plan.layers.iter().all(|layer| layer.latent().is_some());
        let same_on_candle = !family.runs_whole_native() || in_f32;
        let lines = plan.describe();
        let need = memory_need::by_default(path, opened, DEFAULT_CTX.min(config.context_length));
        Self {
            title: source.name(),
            own_name: source.own_name().map(clean),
            architecture: config.conventions.name.to_owned(),
            parameters: plan.weights(),
            rope_scaling: scaling(config),
            dtype: source.stored_dtype(),
            tensor_bytes: source.tensor_bytes(),
            weight_bytes: need.account.weights(),
            loaded_dtype: need.dtype,
            working_bytes: need.account.passes,
            kv_bytes_per_token: need.account.target_kv,
            account: need.account,
            same_on_candle,
            family: lines.fields.clone(),
            modules: plan.modules.len(),
            announced_modules: plan.announced_modules,
            lines,
            without_modules: family.drafter(),
            tokenizer,
            ends,
            has_template: template.is_some(),
            template_fault,
            warnings: opened.warnings(),
            layers: config.layers,
            d_model: config.d_model,
            heads: config.heads,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            ffn: config.ffn,
            vocab: config.vocab,
            tied: config.tied,
            context_length: config.context_length,
        }
    }
}

fn scaling(config: &TransformerConfig) -> Option<String> {
    match &config.rope.scaling {
        RopeScaling::Plain => None,
        RopeScaling::Linear(factor) => Some(format!("linear by {factor}")),
        RopeScaling::Llama3 { factor, original, .. } => Some(format!("llama3 by {factor} from {original}")),
        RopeScaling::Yarn { factor, original, .. } => Some(format!("yarn by {factor} from {original}")),
        RopeScaling::Factors(_) => Some("a factor for each pair (rope_freqs)".to_owned()),
        RopeScaling::ByContext { original, .. } => {
            Some(format!("longrope: one factor for each pair to {original} positions, another beyond"))
        }
    }
}

impl Card {
    /// What drafts by default; `None` if nobody expects anything.
    fn drafter(&self) -> Option<String> {
        let (have, announced) = (self.modules, self.announced_modules);
        match (have, announced) {
            (0, 0) => self.without_modules.map(str::to_owned),
            (have, announced) if have < announced => Some(format!(
                "none: the configuration announces {announced} draft modules, and the tensors of {have} are there"
            )),
            (1, _) | (_, 1) => Some("a draft module of its own".to_owned()),
            (have, 0) => Some(format!("{have} draft modules of its own, one for each depth")),
            (_, announced) => Some(format!("{announced} draft modules of its own, one for each depth")),
        }
    }
}

impl Card {
    /// What the file has where weights are loaded as another dtype, or take another size by more than a hundredth.
    fn on_disk(&self) -> String {
        let bytes = DecimalBytes(self.tensor_bytes);
        if self.loaded_dtype != self.dtype {
            format!(" ({bytes} of {} on disk)", self.dtype)
        } else if self.weight_bytes.abs_diff(self.tensor_bytes) > self.tensor_bytes / 100 {
            format!(" ({bytes} on disk)")
        } else {
            String::new()
        }
    }
}

impl Card {
    /// What is in memory besides weights and the target's cache, and the sum of all of it.
    fn rest(&self) -> String {
        let MemoryAccount { drafter_kv, states, passes, ctx_len, .. } = self.account;
        let parts = [("drafter cache", drafter_kv.saturating_mul(ctx_len)), ("states", states), ("passes", passes)];
        let parts = parts.into_iter().filter(|(_, bytes)| *bytes > 0);
        let parts = parts.map(|(what, bytes)| format!("; {what} {}", DecimalBytes(bytes)));
        format!("{}; in all {}", parts.collect::<String>(), DecimalBytes(self.account.total()))
    }
}

impl Display for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |text: &str| clean(text);
        let own = also_called(&self.title, self.own_name.as_deref());
        let (title, weights) = (text(&self.title), HumanCount(self.parameters));
        writeln!(f, "model    {title} ({}), {weights} weights{own}", self.architecture)?;
        writeln!(
            f,
            "shape    {} layers of width {}, {} query heads over {} of {}, feed-forward {}",
            self.layers, self.d_model, self.heads, self.kv_heads, self.head_dim, self.ffn
        )?;
        for line in &self.lines.layers {
            writeln!(f, "{line}")?;
        }
        let head = if self.tied { "the embedding is the head" } else { "a head of its own" };
        writeln!(f, "vocab    {} tokens, {head}", self.vocab)?;
        let scaling = self.rope_scaling.as_ref().map_or_else(String::new, |scaling| format!(", stretched: {scaling}"));
        writeln!(f, "context  {} tokens{scaling}", self.context_length)?;
        let ctx = self.context_length.min(DEFAULT_CTX);
        writeln!(
            f,
            "memory   weights {} as {}{}; cache {} a token, {} for {ctx}{}{}",
            DecimalBytes(self.weight_bytes),
            self.loaded_dtype,
            self.on_disk(),
            DecimalBytes(self.kv_bytes_per_token),
            DecimalBytes(self.kv_bytes_per_token * ctx as u64),
            if self.same_on_candle { "" } else { " (candle: twice that)" },
            self.rest(),
        )?;
        for line in &self.lines.memory {
            writeln!(f, "{line}")?;
        }
        if let Some(drafter) = self.drafter() {
            writeln!(f, "drafter  {drafter}")?;
        }
        writeln!(f, "reads    {}", text(&self.tokenizer))?;
        let ends: Vec<_> = self.ends.iter().map(|end| text(end)).collect();
        writeln!(f, "ends at  {}", if ends.is_empty() { "nothing that is known".to_owned() } else { ends.join(" ") })?;
        for warning in &self.warnings {
            writeln!(f, "note     {}", warning.replace(char::is_control, " "))?;
        }
        match &self.template_fault {
            Some(why) => write!(f, "chat     no template that runs: use --raw ({why})"),
            None if self.has_template => write!(f, "chat     with the model's own template"),
            None => write!(f, "chat     no template: messages are sent as they stand"),
        }
    }
}
