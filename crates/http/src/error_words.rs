//! The words of a server in an error, wherever it writes them.

use serde_json::Value;

/// Longest sentence that is repeated, in characters.
const LONGEST: usize = 300;

/// Fields that hold an error's words, the best first.
const FIELDS: &[&str] = &[
    "message",
    "error",
    "detail",
    "details",
    "msg",
    "error_message",
    "error_msg",
    "error_description",
    "description",
    "reason",
    "errors",
    "exception",
    "fault",
    "faultstring",
    "title",
];

/// How deep fields are looked into.
const DEPTH: usize = 6;

/// Most entries of a list of errors that are repeated.
const MOST: usize = 5;

/// The error in JSON as a sentence; none if it names nothing.
#[must_use]
pub fn error_words(json: &Value) -> Option<String> {
    words(json, DEPTH).map(|words| one_line(&words))
}

/// The error in a body: the words in its JSON, the title of a page, else the beginning of the text.
pub(super) fn of_body(text: &str) -> String {
    let json: Option<Value> = serde_json::from_str(text).ok();
    let named = json.as_ref().and_then(error_words);
    named.unwrap_or_else(|| one_line(title(text).unwrap_or(text)))
}

fn words(json: &Value, depth: usize) -> Option<String> {
    let deeper = depth.checked_sub(1)?;
    match json {
        Value::String(text) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
        Value::Array(list) => {
            let all: Vec<String> = list.iter().filter_map(|one| words(one, deeper)).take(MOST).collect();
            (!all.is_empty()).then(|| all.join("; "))
        }
        Value::Object(fields) => {
            let found = FIELDS.iter().find_map(|name| words(fields.get(*name)?, deeper))?;
            // FastAPI names the field of the request that is wrong
            let place = fields.get("loc").and_then(Value::as_array).map(|loc| {
                let parts = loc.iter().map(|part| part.as_str().map_or_else(|| part.to_string(), str::to_owned));
                parts.filter(|part| part != "body").collect::<Vec<_>>().join(".")
            });
            Some(match place {
                Some(place) if !place.is_empty() => format!("{place}: {found}"),
                _ => found,
            })
        }
        _ => None,
    }
}

/// The title of a page that a proxy sends in place of an answer.
fn title(text: &str) -> Option<&str> {
    let (_, after) = text.trim_start().strip_prefix('<')?.split_once("<title>")?;
    after.split_once("</title>").map(|(title, _)| title).filter(|title| !title.trim().is_empty())
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_an_error_are_found_wherever_servers_write_them() {
        let why = "too long";
        for body in [
            r#"{"error":{"message":"too long","code":400}}"#,
            r#"{"object":"error","message":"too long","type":"BadRequestError"}"#,
            r#"{"error":"too long"}"#,
            r#"{"detail":"too long"}"#,
            r#"{"error":{"code":1,"error":{"msg":"too long"}}}"#,
            r#"{"errors":[{"message":"too long"}]}"#,
            r#"{"status":"x","msg":"too long"}"#,
            r#"{"fault":{"faultstring":"too long","detail":{}}}"#,
            "\n {\"error\": {\n  \"message\": \"too\\n long\"\n }\n}\n",
            "too long\n",
            "<html><head><title>too long</title></head></html>",
        ] {
            assert_eq!(of_body(body), why, "{body}");
        }
        let refused =
            r#"{"message":{"detail":[{"loc":["body","seed"],"msg":"not permitted"},{"loc":["body","x"],"msg":"no"}]}}"#;
        assert_eq!(of_body(refused), "seed: not permitted; x: no");
        assert_eq!(of_body(&"é".repeat(999)).chars().count(), LONGEST);
        assert_eq!(of_body(&format!("{}1{}", "[".repeat(99), "]".repeat(99))).len(), 199, "nothing is named");
    }
}
