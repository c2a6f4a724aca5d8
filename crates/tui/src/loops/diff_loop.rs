//! The loop that connects two recordings, keys and a screen.

use std::io;

use crossterm::event::{Event as Input, KeyEventKind, MouseButton, MouseEventKind};

use crate::app::Ask;
use crate::input::action::Action;
use crate::other_screens::diff::Compared;
use crate::terminal::input::LONG;
use crate::terminal::{Guard, Stage as _, TuiError, Wants, draw_whole, end_on_hangup, inputs_within};
use crate::view;

impl Compared {
    /// Shows it on the terminal until the user quits.
    ///
    /// # Errors
    /// When the terminal cannot be set up, drawn to or read. It is restored in every case.
    pub fn run(mut self) -> Result<(), TuiError> {
        end_on_hangup()?;
        let mut guard = Guard::enter(Wants { mouse: !self.app.options.no_mouse, focus: false })?;
        while !self.quits() {
            self.draw(&mut guard)?;
            for input in inputs_within(LONG)? {
                if !self.quits() {
                    self.input(&input);
                }
            }
            for ask in std::mem::take(&mut self.app.requests.asks) {
                match ask {
                    Ask::Suspend => guard.suspend()?,
                    Ask::Picture => {
                        let drawn = guard.terminal()?.draw(|frame| drop(view::diff(&self, frame)))?;
                        self.app.toast = Some(self.app.options.write_picture(drawn.buffer));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn input(&mut self, input: &Input) {
        match input {
            Input::Key(key) if key.kind != KeyEventKind::Release => self.press(*key),
            Input::Mouse(mouse) => match mouse.kind {
                MouseEventKind::Down(MouseButton::Left) => self.click(mouse.row),
                MouseEventKind::ScrollUp => self.update(Action::Up),
                MouseEventKind::ScrollDown => self.update(Action::Down),
                _ => {}
            },
            _ => {}
        }
    }

    fn draw(&mut self, guard: &mut Guard) -> io::Result<()> {
        let mut measured = (self.measured, self.app.place.hit_map.clone());
        draw_whole(guard.terminal()?, |frame| measured = view::diff(self, frame))?;
        (self.measured, self.app.place.hit_map) = measured;
        Ok(())
    }
}
