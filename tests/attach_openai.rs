//! Attaching to servers with OpenAI routes: recorded streams of vLLM, and scripted ones in the form of other servers.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

#[path = "common/scripted.rs"]
mod scripted;

use draftscope::attach::{Api, AttachConfig, PlainServer, spawn};
use draftscope::headless::{CompareSummary, Driver, Outcome, Summary};
use draftscope::http::Access;
use draftscope::protocol::{Command, DrafterKind, EventKind, Lane, Message, Prompt, Settings, Speaker};
use scripted::{Routes, Seen, serve};

const OK: &str = "200 OK";
const COMPLETIONS: &str = include_str!("fixtures/attach/vllm/completions-logprobs.sse.txt");
const CHAT: &str = include_str!("fixtures/attach/vllm/chat-logprobs.sse.txt");
const BEFORE: &str = include_str!("fixtures/attach/vllm/metrics-before.prom");
const AFTER: &str = include_str!("fixtures/attach/vllm/metrics-after.prom");

fn models(owner: &str) -> String {
    format!(r#"{{"data":[{{"id":"HuggingFaceTB/SmolLM2","owned_by":"{owner}","max_model_len":2048}}]}}"#)
}

fn vllm(more: Routes) -> (String, Seen) {
    let mut routes: Routes = vec![
        ("/v1/models", OK, models("vllm")),
        ("/version", OK, r#"{"version":"0.32.0"}"#.to_owned()),
        ("/metrics", OK, BEFORE.to_owned()),
        ("/v1/chat/completions", OK, CHAT.to_owned()),
    ];
    routes.extend(more);
    serve(routes)
}

fn driver(config: AttachConfig) -> Driver {
    Driver::new(spawn(config).unwrap())
}

fn config(url: &str) -> AttachConfig {
    AttachConfig::new(url, Settings::default())
}

fn plain_server(url: &str) -> PlainServer {
    PlainServer { url: url.to_owned(), access: Access::default() }
}

fn chat() -> Prompt {
    Prompt::Chat(vec![Message { role: Speaker::User, content: "Repeat this".to_owned() }])
}

#[test]
fn recorded_rounds_equal_what_vllm_and_its_counters_say() {
    let (url, seen) = vllm(vec![("/v1/completions", OK, COMPLETIONS.to_owned())]);
    let mut driver = driver(config(&url));
    assert_eq!(driver.answer(Prompt::Raw("one two three".to_owned())), Outcome::Answered);
    let header = driver.session().header().unwrap();
    let engine = header.engine.as_ref().unwrap();
    assert_eq!((engine.name.as_str(), engine.version.as_str()), ("vLLM", "0.32.0"));
    assert_eq!((header.model.name.as_str(), header.ctx_len), ("SmolLM2", 2048));
    assert_eq!(header.drafter.as_ref().unwrap().name, "speculation with k = 4");
    assert_eq!(driver.session().drafter(), Some(DrafterKind::Unknown), "vLLM does not say which");
    let turn = driver.session().turn().unwrap();
    let summary = Summary::of(turn, Lane::Speculative);
    // the counters of the same answer: /metrics before and after
    let counted = |name: &str| {
        let read = |text: &str| -> f64 {
            text.lines().find(|line| line.starts_with(name)).unwrap().rsplit(' ').next().unwrap().parse().unwrap()
        };
        (read(AFTER) - read(BEFORE)) as u64
    };
    assert_eq!(summary.run.num_spec_steps, Some(counted("vllm:spec_decode_num_drafts_total")));
    assert_eq!(summary.run.num_draft_tokens, Some(counted("vllm:spec_decode_num_draft_tokens_total")));
    assert_eq!(summary.run.num_accepted_draft_tokens, Some(counted("vllm:spec_decode_num_accepted_tokens_total")));
    assert_eq!(summary.run.accepted_per_pos, [2, 2, 1, 1]);
    assert_eq!((summary.prompt_tokens, summary.output_tokens), (Some(25), 14));
    let answer = turn.answer(Lane::Speculative);
    let p = answer.rounds[0].judgement(1).unwrap().p.unwrap();
    assert!((p - (-0.049_761_f32).exp()).abs() < 1e-6, "{p}");
    let asked = &seen.lock().unwrap().last().unwrap().1.clone();
    for part in ["\"return_token_ids\":true", "\"include_usage\":true", "\"logprobs\":20", "\"stream_interval\":1"] {
        assert!(asked.contains(part), "{part}: {asked}");
    }
}

#[test]
fn a_branch_sends_the_ids_that_vllm_reported() {
    let (url, seen) = vllm(vec![("/v1/completions", OK, COMPLETIONS.to_owned())]);
    let mut driver = driver(config(&url));
    assert_eq!(driver.answer(chat()), Outcome::Answered);
    let turn = driver.session().turn().unwrap();
    assert_eq!(turn.answer(Lane::Speculative).text(), "The cat sat on the mat.");
    let tokens = turn.answer(Lane::Speculative).prompt.clone();
    assert_eq!(tokens.len(), 42);
    let branch = draftscope::protocol::Branch { turn: 1, kept: 0, forced: false };
    let from = draftscope::protocol::Continuation { typed: "x".to_owned(), tokens, branch, again: None };
    assert_eq!(driver.answer(Prompt::Branch(from)), Outcome::Answered);
    assert!(seen.lock().unwrap().last().unwrap().1.contains("\"prompt\":[1,9690,198,"));
}

#[test]
fn counters_stand_in_where_requests_have_no_figures() {
    let plain: String = COMPLETIONS.split_inclusive("\n\n").filter(|chunk| !chunk.contains("metrics")).collect();
    let others =
        AFTER.replace("num_drafts_total{engine=\"0\",model_name=\"smollm2\"} 2.0", "num_drafts_total{x=\"0\"} 5.0");
    let others = others
        .replace("num_draft_tokens_total{engine=\"0\",model_name=\"smollm2\"} 8.0", "num_draft_tokens_total 20.0");
    for (after, rate) in [(AFTER.to_owned(), Some(0.75)), (others, None)] {
        let (url, _) = serve(vec![
            ("/v1/models", OK, models("vllm")),
            ("/version", OK, r#"{"version":"0.32.0"}"#.to_owned()),
            ("/metrics", OK, BEFORE.to_owned()),
            ("/metrics", OK, BEFORE.to_owned()),
            ("/metrics", OK, after),
            ("/v1/completions", OK, plain.clone()),
        ]);
        let mut driver = driver(config(&url));
        assert_eq!(driver.answer(Prompt::Raw("one".to_owned())), Outcome::Answered);
        let notices: Vec<_> = driver.session().notices().collect();
        let says = notices.iter().any(|notice| notice.contains("accepted 6 of 20 drafts in 5 steps"));
        assert_eq!(says, rate.is_none(), "{notices:?}");
        let stats = driver.session().stats(Lane::Speculative);
        assert_eq!((stats.acceptance_rate(), stats.rounds()), (rate, 7), "no figure is made up");
    }
}

#[test]
fn a_refused_number_of_candidates_is_asked_without() {
    let refusal = r#"{"error":{"message":"Requested sample logprobs of 20, which is greater than max allowed: 5"}}"#;
    let (url, seen) = vllm(vec![
        ("/v1/completions", "400 Bad Request", refusal.to_owned()),
        ("/v1/completions", OK, COMPLETIONS.to_owned()),
    ]);
    let mut driver = driver(config(&url));
    assert_eq!(driver.answer(Prompt::Raw("one".to_owned())), Outcome::Answered);
    assert!(!seen.lock().unwrap().last().unwrap().1.contains("logprobs"));
}

/// In the form that SGLang's sources give its answers.
fn sglang() -> Routes {
    let stream = r#"data: {"choices":[{"delta":{"content":"One"},"token_ids":[11]}],"prompt_token_ids":[1,2]}

data: {"choices":[{"delta":{"content":" two three"},"token_ids":[12,13]}]}

data: {"choices":[{"delta":{"content":" four"},"token_ids":[14],"finish_reason":"length"}]}

data: {"choices":[],"sglext":{"spec_tokens_details":{"spec_num_correct_drafts":1,"spec_num_proposed_drafts":6,"spec_verify_ct":2}}}

data: [DONE]
"#;
    vec![
        ("/v1/models", OK, models("sglang")),
        ("/server_info", OK, r#"{"version":"0.5.23","speculative_algorithm":"EAGLE3"}"#.to_owned()),
        ("/v1/chat/completions", OK, stream.to_owned()),
    ]
}

#[test]
fn sglang_is_recognised_and_its_sums_count_the_rounds() {
    let (url, seen) = serve(sglang());
    let mut driver = driver(config(&url));
    assert_eq!(driver.answer(chat()), Outcome::Answered);
    let header = driver.session().header().unwrap();
    assert_eq!(header.drafter.as_ref().map(|d| (d.name.as_str(), d.kind)), Some(("eagle3", DrafterKind::Mtp)));
    let stats = driver.session().stats(Lane::Speculative);
    assert_eq!((stats.drafted(), stats.accepted(), stats.rounds_with_drafts()), (6, 1, 2));
    assert!(seen.lock().unwrap().last().unwrap().1.contains("\"return_spec_tokens_details\":true"));
}

fn other() -> Routes {
    let stream = r#"data: {"choices":[{"delta":{"content":"Hel"}}]}

data: {"choices":[{"delta":{"content":"lo."},"finish_reason":"stop"}]}

data: [DONE]
"#;
    vec![("/v1/models", OK, models("someone")), ("/v1/chat/completions", OK, stream.to_owned())]
}

#[test]
fn any_other_server_shows_text_and_says_what_is_missing() {
    let (url, seen) = serve(other());
    let mut driver = driver(config(&url));
    assert_eq!(driver.answer(chat()), Outcome::Answered);
    let turn = driver.session().turn().unwrap();
    assert_eq!(turn.answer(Lane::Speculative).text(), "Hello.");
    let notices: Vec<_> = driver.session().notices().collect();
    assert!(notices[0].contains("no token ids and no drafts"), "{notices:?}");
    let summary = Summary::of(turn, Lane::Speculative);
    let json = serde_json::to_value(&summary).unwrap();
    assert!(json["draft_acceptance_rate"].is_null() && json["output_token_ids"][0].is_null(), "{json}");
    let asked = seen.lock().unwrap().last().unwrap().1.clone();
    assert!(!asked.contains("return_token_ids") && !asked.contains("top_k"), "{asked}");
}

#[test]
fn the_api_can_be_given_and_a_server_without_any_is_an_error_in_one_sentence() {
    let (url, _) = vllm(Vec::new());
    let mut plain = driver(AttachConfig { api: Some(Api::Openai), ..config(&url) });
    assert_eq!(plain.answer(chat()), Outcome::Answered);
    assert_eq!(plain.session().header().unwrap().engine.as_ref().unwrap().name, "OpenAI-compatible server");
    let why = |config| match driver(config).answer(chat()) {
        Outcome::Failed(why) => why,
        other => panic!("{other:?}"),
    };
    let wrong = why(AttachConfig { api: Some(Api::Llama), ..config(&url) });
    assert!(wrong.contains("is no llama-server"), "{wrong}");
    let (nothing, _) = serve(Vec::new());
    let wrong = why(config(&nothing));
    assert!(wrong.contains("neither llama-server's /props nor an OpenAI-compatible /v1/models"), "{wrong}");
    let (closed, _) = serve(vec![("/props", "401 Unauthorized", r#"{"error":{"message":"wrong key"}}"#.to_owned())]);
    let wrong = why(config(&closed));
    assert!(wrong.contains("wants a key (wrong key): set DRAFTSCOPE_API_KEY"), "{wrong}");
}

#[test]
fn a_plain_server_answers_beside_and_both_texts_are_compared() {
    let (url, _) = vllm(vec![("/v1/completions", OK, COMPLETIONS.to_owned())]);
    let plain: String = COMPLETIONS.replace("\" is\"", "\" is not\"");
    for (stream, identical) in [(COMPLETIONS.to_owned(), true), (plain.replace("[314]", "[315]"), false)] {
        let (plain_url, seen) = vllm(vec![("/v1/completions", OK, stream)]);
        let mut driver = driver(AttachConfig { plain: Some(plain_server(&plain_url)), ..config(&url) });
        for _ in 0..2 {
            assert_eq!(driver.answer(Prompt::Raw("one".to_owned())), Outcome::Answered);
        }
        let turn = driver.session().turn().unwrap();
        assert_eq!(turn.answer(Lane::Plain).tokens.len(), 14);
        let agreement = turn.agreement().unwrap();
        assert_eq!(agreement.divergence.is_none(), identical, "{agreement:?}");
        let summary = CompareSummary::of(driver.session().turns()).unwrap();
        assert_eq!((summary.identical, summary.repeats), (Some(identical), 1));
        // a short prompt of the program's own warms the server up, and is in no turn
        let seen = seen.lock().unwrap();
        let prompts: Vec<_> = seen.iter().filter(|(head, _)| head.contains("/v1/completions")).collect();
        assert_eq!((prompts.len(), driver.session().turns().len()), (3, 2));
        assert!(
            prompts[0].1.contains("\"max_tokens\":16") && prompts[0].1.contains("one two three four"),
            "{prompts:?}"
        );
    }
}

#[test]
fn a_plain_server_that_cannot_be_reached_is_an_error_in_one_sentence() {
    let (url, _) = vllm(Vec::new());
    let config = AttachConfig { plain: Some(plain_server("http://127.0.0.1:1")), ..config(&url) };
    let Outcome::Failed(why) = driver(config).answer(chat()) else { panic!("nothing answers there") };
    assert!(why.contains("no answer from 127.0.0.1:1"), "{why}");
}

#[test]
fn what_a_server_cannot_do_is_answered_in_one_sentence() {
    let (url, _) = vllm(Vec::new());
    let mut source = spawn(config(&url)).unwrap();
    for command in [
        Command::SetDraftLen { draft_len: 2 },
        Command::SetRival { rival: None },
        Command::AskRows,
        Command::Generate { prompt: chat() },
        Command::Shutdown,
    ] {
        source.commands.send(command).unwrap();
    }
    let mut notices = Vec::new();
    while let Some(event) = source.events.blocking_recv() {
        if let EventKind::Notice { message } = event.kind {
            notices.push(message);
        }
    }
    let says = |part: &str| notices.iter().any(|notice| notice.contains(part));
    assert!(says("drafting is set where vLLM is started") && says("decodes nothing beside"), "{notices:?}");
    assert!(says("there is no answer yet"), "{notices:?}");
}

#[test]
fn an_answer_that_breaks_off_before_its_counts_keeps_its_text() {
    let cut: String = COMPLETIONS.split_inclusive("\n\n").take(3).collect();
    let (url, _) = vllm(vec![("/v1/completions", OK, cut)]);
    let mut driver = driver(config(&url));
    let Outcome::Failed(why) = driver.answer(Prompt::Raw("one".to_owned())) else { panic!("it breaks off") };
    assert!(why.starts_with("the answer broke off: "), "{why}");
    assert_eq!(
        driver.session().turn().unwrap().answer(Lane::Speculative).text(),
        " four five six seven eight nine ten.\n"
    );
}
