//! `draftscope generate`: training data for a draft module, progress as JSON lines on standard error.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use draftscope::cli::GenerateArgs;
use draftscope::engine::generate::{FORMAT_VERSION, Generator, Part, Plan, Progress, TaskFile};
use draftscope::model::Model;
use draftscope::model::load::OpenModel;
use draftscope::model::native::NativeLlama;
use draftscope::store::Terminal;
use serde::Serialize;

/// Time between two lines of progress.
const EVERY: Duration = Duration::from_secs(10);

/// One line of progress.
#[derive(Serialize)]
struct Line {
    event: &'static str,
    elapsed_s: f64,
    shards: usize,
    conversations: usize,
    kept: usize,
    tokens: u64,
    answer_tokens: u64,
    answer_tokens_per_s: f64,
}

pub(crate) fn run(args: &GenerateArgs) -> Result<ExitCode> {
    let tasks = TaskFile::read(&args.tasks)?;
    let store = super::recipe::store();
    let path = store.resolve(args.model.as_deref(), &mut Terminal::default())?;
    let opened = OpenModel::open(&path)?;
    let family = opened.transformer().conventions.name;
    ensure!(
        opened.config.runs_whole_native()
            && opened.config.plan().attentions().count() == opened.config.plan().layers.len(),
        "generate runs on the native kernels, which do not run many texts of a {family} model together"
    );
    let codec = opened.codec()?;
    let template = opened.template(&codec)?;
    let template = template.context("this model has no chat template, and conversations need one")?;
    let mut model = NativeLlama::load(opened.parts(), args.ctx as usize, Some(args.threads.into()))?;
    let layers = model.spec().info.layers as usize;
    if let Some(block) = args.hidden_layers.iter().find(|block| **block > layers) {
        bail!("--hidden-layers: there is no block {block}, the target has {layers}");
    }
    let plan = Plan {
        version: FORMAT_VERSION,
        model: model.spec().info.name.clone(),
        model_sha256: super::recipe::remembered_sha256(&store, &path),
        tasks_sha256: tasks.sha256,
        tasks: tasks.tasks.len(),
        shard_tasks: args.shard_tasks as usize,
        ctx_len: args.ctx as usize,
        hidden_size: model.spec().info.d_model as usize,
        hidden_layers: args.hidden_layers.clone(),
    };
    let generator = Generator::new((&mut model, &codec), &template, &tasks.tasks, plan.clone())?;
    plan.claim(&args.out)?;
    let (index, count) = args.part;
    let (started, mut reported, mut last) = (Instant::now(), Instant::now(), Progress::default());
    generator.run(&args.out, Part { index, count }, &mut |progress| {
        last = *progress;
        let event = if progress.wrote.is_some() { "shard" } else { "progress" };
        if progress.wrote.is_some() || reported.elapsed() >= EVERY {
            reported = Instant::now();
            report(event, started, progress);
        }
    })?;
    report("done", started, &last);
    Ok(ExitCode::SUCCESS)
}

fn report(event: &'static str, started: Instant, progress: &Progress) {
    let elapsed_s = started.elapsed().as_secs_f64();
    let Progress { shards, conversations, kept, tokens, answer_tokens, .. } = *progress;
    let answer_tokens_per_s = answer_tokens as f64 / elapsed_s.max(1e-9);
    let line = Line { event, elapsed_s, shards, conversations, kept, tokens, answer_tokens, answer_tokens_per_s };
    if let Ok(line) = serde_json::to_string(&line) {
        eprintln!("{line}");
    }
}
