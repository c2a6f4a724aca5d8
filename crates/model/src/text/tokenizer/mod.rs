//! Text to tokens and back, with the tokenizer of a model's files.
//!
//! Invariant: `piece(id)` has the exact bytes of every token, so the bytes of consecutive pieces are the
//! text. An unsupported kind of tokenizer is rejected with its name. `gguf` reads the tokenizer of a GGUF
//! file, `json` a `tokenizer.json`.

mod codec;
mod gguf;
mod growth;
mod json;
mod length;
mod named;
mod open;
mod pre;
mod sentence_piece;
mod typed;

pub use self::typed::Marked;
pub use codec::TextCodec;

#[cfg(test)]
mod tests {
    use super::*;
    use codec::byte_table;

    #[test]
    fn the_byte_table_is_a_bijection() {
        let table = byte_table();
        let mut bytes: Vec<u8> = table.values().copied().collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
        assert_eq!((table[&'Ġ'], table[&'Ċ'], table[&'a']), (b' ', b'\n', b'a'));
    }
}
