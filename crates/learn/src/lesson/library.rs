//! The lessons that there are: those of the binary, then those of the user.

use super::check::check;
use super::content::Lesson;
use super::texts::BUNDLED;

/// A lesson of the list.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its name: of its file, without number and ending.
    pub name: String,
    /// What is in it.
    pub lesson: Lesson,
    /// Whether the user wrote it.
    pub is_own: bool,
}

/// The bundled lessons.
#[must_use]
pub fn bundled() -> Vec<Entry> {
    let entry = |(name, text): &(&str, &str)| {
        // a test checks every bundled lesson
        let lesson = check(text).ok()?;
        Some(Entry { name: (*name).to_owned(), lesson, is_own: false })
    };
    BUNDLED.iter().filter_map(entry).collect()
}

/// The bundled lessons, then those of the user; a sentence about each file that is not valid.
#[must_use]
pub fn all(own: &[(String, String)]) -> (Vec<Entry>, Vec<String>) {
    let (mut entries, mut warnings) = (bundled(), Vec::new());
    for (name, text) in own {
        match check(text) {
            Ok(lesson) => entries.push(Entry { name: name.clone(), lesson, is_own: true }),
            Err(error) => warnings.push(format!("lesson {name}: {error}; draftscope learn --check FILE says more")),
        }
    }
    (entries, warnings)
}

/// Finds a lesson by its number in the list, from 1, or by its name.
#[must_use]
pub fn find(entries: &[Entry], wanted: &str) -> Option<usize> {
    let number = wanted.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    let by_name = || entries.iter().position(|entry| entry.name == wanted);
    number.filter(|index| *index < entries.len()).or_else(by_name)
}
