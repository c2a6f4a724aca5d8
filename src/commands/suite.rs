//! Suites: prompts by category, built in or from a file.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use draftscope::host::config::toml_error;
use draftscope::host::file_access;
use draftscope::session::text::printable;
use serde::Deserialize;

/// Prompts by category.
#[derive(Deserialize)]
struct Category {
    prompts: Vec<String>,
}

/// Category of all prompts together.
pub(crate) const ALL: &str = "all";

/// (Category, prompt) pairs.
pub(crate) type Suite = Vec<(String, String)>;

/// The prompts of a file; the built-in ones without a path.
pub(crate) fn suite(path: Option<&Path>) -> Result<Suite> {
    let Some(path) = path else {
        return parse_suite(include_str!("../../assets/prompts/suite.toml"));
    };
    let text = text(path).with_context(|| format!("cannot read the suite {}", path.display()))?;
    parse_suite(&text).with_context(|| format!("the suite {} cannot be used", path.display()))
}

/// Longest file of prompts, in bytes.
const MOST_TEXT: u64 = 64 << 20;

/// The text of a file of prompts.
pub(crate) fn text(path: &Path) -> std::io::Result<String> {
    file_access::read_text(path, MOST_TEXT)
}

/// Prompts by category, as `[category]` tables with a list `prompts` each.
pub(crate) fn parse_suite(text: &str) -> Result<Suite> {
    let suite: BTreeMap<String, Category> = toml::from_str(text).map_err(|error| {
        let why = toml_error(text, &error);
        anyhow!("{why}; a suite has tables of prompts, as in [category] and prompts = [\"one\", \"another\"]")
    })?;
    suite.iter().try_for_each(|(name, category)| check(name, category))?;
    let pairs = suite.into_iter().flat_map(|(name, category)| {
        category.prompts.into_iter().map(move |prompt| (name.clone(), prompt)).collect::<Vec<_>>()
    });
    let pairs: Vec<_> = pairs.collect();
    if pairs.is_empty() {
        bail!("the suite has no prompts");
    }
    Ok(pairs)
}

/// Rejects names that a table cannot show, and empty prompts.
fn check(name: &str, category: &Category) -> Result<()> {
    if name == ALL {
        bail!("a category is called '{ALL}', which is the name of the sum over categories; rename it");
    }
    if name.trim().is_empty() || name.contains(char::is_control) {
        bail!("a category is called '{}', which a table cannot show; rename it", printable(name));
    }
    match category.prompts.iter().position(|prompt| prompt.trim().is_empty()) {
        Some(at) => bail!("prompt {} of the category '{name}' is empty; type some text", at + 1),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unusable_suite_is_reported_in_one_line() {
        let error = |text: &str| format!("{:#}", parse_suite(text).unwrap_err());
        for (text, why) in [
            ("x = 1", "line 1"),
            ("[a]\nprompts = [\"x\"]\n\n[b]\nprompts = 3", "line 5"),
            ("[all]\nprompts = [\"x\"]", "'all'"),
            ("[\"\\u001b[31mx\"]\nprompts = [\"x\"]", "rename it"),
            ("[a]\nprompts = [\"x\", \" \"]", "prompt 2 of the category 'a'"),
            ("[a]\nprompts = []", "no prompts"),
        ] {
            let error = error(text);
            assert!(error.contains(why) && !error.contains(char::is_control), "{error:?}");
        }
        assert_eq!(parse_suite("[a]\nprompts = [\"x\", \"y\"]").unwrap().len(), 2);
    }
}
