//! `draftscope models`: the store on the command line.

use std::process::ExitCode;

use anyhow::Result;
use draftscope::cli::ModelsAction;
use draftscope::store::{ModelTable, PullOptions, Store, Terminal};

pub(crate) fn run(action: ModelsAction) -> Result<ExitCode> {
    let store = Store::from_env()?;
    let progress = &mut Terminal::default();
    match action {
        ModelsAction::Pull { name, force, from, json } => {
            let from = from.map(|from| from.parse()).transpose().map_err(anyhow::Error::msg)?;
            let pulled = store.pull(name.as_deref(), PullOptions { force, from }, progress)?;
            show(&pulled, json)?;
        }
        ModelsAction::List { json: true } => super::run::print_json(&store.list()?)?,
        ModelsAction::List { json: false } => println!("{}", ModelTable(&store.list()?)),
        ModelsAction::Info { name, json } => show(&store.info(&name)?, json)?,
        ModelsAction::Rm { name } => println!("{}", store.remove(&name, progress)?),
    }
    Ok(ExitCode::SUCCESS)
}

fn show<T: std::fmt::Display + serde::Serialize>(value: &T, json: bool) -> Result<()> {
    if json {
        return super::run::print_json(value);
    }
    println!("{value}");
    Ok(())
}
