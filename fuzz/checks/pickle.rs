//! Takes any bytes as the table of contents in the `pytorch_model.bin` of a draft head, which is a pickle in a zip archive,
//! and as that whole archive.

use draftscope::model::load::named_module::kind_of;

use super::{folder, sentence, write};

const CONFIG: &[u8] = include_bytes!("../../tests/fixtures/checkpoints/eagle3-original/config.json");

/// Opens the head as `models info` does.
pub fn check(bytes: &[u8]) {
    let kind = kind_of(CONFIG).expect("it is the configuration of a head");
    write("head/config.json", CONFIG);
    let path = folder().join("head");
    for file in [archive(bytes), bytes.to_vec()] {
        write("head/pytorch_model.bin", &file);
        kind.card(&path).map_or_else(|error| sentence(&error), |card| drop(card.to_string()));
    }
}

/// A zip archive that stores a table of contents.
fn archive(pickle: &[u8]) -> Vec<u8> {
    const NAME: &[u8] = b"head/data.pkl";
    let len = pickle.len() as u32;
    let mut about = vec![10, 0, 0, 0, 0, 0, 0, 0, 0x21, 0];
    [checksum(pickle), len, len].iter().for_each(|number| about.extend(number.to_le_bytes()));
    about.extend([NAME.len() as u8, 0, 0, 0]);
    let mut file = [b"PK\x03\x04", about.as_slice(), NAME, pickle].concat();
    let start = file.len() as u32;
    let entry = [b"PK\x01\x02\x14\0", about.as_slice(), &[0; 14], NAME].concat();
    file.extend(&entry);
    file.extend(b"PK\x05\x06\0\0\0\0\x01\0\x01\0");
    [entry.len() as u32, start].iter().for_each(|number| file.extend(number.to_le_bytes()));
    file.extend([0; 2]);
    file
}

/// CRC-32, as zip has it.
fn checksum(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg()))
    })
}
