//! The frame that all exported pages share: head, content security policy, common style and script, and the block of data.
//!
//! Invariant: a page loads nothing and runs only its own script, which its policy names by hash. Data are JSON in a block
//! that no text can close, and scripts show it as text only. They are written as they are made, never held as a whole.

use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};
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

    /// Writes the page with its data. `markup` stands in place of `{{markup}}` in its body: what the page shows without its
    /// script. Pages of the kind `inner` may be frames within it: their style and script are allowed too.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub(super) fn write(
        &self,
        title: &str,
        inner: Option<&Self>,
        (markup, data): (&str, &impl Serialize),
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let hashes = |block: fn(&Self) -> String| {
            let all = [Some(self), inner].into_iter().flatten().map(|parts| hash(&block(parts)));
            all.collect::<Vec<_>>().join("' '")
        };
        let page = FRAME
            .replace("{{title}}", &escaped(title))
            .replace("{{style-hash}}", &hashes(Self::style))
            .replace("{{script-hash}}", &hashes(Self::script))
            .replace("{{style}}", &self.style())
            .replace("{{body}}", self.body)
            .replace("{{script}}", &self.script());
        // inserted last and never searched for placeholders, since both may contain any text
        let (before, after) = page.split_once("{{data}}").unwrap_or((&page, ""));
        match before.split_once("{{markup}}") {
            Some((head, tail)) => [head, markup, tail].iter().try_for_each(|part| out.write_all(part.as_bytes()))?,
            None => out.write_all(before.as_bytes())?,
        }
        data.serialize(&mut Serializer::with_formatter(&mut *out, Inert))?;
        out.write_all(after.as_bytes())
    }
}

/// Escapes the characters of JSON that HTML would act on. Only strings contain such characters, and in a string the escape
/// means the same character. So no text in a block of data can close it.
struct Inert;

impl Formatter for Inert {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, mut text: &str) -> io::Result<()> {
        while let Some(at) = text.find(['<', '>', '&', '\u{2028}', '\u{2029}']) {
            let (before, rest) = text.split_at(at);
            let mut rest = rest.chars();
            let escaped = rest.next().map_or(0, u32::from);
            write!(out, "{before}\\u{escaped:04x}")?;
            text = rest.as_str();
        }
        out.write_all(text.as_bytes())
    }
}

/// The hash of an inline block, as a content security policy names it.
fn hash(block: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(block.as_bytes())))
}

/// Text as HTML, in an element or in an attribute in double quotes.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('{', "&#123;")
}
