//! The bundled recordings: the demos, and one for each run of a lesson, made with the settings that the lesson uses on
//! a live engine. All of them were made with the bundled draft module.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use std::path::{Path, PathBuf};

use draftscope::engine::{self, EngineConfig};
use draftscope::headless::{Driver, Outcome};
use draftscope::model::options::{Backend, DeviceChoice, Dtype, LoadOptions, ModuleFile, Rollback};
use draftscope::protocol::{
    Baseline, DraftLenMode, DrafterKind, Lane, Message, Prompt, Rival, Sampling, Settings, Speaker, VerifyRule,
};
use draftscope::session::Session;
use draftscope::trace::{RecordOptions, Recorder, Recording, TextPolicy};
use sha2::{Digest, Sha256};

/// Longest answer: enough to see what a lesson is about.
const MAX_TOKENS: u32 = 56;

/// What a lesson runs.
struct Run {
    name: String,
    prompt: String,
    settings: Settings,
}

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

fn rule(value: Option<&toml::Value>) -> Option<VerifyRule> {
    value.map(|rule| rule.as_str().unwrap().parse().unwrap())
}

/// Every run of every lesson.
fn runs() -> Vec<Run> {
    let mut paths: Vec<_> =
        std::fs::read_dir(assets().join("lessons")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut runs = Vec::new();
    for path in paths {
        let lesson: toml::Table = std::fs::read_to_string(path).unwrap().parse().unwrap();
        for run in lesson["step"].as_array().unwrap().iter().filter_map(|step| step.get("run")) {
            let temperature = run.get("temperature").map_or(0.0, |t| t.as_float().unwrap() as f32);
            let settings = Settings {
                draft_len: run["k"].as_integer().unwrap() as u8,
                draft_len_mode: DraftLenMode::Fixed,
                rule: rule(run.get("rule")).unwrap_or_default(),
                sampling: Sampling { temperature, ..Sampling::default() },
                max_tokens: MAX_TOKENS,
                baseline: Baseline::Race,
                ..Settings::default()
            };
            let rival = rule(run.get("against")).map(|rule| Rival { rule, ..Rival::like(&settings) });
            runs.push(Run {
                name: run["recording"].as_str().unwrap().to_owned(),
                prompt: run["prompt"].as_str().unwrap().to_owned(),
                settings: Settings { rival, ..settings },
            });
        }
    }
    runs
}

#[test]
fn each_recording_has_the_settings_of_its_lesson() {
    for run in runs() {
        let session = session(&file(&run.name));
        let settings = Settings { max_tokens: session.settings().max_tokens, ..run.settings };
        assert_eq!(*session.settings(), settings, "{}", run.name);
        let turn = session.turn().unwrap();
        assert_eq!((session.turns().len(), turn.typed.as_str()), (1, run.prompt.as_str()));
        assert!(turn.answer(Lane::Speculative).rounds.len() > 5, "{}: more than five rounds", run.name);
        assert!(turn.speedup().is_some(), "{}: plain decoding was measured", run.name);
        assert_eq!(turn.answer(Lane::Rival).tokens.is_empty(), settings.rival.is_none(), "{}", run.name);
    }
}

#[test]
fn recordings_were_made_with_the_bundled_module() {
    let module = sha256(&module());
    let lessons = runs().into_iter().map(|run| file(&run.name));
    for path in demos().into_iter().chain(lessons) {
        let session = session(&path);
        let header = session.header().unwrap();
        let mut drafters = header.drafter.iter().chain(&header.drafters);
        let mtp = drafters.find(|drafter| drafter.kind == DrafterKind::Mtp).unwrap();
        assert_eq!(mtp.sha256.as_deref(), Some(module.as_str()), "{}: record it again", path.display());
    }
}

fn recipe() -> LoadOptions {
    let target = draftscope::store::resolve(None).unwrap();
    let weights = module();
    LoadOptions {
        sha256: Some(sha256(&std::fs::read(&target).unwrap())),
        target,
        dtype: Dtype::Auto,
        device: DeviceChoice::Cpu,
        backend: Backend::Auto,
        threads: None,
        ctx_len: None,
        mtp: Some(ModuleFile {
            name: "smollm2-135m-mtp-9 (fp8)".into(),
            sha256: Some(sha256(&weights)),
            weights: weights.into(),
            config: std::fs::read(assets().join("mtp/smollm2-135m/config.json")).unwrap().into(),
            required: true,
        }),
        draft_model: None,
        rollback: Rollback::default(),
        draft_vocab: None,
    }
}

/// Records a conversation.
fn record(path: &Path, prompts: Vec<String>, settings: Settings) {
    let mut driver = Driver::new(engine::spawn(EngineConfig { recipe: recipe(), settings }).unwrap());
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

/// Records all of them again on the real model: `cargo test --release --test recordings -- --ignored`. Demos keep their
/// prompts and settings.
#[test]
#[ignore = "writes the bundled recordings"]
fn record_all() {
    for Run { name, prompt, settings } in runs() {
        record(&file(&name), vec![prompt], settings);
    }
    for path in demos() {
        let session = session(&path);
        let prompts = session.turns().iter().map(|turn| turn.typed.clone()).collect();
        record(&path, prompts, *session.settings());
    }
}
