//! `verify-identity --reference candle`: the same files through the models of `candle_transformers`, code by other people.
//!
//! Both quantise activations to 8 bits in their own way, so logits differ a little; a mistake in a block would differ by much.

#![cfg(feature = "reference")]
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use std::path::Path;
use std::process::Command;

use serde_json::Value;

fn command(model: Option<&str>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_draftscope"));
    command.args(["verify-identity", "--reference", "candle", "-k", "2", "--drafter", "ngram", "--output", "summary"]);
    if let Some(file) = model {
        command.arg("--model").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/checkpoints").join(file));
        command.arg("--raw");
    }
    command
}

fn report(model: Option<&str>, args: &[&str]) -> Value {
    let output = command(model).args(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Asserts how often the best token is the same, and how far the distributions are apart.
fn agrees(report: &Value, share: f64, kl: f64) {
    let [agreeing, tokens] = ["count", "trials"].map(|part| report["agreeing"][part].as_f64().unwrap());
    assert!(tokens >= 20.0, "{report:#}");
    assert!(agreeing / tokens >= share, "{report:#}");
    assert!(report["kl_mean"].as_f64().unwrap() <= kl, "{report:#}");
}

#[test]
fn the_default_model_agrees_with_candle_s_llama() {
    if std::env::var("DRAFTSCOPE_OFFLINE").is_ok_and(|value| value == "1") {
        return println!("not run: DRAFTSCOPE_OFFLINE=1");
    }
    let report = report(None, &["--limit", "2", "--max-tokens", "24"]);
    println!("{report:#}");
    agrees(&report, 0.9, 0.02);
}

#[test]
fn a_tiny_model_agrees_with_candle_s_qwen3() {
    let report = report(Some("qwen3.gguf"), &["--limit", "3", "--max-tokens", "24"]);
    println!("{report:#}");
    agrees(&report, 0.9, 0.02);
}

#[test]
fn files_that_candle_reads_in_part_are_not_compared() {
    for (file, part) in [("llama.gguf", "'rope_freqs.weight'"), ("gemma3.gguf", "'gemma3.rope.scaling.type'")] {
        let output = command(Some(file)).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(part), "{error}");
    }
}
