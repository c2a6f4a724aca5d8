//! The recommended models of `draftscope models list`: whether each runs here, fits, and how fast it will be.

use std::fmt::{self, Display};
use std::path::PathBuf;

use draftscope::model::families;
use draftscope::model::load::named_module::runs_from_gguf;
use draftscope::model::memory;
use draftscope::store::{RecommendedDrafter, RecommendedModel, Store, recommended_models};
use indicatif::DecimalBytes;
use serde::Serialize;

use super::bandwidth::{Bandwidth, of_this_machine};

/// Memory beside the weights, for cache and passes, as a share of them.
const BESIDE: f64 = 0.1;

/// A recommended model on this machine.
#[derive(Serialize)]
pub(super) struct RecommendedRow {
    /// What is known about it anywhere.
    #[serde(flatten)]
    model: &'static RecommendedModel,
    /// `ready` if its files are in the Hub's cache, else `missing`.
    status: &'static str,
    /// Where its file or folder is.
    path: Option<PathBuf>,
    /// Where its drafter's is.
    draft_path: Option<PathBuf>,
    /// Bytes of model and drafter.
    total_bytes: u64,
    /// Whether both fit into the memory of this machine; null if that is unknown.
    fits: Option<bool>,
    /// Estimated tokens per second of plain decoding: memory bandwidth ÷ bytes that a token reads.
    estimated_tokens_per_second: f64,
    /// Whether this version runs the target.
    runs: bool,
    /// Whether it runs the drafter.
    drafts: bool,
    /// Why not.
    problem: Option<String>,
}

/// All rows, and what they were computed from.
pub(super) struct RecommendedRows {
    pub(super) rows: Vec<RecommendedRow>,
    memory: Option<u64>,
    bandwidth: Bandwidth,
}

/// Why this version does not run a drafter: what it loads decides.
pub(super) fn drafter_problem(model: &RecommendedModel) -> Option<String> {
    let draft = model.draft.as_ref()?;
    if model.drafter == RecommendedDrafter::DraftModel {
        return families::of_gguf(&draft.architecture).err().map(|error| error.to_string());
    }
    // every kind of module runs from a folder
    let from_gguf = draft.file.is_some();
    (from_gguf && !runs_from_gguf(&draft.architecture))
        .then(|| format!("drafters of the architecture {} do not run from GGUF files", draft.architecture))
}

impl RecommendedRow {
    fn new(model: &'static RecommendedModel, store: &Store, memory: Option<u64>, bandwidth: f64) -> Self {
        let [path, draft_path] = store.fetched(model);
        let is_ready = path.is_some() && (model.draft.is_none() || draft_path.is_some());
        let (target, drafter) = (families::of_gguf(&model.architecture).err(), drafter_problem(model));
        let total_bytes = model.total_bytes();
        Self {
            model,
            status: if is_ready { "ready" } else { "missing" },
            path,
            draft_path,
            total_bytes,
            fits: memory.map(|memory| total_bytes as f64 * (1.0 + BESIDE) <= memory as f64),
            estimated_tokens_per_second: bandwidth / model.bytes_per_token().max(1.0),
            runs: target.is_none(),
            drafts: target.is_none() && drafter.is_none(),
            problem: target.map(|error| error.to_string()).or(drafter),
        }
    }

    fn cells(&self) -> [String; 7] {
        let is_rounded = |fields: &[String]| fields.iter().any(|field| field == "bytes");
        let rounded = is_rounded(&self.model.unverified)
            || self.model.draft.as_ref().is_some_and(|draft| is_rounded(&draft.unverified));
        let runs = match (self.runs, self.drafts) {
            (true, true) => "yes",
            (true, false) => "not its drafter",
            (false, _) => "no",
        };
        [
            format!("{}{}", self.model.name, if self.status == "ready" { " *" } else { "" }),
            format!("{}{}", if rounded { "~" } else { "" }, DecimalBytes(self.total_bytes)),
            self.model.license.clone(),
            self.fits.map_or("?", |fits| if fits { "yes" } else { "no" }).to_owned(),
            format!("~{}", tokens_per_second(self.estimated_tokens_per_second)),
            runs.to_owned(),
            self.model.about.clone(),
        ]
    }
}

/// Two digits: an estimate has no more.
fn tokens_per_second(speed: f64) -> String {
    if speed < 10.0 { format!("{speed:.1} tok/s") } else { format!("{speed:.0} tok/s") }
}

impl RecommendedRows {
    /// Looks for each model's files; measures the memory unless an earlier run did.
    pub(super) fn new(store: &Store) -> Self {
        let (memory, bandwidth) = (memory::installed(), of_this_machine(store));
        let rate = bandwidth.bytes_per_second;
        let rows = recommended_models().iter().map(|model| RecommendedRow::new(model, store, memory, rate)).collect();
        Self { rows, memory, bandwidth }
    }
}

impl Display for RecommendedRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Recommended, each with its drafter: `draftscope models pull NAME` fetches both, --model NAME runs both"
        )?;
        let head = ["NAME", "SIZE", "LICENSE", "FITS", "SPEED", "RUNS HERE", "MODEL"].map(str::to_owned);
        let cells: Vec<_> = std::iter::once(head).chain(self.rows.iter().map(RecommendedRow::cells)).collect();
        let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: [usize; 6] = std::array::from_fn(width);
        for [name, size, license, fits, speed, runs, about] in &cells {
            let [w0, w1, w2, w3, w4, w5] = widths;
            writeln!(f, "{name:w0$}  {size:>w1$}  {license:w2$}  {fits:w3$}  {speed:>w4$}  {runs:w5$}  {about}")?;
        }
        let memory = self.memory.map_or_else(|| "unknown".to_owned(), |bytes| DecimalBytes(bytes).to_string());
        write!(
            f,
            "* downloaded; ~ rounded. FITS: the files and a tenth more, in {memory} of memory. SPEED: an estimate of plain \
             decoding, {:.1} GB/s (measured {}) ÷ the bytes that a token reads; drafts come on top.",
            self.bandwidth.bytes_per_second / 1e9,
            if self.bandwidth.is_remembered { "earlier" } else { "now" }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, memory: Option<u64>) -> RecommendedRow {
        let store = Store::from_env();
        RecommendedRow::new(draftscope::store::recommended(name).unwrap(), &store, memory, 20e9)
    }

    #[test]
    fn size_speed_and_what_runs_follow_from_entry_and_machine() {
        let small = row("qwen3.5-4b", Some(4_000_000_000));
        assert_eq!((small.fits, small.runs, small.drafts), (Some(true), true, true));
        assert!((small.estimated_tokens_per_second - 20e9 / 2_834_975_040.0).abs() < 1e-9);
        assert_eq!(row("qwen3.5-4b", Some(3_000_000_000)).fits, Some(false), "cache and passes need room, too");
        assert_eq!(row("qwen3.5-4b", None).fits, None);
        let experts = row("qwen3.6-35b-a3b", Some(64 << 30));
        assert!(experts.estimated_tokens_per_second > 20e9 / experts.total_bytes as f64, "a token reads a few experts");
        let block = row("qwen3-4b-dflash", None);
        assert!(block.runs && block.drafts && block.problem.is_none());
        let pair = row("qwen3-4b", None);
        assert_eq!(pair.total_bytes, 2_497_280_256 + 639_446_688);
        assert!(pair.drafts);
    }

    #[test]
    fn the_table_lines_up_and_says_what_is_estimated() {
        let store = Store::from_env();
        let rows =
            recommended_models().iter().map(|model| RecommendedRow::new(model, &store, Some(16 << 30), 20e9)).collect();
        let bandwidth = Bandwidth { bytes_per_second: 20e9, is_remembered: false };
        let text = RecommendedRows { rows, memory: Some(16 << 30), bandwidth }.to_string();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), recommended_models().len() + 3, "{text}");
        let at = lines[1].find("LICENSE").unwrap();
        assert!(lines[2..lines.len() - 1].iter().all(|line| line[at..].starts_with("Apache-2.0")), "{text}");
        assert!(text.contains("SPEED: an estimate of plain decoding, 20.0 GB/s (measured now)"), "{text}");
    }
}
