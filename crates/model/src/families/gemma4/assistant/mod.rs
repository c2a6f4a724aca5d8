//! Assistants of Gemma 4: a few layers of queries that attend to the target's keys and values; their input is the target's
//! embedding of a token and a hidden state. What they compute is a [plan](crate::plan::Assistant)
//! (`transformers`, `modeling_gemma4_assistant.py`; llama.cpp, `gemma4-assistant.cpp`).
//!
//! A slot sees of a sliding layer the window of a target token at its position. `transformers` shows an assistant two
//! positions more: it flips a mask of `|distance| <= W` over the positions (`create_attention_masks`). Which of them training
//! used is not known; the texts are the same either way.

mod card;
mod config;
mod kind;
mod load;
mod names;

pub use crate::families::gemma4::assistant::card::AssistantCard;
pub use crate::families::gemma4::assistant::config::{AssistantConfig, Clusters};
pub use crate::families::gemma4::assistant::kind::AssistantKind;
