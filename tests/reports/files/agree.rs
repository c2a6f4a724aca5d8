//! `models info` and loading agree about every damaged variant of a tiny model of each family.

use std::path::Path;

use candle_core::quantized::gguf_file::Value;
use draftscope::model::load::{check, load};
use draftscope::model::options::LoadOptions;
use serde_json::{Value as Json, json};

use super::{header, with_header};
use crate::common::checkpoint::{copy, path};
use crate::common::tiny::Tiny;

/// Whether it loads, and whether the check before says so; in words.
fn both(file: &Path) -> [Result<(), String>; 2] {
    let mut options = LoadOptions::on_cpu(file.to_owned(), None);
    options.threads = Some(1);
    let checked = check(file).map_err(|error| error.to_string());
    [checked, load(&options, &mut |_, _, _| {}).map(drop).map_err(|error| error.to_string())]
}

/// Compares both; `what` names the variant.
fn agree(file: &Path, what: &str) -> bool {
    let [checked, loaded] = both(file);
    assert_eq!(checked, loaded, "{what}");
    if let Err(error) = &checked {
        assert!(error.lines().count() == 1 && !error.contains("candle_core::"), "{what}: {error}");
    }
    checked.is_ok()
}

/// Where the entries of the tensors of a GGUF file begin: at the length of a name.
fn entries(bytes: &[u8], names: &[String]) -> Vec<usize> {
    let entry = |name: &String| {
        let mut searched = (name.len() as u64).to_le_bytes().to_vec();
        searched.extend(name.as_bytes());
        bytes.windows(searched.len()).position(|window| window == searched).unwrap()
    };
    names.iter().map(entry).collect()
}

/// Every variant of a GGUF file in which one tensor has another name, or one row less.
fn each_tensor_of_gguf(fixture: &str) {
    let bytes = std::fs::read(path(fixture)).unwrap();
    let mut reader = std::io::Cursor::new(&bytes);
    let content = candle_core::quantized::gguf_file::Content::read(&mut reader).unwrap();
    let mut names: Vec<String> = content.tensor_infos.into_keys().collect();
    names.sort();
    let file = tempfile::Builder::new().suffix(".gguf").tempfile().unwrap();
    let mut rejected = 0;
    for (name, at) in names.iter().zip(entries(&bytes, &names)) {
        let mut renamed = bytes.clone();
        renamed[at + 8] = b'z';
        let mut shorter = bytes.clone();
        let dims = at + 8 + name.len();
        let last = dims + 4 + 8 * (usize::from(bytes[dims]) - 1);
        shorter[last] = shorter[last].wrapping_sub(1);
        for (what, variant) in [("without", renamed), ("one less in", shorter)] {
            std::fs::write(file.path(), variant).unwrap();
            rejected += usize::from(!agree(file.path(), &format!("{fixture} {what} {name}")));
        }
    }
    // draft modules of the file may be damaged, and a head may be missing
    assert!(rejected > names.len(), "{fixture}: {rejected} of {}", 2 * names.len());
}

/// Every variant of a folder in which one tensor has another name, or another shape.
fn each_tensor_of_folder(fixture: &str) {
    let folder = copy(fixture);
    let file = ["model.safetensors", "model-00001-of-00002.safetensors"].map(|name| folder.path().join(name));
    let file = file.into_iter().find(|file| file.is_file()).unwrap();
    let bytes = std::fs::read(&file).unwrap();
    let header = header(&bytes);
    let mut rejected = 0;
    for (name, tensor) in header.iter().filter(|(name, _)| *name != "__metadata__") {
        let mut renamed = header.clone();
        renamed.remove(name);
        renamed.insert(format!("z{name}"), tensor.clone());
        let mut reshaped = header.clone();
        let shape = tensor["shape"].as_array().unwrap();
        let mut other: Vec<Json> = shape.iter().rev().cloned().collect();
        if other == *shape {
            other.insert(0, json!(1));
        }
        reshaped[name]["shape"] = other.into();
        for (what, variant) in [("without", renamed), ("another shape of", reshaped)] {
            std::fs::write(&file, with_header(&bytes, &variant)).unwrap();
            rejected += usize::from(!agree(folder.path(), &format!("{fixture} {what} {name}")));
        }
    }
    assert!(rejected > header.len() / 2, "{fixture}: {rejected} of {}", 2 * header.len());
}

/// Every variant of a folder in which one key of its configuration is missing or has another value.
fn each_key_of_folder(fixture: &str) {
    let folder = copy(fixture);
    let file = folder.path().join("config.json");
    let config: serde_json::Map<String, Json> = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    for (key, value) in &config {
        for other in [None, Some(json!("x")), Some(json!(-1)), Some(json!([2, 3])), Some(json!({})), Some(Json::Null)] {
            let mut changed = config.clone();
            changed.remove(key);
            let what = format!("{fixture} with {key} = {other:?} in place of {value}");
            changed.extend(other.map(|other| (key.clone(), other)));
            std::fs::write(&file, Json::from(changed).to_string()).unwrap();
            agree(folder.path(), &what);
        }
    }
}

#[test]
fn about_every_tensor_of_gguf_files() {
    for fixture in ["llama.gguf", "qwen35.gguf", "gemma3.gguf", "deepseek2.gguf", "qwen3moe.gguf"] {
        each_tensor_of_gguf(fixture);
    }
}

#[test]
fn about_every_tensor_of_more_gguf_files() {
    for fixture in ["gemma4-experts.gguf", "glm4moe.gguf"] {
        each_tensor_of_gguf(fixture);
    }
}

#[test]
fn about_every_tensor_of_folders() {
    for fixture in ["llama", "qwen3-fp8", "qwen35", "gemma3", "deepseek", "mimo"] {
        each_tensor_of_folder(fixture);
    }
}

#[test]
fn about_every_key_of_folders() {
    for fixture in ["llama", "deepseek"] {
        each_key_of_folder(fixture);
    }
}

#[test]
fn about_every_key_of_a_gguf_file() {
    let mut keys = Vec::new();
    drop(Tiny::with(1, |parts| keys = parts.metadata.iter().map(|(key, _)| key.clone()).collect()));
    assert!(keys.len() > 15);
    let others = [
        None,
        Some(Value::String("x\u{1b}[31m".into())),
        Some(Value::U32(7)),
        Some(Value::I32(-1)),
        Some(Value::F64(0.5)),
        Some(Value::U64(u64::MAX)),
        Some(Value::Bool(true)),
        Some(Value::Array(vec![Value::U32(2), Value::U32(3)])),
        Some(Value::Array(Vec::new())),
    ];
    for (at, key) in keys.iter().enumerate() {
        for other in &others {
            let what = format!("{key} = {other:?}");
            let tiny = Tiny::with(1, |parts| match other {
                Some(other) => parts.metadata[at].1 = other.clone(),
                None => drop(parts.metadata.remove(at)),
            });
            agree(&tiny.target, &what);
        }
    }
}
