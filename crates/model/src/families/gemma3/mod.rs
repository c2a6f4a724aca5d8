//! Gemma 3 (text: 270M, 1B, and the text part of 4B, 12B, 27B): sliding layers between full ones with rotary positions
//! of their own, normed queries and keys, norms before and after attention and feed-forward layer, a scaled embedding,
//! and capped scores if the file says so. All backends run its plan.
//!
//! Source: `modeling_gemma3.py` of `transformers`, `gemma3.cpp` of llama.cpp. Invariant: sliding layers cache all
//! positions, so that any length can be rolled back to, and attend to the last ones.

mod config;
mod family;
mod plan;

pub use self::config::{Gemma3Config, Layers};
pub use self::family::Gemma3Family;
