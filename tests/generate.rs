//! Batch generation on the real target: the contents of shards, which can be made in any order.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

mod common;

use std::fs;
use std::path::Path;

use common::real;
use draftscope::engine::generate::{FORMAT_VERSION, GenerateError, Generator, Part, Plan, Task, TaskFile, UserTurn};
use draftscope::model::load::OpenModel;
use draftscope::model::native::NativeLlama;
use draftscope::model::text::template::ChatTemplate;
use draftscope::model::text::tokenizer::TextCodec;
use draftscope::model::{Checkpoint, LogitRows, Model};
use draftscope::protocol::TokenId;
use safetensors::SafeTensors;

struct Real {
    model: NativeLlama,
    codec: TextCodec,
    template: ChatTemplate,
}

impl Real {
    fn open() -> Option<Self> {
        let source = OpenModel::open(&real::target_file()?).unwrap();
        let codec = source.codec().unwrap();
        let template = source.template(&codec).unwrap().unwrap();
        Some(Self { model: NativeLlama::load(source.parts(), 128, Some(2)).unwrap(), codec, template })
    }

    fn generate(&mut self, tasks: &[Task], folder: &Path, part: Part) {
        let plan = plan(tasks.len());
        plan.claim(folder).unwrap();
        let generator = Generator::new((&mut self.model, &self.codec), &self.template, tasks, plan).unwrap();
        generator.run(folder, part, &mut |_| {}).unwrap();
    }
}

fn plan(tasks: usize) -> Plan {
    Plan {
        version: FORMAT_VERSION,
        model: "SmolLM2".into(),
        model_sha256: None,
        tasks_sha256: "sum".into(),
        tasks,
        shard_tasks: 7,
        ctx_len: 128,
        hidden_size: 576,
        hidden_layers: vec![3, 29],
    }
}

/// More conversations than slots: greedy and sampled, with one turn and with several.
fn tasks() -> Vec<Task> {
    let task = |i: u64| Task {
        system: i.is_multiple_of(5).then(|| "Answer in one word.".to_owned()),
        turns: match i % 3 {
            0 => vec![UserTurn::Whole(format!("What is {i} plus one?"))],
            1 => vec![UserTurn::Invented { invent: "Name".into() }],
            _ => vec![UserTurn::Whole("Hello!".into()), UserTurn::Invented { invent: String::new() }],
        },
        temperature: if i.is_multiple_of(2) { 0.0 } else { 0.9 },
        seed: i,
        max_tokens: 4 + 5 * (i % 7) as u32,
        category: None,
    };
    (0..20).map(task).collect()
}

fn numbers<const N: usize>(shard: &SafeTensors<'_>, name: &str) -> Vec<[u8; N]> {
    shard.tensor(name).unwrap().data().as_chunks().0.to_vec()
}

#[test]
fn shards_have_the_states_and_tokens_of_a_plain_pass() {
    let Some(mut real) = Real::open() else { return };
    let folder = tempfile::tempdir().unwrap();
    let tasks = tasks();
    real.generate(&tasks, folder.path(), Part { index: 0, count: 1 });
    let (mut greedy, mut invented, mut turns) = (0, 0, 0);
    for shard in 0..3 {
        let bytes = fs::read(folder.path().join(format!("shard-{shard:05}.safetensors"))).unwrap();
        let shard = SafeTensors::deserialize(&bytes).unwrap();
        let starts: Vec<_> = numbers(&shard, "starts").into_iter().map(|b| i64::from_le_bytes(b) as usize).collect();
        let all: Vec<_> = numbers(&shard, "tokens").into_iter().map(|b| TokenId(u32::from_le_bytes(b))).collect();
        let roles = shard.tensor("roles").unwrap().data();
        let hidden = numbers::<1152>(&shard, "hidden");
        let layers = numbers::<2304>(&shard, "layers");
        let lines: Vec<_> = numbers(&shard, "tasks").into_iter().map(|b| i64::from_le_bytes(b) as usize).collect();
        for (range, line) in starts.windows(2).zip(lines) {
            let (tokens, roles) = (&all[range[0]..range[1]], &roles[range[0]..range[1]]);
            real.model.truncate(0, &Checkpoint { len: 0 }).unwrap();
            let plain = real.model.forward(tokens, LogitRows::All).unwrap();
            for (at, states) in plain.hidden.iter().enumerate() {
                let halves: Vec<u8> =
                    states[..576].iter().flat_map(|x| half::f16::from_f32(*x).to_le_bytes()).collect();
                assert!(halves == hidden[range[0] + at], "states of line {line}");
                let stored = layers[range[0] + at].as_chunks().0.iter().map(|b| half::f16::from_le_bytes(*b).to_f64());
                let stored: Vec<_> = stored.collect();
                for (state, stored) in states[576..].chunks_exact(576).zip(stored.chunks_exact(576)) {
                    let rms = (state.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / 576.0).sqrt();
                    let off = state.iter().zip(stored).map(|(x, s)| (f64::from(*x) / rms - s).abs() / s.abs().max(0.1));
                    assert!(off.fold(0.0, f64::max) < 1e-3, "states within the target, line {line} at {at}");
                }
            }
            for (at, pair) in roles.windows(2).enumerate() {
                if pair[1] == 1 && tasks[line].temperature == 0.0 {
                    assert_eq!(plain.stats[at].argmax, tokens[at + 1].0, "line {line} at {at}");
                    greedy += 1;
                }
                turns += usize::from(pair == [0, 1]);
            }
            invented += roles.iter().filter(|role| **role == 2).count();
        }
    }
    assert!(greedy > 50 && invented > 10 && turns > 15, "{greedy} {invented} {turns}");
}

#[test]
fn parts_and_repeated_runs_make_the_same_shards() {
    let Some(mut real) = Real::open() else { return };
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let tasks = tasks();
    real.generate(&tasks, whole.path(), Part { index: 0, count: 1 });
    real.generate(&tasks, parts.path(), Part { index: 1, count: 2 });
    assert!(!parts.path().join("shard-00000.safetensors").exists());
    real.generate(&tasks, parts.path(), Part { index: 0, count: 2 });
    let read = |folder: &Path, shard: u32| fs::read(folder.join(format!("shard-{shard:05}.safetensors"))).unwrap();
    for shard in 0..3 {
        assert!(read(whole.path(), shard) == read(parts.path(), shard), "shard {shard}");
    }
    // a missing shard is made again, byte for byte
    let lost = whole.path().join("shard-00001.safetensors");
    fs::remove_file(&lost).unwrap();
    real.generate(&tasks, whole.path(), Part { index: 0, count: 1 });
    assert!(read(whole.path(), 1) == read(parts.path(), 1));
}

#[test]
fn a_folder_belongs_to_one_plan() {
    let folder = tempfile::tempdir().unwrap();
    plan(20).claim(folder.path()).unwrap();
    plan(20).claim(folder.path()).unwrap();
    let other = Plan { tasks_sha256: "other".into(), ..plan(20) };
    assert!(matches!(other.claim(folder.path()), Err(GenerateError::OtherRun { what: "the task file", .. })));
    assert!(matches!(plan(21).claim(folder.path()), Err(GenerateError::OtherRun { .. })));
    let lines = folder.path().join("tasks.jsonl");
    fs::write(&lines, "{\"turns\":[\"Hi\"],\"seed\":1}\n").unwrap();
    assert_eq!(TaskFile::read(&lines).unwrap().tasks.len(), 1);
}
