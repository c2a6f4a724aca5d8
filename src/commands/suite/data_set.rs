//! Prompts of a data set: rows with a category and the user's turns, as SPEED-Bench has them.
//!
//! Read are the columns `category` and `turns` (a list of texts: the data set itself, Spec-Bench and MT-bench) or `messages`
//! (`role` and `content`, as the data set's own script writes them); others are ignored.
//! Source: <https://huggingface.co/datasets/nvidia/SPEED-Bench>, and AIPerf's tutorial on it.

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::prompt::{SuitePrompt, any, check};

/// The first bytes of a Parquet file.
pub(super) const PARQUET_MARK: &[u8] = b"PAR1";

/// Most rows that are read.
pub(super) const MOST_ROWS: usize = 100_000;

/// Stands in SPEED-Bench's public rows in place of prompts that belong to other data sets.
const PLACEHOLDER: &str = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE";

/// What is read of a row.
#[derive(Debug, Default, Deserialize)]
pub(super) struct DataRow {
    pub(super) category: Option<String>,
    pub(super) turns: Option<Vec<String>>,
    pub(super) messages: Option<Vec<ChatLine>>,
}

/// A message of a conversation.
#[derive(Debug, Deserialize)]
pub(super) struct ChatLine {
    pub(super) role: String,
    pub(super) content: String,
}

impl DataRow {
    /// The prompt of the row; `place` says which row it is.
    pub(super) fn prompt(self, place: &str) -> Result<SuitePrompt> {
        let Some(category) = self.category else { bail!("{place} has no category") };
        let turns = match (self.turns, self.messages) {
            (Some(turns), _) => turns,
            (None, Some(messages)) => messages
                .into_iter()
                .map(|message| match message.role.as_str() {
                    "user" => Ok(message.content),
                    _ => bail!("{place} has a message that is not the user's; only those can be asked"),
                })
                .collect::<Result<_>>()?,
            (None, None) => bail!("{place} has neither turns nor messages"),
        };
        if turns.iter().any(|turn| turn.contains(PLACEHOLDER)) {
            bail!(
                "{place} has a placeholder in place of its prompt: the public files of SPEED-Bench refer to other data sets; \
                 its script prepare.py fetches the prompts and writes JSON Lines"
            );
        }
        let prompt = SuitePrompt { category, turns };
        check(&prompt, || format!("a turn of {place}"))?;
        Ok(prompt)
    }
}

/// Whether a text is JSON Lines or a JSON list of rows; a suite in TOML begins with neither.
pub(super) fn is_json(text: &str) -> bool {
    let text = text.trim_start();
    text.starts_with('{') || text.strip_prefix('[').is_some_and(|rest| rest.trim_start().starts_with('{'))
}

/// The prompts of JSON Lines, or of a JSON list.
///
/// # Errors
/// When a row cannot be read, is no prompt, or there are more than [`MOST_ROWS`].
pub(super) fn prompts(text: &str) -> Result<Vec<SuitePrompt>> {
    if text.trim_start().starts_with('[') {
        let rows: Vec<DataRow> = serde_json::from_str(text).context("it is no JSON list of rows")?;
        return collect(rows.into_iter().enumerate().map(|(index, row)| row.prompt(&format!("row {}", index + 1))));
    }
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    collect(lines.map(|(index, line)| {
        let place = format!("line {}", index + 1);
        let row: DataRow = serde_json::from_str(line).with_context(|| format!("{place} is no row of a data set"))?;
        row.prompt(&place)
    }))
}

/// All prompts, or the first error; at least one and at most [`MOST_ROWS`].
pub(super) fn collect(prompts: impl Iterator<Item = Result<SuitePrompt>>) -> Result<Vec<SuitePrompt>> {
    let prompts: Vec<SuitePrompt> = prompts.take(MOST_ROWS + 1).collect::<Result<_>>()?;
    if prompts.len() > MOST_ROWS {
        bail!("it has more than {MOST_ROWS} rows");
    }
    any(prompts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_the_data_set_and_of_its_script_are_read() {
        let original = r#"{"question_id":"a1","category":"coding","sub_category":null,"turns":["one","two"],"source":"x","src_id":"7","difficulty":null,"multiturn":true}"#;
        let prepared = r#"{"category":"qa","messages":[{"role":"user","content":"three"}]}"#;
        let read = prompts(&format!("{original}\n\n{prepared}\n")).unwrap();
        let shown: Vec<_> = read.iter().map(|prompt| (prompt.category.as_str(), prompt.turns.join("|"))).collect();
        assert_eq!(shown, [("coding", "one|two".to_owned()), ("qa", "three".to_owned())]);
        assert_eq!(prompts(&format!("[{original},\n{prepared}]")).unwrap(), read);
    }

    #[test]
    fn a_wrong_row_is_named_in_one_line() {
        for (text, why) in [
            ("{\"category\":\"a\",\"turns\":[\"x\"]}\n{\"turns\":[\"x\"]}", "line 2 has no category"),
            ("{\"category\":\"a\"}", "line 1 has neither turns nor messages"),
            ("\n{\"category\":\"a\",\"turns\":\"x\"}", "line 2 is no row"),
            ("{\"category\":\"a\",\"turns\":[\"x\",\"\"]}", "a turn of line 1 is empty"),
            ("{\"category\":\"all\",\"turns\":[\"x\"]}", "rename it"),
            ("{\"category\":\"a\",\"messages\":[{\"role\":\"assistant\",\"content\":\"x\"}]}", "is not the user's"),
            ("[{\"category\":\"a\",\"turns\":[]}]", "row 1 is empty"),
            ("[{\"category\":\"a\",\"turns\":[\"x\"]}", "no JSON list"),
            (
                "{\"category\":\"a\",\"turns\":[\"FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH\"]}",
                "line 1 has a placeholder",
            ),
        ] {
            let error = format!("{:#}", prompts(text).unwrap_err());
            assert!(error.contains(why) && !error.contains('\n'), "{error}");
        }
        assert!(prompts(&"{\"category\":\"a\",\"turns\":[\"x\"]}\n".repeat(MOST_ROWS + 1)).is_err());
    }

    #[test]
    fn a_suite_in_toml_is_no_json() {
        assert!(!is_json("[a]\nprompts = []") && !is_json("# {\n[a]") && is_json(" [ {\"a\":1}]") && is_json("{}"));
    }
}
