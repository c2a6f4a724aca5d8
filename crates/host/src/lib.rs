//! What the program asks of the machine that it runs on: files that are never half written or waited for for ever, the
//! configuration file, the processor's name, progress in the terminal's taskbar, and an end that restores the terminal, whatever ends it.
//!
//! It knows neither models nor events, only paths, signals and bytes.

pub mod config;
pub mod fatal;
pub mod file_access;
pub mod processor;
mod taskbar;

pub use taskbar::Taskbar;
