//! One line of the report: what was looked at, what was found, and what to do about it.

use std::fmt::{self, Display};

use draftscope::session::text::one_line;
use serde::Serialize;
use serde_json::Value;
use unicode_width::UnicodeWidthStr;

/// What a finding means for the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    /// All is well.
    Ok,
    /// It works, with less than it could have or after one more step.
    Note,
    /// Something will not work.
    Fails,
}

/// Something that was looked at.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Check {
    /// What was looked at: one word or two.
    pub(super) check: &'static str,
    /// What it means.
    pub(super) status: Verdict,
    /// What was found.
    pub(super) found: String,
    /// What to do, unless all is well.
    pub(super) advice: Option<String>,
    /// The same as numbers and names, for programs.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub(super) details: Value,
}

impl Check {
    pub(super) fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, status: Verdict::Ok, found: found.into(), advice: None, details: Value::Null }
    }

    /// It works, but there is something to know or to do.
    pub(super) fn note(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { status: Verdict::Note, advice: Some(advice.into()), ..Self::ok(check, found) }
    }

    pub(super) fn fails(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { status: Verdict::Fails, ..Self::note(check, found, advice) }
    }

    pub(super) fn with(self, details: Value) -> Self {
        Self { details, ..self }
    }
}

/// Whether anything will not work.
pub(super) fn has_failed(checks: &[Check]) -> bool {
    checks.iter().any(|check| check.status == Verdict::Fails)
}

/// How lines look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// Words in place of signs.
    pub(super) ascii: bool,
    /// Signs have colours.
    pub(super) has_color: bool,
    /// Longest line in columns; none where lines are read by a program.
    pub(super) width: Option<usize>,
}

/// The report for people: a line for each check, and one that sums up.
pub(super) struct Report<'a>(pub(super) &'a [Check], pub(super) Look);

impl Look {
    fn sign(self, verdict: Verdict) -> String {
        let (sign, word, color) = match verdict {
            Verdict::Ok => ("✓", "ok  ", 32),
            Verdict::Note => ("!", "note", 33),
            Verdict::Fails => ("✗", "FAIL", 31),
        };
        let text = if self.ascii { word } else { sign };
        if self.has_color { format!("\u{1b}[{color}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// Writes `text` in lines that begin at column `indent`.
    fn write_wrapped(self, f: &mut fmt::Formatter<'_>, text: &str, indent: usize) -> fmt::Result {
        let room = self.width.map_or(usize::MAX, |width| width.saturating_sub(indent).max(20));
        let mut used = 0;
        for word in text.split(' ') {
            let columns = word.width();
            if used > 0 && used + 1 + columns > room {
                write!(f, "\n{:indent$}{word}", "")?;
                used = columns;
            } else {
                let gap = if used > 0 { " " } else { "" };
                write!(f, "{gap}{word}")?;
                used += gap.len() + columns;
            }
        }
        Ok(())
    }
}

impl Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(checks, look) = self;
        let name = checks.iter().map(|check| check.check.len()).max().unwrap_or_default();
        let sign = if look.ascii { 4 } else { 1 };
        for check in *checks {
            write!(f, "{} {:name$}  ", look.sign(check.status), check.check)?;
            let text = match &check.advice {
                Some(advice) => format!("{}: {advice}", check.found),
                None => check.found.clone(),
            };
            let text = one_line(&text).into_owned();
            look.write_wrapped(f, &if look.ascii { plain(&text) } else { text }, sign + name + 3)?;
            writeln!(f)?;
        }
        let fails = checks.iter().filter(|check| check.status == Verdict::Fails).count();
        match fails {
            0 => write!(f, "Nothing here keeps draftscope from working."),
            1 => write!(f, "1 thing will not work: {} says what to do.", look.sign(Verdict::Fails)),
            _ => write!(f, "{fails} things will not work: {} says what to do.", look.sign(Verdict::Fails)),
        }
    }
}

/// The same without signs that only Unicode has.
fn plain(text: &str) -> String {
    text.replace('×', "x").replace('…', "...")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checks() -> Vec<Check> {
        vec![
            Check::ok("CPU", "a processor, 2 threads"),
            Check::note("terminal", "58 × 20", "make it at least 60 columns wide"),
            Check::fails("disk", "0 B free in \u{1b}[2J/cache", "free 98 MB"),
        ]
    }

    fn shown(ascii: bool, has_color: bool, width: Option<usize>) -> String {
        Report(&checks(), Look { ascii, has_color, width }).to_string()
    }

    #[test]
    fn each_check_is_a_line_with_what_to_do_and_controls_nothing() {
        assert_eq!(
            shown(false, false, None).lines().collect::<Vec<_>>(),
            [
                "✓ CPU       a processor, 2 threads",
                "! terminal  58 × 20: make it at least 60 columns wide",
                "✗ disk      0 B free in ␛[2J/cache: free 98 MB",
                "1 thing will not work: ✗ says what to do.",
            ]
        );
    }

    #[test]
    fn ascii_has_words_and_no_other_characters() {
        let text = shown(true, false, None);
        assert!(text.contains("note terminal  58 x 20"), "{text}");
        assert!(text.contains("FAIL disk"), "{text}");
        assert!(Report(&checks()[..2], Look { ascii: true, has_color: false, width: None }).to_string().is_ascii());
    }

    #[test]
    fn long_lines_continue_below_their_text() {
        let text = shown(false, false, Some(40));
        assert!(text.lines().take(5).all(|line| line.width() <= 40), "{text}");
        assert!(text.contains("! terminal  58 × 20: make it at least 60\n            columns wide\n"), "{text}");
    }

    #[test]
    fn colours_are_on_signs_alone() {
        let text = shown(false, true, None);
        assert!(text.starts_with("\u{1b}[32m✓\u{1b}[0m CPU  "), "{text:?}");
        assert_eq!(text.matches("\u{1b}[0m").count(), checks().len() + 1);
    }

    #[test]
    fn only_what_will_not_work_fails() {
        assert!(has_failed(&checks()));
        assert!(!has_failed(&checks()[..2]));
    }
}
