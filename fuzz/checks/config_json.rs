//! Takes any bytes as `config.json` of a model, a module or a draft head.

use draftscope::model::files::SideFiles;
use draftscope::model::load::OpenModel;
use draftscope::model::load::named_module::kind_of;
use draftscope::model::load::preflight::preflight_within;

use super::{folder, sentence, write};

const WEIGHTS: &[u8] = include_bytes!("../seeds/safetensors/llama");

/// Reads the configuration as it is read before weights are fetched, and when the model is opened.
pub fn check(bytes: &[u8]) {
    write("configured/model.safetensors", WEIGHTS);
    write("configured/config.json", bytes);
    let path = folder().join("configured");
    if let Some(kind) = kind_of(bytes) {
        kind.check(bytes).map_or_else(|error| sentence(&error), drop);
        kind.card(&path).map_or_else(|error| sentence(&error), |card| drop(card.to_string()));
    }
    preflight_within(&SideFiles::of(&path), Some(1 << 30)).map_or_else(|error| sentence(&error), drop);
    OpenModel::open(&path).map_or_else(|error| sentence(&error), drop);
}
