//! What `models info` and "does it fit" say of memory is what the process takes, within a fiftieth and two huge pages. This
//! is a separate test binary, because the figure is that of a process.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop
#![cfg(target_os = "linux")]

mod common;

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::process::Command;

use candle_core::Device;
use candle_core::quantized::gguf_file::Value;
use candle_core::quantized::{GgmlDType, QStorage, QTensor};
use common::tiny::{Tiny, vocab_len};
use draftscope::model::LogitRows;
use draftscope::model::load::{card::Card, load};
use draftscope::model::options::{Backend, Dtype, LoadOptions};
use draftscope::protocol::TokenId;

const D: usize = 1024;
const FFN: usize = 3072;
const HEADS: usize = 8;
const KV_HEADS: usize = 4;
const HEAD_DIM: usize = 128;
const CONTEXT: usize = 1024;

/// Matrices of a block: name, rows, columns.
const MATRICES: [(&str, usize, usize); 7] = [
    ("attn_q", HEADS * HEAD_DIM, D),
    ("attn_k", KV_HEADS * HEAD_DIM, D),
    ("attn_v", KV_HEADS * HEAD_DIM, D),
    ("attn_output", D, HEADS * HEAD_DIM),
    ("ffn_gate", FFN, D),
    ("ffn_up", FFN, D),
    ("ffn_down", D, FFN),
];

/// A matrix of this type, of one quantised row again and again: valid numbers, quickly made.
fn matrix(dtype: GgmlDType, rows: usize, k: usize) -> QTensor {
    let row: Vec<f32> = (0..k).map(|i| ((i * 7919 % 1009) as f32 / 504.5 - 1.0) / (k as f32).sqrt()).collect();
    let row = candle_core::Tensor::from_vec(row, (1, k), &Device::Cpu).unwrap();
    let bytes = QTensor::quantize(&row, dtype).unwrap().data().unwrap().repeat(rows);
    let storage = QStorage::from_data(Cow::Owned(bytes), &Device::Cpu, dtype).unwrap();
    QTensor::new(storage, (rows, k)).unwrap()
}

fn norm(len: usize) -> QTensor {
    let ones = candle_core::Tensor::ones(len, candle_core::DType::F32, &Device::Cpu).unwrap();
    QTensor::quantize(&ones, GgmlDType::F32).unwrap()
}

/// A model of 250 MB or a little more: as many blocks as that takes, odd ones of the second type.
fn model([even, odd]: [GgmlDType; 2]) -> Tiny {
    let block_bytes: usize = MATRICES.iter().map(|(_, rows, k)| rows * k / even.block_size() * even.type_size()).sum();
    let layers = 250_000_000usize.div_ceil(block_bytes);
    Tiny::with(1, |parts| {
        let sizes = [
            ("block_count", layers),
            ("context_length", CONTEXT),
            ("embedding_length", D),
            ("feed_forward_length", FFN),
            ("attention.head_count", HEADS),
            ("attention.head_count_kv", KV_HEADS),
            ("rope.dimension_count", HEAD_DIM),
        ];
        for (key, value) in &mut parts.metadata {
            if let Some((_, size)) = sizes.iter().find(|(name, _)| key.strip_prefix("llama.") == Some(*name)) {
                *value = Value::U32(*size as u32);
            }
        }
        parts.tensors = vec![
            ("token_embd.weight".to_owned(), matrix(even, vocab_len(), D)),
            ("output_norm.weight".to_owned(), norm(D)),
        ];
        for layer in 0..layers {
            let dtype = if layer % 2 == 0 { even } else { odd };
            let named = |name: &str| format!("blk.{layer}.{name}.weight");
            parts.tensors.extend(MATRICES.map(|(name, rows, k)| (named(name), matrix(dtype, rows, k))));
            parts.tensors.extend(["attn_norm", "ffn_norm"].map(|name| (named(name), norm(D))));
        }
    })
}

/// Huge pages that weights and cache fill in part, one each.
const PAGES: u64 = 2 * (2 << 20);

/// Bytes of the process without those that a file backs.
fn taken() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// Environment variable with the file that a child process measures: memory that one model freed would be used again by
/// the next.
const FILE: &str = "DRAFTSCOPE_TEST_MEMORY_ACCOUNT";

fn measure(target: PathBuf) {
    let card = Card::read(&target).unwrap();
    let options = LoadOptions {
        backend: Backend::Native,
        dtype: Dtype::Stored,
        threads: Some(2),
        ctx_len: Some(CONTEXT),
        mtp: None,
        target,
        ..common::checkpoint::recipe(PathBuf::new(), Backend::Native)
    };
    let before = taken();
    let mut loaded = load(&options, &mut |_, _, _| {}).unwrap();
    let weights = taken() - before;
    let tokens: Vec<TokenId> = (0..CONTEXT as u32).map(|i| TokenId(i % 200)).collect();
    for block in tokens.chunks(512) {
        loaded.target.forward(block, LogitRows::Last).unwrap();
    }
    let all = taken() - before;
    let promised = card.weight_bytes + card.kv_bytes_per_token * CONTEXT as u64 + card.working_bytes;
    let off = |got: u64, said: u64| (got as f64 / said as f64 - 1.0) * 100.0;
    println!(
        "{}: weights {:.1} MB, {:+.2} % of what is said; all {:.1} MB, {:+.2} %; on disk {:.1} MB",
        card.dtype,
        weights as f64 / 1e6,
        off(weights, card.weight_bytes),
        all as f64 / 1e6,
        off(all, promised),
        card.tensor_bytes as f64 / 1e6
    );
    assert_eq!(card.weight_bytes, loaded.target.spec().info.weight_bytes + norms(&card), "{}", card.dtype);
    let allowed = promised / 50 + PAGES;
    assert!(all.abs_diff(promised) <= allowed, "{}: {all} taken, {promised} said", card.dtype);
}

/// Bytes of the norms, which a model does not count as weights.
fn norms(card: &Card) -> u64 {
    4 * (D * (2 * card.layers + 1)) as u64
}

fn check(model: &Path) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    let out = child.args(["--nocapture", "the_account"]).env(FILE, model).output().unwrap();
    print!(
        "{}",
        String::from_utf8_lossy(&out.stdout).lines().filter(|l| l.contains(" MB, ")).collect::<String>() + "\n"
    );
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn the_account_of_every_weight_type_is_what_the_process_takes() {
    if let Some(file) = std::env::var_os(FILE) {
        return measure(file.into());
    }
    use GgmlDType::*;
    for dtype in [F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2K, Q3K, Q4K, Q5K, Q6K] {
        check(&model([dtype, dtype]).target);
    }
    check(&model([Q4K, Q6K]).target);
}
