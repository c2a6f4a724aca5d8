//! Values as text, as Python's `str` and `repr` write them.

use std::fmt::Write as _;

use minijinja::Value;
use minijinja::value::ValueKind;

/// Format characters (Unicode's category Cf), private ones and separators: `repr` escapes them.
const HIDDEN: &[(u32, u32)] = &[
    (0x7f, 0xa0),
    (0xad, 0xad),
    (0x600, 0x605),
    (0x61c, 0x61c),
    (0x6dd, 0x6dd),
    (0x70f, 0x70f),
    (0x890, 0x891),
    (0x8e2, 0x8e2),
    (0x1680, 0x1680),
    (0x180e, 0x180e),
    (0x2000, 0x200f),
    (0x2028, 0x202f),
    (0x205f, 0x206f),
    (0x3000, 0x3000),
    (0xd800, 0xf8ff),
    (0xfeff, 0xfeff),
    (0xfff0, 0xfffb),
    (0xfffe, 0xffff),
    (0x110bd, 0x110bd),
    (0x110cd, 0x110cd),
    (0x13430, 0x1343f),
    (0x1bca0, 0x1bca3),
    (0x1d173, 0x1d17a),
    (0xe0000, 0xe00ff),
    (0xf_0000, 0x10_ffff),
];

/// A value as `str` writes it.
pub(super) fn text(value: &Value) -> String {
    match value.as_str() {
        Some(text) => text.to_owned(),
        None if value.is_undefined() => String::new(),
        None => repr(value),
    }
}

/// A value as `repr` writes it, which is also how it looks inside lists and dictionaries.
pub(super) fn repr(value: &Value) -> String {
    let mut out = String::new();
    write_repr(&mut out, value);
    out
}

fn write_repr(out: &mut String, value: &Value) {
    match value.kind() {
        ValueKind::String => quote(out, value.as_str().unwrap_or_default()),
        ValueKind::Number => number(out, value),
        ValueKind::Undefined => out.push_str("Undefined"),
        _ if is_namespace(value) => {
            out.push_str("<Namespace ");
            write_map(out, value);
            out.push('>');
        }
        ValueKind::Map => write_map(out, value),
        _ if value.is_tuple() => {
            write_items(out, value, ['(', ')']);
            if value.len() == Some(1) {
                out.insert(out.len() - 1, ',');
            }
        }
        ValueKind::Seq | ValueKind::Iterable => write_items(out, value, ['[', ']']),
        _ => {
            let _ = write!(out, "{value}");
        }
    }
}

fn write_items(out: &mut String, value: &Value, [open, close]: [char; 2]) {
    out.push(open);
    for (at, item) in value.try_iter().into_iter().flatten().enumerate() {
        if at > 0 {
            out.push_str(", ");
        }
        write_repr(out, &item);
    }
    out.push(close);
}

fn write_map(out: &mut String, value: &Value) {
    out.push('{');
    for (at, key) in value.try_iter().into_iter().flatten().enumerate() {
        if at > 0 {
            out.push_str(", ");
        }
        write_repr(out, &key);
        out.push_str(": ");
        write_repr(out, &value.get_item(&key).unwrap_or_default());
    }
    out.push('}');
}

/// Whether a value is what `namespace()` makes: minijinja keeps its type to itself.
pub(super) fn is_namespace(value: &Value) -> bool {
    value.as_object().is_some_and(|object| object.type_name().ends_with("::Namespace"))
}

fn number(out: &mut String, value: &Value) {
    match f64::try_from(value.clone()) {
        Ok(float) if !value.is_integer() => out.push_str(&float_text(float)),
        _ => {
            let _ = write!(out, "{value}");
        }
    }
}

/// A float as Python writes it: with the fewest digits that give it back, and an exponent from 1e16 and below 1e-4.
pub(super) fn float_text(float: f64) -> String {
    if float.is_nan() {
        return "nan".to_owned();
    }
    if float.is_infinite() {
        return if float < 0.0 { "-inf" } else { "inf" }.to_owned();
    }
    let scientific = format!("{float:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>().unwrap_or_default() {
        exponent @ -4..16 => {
            let plain = format!("{float}");
            if exponent >= 0 && !plain.contains('.') { plain + ".0" } else { plain }
        }
        exponent => format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs()),
    }
}

fn quote(out: &mut String, text: &str) {
    let mark = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(mark);
    for c in text.chars() {
        let _ = match (c, u32::from(c)) {
            ('\\', _) => out.write_str("\\\\"),
            ('\n', _) => out.write_str("\\n"),
            ('\r', _) => out.write_str("\\r"),
            ('\t', _) => out.write_str("\\t"),
            _ if c == mark => write!(out, "\\{c}"),
            (_, code) if is_printable(c) => {
                debug_assert!(code >= 0x20);
                out.write_char(c)
            }
            (_, code @ ..0x100) => write!(out, "\\x{code:02x}"),
            (_, code @ ..0x1_0000) => write!(out, "\\u{code:04x}"),
            (_, code) => write!(out, "\\U{code:08x}"),
        };
    }
    out.push(mark);
}

/// Whether `repr` writes a character as it is; unassigned ones count as printable.
pub(super) fn is_printable(c: char) -> bool {
    let code = u32::from(c);
    code >= 0x20 && !HIDDEN.iter().any(|&(first, last)| (first..=last).contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_written_as_in_python() {
        for (float, written) in [
            (1.0, "1.0"),
            (-0.0, "-0.0"),
            (0.1 + 0.2, "0.30000000000000004"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (123_456_789_012_345_680.0, "1.2345678901234568e+17"),
            (0.0001, "0.0001"),
            (0.000_01, "1e-05"),
            (1.5e-7, "1.5e-07"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ] {
            assert_eq!(float_text(float), written);
        }
    }
}
