//! Takes any bytes as `model.safetensors` of a folder whose other files are right.

use draftscope::model::load::OpenModel;
use draftscope::model::load::card::Card;

use super::{folder, sentence, write};

const CONFIG: &[u8] = include_bytes!("../seeds/config_json/llama");

/// Opens the folder as `models info` and a start do.
pub fn check(bytes: &[u8]) {
    write("folder/config.json", CONFIG);
    write("folder/model.safetensors", bytes);
    let path = folder().join("folder");
    match OpenModel::open(&path) {
        Ok(model) => {
            let (files, sizes, _) = model.parts();
            let shape = [sizes.vocab, sizes.d_model];
            match files.stored("token_embd.weight", &shape).and_then(|stored| stored.to_f32(&shape)) {
                Ok(values) => assert_eq!(values.len(), shape.iter().product::<usize>()),
                Err(error) => sentence(&error),
            }
        }
        Err(error) => sentence(&error),
    }
    match Card::read(&path) {
        Ok(card) => drop(card.to_string()),
        Err(error) => sentence(&error),
    }
}
