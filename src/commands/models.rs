//! `draftscope models`: the store on the command line.

use std::fmt::{self, Display};
use std::process::ExitCode;

use anyhow::Result;
use draftscope::cli::ModelsAction;
use draftscope::model::ModelError;
use draftscope::model::drafters::eagle3::HeadCard;
use draftscope::model::families::gemma4::assistant::AssistantCard;
use draftscope::model::load::card::Card;
use draftscope::model::load::gguf_summary::Sketch;
use draftscope::store::{ModelEntry, ModelTable, PullOptions, Status, Terminal};
use serde::Serialize;

pub(crate) fn run(action: ModelsAction) -> Result<ExitCode> {
    let store = super::recipe::store()?;
    let progress = &mut Terminal::default();
    match action {
        ModelsAction::Pull { name, force, from, json } => {
            let from = from.map(|from| from.parse()).transpose().map_err(anyhow::Error::msg)?;
            let pulled = store.pull(name.as_deref(), PullOptions { force, from }, progress)?;
            show(&pulled, json)?;
        }
        ModelsAction::List { json: true } => super::output::print_json(&store.list()?)?,
        ModelsAction::List { json: false } => super::output::print(ModelTable(&store.list()?))?,
        ModelsAction::Info { name, json } => show(&Info::of(store.info(&name, progress)?), json)?,
        ModelsAction::Rm { name } => super::output::print(store.remove(&name, progress)?)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A model's file, and what is in it.
#[derive(Serialize)]
struct Info {
    #[serde(flatten)]
    entry: ModelEntry,
    /// What the model is; none when there is no file yet.
    model: Option<Card>,
    /// What the head is, where it is one that drafts for another model.
    head: Option<HeadCard>,
    /// The same for an assistant of a Gemma 4.
    assistant: Option<AssistantCard>,
    /// What a GGUF file's header tells of a model that does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    sketch: Option<Sketch>,
    /// Why it does not run.
    problem: Option<String>,
}

impl Info {
    fn of(entry: ModelEntry) -> Self {
        if matches!(entry.status, Status::Missing | Status::Damaged { .. }) {
            return Self { entry, model: None, head: None, assistant: None, sketch: None, problem: None };
        }
        let mut info = Self { entry, model: None, head: None, assistant: None, sketch: None, problem: None };
        info.problem = info.read().err().map(|error| error.to_string());
        if info.problem.is_some() {
            info.sketch = Sketch::read(&info.entry.file);
        }
        info
    }

    /// Reads the headers of whatever it is.
    fn read(&mut self) -> Result<(), ModelError> {
        let file = &self.entry.file;
        self.head = HeadCard::read(file)?;
        self.assistant = AssistantCard::read(file)?;
        if self.head.is_none() && self.assistant.is_none() {
            self.model = Some(Card::read(file)?);
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
        if let Some(head) = &self.head {
            write!(f, "\n{head}")?;
        }
        if let Some(assistant) = &self.assistant {
            write!(f, "\n{assistant}")?;
        }
        if let Some(sketch) = &self.sketch {
            write!(f, "\n{sketch}")?;
        }
        if let Some(problem) = &self.problem {
            write!(f, "\nruns     no: {problem}")?;
        }
        Ok(())
    }
}

fn show<T: Display + Serialize>(value: &T, json: bool) -> Result<()> {
    if json {
        return super::output::print_json(value);
    }
    super::output::print(value)
}
