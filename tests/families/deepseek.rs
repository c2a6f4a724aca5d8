//! DeepSeek-V3 and GLM-4.7-Flash: narrower weights, stacks of fewer modules, shared embeddings and heads, memory of experts
//! and latents, and rotary pairs in either layout.

use std::path::Path;

use crate::case::{largest, relative};
use crate::cases::{DEEPSEEK, DEEPSEEK_FP8, GLM4_FLASH};
use crate::spoil::spoiled;
use crate::support::{
    Backend, Card, DraftVocab, Dtype, LoadOptions, Loaded, LogitRows, Rows, SideFiles, TokenId, by_hand, copy,
    family_number, json, left_out, modules_of, open, options, path, preflight_within, refusal, rewrite, set_config,
    with_draft,
};

/// Relative differences of single rows: their median, and the share of rows above 0.1.
fn by_rows(got: &[f32], want: &[f32], width: usize) -> [f64; 2] {
    let rows = got.chunks_exact(width).zip(want.chunks_exact(width)).map(|(got, want)| relative(got, want));
    let mut rows: Vec<f64> = rows.collect();
    rows.sort_by(f64::total_cmp);
    let far = rows.iter().filter(|off| **off > 0.1).count();
    [rows[rows.len() / 2], far as f64 / rows.len() as f64]
}

#[test]
fn narrower_weights_give_close_results_in_the_target_and_in_its_module() {
    for (case, backend, dtype, loaded_as) in [
        (&DEEPSEEK, Backend::Candle, Dtype::Stored, "bf16"),
        (&GLM4_FLASH, Backend::Candle, Dtype::Stored, "f16"),
        (&GLM4_FLASH, Backend::Candle, Dtype::Bf16, "bf16"),
        (&DEEPSEEK_FP8, Backend::Candle, Dtype::Stored, "bf16"),
        (&DEEPSEEK_FP8, Backend::Native, Dtype::Stored, "bf16"),
    ] {
        let (golden, what) = (case.golden(), format!("{} on {backend:?} as {loaded_as}", case.fixture));
        let mut loaded = open(&LoadOptions { dtype, ..options(&path(case.fixture), backend) });
        assert_eq!(loaded.target.spec().dtype, loaded_as, "{what}");
        let tokens = golden.tokens("tokens");
        let out = loaded.target.forward(&tokens, LogitRows::All).unwrap();
        let target = by_rows(out.logits.as_slice(), &golden.numbers("logits"), out.logits.width());
        // with the oracle's states, so that the target's error does not count again
        let hidden = Rows::new(golden.numbers("hidden"), out.hidden.width()).slice(0..tokens.len() - 1);
        let slots = modules_of(&mut loaded)[0].forward(&tokens[1..], &hidden).unwrap();
        let module = by_rows(slots.hidden.as_slice(), &golden.numbers("mtp.hidden"), hidden.width());
        println!(
            "{what}: logits off by {target:?}, the module's states by {module:?} (median row, share of rows above 0.1)"
        );
        // rounding changes a row by about 1 %; a few rows choose another expert, which can change the whole row.
        // States of another model would be off by 1.4
        for [middle, far] in [target, module] {
            assert!(middle < 0.02 && far < 0.2, "{what}: {middle} {far}");
        }
    }
}

#[test]
fn the_configuration_determines_the_number_of_modules() {
    // without the key, the tensors decide
    for (announced, count) in [(1, 1), (2, 2), (3, 3), (0, 3)] {
        let folder = spoiled("deepseek", &format!("set num_nextn_predict_layers {announced}"));
        for run in DEEPSEEK.runs {
            assert_eq!(modules_of(&mut open(&options(folder.path(), run.backend))).len(), count);
        }
    }
}

#[test]
fn copies_of_embedding_and_head_are_shared_and_other_ones_are_loaded() {
    let load = |folder: &Path| open(&options(folder, Backend::Candle));
    let bytes = |loaded: &Loaded| loaded.mtp.as_ref().unwrap().1.weight_bytes;
    let edits = "without layers.2.embed_tokens; without layers.2.shared_head.head";
    let folder = spoiled("deepseek", edits);
    let (mut copies, mut shared) = (load(&path("deepseek")), load(folder.path()));
    assert_eq!(bytes(&copies), bytes(&shared));
    let tokens = DEEPSEEK.golden().tokens("tokens");
    let logits = |loaded: &mut Loaded| {
        let hidden = loaded.target.forward(&tokens[..10], LogitRows::Last).unwrap().hidden;
        modules_of(loaded)[0].forward(&tokens[1..11], &hidden).unwrap().logits
    };
    assert!(logits(&mut copies) == logits(&mut shared));
    let folder = spoiled("deepseek-fp8", edits);
    let (own, shared) = (bytes(&load(&path("deepseek-fp8"))), bytes(&load(folder.path())));
    assert_eq!(own - shared, 2 * 320 * 64 * 4, "an embedding and a head in f32");
}

/// The sizes of DeepSeek-V3.
const LARGE: &str = "set vocab_size 129280; set hidden_size 7168; set intermediate_size 18432; \
    set moe_intermediate_size 2048; set num_hidden_layers 61; set num_attention_heads 128; set num_key_value_heads 128; \
    set n_routed_experts 256; set num_experts_per_tok 8; set n_group 8; set topk_group 4; set first_k_dense_replace 3; \
    set q_lora_rank 1536; set kv_lora_rank 512; set qk_nope_head_dim 128; set qk_rope_head_dim 64; set v_head_dim 128; \
    set max_position_embeddings 163840; set num_nextn_predict_layers 1";

#[test]
fn experts_that_do_not_fit_into_memory_are_rejected_before_weights_are_downloaded() {
    let weights = "remove model-00001-of-00002.safetensors; remove model-00002-of-00002.safetensors";
    let folder = spoiled("deepseek", &format!("{LARGE}; {weights}; remove model.safetensors.index.json"));
    let error = preflight_within(&SideFiles::of(folder.path()), Some(64 << 30)).unwrap_err().to_string();
    assert_eq!(
        error,
        "the model does not fit: its weights take 1.34 TB even as bf16, and this machine has 68.72 GB of memory; take a smaller model or a machine with more memory"
    );
    preflight_within(&SideFiles::of(folder.path()), Some(2 << 40)).unwrap();
    // whether a long context fits is checked when a context is chosen
    preflight_within(&SideFiles::of(folder.path()), Some(1_342_100_000_000)).unwrap();
    preflight_within(&SideFiles::of(&path("deepseek")), Some(64 << 20)).unwrap();
}

#[test]
fn a_card_counts_the_active_weights_of_a_token() {
    let folder = spoiled("deepseek", LARGE);
    let card = Card::read(folder.path()).unwrap();
    let active = |card: &Card| family_number(card, "experts", "active_parameters").unwrap();
    // 61 layers of attention, 3 dense ones, 58 of 8 of 256 experts, one shared and a router, and a head: its authors say
    // 37 billion
    let attention = 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168;
    let experts = 9 * 3 * 7168 * 2048 + 256 * 7168;
    let met = 61 * attention + 3 * 3 * 7168 * 18_432 + 58 * experts + 129_280 * 7168;
    assert_eq!((active(&card), met), (36_624_596_992, 36_624_596_992_u64));
    // this model's head is its embedding
    let card = Card::read(&path("deepseek-fp8")).unwrap();
    let expert = 3 * 64 * 32;
    assert_eq!(card.parameters - active(&card), 4 * expert, "4 of 6 experts are not chosen");
}

#[test]
fn widths_that_the_native_kernels_do_not_support_run_on_candle_with_a_notice() {
    let notice = open(&options(&path("glm4-flash"), Backend::Auto)).backend_notice.unwrap();
    let says = "candle runs this target: the native backend needs rows of whole blocks of 32";
    assert!(notice.starts_with(says), "{notice}");
}

#[test]
fn a_cache_of_latents_is_small_and_described() {
    let loaded = open(&options(&path("deepseek"), Backend::Candle));
    let (info, drafter) = (&loaded.target.spec().info, &loaded.mtp.as_ref().unwrap().1);
    // 24 of a key and 24 of a value for each of four heads
    assert_eq!(info.unfolded_kv_bytes_per_token, 2 * 4 * 4 * 48);
    assert_eq!(info.architecture, "deepseek_v3");
    assert!(drafter.name.ends_with("(its own 3 modules)"), "{}", drafter.name);
    let card = Card::read(&path("deepseek")).unwrap();
    assert_eq!((card.kv_bytes_per_token, card.modules, card.announced_modules), (320, 3, 3));
    let text = card.to_string();
    for says in [
        "cache 320 B a token, 163.84 kB for 512; drafter cache 245.76 kB; passes ",
        "one row of 32 + 8 numbers in each layer; keys and values of 4 heads would take 4.8 times that (1.54 kB)",
        "experts  16 a layer in 1 of 2 layers; 3 of them and 1 shared serve a token",
        "drafter  3 draft modules of its own, one for each depth\n",
    ] {
        assert!(text.contains(says), "{says}: {text}");
    }
    let folder = spoiled("glm4-flash", "without layers.3.");
    let text = Card::read(folder.path()).unwrap().to_string();
    let says = "drafter  none: the configuration announces 1 draft modules, and the tensors of 0";
    assert!(text.contains(says), "{text}");
}

#[test]
fn tokens_of_the_text_join_a_trimmed_vocabulary() {
    let prompt = &DEEPSEEK.golden().tokens("tokens")[..8];
    let vocab = DraftVocab::Tokens((0..320).step_by(3).map(TokenId).collect());
    let mut loaded = open(&LoadOptions { draft_vocab: Some(vocab), ..options(&path("deepseek"), Backend::Candle) });
    assert_eq!(loaded.mtp.as_ref().unwrap().1.context_vocab, 1024);
    let hidden = loaded.target.forward(&prompt[..7], LogitRows::Last).unwrap().hidden;
    let module = &mut modules_of(&mut loaded)[0];
    let logits = module.forward(&prompt[1..], &hidden).unwrap().logits;
    let mut joined: Vec<TokenId> = Vec::new();
    for token in prompt[1..].iter().filter(|token| token.0 % 3 != 0) {
        if !joined.contains(token) {
            joined.push(*token);
        }
    }
    assert!(!joined.is_empty() && module.draft_vocab()[107..] == joined, "{:?}", &module.draft_vocab()[107..]);
    assert_eq!(logits.width(), module.draft_vocab().len());
}

#[test]
fn a_module_of_the_user_and_a_head_of_another_kind_are_rejected() {
    let error = refusal(&by_hand(&path("deepseek"), Backend::Candle));
    assert!(error.contains("a deepseek_v3 brings its own"), "{error}");
    let made_for_it = spoiled("eagle3-original", "set eagle_aux_hidden_state_layer_ids [0, 1, 2]");
    for (head, says) in [
        (path("eagle3-original"), "the target has 2 layers; it was made for another target"),
        (made_for_it.path().to_owned(), "an EAGLE-3 head beside a deepseek_v3 is not supported"),
        (path("gemma4-assistant"), "is an assistant of Gemma 4, and the target is of the family deepseek_v3"),
    ] {
        let notice = left_out(&with_draft(&path("deepseek-fp8"), &head, Backend::Candle));
        assert!(notice.contains(says), "{notice}");
    }
}

#[test]
fn rotary_pairs_in_half_layout_are_rotated_in_half_layout() {
    let (golden, folder) = (DEEPSEEK.golden(), copy("deepseek"));
    // the rotated rows of every head (16 others before them) and of the shared key (the latent's 32 before them)
    rewrite(folder.path(), |tensor| {
        let plain = match tensor.name.as_str() {
            name if name.ends_with("q_b_proj.weight") => 16,
            name if name.ends_with("kv_a_proj_with_mqa.weight") => 32,
            _ => return true,
        };
        let rows: Vec<&[u8]> = tensor.data.chunks_exact(tensor.data.len() / tensor.shape[0]).collect();
        let halved = rows.chunks_exact(plain + 8).flat_map(|head| {
            let turned = [0, 2, 4, 6, 1, 3, 5, 7].map(|at| head[plain + at]);
            head[..plain].iter().copied().chain(turned).flatten().copied().collect::<Vec<u8>>()
        });
        tensor.data = halved.collect();
        true
    });
    let off = |interleaved: Option<bool>| {
        set_config(folder.path(), "rope_interleave", json!(interleaved));
        let mut loaded = open(&options(folder.path(), Backend::Candle));
        let tokens = golden.tokens("tokens");
        let out = loaded.target.forward(&tokens, LogitRows::All).unwrap();
        let hidden = out.hidden.slice(0..tokens.len() - 1);
        let module = modules_of(&mut loaded)[0].forward(&tokens[1..], &hidden).unwrap();
        [
            largest(out.logits.as_slice(), &golden.numbers("logits")),
            largest(module.hidden.as_slice(), &golden.numbers("mtp.hidden")),
        ]
    };
    let (halves, pairs) = (off(Some(false)), off(None));
    println!("in halves: off by {halves:?}; in pairs: {pairs:?}");
    assert!(halves.iter().all(|off| *off < 1e-4) && pairs.iter().all(|off| *off > 1e-2), "{halves:?} {pairs:?}");
}
