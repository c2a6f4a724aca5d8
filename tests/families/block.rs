//! Block drafters: DFlash and DSpark (DFlash 2 has `block_path.rs`), from safetensors and from GGUF files, and EAGLE-3 heads from GGUF files.
//!
//! Reference values come from the classes of z-lab/dflash and deepseek-ai/DeepSpec, run as they are, and llama.cpp's
//! converter wrote the GGUF files (see the README of the fixtures).

use std::path::{Path, PathBuf};
use std::time::Duration;

use draftscope::engine::speculate::drafter::{BlockDrafter, Drafter};
use draftscope::model::block_module::BlockModule;
use draftscope::model::drafters::dflash::BlockCard;
use draftscope::protocol::{ConcatOrder, DraftPick, Drafted, Drafting, EventKind, Sampling, Settings};

use crate::block_path;
use crate::case::{Limit, largest};
use crate::decode::{NoDrafter, decode, settings, start, with_conventions, with_tree};
use crate::spoil::spoiled;
use crate::support::{
    Backend, Checkpoint, Golden, HeadCard, Loaded, LogitRows, Model, MtpOverride, Stored, Tensor, TokenId, add,
    left_out, open, oracle_text, path, with_draft,
};

/// A drafter in one file format on one backend, and how near its logits are to the reference.
pub struct Form {
    pub file: &'static str,
    golden: &'static str,
    pub backend: Backend,
    pub limit: Limit,
    /// Whether its drafts equal the reference's: weights of few bits may give others.
    pub same: bool,
}

pub const fn form(file: &'static str, golden: &'static str, backend: Backend, limit: Limit, same: bool) -> Form {
    Form { file, golden, backend, limit, same }
}

const FORMS: &[Form] = &[
    form("dflash", "dflash", Backend::Candle, Limit::relative(6.0 / 2048.0), true),
    form("dspark", "dspark", Backend::Candle, Limit::relative(6.0 / 2048.0), true),
    form("dflash", "dflash", Backend::Native, Limit::relative(0.05), false),
    form("dspark", "dspark", Backend::Native, Limit::relative(0.05), false),
    form("dflash.gguf", "dflash", Backend::Candle, Limit::relative(0.05), false),
    form("dspark.gguf", "dspark", Backend::Candle, Limit::relative(0.05), false),
    form("dflash.gguf", "dflash", Backend::Native, Limit::relative(0.05), false),
    form("dspark.gguf", "dspark", Backend::Native, Limit::relative(0.05), false),
];

/// A loaded target with its block drafter.
pub struct Pair {
    pub target: Box<dyn Model>,
    pub block: Box<dyn BlockModule>,
}

pub fn pair(draft: &Path, backend: Backend) -> Pair {
    let loaded = open(&with_draft(&path("llama-deep"), draft, backend));
    assert_eq!(loaded.notice, None, "{}", draft.display());
    let Loaded { target, block, .. } = loaded;
    let (block, info) = block.expect("a block drafter");
    assert_eq!((info.block, info.draft_vocab), (block.most_drafts() as u64, 320));
    // one or two layers of keys and values, as halves
    assert!(info.weight_bytes > 20_000 && [128, 256].contains(&info.kv_bytes_per_token), "{info:?}");
    Pair { target, block }
}

impl Form {
    pub fn open(&self) -> Pair {
        pair(&path(self.file), self.backend)
    }
}

pub fn text() -> Vec<TokenId> {
    oracle_text(&Golden::of("llama-deep"))
}

/// The best token of row `index` of the last pass after the token before it, and its logits, corrected if they are.
fn best(block: &dyn BlockModule, (index, row): (usize, &[f32]), before: TokenId) -> (TokenId, Vec<f32>) {
    let largest = |row: &[f32]| (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap();
    let mut corrected = row.to_vec();
    block.correct(&mut corrected, before).unwrap();
    let token = match block.select(index, row, before).unwrap() {
        Some(candidates) => candidates.tokens[largest(&candidates.scores)],
        None => block.draft_vocab()[largest(&corrected)],
    };
    (token, corrected)
}

/// Logits of `count` drafts after `start`, corrected by the best token before each, and those tokens.
pub fn drafted(pair: &mut Pair, text: &[TokenId], start: usize, count: usize) -> (Vec<f32>, Vec<TokenId>) {
    let Pair { target, block } = pair;
    target.truncate(0, &Checkpoint { len: 0 }).unwrap();
    target.set_tap(&block.tap()).unwrap();
    block.truncate(0).unwrap();
    let states = target.forward(&text[..start], LogitRows::Last).unwrap().hidden;
    // in two pieces, as rounds add them
    block.inject(&states.slice(0..start / 2)).unwrap();
    block.inject(&states.slice(start / 2..start)).unwrap();
    let rows = block.draft(text[start], count).unwrap();
    assert_eq!((rows.len(), block.len()), (count, start));
    let (mut all, mut tokens, mut before) = (Vec::new(), Vec::new(), text[start]);
    for row in rows.iter().enumerate() {
        let (token, logits) = best(block.as_ref(), row, before);
        before = token;
        tokens.push(token);
        all.extend(logits);
    }
    (all, tokens)
}

#[test]
fn drafts_equal_the_reference() {
    let text = text();
    for form in FORMS {
        let (golden, mut pair) = (Golden::bare(form.golden), form.open());
        let most = pair.block.most_drafts();
        assert_eq!(most, if form.golden == "dflash" { 7 } else { 5 });
        assert_eq!(pair.block.corrects(), form.golden == "dspark");
        for count in [most, 3] {
            let (mut logits, mut tokens) = (Vec::new(), Vec::new());
            for start in golden.tokens("starts") {
                let (more, drafts) = drafted(&mut pair, &text, start.index(), count);
                logits.extend(more);
                tokens.extend(drafts);
            }
            let what = format!("{} on {:?}, {count} drafts", form.file, form.backend);
            form.limit.check(&what, &logits, &golden.numbers(&format!("logits.{count}")));
            let want = golden.tokens(&format!("drafts.{count}"));
            let same = tokens.iter().zip(&want).filter(|(a, b)| a == b).count();
            println!("{what}: {same} of {} drafts", want.len());
            assert!(
                if form.same { tokens == want } else { same * 10 >= want.len() * 8 },
                "{what}: {tokens:?}, {want:?}"
            );
        }
    }
}

pub fn drafter(block: &dyn BlockModule) -> Box<dyn Drafter> {
    Box::new(BlockDrafter::new(block.fork().unwrap()))
}

#[test]
fn greedy_output_is_plain_and_rounds_accept_what_the_reference_accepts() {
    let text = text();
    let (prompt, rest) = text.split_at(8);
    for form in FORMS.iter().chain(block_path::FORMS) {
        let Pair { target, block } = form.open();
        let plain = decode(target.as_ref(), Box::new(NoDrafter), &settings(0), prompt, 200);
        let on_candle = form.backend == Backend::Candle;
        assert!(!on_candle || plain.text == rest[..200], "the target differs from the oracle");
        let all: Vec<u8> = (1..=block.most_drafts() as u8).filter(|k| form.same || [1, 4].contains(k)).collect();
        for k in all {
            let answer = decode(target.as_ref(), drafter(block.as_ref()), &settings(k), prompt, 200);
            assert!(answer.text == plain.text, "{} on {:?}, k = {k}", form.file, form.backend);
            assert_eq!(answer.drafted, answer.rounds * usize::from(k));
            assert!(answer.rounds < 180, "{}: {} rounds", form.file, answer.rounds);
            assert!(answer.accepted.is_sorted_by(|a, b| a >= b), "{:?}", answer.accepted);
            if form.same {
                // the oracle's rounds begin with the same anchor, and stop where its text ends
                let want: Vec<usize> =
                    Golden::bare(form.golden).tokens(&format!("accepted.{k}")).iter().map(|n| n.index()).collect();
                let mut left = 199usize; // the prompt's pass gives the first of 200
                let counted = want.iter().take_while(|hits| {
                    let goes_on = left > 0;
                    left = left.saturating_sub(**hits + 1);
                    goes_on
                });
                let (rounds, hits) = counted.fold((0, 0), |(rounds, sum), hits| (rounds + 1, sum + hits));
                assert_eq!((answer.rounds, answer.accepted.iter().sum::<usize>()), (rounds, hits), "k = {k}");
            }
        }
    }
}

#[test]
fn a_qwen35_with_a_block_drafter_writes_its_plain_text() {
    // made for another target, so few drafts are accepted: what is tested is that recurrent layers roll back
    let folder = spoiled("dflash", "set dflash_config.target_layer_ids [0, 1, 2]");
    let text = oracle_text(&Golden::of("qwen35"));
    for backend in [Backend::Candle, Backend::Native] {
        let loaded = open(&with_draft(&path("qwen35"), folder.path(), backend));
        assert_eq!(loaded.notice, None);
        let (target, (block, _)) = (loaded.target, loaded.block.unwrap());
        let plain = decode(target.as_ref(), Box::new(NoDrafter), &settings(0), &text[..9], 60);
        for k in [1, 4, 7] {
            let answer = decode(target.as_ref(), drafter(block.as_ref()), &settings(k), &text[..9], 60);
            assert!(answer.text == plain.text && answer.drafted == answer.rounds * usize::from(k), "{backend:?}");
        }
    }
}

#[test]
fn more_drafts_than_a_block_has_are_reported_and_cut() {
    let Pair { target, block } = FORMS[1].open();
    let answer = decode(target.as_ref(), drafter(block.as_ref()), &settings(7), &text()[..9], 40);
    assert_eq!(answer.drafted, answer.rounds * 5);
    let notices: Vec<_> = answer.notices.iter().filter(|notice| notice.contains("drafts 5 tokens at most")).collect();
    assert_eq!(notices.len(), 1, "{:?}", answer.notices);
}

#[test]
fn a_rolled_back_cache_drafts_as_a_fresh_one() {
    let text = text();
    for form in FORMS[..4].iter().chain(&block_path::FORMS[..2]) {
        let mut pair = form.open();
        let (fresh, _) = drafted(&mut pair, &text, 40, 4);
        let states = pair.target.forward(&text[40..60], LogitRows::All).unwrap().hidden;
        pair.block.inject(&states).unwrap();
        let (longer, other) = (pair.block.draft(text[60], 4).unwrap(), pair.block.fork().unwrap());
        pair.block.truncate(40).unwrap();
        let again = pair.block.draft(text[40], 4).unwrap();
        let (repeat, _) = drafted(&mut pair, &text, 40, 4);
        assert!(repeat == fresh);
        assert!(largest(again.as_slice(), longer.as_slice()) > 1e-3);
        let mut other = other;
        assert!(other.len() == 60 && other.draft(text[60], 4).unwrap() == longer, "a copy has its own cache");
        assert!(pair.block.truncate(41).is_err() && pair.block.draft(text[40], 0).is_err());
        assert!(pair.block.draft(TokenId(320), 2).is_err() && pair.block.draft(text[40], 9).is_err());
    }
}

#[test]
fn trees_and_conventions_have_no_effect_and_say_so() {
    let Pair { target, block } = FORMS[0].open();
    let prompt = &text()[..9];
    let chain = decode(target.as_ref(), drafter(block.as_ref()), &settings(3), prompt, 40);
    let tree = decode(target.as_ref(), drafter(block.as_ref()), &with_tree(3, 8), prompt, 40);
    assert!((tree.text, tree.drafted) == (chain.text.clone(), chain.drafted));
    assert!(tree.notices.iter().any(|notice| notice.contains("--tree has no effect")), "{:?}", tree.notices);
    let spec = MtpOverride { order: Some(ConcatOrder::HiddenFirst), ..MtpOverride::default() };
    let other = decode(target.as_ref(), drafter(block.as_ref()), &with_conventions(3, spec), prompt, 40);
    assert_eq!((other.text, other.drafted), (chain.text, chain.drafted));
    assert!(other.notices.iter().any(|notice| notice.contains("--mtp-spec has no effect")), "{:?}", other.notices);
}

/// One round at a temperature: the text before it, and of each draft its q and the token.
fn sampled(form: &Form, seed: u64) -> (Vec<TokenId>, Vec<(f32, TokenId)>) {
    let Pair { target, block } = form.open();
    let sampling = Sampling { temperature: 1.0, seed, ..Sampling::default() };
    let drafting = Drafting { pick: DraftPick::Sample, ..Drafting::default() };
    let settings = Settings {
        draft_len: 3,
        sampling,
        drafting,
        drafter: draftscope::protocol::DrafterKind::Mtp,
        ..Settings::default()
    };
    let mut decoder = start(target.as_ref(), drafter(block.as_ref()), &settings, &text()[..9]);
    let (before, mut all) = (decoder.committed().to_vec(), Vec::new());
    decoder
        .round(&mut |event| {
            if let EventKind::Drafted(Drafted { token, q, .. }) = event {
                all.push((q.unwrap(), token.id));
            }
            Duration::ZERO
        })
        .unwrap();
    (before, all)
}

#[test]
fn a_sampled_draft_has_the_probability_that_it_was_drawn_with() {
    // DSpark's q at a position is that after the token drawn before it
    let form = &FORMS[1];
    let mut pair = form.open();
    for seed in 0..6 {
        let (text, drafts) = sampled(form, seed);
        let at = text.len() - 1;
        drafted(&mut pair, &text, at, 3); // fills the cache
        let rows = pair.block.draft(text[at], 3).unwrap();
        let mut before = text[at];
        for (row, (prob, token)) in rows.iter().zip(&drafts) {
            let mut row = row.to_vec();
            pair.block.correct(&mut row, before).unwrap();
            let sum: f64 = row.iter().map(|logit| f64::from(*logit).exp()).sum();
            let q = f64::from(row[token.index()]).exp() / sum;
            assert!((q - f64::from(*prob)).abs() < 1e-4, "{q} and {prob} of {token:?}");
            before = *token;
        }
    }
}

#[test]
fn what_does_not_fit_is_ignored_with_a_sentence() {
    let rows = [
        ("dflash", "set dflash_config.target_layer_ids [1, 3, 7]", "the number of layers at least is 8 there and 7"),
        ("dflash", "set vocab_size 321", "the number of tokens is 321 there and 320 in the target"),
        ("dflash", "set hidden_size 128", "the width of its hidden states is 128 there and 64 in the target"),
        ("dflash", "set dflash_config.selector_rank 8", "DFlash 2"),
        ("dflash", "set dflash_config.target_layer_ids [1, 3]", "tensor 'fc.weight' has shape"),
        ("dflash", "without layers.1.mlp.up_proj", "layers.1.mlp.up_proj.weight"),
        ("dflash", "transpose layers.0.self_attn.k_proj", "layers.0.self_attn.k_proj.weight"),
        ("dflash", "cut model.safetensors -100", "model.safetensors"),
        ("dflash", "write mask_embedding.pt x", "'mask_embedding.pt'"),
        ("dflash", "add layers.0.self_attn.q_proj.bias 64", "biases"),
        ("dflash", "add layers.1.self_attn.sinks 2", "a tensor that is not supported ('layers.1.self_attn.sinks')"),
        (
            "dflash",
            "add layers.1.self_attn.rotary_emb.inv_freq 16",
            "the rotary frequencies of the DFlash drafter ('layers.1.self_attn.rotary_emb.inv_freq') are not those",
        ),
        ("dspark", "add rotary_emb.inv_freq 8", "'rotary_emb.inv_freq' has shape [8], expected [16]"),
        ("dspark", "add confidence_proj.bias 1", "a tensor that is not supported ('confidence_proj.bias')"),
        ("dspark", "set markov_rank 16", "markov_head.markov_w1.weight"),
        ("dspark", "set markov_head_type \"rnn\"", "'rnn' ('markov_head_type')"),
        ("dspark", "set draft_vocab_size 200", "d2t"),
        ("dspark", "lack target_layer_ids", "'target_layer_ids' is missing"),
    ];
    for backend in [Backend::Candle, Backend::Native] {
        for (fixture, edits, says) in rows {
            let folder = spoiled(fixture, edits);
            let notice = left_out(&with_draft(&path("llama-deep"), folder.path(), backend));
            assert!(notice.contains(says), "{edits}: {notice}");
        }
    }
}

#[test]
fn copies_of_what_the_target_and_the_configuration_say_change_nothing() {
    let text = text();
    for name in ["dflash", "dspark"] {
        // `verifier_…` give the targets of training in `speculators`; frequencies are those of theta 10,000 in bf16
        let folder = spoiled(name, "add verifier_norm.weight 64; add verifier_lm_head.weight 20480");
        let frequencies = (0..16).map(|pair| 10_000f32.powf(-2.0 * pair as f32 / 32.0));
        let data: Vec<u8> = frequencies.flat_map(|x| half::bf16::from_f32(x).to_le_bytes()).collect();
        for place in ["rotary_emb", "layers.0.self_attn.rotary_emb"] {
            let name = format!("{place}.inv_freq");
            add(folder.path(), Tensor { name, dtype: Stored::BF16, shape: vec![16], data: data.clone() });
        }
        let logits = |draft: &Path| drafted(&mut pair(draft, Backend::Candle), &text, 40, 4);
        assert!(logits(folder.path()) == logits(&path(name)), "{name}");
    }
}

#[test]
fn damaged_gguf_files_are_ignored_with_a_sentence() {
    for name in ["dflash.gguf", "dflash2.gguf", "dspark.gguf", "eagle3.gguf"] {
        let bytes = std::fs::read(path(name)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(name);
        for len in [bytes.len() - 2000, bytes.len() / 2] {
            std::fs::write(&file, &bytes[..len]).unwrap();
            let loaded = open(&with_draft(&path("llama-deep"), &file, Backend::Auto));
            let why = loaded.notice.or_else(|| loaded.draft_model.and_then(Result::err)).unwrap();
            assert!(loaded.mtp.is_none() && loaded.block.is_none() && why.lines().count() == 1, "{name}: {why}");
        }
        // a file for another target
        let other = left_out_of("qwen3", &path(name));
        assert!(other.contains("made for another target"), "{name}: {other}");
    }
}

fn left_out_of(target: &str, draft: &Path) -> String {
    open(&with_draft(&path(target), draft, Backend::Auto)).notice.unwrap()
}

#[test]
fn a_head_from_gguf_has_the_bits_of_its_checkpoint() {
    let text = text();
    for backend in [Backend::Candle, Backend::Native] {
        let logits = |draft: PathBuf| {
            let mut loaded = open(&with_draft(&path("llama-deep"), &draft, backend));
            assert_eq!(loaded.notice, None);
            let (mut module, info) = loaded.mtp.take().unwrap();
            assert!(info.name.ends_with("(EAGLE-3)") && info.block == 0);
            loaded.target.set_tap(&module.tap()).unwrap();
            let hidden = loaded.target.forward(&text[..30], LogitRows::Last).unwrap().hidden;
            let first = module.forward(&text[1..31], &hidden).unwrap();
            let second = module.forward(&text[31..32], &first.hidden.last_row()).unwrap();
            (module.draft_vocab().to_vec(), first.logits, second.logits)
        };
        assert!(logits(path("eagle3-original")) == logits(path("eagle3.gguf")), "{backend:?}");
    }
}

#[test]
fn cards_describe_them() {
    let card = BlockCard::read(&path("dspark.gguf")).unwrap();
    assert_eq!((card.kind, card.block, card.markov_rank, card.mask_token), ("DSpark", 5, Some(32), 319));
    assert_eq!(card.target_layers, [2, 4, 6]);
    for says in ["after blocks 2, 4, 6", "up to 5 tokens in one pass", "Markov head of rank 32", "--draft-model"] {
        assert!(card.to_string().contains(says), "{card}");
    }
    let flash = BlockCard::read(&path("dflash")).unwrap();
    assert_eq!((flash.kind, flash.block, flash.layers), ("DFlash", 7, 2));
    assert!(BlockCard::read(&path("eagle3.gguf")).is_err());
    let head = HeadCard::read(&path("eagle3.gguf")).unwrap().unwrap();
    let original = HeadCard::read(&path("eagle3-original")).unwrap().unwrap();
    assert_eq!((head.layers.as_deref(), head.draft_vocab), (Some(&[2, 3, 4][..]), 200));
    assert_eq!((head.parameters, head.d_model, head.ffn), (original.parameters, original.d_model, original.ffn));
}
