//! Drafters that need the engine's help, and settings that change while an answer runs.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

mod common;

use common::tiny::Tiny;
use draftscope::engine::{self, EngineConfig};
use draftscope::protocol::stream::Source;
use draftscope::protocol::{
    Baseline, Command, Committed, Drafted, DrafterKind, Drafting, EventKind, Lane, Outcome, Prefilled, Prompt,
    RoundStarted, Sampling, Settings, TokenId, VerifyRule,
};

const TOKENS: u32 = 40;

fn start(files: &Tiny, settings: Settings) -> Source {
    let settings = Settings { max_tokens: TOKENS, baseline: Baseline::Off, ..settings };
    engine::spawn(EngineConfig { recipe: files.recipe(), settings, grammar: None }).unwrap()
}

/// Answers one prompt round by round, so that a command takes effect before the next round however late it is sent;
/// `react` gets every event of the turn and may send commands.
fn answer(source: &mut Source, mut react: impl FnMut(&EventKind) -> Option<Command>) -> (Vec<TokenId>, Vec<EventKind>) {
    let prompt = Prompt::Raw("in the thin".into());
    for command in [Command::Pause, Command::Generate { prompt }, Command::StepRound] {
        source.commands.send(command).unwrap();
    }
    let (mut text, mut events) = (Vec::new(), Vec::new());
    loop {
        let event = source.events.blocking_recv().expect("the engine lives");
        assert_eq!(event.lane, Lane::Speculative);
        match &event.kind {
            EventKind::Prefilled(Prefilled { first, .. }) => text.push(first.id),
            EventKind::Committed(Committed { tokens, .. }) => text.extend(tokens.iter().map(|piece| piece.id)),
            EventKind::Failed { message } => panic!("{message}"),
            _ => {}
        }
        let is_round = matches!(event.kind, EventKind::Committed(_));
        for command in react(&event.kind).into_iter().chain(is_round.then_some(Command::StepRound)) {
            source.commands.send(command).unwrap();
        }
        let is_end = matches!(event.kind, EventKind::Finished { .. });
        events.push(event.kind);
        if is_end {
            return (text, events);
        }
    }
}

fn plain(files: &Tiny) -> Vec<TokenId> {
    let mut source = start(files, Settings { draft_len: 0, drafter: DrafterKind::None, ..Settings::default() });
    answer(&mut source, |_| None).0
}

fn drafts(events: &[EventKind]) -> usize {
    events.iter().filter(|event| matches!(event, EventKind::Drafted(_))).count()
}

fn accepted(events: &[EventKind]) -> usize {
    let of = |event: &EventKind| match event {
        EventKind::Verified { verdict, .. } => verdict.accepted(),
        _ => 0,
    };
    events.iter().map(of).sum()
}

#[test]
fn the_oracle_is_right_in_every_turn_also_if_chosen_during_an_answer() {
    let files = Tiny::new(6);
    let want = plain(&files);
    let mut source = start(&files, Settings { draft_len: 3, drafter: DrafterKind::Oracle, ..Settings::default() });
    for _ in 0..2 {
        let (text, events) = answer(&mut source, |_| None);
        assert_eq!(text, want);
        assert_eq!(accepted(&events), drafts(&events), "an oracle is never wrong");
        assert!(drafts(&events) >= 25, "{}", drafts(&events));
    }
    let mut source = start(&files, Settings { draft_len: 3, drafter: DrafterKind::Ngram, ..Settings::default() });
    let switch = Command::SetDrafter { drafter: DrafterKind::Oracle };
    let (text, events) = answer(&mut source, |event| {
        matches!(event, EventKind::RoundStarted(RoundStarted { round: 5, .. })).then(|| switch.clone())
    });
    assert_eq!(text, want);
    let from = events.iter().position(|event| matches!(event, EventKind::SettingsChanged { .. })).unwrap();
    assert_eq!(accepted(&events[from..]), drafts(&events[from..]));
    assert!(drafts(&events[from..]) > 10);
}

/// Judged drafts, and accepted ones.
fn judged(events: &[EventKind]) -> [usize; 2] {
    let of = |event: &EventKind| match event {
        EventKind::Verified { verdict, .. } => {
            let judged = verdict.judgements.iter().filter(|judgement| judgement.outcome != Outcome::NotReached);
            [judged.count(), verdict.accepted()]
        }
        _ => [0, 0],
    };
    events.iter().map(of).fold([0, 0], |[a, b], [c, d]| [a + c, b + d])
}

#[test]
fn the_dial_is_right_as_often_as_it_says_and_changes_no_text() {
    let files = Tiny::new(6);
    let dial = |dial, seed| Settings {
        draft_len: 4,
        drafter: DrafterKind::Dial,
        drafting: Drafting { dial, ..Drafting::default() },
        sampling: Sampling { seed, ..Sampling::default() },
        ..Settings::default()
    };
    let want = plain(&files);
    for share in [0.0, 0.3, 0.7, 1.0] {
        let [mut drafts, mut accepted] = [0, 0];
        for seed in 0..12 {
            let (text, events) = answer(&mut start(&files, dial(share, seed)), |_| None);
            assert_eq!(text, want, "{share}");
            let [judged, right] = judged(&events);
            (drafts, accepted) = (drafts + judged, accepted + right);
        }
        let (got, share) = (accepted as f64 / drafts as f64, f64::from(share));
        // four standard deviations of so many draws
        let bound = 4.0 * (share * (1.0 - share) / drafts as f64).sqrt();
        assert!(drafts > 200 && (got - share).abs() <= bound + 1e-6, "{accepted} of {drafts} at {share}");
    }
    let lower = Command::SetDrafting { drafting: dial(0.0, 0).drafting };
    let turn = |event: &EventKind| {
        matches!(event, EventKind::RoundStarted(RoundStarted { round: 4, .. })).then(|| lower.clone())
    };
    let (text, events) = answer(&mut start(&files, dial(1.0, 0)), turn);
    assert_eq!(text, want);
    let at = events.iter().position(|event| matches!(event, EventKind::SettingsChanged { .. })).unwrap();
    let [before, after] = [&events[..at], &events[at..]].map(judged);
    assert!(before[0] >= 12 && before[0] == before[1] && after[0] > 10 && after[1] == 0, "{before:?} {after:?}");
}

#[test]
fn a_person_is_asked_for_every_draft_and_the_text_is_that_of_the_model() {
    let files = Tiny::new(6);
    let want = plain(&files);
    let mut source = start(&files, Settings { draft_len: 3, drafter: DrafterKind::Human, ..Settings::default() });
    let mut asked = 0;
    let (text, events) = answer(&mut source, |event| {
        let EventKind::DraftAsked { draft_len: 3 } = event else { return None };
        asked += 1;
        let text = if asked % 3 == 0 { "" } else { " the in" };
        Some(Command::ProposeDraft { text: text.into() })
    });
    assert_eq!(text, want);
    let rounds = events.iter().filter(|event| matches!(event, EventKind::RoundStarted(_))).count();
    assert_eq!(asked, rounds);
    assert!(drafts(&events) >= rounds, "{} drafts in {rounds} rounds", drafts(&events));
}

#[test]
fn a_stop_or_another_drafter_ends_the_wait_for_a_person() {
    let files = Tiny::new(6);
    let want = plain(&files);
    let human = Settings { draft_len: 3, drafter: DrafterKind::Human, ..Settings::default() };
    let mut source = start(&files, human);
    // another drafter while the engine waits
    let (text, _) = answer(&mut source, |event| {
        let waits = matches!(event, EventKind::DraftAsked { .. });
        waits.then_some(Command::SetDrafter { drafter: DrafterKind::Random })
    });
    assert_eq!(text, want);
    // a stop while the engine waits
    let mut source = start(&files, human);
    let (text, _) = answer(&mut source, |event| matches!(event, EventKind::DraftAsked { .. }).then_some(Command::Stop));
    assert_eq!(text, want[..1]);
}

#[test]
fn settings_change_during_an_answer_and_a_missing_drafter_gives_the_reason() {
    let files = Tiny::new(6);
    let want = plain(&files);
    let mut source = start(&files, Settings { draft_len: 3, drafter: DrafterKind::Mtp, ..Settings::default() });
    let tree = Drafting { tree: Some(7), ..Drafting::default() };
    let (text, events) = answer(&mut source, |event| match event {
        EventKind::RoundStarted(RoundStarted { round: 3, .. }) => Some(Command::SetDrafting { drafting: tree }),
        EventKind::RoundStarted(RoundStarted { round: 6, .. }) => Some(Command::SetRule { rule: VerifyRule::Block }),
        EventKind::RoundStarted(RoundStarted { round: 9, .. }) => {
            Some(Command::SetDrafter { drafter: DrafterKind::DraftModel })
        }
        EventKind::RoundStarted(RoundStarted { round: 12, .. }) => {
            Some(Command::SetDrafter { drafter: DrafterKind::Mtp })
        }
        _ => None,
    });
    assert_eq!(text, want);
    let rows = |event: &EventKind| matches!(event, EventKind::Drafted(Drafted { row: Some(_), .. }));
    assert!(events.iter().any(rows), "no tree was drafted");
    let notices: Vec<_> = events.iter().filter(|event| matches!(event, EventKind::Notice { .. })).collect();
    assert!(
        matches!(&notices[..], [EventKind::Notice { message }] if message.contains("--draft-model")),
        "{notices:?}"
    );
    let started = |round: u32| {
        let is_it =
            |event: &EventKind| matches!(event, EventKind::RoundStarted(RoundStarted { round: r, .. }) if *r == round);
        events.iter().position(is_it).unwrap()
    };
    assert_eq!(drafts(&events[started(11)..started(12)]), 0, "without a draft model, plain decoding");
    assert!(drafts(&events[started(14)..]) > 0, "and then the module is back");
}

#[test]
fn the_header_names_the_drafters_and_whether_the_rule_is_lossless() {
    let files = Tiny::new(6);
    let drafter: DrafterKind = "ngram+mtp".parse().unwrap();
    for (rule, lossless) in [(VerifyRule::Block, true), (VerifyRule::Typical, false)] {
        let mut source = start(&files, Settings { rule, drafter, ..Settings::default() });
        let header = loop {
            if let EventKind::Started { header } = source.events.blocking_recv().unwrap().kind {
                break header;
            }
        };
        assert_eq!(header.lossless, Some(lossless));
        assert_eq!(header.drafter.unwrap().kind, drafter);
        let kinds: Vec<_> = header.drafters.iter().map(|info| info.kind).collect();
        assert!(kinds.contains(&DrafterKind::Mtp) && kinds.contains(&DrafterKind::EarlyExit));
        assert!(!kinds.contains(&DrafterKind::DraftModel));
    }
}

/// Events of a source that runs one phase and pauses again. Notes show how far it has come, however slow it is.
fn until_paused(source: &mut Source) -> Vec<EventKind> {
    let mut step = Vec::new();
    loop {
        let had_phase = step.iter().any(is_phase);
        source.commands.send(Command::Note { text: String::from("?"), round: None, turn: None }).unwrap();
        step.extend(std::iter::from_fn(|| match source.events.blocking_recv().unwrap().kind {
            EventKind::Noted { .. } => None,
            kind => Some(kind),
        }));
        if had_phase {
            return step; // what follows the phase would have come before the second note
        }
    }
}

/// Whether this event ends a phase of the round.
fn is_phase(event: &EventKind) -> bool {
    matches!(event, EventKind::Drafted(_) | EventKind::Scored(_) | EventKind::Verified { .. } | EventKind::Committed(_))
}

#[test]
fn a_tree_is_stepped_node_by_node() {
    let files = Tiny::new(6);
    let drafting = Drafting { tree: Some(6), ..Drafting::default() };
    let mut source = start(&files, Settings { draft_len: 3, drafting, ..Settings::default() });
    while !matches!(source.events.blocking_recv().unwrap().kind, EventKind::Started { .. }) {}
    source.commands.send(Command::Pause).unwrap();
    source.commands.send(Command::Generate { prompt: Prompt::Raw("in the thin".into()) }).unwrap();
    let mut step = until_paused(&mut source);
    let mut rows = Vec::new();
    loop {
        let phases: Vec<_> = step.iter().filter(|event| is_phase(event)).collect();
        assert_eq!(phases.len(), 1, "one phase a step: {step:?}");
        match phases[0] {
            EventKind::Drafted(Drafted { index, row, .. }) => {
                assert_eq!(usize::from(*index), rows.len());
                rows.push(row.expect("a node of a tree"));
            }
            EventKind::Committed(_) => break,
            _ => {}
        }
        source.commands.send(Command::StepPhase).unwrap();
        step = until_paused(&mut source);
    }
    assert!(rows.len() > 3, "{rows:?}");
    assert!(rows.windows(2).any(|pair| pair[0] == pair[1]), "two nodes have the same parent: {rows:?}");
    source.commands.send(Command::Shutdown).unwrap();
}
