//! Tasks: one conversation each, one JSON object per line.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::error::GenerateError;
use draftscope_protocol::LEAST_TEMPERATURE;

/// Most bytes of a line.
const MAX_LINE: u64 = 1 << 18;

/// Default of a task's longest answer, in tokens.
const MAX_TOKENS: u32 = 256;

/// One conversation to generate.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Instructions before the conversation; none takes the template's own.
    pub system: Option<String>,
    /// The user's turns; the model answers each of them.
    pub turns: Vec<UserTurn>,
    /// Temperature of answers; 0 takes the most probable token.
    #[serde(default)]
    pub temperature: f32,
    /// Seed of the conversation's random numbers.
    pub seed: u64,
    /// Longest answer, in tokens.
    #[serde(default = "default_max_tokens")]
    pub max_tokens: u32,
    /// A label for later readers of the task file; generation ignores it.
    #[serde(default)]
    pub category: Option<String>,
}

fn default_max_tokens() -> u32 {
    MAX_TOKENS
}

/// The user's text in a turn.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum UserTurn {
    /// This text.
    Whole(String),
    /// This beginning, continued by the model itself.
    Invented {
        /// The beginning; may be empty.
        invent: String,
    },
}

impl Task {
    fn check(&self) -> Result<(), String> {
        if self.turns.is_empty() {
            return Err("it has no turns".to_owned());
        }
        let least = if self.temperature == 0.0 { 0.0 } else { LEAST_TEMPERATURE };
        if !(least..=10.0).contains(&f64::from(self.temperature)) {
            return Err(format!(
                "its temperature is {}; it must be 0, or lie between {LEAST_TEMPERATURE} and 10",
                self.temperature
            ));
        }
        Ok(())
    }
}

/// All tasks of a file, and the file's SHA-256.
#[derive(Clone, Debug)]
pub struct TaskFile {
    /// In the order of lines.
    pub tasks: Vec<Task>,
    /// SHA-256 of the file, lower-case hex.
    pub sha256: String,
}

impl TaskFile {
    /// Reads a file of tasks, one JSON object per line.
    ///
    /// # Errors
    /// [`GenerateError::File`] when the file cannot be read, or [`GenerateError::Task`] for the first line that is not
    /// a task.
    pub fn read(path: &Path) -> Result<Self, GenerateError> {
        let failed = |source| GenerateError::file(path, source);
        let mut reader = BufReader::new(draftscope_host::file_access::open(path).map_err(failed)?);
        let (mut tasks, mut sum, mut line) = (Vec::new(), Sha256::new(), Vec::new());
        loop {
            line.clear();
            if reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line).map_err(failed)? == 0 {
                break;
            }
            sum.update(&line);
            let task = parse(draftscope_host::file_access::without_mark(&line))
                .map_err(|reason| GenerateError::Task { path: path.to_owned(), line: tasks.len() + 1, reason })?;
            tasks.push(task);
        }
        let sha256 = sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { tasks, sha256 })
    }
}

fn parse(line: &[u8]) -> Result<Task, String> {
    if line.len() as u64 == MAX_LINE {
        return Err(format!("it is longer than {} KiB", MAX_LINE >> 10));
    }
    if let Some(what) = draftscope_host::file_access::other_encoding(line) {
        return Err(what);
    }
    let task: Task = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    task.check()?;
    Ok(task)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<TaskFile, GenerateError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tasks.jsonl");
        std::fs::write(&path, text).unwrap();
        TaskFile::read(&path)
    }

    #[test]
    fn a_line_is_a_conversation() {
        let file = read("{\"turns\":[\"Hi\",{\"invent\":\"Now\"}],\"seed\":3,\"temperature\":0.7}\n{\"turns\":[{\"invent\":\"\"}],\"seed\":4,\"max_tokens\":9}").unwrap();
        let turns = vec![UserTurn::Whole("Hi".into()), UserTurn::Invented { invent: "Now".into() }];
        assert_eq!((file.tasks[0].turns.clone(), file.tasks[0].max_tokens), (turns, 256));
        assert_eq!((file.tasks[1].temperature, file.tasks[1].max_tokens, file.sha256.len()), (0.0, 9, 64));
    }

    #[test]
    fn the_error_names_the_first_line_that_is_not_a_task() {
        let good = "{\"turns\":[\"Hi\"],\"seed\":3}\n";
        for bad in ["{}", "{\"turns\":[],\"seed\":1}", "{\"turns\":[\"a\"],\"seed\":1,\"temperature\":-1}", "", "x"] {
            let text = format!("{good}{bad}\n");
            assert!(matches!(read(&text), Err(GenerateError::Task { line: 2, .. })), "{bad}");
        }
        let long = format!("{{\"turns\":[\"{}\"],\"seed\":1}}", "a".repeat(1 << 18));
        assert!(read(&long).unwrap_err().to_string().contains("longer than 256 KiB"));
    }
}
