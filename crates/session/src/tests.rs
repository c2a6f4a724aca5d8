//! The reducer against scripted sessions and arbitrary events.

#[path = "any_events.rs"]
pub(crate) mod any_events;

use proptest::prelude::*;

use super::fixture::{Script, conversation, first_turn, fold, header, piece, tree_round};
use super::*;
use any_events::any_events;
use draftscope_protocol::{
    Candidate, Committed, DraftRefused, DraftStopped, Drafted, DrafterInfo, DrafterKind, Event, EventKind, Judgement,
    Lane, Lattice, LatticeCandidate, LatticeColumn, MOST_CANDIDATES, NextKind, Outcome, Piece, Prediction,
    RoundStarted, Scored, Settings, StopReason, TokenId, Verification, VerifyRule,
};

fn committed(session: &Session, lane: Lane) -> Vec<(String, Provenance)> {
    let answer = session.turns()[0].answer(lane);
    let tokens = answer.tokens.iter();
    tokens.map(|t| (t.piece.lossy().into_owned(), t.provenance)).collect()
}

#[test]
fn a_token_knows_where_it_came_from() {
    use Provenance::{Accepted, Bonus, Prefill, Recovered};
    let session = fold(&first_turn().events);
    let tokens = committed(&session, Lane::Speculative);
    let start: Vec<_> = tokens.iter().take(7).map(|(t, p)| (t.as_str(), *p)).collect();
    assert_eq!(
        start,
        [
            ("The", Prefill),
            (" sky", Recovered),
            (" is", Accepted),
            (" blue", Accepted),
            (" because", Accepted),
            (" of", Bonus),
            (" a", Recovered),
        ]
    );
    let plain = committed(&session, Lane::Plain);
    assert!(plain[1..].iter().all(|(_, p)| *p == Provenance::Plain));
}

#[test]
fn refused_tokens_stand_before_what_was_drafted_in_their_place() {
    let mut events = first_turn().events;
    let is_second = |event: &Event| {
        event.lane == Lane::Speculative && matches!(event.kind, EventKind::RoundStarted(RoundStarted { round: 2, .. }))
    };
    let at = events.iter().position(is_second).unwrap();
    for (index, text) in [(3, "}"), (1, "\n")] {
        let (token, expected) = (piece(text), "NAME".to_owned());
        let kind = EventKind::DraftRefused(DraftRefused { round: 2, index, token, q: Some(0.5), expected });
        events.insert(at + 1, Event { kind, ..events[at].clone() });
    }
    let session = fold(&events);
    let answer = session.turns()[0].answer(Lane::Speculative);
    let tokens: Vec<_> = answer.transcript().filter(|s| s.round == 2).map(|s| (s.piece.lossy(), s.fate)).collect();
    assert_eq!(
        tokens,
        [
            (" is".into(), Fate::Committed(Provenance::Accepted)),
            ("\n".into(), Fate::Refused),
            (" blue".into(), Fate::Committed(Provenance::Accepted)),
            (" because".into(), Fate::Committed(Provenance::Accepted)),
            ("}".into(), Fate::Refused),
            (" of".into(), Fate::Committed(Provenance::Bonus)),
        ]
    );
}

#[test]
fn discarded_drafts_stand_before_the_token_that_took_their_place() {
    let session = fold(&first_turn().events);
    let answer = session.turns()[0].answer(Lane::Speculative);
    let tokens: Vec<_> = answer.transcript().take(6).map(|s| (s.piece.lossy(), s.fate)).collect();
    assert_eq!(
        tokens,
        [
            ("The".into(), Fate::Committed(Provenance::Prefill)),
            (" color".into(), Fate::Rejected),
            (" of".into(), Fate::NotReached),
            (" the".into(), Fate::NotReached),
            (" sky".into(), Fate::Committed(Provenance::Recovered)),
            (" is".into(), Fate::Committed(Provenance::Accepted)),
        ]
    );
    let output = answer.transcript().filter(|s| matches!(s.fate, Fate::Committed(_)));
    assert!(output.map(|s| s.piece).eq(answer.tokens.iter().map(|t| &t.piece)));
}

#[test]
fn drafts_under_way_are_pending() {
    let session = fold(&conversation().events);
    let answer = session.turn().unwrap().answer(Lane::Speculative);
    let last: Vec<_> = answer.transcript().map(|s| s.fate).collect();
    assert_eq!(last[last.len() - 3..], [Fate::Pending; 3]);
    assert_eq!(session.phase(Lane::Speculative), Phase::Verifying);
    assert!(session.is_generating());
}

#[test]
fn statistics_follow_their_definitions() {
    let session = fold(&first_turn().events);
    let stats = session.stats(Lane::Speculative);
    assert_eq!((stats.rounds(), stats.drafted()), (7, 21));
    assert_eq!((stats.accepted(), stats.tested()), (10, 15));
    assert_eq!((stats.committed(), stats.output_tokens()), (17, 18));
    assert_eq!(stats.offered_per_pos(), [7, 7, 7]);
    assert_eq!(stats.accepted_per_pos(), [4, 4, 2]);
    assert_eq!(stats.reached_per_pos(), [7, 4, 4], "rounds in which all before was accepted");
    assert_eq!(stats.acceptance_histogram(), [3, 0, 2, 2]);
    assert_eq!(stats.draft_us(), 21 * 900);
    assert_eq!(stats.decode_us(), 7 * (2700 + 14_200));
    assert_eq!(stats.other_us(), stats.decode_us() - stats.draft_us() - stats.verify_us());
    let speed = stats.tokens_per_second().unwrap();
    assert!((speed - 17.0 / 0.1183).abs() < 0.01, "{speed}");
    let speedup = session.speedup().unwrap();
    assert!((speedup.value - speed * 0.0112).abs() < 0.01, "{speedup}");
}

#[test]
fn without_measurements_there_are_no_quotients() {
    let stats = LaneStats::default();
    assert_eq!(stats.acceptance_rate(), None);
    assert_eq!(stats.tokens_per_second(), None);
    assert_eq!(stats.mean_tokens_per_round(), None);
    let mut script = Script::prompted("hi", "Hello");
    script.round(&[(" there", 0.5)], &[(" there", 0.5), ("!", 0.5)]);
    assert_eq!(fold(&script.events).speedup(), None);
}

#[test]
fn what_vllm_names_counts_rounds_that_drafted() {
    let mut script = Script::prompted("hi", "Hello");
    script.round(&[], &[(" there", 0.5)]); // k = 4, and the drafter found nothing
    script.round(&[(" you", 0.5), ("!", 0.5)], &[(" you", 0.5), ("!", 0.5), (" How", 0.5)]);
    for event in &mut script.events {
        if let EventKind::RoundStarted(RoundStarted { draft_len, .. }) = &mut event.kind {
            *draft_len = 4;
        }
    }
    let run = fold(&script.events).stats(Lane::Speculative).summary();
    assert_eq!((run.rounds, run.num_spec_steps, run.num_spec_tokens), (2, Some(1), Some(4)));
    assert_eq!(run.acceptance_histogram, [0, 0, 1, 0, 0]);
    assert_eq!(run.mean_acceptance_length, Some(3.0));

    let mut plain = Script::started();
    plain.prompt("hi", "Hello");
    plain.round(&[], &[(" there", 0.5)]);
    let run = fold(&plain.events).stats(Lane::Speculative).summary();
    assert_eq!((run.rounds, run.num_spec_steps, run.num_spec_tokens), (1, Some(0), Some(0)));
    assert_eq!((run.mean_acceptance_length, run.acceptance_histogram.len()), (None, 0));
}

#[test]
fn a_commit_cut_by_a_stop_rule_keeps_its_provenance() {
    let mut script = Script::prompted("hi", "Hello");
    script.round(&[(" there", 0.5), ("!", 0.5)], &[(" there", 0.5), ("!", 0.5), (" How", 0.5)]);
    let Some(Event { kind: EventKind::Committed(Committed { tokens, .. }), .. }) = script.events.last_mut() else {
        panic!("a round ends with its commit");
    };
    tokens.truncate(1);
    let session = fold(&script.events);
    let answer = session.turns()[0].answer(Lane::Speculative);
    assert_eq!(answer.tokens.len(), 2);
    assert_eq!(answer.tokens[1].provenance, Provenance::Accepted);
    assert_eq!(answer.stats().committed(), 1);
    assert_eq!(answer.stats().accepted(), 2);
    let why = explain(&answer.rounds[0], 1).unwrap().text;
    assert_eq!(why, "the target says '!' 0.50 too; draft accepted; past the end of the answer, unused");
    assert!(!answer.rounds[0].is_cut(0) && answer.rounds[0].is_cut(2));
}

#[test]
fn a_draft_that_p_min_left_out_is_reported_and_its_time_counts() {
    let mut script = Script::prompted("hi", "Look");
    let round = 1;
    let row = Prediction { top: vec![Candidate { piece: piece(" up"), prob: 0.6 }], tail: 0.4 };
    let (token, verdict) = (piece(" out"), Verification::new(Vec::new(), piece(" up").id, NextKind::Bonus, None));
    for kind in [
        EventKind::RoundStarted(RoundStarted { round, base_len: 4, draft_len: 2 }),
        EventKind::DraftStopped(DraftStopped {
            round,
            token,
            q: 0.12,
            p_min: 0.25,
            took_us: 30,
            ..DraftStopped::default()
        }),
        EventKind::Scored(Scored { round, rows: vec![row], verify_us: 9, sample_us: 1 }),
        EventKind::Verified { round, verdict },
        EventKind::Committed(Committed {
            round,
            tokens: vec![piece(" up")],
            rollback_us: 1,
            clock_us: 41,
            ..Committed::default()
        }),
    ] {
        script.push(Lane::Speculative, kind);
    }
    let session = fold(&script.events);
    let answer = session.turns()[0].answer(Lane::Speculative);
    assert_eq!((answer.rounds[0].draft_us(), answer.stats().draft_us(), answer.stats().drafted()), (30, 30, 0));
    let why = explain(&answer.rounds[0], 0).unwrap().text;
    assert!(why.ends_with("; the drafter's '·out' (q 0.12, below the 0.25 asked of it) was left out"), "{why}");
}

#[test]
fn a_round_keeps_its_lattice_and_no_more_candidates_than_an_event_may_have() {
    let candidate = |id: u32| LatticeCandidate { token: Piece::new(TokenId(id), "x"), alone: 0.01, after: 0.01 };
    let column = |index| LatticeColumn { index, candidates: (0..100).map(candidate).collect() };
    let mut script = Script::prompted("hi", "Look");
    script.round_start(&[(" up", 0.5), (" out", 0.5)]);
    // a position without candidates was forced or copied
    script.push(Lane::Speculative, EventKind::Lattice(Lattice { round: 1, columns: vec![column(1)] }));
    script.push(Lane::Speculative, EventKind::Lattice(Lattice { round: 9, columns: vec![column(0)] }));
    let session = fold(&script.events);
    let round = &session.turns()[0].answer(Lane::Speculative).rounds[0];
    assert_eq!(
        (round.lattice.iter().flat_map(|known| &known.columns).count(), round.candidates(0), round.drafts.len()),
        (1, None, 2)
    );
    assert_eq!(round.candidates(1).unwrap().candidates.len(), MOST_CANDIDATES);
}

#[test]
fn a_tree_round_knows_its_branches_its_path_and_where_it_left_the_lossless_path() {
    let mut script = Script::prompted("hi", "Look");
    tree_round(&mut script);
    let session = fold(&script.events);
    let answer = session.turns()[0].answer(Lane::Speculative);
    let round = &answer.rounds[0];
    assert!(round.is_tree());
    let of = |f: fn(&Round, usize) -> Option<usize>| (0..5).map(|i| f(round, i)).collect::<Vec<_>>();
    assert_eq!(of(|r, i| Some(r.row_of(i))), [0, 0, 2, 2, 4].map(Some));
    assert_eq!(of(Round::parent)[..4], [None, None, Some(1), Some(1)]);
    assert_eq!((round.depth(1), round.depth(3)), (0, 1));
    assert_eq!(round.path().collect::<Vec<_>>(), [1, 3]);
    assert_eq!((round.next_index(), round.next_piece()), (Some(4), Some(piece(" is"))));
    assert_eq!((round.departure(1), round.departure(3)), (None, Some(piece(" moon").id)));
    assert!(!round.is_cut(3) && (0..5).all(|column| explain(round, column).is_some()));
    assert!(explain(round, 3).unwrap().text.contains("not lossless"));
    // Look, the, sea, is
    assert_eq!(answer.departures().collect::<Vec<_>>(), [2]);
    assert!(!answer.is_lossless());
    assert_eq!(answer.tokens[2].instead, Some(piece(" moon").id));
    let tokens: Vec<_> = answer.transcript().map(|s| (s.piece.lossy().into_owned(), s.fate)).collect();
    let accepted = Fate::Committed(Provenance::Accepted);
    assert_eq!(
        tokens[1..],
        [
            (" the".into(), accepted),
            (" sea".into(), accepted),
            (" a".into(), Fate::Rejected),
            (" sky".into(), Fate::Rejected),
            (" is".into(), Fate::Committed(Provenance::Bonus)),
        ]
    );
    let stats = answer.stats();
    assert_eq!((stats.drafted(), stats.accepted(), stats.tested()), (4, 2, 4));
    assert_eq!((stats.offered_per_pos(), stats.accepted_per_pos()), (&[1, 1][..], &[1, 1][..]));
    assert_eq!(stats.acceptance_histogram(), [0, 0, 1]);
}

#[test]
fn the_drafter_at_work_is_one_that_is_there() {
    let mut script = Script::started();
    let drafter = |script: &Script| fold(&script.events).drafter();
    assert_eq!(drafter(&script), Some(DrafterKind::Mtp));
    let settings = Settings { drafter: DrafterKind::DraftModel, ..Settings::default() };
    script.push(Lane::Speculative, EventKind::SettingsChanged { settings });
    assert_eq!(drafter(&script), None);
    let EventKind::Started { header } = &mut script.events[0].kind else { panic!() };
    header.drafters.push(DrafterInfo::weightless(DrafterKind::DraftModel, 9));
    assert_eq!(drafter(&script), Some(DrafterKind::DraftModel));
    // of two drafters, the one that is there
    let settings = Settings { drafter: DrafterKind::DEFAULT, ..Settings::default() };
    script.push(Lane::Speculative, EventKind::SettingsChanged { settings });
    assert_eq!(drafter(&script), Some(DrafterKind::DEFAULT));
    let EventKind::Started { header } = &mut script.events[0].kind else { panic!() };
    header.drafter = Some(DrafterInfo::weightless(DrafterKind::Suffix, 9));
    assert_eq!(drafter(&script), Some(DrafterKind::Suffix), "a model without a module");
    let EventKind::Started { header } = &mut script.events[0].kind else { panic!() };
    header.drafter = None;
    assert_eq!(drafter(&script), None);
}

#[test]
fn places_that_differ_are_counted_behind_an_end_only() {
    let mut script = Script::prompted("hi", "Hello");
    script.round(&[(" there", 0.5)], &[(" there", 0.5), ("!", 0.5)]);
    script.plain(" you");
    assert_eq!(fold(&script.events).turns()[0].differing_tokens(), Some(1), "plain decoding is not there yet");
    script.push(Lane::Plain, EventKind::Finished { reason: draftscope_protocol::StopReason::Eos });
    assert_eq!(fold(&script.events).turns()[0].differing_tokens(), Some(2), "its answer ends before that place");
}

#[test]
fn lanes_agree_until_they_do_not() {
    let mut script = Script::prompted("hi", "Hello");
    script.round(&[(" there", 0.5)], &[(" there", 0.5), ("!", 0.5)]);
    script.plain(" there");
    let agreement = fold(&script.events).turns()[0].agreement().unwrap();
    assert_eq!((agreement.identical, agreement.divergence), (2, None));
    script.plain(" you");
    let agreement = fold(&script.events).turns()[0].agreement().unwrap();
    let divergence = agreement.divergence.unwrap();
    assert_eq!((agreement.identical, divergence.index), (2, 2));
    assert_eq!(divergence.beside, Some(piece(" you")));
}

#[test]
fn the_series_ends_at_the_speed_over_its_window() {
    let session = fold(&first_turn().events);
    let answer = session.turns()[0].answer(Lane::Speculative);
    let whole = answer.speed_series(u64::MAX);
    assert_eq!(whole.len(), 7);
    let last = whole.last().unwrap();
    assert_eq!(last.tokens, 17);
    assert_eq!(Some(last.tokens_per_second), answer.stats().tokens_per_second());
    let short = answer.speed_series(1);
    assert!((short[0].tokens_per_second - 1e6 / 16_900.0).abs() < 1e-6);
}

#[test]
fn reasons_are_sentences_with_the_numbers_of_the_round() {
    let session = fold(&first_turn().events);
    let rounds = &session.turns()[0].answer(Lane::Speculative).rounds;
    let why = |round: usize, index| explain(&rounds[round], index).unwrap().text;
    assert_eq!(why(0, 0), "the target preferred '·sky' 0.61 over '·color' 0.23; draft rejected, recovered: '·sky'");
    assert_eq!(
        why(0, 1),
        "draft 1 was rejected, so '·of' was never judged and is discarded; in its place the target would have chosen '·is' 0.88; after it, '·light' 0.35"
    );
    assert_eq!(why(1, 0), "the target says '·is' 0.84 too; draft accepted");
    assert_eq!(why(1, 3), "all 3 drafts accepted: bonus '·of' 0.64 from the same pass");
    assert_eq!(explain(&rounds[0], 9), None);
}

#[test]
fn the_rule_confidence_is_explained_by_q_and_its_threshold() {
    let session = fold(&first_turn().events);
    let mut round = Round::clone(&session.turns()[0].answer(Lane::Speculative).rounds[0]);
    round.rule = VerifyRule::Confidence;
    assert_eq!(
        explain(&round, 0).unwrap().text,
        "q 0.41 is below the threshold 0.60, so the target decides: the target preferred '·sky' 0.61 over '·color' 0.23; draft rejected, recovered: '·sky'"
    );
    round.leniency.confidence = 0.4;
    let verdict = round.verdict.as_mut().unwrap();
    verdict.judgements[0].outcome = Outcome::Accepted;
    verdict.departures = vec![draftscope_protocol::Departure { index: 0, instead: piece(" sky").id }];
    assert_eq!(
        explain(&round, 0).unwrap().text,
        "q 0.41 ≥ the threshold 0.40, so draft '·color' is accepted whatever its p is; the target would have picked '·sky' 0.61"
    );
}

#[test]
fn the_rejection_rule_is_explained_with_p_q_and_u() {
    let mut round = Round {
        rule: VerifyRule::Rejection,
        drafts: vec![Drafted { token: piece(" a"), q: Some(0.8), took_us: 1, ..Drafted::default() }],
        verdict: Some(Verification {
            judgements: vec![Judgement {
                p: Some(0.2),
                q: Some(0.8),
                u: Some(0.5),
                limit: None,
                outcome: Outcome::Rejected,
            }],
            ..Verification::new(Vec::new(), piece(" the").id, NextKind::Recovered, Some(0.1))
        }),
        commit: Some(Committed { tokens: vec![piece(" the")], ..Committed::default() }),
        ..Round::default()
    };
    assert_eq!(
        explain(&round, 0).unwrap().text,
        "u 0.50 ≥ p/q 0.25 (0.20/0.80); draft '·a' rejected, '·the' drawn from max(0, p − q)"
    );
    let judgement = &mut round.verdict.as_mut().unwrap().judgements[0];
    judgement.u = Some(0.1);
    judgement.outcome = Outcome::Accepted;
    assert_eq!(explain(&round, 0).unwrap().text, "u 0.10 < p/q 0.25 (0.20/0.80); draft '·a' accepted");
    round.rule = VerifyRule::Exact;
    assert_eq!(explain(&round, 0).unwrap().text, "the target's own draw (u 0.10) is '·a' 0.20 too; draft accepted");
}

#[test]
fn the_text_of_an_answer_leaves_out_the_token_that_ended_it() {
    let mut script = Script::prompted("hi", "Hello");
    script.round(&[("!", 0.5)], &[("!", 0.5), ("<|im_end|>", 0.5)]);
    script.finish(Lane::Speculative, StopReason::Eos);
    let session = fold(&script.events);
    assert_eq!(session.turns()[0].answer(Lane::Speculative).text(), "Hello!");
}

#[test]
fn a_session_for_the_screen_drops_candidates_of_old_turns() {
    let mut script = Script::started();
    let (rounds, turns) = (64, LISTED_ROUNDS / 64 + 2);
    for _ in 0..turns {
        script.prompt("hi", "Hello");
        (0..rounds).for_each(|_| script.round(&[(" a", 0.5)], &[(" b", 0.5), (" c", 0.5)]));
        script.finish(Lane::Speculative, StopReason::Eos);
    }
    let mut session = Session::for_screen();
    script.events.iter().for_each(|event| session.apply(event));
    let all = fold(&script.events);
    let listed = |session: &Session, turn: usize| -> usize {
        let round = &session.turns()[turn].answer(Lane::Speculative).rounds[0];
        assert_eq!(round.rows().len(), 2, "the number of rows says what the pass was");
        round.rows().iter().chain(round.drafts.iter().map(|draft| &draft.top)).map(|row| row.top.len()).sum()
    };
    assert!(listed(&session, 0) == 0 && listed(&session, turns - 1) > 0 && listed(&all, 0) > 0);
    for lane in [Lane::Speculative, Lane::Plain] {
        assert_eq!(session.stats(lane), all.stats(lane));
    }
    assert_eq!(session.turns()[0].speedup(), all.turns()[0].speedup());
}

#[test]
fn a_session_for_a_page_keeps_the_candidates_of_its_rounds_alone() {
    let mut script = Script::started();
    for _ in 0..3 {
        script.prompt("hi", "Hello");
        (0..4).for_each(|_| script.round(&[(" a", 0.5)], &[(" b", 0.5), (" c", 0.5)]));
        script.finish(Lane::Speculative, StopReason::Eos);
    }
    let mut session = Session::of_first_rounds(6);
    (0..2).for_each(|_| script.events.iter().for_each(|event| session.apply(event))); // played again
    let all = fold(&script.events);
    let candidates = |session: &Session| -> Vec<usize> {
        let rounds = session.turns().iter().flat_map(|turn| &turn.answer(Lane::Speculative).rounds);
        rounds.map(|round| round.rows().iter().map(|row| row.top.len()).sum()).collect()
    };
    let (kept, whole) = (candidates(&session), candidates(&all));
    assert_eq!((kept.len(), &kept[..6]), (12, &whole[..6]));
    // the last round keeps them until another begins
    assert!(whole.iter().all(|count| *count > 0) && kept[6..11].iter().all(|count| *count == 0), "{kept:?}");
    assert_eq!(session.stats(Lane::Speculative), all.stats(Lane::Speculative));
}

#[test]
fn dropped_turns_stay_in_the_statistics() {
    let mut script = conversation();
    [Lane::Speculative, Lane::Plain].into_iter().for_each(|lane| script.finish(lane, StopReason::Eos));
    let events = script.events;
    let (mut session, all) = (Session::new(), fold(&events));
    for event in &events {
        if matches!(event.kind, EventKind::Prompted { .. }) {
            session.drop_old_turns();
        }
        session.apply(event);
    }
    assert_eq!(all.turns().len(), 2);
    session.drop_old_turns();
    assert_eq!(session.turns().len(), 1);
    assert_eq!(session.turn().unwrap().number, all.turn().unwrap().number);
    for lane in [Lane::Speculative, Lane::Plain] {
        assert_eq!(session.stats(lane), all.stats(lane));
    }
}

#[test]
fn old_rounds_keep_only_what_the_table_shows() {
    let mut script = Script::prompted("hi", "Hello");
    for _ in 0..=FULL_ROUNDS {
        script.round(&[(" a", 0.5)], &[(" b", 0.5), (" c", 0.5)]);
    }
    let session = fold(&script.events);
    let rounds = &session.turns()[0].answer(Lane::Speculative).rounds;
    assert_eq!(rounds.len(), FULL_ROUNDS + 1);
    let row = &rounds[0].rows()[0];
    assert!(row.find(piece(" a").id).is_some());
    assert!((row.top.iter().map(|c| c.prob).sum::<f32>() + row.tail - 1.0).abs() < 1e-5);
}

proptest! {
    #[test]
    fn any_events_in_any_order_fold_without_panic(events in any_events()) {
        let session = fold(&events);
        for turn in session.turns() {
            let _ = (turn.speedup(), turn.agreement());
            for lane in [Lane::Speculative, Lane::Plain] {
                let answer = turn.answer(lane);
                let _ = (answer.text(), answer.transcript().count(), answer.speed_series(4));
                for round in &answer.rounds {
                    let columns = round.columns();
                    let _ = (0..=columns).map(|i| explain(round, i)).collect::<Vec<_>>();
                }
            }
        }
        let _ = (session.stats(Lane::Speculative), session.stats(Lane::Plain), session.speedup());
    }

    #[test]
    fn the_same_events_give_the_same_session(events in any_events()) {
        prop_assert_eq!(format!("{:?}", fold(&events)), format!("{:?}", fold(&events)));
    }
}
