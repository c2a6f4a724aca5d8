//! The lines of an answer as they arrive.

use std::io::{BufRead, BufReader, Read};

use serde_json::Value;

use super::client::{Answer, Client};
use super::error::HttpError;

/// Longest line of a stream, in bytes.
pub const MAX_LINE: usize = 1 << 20;

/// The lines of an answer as they arrive. Dropping it closes the connection.
pub struct Lines {
    reader: BufReader<Box<dyn Read + Send>>,
    client: Client,
    /// Whether the last line ended with a carriage return, so that a line feed belongs to it.
    after_return: bool,
}

impl Lines {
    pub(super) fn new(reader: Box<dyn Read + Send>, client: Client) -> Self {
        Self { reader: BufReader::new(reader), client, after_return: false }
    }

    /// The next line without its end, which is a line feed, a carriage return or both; none at the end of the answer. Bytes
    /// that are not UTF-8 become U+FFFD.
    ///
    /// # Errors
    /// When the connection breaks, is silent for too long, or sends a line of more than [`MAX_LINE`] bytes.
    pub fn next_line(&mut self) -> Result<Option<String>, HttpError> {
        let mut line = Vec::new();
        let mut has_end = false;
        while !has_end {
            let ready = match self.reader.fill_buf() {
                Ok(ready) => ready,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.client.failure(&error.into())),
            };
            if ready.is_empty() {
                break;
            }
            if std::mem::take(&mut self.after_return) && ready[0] == b'\n' {
                self.reader.consume(1);
                continue;
            }
            let end = ready.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let taken = end.unwrap_or(ready.len());
            line.extend_from_slice(&ready[..taken]);
            self.after_return = end.is_some_and(|end| ready[end] == b'\r');
            has_end = end.is_some();
            self.reader.consume(taken + usize::from(has_end));
            if line.len() > MAX_LINE {
                return Err(HttpError::TooLong { host: self.client.host.clone(), limit: MAX_LINE as u64 });
            }
        }
        let text = || self.client.secrets.mask(String::from_utf8_lossy(&line).into_owned());
        Ok((has_end || !line.is_empty()).then(text))
    }
}

impl Client {
    /// Posts JSON and reads the answer line by line.
    ///
    /// # Errors
    /// See [`HttpError`].
    pub fn post_lines(&self, path: &str, body: &Value) -> Result<Lines, HttpError> {
        let response = self.request(path, Some(body), Answer::Lines)?;
        Ok(Lines::new(self.body(response)?, self.clone()))
    }
}
