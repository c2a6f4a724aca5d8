//! The hub's own cache, which programs share: `models--OWNER--NAME/{blobs,snapshots,refs}`.
//!
//! Invariant: what a server names becomes part of a path only after [`is_commit`] or [`is_tag`] has checked it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use draftscope_host::file_access;

/// A repository at a revision: a branch, a tag or a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HubRepo {
    id: String,
    revision: String,
}

impl HubRepo {
    pub(super) fn new(id: &str, revision: &str) -> Self {
        Self { id: id.to_owned(), revision: revision.to_owned() }
    }

    /// `owner/name`.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn revision(&self) -> &str {
        &self.revision
    }

    /// Name of its folder in the cache.
    pub(super) fn folder_name(&self) -> String {
        format!("models--{}", self.id.replace('/', "--"))
    }

    /// Where the hub describes it.
    pub(super) fn info_path(&self) -> String {
        format!("/api/models/{}/revision/{}", self.id, self.revision)
    }

    /// Where the hub has one of its files.
    pub(super) fn file_path(&self, file: &str) -> String {
        format!("/{}/resolve/{}/{file}", self.id, self.revision)
    }
}

/// How the hub describes a repository.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct RepoInfo {
    /// Commit of the revision.
    pub(super) sha: String,
    pub(super) siblings: Vec<Sibling>,
}

/// A file of a repository.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Sibling {
    /// Its path in the repository.
    #[serde(rename = "rfilename")]
    pub(super) name: String,
    /// Bytes, if they were asked for.
    #[serde(default)]
    pub(super) size: Option<u64>,
}

/// The cache of repositories in a folder.
#[derive(Clone, Debug)]
pub(super) struct HubCache(PathBuf);

impl HubCache {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self(dir)
    }

    fn folder(&self, repo: &HubRepo) -> PathBuf {
        self.0.join(repo.folder_name())
    }

    /// The files of a commit: links to blobs.
    pub(super) fn snapshot(&self, repo: &HubRepo, commit: &str) -> PathBuf {
        self.folder(repo).join("snapshots").join(commit)
    }

    /// The contents with this tag.
    pub(super) fn blob(&self, repo: &HubRepo, tag: &str) -> PathBuf {
        self.folder(repo).join("blobs").join(tag)
    }

    /// The commit that the revision had when it was last fetched.
    pub(super) fn noted_commit(&self, repo: &HubRepo) -> Option<String> {
        let noted =
            file_access::read_regular_text(&self.folder(repo).join("refs").join(&repo.revision), 1 << 12).ok()?;
        Some(noted.trim().to_owned()).filter(|commit| is_commit(commit))
    }

    /// Notes the commit of the revision.
    pub(super) fn note_commit(&self, repo: &HubRepo, commit: &str) -> io::Result<()> {
        let refs = self.folder(repo).join("refs");
        fs::create_dir_all(&refs)?;
        let mut file = file_access::temporary_file_in(&refs)?;
        io::Write::write_all(&mut file, commit.as_bytes())?;
        file.persist(refs.join(&repo.revision)).map(drop).map_err(|error| error.error)
    }

    /// Makes a file of a commit a link to the blob with this tag.
    pub(super) fn link(&self, repo: &HubRepo, (commit, file): (&str, &str), tag: &str) -> io::Result<PathBuf> {
        let (place, blob) = (self.snapshot(repo, commit).join(file), self.blob(repo, tag));
        if fs::canonicalize(&place).is_ok_and(|there| fs::canonicalize(&blob).is_ok_and(|blob| blob == there)) {
            return Ok(place);
        }
        if let Some(folder) = place.parent() {
            fs::create_dir_all(folder)?;
        }
        match fs::remove_file(&place) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let up = "../".repeat(Path::new(file).components().count() + 1);
        link(Path::new(&format!("{up}blobs/{tag}")), &blob, &place)?;
        Ok(place)
    }
}

#[cfg(unix)]
fn link(target: &Path, _: &Path, place: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, place)
}

/// Where links need a permission, the file is moved instead.
#[cfg(not(unix))]
fn link(_: &Path, blob: &Path, place: &Path) -> io::Result<()> {
    fs::rename(blob, place)
}

/// Whether this can be a commit.
pub(super) fn is_commit(sha: &str) -> bool {
    (7..=64).contains(&sha.len()) && sha.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether this can be a tag (etag), which becomes the name of a blob.
pub(super) fn is_tag(tag: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    (1..=128).contains(&tag.len()) && !tag.starts_with('.') && tag.chars().all(fits)
}
