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
