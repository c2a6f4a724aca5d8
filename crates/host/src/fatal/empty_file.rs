//! A file that the process has created and not written to yet: a signal that ends the process removes it.

use std::ffi::{CString, c_char};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Path of the file. A value is never freed, because the handler may be reading it; there is one for each recording.
static PATH: AtomicPtr<c_char> = AtomicPtr::new(null_mut());

/// While this lives, a signal that ends the process removes the file, provided that it is still empty.
#[derive(Debug)]
pub struct EmptyFile(());

impl EmptyFile {
    /// Names the file, which may be created right after this; one at a time.
    #[must_use]
    pub fn created(path: &Path) -> Self {
        if let Ok(path) = CString::new(path.as_os_str().as_bytes()) {
            PATH.store(path.into_raw(), Ordering::SeqCst);
        }
        Self(())
    }
}

impl Drop for EmptyFile {
    fn drop(&mut self) {
        PATH.store(null_mut(), Ordering::SeqCst);
    }
}

/// Called by the handler before the process ends.
#[allow(unsafe_code, reason = "only plain system calls are safe in a signal handler, see below")]
pub(super) fn remove() {
    let path = PATH.swap(null_mut(), Ordering::SeqCst);
    if path.is_null() {
        return;
    }
    let mut known = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the path leads to a string that is never freed; the system fills `known` if it returns 0.
    unsafe {
        if libc::stat(path, known.as_mut_ptr()) == 0 && known.assume_init().st_size == 0 {
            libc::unlink(path);
        }
    }
}
