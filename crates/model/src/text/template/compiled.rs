//! A template that was compiled, and what it renders.

use std::io;

use draftscope_protocol::Message;
use minijinja::value::Serde;
use minijinja::{Environment, Error, Value, context};

use super::jinja::{self, MAX_OUTPUT};
use crate::ModelError;

/// Most steps of a template; real ones need some fifty per message.
const FUEL: u64 = 2_000_000;

/// Most characters of an error message.
const MAX_ERROR: usize = 400;

/// Variables by which templates decide whether a model thinks: Qwen3.x, GLM, Gemma 4 and SmolLM3; DeepSeek and Kimi.
pub(super) const SWITCHES: &[&str] = &["enable_thinking", "thinking"];

/// Collects what a template writes, up to [`MAX_OUTPUT`].
#[derive(Default)]
struct Bounded(Vec<u8>);

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_OUTPUT {
            return Err(io::Error::other(format!("it writes more than {} MiB", MAX_OUTPUT >> 20)));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A template that the interpreter has compiled.
pub(super) struct Compiled {
    environment: Environment<'static>,
    bos: String,
    eos: String,
}

impl Compiled {
    pub(super) fn new(source: &str, bos: String, eos: String) -> Result<Self, ModelError> {
        let mut environment = jinja::environment(jinja::date::now());
        environment.set_fuel(Some(FUEL));
        let prepared = jinja::prepared(source).map_err(|error| failed(&error))?;
        environment.add_template_owned(jinja::NAME, prepared).map_err(|error| failed(&error))?;
        Ok(Self { environment, bos, eos })
    }

    pub(super) fn knows_thinking(&self) -> bool {
        let names = self.environment.get_template(jinja::NAME).map(|template| template.undeclared_variables(false));
        names.is_ok_and(|names| SWITCHES.iter().any(|switch| names.contains(*switch)))
    }

    pub(super) fn render(&self, messages: &[Message], thinks: Option<bool>) -> Result<String, ModelError> {
        let template = self.environment.get_template(jinja::NAME).map_err(|error| failed(&error))?;
        // `transformers` passes `none` for tools and documents too; many templates test for it
        let given = context! { messages => Value::from(Serde(messages)), add_generation_prompt => true, tools => (), documents => () };
        // a token that the model does not have is undefined there, and many templates test for that
        let tokens =
            [("bos_token", &self.bos), ("eos_token", &self.eos)].into_iter().filter(|(_, name)| !name.is_empty());
        let tokens = Value::from_pairs(tokens.map(|(name, token)| (name, token.as_str())));
        let switches = thinks.into_iter().flat_map(|thinks| SWITCHES.iter().map(move |name| (*name, thinks)));
        let switches = Value::from_pairs(switches);
        let mut out = Bounded::default();
        template
            .render_captured_to(context! { ..switches, ..tokens, ..given }, &mut out)
            .map_err(|error| failed(&error))?;
        String::from_utf8(out.0).map_err(|_| ModelError::Template("it does not write UTF-8 text".to_owned()))
    }
}

fn failed(error: &Error) -> ModelError {
    // the source of the error has the message of the writer
    let cause = std::error::Error::source(error).map_or_else(String::new, |cause| format!(": {cause}"));
    ModelError::Template(sentence(&format!("{error}{cause}")))
}

/// An error message in one line, of limited length: it may quote whole values of the template.
pub(super) fn sentence(text: &str) -> String {
    let line = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut line: String = line.take(MAX_ERROR).collect();
    if text.chars().nth(MAX_ERROR).is_some() {
        line.push('…');
    }
    line
}
