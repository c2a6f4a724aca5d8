//! Llama and Qwen3 in folders: stretched positions, tied heads, unusable templates, draft models.

use std::fs;
use std::path::Path;

use crate::case::relative;
use crate::cases::{LLAMA, QWEN3};
use crate::spoil::spoiled;
use crate::support::{
    Backend, Card, Dtype, LoadOptions, LogitRows, Tensor, add, bare_options, copy, json, open, path, read_tensors,
    refusal, set_config,
};
use crate::target::compare_with_oracle;

#[test]
fn stretched_positions_equal_the_oracle() {
    for (prefix, scaling) in [
        ("yarn.", json!({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128})),
        ("linear.", json!({"rope_type": "linear", "factor": 2.0})),
    ] {
        let folder = copy("qwen3");
        set_config(folder.path(), "rope_parameters", json!(null));
        set_config(folder.path(), "rope_theta", json!(1e6));
        set_config(folder.path(), "rope_scaling", scaling);
        let golden = QWEN3.golden();
        for run in QWEN3.runs {
            let mut target = open(&bare_options(folder.path().into(), run.backend)).target;
            compare_with_oracle(&QWEN3, run, target.as_mut(), &golden, prefix);
            let stretched = relative(&golden.numbers(&format!("{prefix}logits")), &golden.numbers("logits"));
            assert!(stretched > 10.0 * run.limit.relative, "{prefix} changes logits by {stretched} only");
        }
    }
}

#[test]
fn a_draft_model_of_another_format_is_loaded_and_one_with_another_vocabulary_drafts_what_both_have() {
    let with = |draft: &str| {
        let options = LoadOptions { draft_model: Some(path(draft)), ..bare_options(path("qwen3"), Backend::Auto) };
        open(&options).draft_model.unwrap().map(|(_, info)| info.draft_vocab)
    };
    assert_eq!(with("qwen3.gguf"), Ok(320));
    let shared = with(LLAMA.fixture).unwrap();
    assert!((4..320).contains(&shared), "{shared} tokens");
}

/// The Qwen3 whose head is its embedding, with an added head: a changed copy of the embedding.
fn with_head(change: impl Fn(&mut Tensor)) -> tempfile::TempDir {
    let folder = copy("qwen3");
    let tensors = read_tensors(&folder.path().join("model.safetensors"));
    let mut head = tensors.into_iter().find(|tensor| tensor.name == "model.embed_tokens.weight").unwrap();
    head.name = "lm_head.weight".into();
    change(&mut head);
    add(folder.path(), head);
    folder
}

#[test]
fn a_head_that_differs_from_the_embedding_it_is_tied_to_is_the_head() {
    let copied = with_head(|_| ());
    let other = with_head(|head| head.data.fill(0));
    let golden = QWEN3.golden();
    for run in QWEN3.runs {
        let logits = |folder: &Path| {
            let mut loaded = open(&bare_options(folder.into(), run.backend));
            let out = loaded.target.forward(&golden.tokens("tokens"), LogitRows::All).unwrap();
            (out.logits.as_slice().to_vec(), loaded.warnings)
        };
        let (tied, nothing) = logits(copied.path());
        assert!(relative(&tied, &golden.numbers("logits")) < run.limit.relative && nothing.is_empty(), "{nothing:?}");
        let (zeros, ignored) = logits(other.path());
        assert!(zeros.iter().all(|logit| *logit == 0.0), "{:?}", run.backend);
        assert!(matches!(&ignored[..], [one] if one.contains("'tie_word_embeddings' is ignored")), "{ignored:?}");
    }
    assert!(Card::read(copied.path()).unwrap().tied && !Card::read(other.path()).unwrap().tied);
    let short = with_head(|head| {
        head.data.truncate(head.data.len() / head.shape[0]);
        head.shape[0] = 1;
    });
    let error = refusal(&bare_options(short.path().into(), Backend::Auto));
    assert!(error.contains("'lm_head.weight' has shape [1, 64]"), "{error}");
}

#[test]
fn a_folder_without_a_template_runs_raw() {
    let folder = spoiled("qwen3", "remove chat_template.jinja");
    let loaded = open(&bare_options(folder.path().into(), Backend::Auto));
    assert!(loaded.template.is_none() && loaded.warnings[0].contains("has no chat template"), "{:?}", loaded.warnings);
}

#[test]
fn an_unusable_template_is_named_in_a_notice() {
    for template in [&b"{% unheard of %}"[..], b"{% generation %}", b"\xff"] {
        let folder = copy("qwen3");
        fs::write(folder.path().join("chat_template.jinja"), template).unwrap();
        let loaded = open(&bare_options(folder.path().into(), Backend::Auto));
        let [ignored] = &loaded.warnings[..] else { panic!("{:?}", loaded.warnings) };
        assert!(loaded.template.unwrap().render(&[]).is_err(), "{ignored}");
        assert!(ignored.contains("use --raw") && ignored.lines().count() == 1, "{ignored}");
        let card = Card::read(folder.path()).unwrap();
        assert!(!card.has_template && card.to_string().contains("no template that runs: use --raw ("), "{card}");
    }
    assert!(open(&bare_options(path("qwen3"), Backend::Auto)).warnings.is_empty());
}

#[test]
fn weights_that_the_native_kernels_do_not_support_run_on_candle() {
    let folder = spoiled("qwen3", "set dtype \"float16\"");
    let wider = LoadOptions { dtype: Dtype::Bf16, ..bare_options(folder.path().into(), Backend::Auto) };
    let target = open(&wider).target;
    assert_eq!((target.spec().backend, target.spec().dtype.as_str()), ("candle", "bf16"));
}
