//! `draftscope train`: runs the recipe in `training/` step by step and shows its progress.
//!
//! PyTorch does the training; this module starts it with the right model, folders and binary, and shows what
//! its JSON lines say. A finished step is not repeated, so the same command continues after a stop.

mod progress;
mod work_dir;

use std::io::{self, BufRead, BufReader, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use draftscope::cli::TrainArgs;
use draftscope::host::Taskbar;
use draftscope::model::files::ModelFiles;
use draftscope::model::load::OpenModel;
use draftscope::store::Terminal;
use indicatif::{ProgressBar, ProgressStyle};
use progress::StepProgress;
use work_dir::{RUN, WorkNote};

use super::signals::StopSignal;

/// A module starts as a copy of the target's last block.
const INIT: &str = "train.init=layer";

/// Share of the training over which the learning rate falls to zero.
const COOLDOWN: f64 = 0.3;

/// Time between two checks for a signal.
const LOOK: Duration = Duration::from_millis(200);

/// A step of the recipe: its Python module and the arguments of that.
struct Step {
    title: &'static str,
    module: &'static str,
    arguments: Vec<String>,
    /// A file that exists once the step is done.
    makes: Option<PathBuf>,
    /// Tokens to train on, or conversations for each process.
    goal: Option<u64>,
}

pub(crate) fn run(args: &TrainArgs) -> Result<ExitCode> {
    let recipe = recipe(&args.recipe)?;
    let model = super::recipe::store().resolve(args.model.as_deref(), &mut Terminal::default())?;
    let model = model.canonicalize().with_context(|| format!("cannot find {}", model.display()))?;
    let source = trainable(&model)?.source;
    std::fs::create_dir_all(&args.work).with_context(|| format!("cannot make {}", args.work.display()))?;
    std::fs::create_dir_all(&args.out).with_context(|| format!("cannot make {}", args.out.display()))?;
    let (work, out) = (args.work.canonicalize()?, args.out.canonicalize()?);
    let python = python(&args.python)?;
    let _lock = work_dir::lock(&work)?;
    WorkNote::of(args, &source, &model)?.claim(&work)?;
    drop(source);
    let stop = StopSignal::listen()?;
    for step in steps(args, &work, &out) {
        if step.makes.as_ref().is_some_and(|file| file.exists()) {
            continue;
        }
        let mut command = Command::new(&python);
        command.current_dir(&recipe).arg("-m").arg(format!("mtp_training.{}", step.module)).args(&step.arguments);
        command.env("MTP_ROOT", &work).env("DRAFTSCOPE_MODEL", &model).env("PYTHONUNBUFFERED", "1");
        command.env("DRAFTSCOPE", std::env::current_exe().context("the program cannot find itself")?);
        // glibc gives large temporaries back at once and faults them in again; ten times slower
        command.env("MALLOC_MMAP_MAX_", "0").env("MALLOC_TRIM_THRESHOLD_", "20000000000");
        watch(&mut command, &step, (&stop, args.json))?;
    }
    super::output::print(format_args!("The module is in {0}; use it with --mtp {0}/fp8", args.out.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Opens the model, if the recipe supports it.
fn trainable(model: &Path) -> Result<OpenModel> {
    let opened = OpenModel::open(model)?;
    let ModelFiles::Gguf(file) = &opened.source else {
        bail!("{} is a folder, and the recipe reads only GGUF files", model.display());
    };
    let family = opened.transformer().conventions.name;
    ensure!(family == "llama", "the recipe trains modules only for the Llama family, and this is {family}");
    let scaling = file.text("llama.rope.scaling.type").filter(|kind| *kind != "none");
    if let Some(kind) = scaling {
        let kind = draftscope::session::text::printable(kind);
        bail!("the recipe does not support stretched rotary positions, and this model has them ('{kind}')");
    }
    let template = opened.template(&opened.codec()?)?;
    template.context("this model has no chat template, and the recipe's conversations need one")?;
    Ok(opened)
}

/// A path becomes absolute, because the working directory changes; its links stay, because a virtual environment depends
/// on them. A bare name is looked up on the search path.
fn python(python: &Path) -> Result<PathBuf> {
    if python.components().count() < 2 {
        return Ok(python.to_owned());
    }
    std::path::absolute(python).with_context(|| format!("cannot find {}", python.display()))
}

/// The recipe's folder, as a path that does not depend on the working directory.
fn recipe(folder: &Path) -> Result<PathBuf> {
    if !folder.join("mtp_training/train.py").exists() {
        bail!(
            "{} does not contain the training recipe; give the sources' folder `training` with --recipe",
            folder.display()
        );
    }
    folder.canonicalize().with_context(|| format!("cannot open {}", folder.display()))
}

fn steps(args: &TrainArgs, work: &Path, out: &Path) -> [Step; 6] {
    let cooldown = (args.tokens as f64 * COOLDOWN) as u64;
    let text = |parts: &[&str]| parts.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>();
    let mut train = text(&[RUN]);
    train.push(format!("train.tokens={}", args.tokens - cooldown));
    train.push(format!("train.cooldown_tokens={cooldown}"));
    train.push(format!("train.threads={}", args.threads));
    train.push(format!("train.device={}", args.device));
    train.push(INIT.to_owned());
    let step = |title, module, arguments, makes| Step { title, module, arguments, makes, goal: None };
    let each = u64::from(args.conversations).div_ceil(args.threads.into());
    let (tasks, threads) = (format!("data.tasks={}", args.conversations), format!("data.processes={}", args.threads));
    [
        step("prompts", "make_data", vec!["tasks".to_owned(), tasks], Some(work.join("data/tasks.jsonl"))),
        Step { goal: Some(each), ..step("conversations", "make_data", vec!["generate".to_owned(), threads], None) },
        step("check", "make_data", text(&["stats"]), None),
        step("states", "states", vec![format!("train.threads={}", args.threads)], None),
        Step { goal: Some(args.tokens), ..step("training", "train", train, None) },
        step("export", "export", vec![RUN.to_owned(), out.display().to_string(), INIT.to_owned()], None),
    ]
}

/// Runs a step and shows its lines until it ends. A signal is passed on to the step and its child processes, and the step
/// is waited for.
fn watch(command: &mut Command, step: &Step, (stop, json): (&StopSignal, bool)) -> Result<()> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(command, 0);
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = command.spawn().with_context(|| format!("cannot start {program}; name a Python with --python"))?;
    let lines = lines(&mut child).inspect_err(|_| drop(child.kill())).context("the system starts no thread")?;
    let mut progress = StepProgress::new(step.title, step.goal);
    let shown = (!json && std::io::stderr().is_terminal()).then(display);
    let mut taskbar = Taskbar::default();
    let (mut last, mut is_stopping) = (String::new(), false);
    loop {
        if stop.flag().load(Ordering::Relaxed) && !is_stopping {
            is_stopping = true;
            end(&mut child);
        }
        let line = match lines.recv_timeout(LOOK) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        let is_report = progress.take(&line);
        if let Some((done, goal)) = progress.done() {
            taskbar.at(done, goal);
        }
        match (is_report, &shown) {
            (true, Some(bar)) => {
                bar.set_message(progress.text());
                bar.tick();
            }
            (true, None) if json => super::output::print(&line)?,
            (true, None) => eprintln!("{}", progress.brief()),
            (false, _) => last = if line.trim().is_empty() { last } else { line },
        }
    }
    if let Some(bar) = shown {
        bar.abandon();
    }
    let status = child.wait().context("cannot wait for the step")?;
    if is_stopping {
        let stopped = format!("the step \"{}\" was stopped; the same command continues from there", step.title);
        return Err(anyhow::Error::from(stop.stopped()).context(stopped));
    }
    if !status.success() {
        let cause = draftscope::session::text::printable(&last);
        bail!("the step \"{}\" ended with {status}: {cause}; the same command continues from there", step.title);
    }
    Ok(())
}

/// Asks a step and its child processes to end.
fn end(child: &mut Child) {
    #[cfg(unix)]
    {
        use rustix::process::{Pid, Signal, kill_process_group};
        let _ = kill_process_group(Pid::from_child(child), Signal::TERM); // it may have ended by itself
    }
    #[cfg(not(unix))]
    let _ = child.kill();
}

/// All lines of a child's two streams, as they arrive.
fn lines(child: &mut Child) -> io::Result<mpsc::Receiver<String>> {
    let (sender, receiver) = mpsc::channel();
    let streams: [Option<Box<dyn std::io::Read + Send>>; 2] =
        [child.stdout.take().map(|s| Box::new(s) as _), child.stderr.take().map(|s| Box::new(s) as _)];
    for stream in streams.into_iter().flatten() {
        let sender = sender.clone();
        thread::Builder::new().name("step".into()).spawn(move || {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        })?;
    }
    Ok(receiver)
}

fn display() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
        bar.set_style(style);
    }
    bar
}
