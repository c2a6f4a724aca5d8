//! The program's items that the suite uses, and helpers to open and edit fixtures. Only this file names items of
//! `draftscope::model`.

use std::fs;
use std::path::Path;

pub use draftscope::engine::measure::measure;
pub use draftscope::model::drafters::eagle3::HeadCard;
use draftscope::model::families::gemma4::Gemma4Config;
pub use draftscope::model::families::gemma4::assistant::AssistantCard;
pub use draftscope::model::files::SideFiles;
pub use draftscope::model::load::card::Card;
pub use draftscope::model::load::gguf_summary::GgufSummary;
pub use draftscope::model::load::preflight::preflight_within;
pub use draftscope::model::load::{Loaded, OpenModel, load};
pub use draftscope::model::nn::{RopeScaling, RopeSpec};
pub use draftscope::model::options::{Backend, DraftVocab, Dtype, LoadOptions, ModuleFile, PassForm, Rollback};
pub use draftscope::model::row_by_row::RowByRow;
pub use draftscope::model::text::template::ChatTemplate;
pub use draftscope::model::text::tokenizer::TextCodec;
pub use draftscope::model::{Best, Checkpoint, DraftModule, Forward, LogitRows, Model, ModelError, Rows, State, Tap};
pub use draftscope::protocol::{MtpOverride, TokenId};
pub use safetensors::Dtype as Stored;
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
pub use serde_json::{Value, json};

pub use crate::common::checkpoint::{Golden, copy, edit, path, recipe as bare_options};

/// A module like the built-in one, which fits no fixture.
pub fn built_in() -> ModuleFile {
    let config = json!({
        "hidden_size": 576, "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64,
        "intermediate_size": 1536, "vocab_size": 49152, "draft_vocab_size": 16384, "num_nextn_predict_layers": 1,
        "rms_norm_eps": 1e-5, "rope_theta": 1e5, "concat_order": ["embedding", "hidden"]
    });
    let config = config.to_string().into_bytes().into();
    ModuleFile { name: "built-in".into(), weights: Vec::new().into(), config, sha256: None, required: false }
}

/// The program's default options: the built-in module is offered to every target.
pub fn options(target: &Path, backend: Backend) -> LoadOptions {
    LoadOptions { mtp: Some(built_in()), ..bare_options(target.into(), backend) }
}

/// [`options`] with a draft module or draft model in another folder.
pub fn with_draft(target: &Path, draft: &Path, backend: Backend) -> LoadOptions {
    LoadOptions { draft_model: Some(draft.into()), ..options(target, backend) }
}

/// [`options`], but the offered module is required, as with `--mtp`.
pub fn by_hand(target: &Path, backend: Backend) -> LoadOptions {
    LoadOptions { mtp: Some(ModuleFile { required: true, ..built_in() }), ..options(target, backend) }
}

pub fn try_open(options: &LoadOptions) -> Result<Loaded, ModelError> {
    load(options, &mut |_, _, _| {})
}

pub fn open(options: &LoadOptions) -> Loaded {
    try_open(options).unwrap_or_else(|error| panic!("{}: {error}", options.target.display()))
}

/// The message with which a target was rejected.
pub fn refusal(options: &LoadOptions) -> String {
    let error = try_open(options).err().unwrap_or_else(|| panic!("{} was opened", options.target.display()));
    one_sentence(error.to_string())
}

/// The notice with which a draft module was ignored; the target runs.
pub fn left_out(options: &LoadOptions) -> String {
    let loaded = open(options);
    assert!(loaded.mtp.is_none() && loaded.deeper.is_empty() && loaded.target.spec().ctx_len == 512);
    one_sentence(loaded.notice.expect("a module was ignored without a notice"))
}

pub fn one_sentence(text: String) -> String {
    assert!(text.lines().count() == 1 && text.len() < 400, "{text}");
    text
}

/// The draft modules, beginning with depth 1.
pub fn modules_of(loaded: &mut Loaded) -> Vec<Box<dyn DraftModule>> {
    loaded.mtp.take().into_iter().map(|(module, _)| module).chain(std::mem::take(&mut loaded.deeper)).collect()
}

/// The prompt that the oracle continued, and its greedy continuation.
pub fn oracle_text(golden: &Golden) -> Vec<TokenId> {
    [&golden.tokens("tokens")[..8], &golden.tokens("greedy")].concat()
}

/// A number on a card that only some families have.
pub fn family_number(card: &Card, group: &str, key: &str) -> Option<u64> {
    card.family.get(group)?.get(key)?.as_u64()
}

/// Rotary positions of Gemma 4's full layers.
pub fn full_rope(folder: &Path) -> RopeSpec {
    let config = OpenModel::open(folder).unwrap().config as Box<dyn std::any::Any>;
    config.downcast::<Gemma4Config>().unwrap().gemma.full_rope
}

/// Sets a value of a JSON file; dots separate the keys that lead to it.
pub fn set(folder: &Path, file: &str, keys: &str, value: Value) {
    let pointer = format!("/{}", keys.replace('.', "/"));
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    edit(folder, file, |root| root.pointer_mut(parent).unwrap()[key] = value);
}

/// Removes a key of a JSON file.
pub fn lack(folder: &Path, file: &str, key: &str) {
    edit(folder, file, |root| drop(root.as_object_mut().unwrap().remove(key).unwrap()));
}

pub fn set_config(folder: &Path, keys: &str, value: Value) {
    set(folder, "config.json", keys, value);
}

/// Truncates a file to this many bytes; a negative number removes bytes from its end.
pub fn cut(file: &Path, len: i64) {
    let file = fs::OpenOptions::new().write(true).open(file).unwrap();
    let len = if len < 0 { file.metadata().unwrap().len().checked_add_signed(len).unwrap() } else { len as u64 };
    file.set_len(len).unwrap();
}

/// A tensor that an edit may change.
pub struct Tensor {
    pub name: String,
    pub dtype: Stored,
    pub shape: Vec<usize>,
    pub data: Vec<u8>,
}

pub fn read_tensors(file: &Path) -> Vec<Tensor> {
    let bytes = fs::read(file).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap().tensors();
    let tensor = |(name, view): (String, TensorView<'_>)| {
        let (dtype, shape, data) = (view.dtype(), view.shape().to_vec(), view.data().to_vec());
        Tensor { name, dtype, shape, data }
    };
    tensors.into_iter().map(tensor).collect()
}

pub fn write_tensors(file: &Path, tensors: &[Tensor]) {
    let views = tensors
        .iter()
        .map(|tensor| (&tensor.name, TensorView::new(tensor.dtype, tensor.shape.clone(), &tensor.data).unwrap()));
    fs::write(file, safetensors::serialize(views, None).unwrap()).unwrap();
}

/// Adds a tensor to `model.safetensors`.
pub fn add(folder: &Path, tensor: Tensor) {
    let file = folder.join("model.safetensors");
    let mut tensors = read_tensors(&file);
    tensors.push(tensor);
    write_tensors(&file, &tensors);
}

/// Rewrites the safetensors files of a folder; tensors for which `change` returns false are dropped. At least one tensor
/// must change.
pub fn rewrite(folder: &Path, change: impl Fn(&mut Tensor) -> bool) {
    let mut changed = false;
    for entry in fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_none_or(|end| end != "safetensors") || file.ends_with("golden.safetensors") {
            continue;
        }
        let mut tensors = read_tensors(&file);
        tensors.retain_mut(|tensor| {
            let (shape, data) = (tensor.shape.clone(), tensor.data.clone());
            let kept = change(tensor);
            changed |= !kept || tensor.shape != shape || tensor.data != data;
            kept
        });
        write_tensors(&file, &tensors);
    }
    assert!(changed, "no tensor changed");
}

/// Drops the tensors whose names contain this.
pub fn without(folder: &Path, part: &str) {
    rewrite(folder, |tensor| !tensor.name.contains(part));
}

/// Splits `model.safetensors` into two shards with an index.
pub fn shard(folder: &Path) {
    let whole = folder.join("model.safetensors");
    let tensors = read_tensors(&whole);
    fs::remove_file(whole).unwrap();
    let mut map = serde_json::Map::new();
    for (index, part) in tensors.chunks(tensors.len().div_ceil(2)).enumerate() {
        let file = format!("model-0000{}-of-00002.safetensors", index + 1);
        map.extend(part.iter().map(|tensor| (tensor.name.clone(), json!(file))));
        write_tensors(&folder.join(file), part);
    }
    fs::write(folder.join("model.safetensors.index.json"), json!({"weight_map": map}).to_string()).unwrap();
}
