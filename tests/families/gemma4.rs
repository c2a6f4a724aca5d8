//! Gemma 4 and its assistants: windows, whole and trimmed heads, shared keys and values, older and newer configurations,
//! and cards.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::case::{Case, Limit, Source};
use crate::cases::{GEMMA4, GEMMA4_UNIFIED};
use crate::decode::{NoDrafter, decode, drafter, round, settings, start, with_conventions};
use crate::module::{counts, depths, scored, tokens};
use crate::spoil::spoiled;
use crate::support::{
    AssistantCard, Backend, Card, DraftVocab, LoadOptions, LogitRows, MtpOverride, OpenModel, RopeScaling, Stored,
    TokenId, Value, bare_options, by_hand, copy, edit, family_number, full_rope, json, lack, measure, modules_of,
    one_sentence, open, options, path, read_tensors, refusal, rewrite, set, set_config, shard, with_draft,
    write_tensors,
};

const CASES: [Case; 2] = [GEMMA4, GEMMA4_UNIFIED];

fn assistant_of(case: &Case) -> PathBuf {
    let Source::Fixture(name) = case.draft().source else { panic!("an assistant is a fixture of its own") };
    path(name)
}

#[test]
fn drafts_and_acceptances_equal_the_oracle() {
    for case in CASES {
        let golden = case.golden();
        counts(&case, &golden.tokens("tokens")[..8], &golden.json["counts"]);
    }
}

#[test]
fn drafts_after_two_positions_equal_the_oracle() {
    for case in CASES {
        for run in case.runs {
            let (mut opened, tokens) = (case.open(run), tokens(&case));
            let none = MtpOverride::default();
            let short = depths(opened.target.as_mut(), &mut opened.modules, &tokens[..3], none, None).logits;
            let (got, want) = scored(case.draft(), &short, &case.draft_golden().numbers("logits.short"));
            run.module[0].check(case.fixture, &got, &want);
        }
    }
}

/// In the library, an assistant sees two positions more in sliding layers: with a window wider by two, logits are equal.
#[test]
fn a_window_wider_by_two_gives_the_logits_of_the_library() {
    for case in CASES {
        let (tokens, library) = (tokens(&case), case.draft_golden().numbers("logits.library"));
        for run in case.runs {
            let logits = |window: u64| {
                let folder = copy(assistant_of(&case).file_name().unwrap().to_str().unwrap());
                set_config(folder.path(), "text_config.sliding_window", json!(window));
                let mut loaded = open(&with_draft(&path(case.fixture), folder.path(), run.backend));
                let mut modules = modules_of(&mut loaded);
                depths(loaded.target.as_mut(), &mut modules, &tokens, MtpOverride::default(), None).logits
            };
            let (got, want) = scored(case.draft(), &logits(10), &library);
            run.module[0].check(case.fixture, &got, &want);
            // the token and state of the first draft are the same in both; deeper ones may differ
            let least = library[..320].iter().copied().fold(f32::INFINITY, f32::min);
            let both = logits(8).into_iter().zip(&library).take(320).filter(|(a, b)| *a > -1e20 && **b > least);
            let ours = both.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(ours > 1e-2, "{} on {:?}: {ours}", case.fixture, run.backend);
        }
    }
}

#[test]
fn the_whole_head_and_a_trimmed_one_replace_the_clusters() {
    let run = &GEMMA4.runs[0];
    let with = |vocab: DraftVocab| {
        let mut loaded = open(&LoadOptions { draft_vocab: Some(vocab), ..GEMMA4.options(run) });
        let mut modules = modules_of(&mut loaded);
        let none = MtpOverride::default();
        let logits = depths(loaded.target.as_mut(), &mut modules, &tokens(&GEMMA4), none, None).logits;
        (logits, modules[0].draft_vocab().to_vec())
    };
    let (whole, vocab) = with(DraftVocab::All);
    assert_eq!(vocab.len(), 320);
    run.module[0].check("the whole head", &whole, &GEMMA4.draft_golden().numbers("logits.whole"));
    let (trimmed, vocab) = with(DraftVocab::First(100));
    assert!(trimmed[..100].iter().zip(&vocab).all(|(got, token)| (got - whole[token.index()]).abs() < 1e-4));
}

#[test]
fn changing_a_convention_during_an_answer_changes_drafts_and_never_text() {
    const LEN: usize = 60;
    let golden = GEMMA4.golden();
    let prompt = &golden.tokens("tokens")[..8];
    let opened = GEMMA4.open(&GEMMA4.runs[0]);
    let mut decoder = start(opened.target.as_ref(), drafter(&opened.modules), &settings(3), prompt);
    for text in ["feed=pre-norm", "position=constant", "norm=one-plus", "slot0=extra", "order=hidden-first", ""] {
        decoder.set(&with_conventions(3, text.parse().unwrap()));
        let notices = decoder.take_notices();
        decoder.round(&mut |_| Duration::ZERO).unwrap();
        assert_eq!(notices.len(), usize::from(text == "slot0=extra"), "{text}: {notices:?}");
    }
    while decoder.committed().len() < prompt.len() + LEN {
        round(&mut decoder);
    }
    assert_eq!(decoder.committed()[prompt.len()..prompt.len() + LEN], golden.tokens("greedy")[..LEN]);
}

#[test]
fn costs_are_measured_with_an_assistant() {
    for case in CASES {
        let card = Card::read(&path(case.fixture)).unwrap();
        let tables = family_number(&card, "attention", "per_layer_weights").unwrap();
        for run in case.runs {
            let cost = measure(&case.options(run), 32, 1).unwrap();
            // the table of embeddings for each layer stays in f16; its rows are looked up
            assert_eq!(cost.weight_bytes - cost.pass_bytes, 2 * tables);
            assert!(cost.draft.unwrap().median_us > 0.0 && cost.verify.iter().all(|rows| rows.median_us > 0.0));
        }
    }
}

#[test]
fn a_text_begins_with_bos_even_if_the_tokenizers_files_do_not_say_so() {
    let changes: [fn(&Path); 2] = [
        |folder| lack(folder, "tokenizer_config.json", "add_bos_token"),
        |folder| set(folder, "tokenizer_config.json", "add_bos_token", json!(false)),
    ];
    for change in changes {
        let folder = copy("gemma4");
        change(folder.path());
        let codec = OpenModel::open(folder.path()).unwrap().codec().unwrap();
        assert_eq!(codec.encode_raw("hi").unwrap()[0], TokenId(2));
        assert_eq!(
            codec.encode_raw("<bos>hi").unwrap(),
            codec.encode_raw("hi").unwrap(),
            "a <bos> in the text is not repeated"
        );
        assert_ne!(codec.encode("hi").unwrap()[0], TokenId(2), "encode adds none: a template writes it");
    }
    for case in CASES {
        let codec = case.open(&case.runs[0]).codec;
        assert_eq!(codec.encode_raw("hi").unwrap()[0], TokenId(2), "a text begins with <bos>");
    }
}

/// Makes every layer a full one, with the width of the sliding ones.
fn all_full(folder: &Path) {
    let mut were_full: Vec<bool> = Vec::new();
    edit(folder, "config.json", |config| {
        let text = &mut config["text_config"];
        let kinds: Vec<Value> = text["layer_types"].as_array().unwrap().clone();
        text["global_head_dim"] = text["head_dim"].clone();
        text["layer_types"] = kinds.iter().map(|_| json!("full_attention")).collect();
        were_full = kinds.iter().map(|kind| kind == "full_attention").collect();
    });
    rewrite(folder, |tensor| {
        let name = &tensor.name;
        let layer = name.split_once("layers.").and_then(|(_, rest)| rest.split('.').next()?.parse::<usize>().ok());
        if name.contains("self_attn") && layer.is_some_and(|layer| were_full[layer]) {
            let heads = if name.ends_with("o_proj.weight") { 1 } else { 0 };
            tensor.shape[heads] /= 2;
            tensor.data.truncate(tensor.data.len() / 2);
        }
        true
    });
}

#[test]
fn an_assistant_of_full_layers_attends_to_a_target_of_full_layers() {
    let (target, assistant) = (copy("gemma4"), copy("gemma4-assistant"));
    all_full(target.path());
    all_full(assistant.path());
    let mut loaded = open(&with_draft(target.path(), assistant.path(), Backend::Native));
    assert_eq!(loaded.notice, None);
    let prompt = GEMMA4.golden().tokens("tokens")[..8].to_vec();
    let target = loaded.target.fork().unwrap();
    let plain = decode(target.as_ref(), Box::new(NoDrafter), &settings(0), &prompt, 30).text;
    let answer = decode(target.as_ref(), drafter(&modules_of(&mut loaded)), &settings(3), &prompt, 30);
    assert_eq!(answer.text, plain);
    assert!(answer.notices.is_empty() && answer.drafted >= answer.rounds, "{:?}, {}", answer.notices, answer.drafted);
}

#[test]
fn an_assistant_reports_a_target_that_shares_no_keys_and_values() {
    let mut module = GEMMA4.open(&GEMMA4.runs[0]).modules.remove(0);
    let other = open(&bare_options(path("qwen3"), Backend::Native)).target;
    let error = one_sentence(module.attach_kv(other.as_ref()).unwrap_err().to_string());
    assert!(error.contains("this target lends no keys and values") && module.is_empty(), "{error}");
}

#[test]
fn missing_rotary_keys_have_the_defaults_of_the_library() {
    let turning = |folder: &Path| match full_rope(folder).scaling {
        RopeScaling::Factors(factors) => factors.iter().filter(|factor| factor.is_finite()).count(),
        other => panic!("{other:?}"),
    };
    let folder = copy("gemma4");
    let given = full_rope(folder.path());
    assert_eq!(turning(folder.path()), 4);
    set_config(folder.path(), "text_config.rope_parameters.full_attention.partial_rotary_factor", Value::Null);
    assert_eq!(turning(folder.path()), 16, "the whole head");
    for key in ["rope_scaling", "rope_theta", "rope_parameters"] {
        set_config(folder.path(), &format!("text_config.{key}"), Value::Null);
    }
    assert_eq!(full_rope(folder.path()), given, "a file without rotary keys");
}

#[test]
fn a_module_or_an_assistant_in_the_wrong_place_is_reported() {
    let assistant = assistant_of(&GEMMA4);
    let alone = options(&path("gemma4"), Backend::Native);
    let with = |draft: &str| LoadOptions { draft_model: Some(path(draft)), ..alone.clone() };
    let for_it = |target: &str| with_draft(&path(target), &assistant, Backend::Candle);
    let other_family = "is an assistant of Gemma 4, and the target is of the family";
    for (options, says) in [
        (alone.clone(), "gemma4 brings no drafter; name its assistant with --draft-model"),
        (with("gemma4-unified-assistant"), "made for another target"),
        (with("eagle3-original"), "EAGLE-3 head"),
        (for_it("qwen3"), other_family),
        (for_it("qwen35"), other_family),
        (for_it("llama.gguf"), other_family),
        (for_it("gemma4"), "reads the keys and values of a target on the native kernels, and this one runs elsewhere"),
    ] {
        let notice = one_sentence(open(&options).notice.unwrap());
        assert!(notice.contains(says), "{notice}");
    }
    let required = by_hand(&path("gemma4"), Backend::Native);
    let both = LoadOptions { draft_model: Some(assistant.clone()), ..required.clone() };
    for (options, says) in [
        (required, "a Gemma 4 has an assistant"),
        (both, "leave one out"),
        (options(&assistant, Backend::Candle), "name it with --draft-model"),
    ] {
        let error = refusal(&options);
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn cards_describe_what_is_loaded() {
    for case in CASES {
        let text = Card::read(&path(case.fixture)).unwrap().to_string();
        assert!(text.contains("sliding (8 positions)") && text.contains("its assistant"), "{text}");
        assert_eq!(text.contains("read others' keys and values"), case.fixture == "gemma4", "{text}");
        let card = AssistantCard::read(&assistant_of(&case)).unwrap().unwrap();
        let opened = case.open(&case.runs[0]);
        // matrices as stored, in bf16; norms, which the card does not count, in f32
        let tensors = read_tensors(&assistant_of(&case).join("model.safetensors"));
        let norms = tensors.iter().filter(|tensor| tensor.name.contains("norm")).map(|tensor| tensor.shape[0]);
        let bytes = 2 * card.parameters + 4 * norms.sum::<usize>() as u64;
        assert_eq!(opened.info.unwrap().weight_bytes, bytes, "{}", case.fixture);
        assert!(opened.target.shared_kv().unwrap().unwrap().is_empty(), "an empty cache has no keys and values");
        assert!(card.to_string().contains("no cache of its own"), "{card}");
        assert!(AssistantCard::read(&path(case.fixture)).unwrap().is_none());
    }
}

/// Compares the logits of a target in this folder with the fixture's; its assistant runs on the native kernels.
fn assert_same_logits(case: &Case, folder: &Path, limits: [Limit; 2]) {
    let golden = case.golden();
    for (backend, limit) in [Backend::Candle, Backend::Native].into_iter().zip(limits) {
        let mut loaded = open(&with_draft(folder, &assistant_of(case), backend));
        let out = loaded.target.forward(&golden.tokens("tokens"), LogitRows::All).unwrap();
        limit.check(&format!("{} on {backend:?}", folder.display()), out.logits.as_slice(), &golden.numbers("logits"));
        assert_eq!(loaded.mtp.is_some(), backend == Backend::Native);
    }
}

#[test]
fn newer_configurations_that_list_heads_layer_by_layer_run_alike() {
    let edits = r#"set text_config.per_layer_config {"3": {"head_dim": 32, "num_key_value_heads": 1}}; set text_config.global_head_dim null; set text_config.num_global_key_value_heads null"#;
    let folder = spoiled("gemma4-unified", edits);
    assert_same_logits(&GEMMA4_UNIFIED, folder.path(), [Limit::largest(5e-4), GEMMA4_UNIFIED.runs[0].limit]);
}

#[test]
fn other_dtypes_and_shards_run_alike() {
    for (dtype, limit) in [(Stored::F32, Limit::largest(5e-4)), (Stored::F16, Limit::largest(2e-2))] {
        let folder = copy("gemma4");
        let file = folder.path().join("model.safetensors");
        let mut tensors = read_tensors(&file);
        for tensor in &mut tensors {
            let numbers = tensor.data.as_chunks().0.iter().map(|bytes| half::bf16::from_le_bytes(*bytes).to_f32());
            tensor.data = match dtype {
                Stored::F16 => numbers.flat_map(|x| half::f16::from_f32(x).to_le_bytes()).collect(),
                _ => numbers.flat_map(f32::to_le_bytes).collect(),
            };
            tensor.dtype = dtype;
        }
        write_tensors(&file, &tensors);
        shard(folder.path());
        assert_same_logits(&GEMMA4, folder.path(), [limit, GEMMA4.runs[0].limit]);
    }
}
