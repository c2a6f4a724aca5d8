//! The recording again: every whole line as it stands, what this program does not know included.

use crate::trace::Recording;

use super::Stop;
use super::atomic_file::Out;

pub(super) fn write(recording: &Recording, out: Out<'_>) -> Result<(), Stop> {
    let mut reader = recording.reader()?;
    while reader.advance()? {
        recording.go_on()?;
        out.write_all(reader.raw())?;
        out.write_all(b"\n")?;
    }
    Ok(())
}
