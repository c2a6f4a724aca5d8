//! A draft model that drafts all positions in one pass: PARD.
//!
//! The fixture is no PARD model, so its masks draft badly; what is tested is which rows of which pass the drafts come from.

use std::time::Duration;

use draftscope::engine::speculate::drafter::ModelDrafter;
use draftscope::model::load::DraftForm;
use draftscope::protocol::{DraftPick, Drafted, Drafting, EventKind, MAX_DRAFT_LEN, Sampling, Settings, VerifyRule};

use crate::block::text;
use crate::block_sampling::Bench;
use crate::decode::{Drafter, NoDrafter, decode, settings, start};
use crate::spoil::spoiled;
use crate::support::{Backend, Checkpoint, Loaded, LogitRows, Model, TokenId, one_sentence, open, path, with_draft};

const MASK: TokenId = TokenId(319);

/// A target, and the same model as its draft model with a mask.
fn pair(backend: Backend) -> (Box<dyn Model>, Box<dyn Model>) {
    let folder = spoiled("llama-deep", "set pard_token 319");
    let Loaded { target, draft_model, draft_form, warnings, .. } =
        open(&with_draft(&path("llama-deep"), folder.path(), backend));
    let (model, info) = draft_model.unwrap().unwrap();
    assert!(matches!(draft_form, DraftForm::Masks(MASK)) && info.block == u64::from(MAX_DRAFT_LEN));
    assert!(info.name.ends_with(" (PARD)") && warnings.is_empty(), "{}, {warnings:?}", info.name);
    (target, model)
}

fn drafter(model: &dyn Model) -> Box<dyn Drafter> {
    Box::new(ModelDrafter::in_one_pass(model.fork().unwrap(), MASK))
}

/// Logits of `count` drafts after these tokens: of the last one and of masks after it.
fn expected(model: &dyn Model, tokens: &[TokenId], count: usize) -> Vec<Vec<f32>> {
    let mut model = model.fork().unwrap();
    model.truncate(0, &Checkpoint { len: 0 }).unwrap();
    let all: Vec<_> = tokens.iter().copied().chain(std::iter::repeat_n(MASK, count - 1)).collect();
    let rows = model.forward(&all, LogitRows::All).unwrap().logits;
    rows.iter().skip(tokens.len() - 1).map(<[f32]>::to_vec).collect()
}

#[test]
fn drafts_come_from_the_rows_of_anchor_and_masks_of_one_pass() {
    let text = text();
    for backend in [Backend::Candle, Backend::Native] {
        let (target, model) = pair(backend);
        for k in [1, 2, 5] {
            let mut decoder = start(target.as_ref(), drafter(model.as_ref()), &settings(k), &text[..9]);
            for _ in 0..6 {
                let before = decoder.committed().to_vec();
                let mut drafts = Vec::new();
                let round = decoder.round(&mut |event| {
                    if let EventKind::Drafted(Drafted { token, more, .. }) = event {
                        drafts.push((token.id, more));
                    }
                    Duration::ZERO
                });
                round.unwrap();
                let best = |row: Vec<f32>| (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap() as u32;
                let want = expected(model.as_ref(), &before, k.into()).into_iter().map(best).map(TokenId);
                let want: Vec<_> = want.enumerate().map(|(i, token)| (token, i + 1 < usize::from(k))).collect();
                assert_eq!(drafts, want, "{backend:?}, k = {k}");
            }
        }
    }
}

#[test]
fn answers_are_those_of_plain_decoding() {
    let text = text();
    let (target, model) = pair(Backend::Candle);
    let plain = decode(target.as_ref(), Box::new(NoDrafter), &settings(0), &text[..9], 120);
    for k in [1, 3, 7, 15] {
        let answer = decode(target.as_ref(), drafter(model.as_ref()), &settings(k), &text[..9], 120);
        assert!(answer.text == plain.text && answer.drafted == answer.rounds * usize::from(k), "k = {k}");
        assert_eq!(answer.accepted[0], answer.rounds, "the anchor's row is the target's own");
    }
}

#[test]
fn a_text_that_it_has_not_read_is_read_first() {
    let text = text();
    let (target, model) = pair(Backend::Candle);
    for unread in [3, 60] {
        let mut decoder = start(target.as_ref(), drafter(model.as_ref()), &settings(0), &text[..9]);
        (0..unread).for_each(|_| drop(decoder.round(&mut |_| Duration::ZERO).unwrap()));
        decoder.set(&settings(4));
        let (before, mut drafts) = (decoder.committed().to_vec(), Vec::new());
        let round = decoder.round(&mut |event| {
            if let EventKind::Drafted(Drafted { token, .. }) = event {
                drafts.push(token.id.index());
            }
            Duration::ZERO
        });
        round.unwrap();
        let best = |row: Vec<f32>| (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap();
        let want: Vec<_> = expected(model.as_ref(), &before, 4).into_iter().map(best).collect();
        assert_eq!(drafts, want, "{unread} tokens");
    }
}

#[test]
fn a_sampled_draft_has_the_probability_of_its_row_and_answers_follow_the_target() {
    let text = text();
    let (target, model) = pair(Backend::Candle);
    let drafting = Drafting { pick: DraftPick::Sample, ..Drafting::default() };
    for seed in 0..4 {
        let sampling = Sampling { temperature: 1.0, seed, ..Sampling::default() };
        let drafter_kind = draftscope::protocol::DrafterKind::DraftModel;
        let settings = Settings { draft_len: 3, drafter: drafter_kind, sampling, drafting, ..Settings::default() };
        let mut decoder = start(target.as_ref(), drafter(model.as_ref()), &settings, &text[..9]);
        let (before, mut drafts) = (decoder.committed().to_vec(), Vec::new());
        let round = decoder.round(&mut |event| {
            if let EventKind::Drafted(Drafted { token, q, .. }) = event {
                drafts.push((token.id, q.unwrap()));
            }
            Duration::ZERO
        });
        round.unwrap();
        for (row, (token, prob)) in expected(model.as_ref(), &before, 3).iter().zip(drafts) {
            let sum: f64 = row.iter().map(|logit| f64::from(*logit).exp()).sum();
            let q = f64::from(row[token.index()]).exp() / sum;
            assert!((q - f64::from(prob)).abs() < 1e-4, "{q} and {prob} of {token:?}");
        }
    }
    let bench = Bench::of(&path("dflash"));
    let (_, model) = pair(Backend::Native);
    bench.follows(drafter(model.as_ref()), VerifyRule::Rejection, 900_000);
}

#[test]
fn a_mask_that_is_no_token_is_an_error_and_what_is_not_read_is_said() {
    for (value, says) in
        [("320", "'pard_token' is 320, and the draft model has 320 tokens"), ("-1", "'pard_token' is -1")]
    {
        let folder = spoiled("llama-deep", &format!("set pard_token {value}"));
        let loaded = open(&with_draft(&path("llama-deep"), folder.path(), Backend::Candle));
        let why = one_sentence(loaded.draft_model.unwrap().err().unwrap());
        assert!(why.contains(says), "{why}");
    }
    let folder = spoiled("llama-deep", "set pard_token 319; write warp_model.bin x");
    let loaded = open(&with_draft(&path("llama-deep"), folder.path(), Backend::Candle));
    assert!(loaded.warnings.iter().any(|warning| warning.contains("'warp_model.bin' (PARD-2) is not read")));
    let folder = spoiled("llama-deep", "set pard_token null");
    let loaded = open(&with_draft(&path("llama-deep"), folder.path(), Backend::Candle));
    assert!(matches!(loaded.draft_form, DraftForm::OneByOne));
}
