//! The loop that joins samples of servers, keys and a screen.

use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use crossterm::event::{Event as Input, KeyEventKind};

use draftscope_protocol::ServerSample;

use super::app::Ask;
use super::fleet::FleetView;
use super::terminal::{Guard, Stage as _, TuiError, draw_whole, end_on_hangup, inputs_within};
use super::view;

/// Longest time in which a sample is not looked at.
const TICK: Duration = Duration::from_millis(100);

impl FleetView {
    /// Shows the servers on the terminal until the user leaves; returns whether a condition was met meanwhile.
    ///
    /// # Errors
    /// When the terminal cannot be set up, drawn to or read. It is restored in every case.
    pub fn run(mut self, samples: &Receiver<ServerSample>) -> Result<bool, TuiError> {
        end_on_hangup()?;
        let mut guard = Guard::enter(!self.app.options.no_mouse)?;
        let (mut is_new, mut passed) = (true, Instant::now());
        while !self.quits() {
            while let Ok(sample) = samples.try_recv() {
                self.take(sample);
                is_new = true;
            }
            let ms = passed.elapsed().as_millis();
            if ms > 0 {
                passed = Instant::now();
                is_new |= self.pass(u64::try_from(ms).unwrap_or(u64::MAX));
            }
            if std::mem::take(&mut is_new) {
                let mut measured = self.app.hit_map.clone();
                draw_whole(guard.terminal()?, |frame| measured = view::fleet(&self, frame))?;
                self.app.hit_map = measured;
            }
            for input in inputs_within(TICK)? {
                is_new = true;
                match input {
                    Input::Key(key) if key.kind != KeyEventKind::Release && !self.quits() => self.press(key),
                    _ => {}
                }
            }
            for ask in std::mem::take(&mut self.app.asks) {
                match ask {
                    Ask::Suspend => guard.suspend()?,
                    Ask::Picture => {
                        let drawn = guard.terminal()?.draw(|frame| drop(view::fleet(&self, frame)))?;
                        self.app.toast = Some(self.app.options.write_picture(drawn.buffer));
                    }
                    _ => {}
                }
            }
        }
        Ok(self.has_fired())
    }
}
