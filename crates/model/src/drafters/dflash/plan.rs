//! Checks a block drafter against its target before anything large is read.
//!
//! Invariant: a [`CheckedBlock`] fits: its width, vocabulary and layers are those of the target.

use std::path::Path;

use crate::ModelError;
use crate::drafters::core::{ModuleFile, draft_vocab};
use crate::drafters::dflash::{
    config::{BlockConfig, BlockKind, PathSizes},
    gguf,
};
use crate::error::{clean, name_of};
use crate::files::{GgufFile, SideFiles};
use crate::memory::MemoryNeed;
use crate::nn::TransformerConfig;
use crate::plan::{
    Angles, BlockDraft, Confidence, Convolution, DraftPlan, Entry, Fusion, Layer, Matrix, Mixer, Norm, Selector, Sight,
    StatesNorm, Vector,
};
use draftscope_protocol::{MemoryAccount, MtpSpec, TokenId};

/// Names of the head that predicts acceptance.
pub(super) const CONFIDENCE: [&str; 2] = ["confidence_head.proj.weight", "confidence_head.proj.bias"];

/// Tensors outside layers: those that are read, and copies of the target's, which are not needed. `verifier_norm` and
/// `verifier_lm_head` are copies with which `speculators` computes what a drafter is trained for.
const WHOLE: &[&str] = &[
    "fc.weight",
    "hidden_norm.weight",
    "norm.weight",
    "markov_head.markov_w1.weight",
    "markov_head.markov_w2.weight",
    CONFIDENCE[0],
    CONFIDENCE[1],
    "lm_head.weight",
    "embed_tokens.weight",
    "d2t",
    "t2d",
    "rope_freqs.weight",
    "verifier_norm.weight",
    "verifier_lm_head.weight",
];

/// Tensors of a selector: of tokens before, of candidates, and the product with a state.
const SELECTOR: [&str; 3] = [
    "candidate_selector.predecessor_codebook",
    "candidate_selector.successor_codebook",
    "candidate_selector.hidden_projection.weight",
];

/// Convolutions of a layer, around its attention and its feed-forward part.
const CONVOLUTIONS: [&str; 2] = ["attention_conv", "mlp_conv"];

/// Tensors of a layer.
const PARTS: &[&str] = &[
    "input_layernorm",
    "post_attention_layernorm",
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "self_attn.q_norm",
    "self_attn.k_norm",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
];

/// Next to a checkpoint whose target has no embedding for the mask.
const MASK_FILE: &str = "mask_embedding.pt";

/// A drafter that fits its target.
pub(super) struct CheckedBlock {
    pub(super) kind: BlockKind,
    pub(super) file: ModuleFile,
    /// What it computes.
    pub(super) plan: BlockDraft,
    /// Token of each row of the head, ascending.
    pub(super) vocab: Vec<TokenId>,
    /// Its name.
    pub(super) name: String,
}

/// Opens a folder or GGUF file, whatever its target.
pub(super) fn open_files(path: &Path) -> Result<(BlockConfig, ModuleFile, String), ModelError> {
    if path.is_dir() {
        let mut config = BlockConfig::from_json(&SideFiles::of(path).config()?)?;
        if path.join(MASK_FILE).is_file() {
            let what = format!("a mask with an embedding of its own ('{MASK_FILE}') is not supported");
            return Err(ModelError::Unsupported(what));
        }
        let file = ModuleFile::open(path)?;
        config.confidence = config.confidence.filter(|_| file.has(CONFIDENCE[0]));
        return Ok((config, file, name_of(path)));
    }
    let gguf = GgufFile::open(path)?;
    let (config, name) = (BlockConfig::from_gguf(&gguf)?, clean(&gguf.name()));
    Ok((config, ModuleFile::Gguf(Box::new(gguf), gguf::name), name))
}

/// Rejects a file with a tensor that is not computed here: without it, drafts would be others than those it was trained
/// for, which only their acceptance would show.
fn refuse_unknown(config: &BlockConfig, file: &ModuleFile) -> Result<(), ModelError> {
    let layers = (0..config.layers.layers)
        .flat_map(|layer| PARTS.iter().map(move |part| format!("layers.{layer}.{part}.weight")));
    let whole = WHOLE.iter().chain(SELECTOR.iter().filter(|_| config.path.is_some()));
    let known =
        whole.map(|name| (*name).to_owned()).chain(layers).chain(frequencies(config)).chain(around_steps(config));
    match file.unknown(known) {
        None => Ok(()),
        Some(name) => Err(ModelError::Unsupported(format!(
            "the {} drafter has a tensor that is not supported ('{}')",
            config.kind.name(),
            clean(&name)
        ))),
    }
}

/// Names of tensors around the steps of layers, which DFlash 2 has.
fn around_steps(config: &BlockConfig) -> impl Iterator<Item = String> {
    let layers = if config.path.is_some() { config.layers.layers } else { 0 };
    let of_layer = |layer| CONVOLUTIONS.map(|place| format!("layers.{layer}.{place}"));
    (0..layers)
        .flat_map(of_layer)
        .flat_map(|place| ["base_kernel", "kernel_projection.weight"].map(|part| format!("{place}.{part}")))
}

/// Names of tensors with rotary frequencies, which older checkpoints contain.
fn frequencies(config: &BlockConfig) -> impl Iterator<Item = String> {
    let of_layer = |layer| format!("layers.{layer}.self_attn.rotary_emb.inv_freq");
    std::iter::once("rotary_emb.inv_freq".to_owned()).chain((0..config.layers.layers).map(of_layer))
}

/// Rejects a file whose rotary frequencies are others than those that its configuration describes, which are used.
fn refuse_other_frequencies(config: &BlockConfig, file: &ModuleFile) -> Result<(), ModelError> {
    let own = config.layers.rope.frequencies(config.layers.head_dim, config.layers.context_length);
    for name in frequencies(config).filter(|name| file.has(name)) {
        let stored = file.numbers(&name, &[own.len()])?;
        // bf16 has eight bits
        let is_near = |(stored, own): (&f32, &f64)| (f64::from(*stored) / own - 1.0).abs() < 0.01;
        if !stored.iter().zip(&own).all(is_near) {
            return Err(ModelError::Unsupported(format!(
                "the rotary frequencies of the {} drafter ('{name}') are not those of its config.json",
                config.kind.name()
            )));
        }
    }
    Ok(())
}

impl CheckedBlock {
    /// Opens a folder or GGUF file for this target.
    ///
    /// # Errors
    /// If it is damaged, not supported, or made for another target.
    pub(super) fn open(path: &Path, target: &TransformerConfig) -> Result<Self, ModelError> {
        let (config, file, name) = open_files(path)?;
        let kind = config.kind.name();
        let other = |what: &str, own: usize, theirs: usize| {
            Err(ModelError::Unsupported(format!(
                "the {kind} drafter was made for another target: {what} is {own} there and {theirs} in the target"
            )))
        };
        if config.layers.d_model != target.d_model {
            return other("the width of its hidden states", config.layers.d_model, target.d_model);
        }
        if config.layers.vocab != target.vocab {
            return other("the number of tokens", config.layers.vocab, target.vocab);
        }
        if let Some(layer) = config.target_layers.iter().find(|layer| **layer > target.layers) {
            return other("the number of layers at least", *layer, target.layers);
        }
        let biased =
            |part: &'static str| (0..config.layers.layers).map(move |layer| format!("layers.{layer}.{part}.bias"));
        let parts = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"];
        if let Some(name) = parts.into_iter().flat_map(biased).find(|name| file.has(name)) {
            return Err(ModelError::Unsupported(format!("biases ('{name}') are not supported in {kind} drafters")));
        }
        refuse_unknown(&config, &file)?;
        refuse_other_frequencies(&config, &file)?;
        let vocab = draft_vocab(&file, config.draft_vocab, config.layers.vocab)?;
        Ok(Self { kind: config.kind, plan: config.plan(), file, vocab, name })
    }

    /// Memory that it needs, with so many bits per weight.
    pub(super) fn need(&self, (bits, dtype): (u64, &str), ctx_len: usize) -> MemoryNeed {
        let account = MemoryAccount {
            drafter_weights: self.plan.weights() * bits / 8,
            drafter_kv: 2 * self.plan.module.cached_values(),
            ctx_len: ctx_len as u64,
            ..MemoryAccount::default()
        };
        MemoryNeed { account, dtype: dtype.to_owned() }
    }
}

impl BlockConfig {
    /// The drafter as data.
    pub(super) fn plan(&self) -> BlockDraft {
        let (c, d) = (&self.layers, self.layers.d_model);
        let norm = |name: &str| {
            let weight = Some(Vector { name: name.to_owned(), len: d });
            Norm { weight, centred: false, eps: c.norm_eps }
        };
        let layer = |(index, sight): (usize, &Sight)| {
            let mut layer = Layer::usual(c, index);
            if let Mixer::Attention(attention) = &mut layer.mixer {
                attention.sight = *sight;
            }
            layer
        };
        let states = self.target_layers.clone();
        let project = Matrix::whole("fc.weight", [d, states.len() * d]);
        let module = DraftPlan {
            width: d,
            entry: Entry::Keys { state: norm("hidden_norm.weight") },
            fusion: Some(Fusion { states, normed: StatesNorm::None, norms: Vec::new(), project, adds: false }),
            layers: self.sight.iter().enumerate().map(layer).collect(),
            angles: Angles { rope: c.rope.clone(), width: c.head_dim },
            norm: norm("norm.weight"),
            embedding: None,
            head: self.has_own_head().then(|| Matrix::whole("lm_head.weight", [self.draft_vocab, d])),
            conventions: MtpSpec::default(),
        };
        let markov = |rank| {
            let matrix = |part: &str, rows| Matrix::whole(format!("markov_head.{part}.weight"), [rows, rank]);
            [matrix("markov_w1", c.vocab), matrix("markov_w2", self.draft_vocab)]
        };
        let convolution = |(path, layer): (PathSizes, usize), place: &str| {
            let outputs = 2 * path.taps * (d / path.group);
            let part = |part: &str| format!("layers.{layer}.{place}.{part}");
            Convolution {
                base: part("base_kernel"),
                project: Matrix::whole(part("kernel_projection.weight"), [outputs, d]),
                taps: path.taps,
                group: path.group,
            }
        };
        let around = |path, layer| CONVOLUTIONS.map(|place| convolution((path, layer), place));
        let selector = |path: PathSizes| Selector {
            predecessors: Matrix::whole(SELECTOR[0], [c.vocab, path.rank]),
            successors: Matrix::whole(SELECTOR[1], [c.vocab, path.rank]),
            hidden: Matrix::whole(SELECTOR[2], [path.rank, d]),
            candidates: path.candidates,
        };
        let confidence = |width| Confidence {
            weights: Matrix::whole(CONFIDENCE[0], [1, width]),
            bias: Some(Vector { name: CONFIDENCE[1].to_owned(), len: 1 }),
        };
        BlockDraft {
            module,
            size: self.block_size,
            mask: TokenId(self.mask_token),
            from_anchor: self.from_anchor,
            embedding_scale: self.embedding_scale,
            logit_scale: self.logit_scale,
            cap: self.softcap,
            markov: self.markov_rank.map(markov),
            confidence: self.confidence.map(confidence),
            convolutions: self
                .path
                .map_or_else(Vec::new, |path| (0..c.layers).map(|layer| around(path, layer)).collect()),
            selector: self.path.map(selector),
        }
    }
}
