//! Models with experts: drafts and acceptances, the experts that passes meet, cards, GGUF files with other keys, and
//! assistants as GGUF.

use std::collections::HashMap;
use std::fs;

use candle_core::quantized::gguf_file::Value;

use crate::case::Case;
use crate::cases::{
    DEEPSEEK2_GGUF, DEEPSEEK2_LITE_GGUF, GEMMA4_EXPERTS, GEMMA4_EXPERTS_GGUF, GLM4_FLASH_GGUF, GLM4_MOE, GLM4_MOE_GGUF,
    QWEN3_MOE, QWEN3_MOE_GGUF,
};
use crate::gguf::{rewritten, rewritten_of};
use crate::module;
use crate::support::{
    AssistantCard, Backend, Card, GgufSummary, LogitRows, OpenModel, bare_options, family_number, left_out, open,
    options, path, refusal, with_draft,
};

/// Each with its experts, experts of a row, and layers that have experts.
const ALL: [(&Case, usize, usize, usize); 9] = [
    (&GEMMA4_EXPERTS, 4, 2, 2),
    (&GEMMA4_EXPERTS_GGUF, 4, 2, 2),
    (&QWEN3_MOE, 5, 2, 2),
    (&QWEN3_MOE_GGUF, 5, 2, 2),
    (&DEEPSEEK2_GGUF, 8, 2, 1),
    (&DEEPSEEK2_LITE_GGUF, 6, 2, 1),
    (&GLM4_FLASH_GGUF, 4, 2, 1),
    (&GLM4_MOE, 4, 2, 1),
    (&GLM4_MOE_GGUF, 4, 2, 1),
];

#[test]
fn drafts_and_acceptances_equal_the_oracle() {
    for case in [&GEMMA4_EXPERTS, &GEMMA4_EXPERTS_GGUF, &GLM4_FLASH_GGUF, &GLM4_MOE, &GLM4_MOE_GGUF] {
        let golden = case.golden();
        module::counts(case, &golden.tokens("tokens")[..8], &golden.json["counts"]);
    }
}

#[test]
fn a_pass_reads_the_experts_that_its_rows_chose() {
    for (case, count, used, layers) in ALL {
        for run in case.runs {
            let mut target = case.open(run).target;
            let tokens = case.golden().tokens("greedy");
            let mut alone = target.fork().unwrap();
            for rows in [1, 3, 8] {
                let at = target.len();
                target.forward(&tokens[at..at + rows], LogitRows::All).unwrap();
                let together = target.experts_met().unwrap();
                let mut each = 0;
                for row in at..at + rows {
                    alone.forward(&tokens[row..=row], LogitRows::All).unwrap();
                    let one = alone.experts_met().unwrap();
                    assert_eq!((one.layers, one.met), (layers, used * layers), "{}", case.fixture);
                    each += one.met;
                }
                assert!(together.met <= each.min(count * layers) && together.met >= used * layers, "{together:?}");
                assert!(rows < 8 || together.met < each, "some of {rows} rows share experts: {together:?}");
                assert!(target.pass_bytes() > together.bytes);
            }
        }
    }
}

#[test]
fn cards_count_the_weights_that_a_token_meets() {
    for (case, count, used, layers) in ALL {
        let card = Card::read(&path(case.fixture)).unwrap();
        let number = |key| family_number(&card, "experts", key).unwrap();
        assert_eq!([number("count"), number("used"), number("layers")], [count, used, layers].map(|n| n as u64));
        let expert = 3 * 32 * 32;
        let looked_up = if case.fixture.starts_with("deepseek2") { 320 * 32 } else { 0 };
        let unmet = ((count - used) * layers * expert) as u64 + looked_up;
        assert_eq!(card.parameters - number("active_parameters"), unmet, "{}", case.fixture);
        let text = card.to_string();
        assert!(text.contains(&format!("experts  {count} a layer")) && text.contains("serve a token"), "{text}");
    }
}

/// Sets numbers of a GGUF file.
fn with_numbers(name: &str, numbers: &[(&str, u32)]) -> tempfile::NamedTempFile {
    rewritten(name, |keys: &mut HashMap<String, Value>| {
        keys.extend(numbers.iter().map(|(key, number)| ((*key).to_owned(), Value::U32(*number))));
    })
}

#[test]
fn keys_of_gguf_files_that_do_not_go_are_named() {
    for (name, key, number, says) in [
        ("gemma4-experts.gguf", "gemma4.expert_used_count", 5, "'gemma4.expert_used_count' is 5 and"),
        ("gemma4-experts.gguf", "gemma4.expert_count", 5, "has shape [4, 32], expected [5, 32]"),
        ("qwen3moe.gguf", "qwen3moe.expert_used_count", 6, "'qwen3moe.expert_count' is 5"),
        ("qwen3moe.gguf", "qwen3moe.expert_feed_forward_length", 64, "has shape"),
        ("qwen3moe.gguf", "qwen3moe.expert_count", 0, "'qwen3moe.expert_count' is 0"),
        (
            "deepseek2.gguf",
            "deepseek2.expert_gating_func",
            1,
            "'deepseek2.expert_group_count' is 4 and experts are chosen by",
        ),
        (
            "deepseek2.gguf",
            "deepseek2.expert_gating_func",
            0,
            "'deepseek2.expert_group_count' is 4 and experts are chosen by",
        ),
        (
            "deepseek2.gguf",
            "deepseek2.expert_gating_func",
            3,
            "'deepseek2.expert_gating_func' is 3: experts are chosen by",
        ),
        ("deepseek2.gguf", "deepseek2.expert_group_count", 3, "'deepseek2.expert_group_count' is 3"),
        ("deepseek2.gguf", "deepseek2.expert_group_used_count", 5, "'deepseek2.expert_group_used_count' is 5"),
        ("deepseek2.gguf", "deepseek2.attention.key_length_mla", 8, "'deepseek2.attention.key_length_mla' is 8"),
        ("deepseek2.gguf", "deepseek2.attention.kv_lora_rank", 64, "has shape"),
        ("deepseek2.gguf", "deepseek2.leading_dense_block_count", 3, "'deepseek2.leading_dense_block_count' is 3"),
        ("glm4moe.gguf", "glm4moe.leading_dense_block_count", 9, "'glm4moe.leading_dense_block_count' is 9"),
        ("glm4moe.gguf", "glm4moe.rope.dimension_count", 7, "7 values of a head of 16 cannot be rotated in pairs"),
        ("glm4moe.gguf", "glm4moe.expert_shared_count", 2, "has shape"),
        ("glm4moe.gguf", "glm4moe.nextn_predict_layers", 3, "no layer is left"),
    ] {
        let file = with_numbers(name, &[(key, number)]);
        let error = refusal(&bare_options(file.path().into(), Backend::Native));
        assert!(error.contains(says), "{name}, {key} = {number}: {error}");
    }
    let old = rewritten("deepseek2.gguf", |keys| drop(keys.remove("deepseek2.rope.scaling.yarn_log_multiplier")));
    let error = refusal(&bare_options(old.path().into(), Backend::Candle));
    assert!(error.contains("'deepseek2.rope.scaling.yarn_log_multiplier'"), "{error}");
}

#[test]
fn a_gguf_file_that_lost_its_module_decodes_without_drafts() {
    for name in ["glm4moe.gguf", "glm4-flash-native.gguf"] {
        let summary = GgufSummary::read(&path(name)).unwrap();
        assert_eq!((summary.drafting.modules, summary.drafting.announced), (1, 1), "{name}");
        assert!(summary.types.iter().all(|share| share.runs), "{name}");
        let file = rewritten_of(name, "blk.2.", |_| {});
        let notice = left_out(&options(file.path(), Backend::Native));
        let says = "announces 1 draft modules ('nextn_predict_layers') and holds no tensor of them";
        assert!(notice.contains(says), "{name}: {notice}");
        // one tensor of the module is not enough
        let file = rewritten_of(name, "blk.2.ffn_down_exps", |_| {});
        let notice = left_out(&options(file.path(), Backend::Native));
        assert!(notice.contains("no tensor 'blk.2.ffn_down_exps.weight'"), "{name}: {notice}");
        // llama.cpp uses the last norm of the target if the module has none
        let file = rewritten_of(name, "nextn.shared_head_norm", |_| {});
        assert!(open(&options(file.path(), Backend::Native)).mtp.is_some(), "{name}");
    }
}

#[test]
fn an_assistant_as_gguf_is_described_and_drafts_for_its_own_target_alone() {
    let file = path("gemma4-experts-assistant.gguf");
    let card = AssistantCard::read(&file).unwrap().unwrap();
    assert_eq!((card.layers, card.full_layers, card.d_model, card.target_d_model), (2, 1, 32, 32));
    assert_eq!((card.heads, card.vocab, card.clusters, card.window), (4, 320, 0, 8));
    assert!(card.to_string().contains("a draft looks at all of them"), "{card}");
    assert_eq!(AssistantCard::read(&path("gemma4.gguf")).unwrap(), None);
    // as a model it is named for what it is
    let error = OpenModel::open(&file).err().unwrap().to_string();
    assert!(error.contains("an assistant of Gemma 4, which drafts for it: name it with --draft-model"), "{error}");
    for (target, says) in [
        ("gemma4-unified", "made for another target: the width of hidden states"),
        ("qwen3", "and the target is of the family qwen3"),
    ] {
        let notice = left_out(&with_draft(&path(target), &file, Backend::Candle));
        assert!(notice.contains(says), "{notice}");
    }
    let target = path("gemma4-experts");
    for (key, number, says) in [
        ("gemma4-assistant.embedding_length_out", 64, "the width of hidden states"),
        ("gemma4-assistant.block_count", 0, "'gemma4-assistant.block_count' is 0"),
        ("gemma4-assistant.attention.head_count", 3, "'gemma4-assistant.attention.head_count' is 3"),
        ("gemma4-assistant.embedding_length", 64, "has shape"),
    ] {
        let file = with_numbers("gemma4-experts-assistant.gguf", &[(key, number)]);
        let notice = left_out(&with_draft(&target, file.path(), Backend::Native));
        assert!(notice.contains(says), "{key}: {notice}");
    }
    let whole = fs::read(&file).unwrap();
    let cut = tempfile::NamedTempFile::new().unwrap();
    fs::write(cut.path(), &whole[..whole.len() - 1000]).unwrap();
    let loaded = open(&with_draft(&target, cut.path(), Backend::Candle));
    let error = loaded.draft_model.unwrap().err().unwrap();
    assert!(loaded.mtp.is_none() && error.contains("reaches beyond the end of the file"), "{error}");
}

#[test]
fn an_assistant_drafts_for_a_target_in_either_form() {
    for target in ["gemma4-experts", "gemma4-experts.gguf"] {
        let loaded = open(&with_draft(&path(target), &path("gemma4-experts-assistant.gguf"), Backend::Auto));
        assert_eq!((loaded.notice, loaded.target.spec().backend), (None, "native"), "{target}");
        assert!(loaded.mtp.is_some());
    }
}

#[test]
fn files_that_do_not_say_how_experts_are_chosen_are_read_as_llama_cpp_reads_them() {
    let logits = |file: &std::path::Path| {
        let mut target = open(&bare_options(file.into(), Backend::Candle)).target;
        let tokens = DEEPSEEK2_LITE_GGUF.golden().tokens("tokens");
        target.forward(&tokens, LogitRows::All).unwrap().logits
    };
    let without = rewritten("deepseek2-lite.gguf", |keys| drop(keys.remove("deepseek2.expert_gating_func").unwrap()));
    let known = logits(&path("deepseek2-lite.gguf"));
    assert!(logits(without.path()) == known, "softmax");
    let sigmoid = with_numbers("deepseek2-lite.gguf", &[("deepseek2.expert_gating_func", 2)]);
    assert!(logits(sigmoid.path()) != known);
}
