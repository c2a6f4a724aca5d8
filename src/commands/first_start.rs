//! Whether the program has been started before: an empty file in the user's folder for state.
//!
//! Invariant: where nothing can be remembered nothing is shown that is to be seen once.

use std::path::PathBuf;
use std::rc::Rc;

use draftscope::tui::FirstStart;

/// The file that says that the tour was shown; none where there is no place for it.
fn marker() -> Option<PathBuf> {
    super::files::state_file("tour-shown")
}

/// This start, if it is the first one that shows the tour.
pub(crate) fn first_start() -> Option<FirstStart> {
    let marker = marker().filter(|marker| !marker.exists())?;
    let can_remember = marker.parent().is_some_and(|folder| std::fs::create_dir_all(folder).is_ok());
    can_remember.then(|| FirstStart(Rc::new(move || drop(std::fs::write(&marker, [])))))
}
