//! The functions that Jinja and `transformers` give to templates.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use minijinja::value::{Kwargs, Object, ObjectRepr, Rest};
use minijinja::{Environment, Error, ErrorKind, State, Value};

use super::arguments::{all, bind, pairs, required, split};
use super::date;
use super::limits::{MAX_WIDTH, failure};
use super::text::text;

pub(super) fn register(environment: &mut Environment<'_>, seconds: i64) {
    environment.remove_global("debug");
    environment
        .add_function("raise_exception", |message: Value| -> Result<Value, Error> { Err(failure(text(&message))) });
    environment.add_function("strftime_now", move |format: &str| -> Result<String, Error> {
        date::Time::since_1970(seconds)
            .format(format, MAX_WIDTH)
            .ok_or_else(|| failure("the date that strftime_now is asked for is too long"))
    });
    let native = environment.globals().find(|(name, _)| *name == "namespace").map(|(_, native)| native);
    environment.add_function("namespace", move |state: &mut State<'_, '_>, args: Rest<Value>, named: Kwargs| {
        let native = native.as_ref().ok_or_else(|| failure("there are no namespaces"))?;
        native.call(state, &[fields(&all(args, named))?])
    });
    environment.add_global("dict", Value::from_object(Dict));
    environment.add_function("joiner", |args: Rest<Value>, named: Kwargs| -> Result<Value, Error> {
        let [separator] = bind(&all(args, named), ["sep"])?;
        let separator = separator.unwrap_or_else(|| Value::from(", "));
        Ok(Value::from_object(Joiner { separator, calls: AtomicUsize::new(0) }))
    });
    environment.add_function("cycler", |items: Rest<Value>| -> Result<Value, Error> {
        if items.is_empty() {
            return Err(failure("cycler needs values"));
        }
        Ok(Value::from_object(Cycler { items: items.0, at: AtomicUsize::new(0) }))
    });
}

/// A map of positional and named arguments, as `dict` makes it.
fn dict(args: &[Value]) -> Result<Value, Error> {
    let (positional, named) = split(args);
    let first = match positional {
        [] => Vec::new(),
        [map] if map.kind() == minijinja::value::ValueKind::Map => pairs(Some(map))?,
        [list] => list.try_iter()?.map(|pair| pair_of(&pair)).collect::<Result<_, _>>()?,
        _ => return Err(Error::new(ErrorKind::TooManyArguments, "at most 1 is accepted")),
    };
    Ok(Value::from_pairs(first.into_iter().chain(pairs(named)?)))
}

fn pair_of(pair: &Value) -> Result<(Value, Value), Error> {
    let mut items = pair.try_iter()?;
    match (items.next(), items.next(), items.next()) {
        (Some(key), Some(value), None) => Ok((key, value)),
        _ => Err(failure("a pair has two values")),
    }
}

/// The fields of a namespace: a map or pairs, and named arguments.
fn fields(args: &[Value]) -> Result<Value, Error> {
    let fields = dict(args)?;
    for (name, _) in pairs(Some(&fields))? {
        if name.as_str().is_none_or(|name| name.starts_with('_')) {
            return Err(failure("a field of a namespace has a name without an underscore in front"));
        }
    }
    Ok(fields)
}

/// `dict`, which also has `dict.fromkeys`.
#[derive(Debug)]
struct Dict;

impl Object for Dict {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn call(self: &Arc<Self>, _: &mut State<'_, '_>, args: &[Value]) -> Result<Value, Error> {
        dict(args)
    }

    fn call_method(self: &Arc<Self>, _: &mut State<'_, '_>, name: &str, args: &[Value]) -> Result<Value, Error> {
        if name != "fromkeys" {
            return Err(Error::from(ErrorKind::UnknownMethod));
        }
        let [keys, value] = bind(args, ["", ""])?;
        let value = value.unwrap_or(Value::from(()));
        Ok(Value::from_pairs(required(keys, "iterable")?.try_iter()?.map(|key| (key, value.clone()))))
    }
}

/// Gives nothing at its first call, then the separator.
#[derive(Debug)]
struct Joiner {
    separator: Value,
    calls: AtomicUsize,
}

impl Object for Joiner {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn call(self: &Arc<Self>, _: &mut State<'_, '_>, args: &[Value]) -> Result<Value, Error> {
        let [] = bind(args, [])?;
        let is_first = self.calls.fetch_add(1, Ordering::Relaxed) == 0;
        Ok(if is_first { Value::from("") } else { self.separator.clone() })
    }
}

/// Gives its values in turn.
#[derive(Debug)]
struct Cycler {
    items: Vec<Value>,
    at: AtomicUsize,
}

impl Object for Cycler {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        (key.as_str() == Some("current")).then(|| self.current())
    }

    fn call_method(self: &Arc<Self>, _: &mut State<'_, '_>, name: &str, args: &[Value]) -> Result<Value, Error> {
        let [] = bind(args, [])?;
        match name {
            "next" => {
                let current = self.current();
                self.at.fetch_add(1, Ordering::Relaxed);
                Ok(current)
            }
            "reset" => {
                self.at.store(0, Ordering::Relaxed);
                Ok(Value::from(()))
            }
            _ => Err(Error::from(ErrorKind::UnknownMethod)),
        }
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<Cycler>")
    }
}

impl Cycler {
    fn current(&self) -> Value {
        self.items[self.at.load(Ordering::Relaxed) % self.items.len()].clone()
    }
}
