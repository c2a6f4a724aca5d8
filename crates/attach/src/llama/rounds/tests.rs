//! Steps from recorded, contradictory and arbitrary chunks.

use proptest::prelude::*;

use super::*;

/// What the recorded stream of a real llama-server amounts to.
fn replay(text: &str) -> Vec<Part> {
    let mut rounds = Rounds::default();
    let mut parts = Vec::new();
    for line in text.lines() {
        if let Line::Parts(more) = rounds.line(line, 0, &mut Names::default()) {
            parts.extend(more);
        }
    }
    parts.extend(rounds.close());
    parts
}

fn steps(parts: &[Part]) -> Vec<&Step> {
    parts.iter().filter_map(|part| if let Part::Step(step) = part { Some(step) } else { None }).collect()
}

fn chunk(id: u32, text: &str, (n, ms): (u64, f64), (drafted, accepted): (u64, u64)) -> Chunk {
    let timings = Timings {
        predicted_n: n,
        predicted_ms: ms,
        draft_n: drafted,
        draft_n_accepted: accepted,
        ..Timings::default()
    };
    Chunk { content: text.to_owned(), tokens: vec![id], timings: Some(timings), ..Chunk::default() }
}

fn push_all(chunks: &[Chunk]) -> Vec<Part> {
    let mut rounds = Rounds::default();
    let mut parts: Vec<_> = chunks.iter().flat_map(|chunk| rounds.push(chunk, &Names::default())).collect();
    parts.extend(rounds.close());
    parts
}

#[test]
fn a_recorded_stream_gives_the_steps_that_the_server_counted() {
    let parts = replay(include_str!("../../../../../tests/fixtures/attach/llama-draft-simple.sse.txt"));
    let found: Vec<_> = steps(&parts).iter().map(|s| (s.drafted, s.accepted, s.tokens.len(), s.clock_us)).collect();
    assert_eq!(found, [(4, 4, 5, 269_144), (4, 1, 2, 487_742)]);
    assert!(matches!(&parts[0], Part::First { token, took_us: 879_236, .. } if token.id == TokenId(504)));
    assert_eq!(parts.last(), Some(&Part::End(StopReason::Eos)));
    assert!(steps(&parts)[1].tokens[1].special, "the end of the answer adds no text");
}

#[test]
fn a_token_without_a_chunk_is_one_of_unknown_id_in_its_own_step() {
    let parts = push_all(&[
        chunk(1, "a", (1, 0.0), (0, 0)),
        chunk(2, "b", (2, 5.0), (3, 2)),
        // the last of that step waits for its character, which the next step completes
        chunk(4, "c", (3, 5.0), (3, 2)),
        chunk(6, "é", (5, 9.0), (3, 2)),
    ]);
    let found: Vec<Vec<_>> = steps(&parts).iter().map(|s| s.tokens.iter().map(|t| t.id).collect()).collect();
    let (u, id) = (TokenId::UNKNOWN, TokenId);
    assert_eq!(found, [vec![id(2), id(4), u], vec![id(6)]]);
}

#[test]
fn counts_that_contradict_each_other_are_cut_and_reported_once() {
    let parts = push_all(&[
        chunk(1, "a", (1, 0.0), (0, 0)),
        chunk(2, "b", (2, 5.0), (1, 9)),
        chunk(3, "c", (3, 4.0), (0, 0)),
        chunk(4, "d", (4, f64::NAN), (u64::MAX, u64::MAX)),
    ]);
    let notices = parts.iter().filter(|part| matches!(part, Part::Notice(_))).count();
    assert_eq!(notices, 1);
    assert!(steps(&parts).iter().all(|step| step.accepted <= step.drafted && step.drafted <= MAX_DRAFTS));
    let text: String = steps(&parts).iter().flat_map(|s| &s.tokens).map(|t| t.lossy().into_owned()).collect();
    assert_eq!(text, "bcd");
}

fn any_chunk() -> impl Strategy<Value = Chunk> {
    let count = prop_oneof![0_u64..20, any::<u64>()];
    let ms = prop_oneof![0.0..9.0, any::<f64>()];
    (
        prop::collection::vec(any::<u32>(), 0..3),
        "[a-z\u{e9}]{0,3}",
        count.clone(),
        count.clone(),
        count,
        ms,
        any::<bool>(),
    )
        .prop_map(|(tokens, content, predicted_n, draft_n, draft_n_accepted, predicted_ms, stop)| {
            let timings = Timings {
                predicted_n,
                draft_n,
                draft_n_accepted,
                predicted_ms,
                prompt_ms: predicted_ms,
                ..Timings::default()
            };
            Chunk { tokens, content, timings: Some(timings), stop, ..Chunk::default() }
        })
}

proptest! {
    #[test]
    fn any_chunks_keep_the_invariants(chunks in prop::collection::vec(any_chunk(), 0..40)) {
        let parts = push_all(&chunks);
        let last = chunks.iter().position(|chunk| chunk.stop).map_or(chunks.len(), |at| at + 1);
        let sent: String = chunks[..last].iter().map(|chunk| chunk.content.as_str()).collect();
        let (mut text, mut clock) = (String::new(), 0);
        for part in &parts {
            match part {
                Part::First { token, .. } => text.push_str(&String::from_utf8_lossy(token.text_bytes())),
                Part::Step(step) => {
                    prop_assert!(step.accepted <= step.drafted && step.drafted <= MAX_DRAFTS);
                    prop_assert!(step.tokens.len() <= step.accepted + 1);
                    prop_assert!(step.clock_us >= clock);
                    clock = step.clock_us;
                    step.tokens.iter().for_each(|t| text.push_str(&String::from_utf8_lossy(t.text_bytes())));
                    for event in step.clone().events(1, 0) {
                        let line = serde_json::to_string(&draftscope_protocol::Event {
                            seq: 0, at_us: 0, lane: draftscope_protocol::Lane::Speculative, kind: event.clone(),
                        }).unwrap();
                        prop_assert_eq!(draftscope_protocol::Event::of_line(line.as_bytes()).unwrap().kind, event);
                    }
                }
                _ => {}
            }
        }
        prop_assert_eq!(text, sent, "every token is output once, in order");
    }

    #[test]
    fn any_line_is_read_without_a_panic(line in ".{0,200}") {
        for line in [line.clone(), format!("data: {line}")] {
            let _ = Rounds::default().line(&line, 0, &mut Names::default());
        }
    }
}
