//! Files that are no models: a sentence says what each of them is.

use std::path::{Path, PathBuf};

use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device, Tensor};

use super::{info, refused};
use crate::common::tiny::Tiny;

fn put(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

/// A GGUF file with these keys and tensors of zeros.
fn gguf(folder: &Path, name: &str, keys: &[(&str, Value)], tensors: &[&str]) -> PathBuf {
    let zeros = Tensor::zeros((8, 64), DType::F32, &Device::Cpu).unwrap();
    let zeros = QTensor::quantize(&zeros, GgmlDType::F32).unwrap();
    let keys: Vec<_> = keys.iter().map(|(key, value)| (*key, value)).collect();
    let tensors: Vec<_> = tensors.iter().map(|name| (*name, &zeros)).collect();
    let path = folder.join(name);
    gguf_file::write(&mut std::fs::File::create(&path).unwrap(), &keys, &tensors).unwrap();
    path
}

const POINTER: &[u8] = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 104857600\n";

#[test]
fn other_files_under_a_models_name() {
    let folder = tempfile::tempdir().unwrap();
    let mut safetensors = 20u64.to_le_bytes().to_vec();
    safetensors.extend(br#"{"__metadata__": {}}"#);
    let cases: &[(&str, &[u8], &str)] = &[
        (
            "pointer.gguf",
            POINTER,
            "is a Git LFS pointer and not the file itself, which has 104857600 bytes; run `git lfs pull`",
        ),
        ("page.gguf", b"<!DOCTYPE html>\n<html><title>a \xc2\xb7 main</title>", "is a web page ('a · main')"),
        ("empty.gguf", b"", "is empty (0 bytes)"),
        ("zero.gguf", &[0; 5000], "first 4096 bytes are zero"),
        ("zip.gguf", b"PK\x03\x04\0\0\0\0", "is a zip archive"),
        ("torch.gguf", b"PK\x03\x04\0\0\0\0\0\0 archive/data.pkl", "is a PyTorch file"),
        ("hub.gguf", br#"{"error":"Repository Not Found"}"#, "('Repository Not Found')"),
        ("bucket.gguf", b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>", "('AccessDenied')"),
        ("old.gguf", b"tjgg\x03\0\0\0\0\0\0\0", "(ggjt)"),
        ("renamed.gguf", &safetensors, "is a safetensors file"),
        ("m.gguf.aria2", b"\0\x01\0\0\0", "a control file of aria2"),
        ("big.gguf", b"GGUF\0\0\0\x03\0\0\0\0\0\0\0\0", "is a big-endian GGUF file"),
        ("text.gguf", b"Entry not\x1b[31m found", "is not a GGUF file"),
        ("words.gguf", b"Entry not found", "is text ('Entry not found')"),
    ];
    for (name, bytes, says) in cases {
        refused(&put(folder.path(), name, bytes), says);
    }
}

#[test]
fn gguf_files_of_other_kinds_have_no_options_of_servers() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let llama = || ("general.architecture", text("llama"));
    let of = |kind: &str| ("general.type", text(kind));
    let adapter = [
        llama(),
        of("adapter"),
        ("adapter.type", text("lora")),
        ("general.base_model.0.name", text("Tiny Base\u{1b}")),
    ];
    let tokens = ("tokenizer.ggml.tokens", Value::Array(vec![text("a")]));
    let cases = [
        (
            gguf(dir, "lora.gguf", &adapter, &["blk.0.attn_q.weight.lora_a"]),
            "is a LoRA adapter for Tiny Base\u{fffd}; merge it",
        ),
        (gguf(dir, "bare.gguf", &[llama()], &["blk.0.attn_q.weight.lora_a"]), "is a LoRA adapter; merge it"),
        (
            gguf(
                dir,
                "mmproj.gguf",
                &[("general.architecture", text("clip")), ("clip.has_vision_encoder", Value::Bool(true))],
                &["v.x"],
            ),
            "is an encoder of images (mmproj)",
        ),
        (
            gguf(dir, "imatrix.gguf", &[("general.architecture", text("none")), of("imatrix")], &["a.in_sum2"]),
            "is an importance matrix",
        ),
        (gguf(dir, "vocab.gguf", &[llama(), tokens], &[]), "is a vocabulary alone ('tokenizer.ggml.tokens')"),
        (
            gguf(dir, "control.gguf", &[("general.architecture", text("controlvector"))], &["direction.1"]),
            "is a control vector",
        ),
        (
            gguf(dir, "flux.gguf", &[("general.architecture", text("flux"))], &["img_in.weight"]),
            "is a model that makes images ('flux')",
        ),
        (gguf(dir, "none.gguf", &[], &["x"]), "the key 'general.architecture' is missing"),
    ];
    for (file, says) in cases {
        refused(&file, says);
        let (text, _) = info(&file);
        assert!(!text.contains("llama-server ") && !text.contains("vllm serve"), "{text}");
    }
}

#[test]
fn a_file_that_is_cut_off_says_where() {
    let tiny = Tiny::new(1);
    let bytes = std::fs::read(&tiny.target).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    refused(
        &put(dir, "cut.gguf", &bytes[..bytes.len() - 1000]),
        &format!("it is cut off at {} of {} bytes", bytes.len() - 1000, bytes.len()),
    );
    refused(&put(dir, "head.gguf", &bytes[..200]), "it is cut off at 200 bytes, within its header");
    let part = put(dir, "m.gguf.part", &bytes[..bytes.len() / 2]);
    refused(&part, "its name ends in '.part', as those of unfinished downloads do");
    put(dir, "whole.gguf.aria2", b"x");
    refused(
        &put(dir, "whole.gguf", &bytes[..bytes.len() - 1]),
        "aria2's record of the download (.aria2) is still beside it",
    );
}

/// A download tool wrote zeros to reserve the space, and filled a half of it.
#[test]
fn zeros_in_place_of_the_second_half_are_noticed() {
    let tiny = Tiny::new(1);
    let mut bytes = std::fs::read(&tiny.target).unwrap();
    let half = bytes.len() / 2;
    bytes[half..].fill(0);
    std::fs::write(&tiny.target, bytes).unwrap();
    refused(&tiny.target, "holds only zeros, as in an unfinished download");
}

/// A download tool reserved all of the space and did not fill it.
#[cfg(target_os = "linux")]
#[test]
fn a_hole_at_the_end_is_an_unfinished_download() {
    let tiny = Tiny::with(1, |parts| {
        // some megabytes that nothing reads
        let zeros = Tensor::zeros((1 << 10, 1 << 10), DType::F32, &Device::Cpu).unwrap();
        parts.tensors.push(("more.weight".to_owned(), QTensor::quantize(&zeros, GgmlDType::F32).unwrap()));
    });
    let len = std::fs::metadata(&tiny.target).unwrap().len();
    let file = std::fs::File::options().write(true).open(&tiny.target).unwrap();
    file.set_len(len - (4 << 20)).unwrap();
    file.set_len(len).unwrap();
    use std::os::unix::fs::MetadataExt;
    if file.metadata().unwrap().blocks() * 512 >= len {
        return; // this file system has no holes
    }
    refused(&tiny.target, &format!("of its {len} bytes are on disk and the end is a hole"));
}
