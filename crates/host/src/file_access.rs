//! Opens files that somebody else may have made, to read or to overwrite them.
//!
//! Invariant: opening never waits for ever, and reading never takes more memory than its limit. A pipe without another
//! end, a folder, or a device where a file is needed is an error with a reason that can end a sentence about the path.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, Instant};

mod encoding;
mod part_name;
mod temporary;

pub use encoding::{decode, other_encoding, without_mark};
pub use part_name::{part_name, split_part, split_stem};
pub use temporary::{private_file_in, temporary_file_in, temporary_folder_in};

/// Longest wait for the program at the other end of a pipe.
const OTHER_END: Duration = Duration::from_secs(5);

/// Time before a pipe without another end is tried again.
const TICK: Duration = Duration::from_millis(20);

/// A file, pipe or device that a person named.
#[derive(Debug)]
pub struct Input {
    file: File,
    /// Until when a pipe may be without a writer; none for what is no pipe, and once something came.
    writer: Option<Instant>,
}

/// Opens what a person named. A pipe is fine if something writes into it.
///
/// # Errors
/// When it cannot be opened or is a folder.
pub fn open(path: &Path) -> io::Result<Input> {
    let file = without_waiting(path)?;
    let known = file.metadata()?;
    if known.is_dir() {
        return Err(io::Error::other("it is a folder"));
    }
    let writer = is_pipe(&known).then(|| Instant::now() + OTHER_END);
    Ok(Input { file, writer })
}

/// Opens a regular file; for what the program looks for by itself, and for what it maps.
///
/// # Errors
/// When it cannot be opened, or is a folder, a pipe or a device.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let file = without_waiting(path)?;
    let known = file.metadata()?;
    match known.is_file() {
        true => Ok(file),
        false if known.is_dir() => Err(io::Error::other("it is a folder")),
        false if is_pipe(&known) => Err(io::Error::other("it is a pipe, and a file is needed")),
        false => Err(io::Error::other("it is a device, and a file is needed")),
    }
}

/// Opens what exists to write to it, without emptying it. A pipe is fine if something reads it.
///
/// # Errors
/// When it cannot be opened, or is a folder, or a pipe that nothing reads.
#[cfg(unix)]
pub fn overwrite(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let until = Instant::now() + OTHER_END;
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    loop {
        match options.open(path) {
            Ok(file) => {
                // from here on a write waits for a slow reader
                rustix::io::ioctl_fionbio(&file, false)?;
                return Ok(file);
            }
            Err(error)
                if error.raw_os_error() == Some(libc::ENXIO)
                    && std::fs::metadata(path).is_ok_and(|known| is_pipe(&known)) =>
            {
                if Instant::now() > until {
                    return Err(io::Error::other("nothing reads this pipe"));
                }
                std::thread::sleep(TICK);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Opens what exists to write to it, without emptying it.
///
/// # Errors
/// When it cannot be opened.
#[cfg(not(unix))]
pub fn overwrite(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).open(path)
}

/// The bytes of what a person named, at most `most` of them.
///
/// # Errors
/// When it cannot be read or has more bytes.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    bounded(open(path)?, most)
}

/// The text of what a person named, of at most `most` bytes, as [`decode`] reads it.
///
/// # Errors
/// When it cannot be read, has more bytes or is not UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    decode(read(path, most)?)
}

/// The bytes of a regular file, at most `most` of them. `/dev/null` counts as an empty file: people name it for none.
///
/// # Errors
/// As [`open_regular`], or when it has more bytes.
pub fn read_regular(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    if path == Path::new("/dev/null") {
        return Ok(Vec::new());
    }
    bounded(open_regular(path)?, most)
}

/// The text of a regular file, of at most `most` bytes, as [`decode`] reads it.
///
/// # Errors
/// As [`read_regular`], or when it is not UTF-8.
pub fn read_regular_text(path: &Path, most: u64) -> io::Result<String> {
    decode(read_regular(path, most)?)
}

fn bounded(file: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > most {
        true => Err(io::Error::other(format!("it has more than {}", size(most)))),
        false => Ok(bytes),
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..0x10_0000 => format!("{} kB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

/// Opens for reading without waiting for a pipe's writer or a device, and without becoming a terminal's session.
fn without_waiting(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK | libc::O_NOCTTY);
    options.read(true).open(path)
}

#[cfg(unix)]
fn is_pipe(known: &std::fs::Metadata) -> bool {
    std::os::unix::fs::FileTypeExt::is_fifo(&known.file_type())
}

#[cfg(not(unix))]
fn is_pipe(_: &std::fs::Metadata) -> bool {
    false
}

impl Read for Input {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.file.read(into) {
                Ok(0) if self.writer.is_some_and(|until| Instant::now() < until) => std::thread::sleep(TICK),
                Ok(0) if self.writer.is_some() => return Err(io::Error::other("nothing writes into this pipe")),
                // it has a writer, which may take its time
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => wait(&self.file)?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => {
                    self.writer = None;
                    return read;
                }
            }
        }
    }
}

/// Waits until there is something to read.
#[cfg(unix)]
fn wait(file: &File) -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, poll};
    match poll(&mut [PollFd::new(file, PollFlags::IN)], None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(unix))]
fn wait(_: &File) -> io::Result<()> {
    std::thread::sleep(TICK);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says<T>(read: io::Result<T>) -> String {
        read.err().expect("an error").to_string()
    }

    #[test]
    fn a_file_is_read_up_to_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "1234").unwrap();
        assert_eq!(read_text(&path, 4).unwrap(), "1234");
        assert_eq!(read_regular(&path, 4).unwrap(), b"1234");
        assert_eq!(says(read_regular(&path, 3)), "it has more than 3 bytes");
        File::create(&path).unwrap().set_len(3 << 20).unwrap();
        assert_eq!(says(read(&path, 2 << 20)), "it has more than 2 MiB");
        std::fs::write(&path, [0xff]).unwrap();
        assert!(says(read_text(&path, 9)).starts_with("it is not UTF-8 text"));
        for error in [says(open(folder.path())), says(open_regular(folder.path()))] {
            assert_eq!(error, "it is a folder");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_is_read_if_something_writes_into_it() {
        use std::process::Command;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let begun = Instant::now();
        assert_eq!(says(read(&path, 9)), "nothing writes into this pipe");
        assert!((OTHER_END..OTHER_END * 12).contains(&begun.elapsed()));
        assert_eq!(says(open_regular(&path)), "it is a pipe, and a file is needed");
        assert_eq!(says(open_regular(Path::new("/dev/null"))), "it is a device, and a file is needed");
        assert_eq!(read_regular(Path::new("/dev/null"), 1).unwrap(), b"");
        assert_eq!(says(read(Path::new("/dev/zero"), 1 << 20)), "it has more than 1 MiB");

        assert_eq!(says(overwrite(&path)), "nothing reads this pipe");

        // a writer that comes late, and takes its time
        let late = path.clone();
        let writer = std::thread::spawn(move || {
            use std::io::Write;
            std::thread::sleep(TICK * 5);
            let mut pipe = overwrite(&late).unwrap();
            for piece in ["a", "b"] {
                std::thread::sleep(TICK * 5);
                pipe.write_all(piece.as_bytes()).unwrap();
            }
        });
        assert_eq!(read_text(&path, 9).unwrap(), "ab");
        writer.join().unwrap();
    }
}
