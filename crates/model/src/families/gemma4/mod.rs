//! Gemma 4 (E2B, E4B, 12B, 31B, and 26B-A4B with experts): sliding layers between full ones, each kind with its own heads and
//! rotary positions; the last layers of the small models read other layers' keys and values, and every layer has an embedding
//! of its own for each token. Assistants are in `assistant`.
//!
//! Invariant: layers without a cache read that of the last layer of their kind before the shared ones. Sliding layers
//! cache all positions, so that any length can be rolled back to, and attend to the last ones.

pub mod assistant;
mod config;
mod family;
mod gguf;
mod keys;
mod names;
mod plan;
mod shapes;

pub use self::config::Gemma4Config;
pub use self::family::Gemma4Family;
use self::names::part;
pub use self::shapes::{Gemma, LayerShape, PerLayer};
