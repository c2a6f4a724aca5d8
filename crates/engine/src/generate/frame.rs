//! The text that a chat template puts around messages, found by rendering one conversation of marked messages.
//!
//! Generation continues from tokens that are already in the cache, so it cannot render the conversation again each
//! turn. Instead it splits the template's text once.

use super::error::GenerateError;
use draftscope_model::text::template::ChatTemplate;
use draftscope_protocol::{Message, Speaker};

const MARKS: [&str; 3] = ["\u{2983}first\u{2984}", "\u{2983}answer\u{2984}", "\u{2983}second\u{2984}"];

/// The text around messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Before the first message of the user.
    pub opening: String,
    /// After a message of the user, up to where the answer begins.
    pub closing: String,
    /// After an answer and the token that ends it, up to the user's next message.
    pub between: String,
}

impl Frame {
    /// The frame of a template; `eos` is the name of the token that ends answers.
    ///
    /// # Errors
    /// [`GenerateError::Template`] when the rendered text does not contain the messages, or the template treats the
    /// first turn differently from the second.
    pub fn new(template: &ChatTemplate, system: Option<&str>, eos: &str) -> Result<Self, GenerateError> {
        let message = |role, content: &str| Message { role, content: content.to_owned() };
        let system = system.map(|content| message(Speaker::System, content));
        let [first, answer, second] = MARKS;
        let talk = [(Speaker::User, first), (Speaker::Assistant, answer), (Speaker::User, second)];
        let messages: Vec<_> = system.into_iter().chain(talk.map(|(role, mark)| message(role, mark))).collect();
        let text = template.render(&messages)?;
        Self::cut(&text, eos).ok_or(GenerateError::Template)
    }

    fn cut(text: &str, eos: &str) -> Option<Self> {
        let (opening, rest) = text.split_once(MARKS[0])?;
        let (closing, rest) = rest.split_once(MARKS[1])?;
        let (between, last) = rest.split_once(MARKS[2])?;
        let between = between.strip_prefix(eos).unwrap_or(between);
        let frame = Self { opening: opening.to_owned(), closing: closing.to_owned(), between: between.to_owned() };
        (last == closing).then_some(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHATML: &str = "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

    #[test]
    fn a_conversation_assembled_from_the_frame_equals_the_rendered_one() {
        let template = ChatTemplate::new(CHATML, String::new(), String::new()).unwrap();
        let frame = Frame::new(&template, Some("Be kind."), "<|im_end|>").unwrap();
        let Frame { opening, closing, between } = &frame;
        let whole = format!("{opening}Hi{closing}Hello!<|im_end|>{between}Bye{closing}");
        let message = |role, content: &str| Message { role, content: content.into() };
        let messages = [
            message(Speaker::System, "Be kind."),
            message(Speaker::User, "Hi"),
            message(Speaker::Assistant, "Hello!"),
            message(Speaker::User, "Bye"),
        ];
        assert_eq!(whole, template.render(&messages).unwrap());
    }

    #[test]
    fn a_template_that_hides_messages_is_refused() {
        let template = ChatTemplate::new("{{ messages[0]['content'] }}", String::new(), String::new()).unwrap();
        assert!(matches!(Frame::new(&template, None, "</s>"), Err(GenerateError::Template)));
    }
}
