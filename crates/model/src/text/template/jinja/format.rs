//! `'%s' % value` and `'{}'.format(value)`, with bounded widths. minijinja formats numbers.

use minijinja::formatting::{self, FormatStyle};
use minijinja::{Error, Value};

use super::arguments::{pairs, split, whole};
use super::limits::{MAX_WIDTH, failure};
use super::text::{repr, text};

/// Most digits of a number in a format.
const MAX_DIGITS: usize = 300;

/// Fills in the fields of a text: `template % values`.
///
/// # Errors
/// As in Python, or if a field is too wide.
pub(super) fn percent(template: &str, values: &Value) -> Result<String, Error> {
    let mut given = Given::new(values)?;
    let mut out = String::new();
    let mut rest = template;
    while let Some((before, field)) = rest.split_once('%') {
        out.push_str(before);
        rest = given.field(&mut out, field)?;
    }
    out.push_str(rest);
    if given.mapping.is_none() && given.next < given.items.len() {
        return Err(failure("not all values are used by the format"));
    }
    Ok(out)
}

/// The right side of `%`.
struct Given {
    items: Vec<Value>,
    next: usize,
    /// A dictionary or list, which need not be used up.
    mapping: Option<Value>,
}

impl Given {
    fn new(values: &Value) -> Result<Self, Error> {
        if values.is_tuple() {
            return Ok(Self { items: values.try_iter()?.collect(), next: 0, mapping: None });
        }
        let mapping = values.as_object().map(|_| values.clone());
        Ok(Self { items: vec![values.clone()], next: 0, mapping })
    }

    fn take(&mut self) -> Result<Value, Error> {
        let value = self.items.get(self.next).cloned().ok_or_else(|| failure("the format needs more values"))?;
        self.next += 1;
        Ok(value)
    }

    /// Writes the field that follows a `%`, and returns what follows it.
    fn field<'t>(&mut self, out: &mut String, field: &'t str) -> Result<&'t str, Error> {
        let mut rest = field;
        let mut named = None;
        if let Some(inner) = rest.strip_prefix('(') {
            let (name, after) = inner.split_once(')').ok_or_else(|| failure("a name in a format does not end"))?;
            let mapping = self.mapping.as_ref().ok_or_else(|| failure("the format needs a dictionary"))?;
            named = Some(mapping.get_item(&Value::from(name))?);
            rest = after;
        }
        let flags = rest.len() - rest.trim_start_matches(['#', '0', '-', ' ', '+']).len();
        let (flags, mut rest) = rest.split_at(flags);
        let mut flags = flags.to_owned();
        let (width, after) = self.number(rest)?;
        rest = after;
        if width.is_some_and(|width| width < 0) {
            flags.push('-');
        }
        let width = bounded(width)?;
        let mut precision = None;
        if let Some(after) = rest.strip_prefix('.') {
            let (digits, after) = self.number(after)?;
            precision = Some(bounded(digits)?.unwrap_or(0));
            rest = after;
        }
        let rest = rest.trim_start_matches(['h', 'l', 'L']);
        let kind = rest.chars().next().ok_or_else(|| failure("a format ends within a field"))?;
        let after = &rest[kind.len_utf8()..];
        if kind == '%' {
            out.push('%');
            return Ok(after);
        }
        let value = match named {
            Some(value) => value,
            None => self.take()?,
        };
        out.push_str(&written(kind, &flags, width, precision, &value)?);
        Ok(after)
    }

    /// A number of a field: digits, or a star for the next value.
    fn number<'t>(&mut self, text: &'t str) -> Result<(Option<i64>, &'t str), Error> {
        if let Some(rest) = text.strip_prefix('*') {
            let value = self.take()?;
            return Ok((Some(whole(&value).ok_or_else(|| failure("a width is a whole number"))?), rest));
        }
        let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
        let digits = &text[..text.len() - rest.len()];
        Ok(((!digits.is_empty()).then(|| digits.parse().unwrap_or(i64::MAX)), rest))
    }
}

fn bounded(width: Option<i64>) -> Result<Option<usize>, Error> {
    let width = width.map(|width| usize::try_from(width.unsigned_abs()).unwrap_or(usize::MAX));
    match width {
        Some(width) if width > MAX_WIDTH => {
            Err(failure(format!("a format asks for a width of {width}; at most {MAX_WIDTH} characters are supported")))
        }
        width => Ok(width),
    }
}

fn written(
    kind: char,
    flags: &str,
    width: Option<usize>,
    precision: Option<usize>,
    value: &Value,
) -> Result<String, Error> {
    let plain = match kind {
        's' => text(value),
        'r' | 'a' => repr(value),
        _ => {
            if precision.is_some_and(|digits| digits > MAX_DIGITS) {
                return Err(failure(format!("a format asks for more than {MAX_DIGITS} digits")));
            }
            let width = width.map_or_else(String::new, |width| width.to_string());
            let precision = precision.map_or_else(String::new, |digits| format!(".{digits}"));
            let field = format!("%{flags}{width}{precision}{kind}");
            let number = whole(value).filter(|_| !value.is_number()).map_or_else(|| value.clone(), Value::from);
            return formatting::format(FormatStyle::Printf, &field, &[number]);
        }
    };
    let cut: String = plain.chars().take(precision.unwrap_or(usize::MAX)).collect();
    let missing = " ".repeat(width.unwrap_or(0).saturating_sub(cut.chars().count()));
    Ok(if flags.contains('-') { cut + &missing } else { missing + &cut })
}

/// `template.format(*args, **kwargs)`.
///
/// # Errors
/// As in Python, or if a field is too wide.
pub(super) fn braces(template: &str, args: &[Value]) -> Result<String, Error> {
    let (items, named) = split(args);
    let mut fields = Fields { items, named: pairs(named)?, next: 0 };
    fields.fill(template, 2)
}

struct Fields<'a> {
    items: &'a [Value],
    named: Vec<(Value, Value)>,
    next: usize,
}

impl Fields<'_> {
    /// Fills in all fields; those within a format are at most one level deeper.
    fn fill(&mut self, template: &str, levels: usize) -> Result<String, Error> {
        let mut out = String::new();
        let mut rest = template;
        while let Some(at) = rest.find(['{', '}']) {
            out.push_str(&rest[..at]);
            let (mark, after) = rest[at..].split_at(1);
            if after.starts_with(mark) {
                out.push_str(mark);
                rest = &after[1..];
                continue;
            }
            if mark == "}" || levels == 0 {
                return Err(failure("a brace of a format has no counterpart"));
            }
            let end = closing(after).ok_or_else(|| failure("a field of a format does not end"))?;
            out.push_str(&self.field(&after[..end], levels)?);
            rest = &after[end + 1..];
        }
        out.push_str(rest);
        Ok(out)
    }

    fn field(&mut self, field: &str, levels: usize) -> Result<String, Error> {
        let end = field.find(['!', ':']).unwrap_or(field.len());
        let value = self.value(&field[..end])?;
        let rest = &field[end..];
        let (conversion, rest) = match rest.strip_prefix('!') {
            Some(rest) => rest.split_at(rest.find(':').unwrap_or(rest.len())),
            None => ("", rest),
        };
        let spec = rest.strip_prefix(':').unwrap_or_default();
        let spec = if spec.contains('{') { self.fill(spec, levels - 1)? } else { spec.to_owned() };
        let value = match conversion {
            "" => value,
            "s" => Value::from(text(&value)),
            "r" | "a" => Value::from(repr(&value)),
            other => return Err(failure(format!("a format has no conversion {other}"))),
        };
        formatted(&value, &spec)
    }

    /// What a field names: a place or a name, then fields of it.
    fn value(&mut self, path: &str) -> Result<Value, Error> {
        let end = path.find(['.', '[']).unwrap_or(path.len());
        let (first, mut rest) = path.split_at(end);
        let missing = || failure(format!("the format asks for {first:?}, which is not given"));
        let mut value = if first.is_empty() {
            self.next += 1;
            self.items.get(self.next - 1).cloned().ok_or_else(missing)?
        } else if let Ok(at) = first.parse::<usize>() {
            self.items.get(at).cloned().ok_or_else(missing)?
        } else {
            let named = self.named.iter().find(|(name, _)| name.as_str() == Some(first));
            named.map(|(_, value)| value.clone()).ok_or_else(missing)?
        };
        while !rest.is_empty() {
            let wrong = || failure("a field of a format is not understood");
            if let Some(inner) = rest.strip_prefix('[') {
                let (key, after) = inner.split_once(']').ok_or_else(wrong)?;
                value = value.get_item(&key.parse::<usize>().map_or_else(|_| Value::from(key), Value::from))?;
                rest = after;
            } else {
                let path = rest.strip_prefix('.').ok_or_else(wrong)?;
                let (name, after) = path.split_at(path.find(['.', '[']).unwrap_or(path.len()));
                value = value.get_item(&Value::from(name))?;
                rest = after;
            }
        }
        Ok(value)
    }
}

/// Where the brace is that closes a field.
fn closing(text: &str) -> Option<usize> {
    let mut open = 0;
    text.char_indices().find_map(|(at, c)| match c {
        '{' => {
            open += 1;
            None
        }
        '}' if open == 0 => Some(at),
        '}' => {
            open -= 1;
            None
        }
        _ => None,
    })
}

/// A value by a format specification.
fn formatted(value: &Value, spec: &str) -> Result<String, Error> {
    if spec.is_empty() {
        return Ok(text(value));
    }
    for number in spec.split(|c: char| !c.is_ascii_digit()) {
        bounded(number.parse().ok().or_else(|| (!number.is_empty()).then_some(i64::MAX)))?;
    }
    if spec.split_once('.').is_some_and(|(_, digits)| {
        digits.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().is_ok_and(|digits: usize| digits > MAX_DIGITS)
    }) && value.is_number()
    {
        return Err(failure(format!("a format asks for more than {MAX_DIGITS} digits")));
    }
    if let Some(front) = spec.strip_suffix('%') {
        let share = f64::try_from(value.clone()).map_err(|_| failure("a percentage is a number"))?;
        return Ok(formatting::format(
            FormatStyle::StrFormat,
            &format!("{{:{front}f}}"),
            &[Value::from(share * 100.0)],
        )? + "%");
    }
    formatting::format(FormatStyle::StrFormat, &format!("{{:{spec}}}"), std::slice::from_ref(value))
}
