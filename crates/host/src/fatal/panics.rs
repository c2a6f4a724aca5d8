//! Panics while the system refuses memory.
//!
//! Rust's library holds a lock while it prints the backtrace of a panic, and its report of a refused allocation waits for
//! the same lock: a panic whose backtrace does not fit would hang the program for ever. So a backtrace is printed only
//! where there is room for it.

use std::io::Write;
use std::panic::{PanicHookInfo, set_hook, take_hook};
use std::thread;

/// Bytes of address space that printing a backtrace takes at most: the program's file is mapped and its symbols are sorted.
const BACKTRACE: usize = 512 << 20;

/// Installs the hook, which calls the one before it if there is room for a backtrace.
pub(super) fn install() {
    let previous = take_hook();
    set_hook(Box::new(move |panic| {
        if Vec::<u8>::new().try_reserve_exact(BACKTRACE).is_ok() {
            previous(panic);
        } else {
            report(&mut std::io::stderr(), panic);
        }
    }));
}

/// The first line of Rust's own report, and no backtrace. Errors are ignored: there is no other place to report to.
fn report(out: &mut dyn Write, panic: &PanicHookInfo<'_>) {
    let _ = writeln!(out, "thread '{}' {panic}", thread::current().name().unwrap_or("<unnamed>"));
}
