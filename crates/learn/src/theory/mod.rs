//! What follows from formulas, published figures and the rules of verification, where a lesson needs no run: the cost model
//! with its numbers on sliders, the map of batch and context, a thousand draws under each rule.

mod histogram;
mod map;
mod map_choice;
mod sliders;

pub use histogram::{DRAWS, Tally, tallies};
pub use map::{BATCHES, Best, CONTEXTS, HARDWARE, Hardware, MODELS, Map, Sizes};
pub use map_choice::{Layer, MapChoice, MapRow};
pub use sliders::{Slider, Sliders};
