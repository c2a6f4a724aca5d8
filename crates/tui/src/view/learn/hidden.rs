//! What a step hides until its question is answered.

use crate::view::prelude::*;
use draftscope_learn::lesson::Hidden;

/// Whether the step on show asks something that is not answered yet.
pub(in crate::view) fn is_open(screen: Screen) -> bool {
    let step = screen.app.learning.step();
    step.is_some_and(|step| !step.choices.is_empty()) && !screen.app.learning.study.is_revealed
}

/// Whether the panels leave this part out now.
pub(in crate::view) fn hides(screen: Screen, part: Hidden) -> bool {
    let study = &screen.app.learning.study;
    let lesson = screen.app.learning.on_show().filter(|_| screen.app.place.page == Page::Learn);
    lesson.is_some_and(|(lesson, _)| lesson.hides(study.step, study.is_revealed, part))
}
