//! What options of the families that are a plan change: factors of positions by the length of the context, windows, layers
//! without rotation, and the context that a model may have.

use std::path::Path;

use candle_core::quantized::gguf_file::Value;

use crate::case::{Case, largest};
use crate::cases::{
    GRANITE_GGUF, GRANITE_HYBRID, MINISTRAL3, MINISTRAL3_GGUF, MISTRAL, OLMO3, OLMO3_GGUF, PHI3, PHI3_GGUF, SMOLLM3,
};
use crate::gguf::rewritten;
use crate::spoil::spoiled;
use crate::support::{Card, LoadOptions, LogitRows, OpenModel, bare_options, open, path, refusal};
use crate::target::compare_with_oracle;

/// Compares a changed fixture with golden values that have this prefix.
fn equals(case: &Case, edits: &str, prefix: &str) {
    let folder = spoiled(case.fixture, edits);
    for run in case.runs {
        let mut target = open(&bare_options(folder.path().into(), run.backend)).target;
        compare_with_oracle(case, run, target.as_mut(), &case.golden(), prefix);
    }
}

fn logits(case: &Case, folder: &Path) -> Vec<f32> {
    let mut target = open(&bare_options(folder.into(), case.runs[0].backend)).target;
    target.forward(&case.golden().tokens("tokens"), LogitRows::All).unwrap().logits.as_slice().to_vec()
}

#[test]
fn a_context_no_longer_than_the_first_training_has_short_factors() {
    equals(&PHI3, "set original_max_position_embeddings 512", "short.");
    // their older names
    for name in ["su", "yarn"] {
        equals(&PHI3, &format!("set original_max_position_embeddings 512; set rope_scaling.type \"{name}\""), "short.");
    }
}

#[test]
fn a_phi3_may_have_a_window() {
    equals(&PHI3, "set sliding_window 8", "window.");
}

#[test]
fn keys_that_choose_what_layers_compute_change_logits() {
    for (case, edits) in [
        (&OLMO3, "set sliding_window 4"),
        (&OLMO3, "set layer_types [\"full_attention\",\"sliding_attention\",\"sliding_attention\",\"full_attention\"]"),
        (&OLMO3, "set rope_parameters.full_attention.factor 2.0"),
        (&OLMO3, "set rope_parameters.sliding_attention.rope_theta 1000.0"),
        (&MISTRAL, "set sliding_window null"),
        (&MISTRAL, "lack sliding_window"),
        (&MISTRAL, "set layer_types [\"full_attention\",\"sliding_attention\"]"),
        (&SMOLLM3, "set no_rope_layers [0,1,1,0]"),
        (&SMOLLM3, "set no_rope_layers null; set no_rope_layer_interval 3"),
        (&GRANITE_HYBRID, "set position_embedding_type null"),
        (&GRANITE_HYBRID, "set embedding_multiplier 1.0"),
    ] {
        let folder = spoiled(case.fixture, edits);
        let off = largest(&logits(case, folder.path()), &logits(case, &path(case.fixture)));
        assert!(off > 1e-2, "{}: {edits}: {off}", case.fixture);
    }
}

#[test]
fn attention_that_grows_sharper_with_the_position_ends_the_context_before() {
    for name in [MINISTRAL3.fixture, "ministral3.gguf"] {
        assert_eq!(Card::read(&path(name)).unwrap().context_length, 512, "{name}");
        let longer = LoadOptions { ctx_len: Some(600), ..bare_options(path(name), MINISTRAL3.runs[0].backend) };
        assert!(refusal(&longer).contains("this model was made for 512"), "{name}");
    }
    let steady = spoiled(MINISTRAL3.fixture, "set rope_parameters.llama_4_scaling_beta null");
    assert_eq!(Card::read(steady.path()).unwrap().context_length, 2048);
}

#[test]
fn keys_of_gguf_files_change_logits_and_bad_ones_are_named() {
    let flags = |flags: [bool; 4]| Value::Array(flags.map(Value::Bool).to_vec());
    for (case, key, value) in [
        (&OLMO3_GGUF, "olmo2.attention.sliding_window", Value::U32(0)),
        (&OLMO3_GGUF, "olmo2.attention.sliding_window_pattern", flags([false, true, true, true])),
        (&OLMO3_GGUF, "olmo2.attention.sliding_window_pattern", Value::U32(2)),
        (&OLMO3_GGUF, "olmo2.rope.freq_base_swa", Value::F32(1000.0)),
        (&GRANITE_GGUF, "granite.attention.scale", Value::F32(0.0)),
        (&GRANITE_GGUF, "granite.embedding_scale", Value::F32(1.0)),
        (&GRANITE_GGUF, "granite.residual_scale", Value::F32(0.0)),
        (&GRANITE_GGUF, "granite.logit_scale", Value::F32(0.8)),
        (&GRANITE_GGUF, "granite.rope.scaling.finetuned", Value::Bool(false)),
        (&PHI3_GGUF, "phi3.rope.scaling.original_context_length", Value::U32(512)),
        (&PHI3_GGUF, "phi3.rope.scaling.attn_factor", Value::F32(1.5)),
        (&PHI3_GGUF, "phi3.attention.sliding_window", Value::U32(4)),
        (&MINISTRAL3_GGUF, "mistral3.rope.scaling.yarn_log_multiplier", Value::F32(2.0)),
    ] {
        let file = rewritten(case.fixture, |keys| drop(keys.insert(key.into(), value)));
        let off = largest(&logits(case, file.path()), &logits(case, &path(case.fixture)));
        assert!(off > 1e-2, "{key}: {off}");
    }
    for (case, key, value, says) in [
        (&OLMO3_GGUF, "olmo2.attention.sliding_window_pattern", flags([true; 4]), ""),
        (
            &OLMO3_GGUF,
            "olmo2.attention.sliding_window_pattern",
            Value::Array(vec![]),
            "is not a flag for each of 4 layers",
        ),
        (&GRANITE_GGUF, "granite.residual_scale", Value::F32(-1.0), "'granite.residual_scale' is not positive"),
        (&PHI3_GGUF, "phi3.rope.dimension_count", Value::U32(16), "'rope_factors_"),
    ] {
        let file = rewritten(case.fixture, |keys| drop(keys.insert(key.into(), value)));
        let error = OpenModel::open(file.path()).err().map_or_else(String::new, |error| error.to_string());
        assert!(error.contains(says) && error.is_empty() == says.is_empty(), "{key}: {error}");
    }
}
