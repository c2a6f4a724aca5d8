//! Block drafters: DFlash; DSpark, which adds a Markov head; DFlash 2, which adds convolutions and a selector.
//!
//! `c = hidden_norm(fc [h_1 ; h_2 ; …])` fuses states of the target at each position of the context; each layer projects
//! `c` to keys and values of its own, which are cached. A pass reads `[anchor, mask, mask, …]`: its rows attend to the
//! context and to each other in both directions, so all positions are drafted at once, and none knows the tokens before
//! it. DSpark then adds `w2 · w1[token before]` to each position's logits, one position after the other. DFlash 2 mixes rows of
//! a block by [convolutions](crate::plan::Convolution) around each step of a layer, and its
//! [selector](crate::plan::Selector) scores pairs of candidates of adjacent positions. Formulas are those of
//! `dflash/model.py` (z-lab/dflash), `deepspec/modeling/dspark/qwen3/modeling.py` (deepseek-ai/DeepSpec),
//! `speculators/models/dflash2/model_definitions.py` (vllm-project/speculators) and
//! `vllm/model_executor/models/qwen3_dflash2.py` (vllm-project/vllm), and, for GGUF files and the layout of `speculators`, of
//! llama.cpp (`src/models/dflash.cpp`, `conversion/qwen.py`).
//!
//! Embedding and output head are the target's, unless the draft vocabulary is smaller: trainers freeze copies of them.
//! Invariant: a configuration that asks for something not computed here is rejected with the key's name.

mod card;
mod config;
mod gguf;
mod json;
mod load;
mod plan;

pub use card::BlockCard;
pub use config::{BlockConfig, BlockKind, PathSizes};
pub use load::BlockDrafters;
