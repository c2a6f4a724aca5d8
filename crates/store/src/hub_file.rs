//! Gets one file of a repository into the hub's cache.
//!
//! Invariant: contents get their name by a rename once they are complete and, where the hub names their sha256, checked.
//! What arrived of an interrupted download stays beside them, and the next try resumes there.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use draftscope_http::{Client, Download};

use super::check;
use super::error::SourceError;
use super::hub_cache::{HubCache, HubRepo, is_commit, is_tag};
use super::lock::Lock;
use super::progress::Progress;

/// Largest file other than weights that is fetched, in bytes; those that are read are smaller.
const MAX_SIDE_FILE: u64 = 256 << 20;

/// Bytes of a piece.
const PIECE: usize = 1 << 18;

/// A file to fetch, and where to keep it.
pub(super) struct HubFile<'a> {
    pub(super) client: &'a Client,
    pub(super) cache: &'a HubCache,
    pub(super) repo: &'a HubRepo,
    pub(super) file: &'a str,
}

/// What the hub says of a file. Its names are safe as parts of paths.
struct Description {
    commit: String,
    tag: String,
    size: u64,
}

impl Description {
    /// The sha256 of a large file, which the hub uses as its tag. Small files have another kind of tag.
    fn sha256(&self) -> Option<&str> {
        let tag = self.tag.as_str();
        (tag.len() == 64 && tag.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(tag)
    }

    /// Whether a file certainly has these contents; without a sha256 that cannot be known.
    fn is_of(&self, path: &Path) -> bool {
        let same_size = fs::metadata(path).is_ok_and(|there| there.len() == self.size);
        same_size && self.sha256().is_some_and(|sha256| check::sha256_of(path).is_ok_and(|got| got == sha256))
    }
}

impl HubFile<'_> {
    /// The file's path in the cache, fetched unless it is there and equals the hub's.
    pub(super) fn fetch(&self, progress: &mut dyn Progress) -> Result<PathBuf, SourceError> {
        let description = self.describe()?;
        let blob = self.cache.blob(self.repo, &description.tag);
        let place = self.cache.snapshot(self.repo, &description.commit).join(self.file);
        if description.is_of(&place) {
            return Ok(place);
        }
        let write = |path: &Path| {
            let path = path.to_owned();
            move |source| SourceError::Write { path, source }
        };
        blob.parent().map_or(Ok(()), fs::create_dir_all).map_err(write(&blob))?;
        let Some(_lock) = Lock::if_free(&beside(&blob, "lock")) else {
            let message = format!("another program is fetching {}; start again when it is done", self.file);
            return Err(SourceError::Failed(message));
        };
        if !description.is_of(&blob) {
            let part = beside(&blob, "part");
            self.download(&description, &part, progress)?;
            fs::rename(&part, &blob).map_err(write(&blob))?;
        }
        self.cache.link(self.repo, (&description.commit, self.file), &description.tag).map_err(write(&place))
    }

    /// Asks for the first byte, since the answer describes the whole file.
    fn describe(&self) -> Result<Description, SourceError> {
        let failed = |message: String| Err(SourceError::Failed(message));
        let answer = self.client.download(&self.repo.file_path(self.file), "bytes=0-0")?;
        let commit = answer.own_header("x-repo-commit").unwrap_or_default().to_owned();
        let asked = self.repo.revision();
        if !is_commit(&commit) || (is_commit(asked) && !commit.starts_with(asked)) {
            return failed(format!("it answers with another commit than {asked}"));
        }
        let tag = answer.own_header("x-linked-etag").or(answer.own_header("etag")).unwrap_or_default();
        let tag = tag.trim_start_matches("W/").replace('"', "");
        if !is_tag(&tag) {
            return failed("it answers with an invalid tag (etag)".to_owned());
        }
        let Some(size) = answer.extent().1 else {
            return failed(format!("it does not say how large {} is", self.file));
        };
        let is_weights = [".safetensors", ".gguf", ".bin"].iter().any(|ending| self.file.ends_with(ending));
        if !is_weights && size > MAX_SIDE_FILE {
            return failed(format!("{} has {size} bytes; at most {MAX_SIDE_FILE} are accepted", self.file));
        }
        Ok(Description { commit, tag, size })
    }

    /// Brings all bytes into `part`, which may have the first of them.
    fn download(&self, description: &Description, part: &Path, progress: &mut dyn Progress) -> Result<(), SourceError> {
        let size = description.size;
        let have = fs::metadata(part).map_or(0, |left| left.len());
        // what is as long as the file or longer cannot be continued
        let have = if have < size { have } else { 0 };
        self.resume(part, (have, size), progress)?;
        if description.sha256().is_some() && !description.is_of(part) {
            let _ = fs::remove_file(part);
            return Err(SourceError::Failed(
                "the downloaded file is not the announced one (its sha256 differs)".into(),
            ));
        }
        Ok(())
    }

    fn resume(&self, part: &Path, (have, size): (u64, u64), progress: &mut dyn Progress) -> Result<(), SourceError> {
        let write = |source| SourceError::Write { path: part.to_owned(), source };
        if size == 0 {
            return File::create(part).map(drop).map_err(write);
        }
        let path = self.repo.file_path(self.file);
        let mut answer = self.client.download(&path, &format!("bytes={have}-"))?;
        let mut have = have;
        if have > 0 && answer.status() != 206 {
            have = 0; // it does not resume
            if answer.status() == 416 {
                answer = self.client.download(&path, "bytes=0-")?;
            }
        }
        let (first, all) = answer.extent();
        if answer.status() == 416 || first != have || all.is_some_and(|all| all != size) {
            return Err(SourceError::Failed(format!("it sends another part of {} than it was asked for", self.file)));
        }
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(have == 0).open(part).map_err(write)?;
        io::Seek::seek(&mut file, io::SeekFrom::Start(have)).map_err(write)?;
        let done = copy(&mut answer, &mut file, (have, size), part, progress);
        file.sync_all().map_err(write)?;
        match done? {
            done if done == size => Ok(()),
            done => Err(SourceError::Failed(format!("it delivered {done} of {size} bytes"))),
        }
    }
}

/// Appends what arrives to a file that has `done` of `size` bytes; returns how many it has then.
fn copy(
    from: &mut Download,
    to: &mut File,
    (mut done, size): (u64, u64),
    path: &Path,
    progress: &mut dyn Progress,
) -> Result<u64, SourceError> {
    let mut piece = vec![0; PIECE];
    loop {
        let len = from.read(&mut piece)?;
        if len == 0 {
            return Ok(done);
        }
        if done + len as u64 > size {
            return Err(SourceError::Failed(format!("it sends more than the announced {size} bytes")));
        }
        to.write_all(&piece[..len]).map_err(|source| SourceError::Write { path: path.to_owned(), source })?;
        done += len as u64;
        progress.bytes(done, size);
    }
}

/// The path with another ending after its name.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    name.into()
}
