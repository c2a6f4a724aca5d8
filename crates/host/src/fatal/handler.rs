//! The handler of fatal signals.

use std::ffi::c_void;
use std::fmt::Write;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{c_int, siginfo_t};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::stdio::{dup2_stderr, stderr, stdin, stdout};
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcsetattr};

use super::asking::ASKING;
use super::child::is_ignored;
use super::mapped::is_mapped;

/// Ends a frame that is half drawn; restores mouse, focus and paste mode, window title, screen and cursor.
const RESTORE: &[u8] =
    b"\x1b[?2026l\x1b[?1006l\x1b[?1015l\x1b[?1003l\x1b[?1002l\x1b[?1000l\x1b[?1004l\x1b[?2004l\x1b[23;0t\x1b[?1049l\x1b[?25h";

/// Signals of errors in the process, and that of a file that grows beyond its limit.
const ERRORS: [c_int; 8] = [
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGSEGV,
    libc::SIGSYS,
    libc::SIGTRAP,
    libc::SIGXFSZ,
];

/// Signals that come again when the instruction is repeated.
const FAULTS: [c_int; 4] = [libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGSEGV];

/// The previous handler of each fault: that of Rust's library reports a stack overflow.
static BEFORE: [OnceLock<libc::sigaction>; FAULTS.len()] = [const { OnceLock::new() }; FAULTS.len()];

/// The terminal, and its mode before it was first taken over.
static TERMINAL: OnceLock<(OwnedFd, Termios)> = OnceLock::new();

/// Whether the terminal is taken over now.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// On a line of its own: another thread may be in the middle of one.
const ABORTED: &[u8] = b"\ndraftscope: the program was aborted by an internal error; please report it with the lines above and what `draftscope doctor --json` prints\n";

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

/// Every signal whose default ends the process, so that none leaves the terminal taken over. A signal that the process was
/// started to ignore (`nohup`, a job in the background) stays ignored.
pub(super) fn install() {
    for signal in ERRORS.into_iter().chain(ASKING.iter().copied()).chain(real_time()) {
        if !is_ignored(signal) {
            install_for(signal);
        }
    }
}

#[cfg(target_os = "linux")]
fn real_time() -> impl Iterator<Item = c_int> {
    libc::SIGRTMIN()..=libc::SIGRTMAX()
}

#[cfg(not(target_os = "linux"))]
fn real_time() -> impl Iterator<Item = c_int> {
    std::iter::empty()
}

#[allow(unsafe_code, reason = "the system's interface for signals is unsafe, see below")]
fn install_for(signal: c_int) {
    let mut old = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: `handle` has the signature that SA_SIGINFO asks for and is safe in a signal handler; a zeroed `sigaction` is a
    // valid one, both pointers are valid for the calls, and the system fills `old` if it returns 0.
    unsafe {
        if libc::sigaction(signal, null(), old.as_mut_ptr()) != 0 {
            return;
        }
        if let Some(index) = FAULTS.iter().position(|fault| *fault == signal) {
            let _ = BEFORE[index].set(old.assume_init()); // set before the handler can run
        }
        let mut new = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        new.sa_sigaction = handle as *const () as usize;
        // the stack may have overflowed; a call that waits goes on after a signal that is only noted
        new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        libc::sigemptyset(&raw mut new.sa_mask);
        libc::sigaction(signal, &raw const new, null_mut());
    }
}

/// Restores the terminal, reports what it knows, and lets the signal come again with the previous handler; or notes that
/// somebody asks the process to end.
#[allow(unsafe_code, reason = "it reads what the system passes, see below")]
extern "C" fn handle(signal: c_int, info: *mut siginfo_t, _: *mut c_void) {
    // SAFETY: with SA_SIGINFO the system passes a valid pointer. With a positive code these signals are faults of
    // this thread, for which the address is set; with the code SI_USER the sender is set.
    let (is_from_system, address) = unsafe { ((*info).si_code > 0, (*info).si_addr() as usize) };
    let is_fault = is_from_system && FAULTS.contains(&signal);
    // SAFETY: as above.
    let sender = unsafe { ((*info).si_code == libc::SI_USER).then(|| (*info).si_pid()) };
    let is_own = sender == Some(rustix::process::getpid().as_raw_nonzero().get());
    if signal == libc::SIGXFSZ && is_own {
        return; // the write that was too much fails, and the program reports that
    }
    let is_sent = sender.is_some() && !is_own && [libc::SIGABRT, libc::SIGXFSZ].contains(&signal);
    if (is_sent || ASKING.contains(&signal)) && super::asking::note(signal) {
        return;
    }
    put_back_terminal();
    super::empty_file::remove();
    if signal == libc::SIGBUS && is_fault && is_mapped(address) {
        say(CUT_SHORT);
        // SAFETY: it ends the process and touches nothing.
        unsafe { libc::_exit(ERROR) };
    }
    if signal == libc::SIGABRT && !is_sent {
        match super::refused_memory::refused() {
            Some(refused) => say_last(Line::of(&refused).as_bytes()),
            None => say_last(ABORTED),
        }
    }
    // A fault comes again, and the handler of Rust's library then reports a stack overflow. That handler ignores a
    // signal sent by a process, since it expects a fault to come again; so such a signal gets the default action.
    let index = FAULTS.iter().position(|own| *own == signal).filter(|_| is_fault);
    end_by(signal, index.and_then(|index| BEFORE[index].get()));
}

/// Gives the signal the previous handler, or the default, and raises it unless it comes again by itself. A signal that a
/// handler raises waits until the handler returns.
#[allow(unsafe_code, reason = "the system's interface for signals is unsafe, see below")]
fn end_by(signal: c_int, before: Option<&libc::sigaction>) {
    // SAFETY: the pointer leads to a value that the system filled in, or to zeros, which is the default action.
    unsafe {
        let default = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        libc::sigaction(signal, before.map_or(&raw const default, std::ptr::from_ref), null_mut());
        if before.is_none() {
            libc::raise(signal);
        }
    }
}

/// Ends the process by this signal, so that its sender sees the effect.
pub(super) fn die_of(signal: c_int) {
    put_back_terminal();
    end_by(signal, None);
}

fn put_back_terminal() {
    if IS_TAKEN.swap(false, Ordering::SeqCst) {
        write(stdout(), RESTORE);
        if let Some((fd, mode)) = TERMINAL.get() {
            let _ = tcsetattr(fd.as_fd(), OptionalActions::Now, mode);
        }
    }
}

/// A line that is put together without allocating.
struct Line {
    bytes: [u8; 256],
    len: usize,
}

impl Line {
    /// The program's name and this error.
    fn of(error: &dyn std::fmt::Display) -> Self {
        let mut line = Self { bytes: [0; 256], len: 0 };
        let _ = writeln!(line, "\ndraftscope: {error}"); // what is too long is cut
        line
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let room = &mut self.bytes[self.len..];
        let len = text.len().min(room.len());
        room[..len].copy_from_slice(&text.as_bytes()[..len]);
        self.len += len;
        Ok(())
    }
}

fn say(line: &[u8]) {
    write(stderr(), line);
}

/// Says a line after which nothing follows: memory is refused to other threads too, and what they still print is dropped.
fn say_last(line: &[u8]) {
    let own = rustix::io::dup(stderr());
    let nowhere = rustix::fs::open("/dev/null", OFlags::WRONLY, Mode::empty());
    match (own, nowhere) {
        (Ok(own), Ok(nowhere)) if dup2_stderr(&nowhere).is_ok() => write(own.as_fd(), line),
        _ => say(line),
    }
}

/// Ignores errors: there is no way to report that the terminal is gone.
fn write(fd: BorrowedFd<'_>, bytes: &[u8]) {
    let _ = rustix::io::write(fd, bytes);
}
