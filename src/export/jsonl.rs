//! Copies the recording: every complete line unchanged, including events that this version does not know.

use draftscope_session::trace::Recording;

use super::atomic_file::Out;
use super::error::WriteError;

pub(super) fn write(recording: &Recording, out: Out<'_>) -> Result<(), WriteError> {
    let mut reader = recording.reader()?;
    while reader.advance()? {
        recording.check_stop()?;
        out.write_all(reader.raw())?;
        out.write_all(b"\n")?;
    }
    Ok(())
}
