//! DFlash 2: convolutions in the block, and a selector that chooses a path through the best tokens of each position.
//!
//! Reference values come from the classes of the package `speculators`, run as they are, and llama.cpp's converter wrote the
//! GGUF file (see the README of the fixtures).

use std::time::Duration;

use candle_core::quantized::gguf_file::Value;
use draftscope::engine::grammar::{Constraint, Vocabulary};
use draftscope::engine::speculate::decoder::Decoder;
use draftscope::model::drafters::dflash::BlockCard;
use draftscope::protocol::{
    Drafted, EventKind, Grammar, GrammarKind, Lattice, LatticeCandidate, LatticeColumn, Sampling, Settings, VerifyRule,
};

use crate::block::{Form, Pair, drafted, drafter, form, pair, text};
use crate::case::Limit;
use crate::decode::{decode, settings, start};
use crate::gguf::rewritten;
use crate::spoil::spoiled;
use crate::support::{Backend, Golden, TokenId, left_out, open, path, with_draft};

pub const FORMS: &[Form] = &[
    form("dflash2", "dflash2", Backend::Candle, Limit::relative(6.0 / 2048.0), true),
    form("dflash2", "dflash2", Backend::Native, Limit::relative(0.05), false),
    form("dflash2.gguf", "dflash2", Backend::Candle, Limit::relative(0.05), false),
    form("dflash2.gguf", "dflash2", Backend::Native, Limit::relative(0.05), false),
];

/// Candidates of a position.
const CANDIDATES: usize = 8;

#[test]
fn paths_equal_the_reference() {
    let (text, golden) = (text(), Golden::bare("dflash2"));
    for form in FORMS {
        let mut pair = form.open();
        assert_eq!((pair.block.most_drafts(), pair.block.corrects()), (5, false));
        for count in [5, 3] {
            let what = format!("{} on {:?}, {count} drafts", form.file, form.backend);
            let (mut tokens, mut sets, mut scores) = (Vec::new(), Vec::new(), Vec::new());
            for (at, start) in golden.tokens("starts").into_iter().enumerate() {
                let (logits, drafts) = drafted(&mut pair, &text, start.index(), count);
                if (at, count) == (0, 3) {
                    form.limit.check(&what, &logits, &golden.numbers("logits"));
                }
                let rows = pair.block.draft(text[start.index()], count).unwrap();
                let before = std::iter::once(text[start.index()]).chain(drafts.clone());
                for ((index, row), before) in rows.iter().enumerate().zip(before) {
                    let candidates = pair.block.select(index, row, before).unwrap().unwrap();
                    assert!(candidates.tokens.len() == CANDIDATES && candidates.alone.is_sorted_by(|a, b| a >= b));
                    let own = candidates.tokens.iter().zip(&candidates.alone);
                    assert!(own.into_iter().all(|(token, logit)| row[token.index()] == *logit));
                    sets.extend(candidates.tokens);
                    scores.extend(candidates.scores);
                }
                tokens.extend(drafts);
            }
            let want = golden.tokens(&format!("drafts.{count}"));
            let same = |a: &[TokenId], b: &[TokenId]| a.iter().zip(b).filter(|(a, b)| a == b).count();
            println!("{what}: {} of {} drafts", same(&tokens, &want), want.len());
            let enough = if form.same { tokens == want } else { same(&tokens, &want) * 10 >= want.len() * 8 };
            assert!(enough, "{what}: {tokens:?}, {want:?}");
            if form.same {
                assert!(sets == golden.tokens(&format!("candidates.{count}")), "{what}");
                form.limit.check(&what, &scores, &golden.numbers(&format!("scores.{count}")));
            }
        }
    }
}

/// Drafts and the lattice of the first round after a prompt.
fn first_round(form: &Form, settings: &Settings) -> (Vec<(TokenId, f32)>, Vec<LatticeColumn>) {
    let pair = form.open();
    let mut decoder = start(pair.target.as_ref(), drafter(pair.block.as_ref()), settings, &text()[..9]);
    let (mut drafts, mut lattices) = (Vec::new(), Vec::new());
    decoder
        .round(&mut |event| {
            match event {
                EventKind::Drafted(Drafted { token, q, .. }) => drafts.push((token.id, q.unwrap())),
                EventKind::Lattice(Lattice { columns, .. }) => lattices.push(columns),
                _ => {}
            }
            Duration::ZERO
        })
        .unwrap();
    assert_eq!(lattices.len(), 1, "one event a round");
    (drafts, lattices.remove(0))
}

#[test]
fn an_event_has_the_candidates_of_each_position_and_the_chosen_ones() {
    for k in [1, 3, 5] {
        let (drafts, lattice) = first_round(&FORMS[0], &settings(k));
        assert_eq!((drafts.len(), lattice.len()), (usize::from(k), usize::from(k)));
        for (index, (column, (token, q))) in lattice.iter().zip(drafts).enumerate() {
            assert_eq!((usize::from(column.index), column.candidates.len()), (index, CANDIDATES));
            let chosen = &column.candidates[column.place(token).unwrap()];
            let best = column.candidates.iter().map(|candidate| candidate.after).fold(0.0, f32::max);
            assert!(chosen.after == best && (chosen.after - q).abs() < 1e-5, "{chosen:?}, q {q}");
            let sum = |of: fn(&LatticeCandidate) -> f32| column.candidates.iter().map(of).sum::<f32>();
            assert!((sum(|c| c.alone) - 1.0).abs() < 1e-4 && (sum(|c| c.after) - 1.0).abs() < 1e-4);
            assert!(column.candidates.is_sorted_by(|a, b| a.alone >= b.alone));
        }
    }
}

#[test]
fn keys_decide_whatever_the_architecture_is_called_and_k_ends_at_the_block() {
    let folder = spoiled("dflash2", "set architectures [\"DFlashDraftModel\"]");
    let text = text();
    let [own, other] =
        [path("dflash2"), folder.path().into()].map(|draft| drafted(&mut pair(&draft, Backend::Candle), &text, 40, 5));
    assert!(own == other);
    let pair = FORMS[0].open();
    let answer = decode(pair.target.as_ref(), drafter(pair.block.as_ref()), &settings(7), &text[..9], 30);
    assert!(answer.drafted == 5 * answer.rounds);
    assert!(answer.notices.iter().any(|notice| notice.contains("drafts 5 tokens at most")), "{:?}", answer.notices);
    let mut pair = pair;
    drafted(&mut pair, &text, 40, 3);
    let row = vec![0.0; 320];
    assert!(pair.block.select(3, &row, TokenId(1)).unwrap().is_none(), "the last pass had three rows");
    assert!(pair.block.select(0, &row, TokenId(320)).is_err());
}

/// The answer to the fixture's prompt under a grammar, and the drafts of each round.
fn constrained(settings: &Settings, vocabulary: &Vocabulary, pair: &Pair) -> (Vec<TokenId>, Vec<usize>) {
    let text = text();
    let mut decoder = Decoder::new(pair.target.fork().unwrap(), drafter(pair.block.as_ref()), settings);
    let grammar = Grammar { kind: GrammarKind::Regex, text: "([a-z]{1,9} ){40}".to_owned() };
    decoder.constrain(Some(Constraint::new(vocabulary, &grammar).unwrap()));
    decoder.prefill(1, &text[..9]).unwrap();
    let mut rounds = Vec::new();
    while decoder.committed().len() < 9 + 50 {
        let (mut drafts, mut columns) = (0, 0);
        let round = decoder.round(&mut |event| {
            match event {
                EventKind::Drafted(Drafted { forced: false, .. }) => drafts += 1,
                EventKind::Lattice(Lattice { columns: all, .. }) => columns = all.len(),
                _ => {}
            }
            Duration::ZERO
        });
        round.unwrap();
        assert!(columns == drafts || columns == drafts + 1, "{columns} columns of {drafts} drafts");
        rounds.push(drafts);
    }
    (decoder.committed()[9..9 + 50].to_vec(), rounds)
}

#[test]
fn a_grammar_masks_the_candidates_and_the_text_stays_that_of_plain_decoding() {
    let loaded = open(&with_draft(&path("llama-deep"), &path("dflash2"), Backend::Native));
    let vocabulary = Vocabulary::new(loaded.codec).unwrap();
    let pair = FORMS[1].open();
    for temperature in [0.0, 0.9] {
        let sampling = Sampling { temperature, seed: 5, ..Sampling::default() };
        let base = Settings { sampling, rule: VerifyRule::Exact, ..settings(0) };
        let (want, _) = constrained(&base, &vocabulary, &pair);
        for draft_len in 1..=5 {
            let (got, rounds) = constrained(&Settings { draft_len, ..base }, &vocabulary, &pair);
            assert!(got == want, "k = {draft_len} at {temperature}");
            let (drafted, short) = (rounds.iter().sum::<usize>(), rounds.iter().any(|n| *n < draft_len.into()));
            assert!(drafted > 10 && short, "some candidates are allowed and others not: {rounds:?}");
        }
    }
}

#[test]
fn what_does_not_fit_is_ignored_with_a_sentence() {
    let rows = [
        ("set dflash_config.conv_group_size 24", "'conv_group_size' is 24, which does not divide 64 channels"),
        ("set dflash_config.conv_group_size 0", "'conv_group_size' is 0, expected 1 to 64"),
        (
            "set dflash_config.conv_group_size 32",
            "'layers.0.attention_conv.kernel_projection.weight' has shape [16, 64]",
        ),
        ("set dflash_config.conv_kernel_size 7", "'conv_kernel_size' is 7, expected 1 to 6"),
        ("set dflash_config.conv_kernel_size 3", "has shape [2, 2, 64], expected [2, 3, 64]"),
        ("set dflash_config.conv_kernel_size 1e99", "config.json"),
        ("set dflash_config.selector_rank 48", "a selector of rank 48 ('selector_rank') is not supported"),
        ("set dflash_config.selector_rank 64", "has shape [320, 32], expected [320, 64]"),
        ("set dflash_config.selector_rank 4294967296", "'selector_rank' is 4294967296, expected 1 to 16384"),
        ("set dflash_config.selector_top_k 0", "'selector_top_k' is 0, expected 1 to 320"),
        ("set dflash_config.selector_top_k 321", "'selector_top_k' is 321, expected 1 to 320"),
        ("set dflash_config.selector_top_k null", "the key 'selector_top_k' of a DFlash 2 drafter is missing"),
        ("set draft_vocab_size 200", "proposes 200 of 320 tokens ('draft_vocab_size')"),
        ("without mlp_conv.base_kernel", "layers.0.mlp_conv.base_kernel"),
        ("without successor_codebook", "candidate_selector.successor_codebook"),
        ("transpose hidden_projection", "'candidate_selector.hidden_projection.weight' has shape [64, 32]"),
        ("shorten predecessor_codebook", "'candidate_selector.predecessor_codebook' has shape [319, 32]"),
        ("add layers.0.attention_conv.bias 4", "a tensor that is not supported ('layers.0.attention_conv.bias')"),
        ("set architectures [\"Qwen3DSparkModel\"]; set markov_rank 32", "both a Markov head and a selector"),
        ("set architectures [\"LiLiCorrDraftModel\"]", "a selector with layers of its own (LiLiCorr) is not supported"),
    ];
    for backend in [Backend::Candle, Backend::Native] {
        for (edits, says) in rows {
            let folder = spoiled("dflash2", edits);
            let notice = left_out(&with_draft(&path("llama-deep"), folder.path(), backend));
            assert!(notice.contains(says), "{edits}: {notice}");
        }
    }
}

#[test]
fn gguf_files_with_wrong_keys_are_ignored_with_a_sentence() {
    type Edit = (&'static str, Option<u32>, &'static str);
    let rows: [Edit; 5] = [
        ("dflash.conv_group_size", Some(0), "dflash.conv_group_size"),
        ("dflash.conv_group_size", Some(48), "'conv_group_size' is 48, which does not divide 64 channels"),
        ("dflash.selector_top_k", None, "dflash.selector_top_k"),
        ("dflash.selector_top_k", Some(4000), "'selector_top_k' is 4000, expected 1 to 320"),
        ("dflash.conv_kernel_size", Some(7), "'conv_kernel_size' is 7, expected 1 to 6"),
    ];
    for (key, value, says) in rows {
        let file = rewritten("dflash2.gguf", |keys| {
            match value {
                Some(value) => keys.insert(key.to_owned(), Value::U32(value)),
                None => keys.remove(key),
            };
        });
        let notice = left_out(&with_draft(&path("llama-deep"), file.path(), Backend::Candle));
        assert!(notice.contains(says), "{key}: {notice}");
    }
}

#[test]
fn a_card_describes_convolutions_and_selector() {
    for file in ["dflash2", "dflash2.gguf"] {
        let card = BlockCard::read(&path(file)).unwrap();
        assert_eq!((card.kind, card.block, card.mask_token, card.layers), ("DFlash 2", 5, 319, 1));
        assert_eq!(card.path.unwrap().candidates, CANDIDATES);
        for says in ["a DFlash 2 block drafter", "a path through the 8 best tokens of each position (rank 32)"] {
            assert!(card.to_string().contains(says), "{card}");
        }
        // matrices: fc, attention, gated layer, projections of convolutions, selector
        let weights = 64 * 64 + 4 * 64 * 32 + 3 * 64 * 32 + 2 * 16 * 64 + 2 * 320 * 32 + 32 * 64;
        assert_eq!(card.parameters, weights);
    }
}
