//! A report of `bench` as one self-contained page: acceptance by category, then all figures.
//!
//! Invariant: the page loads nothing, and its script shows names of categories and drafters as text only; see
//! [`super::page_frame`].

use std::io;

use serde::Serialize;

use draftscope_session::text;

use super::html::pictured;
use super::page_frame::Parts;

/// What the page adds to the frame.
const PARTS: Parts = Parts {
    body: include_str!("page/bench.html"),
    style: include_str!("page/bench.css"),
    script: include_str!("page/bench.js"),
};

/// The page of a report about the model of that name; `report` is what `bench --json` writes.
///
/// # Errors
/// When the report cannot be serialised.
pub fn bench_page(model: &str, report: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    PARTS.write(&text::one_line(model), None, ("", &pictured(serde_json::to_value(report)?)), &mut page)?;
    Ok(page)
}
