//! The default model, and reference values of its MTP modules.

use std::path::{Path, PathBuf};

use draftscope::model::load::{Loaded, load};
use draftscope::model::options::{Backend, DeviceChoice, Dtype, LoadOptions, ModuleFile};
use serde::Deserialize;

use super::bf16::in_bf16;

/// The target's file; `None` only with `DRAFTSCOPE_OFFLINE=1`.
pub fn target_file() -> Option<PathBuf> {
    if std::env::var("DRAFTSCOPE_OFFLINE").is_ok_and(|v| v == "1") {
        println!("not run: DRAFTSCOPE_OFFLINE=1");
        return None;
    }
    Some(draftscope::store::resolve(None).unwrap_or_else(|error| panic!("the default model is needed: {error}")))
}

/// A file of the unfused module: its configuration, or its reference values.
pub fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/smollm2-135m-mtp").join(name)
}

/// A file with reference values of the built-in module.
pub fn built_in_fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/built-in-mtp").join(name)
}

/// The built-in module: it reads several of the target's layers, and tokens of the text join its vocabulary.
pub fn mtp_built_in() -> ModuleFile {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/mtp/smollm2-135m");
    let [weights, config] =
        ["mtp.fp8.safetensors", "config.json"].map(|file| std::fs::read(folder.join(file)).unwrap());
    let (weights, config) = (weights.into(), config.into());
    ModuleFile { name: "smollm2-135m-mtp".into(), weights, config, sha256: None, required: true }
}

/// The unfused module: the built-in one, but it reads the target's last state only, and its vocabulary is fixed.
pub fn mtp_fp8() -> ModuleFile {
    ModuleFile { config: std::fs::read(fixture("config.json")).unwrap().into(), ..mtp_built_in() }
}

/// The unfused module in bf16.
pub fn mtp_bf16() -> ModuleFile {
    let module = mtp_fp8();
    ModuleFile { weights: in_bf16(&module.weights).into(), ..module }
}

/// The FP8 module twice, as a stack with one module per depth.
pub fn mtp_stack_of_two() -> ModuleFile {
    let recipe = mtp_fp8();
    let file = safetensors::SafeTensors::deserialize(&recipe.weights).unwrap();
    let mut tensors = file.tensors();
    let second = tensors.iter().filter(|(name, _)| name.contains(".layers.0."));
    let second: Vec<_> = second.map(|(name, view)| (name.replace(".0.", ".1."), view.clone())).collect();
    tensors.extend(second);
    let weights = safetensors::serialize(tensors, None).unwrap();
    let config = String::from_utf8(recipe.config.to_vec()).unwrap();
    let config = config.replace("\"num_nextn_predict_layers\": 1", "\"num_nextn_predict_layers\": 2");
    ModuleFile { weights: weights.into(), config: config.into_bytes().into(), ..recipe }
}

/// Loads the default target on the native backend with another module; none when offline.
pub fn load_native_with(mtp: ModuleFile) -> Option<Result<Loaded, draftscope::model::ModelError>> {
    Some(load(&recipe(Backend::Native, Dtype::Auto, mtp)?, &mut |_, _, _| {}))
}

/// Loads the default target on candle; `None` if offline.
pub fn load_target(dtype: Dtype, mtp: ModuleFile) -> Option<Loaded> {
    load_on(Backend::Candle, dtype, mtp)
}

/// Loads the default target on the native backend; `None` if offline.
pub fn load_native() -> Option<Loaded> {
    load_on(Backend::Native, Dtype::Auto, mtp_fp8())
}

/// Loads the default target, or the file that `DRAFTSCOPE_NEAR_MODEL` names instead; `None` if offline.
pub fn load_near(backend: Backend, dtype: Dtype) -> Option<Loaded> {
    let mut recipe = recipe(backend, dtype, mtp_fp8())?;
    if let Some(file) = std::env::var_os("DRAFTSCOPE_NEAR_MODEL") {
        recipe.target = file.into();
    }
    Some(load(&recipe, &mut |_, _, _| {}).unwrap())
}

/// Loads it with the target's own file as draft model, whose drafts are always right.
pub fn load_native_with_draft_model() -> Option<Loaded> {
    let recipe = recipe(Backend::Native, Dtype::Auto, mtp_fp8())?;
    let recipe = LoadOptions { draft_model: Some(recipe.target.clone()), ..recipe };
    Some(load(&recipe, &mut |_, _, _| {}).unwrap())
}

fn load_on(backend: Backend, dtype: Dtype, mtp: ModuleFile) -> Option<Loaded> {
    Some(load(&recipe(backend, dtype, mtp)?, &mut |_, _, _| {}).unwrap())
}

fn recipe(backend: Backend, dtype: Dtype, mtp: ModuleFile) -> Option<LoadOptions> {
    let target = target_file()?;
    let device = DeviceChoice::Cpu;
    Some(LoadOptions {
        target,
        sha256: None,
        dtype,
        device,
        adapter: None,
        device_memory: None,
        backend,
        threads: None,
        ctx_len: Some(1024),
        mtp: Some(mtp),
        draft_model: None,
        draft_model_required: false,
        vocab_method: None,
        divides_by_q: false,
        rollback: None,
        draft_vocab: None,
        think: None,
        special_tokens: false,
        pass_form: None,
    })
}

/// One entry of `golden.json`.
#[derive(Deserialize)]
pub struct Golden {
    pub category: String,
    pub prompt: String,
    pub prompt_ids: Vec<u32>,
    pub output_ids: Vec<u32>,
    pub steps: Vec<GoldenStep>,
}

/// One round of a golden trace.
#[derive(Deserialize)]
pub struct GoldenStep {
    pub drafted: Vec<u32>,
    pub accepted: usize,
}

/// The golden traces of the built-in module.
pub fn golden() -> Vec<Golden> {
    golden_of(built_in_fixture)
}

/// The golden traces of a module with these files.
pub fn golden_of(fixture: fn(&str) -> PathBuf) -> Vec<Golden> {
    serde_json::from_slice(&std::fs::read(fixture("golden.json")).unwrap()).unwrap()
}

/// One entry of `parity.json`.
#[derive(Deserialize)]
pub struct Parity {
    pub prompt: String,
    pub ids: Vec<u32>,
    pub next: u32,
    pub drafted: Vec<u32>,
}

pub fn parity_of(fixture: fn(&str) -> PathBuf) -> Vec<Parity> {
    serde_json::from_slice(&std::fs::read(fixture("parity.json")).unwrap()).unwrap()
}
