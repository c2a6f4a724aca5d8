//! Jinja as `transformers` runs it: the interpreter minijinja, with Python's values, methods and filters.
//!
//! minijinja compares values of any two types, prints floats in its own way and has no `%` for strings, and none of
//! that can be replaced in its environment. So a template is first rewritten: [`rewrite`] parses it and writes it
//! again with calls of [`operators`] in place of operators. Filters, tests and methods are registered as usual.
//! `tests/templates.py` compares all of it with `transformers`.

mod arguments;
mod collections;
pub(super) mod date;
mod filters;
mod format;
mod globals;
mod json;
mod limits;
mod operators;
mod rewrite;
mod scan;
mod strings;
mod text;

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, Output, State, Value};

use scan::normalized;

pub(super) use limits::{MAX_OUTPUT, NAME};

/// An environment without templates. `seconds` since 1970 is the time that templates see.
pub(super) fn environment(seconds: i64) -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_formatter(print);
    environment.set_unknown_method_callback(method);
    filters::register(&mut environment);
    globals::register(&mut environment, seconds);
    operators::register(&mut environment);
    environment
}

/// A template as minijinja runs it with the functions of [`environment`].
///
/// # Errors
/// The place of a syntax error.
pub(super) fn prepared(source: &str) -> Result<String, Error> {
    rewrite::rewritten(&normalized(source), syntax()?)
}

/// Block tags leave no blanks or line breaks, as in `transformers`.
fn syntax() -> Result<SyntaxConfig, Error> {
    SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()
}

/// Prints a value as Python's `str` does.
fn print(out: &mut Output<'_>, _: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    let written = match value.as_str() {
        Some(text) => out.write_str(text),
        None => out.write_str(&text::text(value)),
    };
    written.map_err(Error::from)
}

/// Python's methods of strings, lists and dictionaries.
fn method(_: &mut State<'_, '_>, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    match value.as_str() {
        Some(text) => strings::method(text, name, args),
        None => collections::method(value, name, args),
    }
}
