//! What the store reports about its models: plain values for JSON, and a table for people.
//!
//! Invariant: nothing here touches a file; [`super::cache`] fills these in.

use std::fmt::{self, Display};
use std::path::PathBuf;
use std::time::Duration;

use indicatif::DecimalBytes;
use serde::Serialize;

use super::source_kind::SourceKind;

/// A model that is known, in the cache, or both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModelEntry {
    /// What the user types; for a file that is not in the catalog its name without `.gguf`.
    pub name: String,
    /// One line: the catalog's description, or what kind of file it is.
    pub about: String,
    /// Whether it runs when none is named.
    pub is_default: bool,
    /// Where the file is, or would be.
    pub file: PathBuf,
    /// Size in bytes: of the file if there is one, else the catalog's.
    pub bytes: u64,
    /// Digest in lower-case hex: of the file if it was read, else the catalog's.
    pub sha256: Option<String>,
    /// Terms of the weights, where known.
    pub license: Option<String>,
    /// Status of the file.
    #[serde(flatten)]
    pub status: Status,
}

/// Status of a model's file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Status {
    /// There, and size and sha256 are right.
    Ready,
    /// There with the right size; its sha256 is checked at the next use.
    Unchecked,
    /// There, but not what it should be; the next pull replaces it.
    Damaged {
        /// What is wrong.
        why: String,
    },
    /// Not there; the next start fetches it.
    Missing,
    /// There, but not in the catalog, so there is nothing to check it against.
    Foreign,
}

impl Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ready => "ready",
            Self::Unchecked => "unchecked",
            Self::Damaged { .. } => "damaged",
            Self::Missing => "not fetched",
            Self::Foreign => "own file",
        })
    }
}

impl Display for ModelEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "name     {}{}", self.name, if self.is_default { " (default)" } else { "" })?;
        writeln!(f, "about    {}", self.about)?;
        writeln!(f, "status   {}", self.status)?;
        if let Status::Damaged { why } = &self.status {
            writeln!(f, "         {why}; `draftscope models pull --force` fetches it again")?;
        }
        writeln!(f, "file     {}", self.file.display())?;
        writeln!(f, "size     {} ({} bytes)", DecimalBytes(self.bytes), self.bytes)?;
        writeln!(f, "sha256   {}", self.sha256.as_deref().unwrap_or("unknown"))?;
        write!(f, "license  {}", self.license.as_deref().unwrap_or("unknown"))
    }
}

/// Entries as aligned columns, one line each under a head line.
#[derive(Clone, Copy, Debug)]
pub struct ModelTable<'a>(pub &'a [ModelEntry]);

impl Display for ModelTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: Vec<_> = self.0.iter().map(cells).collect();
        let head = ["NAME", "STATUS", "SIZE", "FILE"].map(str::to_owned);
        let width = |column: usize| {
            let cells = rows.iter().chain([&head]).map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        };
        let widths = [width(0), width(1), width(2)];
        for (i, row) in [&head].into_iter().chain(&rows).enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            let [name, status, size, file] = row;
            let [w0, w1, w2] = widths;
            write!(f, "{name:w0$}  {status:w1$}  {size:>w2$}  {file}")?;
        }
        Ok(())
    }
}

fn cells(entry: &ModelEntry) -> [String; 4] {
    [
        format!("{}{}", entry.name, if entry.is_default { " *" } else { "" }),
        entry.status.to_string(),
        DecimalBytes(entry.bytes).to_string(),
        entry.file.display().to_string(),
    ]
}

/// Result of a pull.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pulled {
    /// The model after the pull.
    #[serde(flatten)]
    pub entry: ModelEntry,
    /// Where the drafter that belongs to it is, if that has files of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drafter: Option<PathBuf>,
    /// Where it came from; `None` when it was already there.
    pub source: Option<SourceKind>,
    /// How long it took.
    pub took: Duration,
}

impl Display for Pulled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, file) = (&self.entry.name, self.entry.file.display());
        match self.source {
            None => write!(f, "{name} is already there and correct: {file}"),
            Some(source) => write!(f, "{name} fetched from {source} in {:.1} s: {file}", self.took.as_secs_f64()),
        }?;
        self.drafter.as_ref().map_or(Ok(()), |drafter| write!(f, "\nits drafter: {}", drafter.display()))
    }
}

/// What was removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Removed {
    /// The model's name.
    pub name: String,
    /// The file that is gone.
    pub file: PathBuf,
    /// Bytes freed.
    pub bytes: u64,
}

impl Display for Removed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, file, bytes } = self;
        write!(f, "removed {name} ({}): {}", DecimalBytes(*bytes), file.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, status: Status) -> ModelEntry {
        ModelEntry {
            name: name.to_owned(),
            about: "a model".to_owned(),
            is_default: name == "a",
            file: PathBuf::from(format!("/c/{name}.gguf")),
            bytes: 98_362_432,
            sha256: None,
            license: None,
            status,
        }
    }

    #[test]
    fn a_table_lines_up() {
        let rows = [entry("a", Status::Ready), entry("long-name", Status::Missing)];
        assert_eq!(
            ModelTable(&rows).to_string(),
            "NAME       STATUS           SIZE  FILE\n\
             a *        ready        98.36 MB  /c/a.gguf\n\
             long-name  not fetched  98.36 MB  /c/long-name.gguf"
        );
    }

    #[test]
    fn json_has_the_status_beside_the_other_fields() {
        let why = "size is 3 bytes, expected 4".to_owned();
        let json = serde_json::to_value(entry("a", Status::Damaged { why })).unwrap();
        assert_eq!(json["status"], "damaged");
        assert_eq!(json["why"], "size is 3 bytes, expected 4");
        assert_eq!(json["name"], "a");
    }
}
