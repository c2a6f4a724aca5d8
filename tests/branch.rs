//! Branches, which continue from a committed token: the engine must roll both caches back exactly.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

mod common;

use common::tiny::{Tiny, vocab_len};
use draftscope::engine::{self, EngineConfig};
use draftscope::headless::{Driver, Outcome};
use draftscope::protocol::{
    Again, Baseline, Branch, Command, Continuation, EventKind, Lane, Prompt, Sampling, Settings, TokenId, VerifyRule,
};
use draftscope::session::{Answer, Provenance, Session, Timeline, Turn};

fn driver(files: &Tiny, settings: Settings) -> Driver {
    Driver::new(engine::spawn(EngineConfig { recipe: files.recipe(), settings, grammar: None }).unwrap())
}

fn settings() -> Settings {
    Settings {
        draft_len: 3,
        max_tokens: 40,
        baseline: Baseline::Off,
        drafter: draftscope::protocol::DrafterKind::Mtp,
        ..Settings::default()
    }
}

fn answer(turn: &Turn) -> &Answer {
    turn.answer(Lane::Speculative)
}

fn ids(answer: &Answer) -> Vec<TokenId> {
    answer.tokens.iter().map(|token| token.piece.id).collect()
}

/// A branch that continues after `kept` tokens of the first turn.
fn branch(session: &Session, kept: usize) -> Prompt {
    let turn = &session.turns()[0];
    let output = ids(answer(turn));
    let tokens = answer(turn).prompt.iter().chain(&output[..kept]).copied().collect();
    let branch = Branch { turn: turn.number, kept: kept as u32, forced: false };
    Prompt::Branch(Continuation { typed: turn.typed.clone(), tokens, branch, again: None })
}

/// Drafts and predictions of the target, rounded: passes of different widths differ in the last bits, which the cache of a module
/// rounds to halves.
fn rounds(answer: &Answer) -> Vec<String> {
    let round = |round: &draftscope::session::Round| {
        let drafts: Vec<_> = round.drafts.iter().map(|d| (d.token.id, d.q.map(|q| format!("{q:.2}")))).collect();
        let rows: Vec<_> =
            round.rows().iter().map(|row| row.top.iter().map(|c| (c.piece.id, c.prob)).collect::<Vec<_>>()).collect();
        format!("{drafts:?} {rows:.3?} {:?}", round.committed())
    };
    answer.rounds.iter().map(|r| round(r)).collect()
}

#[test]
fn a_branch_continues_like_the_answer_and_like_a_fresh_engine() {
    let files = Tiny::new(3);
    for kept in [1, 7, 19] {
        let mut used = driver(&files, settings());
        assert_eq!(used.answer(Prompt::Raw("the thin inn".into())), Outcome::Answered);
        let prompt = branch(used.session(), kept);
        assert_eq!(used.answer(prompt.clone()), Outcome::Answered);
        let mut fresh = driver(&files, settings());
        assert_eq!(fresh.answer(prompt), Outcome::Answered);

        let turns = used.session().turns();
        let (first, second) = (answer(&turns[0]), answer(&turns[1]));
        let shared = ids(first).len().min(ids(second).len());
        assert!(shared > kept + 5, "the answers are long enough to compare");
        assert_eq!(ids(first)[..shared], ids(second)[..shared], "greedy text is the same, kept {kept}");
        assert_eq!(second.prompt, first.prompt);
        assert_eq!(second.kept, kept);
        assert!(second.tokens[..kept].iter().all(|token| token.provenance == Provenance::Kept));
        assert_eq!(second.tokens[kept].provenance, Provenance::Prefill);
        assert!(second.cached as usize >= second.prompt.len(), "the prompt was not read again");

        let anew = answer(&fresh.session().turns()[0]);
        assert_eq!(anew.cached, 0);
        assert_eq!(rounds(second), rounds(anew), "drafter and target have the state of a fresh engine, kept {kept}");
        used.finish();
        fresh.finish();
    }
}

#[test]
fn a_sampled_branch_uses_the_draws_of_its_positions() {
    let files = Tiny::new(3);
    let sampling = Sampling { temperature: 0.9, seed: 11, ..Sampling::default() };
    let mut driver = driver(&files, Settings { sampling, rule: VerifyRule::Exact, ..settings() });
    assert_eq!(driver.answer(Prompt::Raw("the thin inn".into())), Outcome::Answered);
    let prompt = branch(driver.session(), 9);
    assert_eq!(driver.answer(prompt), Outcome::Answered);
    let turns = driver.session().turns();
    let (first, second) = (ids(answer(&turns[0])), ids(answer(&turns[1])));
    let shared = first.len().min(second.len());
    assert_eq!(first[..shared], second[..shared], "with the rule exact, a seed determines the text");
    driver.finish();
}

#[test]
fn a_forced_token_is_kept_and_recorded() {
    let files = Tiny::new(3);
    let mut driver = driver(&files, settings());
    assert_eq!(driver.answer(Prompt::Raw("the thin inn".into())), Outcome::Answered);
    let other = TokenId((ids(answer(&driver.session().turns()[0]))[4].0 + 1) % vocab_len() as u32);
    let Prompt::Branch(mut from) = branch(driver.session(), 5) else { panic!("it is a branch") };
    *from.tokens.last_mut().unwrap() = other;
    from.branch.forced = true;
    assert_eq!(driver.answer(Prompt::Branch(from)), Outcome::Answered);
    let turn = &driver.session().turns()[1];
    assert!(turn.branch.unwrap().forced);
    assert_eq!(answer(turn).tokens[4].piece.id, other);
    driver.finish();
}

/// The prompt that runs a round of the first turn again.
fn run_again(session: &Session, round: usize, again: Again) -> Prompt {
    let kept = answer(&session.turns()[0]).rounds[round].first_token;
    let Prompt::Branch(mut from) = branch(session, kept) else { panic!("it is a branch") };
    from.branch.kept -= 1; // the anchor is committed again
    Prompt::Branch(Continuation { again: Some(again), ..from })
}

#[test]
fn a_round_is_run_again_from_its_anchor() {
    let files = Tiny::new(3);
    let mut driver = driver(&files, settings());
    assert_eq!(driver.answer(Prompt::Raw("the thin inn".into())), Outcome::Answered);
    let round = 4;
    let prompt = run_again(driver.session(), round, Again::default());
    assert_eq!(driver.answer(prompt), Outcome::Answered);
    let turns = driver.session().turns();
    let (first, second) = (answer(&turns[0]), answer(&turns[1]));
    let old = first.rounds[round].first_token;
    assert_eq!(second.kept, old - 1);
    assert_eq!(second.tokens[old - 1].piece.id, first.tokens[old - 1].piece.id, "the anchor is the same");
    assert_eq!(second.tokens[old - 1].provenance, Provenance::Prefill);
    assert_eq!(rounds(second)[0], rounds(first)[round], "the same drafter, the same target");
    driver.finish();
}

#[test]
fn a_draft_of_a_person_is_judged_in_place_of_the_drafter_s() {
    let files = Tiny::new(3);
    let mut driver = driver(&files, settings());
    assert_eq!(driver.answer(Prompt::Raw("the thin inn".into())), Outcome::Answered);
    let round = 3;
    let (right, wrong) = {
        let old = &answer(&driver.session().turns()[0]).rounds[round];
        let right = old.committed()[0].id;
        (right, TokenId((right.0 + 1) % vocab_len() as u32))
    };
    for (drafts, accepted) in [(vec![right], 1), (vec![wrong], 0), (vec![right, wrong, right, right, right], 1)] {
        let again = Again { drafts: drafts.clone(), text: String::new() };
        let prompt = run_again(driver.session(), round, again);
        assert_eq!(driver.answer(prompt), Outcome::Answered);
        let turns = driver.session().turns();
        let round = &answer(turns.last().unwrap()).rounds[0];
        assert_eq!(round.drafts.iter().map(|cell| cell.token.id).collect::<Vec<_>>(), drafts);
        assert_eq!(usize::from(round.draft_len()), drafts.len(), "k is what was typed, not the setting");
        // five of them cannot all be right by the first two verdicts
        assert!(round.accepted() >= accepted && (drafts[0] == right) == (round.accepted() > 0), "{drafts:?}");
        let (old, new) = (ids(answer(&turns[0])), ids(answer(turns.last().unwrap())));
        let shared = old.len().min(new.len());
        assert_eq!(old[..shared], new[..shared], "the greedy text does not depend on the drafts");
    }
    let again = Again { drafts: Vec::new(), text: "inn".into() };
    let prompt = run_again(driver.session(), round, again);
    assert_eq!(driver.answer(prompt), Outcome::Answered);
    let round = answer(driver.session().turns().last().unwrap()).rounds[0].clone();
    let text: Vec<u8> = round.drafts.iter().flat_map(|cell| cell.token.text_bytes().to_vec()).collect();
    assert_eq!(String::from_utf8_lossy(&text).trim(), "inn");
    driver.finish();
}

#[test]
fn tokens_of_another_model_are_rejected() {
    let files = Tiny::new(3);
    let mut driver = driver(&files, settings());
    assert_eq!(driver.answer(Prompt::Raw("the".into())), Outcome::Answered);
    let Prompt::Branch(mut from) = branch(driver.session(), 1) else { panic!("it is a branch") };
    from.tokens.push(TokenId(4_000_000));
    let outcome = driver.answer(Prompt::Branch(from));
    assert_ne!(outcome, Outcome::Answered);
    let notice = driver.session().notices().next_back().unwrap().to_owned();
    assert!(notice.contains("4000000"), "{notice}");
    driver.finish();
}

/// What the terminal does: pause during an answer, look at the past, branch.
#[test]
fn a_paused_answer_can_be_left_for_a_branch() {
    let files = Tiny::new(3);
    let mut source =
        engine::spawn(EngineConfig { recipe: files.recipe(), settings: settings(), grammar: None }).unwrap();
    let mut time = Timeline::new();
    let commands = source.commands.clone();
    commands.send(Command::Pause).unwrap(); // a held-up test would let the answer come to its end
    commands.send(Command::Generate { prompt: Prompt::Raw("the thin inn".into()) }).unwrap();
    (0..3).for_each(|_| commands.send(Command::StepRound).unwrap());
    let mut next = || source.events.blocking_recv().unwrap();
    let mut rounds = 0;
    while rounds < 3 {
        let event = next();
        rounds += usize::from(matches!(event.kind, EventKind::Committed(_)));
        time.apply(event);
    }
    assert!(time.live().is_paused());
    let prompt = branch(time.live(), 3);
    commands.send(Command::Stop).unwrap();
    commands.send(Command::Generate { prompt }).unwrap();
    while time.live().turns().len() < 2 || time.live().is_generating() {
        time.apply(next());
    }
    let turns = time.live().turns();
    let (first, second) = (ids(answer(&turns[0])), ids(answer(&turns[1])));
    assert!(first.len() < second.len(), "the first answer was left");
    assert_eq!(first[..], second[..first.len()]);
    commands.send(Command::Shutdown).unwrap();
}
