//! Checkpoints as users have them, against independent programs (see `fixtures/checkpoints/README.md`):
//! logits, tokens, templates, the promise that speculation changes nothing, and what damaged files say.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

mod common;

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use candle_core::Device;
use candle_core::quantized::gguf_file::{self, Value};
use common::checkpoint::{Golden, copy, edit, open, path, recipe};
use draftscope::model::load::OpenModel;
use draftscope::model::load::card::Card;
use draftscope::model::load::gguf_summary::GgufSummary;
use draftscope::model::load::load;
use draftscope::model::nn::rope::RopeScaling;
use draftscope::model::options::{Backend, Dtype, LoadOptions};
use draftscope::model::text::template::ChatTemplate;
use draftscope::model::{LogitRows, Model};
use draftscope::protocol::{DrafterKind, Message, Settings, TokenId};
use draftscope::speculate::decoder::Decoder;
use draftscope::speculate::drafter::{Drafter, ModelDrafter, NgramDrafter, NoDrafter, RandomDrafter};
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
use serde_json::json;

const ALL: [&str; 5] = ["llama", "qwen3", "qwen3-fp8", "qwen3.gguf", "llama.gguf"];

/// Root mean square of the differences, relative to the reference's.
fn difference(got: &[f32], want: &[f32]) -> f64 {
    assert_eq!(got.len(), want.len());
    let square = |x: f32| f64::from(x) * f64::from(x);
    let error: f64 = got.iter().zip(want).map(|(got, want)| square(got - want)).sum();
    (error / want.iter().map(|want| square(*want)).sum::<f64>()).sqrt()
}

/// The most that a pass differs from the oracle: logits of all tokens in one pass, logits of one token
/// after the other, and final states.
fn off(target: &mut dyn Model, golden: &Golden, prefix: &str) -> f64 {
    let tokens = golden.tokens(&format!("{prefix}tokens"));
    let (logits, hidden) = (golden.numbers(&format!("{prefix}logits")), golden.numbers(&format!("{prefix}hidden")));
    let mut alone = target.fork().unwrap();
    let out = target.forward(&tokens, LogitRows::All).unwrap();
    let one_by_one =
        tokens.iter().map(|token| alone.forward(&[*token], LogitRows::All).unwrap().logits.row(0).to_vec());
    let one_by_one: Vec<f32> = one_by_one.flatten().collect();
    let off = [(out.logits.as_slice(), &logits), (&one_by_one, &logits), (out.hidden.as_slice(), &hidden)];
    off.map(|(got, want)| difference(got, want)).into_iter().fold(0.0, f64::max)
}

/// Both sides compute in f32 (2⁻²⁴), a few hundred sums deep.
const ALIKE: f64 = 2e-5;

/// The native backend keeps keys and values as halves, off by 2⁻¹¹ at most: two of each, one behind the other.
const HALVES: f64 = 4.0 / 2048.0;

#[test]
fn logits_and_states_are_those_of_the_oracle() {
    for name in ALL {
        let off = off(open(name, Backend::Candle).target.as_mut(), &Golden::of(name), "");
        println!("{name}: off by {off:.1e}");
        assert!(off < ALIKE, "{name}: off by {off}");
    }
}

#[test]
fn stretched_positions_are_those_of_the_oracle() {
    for (prefix, scaling) in [
        ("yarn.", json!({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128})),
        ("linear.", json!({"rope_type": "linear", "factor": 2.0})),
    ] {
        let folder = copy("qwen3");
        edit(folder.path(), "config.json", |config| {
            config["rope_parameters"] = json!(null);
            config["rope_theta"] = json!(1e6);
            config["rope_scaling"] = scaling;
        });
        for (backend, most) in [(Backend::Candle, ALIKE), (Backend::Native, HALVES)] {
            let mut loaded = load(&recipe(folder.path().into(), backend), &mut |_, _, _| {}).unwrap();
            let golden = Golden::of("qwen3");
            let off = off(loaded.target.as_mut(), &golden, prefix);
            println!("{prefix} {backend:?}: off by {off:.1e}");
            assert!(off < most, "{prefix} {backend:?}: off by {off}");
            let stretched = difference(&golden.numbers(&format!("{prefix}logits")), &golden.numbers("logits"));
            assert!(stretched > 10.0 * most, "{prefix} changes logits by {stretched} only");
        }
    }
}

#[test]
fn the_native_backend_is_as_near_the_oracle_as_its_formats_allow() {
    // matrices that stand one behind the other: four in each of two layers, and the head
    const DEEP: f64 = 9.0;
    // FP8 is held as bf16: off by 2⁻⁹ at most, and by a √3rd of it in the mean square
    let rounded = DEEP / 512.0 / 3f64.sqrt();
    // blocks meet 32 activations as integers to 127 of the largest, 2.4 times their mean square among 32
    // normal ones; rounding errs by a √12th of a step
    let eight_bits = DEEP * 2.4 / 127.0 / 12f64.sqrt();
    for name in ALL {
        let mut loaded = open(name, Backend::Native);
        assert_eq!(loaded.target.spec().backend, "native");
        let off = off(loaded.target.as_mut(), &Golden::of(name), "");
        let most = match name {
            "qwen3-fp8" => HALVES + rounded,
            _ if name.ends_with(".gguf") => HALVES + eight_bits,
            _ => HALVES,
        };
        println!("{name}: off by {off:.1e} of {most:.1e}");
        assert!(off < most, "{name}: off by {off}");
    }
}

fn decode(
    target: Box<dyn Model>,
    drafter: Box<dyn Drafter>,
    k: u8,
    prompt: &[TokenId],
    len: usize,
) -> (Vec<TokenId>, u32) {
    let settings = Settings { draft_len: k, ..Settings::default() };
    let mut decoder = Decoder::new(target, drafter, &settings);
    decoder.prefill(1, prompt).unwrap();
    let mut rounds = 0;
    while decoder.committed().len() < prompt.len() + len {
        decoder.round(&mut |_| Duration::ZERO).unwrap();
        rounds += 1;
    }
    (decoder.committed()[prompt.len()..prompt.len() + len].to_vec(), rounds)
}

#[test]
fn greedy_text_is_the_oracles_and_speculation_changes_nothing() {
    const LEN: usize = 210;
    for name in ALL {
        let golden = Golden::of(name);
        let prompt = &golden.tokens("tokens")[..8];
        for backend in [Backend::Candle, Backend::Native] {
            let target = open(name, backend).target;
            let plain = decode(target.fork().unwrap(), Box::new(NoDrafter), 0, prompt, LEN).0;
            if backend == Backend::Candle {
                // the oracle's two best logits are 1e-3 apart everywhere (make.py sees to it), so that
                // neither arithmetic nor the width of a pass can turn them round
                assert_eq!(plain, golden.tokens("greedy")[..LEN], "{name}");
            }
            let other = if name.starts_with("qwen") { "qwen3" } else { "llama" };
            for k in 1..=6 {
                let drafters: [(&str, Box<dyn Drafter>); 4] = [
                    ("ngram", Box::new(NgramDrafter)),
                    ("random", Box::new(RandomDrafter)),
                    ("same model", Box::new(ModelDrafter::new(target.fork().unwrap()))),
                    ("draft model", Box::new(ModelDrafter::new(open(other, backend).target))),
                ];
                for (who, drafter) in drafters {
                    let (text, rounds) = decode(target.fork().unwrap(), drafter, k, prompt, LEN);
                    assert_eq!(text, plain, "{name} on {backend:?}: {who}, k = {k}");
                    let fewest = (LEN - 1).div_ceil(usize::from(k) + 1);
                    let all = who == "same model" || (who == "draft model" && name == other);
                    assert!(!all || rounds as usize == fewest, "{name}: {who} at k = {k} took {rounds} rounds");
                }
            }
        }
    }
}

#[test]
fn a_draft_model_of_the_family_is_loaded_in_either_form() {
    for (target, draft) in [("qwen3.gguf", "qwen3"), ("qwen3", "qwen3.gguf"), ("llama.gguf", "llama")] {
        let recipe = LoadOptions { draft_model: Some(path(draft)), ..recipe(path(target), Backend::Auto) };
        let (_, info) = load(&recipe, &mut |_, _, _| {}).unwrap().draft_model.unwrap().unwrap();
        assert_eq!((info.kind, info.draft_vocab), (DrafterKind::DraftModel, 320));
    }
    let recipe = LoadOptions { draft_model: Some(path("llama")), ..recipe(path("qwen3"), Backend::Auto) };
    let reason = load(&recipe, &mut |_, _, _| {}).unwrap().draft_model.unwrap().err().unwrap();
    assert!(reason.contains("has another vocabulary than the target"), "{reason}");
}

#[test]
fn texts_and_conversations_become_the_oracles_tokens() {
    let clock = ChatTemplate::new("Today: {{ strftime_now('%d %b %Y') }}", String::new(), String::new()).unwrap();
    let today = clock.render(&[]).unwrap();
    for name in ALL {
        let (golden, loaded) = (Golden::of(name), open(name, Backend::Candle));
        for text in golden.told["texts"].as_array().unwrap() {
            let want: Vec<TokenId> = serde_json::from_value(text["ids"].clone()).unwrap();
            let (text, codec) = (text["text"].as_str().unwrap(), &loaded.codec);
            assert_eq!(codec.encode(text).unwrap(), want, "{name}: {text:?}");
            let begins = name.starts_with("llama");
            assert_eq!(codec.encode_raw(text).unwrap().len(), want.len() + usize::from(begins), "{name}: {text:?}");
            if !text.contains('\u{301}') {
                let bytes: Vec<u8> = want.iter().flat_map(|id| codec.piece(*id).bytes.to_vec()).collect();
                assert_eq!(String::from_utf8(bytes).unwrap(), text, "{name}: pieces give back the text");
            }
        }
        for (kind, messages) in golden.told["messages"].as_object().unwrap() {
            let messages: Vec<Message> = serde_json::from_value(messages.clone()).unwrap();
            let rendered = loaded.template.as_ref().unwrap().render(&messages).unwrap();
            // the oracle had no clock, so its template fell back on a date of its own
            let told = golden.told["rendered"][kind].as_str().unwrap().replace("Today: 1 Jan 2025", &today);
            assert_eq!(rendered, told, "{name}: {kind}");
        }
        let ends: &[&str] = if name.starts_with("llama") {
            &["<|end_of_text|>", "<|eot_id|>"]
        } else {
            &["<|endoftext|>", "<|im_end|>"]
        };
        assert_eq!(loaded.codec.end_names(), ends, "{name}");
    }
}

/// The one sentence that a spoiled folder is refused with.
fn refusal(folder: &Path) -> String {
    let error = load(&recipe(folder.into(), Backend::Auto), &mut |_, _, _| {}).err();
    let error = error.unwrap_or_else(|| panic!("it was opened")).to_string();
    assert!(error.lines().count() == 1 && error.len() < 600, "{error}");
    error
}

#[test]
fn spoiled_folders_are_refused_in_a_sentence_that_names_what_is_wrong() {
    type Spoil = fn(&Path);
    let cases: [(&str, Spoil, &str); 14] = [
        (
            "llama",
            |f| fs::remove_file(f.join("model-00002-of-00002.safetensors")).unwrap(),
            "'model-00002-of-00002.safetensors' that it names is not there",
        ),
        ("llama", |f| cut(&f.join("model-00001-of-00002.safetensors"), 100_000), "it ends in the middle"),
        ("llama", |f| cut(&f.join("model-00001-of-00002.safetensors"), 50), "its header cannot be read"),
        (
            "llama",
            |f| edit(f, "config.json", |c| c["hidden_size"] = json!(128)),
            "has shape [320, 64], expected [320, 128]",
        ),
        ("llama", |f| edit(f, "config.json", |c| c["num_hidden_layers"] = json!(3)), "no tensor 'model.layers.2."),
        ("llama", |f| edit(f, "config.json", |c| c["num_key_value_heads"] = json!(3)), "'num_key_value_heads' is 3"),
        (
            "llama",
            |f| edit(f, "config.json", |c| c["model_type"] = json!("deepseek_v32")),
            "is DeepSeek-V3.2 (sparse attention, experts), which is not supported yet",
        ),
        (
            "llama",
            |f| edit(f, "model.safetensors.index.json", |i| i["weight_map"]["x"] = json!("../../etc/passwd")),
            "is no plain file name",
        ),
        (
            "llama",
            |f| edit(f, "tokenizer_config.json", |c| c["bos_token"] = json!("<nope>")),
            "names '<nope>' as 'bos_token'",
        ),
        ("qwen3", |f| fs::remove_file(f.join("tokenizer.json")).unwrap(), "holds no tokenizer.json"),
        ("qwen3", |f| fs::write(f.join("tokenizer.json"), "{\"model\": 1}").unwrap(), "tokenizer: tokenizer.json:"),
        ("qwen3", |f| fs::remove_file(f.join("model.safetensors")).unwrap(), "holds neither model.safetensors"),
        ("qwen3", |f| fs::remove_file(f.join("config.json")).unwrap(), "holds no config.json"),
        (
            "qwen3-fp8",
            |f| edit(f, "config.json", |c| c["quantization_config"]["weight_block_size"] = json!([64, 64])),
            "_scale_inv' has shape",
        ),
    ];
    for (name, spoil, says) in cases {
        let folder = copy(name);
        spoil(folder.path());
        let error = refusal(folder.path());
        assert!(error.contains(says), "{name}: {error}");
    }
}

/// A GGUF fixture with other metadata.
fn rewritten(name: &str, change: impl FnOnce(&mut HashMap<String, Value>)) -> tempfile::NamedTempFile {
    let mut file = fs::File::open(path(name)).unwrap();
    let content = gguf_file::Content::read(&mut file).unwrap();
    let mut metadata = content.metadata.clone();
    change(&mut metadata);
    let tensors: Vec<_> = content
        .tensor_infos
        .keys()
        .map(|name| (name, content.tensor(&mut file, name, &Device::Cpu).unwrap()))
        .collect();
    let tensors: Vec<_> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    let metadata: Vec<_> = metadata.iter().map(|(key, value)| (key.as_str(), value)).collect();
    let mut out = tempfile::NamedTempFile::new().unwrap();
    gguf_file::write(&mut out, &metadata, &tensors).unwrap();
    out
}

#[test]
fn keys_that_older_gguf_files_lack_or_name_otherwise_mean_what_llama_cpp_takes_them_for() {
    for (name, begins) in [("llama.gguf", true), ("qwen3.gguf", false)] {
        let file = rewritten(name, |keys| drop(keys.remove("tokenizer.ggml.add_bos_token").unwrap()));
        let codec = OpenModel::open(file.path()).unwrap().codec().unwrap();
        let (raw, plain) = (codec.encode_raw("the").unwrap(), codec.encode("the").unwrap());
        assert_eq!(raw.len(), plain.len() + usize::from(begins), "{name}");
    }
    for (pre, says) in [(None, "'tokenizer.ggml.pre' is not there"), (Some("default"), "is 'default', so text is cut")]
    {
        let file = rewritten("qwen3.gguf", |keys| {
            keys.remove("tokenizer.ggml.pre").unwrap();
            keys.extend(pre.map(|pre| ("tokenizer.ggml.pre".to_owned(), Value::String(pre.to_owned()))));
        });
        let said = load(&recipe(file.path().into(), Backend::Auto), &mut |_, _, _| {}).unwrap().warnings;
        assert!(said.len() == 1 && said[0].contains(says), "{said:?}");
    }
    let file = rewritten("qwen3.gguf", |keys| {
        let Value::Array(types) = keys.get_mut("tokenizer.ggml.token_type").unwrap() else { panic!("no list") };
        types.fill(Value::I32(1)); // as if all were text
        keys.remove("tokenizer.ggml.eos_token_id");
        keys.insert("tokenizer.ggml.eom_token_id".to_owned(), Value::U32(5));
    });
    let (forgetful, whole) =
        (OpenModel::open(file.path()).unwrap().codec().unwrap(), open("qwen3.gguf", Backend::Auto).codec);
    let (ends, own) = (forgetful.ends(), whole.ends());
    assert!(own.iter().all(|end| ends.contains(end)) && ends.len() == own.len() + 1, "{ends:?}");
    assert!(ends.contains(&TokenId(5)));
    for end in own {
        assert_eq!(forgetful.encode(&whole.piece(*end).lossy()).unwrap(), [*end], "found whole in a prompt");
        assert!(forgetful.piece(*end).special);
    }
    let text = |text: &str| Value::String(text.to_owned());
    let cases: [(&[(&str, Value)], RopeScaling); 7] = [
        (&[], RopeScaling::Plain),
        (&[("scaling.factor", Value::F32(2.0))], RopeScaling::Linear(2.0)),
        (&[("scale_linear", Value::F32(4.0))], RopeScaling::Linear(4.0)),
        (&[("scaling.factor", Value::F32(2.0)), ("scale_linear", Value::F32(4.0))], RopeScaling::Linear(2.0)),
        (&[("scaling.type", text("linear")), ("scaling.factor", Value::F32(1.0))], RopeScaling::Plain),
        (&[("scaling.factor", Value::F32(0.0))], RopeScaling::Plain),
        (&[("scaling.type", text("none")), ("scaling.factor", Value::F32(2.0))], RopeScaling::Plain),
    ];
    for (keys, scaling) in cases {
        let file = rewritten("qwen3.gguf", |metadata| {
            metadata.extend(keys.iter().map(|(key, value)| (format!("qwen3.rope.{key}"), value.clone())));
        });
        assert_eq!(OpenModel::open(file.path()).unwrap().transformer().rope.scaling, scaling, "{keys:?}");
    }
    let both = rewritten("llama.gguf", |keys| drop(keys.insert("llama.rope.scale_linear".into(), Value::F32(2.0))));
    let error = OpenModel::open(both.path()).err().unwrap().to_string();
    assert!(error.contains("'rope_freqs.weight' together with a scaling factor"), "{error}");
}

#[test]
fn a_part_of_a_split_file_is_refused_as_one() {
    let with =
        |parts: u16| rewritten("qwen3.gguf", |keys| drop(keys.insert("split.count".to_owned(), Value::U16(parts))));
    assert!(OpenModel::open(with(1).path()).is_ok());
    let error = refusal(with(3).path());
    assert!(error.contains("is one of 3 parts of a split GGUF file") && error.contains("--merge"), "{error}");
}

#[test]
fn a_file_of_a_family_that_does_not_run_is_described_by_its_header() {
    let file = rewritten("llama.gguf", |keys| {
        keys.insert("general.architecture".into(), Value::String("deepseek2".into()));
        for (key, number) in
            [("block_count", 48), ("embedding_length", 2048), ("expert_count", 64), ("nextn_predict_layers", 1)]
        {
            keys.insert(format!("deepseek2.{key}"), Value::U32(number));
        }
    });
    let error = OpenModel::open(file.path()).err().unwrap().to_string();
    assert!(error.contains("in a GGUF file (of these, folders of V3, R1, V3.1 and GLM-4.7-Flash run)"), "{error}");
    let sketch = GgufSummary::read(file.path()).unwrap();
    assert_eq!((sketch.layers, sketch.experts, sketch.context_length), (Some(48), Some(64), None));
    let text = sketch.to_string();
    assert!(
        text.contains("shape    48 layers, of width 2048, 64 experts a layer, draft modules announced: 1\n"),
        "{text}"
    );
    assert_eq!(GgufSummary::read(&path("llama")), None);
}

#[test]
fn biases_that_a_config_does_not_announce_are_not_passed_over() {
    let folder = copy("qwen3");
    let weights = folder.path().join("model.safetensors");
    let bytes = fs::read(&weights).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let bias = TensorView::new(safetensors::Dtype::F32, vec![128], &[0; 512]).unwrap();
    let all = tensors.tensors().into_iter().chain([("model.layers.1.self_attn.q_proj.bias".to_owned(), bias)]);
    safetensors::serialize_to_file(all, None, &weights).unwrap();
    let error = refusal(folder.path());
    assert!(error.contains("biases ('model.layers.1.self_attn.q_proj.bias') are not supported"), "{error}");
}

/// Adds a head to the Qwen3, whose embedding is its head: the embedding's bytes, changed.
fn with_head(change: impl Fn(&mut Vec<u8>, &mut Vec<usize>)) -> tempfile::TempDir {
    let folder = copy("qwen3");
    let weights = folder.path().join("model.safetensors");
    let bytes = fs::read(&weights).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let embedding = tensors.tensor("model.embed_tokens.weight").unwrap();
    let (mut data, mut shape) = (embedding.data().to_vec(), embedding.shape().to_vec());
    change(&mut data, &mut shape);
    let head = TensorView::new(embedding.dtype(), shape, &data).unwrap();
    let all = tensors.tensors().into_iter().chain([("lm_head.weight".to_owned(), head)]);
    safetensors::serialize_to_file(all, None, &weights).unwrap();
    folder
}

#[test]
fn a_head_that_is_no_copy_of_the_embedding_it_is_tied_to_is_the_head() {
    let copied = with_head(|_, _| ());
    let other = with_head(|data, _| data.fill(0));
    let golden = Golden::of("qwen3");
    let tokens = golden.tokens("tokens");
    for backend in [Backend::Candle, Backend::Native] {
        let logits = |folder: &Path| {
            let mut loaded = load(&recipe(folder.into(), backend), &mut |_, _, _| {}).unwrap();
            let out = loaded.target.forward(&tokens, LogitRows::All).unwrap();
            (out.logits.as_slice().to_vec(), loaded.warnings)
        };
        let (tied, nothing) = logits(copied.path());
        assert!(difference(&tied, &golden.numbers("logits")) < HALVES && nothing.is_empty(), "{nothing:?}");
        let (zeros, said) = logits(other.path());
        assert!(zeros.iter().all(|logit| *logit == 0.0), "{backend:?}");
        assert!(said.len() == 1 && said[0].contains("'tie_word_embeddings' is ignored"), "{said:?}");
    }
    assert!(Card::read(copied.path()).unwrap().tied && !Card::read(other.path()).unwrap().tied);
    let short = with_head(|data, shape| {
        data.truncate(data.len() / shape[0]);
        shape[0] = 1;
    });
    let error = refusal(short.path());
    assert!(error.contains("'lm_head.weight' has shape [1, 64]"), "{error}");
}

fn cut(file: &Path, len: u64) {
    fs::OpenOptions::new().write(true).open(file).unwrap().set_len(len).unwrap();
}

#[test]
fn a_folder_without_a_template_still_runs_raw() {
    let folder = copy("qwen3");
    fs::remove_file(folder.path().join("chat_template.jinja")).unwrap();
    assert!(load(&recipe(folder.path().into(), Backend::Auto), &mut |_, _, _| {}).unwrap().template.is_none());
}

#[test]
fn a_template_that_does_not_run_is_left_aside() {
    for template in [&b"{% unheard of %}"[..], b"{% generation %}", b"\xff"] {
        let folder = copy("qwen3");
        fs::write(folder.path().join("chat_template.jinja"), template).unwrap();
        let loaded = load(&recipe(folder.path().into(), Backend::Auto), &mut |_, _, _| {}).unwrap();
        let [said] = &loaded.warnings[..] else { panic!("{:?}", loaded.warnings) };
        assert!(loaded.template.is_none() && said.contains("use --raw") && said.lines().count() == 1, "{said}");
        let card = Card::read(folder.path()).unwrap();
        assert!(!card.has_template && card.to_string().contains("no template that runs: use --raw ("), "{card}");
    }
    assert!(open("qwen3", Backend::Auto).warnings.is_empty());
}

#[test]
fn a_cpu_takes_the_native_kernels_and_what_they_decline_runs_on_candle() {
    for name in ALL {
        assert_eq!(open(name, Backend::Auto).target.spec().backend, "native", "{name}");
    }
    let folder = copy("qwen3");
    edit(folder.path(), "config.json", |config| config["dtype"] = json!("float16"));
    let wider = LoadOptions { dtype: Dtype::Bf16, ..recipe(folder.path().into(), Backend::Auto) };
    let loaded = load(&wider, &mut |_, _, _| {}).unwrap();
    assert_eq!((loaded.target.spec().backend, loaded.target.spec().dtype.as_str()), ("candle", "bf16"));
}
