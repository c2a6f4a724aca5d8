//! Parts of the pages of lessons: a page as text, a drawing as an image.

use std::io;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ratatui::buffer::Buffer;

use super::error::ExportError;
use super::svg;

/// A page as text.
pub(super) fn text(write: impl FnOnce(&mut dyn io::Write) -> io::Result<()>) -> Result<String, ExportError> {
    let mut page = Vec::new();
    write(&mut page).map_err(unwritten)?;
    String::from_utf8(page).map_err(|error| unwritten(io::Error::other(error)))
}

pub(super) fn unwritten(source: io::Error) -> ExportError {
    ExportError::Write { path: PathBuf::from("a lesson's page"), source }
}

/// A drawing as the address of an image.
pub(super) fn image(drawing: &Buffer) -> String {
    format!("data:image/svg+xml;base64,{}", STANDARD.encode(svg::svg(drawing)))
}
