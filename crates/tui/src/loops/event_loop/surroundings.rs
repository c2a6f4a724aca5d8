//! What the loop shows outside the screen, and what reaches it besides keys and events: the window's title, the user's files.

use std::io;

use crate::terminal::Stage;
use draftscope_session::text::one_line;

use super::EventLoop;

impl EventLoop {
    /// Names the window by the program and the model, once it is known.
    pub(super) fn name_window(&mut self, stage: &mut impl Stage) -> io::Result<()> {
        let Some(header) = self.own().live().header() else { return Ok(()) };
        let title = format!("draftscope: {}", one_line(&header.model.name));
        if title != self.title {
            stage.set_title(&title)?;
            self.title = title;
        }
        Ok(())
    }
}
