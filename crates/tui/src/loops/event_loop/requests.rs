//! Requests of keys to the terminal and the caller: suspend, copy, save, export, picture.

use std::io;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::app::{Ask, Overlay};
use crate::terminal::Stage;
use draftscope_protocol::{Command, Lane, counted};

use super::EventLoop;

/// How long suspending waits for the end of a phase.
const PATIENCE: Duration = Duration::from_secs(3);

/// Shown if a file of the whole run is requested and its beginning is no longer kept.
const NOT_ALL: &str = "the beginning of this long run is not kept; start with --trace FILE to record all";

impl EventLoop {
    /// Fulfils requests to the terminal and the caller.
    pub(super) async fn fulfil(&mut self, stage: &mut impl Stage) -> io::Result<()> {
        for ask in std::mem::take(&mut self.app.requests.asks) {
            match ask {
                Ask::Suspend => self.suspend(stage).await?,
                Ask::Copy(text) => {
                    stage.copy(&text)?;
                    let count = text.chars().count();
                    self.app.toast = Some(format!("{} sent to the terminal's clipboard", counted(count, "character")));
                }
                Ask::Save => self.app.toast = Some(self.save().unwrap_or_else(|error| error)),
                Ask::SaveAndQuit => self.save_and_quit(),
                Ask::Export(format) => self.app.toast = Some(self.export(format)),
                Ask::Picture => self.app.toast = Some(self.picture(stage)?),
                Ask::KeepTheme(name) => self.app.toast = Some(self.app.options.keep_theme(&name)),
            }
        }
        Ok(())
    }

    /// Suspends the process. A working source is paused before, so that nothing it measures spans the suspension, and
    /// resumed after.
    async fn suspend(&mut self, stage: &mut impl Stage) -> io::Result<()> {
        let live = self.app.learning.engine_run(&self.time).live();
        let holds = live.is_generating() && !self.app.requests.pending.is_held(live);
        if holds {
            self.send_one(Command::Pause);
        }
        let deadline = Instant::now() + PATIENCE;
        while self.is_open && self.is_in_phase() {
            match timeout_at(deadline, self.source.events.recv()).await {
                Ok(event) => self.take(event),
                Err(_) => break,
            }
        }
        stage.suspend()?;
        if holds {
            self.send_one(Command::Resume);
        }
        Ok(())
    }

    /// Whether the source is working, and waits neither for a command nor for a person's draft.
    fn is_in_phase(&self) -> bool {
        let live = self.app.learning.engine_run(&self.time).live();
        let waits = (live.is_paused() && !self.app.requests.pending.awaits_phase()) || live.draft_asked().is_some();
        live.is_generating() && !waits
    }

    fn save(&mut self) -> Result<String, String> {
        let saver = self.app.options.save.as_ref();
        let saver = saver.ok_or("this session cannot be saved from here; start with --trace FILE")?;
        if !self.own().is_whole() {
            return Err(NOT_ALL.to_owned());
        }
        let name = (saver.0)(&mut self.own().events())?;
        self.app.leaving.saved = self.own().live().stats(Lane::Speculative).output_tokens();
        Ok(name)
    }

    /// Quits once the session is saved; if it cannot be saved, the user decides.
    fn save_and_quit(&mut self) {
        match self.save() {
            Ok(saved) => {
                self.farewell = Some(saved);
                self.app.leaving.quits = true;
                self.send_one(Command::Shutdown);
            }
            Err(error) => (self.app.toast, self.app.place.overlay) = (Some(error), Some(Overlay::Quit)),
        }
    }

    fn export(&self, format: usize) -> String {
        match &self.app.options.export {
            Some(_) if !self.own().is_whole() => NOT_ALL.to_owned(),
            Some(exporter) => (exporter.write)(format, &mut self.own().events()).unwrap_or_else(|error| error),
            None => "this session cannot be exported from here".to_owned(),
        }
    }

    /// Draws the screen again, so that the picture shows what the terminal shows.
    fn picture(&self, stage: &mut impl Stage) -> io::Result<String> {
        let (time, app, view) = (&self.time, &self.app, &self.view);
        let drawn = stage.terminal()?.draw(|frame| drop(view.draw(time, app, app.theme(), frame)))?;
        Ok(app.options.write_picture(drawn.buffer))
    }
}
