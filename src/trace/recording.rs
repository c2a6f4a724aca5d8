//! A recording as a whole: where it lies, and what a look over all of its lines tells.
//!
//! Invariant: looking over a recording keeps nothing of it but these numbers, so that its length is
//! no matter; every line is checked to be a whole event there, so that a damaged one is told before
//! anything is shown.

use std::path::{Path, PathBuf};

use crate::protocol::Header;

use super::error::{Cut, TraceError};
use super::reader::Reader;

/// Where a recording lies.
#[derive(Clone, Debug)]
enum Origin {
    File(PathBuf),
    Memory { name: &'static str, bytes: &'static [u8] },
}

/// A recording that can be read from its start, again and again.
#[derive(Clone, Debug)]
pub struct Recording {
    origin: Origin,
    header: Header,
    lines: u64,
    ends_at_us: u64,
    cut: Option<Cut>,
}

impl Recording {
    /// Looks a file over.
    ///
    /// # Errors
    /// When it cannot be read, is no trace, is damaged or was written in a newer format.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        Self::of(Origin::File(path.to_owned()))
    }

    /// Looks over a recording that is part of the program.
    ///
    /// # Errors
    /// As [`Recording::open`].
    pub fn of_bytes(name: &'static str, bytes: &'static [u8]) -> Result<Self, TraceError> {
        Self::of(Origin::Memory { name, bytes })
    }

    fn of(origin: Origin) -> Result<Self, TraceError> {
        let mut reader = origin.reader()?;
        let mut recording = Self { header: reader.header().clone(), origin, lines: 0, ends_at_us: 0, cut: None };
        while reader.advance()? {
            let glance = reader.glance()?;
            recording.lines = reader.number();
            recording.ends_at_us = recording.ends_at_us.max(glance.at_us);
            if glance.kind == "ended" {
                reader.saw_end();
            }
        }
        recording.cut = reader.cut().cloned();
        Ok(recording)
    }

    /// Reads it from its start.
    ///
    /// # Errors
    /// When it is not there any more.
    pub fn reader(&self) -> Result<Reader, TraceError> {
        self.origin.reader()
    }

    /// What the run is made of, as recorded.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Whole lines, the header's included.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// The last event's `at_us`.
    #[must_use]
    pub fn ends_at_us(&self) -> u64 {
        self.ends_at_us
    }

    /// Where it stops short; none for one that is whole.
    #[must_use]
    pub fn cut(&self) -> Option<&Cut> {
        self.cut.as_ref()
    }

    /// What to call it: its path, or its name.
    #[must_use]
    pub fn name(&self) -> String {
        self.origin.name()
    }
}

impl Origin {
    fn reader(&self) -> Result<Reader, TraceError> {
        match self {
            Self::File(path) => Reader::open(path),
            Self::Memory { name, bytes } => Reader::of_bytes(name, *bytes),
        }
    }

    fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Memory { name, .. } => (*name).to_owned(),
        }
    }
}
