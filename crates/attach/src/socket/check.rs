//! Checks the lines of a plugin, for those who write one: `draftscope attach --check`.

use std::collections::BTreeSet;
use std::fmt;

use super::lines::{Collector, Said};

/// Most faults that are listed.
const MAX_FAULTS: usize = 20;

/// Most requests that are counted.
const MAX_REQUESTS: usize = 4096;

/// What a stream of lines amounts to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Lines read.
    pub lines: u64,
    /// Name and version of the engine.
    pub engine: String,
    /// Whole rounds.
    pub rounds: u64,
    requests: BTreeSet<String>,
    /// Drafted tokens.
    pub drafted: u64,
    /// Accepted ones.
    pub accepted: u64,
    /// Rounds with the target's predictions at all rows.
    pub with_rows: u64,
    /// Rounds with the drafter's probabilities, among those with drafts.
    pub with_q: u64,
    /// Rounds with drafts.
    pub with_drafts: u64,
    /// Rounds that the plugin left out.
    pub dropped: u64,
    /// Line and fault, in order, at most twenty.
    pub faults: Vec<(u64, String)>,
    /// All faults.
    pub fault_count: u64,
}

/// Checks lines until they end. A line that cannot be read is an error of its own and ends the check.
pub fn check(lines: impl IntoIterator<Item = std::io::Result<Vec<u8>>>) -> Report {
    let (mut report, mut collector) = (Report::default(), Collector::default());
    for line in lines {
        let line = match line {
            Ok(line) => line,
            Err(error) => {
                report.fault(error.to_string());
                break;
            }
        };
        report.lines += 1;
        match collector.push(&line) {
            Ok(said) => report.count(said),
            Err(fault) => report.fault(fault.to_string()),
        }
    }
    if report.engine.is_empty() && report.fault_count == 0 {
        report.fault("there is no line".to_owned());
    }
    report
}

impl Report {
    fn count(&mut self, said: Said) {
        match said {
            Said::Nothing | Said::Notice(_) => {}
            Said::Dropped(rounds) => self.dropped = rounds,
            Said::Header(header) => {
                let engine = header.engine.unwrap_or_default();
                self.engine = format!("{} {}", engine.name, engine.version).trim().to_owned();
            }
            Said::Round(request, round) => {
                self.rounds += 1;
                if self.requests.len() < MAX_REQUESTS {
                    self.requests.insert(request);
                }
                let drafted = round.drafted() as u64;
                self.drafted += drafted;
                self.accepted += round.accepted() as u64;
                self.with_rows += u64::from(!round.rows().is_empty());
                self.with_drafts += u64::from(drafted > 0);
                self.with_q += u64::from(round.has_q());
            }
        }
    }

    fn fault(&mut self, why: String) {
        self.fault_count += 1;
        if self.faults.len() < MAX_FAULTS {
            self.faults.push((self.lines.max(1), why));
        }
    }

    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.fault_count == 0
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (line, why) in &self.faults {
            writeln!(f, "line {line}: {why}")?;
        }
        if self.fault_count > self.faults.len() as u64 {
            writeln!(f, "and {} more", self.fault_count - self.faults.len() as u64)?;
        }
        writeln!(f, "{} lines of {}", self.lines, if self.engine.is_empty() { "no engine" } else { &self.engine })?;
        writeln!(
            f,
            "{} rounds of {} requests: {} drafted, {} accepted",
            self.rounds,
            self.requests.len(),
            self.drafted,
            self.accepted
        )?;
        writeln!(f, "target's predictions at all rows: {} of {} rounds", self.with_rows, self.rounds)?;
        writeln!(f, "drafter's probabilities: {} of {} rounds with drafts", self.with_q, self.with_drafts)?;
        if self.dropped > 0 {
            writeln!(f, "left out by the plugin: {} rounds", self.dropped)?;
        }
        write!(f, "{}", if self.is_good() { "no faults" } else { "faults found" })
    }
}
