//! Methods of Python's strings.

use minijinja::value::Tuple;
use minijinja::{Error, ErrorKind, Value};

use super::arguments::{bind, integer, required, width};
use super::limits::{MAX_OUTPUT, MAX_WIDTH, failure};
use super::{format, text};

/// Calls a method of a string.
///
/// # Errors
/// If there is no such method, or as in Python.
pub(super) fn method(own: &str, name: &str, args: &[Value]) -> Result<Value, Error> {
    if let Some(plain) = changed(own, name) {
        let [] = bind(args, [])?;
        return Ok(Value::from(plain));
    }
    if let Some(answer) = asked(own, name) {
        let [] = bind(args, [])?;
        return Ok(Value::from(answer));
    }
    match name {
        "strip" | "lstrip" | "rstrip" => strip(own, name, args),
        "split" | "rsplit" => parts(own, name, args),
        "splitlines" => {
            let [keep] = bind(args, ["keepends"])?;
            Ok(lines(own, keep.is_some_and(|keep| keep.is_true())).into_iter().map(Value::from).collect())
        }
        "partition" | "rpartition" => partition(own, name, args),
        "startswith" | "endswith" => edge(own, name, args),
        "find" | "rfind" | "index" | "rindex" | "count" => search(own, name, args),
        "replace" => {
            let [old, new, count] = bind(args, ["old", "new", "count"])?;
            let (old, new) = (string(&required(old, "old")?)?, string(&required(new, "new")?)?);
            replace(own, &old, &new, integer(count.as_ref(), -1)?).map(Value::from)
        }
        "removeprefix" | "removesuffix" => {
            let [part] = bind(args, [""])?;
            let part = string(&required(part, "prefix")?)?;
            let cut = if name == "removeprefix" { own.strip_prefix(&*part) } else { own.strip_suffix(&*part) };
            Ok(Value::from(cut.unwrap_or(own)))
        }
        "join" => join(own, args),
        "ljust" | "rjust" | "center" | "zfill" => pad(own, name, args),
        "expandtabs" => {
            let [size] = bind(args, ["tabsize"])?;
            Ok(Value::from(expand_tabs(own, width(size.as_ref(), 8, 64)?)))
        }
        "format" => format::braces(own, args).map(Value::from),
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}

/// Methods without arguments that return another text.
fn changed(own: &str, name: &str) -> Option<String> {
    Some(match name {
        "upper" => own.to_uppercase(),
        "lower" => own.to_lowercase(),
        "casefold" => {
            own.chars().map(|c| if c == 'ß' { "ss".to_owned() } else { c.to_lowercase().collect() }).collect()
        }
        "capitalize" => capitalized(own),
        "title" => title(own),
        "swapcase" => own
            .chars()
            .flat_map(
                |c| if c.is_uppercase() { c.to_lowercase().collect() } else { c.to_uppercase().collect::<Vec<_>>() },
            )
            .collect(),
        _ => return None,
    })
}

/// Methods without arguments that ask something.
fn asked(own: &str, name: &str) -> Option<bool> {
    let all = |is: fn(char) -> bool| !own.is_empty() && own.chars().all(is);
    let cased = || own.chars().any(|c| c.is_uppercase() || c.is_lowercase());
    Some(match name {
        "isalpha" => all(|c| c.is_alphabetic() && !c.is_numeric()),
        "isalnum" => all(char::is_alphanumeric),
        "isdigit" | "isdecimal" => all(|c| c.is_ascii_digit() || (c.is_numeric() && !c.is_alphabetic())),
        "isnumeric" => all(char::is_numeric),
        "isspace" => all(is_space),
        "isascii" => own.is_ascii(),
        "islower" => cased() && !own.chars().any(char::is_uppercase),
        "isupper" => cased() && !own.chars().any(char::is_lowercase),
        "istitle" => cased() && title(own) == own,
        "isprintable" => own.chars().all(text::is_printable),
        "isidentifier" => {
            let mut letters = own.chars();
            letters.next().is_some_and(|c| c.is_alphabetic() || c == '_')
                && letters.all(|c| c.is_alphanumeric() || c == '_')
        }
        _ => return None,
    })
}

/// Python's blanks: Unicode's, and four separators of ASCII.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

pub(super) fn capitalized(own: &str) -> String {
    let mut letters = own.chars();
    letters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(letters.as_str().to_lowercase().chars()).collect())
}

fn title(own: &str) -> String {
    let mut out = String::with_capacity(own.len());
    let mut inside = false;
    for c in own.chars() {
        match inside {
            true => out.extend(c.to_lowercase()),
            false => out.extend(c.to_uppercase()),
        }
        inside = c.is_lowercase() || c.is_uppercase();
    }
    out
}

/// The text of an argument that has to be one.
fn string(value: &Value) -> Result<std::sync::Arc<str>, Error> {
    value.to_str().ok_or_else(|| failure(format!("a text is needed, not {}", value.kind())))
}

/// A text, or `None` if it is missing or none.
fn optional(value: Option<Value>) -> Result<Option<std::sync::Arc<str>>, Error> {
    value.filter(|value| !value.is_none()).map(|value| string(&value)).transpose()
}

fn strip(own: &str, name: &str, args: &[Value]) -> Result<Value, Error> {
    let [chars] = bind(args, [""])?;
    let chars = optional(chars)?;
    let drops = |c: char| chars.as_ref().map_or_else(|| is_space(c), |chars| chars.contains(c));
    Ok(Value::from(match name {
        "strip" => own.trim_matches(drops),
        "lstrip" => own.trim_start_matches(drops),
        _ => own.trim_end_matches(drops),
    }))
}

/// `split` and `rsplit`.
fn parts(own: &str, name: &str, args: &[Value]) -> Result<Value, Error> {
    let [separator, most] = bind(args, ["sep", "maxsplit"])?;
    let most = usize::try_from(integer(most.as_ref(), -1)?).unwrap_or(usize::MAX - 1);
    let from_end = name == "rsplit";
    let parts: Vec<&str> = match optional(separator)? {
        Some(separator) if separator.is_empty() => return Err(failure("the separator is empty")),
        Some(separator) if from_end => {
            let mut parts: Vec<_> = own.rsplitn(most + 1, &*separator).collect();
            parts.reverse();
            parts
        }
        Some(separator) => own.splitn(most + 1, &*separator).collect(),
        None if from_end => words_from_end(own, most),
        None => words(own, most),
    };
    Ok(parts.into_iter().map(Value::from).collect())
}

fn words(own: &str, most: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = own.trim_start_matches(is_space);
    while !rest.is_empty() {
        let end = rest.find(is_space).filter(|_| parts.len() < most);
        let Some(end) = end else {
            parts.push(if parts.len() < most { rest.trim_end_matches(is_space) } else { rest });
            break;
        };
        parts.push(&rest[..end]);
        rest = rest[end..].trim_start_matches(is_space);
    }
    parts
}

fn words_from_end(own: &str, most: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = own.trim_end_matches(is_space);
    while !rest.is_empty() {
        let blank = rest.char_indices().rfind(|(_, c)| is_space(*c)).filter(|_| parts.len() < most);
        let Some((at, blank)) = blank else {
            parts.push(rest);
            break;
        };
        parts.push(&rest[at + blank.len_utf8()..]);
        rest = rest[..at].trim_end_matches(is_space);
    }
    parts.reverse();
    parts
}

/// Lines at all of Python's boundaries.
pub(super) fn lines(own: &str, keep_ends: bool) -> Vec<&str> {
    let is_end = |c: char| {
        matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}')
    };
    let mut lines = Vec::new();
    let mut rest = own;
    while let Some((at, end)) = rest.char_indices().find(|(_, c)| is_end(*c)) {
        let length = if rest[at..].starts_with("\r\n") { 2 } else { end.len_utf8() };
        lines.push(&rest[..if keep_ends { at + length } else { at }]);
        rest = &rest[at + length..];
    }
    if !rest.is_empty() {
        lines.push(rest);
    }
    lines
}

fn partition(own: &str, name: &str, args: &[Value]) -> Result<Value, Error> {
    let [separator] = bind(args, [""])?;
    let separator = string(&required(separator, "sep")?)?;
    if separator.is_empty() {
        return Err(failure("the separator is empty"));
    }
    let from_end = name == "rpartition";
    let parts = if from_end { own.rsplit_once(&*separator) } else { own.split_once(&*separator) };
    let three = match parts {
        Some((before, after)) => [before, &*separator, after],
        None if from_end => ["", "", own],
        None => [own, "", ""],
    };
    Ok(Value::from(Tuple::from(three.map(Value::from))))
}

/// The part of a text between two places, counted in characters, and where it begins; `None` if that is beyond the end.
fn between<'t>(own: &'t str, start: Option<&Value>, stop: Option<&Value>) -> Result<Option<(usize, &'t str)>, Error> {
    if start.is_none() && stop.is_none() {
        return Ok(Some((0, own)));
    }
    let length = i64::try_from(own.chars().count()).unwrap_or(i64::MAX);
    let place = |at: i64| if at < 0 { (at + length).max(0) } else { at };
    let (start, stop) = (place(integer(start, 0)?), place(integer(stop, i64::MAX)?).min(length));
    let byte =
        |at: i64| own.char_indices().nth(usize::try_from(at).unwrap_or_default()).map_or(own.len(), |(byte, _)| byte);
    Ok((start <= stop).then(|| (usize::try_from(start).unwrap_or_default(), &own[byte(start)..byte(stop)])))
}

/// `startswith` and `endswith`, of a text or any of a tuple.
fn edge(own: &str, name: &str, args: &[Value]) -> Result<Value, Error> {
    let [parts, start, stop] = bind(args, ["", "", ""])?;
    let parts = required(parts, "prefix")?;
    let parts: Vec<Value> = if parts.is_tuple() { parts.try_iter()?.collect() } else { vec![parts] };
    let own = between(own, start.as_ref(), stop.as_ref())?;
    for part in parts {
        let part = string(&part)?;
        let Some((_, own)) = own else { continue };
        if if name == "startswith" { own.starts_with(&*part) } else { own.ends_with(&*part) } {
            return Ok(Value::from(true));
        }
    }
    Ok(Value::from(false))
}

fn search(own: &str, name: &str, args: &[Value]) -> Result<Value, Error> {
    let [part, start, stop] = bind(args, ["", "", ""])?;
    let part = string(&required(part, "sub")?)?;
    let within = between(own, start.as_ref(), stop.as_ref())?;
    if name == "count" {
        return Ok(Value::from(within.map_or(0, |(_, own)| own.matches(&*part).count())));
    }
    let found = within.and_then(|(first, own)| {
        let at = if name.starts_with('r') { own.rfind(&*part) } else { own.find(&*part) };
        at.map(|at| first + own[..at].chars().count())
    });
    match found {
        Some(at) => Ok(Value::from(at)),
        None if name.ends_with("find") => Ok(Value::from(-1)),
        None => Err(failure("the text does not contain the part")),
    }
}

/// Replaces up to `count` parts; all if it is negative.
///
/// # Errors
/// If the result is too long.
pub(super) fn replace(own: &str, old: &str, new: &str, count: i64) -> Result<String, Error> {
    let found = own.matches(old).count();
    let times = usize::try_from(count).map_or(found, |count| count.min(found));
    if own.len().saturating_add(times.saturating_mul(new.len())) > 4 * MAX_OUTPUT {
        return Err(failure("a text is too long"));
    }
    Ok(own.replacen(old, new, times))
}

fn join(own: &str, args: &[Value]) -> Result<Value, Error> {
    let [items] = bind(args, [""])?;
    let mut out = String::new();
    for (at, item) in required(items, "iterable")?.try_iter()?.enumerate() {
        if at > 0 {
            out.push_str(own);
        }
        out.push_str(&string(&item)?);
        if out.len() > 4 * MAX_OUTPUT {
            return Err(failure("a text is too long"));
        }
    }
    Ok(Value::from(out))
}

fn pad(own: &str, name: &str, args: &[Value]) -> Result<Value, Error> {
    let [to, fill] = bind(args, ["", ""])?;
    let to = width(Some(&required(to, "width")?), 0, MAX_WIDTH)?;
    let fill = fill.map_or_else(|| Ok(" ".into()), |fill| string(&fill))?;
    if fill.chars().count() != 1 {
        return Err(failure("a text is filled with one character"));
    }
    let length = own.chars().count();
    let missing = to.saturating_sub(length);
    let left = match name {
        "ljust" => 0,
        "center" => missing / 2 + (missing & to & 1),
        _ => missing,
    };
    if name == "zfill" {
        let sign = own.len() - own.strip_prefix(['+', '-']).unwrap_or(own).len();
        return Ok(Value::from(format!("{}{}{}", &own[..sign], "0".repeat(missing), &own[sign..])));
    }
    Ok(Value::from(format!("{}{own}{}", fill.repeat(left), fill.repeat(missing - left))))
}

fn expand_tabs(own: &str, size: usize) -> String {
    let mut out = String::new();
    let mut column = 0;
    for c in own.chars() {
        match c {
            '\t' => {
                let blanks = if size == 0 { 0 } else { size - column % size };
                out.push_str(&" ".repeat(blanks));
                column += blanks;
            }
            '\n' | '\r' => {
                out.push(c);
                column = 0;
            }
            _ => {
                out.push(c);
                column += 1;
            }
        }
    }
    out
}
