//! Suites: prompts by category, built in or from a file.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// Prompts by category.
#[derive(Deserialize)]
struct Category {
    prompts: Vec<String>,
}

/// (Category, prompt) pairs.
pub(crate) type Suite = Vec<(String, String)>;

/// The prompts of a file; the built-in ones without a path.
pub(crate) fn suite(path: Option<&Path>) -> Result<Suite> {
    let text = match path {
        None => include_str!("../../../assets/prompts/suite.toml").to_owned(),
        Some(path) => {
            std::fs::read_to_string(path).with_context(|| format!("cannot read the suite {}", path.display()))?
        }
    };
    parse_suite(&text)
}

/// Prompts by category, as `[category]` tables with a list `prompts` each.
pub(crate) fn parse_suite(text: &str) -> Result<Suite> {
    let suite: BTreeMap<String, Category> = toml::from_str(text).context("the suite is not as it should be")?;
    let pairs = suite.into_iter().flat_map(|(name, category)| {
        category.prompts.into_iter().map(move |prompt| (name.clone(), prompt)).collect::<Vec<_>>()
    });
    let pairs: Vec<_> = pairs.collect();
    if pairs.is_empty() {
        bail!("the suite holds no prompts");
    }
    Ok(pairs)
}
