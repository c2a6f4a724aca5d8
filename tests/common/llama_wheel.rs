//! A real llama-server: that of the Python wheel `xllamacpp`, pinned with its checksum, in a virtual environment that stays
//! in the target folder.

#![allow(dead_code)] // each test file uses its own part
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/attach")
}

/// The Python that has the wheel; none with a sentence where it cannot be installed.
pub(crate) fn python() -> Option<PathBuf> {
    static PYTHON: OnceLock<Option<PathBuf>> = OnceLock::new();
    PYTHON.get_or_init(install).clone()
}

fn install() -> Option<PathBuf> {
    if std::env::var_os("DRAFTSCOPE_OFFLINE").is_some() {
        eprintln!("left out: DRAFTSCOPE_OFFLINE is set");
        return None;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("xllamacpp-2026.10.11549");
    let python = folder.join("bin/python");
    let has_wheel = |python: &Path| {
        let tried = Command::new(python).args(["-c", "import xllamacpp"]).stderr(Stdio::null()).status();
        tried.is_ok_and(|status| status.success())
    };
    if !has_wheel(&python) {
        let made = Command::new("python3").args(["-m", "venv"]).arg(&folder).status();
        let wanted = fixtures().join("requirements.txt");
        let arguments = ["-m", "pip", "install", "-q", "--no-deps", "--only-binary=:all:", "--require-hashes", "-r"];
        let installed = made.and_then(|_| Command::new(&python).args(arguments).arg(wanted).status());
        if !installed.is_ok_and(|status| status.success()) || !has_wheel(&python) {
            eprintln!(
                "left out: the wheel xllamacpp could not be installed (no package registry, or another platform)"
            );
            return None;
        }
    }
    Some(python)
}

/// A running server; it ends with this.
pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) url: String,
}

impl Running {
    /// Starts the server of `llama_server.py` with this model, drafter and options.
    pub(crate) fn start(python: &Path, model: &Path, drafter: &str, options: &[&str]) -> Self {
        Self::start_at(python, model, drafter, free_port(), options)
    }

    /// The same at this port.
    pub(crate) fn start_at(python: &Path, model: &Path, drafter: &str, port: u16, options: &[&str]) -> Self {
        let mut command = Command::new(python);
        command.arg(fixtures().join("llama_server.py")).arg(model).args([drafter, &port.to_string()]).args(options);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let listening = lines.map(Result::unwrap).find_map(|line| line.strip_prefix("LISTENING ").map(str::to_owned));
        Self { child, url: listening.expect("the server starts") }
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
