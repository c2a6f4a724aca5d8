//! Two speculative settings in a race: each lane has its clock and caches, and the recording has both.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

mod common;

use common::tiny::Tiny;
use draftscope::engine::{self, EngineConfig};
use draftscope::headless::{Driver, Outcome};
use draftscope::protocol::stream::Source;
use draftscope::protocol::{
    Baseline, Command, Committed, DrafterKind, EventKind, Lane, Prompt, Rival, Sampling, Settings, StopReason,
    VerifyRule,
};
use draftscope::session::trace::{RecordOptions, Recorder, Recording, TextPolicy};
use draftscope::session::{Session, Turn};

fn settings() -> Settings {
    // drafts of the module: most copies are what the target would write itself
    let drafter = DrafterKind::Mtp;
    Settings { draft_len: 2, drafter, max_tokens: 60, baseline: Baseline::Off, ..Settings::default() }
}

fn driver(files: &Tiny, settings: Settings) -> Driver {
    Driver::new(engine::spawn(EngineConfig { recipe: files.recipe(), settings, grammar: None }).unwrap())
}

fn ask(driver: &mut Driver) {
    assert_eq!(driver.answer(Prompt::Raw("the thin inn".into())), Outcome::Answered);
}

fn ids(turn: &Turn, lane: Lane) -> Vec<u32> {
    turn.answer(lane).tokens.iter().map(|token| token.piece.id.0).collect()
}

#[test]
fn greedy_rivals_with_any_k_and_drafter_write_the_same_text() {
    let files = Tiny::new(3);
    for (draft_len, drafter) in
        [(5, DrafterKind::Mtp), (3, DrafterKind::Ngram), (4, DrafterKind::Oracle), (0, DrafterKind::None)]
    {
        let rival = Rival { draft_len, drafter, ..Rival::like(&settings()) };
        let mut driver = driver(&files, Settings { rival: Some(rival), ..settings() });
        ask(&mut driver);
        let turn = driver.session().turn().unwrap();
        let agreement = turn.agreement_with(Lane::Rival).unwrap();
        assert_eq!(agreement.divergence, None, "k = {draft_len} by {drafter}");
        assert_eq!(agreement.identical, ids(turn, Lane::Speculative).len());
        assert!(turn.tokens_per_second(Lane::Rival).is_some(), "each lane has a clock of its own");
        let (own, other) = (turn.answer(Lane::Speculative), turn.answer(Lane::Rival));
        assert!(own.rounds.iter().all(|round| round.draft_len() <= 2));
        assert!(other.rounds.iter().any(|round| round.draft_len() == draft_len));
        assert!(turn.answer(Lane::Plain).tokens.is_empty(), "plain decoding was not requested");
        driver.finish();
    }
}

#[test]
fn the_oracle_is_right_in_the_lane_of_the_rival_too() {
    let files = Tiny::new(3);
    let rival = Rival { draft_len: 4, drafter: DrafterKind::Oracle, ..Rival::like(&settings()) };
    let mut driver = driver(&files, Settings { rival: Some(rival), ..settings() });
    ask(&mut driver);
    let stats = driver.session().turn().unwrap().answer(Lane::Rival).stats().clone();
    assert!(stats.acceptance_rate().unwrap() > 0.95, "{stats:?}");
    driver.finish();
}

#[test]
fn the_lane_with_less_time_runs_next() {
    let files = Tiny::new(3);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("race.dscope.jsonl");
    let rival = Rival { draft_len: 4, ..Rival::like(&settings()) };
    let mut driver = driver(&files, Settings { rival: Some(rival), baseline: Baseline::Race, ..settings() });
    driver.add(Box::new(Recorder::create(&path, RecordOptions::default()).unwrap()));
    ask(&mut driver);
    assert!(driver.finish().is_empty());
    let mut clocks = [Some(0), Some(0), Some(0)];
    let mut rounds = [0; 3];
    for event in Recording::open(&path).unwrap().reader().unwrap() {
        let event = event.unwrap();
        let lane = event.lane.index();
        match event.kind {
            EventKind::RoundStarted(_) => {
                rounds[lane] += 1;
                let least = clocks.iter().flatten().min().unwrap();
                assert!(
                    clocks[lane].unwrap() <= least + 1,
                    "{:?} runs although another has less time: {clocks:?}",
                    event.lane
                );
            }
            EventKind::Committed(Committed { clock_us, .. }) => clocks[lane] = Some(clock_us),
            EventKind::Finished { .. } => clocks[lane] = None,
            _ => {}
        }
    }
    assert!(rounds.iter().all(|rounds| *rounds > 5), "all three ran: {rounds:?}");
}

#[test]
fn a_rival_with_a_rule_that_is_not_lossless_departs_and_the_run_does_not() {
    let files = Tiny::new(3);
    let rival = Rival { draft_len: 4, rule: VerifyRule::TopK, ..Rival::like(&settings()) };
    let mut driver = driver(&files, Settings { rival: Some(rival), ..settings() });
    ask(&mut driver);
    let turn = driver.session().turn().unwrap();
    assert!(turn.answer(Lane::Rival).departures().count() > 0);
    assert_eq!(turn.answer(Lane::Speculative).departures().count(), 0);
    let mut alone = self::driver(&files, settings());
    ask(&mut alone);
    assert_eq!(ids(turn, Lane::Speculative), ids(alone.session().turn().unwrap(), Lane::Speculative));
    driver.finish();
    alone.finish();
}

#[test]
fn a_rival_can_be_set_changed_and_dropped_during_a_run() {
    let files = Tiny::new(3);
    let mut driver = driver(&files, settings());
    ask(&mut driver);
    let rival = Rival { draft_len: 5, temperature: 0.7, ..Rival::like(&settings()) };
    driver.send(Command::SetRival { rival: Some(rival) });
    ask(&mut driver);
    assert_eq!(driver.session().settings().rival, Some(rival));
    let turn = &driver.session().turns()[1];
    let other = turn.answer(Lane::Rival);
    assert!(other.rounds.iter().all(|round| round.sampling.temperature == 0.7));
    assert!(turn.answer(Lane::Speculative).rounds.iter().all(|round| round.sampling == Sampling::default()));
    driver.send(Command::SetRival { rival: None });
    ask(&mut driver);
    assert!(driver.session().turns()[2].answer(Lane::Rival).tokens.is_empty());
    let invalid = Rival { draft_len: 99, ..rival };
    driver.send(Command::SetRival { rival: Some(invalid) });
    ask(&mut driver);
    assert!(driver.session().notices().any(|notice| notice.contains("99")), "k = 99 is rejected");
    driver.finish();
}

#[test]
fn a_rival_draws_its_first_token_with_its_own_settings() {
    let files = Tiny::new(3);
    let text = |text: &str| Prompt::Raw(text.into());
    let prompts = ["the thin inn", "an inn", "thin", "in the", "a hint", "that ant"];
    let firsts = |settings: Settings, lane| -> Vec<u32> {
        let mut driver = driver(&files, settings);
        prompts.iter().for_each(|prompt| assert_eq!(driver.answer(text(prompt)), Outcome::Answered));
        let turns = driver.session().turns();
        let firsts = turns.iter().map(|turn| ids(turn, lane)[0]).collect();
        for turn in turns.iter().filter(|turn| lane == Lane::Rival && !turn.answer(lane).tokens.is_empty()) {
            let row = &turn.answer(lane).first_row;
            assert!(row.top.len() > 1, "the event has the row that it was drawn from");
        }
        driver.finish();
        firsts
    };
    let cold = Settings { max_tokens: 4, ..settings() };
    let warm = Settings { sampling: Sampling { temperature: 3.0, seed: 7, ..cold.sampling }, ..cold };
    let seeded = Settings { sampling: Sampling { temperature: 0.0, ..warm.sampling }, ..cold };
    let rival = Rival { temperature: 3.0, ..Rival::like(&seeded) };
    let alone = firsts(warm, Lane::Speculative);
    assert_ne!(alone, firsts(seeded, Lane::Speculative), "the temperature changes the first token of a prompt");
    assert_eq!(firsts(Settings { rival: Some(rival), ..seeded }, Lane::Rival), alone);
}

#[test]
fn a_dropped_rival_ends_before_anything_else_is_computed() {
    let files = Tiny::new(3);
    let rival = Rival { draft_len: 4, drafter: DrafterKind::Ngram, ..Rival::like(&settings()) };
    let oracle = Settings { drafter: DrafterKind::Oracle, max_tokens: 400, rival: Some(rival), ..settings() };
    let mut source = engine::spawn(EngineConfig { recipe: files.recipe(), settings: oracle, grammar: None }).unwrap();
    source.commands.send(Command::Pause).unwrap(); // a held-up test would let the rival come to its end
    source.commands.send(Command::Generate { prompt: Prompt::Raw("the thin inn".into()) }).unwrap();
    (0..3).for_each(|_| source.commands.send(Command::StepRound).unwrap());
    let mut next = |wanted: &dyn Fn(&draftscope::protocol::Event) -> bool| loop {
        let event = source.events.blocking_recv().unwrap();
        if wanted(&event) {
            return event;
        }
    };
    next(&|event| event.lane == Lane::Rival && matches!(event.kind, EventKind::Committed(_)));
    source.commands.send(Command::SetRival { rival: None }).unwrap();
    source.commands.send(Command::Resume).unwrap();
    next(&|event| matches!(event.kind, EventKind::SettingsChanged { .. }));
    // the engine reads it between two phases, and an oracle while it computes the plain answer
    source.commands.send(Command::Note { text: "now".into(), round: None, turn: None }).unwrap();
    let event = next(&|_| true);
    assert_eq!((event.lane, event.kind), (Lane::Rival, EventKind::Finished { reason: StopReason::Measured }));
    source.commands.send(Command::Shutdown).unwrap();
}

#[test]
fn a_race_is_recorded_and_read_again() {
    let files = Tiny::new(3);
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [("full", TextPolicy::Full), ("digest", TextPolicy::Digest)] {
        let path = folder.path().join(format!("{name}.dscope.jsonl"));
        let rival = Rival { draft_len: 4, ..Rival::like(&settings()) };
        let mut driver = driver(&files, Settings { rival: Some(rival), baseline: Baseline::Race, ..settings() });
        driver.add(Box::new(Recorder::create(&path, RecordOptions { force: false, text }).unwrap()));
        ask(&mut driver);
        let live = driver.session().turn().unwrap().agreement_with(Lane::Rival);
        let clock = driver.session().turn().unwrap().answer(Lane::Rival).stats().decode_us();
        assert!(driver.finish().is_empty());
        let mut session = Session::new();
        let recording = Recording::open(&path).unwrap();
        recording.reader().unwrap().for_each(|event| session.apply(&event.unwrap()));
        let turn = session.turn().unwrap();
        assert_eq!(turn.agreement_with(Lane::Rival).map(|a| a.identical), live.map(|a| a.identical));
        assert_eq!(turn.answer(Lane::Rival).stats().decode_us(), clock);
        assert_eq!(session.settings().rival, Some(rival));
        let digests = recording.reader().unwrap().filter(|event| {
            event.as_ref().is_ok_and(|e| e.lane == Lane::Rival && matches!(e.kind, EventKind::TextDigest { .. }))
        });
        assert_eq!(digests.count(), usize::from(text == TextPolicy::Digest));
    }
}

/// Folds events until a lane ends.
fn until_finished(source: &mut Source, session: &mut Session, lane: Lane) {
    loop {
        let event = source.events.blocking_recv().unwrap();
        session.apply(&event);
        assert_eq!(session.failure(), None);
        if event.lane == lane && matches!(event.kind, EventKind::Finished { .. }) {
            return;
        }
    }
}

/// An engine that has answered, and what it sent. Its plain lane has part of the answer, or all of it if the machine
/// held the other lane up for longer than all plain passes take.
fn part_of_plain(files: &Tiny, settings: Settings) -> (Source, Session) {
    let mut source = engine::spawn(EngineConfig { recipe: files.recipe(), settings, grammar: None }).unwrap();
    let mut session = Session::new();
    source.commands.send(Command::Generate { prompt: Prompt::Raw("the thin inn".into()) }).unwrap();
    until_finished(&mut source, &mut session, Lane::Speculative);
    while session.is_generating() {
        session.apply(&source.events.blocking_recv().unwrap());
    }
    (source, session)
}

#[test]
fn plain_decoding_goes_on_with_a_turn_that_is_over_and_decodes_no_token_twice() {
    let files = Tiny::new(3);
    for baseline in [Baseline::Probe(4), Baseline::Off] {
        let settings = Settings { baseline, ..settings() };
        let (mut source, mut session, plain) = std::iter::repeat_with(|| part_of_plain(&files, settings))
            .take(20)
            .find_map(|(source, session)| {
                let plain = session.turns()[0].unfinished_plain()?;
                Some((source, session, plain))
            })
            .expect("a sample that is shorter than the answer");
        let sample = session.turns()[0].answer(Lane::Plain).clone();
        assert_eq!(plain.has_begun, baseline != Baseline::Off);
        source.commands.send(Command::FinishPlain { plain }).unwrap();
        until_finished(&mut source, &mut session, Lane::Plain);
        let turn = &session.turns()[0];
        let whole = turn.answer(Lane::Plain);
        assert_eq!(ids(turn, Lane::Plain), ids(turn, Lane::Speculative), "greedy");
        assert!(turn.agreement().unwrap().is_final);
        assert_eq!(whole.rounds[..sample.rounds.len()], sample.rounds[..], "what was there is as it was");
        let numbers = whole.rounds.iter().map(|round| round.number() as usize);
        assert!(numbers.eq(1..=whole.rounds.len()), "one round a token, none twice");
        assert!(whole.rounds.windows(2).all(|pair| pair[0].clock_us() < pair[1].clock_us()), "one clock");
        assert_eq!(whole.rounds.len() + 1, whole.tokens.len());
        source.commands.send(Command::Shutdown).unwrap();
    }
}

#[test]
fn a_prompt_goes_before_plain_decoding_and_its_lane_can_go_on_later() {
    let files = Tiny::new(3);
    let settings = Settings { max_tokens: 200, ..settings() };
    let mut source = engine::spawn(EngineConfig { recipe: files.recipe(), settings, grammar: None }).unwrap();
    let mut session = Session::new();
    let ask = || Command::Generate { prompt: Prompt::Raw("the thin inn".into()) };
    source.commands.send(ask()).unwrap();
    until_finished(&mut source, &mut session, Lane::Speculative);
    let plain = session.turns()[0].unfinished_plain().unwrap();
    source.commands.send(Command::Pause).unwrap();
    source.commands.send(Command::FinishPlain { plain }).unwrap();
    source.commands.send(ask()).unwrap();
    source.commands.send(Command::Resume).unwrap();
    until_finished(&mut source, &mut session, Lane::Speculative);
    assert_eq!(session.turns().len(), 2, "the prompt was answered");
    let rest = session.turns()[0].unfinished_plain().expect("plain decoding gave way");
    source.commands.send(Command::FinishPlain { plain: rest }).unwrap();
    until_finished(&mut source, &mut session, Lane::Plain);
    assert!(session.turns()[0].agreement().unwrap().is_final);
    source.commands.send(Command::Shutdown).unwrap();
}
