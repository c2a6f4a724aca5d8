//! Methods of Python's lists, tuples and dictionaries that change nothing: the sandbox of `transformers` forbids the
//! others.

use minijinja::value::{Tuple, ValueKind};
use minijinja::{Error, ErrorKind, Value};

use super::arguments::{bind, integer, pairs, required};
use super::limits::failure;
use super::text::is_namespace;

/// Calls a method of a value that is no string.
///
/// # Errors
/// If there is no such method, or as in Python.
pub(super) fn method(own: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    match own.kind() {
        ValueKind::Map if !is_namespace(own) => of_map(own, name, args),
        ValueKind::Seq | ValueKind::Iterable => of_list(own, name, args),
        ValueKind::Number | ValueKind::Bool => of_number(own, name, args),
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}

fn of_map(own: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    match name {
        "get" => {
            let [key, other] = bind(args, ["", ""])?;
            let found = own.as_object().and_then(|map| required(key, "key").map(|key| map.get_value(&key)).transpose());
            found.unwrap_or_else(|| Ok(other.unwrap_or(Value::from(()))))
        }
        "keys" | "values" | "items" | "copy" => {
            let [] = bind(args, [])?;
            let pairs = pairs(Some(own))?.into_iter();
            Ok(match name {
                "keys" => pairs.map(|(key, _)| key).collect(),
                "values" => pairs.map(|(_, value)| value).collect(),
                "items" => pairs.map(|(key, value)| Value::from(Tuple::from([key, value]))).collect(),
                _ => Value::from_pairs(pairs),
            })
        }
        "pop" | "popitem" | "update" | "setdefault" | "clear" => Err(unsafe_method(name)),
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}

fn of_list(own: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    match name {
        "count" => {
            let [item] = bind(args, [""])?;
            let item = required(item, "value")?;
            Ok(Value::from(own.try_iter()?.filter(|own| *own == item).count()))
        }
        "index" => {
            let [item, start, stop] = bind(args, ["", "", ""])?;
            let (item, length) = (required(item, "value")?, own.len().unwrap_or_default());
            let place = |at: i64| usize::try_from(if at < 0 { at + length as i64 } else { at }).unwrap_or(0);
            let (start, stop) = (place(integer(start.as_ref(), 0)?), place(integer(stop.as_ref(), i64::MAX)?));
            let found = own.try_iter()?.enumerate().take(stop).skip(start).find(|(_, own)| *own == item);
            found.map(|(at, _)| Value::from(at)).ok_or_else(|| failure("the list does not contain the value"))
        }
        "copy" if !own.is_tuple() => {
            let [] = bind(args, [])?;
            Ok(own.try_iter()?.collect())
        }
        "append" | "extend" | "insert" | "remove" | "pop" | "clear" | "sort" | "reverse" => Err(unsafe_method(name)),
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}

fn of_number(own: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    match (name, f64::try_from(own.clone())) {
        ("is_integer", Ok(float)) => bind(args, []).map(|[]| Value::from(float.fract() == 0.0)),
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}

fn unsafe_method(name: &str) -> Error {
    failure(format!("{name} would change a value, which chat templates may not"))
}
