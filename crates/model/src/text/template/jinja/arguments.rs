//! Arguments of functions as Python binds them: by position, then by name.

use minijinja::value::{Kwargs, Rest};
use minijinja::{Error, ErrorKind, Value};

use super::limits::failure;

/// All arguments of a call: the named ones are a map at the end.
pub(super) fn all(positional: Rest<Value>, named: Kwargs) -> Vec<Value> {
    let mut args = positional.0;
    if named.args().next().is_some() {
        args.push(named.into());
    }
    args
}

/// Binds arguments to the parameters `names`, in their order; those that are missing are `None`.
///
/// # Errors
/// If there are too many, or one of another name.
pub(super) fn bind<const N: usize>(args: &[Value], names: [&str; N]) -> Result<[Option<Value>; N], Error> {
    let (positional, named) = split(args);
    if positional.len() > N {
        return Err(Error::new(ErrorKind::TooManyArguments, format!("at most {N} are accepted")));
    }
    let mut bound = std::array::from_fn(|at| positional.get(at).cloned());
    for (name, value) in pairs(named)? {
        match names.iter().position(|own| name.as_str() == Some(own)) {
            Some(at) if at >= positional.len() => bound[at] = Some(value),
            _ => return Err(failure(format!("there is no parameter {name}, or it has a value already"))),
        }
    }
    Ok(bound)
}

/// Positional arguments, and the map of the named ones.
pub(super) fn split(args: &[Value]) -> (&[Value], Option<&Value>) {
    match args.split_last() {
        Some((last, rest)) if last.is_kwargs() => (rest, Some(last)),
        _ => (args, None),
    }
}

/// Keys and values of a map; none of a map that is not there.
pub(super) fn pairs(map: Option<&Value>) -> Result<Vec<(Value, Value)>, Error> {
    let Some(map) = map else { return Ok(Vec::new()) };
    map.try_iter()?.map(|key| map.get_item(&key).map(|value| (key, value))).collect()
}

/// The value of a parameter that has to be there.
pub(super) fn required(value: Option<Value>, name: &str) -> Result<Value, Error> {
    value.ok_or_else(|| Error::new(ErrorKind::MissingArgument, format!("{name} is missing")))
}

/// A parameter that is a number, or `other` if it is missing or none.
pub(super) fn integer(value: Option<&Value>, other: i64) -> Result<i64, Error> {
    match value {
        None => Ok(other),
        Some(value) if value.is_none() => Ok(other),
        Some(value) => whole(value).ok_or_else(|| failure(format!("a whole number is needed, not {}", value.kind()))),
    }
}

/// A whole number, or a boolean, which Python counts as one.
pub(super) fn whole(value: &Value) -> Option<i64> {
    match bool::try_from(value.clone()) {
        Ok(flag) if !value.is_number() => Some(i64::from(flag)),
        _ if value.is_integer() => value.as_i64(),
        _ => None,
    }
}

/// A width, up to `most` characters.
///
/// # Errors
/// If it is wider.
pub(super) fn width(value: Option<&Value>, other: i64, most: usize) -> Result<usize, Error> {
    let asked = usize::try_from(integer(value, other)?.max(0)).unwrap_or(usize::MAX);
    if asked > most {
        return Err(failure(format!("it asks for a width of {asked}; at most {most} characters are supported")));
    }
    Ok(asked)
}
