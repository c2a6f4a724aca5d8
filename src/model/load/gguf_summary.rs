//! Facts from the header of a GGUF file about a model that does not run: `models info`.
//!
//! Invariant: nothing here is needed to run a model, so a missing key is left out and never an error.

use std::fmt::{self, Display};
use std::path::Path;

use indicatif::DecimalBytes;
use serde::Serialize;

use crate::model::error::clean;
use crate::model::files::GgufFile;

/// The few figures that every GGUF file has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GgufSummary {
    /// The model's name, as people write it.
    pub title: String,
    /// The name in the file (`general.name`), if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own_name: Option<String>,
    /// The family, as the file names it.
    pub architecture: String,
    /// Transformer blocks, including those of draft modules.
    pub layers: Option<u64>,
    /// Width of the hidden state.
    pub d_model: Option<u64>,
    /// Experts of a layer.
    pub experts: Option<u64>,
    /// Draft modules that it announces.
    pub announced_modules: Option<u64>,
    /// Longest context it was made for.
    pub context_length: Option<u64>,
    /// Dtype of most of the weights.
    pub dtype: String,
    /// Bytes of the tensors.
    pub tensor_bytes: u64,
}

impl GgufSummary {
    /// Reads the header; `None` if it is not a complete GGUF file, or names no family.
    #[must_use]
    pub fn read(path: &Path) -> Option<Self> {
        if path.is_dir() {
            return None;
        }
        let gguf = GgufFile::open(path).ok()?;
        let architecture = gguf.text("general.architecture")?.to_owned();
        let number = |name: &str| gguf.number(&format!("{architecture}.{name}")).filter(|number| *number > 0);
        Some(Self {
            title: gguf.name(),
            own_name: gguf.text("general.name").map(clean),
            layers: number("block_count"),
            d_model: number("embedding_length"),
            experts: number("expert_count"),
            announced_modules: number("nextn_predict_layers"),
            context_length: number("context_length"),
            dtype: gguf.main_dtype(),
            tensor_bytes: gguf.tensor_bytes(),
            architecture: clean(&architecture),
        })
    }
}

/// The file's own name as a clause, if it is a different one.
pub(super) fn also_called(title: &str, own_name: Option<&str>) -> String {
    own_name.filter(|own| *own != title).map_or_else(String::new, |own| format!(", in the file '{own}'"))
}

impl Display for GgufSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own = also_called(&self.title, self.own_name.as_deref());
        writeln!(f, "model    {} ({}){own}", self.title, self.architecture)?;
        let shape = [
            self.layers.map(|layers| format!("{layers} layers")),
            self.d_model.map(|d| format!("of width {d}")),
            self.experts.map(|experts| format!("{experts} experts a layer")),
            self.announced_modules.map(|modules| format!("draft modules announced: {modules}")),
        ];
        let shape: Vec<_> = shape.into_iter().flatten().collect();
        if !shape.is_empty() {
            writeln!(f, "shape    {}", shape.join(", "))?;
        }
        if let Some(context) = self.context_length {
            writeln!(f, "context  {context} tokens")?;
        }
        write!(f, "memory   weights {} as {}", DecimalBytes(self.tensor_bytes), self.dtype)
    }
}
