//! Draft models whose vocabularies have a few tokens more at their end, or fewer.

use std::path::Path;

use candle_core::quantized::gguf_file::Value;
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};

use super::draftscope;
use crate::common::tiny::{D, Parts, Tiny};

/// Adds so many control tokens at the end, with their rows.
fn longer(parts: &mut Parts, count: usize) {
    for (key, value) in &mut parts.metadata {
        match (key.as_str(), value) {
            ("tokenizer.ggml.tokens", Value::Array(names)) => {
                names.extend((0..count).map(|at| Value::String(format!("<tool_{at}>"))));
            }
            ("tokenizer.ggml.token_type", Value::Array(types)) => {
                types.extend(vec![Value::I32(3); count]);
            }
            _ => {}
        }
    }
    let (_, embedding) = parts.tensors.iter_mut().find(|(name, _)| name == "token_embd.weight").unwrap();
    let old = embedding.dequantize(&Device::Cpu).unwrap();
    let more = (Tensor::ones((count, D), old.dtype(), &Device::Cpu).unwrap() * 0.01).unwrap();
    let both = Tensor::cat(&[old, more], 0).unwrap();
    *embedding = QTensor::quantize(&both, GgmlDType::F32).unwrap();
}

fn drafted(target: &Path, draft: &Path) -> Result<u64, String> {
    let draft = draft.to_str().unwrap();
    let args = [
        "run",
        "--device",
        "cpu",
        "--raw",
        "--prompt",
        "the thin inn <tool_0>",
        "--max-tokens",
        "8",
        "--drafter",
        "draft-model",
        "-k",
        "2",
        "--output",
        "summary",
        "--draft-model",
        draft,
        "--model",
    ];
    let output = draftscope(&args, target);
    let said = String::from_utf8(output.stderr).unwrap();
    if !output.status.success() {
        return Err(said);
    }
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    Ok(summary["num_draft_tokens"].as_u64().unwrap())
}

#[test]
fn a_few_more_tokens_at_the_end_of_either_side_draft() {
    let (plain, more) = (Tiny::new(1), Tiny::with(2, |parts| longer(parts, 4)));
    assert!(drafted(&plain.target, &more.target).unwrap() > 0);
    // the prompt holds a token that the draft model does not know
    assert!(drafted(&more.target, &plain.target).unwrap() > 0);
}

#[test]
fn many_more_tokens_and_other_names_draft_what_both_have() {
    let plain = Tiny::new(1);
    let many = Tiny::with(2, |parts| longer(parts, 200));
    assert!(drafted(&plain.target, &many.target).unwrap() > 0);
    let renamed = Tiny::with(2, |parts| {
        for (key, value) in &mut parts.metadata {
            if let ("tokenizer.ggml.tokens", Value::Array(names)) = (key.as_str(), value) {
                names[0] = Value::String("<|other|>".to_owned());
            }
        }
    });
    assert!(drafted(&plain.target, &renamed.target).unwrap() > 0);
}
