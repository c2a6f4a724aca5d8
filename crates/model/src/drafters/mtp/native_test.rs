//! Modules in files of their own, on the native kernels.

#[path = "../../../../../tests/common/bf16.rs"]
mod bf16;

use draftscope_kernels::Encoding;
use safetensors::{Dtype, SafeTensors, tensor::TensorView};

use self::bf16::in_bf16;
use super::config::MtpConfig;
use super::on_kernels;
use crate::files::Stored;
use crate::load::OpenModel;
use crate::native::testing::{Noise, Parity, ParityPrompt, gguf_path, mtp_path, mtp_weights, token_ids};
use crate::native::{ModuleTarget, NativeLlama, NativeModule};
use crate::tap::State;
use crate::{DraftModule, LogitRows, Model, ModelError, Rows, Tap};
use draftscope_protocol::TokenId;

/// The default target.
fn target() -> Option<NativeLlama> {
    Some(NativeLlama::load(OpenModel::open(&gguf_path()?).unwrap().parts(), 256, Some(2)).unwrap())
}

/// The module in these bytes, exact or in codes of 4 bits.
fn load_module(target: &NativeLlama, bytes: &[u8], config: &MtpConfig, exact: bool) -> NativeModule {
    on_kernels((bytes, 0), config, &ModuleTarget { exact, ..ModuleTarget::of(target) }).unwrap()
}

fn plain_config() -> MtpConfig {
    MtpConfig::from_json(&std::fs::read(mtp_path("config.json")).unwrap()).unwrap()
}

/// The default target and its unfused module, from the file in FP8 or from the same in bf16.
fn load(dtype: Dtype, exact: bool) -> Option<(NativeLlama, NativeModule)> {
    let bytes = if dtype == Dtype::BF16 { in_bf16(&mtp_weights()) } else { mtp_weights() };
    let target = target()?;
    let module = load_module(&target, &bytes, &plain_config(), exact);
    Some((target, module))
}

/// Greedy drafts after a prompt, as a drafter makes them, and the logits of the first.
fn draft(module: &mut NativeModule, prompt: &ParityPrompt, count: usize) -> (Vec<TokenId>, Vec<f32>) {
    let hidden = Rows::new(prompt.hidden.clone(), 576);
    let mut tokens = prompt.ids[1..].to_vec();
    tokens.push(prompt.next);
    let mut out = module.forward(&tokens, &hidden).unwrap();
    let first = out.logits.row(0).to_vec();
    let mut drafted = Vec::new();
    for _ in 0..count {
        let best = out.stats[0].argmax;
        drafted.push(module.draft_vocab()[best as usize]);
        let last = Rows::new(out.hidden.last().unwrap().to_vec(), 576);
        out = module.forward(&drafted[drafted.len() - 1..], &last).unwrap();
    }
    (drafted, first)
}

#[test]
fn drafts_are_those_of_the_reference() {
    let parity = Parity::open();
    let kinds = [(Dtype::BF16, true, 0.1), (Dtype::BF16, false, 2.0), (Dtype::F8_E4M3, false, 2.0)];
    for (dtype, exact, tolerance) in kinds {
        let Some((_, mut module)) = load(dtype, exact) else {
            return;
        };
        for prompt in parity.prompts() {
            module.truncate(0).unwrap();
            let (drafted, logits) = draft(&mut module, &prompt, 4);
            let squares = logits.iter().zip(&prompt.mtp_logits).map(|(a, b)| (a - b).powi(2));
            let error = (squares.sum::<f32>() / logits.len() as f32).sqrt();
            println!("{dtype:?} {exact}: {drafted:?} of {:?}, logits off by {error} (rms)", prompt.drafted);
            assert!(error < tolerance, "{dtype:?} {exact}: off by {error}");
            assert!(!exact || drafted == prompt.drafted);
        }
    }
}

/// The module's file with matrices rounded to blocks of 4-bit codes.
fn rounded(file: &[u8]) -> Vec<u8> {
    let tensors = SafeTensors::deserialize(file).unwrap();
    let rounded = tensors.iter().map(|(name, view)| {
        let (dtype, shape) = (view.dtype(), view.shape().to_vec());
        let &[rows, k] = shape.as_slice() else {
            return (name.to_owned(), dtype, shape, view.data().to_vec());
        };
        assert_eq!(dtype, Dtype::BF16, "{name}");
        let numbers = view.data().as_chunks().0.iter().map(|bytes| half::bf16::from_le_bytes(*bytes).to_f32());
        let codes = Stored::encoded(&numbers.collect::<Vec<_>>(), Encoding::Q4_1);
        let numbers = codes.to_f32(&[rows, k]).unwrap();
        (name.to_owned(), Dtype::F32, shape, numbers.iter().flat_map(|x| x.to_le_bytes()).collect())
    });
    let rounded: Vec<_> = rounded.collect();
    let views = rounded
        .iter()
        .map(|(name, dtype, shape, bytes)| (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap()));
    safetensors::serialize(views, None).unwrap()
}

#[test]
fn blocks_differ_from_the_reference_by_what_rounding_their_weights_does() {
    let Some((target, mut module)) = load(Dtype::BF16, false) else {
        return;
    };
    let file = rounded(&in_bf16(&mtp_weights()));
    let mut plain = load_module(&target, &file, &plain_config(), true);
    for prompt in Parity::open().prompts() {
        let states = [&mut module, &mut plain].map(|module| {
            module.truncate(0).unwrap();
            let mut tokens = prompt.ids[1..].to_vec();
            tokens.push(prompt.next);
            module.forward(&tokens, &Rows::new(prompt.hidden.clone(), 576)).unwrap().hidden
        });
        let size: f32 = states[1].as_slice().iter().map(|x| x * x).sum();
        let off: f32 = states[0].as_slice().iter().zip(states[1].as_slice()).map(|(a, b)| (a - b).powi(2)).sum();
        let off = (off / size).sqrt();
        println!("off by {off} of their size");
        assert!(off < 0.02, "off by {off}"); // activations of 8 bits
    }
}

#[test]
fn slots_run_together_or_alone_give_the_same_bits() {
    let Some((mut target, mut module)) = load(Dtype::BF16, false) else {
        return;
    };
    let tokens = token_ids(41);
    let hidden = target.forward(&tokens[..40], LogitRows::Last).unwrap().hidden;
    let together = module.forward(&tokens[1..], &hidden).unwrap();
    module.truncate(0).unwrap();
    let mut last = Rows::empty(1);
    for (token, row) in tokens[1..].iter().zip(hidden.iter()) {
        last = module.forward(&[*token], &Rows::new(row.to_vec(), 576)).unwrap().logits;
    }
    assert!(together.logits == last);
    let short = module.forward(&tokens[..2], &Rows::new(hidden.row(0).to_vec(), 576));
    assert!(matches!(short, Err(ModelError::Shape { .. })));
    assert!(matches!(module.truncate(41), Err(ModelError::Rewind { .. })));
}

/// The unfused module with a matrix for two inner states, so small that drafts stay sensible.
fn fused() -> (Vec<u8>, MtpConfig) {
    let bytes = in_bf16(&mtp_weights());
    let numbers = Noise(3).numbers(576 * 2 * 576);
    let fuse: Vec<u8> = numbers.iter().flat_map(|x| (0.02 * x).to_le_bytes()).collect();
    let fuse = ("mtp.layers.0.fuse.weight", TensorView::new(Dtype::F32, vec![576, 2 * 576], &fuse).unwrap());
    let own = SafeTensors::deserialize(&bytes).unwrap();
    let all = own.iter().filter(|(name, _)| *name != fuse.0).chain([fuse.clone()]);
    let config = MtpConfig { hidden_layers: vec![7, 25], ..plain_config() };
    (safetensors::serialize(all, None).unwrap(), config)
}

/// Difference of two results, relative to the length of the second.
fn apart(a: &Rows, b: &Rows) -> f32 {
    let squares = |values: &mut dyn Iterator<Item = f32>| values.map(|x| x * x).sum::<f32>().sqrt();
    let (a, b) = (a.as_slice(), b.as_slice());
    squares(&mut a.iter().zip(b).map(|(a, b)| a - b)) / squares(&mut b.iter().copied())
}

/// What the module should read of each row `[h ; s_1 ; s_2]`: `h + fuse [s_1 / rms(s_1) ; s_2 / rms(s_2)]`.
fn fused_by_hand(rows: &Rows, fuse: &[f32], eps: f32) -> Rows {
    let of_row = |row: &[f32]| {
        let (own, states) = row.split_at(576);
        let unit = |state: &[f32]| {
            let mean = state.iter().map(|x| x * x).sum::<f32>() / 576.0;
            state.iter().map(|x| x / (mean + eps).sqrt()).collect::<Vec<_>>()
        };
        let units = [unit(&states[..576]), unit(&states[576..])].concat();
        let added = fuse.chunks(2 * 576).map(|line| line.iter().zip(&units).map(|(a, b)| a * b).sum::<f32>());
        own.iter().zip(added).map(|(own, added)| own + added).collect::<Vec<_>>()
    };
    Rows::new(rows.iter().flat_map(of_row).collect(), 576)
}

#[test]
fn states_within_the_target_are_added_to_the_one_that_is_read() {
    let Some(mut target) = target() else {
        return;
    };
    let (bytes, config) = fused();
    let mut module = load_module(&target, &bytes, &config, true);
    let mut plain = load_module(&target, &in_bf16(&mtp_weights()), &plain_config(), true);
    assert_eq!(module.tap(), Tap::new(vec![State::Normed, State::Behind(7), State::Behind(25)]));
    target.set_tap(&module.tap()).unwrap();
    let tokens = token_ids(41);
    let hidden = target.forward(&tokens[..40], LogitRows::Last).unwrap().hidden;
    assert_eq!(hidden.width(), 3 * 576);
    let fuse: Vec<f32> = Noise(3).numbers(576 * 2 * 576).iter().map(|x| 0.02 * x).collect();
    let ours = module.forward(&tokens[1..], &hidden).unwrap();
    let theirs = plain.forward(&tokens[1..], &fused_by_hand(&hidden, &fuse, config.rms_norm_eps)).unwrap();
    assert!(apart(&ours.hidden, &theirs.hidden) < 1e-3, "{}", apart(&ours.hidden, &theirs.hidden));
    assert!(apart(&ours.logits, &theirs.logits) < 1e-3, "{}", apart(&ours.logits, &theirs.logits));
    // another order of the same states gives another result
    let swap = |row: &[f32]| [&row[..576], &row[1152..], &row[576..1152]].concat();
    let swapped = Rows::new(hidden.iter().flat_map(swap).collect(), hidden.width());
    module.truncate(0).unwrap();
    let wrong = module.forward(&tokens[1..], &swapped).unwrap();
    assert!(apart(&wrong.hidden, &theirs.hidden) > 5e-2, "{}", apart(&wrong.hidden, &theirs.hidden));
    // alone as together, and its own outputs keep their width
    module.truncate(0).unwrap();
    let mut last = Rows::empty(1);
    for (token, row) in tokens[1..].iter().zip(hidden.iter()) {
        last = module.forward(&[*token], &Rows::new(row.to_vec(), hidden.width())).unwrap().logits;
    }
    assert!(last == ours.logits);
    module.forward(&tokens[..1], &ours.hidden.last_row()).unwrap();
    let narrow = Rows::new(vec![0.0; 2 * 576], 2 * 576);
    assert!(matches!(module.forward(&tokens[..1], &narrow), Err(ModelError::Shape { .. })));
}

/// The unfused module with this draft vocabulary, which tokens of the text may join.
fn with_vocab(vocab: &[i64], room: usize) -> (Vec<u8>, MtpConfig) {
    let bytes = in_bf16(&mtp_weights());
    let own = SafeTensors::deserialize(&bytes).unwrap();
    let data: Vec<u8> = vocab.iter().flat_map(|token| token.to_le_bytes()).collect();
    let tensor = TensorView::new(Dtype::I64, vec![vocab.len()], &data).unwrap();
    let all = own.tensors().into_iter().filter(|(name, _)| name != "mtp.draft_vocab");
    let all = all.chain([("mtp.draft_vocab".to_owned(), tensor)]);
    let config = MtpConfig { draft_vocab_size: vocab.len(), context_vocab_size: room, ..plain_config() };
    (safetensors::serialize(all, None).unwrap(), config)
}

/// The same with so many tokens of the module's own vocabulary.
fn joined(count: usize, room: usize) -> (Vec<u8>, MtpConfig) {
    let bytes = mtp_weights();
    let own = SafeTensors::deserialize(&bytes).unwrap();
    let vocab = own.tensor("mtp.draft_vocab").unwrap().data().as_chunks().0[..count].to_vec();
    with_vocab(&vocab.into_iter().map(i64::from_le_bytes).collect::<Vec<_>>(), room)
}

#[test]
fn tokens_of_the_text_are_drafted_with_the_logits_of_the_whole_head() {
    let Some(mut target) = target() else {
        return;
    };
    let (bytes, config) = joined(1000, 100);
    let mut module = load_module(&target, &bytes, &config, true);
    let tokens = token_ids(41);
    let hidden = target.forward(&tokens[..40], LogitRows::Last).unwrap().hidden;
    let fixed = module.draft_vocab().to_vec();
    let besides: Vec<_> = tokens[1..].iter().filter(|token| !fixed.contains(token)).copied().collect();
    assert!((20..100).contains(&besides.len()), "{} tokens of the text are none of the vocabulary", besides.len());
    let ours = module.forward(&tokens[1..], &hidden).unwrap().logits;
    assert_eq!(module.draft_vocab(), [&fixed[..], &besides].concat());
    let (bytes, config) = with_vocab(&(0..49152).collect::<Vec<i64>>(), 0);
    let whole = load_module(&target, &bytes, &config, true).forward(&tokens[1..], &hidden).unwrap().logits;
    let expected: Vec<f32> = module.draft_vocab().iter().map(|token| whole.row(0)[token.index()]).collect();
    assert_eq!(ours.row(0), expected);
    // a copy proposes the same, and dropped slots drop the tokens they added
    let copy = module.fork().unwrap();
    assert_eq!(copy.draft_vocab(), module.draft_vocab());
    module.truncate(0).unwrap();
    assert_eq!(module.draft_vocab(), fixed);
    let again = module.forward(&tokens[1..3], &hidden.slice(0..2)).unwrap().logits;
    assert_eq!(again.width(), module.draft_vocab().len());
}

#[test]
fn states_that_the_target_lacks_are_refused() {
    let (_, mut config) = fused();
    let Some(path) = gguf_path() else {
        return;
    };
    let target = OpenModel::open(&path).unwrap().transformer().describe(String::new(), String::new());
    config.check_target(&target).unwrap();
    config.hidden_layers = vec![7, 31];
    let error = config.check_target(&target).unwrap_err().to_string();
    assert!(error.contains("reads the state after block 31, and the target has 30 blocks"), "{error}");
    let many = String::from_utf8(std::fs::read(mtp_path("config.json")).unwrap()).unwrap();
    let many = many.replacen('{', r#"{"hidden_layers": [1, 2, 3, 4, 5, 6, 7, 8, 9],"#, 1);
    let error = MtpConfig::from_json(many.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("'hidden_layers' names 9 states"), "{error}");
}

#[test]
fn sizes_that_no_module_has_are_refused() {
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(mtp_path("config.json")).unwrap()).unwrap();
    let refused = |key: &str, value: serde_json::Value| {
        let mut json = json.clone();
        json[key] = value;
        let error = MtpConfig::from_json(json.to_string().as_bytes()).unwrap_err().to_string();
        assert!(error.contains(key), "{error}");
    };
    // 2³¹ heads of 2³³ make a width of 0
    refused("num_attention_heads", (1u64 << 31).into());
    refused("head_dim", (1u64 << 33).into());
    for key in ["num_key_value_heads", "intermediate_size", "draft_vocab_size", "hidden_size", "rope_theta"] {
        refused(key, 0.into());
    }
}
