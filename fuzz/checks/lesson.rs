//! Takes any text as a lesson.

/// Reads and checks the lesson.
pub fn check(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Err(error) = draftscope::learn::lesson::check(&text) {
        super::sentence(&error);
    }
}
