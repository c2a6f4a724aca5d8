//! The handler of fatal signals.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{c_int, siginfo_t};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::stdio::{stderr, stdin, stdout};
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcsetattr};

use super::RESTORE;
use super::mapped::is_mapped;

/// Signals of errors in the process, and SIGQUIT, with which a user requests a core file.
const FATAL: [c_int; 10] = [
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGQUIT,
    libc::SIGSEGV,
    libc::SIGSYS,
    libc::SIGTRAP,
    libc::SIGXCPU,
    libc::SIGXFSZ,
];

/// Signals that come again when the instruction is repeated.
const FAULTS: [c_int; 4] = [libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGSEGV];

/// The previous handler of each signal: that of Rust's library reports a stack overflow.
static BEFORE: [OnceLock<libc::sigaction>; FATAL.len()] = [const { OnceLock::new() }; FATAL.len()];

/// The terminal, and its mode before it was first taken over.
static TERMINAL: OnceLock<(OwnedFd, Termios)> = OnceLock::new();

/// Whether the terminal is taken over now.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

const ABORTED: &[u8] = b"draftscope: the program was aborted: it ran out of memory or had an internal error\n";

const CUT_SHORT: &[u8] = b"draftscope: a model file was truncated, or its disk failed, while it was in use; get a complete copy and start again\n";

/// Exit status of an error, as `main` gives it.
const ERROR: c_int = 2;

pub(super) fn screen_is_taken() {
    if TERMINAL.get().is_none()
        && let Some(terminal) = terminal()
    {
        let _ = TERMINAL.set(terminal);
    }
    IS_TAKEN.store(true, Ordering::SeqCst);
}

pub(super) fn screen_is_free() {
    IS_TAKEN.store(false, Ordering::SeqCst);
}

/// Standard input if it is a terminal, else the controlling terminal of the process.
fn terminal() -> Option<(OwnedFd, Termios)> {
    let own = || std::fs::File::options().read(true).write(true).open("/dev/tty").ok().map(OwnedFd::from);
    let fd = if isatty(stdin()) { stdin().try_clone_to_owned().ok() } else { own() }?;
    let mode = tcgetattr(&fd).ok()?;
    Some((fd, mode))
}

#[allow(unsafe_code, reason = "the system's interface for signals is unsafe, see below")]
pub(super) fn install() {
    for (signal, before) in FATAL.into_iter().zip(&BEFORE) {
        let mut old = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: `handle` has the signature that SA_SIGINFO asks for and is safe in a signal handler; a zeroed
        // `sigaction` is a valid one, both pointers are valid for the calls, and the system fills `old` if it
        // returns 0.
        let old = unsafe {
            let mut new = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
            new.sa_sigaction = handle as *const () as usize;
            new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK; // the stack may have overflowed
            libc::sigemptyset(&raw mut new.sa_mask);
            if libc::sigaction(signal, null(), old.as_mut_ptr()) != 0 {
                continue;
            }
            // set before the handler can run
            let _ = before.set(old.assume_init());
            libc::sigaction(signal, &raw const new, null_mut())
        };
        debug_assert_eq!(old, 0, "the signal exists");
    }
}

/// Restores the terminal, reports what it knows, and lets the signal come again with the previous handler.
#[allow(unsafe_code, reason = "it reads what the system passes, and raises signals, see below")]
extern "C" fn handle(signal: c_int, info: *mut siginfo_t, _: *mut c_void) {
    // SAFETY: with SA_SIGINFO the system passes a valid pointer. With a positive code these signals are faults of
    // this thread, for which the address is set.
    let (is_from_system, address) = unsafe { ((*info).si_code > 0, (*info).si_addr() as usize) };
    let is_fault = is_from_system && FAULTS.contains(&signal);
    put_back_terminal();
    if signal == libc::SIGBUS && is_fault && is_mapped(address) {
        say(CUT_SHORT);
        // SAFETY: it ends the process and touches nothing.
        unsafe { libc::_exit(ERROR) };
    }
    if signal == libc::SIGABRT {
        say(ABORTED);
    }
    // A fault comes again, and the handler of Rust's library then reports a stack overflow. That handler ignores a
    // signal sent by a process, since it expects a fault to come again; so such a signal gets the default action.
    let index = FATAL.iter().position(|own| *own == signal).filter(|_| is_fault);
    let before = index.and_then(|index| BEFORE[index].get());
    // SAFETY: the pointer leads to a value that the system filled in, or to zeros, which is the default action. A
    // raised signal waits until this returns.
    unsafe {
        let default = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        libc::sigaction(signal, before.map_or(&raw const default, std::ptr::from_ref), null_mut());
        if !is_fault {
            libc::raise(signal);
        }
    }
}

fn put_back_terminal() {
    if IS_TAKEN.swap(false, Ordering::SeqCst) {
        write(stdout(), RESTORE);
        if let Some((fd, mode)) = TERMINAL.get() {
            let _ = tcsetattr(fd.as_fd(), OptionalActions::Now, mode);
        }
    }
}

fn say(line: &[u8]) {
    write(stderr(), line);
}

/// Ignores errors: there is no way to report that the terminal is gone.
fn write(fd: BorrowedFd<'_>, bytes: &[u8]) {
    let _ = rustix::io::write(fd, bytes);
}
