//! The commands that ask a server, from the command line: keys, JSON without what is not known, a baseline, a diff.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

#[path = "common/scripted.rs"]
mod scripted;

use std::path::Path;
use std::process::{Command, Output};

use scripted::{Routes, Seen, serve};
use serde_json::Value;

const OK: &str = "200 OK";
const STREAM: &str = include_str!("fixtures/attach/vllm/completions-logprobs.sse.txt");

fn vllm(stream: String) -> (String, Seen) {
    let models = r#"{"data":[{"id":"SmolLM2","owned_by":"vllm","max_model_len":2048}]}"#.to_owned();
    let metrics = include_str!("fixtures/attach/vllm/metrics-before.prom").to_owned();
    let routes: Routes = vec![
        ("/v1/models", OK, models),
        ("/version", OK, r#"{"version":"0.32.0"}"#.to_owned()),
        ("/metrics", OK, metrics),
        ("/v1/completions", OK, stream),
    ];
    serve(routes)
}

/// The same with fewer accepted drafts: the second step accepted nothing.
fn worse() -> String {
    let stream = STREAM.replace(r#""per_step_accepted":[4,2]"#, r#""per_step_accepted":[2,2]"#);
    let whole = r#""text":" five six seven eight nine""#;
    assert!(stream.contains(whole));
    let five = r#""token_ids":[2531,2976,4962,4475,7462]"#;
    // the step of five tokens becomes one of three, and two of one token
    let mut out = String::new();
    for chunk in stream.split_inclusive("\n\n") {
        if chunk.contains(five) {
            for (text, ids) in [(" five six seven", "[2531,2976,4962]"), (" eight", "[4475]"), (" nine", "[7462]")] {
                out.push_str(&format!("data: {{\"choices\":[{{\"text\":\"{text}\",\"token_ids\":{ids}}}]}}\n\n"));
            }
        } else {
            out.push_str(chunk);
        }
    }
    out
}

fn draftscope(args: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_draftscope"));
    command
        .args(args)
        .env_remove("DRAFTSCOPE_API_KEY")
        .env_remove("DRAFTSCOPE_PLAIN_API_KEY")
        .envs(env.iter().copied());
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn suite(folder: &Path) -> String {
    let path = folder.join("suite.toml");
    std::fs::write(&path, "[a]\nprompts = [\"one\", \"two\", \"three\"]\n").unwrap();
    path.display().to_string()
}

#[test]
fn a_key_reaches_the_server_and_no_recording() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("a.dscope.jsonl").display().to_string();
    let (url, seen) = vllm(STREAM.to_owned());
    let args = ["run", "--attach", &url, "--raw", "--trace", &trace, "--header", "X-Team=TEAM_KEY", "one"];
    let env = [("DRAFTSCOPE_API_KEY", "s3cret-one"), ("TEAM_KEY", "s3cret-two")];
    let output = draftscope(&args, &env);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).starts_with(" four five six"));
    for (head, _) in seen.lock().unwrap().iter() {
        assert!(head.contains("Bearer s3cret-one") && head.contains("s3cret-two"), "{head}");
    }
    let recorded = std::fs::read_to_string(&trace).unwrap();
    let shown = text(&output.stdout) + &text(&output.stderr);
    assert!(recorded.contains("\"recounted\"") && !recorded.contains("s3cret") && !shown.contains("s3cret"));
    let missing = draftscope(&["run", "--attach", &url, "--header", "X-Team=NOT_SET_AT_ALL", "one"], &[]);
    assert!(!missing.status.success() && text(&missing.stderr).contains("NOT_SET_AT_ALL is not set"));
}

#[test]
fn each_server_gets_its_own_key_and_not_that_of_the_other() {
    let ((url, seen), (plain, plain_seen)) = (vllm(STREAM.to_owned()), vllm(STREAM.to_owned()));
    let base = ["run", "--attach", &url, "--raw", "--plain-url", &plain, "--header", "X-Team=TEAM_KEY", "one"];
    let env = [("DRAFTSCOPE_API_KEY", "s3cret-one"), ("TEAM_KEY", "s3cret-two")];
    let ask = |more: &[&str], env: &[(&str, &str)]| {
        let output = draftscope(&[&base[..], more].concat(), env);
        assert!(output.status.success(), "{}", text(&output.stderr));
        [&seen, &plain_seen].map(|seen| std::mem::take(&mut *seen.lock().unwrap()))
    };
    let [own, other] = ask(&[], &env);
    assert!(own.iter().all(|(head, _)| head.contains("s3cret-one") && head.contains("s3cret-two")), "{own:?}");
    assert!(other.len() > 2 && other.iter().all(|(head, _)| !head.contains("s3cret")), "{other:?}");
    let more = [("DRAFTSCOPE_PLAIN_API_KEY", "plain-one"), ("PLAIN_TEAM", "plain-two")];
    let [own, other] = ask(&["--plain-header", "X-Team=PLAIN_TEAM"], &[&env[..], &more[..]].concat());
    assert!(own.iter().all(|(head, _)| head.contains("s3cret-one") && !head.contains("plain-")), "{own:?}");
    assert!(other.iter().all(|(head, _)| head.contains("plain-one") && head.contains("plain-two")), "{other:?}");
    let alone = draftscope(&["run", "--attach", &url, "--plain-header", "X-Team=PLAIN_TEAM", "one"], &env);
    assert!(!alone.status.success() && text(&alone.stderr).contains("--plain-url"), "{}", text(&alone.stderr));
}

#[test]
fn a_recorded_answer_replays_exports_and_equals_itself() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (url, _) = vllm(STREAM.to_owned());
    let (other, _) = vllm(worse());
    for (url, name) in [(&url, "a.dscope.jsonl"), (&other, "b.dscope.jsonl")] {
        let trace = at(name);
        let output =
            draftscope(&["run", "--attach", url, "--raw", "--trace", &trace, "--output", "summary", "one"], &[]);
        assert_eq!(json(&output)["num_draft_tokens"], 8);
    }
    let (a, b) = (at("a.dscope.jsonl"), at("b.dscope.jsonl"));
    assert!(text(&draftscope(&["replay", &a], &[]).stdout).contains("seven eight nine ten"));
    let csv = text(&draftscope(&["export", &a, "--to", "csv", "--out", "-"], &[]).stdout);
    assert_eq!(csv.lines().filter(|line| line.contains(",rejected,")).count(), 1, "{csv}");
    assert!(draftscope(&["diff", &a, &a], &[]).status.success());
    let diff = draftscope(&["diff", &a, &b], &[]);
    let report = text(&diff.stdout);
    assert!(report.contains("turn 1: identical, 14 tokens"), "{report}");
    assert!(report.contains("accepted, position 3") && !report.contains("accepted, position 1 "), "{report}");
}

#[test]
fn compare_writes_null_for_what_is_not_known_and_both_lanes_with_a_plain_server() {
    let (url, _) = vllm(STREAM.to_owned());
    let (plain, _) = vllm(STREAM.to_owned());
    let base = ["compare", "--attach", &url, "--raw", "--repeat", "1", "--output", "summary", "one"];
    let alone = json(&draftscope(&base, &[]));
    assert!(alone["plain"].is_null() && alone["identical"].is_null() && alone["speedup"].is_null(), "{alone}");
    assert_eq!(alone["speculative"]["num_accepted_draft_tokens"], 6);
    let both = json(&draftscope(&[&base[..], &["--plain-url", &plain]].concat(), &[]));
    assert_eq!((&both["identical"], &both["plain"]["output_tokens"]), (&Value::from(true), &Value::from(14)));
    let text = text(&draftscope(&["compare", "--attach", &url, "--raw", "--repeat", "1", "one"], &[]).stdout);
    assert!(text.contains("plain        unknown: name a server without speculation with --plain-url"), "{text}");
}

#[test]
fn bench_says_whether_acceptance_was_lost() {
    let folder = tempfile::tempdir().unwrap();
    let (suite, before) = (suite(folder.path()), folder.path().join("before.json").display().to_string());
    let bench = |url: &str, more: &[&str]| {
        let args = ["bench", "--attach", url, "--raw", "--suite", &suite, "--repeat", "2"];
        draftscope(&[&args[..], more].concat(), &[])
    };
    let (url, _) = vllm(STREAM.to_owned());
    let first = bench(&url, &["--json", &before]);
    assert!(first.status.success(), "{}", text(&first.stderr));
    let report: Value = serde_json::from_slice(&std::fs::read(&before).unwrap()).unwrap();
    let row = &report["rows"][0];
    assert_eq!((&row["rule"], &row["k"], &row["answers"]), (&"server".into(), &"server".into(), &6.into()), "{row}");
    assert!(row["identical"].is_null() && row["speedup"].is_null() && row["draft_acceptance_rate"] == 0.75);
    assert_eq!((&row["timings"]["draft_n"], &row["timings"]["draft_n_accepted"]), (&48.into(), &36.into()), "{row}");
    let matrix = &report["matrix"][0];
    assert_eq!((&matrix["categories"][0]["category"], &matrix["k"]), (&"a".into(), &"server".into()), "{matrix}");
    assert_eq!(matrix["all"]["draft_acceptance_rate"]["mean_of_answers"], 0.75, "{matrix}");
    let table = text(&first.stdout);
    assert!(table.starts_with("acceptance by") && table.contains("mean of categories"), "{table}");
    let same = bench(&url, &["--baseline", &before]);
    let lines = text(&same.stdout);
    assert!(same.status.success() && lines.contains("75.0 % → 75.0 %, no change"), "{lines}");
    let (url, _) = vllm(worse());
    let lost = bench(&url, &["--baseline", &before]);
    let lines = text(&lost.stdout);
    assert!(lines.contains("all") && lines.contains("75.0 % → 50.0 %, lost"), "{lines}");
    assert!(lines.contains("by position 3: 50 % → 0 %"), "{lines}");
    assert_eq!(lost.status.code(), Some(1), "another address or version of the server is no excuse");
    // the same suite after a restart with another k: compared, without a verdict
    let other_k = std::fs::read_to_string(&before).unwrap().replace("speculation with k = 4", "speculation with k = 3");
    std::fs::write(&before, other_k).unwrap();
    let again = bench(&url, &["--baseline", &before]);
    let lines = text(&again.stdout);
    assert!(lines.contains("the server's drafter: speculation with k = 3 → speculation with k = 4"), "{lines}");
    assert!(lines.contains("75.0 % → 50.0 %") && !lines.contains("were not run"), "{lines}");
    assert!(again.status.success(), "{lines}");
}

#[test]
fn bench_measures_a_server_at_several_depths_of_the_context() {
    let folder = tempfile::tempdir().unwrap();
    let suite = folder.path().join("rows.jsonl").display().to_string();
    std::fs::write(&suite, "{\"category\":\"qa\",\"turns\":[\"Why?\"],\"source\":\"x\"}\n").unwrap();
    let page = folder.path().join("depths.html").display().to_string();
    let bench = |url: &str, more: &[&str]| {
        let args = ["bench", "--attach", url, "--raw", "--suite", &suite, "--repeat", "1", "--context", "128,1024"];
        draftscope(&[&args[..], more].concat(), &[])
    };
    let (url, seen) = vllm(STREAM.to_owned());
    let alone = bench(&url, &["--html", &page]);
    let (table, notes) = (text(&alone.stdout), text(&alone.stderr));
    assert!(alone.status.success(), "{notes}");
    let at = |what: &str| table.find(what).unwrap_or_else(|| panic!("no {what} in {table}"));
    assert!(at("context 128") < at("context 1024"), "in the order of their depths: {table}");
    assert!(
        table.contains("whether drafts pay is not known without plain decoding beside it (--plain-url)"),
        "{table}"
    );
    assert!(!table.contains("mean of categories"), "depths have nothing in common: {table}");
    let asked: Vec<usize> =
        seen.lock().unwrap().iter().filter(|(head, _)| head.starts_with("POST")).map(|(_, body)| body.len()).collect();
    assert!(asked.iter().any(|len| (3_500..5_500).contains(len)), "a prompt of about 1,024 tokens: {asked:?}");
    let page = std::fs::read_to_string(&page).unwrap();
    assert!(page.contains("Acceptance by category") && page.contains("context 1024"));
}

#[test]
fn bench_asks_every_turn_of_a_conversation() {
    let (url, _) = vllm(STREAM.to_owned());
    let raw = draftscope(&["bench", "--attach", &url, "--raw", "--suite", "speed", "--repeat", "1"], &[]);
    let said = text(&raw.stderr);
    assert!(!raw.status.success() && said.contains("is a conversation") && said.contains("leave out --raw"), "{said}");
    let unknown = draftscope(&["bench", "--attach", &url, "--suite", "speed", "--categories", "maths"], &[]);
    let said = text(&unknown.stderr);
    assert!(said.contains("it has: coding, humanities, math, multilingual, qa, rag, reasoning, roleplay"), "{said}");
}

#[test]
fn an_address_that_is_not_what_it_says_is_an_error_in_one_sentence() {
    let (url, _) = vllm(STREAM.to_owned());
    let secure = url.replace("http://", "https://");
    for (args, says) in [
        (vec!["run", "--attach", &secure, "one"], "no answer from 127.0.0.1"),
        (vec!["run", "--attach", &url, "--api", "llama", "one"], "is no llama-server"),
        (vec!["run", "--attach", &url, "--api", "other", "one"], "must be one of llama, vllm, sglang, openai"),
        (vec!["attach", &url, &url], "only --watch takes several servers"),
        (vec!["run", "--attach", &url, "-k", "3", "one"], "cannot be used with"),
    ] {
        let output = draftscope(&args, &[]);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(says), "{args:?}: {said}");
    }
}

#[test]
fn watching_without_a_terminal_writes_json_lines() {
    use std::io::{BufRead, BufReader};
    let (url, _) = vllm(STREAM.to_owned());
    let mut child = Command::new(env!("CARGO_BIN_EXE_draftscope"))
        .args(["attach", "--watch", &url, "http://127.0.0.1:1"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut servers = [None, None];
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let server = line["server"].as_u64().unwrap() as usize;
        servers[server] = Some(line);
        if servers.iter().all(Option::is_some) {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let [Some(first), Some(second)] = servers else { panic!("both are looked at") };
    assert_eq!((&first["engine"], &first["counters"]["drafted"]), (&"vLLM".into(), &0.into()), "{first}");
    assert!(second["problem"].as_str().unwrap().contains("no answer from 127.0.0.1:1"), "{second}");
}

/// Answers as a llama-server does, with a recorded stream.
fn llama() -> (String, Seen) {
    const RECORDED: &str = include_str!("fixtures/attach/llama-draft-simple.sse.txt");
    let props = r#"{"default_generation_settings":{"n_ctx":64},"model_path":"a/b.gguf"}"#;
    let slots = r#"[{"speculative":true,"params":{"speculative.types":"draft-simple"}}]"#;
    serve(vec![
        ("/props", OK, props.to_owned()),
        ("/slots", OK, slots.to_owned()),
        ("/tokenize", OK, r#"{"tokens":[{"id":2,"piece":"<|im_end|>"}]}"#.to_owned()),
        ("/completion", OK, RECORDED.to_owned()),
    ])
}

/// The body of the newest request to a path.
fn asked(seen: &Seen, path: &str) -> Option<Value> {
    let seen = seen.lock().unwrap();
    let is_of = |head: &str| head.split(' ').nth(1) == Some(path);
    let body = seen.iter().rev().find(|(head, _)| is_of(head)).map(|(_, body)| body.clone())?;
    Some(serde_json::from_str(&body).unwrap())
}

#[test]
fn a_json_schema_reaches_each_server_in_its_own_form() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("schema.json").display().to_string();
    let schema = serde_json::json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]});
    std::fs::write(&path, schema.to_string()).unwrap();
    let trace = folder.path().join("a.dscope.jsonl").display().to_string();
    let said = |output: &Output| {
        let notices = text(&output.stderr);
        assert!(output.status.success(), "{notices}");
        assert!(notices.contains("the probabilities that it reports are those before its mask"), "{notices}");
    };

    let (url, seen) = llama();
    said(&draftscope(&["run", "--attach", &url, "--raw", "--json-schema", &path, "--trace", &trace, "one"], &[]));
    let body = asked(&seen, "/completion").unwrap();
    assert_eq!((&body["json_schema"], body.get("response_format")), (&schema, None), "{body}");
    let recorded = std::fs::read_to_string(&trace).unwrap();
    let header: Value = serde_json::from_str(recorded.lines().next().unwrap()).unwrap();
    let grammar = &header["header"]["grammar"];
    assert_eq!((grammar["kind"].as_str(), grammar["text"].as_str()), (Some("json-schema"), Some(&*schema.to_string())));

    let (url, seen) = vllm(STREAM.to_owned());
    for args in [
        &["run", "--attach", &url, "--raw", "--json-schema", &path, "one"][..],
        &["attach", &url, "--raw", "--json-schema", &path, "--prompt", "one"],
    ] {
        seen.lock().unwrap().clear();
        said(&draftscope(args, &[]));
        let body = asked(&seen, "/v1/completions").unwrap();
        let format = &body["response_format"];
        assert_eq!(
            (format["type"].as_str(), &format["json_schema"]["schema"]),
            (Some("json_schema"), &schema),
            "{body}"
        );
        assert!(format["json_schema"]["name"].is_string() && body.get("json_schema").is_none(), "{body}");
    }
    let suite = suite(folder.path());
    seen.lock().unwrap().clear();
    let args = ["bench", "--attach", &url, "--raw", "--repeat", "1", "--suite", &suite, "--json-schema", &path];
    assert!(draftscope(&args, &[]).status.success());
    assert_eq!(asked(&seen, "/v1/completions").unwrap()["response_format"]["json_schema"]["schema"], schema);

    // without a schema nothing is sent, and what servers take in forms that differ is refused before a request
    seen.lock().unwrap().clear();
    assert!(draftscope(&["run", "--attach", &url, "--raw", "one"], &[]).status.success());
    assert_eq!(asked(&seen, "/v1/completions").unwrap().get("response_format"), None);
    seen.lock().unwrap().clear();
    let refused = draftscope(&["run", "--attach", &url, "--raw", "--regex", "a+", "one"], &[]);
    assert!(!refused.status.success() && text(&refused.stderr).contains("--json-schema"), "{}", text(&refused.stderr));
    assert_eq!(asked(&seen, "/v1/completions"), None);
}
