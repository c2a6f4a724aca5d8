//! `draftscope models`: the store on the command line.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::process::ExitCode;

use anyhow::Result;
use draftscope::cli::ModelsAction;
use draftscope::model::ModelError;
use draftscope::model::interfaces::ModuleCard;
use draftscope::model::load::card::Card;
use draftscope::model::load::gguf_summary::GgufSummary;
use draftscope::model::load::named_module::{MODULE_KINDS, kind_in};
use draftscope::store::{ModelEntry, ModelTable, PullOptions, Status, Store, Terminal};
use serde::Serialize;
use serde_json::Value;

use super::recommended_models::RecommendedRows;

pub(crate) fn run(action: ModelsAction) -> Result<ExitCode> {
    let store = super::recipe::store();
    let progress = &mut Terminal::default();
    match action {
        ModelsAction::Pull { name, force, from, json } => {
            let from = from.map(|from| from.parse()).transpose().map_err(anyhow::Error::msg)?;
            let pulled = store.pull(name.as_deref(), PullOptions { force, from }, progress)?;
            show(&pulled, json)?;
        }
        ModelsAction::List { json } => list(&store, json)?,
        ModelsAction::Info { name, json } => show(&Info::of(store.info(&name, progress)?), json)?,
        ModelsAction::Rm { name } => super::output::print(store.remove(&name, progress)?)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Known models, files in the cache, and recommended models.
fn list(store: &Store, json: bool) -> Result<()> {
    let (entries, recommended) = (store.list()?, RecommendedRows::new(store));
    if !json {
        super::output::print(ModelTable(&entries))?;
        return super::output::print(format!("\n{recommended}"));
    }
    let all = entries.iter().map(serde_json::to_value).chain(recommended.rows.iter().map(serde_json::to_value));
    super::output::print_json(&all.collect::<Result<Vec<_>, _>>()?)
}

/// A model's file, and what is in it.
#[derive(Serialize)]
struct Info {
    #[serde(flatten)]
    entry: ModelEntry,
    /// What the model is; none when there is no file yet.
    model: Option<Card>,
    /// What it is, if it is a draft module for another model: one field for each kind, null for all other kinds.
    #[serde(flatten)]
    modules: BTreeMap<&'static str, Option<Value>>,
    /// The same for people.
    #[serde(skip)]
    module: Option<Box<dyn ModuleCard>>,
    /// What a GGUF file's header says, also of a file that is not supported.
    gguf: Option<GgufSummary>,
    /// Whether it runs here; null when there is no file.
    runs: Option<bool>,
    /// Why it does not run.
    problem: Option<String>,
}

impl Info {
    fn of(entry: ModelEntry) -> Self {
        let there = !matches!(entry.status, Status::Missing | Status::Damaged { .. });
        let modules = MODULE_KINDS.iter().map(|kind| (kind.field(), None)).collect();
        let mut info = Self { entry, model: None, modules, module: None, gguf: None, runs: None, problem: None };
        if !there {
            return info;
        }
        info.gguf = GgufSummary::read(&info.entry.file);
        if let Some(gguf) = info.gguf.as_ref().filter(|gguf| gguf.files > 1) {
            info.entry.bytes = gguf.file_bytes;
            info.entry.about =
                format!("one of {} parts of a split GGUF file; the size is that of all parts", gguf.files);
        }
        if let Err(error) = info.read() {
            info.problem = Some(error.to_string());
            let is_broken = matches!(error, ModelError::MissingTensor(_) | ModelError::Shape { .. });
            info.gguf.iter_mut().filter(|_| is_broken).for_each(GgufSummary::drop_engines);
        }
        info.runs = Some(info.problem.is_none());
        info
    }

    /// Reads the headers of the model or module, and makes the checks of loading.
    fn read(&mut self) -> Result<(), ModelError> {
        let file = &self.entry.file;
        match kind_in(file) {
            Some(kind) => {
                let card = kind.card(file)?;
                self.modules.insert(kind.field(), Some(card.json()));
                self.module = Some(card);
            }
            None => {
                let (card, checked) = Card::read_checked(file)?;
                self.model = Some(card);
                checked?;
            }
        }
        Ok(())
    }
}

impl Display for Info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.entry)?;
        if let Some(model) = &self.model {
            write!(f, "\n{model}")?;
        }
        if let Some(module) = &self.module {
            write!(f, "\n{module}")?;
        }
        match &self.gguf {
            Some(gguf) if self.model.is_some() => write!(f, "\n{}", gguf.beside_card())?,
            Some(gguf) => write!(f, "\n{gguf}")?,
            None => {}
        }
        match &self.problem {
            Some(problem) => write!(f, "\nruns     no: {problem}"),
            None if self.runs.is_some() => write!(f, "\nruns     yes"),
            None => Ok(()),
        }
    }
}

fn show<T: Display + Serialize>(value: &T, json: bool) -> Result<()> {
    if json {
        return super::output::print_json(value);
    }
    super::output::print(value)
}
