//! One file per subcommand, and what they share: from typed arguments to an engine.

mod asked;
pub(crate) mod bench;
pub(crate) mod chat;
pub(crate) mod compare;
pub(crate) mod config;
mod costs;
pub(crate) mod demo;
pub(crate) mod diff;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod files;
pub(crate) mod generate;
pub(crate) mod identity;
pub(crate) mod models;
mod progress;
mod recipe;
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod stop;
mod telling;
pub(crate) mod train;

use std::io::{self, BufWriter};
use std::path::Path;

use anyhow::{Context, Result, bail};
pub(crate) use asked::{ANSWER_TOKENS, conversation, nobody_to_ask, prompt, settings, tell_short_answers};
use draftscope::cli::{DecodeArgs, ModelArgs, RivalArgs, TraceArgs, TraceTextArg};
use draftscope::engine::{self, EngineConfig};
use draftscope::headless::Jsonl;
use draftscope::model::load::Recipe;
use draftscope::protocol::{Baseline, DrafterKind, Rival, Settings};
use draftscope::stream::{Consumer, Source};
use draftscope::trace::{Digested, RecordOptions, Recorder, TextPolicy};
use recipe::mtp_recipe;
pub(crate) use recipe::{recipe, remembered_sha256, store};
pub(crate) use telling::{complete, departures, print, say, tell_idle, tell_new_notices, tell_notices, tell_rival};

/// Finds the model and starts the engine.
pub(crate) fn start(model: &ModelArgs, decode: &DecodeArgs, baseline: Baseline) -> Result<Source> {
    let settings = settings(model, decode, baseline)?;
    spawn(recipe(model)?, settings)
}

/// The same with other settings raced beside, where some are wanted.
pub(crate) fn start_against(
    rival: &RivalArgs,
    model: &ModelArgs,
    decode: &DecodeArgs,
    baseline: Baseline,
) -> Result<Source> {
    let mut settings = settings(model, decode, baseline)?;
    settings.rival = rival.rival.as_deref().map(|text| Rival::parse(text, &settings)).transpose()?;
    let mut recipe = recipe(model)?;
    let drafts_by_mtp = settings.rival.is_some_and(|rival| rival.drafter.chain().contains(&DrafterKind::Mtp));
    if recipe.mtp.is_none() && drafts_by_mtp {
        recipe.mtp = Some(mtp_recipe(model.mtp.as_deref())?);
    }
    spawn(recipe, settings)
}

/// Starts the engine on a recipe.
pub(crate) fn spawn(recipe: Recipe, settings: Settings) -> Result<Source> {
    let memory = costs::memory();
    engine::spawn_with(EngineConfig { recipe, settings }, memory).context("the system gives no thread for the engine")
}

/// The recorder, when a trace was asked for. Made before the model is loaded, so that a path that
/// cannot be written is told at once.
pub(crate) fn recorder(args: &TraceArgs) -> Result<Option<Recorder>> {
    if args.trace.as_deref() == Some(Path::new("-")) {
        bail!("--trace takes a file, because standard output is taken; --output jsonl writes the same lines there");
    }
    let options = RecordOptions { force: args.force, text: text_policy(args) };
    Ok(args.trace.as_deref().map(|path| Recorder::create(path, options)).transpose()?)
}

/// What writes every event to standard output, under the same policy as the recording.
pub(crate) fn event_stream(args: &TraceArgs) -> Box<dyn Consumer> {
    let lines = Jsonl(BufWriter::new(io::stdout()));
    match text_policy(args) {
        TextPolicy::Full => Box::new(lines),
        TextPolicy::Digest => Box::new(Digested::new(lines)),
    }
}

const fn text_policy(args: &TraceArgs) -> TextPolicy {
    match args.trace_text {
        TraceTextArg::Full => TextPolicy::Full,
        TraceTextArg::Digest => TextPolicy::Digest,
    }
}

/// Whether both are there and the same.
pub(crate) fn same_file(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    }
}
