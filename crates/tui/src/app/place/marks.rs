//! Bookmarks and notes in words.

use draftscope_session::{Mark, PassId, text};

/// The place of a mark, in words.
pub(crate) fn place_name(place: Option<PassId>) -> String {
    place.map_or_else(|| "this moment".to_owned(), |place| place.to_string())
}

/// The texts of the marks at a place.
pub(crate) fn mark_text(marks: &[Mark], place: PassId) -> String {
    let own = marks.iter().filter(|mark| mark.place == Some(place)).take(8);
    let said = own.map(|mark| format!("{} {}", mark_sign(mark), text::one_line(&mark.text)).trim_end().to_owned());
    format!("{place}: {}", said.collect::<Vec<_>>().join(" · "))
}

/// The sign of a mark.
pub(crate) const fn mark_sign(mark: &Mark) -> char {
    if mark.is_bookmark { '★' } else { '✎' }
}
