//! A conversation's tokens: the chat template's text, in which names of special tokens in messages stay text.

use super::template::ChatTemplate;
use super::tokenizer::TextCodec;
use crate::ModelError;
use draftscope_protocol::{Message, TokenId};

/// Tokens of a conversation up to where the answer begins, for a context of `ctx_len` positions. Without a template the
/// messages stand as they are, a line break between them, after the token that begins a text if the model expects it.
///
/// # Errors
/// [`ModelError::Template`] if the template rejects the messages or changes the name of a special token in one,
/// [`ModelError::PromptTooLong`], and as [`TextCodec::encode`].
pub fn tokens_of(
    codec: &TextCodec,
    template: Option<&ChatTemplate>,
    messages: &[Message],
    ctx_len: usize,
) -> Result<Vec<TokenId>, ModelError> {
    let tokens = conversation(codec, template, messages, ctx_len)?;
    Ok(if template.is_some() { tokens } else { codec.begun(tokens) })
}

fn conversation(
    codec: &TextCodec,
    template: Option<&ChatTemplate>,
    messages: &[Message],
    ctx_len: usize,
) -> Result<Vec<TokenId>, ModelError> {
    let text = rendered(template, messages)?;
    codec.check_length(&text, ctx_len)?;
    let contents: Vec<&str> = messages.iter().map(|message| message.content.as_str()).collect();
    let Some(marked) = codec.mark(&contents)? else {
        return codec.encode(&text);
    };
    let mut messages = messages.to_vec();
    for (message, text) in messages.iter_mut().zip(&marked.texts) {
        message.content = text.to_string();
    }
    let with_marks = rendered(template, &messages)?;
    if marked.unmark(&with_marks) != text {
        return Err(ModelError::Template(
            "it changes the name of a special token in a message; remove the name, or start with --special-tokens to send it as a token".into(),
        ));
    }
    codec.encode_marked(&with_marks, marked.mark)
}

fn rendered(template: Option<&ChatTemplate>, messages: &[Message]) -> Result<String, ModelError> {
    match template {
        Some(template) => template.render_or_advise(messages),
        None => Ok(messages.iter().map(|message| message.content.as_str()).collect::<Vec<_>>().join("\n")),
    }
}
