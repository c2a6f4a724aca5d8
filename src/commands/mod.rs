//! One file per subcommand, and files that they share: from arguments to an engine and its output.

pub(crate) mod bench;
pub(crate) mod chat;
pub(crate) mod compare;
pub(crate) mod config;
mod costs;
pub(crate) mod demo;
pub(crate) mod diff;
mod engine;
pub(crate) mod explain;
pub(crate) mod export;
mod files;
mod first_start;
pub(crate) mod generate;
pub(crate) mod identity;
mod lessons;
pub(crate) mod models;
pub(crate) mod output;
mod progress;
mod recipe;
pub(crate) mod replay;
pub(crate) mod run;
mod run_args;
pub(crate) mod signals;
mod suite;
mod terminal;
mod trace;
pub(crate) mod train;
