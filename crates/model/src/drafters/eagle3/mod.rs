//! EAGLE-3 heads (Li et al., arXiv:2503.01840): one block that reads three of the target's hidden states.
//!
//! `G = fc [h_low ; h_mid ; h_high]`; a slot reads `[norm(E[token]) ; norm(g)]`, twice as wide as the block; g is G for
//! settled slots and the block's own output from depth 2 on. The output head covers part of the vocabulary; `d2t` maps
//! back. Layouts of files that are read: SafeAILab's (`midlayer.…`), that of `speculators` (`layers.0.…`), and llama.cpp's
//! GGUF files. Invariant: a configuration that asks for something not computed here is rejected with the key's name.

mod card;
mod config;
mod gguf;
mod load;
mod plan;

pub use card::HeadCard;
pub use config::EagleConfig;
pub use load::Eagle3;
