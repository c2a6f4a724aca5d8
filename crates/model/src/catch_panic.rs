//! Turns panics of libraries, which hostile or damaged files can cause, into errors.
//!
//! Invariant: a panic becomes one error message; nothing is printed, so the screen stays intact.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use crate::error::{ModelError, clean};
use draftscope_host::fatal::OutOfMemory;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

static HOOK: Once = Once::new();

/// Runs a function that may panic; `to_error` turns the panic's message into an error.
pub(crate) fn catch_panic<T>(
    to_error: impl FnOnce(&str) -> ModelError,
    run: impl FnOnce() -> Result<T, ModelError>,
) -> Result<T, ModelError> {
    HOOK.call_once(|| {
        let previous = take_hook();
        set_hook(Box::new(move |info| {
            if !INSIDE.get() {
                previous(info);
            }
        }));
    });
    let before = INSIDE.replace(true);
    let result = catch_unwind(AssertUnwindSafe(run));
    INSIDE.set(before);
    result.unwrap_or_else(|panic| {
        if let Some(refused) = OutOfMemory::of(&*panic) {
            return Err(ModelError::DoesNotFit(refused.to_string()));
        }
        let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        Err(to_error(&clean(text.unwrap_or("no reason given"))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_one_error_message() {
        let to_error = |why: &str| ModelError::Tokenizer(why.to_owned());
        let error = catch_panic::<()>(to_error, || panic!("index out of bounds:\nthe len is 3"));
        assert_eq!(error.unwrap_err().to_string(), "tokenizer: index out of bounds:\u{fffd}the len is 3");
        assert_eq!(catch_panic(to_error, || Ok(3)).unwrap(), 3);
        let refused = catch_panic::<()>(to_error, || OutOfMemory(5 << 20).unwind()).unwrap_err();
        assert!(refused.to_string().contains("the system refuses 5 MiB more"), "{refused}");
        assert!(!INSIDE.get());
    }
}
