//! Lines of server-sent events.

/// What a line of a stream holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data<'a> {
    /// Data, JSON by all that is known.
    Json(&'a str),
    /// The mark after the last chunk.
    Done,
    /// Nothing: an empty line, a comment, a field of no interest.
    Empty,
    /// Something that is no event.
    Garbage,
}

impl<'a> Data<'a> {
    /// Reads a line.
    #[must_use]
    pub fn of(line: &'a str) -> Self {
        let Some((field, data)) = line.split_once(':') else {
            return if line.trim().is_empty() { Self::Empty } else { Self::Garbage };
        };
        match (field, data.trim()) {
            ("" | "event" | "id" | "retry", _) | ("data", "") => Self::Empty,
            ("data", "[DONE]") => Self::Done,
            ("data" | "error", data) => Self::Json(data),
            _ => Self::Garbage,
        }
    }
}
