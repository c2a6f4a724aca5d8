//! Limits of time and memory for a process that renders a chat template, and an error message for each.
//!
//! Linux limits memory (`RLIMIT_DATA`, `RLIMIT_AS`), and every Unix limits processor time (`RLIMIT_CPU`), though
//! coarsely. A thread of the process measures time in steps of [`STEP`], and memory on other systems. If all of
//! that fails, the program ends the process after [`PATIENCE`].

use std::process::ExitStatus;
use std::time::Duration;
use std::{io, thread};

use sysinfo::{ProcessRefreshKind, ProcessesToUpdate, System};

/// Bytes that a template may use in addition to what the process uses before it reads the template.
const MEMORY: u64 = 128 << 20;

/// Most seconds of processor time.
const SECONDS: u64 = 1;

/// Time between two measurements of the thread.
const STEP: Duration = Duration::from_millis(20);

/// Time after which the program ends the process; only a very busy machine takes so long.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Exit status of a process whose thread has measured too much memory, or too much time.
const TOO_MUCH: i32 = 3;
const TOO_LONG: i32 = 4;

/// Sets the limits of this process. Called after the request is read, which may be long and comes from the program itself.
pub(super) fn impose() -> io::Result<()> {
    #[cfg(unix)]
    limit_time()?;
    #[cfg(target_os = "linux")]
    limit_memory()?;
    count()
}

/// Limits processor time, and writes no core file if the limit ends the process.
#[cfg(unix)]
fn limit_time() -> io::Result<()> {
    use rustix::process::Resource;
    // the system sends SIGXCPU at the first limit, and SIGKILL, which gives no reason, at the second
    lower(Resource::Cpu, SECONDS, SECONDS + 1)?;
    // with 0 the system still starts the handler of core files; 1 byte is too small for a file
    lower(Resource::Core, 1, 1)
}

/// Lowers both limits of a resource, unless they are already lower.
#[cfg(unix)]
fn lower(resource: rustix::process::Resource, soft: u64, hard: u64) -> io::Result<()> {
    use rustix::process::{Rlimit, getrlimit, setrlimit};
    let least = |limit: Option<u64>, to: u64| Some(limit.map_or(to, |limit| limit.min(to)));
    let Rlimit { current, maximum } = getrlimit(resource);
    Ok(setrlimit(resource, Rlimit { current: least(current, soft), maximum: least(maximum, hard) })?)
}

/// Limits writable memory, which is what a template uses, and, more generously, the address space.
#[cfg(target_os = "linux")]
fn limit_memory() -> io::Result<()> {
    use rustix::process::Resource;
    let status = std::fs::read_to_string("/proc/self/status")?;
    let taken = |name: &str| {
        kibibytes(&status, name).ok_or_else(|| io::Error::other(format!("no {name} in /proc/self/status")))
    };
    let (data, space) = (taken("VmData:")? + MEMORY, taken("VmSize:")? + 2 * MEMORY);
    lower(Resource::Data, data, data)?;
    lower(Resource::As, space, space)
}

/// A line of `/proc/self/status`, in bytes.
#[cfg(target_os = "linux")]
fn kibibytes(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// Starts the thread that measures time and memory.
fn count() -> io::Result<()> {
    let own = sysinfo::get_current_pid().map_err(io::Error::other)?;
    let mut system = System::new();
    let mut taken = move || {
        let kind = ProcessRefreshKind::nothing().with_memory().with_cpu();
        system.refresh_processes_specifics(ProcessesToUpdate::Some(&[own]), false, kind);
        system.process(own).map_or((0, 0), |own| (own.memory(), own.accumulated_cpu_time()))
    };
    let most = if cfg!(target_os = "linux") { u64::MAX } else { taken().0 + MEMORY };
    thread::Builder::new().spawn(move || {
        loop {
            thread::sleep(STEP);
            let (memory, milliseconds) = taken();
            if memory > most {
                std::process::exit(TOO_MUCH);
            }
            if milliseconds > 1000 * SECONDS {
                std::process::exit(TOO_LONG);
            }
        }
    })?;
    Ok(())
}

/// The message for a process that ended without an answer, from its exit status and standard error. Without a status,
/// the program ended it.
pub(super) fn exceeded(status: Option<ExitStatus>, complaint: &str) -> String {
    let Some(status) = status else { return slow(PATIENCE.as_secs()) };
    if complaint.contains("has overflowed its stack") {
        return "it overflows the stack: it is nested too deeply, or a value contains itself".to_owned();
    }
    if complaint.contains("memory allocation of") || status.code() == Some(TOO_MUCH) {
        return format!("it takes more than {} MiB of memory", MEMORY >> 20);
    }
    if status.code() == Some(TOO_LONG) {
        return slow(SECONDS);
    }
    #[cfg(unix)]
    if std::os::unix::process::ExitStatusExt::signal(&status) == Some(signal_hook::consts::SIGXCPU) {
        return slow(SECONDS);
    }
    if complaint.contains("panicked at") {
        return "the interpreter fails on it".to_owned();
    }
    let last = complaint.lines().next().unwrap_or_default();
    super::compiled::sentence(&format!("the process that renders it ended early ({status}) {last}"))
        .trim_end()
        .to_owned()
}

fn slow(seconds: u64) -> String {
    format!("it runs for more than {seconds} s")
}
