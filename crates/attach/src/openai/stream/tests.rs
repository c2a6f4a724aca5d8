//! Streams line by line: thought, ends, and text in any form.

use proptest::prelude::*;
use serde_json::json;

use super::super::{Dialect, Shared};
use super::*;

fn parts(text: &str) -> Vec<Part> {
    let mut stream = Stream::new(Steps::new(Dialect::Plain, Shared::offline(Dialect::Plain)));
    let (mut names, mut parts) = (Names::default(), Vec::new());
    for line in text.lines() {
        match stream.line(line, 0, &mut names) {
            Line::Parts(more) => parts.extend(more),
            Line::Error(words) => {
                parts.push(Part::Notice(format!("error: {words}")));
                return parts;
            }
            Line::Empty | Line::Garbage => {}
        }
    }
    parts.extend(stream.close());
    parts
}

/// The texts of the tokens.
fn tokens(parts: &[Part]) -> Vec<String> {
    let mut all = Vec::new();
    for part in parts {
        match part {
            Part::First { token, .. } => all.push(token.lossy().into_owned()),
            Part::Step(step) => all.extend(step.tokens.iter().map(|token| token.lossy().into_owned())),
            _ => {}
        }
    }
    all
}

fn delta(delta: &Value) -> String {
    format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": delta}]}))
}

#[test]
fn the_last_token_of_a_thought_holds_the_mark_that_ends_it() {
    let stream =
        [json!({"reasoning": "a"}), json!({"reasoning": " b"}), json!({"content": "c"}), json!({"content": "d"})];
    let text: String = stream.iter().map(delta).collect();
    let all = parts(&(text.clone() + "data: [DONE]\n"));
    assert_eq!(tokens(&all), ["<think>a", " b</think>\n\n", "c", "d"]);
    assert_eq!(all.last(), Some(&Part::End(StopReason::Eos)));
    let cut = parts(text[..text.find("content").unwrap()].rsplit_once("data:").unwrap().0);
    assert_eq!(tokens(&cut), ["<think>a", " b"], "nothing is held back at the end");
    assert!(!cut.iter().any(|part| matches!(part, Part::End(_))), "a closed connection is no end");
}

#[test]
fn a_reason_that_is_a_fault_is_said() {
    let text = format!("data: {}\n", json!({"choices": [{"delta": {"content": "a"}, "finish_reason": "error"}]}));
    let all = parts(&text);
    assert_eq!(all.last(), Some(&Part::End(StopReason::BrokenOff)));
    assert!(matches!(&all[all.len() - 2], Part::Notice(text) if text.contains("\"error\"")), "{all:?}");
}

proptest! {
    #[test]
    fn no_text_is_lost_whatever_stands_beside_it(
        chunks in prop::collection::vec((any::<bool>(), "[a-z é]{1,5}", 0u8..6), 1..12)
    ) {
        let (mut stream, mut thought, mut answer) = (String::new(), String::new(), String::new());
        for (is_thought, text, form) in &chunks {
            let value = match form {
                0 => json!([{"type": "text", "text": text}]),
                1 => json!([text]),
                2 => json!({"text": text}),
                _ => json!(text),
            };
            let name = if *is_thought { "reasoning" } else { "content" };
            let extra = if *form == 5 { json!([1, null, "x"]) } else { json!(null) };
            let chunk = json!({"choices": [{"delta": {name: value}, "logprobs": extra, "token_ids": extra}], "usage": extra});
            stream.push_str(&format!("data: {chunk}\n\n"));
            if *is_thought { thought.push_str(text) } else { answer.push_str(text) }
        }
        let all = tokens(&parts(&(stream + "data: [DONE]\n"))).concat();
        let count = |text: &str| text.chars().filter(|c| !c.is_whitespace()).count();
        let marks = all.matches("<think>").count() * 7 + all.matches("</think>").count() * 8;
        prop_assert_eq!(count(&all), count(&thought) + count(&answer) + marks, "{}", all);
    }

    #[test]
    fn any_lines_are_read_without_a_panic(lines in prop::collection::vec("(data: |event: |error: |)[\\[\\]{}\":,a-z0-9 ]{0,40}", 0..8)) {
        parts(&lines.join("\n"));
    }
}

#[test]
fn a_whole_answer_at_the_end_of_its_own_stream_is_shown_once() {
    let begin = delta(&json!({"reasoning": "Hm"})) + &delta(&json!({"content": "ha"}));
    let message = json!({"role": "assistant", "content": "haha", "reasoning": "Hm"});
    for last in [
        json!({"choices": [{"delta": {}, "message": message, "finish_reason": "stop"}]}),
        json!({"choices": [{"message": {"content": "haha"}, "finish_reason": "stop"}]}),
        json!({"type": "response.output_text.done", "text": "haha"}),
    ] {
        // a token that is the same as all before it is no repetition
        let text = format!("{begin}{}data: {last}\n\ndata: [DONE]\n", delta(&json!({"content": "ha"})));
        let all = parts(&text);
        assert_eq!(tokens(&all).concat(), "<think>Hm</think>\n\nhaha", "{last}");
        assert_eq!(all.last(), Some(&Part::End(StopReason::Eos)), "{last}");
        // where it is not what came before, it is text
        let other = parts(&format!("{begin}data: {last}\n\ndata: [DONE]\n"));
        assert_eq!(tokens(&other).concat().matches("ha").count(), 3, "{last}");
    }
}

#[test]
fn a_stream_of_which_nothing_is_understood_breaks_off() {
    let all = parts("data: {\"foo\":\"out of memory\"}\n\ndata: [DONE]\n");
    assert_eq!(all.last(), Some(&Part::End(StopReason::BrokenOff)));
    assert!(all.iter().any(|part| matches!(part, Part::Notice(words) if words.contains("out of memory"))), "{all:?}");
    let empty = parts("data: [DONE]\n");
    assert_eq!(empty.last(), Some(&Part::End(StopReason::Eos)), "an empty answer is one");
    let called = parts(&format!(
        "data: {}\n\ndata: [DONE]\n",
        json!({"choices": [{"delta": {"tool_calls": [{"id": "x"}]},
        "finish_reason": "tool_calls"}]})
    ));
    assert_eq!(called.last(), Some(&Part::End(StopReason::Eos)), "it says why it ended");
}
