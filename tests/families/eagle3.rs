//! EAGLE-3 heads: conventions of their configuration, targets that do not fit, and cards.

use std::path::Path;

use crate::case::{Opened, Run, largest};
use crate::cases::{EAGLE3_NORMED, EAGLE3_ORIGINAL, EAGLE3_SPECULATORS};
use crate::module::{depths, slots, tokens};
use crate::spoil::spoiled;
use crate::support::{
    Backend, HeadCard, LoadOptions, LogitRows, MtpOverride, TokenId, bare_options, by_hand, left_out, modules_of, open,
    path, refusal, with_draft,
};

/// Logits of all slots, and at depths 1 to 3, of a head in this folder.
fn logits(folder: &Path, run: &Run, drafts: &[TokenId]) -> [Vec<f32>; 2] {
    let mut loaded = open(&with_draft(&path(EAGLE3_NORMED.fixture), folder, run.backend));
    assert_eq!(loaded.notice, None);
    let mut modules = modules_of(&mut loaded);
    let tokens = tokens(&EAGLE3_NORMED);
    let (slots, _) = slots(loaded.target.as_mut(), modules[0].as_mut(), &tokens, run);
    let none = MtpOverride::default();
    [slots, depths(loaded.target.as_mut(), &mut modules, &tokens, none, Some(drafts)).logits]
}

#[test]
fn one_norm_over_all_states_equals_the_trainer() {
    let folder = spoiled("eagle3-normed", "set fc_norm false; set norm_before_fc true");
    let golden = EAGLE3_NORMED.draft_golden();
    for run in EAGLE3_NORMED.runs {
        let [slots, deeper] = logits(folder.path(), run, &golden.tokens("together.drafts"));
        run.module[0].check("slots", &slots, &golden.numbers("together.logits"));
        run.module[0].check("deeper", &deeper, &golden.numbers("together.deeper"));
    }
}

#[test]
fn a_wrong_convention_of_the_configuration_changes_logits() {
    let drafts = EAGLE3_NORMED.draft_golden().tokens("drafts");
    for (edits, only_deeper) in [
        ("set norm_before_residual false", false),
        ("set norm_output false", true),
        ("set fc_norm false", false),
        ("set fc_norm false; set norm_before_fc true", false),
        ("set eagle_aux_hidden_state_layer_ids [2, 4, 7]", false), // off by one
    ] {
        let folder = spoiled("eagle3-normed", edits);
        for run in EAGLE3_NORMED.runs {
            let right = logits(&path("eagle3-normed"), run, &drafts);
            let wrong = logits(folder.path(), run, &drafts);
            let [first, deeper] = [0, 1].map(|at| largest(&right[at], &wrong[at]));
            println!("{edits} on {:?}: {first:.3}, deeper {deeper:.3}", run.backend);
            assert!(deeper > 0.05 && (first > 0.05) != only_deeper, "{edits}: {first}, {deeper}");
        }
    }
}

#[test]
fn a_head_for_a_deeper_target_is_ignored() {
    for backend in [Backend::Candle, Backend::Native] {
        let notice = left_out(&with_draft(&path("qwen3"), &path("eagle3-original"), backend));
        let says =
            "2, the middle one and the third from the end ('eagle_aux_hidden_state_layer_ids') and the target has 2";
        assert!(notice.contains(says), "{notice}");
    }
}

#[test]
fn a_head_is_not_a_model_and_is_not_loaded_together_with_a_module() {
    let error = refusal(&bare_options(path("eagle3-speculators"), Backend::Auto));
    assert!(error.ends_with("holds an EAGLE-3 head, which drafts for another model: name it with --draft-model"));
    let head = Some(path("eagle3-speculators"));
    let both = LoadOptions { draft_model: head, ..by_hand(&path("qwen3"), Backend::Auto) };
    assert!(refusal(&both).contains("leave one out"));
    let loaded = open(&with_draft(&path("qwen3"), &path("eagle3-speculators"), Backend::Auto));
    assert!(loaded.draft_model.unwrap().err().unwrap().contains("which drafts as --drafter mtp"));
}

#[test]
fn a_card_describes_a_head() {
    let card = HeadCard::read(&path("eagle3-speculators")).unwrap().unwrap();
    assert_eq!((card.layers.as_deref(), card.draft_vocab, card.own_embedding), (Some(&[0, 1, 2][..]), 200, true));
    let text = card.to_string();
    for says in
        ["(EAGLE-3 for tiny/target)", "in front of layers 0, 1, 2", "proposes 200 of 320 tokens", "--draft-model"]
    {
        assert!(text.contains(says), "{text}");
    }
    let original = HeadCard::read(&path("eagle3-original")).unwrap().unwrap().to_string();
    assert!(original.contains("in front of layers 2, the middle one and the third from the end"), "{original}");
    assert_eq!(HeadCard::read(&path("qwen3")).unwrap(), None);
}

#[test]
fn slots_at_one_fixed_position_have_the_bits_of_slots_run_one_by_one() {
    for case in [EAGLE3_ORIGINAL, EAGLE3_NORMED, EAGLE3_SPECULATORS] {
        let tokens = tokens(&case)[..12].to_vec();
        for run in case.runs {
            let Opened { mut target, mut modules, .. } = case.open(run);
            let (module, what) = (&mut modules[0], format!("{} on {:?}", case.fixture, run.backend));
            target.set_tap(&module.tap()).unwrap();
            let hidden = target.forward(&tokens, LogitRows::Last).unwrap().hidden;
            module.forward(&tokens[1..9], &hidden.slice(0..8)).unwrap();
            module.hold_position(Some(7));
            let mut alone = module.fork().unwrap();
            let together = module.forward(&tokens[9..], &hidden.slice(8..11)).unwrap();
            let slots = (8..11).map(|at| alone.forward(&tokens[at + 1..at + 2], &hidden.slice(at..at + 1)).unwrap());
            let slots: Vec<_> = slots.collect();
            let states: Vec<f32> = slots.iter().flat_map(|slot| slot.hidden.as_slice().to_vec()).collect();
            assert!(together.hidden.as_slice() == states, "{what}: other states");
            assert!(together.logits == slots[2].logits, "{what}: other logits");
            // with different positions, the logits would differ
            module.truncate(8).unwrap();
            module.hold_position(None);
            let own = module.forward(&tokens[9..], &hidden.slice(8..11)).unwrap();
            assert!(largest(own.logits.row(0), together.logits.row(0)) > 1e-3, "{what}");
        }
    }
}
