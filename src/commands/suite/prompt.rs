//! A prompt of a suite, and what a suite must have.

use anyhow::{Result, bail};
use draftscope::session::text::printable;

/// Category of all prompts together.
pub(crate) const ALL: &str = "all";

/// Longest file of prompts, in bytes: SPEED-Bench's longest split has 110 MB.
pub(super) const MOST_TEXT: u64 = 256 << 20;

/// A prompt, and the category that it counts in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SuitePrompt {
    pub(crate) category: String,
    /// What the user says, turn after turn; at least one, none of them empty.
    pub(crate) turns: Vec<String>,
}

impl SuitePrompt {
    /// What the user says first.
    pub(crate) fn opening(&self) -> &str {
        self.turns.first().map_or("", String::as_str)
    }
}

/// The prompts, if there are any.
pub(super) fn any(prompts: Vec<SuitePrompt>) -> Result<Vec<SuitePrompt>> {
    if prompts.is_empty() {
        bail!("the suite has no prompts");
    }
    Ok(prompts)
}

/// Rejects names that a table cannot show, and empty prompts; `place` says where the prompt stands.
pub(super) fn check(prompt: &SuitePrompt, place: impl Fn() -> String) -> Result<()> {
    let name = prompt.category.as_str();
    if name == ALL {
        bail!("a category is called '{ALL}', which is the name of the sum over categories; rename it");
    }
    if name.trim().is_empty() || name.contains(char::is_control) {
        bail!("a category is called '{}', which a table cannot show; rename it", printable(name));
    }
    if prompt.turns.is_empty() || prompt.turns.iter().any(|turn| turn.trim().is_empty()) {
        bail!("{} is empty; type some text", place());
    }
    Ok(())
}
