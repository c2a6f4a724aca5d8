//! Public reports by users of such programs, each as a small input with what is right.
//!
//! The inputs are made here, anew; a module holds one area.

#![allow(unreachable_pub, clippy::unwrap_used)] // a test that cannot go on should stop

#[path = "../common/asked.rs"]
mod asked;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/hub.rs"]
mod hub;
#[path = "../common/llama_wheel.rs"]
mod llama_wheel;
#[path = "../common/scripted.rs"]
mod scripted;
#[cfg(unix)]
#[path = "../common/terminal.rs"]
mod terminal;

mod attach_figures;
mod attach_protocol;
mod files;
mod places;
mod prompts;
mod tokenizers;
