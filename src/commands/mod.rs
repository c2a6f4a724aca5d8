//! One file per subcommand, and what they share: from typed arguments to an engine.

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
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod stop;
pub(crate) mod train;

use std::fmt::Display;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use draftscope::cli::{
    BackendArg, DecodeArgs, DeviceArg, DraftLenArg, DtypeArg, LabArgs, ModelArgs, PromptArgs, RivalArgs, RollbackArg,
    Threads, TraceArgs, TraceTextArg,
};
use draftscope::engine::{self, EngineConfig};
use draftscope::headless::{Driver, Outcome, Summary};
use draftscope::model::eagle::EagleConfig;
use draftscope::model::gemma4::assistant::AssistantConfig;
use draftscope::model::load::{Backend, DeviceChoice, Dtype, MtpRecipe, Recipe, Rollback};
use draftscope::model::qwen35::DraftVocab;
use draftscope::model::side_files::SideFiles;
use draftscope::protocol::{
    Baseline, DraftLenMode, DrafterKind, Drafting, Lane, Leniency, Message, Prompt, Rival, Sampling, Settings, Speaker,
    TokenId,
};
use draftscope::session::text::printable;
use draftscope::store::{Store, StoreError, Terminal};
use draftscope::stream::{Dropped, Source};
use draftscope::trace::{RecordOptions, Recorder, TextPolicy};
use sha2::{Digest, Sha256};

/// The module that comes with the program; made for the default model.
const MTP_WEIGHTS: &[u8] = include_bytes!("../../assets/mtp/smollm2-135m/mtp.fp8.safetensors");
const MTP_CONFIG: &[u8] = include_bytes!("../../assets/mtp/smollm2-135m/config.json");
const MTP_NAME: &str = "smollm2-135m-mtp-6 (fp8)";

/// Largest prompt that is read from a file: far more than any context holds.
const MAX_PROMPT_BYTES: u64 = 16 << 20;

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

/// Says on standard error how the newest race went.
pub(crate) fn tell_rival(driver: &Driver) {
    let Some(turn) = driver.session().turn().filter(|turn| !turn.answer(Lane::Rival).tokens.is_empty()) else {
        return;
    };
    let speed = |lane| turn.answer(lane).stats().tokens_per_second();
    if let (Some(own), Some(other)) = (speed(Lane::Speculative), speed(Lane::Rival)) {
        eprintln!("draftscope: {own:.1} tokens/s, the rival {other:.1}: {:.2}× as fast as the rival", own / other);
    }
    match turn.agreement_with(Lane::Rival) {
        Some(told) if told.divergence.is_none() => {
            eprintln!("draftscope: both wrote the same {} tokens", told.identical);
        }
        Some(told) => eprintln!("draftscope: they differ after {} identical tokens", told.identical),
        None => {}
    }
}

/// Starts the engine on a recipe.
pub(crate) fn spawn(recipe: Recipe, settings: Settings) -> Result<Source> {
    let memory = costs::memory();
    engine::spawn_with(EngineConfig { recipe, settings }, memory).context("the system gives no thread for the engine")
}

pub(crate) fn settings(model: &ModelArgs, decode: &DecodeArgs, baseline: Baseline) -> Result<Settings> {
    let (draft_len, draft_len_mode) = match decode.k {
        DraftLenArg::Fixed(k) => (k, DraftLenMode::Fixed),
        DraftLenArg::Auto => (Settings::default().draft_len, DraftLenMode::Auto),
    };
    let settings = Settings {
        draft_len,
        draft_len_mode,
        probe_depth: 0,
        drafter: model.drafter.parse()?,
        drafting: drafting(&decode.lab)?,
        rule: decode.verify.parse()?,
        leniency: leniency(&decode.lab),
        sampling: Sampling {
            temperature: decode.temperature,
            top_k: decode.top_k,
            top_p: decode.top_p,
            min_p: decode.min_p,
            seed: decode.seed,
        },
        max_tokens: decode.max_tokens,
        baseline,
        rival: None,
    };
    settings.validate()?;
    Ok(settings)
}

fn drafting(lab: &LabArgs) -> Result<Drafting> {
    let (shortest, usual) = (lab.ngram_min, Drafting::default().ngram_max);
    let longest = lab.ngram_max.unwrap_or(usual.max(shortest));
    if shortest > longest {
        bail!("--ngram-min is {shortest} and --ngram-max {longest}; the shortest n-gram must not be the longer one");
    }
    Ok(Drafting {
        pick: lab.draft_pick.parse()?,
        p_min: lab.p_min,
        ngram_min: shortest,
        ngram_max: longest,
        exit_layers: lab.exit_layers,
        tree: lab.tree,
        mtp: lab.mtp_spec.parse()?,
    })
}

const fn leniency(lab: &LabArgs) -> Leniency {
    Leniency {
        epsilon: lab.epsilon,
        delta: lab.delta,
        top_k: lab.lenient_top_k,
        threshold: lab.threshold,
        confidence: lab.confidence,
    }
}

/// Without a screen nobody can be asked for drafts.
pub(crate) fn nobody_to_ask(args: &ModelArgs) -> Result<()> {
    if args.drafter == DrafterKind::Human.name() {
        bail!(
            "the drafter human needs the terminal view, where drafts are typed; run `draftscope chat --drafter human`"
        );
    }
    Ok(())
}

pub(crate) fn recipe(args: &ModelArgs) -> Result<Recipe> {
    // loaded whoever drafts, so that it can be switched to
    let mtp = if args.drafter == DrafterKind::None.name() { None } else { Some(mtp_recipe(args.mtp.as_deref())?) };
    let store = store()?;
    let target = store.resolve(args.model.as_deref(), &mut Terminal::default())?;
    Ok(Recipe {
        sha256: remembered_sha256(&store, &target),
        target,
        dtype: match args.dtype {
            DtypeArg::Auto => Dtype::Auto,
            DtypeArg::Q4_1 => Dtype::Q4_1,
            DtypeArg::Stored => Dtype::Stored,
            DtypeArg::F32 => Dtype::F32,
            DtypeArg::Bf16 => Dtype::Bf16,
        },
        device: match args.device {
            DeviceArg::Auto => DeviceChoice::Auto,
            DeviceArg::Cpu => DeviceChoice::Cpu,
            DeviceArg::Cuda => DeviceChoice::Cuda,
            DeviceArg::Metal => DeviceChoice::Metal,
        },
        backend: match args.backend {
            BackendArg::Auto => Backend::Auto,
            BackendArg::Candle => Backend::Candle,
            BackendArg::Native => Backend::Native,
        },
        threads: match args.threads {
            Threads::Auto => None,
            Threads::Count(count) => Some(count.into()),
        },
        ctx_len: args.ctx.map(|ctx| ctx as usize),
        mtp,
        draft_model: match &args.draft_model {
            Some(model) => Some(drafter(&store, model)?),
            None => None,
        },
        rollback: match args.rollback {
            RollbackArg::Snapshots => Rollback::Snapshots,
            RollbackArg::Replay => Rollback::Replay,
        },
        draft_vocab: args.draft_vocab.as_deref().map(draft_vocab).transpose()?,
    })
}

/// The second model; the store's own words are about the target.
fn drafter(store: &Store, model: &Path) -> Result<PathBuf> {
    store.resolve(Some(model), &mut Terminal::default()).map_err(|error| match error {
        StoreError::Read { path, source } => {
            anyhow!("cannot read the draft model {}: {source}; check what --draft-model names", path.display())
        }
        error => error.into(),
    })
}

/// The store, which fetches no weights of what does not run.
pub(crate) fn store() -> Result<Store> {
    let preflight = |folder: &Path| SideFiles::of(folder).preflight().map_err(|error| error.to_string());
    Ok(Store::from_env()?.with_preflight(preflight))
}

/// A number of tokens, all of them, or a file that lists them.
fn draft_vocab(text: &str) -> Result<DraftVocab> {
    if let Ok(count) = text.parse() {
        return Ok(DraftVocab::First(count));
    }
    if text == "all" {
        return Ok(DraftVocab::All);
    }
    const MOST: u64 = 16 << 20;
    let size = std::fs::metadata(text).with_context(|| format!("--draft-vocab: cannot read {text}"))?.len();
    if size > MOST {
        bail!("--draft-vocab: {text} is {size} bytes long; a list of token ids takes at most {MOST}");
    }
    let list = std::fs::read_to_string(text).with_context(|| format!("--draft-vocab: cannot read {text}"))?;
    let ids = list.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(|(at, line)| {
        line.trim()
            .parse()
            .map(TokenId)
            .with_context(|| format!("--draft-vocab: line {} of {text} is no token id", at + 1))
    });
    Ok(DraftVocab::Tokens(ids.collect::<Result<_>>()?))
}

/// The sum that a model in the cache was checked against; files elsewhere are not hashed at start.
pub(crate) fn remembered_sha256(store: &Store, target: &Path) -> Option<String> {
    let entries = store.list().ok()?;
    entries.into_iter().find(|e| store.cache().dir().join(&e.file) == target)?.sha256
}

fn mtp_recipe(folder: Option<&Path>) -> Result<MtpRecipe> {
    let (name, weights, config): (_, Arc<[u8]>, Arc<[u8]>) = match folder {
        None => (MTP_NAME.to_owned(), MTP_WEIGHTS.into(), MTP_CONFIG.into()),
        Some(folder) => {
            let read = |path: PathBuf| std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()));
            let config = read(folder.join("config.json"))?;
            if EagleConfig::is_one(&config) {
                bail!("{} holds an EAGLE-3 head; name it with --draft-model", folder.display());
            }
            if AssistantConfig::is_one(&config) {
                bail!("{} holds an assistant of Gemma 4; name it with --draft-model", folder.display());
            }
            let weights = read(weights_in(folder)?)?;
            (folder.display().to_string(), weights.into(), config.into())
        }
    };
    let sha256 = Some(Sha256::digest(&weights).iter().map(|byte| format!("{byte:02x}")).collect());
    Ok(MtpRecipe { name, weights, config, sha256, required: folder.is_some() })
}

/// The first `.safetensors` file of a folder, by name.
fn weights_in(folder: &Path) -> Result<PathBuf> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read the folder {}", folder.display()))?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let weights = paths.filter(|path| path.extension().is_some_and(|e| e == "safetensors")).min();
    weights.with_context(|| format!("{} holds no .safetensors file", folder.display()))
}

/// The prompt that was asked for, as the engine takes it.
pub(crate) fn prompt(args: &PromptArgs, decode: &DecodeArgs) -> Result<Prompt> {
    let text = match (args.prompt.as_ref().or(args.text.as_ref().filter(|text| *text != "-")), &args.prompt_file) {
        (Some(text), _) => text.clone(),
        (None, Some(path)) if path.as_os_str() != "-" => {
            let file = std::fs::File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
            read_text(file).with_context(|| format!("cannot read the prompt from {}", path.display()))?
        }
        _ => read_text(std::io::stdin()).context("cannot read the prompt from standard input")?,
    };
    if text.trim().is_empty() {
        bail!("the prompt is empty; give some text with --prompt");
    }
    Ok(if decode.raw { Prompt::Raw(text) } else { Prompt::Chat(conversation(decode, text)) })
}

pub(crate) fn conversation(decode: &DecodeArgs, text: String) -> Vec<Message> {
    let system = decode.system.iter().map(|content| Message { role: Speaker::System, content: content.clone() });
    system.chain([Message { role: Speaker::User, content: text }]).collect()
}

fn read_text(reader: impl Read) -> Result<String> {
    let mut bytes = Vec::new();
    reader.take(MAX_PROMPT_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_PROMPT_BYTES {
        bail!("it is larger than {} MiB", MAX_PROMPT_BYTES >> 20);
    }
    String::from_utf8(bytes).context("it is not UTF-8 text")
}

/// The recorder, when a trace was asked for. Made before the model is loaded, so that a path that
/// cannot be written is told at once.
pub(crate) fn recorder(args: &TraceArgs) -> Result<Option<Recorder>> {
    let text = match args.trace_text {
        TraceTextArg::Full => TextPolicy::Full,
        TraceTextArg::Digest => TextPolicy::Digest,
    };
    let options = RecordOptions { force: args.force, text };
    Ok(args.trace.as_deref().map(|path| Recorder::create(path, options)).transpose()?)
}

/// Says on standard error what the user should know, but for what is told as the outcome.
pub(crate) fn tell_notices(driver: &Driver, outcome: &Outcome) {
    for notice in driver.session().notices() {
        if !matches!(outcome, Outcome::Failed(message) if message == notice) {
            say(notice);
        }
    }
    tell_early_exit(driver);
}

/// Drafting with every layer of the target is no early exit.
pub(crate) fn tell_early_exit(driver: &Driver) {
    let settings = driver.session().settings();
    let (asked, drafts) = (u32::from(settings.drafting.exit_layers), settings.drafter.chain());
    let Some(header) = driver.session().header().filter(|_| drafts.contains(&DrafterKind::EarlyExit)) else {
        return;
    };
    if asked >= header.model.layers {
        say(&format!(
            "--exit-layers {asked} is no early exit: the target has {} layers, and a draft cost as much as a pass",
            header.model.layers
        ));
    }
}

/// Says those notices that are new since `told` were seen.
pub(crate) fn tell_new_notices(driver: &Driver, told: &mut u64) {
    let session = driver.session();
    let new = session.notices_seen().saturating_sub(*told);
    let kept: Vec<_> = session.notices().collect();
    let first = kept.len().saturating_sub(usize::try_from(new).unwrap_or(usize::MAX));
    kept[first..].iter().for_each(|notice| say(notice));
    *told = session.notices_seen();
}

/// What a rule that is not lossless did to the text; none under a lossless one.
pub(crate) fn departures(run: &Summary) -> Option<String> {
    let first = run.first_departure.map_or(String::new(), |at| format!(", the first at token {}", at + 1));
    let (count, tokens) = (run.departures, run.output_tokens);
    let told =
        format!("not lossless: {count} of {tokens} tokens accepted that the target would not have picked{first}");
    (!run.lossless).then_some(told)
}

/// Lines on standard output, with nothing that a terminal obeys. A reader that has enough is an error that
/// `main` knows, and a full disk one that it tells.
pub(crate) fn print(text: impl Display) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", printable(&text.to_string()))?;
    Ok(out.flush()?)
}

/// A line on standard error; text of files and models is in it only as what a terminal does not obey.
pub(crate) fn say(what: &str) {
    // nobody is left to tell where this cannot be told
    let _ = writeln!(std::io::stderr(), "draftscope: {}", printable(what));
}

/// A consumer that failed is an error at the end of a run: its output is not whole.
pub(crate) fn complete(dropped: Vec<Dropped>) -> Result<()> {
    match dropped.into_iter().next() {
        Some(Dropped { name, error }) => Err(anyhow::Error::new(error).context(format!("{name} is not complete"))),
        None => Ok(()),
    }
}

/// Whether both are there and the same.
pub(crate) fn same_file(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    }
}
