//! Arguments of `learn`.

use std::path::PathBuf;

use clap::Args;

use super::decode::DecodeArgs;
use super::model::ModelArgs;
use super::screen::LookArgs;

/// Options of `learn`.
#[derive(Clone, Debug, Args)]
pub struct LearnArgs {
    /// The lesson, by number or name; without one, the list
    #[arg(value_name = "LESSON")]
    pub lesson: Option<String>,
    /// List the lessons, your own included
    #[arg(long, conflicts_with_all = ["check", "export"])]
    pub list: bool,
    /// Check a lesson's file and name the line and field of the first mistake
    #[arg(long, value_name = "FILE", conflicts_with_all = ["lesson", "export"])]
    pub check: Option<PathBuf>,
    /// Show the presenter's notes of the step that `learn` shows in another terminal, and follow it
    #[arg(long, conflicts_with_all = ["lesson", "list", "check", "export"])]
    pub notes: bool,
    /// Write a page for each lesson, or for the one named, a sheet to print, notes for teachers and a quiz into this folder
    #[arg(long, value_name = "DIR")]
    pub export: Option<PathBuf>,
    /// The printed quiz: a number that chooses its ten items, the same number the same items
    #[arg(long, value_name = "N", default_value_t = 1, requires = "export")]
    pub sheet: u64,
    /// Replace pages that exist
    #[arg(long, requires = "export")]
    pub force: bool,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub decode: DecodeArgs,
    #[command(flatten)]
    pub look: LookArgs,
}
