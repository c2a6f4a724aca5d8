//! Prompts as text, from arguments, files and standard input.
//!
//! Invariant: a prompt has visible text, is UTF-8 and at most [`MAX_PROMPT_BYTES`] long.

use std::collections::VecDeque;
use std::fmt::Display;
use std::io::{BufRead, Read};

use anyhow::{Context, Result, bail};
use draftscope::host::file_access;
use draftscope::session::text::one_line;

/// Largest prompt, in bytes: far more than any context holds.
const MAX_PROMPT_BYTES: u64 = 16 << 20;

/// Bytes that are read at most: with a line ending of two, and one more, by which a longer text is recognised.
const ENOUGH: u64 = MAX_PROMPT_BYTES + 3;

/// Longest part of a prompt in its label, in characters.
const LABEL: usize = 72;

/// What standard input is called in messages.
pub(crate) const STDIN: &str = "standard input";

/// The text of a file or of standard input, which `source` names. A line ending at its end is left out: editors and
/// `echo` add one, and with `--raw` it would change the answer.
pub(crate) fn read_text(reader: impl Read, source: impl Display) -> Result<String> {
    let mut bytes = Vec::new();
    let read = reader.take(ENOUGH).read_to_end(&mut bytes).map_err(anyhow::Error::new);
    read.and_then(|_| text(bytes)).with_context(|| format!("cannot read the prompt from {source}"))
}

/// The error for a file or standard input without visible text.
pub(crate) fn no_prompt(source: impl Display) -> anyhow::Error {
    anyhow::anyhow!("there is no prompt: {source} has no text; put some there or give a prompt with --prompt")
}

fn text(mut bytes: Vec<u8>) -> Result<String> {
    if bytes.pop_if(|last| *last == b'\n').is_some() {
        bytes.pop_if(|last| *last == b'\r');
    }
    if bytes.len() as u64 > MAX_PROMPT_BYTES {
        bail!("it is larger than {} MiB", MAX_PROMPT_BYTES >> 20);
    }
    Ok(file_access::decode(bytes)?)
}

/// How standard input is divided into prompts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Division {
    /// All of it is one prompt.
    Whole,
    /// Each line is a prompt; blank ones are skipped.
    Lines,
}

/// The prompts of a conversation without a screen, read when they are needed.
pub(crate) struct Prompts<R> {
    /// Prompts that come before those of the input.
    first: VecDeque<String>,
    input: R,
    division: Division,
}

impl<R: BufRead> Prompts<R> {
    /// The prompt of an option, then those of an input. The first one is read now.
    ///
    /// # Errors
    /// When there is no prompt at all, or as [`Prompts::next`].
    pub(crate) fn start(option: Option<&str>, input: R, division: Division) -> Result<Self> {
        let given = option.filter(|text| !text.trim().is_empty()).map(str::to_owned);
        let mut prompts = Self { first: VecDeque::from_iter(given), input, division };
        if prompts.first.is_empty() {
            let read = prompts.read()?.ok_or_else(|| no_prompt(STDIN))?;
            prompts.first.push_back(read);
        }
        Ok(prompts)
    }

    /// The next prompt; none at the end.
    ///
    /// # Errors
    /// When the input cannot be read, is too long or is not UTF-8 text.
    pub(crate) fn next(&mut self) -> Result<Option<String>> {
        self.first.pop_front().map_or_else(|| self.read(), |prompt| Ok(Some(prompt)))
    }

    fn read(&mut self) -> Result<Option<String>> {
        if self.division == Division::Whole {
            return Ok(Some(read_text(&mut self.input, STDIN)?).filter(|text| !text.trim().is_empty()));
        }
        loop {
            let mut line = Vec::new();
            let read = (&mut self.input).take(ENOUGH).read_until(b'\n', &mut line);
            let line = match read.map_err(anyhow::Error::new) {
                Ok(0) => return Ok(None),
                read => read.and_then(|_| text(line)).context("cannot read a prompt from a line of standard input")?,
            };
            if !line.trim().is_empty() {
                return Ok(Some(line));
            }
        }
    }
}

/// The label of an answer: the number of its prompt, from 1, and how the prompt begins.
pub(crate) fn label(number: usize, prompt: &str) -> String {
    let mut beginning: String = one_line(prompt.trim()).chars().take(LABEL + 1).collect();
    if beginning.chars().count() > LABEL {
        beginning = beginning.chars().take(LABEL - 1).chain(['…']).collect();
    }
    format!("[{number}] {beginning}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(option: Option<&str>, input: &[u8], division: Division) -> Result<Vec<String>> {
        let mut prompts = Prompts::start(option, input, division)?;
        std::iter::from_fn(|| prompts.next().transpose()).collect()
    }

    #[test]
    fn an_input_is_one_prompt_or_one_a_line() {
        let input = b"the thin inn\r\n\n  \nagain\n";
        assert_eq!(all(None, input, Division::Whole).unwrap(), ["the thin inn\r\n\n  \nagain"]);
        assert_eq!(all(None, input, Division::Lines).unwrap(), ["the thin inn", "again"]);
        assert_eq!(all(Some("first"), input, Division::Lines).unwrap(), ["first", "the thin inn", "again"]);
        assert_eq!(all(Some("first"), b"", Division::Whole).unwrap(), ["first"], "an option is enough");
        assert_eq!(all(None, b"a\n\n", Division::Whole).unwrap(), ["a\n"], "one line ending is left out");
    }

    #[test]
    fn an_input_without_text_is_no_prompt() {
        for (option, input) in [(None, b"".as_slice()), (None, b" \n\n\t"), (Some(" "), b"")] {
            for division in [Division::Whole, Division::Lines] {
                let error = all(option, input, division).unwrap_err().to_string();
                assert!(error.starts_with("there is no prompt: standard input has no text; "), "{error}");
            }
        }
    }

    #[test]
    fn a_prompt_is_bounded_and_text() {
        let longest = usize::try_from(MAX_PROMPT_BYTES).unwrap();
        for division in [Division::Whole, Division::Lines] {
            let error = all(None, &vec![b'a'; longest + 1], division).unwrap_err();
            assert!(format!("{error:#}").ends_with("it is larger than 16 MiB"), "{error:#}");
            let ended = |ending: &[u8]| [vec![b'a'; longest].as_slice(), ending].concat();
            assert_eq!(all(None, &ended(b"\r\n"), division).unwrap()[0].len(), longest);
            assert!(all(None, &ended(b"\rb"), division).is_err(), "nothing is cut off");
            let error = all(None, b"a\xff", division).unwrap_err();
            assert!(format!("{error:#}").contains("it is not UTF-8 text"), "{error:#}");
        }
    }

    #[test]
    fn a_label_is_one_short_line_without_control_characters() {
        assert_eq!(label(2, " a\n\u{1b}[31mb "), "[2] a⏎␛[31mb");
        assert_eq!(label(10, &"é".repeat(100)).chars().count(), "[10] ".len() + LABEL);
        assert!(label(1, &"a".repeat(LABEL)).ends_with('a') && label(1, &"a".repeat(LABEL + 1)).ends_with('…'));
    }
}
