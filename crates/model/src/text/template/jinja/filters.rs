//! Jinja's filters and tests, where minijinja's differ from them or are missing.

use minijinja::value::{Kwargs, Rest, Tuple, ValueKind};
use minijinja::{Environment, Error, Value};

use super::arguments::{all, bind, integer, pairs, required, split, whole, width};
use super::limits::{MAX_WIDTH, failure};
use super::operators::compare;
use super::text::{is_namespace, text};
use super::{format, json, strings};

/// A filter: the value and its arguments in, a value out.
type Filter = fn(&[Value]) -> Result<Value, Error>;

pub(super) fn register(environment: &mut Environment<'_>) {
    for name in ["chain", "zip", "split", "lines", "bool", "pprint"] {
        environment.remove_filter(name); // Jinja has none of these, or one whose text differs
    }
    let filters: [(&'static str, Filter); 28] = [
        ("abs", abs),
        ("capitalize", |args| only_text(args).map(|text| Value::from(strings::capitalized(&text)))),
        ("center", center),
        ("count", length),
        ("d", default),
        ("default", default),
        ("e", escape),
        ("escape", escape),
        ("first", first),
        ("float", float),
        ("forceescape", escape),
        ("format", |args| {
            let (template, values) = args.split_first().ok_or_else(|| failure("a format is missing"))?;
            let (items, named) = split(values);
            let values = named.map_or_else(|| Value::from(Tuple::from(items)), Value::clone);
            format::percent(&text(template), &values).map(Value::from)
        }),
        ("indent", indent),
        ("int", int),
        ("items", items),
        ("join", join),
        ("last", |args| first(&[reverse(args)?])),
        ("length", length),
        ("list", |args| iterated(args).map(Value::from)),
        ("lower", |args| only_text(args).map(|text| Value::from(text.to_lowercase()))),
        ("replace", replace),
        ("reverse", reverse),
        ("string", |args| only_text(args).map(Value::from)),
        ("title", |args| only_text(args).map(|text| Value::from(title(&text)))),
        ("tojson", json::tojson),
        ("trim", trim),
        ("truncate", truncate),
        ("upper", |args| only_text(args).map(|text| Value::from(text.to_uppercase()))),
    ];
    for (name, filter) in filters {
        environment.add_filter(name, move |args: Rest<Value>, named: Kwargs| filter(&all(args, named)));
    }
    environment.add_filter("wordcount", |args: Rest<Value>| {
        only_text(&args)
            .map(|text| text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()).count())
    });
    tests(environment);
}

fn tests(environment: &mut Environment<'_>) {
    environment.add_test("iterable", |value: Value| {
        !matches!(value.kind(), ValueKind::None) && !is_namespace(&value) && value.try_iter().is_ok()
    });
    environment.add_test("sequence", |value: Value| {
        let kinds = [ValueKind::String, ValueKind::Seq, ValueKind::Iterable, ValueKind::Map, ValueKind::Undefined];
        kinds.contains(&value.kind()) && !is_namespace(&value)
    });
    environment.add_test("mapping", |value: Value| value.kind() == ValueKind::Map && !is_namespace(&value));
    environment.add_test("callable", |value: Value| {
        let is_macro = value.as_object().is_some_and(|object| object.type_name().ends_with("::Macro"));
        is_macro || matches!(value.kind(), ValueKind::Plain | ValueKind::Undefined)
    });
    for (names, operator) in [
        (["lt", "lessthan", "<"], "<"),
        (["le", "le", "<="], "<="),
        (["gt", "greaterthan", ">"], ">"),
        (["ge", "ge", ">="], ">="),
        (["in", "in", "in"], "in"),
    ] {
        for name in names {
            environment.add_test(name, move |left: Value, right: Value| compare(&left, operator, &right));
        }
    }
}

/// The value that a filter without parameters has, as text.
fn only_text(args: &[Value]) -> Result<String, Error> {
    let [value] = bind(args, [""])?;
    Ok(text(&required(value, "value")?))
}

/// The items of the value that a filter without parameters has.
fn iterated(args: &[Value]) -> Result<Vec<Value>, Error> {
    let [value] = bind(args, [""])?;
    items_of(&required(value, "value")?)
}

fn items_of(value: &Value) -> Result<Vec<Value>, Error> {
    if value.is_none() || is_namespace(value) {
        return Err(failure(format!("a value of type {} cannot be iterated over", value.kind())));
    }
    Ok(value.try_iter()?.collect())
}

fn default(args: &[Value]) -> Result<Value, Error> {
    let [value, other, boolean] = bind(args, ["value", "default_value", "boolean"])?;
    let value = required(value, "value")?;
    let replaced = value.is_undefined() || (boolean.is_some_and(|flag| flag.is_true()) && !value.is_true());
    Ok(if replaced { other.unwrap_or_else(|| Value::from("")) } else { value })
}

fn length(args: &[Value]) -> Result<Value, Error> {
    let [value] = bind(args, [""])?;
    let value = required(value, "value")?;
    if value.is_undefined() {
        return Ok(Value::from(0));
    }
    let length = value.len().filter(|_| !is_namespace(&value));
    length.map(Value::from).ok_or_else(|| failure(format!("a value of type {} has no length", value.kind())))
}

fn first(args: &[Value]) -> Result<Value, Error> {
    Ok(iterated(args)?.into_iter().next().unwrap_or(Value::UNDEFINED))
}

fn reverse(args: &[Value]) -> Result<Value, Error> {
    let mut items = iterated(args)?;
    items.reverse();
    match args.first().and_then(Value::as_str) {
        Some(_) => Ok(Value::from(items.iter().map(text).collect::<String>())),
        None => Ok(Value::from(items)),
    }
}

fn items(args: &[Value]) -> Result<Value, Error> {
    let [value] = bind(args, [""])?;
    let value = required(value, "value")?;
    match value.kind() {
        ValueKind::Undefined => Ok(Value::from(Vec::<Value>::new())),
        ValueKind::Map => {
            Ok(pairs(Some(&value))?.into_iter().map(|(key, value)| Value::from(Tuple::from([key, value]))).collect())
        }
        kind => Err(failure(format!("a value of type {kind} has no items"))),
    }
}

fn join(args: &[Value]) -> Result<Value, Error> {
    let [value, between, attribute] = bind(args, ["value", "d", "attribute"])?;
    let between = between.map_or_else(String::new, |between| text(&between));
    let mut out = String::new();
    for (at, item) in items_of(&required(value, "value")?)?.iter().enumerate() {
        if at > 0 {
            out.push_str(&between);
        }
        match attribute.as_ref().and_then(Value::as_str) {
            Some(path) => out.push_str(&text(&at_path(item, path)?)),
            None => out.push_str(&text(item)),
        }
        if out.len() > 4 * super::limits::MAX_OUTPUT {
            return Err(failure("a text is too long"));
        }
    }
    Ok(Value::from(out))
}

/// A field of a field …; its names are separated by dots.
fn at_path(value: &Value, path: &str) -> Result<Value, Error> {
    path.split('.').try_fold(value.clone(), |value, name| {
        value.get_item(&name.parse::<usize>().map_or_else(|_| Value::from(name), Value::from))
    })
}

fn replace(args: &[Value]) -> Result<Value, Error> {
    let [value, old, new, count] = bind(args, ["s", "old", "new", "count"])?;
    let (value, old, new) = (required(value, "s")?, required(old, "old")?, required(new, "new")?);
    strings::replace(&text(&value), &text(&old), &text(&new), integer(count.as_ref(), -1)?).map(Value::from)
}

fn trim(args: &[Value]) -> Result<Value, Error> {
    let [value, chars] = bind(args, ["value", "chars"])?;
    let (own, chars) = (text(&required(value, "value")?), chars.filter(|chars| !chars.is_none()).map(|c| text(&c)));
    let drops = |c: char| chars.as_ref().map_or_else(|| strings::is_space(c), |chars| chars.contains(c));
    Ok(Value::from(own.trim_matches(drops)))
}

/// Words begin after blanks, hyphens and opening brackets.
fn title(own: &str) -> String {
    let mut out = String::with_capacity(own.len());
    let mut inside = false;
    for c in own.chars() {
        if inside {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
        inside = !(strings::is_space(c) || "-({[<".contains(c));
    }
    out
}

fn indent(args: &[Value]) -> Result<Value, Error> {
    let [value, by, first, blank] = bind(args, ["s", "width", "first", "blank"])?;
    let value = required(value, "s")?;
    let own = value.as_str().ok_or_else(|| failure(format!("a value of type {} cannot be indented", value.kind())))?;
    let by = match by.as_ref().and_then(Value::as_str) {
        Some(by) if by.len() <= MAX_WIDTH => by.to_owned(),
        Some(_) => return Err(failure(format!("it indents by more than {MAX_WIDTH} bytes"))),
        None => " ".repeat(width(by.as_ref(), 4, MAX_WIDTH)?),
    };
    let is_true = |flag: Option<Value>| flag.is_some_and(|flag| flag.is_true());
    let (first, blank) = (is_true(first), is_true(blank));
    let own = format!("{own}\n"); // Jinja counts the last line even if it is empty
    let mut out = String::new();
    for (at, line) in strings::lines(&own, false).into_iter().enumerate() {
        if at > 0 {
            out.push('\n');
        }
        if (at == 0 && first) || (at > 0 && (blank || !line.is_empty())) {
            out.push_str(&by);
        }
        out.push_str(line);
        if out.len() > 4 * super::limits::MAX_OUTPUT {
            return Err(failure("a text is too long"));
        }
    }
    Ok(Value::from(out))
}

fn center(args: &[Value]) -> Result<Value, Error> {
    let [value, to] = bind(args, ["value", "width"])?;
    let to = Value::from(width(to.as_ref(), 80, MAX_WIDTH)?);
    strings::method(&text(&required(value, "value")?), "center", &[to])
}

fn truncate(args: &[Value]) -> Result<Value, Error> {
    let [value, to, kill, end, leeway] = bind(args, ["s", "length", "killwords", "end", "leeway"])?;
    let own = text(&required(value, "s")?);
    let end = end.map_or_else(|| "...".to_owned(), |end| text(&end));
    let (to, leeway) =
        (width(to.as_ref(), 255, super::limits::MAX_OUTPUT)?, width(leeway.as_ref(), 5, super::limits::MAX_OUTPUT)?);
    let room = to.checked_sub(end.chars().count()).ok_or_else(|| failure("the text is cut shorter than its ending"))?;
    if own.chars().count() <= to + leeway {
        return Ok(Value::from(own));
    }
    let cut: String = own.chars().take(room).collect();
    let kept = if kill.is_some_and(|kill| kill.is_true()) {
        &cut
    } else {
        cut.rsplit_once(' ').map_or(&*cut, |(kept, _)| kept)
    };
    Ok(Value::from(format!("{kept}{end}")))
}

fn escape(args: &[Value]) -> Result<Value, Error> {
    let own = only_text(args)?;
    let mut out = String::with_capacity(own.len());
    for c in own.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&#34;"),
            _ => out.push(c),
        }
    }
    Ok(Value::from(out))
}

fn abs(args: &[Value]) -> Result<Value, Error> {
    let [value] = bind(args, [""])?;
    let value = required(value, "value")?;
    match whole(&value).and_then(i64::checked_abs) {
        Some(number) => Ok(Value::from(number)),
        None => minijinja::filters::abs(value),
    }
}

/// `int(value, default=0, base=10)`.
fn int(args: &[Value]) -> Result<Value, Error> {
    let [value, other, base] = bind(args, ["value", "default", "base"])?;
    let value = required(value, "value")?;
    let other = other.unwrap_or_else(|| Value::from(0));
    if let Some(whole) = whole(&value) {
        return Ok(Value::from(whole));
    }
    let base = u32::try_from(integer(base.as_ref(), 10)?).unwrap_or(10);
    let parsed = value.as_str().and_then(|own| digits(own, base));
    let float = || number(&value).filter(|float| float.is_finite() && float.abs() < 1e18).map(|float| float as i64);
    Ok(parsed.or_else(float).map_or(other, Value::from))
}

/// Digits as Python's `int` reads them: with a sign, a prefix and underscores.
fn digits(own: &str, base: u32) -> Option<i64> {
    let own = own.trim_matches(strings::is_space).to_lowercase();
    let (sign, own) = own.strip_prefix('-').map_or((1, own.strip_prefix('+').unwrap_or(&own)), |own| (-1, own));
    let prefix = match base {
        16 => "0x",
        8 => "0o",
        2 => "0b",
        3..=36 => "",
        _ => return None,
    };
    let own = own.strip_prefix(prefix).unwrap_or(own);
    let grouped = !own.starts_with(['_', '+', '-']) && !own.ends_with('_') && !own.contains("__");
    i64::from_str_radix(&own.replace('_', ""), base).ok().filter(|_| grouped).map(|number| sign * number)
}

/// A float as Python's `float` reads it.
fn number(value: &Value) -> Option<f64> {
    match value.as_str() {
        Some(own) => {
            let own = own.trim_matches(strings::is_space);
            let grouped = !own.starts_with('_') && !own.ends_with('_') && !own.contains("__");
            own.replace('_', "").parse().ok().filter(|_| grouped)
        }
        None => whole(value).map(|whole| whole as f64).or_else(|| f64::try_from(value.clone()).ok()),
    }
}

fn float(args: &[Value]) -> Result<Value, Error> {
    let [value, other] = bind(args, ["value", "default"])?;
    let other = other.unwrap_or_else(|| Value::from(0.0));
    Ok(number(&required(value, "value")?).map_or(other, Value::from))
}
