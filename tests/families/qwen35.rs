//! Qwen3.5 and Qwen3-Next: two ways to roll back recurrent states, lengths without a stored state, modules whose drafts
//! are known, and experts that a pass meets.

use std::process::Command;

use crate::case::{Case, largest};
use crate::cases::{QWEN3_NEXT, QWEN3_NEXT_GGUF, QWEN35, QWEN35_MOE, QWEN35_MOE_GGUF};
use crate::decode::next_logits;
use crate::support::{
    Card, Checkpoint, LoadOptions, LogitRows, Model, ModelError, Rollback, Value, by_hand, family_number, measure,
    open, path, refusal,
};
use crate::{module, target};

/// The next token depends only on the last one, so every draft is known too. The golden files have only counts of
/// acceptance.
const BIGRAM: Case = Case { fixture: "qwen35-bigram", golden: "qwen35-bigram", ..QWEN35 };

#[test]
fn drafts_and_acceptances_equal_the_oracle() {
    let golden = BIGRAM.golden();
    module::counts(&BIGRAM, &golden.tokens("tokens"), &golden.json);
}

/// Models with experts, from both kinds of files.
const WITH_EXPERTS: [&Case; 3] = [&QWEN35_MOE, &QWEN3_NEXT, &QWEN3_NEXT_GGUF];

#[test]
fn drafts_and_acceptances_with_experts_equal_the_oracle() {
    for case in WITH_EXPERTS {
        let golden = case.golden();
        module::counts(case, &golden.tokens("tokens")[..8], &golden.json["counts"]);
    }
}

/// Its norms are zero, so that other conventions give no numbers; the other tests of modules are those of `QWEN35_MOE`.
#[test]
fn the_module_of_a_qwen3_next_equals_the_oracle() {
    for case in [&QWEN3_NEXT, &QWEN3_NEXT_GGUF] {
        module::oracle(case);
        module::commits(case);
    }
}

#[test]
fn a_pass_reads_the_experts_that_its_rows_chose() {
    for case in WITH_EXPERTS {
        for run in case.runs {
            let mut target = case.open(run).target;
            let tokens = case.golden().tokens("greedy");
            let layers = target.spec().info.layers as usize;
            let mut alone = target.fork().unwrap();
            let mut least = 0;
            for rows in [1, 2, 4, 8] {
                let at = target.len();
                target.forward(&tokens[at..at + rows], LogitRows::All).unwrap();
                let together = target.experts_met().unwrap();
                let mut each = 0;
                for row in at..at + rows {
                    alone.forward(&tokens[row..=row], LogitRows::All).unwrap();
                    let one = alone.experts_met().unwrap();
                    assert_eq!((one.layers, one.met), (layers, 2 * layers), "each row has two experts");
                    assert_eq!(one.bytes_met, one.bytes / one.count as u64 * one.met as u64);
                    each += one.met;
                }
                assert!(together.met >= 2 * layers && together.met <= each.min(together.count), "{together:?}");
                assert!(rows < 8 || together.met < each, "some of {rows} rows share experts: {together:?}");
                least = least.max(together.met);
                assert!(target.pass_bytes() > together.bytes);
            }
            assert!(least > 2 * layers, "more rows meet more experts");
        }
    }
}

#[test]
fn costs_say_what_passes_meet_of_the_experts() {
    let cost = measure(&QWEN35_MOE.options(&QWEN35_MOE.runs[1]), 24, 1).unwrap();
    let experts = &cost.experts;
    assert_eq!((experts.len(), cost.verify.len()), (cost.verify.len(), experts.len()));
    assert_eq!((experts[0].met, experts[0].count, experts[0].pass_bytes), (2.0, 6.0, cost.pass_bytes));
    assert!(experts.iter().all(|at| at.met <= at.count) && experts[7].met > 2.0, "{experts:?}");
    assert!(experts[7].pass_bytes > cost.pass_bytes && cost.pass_bytes < cost.weight_bytes);
    assert_eq!(measure(&QWEN35.options(&QWEN35.runs[1]), 24, 1).unwrap().experts, []);
}

#[test]
fn cards_tell_the_experts() {
    for (case, experts) in [(&QWEN35_MOE, 6), (&QWEN35_MOE_GGUF, 6), (&QWEN3_NEXT, 4), (&QWEN3_NEXT_GGUF, 4)] {
        let card = Card::read(&path(case.fixture)).unwrap();
        let active = family_number(&card, "experts", "active_parameters").unwrap();
        let expert = 3 * 32 * 32;
        let looked_up = if experts == 6 { 0 } else { 320 * 32 };
        assert_eq!(card.parameters - active, 2 * (experts - 2) * expert + looked_up, "{}", case.fixture);
        let says = format!("experts  {experts} a layer; 2 of them and a shared one serve a token");
        assert!(card.to_string().contains(&says), "{card}");
    }
}

#[test]
fn rows_of_the_bigram_model_have_the_same_bits_together_and_alone() {
    target::rows(&BIGRAM);
    target::backend(&BIGRAM);
}

fn with(rollback: Rollback) -> Box<dyn Model> {
    open(&LoadOptions { rollback: Some(rollback), ..QWEN35.options(&QWEN35.runs[0]) }).target
}

#[test]
fn both_ways_to_roll_back_give_the_same_bits() {
    let tokens = QWEN35.golden().tokens("tokens");
    let (mut copies, mut replay) = (with(Rollback::Snapshots), with(Rollback::Replay));
    let (of_copies, of_replay) = (&copies.spec().info, &replay.spec().info);
    assert!(of_copies.snapshot_bytes == of_copies.state_bytes && of_copies.state_bytes > 0);
    assert!(of_replay.snapshot_bytes < of_copies.snapshot_bytes);
    for (rows, keep) in [(4, 2), (1, 1), (6, 1), (3, 3), (1, 1), (5, 4), (7, 6)] {
        for target in [&mut copies, &mut replay] {
            let since = target.checkpoint().unwrap();
            target.forward(&tokens[since.len..since.len + rows], LogitRows::All).unwrap();
            target.truncate(since.len + keep, &since).unwrap();
        }
        assert!(next_logits(copies.as_ref(), &tokens[20..23]) == next_logits(replay.as_ref(), &tokens[20..23]));
    }
}

#[test]
fn a_length_without_a_state_is_an_error_and_the_next_shorter_one_is_found() {
    let tokens = QWEN35.golden().tokens("greedy");
    let mut target = with(Rollback::Snapshots);
    let start = Checkpoint { len: 0 };
    target.forward(&tokens[..60], LogitRows::Last).unwrap();
    assert!(matches!(target.truncate(50, &start), Err(ModelError::Rewind { .. })));
    assert_eq!(target.len(), 60);
    // near the end of a prompt, where the next turn may differ
    assert_eq!([60, 59, 58, 43].map(|len| target.rewindable(len)), [60, 59, 44, 0]);
    for len in [59, 44, 0] {
        let (mut back, mut fresh) = (target.fork().unwrap(), with(Rollback::Snapshots));
        back.truncate(len, &start).unwrap();
        if len > 0 {
            fresh.forward(&tokens[..len], LogitRows::Last).unwrap();
        }
        let off = largest(&next_logits(back.as_ref(), &tokens[..3]), &next_logits(fresh.as_ref(), &tokens[..3]));
        assert!(off < 1e-5, "back to {len}: off by {off}");
    }
}

#[test]
fn k_is_chosen_for_the_chain_that_replaces_a_rejected_tree() {
    let home = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_draftscope"));
        command.args(["run", "--prompt", "a b", "--max-tokens", "60", "--output", "jsonl", "--model"]);
        command.arg(path("qwen35")).args(arguments).env("XDG_CACHE_HOME", home.path());
        let out = command.output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let lines = String::from_utf8(out.stdout).unwrap();
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
    };
    let committed = |events: &[Value]| -> Vec<Value> {
        let tokens = events.iter().filter(|event| event["type"] == "committed").map(|event| &event["tokens"]);
        tokens.flat_map(|tokens| tokens.as_array().unwrap().iter().map(|token| token["id"].clone())).collect()
    };
    let (auto, fixed) = (run(&["-k", "auto", "--tree", "8"]), run(&["-k", "2"]));
    let notices: Vec<_> = auto.iter().filter_map(|event| event["message"].as_str()).collect();
    assert!(notices.iter().any(|notice| notice.contains("a chain is drafted instead")), "{notices:?}");
    assert!(notices.iter().all(|notice| !notice.contains("cannot be chosen automatically")), "{notices:?}");
    assert!(auto.iter().any(|event| event["type"] == "draft_len_chosen"), "k changes if most drafts are rejected");
    assert_eq!(committed(&auto), committed(&fixed));
}

#[test]
fn a_module_of_the_user_is_rejected() {
    let error = refusal(&by_hand(&path("qwen35"), QWEN35.runs[0].backend));
    assert!(error.contains("brings its own"), "{error}");
}
