//! Suites: prompts by category, built in or from a file.

mod data_set;
#[cfg(feature = "specspecs")]
mod parquet;
mod prompt;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use draftscope::host::config::toml_error;
use draftscope::host::file_access;
pub(crate) use prompt::{ALL, SuitePrompt};
use prompt::{MOST_TEXT, any, check};
use serde::Deserialize;

/// Prompts of one category.
#[derive(Deserialize)]
struct Category {
    prompts: Vec<Turns>,
}

/// A prompt as a suite has it.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a prompt is a text, or a list of texts that are asked one after the other")]
enum Turns {
    One(String),
    Several(Vec<String>),
}

/// Name of the built-in suite with the categories of SPEED-Bench.
const SPEED: &str = "speed";

/// (Category, prompt) pairs.
pub(crate) type Openings = Vec<(String, String)>;

/// Categories and first turns, for measurements of single answers.
pub(crate) fn openings(suite: &[SuitePrompt]) -> Openings {
    suite.iter().map(|prompt| (prompt.category.clone(), prompt.opening().to_owned())).collect()
}

/// The prompts of a file, or of the built-in suite of that name; the usual ones without a path.
///
/// A file is TOML as the built-in suites are, or a data set with a row for each prompt: JSON Lines, a JSON list or Parquet.
///
/// # Errors
/// When the file cannot be read or holds no suite.
pub(crate) fn suite(path: Option<&Path>) -> Result<Vec<SuitePrompt>> {
    let Some(path) = path else {
        return parse_suite(include_str!("../../../assets/prompts/suite.toml"));
    };
    if path.as_os_str() == SPEED {
        return parse_suite(include_str!("../../../assets/prompts/speed.toml"));
    }
    let bytes =
        file_access::read(path, MOST_TEXT).with_context(|| format!("cannot read the suite {}", path.display()))?;
    let prompts = if bytes.starts_with(data_set::PARQUET_MARK) { parquet(path) } else { parse(bytes) };
    prompts.with_context(|| format!("the suite {} cannot be used", path.display()))
}

/// The text of a file of prompts.
pub(crate) fn text(path: &Path) -> std::io::Result<String> {
    file_access::read_text(path, MOST_TEXT)
}

#[cfg(feature = "specspecs")]
fn parquet(path: &Path) -> Result<Vec<SuitePrompt>> {
    parquet::prompts(file_access::open_regular(path)?)
}

#[cfg(not(feature = "specspecs"))]
fn parquet(_: &Path) -> Result<Vec<SuitePrompt>> {
    bail!(
        "it is a Parquet file, which this program was built without; give the same rows as JSON Lines, or build it with \
         `cargo install --path . --features specspecs`"
    )
}

fn parse(bytes: Vec<u8>) -> Result<Vec<SuitePrompt>> {
    let text = file_access::decode(bytes)?;
    if data_set::is_json(&text) { data_set::prompts(&text) } else { parse_suite(&text) }
}

/// Prompts by category, as `[category]` tables with a list `prompts` each. A list within it is a conversation.
///
/// # Errors
/// When the text is no such TOML, or has no prompts.
pub(crate) fn parse_suite(text: &str) -> Result<Vec<SuitePrompt>> {
    let suite: BTreeMap<String, Category> = toml::from_str(text).map_err(|error| {
        let why = toml_error(text, &error);
        anyhow!(
            "{why}; a suite has tables of prompts, as in [category] and prompts = [\"one\", \"another\"], or is a data set \
             in JSON Lines with a category and turns in each line"
        )
    })?;
    let mut prompts = Vec::new();
    for (name, category) in suite {
        for (index, turns) in category.prompts.into_iter().enumerate() {
            let turns = match turns {
                Turns::One(text) => vec![text],
                Turns::Several(texts) => texts,
            };
            let prompt = SuitePrompt { category: name.clone(), turns };
            check(&prompt, || format!("prompt {} of the category '{name}'", index + 1))?;
            prompts.push(prompt);
        }
    }
    any(prompts)
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
            ("[a]\nprompts = [\"x\", [\"y\", \"\"]]", "prompt 2 of the category 'a'"),
            ("[a]\nprompts = [[]]", "prompt 1 of the category 'a'"),
            ("[a]\nprompts = [\"x\", 3]", "a prompt is a text, or a list of texts"),
            ("[a]\nprompts = []", "no prompts"),
        ] {
            let error = error(text);
            assert!(error.contains(why) && !error.contains(char::is_control), "{error:?}");
        }
        assert_eq!(parse_suite("[a]\nprompts = [\"x\", \"y\"]").unwrap().len(), 2);
    }
    /// The categories of SPEED-Bench's qualitative split, as AIPerf's report lists them.
    const CATEGORIES: [&str; 11] = [
        "coding",
        "humanities",
        "math",
        "multilingual",
        "qa",
        "rag",
        "reasoning",
        "roleplay",
        "stem",
        "summarization",
        "writing",
    ];

    #[test]
    fn the_suite_speed_has_ten_prompts_in_each_of_the_eleven_categories() {
        let suite = suite(Some(Path::new(SPEED))).unwrap();
        let names: std::collections::BTreeSet<&str> = suite.iter().map(|prompt| prompt.category.as_str()).collect();
        assert!(names.into_iter().eq(CATEGORIES));
        assert!(CATEGORIES.iter().all(|name| suite.iter().filter(|prompt| prompt.category == *name).count() == 10));
        let texts: std::collections::BTreeSet<_> = suite.iter().flat_map(|prompt| &prompt.turns).collect();
        assert_eq!(texts.len(), suite.iter().map(|prompt| prompt.turns.len()).sum::<usize>(), "no text twice");
        assert!(suite.iter().any(|prompt| prompt.turns.len() > 2) && openings(&suite).len() == 110);
    }

    #[test]
    fn a_file_is_recognised_by_what_it_holds() {
        let read = |bytes: &[u8]| parse(bytes.to_vec());
        let rows = b"\xef\xbb\xbf{\"category\":\"math\",\"turns\":[\"one\",\"two\"]}\n";
        assert_eq!(read(rows).unwrap()[0].turns, ["one", "two"]);
        assert_eq!(read(b"[math]\nprompts = [[\"one\", \"two\"]]").unwrap(), read(rows).unwrap());
        assert!(format!("{:#}", read(b"a,b\n1,2\n").unwrap_err()).contains("JSON Lines"));
        let folder = tempfile::tempdir().unwrap();
        let table = folder.path().join("speed");
        std::fs::write(&table, b"PAR1 and no table").unwrap();
        let error = format!("{:#}", suite(Some(&table)).unwrap_err());
        assert!(error.contains("cannot be used") && !error.contains(char::is_control), "{error}");
    }
}
