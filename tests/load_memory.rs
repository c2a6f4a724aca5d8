//! Peak memory while a model loads: below 1.2 times its weights in the chosen dtype. This is a separate test binary,
//! because the figure is that of a process.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop
#![cfg(target_os = "linux")]

mod common;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;

use common::checkpoint::{self, recipe};
use draftscope::model::load::load;
use draftscope::model::options::{Backend, Dtype, LoadOptions};
use serde_json::{Map, Value, json};

const D: usize = 512;
const FFN: usize = 1536;
const LAYERS: usize = 8;
const VOCAB: usize = 24_000;

/// A Qwen3 of 36 million weights in bf16, the embedding a third of it.
fn write_model(folder: &Path) {
    let mut tensors =
        vec![("model.embed_tokens.weight".to_owned(), vec![VOCAB, D]), ("model.norm.weight".to_owned(), vec![D])];
    for layer in 0..LAYERS {
        let parts = [
            ("input_layernorm", vec![D]),
            ("post_attention_layernorm", vec![D]),
            ("self_attn.q_norm", vec![64]),
            ("self_attn.k_norm", vec![64]),
            ("self_attn.q_proj", vec![512, D]),
            ("self_attn.k_proj", vec![256, D]),
            ("self_attn.v_proj", vec![256, D]),
            ("self_attn.o_proj", vec![D, 512]),
            ("mlp.gate_proj", vec![FFN, D]),
            ("mlp.up_proj", vec![FFN, D]),
            ("mlp.down_proj", vec![D, FFN]),
        ];
        tensors.extend(parts.map(|(name, shape)| (format!("model.layers.{layer}.{name}.weight"), shape)));
    }
    let (mut header, mut at) = (Map::new(), 0);
    for (name, shape) in &tensors {
        let len = 2 * shape.iter().product::<usize>();
        header.insert(name.clone(), json!({"dtype": "BF16", "shape": shape, "data_offsets": [at, at + len]}));
        at += len;
    }
    let mut header = Value::Object(header).to_string();
    header.push_str(&" ".repeat(header.len().next_multiple_of(8) - header.len()));
    let mut file = BufWriter::new(File::create(folder.join("model.safetensors")).unwrap());
    file.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
    file.write_all(header.as_bytes()).unwrap();
    for i in 0..at / 2 {
        file.write_all(&(0x3c00u16 | (i as u16 & 0x7f)).to_le_bytes()).unwrap(); // all near 0.01
    }
    file.flush().unwrap();
    checkpoint::edit(folder, "config.json", |config| {
        let sizes = [
            ("vocab_size", VOCAB),
            ("hidden_size", D),
            ("intermediate_size", FFN),
            ("num_hidden_layers", LAYERS),
            ("num_attention_heads", 8),
            ("num_key_value_heads", 4),
            ("head_dim", 64),
        ];
        sizes.iter().for_each(|(key, size)| config[key] = json!(size));
        config["layer_types"] = json!(null);
    });
}

/// A memory figure of the process, in bytes.
fn status(key: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(key)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// Environment variable with the case that a child process measures. Each case needs a fresh process, because memory that
/// one model freed would be reused by the next.
const CASE: &str = "DRAFTSCOPE_TEST_LOAD_MEMORY";

const CASES: [(Backend, Dtype, &str); 3] = [
    (Backend::Native, Dtype::Stored, "bf16"),
    (Backend::Candle, Dtype::F32, "f32"),
    (Backend::Candle, Dtype::Bf16, "bf16"),
];

fn measure((backend, dtype, name): (Backend, Dtype, &str)) {
    let folder = checkpoint::copy("qwen3");
    write_model(folder.path());
    std::fs::write("/proc/self/clear_refs", "5").unwrap(); // resets the peak
    let before = status("VmRSS");
    let recipe = LoadOptions { dtype, ctx_len: Some(64), ..recipe(folder.path().into(), backend) };
    let loaded = load(&recipe, &mut |_, _, _| {}).unwrap();
    let spec = loaded.target.spec();
    let (took, weights) = (status("VmHWM") - before, spec.info.weight_bytes);
    println!(
        "{} {name}: peak {took} for {weights} bytes of weights, {:.3}",
        spec.backend,
        took as f64 / weights as f64
    );
    assert_eq!(spec.dtype, name);
    assert!(took >= weights / 2, "{} {name}: a peak of {took} is too little for {weights} bytes", spec.backend);
    assert!(took as f64 <= 1.2 * weights as f64, "{} {name}: peak {took} for {weights}", spec.backend);
}

#[test]
fn loading_takes_less_than_a_fifth_more_than_the_weights() {
    if let Ok(case) = std::env::var(CASE) {
        return measure(CASES[case.parse::<usize>().unwrap()]);
    }
    for case in 0..CASES.len() {
        let mut child = Command::new(std::env::current_exe().unwrap());
        let out = child.args(["--nocapture"]).env(CASE, case.to_string()).output().unwrap();
        print!("{}", String::from_utf8_lossy(&out.stdout));
        assert!(out.status.success(), "case {case}: {}", String::from_utf8_lossy(&out.stderr));
    }
}
