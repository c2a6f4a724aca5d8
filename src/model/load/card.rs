//! What a model on disk is and what it would take to run, before any weight is read: `models info`.
//!
//! Invariant: everything here is read from headers, so a card costs no more for a large model; only a head that is
//! said to be the embedding is held against it.

use std::fmt::{self, Display};
use std::path::Path;

use indicatif::{DecimalBytes, HumanCount};
use serde::Serialize;

use crate::model::ModelError;
use crate::model::families::deepseek::Latent;
use crate::model::families::gemma4::GemmaCard;
use crate::model::families::llama::mimo;
use crate::model::families::qwen35::Hybrid;
use crate::model::files::source::Source;
use crate::model::load::DEFAULT_CTX;
use crate::model::nn::config::LlamaConfig;
use crate::model::nn::rope::RopeScaling;

/// A model in figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Card {
    /// As it calls itself.
    pub title: String,
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
    /// How rotary positions are stretched, if they are.
    pub rope_scaling: Option<String>,
    /// In what the weights are stored.
    pub dtype: String,
    /// Bytes of the tensors on disk.
    pub tensor_bytes: u64,
    /// Bytes of KV cache per token: halves on the native backend, of which candle's takes twice as much; f32 on both
    /// where only matrices are native.
    pub kv_bytes_per_token: u64,
    /// Whether the cache takes the same on both backends.
    pub same_on_candle: bool,
    /// What a latent row of the cache spares; none where keys and values are kept.
    pub latent: Option<LatentCard>,
    /// Experts; none without.
    pub experts: Option<ExpertCard>,
    /// Layers that keep a state instead of keys and values.
    pub linear_layers: usize,
    /// Bytes of that state; as many for each row that may be taken back.
    pub state_bytes: u64,
    /// Layers of two kinds, and what goes with them: Gemma 4.
    pub gemma: Option<GemmaCard>,
    /// Draft modules that the file brings, one for each depth.
    pub modules: usize,
    /// Draft modules that it announces.
    pub announced_modules: usize,
    /// Kind of tokenizer, or why there is none.
    pub tokenizer: String,
    /// Tokens that end an answer.
    pub ends: Vec<String>,
    /// Whether there is a chat template that runs.
    pub has_template: bool,
    /// Why the chat template does not run; none where it does, or where there is none.
    pub template_fault: Option<String>,
}

/// A cache of latents.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LatentCard {
    /// Numbers of a row that keys and values are made of.
    pub rank: usize,
    /// Numbers of a row that are rotated.
    pub rotary: usize,
    /// Bytes per token of keys and values of all heads, in f32.
    pub unfolded_bytes_per_token: u64,
}

/// Layers of experts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExpertCard {
    /// Layers that have them.
    pub layers: usize,
    /// Experts of a layer.
    pub count: usize,
    /// Experts that a token chooses.
    pub used: usize,
    /// Experts that every token goes through.
    pub shared: usize,
    /// Weights that a token is multiplied with: those of an embedding that is no head are not.
    pub active_parameters: u64,
}

/// Most draft modules that are looked for.
const MAX_MODULES: usize = 8;

impl Card {
    /// Reads the headers of a file or folder.
    ///
    /// # Errors
    /// When it is damaged or of a family that does not run.
    pub fn read(path: &Path) -> Result<Self, ModelError> {
        let source = Source::open(path)?;
        let config = source.config()?;
        let (tokenizer, ends, (template, template_fault)) = match source.codec() {
            Ok(codec) => {
                let template = source.template_or_why(&codec)?;
                (format!("{}, {} tokens", codec.kind(), codec.len()), codec.end_names(), template)
            }
            Err(error) => (format!("none that runs: {error}"), Vec::new(), (None, None)),
        };
        let same_on_candle = config.architecture.is_mixed();
        let (modules, announced_modules) = modules(&source, &config);
        Ok(Self {
            title: source.name(),
            architecture: config.architecture.name().to_owned(),
            parameters: config.matrix_weights(),
            rope_scaling: scaling(&config),
            dtype: source.stored_dtype(),
            tensor_bytes: source.tensor_bytes(),
            kv_bytes_per_token: if same_on_candle { 4 } else { 2 } * config.cached_values(),
            same_on_candle,
            latent: config.latent.as_ref().map(|latent| LatentCard::of(latent, config.layers)),
            experts: config.latent.as_ref().map(|latent| ExpertCard::of(latent, &config)),
            gemma: config.gemma.as_ref().map(GemmaCard::of),
            linear_layers: config.hybrid.as_ref().map_or(0, Hybrid::linear_layers),
            state_bytes: config.hybrid.as_ref().map_or(0, Hybrid::state_bytes),
            modules,
            announced_modules,
            tokenizer,
            ends,
            has_template: template.is_some(),
            template_fault,
            layers: config.layers,
            d_model: config.d_model,
            heads: config.heads,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            ffn: config.ffn,
            vocab: config.vocab,
            tied: config.tied,
            context_length: config.context_length,
        })
    }
}

impl LatentCard {
    fn of(latent: &Latent, layers: usize) -> Self {
        Self {
            rank: latent.attention.rank,
            rotary: latent.attention.rotary,
            unfolded_bytes_per_token: 4 * (layers * latent.unfolded()) as u64,
        }
    }
}

impl ExpertCard {
    fn of(latent: &Latent, config: &LlamaConfig) -> Self {
        let experts = &latent.experts;
        let [all, active] = latent.layer_weights(config.d_model, config.layers, config.ffn);
        // of an embedding that is no head one row is read
        let looked_up = if config.tied { 0 } else { (config.vocab * config.d_model) as u64 };
        Self {
            layers: config.layers - latent.dense_layers,
            count: experts.count,
            used: experts.used,
            shared: experts.shared,
            active_parameters: config.matrix_weights() - looked_up - all + active,
        }
    }
}

/// Draft modules that there are, and those that are announced.
fn modules(source: &Source, config: &LlamaConfig) -> (usize, usize) {
    // the one module of a Qwen3.5 has no number
    let most = if config.hybrid.is_some() { 1 } else { MAX_MODULES };
    let has = |index: &usize| source.has(&format!("blk.{}.nextn.eh_proj.weight", config.layers + index));
    let announced = match (&config.hybrid, &config.latent) {
        (Some(hybrid), _) => usize::from(hybrid.announces_mtp),
        (None, Some(latent)) => latent.modules,
        (None, None) => mimo::modules(source, config),
    };
    ((0..most).take_while(has).count(), announced)
}

fn scaling(config: &LlamaConfig) -> Option<String> {
    match &config.rope.scaling {
        RopeScaling::Plain => None,
        RopeScaling::Linear(factor) => Some(format!("linear by {factor}")),
        RopeScaling::Llama3 { factor, original, .. } => Some(format!("llama3 by {factor} from {original}")),
        RopeScaling::Yarn { factor, original, .. } => Some(format!("yarn by {factor} from {original}")),
        RopeScaling::Factors(_) => Some("a factor for each pair (rope_freqs)".to_owned()),
    }
}

impl Card {
    /// What is kept of latents, and which experts there are.
    fn latents(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(LatentCard { rank, rotary, unfolded_bytes_per_token }) = &self.latent {
            let times = *unfolded_bytes_per_token as f64 / self.kv_bytes_per_token.max(1) as f64;
            writeln!(
                f,
                "latent   a token is one row of {rank} + {rotary} numbers in each layer; keys and values of {} heads would take {times:.1} times that ({})",
                self.heads,
                DecimalBytes(*unfolded_bytes_per_token)
            )?;
        }
        if let Some(ExpertCard { layers, count, used, shared, active_parameters }) = &self.experts {
            let active = HumanCount(*active_parameters);
            writeln!(
                f,
                "experts  {count} a layer in {layers} of {} layers; {used} of them and {shared} shared serve a token, which meets {active} weights",
                self.layers
            )?;
        }
        Ok(())
    }

    /// What drafts without being asked for; none where nobody expects anything.
    fn drafter(&self) -> Option<String> {
        let (have, announced) = (self.modules, self.announced_modules);
        match (have, announced) {
            (0, 0) if self.linear_layers > 0 => Some("none of its own".to_owned()),
            (0, 0) => None,
            (have, announced) if have < announced => Some(format!(
                "none: the configuration announces {announced} draft modules, and the tensors of {have} are there"
            )),
            (1, _) | (_, 1) => Some("a draft module of its own".to_owned()),
            (have, 0) => Some(format!("{have} draft modules of its own, one for each depth")),
            (_, announced) => Some(format!("{announced} draft modules of its own, one for each depth")),
        }
    }
}

impl Display for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |text: &str| crate::model::error::clean(text);
        writeln!(f, "model    {} ({}), {} weights", text(&self.title), self.architecture, HumanCount(self.parameters))?;
        writeln!(
            f,
            "shape    {} layers of width {}, {} query heads over {} of {}, feed-forward {}",
            self.layers, self.d_model, self.heads, self.kv_heads, self.head_dim, self.ffn
        )?;
        if self.linear_layers > 0 {
            let attending = self.layers - self.linear_layers;
            writeln!(f, "mixers   {} layers of Gated DeltaNet, {attending} of gated attention", self.linear_layers)?;
        }
        if let Some(gemma) = &self.gemma {
            writeln!(f, "{gemma}")?;
        }
        let head = if self.tied { "the embedding is the head" } else { "a head of its own" };
        writeln!(f, "vocab    {} tokens, {head}", self.vocab)?;
        let scaling = self.rope_scaling.as_ref().map_or_else(String::new, |scaling| format!(", stretched: {scaling}"));
        writeln!(f, "context  {} tokens{scaling}", self.context_length)?;
        let ctx = self.context_length.min(DEFAULT_CTX);
        writeln!(
            f,
            "memory   weights {} as {}; cache {} a token, {} for {ctx}{}",
            DecimalBytes(self.tensor_bytes),
            self.dtype,
            DecimalBytes(self.kv_bytes_per_token),
            DecimalBytes(self.kv_bytes_per_token * ctx as u64),
            if self.same_on_candle { "" } else { " (candle: twice that)" }
        )?;
        self.latents(f)?;
        if self.linear_layers > 0 {
            writeln!(
                f,
                "state    {} whatever the context, and as much for each row that may be taken back (--rollback replay: little)",
                DecimalBytes(self.state_bytes)
            )?;
        }
        if let Some(drafter) = self.drafter() {
            writeln!(f, "drafter  {drafter}")?;
        }
        if self.gemma.is_some() {
            writeln!(
                f,
                "drafter  its assistant, a repository of its own: --draft-model; it reads this cache and has none"
            )?;
        }
        writeln!(f, "reads    {}", text(&self.tokenizer))?;
        let ends: Vec<_> = self.ends.iter().map(|end| text(end)).collect();
        writeln!(f, "ends at  {}", if ends.is_empty() { "nothing that is known".to_owned() } else { ends.join(" ") })?;
        match &self.template_fault {
            Some(why) => write!(f, "chat     no template that runs: use --raw ({why})"),
            None if self.has_template => write!(f, "chat     with the model's own template"),
            None => write!(f, "chat     no template: use --raw"),
        }
    }
}
