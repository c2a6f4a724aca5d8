//! Python's operators, as functions that rewritten templates call.

use std::cmp::Ordering;

use minijinja::value::{Rest, Tuple, ValueKind};
use minijinja::{Environment, Error, Value};

use super::arguments::whole;
use super::format;
use super::limits::failure;
use super::text::{is_namespace, text};

/// Most bytes, or items, of a repeated text or list.
const MAX_REPEATED: usize = 16 << 20;

pub(super) fn register(environment: &mut Environment<'_>) {
    environment.add_function("_py_add", |operands: Rest<Value>| folded(&operands, add));
    environment.add_function("_py_multiply", |operands: Rest<Value>| folded(&operands, multiply));
    environment.add_function("_py_modulo", |operands: Rest<Value>| folded(&operands, modulo));
    environment.add_function("_py_concat", |operands: Rest<Value>| operands.iter().map(text).collect::<String>());
    environment.add_function("_py_negative", |value: Value| match whole(&value) {
        Some(number) => {
            number.checked_neg().map_or_else(|| native(&Value::from(0), '-', &value), |n| Ok(Value::from(n)))
        }
        None if value.is_integer() => native(&Value::from(0), '-', &value),
        None => native(&Value::from(-1), '*', &value),
    });
    environment.add_function("_py_compare", |steps: Rest<Value>| compare_all(&steps));
    environment.add_function("_py_slice", |value: Value, start: Value, stop: Value, step: Value| {
        slice(&value, [&start, &stop, &step])
    });
    environment.add_function("_py_each", |value: Value| match value.kind() {
        ValueKind::None => Err(failure("none cannot be iterated over")),
        _ if is_namespace(&value) => Err(failure("a namespace cannot be iterated over")),
        _ => Ok(value),
    });
}

fn folded(operands: &[Value], operator: fn(&Value, &Value) -> Result<Value, Error>) -> Result<Value, Error> {
    let Some((first, rest)) = operands.split_first() else { return Ok(Value::UNDEFINED) };
    rest.iter().try_fold(first.clone(), |left, right| operator(&left, right))
}

/// An operator that minijinja calculates as Python does: for large numbers, and what is an error for both.
fn native(left: &Value, operator: char, right: &Value) -> Result<Value, Error> {
    let is_float = |value: &Value| value.is_number() && !value.is_integer();
    if let (true, Some(a), Some(b)) = (is_float(left) || is_float(right), real(left), real(right)) {
        match operator {
            '+' => return Ok(Value::from(a + b)),
            '-' => return Ok(Value::from(a - b)),
            '*' => return Ok(Value::from(a * b)),
            _ => {}
        }
    }
    let number = |value: &Value| whole(value).filter(|_| !value.is_number()).map_or_else(|| value.clone(), Value::from);
    let environment = Environment::new();
    let source = format!("a {operator} b");
    let expression = environment.compile_expression(&source)?;
    expression.eval(minijinja::context! { a => number(left), b => number(right) })
}

/// A number or a boolean as a float.
fn real(value: &Value) -> Option<f64> {
    let is_number = matches!(value.kind(), ValueKind::Number | ValueKind::Bool);
    let float = || f64::try_from(value.clone()).ok();
    is_number.then(|| whole(value).map(|whole| whole as f64).or_else(float)).flatten()
}

fn add(left: &Value, right: &Value) -> Result<Value, Error> {
    if let (Some(left), Some(right)) = (left.as_str(), right.as_str()) {
        return Ok(Value::from([left, right].concat()));
    }
    if let (Some(a), Some(b)) = (whole(left), whole(right))
        && let Some(sum) = a.checked_add(b)
    {
        return Ok(Value::from(sum));
    }
    let is_list = |value: &Value| matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable);
    if is_list(left) && is_list(right) {
        if left.is_tuple() != right.is_tuple() {
            return Err(failure("a list and a tuple cannot be added"));
        }
        let items: Vec<Value> = left.try_iter()?.chain(right.try_iter()?).collect();
        return Ok(if left.is_tuple() { Value::from(Tuple::from(items)) } else { Value::from(items) });
    }
    native(left, '+', right)
}

fn multiply(left: &Value, right: &Value) -> Result<Value, Error> {
    if let (Some(a), Some(b)) = (whole(left), whole(right))
        && let Some(product) = a.checked_mul(b)
    {
        return Ok(Value::from(product));
    }
    let (repeated, times) = if whole(right).is_some() { (left, whole(right)) } else { (right, whole(left)) };
    let Some(times) = times else { return native(left, '*', right) };
    let times = usize::try_from(times.max(0)).unwrap_or(usize::MAX);
    let fits = |length: usize| length.checked_mul(times).is_some_and(|length| length <= MAX_REPEATED);
    if let Some(text) = repeated.as_str() {
        return if fits(text.len()) { Ok(Value::from(text.repeat(times))) } else { Err(failure("a text is too long")) };
    }
    if repeated.kind() == ValueKind::Seq || repeated.kind() == ValueKind::Iterable {
        let items: Vec<Value> = repeated.try_iter()?.collect();
        if !fits(items.len()) {
            return Err(failure("a list is too long"));
        }
        let all: Vec<Value> = items.iter().cycle().take(items.len() * times).cloned().collect();
        return Ok(if repeated.is_tuple() { Value::from(Tuple::from(all)) } else { Value::from(all) });
    }
    native(left, '*', right)
}

/// `%`: of numbers the remainder, of a text its fields filled in.
fn modulo(left: &Value, right: &Value) -> Result<Value, Error> {
    match left.as_str() {
        Some(template) => format::percent(template, right).map(Value::from),
        None => native(left, '%', right),
    }
}

/// A chain of comparisons: a value, then operators and values in turn.
fn compare_all(steps: &[Value]) -> Result<bool, Error> {
    let mut left = steps.first().ok_or_else(|| failure("nothing to compare"))?;
    for step in steps[1..].chunks_exact(2) {
        if !compare(left, step[0].as_str().unwrap_or_default(), &step[1])? {
            return Ok(false);
        }
        left = &step[1];
    }
    Ok(true)
}

/// One comparison.
///
/// # Errors
/// For an order between types that have none, as in Python.
pub(super) fn compare(left: &Value, operator: &str, right: &Value) -> Result<bool, Error> {
    Ok(match operator {
        "==" => left == right,
        "!=" => left != right,
        "in" => contains(right, left)?,
        "not in" => !contains(right, left)?,
        "<" => order(left, right)? == Some(Ordering::Less),
        ">" => order(left, right)? == Some(Ordering::Greater),
        "<=" => order(left, right)?.is_some_and(Ordering::is_le),
        _ => order(left, right)?.is_some_and(Ordering::is_ge),
    })
}

fn contains(container: &Value, item: &Value) -> Result<bool, Error> {
    match (container.as_str(), item.as_str()) {
        (Some(text), Some(part)) => return Ok(text.contains(part)),
        (Some(_), None) => return Err(failure(format!("a text cannot contain a value of type {}", item.kind()))),
        _ => {}
    }
    match container.kind() {
        ValueKind::Undefined => Ok(false),
        ValueKind::Map if !is_namespace(container) => {
            Ok(container.as_object().is_some_and(|map| map.get_value(item).is_some()))
        }
        ValueKind::Seq | ValueKind::Iterable => Ok(container.try_iter()?.any(|own| own == *item)),
        kind => Err(failure(format!("a value of type {kind} contains nothing"))),
    }
}

/// Which of two values comes first; `None` for NaN.
///
/// # Errors
/// If Python does not order values of these types.
pub(super) fn order(left: &Value, right: &Value) -> Result<Option<Ordering>, Error> {
    if let (Some(left), Some(right)) = (left.as_str(), right.as_str()) {
        return Ok(Some(left.cmp(right)));
    }
    if let (Some(left), Some(right)) = (whole(left), whole(right)) {
        return Ok(Some(left.cmp(&right)));
    }
    if let (Some(left), Some(right)) = (real(left), real(right)) {
        return Ok(left.partial_cmp(&right));
    }
    let is_list = |value: &Value| matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable);
    if is_list(left) && is_list(right) && left.is_tuple() == right.is_tuple() {
        for (a, b) in left.try_iter()?.zip(right.try_iter()?) {
            if a != b {
                return order(&a, &b);
            }
        }
        return Ok(Some(left.len().cmp(&right.len())));
    }
    Err(failure(format!("values of type {} and {} have no order", left.kind(), right.kind())))
}

/// `value[start:stop:step]`.
fn slice(value: &Value, bounds: [&Value; 3]) -> Result<Value, Error> {
    let [start, stop, step] = bounds.map(|bound| match whole(bound) {
        _ if bound.is_none() => Ok(None),
        Some(number) => Ok(Some(number)),
        None => Err(failure("the bounds of a slice are whole numbers")),
    });
    let (start, stop, step) = (start?, stop?, step?.unwrap_or(1));
    if step == 0 {
        return Err(failure("the step of a slice cannot be 0"));
    }
    if let Some(text) = value.as_str() {
        let characters: Vec<char> = text.chars().collect();
        let chosen = chosen(characters.len(), start, stop, step);
        return Ok(Value::from(chosen.map(|at| characters[at]).collect::<String>()));
    }
    if !matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable) {
        return Err(failure(format!("a value of type {} cannot be sliced", value.kind())));
    }
    let items: Vec<Value> = value.try_iter()?.collect();
    let items: Vec<Value> = chosen(items.len(), start, stop, step).map(|at| items[at].clone()).collect();
    Ok(if value.is_tuple() { Value::from(Tuple::from(items)) } else { Value::from(items) })
}

/// The places that a slice of a sequence has: Python's `slice.indices`.
pub(super) fn chosen(length: usize, start: Option<i64>, stop: Option<i64>, step: i64) -> impl Iterator<Item = usize> {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    let (low, high) = if step > 0 { (0, length) } else { (-1, length - 1) };
    let place = |bound: Option<i64>, other: i64| {
        bound.map_or(other, |at| if at < 0 { (at + length).max(low) } else { at.min(high) })
    };
    let (first, last) = if step > 0 { (low, high) } else { (high, low) };
    let (start, stop) = (place(start, first), place(stop, last));
    let is_inside = move |at: &i64| if step > 0 { *at < stop } else { *at > stop };
    std::iter::successors(Some(start).filter(is_inside), move |at| at.checked_add(step).filter(is_inside))
        .filter_map(|at| usize::try_from(at).ok())
}
