//! Memory-mapped files: the system loads pages when they are touched.
//!
//! Invariant: bytes are only read. If a mapped file is truncated, the program ends, with a message if
//! [`fatal::install`](draftscope_host::fatal::install) was called; the length is checked when the file is opened.

use std::ops::Range;
use std::path::Path;

use memmap2::Mmap;

use crate::ModelError;
use crate::files::unfinished;
use draftscope_host::fatal::Mapping;

/// A mapped file.
#[derive(Debug)]
pub(crate) struct Mapped {
    map: Mmap,
    /// Bytes on disk, if the file has large holes.
    on_disk: Option<u64>,
    #[allow(dead_code, reason = "dropped with the map")]
    mapping: Mapping,
}

impl Mapped {
    /// Maps a whole file.
    ///
    /// # Errors
    /// [`ModelError::Read`].
    #[allow(unsafe_code, reason = "mapping a file is unsafe, see below")]
    pub(crate) fn open(path: &Path) -> Result<Self, ModelError> {
        let read_error = |source| ModelError::Read { path: path.to_owned(), source };
        let file = draftscope_host::file_access::open_regular(path).map_err(read_error)?;
        // SAFETY: the map is private to this process and read-only; this program never writes to the file, and it
        // replaces model files by renaming, which does not change the mapped one.
        let map = unsafe { Mmap::map(&file) };
        map.map(|map| {
            let mapping = Mapping::of(&map);
            Self { map, on_disk: unfinished::bytes_on_disk(&file), mapping }
        })
        .map_err(read_error)
    }

    /// All bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Bytes on disk of a file whose tensors end here, if it has large holes and those bytes end in one: space that a
    /// download tool reserved and did not fill. `None` for a complete file.
    pub(super) fn hole_before(&self, end: usize) -> Option<u64> {
        let there = self.on_disk?;
        let last = self.bytes().get(end.checked_sub(4096)?..end)?;
        last.iter().all(|byte| *byte == 0).then_some(there)
    }

    /// Frees the pages of a range that was copied and is not needed again soon.
    #[allow(unsafe_code, reason = "the advice is unsafe in general, see below")]
    pub(crate) fn release(&self, range: Range<usize>) {
        #[cfg(unix)]
        // SAFETY: dropping pages of a read-only file map loses no data: they are read again when touched.
        let _ =
            unsafe { self.map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, range.start, range.len()) };
        #[cfg(not(unix))]
        let _ = range;
    }
}
