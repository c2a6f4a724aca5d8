//! Figures of attached servers: what others' requests, other models and other names must not change.

use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::scripted::{Routes, reply, serve, serve_with};

const OK: &str = "200 OK";

fn draftscope(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_draftscope"));
    command.args(args).env_remove("DRAFTSCOPE_API_KEY").env_remove("DRAFTSCOPE_PLAIN_API_KEY").output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json_of(output: &Output) -> Value {
    let found = serde_json::from_slice(&output.stdout);
    found.unwrap_or_else(|_| panic!("{} {}", text(&output.stdout), text(&output.stderr)))
}

fn models(id: &str) -> String {
    json!({"data": [{"id": id, "owned_by": "vllm", "max_model_len": 2048}]}).to_string()
}

/// An answer of vLLM without the two flags: chunks of so many tokens.
fn stream(chunks: &[u32]) -> String {
    let mut out = String::new();
    let mut id = 10;
    for size in chunks {
        let ids: Vec<u32> = (id..id + size).collect();
        id += size;
        let words: String = ids.iter().map(|id| format!(" w{id}")).collect();
        out.push_str(&format!("data: {}\n\n", json!({"choices": [{"text": words, "token_ids": ids}]})));
    }
    out.push_str(&format!("data: {}\n\n", json!({"choices": [{"text": "", "finish_reason": "length"}]})));
    let tokens: u32 = chunks.iter().sum();
    out.push_str(&format!(
        "data: {}\n\ndata: [DONE]\n\n",
        json!({"choices": [], "usage": {"completion_tokens": tokens}})
    ));
    out
}

/// vLLM's counters: steps with drafts, drafted, accepted and all tokens.
fn counters([steps, drafted, accepted, generated]: [u64; 4]) -> String {
    let per_pos: String = (0..4)
        .map(|at| format!("vllm:spec_decode_num_accepted_tokens_per_pos_total{{position=\"{at}\"}} {}\n", accepted / 4))
        .collect();
    format!(
        "vllm:spec_decode_num_drafts_total {steps}\nvllm:spec_decode_num_draft_tokens_total {drafted}\n\
         vllm:spec_decode_num_accepted_tokens_total {accepted}\nvllm:generation_tokens_total {generated}\n{per_pos}"
    )
}

/// vLLM with default flags, whose counters rise by this while it answers.
fn vllm(id: &str, chunks: &[u32], rise: [u64; 4]) -> String {
    let (asked, models, stream) = (AtomicU64::new(0), models(id), stream(chunks));
    let before = [10, 40, 20, 500];
    let answer = move |path: &str, out: &mut dyn std::io::Write| match path {
        "/v1/models" => reply(out, OK, &models),
        "/version" => reply(out, OK, r#"{"version":"0.33.0"}"#),
        "/v1/completions" => {
            asked.fetch_add(1, Ordering::SeqCst);
            reply(out, OK, &stream);
        }
        "/metrics" => {
            let answers = asked.load(Ordering::SeqCst);
            reply(out, OK, counters([0, 1, 2, 3].map(|at| before[at] + answers * rise[at])));
        }
        _ => reply(out, "404 Not Found", ""),
    };
    serve_with(answer).0
}

fn summary(url: &str) -> (Value, String) {
    let output = draftscope(&["run", "--attach", url, "--raw", "--max-tokens", "14", "--output", "summary", "one two"]);
    (json_of(&output), text(&output.stderr))
}

#[test]
fn counters_count_for_an_answer_only_where_they_hold_nothing_else() {
    // 14 tokens: the first, two steps of five, and one that the limit cut to three
    let (own, notes) = summary(&vllm("m", &[1, 5, 5, 3], [3, 12, 12, 14]));
    assert_eq!((&own["num_spec_steps"], &own["num_draft_tokens"]), (&json!(3), &json!(12)), "{notes}");
    assert_eq!(own["num_accepted_draft_tokens"], 12, "the cut step accepted four");
    // somebody else's 70 tokens are among them
    let (shared, notes) = summary(&vllm("m", &[1, 5, 5, 3], [21, 84, 73, 84]));
    for field in ["num_spec_steps", "num_spec_tokens", "num_draft_tokens", "num_accepted_draft_tokens"] {
        assert_eq!(shared[field], Value::Null, "{field}");
    }
    assert!(notes.contains("others use this server: its counters rose by 84 tokens, this answer has 14"), "{notes}");
    assert!(!notes.contains("73 of 84"), "{notes}");
    // counters that miss tokens of this answer say nothing of others
    let (missing, notes) = summary(&vllm("m", &[1, 5, 5, 3], [1, 4, 2, 5]));
    assert_eq!(missing["num_draft_tokens"], Value::Null);
    assert!(notes.contains("the server's counters rose by 5 tokens, this answer has 14"), "{notes}");
    assert!(!notes.contains("others use"), "{notes}");
    // a server that counts no tokens: its drafts do not fit the answer
    let (odd, notes) = summary(&vllm("m", &[1, 1, 1], [2, 8, 8, 3]));
    assert_eq!(odd["num_draft_tokens"], Value::Null);
    assert!(notes.contains("more than its tokens can hold"), "{notes}");
}

#[test]
fn nothing_is_claimed_of_a_server_that_was_not_asked() {
    let (found, notes) = summary(&vllm("m", &[1, 5, 3], [2, 8, 6, 9]));
    assert_eq!(found["lossless"], Value::Null);
    assert_eq!(found["header"]["drafter"]["kind"], "unknown", "vLLM does not name its drafter");
    assert!(notes.contains("--per-request-spec-decode-metrics"), "what two flags would show: {notes}");
}

#[test]
fn another_model_behind_plain_url_gives_no_speedup() {
    let (own, plain) = (vllm("big-8B", &[1, 5, 5, 3], [3, 12, 12, 14]), vllm("small-1B", &[1; 14], [0, 0, 0, 14]));
    let args =
        ["compare", "--attach", &own, "--plain-url", &plain, "--raw", "--repeat", "1", "--max-tokens", "14", "one"];
    let output = draftscope(&args);
    let said = text(&output.stdout);
    assert!(said.contains("speedup      none: the plain server runs small-1B, this one big-8B"), "{said}");
    assert!(said.contains("first run    4.33 tokens per round"), "{said}");
    let whole = draftscope(&[&args[..], &["--output", "summary"]].concat());
    assert_eq!(json_of(&whole)["speedup"], Value::Null);
}

/// Lines of `attach --watch --once --json`.
fn looked(url: &str, more: &[&str]) -> (Value, Output) {
    let args = ["attach", "--watch", "--once", "--json", "--interval", "0.2", url];
    let output = draftscope(&[&args[..], more].concat());
    (json_of(&output), output)
}

#[test]
fn names_with_the_prefixes_of_other_programs_are_read() {
    for name in ["ray_vllm:", "ray_vllm_", "vllm:"] {
        for total in ["_total", ""] {
            let page = counters([10, 40, 20, 30]).replace("vllm:", name).replace("_total", total);
            let page = page.replace("tokens 30", "tokens{engine=\"0\"} 10\nNAMEgeneration_tokens{engine=\"1\"} 20");
            let page = page.replace("NAME", name);
            let (url, _) = serve(vec![("/v1/models", OK, models("m")), ("/metrics", OK, page)]);
            let (line, _) = looked(&url, &[]);
            assert_eq!(line["problem"], Value::Null, "{name}{total}: {line}");
            let counted = ["steps", "drafted", "accepted", "generated"].map(|field| line["counters"][field].as_u64());
            assert_eq!(counted, [10, 40, 20, 30].map(Some), "{name}{total}");
            assert_eq!(line["since_start"]["accepted_per_pos"], json!([0.5, 0.5, 0.5, 0.5]), "{line}");
            assert_eq!(line["since_start"]["drafting_share"], 1.0);
        }
    }
}

/// A llama-server that writes an answer: its slot has 20 tokens more at each look, its counters stand still.
fn writing() -> String {
    let looks = AtomicU64::new(0);
    let answer = move |path: &str, out: &mut dyn std::io::Write| match path {
        "/props" => reply(out, OK, r#"{"default_generation_settings":{"n_ctx":2048},"model_path":"/m/Tiny.gguf"}"#),
        "/metrics" => reply(out, OK, "llamacpp:tokens_predicted_total 300\nllamacpp:requests_processing 1\n"),
        "/slots" => {
            let decoded = 20 * looks.fetch_add(1, Ordering::SeqCst);
            let slot = json!({"id": 0, "id_task": 3, "is_processing": true, "speculative": true, "n_ctx": 2048,
                              "next_token": [{"n_decoded": decoded}]});
            reply(out, OK, json!([slot]).to_string());
        }
        _ => reply(out, "404 Not Found", ""),
    };
    serve_with(answer).0
}

#[test]
fn an_answer_that_is_being_written_has_a_speed() {
    let (line, _) = looked(&writing(), &[]);
    let [speed, seconds] = ["tokens_per_second", "seconds"].map(|name| line["recent"][name].as_f64().unwrap());
    // however long a look takes on a busy machine
    assert!((speed * seconds - 20.0).abs() < 0.5, "20 tokens between two looks: {speed} tokens/s for {seconds} s");
    assert!(seconds >= 0.19, "{seconds}: a look starts an interval after the last answer");
    assert_eq!((&line["slots"][0]["task"], &line["model"]), (&json!(3), &json!("Tiny")));
}

#[test]
fn a_condition_gives_the_exit_status() {
    let url = writing();
    let (line, output) = looked(&url, &["--alert", "tokens/s<500"]);
    assert_eq!((output.status.code(), &line["alerts"]), (Some(1), &json!(["tokens/s<500"])));
    assert!(text(&output.stderr).contains("tokens/s<500, it is"), "{}", text(&output.stderr));
    let (line, output) = looked(&url, &["--alert", "tokens/s>500", "--alert", "acceptance<0.9"]);
    assert_eq!((output.status.code(), &line["alerts"]), (Some(0), &json!([])), "what is not known holds nothing");
    let began = std::time::Instant::now();
    let (_, output) = looked(&url, &["--alert", "tokens/s<500 for 700ms"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(began.elapsed() >= Duration::from_millis(700), "it is decided when it has held so long");
    let wrong = draftscope(&["attach", "--watch", "--alert", "speed<3", &url]);
    assert!(text(&wrong.stderr).contains("'speed' is no figure"), "{}", text(&wrong.stderr));
}

#[test]
fn a_history_is_recorded_and_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("watch.jsonl").display().to_string();
    let (_, output) = looked(&writing(), &["--history", &path]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let again = draftscope(&["attach", "--watch", "--once", "--history", &path, &writing()]);
    let refused = text(&again.stderr);
    assert!(!again.status.success() && refused.contains("watch.jsonl"), "an earlier history stays: {refused}");
    let replayed = draftscope(&["replay", &path]);
    let lines: Vec<Value> = text(&replayed.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2, "{}", text(&replayed.stderr));
    assert!(lines[1]["recent"]["tokens_per_second"].as_f64().unwrap() > 0.0, "{}", lines[1]);
}

#[test]
fn repeats_of_a_server_that_may_remember_are_varied_and_apart() {
    let folder = tempfile::tempdir().unwrap();
    let suite = folder.path().join("suite.toml").display().to_string();
    std::fs::write(&suite, "[a]\nprompts = [\"one\", \"two\"]\n").unwrap();
    let routes: Routes = vec![
        ("/v1/models", OK, models("m")),
        ("/version", OK, r#"{"version":"0.33.0"}"#.to_owned()),
        ("/metrics", OK, counters([1, 4, 2, 9])),
        ("/v1/completions", OK, stream(&[1, 5, 3])),
    ];
    let (url, seen) = serve(routes);
    let output = draftscope(&["bench", "--attach", &url, "--raw", "--suite", &suite, "--repeat", "2"]);
    let (table, notes) = (text(&output.stdout), text(&output.stderr));
    assert!(table.contains("a, first") && notes.contains("may draft from earlier answers"), "{table}{notes}");
    let seen = seen.lock().unwrap();
    let prompts: Vec<String> = seen
        .iter()
        .filter(|(head, _)| head.starts_with("POST"))
        .map(|(_, body)| serde_json::from_str::<Value>(body).unwrap()["prompt"].as_str().unwrap().to_owned())
        .collect();
    let unlike: std::collections::BTreeSet<&String> = prompts.iter().collect();
    assert_eq!((prompts.len(), unlike.len()), (5, 5), "the warm-up and each repeat ask something else: {prompts:?}");
}
