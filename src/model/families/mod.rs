//! Model families, one folder each.

pub mod declined;
pub mod deepseek;
pub mod gemma4;
pub mod llama;
pub mod qwen35;
