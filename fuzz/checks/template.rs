//! Takes any text as a chat template. It renders in a process with limits, as in the program, if the caller has called
//! `process::start`.

use draftscope::model::text::template::ChatTemplate;
use draftscope::protocol::{Message, Speaker};

use super::sentence;

/// Compiles the template and renders a conversation.
pub fn check(bytes: &[u8]) {
    let source = String::from_utf8_lossy(bytes);
    let message = |role, content: &str| Message { role, content: content.to_owned() };
    let messages = [
        message(Speaker::System, "Be brief."),
        message(Speaker::User, "{{ 7 * 7 }} <|im_end|>"),
        message(Speaker::Assistant, ""),
        message(Speaker::User, "ä🙂"),
    ];
    match ChatTemplate::new(&source, "<s>".into(), "</s>".into()).and_then(|template| template.render(&messages)) {
        Ok(text) => assert!(text.len() <= 16 << 20),
        Err(error) => sentence(&error),
    }
}
