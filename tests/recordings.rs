//! The bundled recordings: the demos, and one for each run of a lesson, made with the settings that the lesson uses on
//! a live engine. All of them were made with the bundled draft module.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use draftscope::engine::{self, EngineConfig};
use draftscope::headless::{Driver, Outcome};
use draftscope::learn::lesson::{Run, bundled, drafted};
use draftscope::model::options::{LoadOptions, ModuleFile};
use draftscope::protocol::{Baseline, Command, DrafterKind, Lane, Message, Prompt, Settings, Speaker, StopReason};
use draftscope::session::Session;
use draftscope::session::trace::{RecordOptions, Recorder, Recording, TextPolicy};
use sha2::{Digest, Sha256};

fn assets() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("assets")
}

/// The recording of a lesson.
fn file(name: &str) -> PathBuf {
    assets().join("traces/lessons").join(format!("{name}.dscope.jsonl.zst"))
}

fn demos() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(assets().join("traces")).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.is_file()).collect()
}

fn session(path: &Path) -> Session {
    let recording = Recording::open(path).unwrap();
    assert!(recording.cut().is_none(), "{}", path.display());
    let mut session = Session::new();
    recording.reader().unwrap().for_each(|event| session.apply(&event.unwrap()));
    session
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn module() -> Vec<u8> {
    std::fs::read(assets().join("mtp/smollm2-135m/mtp.fp8.safetensors")).unwrap()
}

/// Every run of every lesson that is recorded, each once.
fn runs() -> Vec<(String, Run)> {
    let steps = bundled().into_iter().flat_map(|entry| entry.lesson.step);
    let runs = steps.filter_map(|step| step.run).filter_map(|run| Some((run.recording.clone()?, run)));
    let mut runs: Vec<_> = runs.collect();
    runs.sort_by(|a, b| a.0.cmp(&b.0));
    for pair in runs.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
        assert_eq!(pair[0].1.prompt, pair[1].1.prompt, "one recording of two runs");
    }
    runs.dedup_by(|a, b| a.0 == b.0);
    runs
}

#[test]
fn each_recording_has_the_settings_of_its_lesson() {
    for (name, run) in runs() {
        let session = session(&file(&name));
        // a draft of the user takes a turn more, which makes the tokens of the prompt known; so does a run on fewer
        // threads, on all of them
        let turns = 1 + usize::from(run.draft.is_some() || run.threads > 0);
        let turn = session.turn().unwrap();
        assert_eq!(turn.begun, run.settings(&Settings::default()), "{name}");
        assert_eq!((session.turns().len(), turn.typed.as_str()), (turns, run.prompt.as_str()));
        assert!(run.turn(&session).is_some(), "{name}: the lesson finds its run");
        assert!(turn.answer(Lane::Speculative).rounds.len() > 5, "{name}: more than five rounds");
        assert!(turn.speedup().is_some(), "{name}: plain decoding was measured");
        let races = run.against.is_some() || run.against_k.is_some();
        assert_eq!(turn.answer(Lane::Rival).tokens.is_empty(), !races, "{name}");
        let is_whole = |lane| matches!(turn.answer(lane).finished, Some(StopReason::Eos | StopReason::MaxTokens));
        assert!(is_whole(Lane::Speculative) && is_whole(Lane::Plain), "{name}: both lanes come to their end");
    }
}

#[test]
fn recordings_were_made_with_the_bundled_module() {
    let module = sha256(&module());
    let lessons = runs().into_iter().map(|(name, _)| file(&name));
    for path in demos().into_iter().chain(lessons) {
        let session = session(&path);
        let header = session.header().unwrap();
        if path.parent().is_some_and(|folder| folder.ends_with("lessons")) {
            // 30 blocks of 3,538,944 in Q4_1, and the embedding, which is the head too, 49,152 × 576 in Q8_0
            assert_eq!(header.model.active_weights, 134_479_872, "{}: record it again", path.display());
        }
        let mut drafters = header.drafter.iter().chain(&header.drafters);
        let mtp = drafters.find(|drafter| drafter.kind == DrafterKind::Mtp).unwrap();
        assert_eq!(mtp.sha256.as_deref(), Some(module.as_str()), "{}: record it again", path.display());
    }
}

/// What a run loads. One on fewer threads compares them with all: a busy machine, where one of them might be chosen, has no
/// say in that.
fn recipe_for(run: &Run) -> LoadOptions {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    LoadOptions { threads: (run.threads > 0).then_some(all), ..recipe() }
}

fn recipe() -> LoadOptions {
    let target = draftscope::store::resolve(None).unwrap();
    let weights = module();
    let module = ModuleFile {
        name: "smollm2-135m-mtp-9 (fp8)".into(),
        sha256: Some(sha256(&weights)),
        weights: weights.into(),
        config: std::fs::read(assets().join("mtp/smollm2-135m/config.json")).unwrap().into(),
        required: true,
    };
    LoadOptions { sha256: Some(sha256(&std::fs::read(&target).unwrap())), ..LoadOptions::on_cpu(target, Some(module)) }
}

/// Records a conversation.
fn record(path: &Path, prompts: Vec<String>, settings: Settings) {
    let mut driver = Driver::new(engine::spawn(EngineConfig { recipe: recipe(), settings, grammar: None }).unwrap());
    driver.add(Box::new(Recorder::create(path, RecordOptions { force: true, text: TextPolicy::Full }).unwrap()));
    let mut messages = Vec::new();
    for content in prompts {
        messages.push(Message { role: Speaker::User, content });
        assert_eq!(driver.answer(Prompt::Chat(messages.clone())), Outcome::Answered);
        let answer = driver.session().turn().unwrap().answer(Lane::Speculative).text();
        messages.push(Message { role: Speaker::Assistant, content: answer });
    }
    assert!(driver.finish().is_empty());
}

fn prompt_of(run: &Run) -> Prompt {
    let message = Message { role: Speaker::User, content: run.prompt.clone() };
    if run.raw { Prompt::Raw(run.prompt.clone()) } else { Prompt::Chat(vec![message]) }
}

/// Answers the run of a lesson on the real model.
fn answer(run: &Run, consumer: Option<Recorder>) -> Session {
    let settings = run.settings(&Settings::default());
    let first = match run.draft {
        Some(_) => Settings { max_tokens: 1, baseline: Baseline::Off, ..settings },
        None => Settings { threads: 0, ..settings },
    };
    let mut driver =
        Driver::new(engine::spawn(EngineConfig { recipe: recipe_for(run), settings: first, grammar: None }).unwrap());
    if let Some(consumer) = consumer {
        driver.add(Box::new(consumer));
    }
    assert_eq!(driver.answer(prompt_of(run)), Outcome::Answered);
    if run.threads > 0 {
        driver.send(Command::SetThreads { threads: run.threads });
        assert_eq!(driver.answer(prompt_of(run)), Outcome::Answered);
    }
    if let Some(draft) = &run.draft {
        driver.send(Command::SetMaxTokens { max_tokens: settings.max_tokens });
        driver.send(Command::SetBaseline { baseline: settings.baseline });
        let prompt = drafted(driver.session().turn().unwrap(), draft).unwrap();
        assert_eq!(driver.answer(prompt), Outcome::Answered);
    }
    let session = driver.session().clone();
    assert!(driver.finish().is_empty());
    session
}

/// How often a run is repeated while other work on the machine hides its numbers.
const TRIES: usize = 3;

/// Answers the run of a lesson, again where its speedup was not measured.
fn measured(run: &Run) -> Session {
    let mut session = answer(run, None);
    for _ in 1..TRIES {
        let speedup = run.turn(&session).and_then(|turn| turn.speedup());
        if speedup.is_some_and(|speedup| !speedup.is_disturbed()) {
            break;
        }
        session = answer(run, None);
    }
    session
}

/// What a lesson says of its run, whatever the machine: checked on the real model.
fn holds(name: &str, run: &Run, session: &Session) {
    let turn = run.turn(session).unwrap_or_else(|| panic!("{name} did not run"));
    let own = turn.answer(Lane::Speculative);
    let outcomes = |round: usize| {
        let round = &own.rounds[round];
        (0..round.drafts.len()).map(|index| round.outcome(index).unwrap()).collect::<Vec<_>>()
    };
    let text = |lane| turn.answer(lane).text();
    use draftscope::protocol::Outcome::{Accepted, NotReached, Rejected};
    match name {
        "positions" => {
            assert_eq!(outcomes(0), [Accepted, Rejected, NotReached], "the user's draft: {}", own.text());
            let drafts = own.rounds[0].drafts.iter().map(|draft| draft.token.lossy().into_owned());
            assert_eq!(drafts.collect::<String>(), " States of America");
        }
        "obama" => {
            assert_eq!(outcomes(0), [Accepted], "the user's draft: {}", own.text());
            let p = own.rounds[0].judgement(0).and_then(|judged| judged.p).unwrap();
            assert!((0.5..0.9).contains(&p), "accepted below 90 %: {p}");
        }
        "round" => {
            assert_eq!(outcomes(0), [Accepted; 3], "a bonus first");
            assert_eq!(outcomes(1), [Rejected, NotReached, NotReached], "a rejection within two rounds");
        }
        "random" => {
            assert_eq!(text(Lane::Speculative), text(Lane::Plain));
            assert_eq!(own.stats().accepted_per_pos().first().copied().unwrap_or(0), 0, "nothing was accepted");
        }
        "rules" | "confidence" => {
            assert!(turn.answer(Lane::Rival).departures().count() > 0, "{}", text(Lane::Rival));
            assert_ne!(text(Lane::Speculative), text(Lane::Rival));
        }
        // a busy machine may leave too few plain passes beside the rounds: then the lesson says so, and nothing is asserted
        "slow" | "losing" => match turn.speedup().filter(|speedup| !speedup.is_disturbed()) {
            Some(speedup) => assert!(speedup.low < 1.0, "{name} does not win: {speedup:?}"),
            None => println!("{name}: its speedup is not known on this busy machine"),
        },
        "threads" => {
            let on_all = run.turn_on_all(session).unwrap();
            assert_eq!(text(Lane::Speculative), on_all.answer(Lane::Speculative).text(), "threads change no text");
            let rows = |lane: Lane| turn.answer(lane).rounds.iter().map(|round| round.rows().len()).max();
            assert_eq!([Lane::Plain, Lane::Rival, Lane::Speculative].map(rows), [Some(1), Some(4), Some(16)]);
        }
        "sampling" => assert!((0..own.rounds.len()).any(|round| outcomes(round).contains(&Rejected))),
        _ => {}
    }
    if run.temperature == 0.0 {
        assert_eq!(text(Lane::Speculative), text(Lane::Plain), "{name}: greedy output cannot change");
    }
}

/// Every lesson, step by step, on the real model: each run is answered, each number that a step asks about is measured,
/// and what the texts say of the runs holds.
#[test]
fn every_lesson_is_played_on_the_real_model() {
    if std::env::var_os("DRAFTSCOPE_OFFLINE").is_some() {
        return;
    }
    let mut known: BTreeMap<String, Session> = BTreeMap::new();
    for entry in bundled() {
        let mut session = Session::new();
        for (index, step) in entry.lesson.step.iter().enumerate() {
            if let Some(run) = &step.run {
                let name = run.recording.clone().unwrap();
                session = known.entry(name.clone()).or_insert_with(|| measured(run)).clone();
                holds(&name, run, &session);
            }
            if step.quiz {
                continue;
            }
            let shown = entry.lesson.shown(index, &session);
            let run = entry.lesson.run_at(index);
            let is_unknown = step.measured.as_ref().is_some_and(|measured| measured.is_unknown(&session, run));
            let is_known = !step.choices.is_empty() && !is_unknown;
            assert_eq!(shown.right.is_some(), is_known, "{} step {}", entry.name, index + 1);
            let texts = shown.choices.iter().flat_map(|(text, why)| [text, why]).chain([&shown.text, &shown.reveal]);
            for text in texts {
                assert!(!text.contains("(not measured yet)"), "{} step {}: {text}", entry.name, index + 1);
            }
        }
    }
}

/// Records the runs of the lessons again on the real model: all, or the one that the variable `LESSON_RUN` names.
#[test]
#[ignore = "writes the bundled recordings of the lessons"]
fn record_lessons() {
    let wanted = std::env::var("LESSON_RUN").ok();
    for (name, run) in runs().into_iter().filter(|(name, _)| wanted.as_ref().is_none_or(|wanted| wanted == name)) {
        let options = RecordOptions { force: true, text: TextPolicy::Full };
        answer(&run, Some(Recorder::create(&file(&name), options).unwrap()));
    }
}

/// Records all of them again on the real model: `cargo test --release --test recordings -- --ignored`. Demos keep their
/// prompts and settings.
#[test]
#[ignore = "writes the bundled recordings"]
fn record_all() {
    record_lessons();
    for path in demos() {
        let session = session(&path);
        let prompts = session.turns().iter().map(|turn| turn.typed.clone()).collect();
        record(&path, prompts, *session.settings());
    }
}
