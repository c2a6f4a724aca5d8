//! The frame that all exported pages share: head, content security policy, common style and script, and the block of data.
//!
//! Invariant: a page loads nothing and runs only its own script, which its policy names by hash. Data are JSON in a block
//! that no text can close, and scripts show it as text only.

use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use sha2::{Digest, Sha256};

const FRAME: &str = include_str!("page/frame.html");
const STYLE: &str = include_str!("page/frame.css");
const SCRIPT: &str = include_str!("page/frame.js");

/// What a kind of page adds to the frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    pub(super) body: &'static str,
    pub(super) style: &'static str,
    pub(super) script: &'static str,
}

impl Parts {
    fn style(&self) -> String {
        [STYLE, self.style].concat()
    }

    fn script(&self) -> String {
        [SCRIPT, self.script].concat()
    }

    /// The page with its data. Pages of the kind `inner` may be frames within it: their style and script are allowed too.
    ///
    /// # Errors
    /// When the data cannot be written as JSON.
    pub(super) fn page(&self, title: &str, inner: Option<&Self>, data: &Value) -> io::Result<String> {
        let hashes = |block: fn(&Self) -> String| {
            let all = [Some(self), inner].into_iter().flatten().map(|parts| hash(&block(parts)));
            all.collect::<Vec<_>>().join("' '")
        };
        let page = FRAME
            .replace("{{title}}", &markup(title))
            .replace("{{style-hash}}", &hashes(Self::style))
            .replace("{{script-hash}}", &hashes(Self::script))
            .replace("{{style}}", &self.style())
            .replace("{{body}}", self.body)
            .replace("{{script}}", &self.script());
        // inserted last and never searched for placeholders, since data may contain any text
        let (before, after) = page.split_once("{{data}}").unwrap_or((&page, ""));
        Ok([before, &block(data)?, after].concat())
    }
}

/// JSON for a block of data that no text in it can close.
fn block(value: &Value) -> io::Result<String> {
    Ok(serde_json::to_string(value)?.chars().map(inert).collect())
}

/// Escapes a character of JSON that HTML would act on. Only strings contain such characters, and in a string the escape
/// means the same character.
fn inert(c: char) -> String {
    match c {
        '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => format!("\\u{:04x}", c as u32),
        c => c.to_string(),
    }
}

/// The hash of an inline block, as a content security policy names it.
fn hash(block: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(block.as_bytes())))
}

fn markup(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;").replace('{', "&#123;")
}
