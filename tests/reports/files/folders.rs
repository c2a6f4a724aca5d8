//! Model folders as other engines, downloads and trainers leave them.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::{header, info, refused, runs, with_header};
use crate::common::checkpoint::{copy, edit};

fn config(folder: &Path, key: &str, value: Value) {
    edit(folder, "config.json", |config| config[key] = value);
}

/// Changes the header of the weights.
fn tensors(folder: &Path, change: impl Fn(&mut serde_json::Map<String, Value>)) {
    let file = folder.join("model.safetensors");
    let bytes = fs::read(&file).unwrap();
    let mut header = header(&bytes);
    change(&mut header);
    fs::write(file, with_header(&bytes, &header)).unwrap();
}

#[test]
fn packed_weights_are_named_with_their_engine() {
    let quantised = |key: &str, value: Value, says: &str| {
        let folder = copy("qwen3");
        config(folder.path(), key, value);
        refused(folder.path(), says);
    };
    let method = |method: &str| json!({"quant_method": method, "bits": 4});
    for (name, says) in
        [("awq", "AWQ, 4 bit"), ("gptq", "GPTQ, 4 bit"), ("hqq", "HQQ"), ("torchao", "torchao"), ("new", "'new'")]
    {
        quantised("quantization_config", method(name), says);
    }
    quantised("quantization", json!({"group_size": 64, "bits": 4}), "MLX, 4 bit");
    quantised("quantization_config", json!({"group_size": 64, "bits": 4}), "MLX, 4 bit");
    runs(copy("qwen3").path());

    // without a word in config.json
    for (end, more, says) in [
        ("scales", "biases", "MLX"),
        ("qweight", "qzeros", "AWQ or GPTQ"),
        ("weight_packed", "x", "compressed-tensors"),
    ] {
        let folder = copy("qwen3");
        tensors(folder.path(), |header| {
            for (part, of) in [("k_proj", end), ("v_proj", more)] {
                let name = format!("model.layers.0.self_attn.{part}.weight");
                let tensor = header.remove(&name).unwrap();
                header.insert(format!("model.layers.0.self_attn.{part}.{of}"), tensor);
            }
        });
        refused(folder.path(), &format!("packed as by another engine ({says}"));
    }
}

#[test]
fn what_is_missing_in_a_folder_is_named() {
    let without = |name: &str, put: &[(&str, &str)], says: &str| {
        let folder = copy("qwen3");
        fs::remove_file(folder.path().join(name)).unwrap();
        put.iter().for_each(|(name, text)| fs::write(folder.path().join(name), text).unwrap());
        refused(folder.path(), says);
    };
    let weights = "model.safetensors";
    let index = r#"{"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}}"#;
    without(weights, &[("model.safetensors.part", "x")], "'model.safetensors.part' is an unfinished download");
    without(weights, &[("pytorch_model.bin", "PK")], "its weights are in PyTorch files ('pytorch_model.bin')");
    without(
        weights,
        &[("model.safetensors.index.json", index)],
        "the shard 'm-1.safetensors' that it names is missing (and 1 more)",
    );
    without(weights, &[], "it holds 'golden.safetensors', which is not read as a model");
    without("tokenizer.json", &[("tokenizer.model", "\n\u{e}")], "only a tokenizer of SentencePiece (tokenizer.model)");
    without(
        "config.json",
        &[("adapter_config.json", r#"{"base_model_name_or_path": "o/base"}"#)],
        "is a LoRA adapter for o/base",
    );

    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 7\n";
    for file in ["model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"] {
        let folder = copy("qwen3");
        fs::write(folder.path().join(file), pointer).unwrap();
        refused(folder.path(), &format!("{file} is a Git LFS pointer"));
    }
    let folder = copy("qwen3");
    let bytes = fs::read(folder.path().join(weights)).unwrap();
    fs::write(folder.path().join(weights), &bytes[..bytes.len() - 100]).unwrap();
    refused(folder.path(), &format!("it is cut off at {} of {} bytes", bytes.len() - 100, bytes.len()));
    fs::write(folder.path().join(weights), "GGUF\u{3}\0\0\0").unwrap();
    refused(folder.path(), "is a GGUF file; name the file itself");
}

#[test]
fn a_byte_order_mark_before_json_changes_nothing() {
    let folder = copy("qwen3");
    for file in ["config.json", "tokenizer.json", "generation_config.json"] {
        let text = fs::read_to_string(folder.path().join(file)).unwrap();
        fs::write(folder.path().join(file), format!("\u{feff}{text}")).unwrap();
    }
    runs(folder.path());
}

#[test]
fn an_adapter_beside_a_model_is_ignored_with_a_notice() {
    let folder = copy("qwen3");
    fs::write(folder.path().join("adapter_config.json"), r#"{"peft_type": "LORA"}"#).unwrap();
    let (text, said) = runs(folder.path());
    let notice = "the folder holds a LoRA adapter too (adapter_config.json), which is ignored";
    assert!(text.contains(notice) && said.contains(notice), "{text}\n{said}");
}

#[test]
fn every_token_that_any_file_names_ends_an_answer() {
    let folder = copy("llama");
    config(folder.path(), "eos_token_id", json!([65, 66]));
    fs::write(folder.path().join("generation_config.json"), r#"{"eos_token_id": 67}"#).unwrap();
    let (text, _) = info(folder.path());
    let ends = text.lines().find(|line| line.starts_with("ends at")).unwrap();
    let count = ends["ends at".len()..].split_whitespace().count();
    fs::remove_file(folder.path().join("generation_config.json")).unwrap();
    config(folder.path(), "eos_token_id", Value::Null);
    let (text, _) = info(folder.path());
    let fewer = text.lines().find(|line| line.starts_with("ends at")).unwrap();
    assert!(!fewer.contains("nothing"), "{fewer}");
    assert_eq!(count, fewer["ends at".len()..].split_whitespace().count() + 3, "{ends}\n{fewer}");
}
