//! Arbitrary events, for tests that a sequence of them never panics. Another crate's tests compile this file, too.

use draftscope_protocol::{
    Alternatives, Candidate, Committed, Departure, DraftRefused, Drafted, Event, EventKind, Judgement, Lane, Lattice,
    Masked, NextKind, Outcome, Piece, Prediction, Prefilled, RoundStarted, Scored, StopReason, TokenId, Verification,
};
use proptest::prelude::*;

use super::header;

fn lane() -> impl Strategy<Value = Lane> {
    prop_oneof![Just(Lane::Speculative), Just(Lane::Plain), Just(Lane::Rival)]
}

fn pieces() -> impl Strategy<Value = Vec<Piece>> {
    let bytes = proptest::collection::vec(any::<u8>(), 0..4);
    proptest::collection::vec((0u32..6, bytes).prop_map(|(id, bytes)| Piece::new(TokenId(id), bytes)), 0..5)
}

fn rows() -> impl Strategy<Value = Vec<Prediction>> {
    proptest::collection::vec(
        (pieces(), any::<f32>()).prop_map(|(pieces, tail)| Prediction {
            top: pieces.into_iter().map(|piece| Candidate { piece, prob: tail }).collect(),
            tail,
        }),
        0..5,
    )
}

fn verdict() -> impl Strategy<Value = Verification> {
    let outcome = prop_oneof![Just(Outcome::Accepted), Just(Outcome::Rejected), Just(Outcome::NotReached)];
    let judgement = (any::<f32>(), any::<f32>(), any::<Option<f32>>(), outcome);
    (proptest::collection::vec(judgement, 0..6), any::<bool>()).prop_map(|(list, bonus)| Verification {
        lossless: bonus,
        departures: vec![Departure { index: list.len() as u8 / 2, instead: TokenId(4) }],
        judgements: list
            .into_iter()
            .map(|(p, q, u, outcome)| Judgement { p: Some(p), q: Some(q), u, limit: u, outcome })
            .collect(),
        ..Verification::new(Vec::new(), TokenId(3), if bonus { NextKind::Bonus } else { NextKind::Recovered }, None)
    })
}

/// Any kind of event with small ids, so that some of them meet.
fn kind() -> impl Strategy<Value = EventKind> {
    let id = 0u32..4;
    prop_oneof![
        any::<(u64, u64)>().prop_map(|(done, total)| EventKind::Loading { stage: "x".to_owned(), done, total }),
        Just(EventKind::Started { header: Box::new(header()) }),
        (id.clone(), any::<String>()).prop_map(|(turn, text)| EventKind::Prompted { turn, text, branch: None }),
        (id.clone(), pieces(), any::<u64>()).prop_map(|(turn, prompt, took_us)| EventKind::Prefilled(Prefilled {
            turn,
            first: prompt.first().cloned().unwrap_or_default(),
            prompt,
            row: Prediction::default(),
            took_us,
            ..Prefilled::default()
        })),
        (id.clone(), any::<u8>()).prop_map(|(round, draft_len)| EventKind::RoundStarted(RoundStarted {
            round,
            base_len: u32::MAX,
            draft_len
        })),
        (id.clone(), 0u8..5, pieces(), any::<Option<f32>>(), any::<u64>(), any::<Option<u8>>()).prop_map(
            |(round, index, pieces, q, took_us, row)| EventKind::Drafted(Drafted {
                round,
                index,
                token: pieces.first().cloned().unwrap_or_default(),
                q,
                row,
                more: index % 2 == 1,
                copied: (index % 3 == 1).then_some(draftscope_protocol::Copied { from: round, len: 2, chance: q }),
                forced: index % 3 == 2,
                took_us,
                ..Drafted::default()
            })
        ),
        (id.clone(), pieces(), any::<Option<f32>>(), any::<String>()).prop_map(|(round, pieces, q, expected)| {
            let token = pieces.first().cloned().unwrap_or_default();
            EventKind::DraftRefused(DraftRefused { round, index: 1, token, q, expected })
        }),
        (id.clone(), any::<u8>(), pieces(), any::<f32>()).prop_map(|(round, index, pieces, alone)| {
            let candidate = |token| draftscope_protocol::LatticeCandidate { token, alone, after: alone / 2.0 };
            let candidates = pieces.into_iter().map(candidate).collect();
            EventKind::Lattice(Lattice {
                round,
                columns: vec![draftscope_protocol::LatticeColumn { index, candidates }],
            })
        }),
        (id.clone(), any::<u8>(), any::<f32>()).prop_map(|(round, index, gain)| EventKind::Alternatives(
            Alternatives { round, worths: vec![draftscope_protocol::NodeWorth { index, gain, cost: gain / 2.0 }; 3] }
        )),
        (id.clone(), any::<f32>(), any::<u64>()).prop_map(|(round, removed, took_us)| EventKind::Masked(Masked {
            round,
            rows: vec![draftscope_protocol::MaskedRow { allowed: round, removed }; 3],
            took_us
        })),
        (id.clone(), rows(), any::<u64>()).prop_map(|(round, rows, verify_us)| EventKind::Scored(Scored {
            round,
            rows,
            verify_us,
            sample_us: verify_us
        })),
        (id.clone(), verdict()).prop_map(|(round, verdict)| EventKind::Verified { round, verdict }),
        (id, pieces(), any::<u64>()).prop_map(|(round, tokens, clock_us)| EventKind::Committed(Committed {
            round,
            tokens,
            rollback_us: clock_us,
            clock_us,
            ..Committed::default()
        })),
        Just(EventKind::Paused),
        Just(EventKind::Resumed),
        any::<String>().prop_map(|message| EventKind::Notice { message }),
        Just(EventKind::Finished { reason: StopReason::Eos }),
        any::<String>().prop_map(|message| EventKind::Failed { message }),
        Just(EventKind::Unknown),
    ]
}

/// Any sequence of events, in any order.
pub(crate) fn any_events() -> impl Strategy<Value = Vec<Event>> {
    proptest::collection::vec((any::<u64>(), lane(), kind()), 0..60)
        .prop_map(|list| list.into_iter().map(|(seq, lane, kind)| Event { seq, at_us: seq, lane, kind }).collect())
}
