//! Tokenizers that make a text very long, and prompts that are far too long for a context: both are rejected before
//! they take memory.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

mod common;

use std::fs;
use std::time::{Duration, Instant};

use common::checkpoint;
use draftscope::model::ModelError;
use draftscope::model::files::SideFiles;
use draftscope::model::text::tokenizer::TextCodec;
use serde_json::{Value, json};

/// The codec of a checkpoint with a changed tokenizer.
fn codec(change: impl FnOnce(&mut Value)) -> Result<TextCodec, ModelError> {
    let from = checkpoint::path("qwen3");
    let mut tokenizer: Value = serde_json::from_slice(&fs::read(from.join("tokenizer.json")).unwrap()).unwrap();
    change(&mut tokenizer);
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    TextCodec::from_folder(&SideFiles::of(folder.path()), false)
}

#[test]
fn thirty_normalizers_that_double_a_text_are_rejected() {
    let begun = Instant::now();
    let doubling = || vec![json!({"type": "ByteLevel"}); 30];
    let bombs = [
        codec(|file| file["normalizer"] = json!({"type": "Sequence", "normalizers": doubling()})),
        codec(|file| file["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": doubling()})),
        codec(|file| file["decoder"] = json!({"type": "Sequence", "decoders": doubling()})),
    ];
    for bomb in bombs {
        let error = bomb.err().unwrap().to_string();
        assert_eq!(error, "tokenizer.json can make a text hundreds of times as long");
    }
    assert!(codec(|_| {}).is_ok());
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

#[test]
fn a_prompt_that_is_far_too_long_is_rejected_before_all_of_it_is_tokenised() {
    let codec = codec(|_| {}).unwrap();
    let begun = Instant::now();
    let long = "the inn, ".repeat(12 << 20 >> 3);
    let error = codec.check_length(&long, 8192).unwrap_err();
    assert!(matches!(error, ModelError::PromptTooLong { ctx_len: 8192, .. }), "{error}");
    assert!(error.to_string().starts_with("the context is full: the 14155776 bytes of the prompt"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

#[test]
fn a_prompt_that_fits_is_never_rejected() {
    let codec = codec(|_| {}).unwrap();
    for text in ["", "the inn", &" ".repeat(3 << 16), &"日本 the inn\n".repeat(5000)] {
        let tokens = codec.encode(text).unwrap().len();
        codec.check_length(text, tokens).unwrap();
    }
}
