//! Which model and which address are meant.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::{ask, run};
use crate::asked::{Asked, Reply, bytes, chunk, js, models, serve, stream};

const CHAT: &str = "small-chat-Q4_K_M";
const EMBEDDINGS: &str = "small-embed-Q8_0";

/// The model that a request names.
fn named(asked: &Asked) -> Option<String> {
    let query = asked.query.strip_prefix("model=").map(|query| query.trim_end_matches("&autoload=false").to_owned());
    query.or_else(|| Some(asked.body.get("model")?.as_str()?.to_owned()))
}

/// A router to these models; the first is loaded.
fn router(ids: &'static [&'static str]) -> (String, Arc<Mutex<Vec<Asked>>>) {
    serve(move |asked| {
        let status = |id: &str| json!({"value": if id == ids[0] { "loaded" } else { "unloaded" }});
        let Some(model) = named(asked) else {
            return Some(match asked.path.as_str() {
                "/v1/models" => {
                    let data: Vec<Value> = ids.iter().map(|id| json!({"id": id, "status": status(id)})).collect();
                    js(200, &json!({"object": "list", "data": data}))
                }
                "/props" => js(
                    200,
                    &json!({"role": "router", "model_path": "none", "default_generation_settings": {"params": {}, "n_ctx": 0}}),
                ),
                _ => js(400, &json!({"error": {"code": 400, "message": "model name is missing from the request"}})),
            });
        };
        Some(match asked.path.as_str() {
            "/props" => js(
                200,
                &json!({"default_generation_settings": {"n_ctx": 4096}, "model_path": format!("/m/{model}.gguf")}),
            ),
            "/slots" => {
                js(200, &json!([{"id": 0, "speculative": true, "params": {"speculative.types": "draft-simple"}}]))
            }
            "/apply-template" => js(200, &json!({"prompt": asked.said()})),
            "/tokenize" => js(200, &json!({"tokens": [{"id": 1, "piece": "x"}]})),
            "/completion" => completion(&model),
            "/metrics" => bytes(b"llamacpp:tokens_predicted_total 5\nllamacpp:n_decode_total 3\n".to_vec()),
            _ => return None,
        })
    })
}

fn completion(text: &str) -> Reply {
    let timings = |n: u32, d: u32| json!({"prompt_ms": 1.0, "predicted_n": n, "predicted_ms": n, "draft_n": d, "draft_n_accepted": d / 2});
    bytes(crate::asked::events(&[
        json!({"content": text, "tokens": [7], "stop": false, "timings": timings(1, 0)}),
        json!({"content": "!", "tokens": [8], "stop": false, "timings": timings(2, 2)}),
        json!({"content": ".", "tokens": [9], "stop": false, "timings": timings(3, 2)}),
        json!({"content": "", "tokens": [], "stop": true, "stop_type": "eos", "timings": timings(3, 2)}),
    ]))
}

#[test]
fn a_router_is_asked_by_name_in_every_request() {
    let (url, seen) = router(&[CHAT, EMBEDDINGS]);
    ask(&url, "Hello").answers(&format!("{CHAT}!."));
    let asked = seen.lock().unwrap();
    assert!(asked.iter().filter(|one| named(one).is_some()).count() >= 5, "{asked:?}");
    let unnamed: Vec<_> = asked.iter().filter(|one| named(one).is_none()).map(|one| one.path.as_str()).collect();
    assert!(unnamed.iter().all(|path| matches!(*path, "/props" | "/v1/models")), "{unnamed:?}");
}

#[test]
fn a_router_is_watched_by_one_of_its_models_and_loads_none_for_it() {
    let (url, seen) = router(&[CHAT, EMBEDDINGS]);
    let watched = run(&["attach", "--watch", "--once", "--json", "--interval", "0.1", &url]);
    assert!(watched.text.contains(CHAT) && !watched.text.contains("\"none\""), "{} {}", watched.text, watched.said);
    let asked = seen.lock().unwrap();
    let of_model: Vec<_> = asked.iter().filter(|one| named(one).is_some()).collect();
    assert!(of_model.iter().any(|one| one.path == "/metrics"), "{asked:?}");
    assert!(of_model.iter().all(|one| one.query.ends_with("&autoload=false")), "{asked:?}");
}

#[test]
fn of_several_models_one_is_named_or_all_are_listed() {
    let (url, _) = router(&["qwen 4b", "gemma"]);
    let named = |name: &str| run(&["run", "--attach", &url, "--model", name, "--prompt", "x"]);
    named("gemma").answers("gemma!.");
    named("llama").fails(&["does not have the model llama", "gemma"]);
    let loaded = ask(&url, "x");
    assert!(loaded.said.contains("qwen 4b is the loaded one; --model NAME asks another"), "{}", loaded.said);
}

/// A server with several models, the first of which makes embeddings.
fn desktop(ids: &'static [&'static str]) -> String {
    let answer = move |asked: &Asked| match asked.path.as_str() {
        "/v1/models" => Some(models(ids)),
        "/v1/chat/completions" => {
            let model = asked.body["model"].as_str().unwrap_or_default();
            Some(stream(&[chunk(json!({"content": format!("I am {model}")}), json!("stop"))]))
        }
        _ => None,
    };
    serve(answer).0
}

#[test]
fn embedding_models_are_never_picked() {
    let url = desktop(&["all-minilm-embedding", "qwen3-4b", "qwen3-0.6b"]);
    ask(&url, "x").fails(&["has several models", "--model", "qwen3-4b, qwen3-0.6b"]);
    for command in [
        &["run", "--attach", &url, "--model", "qwen3-4b", "--prompt", "x"][..],
        &["attach", &url, "--model", "qwen3-4b", "--prompt", "x"],
        &["attach", &url, "-m", "Qwen3-4B", "--prompt", "x"],
    ] {
        run(command).answers("I am qwen3-4b");
    }
    ask(&desktop(&["bge-m3", "gemma-3-1b"]), "x").answers("I am gemma-3-1b");
    ask(&desktop(&["nomic-embed-text"]), "x").fails(&["no model that writes text", "nomic-embed-text"]);
}

#[test]
fn an_empty_list_of_models_is_said() {
    ask(&desktop(&[]), "x").fails(&["no model loaded"]);
    let url = desktop(&[]);
    let named = run(&["run", "--attach", &url, "--model", "later", "--prompt", "x"]);
    named.answers("I am later");
    assert!(named.said.contains("does not list the model later"), "{}", named.said);
}

#[test]
fn options_of_our_own_engine_are_never_ignored_silently() {
    let url = desktop(&["m"]);
    for option in [["--device", "cpu"], ["--ctx", "512"], ["--dtype", "f32"], ["--threads", "2"]] {
        for command in ["run", "compare", "bench"] {
            let ran = run(&[&[command, "--attach", &url][..], &option].concat());
            ran.fails(&["cannot be used with", option[0]]);
        }
    }
    let mut command = super::draftscope(&["run", "--attach", &url, "--prompt", "x"]);
    let ran = super::Ran::of(&command.env("DRAFTSCOPE_MODEL", "/models/x.gguf").output().unwrap());
    ran.answers("I am m");
    assert!(ran.said.contains("/models/x.gguf that DRAFTSCOPE_MODEL names"), "{}", ran.said);
}

#[test]
fn one_llama_server_does_not_answer_for_another_model() {
    let (url, _) = serve(|asked| match asked.path.as_str() {
        "/props" => {
            Some(js(200, &json!({"default_generation_settings": {"n_ctx": 64}, "model_path": "/m/gemma-3.gguf"})))
        }
        "/v1/models" => Some(js(200, &json!({"data": [{"id": "/m/gemma-3.gguf", "aliases": ["g"]}]}))),
        "/apply-template" => Some(js(200, &json!({"prompt": "x"}))),
        "/tokenize" => Some(js(200, &json!({"tokens": [{"id": 1, "piece": "x"}]}))),
        "/completion" => Some(completion("One")),
        _ => None,
    });
    let named = |name: &str| run(&["run", "--attach", &url, "--model", name, "--prompt", "x"]);
    named("gemma-3").answers("One!.");
    named("g").answers("One!.");
    named("qwen").fails(&["does not have the model qwen", "gemma-3.gguf"]);
}

#[test]
fn addresses_are_taken_as_people_write_them() {
    let url = desktop(&["m"]);
    let port = url.rsplit(':').next().unwrap();
    for address in [
        format!("http://{url}"),
        format!("http://{url}/v1"),
        format!("http://{url}/v1/"),
        format!("http://{url}/v1/chat/completions"),
        url.clone(),
        format!("{url}/v1"),
        format!("localhost:{port}"),
    ] {
        ask(&address, "x").answers("I am m");
    }
}

#[test]
fn a_base_address_of_another_version_is_followed() {
    let (url, _) = serve(|asked| match asked.path.as_str() {
        "/v1beta/openai/models" => Some(models(&["m"])),
        "/v1beta/openai/chat/completions" => Some(stream(&[chunk(json!({"content": "One"}), json!("stop"))])),
        _ => None,
    });
    ask(&format!("{url}/v1beta/openai/"), "x").answers("One");
}

#[test]
fn the_server_s_own_sampling_is_left_to_it() {
    let (url, seen) = serve(|asked| match asked.path.as_str() {
        "/v1/models" => Some(models(&["m"])),
        "/v1/chat/completions" => Some(stream(&[chunk(json!({"content": "One"}), json!("stop"))])),
        _ => None,
    });
    let ran = run(&["run", "--attach", &url, "--sampling", "server", "--prompt", "x"]);
    ran.answers("One");
    assert!(ran.said.contains("sampling is the server's own"), "{}", ran.said);
    let body = seen.lock().unwrap().last().unwrap().body.clone();
    assert!(["temperature", "top_p", "top_k", "min_p", "seed"].iter().all(|name| body.get(name).is_none()), "{body}");
    run(&["run", "--attach", &url, "--sampling", "server", "--temperature", "1", "x"]).fails(&["cannot be used with"]);
}

/// A chat as `transformers serve` 5.19 streams it; its list of models has this status and body.
fn without_a_list(status: u16, list: &'static str) -> String {
    let answer = move |asked: &Asked| match asked.path.as_str() {
        "/v1/models" => Some(Reply { status, headers: "", pieces: vec![list.as_bytes().to_vec()] }),
        "/v1/chat/completions" if asked.body.get("messages").is_none() => {
            Some(js(422, &json!({"detail": "messages: Field required"})))
        }
        "/v1/chat/completions" => Some(bytes(crate::asked::events(&[
            json!({"id": "d", "choices": [{"delta": {"role": "assistant"}, "index": 0}], "model": "/m@main"}),
            json!({"id": "d", "choices": [{"delta": {"content": "I'm"}, "index": 0}], "model": "/m@main"}),
            json!({"id": "d", "choices": [{"delta": {"content": " here"}, "index": 0}], "model": "/m@main"}),
            json!({"id": "d", "choices": [{"delta": {}, "index": 0, "finish_reason": "length"}], "model": "/m@main",
                   "usage": {"completion_tokens": 2, "prompt_tokens": 31, "total_tokens": 33}}),
        ]))),
        _ => None,
    };
    serve(answer).0
}

#[test]
fn a_named_model_is_asked_where_the_list_of_models_cannot_be_read() {
    let lists = [(500, "Internal Server Error"), (404, r#"{"detail":"Not Found"}"#), (405, ""), (200, "<html>")];
    for (status, list) in lists {
        let url = without_a_list(status, list);
        let named = run(&["run", "--attach", &url, "--model", "/m", "--prompt", "x"]);
        named.answers("I'm here");
        assert!(named.said.contains("the list of models cannot be read"), "{status}: {}", named.said);
    }
    let url = without_a_list(500, "Internal Server Error");
    ask(&url, "x").fails(&["/v1/models with status 500", "name its model with --model"]);
    // where there is no route for chats, either, a name does not help
    let nothing = serve(|_| None).0;
    run(&["run", "--attach", &nothing, "--model", "m", "--prompt", "x"]).fails(&["cannot attach to it"]);
}

#[test]
fn what_a_server_does_not_report_is_null_and_no_rule_is_claimed() {
    let folder = tempfile::tempdir().unwrap();
    let [recording, page] = ["a.jsonl", "a.html"].map(|name| folder.path().join(name).to_str().unwrap().to_owned());
    let url = without_a_list(200, r#"{"object":"list","data":[{"id":"m"}]}"#);
    let ran = run(&["run", "--attach", &url, "--prompt", "x", "--output", "summary", "--trace", &recording]);
    let summary: Value = serde_json::from_str(&ran.text).unwrap();
    assert!(summary["prompt_tokens"].is_null() && summary["cached_tokens"].is_null(), "{}", ran.text);
    assert!(summary["header"].get("lossless").is_none() && summary["lossless"].is_null(), "{}", ran.text);
    assert_eq!(run(&["export", "--to", "html", "-o", &page, &recording]).code, Some(0));
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains(r#""reports_rule":false"#), "no rule is claimed");
    assert!(!page.contains(r#""lossless":true"#));
}

#[test]
fn metrics_without_models_are_watched() {
    let page = "# HELP x\npython_gc_total 3\nvllm:num_requests_running{engine=\"0\",model_name=\"org/qwen3-4b\"} 2\n\
                vllm:generation_tokens_total{model_name=\"org/qwen3-4b\"} 9\n";
    let (url, _) = serve(move |asked| (asked.path == "/metrics").then(|| bytes(page)));
    let watched = run(&["attach", "--watch", "--once", "--json", "--interval", "0.1", &url]);
    assert!(
        watched.text.contains("\"qwen3-4b\"") && watched.text.contains("\"vLLM\""),
        "{} {}",
        watched.text,
        watched.said
    );
    let (url, _) = serve(|asked| (asked.path == "/metrics").then(|| bytes("python_gc_total 3\n")));
    let watched = run(&["attach", "--watch", "--once", "--json", "--interval", "0.1", &url]);
    assert!(watched.text.contains("/v1/models"), "{} {}", watched.text, watched.said);
}
