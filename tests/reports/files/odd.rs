//! GGUF files that are legal, or nearly so, and odd.

use candle_core::quantized::gguf_file::Value;

use super::{refused, runs};
use crate::common::tiny::{Parts, Tiny};

fn set(parts: &mut Parts, key: &str, value: Value) {
    parts.metadata.retain(|(name, _)| name != key);
    parts.metadata.push((key.to_owned(), value));
}

fn lack(parts: &mut Parts, key: &str) {
    parts.metadata.retain(|(name, _)| name != key);
}

fn numbers(numbers: &[u32]) -> Value {
    Value::Array(numbers.iter().map(|number| Value::U32(*number)).collect())
}

#[test]
fn values_for_each_layer_that_are_equal_run() {
    let tiny = Tiny::with(1, |parts| {
        set(parts, "llama.attention.head_count", numbers(&[4, 4]));
        set(parts, "llama.attention.head_count_kv", numbers(&[2, 2]));
        set(parts, "llama.feed_forward_length", numbers(&[96, 96]));
    });
    runs(&tiny.target);
    let tiny = Tiny::with(1, |parts| set(parts, "llama.attention.head_count_kv", numbers(&[2, 1])));
    refused(&tiny.target, "'llama.attention.head_count_kv' is 2 in the first layer and 1 in another");
}

#[test]
fn numbers_of_other_types_run() {
    let tiny = Tiny::with(1, |parts| {
        set(parts, "llama.context_length", Value::U64(512));
        set(parts, "llama.block_count", Value::I32(2));
        set(parts, "llama.rope.freq_base", Value::F64(10_000.0));
    });
    runs(&tiny.target);
    runs(&Tiny::with(1, |parts| set(parts, "llama.rope.freq_base", Value::U32(10_000))).target);
}

#[test]
fn a_key_that_does_not_fit_is_named() {
    let cases: &[(&str, Option<Value>, &str)] = &[
        ("llama.context_length", None, "'llama.context_length' is missing"),
        (
            "llama.attention.head_count_kv",
            Some(Value::String("x".into())),
            "'llama.attention.head_count_kv' is not a whole",
        ),
        ("tokenizer.ggml.eos_token_id", Some(Value::U32(99_999)), "'tokenizer.ggml.eos_token_id' is 99999"),
        ("llama.rope.scaling.type", Some(Value::String("longrope\u{1b}".into())), "'llama.rope.scaling.type'"),
    ];
    for (key, value, says) in cases {
        let tiny = Tiny::with(1, |parts| match value {
            Some(value) => set(parts, key, value.clone()),
            None => lack(parts, key),
        });
        refused(&tiny.target, says);
    }
}

#[test]
fn a_key_without_a_name_is_rejected() {
    let tiny = Tiny::with(1, |parts| parts.metadata.push((String::new(), Value::U32(7))));
    refused(&tiny.target, "has no name");
}

#[test]
fn the_same_key_twice_is_rejected() {
    let tiny = Tiny::with(1, |parts| {
        parts.metadata.push(("llama.context_length".to_owned(), Value::U32(64)));
    });
    refused(&tiny.target, "the key 'llama.context_length' is there twice");
}
