//! The filter `tojson` of `transformers`: Python's `json.dumps`, which escapes no HTML.

use std::fmt::Write as _;

use minijinja::value::ValueKind;
use minijinja::{Error, Value};

use super::arguments::{bind, integer, required, width};
use super::limits::{MAX_OUTPUT, MAX_WIDTH, failure};
use super::text::{float_text, is_namespace, text};

/// How a value is written.
struct Style {
    ascii: bool,
    /// The text of one level of indentation; `None` writes all on one line.
    indent: Option<String>,
    between: String,
    after_key: String,
    sorted: bool,
}

/// `tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
pub(super) fn tojson(args: &[Value]) -> Result<Value, Error> {
    let [value, ascii, indent, separators, sorted] =
        bind(args, ["x", "ensure_ascii", "indent", "separators", "sort_keys"])?;
    let is_true = |value: Option<Value>| value.is_some_and(|value| value.is_true());
    let indent = indent.filter(|indent| !indent.is_none()).map(|indent| level(&indent)).transpose()?;
    let (mut between, mut after_key) = (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned());
    if let Some(pair) = separators.filter(|separators| !separators.is_none()) {
        let parts: Vec<_> = pair.try_iter()?.collect();
        let [first, second] = parts.as_slice() else { return Err(failure("separators has two parts")) };
        (between, after_key) = (text(first), text(second));
    }
    let style = Style { ascii: is_true(ascii), indent, between, after_key, sorted: is_true(sorted) };
    let mut out = String::new();
    style.write(&mut out, &required(value, "value")?, 0)?;
    Ok(Value::from(out))
}

fn level(indent: &Value) -> Result<String, Error> {
    match indent.as_str() {
        Some(text) if text.len() > MAX_WIDTH => Err(failure(format!("it indents by more than {MAX_WIDTH} bytes"))),
        Some(text) => Ok(text.to_owned()),
        None => Ok(" ".repeat(width(Some(indent), integer(None, 0)?, MAX_WIDTH)?)),
    }
}

impl Style {
    fn write(&self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        if out.len() > MAX_OUTPUT {
            return Err(failure(format!("it writes more than {} MiB", MAX_OUTPUT >> 20)));
        }
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => out.push_str(&number(value)),
            ValueKind::String => self.string(out, value.as_str().unwrap_or_default()),
            ValueKind::Map if !is_namespace(value) => self.map(out, value, depth)?,
            ValueKind::Seq | ValueKind::Iterable => self.list(out, value, depth)?,
            kind => return Err(failure(format!("a value of type {kind} has no JSON form"))),
        }
        Ok(())
    }

    fn list(&self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        out.push('[');
        let mut empty = true;
        for item in value.try_iter()? {
            self.begin(out, &mut empty, depth + 1);
            self.write(out, &item, depth + 1)?;
        }
        self.end(out, empty, depth);
        out.push(']');
        Ok(())
    }

    fn map(&self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        let mut keys: Vec<_> = value.try_iter()?.collect();
        if self.sorted {
            keys.sort();
        }
        out.push('{');
        let mut empty = true;
        for key in keys {
            self.begin(out, &mut empty, depth + 1);
            self.string(out, &key_text(&key)?);
            out.push_str(&self.after_key);
            self.write(out, &value.get_item(&key)?, depth + 1)?;
        }
        self.end(out, empty, depth);
        out.push('}');
        Ok(())
    }

    /// What stands before an item: a separator, and a new line if there is indentation.
    fn begin(&self, out: &mut String, empty: &mut bool, depth: usize) {
        if !*empty {
            out.push_str(&self.between);
        }
        *empty = false;
        self.line(out, depth);
    }

    fn end(&self, out: &mut String, empty: bool, depth: usize) {
        if !empty {
            self.line(out, depth);
        }
    }

    fn line(&self, out: &mut String, depth: usize) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            (0..depth).for_each(|_| out.push_str(indent));
        }
    }

    fn string(&self, out: &mut String, text: &str) {
        out.push('"');
        for c in text.chars() {
            let _ = match c {
                '"' => out.write_str("\\\""),
                '\\' => out.write_str("\\\\"),
                '\n' => out.write_str("\\n"),
                '\r' => out.write_str("\\r"),
                '\t' => out.write_str("\\t"),
                '\u{8}' => out.write_str("\\b"),
                '\u{c}' => out.write_str("\\f"),
                '\0'..' ' => write!(out, "\\u{:04x}", u32::from(c)),
                '\u{7f}'.. if self.ascii => {
                    c.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(out, "\\u{unit:04x}"))
                }
                _ => out.write_char(c),
            };
        }
        out.push('"');
    }
}

fn number(value: &Value) -> String {
    match f64::try_from(value.clone()) {
        Ok(float) if !value.is_integer() => match float {
            f64::INFINITY => "Infinity".to_owned(),
            f64::NEG_INFINITY => "-Infinity".to_owned(),
            _ if float.is_nan() => "NaN".to_owned(),
            _ => float_text(float),
        },
        _ => value.to_string(),
    }
}

fn key_text(key: &Value) -> Result<String, Error> {
    Ok(match key.kind() {
        ValueKind::String => text(key),
        ValueKind::Number => number(key),
        ValueKind::Bool => if key.is_true() { "true" } else { "false" }.to_owned(),
        ValueKind::None => "null".to_owned(),
        kind => return Err(failure(format!("a key of type {kind} has no JSON form"))),
    })
}
