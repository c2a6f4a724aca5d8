//! The families Qwen3.5, Qwen3.5 with experts, and Qwen3-Next: names, sizes, tensor names.

use crate::ModelError;
use crate::families::qwen35::{
    config::{Hybrid, HybridKeys, Qwen35Config},
    load, module, names,
};
use crate::files::{ConfigJson, Folder, GgufFile, ModelFiles, TensorNames};
use crate::interfaces::{Backend, Drafting, Family, FamilyConfig, LoadContext, LoadResult, Names, Progress};
use crate::nn::{Conventions, Ends, Extras, GgufKeys, HfKeys, PairOrder, TransformerConfig, refuse_biases};
use crate::plan::{HeadOrder, Plan, PlanFiles};

/// A family whose linear layers are Gated DeltaNets.
pub struct Qwen35Family {
    names: Names,
    conventions: Conventions,
    /// Order of heads in the linear layers of GGUF files.
    gguf_order: HeadOrder,
    /// Whether feed-forward layers have experts.
    experts: bool,
}

/// Qwen3.5 (3.6 and 3.8 alike) without experts.
pub static QWEN35: Qwen35Family = Qwen35Family::named(
    Names { title: "qwen3.5", gguf: &["qwen35"], json: &["qwen35", "qwen3_5", "qwen3_5_text"] },
    "qwen35",
);

/// Qwen3.5 (3.6 and 3.8 alike) with experts.
pub static QWEN35_MOE: Qwen35Family = Qwen35Family {
    experts: true,
    ..Qwen35Family::named(
        Names { title: "qwen3.5-moe", gguf: &["qwen35moe"], json: &["qwen3_5_moe", "qwen3_5_moe_text"] },
        "qwen35moe",
    )
};

/// Qwen3-Next and Qwen3-Coder-Next.
pub static QWEN3_NEXT: Qwen35Family = Qwen35Family {
    experts: true,
    gguf_order: HeadOrder::Grouped,
    ..Qwen35Family::named(Names { title: "qwen3-next", gguf: &["qwen3next"], json: &["qwen3_next"] }, "qwen3next")
};

impl Qwen35Family {
    const fn named(names: Names, name: &'static str) -> Self {
        let gguf_pairs = PairOrder::HalfSplit;
        let conventions = Conventions { name, qk_norm: true, qkv_bias: false, gguf_pairs };
        Self { names, conventions, gguf_order: HeadOrder::Tiled, experts: false }
    }
}

impl Family for Qwen35Family {
    fn names(&self) -> Names {
        self.names
    }

    fn read_json(&self, json: &ConfigJson, folder: Option<&Folder>) -> Result<Box<dyn FamilyConfig>, ModelError> {
        refuse_biases(folder, &self.conventions, None)?;
        let own = HybridKeys::from_json(json.keys())?;
        // where every layer has experts, files need not state the width of other layers
        let width = json.keys().get("moe_intermediate_size").filter(|_| self.experts);
        let json =
            width.map_or(json.clone(), |width| json.clone().with_defaults(&[("intermediate_size", width.clone())]));
        let keys = json.read::<HfKeys>()?;
        let extras = Extras { layer_types: true, partial_rotary: true, ..Extras::default() };
        let transformer = keys.transformer(&self.conventions, Ends::of(&json, folder), extras)?;
        let hybrid = own.hybrid((transformer.layers, transformer.head_dim), self.experts)?;
        Ok(Box::new(Qwen35Config::new(transformer, hybrid, PlanFiles::Checkpoint(folder))))
    }

    fn read_gguf(&self, gguf: &GgufFile) -> Result<Box<dyn FamilyConfig>, ModelError> {
        let keys = GgufKeys { gguf, arch: self.conventions.name };
        let hybrid = Hybrid::from_gguf(&keys, self.gguf_order, self.experts)?;
        let transformer = keys.with_experts(&self.conventions, Some(hybrid.rotary))?;
        if !self.experts {
            keys.refuse_experts()?;
        }
        Ok(Box::new(Qwen35Config::new(transformer, hybrid, PlanFiles::Gguf(gguf))))
    }

    fn tensor_names(&self) -> TensorNames {
        names::tensor_name
    }
}

impl FamilyConfig for Qwen35Config {
    fn transformer(&self) -> &TransformerConfig {
        &self.transformer
    }

    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn trims_draft_vocab(&self, named: bool) -> bool {
        !named
    }

    fn drafter(&self) -> Option<&'static str> {
        Some("none of its own")
    }

    fn drafting(&self, source: &ModelFiles) -> Drafting {
        Drafting { own: Some(module::plans(source, self)), no_sharing: Some(load::no_sharing(&self.transformer)) }
    }

    fn load(&self, context: &LoadContext<'_>, backend: Backend<'_>, progress: &mut Progress<'_>) -> LoadResult {
        load::target(self, context, &backend, progress)
    }
}
