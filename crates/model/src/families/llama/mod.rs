//! The Llama kind (Llama, Qwen2, Qwen3) and MiMo, which has draft modules.

pub(crate) mod mimo;

use crate::ModelError;
use crate::files::{ConfigJson, Folder, Layout, block_part, llama_part};
use crate::interfaces::{Names, OwnModules, Planned, PlannedFamily};
use crate::nn::{Conventions, Ends, Extras, GgufKeys, HfKeys, LLAMA_LAYOUT, TransformerConfig, refuse_biases};
use crate::plan::{Layer, MAX_MODULES, Plan, PlanFiles};

/// Llama, and models of its layout: SmolLM2, TinyLlama.
pub static LLAMA: PlannedFamily = PlannedFamily {
    names: Names { title: "llama", gguf: &["llama"], json: &["llama"] },
    json: |json, folder| from_json(&LLAMA_LAYOUT[0], json, folder),
    gguf: |keys| from_gguf(&LLAMA_LAYOUT[0], keys),
    tensors: tensor_name,
};

/// Qwen2 and 2.5 without experts: queries, keys and values have a bias.
pub static QWEN2: PlannedFamily = PlannedFamily {
    names: Names { title: "qwen2", gguf: &["qwen2"], json: &["qwen2"] },
    json: |json, folder| from_json(&LLAMA_LAYOUT[1], json, folder),
    gguf: |keys| from_gguf(&LLAMA_LAYOUT[1], keys),
    tensors: tensor_name,
};

/// Qwen3 without experts: queries and keys are normed.
pub static QWEN3: PlannedFamily = PlannedFamily {
    names: Names { title: "qwen3", gguf: &["qwen3"], json: &["qwen3"] },
    json: |json, folder| from_json(&LLAMA_LAYOUT[2], json, folder),
    gguf: |keys| from_gguf(&LLAMA_LAYOUT[2], keys),
    tensors: tensor_name,
};

/// MiMo-7B: Qwen2 with draft modules of its own, in folders.
pub static MIMO: PlannedFamily = PlannedFamily {
    names: Names { title: "mimo", gguf: &["mimo"], json: &["mimo"] },
    json: |json, folder| Ok(with_modules(from_json(&LLAMA_LAYOUT[3], json, folder)?, json, folder)),
    gguf: |keys| from_gguf(&LLAMA_LAYOUT[3], keys),
    tensors: tensor_name,
};

fn from_json(conventions: &Conventions, json: &ConfigJson, folder: Option<&Folder>) -> Result<Planned, ModelError> {
    refuse_biases(folder, conventions, Some(mimo::LAYERS))?;
    let keys = json.read::<HfKeys>()?;
    let transformer = keys.transformer(conventions, Ends::of(json, folder), Extras::default())?;
    Ok(planned(transformer))
}

fn from_gguf(conventions: &Conventions, keys: GgufKeys<'_>) -> Result<Planned, ModelError> {
    keys.transformer(conventions, None).map(planned)
}

fn planned(transformer: TransformerConfig) -> Planned {
    let plan = Plan::llama(&transformer);
    Planned::new(transformer, plan)
}

/// The same with the draft modules that `config.json` announces, whose layers follow the last one.
fn with_modules(planned: Planned, json: &ConfigJson, folder: Option<&Folder>) -> Planned {
    let (config, count) = (planned.transformer, json.announced_modules());
    let layer = |block| Layer::usual(&config, block);
    let plan = planned.plan.with_modules(PlanFiles::Checkpoint(folder), (count, MAX_MODULES), layer);
    let modules = OwnModules::new(move |source, of| mimo::plans(source, &of.transformer, count));
    let own = (count > 0).then_some(OwnModules { trims: false, ..modules });
    Planned { own, ..Planned::new(config, plan) }
}

/// The checkpoint's name of a tensor; a draft module's block counts as one more layer.
fn tensor_name(layout: &Layout, name: &str) -> Option<String> {
    let (layer, part) = block_part(name)?;
    let (part, kind) = part.rsplit_once('.')?;
    let of = match layer.checked_sub(layout.layers) {
        Some(module) => format!("{}.{module}", mimo::LAYERS),
        None => format!("layers.{layer}"),
    };
    let own = llama_part(part).or_else(|| mimo::part(part))?;
    Some(format!("{}{of}.{own}.{kind}", layout.prefix))
}
