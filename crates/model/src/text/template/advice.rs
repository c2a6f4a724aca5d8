//! What to do about a template that rejects a conversation.

use super::ChatTemplate;
use crate::ModelError;
use draftscope_protocol::{Message, Speaker};

impl ChatTemplate {
    /// Renders a conversation as [`ChatTemplate::render`] does; an error names the next step.
    ///
    /// # Errors
    /// [`ModelError::Template`], which advises to leave instructions out only if the rest of the conversation renders.
    pub fn render_or_advise(&self, messages: &[Message]) -> Result<String, ModelError> {
        self.render(messages).map_err(|error| match error {
            ModelError::Template(why) => ModelError::Template(self.advised(&why, messages)),
            other => other,
        })
    }

    fn advised(&self, why: &str, messages: &[Message]) -> String {
        let rest: Vec<_> = messages.iter().filter(|message| message.role != Speaker::System).cloned().collect();
        if rest.len() < messages.len() && self.render(&rest).is_ok() {
            return format!("{why}; the same conversation without instructions is accepted: leave --system out");
        }
        format!("{why}; use --raw to send the text unchanged")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(source: &str, roles: &[Speaker]) -> String {
        let messages: Vec<_> = roles.iter().map(|role| Message { role: *role, content: "x".to_owned() }).collect();
        let template = ChatTemplate::new(source, String::new(), String::new()).unwrap();
        template.render_or_advise(&messages).unwrap_or_else(|error| error.to_string())
    }

    #[test]
    fn an_error_names_the_next_step_that_was_checked() {
        let no_system = "{% if messages[0].role == 'system' %}{{ raise_exception('no instructions') }}{% endif %}fine";
        assert_eq!(said(no_system, &[Speaker::User]), "fine");
        let advice = said(no_system, &[Speaker::System, Speaker::User]);
        assert!(advice.contains("no instructions") && advice.ends_with("leave --system out"), "{advice}");
        let nothing = "{{ raise_exception('never') }}";
        for roles in [&[Speaker::User][..], &[Speaker::System, Speaker::User]] {
            let advice = said(nothing, roles);
            assert!(advice.contains("never") && advice.ends_with("use --raw to send the text unchanged"), "{advice}");
        }
    }
}
