//! The families Qwen3.5, Qwen3.5 with experts, and Qwen3-Next: names, sizes, tensor names.

use serde_json::{Map, json};

use crate::model::ModelError;
use crate::model::drafters::core::OwnTensors;
use crate::model::families::qwen35::{
    config::{Hybrid, HybridKeys, Qwen35Config},
    experts::ExpertShape,
    load, module, names,
};
use crate::model::files::{ConfigJson, Folder, GgufFile, MatrixForm, ModelFiles, TensorNames};
use crate::model::interfaces::{
    Backend, Description, Drafting, Family, FamilyConfig, LoadContext, LoadResult, Names, OwnModules, Progress,
};
use crate::model::nn::{
    Conventions, Ends, Extras, GgufKeys, HfKeys, PairOrder, PassWidths, TransformerConfig, expected_experts,
    expert_numbers, refuse_biases,
};
use crate::model::plan::{HeadOrder, Plan, PlanFiles};
use crate::protocol::MemoryAccount;

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

impl Qwen35Config {
    /// Weights that a token is multiplied with; an embedding that is not also the head is only looked up.
    fn active_weights(&self, experts: ExpertShape) -> u64 {
        let c = &self.transformer;
        let [all, active] = experts.weights(c.d_model);
        let looked_up = if c.tied { 0 } else { (c.vocab * c.d_model) as u64 };
        self.matrix_weights() - looked_up - c.layers as u64 * (all - active)
    }
}

impl FamilyConfig for Qwen35Config {
    fn transformer(&self) -> &TransformerConfig {
        &self.transformer
    }

    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn matrix_weights(&self) -> u64 {
        let c = &self.transformer;
        let [d, q, kv, ffn, layers] = [c.d_model, c.q_width(), c.kv_width(), c.ffn, c.layers].map(|n| n as u64);
        let delta = &self.hybrid.delta;
        let [mixed, values, heads] = [delta.channels(), delta.value_width(), delta.value_heads].map(|n| n as u64);
        let linear = d * (mixed + 2 * values + 2 * heads);
        let attending = 3 * d * q + 2 * d * kv; // queries come with as many gates
        let count = self.hybrid.linear_layers() as u64;
        let feed_forward = match self.hybrid.experts {
            Some(experts) => experts.weights(c.d_model)[0],
            None => 3 * d * ffn,
        };
        count * linear + (layers - count) * attending + layers * feed_forward + c.end_weights()
    }

    fn is_large(&self) -> bool {
        self.hybrid.experts.is_some()
    }

    fn cached_values(&self) -> u64 {
        self.attending_layers() as u64 * 2 * self.transformer.kv_width() as u64
    }

    fn state_bytes(&self) -> u64 {
        self.hybrid.state_bytes()
    }

    fn replay_bytes(&self) -> u64 {
        self.hybrid.linear_layers() as u64 * self.hybrid.delta.input_bytes()
    }

    /// Queries come with as many gates; of a linear layer's rows the projections exist as tensors and as lists.
    fn pass_widths(&self) -> PassWidths {
        let (c, delta) = (&self.transformer, &self.hybrid.delta);
        let other = 2 * delta.channels() + 3 * delta.value_width();
        let of = |shape: &ExpertShape| expert_numbers(shape.used, c.d_model, shape.width);
        let experts = self.hybrid.experts.as_ref().map_or([0; 2], of);
        let ffn = self.hybrid.experts.as_ref().map_or(c.ffn, |shape| shape.width.max(shape.shared));
        PassWidths { queries: 4 * c.q_width(), ffn, other, rotary: self.hybrid.rotary, experts, ..c.pass_widths() }
    }

    fn memory(&self, context: &LoadContext<'_>, account: MemoryAccount, _form: MatrixForm) -> MemoryAccount {
        // rows of the head that a trimmed one copies, in f32
        let vocab = context.draft_vocab().ok().flatten().filter(|_| account.drafter_kv > 0);
        let trimmed = vocab.map_or(0, |vocab| 4 * (vocab.len() * self.transformer.d_model) as u64);
        MemoryAccount { drafter_weights: account.drafter_weights + trimmed, ..account }
    }

    fn own_modules(&self, source: &ModelFiles) -> OwnModules {
        // its one module has no number
        let found = OwnTensors { source, config: &self.transformer }.has(0, "eh_proj");
        OwnModules { found: usize::from(found), announced: usize::from(self.hybrid.announces_mtp) }
    }

    fn trims_draft_vocab(&self, named: bool) -> bool {
        !named
    }

    fn describe(&self) -> Description {
        let (linear, layers) = (self.hybrid.linear_layers(), self.transformer.layers);
        let state = self.hybrid.state_bytes();
        let bytes = indicatif::DecimalBytes(state);
        let mut fields =
            Map::from_iter([("linear_layers".to_owned(), json!(linear)), ("state_bytes".to_owned(), json!(state))]);
        let mut memory = vec![format!(
            "state    {bytes} whatever the context, and as much for each row that may be rolled back (--rollback replay: little)"
        )];
        if let Some(experts) = self.hybrid.experts {
            let active = self.active_weights(experts);
            memory.push(format!(
                "experts  {} a layer; {} of them and a shared one serve a token, which meets {} weights; {}",
                experts.count,
                experts.used,
                indicatif::HumanCount(active),
                expected_experts(experts.count, experts.used)
            ));
            let experts = json!({
                "layers": layers, "count": experts.count, "used": experts.used, "shared": 1,
                "active_parameters": active,
            });
            fields.insert("experts".to_owned(), experts);
        }
        Description {
            fields,
            layers: vec![format!("mixers   {linear} layers of Gated DeltaNet, {} of gated attention", layers - linear)],
            memory,
            drafter: Some("none of its own".to_owned()),
        }
    }

    fn drafting(&self, source: &ModelFiles) -> Drafting {
        Drafting { own: Some(module::plans(source, self)), no_sharing: Some(load::no_sharing(&self.transformer)) }
    }

    fn load(&self, context: &LoadContext<'_>, backend: Backend<'_>, progress: &mut Progress<'_>) -> LoadResult {
        load::target(self, context, &backend, progress)
    }
}
