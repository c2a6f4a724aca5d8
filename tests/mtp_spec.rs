//! The conventions of MTP modules: a wrong one changes the drafts and never the text, on both backends, also if it is
//! changed during an answer.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

mod common;

use std::collections::HashMap;
use std::time::Duration;

use candle_core::{Device, Tensor};
use common::checkpoint::{Golden, path, recipe};
use draftscope::engine::speculate::decoder::Decoder;
use draftscope::engine::speculate::drafter::{Drafter, MtpDrafter, NoDrafter};
use draftscope::model::load::load;
use draftscope::model::options::{Backend, LoadOptions, ModuleFile};
use draftscope::protocol::{
    Candidate, Convention, Drafted, Drafting, EventKind, MtpOverride, Prediction, Settings, TokenId,
};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// Sizes of the fixture `llama`.
const D: usize = 64;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const HEAD_DIM: usize = 32;
const FFN: usize = 96;
const VOCAB: usize = 320;

fn numbers(random: &mut ChaCha8Rng, shape: &[usize], spread: f64, middle: f64) -> Tensor {
    let count: usize = shape.iter().product();
    let unit = |random: &mut ChaCha8Rng| f64::from(random.next_u32()) / f64::from(u32::MAX) * 2.0 - 1.0;
    let values: Vec<f32> = (0..count).map(|_| (middle + unit(random) * spread) as f32).collect();
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
}

/// Random modules for the fixture, one for each depth.
fn modules(depths: usize) -> ModuleFile {
    modules_for(depths, (0..VOCAB as i64).step_by(2).collect())
}

/// Random modules with this draft vocabulary.
fn modules_for(depths: usize, vocab: Vec<i64>) -> ModuleFile {
    let mut random = ChaCha8Rng::seed_from_u64(5);
    let (q, kv) = (HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM);
    let mut tensors = HashMap::new();
    for depth in 0..depths {
        for (name, out, input) in [
            ("eh_proj", D, 2 * D),
            ("self_attn.q_proj", q, D),
            ("self_attn.k_proj", kv, D),
            ("self_attn.v_proj", kv, D),
            ("self_attn.o_proj", D, q),
            ("mlp.gate_proj", FFN, D),
            ("mlp.up_proj", FFN, D),
            ("mlp.down_proj", D, FFN),
        ] {
            let weight = numbers(&mut random, &[out, input], 2.0 / (input as f64).sqrt(), 0.0);
            tensors.insert(format!("mtp.layers.{depth}.{name}.weight"), weight);
        }
        for name in ["enorm", "hnorm", "input_layernorm", "post_attention_layernorm", "shared_head.norm"] {
            tensors.insert(format!("mtp.layers.{depth}.{name}.weight"), numbers(&mut random, &[D], 0.5, 1.0));
        }
    }
    let config = serde_json::json!({
        "hidden_size": D, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM,
        "intermediate_size": FFN, "vocab_size": VOCAB, "draft_vocab_size": vocab.len(),
        "num_nextn_predict_layers": depths, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "concat_order": ["embedding", "hidden"],
    });
    let n = vocab.len();
    tensors.insert("mtp.draft_vocab".into(), Tensor::from_vec(vocab, n, &Device::Cpu).unwrap());
    let weights = safetensors::serialize(tensors.iter().map(|(k, v)| (k.as_str(), v)), None).unwrap();
    ModuleFile {
        name: "random".into(),
        weights: weights.into(),
        config: config.to_string().into_bytes().into(),
        sha256: None,
        required: true,
    }
}

fn settings(mtp: MtpOverride) -> Settings {
    Settings {
        draft_len: 3,
        drafting: Drafting { mtp, ..Drafting::default() },
        drafter: draftscope::protocol::DrafterKind::Mtp,
        ..Settings::default()
    }
}

fn prompt() -> Vec<TokenId> {
    Golden::of("llama").tokens("tokens")[..8].to_vec()
}

fn decoder(backend: Backend, depths: usize, mtp: MtpOverride) -> Decoder {
    let recipe = LoadOptions { mtp: Some(modules(depths)), ..recipe(path("llama"), backend) };
    let loaded = load(&recipe, &mut |_, _, _| {}).unwrap();
    let all = std::iter::once(loaded.mtp.unwrap().0).chain(loaded.deeper).collect();
    let mut decoder = Decoder::new(loaded.target, Box::new(MtpDrafter::stack(all)), &settings(mtp));
    decoder.prefill(1, &prompt()).unwrap();
    assert!(decoder.take_notices().is_empty());
    decoder
}

/// Predictions of the drafter in one round.
fn drafts(decoder: &mut Decoder) -> Vec<Prediction> {
    let mut said = Vec::new();
    decoder
        .round(&mut |event| {
            if let EventKind::Drafted(Drafted { top, .. }) = event {
                said.push(top);
            }
            Duration::ZERO
        })
        .unwrap();
    assert_eq!(said.len(), 3);
    said
}

/// Largest difference between probabilities of the same token. One that a side does not list has there at most the least
/// listed probability, and counts with that or its own, whichever is smaller.
fn apart(a: &Prediction, b: &Prediction) -> f32 {
    let of = |p: &Prediction| p.top.iter().map(|c| (c.piece.id, c.prob)).collect::<HashMap<_, _>>();
    let beyond = |p: &Prediction, other: &Prediction| {
        let (least, listed) = (other.top.last().map_or(0.0, |c| c.prob), of(other));
        let off =
            |c: &Candidate| listed.get(&c.piece.id).map_or((c.prob - least).max(0.0), |prob| (c.prob - prob).abs());
        p.top.iter().map(off).fold(0.0, f32::max)
    };
    beyond(a, b).max(beyond(b, a))
}

/// One override for each value of each convention.
fn all() -> Vec<MtpOverride> {
    let every = Convention::ALL.iter().flat_map(|c| c.names().iter().map(move |name| (*c, *name)));
    let wanted = every.map(|(convention, name)| {
        let mut wanted = MtpOverride::default();
        wanted.set(convention, Some(name)).unwrap();
        wanted
    });
    wanted.collect()
}

#[test]
fn a_wrong_convention_changes_what_is_drafted_and_the_right_one_does_not() {
    // keys that are rotated by other angles round to other halves, and products differ more in blocks of few bits
    for (backend, same, other) in [(Backend::Candle, 1e-4, 1e-3), (Backend::Native, 2e-3, 5e-3)] {
        let made = drafts(&mut decoder(backend, 1, MtpOverride::default()));
        for wanted in all() {
            let name = wanted.to_string();
            let said = drafts(&mut decoder(backend, 1, wanted));
            let depth = |depth: usize| apart(&made[depth], &said[depth]);
            println!("{backend:?} {name}: {:.5} {:.5} {:.5}", depth(0), depth(1), depth(2));
            match name.as_str() {
                // rotary positions depend on differences only, so shifting all slots changes nothing
                "feed=post-norm"
                | "recycle=post-norm"
                | "order=embedding-first"
                | "pairing=next"
                | "position=own"
                | "position=next"
                | "slot0=plain"
                | "norm=weight" => {
                    assert!(made == said || depth(0) < same, "{backend:?} {name}");
                }
                // all slots shifted by one, and all drafts at one position
                "position=constant-next" => {
                    assert!(depth(0) < same && depth(1) > other, "{backend:?} {name}");
                }
                // these change drafts from the second one on
                "recycle=pre-norm" | "position=constant" => {
                    assert!(depth(0) == 0.0 && depth(1) > other, "{backend:?} {name}");
                }
                _ => assert!(depth(0) > other, "{backend:?} {name}"),
            }
        }
    }
}

#[test]
fn conventions_never_change_the_text_also_during_an_answer() {
    const LEN: usize = 60;
    for (backend, depths) in [(Backend::Candle, 1), (Backend::Native, 1), (Backend::Native, 3)] {
        let answer = |decoder: &mut Decoder| {
            while decoder.committed().len() < LEN {
                decoder.round(&mut |_| Duration::ZERO).unwrap();
            }
            decoder.committed()[..LEN].to_vec()
        };
        let target = load(&recipe(path("llama"), backend), &mut |_, _, _| {}).unwrap().target;
        let none: Box<dyn Drafter> = Box::new(NoDrafter);
        let mut plain = Decoder::new(target, none, &settings(MtpOverride::default()));
        plain.prefill(1, &prompt()).unwrap();
        let plain = answer(&mut plain);
        let mut changing = decoder(backend, depths, MtpOverride::default());
        for wanted in all() {
            assert_eq!(answer(&mut decoder(backend, depths, wanted)), plain, "{backend:?} {wanted}");
            changing.set(&settings(wanted));
            changing.round(&mut |_| Duration::ZERO).unwrap();
            assert!(changing.take_notices().is_empty());
        }
        assert_eq!(answer(&mut changing), plain, "{backend:?}, changed during the answer");
    }
}

#[test]
fn a_change_that_is_undone_has_no_effect() {
    for backend in [Backend::Candle, Backend::Native] {
        let (mut steady, mut changing) =
            (decoder(backend, 1, MtpOverride::default()), decoder(backend, 1, MtpOverride::default()));
        drafts(&mut steady);
        changing.set(&settings("feed=pre-norm,norm=one-plus,slot0=extra".parse().unwrap()));
        drafts(&mut changing);
        changing.set(&settings(MtpOverride::default()));
        while steady.committed().len() < changing.committed().len() {
            drafts(&mut steady);
        }
        while changing.committed().len() < steady.committed().len() {
            drafts(&mut changing);
        }
        assert_eq!(steady.committed(), changing.committed());
        let (a, b) = (drafts(&mut steady), drafts(&mut changing));
        assert!(a.iter().zip(&b).all(|(a, b)| apart(a, b) < 1e-5), "{backend:?}");
    }
}

#[test]
fn a_draft_vocabulary_out_of_order_is_rejected_on_both_backends() {
    for (vocab, says) in [
        (vec![0, 4, 2, 6], "names token 4 and then token 2: it must name each token once, in ascending order"),
        (vec![0, 2, 2, 4], "names token 2 and then token 2: it must name each token once, in ascending order"),
        (vec![0, 2, 4, VOCAB as i64], "names token 320, and the target has 320 tokens"),
    ] {
        for backend in [Backend::Candle, Backend::Native] {
            let recipe = LoadOptions { mtp: Some(modules_for(1, vocab.clone())), ..recipe(path("llama"), backend) };
            let error = load(&recipe, &mut |_, _, _| {}).err().unwrap().to_string();
            assert!(error.contains(&format!("'mtp.draft_vocab' {says}")), "{backend:?}: {error}");
        }
    }
}
