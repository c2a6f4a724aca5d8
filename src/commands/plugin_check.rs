//! `draftscope attach --check`: checks the lines of an engine's plugin, from a file or from its socket.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use draftscope::attach::socket::{self, MAX_LINE, address::Address};
use draftscope::host::file_access::{self, Input};

/// A socket is read until nothing has come for so long.
const SILENCE: Duration = Duration::from_secs(10);

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);

/// Most lines that are read from a socket.
const MAX_LINES: usize = 100_000;

/// Prints what is wrong, line by line, and what the lines amount to.
pub(crate) fn run(path: &Path) -> Result<ExitCode> {
    let place = path.to_string_lossy();
    let report = if path.is_file() {
        let file = file_access::open(path).with_context(|| format!("cannot read {place}"))?;
        socket::check(FileLines(BufReader::new(file)))
    } else {
        let address: Address = place.parse().map_err(|why: String| anyhow!(why))?;
        let lines = socket::connect_within(&address, CONNECT).map_err(|error| no_plugin(&place, error))?;
        super::output::say(&format!(
            "reading {place}: send the engine a prompt; it ends after {} s of silence",
            SILENCE.as_secs()
        ));
        let quiet = Instant::now() + SILENCE;
        socket::check(SocketLines { lines, quiet }.take(MAX_LINES))
    };
    println!("{report}");
    Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn no_plugin(place: &str, error: io::Error) -> anyhow::Error {
    let is_stuck = error.kind() == io::ErrorKind::TimedOut;
    anyhow::Error::new(error).context(if is_stuck {
        place.to_owned()
    } else {
        format!("no file and no plugin at {place}")
    })
}

/// Lines of a file, of bounded length.
struct FileLines(BufReader<Input>);

impl Iterator for FileLines {
    type Item = io::Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut line = Vec::new();
        match (&mut self.0).take(MAX_LINE as u64 + 1).read_until(b'\n', &mut line) {
            Err(error) => Some(Err(error)),
            Ok(0) => None,
            Ok(_) if line.len() > MAX_LINE => {
                Some(Err(io::Error::new(io::ErrorKind::InvalidData, format!("longer than {} KiB", MAX_LINE >> 10))))
            }
            Ok(_) => {
                line.truncate(line.trim_ascii_end().len());
                Some(Ok(line))
            }
        }
    }
}

/// Lines of a socket, until it is silent.
struct SocketLines {
    lines: socket::LineReader,
    quiet: Instant,
}

impl Iterator for SocketLines {
    type Item = io::Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        while Instant::now() < self.quiet {
            match self.lines.next_line() {
                Ok(None) => {}
                Ok(Some(line)) => {
                    self.quiet = Instant::now() + SILENCE;
                    return Some(Ok(line));
                }
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return None,
                Err(error) => return Some(Err(error)),
            }
        }
        None
    }
}
