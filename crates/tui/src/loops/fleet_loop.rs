//! The loop that joins samples of servers, keys and a screen.

use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use crossterm::event::{Event as Input, KeyEventKind};

use draftscope_protocol::ServerSample;

use crate::app::Ask;
use crate::other_screens::fleet::FleetView;
use crate::terminal::{Guard, Stage as _, TuiError, Wants, draw_whole, end_on_hangup, inputs_within};
use crate::view;

/// Longest time in which a sample is not looked at.
const TICK: Duration = Duration::from_millis(100);

impl FleetView {
    /// Shows the servers on the terminal until the user leaves; returns whether a condition was met meanwhile.
    ///
    /// # Errors
    /// When the terminal cannot be set up, drawn to or read. It is restored in every case.
    pub fn run(mut self, samples: &Receiver<ServerSample>) -> Result<bool, TuiError> {
        end_on_hangup()?;
        let mut guard = Guard::enter(Wants { mouse: !self.app.options.no_mouse, focus: false })?;
        let (mut is_new, mut passed) = (true, Instant::now());
        while !self.quits() {
            is_new |= self.receive(samples);
            let ms = passed.elapsed().as_millis();
            if ms > 0 {
                passed = Instant::now();
                is_new |= self.pass(u64::try_from(ms).unwrap_or(u64::MAX));
            }
            if std::mem::take(&mut is_new) {
                let mut measured = self.app.place.hit_map.clone();
                draw_whole(guard.terminal()?, |frame| measured = view::fleet(&self, frame))?;
                self.app.place.hit_map = measured;
            }
            for input in inputs_within(TICK)? {
                is_new = true;
                match input {
                    Input::Key(key) if key.kind != KeyEventKind::Release && !self.quits() => self.press(key),
                    _ => {}
                }
            }
            for ask in std::mem::take(&mut self.app.requests.asks) {
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

    /// Takes the samples that have come; returns whether there is something new. Only those of a history end.
    fn receive(&mut self, samples: &Receiver<ServerSample>) -> bool {
        let mut is_new = false;
        loop {
            match samples.try_recv() {
                Ok(sample) => self.take(sample),
                Err(TryRecvError::Disconnected) if !self.is_replay() && self.app.toast.is_none() => {
                    self.app.toast = Some("the watch ended on an internal error; please report it".to_owned());
                }
                Err(_) => return is_new,
            }
            is_new = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::app::options::TuiOptions;

    #[test]
    fn a_watch_whose_threads_ended_says_so_after_the_last_look_and_a_history_does_not() {
        let (sender, samples) = channel();
        let mut live = FleetView::new(1, Vec::new(), TuiOptions::default());
        sender.send(ServerSample { host: "a:1".to_owned(), ..ServerSample::default() }).unwrap();
        assert!(live.receive(&samples) && live.app.toast.is_none() && !live.receive(&samples));
        drop(sender);
        assert!(live.receive(&samples));
        assert!(live.app.toast.as_ref().is_some_and(|toast| toast.contains("please report it")));
        assert!(!live.receive(&samples), "it is shown, and nothing is drawn again");
        let mut history = FleetView::history(1, Vec::new(), TuiOptions::default());
        assert!(!history.receive(&samples) && history.app.toast.is_none());
    }
}
