//! DSpark's confidence head ends drafts where it expects a rejection.

use std::time::Duration;

use candle_core::Device;
use candle_core::quantized::gguf_file::Value;
use candle_core::quantized::{GgmlDType, QTensor};
use draftscope::protocol::{DraftStopped, Drafting, EventKind, Settings};

use crate::block::{Pair, drafted, drafter, pair, text};
use crate::decode::{NoDrafter, decode, settings, start};
use crate::gguf::{rewritten, with_tensors};
use crate::support::{
    Backend, Stored, Tensor, TokenId, add, copy, left_out, path, read_tensors, set_config, with_draft,
};

/// The token whose row of the output head the test's confidence heads contain.
const TOKEN: usize = 77;

fn bf16(name: &str, tensor: &str) -> Vec<f32> {
    let tensors = read_tensors(&path(name).join("model.safetensors"));
    let found = tensors.into_iter().find(|other| other.name == tensor).unwrap();
    let halves = found.data.as_chunks().0.iter();
    halves.map(|bytes| half::bf16::from_le_bytes(*bytes).to_f32()).collect()
}

/// A confidence head whose part for states is a row of the output head, so that it gives that token's logit.
fn state_weights(scale: f32) -> Vec<f32> {
    bf16("llama-deep", "lm_head.weight")[64 * TOKEN..][..64].iter().map(|weight| weight * scale).collect()
}

/// Its part for the Markov head's row of a token.
fn markov_weights() -> Vec<f32> {
    (0..32).map(|i| ((i * 7 % 11) as f32 - 5.0) / 8.0).collect()
}

const BIAS: f32 = 0.25;

/// The DSpark fixture with a confidence head of these weights.
fn with_confidence(weights: &[f32]) -> tempfile::TempDir {
    let folder = copy("dspark");
    let tensor = |name: &str, shape: Vec<usize>, numbers: &[f32]| {
        let data = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        add(folder.path(), Tensor { name: name.into(), dtype: Stored::F32, shape, data });
    };
    tensor("confidence_head.proj.weight", vec![1, weights.len()], weights);
    tensor("confidence_head.proj.bias", vec![1], &[BIAS]);
    set_config(folder.path(), "enable_confidence_head", true.into());
    set_config(folder.path(), "confidence_head_with_markov", (weights.len() > 64).into());
    folder
}

/// Uncorrected logits of a block after `at` tokens, and the confidence of each row after the best corrected token before it.
fn block_of(pair: &mut Pair, at: usize) -> (Vec<f32>, Vec<(TokenId, Option<f32>)>) {
    let text = text();
    let (_, tokens) = drafted(pair, &text, at, 5);
    let logits = pair.block.draft(text[at], 5).unwrap();
    let before = std::iter::once(text[at]).chain(tokens).take(5);
    let said = before.enumerate().map(|(row, before)| (before, pair.block.confidence(row, before).unwrap()));
    let said = said.collect();
    (logits.iter().map(|row| row[TOKEN]).collect(), said)
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

#[test]
fn a_confidence_head_reads_the_state_and_the_markov_row_of_the_token_before() {
    let (scale, w1) = (0.5, bf16("dspark", "markov_head.markov_w1.weight"));
    for with_markov in [true, false] {
        let markov = if with_markov { markov_weights() } else { Vec::new() };
        let folder = with_confidence(&[state_weights(scale), markov.clone()].concat());
        let mut pair = pair(folder.path(), Backend::Candle);
        for at in [9, 40, 57] {
            let (logits, said) = block_of(&mut pair, at);
            for (logit, (before, said)) in logits.iter().zip(said) {
                let row = &w1[32 * before.index()..][..32];
                let sum: f32 = row.iter().zip(&markov).map(|(a, b)| a * b).sum();
                let want = sigmoid(scale * logit + sum + BIAS);
                assert!((said.unwrap() - want).abs() < 1e-4, "{said:?}, {want}");
            }
        }
        assert_eq!(pair.block.confidence(5, TokenId(1)).unwrap(), None, "a block has 5 rows");
    }
    let mut without = pair(&path("dspark"), Backend::Candle);
    assert!(block_of(&mut without, 40).1.iter().all(|(_, said)| said.is_none()));
}

#[test]
fn p_min_ends_a_draft_where_the_confidence_head_expects_a_rejection() {
    let folder = with_confidence(&[state_weights(0.5), markov_weights()].concat());
    let mut pair = pair(folder.path(), Backend::Candle);
    let text = text();
    let plain = decode(pair.target.as_ref(), Box::new(NoDrafter), &settings(0), &text[..9], 60);
    let (mut ended, mut whole) = (0, 0);
    for p_min in [0.2, 0.5, 0.8] {
        let drafting = Drafting { p_min, ..Drafting::default() };
        let settings = Settings { drafting, ..settings(5) };
        let answer = decode(pair.target.as_ref(), drafter(pair.block.as_ref()), &settings, &text[..9], 60);
        assert!(answer.text == plain.text, "p-min {p_min} changed the text");
        for at in [9, 40, 57] {
            let mut decoder = start(pair.target.as_ref(), drafter(pair.block.as_ref()), &settings, &text[..at]);
            let (mut drafts, mut stop) = (0, None);
            decoder
                .round(&mut |event| {
                    match event {
                        EventKind::Drafted(_) => drafts += 1,
                        EventKind::DraftStopped(DraftStopped { q, p_min, .. }) => stop = Some((q, p_min)),
                        _ => {}
                    }
                    Duration::ZERO
                })
                .unwrap();
            // the anchor is the token that the prompt's pass gave, which is the next of the text
            let (_, said) = block_of(&mut pair, at);
            let said: Vec<f32> = said.into_iter().map(|(_, said)| said.unwrap()).collect();
            let first = said.iter().position(|said| *said < p_min);
            assert_eq!((drafts, stop.is_some()), (first.unwrap_or(5), first.is_some()), "{said:?} at p-min {p_min}");
            if let (Some(first), Some((q, limit))) = (first, stop) {
                assert!((q - said[first]).abs() < 1e-5 && limit == p_min);
                ended += 1;
            } else {
                whole += 1;
            }
        }
    }
    assert!(ended > 0 && whole > 0, "{ended} drafts ended and {whole} did not");
}

#[test]
fn gguf_files_have_the_same_confidence_head() {
    let weights = [state_weights(0.5), markov_weights()].concat();
    let folder = with_confidence(&weights);
    let (_, want) = block_of(&mut pair(folder.path(), Backend::Candle), 40);
    let file = |weights: &[f32], shape: &[usize]| {
        let tensor = |numbers: &[f32], shape: &[usize]| {
            let tensor = candle_core::Tensor::from_slice(numbers, shape, &Device::Cpu).unwrap();
            QTensor::quantize(&tensor, GgmlDType::F32).unwrap()
        };
        let head = [("conf_proj.weight", tensor(weights, shape)), ("conf_proj.bias", tensor(&[BIAS], &[1]))];
        with_tensors("dspark.gguf", head)
    };
    // llama.cpp's writer leaves out a last size of one
    for shape in [&[1, weights.len()][..], &[weights.len()]] {
        let (_, said) = block_of(&mut pair(file(&weights, shape).path(), Backend::Candle), 40);
        for ((_, said), (_, want)) in said.into_iter().zip(&want) {
            assert!((said.unwrap() - want.unwrap()).abs() < 0.03, "8-bit weights: {said:?}, {want:?}");
        }
    }
    let notice = left_out(&with_draft(&path("llama-deep"), file(&weights[..70], &[1, 70]).path(), Backend::Candle));
    assert!(notice.contains("its confidence head reads 70 numbers, expected 64 (a state), or 96"), "{notice}");
    let short = with_confidence(&weights[..70]);
    let notice = left_out(&with_draft(&path("llama-deep"), short.path(), Backend::Candle));
    assert!(notice.contains("'confidence_head.proj.weight' has shape [1, 70], expected [1, 96]"), "{notice}");
    for (key, value, says) in [
        ("dflash.hidden_activation", Value::String("gelu".to_owned()), "('dflash.hidden_activation') is not supported"),
        ("dflash.attention.scale", Value::F32(1.0), "('dflash.attention.scale') is not supported"),
        ("dflash.attention.value_scale", Value::F32(0.5), "('dflash.attention.value_scale') is not supported"),
    ] {
        let file = rewritten("dspark.gguf", |keys| drop(keys.insert(key.to_owned(), value)));
        let notice = left_out(&with_draft(&path("llama-deep"), file.path(), Backend::Candle));
        assert!(notice.contains(says), "{notice}");
    }
    let usual = rewritten("dspark.gguf", |keys| {
        keys.extend([("dflash.attention.scale".to_owned(), Value::F32(1.0 / 32f32.sqrt()))]);
    });
    pair(usual.path(), Backend::Candle);
    // a configuration may announce a head that the folder lacks
    let announced = copy("dspark");
    set_config(announced.path(), "enable_confidence_head", true.into());
    assert!(block_of(&mut pair(announced.path(), Backend::Candle), 40).1.iter().all(|(_, said)| said.is_none()));
}
