//! Answers joined with the lines of a plugin: whole, late, damaged and contradictory.

use super::super::store::Waiting;
use super::*;
use draftscope_protocol::{
    Committed, Drafted, Judgement, NextKind, Outcome, RoundStarted, Scored, TokenId, Verification,
};

fn piece(id: u32) -> Piece {
    Piece::new(TokenId(id), id.to_string().as_str())
}

fn pieces(ids: &[u32]) -> Vec<Piece> {
    ids.iter().copied().map(piece).collect()
}

/// A round of `drafted` drafts that committed these tokens.
fn round(drafted: usize, committed: &[u32], at_us: u64) -> Round {
    let accepted = committed.len() - 1;
    let empty = Prediction { top: Vec::new(), tail: 1.0 };
    let drafts = (0..drafted).map(|index| Drafted {
        index: index as u8,
        token: committed.get(index).filter(|_| index < accepted).map_or(piece(900 + index as u32), |id| piece(*id)),
        q: Some(1.0),
        top: empty.clone(),
        took_us: 1,
        ..Drafted::default()
    });
    let judgements = (0..drafted).map(|index| Judgement {
        p: Some(0.5),
        q: Some(1.0),
        u: None,
        limit: None,
        outcome: Outcome::in_chain(index, accepted),
    });
    let kind = if accepted == drafted { NextKind::Bonus } else { NextKind::Recovered };
    let round = Round {
        base_len: 5,
        drafts: drafts.collect(),
        scored: Some(Scored { rows: vec![empty; drafted + 1], verify_us: 10, sample_us: 1, ..Scored::default() }),
        verdict: Verification::new(judgements.collect(), TokenId(committed[accepted]), kind, None),
        committed: pieces(committed),
        at_us,
    };
    round.check().unwrap();
    round
}

fn feed(requests: Vec<(&str, Vec<Round>)>) -> Feed {
    let store = Arc::new(Store::default());
    store.lock().requests = requests
        .into_iter()
        .map(|(request, rounds)| Waiting { request: request.to_owned(), rounds: rounds.into() })
        .collect();
    Feed { store, request: None, misses: 0, round_wait: std::time::Duration::from_secs(1) }
}

fn step(accepted: usize, tokens: &[u32], clock_us: u64) -> Step {
    Step { drafted: accepted, accepted, tokens: pieces(tokens), clock_us, ..Step::default() }
}

#[test]
fn a_step_gets_the_drafts_that_were_rejected() {
    let mut feed = feed(vec![("r", vec![round(0, &[7], 1), round(3, &[1, 2], 2)])]);
    assert!(feed.first(&piece(7)).is_some());
    let [step] = &feed.take(step(1, &[1, 2], 50))[..] else { panic!("one step") };
    assert_eq!((step.drafted, step.accepted, step.clock_us), (3, 1, 50));
    let detail = step.detail.as_ref().unwrap();
    assert_eq!(detail.drafts[1].token, piece(901));
}

#[test]
fn steps_that_the_server_sent_together_are_taken_apart() {
    let mut feed = feed(vec![("r", vec![round(2, &[1, 2, 3], 1000), round(0, &[4], 1300), round(4, &[5, 6], 1600)])]);
    let steps = feed.take(step(4, &[1, 2, 3, 4, 5, 6], 2000));
    let seen: Vec<_> =
        steps.iter().map(|step| (step.drafted, step.accepted, step.tokens.len(), step.clock_us)).collect();
    assert_eq!(seen, [(2, 2, 3, 1400), (0, 0, 1, 1700), (4, 1, 2, 2000)]);
}

#[test]
fn the_last_step_of_an_answer_may_be_cut() {
    let mut feed = feed(vec![("r", vec![round(4, &[1, 2, 3, 4, 5], 1)])]);
    let [step] = &feed.take(step(2, &[1, 2], 9))[..] else { panic!("one step") };
    assert_eq!((step.drafted, step.accepted, step.tokens.len()), (4, 4, 2));
}

#[test]
fn rounds_that_were_left_out_cost_their_own_detail_only() {
    let mut feed = feed(vec![("r", vec![round(0, &[1], 1), round(0, &[3], 3)])]);
    assert!(feed.take(step(0, &[1], 1))[0].detail.is_some());
    assert!(feed.take(step(0, &[2], 2))[0].detail.is_none(), "its round was dropped");
    assert!(feed.take(step(0, &[3], 3))[0].detail.is_some());
}

#[test]
fn requests_are_distinguished_by_what_they_commit() {
    let twins = || vec![round(0, &[1], 1), round(1, &[2, 3], 2)];
    let mut two = feed(vec![("a", twins()), ("b", vec![round(0, &[1], 1), round(1, &[2, 4], 2)])]);
    assert!(two.take(step(0, &[1], 1))[0].detail.is_none(), "either may be it");
    assert!(two.take(step(1, &[2, 3], 2))[0].detail.is_some());
    assert_eq!(two.request.as_deref(), Some("a"));
    let mut same = feed(vec![("a", twins()), ("b", twins())]);
    assert!(same.take(step(1, &[2, 3], 2))[0].detail.is_none());
}

#[test]
fn a_plugin_that_lies_changes_no_token() {
    let mut feed = feed(vec![("r", vec![round(1, &[8, 9], 1)])]);
    let own = step(1, &[1, 2], 5);
    assert_eq!(feed.take(own.clone()), [own]);
}

/// The tokens of a step whose round is that of tokens 1 and 2, as the plugin calls them.
fn joined(own: &[Piece; 2], theirs: &[Piece; 2]) -> Vec<Piece> {
    let round = Round { committed: theirs.to_vec(), ..round(1, &[1, 2], 1) };
    let steps = feed(vec![("r", vec![round])]).take(Step { tokens: own.to_vec(), ..step(1, &[], 5) });
    steps.into_iter().next().unwrap().tokens
}

#[test]
fn ids_and_parts_of_the_text_that_the_server_left_out_are_filled_in() {
    let unknown = |text: &str| Piece::new(TokenId::UNKNOWN, text);
    let theirs = || [piece(1), piece(2)];
    // a server that sends several tokens at once puts all their text into the first one
    assert_eq!(joined(&[Piece::new(TokenId(1), "12"), Piece::new(TokenId(2), "")], &theirs()), pieces(&[1, 2]));
    assert_eq!(joined(&[unknown("1"), unknown("2")], &theirs()), pieces(&[1, 2]));
    let end = Piece::special(TokenId(2), "<end>");
    assert_eq!(joined(&[unknown("1"), unknown("")], &[piece(1), end.clone()]), [piece(1), end]);
}

#[test]
fn a_plugin_that_lies_adds_no_text_and_takes_none_away() {
    let text = |pieces: &[Piece]| pieces.iter().flat_map(Piece::text_bytes).copied().collect::<Vec<u8>>();
    let known = |id: u32, text: &str| Piece::new(TokenId(id), text);
    let lies = [
        [known(1, "1"), known(2, "2 and rm -rf /")],
        [known(1, "1 and more"), known(2, "")],
        [Piece::special(TokenId(1), "<s>"), known(2, "2")],
        [Piece::special(TokenId(1), "<s>"), Piece::special(TokenId(2), "</s>")],
        [known(1, ""), known(2, "")],
    ];
    let truths = [["12", ""], ["", "12"], ["1", "2"], ["", ""], ["1", ""], ["", "2"]];
    for theirs in &lies {
        for [first, second] in truths {
            for ids in [[TokenId(1), TokenId(2)], [TokenId::UNKNOWN, TokenId(2)], [TokenId::UNKNOWN; 2]] {
                let own = [Piece::new(ids[0], first), Piece::new(ids[1], second)];
                let shown = joined(&own, theirs);
                assert_eq!((shown.len(), text(&shown)), (2, text(&own)), "{own:?} {theirs:?}");
            }
        }
    }
}

#[test]
fn the_events_of_a_joined_step_have_everything() {
    use draftscope_protocol::EventKind;
    let mut feed = feed(vec![("r", vec![round(3, &[1, 2], 2)])]);
    let step = feed.take(step(1, &[1, 2], 50)).remove(0);
    let events = step.events(7, 20);
    assert_eq!(events.len(), 1 + 3 + 3);
    assert!(matches!(events[0], EventKind::RoundStarted(RoundStarted { round: 7, base_len: 20, draft_len: 3 })));
    assert!(matches!(&events[2], EventKind::Drafted(Drafted { token, .. }) if *token == piece(901)));
    assert!(matches!(&events[4], EventKind::Scored(Scored { rows, verify_us: 10, .. }) if rows.len() == 4));
    assert!(matches!(&events[6], EventKind::Committed(Committed { tokens, clock_us: 50, .. }) if tokens.len() == 2));
}

#[test]
fn rounds_that_nobody_takes_are_bounded_in_bytes() {
    use draftscope_protocol::Candidate;
    let store = Store::default();
    let candidate = Candidate { piece: Piece::new(TokenId(1), "x".repeat(1000).as_str()), prob: 0.001 };
    let mut large = round(1, &[1, 2], 1);
    large.scored.as_mut().unwrap().rows[0].top = vec![candidate; 1000];
    let weight = large.bytes();
    assert!((1_000_000..1_200_000).contains(&weight), "{weight}");
    for index in 0..200 {
        store.round(format!("{}", index % 3), Round { at_us: index, ..large.clone() });
        let state = store.lock();
        let bytes: usize = state.requests.iter().flat_map(|waiting| &waiting.rounds).map(Round::bytes).sum();
        assert!(bytes <= 64 << 20, "{bytes} after {index}");
    }
    let state = store.lock();
    let newest = state.requests.iter().flat_map(|waiting| &waiting.rounds).map(|round| round.at_us).max();
    assert_eq!(newest, Some(199));
}

#[test]
fn a_panic_of_the_reading_thread_is_a_sentence_and_ends_the_wait() {
    let store = Store::default();
    follow(&store, || panic!("a test's panic"));
    let mut state = store.lock();
    assert!(!state.is_connected());
    assert!(state.take_notices()[0].contains("internal error"));
}
