//! What a stream sends, put together from its lines: server-sent events, and JSON that stands there without that framing.
//!
//! Invariant: an event that is whole is given at once, without waiting for the empty line after it; what waits is bounded.

use serde_json::Value;

use super::repair;

/// Most bytes of an event whose end has not come.
const MAX_PENDING: usize = 8 << 20;

/// Something that was sent.
#[derive(Clone, Debug, PartialEq)]
pub enum Sent {
    /// JSON, by all that is known a chunk of the answer.
    Json(Value),
    /// JSON in an event that says that it is an error.
    Error(Value),
    /// The mark after the last chunk.
    Done,
    /// Something that is no event.
    Garbage(String),
}

/// How the JSON that waits is framed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Framing {
    #[default]
    Data,
    /// Lines of JSON without `data:`.
    Bare,
}

/// Puts lines together.
#[derive(Debug, Default)]
pub struct Events {
    pending: String,
    framing: Framing,
    depth: Depth,
    /// Whether the event under way says that it is an error.
    is_error: bool,
    has_begun: bool,
}

impl Events {
    /// Takes a line without its end.
    pub fn line(&mut self, line: &str) -> Vec<Sent> {
        let line =
            if std::mem::replace(&mut self.has_begun, true) { line } else { line.trim_start_matches('\u{feff}') };
        let field = line.split_once(':').map_or((line, ""), |(field, data)| (field, data.trim()));
        match field {
            ("data", data) => self.data(data),
            ("error", data) if line.contains(':') => {
                self.is_error = true;
                self.data(data)
            }
            _ if self.waits_for_bare() => self.append(line),
            ("event", name) => {
                let sent = self.flush();
                self.is_error = name.to_ascii_lowercase().contains("error");
                sent
            }
            ("" | "id" | "retry", _) if line.contains(':') => Vec::new(),
            _ if line.trim().is_empty() => {
                let sent = self.flush();
                self.is_error = false;
                sent
            }
            _ if line.trim_start().starts_with(['{', '[']) => {
                let mut sent = self.flush();
                self.framing = Framing::Bare;
                sent.extend(self.append(line));
                sent
            }
            _ => {
                let mut sent = self.flush();
                sent.push(Sent::Garbage(line.to_owned()));
                sent
            }
        }
    }

    /// The stream is over: what waits cannot become whole any more.
    pub fn close(&mut self) -> Vec<Sent> {
        self.flush()
    }

    fn waits_for_bare(&self) -> bool {
        self.framing == Framing::Bare && !self.pending.is_empty()
    }

    /// Whether what waits ends where JSON goes on with a value.
    fn awaits_value(&self) -> bool {
        !self.depth.in_string && self.pending.trim_end().ends_with(['[', ',', ':'])
    }

    fn data(&mut self, data: &str) -> Vec<Sent> {
        let mut sent = Vec::new();
        if self.waits_for_bare() {
            sent.extend(self.flush());
        }
        if data.is_empty() {
            return sent;
        }
        if data.trim_matches('"').eq_ignore_ascii_case("[DONE]") {
            sent.extend(self.flush());
            sent.push(Sent::Done);
            return sent;
        }
        // an event may have several lines of data; a chunk that is whole by itself belongs to no earlier one that was cut off
        let is_cut_off = !self.pending.is_empty() && !self.awaits_value();
        if is_cut_off && data.starts_with('{') && repair::parse(data).is_some() {
            sent.extend(self.flush());
        }
        self.framing = Framing::Data;
        sent.extend(self.append(data));
        sent
    }

    fn append(&mut self, text: &str) -> Vec<Sent> {
        if !self.pending.is_empty() {
            self.pending.push('\n');
        }
        self.pending.push_str(text);
        self.depth.read(text);
        if self.depth.is_closed() || self.pending.len() > MAX_PENDING { self.flush() } else { Vec::new() }
    }

    fn flush(&mut self) -> Vec<Sent> {
        self.depth = Depth::default();
        let (text, framing) = (std::mem::take(&mut self.pending), std::mem::take(&mut self.framing));
        if text.is_empty() {
            return Vec::new();
        }
        let of_json = |json| if self.is_error { Sent::Error(json) } else { Sent::Json(json) };
        match repair::parse(&text) {
            Some(json) => vec![of_json(json)],
            None if self.is_error && framing == Framing::Data => vec![Sent::Error(Value::String(text))],
            None => pieces(&text).into_iter().map(|piece| piece.map_or_else(Sent::Garbage, of_json)).collect(),
        }
    }
}

/// The chunks in a text that is no JSON as a whole, such as two of them on one line, and what stands between them.
fn pieces(text: &str) -> Vec<Result<Value, String>> {
    let (mut all, mut rest) = (Vec::new(), text);
    loop {
        rest = rest.trim_start_matches(|c: char| c == ',' || c.is_whitespace());
        if rest.is_empty() {
            return all;
        }
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        let (piece, length) = match values.next().filter(|_| rest.starts_with('{')) {
            Some(Ok(json)) => (Ok(json), values.byte_offset()),
            _ => {
                let next = rest.find("\n{").map_or(rest.len(), |at| at + 1);
                (Err(rest[..next].trim_end().to_owned()), next)
            }
        };
        all.push(piece);
        rest = &rest[length..];
    }
}

/// How many brackets are open in JSON that arrives in pieces.
#[derive(Clone, Copy, Debug, Default)]
struct Depth {
    open: usize,
    in_string: bool,
    after_backslash: bool,
}

impl Depth {
    fn read(&mut self, text: &str) {
        for byte in text.bytes() {
            if self.in_string {
                let escaped = std::mem::take(&mut self.after_backslash);
                match byte {
                    b'\\' => self.after_backslash = !escaped,
                    b'"' if !escaped => self.in_string = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.open += 1,
                b'}' | b']' => self.open = self.open.saturating_sub(1),
                _ => {}
            }
        }
    }

    fn is_closed(self) -> bool {
        self.open == 0 && !self.in_string
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sent(text: &str) -> Vec<Sent> {
        let mut events = Events::default();
        let mut all: Vec<Sent> = text.lines().flat_map(|line| events.line(line)).collect();
        all.extend(events.close());
        all
    }

    fn one() -> Sent {
        Sent::Json(json!({"a": 1}))
    }

    #[test]
    fn framed_and_bare_json_on_one_line_or_several_is_one_event() {
        for text in [
            "data: {\"a\":1}\n\n",
            "\u{feff}data:{\"a\":1}\n",
            ": hi\nid: 3\nevent: message\ndata: {\"a\":1}\n\n",
            "data: {\ndata:  \"a\": 1\ndata: }\n\n",
            "{\"a\":1}",
            "{\n  \"a\": 1\n}\n",
            "\n\n{\n  \"a\":\n\n 1\n}",
        ] {
            assert_eq!(sent(text), [one()], "{text:?}");
        }
        let two = sent("data: {\"a\":1}\ndata: {\"a\":1}\ndata: [DONE]\n");
        assert_eq!(two, [one(), one(), Sent::Done]);
        assert_eq!(sent("{\"a\":1}\n{\"a\":1}\n").len(), 2, "a JSON value a line");
    }

    #[test]
    fn an_event_of_several_lines_is_one_and_two_chunks_on_a_line_are_two() {
        let nested = Sent::Json(json!({"a": [{"b": 1}], "c": 2}));
        for text in [
            "data: {\"a\":\ndata: [{\"b\":1}],\"c\":2}\n\n",
            "data: {\"a\":[\ndata: {\"b\":1}\ndata: ],\ndata: \"c\":2}\n\n",
        ] {
            assert_eq!(sent(text), std::slice::from_ref(&nested), "{text:?}");
        }
        for text in [
            "data: {\"a\":1}{\"a\":1}\n\n",
            "data: {\"a\":1}, {\"a\":1},\n\n",
            // an event that was cut off where a value would follow
            "data: {\"a\":1}\ndata: {\"x\":\ndata: {\"a\":1}\n\n",
        ] {
            assert_eq!(sent(text).into_iter().filter(|one| *one == self::one()).count(), 2, "{text:?}");
        }
        assert_eq!(sent("data: [done]\n"), [Sent::Done]);
    }

    #[test]
    fn errors_are_known_by_their_event() {
        let error = Sent::Error(json!({"detail": "no"}));
        assert_eq!(sent("event: error\ndata: {\"detail\":\"no\"}\n\ndata: {\"a\":1}\n"), [error.clone(), one()]);
        assert_eq!(sent("error: {\"detail\":\"no\"}\n"), [error]);
        assert_eq!(sent("event: error\ndata: too long\n"), [Sent::Error(json!("too long"))]);
    }

    #[test]
    fn what_is_cut_off_hides_nothing_that_follows() {
        let cut = |text: &str| Sent::Garbage(text.to_owned());
        assert_eq!(sent("data: {\"a\ndata: {\"a\":1}\n"), [cut("{\"a"), one()]);
        assert_eq!(sent("data: {\"a\n\ndata: {\"a\":1}\n"), [cut("{\"a"), one()]);
        assert_eq!(sent("{\n \"b\"\ndata: {\"a\":1}\n"), [cut("{\n \"b\""), one()]);
        assert_eq!(sent("<html>\ndata: {\"a\":1}\nhello"), [cut("<html>"), one(), cut("hello")]);
        assert_eq!(sent("data: oops\n\ndata: {\"a\":1}\n"), [cut("oops"), one()]);
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut events = Events::default();
        let line = "x".repeat(1 << 20);
        let mut given = events.line("[").len();
        for _ in 0..20 {
            given += events.line(&line).len();
            assert!(events.pending.len() <= MAX_PENDING + line.len() + 1);
        }
        assert!(given > 0);
    }
}
