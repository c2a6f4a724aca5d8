//! Facts from the header of any GGUF file, also of one that does not run: `models info`.
//!
//! Invariant: nothing here is needed to run a model, so a missing key is left out and never an error.

use std::fmt::{self, Display};
use std::path::Path;

use indicatif::DecimalBytes;
use serde::Serialize;

use crate::error::clean;
use crate::files::GgufFile;
use crate::load::gguf_drafting::GgufDrafting;
use crate::load::server_flags::ServerFlags;

/// Figures that the header of a GGUF file has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GgufSummary {
    /// The model's name, as people write it.
    pub title: String,
    /// The name in the file (`general.name`), if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own_name: Option<String>,
    /// The family, as the file names it; `(none)` if it does not.
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
    /// Files that it consists of: more than 1 for a split file whose parts are all there.
    pub files: usize,
    /// Bytes of all these files.
    #[serde(skip)]
    pub file_bytes: u64,
    /// Which part of a split file it is, from 1, and the number of parts; null if all parts are there.
    pub part: Option<(u64, u64)>,
    /// Types of its tensors, the one with the most bytes first.
    pub types: Vec<TypeShare>,
    /// What it can draft with, or for.
    pub drafting: GgufDrafting,
    /// Options of other engines that switch speculation on.
    pub engines: ServerFlags,
}

/// Tensors of one type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TypeShare {
    /// Its name in ggml, such as `Q4_K`.
    pub name: String,
    /// Tensors of this type.
    pub tensors: usize,
    /// Their bytes; null for a type whose size is not known.
    pub bytes: Option<u64>,
    /// Whether this version decodes it.
    pub runs: bool,
    /// If not: the first tensors of this type, by name, at most [`NAMED`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub named: Vec<String>,
}

/// Most tensors of a type that does not run that are named.
pub const NAMED: usize = 3;

fn types(gguf: &GgufFile) -> Vec<TypeShare> {
    let mut tensors: Vec<_> = gguf.kinds().collect();
    tensors.sort_by_key(|(name, ..)| *name);
    let mut shares: Vec<TypeShare> = Vec::new();
    for (tensor, kind, bytes) in tensors {
        let runs = kind.encoding().is_some();
        let at = shares.iter().position(|share| share.name == kind.name()).unwrap_or_else(|| {
            shares.push(TypeShare {
                name: kind.name().into_owned(),
                tensors: 0,
                bytes: Some(0),
                runs,
                named: Vec::new(),
            });
            shares.len() - 1
        });
        let share = &mut shares[at];
        share.tensors += 1;
        share.bytes = share.bytes.zip(bytes).and_then(|(sum, bytes)| sum.checked_add(bytes));
        if !runs && share.named.len() < NAMED {
            share.named.push(clean(tensor));
        }
    }
    shares.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
    shares
}

impl GgufSummary {
    /// Reads the header; `None` if it is not a complete GGUF file.
    #[must_use]
    pub fn read(path: &Path) -> Option<Self> {
        if path.is_dir() {
            return None;
        }
        // a part whose others are missing still has its own header
        let gguf = GgufFile::open(path).or_else(|_| GgufFile::open_part(path)).ok()?;
        let architecture = gguf.text("general.architecture").unwrap_or("(none)").to_owned();
        let number = |name: &str| gguf.number(&format!("{architecture}.{name}")).filter(|number| *number > 0);
        let announced = gguf.number("split.count").filter(|parts| *parts > 1 && gguf.parts() == 1);
        let drafting = GgufDrafting::of(&gguf, &architecture);
        let engines = ServerFlags::of(gguf.path(), &gguf, &drafting);
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
            files: gguf.parts(),
            file_bytes: gguf.file_bytes(),
            part: announced.map(|parts| (gguf.number("split.no").map_or(1, |part| part.saturating_add(1)), parts)),
            types: types(&gguf),
            drafting,
            engines,
            architecture: clean(&architecture),
        })
    }

    /// What `models info` prints of a model that runs, beside its card: types, draft module and options of engines.
    #[must_use]
    pub fn beside_card(&self) -> String {
        let split = (self.files > 1).then(|| format!("split    {} parts, all there", self.files));
        split
            .into_iter()
            .chain([self.types_line(), format!("drafts   {}", self.drafting), self.engines.to_string()])
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// Leaves out the options of engines: for a file that none of them loads.
    pub fn drop_engines(&mut self) {
        self.engines = ServerFlags { llama_server: None, vllm: None };
    }

    fn types_line(&self) -> String {
        let share = |share: &TypeShare| {
            let bytes = share.bytes.map_or_else(|| "size unknown".to_owned(), |bytes| DecimalBytes(bytes).to_string());
            let stop = if share.runs { "" } else { " (does not run)" };
            let tensors = if share.tensors == 1 { "tensor" } else { "tensors" };
            format!("{} {} {tensors} {bytes}{stop}", share.name, share.tensors)
        };
        let types: Vec<_> = self.types.iter().map(share).collect();
        let mut line =
            format!("types    {}", if types.is_empty() { "no tensors".to_owned() } else { types.join(", ") });
        for share in self.types.iter().filter(|share| !share.runs) {
            let more = match share.tensors - share.named.len() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            line.push_str(&format!("\n         {} is the type of {}{more}", share.name, share.named.join(", ")));
        }
        line
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
        if let Some((part, parts)) = self.part {
            writeln!(f, "split    part {part} of {parts}; the lines below count the tensors of this part")?;
        }
        writeln!(f, "memory   weights {} as {}", DecimalBytes(self.tensor_bytes), self.dtype)?;
        f.write_str(&self.beside_card())
    }
}
