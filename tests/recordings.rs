//! The recordings on which lessons are played where there is no engine: each is the very run that its
//! lesson asks of a live one.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use std::path::{Path, PathBuf};

use draftscope::engine::{self, EngineConfig};
use draftscope::headless::{Driver, Outcome};
use draftscope::model::load::{Backend, DeviceChoice, Dtype, MtpRecipe, Recipe, Rollback};
use draftscope::protocol::{
    Baseline, DraftLenMode, Lane, Message, Prompt, Rival, Sampling, Settings, Speaker, VerifyRule,
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

fn file(name: &str) -> PathBuf {
    assets().join("traces/lessons").join(format!("{name}.dscope.jsonl.zst"))
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
fn each_recording_is_what_its_lesson_runs() {
    for run in runs() {
        let recording = Recording::open(&file(&run.name)).unwrap();
        assert!(recording.cut().is_none(), "{}", run.name);
        let mut session = Session::new();
        recording.reader().unwrap().for_each(|event| session.apply(&event.unwrap()));
        let settings = Settings { max_tokens: session.settings().max_tokens, ..run.settings };
        assert_eq!(*session.settings(), settings, "{}", run.name);
        let turn = session.turn().unwrap();
        assert_eq!((session.turns().len(), turn.typed.as_str()), (1, run.prompt.as_str()));
        assert!(turn.answer(Lane::Speculative).rounds.len() > 5, "{}: something to see", run.name);
        assert!(turn.speedup().is_some(), "{}: plain decoding was measured", run.name);
        assert_eq!(turn.answer(Lane::Rival).tokens.is_empty(), settings.rival.is_none(), "{}", run.name);
    }
}

/// Records them anew on the real model: `cargo test --release --test lessons -- --ignored`.
#[test]
#[ignore = "writes the recordings that come with the program"]
fn record_the_lessons() {
    let target = draftscope::store::resolve(None).unwrap();
    let sum = |bytes: &[u8]| Some(Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    let mtp = assets().join("mtp/smollm2-135m");
    let weights = std::fs::read(mtp.join("mtp.fp8.safetensors")).unwrap();
    let recipe = Recipe {
        sha256: sum(&std::fs::read(&target).unwrap()),
        target,
        dtype: Dtype::Auto,
        device: DeviceChoice::Cpu,
        backend: Backend::Auto,
        threads: None,
        ctx_len: None,
        mtp: Some(MtpRecipe {
            name: "smollm2-135m-mtp-2 (fp8)".into(),
            sha256: sum(&weights),
            weights: weights.into(),
            config: std::fs::read(mtp.join("config.json")).unwrap().into(),
            required: true,
        }),
        draft_model: None,
        rollback: Rollback::default(),
        draft_vocab: None,
    };
    for Run { name, prompt, settings } in runs() {
        let options = RecordOptions { force: true, text: TextPolicy::Full };
        let config = EngineConfig { recipe: recipe.clone(), settings };
        let mut driver = Driver::new(engine::spawn(config).unwrap());
        driver.add(Box::new(Recorder::create(&file(&name), options).unwrap()));
        let message = Message { role: Speaker::User, content: prompt };
        assert_eq!(driver.answer(Prompt::Chat(vec![message])), Outcome::Answered);
        assert!(driver.finish().is_empty());
    }
}
