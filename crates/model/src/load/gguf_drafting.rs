//! What a GGUF file can draft with, or for, from its header alone: `models info`, and what `--draft-model` names.
//!
//! Kinds are recognised as llama.cpp does it (`common/speculative.cpp`: `common_speculative_types_from_gguf`): by
//! `general.architecture` and by the tensors that only one kind has.

use std::fmt::{self, Display};
use std::path::Path;

use serde::Serialize;

use crate::files::GgufFile;
use crate::load::gguf_kind::OtherGguf;

/// What a file is to speculative decoding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GgufDrafting {
    /// Which kind of file it is.
    pub role: GgufRole,
    /// What a file is that holds no model, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub what: Option<String>,
    /// MTP modules whose tensors are in it.
    pub modules: u64,
    /// MTP modules that it announces.
    pub announced: u64,
    /// Bytes of the tensors of those modules.
    pub module_bytes: u64,
    /// Tokens of a block that a block drafter drafts in one pass, the anchor included.
    pub block_size: Option<u64>,
    /// Layers of the target that a drafter reads.
    pub target_layers: Vec<u64>,
    /// Drafters that exist for this family outside of the file, in words.
    pub elsewhere: Option<&'static str>,
}

/// Which kind of file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GgufRole {
    /// A model that writes.
    Target,
    /// The MTP module of a model of the same architecture, without its trunk.
    MtpModule,
    /// An assistant of Gemma 4.
    Assistant,
    /// An EAGLE-3 head.
    Eagle3,
    /// A block drafter.
    Dflash,
    /// A block drafter with a selector.
    Dflash2,
    /// A block drafter with a Markov head.
    Dspark,
    /// A part of another model: a vision encoder, an adapter, a vocabulary, an importance matrix.
    Other,
}

impl GgufRole {
    /// What a file of this kind is, in words.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Target => "a model",
            Self::MtpModule => "an MTP module without its model",
            Self::Assistant => "an assistant of Gemma 4",
            Self::Eagle3 => "an EAGLE-3 head",
            Self::Dflash => "a DFlash block drafter",
            Self::Dflash2 => "a DFlash 2 block drafter",
            Self::Dspark => "a DSpark block drafter",
            Self::Other => "no model that writes text",
        }
    }

    /// Whether it drafts for another model.
    #[must_use]
    pub const fn is_drafter(self) -> bool {
        !matches!(self, Self::Target | Self::Other)
    }
}

/// Families and the drafters that exist for them in files of their own.
const ELSEWHERE: &[(&[&str], &str)] = &[
    (&["gemma4"], "an assistant (gemma-4-…-it-assistant) drafts for it"),
    (&["qwen3", "llama", "qwen3moe", "gpt-oss"], "EAGLE-3 heads exist for some models of this family"),
    (
        &["qwen35", "qwen35moe", "qwen3next"],
        "the original repository has an MTP module; choose a GGUF file that kept it, or an mtp-*.gguf",
    ),
    (&["deepseek2"], "conversions of DeepSeek-V3 and R1 leave their MTP module out"),
];

impl GgufDrafting {
    /// Reads the header of a file; `None` if it is not a complete GGUF file.
    #[must_use]
    pub fn read(path: &Path) -> Option<Self> {
        let gguf = GgufFile::open(path).or_else(|_| GgufFile::open_part(path)).ok().filter(|_| !path.is_dir())?;
        Some(Self::of(&gguf, gguf.text("general.architecture").unwrap_or("(none)")))
    }

    /// What an open file is.
    #[must_use]
    pub fn of(gguf: &GgufFile, architecture: &str) -> Self {
        let key = |name: &str| gguf.number(&format!("{architecture}.{name}"));
        let announced = key("nextn_predict_layers").unwrap_or(0);
        let (modules, module_bytes) = modules(gguf);
        let is_split = gguf.parts() == 1 && gguf.number("split.count").is_some_and(|parts| parts > 1);
        let other = OtherGguf::of(gguf);
        let role = match architecture {
            _ if other.is_some() || architecture == "(none)" => GgufRole::Other,
            "dflash" if gguf.has_tensor("markov_w1.weight") => GgufRole::Dspark,
            "dflash" if gguf.tensor_names().any(|name| name.starts_with("selector_")) => GgufRole::Dflash2,
            "dflash" => GgufRole::Dflash,
            "eagle3" => GgufRole::Eagle3,
            "gemma4-assistant" | "gemma4_assistant" => GgufRole::Assistant,
            _ if modules > 0 && !is_split && !gguf.tensor_names().any(|name| name.starts_with("blk.0.")) => {
                GgufRole::MtpModule
            }
            _ => GgufRole::Target,
        };
        // an assistant counts its layers as modules
        let (modules, announced) = if role == GgufRole::Assistant { (0, 0) } else { (modules, announced) };
        let found = ELSEWHERE.iter().find(|(names, _)| names.contains(&architecture)).map(|(_, what)| *what);
        let layers = gguf.list(&format!("{architecture}.target_layers")).unwrap_or_default();
        Self {
            role,
            what: other.map(|other| other.what),
            modules,
            announced,
            module_bytes,
            block_size: key("block_size").filter(|_| role.is_drafter()),
            target_layers: layers.iter().filter_map(crate::files::whole).take(64).collect(),
            elsewhere: found.filter(|_| role == GgufRole::Target && modules == 0),
        }
    }
}

/// Modules whose projection is there, and the bytes of all tensors of their blocks.
fn modules(gguf: &GgufFile) -> (u64, u64) {
    let block = |name: &str| Some(name.strip_prefix("blk.")?.split_once('.')?.0.to_owned());
    let blocks: Vec<_> =
        gguf.tensor_names().filter(|name| name.ends_with(".nextn.eh_proj.weight")).filter_map(block).collect();
    let of_module = |name: &str| block(name).is_some_and(|own| blocks.contains(&own));
    let bytes = gguf.kinds().filter(|(name, ..)| of_module(name)).filter_map(|(.., bytes)| bytes).sum();
    (blocks.len() as u64, bytes)
}

impl Display for GgufDrafting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count: u64| if count == 1 { "" } else { "s" };
        if self.role != GgufRole::Target {
            write!(f, "it is {}", self.what.as_deref().unwrap_or(self.role.title()))?;
            if self.role.is_drafter() {
                f.write_str(": it drafts for another model")?;
            }
            if !self.target_layers.is_empty() {
                let layers: Vec<_> = self.target_layers.iter().map(u64::to_string).collect();
                write!(f, ", whose layers {} it reads", layers.join(", "))?;
            }
            if let Some(block) = self.block_size {
                write!(f, ", {block} positions in one pass")?;
            }
            return Ok(());
        }
        match (self.modules, self.announced) {
            (0, 0) => f.write_str("with no module of its own")?,
            (0, announced) => {
                write!(f, "with no module: the file announces {announced} and their tensors are missing")?;
            }
            (modules, announced) => {
                let bytes = indicatif::DecimalBytes(self.module_bytes);
                write!(f, "with {modules} MTP module{} of its own (nextn), {bytes}", plural(modules))?;
                if announced != modules {
                    write!(f, "; it announces {announced}")?;
                }
            }
        }
        self.elsewhere.map_or(Ok(()), |what| write!(f, "; {what}"))
    }
}
