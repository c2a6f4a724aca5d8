//! A wall around libraries that panic on what a hostile or damaged file can hold.
//!
//! Invariant: a panic inside becomes one sentence; nothing is printed, so a screen stays whole.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use crate::fatal::OutOfMemory;
use crate::model::error::ModelError;
use crate::model::error::clean;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

static HOOK: Once = Once::new();

/// Runs something that may panic; `to_error` makes an error of what it panicked with.
pub(in crate::model) fn catch_panic<T>(
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
    fn a_panic_is_one_sentence() {
        let to_error = |why: &str| ModelError::Tokenizer(why.to_owned());
        let error = catch_panic::<()>(to_error, || panic!("index out of bounds:\nthe len is 3"));
        assert_eq!(error.unwrap_err().to_string(), "tokenizer: index out of bounds:\u{fffd}the len is 3");
        assert_eq!(catch_panic(to_error, || Ok(3)).unwrap(), 3);
        let refused = catch_panic::<()>(to_error, || OutOfMemory(5 << 20).unwind()).unwrap_err();
        assert!(refused.to_string().contains("the system refuses 5 MiB more"), "{refused}");
        assert!(!INSIDE.get());
    }
}
