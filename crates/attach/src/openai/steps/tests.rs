//! Steps from recorded streams of vLLM, and from arbitrary ones.

use proptest::prelude::*;

use super::super::stream::Stream;
use super::*;
use crate::server::{Line, Reader as _};
use draftscope_protocol::CountedRound;

fn reader(dialect: Dialect) -> Stream {
    Stream::new(Steps::new(dialect, Shared::offline(dialect)))
}

/// Parts of a stream whose lines arrive a millisecond apart.
fn replay(dialect: Dialect, text: &str) -> Vec<Part> {
    let (mut steps, mut names, mut parts) = (reader(dialect), Names::default(), Vec::new());
    for (index, line) in text.lines().enumerate() {
        match steps.line(line, index as u64 * 1000, &mut names) {
            Line::Parts(more) => parts.extend(more),
            other => assert_eq!(other, Line::Empty),
        }
    }
    parts.extend(steps.close());
    parts
}

fn steps(parts: &[Part]) -> Vec<&Step> {
    parts.iter().filter_map(|part| if let Part::Step(step) = part { Some(step) } else { None }).collect()
}

fn recounted(parts: &[Part]) -> Vec<CountedRound> {
    let found = parts.iter().find_map(|part| if let Part::Recounted(rounds) = part { Some(rounds) } else { None });
    found.unwrap().clone()
}

fn notices(parts: &[Part]) -> Vec<&str> {
    parts.iter().filter_map(|part| if let Part::Notice(text) = part { Some(text.as_str()) } else { None }).collect()
}

fn text(parts: &[Part]) -> String {
    let tokens = parts.iter().flat_map(|part| match part {
        Part::First { token, .. } => vec![token.clone()],
        Part::Step(step) => step.tokens.clone(),
        _ => Vec::new(),
    });
    tokens.map(|token| String::from_utf8_lossy(token.text_bytes()).into_owned()).collect()
}

const RECORDED: [(&str, &str, &[usize]); 3] = [
    (
        "completions",
        include_str!("../../../../../tests/fixtures/attach/vllm/completions.sse.txt"),
        &[5, 3, 1, 1, 1, 1, 1],
    ),
    (
        "completions-logprobs",
        include_str!("../../../../../tests/fixtures/attach/vllm/completions-logprobs.sse.txt"),
        &[5, 3, 1, 1, 1, 1, 1],
    ),
    (
        "completions-interval3",
        include_str!("../../../../../tests/fixtures/attach/vllm/completions-interval3.sse.txt"),
        &[5, 3, 3, 2],
    ),
];
const CHAT: &str = include_str!("../../../../../tests/fixtures/attach/vllm/chat-logprobs.sse.txt");

#[test]
fn recorded_completions_give_the_steps_that_vllm_counted() {
    for (name, stream, chunks) in RECORDED {
        let parts = replay(Dialect::Vllm, stream);
        let sizes: Vec<_> = steps(&parts).iter().map(|step| step.tokens.len()).collect();
        assert_eq!(sizes, chunks, "{name}: a chunk is a step");
        let Part::Prompt(prompt) = &parts[0] else { panic!("{name}: {:?}", parts[0]) };
        assert_eq!(prompt.len(), 25);
        assert_eq!(text(&parts), " four five six seven eight nine ten.\n\nThe answer is ", "{name}");
        let rounds = recounted(&parts);
        let drafted: Vec<_> = rounds.iter().filter(|r| r.drafted > 0).map(|r| (r.accepted, r.drafted)).collect();
        assert_eq!(drafted, [(4, 4), (2, 4)], "{name}: per_step_accepted and per_step_drafted");
        assert_eq!(rounds.iter().map(|r| usize::from(r.committed)).sum::<usize>(), 13, "{name}");
        assert_eq!(rounds.len(), 7, "{name}: also what stream_interval 3 had merged");
        let is_merged = name.ends_with("interval3");
        assert_eq!(
            notices(&parts).iter().filter(|notice| notice.contains("more than one way")).count(),
            usize::from(is_merged)
        );
        assert_eq!(notices(&parts).len(), usize::from(is_merged), "{name}");
        assert_eq!(parts.last(), Some(&Part::End(StopReason::MaxTokens)), "{name}");
    }
}

#[test]
fn log_probabilities_become_rows_at_committed_positions() {
    let parts = replay(Dialect::Vllm, RECORDED[1].1);
    let Some(Part::First { token, row: Some(row), .. }) = parts.get(1) else { panic!("{:?}", parts[1]) };
    assert_eq!((token.id, row.best().unwrap().piece.id), (TokenId(1876), TokenId(1876)));
    assert!((row.best().unwrap().prob - (-0.089_569_f32).exp()).abs() < 1e-6);
    let step = steps(&parts)[0];
    assert_eq!((step.rows.len(), step.probs.len(), step.tokens[1].lossy().as_ref()), (5, 5, " six"));
    assert_eq!(step.rows[1].best().unwrap().piece.id, step.tokens[1].id, "a candidate with the token's text is it");
    assert_eq!(step.rows[1].top[1].piece.id, step.tokens[2].id, "' seven' was seen in this chunk");
    assert_eq!(step.rows[4].top[1].piece.id, TokenId::UNKNOWN, "nothing says the id of ' ninety'");
    let total: f32 = step.rows[1].top.iter().map(|c| c.prob).sum::<f32>() + step.rows[1].tail;
    assert!((total - 1.0).abs() < 1e-6);
}

#[test]
fn a_recorded_chat_ends_with_a_control_token_and_a_cut_step() {
    let parts = replay(Dialect::Vllm, CHAT);
    assert_eq!(text(&parts), "The cat sat on the mat.");
    let last = steps(&parts).last().copied().unwrap();
    assert!(last.tokens[2].special && last.tokens[2].lossy() == "<|im_end|>");
    let last = *recounted(&parts).last().unwrap();
    assert_eq!((last.drafted, last.accepted, last.committed), (4, 4, 3), "accepted 4, of which the answer takes 2");
    assert_eq!(parts.last(), Some(&Part::End(StopReason::Eos)));
}

#[test]
fn without_counts_a_sentence_says_how_to_get_them() {
    let stream: String = RECORDED[0].1.split_inclusive("\n\n").filter(|chunk| !chunk.contains("metrics")).collect();
    let parts = replay(Dialect::Vllm, &stream);
    assert!(!parts.iter().any(|part| matches!(part, Part::Recounted(_))));
    assert!(notices(&parts)[0].contains("--enable-per-request-metrics"), "{:?}", notices(&parts));
    let sums = RECORDED[0].1.replace("per_step", "other");
    let rounds = recounted(&replay(Dialect::Vllm, &sums));
    let drafted: Vec<_> = rounds.iter().map(|r| (r.accepted, r.drafted)).filter(|r| r.1 > 0).collect();
    assert_eq!(drafted, [(4, 4), (2, 4)], "sums are enough here");
    let unclear = sums.replace("\"num_spec_steps\":2", "\"num_spec_steps\":3");
    let unclear = unclear.replace("\"num_draft_tokens\":8", "\"num_draft_tokens\":12");
    let parts = replay(Dialect::Vllm, &unclear);
    assert!(notices(&parts)[0].contains("accepted 6 of 12 drafts in 3 steps"), "{:?}", notices(&parts));
}

/// A stream in the form that SGLang's sources give it.
const SGLANG: &str = r#"data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}
data: {"choices":[{"index":0,"delta":{"content":"One"},"token_ids":[11]}],"prompt_token_ids":[1,2]}
data: {"choices":[{"index":0,"delta":{"content":" two three"},"token_ids":[12,13]}]}
data: {"choices":[{"index":0,"delta":{"content":" four"},"token_ids":[14],"finish_reason":"length"}]}
data: {"choices":[],"sglext":{"spec_tokens_details":{"spec_num_correct_drafts":1,"spec_num_proposed_drafts":6,"spec_verify_ct":2}}}
data: [DONE]"#;

#[test]
fn sglang_s_sums_count_the_rounds() {
    let parts = replay(Dialect::Sglang, SGLANG);
    let rounds: Vec<_> = recounted(&parts).iter().map(|r| (r.drafted, r.accepted, r.committed)).collect();
    assert_eq!(rounds, [(3, 1, 2), (3, 0, 1)]);
    assert_eq!(text(&parts), "One two three four");
    let merged = SGLANG.replace("\"spec_verify_ct\":2", "\"spec_verify_ct\":3");
    assert!(notices(&replay(Dialect::Sglang, &merged))[0].contains("accepted 1 of 6 drafts in 3 steps"));
}

#[test]
fn any_other_server_gives_text_and_a_count_of_pieces() {
    let stream = r#"data: {"choices":[{"delta":{"content":"Hel"}}]}
data: {"choices":[{"delta":{"content":"lo."}}]}
data: {"choices":[{"delta":{},"finish_reason":"stop"}]}
data: {"choices":[],"usage":{"completion_tokens":5}}
data: [DONE]"#;
    let parts = replay(Dialect::Plain, stream);
    assert_eq!(text(&parts), "Hello.");
    assert!(steps(&parts).iter().all(|step| step.drafted == 0 && step.tokens[0].id.is_unknown()));
    assert!(notices(&parts)[0].contains("5 tokens in the 2 pieces"), "{:?}", notices(&parts));
}

proptest! {
    #[test]
    fn any_stream_keeps_the_text(
        chunks in prop::collection::vec(("[a-z\u{e9}]{0,4}", prop::collection::vec(any::<u32>(), 0..6), any::<bool>()), 0..20),
        steps in prop::option::of(prop::collection::vec((0_u64..9, 0_u64..9), 0..9)),
    ) {
        let mut stream = String::new();
        for (text, ids, logs) in &chunks {
            let entry = |id: &u32| serde_json::json!({"token": format!("t{id}"), "logprob": -0.5});
            let logprobs = logs.then(|| serde_json::json!({"content": ids.iter().map(entry).collect::<Vec<_>>()}));
            let choice = serde_json::json!({"text": text, "token_ids": ids, "logprobs": logprobs});
            stream.push_str(&format!("data: {}\n", serde_json::json!({"choices": [choice]})));
        }
        if let Some(steps) = &steps {
            let list = |of: fn(&(u64, u64)) -> u64| steps.iter().map(of).collect::<Vec<_>>();
            let counts = serde_json::json!({"per_step_accepted": list(|s| s.0), "per_step_drafted": list(|s| s.1)});
            stream.push_str(&format!("data: {}\n", serde_json::json!({"metrics": {"speculative_decoding": counts}})));
        }
        stream.push_str("data: {\"choices\":[{\"finish_reason\":\"stop\"}]}\ndata: [DONE]\n");
        let parts = replay(Dialect::Vllm, &stream);
        let sent: String = chunks.iter().map(|(text, ..)| text.as_str()).collect();
        prop_assert_eq!(text(&parts), sent);
        let tokens: usize = self::steps(&parts).iter().map(|step| step.tokens.len()).sum();
        for part in &parts {
            if let Part::Recounted(rounds) = part {
                prop_assert_eq!(rounds.iter().map(|r| usize::from(r.committed)).sum::<usize>(), tokens);
            }
        }
    }

    #[test]
    fn any_line_is_read_without_a_panic(line in ".{0,200}") {
        for line in [line.clone(), format!("data: {line}")] {
            let _ = reader(Dialect::Vllm).line(&line, 0, &mut Names::default());
        }
    }
}
