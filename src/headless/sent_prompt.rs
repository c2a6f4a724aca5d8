//! A writer of the prompt as the model gets it.

use std::io::{self, Write};

use draftscope_protocol::stream::Consumer;
use draftscope_protocol::{Event, EventKind, Lane, Prefilled, counted};
use draftscope_session::sent_prompt::SentPrompt;

/// Writes each prompt with its template, special tokens in double brackets, before its answer.
pub struct SentPrompts<W>(
    /// Where to.
    pub W,
);

impl<W: Write> Consumer for SentPrompts<W> {
    fn name(&self) -> &str {
        "the output of prompts"
    }

    fn event(&mut self, event: &Event) -> io::Result<()> {
        let (Lane::Speculative, EventKind::Prefilled(Prefilled { prompt, .. })) = (event.lane, &event.kind) else {
            return Ok(());
        };
        let sent = SentPrompt::new(prompt);
        let count = sent.tokens();
        if count == 0 {
            writeln!(self.0, "draftscope: the engine does not report the tokens of its prompt")?;
            return self.0.flush();
        }
        writeln!(
            self.0,
            "draftscope: the model gets {}, special ones in ⟨ ⟩:\n{}\n",
            counted(count, "token"),
            sent.marked()
        )?;
        self.0.flush()
    }

    fn finish(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
