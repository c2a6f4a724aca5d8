//! A running server as the reference: its greedy text for the same prompt, through `/v1/completions`.

use std::time::Duration;

use anyhow::{Context, Result};
use draftscope::cli::IdentityArgs;
use draftscope::engine::identity::Rate;
use draftscope::http::{Access, Client, Patience};
use draftscope::protocol::TokenId;
use draftscope::session::text::one_line;
use serde_json::{Value, json};

use super::report::{FirstDifference, Report, ours};
use crate::commands::identity::setup::Bench;

/// Texts from a server come without token ids, so that they are compared letter by letter.
pub(super) fn run(args: &IdentityArgs, bench: &mut Bench, prompts: &[String], url: &str) -> Result<Report> {
    let patience = Patience {
        connect: Duration::from_secs(5),
        answer: Duration::from_secs(600),
        silence: Duration::from_secs(600),
    };
    let client = Client::new(url.trim_end_matches('/'), Access::default(), patience)?;
    let (mut tokens, mut same, mut first_differences) = (0, 0, Vec::new());
    for text in prompts {
        let prompt = bench.tokens(text, args.raw)?;
        let want = ours(args, bench, &prompt)?;
        let own = written(bench, &want.tokens);
        let ids: Vec<u32> = prompt.iter().map(|token| token.0).collect();
        let body = json!({"prompt": ids, "max_tokens": args.max_tokens, "temperature": 0, "stream": false});
        let answer = client.post_json("/v1/completions", &body)?;
        let theirs = text_of(&answer).context("the server's answer has no choices[0].text")?;
        tokens += want.tokens.len() as u64;
        let shared = own.chars().zip(theirs.chars()).take_while(|(a, b)| a == b).count();
        if own.trim_end() == theirs.trim_end() {
            same += want.tokens.len() as u64;
            continue;
        }
        let index = before(bench, &want.tokens, shared);
        same += index as u64;
        let rest = |text: &str| {
            let rest: String = text.chars().skip(shared).take(20).collect();
            format!("'{}'", one_line(&rest))
        };
        first_differences.push(FirstDifference {
            prompt: text.clone(),
            index,
            ours: rest(&own),
            theirs: rest(theirs),
            our_margin: None,
            their_margin: None,
        });
    }
    Ok(Report {
        reference: client.host().to_owned(),
        prompts: prompts.len(),
        identical: Rate::of((prompts.len() - first_differences.len()) as u64, prompts.len() as u64),
        tokens,
        agreeing: Rate::of(same, tokens),
        kl_mean: None,
        kl_max: None,
        first_differences,
    })
}

fn text_of(answer: &Value) -> Option<&str> {
    answer["choices"][0]["text"].as_str()
}

/// Output tokens as text, without control tokens.
fn written(bench: &Bench, tokens: &[TokenId]) -> String {
    let bytes: Vec<u8> = tokens.iter().flat_map(|token| bench.codec.piece(*token).text_bytes().to_vec()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Tokens that are whole within the first letters of the text.
fn before(bench: &Bench, tokens: &[TokenId], letters: usize) -> usize {
    (0..tokens.len()).take_while(|count| written(bench, &tokens[..=*count]).chars().count() <= letters).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_an_answer_is_found_or_missing() {
        assert_eq!(text_of(&json!({"choices": [{"text": "hi"}]})), Some("hi"));
        for other in [json!({}), json!({"choices": []}), json!({"choices": [{"text": 3}]}), json!([])] {
            assert_eq!(text_of(&other), None, "{other}");
        }
    }
}
