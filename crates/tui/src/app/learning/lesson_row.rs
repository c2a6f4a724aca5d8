//! The lines of the list of lessons: the statements before, the lessons, the statements after, the certificate.

/// A line of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListRow {
    /// The ten statements, before the lessons.
    Before,
    /// A lesson, by its index.
    Lesson(usize),
    /// The ten statements, after the lessons.
    After,
    /// The certificate of the newest quiz.
    Certificate,
}

/// All lines, for so many lessons.
pub(crate) fn list_rows(lessons: usize) -> Vec<ListRow> {
    let lessons = (0..lessons).map(ListRow::Lesson);
    [ListRow::Before].into_iter().chain(lessons).chain([ListRow::After, ListRow::Certificate]).collect()
}

/// The line of a lesson.
pub(crate) const fn row_of(lesson: usize) -> usize {
    lesson + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lesson_is_found_on_its_line() {
        let rows = list_rows(3);
        assert!((0..3).all(|lesson| rows[row_of(lesson)] == ListRow::Lesson(lesson)));
        assert_eq!((rows[0], rows[4], rows.len()), (ListRow::Before, ListRow::After, 6));
    }
}
