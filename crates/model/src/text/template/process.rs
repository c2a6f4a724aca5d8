//! Chat templates rendered in a separate process.
//!
//! Invariant: if a template overflows the stack, uses up memory or never ends, the program continues and gets one
//! error message. The process is this program, started with [`ARGUMENT`]: it reads a request, sets the limits of
//! `limits`, compiles the template, renders it if there are messages, and writes the answer. Each request gets a new
//! process, so a template cannot leave anything for the next one.

use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::{OnceLock, mpsc};
use std::thread;

use serde::{Deserialize, Serialize};

use super::compiled::{Compiled, sentence};
use super::jinja::{MAX_OUTPUT, date};
use super::limits;
use crate::ModelError;
use draftscope_protocol::Message;

/// The only argument of a process that renders.
pub const ARGUMENT: &str = "--render-one-chat-template";

/// Stack of the thread that compiles and renders, in bytes.
const STACK: usize = 4 << 20;

/// Bytes of standard error that are read: the first lines give the reason why the process ended.
const MAX_COMPLAINT: u64 = 4096;

/// First byte of an answer: the text that was rendered, or an error's text.
const RENDERED: u8 = b'+';
const REFUSED: u8 = b'-';

/// The program that renders; unset if templates are rendered in the calling thread.
static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Call this first in `main`. If this process was started to render a template, does so and returns its exit code.
/// Otherwise all templates of this process will be rendered in separate processes.
#[must_use]
pub fn start() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == ARGUMENT) && arguments.next().is_none() {
        return Some(answer());
    }
    let _ = PROGRAM.set(own_program());
    None
}

/// This program's file. On Linux the link stays valid if the file is replaced while the program runs.
fn own_program() -> PathBuf {
    let link = Path::new("/proc/self/exe");
    if cfg!(target_os = "linux") && link.exists() {
        return link.to_owned();
    }
    // a wrong path is reported when the first process cannot be started
    std::env::current_exe().unwrap_or_else(|_| std::env::args_os().next().unwrap_or_default().into())
}

pub(super) fn program() -> Option<&'static Path> {
    PROGRAM.get().map(PathBuf::as_path)
}

/// A request to a process.
#[derive(Serialize, Deserialize)]
struct Request<'a> {
    source: Cow<'a, str>,
    bos: Cow<'a, str>,
    eos: Cow<'a, str>,
    /// `None`: only compile.
    messages: Option<Cow<'a, [Message]>>,
    /// Whether the model is to think; `None` leaves it to the template.
    #[serde(default)]
    thinks: Option<bool>,
}

/// A template that compiles, to be rendered in separate processes.
pub(super) struct Contained {
    program: &'static Path,
    source: String,
    bos: String,
    eos: String,
    /// Seconds since 1970 when the template was first compiled; every process uses this time.
    seconds: i64,
    knows_thinking: bool,
}

/// The answer to a request without messages, if the template reads a variable for thinking.
const KNOWS_THINKING: &str = "thinking";

impl Contained {
    pub(super) fn new(program: &'static Path, source: &str, bos: String, eos: String) -> Result<Self, ModelError> {
        let source = source.to_owned();
        let mut new = Self { program, source, bos, eos, seconds: date::now(), knows_thinking: false };
        new.knows_thinking = new.ask(None, None)? == KNOWS_THINKING;
        Ok(new)
    }

    pub(super) fn knows_thinking(&self) -> bool {
        self.knows_thinking
    }

    pub(super) fn render(&self, messages: &[Message], thinks: Option<bool>) -> Result<String, ModelError> {
        self.ask(Some(messages.into()), thinks)
    }

    fn ask(&self, messages: Option<Cow<'_, [Message]>>, thinks: Option<bool>) -> Result<String, ModelError> {
        let [source, bos, eos] = [&self.source, &self.bos, &self.eos].map(Cow::from);
        let request = Request { source, bos, eos, messages, thinks };
        let asked = serde_json::to_vec(&request).map_err(io::Error::from).and_then(|request| self.run(request));
        let (status, said, complaint) = asked.map_err(|error| {
            ModelError::Template(format!(
                "the process that renders it could not be started or read ({error}); start the program again"
            ))
        })?;
        understood(status, said).unwrap_or_else(|| Err(ModelError::Template(limits::exceeded(status, &complaint))))
    }

    /// Exit status of a process (`None`: it was killed here), and what it wrote to its two outputs.
    fn run(&self, request: Vec<u8>) -> io::Result<(Option<ExitStatus>, Vec<u8>, String)> {
        let mut child = self.spawn()?;
        let outputs = match talk(&mut child, request) {
            Ok(outputs) => outputs.recv_timeout(limits::PATIENCE),
            Err(error) => {
                child.kill()?;
                child.wait()?;
                return Err(error);
            }
        };
        if outputs.is_err() {
            child.kill()?;
        }
        let status = child.wait()?;
        let Ok((said, complaint)) = outputs else { return Ok((None, Vec::new(), String::new())) };
        Ok((Some(status), said, complaint))
    }

    fn spawn(&self) -> io::Result<Child> {
        let mut command = Command::new(self.program);
        command.arg(ARGUMENT).env(date::EPOCH, self.seconds.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        #[cfg(unix)]
        // Ctrl-C stops the program only; this process soon ends by itself
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command.spawn()
    }
}

/// Writes the request and reads both outputs in a thread, so that a process that hangs does not block the program.
fn talk(child: &mut Child, request: Vec<u8>) -> io::Result<mpsc::Receiver<(Vec<u8>, String)>> {
    let (sender, outputs) = mpsc::channel();
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    if let (Some(mut input), Some(output), Some(errors)) = pipes {
        thread::Builder::new().name("template".into()).spawn(move || {
            // a process that ends before it has read everything reports why
            let _ = input.write_all(&request);
            drop(input);
            let (mut said, mut complaint) = (Vec::new(), Vec::new());
            let _ = output.take(MAX_OUTPUT as u64 + 2).read_to_end(&mut said);
            let _ = errors.take(MAX_COMPLAINT).read_to_end(&mut complaint);
            let _ = sender.send((said, String::from_utf8_lossy(&complaint).into_owned()));
        })?;
    }
    Ok(outputs)
}

/// The answer of a process; `None` if it ended without a complete one.
fn understood(status: Option<ExitStatus>, mut said: Vec<u8>) -> Option<Result<String, ModelError>> {
    if !status?.success() || said.is_empty() || said.len() > MAX_OUTPUT + 1 {
        return None;
    }
    let kind = said.remove(0);
    let text = String::from_utf8(said).ok()?;
    match kind {
        RENDERED => Some(Ok(text)),
        REFUSED => Some(Err(ModelError::Template(sentence(&text)))),
        _ => None,
    }
}

/// Answers the request on standard input.
fn answer() -> ExitCode {
    let replying = thread::Builder::new().stack_size(STACK).spawn(|| {
        let mut request = Vec::new();
        io::stdin().lock().read_to_end(&mut request)?;
        let request: Request<'_> = serde_json::from_slice(&request)?;
        limits::impose()?;
        let (kind, text) = reply(request);
        let mut out = io::stdout().lock();
        out.write_all(&[kind])?;
        out.write_all(text.as_bytes())?;
        out.flush()
    });
    let why = match replying.map(thread::JoinHandle::join) {
        Ok(Ok(Ok(()))) => return ExitCode::SUCCESS,
        Ok(Ok(Err(error))) => error.to_string(),
        Ok(Err(_)) => return ExitCode::FAILURE, // the panic was printed
        Err(error) => format!("the system starts no thread: {error}"),
    };
    let _ = writeln!(io::stderr(), "{why}"); // the program repeats it
    ExitCode::FAILURE
}

fn reply(request: Request<'_>) -> (u8, String) {
    let compiled = Compiled::new(&request.source, request.bos.into_owned(), request.eos.into_owned());
    let rendered = compiled.and_then(|compiled| match request.messages {
        Some(messages) => compiled.render(&messages, request.thinks),
        None => Ok(if compiled.knows_thinking() { KNOWS_THINKING } else { "" }.to_owned()),
    });
    match rendered {
        Ok(text) => (RENDERED, text),
        Err(ModelError::Template(why)) => (REFUSED, why),
        Err(other) => (REFUSED, other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_cannot_be_started_is_an_error() {
        let missing = Path::new("/does/not/exist");
        let error = Contained::new(missing, "{{ 1 }}", String::new(), String::new()).err().unwrap().to_string();
        assert!(error.contains("the process that renders it could not be started"), "{error}");
    }
}
