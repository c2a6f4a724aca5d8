//! Public reports by users of such programs, each as a small input with what is right.
//!
//! The inputs are made here, anew; a module holds one area.

mod attach_figures;
mod attach_protocol;
mod files;
mod places;
mod prompts;
mod tokenizers;
