//! Writers for a pipe: the answer as text, or every event as a JSON line.

use std::io::{self, Write};

use draftscope_protocol::stream::Consumer;
use draftscope_protocol::{Committed, Event, EventKind, Lane, Piece, Prefilled, StopReason};
use draftscope_session::text::{Joiner, printable};

use super::json::write_json_line;

/// Writes the answer as it is committed. With `raw_bytes` the text goes out unchanged (a file or a
/// pipe); otherwise control characters other than newline and tab become pictures.
pub struct Text<W> {
    out: W,
    joiner: Joiner,
    raw_bytes: bool,
}

impl<W: Write> Text<W> {
    /// Writes to `out`.
    pub fn new(out: W, raw_bytes: bool) -> Self {
        Self { out, joiner: Joiner::default(), raw_bytes }
    }

    fn pieces<'a>(&mut self, pieces: impl Iterator<Item = &'a Piece>) -> io::Result<()> {
        for piece in pieces {
            let text = self.joiner.push(piece.text_bytes());
            self.write(&text)?;
        }
        self.out.flush()
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        if self.raw_bytes {
            return self.out.write_all(text.as_bytes());
        }
        for part in text.split_inclusive(['\n', '\t']) {
            let (body, end) = match part.char_indices().next_back() {
                Some((at, '\n' | '\t')) => part.split_at(at),
                _ => (part, ""),
            };
            write!(self.out, "{}{end}", printable(body))?;
        }
        Ok(())
    }
}

impl<W: Write> Consumer for Text<W> {
    fn name(&self) -> &str {
        "the text output"
    }

    fn event(&mut self, event: &Event) -> io::Result<()> {
        if event.lane != Lane::Speculative {
            return Ok(());
        }
        match &event.kind {
            EventKind::Prefilled(Prefilled { first, .. }) => self.pieces(std::iter::once(first)),
            EventKind::Committed(Committed { tokens, .. }) => self.pieces(tokens.iter()),
            EventKind::Finished { reason } if *reason != StopReason::Refused => {
                let rest = self.joiner.finish();
                self.write(&rest)?;
                self.out.write_all(b"\n")?;
                self.out.flush()
            }
            _ => Ok(()),
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Writes every event but `loading` as a JSON line: exactly what a trace file holds.
pub struct Jsonl<W>(
    /// Where to.
    pub W,
);

impl<W: Write> Consumer for Jsonl<W> {
    fn name(&self) -> &str {
        "the JSON output"
    }

    fn event(&mut self, event: &Event) -> io::Result<()> {
        if matches!(event.kind, EventKind::Loading { .. }) {
            return Ok(());
        }
        write_json_line(&mut self.0, event)?;
        if matches!(event.kind, EventKind::Committed(_) | EventKind::Finished { .. }) {
            self.0.flush()?;
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use draftscope_protocol::TokenId;

    fn written(raw_bytes: bool, pieces: Vec<Piece>) -> String {
        let mut out = Vec::new();
        let mut text = Text::new(&mut out, raw_bytes);
        let kinds = [
            EventKind::Committed(Committed { round: 1, tokens: pieces, clock_us: 1, ..Committed::default() }),
            EventKind::Finished { reason: StopReason::Eos },
        ];
        for (seq, kind) in (0..).zip(kinds) {
            text.event(&Event { seq, at_us: 0, lane: Lane::Speculative, kind }).unwrap();
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn split_characters_join_and_control_characters_do_not_reach_a_terminal() {
        let pieces = vec![
            Piece::new(TokenId(1), "a\n\t".as_bytes()),
            Piece::new(TokenId(2), vec![0xf0, 0x9f]),
            Piece::new(TokenId(3), vec![0x98, 0x80]),
            Piece::new(TokenId(4), "\u{1b}[31m"),
            Piece::special(TokenId(5), "<|im_end|>"),
        ];
        assert_eq!(written(true, pieces.clone()), "a\n\t😀\u{1b}[31m\n");
        assert_eq!(written(false, pieces), "a\n\t😀␛[31m\n");
    }
}
