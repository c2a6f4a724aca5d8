//! Streams in the forms in which servers send them: no text is lost, thought is told apart, ends are what they are.

use serde_json::json;

use super::{ask, chat, run, summary};
use crate::asked::{Reply, bytes, chunk, events, js, models, serve, stream};

#[test]
fn a_thought_in_a_field_of_its_own_is_told_apart() {
    for field in ["reasoning", "reasoning_content", "thinking"] {
        let (url, seen) = serve(move |asked| match asked.path.as_str() {
            "/v1/models" => {
                Some(js(200, &json!({"data": [{"id": "thinker", "owned_by": "vllm", "max_model_len": 512}]})))
            }
            "/version" => Some(js(200, &json!({"version": "0.32.0"}))),
            "/v1/chat/completions" => {
                let token = |id: u32, name: &str, text: &str| json!({"choices": [{"index": 0, "delta": {name: text}, "token_ids": [id], "finish_reason": null}]});
                let chunks = [
                    chunk(json!({"role": "assistant", "content": ""}), json!(null)),
                    token(1, field, "Two"),
                    token(2, field, " plus two."),
                    token(3, "content", "Four"),
                    token(4, "content", "."),
                    chunk(json!({}), json!("stop")),
                    json!({"choices": [], "usage": {"completion_tokens": 4}}),
                ];
                Some(stream(&chunks))
            }
            _ => None,
        });
        ask(&url, "2+2?").answers("<think>Two plus two.</think>\n\nFour.");
        let figures = summary(&url, "2+2?");
        assert_eq!(figures["output_tokens"], 4, "the marks are no tokens: {figures}");
        assert!(figures["thought"].is_object() && figures["answer"].is_object(), "{figures}");
        // the history of a second prompt holds the answer alone
        let mut lines = super::draftscope(&["attach", &url, "--per-line"]);
        let mut child = lines.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::null()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"2+2?\nAnd?\n").unwrap();
        assert!(child.wait().unwrap().success());
        let last = seen.lock().unwrap().last().unwrap().body["messages"].clone();
        assert_eq!(last[1], json!({"role": "assistant", "content": "Four."}), "{last}");
    }
}

#[test]
fn a_thought_and_its_answer_in_one_chunk_and_a_thought_without_end_keep_all_text() {
    let url = chat(|asked| match asked.said() {
        "both" => stream(&[chunk(json!({"reasoning": "Hm", "content": "Yes"}), json!("stop"))]),
        _ => stream(&[
            chunk(json!({"reasoning": "Hm"}), json!(null)),
            chunk(json!({"reasoning": " so"}), json!("length")),
        ]),
    });
    ask(&url, "both").answers("<think>Hm</think>\n\nYes");
    ask(&url, "open").answers("<think>Hm so");
}

#[test]
fn an_empty_reason_to_end_is_none() {
    let url = chat(|asked| {
        let words = ["One", " two", " three"].map(|word| chunk(json!({"content": word}), json!("")));
        match asked.said() {
            "whole" => stream(&[&words[..], &[chunk(json!({}), json!("length"))]].concat()),
            _ => bytes(events(&words)),
        }
    });
    let whole = summary(&url, "whole");
    assert_eq!((&whole["text"], &whole["finish_reason"]), (&json!("One two three"), &json!("max_tokens")), "{whole}");
    assert_eq!(summary(&url, "cut")["finish_reason"], "broken_off", "an answer that broke off has figures, too");
    let cut = ask(&url, "cut");
    cut.fails(&["broke off"]);
    assert_eq!(cut.code, Some(1));
    assert_eq!(cut.text.trim_end(), "One two three");
}

#[test]
fn the_mark_or_the_count_after_the_last_chunk_is_an_end() {
    let count = || json!({"choices": [], "usage": {"completion_tokens": 3}});
    let words = || ["One", " two", " three"].map(|word| chunk(json!({"content": word}), json!(null))).to_vec();
    let url = chat(move |asked| match asked.said() {
        "mark" => stream(&words()),
        "count" => bytes(events(&[words(), vec![count()]].concat())),
        _ => stream(&[words(), vec![count()]].concat()),
    });
    for prompt in ["mark", "count", "both"] {
        ask(&url, prompt).answers("One two three");
    }
    assert_eq!(summary(&url, "both")["finish_reason"], "eos");
}

#[test]
fn text_in_every_form_is_shown_and_what_is_none_is_reported() {
    let think = |text: &str| json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}]});
    let part = |text: &str| json!({"content": [{"type": "text", "text": text}]});
    let parts = [think("Let me"), think(" see."), part("Paris"), json!({"content": " it is."})];
    let url = chat(move |asked| {
        let end = chunk(json!({"content": ""}), json!("stop"));
        match asked.said() {
            "parts" => stream(&[&parts.clone().map(|delta| chunk(delta, json!(null)))[..], &[end]].concat()),
            "nulls" => stream(&[
                json!({"choices": [{"delta": {"content": "Paris", "reasoning": null, "tool_calls": null}, "logprobs": {"content": null}}],
                       "usage": null, "prompt_token_ids": "x", "metrics": 3, "sglext": []}),
                json!({"choices": [{"delta": {"content": [" it", null, {"type": "text", "text": " is."}]}, "token_ids": {}}]}),
                end,
            ]),
            "numbers" => bytes(format!(
                "data: {}\n\ndata: [DONE]\n\n",
                r#"{"choices":[{"delta":{"content":"Paris it is."},"logprobs":{"content":[{"token":"P","logprob":-Infinity}]},"finish_reason":"stop"}],"x":NaN}"#
            )),
            "message" => {
                stream(&[json!({"choices": [{"message": {"content": "Paris it is."}, "finish_reason": "stop"}]})])
            }
            "native" => bytes(format!(
                "{}\n{}\n",
                json!({"message": {"role": "assistant", "content": "Paris it is."}, "done": false}),
                json!({"message": {"role": "assistant", "content": ""}, "done": true, "done_reason": "stop"})
            )),
            "surrogate" => bytes(
                "data: {\"choices\":[{\"delta\":{\"content\":\"Paris it is.\\ud83c\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
            ),
            _ => stream(&[chunk(json!({"content": "Paris it is."}), json!(null)), json!({"weather": "fine"}), end]),
        }
    });
    ask(&url, "parts").answers("<think>Let me see.</think>\n\nParis it is.");
    for prompt in ["nulls", "numbers", "message", "native"] {
        let ran = ask(&url, prompt);
        ran.answers("Paris it is.");
        assert!(!ran.said.contains("not understood"), "{prompt}: {}", ran.said);
    }
    ask(&url, "surrogate").answers("Paris it is.\u{fffd}");
    let other = ask(&url, "other");
    other.answers("Paris it is.");
    assert!(other.said.contains("not understood and left out, beginning with: {\"weather\""), "{}", other.said);
}

#[test]
fn characters_that_arrive_in_pieces_stay_whole() {
    let url = chat(|_| {
        let chunks =
            ["今日は🌍", "a\u{2028}b", "c\u{85}d", "é✅"].map(|text| chunk(json!({"content": text}), json!(null)));
        let lines: String = chunks.iter().map(|chunk| format!("data: {chunk}\r\n\r\n")).collect();
        let end = chunk(json!({}), json!("stop"));
        let all = format!(": ping\r\n\r\n{lines}data: {end}\r\n\r\ndata: [DONE]\r\n\r\n").into_bytes();
        Reply { status: 200, headers: "", pieces: all.chunks(7).map(<[u8]>::to_vec).collect() }
    });
    assert_eq!(summary(&url, "x")["text"], "今日は🌍a\u{2028}bc\u{85}dé✅");
    let returns = chat(|_| {
        let end = chunk(json!({"content": "One"}), json!("stop"));
        bytes(format!("data: {end}\r\rdata: [DONE]\r\r"))
    });
    ask(&returns, "x").answers("One");
}

#[test]
fn an_answer_in_one_piece_or_compressed_is_an_answer() {
    let url = chat(|asked| match asked.said() {
        "pretty" => {
            let whole = json!({"object": "chat.completion", "choices": [{"message": {"role": "assistant", "content": "One two"}, "finish_reason": "stop"}]});
            bytes(serde_json::to_string_pretty(&whole).unwrap())
        }
        "list" => bytes(
            json!([chunk(json!({"content": "One"}), json!(null)), chunk(json!({"content": " two"}), json!("stop"))])
                .to_string(),
        ),
        "gzip" => {
            let text = events(&[chunk(json!({"content": "One two"}), json!("stop"))]);
            Reply { status: 200, headers: "Content-Encoding: gzip\r\n", pieces: vec![gzip(text.as_bytes())] }
        }
        _ => js(200, &json!({"choices": [{"message": {"content": "One two"}, "finish_reason": "stop"}]})),
    });
    for prompt in ["whole", "pretty", "list", "gzip"] {
        ask(&url, prompt).answers("One two");
    }
}

/// A gzip file with one stored block, so that the test needs no compressor.
fn gzip(text: &[u8]) -> Vec<u8> {
    let length = u16::try_from(text.len()).unwrap();
    let mut crc = u32::MAX;
    for byte in text {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & (0u32.wrapping_sub(crc & 1)));
        }
    }
    let head = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 1];
    let block = [&length.to_le_bytes()[..], &(!length).to_le_bytes(), text].concat();
    [&head[..], &block, &(!crc).to_le_bytes(), &u32::try_from(text.len()).unwrap().to_le_bytes()].concat()
}

#[test]
fn comments_alone_end_an_answer_after_the_patience() {
    let (url, _) = serve(|asked| match asked.path.as_str() {
        "/v1/models" => Some(models(&["m"])),
        "/v1/chat/completions" => {
            // some 100 comments in the time that one piece after the other takes
            Some(Reply { status: 200, headers: "", pieces: vec![b": p\n".to_vec(); 100] })
        }
        _ => None,
    });
    run(&["run", "--attach", &url, "--prompt", "x", "--patience", "3"]).fails(&["broke off"]);
    let drip = super::errors::dripping(": p\n");
    let began = std::time::Instant::now();
    run(&["run", "--attach", &drip, "--prompt", "x", "--patience", "1"])
        .fails(&["no part of the answer for 1 s", "--patience"]);
    assert!(began.elapsed().as_secs() < 60);
}

#[test]
fn llama_server_s_chunks_are_read_as_far_as_they_can_be() {
    let (url, _) = serve(|asked| {
        Some(match asked.path.as_str() {
            "/props" => js(200, &json!({"default_generation_settings": {"n_ctx": 64}, "model_path": "/m/a.gguf"})),
            "/apply-template" => js(200, &json!({"prompt": asked.said()})),
            "/tokenize" => js(200, &json!({"tokens": [{"id": 1, "piece": asked.body["content"]}]})),
            "/completion" => bytes(events(&[
                json!({"content": "Paris", "tokens": [5], "timings": {"predicted_n": null, "draft_n": "x"}}),
                json!({"content": [{"text": " it"}, " is"], "tokens": null, "timings": 3}),
                json!({"weather": "fine"}),
                json!({"content": ".", "tokens": [-1], "stop": null, "stop_type": null}),
                json!({"content": null, "tokens": [], "stop": true, "stop_type": "eos", "generation_settings": []}),
            ])),
            _ => return None,
        })
    });
    let ran = ask(&url, "x");
    ran.answers("Paris it is.");
    assert!(ran.said.contains("not understood and left out, beginning with: {\"weather\""), "{}", ran.said);
}
