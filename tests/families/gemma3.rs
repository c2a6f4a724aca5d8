//! Gemma 3 with nested keys, as in files with a vision tower, and with capped scores and logits.

use crate::case::{Case, largest};
use crate::cases::GEMMA3;
use crate::spoil::spoiled;
use crate::support::{Backend, LogitRows, bare_options, open};
use crate::target::compare_with_oracle;

/// Two layers, one of each kind; scaled positions in full layers; more rows than tokens.
const CAPPED: Case = Case { fixture: "gemma3-capped", golden: "gemma3-capped", spoiled: "", ..GEMMA3 };

#[test]
fn capped_scores_and_logits_equal_the_oracle() {
    for run in CAPPED.runs {
        let mut target = CAPPED.open(run).target;
        compare_with_oracle(&CAPPED, run, target.as_mut(), &CAPPED.golden(), "attention.");
        let logits = target.fork().unwrap().forward(&CAPPED.golden().tokens("attention.tokens"), LogitRows::Last);
        assert!(logits.unwrap().logits.as_slice().iter().all(|logit| logit.abs() < 5.0));
    }
}

#[test]
fn logits_without_caps_equal_the_oracle() {
    let edits = "set text_config.attn_logit_softcapping null; set text_config.final_logit_softcapping null";
    let folder = spoiled(CAPPED.fixture, edits);
    for run in CAPPED.runs {
        let mut target = open(&bare_options(folder.path().into(), run.backend)).target;
        compare_with_oracle(&CAPPED, run, target.as_mut(), &CAPPED.golden(), "plain.");
    }
}

#[test]
fn one_cap_without_the_other_changes_logits() {
    let golden = CAPPED.golden();
    let tokens = golden.tokens("attention.tokens");
    let right = golden.numbers("attention.logits");
    for key in ["attn_logit_softcapping", "final_logit_softcapping"] {
        let folder = spoiled(CAPPED.fixture, &format!("set text_config.{key} null"));
        let mut target = open(&bare_options(folder.path().into(), Backend::Candle)).target;
        let logits = target.forward(&tokens, LogitRows::All).unwrap().logits;
        assert!(largest(logits.as_slice(), &right) > 0.05, "{key}");
    }
}
