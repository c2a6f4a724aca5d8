//! The Learn page: lessons with their drawings, and the quiz.

pub(super) mod hidden;
pub(super) mod lesson;
pub(super) mod quiz;
pub(super) mod quiz_item;
