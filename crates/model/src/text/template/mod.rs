//! The chat template of a model: messages in, prompt text out.
//!
//! A template is Jinja code from an untrusted file. It runs with limited steps and sees only the messages, the names
//! of two tokens, whether the model is to think, and the time. The interpreter limits neither the depth of values nor
//! their memory, so the program renders in a separate process with limits of the operating system: see [`process`].
//! A library user who does not call [`process::start`] renders in the calling thread; do this only with trusted
//! templates.

mod advice;
mod compiled;
mod jinja;
mod limits;
pub mod process;

use self::process::Contained;
use crate::ModelError;
use compiled::Compiled;
use draftscope_protocol::Message;

/// Longest template, in bytes.
const MAX_SOURCE: usize = 1 << 20;

/// A compiled chat template.
pub struct ChatTemplate {
    renderer: Renderer,
    /// The value of [`SWITCHES`](compiled::SWITCHES); `None` leaves the decision to the template.
    thinks: Option<bool>,
}

/// Where a template is rendered.
enum Renderer {
    /// In the calling thread.
    Here(Box<Compiled>),
    /// In a separate process.
    Apart(Contained),
    /// Nowhere, since it does not run.
    Nowhere(String),
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
        Ok(Self { renderer, thinks: None })
    }

    /// A template that does not run, and why: rendering gives this error.
    #[must_use]
    pub fn broken(why: String) -> Self {
        Self { renderer: Renderer::Nowhere(why), thinks: None }
    }

    /// Sets whether the model is to think first; `None` leaves it to the template.
    #[must_use]
    pub fn thinking(self, thinks: Option<bool>) -> Self {
        Self { thinks, ..self }
    }

    /// Whether the template reads a variable that says whether the model is to think.
    #[must_use]
    pub fn knows_thinking(&self) -> bool {
        match &self.renderer {
            Renderer::Here(compiled) => compiled.knows_thinking(),
            Renderer::Apart(contained) => contained.knows_thinking(),
            Renderer::Nowhere(_) => false,
        }
    }

    /// Renders a conversation up to where the assistant's answer begins.
    ///
    /// # Errors
    /// [`ModelError::Template`] if the template rejects the messages or exceeds a limit.
    pub fn render(&self, messages: &[Message]) -> Result<String, ModelError> {
        match &self.renderer {
            Renderer::Here(compiled) => compiled.render(messages, self.thinks),
            Renderer::Apart(contained) => contained.render(messages, self.thinks),
            Renderer::Nowhere(why) => Err(ModelError::Template(why.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use draftscope_protocol::Speaker;

    const CHATML: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'].strip() + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

    fn compiled(source: &str) -> Result<ChatTemplate, ModelError> {
        ChatTemplate::new(source, "<s>".to_owned(), "</s>".to_owned())
    }

    fn rendered(source: &str) -> Result<String, ModelError> {
        compiled(source)?.render(&user("x"))
    }

    #[test]
    fn a_template_that_knows_thinking_differs_from_one_that_mentions_it() {
        let qwen = "{%- if enable_thinking is defined and enable_thinking is false %}{{ '<think></think>' }}{%- else %}{{ '<think>' }}{%- endif %}";
        let deepseek =
            "{% if not thinking is defined %}{% set thinking = false %}{% endif %}{% if thinking %}<think>{% endif %}";
        let glm = "{{- '/nothink' if (enable_thinking is defined and not enable_thinking) else '' }}\n";
        for (source, thinks, text) in [
            (qwen, true, "<think>"),
            (qwen, false, "<think></think>"),
            (deepseek, true, "<think>"),
            (deepseek, false, ""),
            (glm, true, ""),
            (glm, false, "/nothink"),
            ("\n{% if thinking %}x{% endif %}", true, "\nx"),
            ("{% macro m() %}{{ thinking }}{% endmacro %}{{ m() }}", false, "False"),
        ] {
            let template = compiled(source).unwrap();
            assert!(template.knows_thinking(), "{source}");
            assert_eq!(template.thinking(Some(thinks)).render(&user("x")).unwrap(), text, "{source}");
        }
        assert_eq!(rendered(qwen).unwrap(), "<think>", "without the option the template decides");
        for source in [
            CHATML,
            "thinking",
            "{% set a = 'thinking' %}",
            "{% if messages[0].thinking %}{% endif %}",
            "{% if rethinking %}{% endif %}",
            "{% set thinking = true %}{{ thinking }}",
            "{{ dict(thinking=1) }}",
        ] {
            assert!(!compiled(source).unwrap().knows_thinking(), "{source}");
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
    fn a_template_gets_no_tools_and_the_time_of_loading() {
        let source =
            "{% if tools is defined and tools is none and documents is none %}{{ strftime_now('%s %F') }}{% endif %}";
        let before = jinja::date::now();
        let template = compiled(source).unwrap();
        let said = template.render(&user("x")).unwrap();
        let seconds: i64 = said.split_once(' ').unwrap().0.parse().unwrap();
        assert!((before..=jinja::date::now()).contains(&seconds), "{said}");
        assert_eq!(template.render(&user("y")).unwrap(), said);
    }

    #[test]
    fn a_template_that_does_not_run_says_so_when_it_is_asked() {
        let broken = ChatTemplate::broken("it is a test".to_owned());
        assert!(!broken.knows_thinking());
        assert_eq!(broken.render(&user("x")).unwrap_err().to_string(), "chat template: it is a test");
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
            "{{ '{:{}}'.format('x', 9999) }}",
            "{{ '{:.9999f}'.format(1.5) }}",
            "{{ '%9999s'|format('x') }}",
            "{{ '%*d' % (9999, 1) }}",
            "{{ '%.9999f' % 1.5 }}",
            "{{ 'x'.ljust(9999) }}",
            "{{ [1]|tojson(indent=99999) }}",
            "{{ strftime_now('%99999d') }}",
            "{{ 'x' * 99999999999 }}",
            "{{ [1] * 99999999999 }}",
        ] {
            let template = ChatTemplate::new(wide, String::new(), String::new());
            assert!(template.and_then(|template| template.render(&user("x"))).is_err(), "{wide}");
        }
        let indented = ChatTemplate::new("{{ 'a\nb'|indent(2) }}", String::new(), String::new()).unwrap();
        assert_eq!(indented.render(&user("x")).unwrap(), "a\n  b");
    }
}
