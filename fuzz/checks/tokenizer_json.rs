//! Takes any bytes as `tokenizer.json`; builds the tokenizer, cuts a text, and joins the tokens again.

use draftscope::model::files::SideFiles;
use draftscope::model::text::tokenizer::TextCodec;
use draftscope::protocol::TokenId;

use super::{folder, sentence, write};

/// Builds and uses a tokenizer.
pub fn check(bytes: &[u8]) {
    write("tokenizer/tokenizer.json", bytes);
    let codec = match TextCodec::from_folder(&SideFiles::of(&folder().join("tokenizer")), true) {
        Ok(codec) => codec,
        Err(error) => return sentence(&error),
    };
    for text in ["", "the thin inn", "\u{0}a\u{301} 日本語 🙂\u{202e}", "<s></s><|im_start|>user\n"] {
        match codec.encode(text) {
            Ok(tokens) => tokens.iter().for_each(|token| drop(codec.piece(*token))),
            Err(error) => sentence(&error),
        }
        codec.encode_raw(text).map_or_else(|error| sentence(&error), drop);
    }
    (0..codec.len().min(1000)).for_each(|id| drop(codec.piece(TokenId(id as u32))));
    assert_eq!(codec.difference(&codec), None);
    let _ = (codec.end_names(), codec.bos_name(), codec.eos_name());
}
