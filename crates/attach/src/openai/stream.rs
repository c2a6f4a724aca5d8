//! Reads the stream of an answer: events, chunks in whatever form, thought apart, and an end.
//!
//! Invariant: text of the answer is never dropped. An answer is whole if the server says why it ended, or sends the mark or
//! the count that stand after the last chunk; a connection that is merely closed broke off.

use serde_json::Value;

use crate::doubts::Doubts;
use crate::errors::{error_of, is_error};
use crate::names::Names;
use crate::server::{Line, Reader};
use crate::sse::{Events, Sent};
use crate::step::Part;
use draftscope_protocol::StopReason;

use super::chunk::Choice;
use super::content;
use super::steps::Steps;
use super::thought::ThoughtMarks;

/// Reads the stream of one answer.
pub(super) struct Stream {
    steps: Steps,
    events: Events,
    marks: ThoughtMarks,
    doubts: Doubts,
    /// Thought and answer so far.
    thought: String,
    answer: String,
    /// Whether the number of tokens came in a chunk of its own, which servers send after the last one.
    has_count: bool,
    /// Why the answer ended, in the server's word.
    finish: Option<String>,
}

impl Stream {
    pub(super) fn new(steps: Steps) -> Self {
        Self {
            steps,
            events: Events::default(),
            marks: ThoughtMarks::default(),
            doubts: Doubts::default(),
            thought: String::new(),
            answer: String::new(),
            has_count: false,
            finish: None,
        }
    }

    /// Takes a chunk.
    ///
    /// # Errors
    /// The server's own words if it is an error.
    fn chunk(&mut self, json: &Value, at_us: u64, names: &mut Names) -> Result<Vec<Part>, String> {
        if is_error(json) {
            return Err(error_of(json));
        }
        let content::Read { mut chunk, is_known } = content::read(json);
        if !is_known {
            self.doubts.note(&json.to_string());
        }
        self.has_count |=
            chunk.choice.is_none() && chunk.usage.as_ref().is_some_and(|usage| usage.completion_tokens > 0);
        if let Some(choice) = chunk.choice.as_mut().filter(|choice| self.is_repeated(choice)) {
            choice.clear_tokens();
        }
        let (thought, answer) = chunk.choice.as_ref().map_or((0, String::new()), |choice| {
            self.thought.push_str(&choice.thought);
            self.answer.push_str(&choice.text);
            (choice.thought.len(), choice.text.clone())
        });
        self.finish = chunk.choice.as_ref().and_then(|choice| choice.finish_reason.clone()).or(self.finish.take());
        let parts = self.steps.push(chunk, at_us, names);
        Ok(self.marks.take(thought, &answer, parts))
    }

    /// Whether a chunk holds the whole answer again, which is shown already.
    fn is_repeated(&self, choice: &Choice) -> bool {
        let is_same = choice.text == self.answer && (choice.thought.is_empty() || choice.thought == self.thought);
        choice.repeats && self.has_text() && is_same
    }

    fn has_text(&self) -> bool {
        !self.thought.is_empty() || !self.answer.is_empty()
    }

    fn chunks(&mut self, json: &Value, at_us: u64, names: &mut Names) -> Result<Vec<Part>, String> {
        match json {
            Value::Array(chunks) => {
                let mut parts = Vec::new();
                for chunk in chunks {
                    parts.extend(self.chunk(chunk, at_us, names)?);
                }
                Ok(parts)
            }
            chunk => self.chunk(chunk, at_us, names),
        }
    }

    /// The end of the stream; `is_marked` says that the server marked it as whole.
    fn end(&mut self, is_marked: bool) -> Vec<Part> {
        let mut parts = self.marks.flush();
        let (has_text, is_understood) = (self.has_text(), self.doubts.is_empty());
        parts.extend(self.doubts.notice());
        if self.finish.is_none() && is_marked && !has_text && !is_understood {
            let message = "the answer broke off: nothing that the server sent is understood as text";
            parts.extend([Part::Notice(message.to_owned()), Part::End(StopReason::BrokenOff)]);
            return parts;
        }
        if self.finish.is_none() && (is_marked || (self.has_count && has_text)) {
            self.steps.end_without_reason();
            let what = if has_text { "the server does not say why the answer ended" } else { "the answer is empty" };
            parts.push(Part::Notice(what.to_owned()));
        }
        let mut last = self.steps.close();
        if last.contains(&Part::End(StopReason::BrokenOff)) {
            let word = self.finish.as_deref().unwrap_or_default();
            let message = format!("the answer broke off: the server ended it with \"{word}\"");
            last.insert(last.len() - 1, Part::Notice(message));
        }
        parts.extend(last);
        parts
    }
}

impl Reader for Stream {
    fn line(&mut self, line: &str, at_us: u64, names: &mut Names) -> Line {
        Line::of(self.events.line(line), |sent| match sent {
            Sent::Done => Ok(self.end(true)),
            Sent::Error(json) => Err(error_of(&json)),
            Sent::Json(json) => self.chunks(&json, at_us, names),
            Sent::Garbage(text) => {
                self.doubts.note(&text);
                Ok(Vec::new())
            }
        })
    }

    fn close(&mut self) -> Vec<Part> {
        for sent in self.events.close() {
            match sent {
                Sent::Garbage(text) => self.doubts.note(&text),
                Sent::Json(json) | Sent::Error(json) => self.doubts.note(&json.to_string()),
                Sent::Done => {}
            }
        }
        self.end(false)
    }
}

#[cfg(test)]
mod tests;
