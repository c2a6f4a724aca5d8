//! Takes any bytes as a GGUF file: header, family, sizes, tokenizer, description; of a draft module, its own.

use draftscope::model::load::OpenModel;
use draftscope::model::load::card::Card;
use draftscope::model::load::gguf_summary::GgufSummary;
use draftscope::model::load::named_module::kind_in;

use super::{sentence, write};

/// Opens the file as `models info` and a start do.
pub fn check(bytes: &[u8]) {
    let path = write("model.gguf", bytes);
    if let Some(summary) = GgufSummary::read(&path) {
        let _ = summary.to_string();
    }
    match OpenModel::open(&path) {
        Ok(model) => match model.codec() {
            Ok(codec) => codec.encode("the inn\u{2028} 日本 <s>").map_or_else(|error| sentence(&error), drop),
            Err(error) => sentence(&error),
        },
        Err(error) => sentence(&error),
    }
    if let Some(kind) = kind_in(&path) {
        kind.card(&path).map_or_else(|error| sentence(&error), |card| drop(card.to_string()));
    }
    match Card::read(&path) {
        Ok(card) => drop(card.to_string()),
        Err(error) => sentence(&error),
    }
}
