//! What options of the families that are a plan change: factors of positions by the length of the context, windows, layers
//! without rotation, and the context that a model may have.

use std::path::Path;

use crate::case::{Case, largest};
use crate::cases::{GRANITE_HYBRID, MINISTRAL3, MISTRAL, OLMO3, PHI3, SMOLLM3};
use crate::spoil::spoiled;
use crate::support::{Card, LoadOptions, LogitRows, bare_options, open, path, refusal};
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
