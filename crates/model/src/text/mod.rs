//! Text to tokens and back, and conversations to prompts.

pub mod prompt;
pub mod template;
pub mod tokenizer;
