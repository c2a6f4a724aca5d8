//! The chat template of a model: messages in, prompt text out.
//!
//! A template is Jinja code from an untrusted file. It runs with limited steps and sees only the messages, the names
//! of two tokens and the date. The interpreter limits neither the depth of expressions and values nor their memory
//! (`~`, `+` and `==` cannot be replaced), so the program renders in a separate process with limits of the
//! operating system: see [`process`]. A library user who does not call [`process::start`] renders in the calling
//! thread; do this only with trusted templates.

mod date;
mod limits;
pub mod process;

use std::io;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde, StringInput};
use minijinja::{Environment, Error, ErrorKind, State, Value, context, filters};
use minijinja_contrib::pycompat::unknown_method_callback;

use self::date::Day;
use self::process::Contained;
use crate::model::ModelError;
use crate::protocol::Message;

/// Most steps of a template; real ones need some fifty per message.
const FUEL: u64 = 2_000_000;

/// Most bytes of the rendered text: far more than the longest context.
const MAX_OUTPUT: usize = 16 << 20;

/// Widest indentation, in characters.
const MAX_INDENT: usize = 256;

/// Longest template, in bytes.
const MAX_SOURCE: usize = 1 << 20;

/// Most characters of an error message.
const MAX_ERROR: usize = 400;

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

/// A compiled chat template.
pub struct ChatTemplate(Renderer);

/// Where a template is rendered.
enum Renderer {
    /// In the calling thread.
    Here(Box<Compiled>),
    /// In a separate process.
    Apart(Contained),
}

impl ChatTemplate {
    /// Compiles a template. `bos` and `eos` are names of special tokens.
    ///
    /// # Errors
    /// [`ModelError::Template`] with the place of a syntax error, or with the limit that was exceeded.
    pub fn new(source: &str, bos: String, eos: String) -> Result<Self, ModelError> {
        if source.len() > MAX_SOURCE {
            return Err(ModelError::Template(format!(
                "it is {} bytes long; at most {MAX_SOURCE} are supported",
                source.len()
            )));
        }
        let renderer = match process::program() {
            Some(program) => Renderer::Apart(Contained::new(program, source, bos, eos)?),
            None => Renderer::Here(Box::new(Compiled::new(source, bos, eos)?)),
        };
        Ok(Self(renderer))
    }

    /// Renders a conversation up to where the assistant's answer begins.
    ///
    /// # Errors
    /// [`ModelError::Template`] if the template rejects the messages or exceeds a limit.
    pub fn render(&self, messages: &[Message]) -> Result<String, ModelError> {
        match &self.0 {
            Renderer::Here(compiled) => compiled.render(messages),
            Renderer::Apart(contained) => contained.render(messages),
        }
    }
}

/// A template that the interpreter has compiled.
struct Compiled {
    environment: Environment<'static>,
    bos: String,
    eos: String,
}

impl Compiled {
    fn new(source: &str, bos: String, eos: String) -> Result<Self, ModelError> {
        let mut environment = Environment::new();
        environment.set_syntax(syntax()?);
        environment.set_fuel(Some(FUEL));
        environment.set_unknown_method_callback(method);
        environment.remove_filter("format");
        environment.add_filter("indent", indent);
        environment.add_function("raise_exception", |message: String| -> Result<String, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        });
        let today = Day::today();
        environment.add_function("strftime_now", move |format: String| -> Result<String, Error> {
            let wrong = || {
                Error::new(
                    ErrorKind::InvalidOperation,
                    "strftime_now gives only the date, and the format asks for something else",
                )
            };
            today.format(&format).ok_or_else(wrong)
        });
        environment.add_template_owned("chat", without_marks(source)).map_err(|error| failed(&error))?;
        Ok(Self { environment, bos, eos })
    }

    fn render(&self, messages: &[Message]) -> Result<String, ModelError> {
        let template = self.environment.get_template("chat").map_err(|error| failed(&error))?;
        // `transformers` passes `none` for tools and documents too; many templates test for it
        let given = context! { messages => Value::from(Serde(messages)), add_generation_prompt => true, bos_token => self.bos.as_str(), eos_token => self.eos.as_str(), tools => (), documents => () };
        let mut out = Bounded::default();
        template.render_captured_to(given, &mut out).map_err(|error| failed(&error))?;
        String::from_utf8(out.0).map_err(|_| ModelError::Template("it does not write UTF-8 text".to_owned()))
    }
}

/// Variables by which templates decide whether a model thinks: Qwen3.x, GLM, Gemma 4 and SmolLM3; DeepSeek and Kimi.
const SWITCHES: &[&str] = &["enable_thinking", "thinking"];

/// The source with its variables for thinking set; `None` if it knows none.
#[must_use]
pub fn with_thinking(source: &str, thinks: bool) -> Option<String> {
    let known: Vec<_> = SWITCHES.iter().filter(|name| names_variable(source, name)).collect();
    let set = |name: &&&str| format!("{{% set {name} = {thinks} %}}");
    (!known.is_empty()).then(|| known.iter().map(set).collect::<String>() + source)
}

/// Whether code of a template names a variable: as a word of its own, within a tag, and not as a field or text.
fn names_variable(source: &str, name: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || "_.'\"".contains(c);
    source.split("{%").skip(1).filter_map(|rest| rest.split("%}").next()).any(|tag| {
        tag.match_indices(name).any(|(at, _)| {
            let (before, after) = (tag[..at].chars().next_back(), tag[at + name.len()..].chars().next());
            before.is_some_and(|c| !is_word(c)) && after.is_none_or(|c| !is_word(c))
        })
    })
}

/// The source with `{% generation %}` … `{% endgeneration %}` replaced by blocks that always run. `transformers` marks the
/// answers of a training text with them; here their content is rendered as if there were no marks.
fn without_marks(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at + 2);
        out.push_str(before);
        rest = tag;
        let Some((lead, name, put)) = mark(tag) else { continue };
        out.push_str(&tag[..lead]);
        out.push_str(put);
        rest = &tag[lead + name..];
    }
    out.push_str(rest);
    out
}

/// Reads a tag that follows `{%`: bytes before the name of a mark, bytes of the name, and its replacement.
fn mark(tag: &str) -> Option<(usize, usize, &'static str)> {
    let body = tag.trim_start_matches(['-', '+']).trim_start();
    let marks = [("generation", "if true"), ("endgeneration", "endif")];
    let (name, put) = marks.into_iter().find(|(name, _)| body.starts_with(name))?;
    let end = body[name.len()..].trim_start().trim_start_matches(['-', '+']);
    end.starts_with("%}").then_some((tag.len() - body.len(), name.len(), put))
}

/// Methods of Python's strings, lists and dictionaries, except `format`, which could pad to any width.
fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    if name == "format" {
        return Err(Error::new(ErrorKind::UnknownMethod, "format is not supported in chat templates"));
    }
    unknown_method_callback(state, value, name, args)
}

/// The filter `indent`, up to [`MAX_INDENT`].
fn indent(
    value: StringInput<'_>,
    width: Option<usize>,
    first: Option<bool>,
    blank: Option<bool>,
    options: Kwargs,
) -> Result<Value, Error> {
    let asked = options.peek::<usize>("width").ok().or(width);
    if asked.is_some_and(|width| width > MAX_INDENT) {
        return Err(Error::new(
            ErrorKind::InvalidOperation,
            format!("it indents by more than {MAX_INDENT} characters"),
        ));
    }
    filters::indent(value, width, first, blank, options)
}

/// Block tags leave no blanks or line breaks, as in `transformers`.
fn syntax() -> Result<SyntaxConfig, ModelError> {
    SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(|error| failed(&error))
}

fn failed(error: &Error) -> ModelError {
    // the source of the error has the message of the writer
    let cause = std::error::Error::source(error).map_or_else(String::new, |cause| format!(": {cause}"));
    ModelError::Template(sentence(&format!("{error}{cause}")))
}

/// An error message in one line, of limited length: it may quote whole values of the template.
fn sentence(text: &str) -> String {
    let line = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut line: String = line.take(MAX_ERROR).collect();
    if text.chars().nth(MAX_ERROR).is_some() {
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Speaker;

    const CHATML: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'].strip() + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

    #[test]
    fn a_template_that_knows_thinking_differs_from_one_that_mentions_it() {
        let qwen = "{%- if enable_thinking is defined and enable_thinking is false %}{{ '<think></think>' }}{%- else %}{{ '<think>' }}{%- endif %}";
        let deepseek =
            "{% if not thinking is defined %}{% set thinking = false %}{% endif %}{% if thinking %}<think>{% endif %}";
        let render = |source: &str| ChatTemplate::new(source, String::new(), String::new()).unwrap().render(&user("x"));
        for (source, thinks, text) in [
            (qwen, true, "<think>"),
            (qwen, false, "<think></think>"),
            (deepseek, true, "<think>"),
            (deepseek, false, ""),
        ] {
            assert_eq!(render(&with_thinking(source, thinks).unwrap()).unwrap(), text, "{source}");
        }
        assert_eq!(render(qwen).unwrap(), "<think>", "without the option the template decides");
        for source in [
            CHATML,
            "thinking",
            "{% set a = 'thinking' %}",
            "{% if message.thinking %}{% endif %}",
            "{% if rethinking %}",
        ] {
            assert_eq!(with_thinking(source, true), None, "{source}");
        }
    }

    fn user(content: &str) -> Vec<Message> {
        vec![Message { role: Speaker::User, content: content.into() }]
    }

    #[test]
    fn messages_are_rendered_with_python_methods() {
        let template = ChatTemplate::new(CHATML, String::new(), String::new()).unwrap();
        let text = template.render(&user(" Hi ")).unwrap();
        assert_eq!(text, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
    }

    #[test]
    fn marks_of_answers_keep_their_content_and_the_blanks_around() {
        let said = |source: &str| {
            ChatTemplate::new(source, String::new(), String::new()).and_then(|template| template.render(&user("x")))
        };
        for (with, without) in [
            ("a {%- generation -%} b {%- endgeneration -%} c", "abc"),
            ("a {% generation %}b{% endgeneration %} c", "a b c"),
            ("  {% generation %}\nb\n  {%endgeneration%}\nc", "b\nc"), // as with any block tag
            ("{%+ generation +%}\nb{% endgeneration %}", "\nb"),
            ("{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}", "x"),
            ("generation {{ 'endgeneration' }}", "generation endgeneration"),
        ] {
            assert_eq!(said(with).unwrap(), without, "{with}");
        }
        for wrong in ["{% generation %}", "{% endgeneration %}", "{% generations %}{% endif %}", "{% generation x %}"] {
            assert!(said(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_template_gets_no_tools_and_the_date() {
        let source = "{% if tools is defined and tools is none and documents is none %}{{ strftime_now('%d %B %Y') }}{% endif %}";
        let template = ChatTemplate::new(source, String::new(), String::new()).unwrap();
        let before = Day::today();
        let said = template.render(&user("x")).unwrap();
        let days = [before, Day::today()].map(|day| day.format("%d %B %Y").unwrap());
        assert!(days.contains(&said), "{said}");
        assert_eq!(template.render(&user("y")).unwrap(), said);
        let clock = ChatTemplate::new("{{ strftime_now('%H:%M') }}", String::new(), String::new()).unwrap();
        assert!(clock.render(&user("x")).unwrap_err().to_string().contains("strftime_now gives only the date"));
    }

    #[test]
    fn exceptions_and_endless_loops_are_errors() {
        let refusing = ChatTemplate::new("{{ raise_exception('no system role') }}", String::new(), String::new());
        assert!(refusing.unwrap().render(&user("x")).unwrap_err().to_string().contains("no system role"));
        let endless = "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}";
        assert!(ChatTemplate::new(endless, String::new(), String::new()).unwrap().render(&user("x")).is_err());
        let long = "{% for a in range(9999) %}{{ 'x' * 10000 }}{% endfor %}";
        let error = ChatTemplate::new(long, String::new(), String::new()).unwrap().render(&user("x")).unwrap_err();
        assert!(error.to_string().contains("writes more than 16 MiB"), "{error}");
        assert!(ChatTemplate::new("{% if %}", String::new(), String::new()).is_err());
        for wide in [
            "{{ 'x'|indent(99999999999999) }}",
            "{{ 'x'|indent(width=99999999999999) }}",
            "{{ '{:9999}'.format('x') }}",
            "{{ '%9999s'|format('x') }}",
        ] {
            let template = ChatTemplate::new(wide, String::new(), String::new());
            assert!(template.and_then(|template| template.render(&user("x"))).is_err(), "{wide}");
        }
        let indented = ChatTemplate::new("{{ 'a\nb'|indent(2) }}", String::new(), String::new()).unwrap();
        assert_eq!(indented.render(&user("x")).unwrap(), "a\n  b");
    }
}
