//! Whole model folders from the Hugging Face Hub, by the name of their repository.
//!
//! They live in the hub's own cache (`HF_HUB_CACHE`, else `HF_HOME/hub`, else `~/.cache/huggingface/hub`),
//! so programs share what they fetch. Invariant: a returned folder is complete, and all its files are of one
//! commit. A complete folder is used without asking the hub. One process at a time fetches a repository.

use std::path::{Path, PathBuf};
use std::{fs, io};

use draftscope_host::file_access;
use draftscope_http::HttpError;
use etcetera::BaseStrategy;

use super::error::{SourceError, StoreError};
use super::hub::Hub;
use super::hub_cache::{HubCache, HubRepo, Sibling};
use super::lock::Lock;
use super::progress::Progress;
use super::repo_name::{RepoName, Wanted};
use super::side::{CONFIG, is_head};
use super::{check, side};

/// Judges a folder whose weights are not there yet; the error is the reason why its model is not supported.
pub type Preflight = fn(&Path) -> Result<(), String>;

const TOKENIZER: &str = "tokenizer.json";
pub(super) const SINGLE: &str = "model.safetensors";
/// Weights of older draft heads.
pub(super) const TORCH: &str = "pytorch_model.bin";
pub(super) const INDEX: &str = "model.safetensors.index.json";

/// Most shards.
const MAX_SHARDS: usize = 4096;

/// Deletes a file of a snapshot, which is a link to its contents, and the contents. What cannot be deleted is emptied,
/// if possible, so that no later start takes it for the model.
fn discard(path: &Path) -> io::Result<()> {
    let contents = path.canonicalize();
    let removed = fs::remove_file(path);
    let contents = contents.and_then(|contents| match fs::remove_file(&contents) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            let _ = fs::File::options().write(true).truncate(true).open(&contents);
            Err(error)
        }
        _ => Ok(()), // without a link the file is its contents, and gone already
    });
    removed.and(contents)
}

/// The hub's repositories and their cache.
pub(super) struct Repos {
    hub: Hub,
    /// None where there is no home directory.
    dir: Option<PathBuf>,
    token: Option<String>,
    /// Called before weights are fetched.
    pub(super) preflight: Option<Preflight>,
}

impl Repos {
    /// The cache that the environment names, and the token: `HF_TOKEN`, `HUGGING_FACE_HUB_TOKEN`, or
    /// the file that `hf auth login` writes.
    pub(super) fn from_env(hub: Hub) -> Self {
        let var = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        let home = || Some(etcetera::choose_base_strategy().ok()?.home_dir().join(".cache").join("huggingface"));
        let root = var("HF_HOME").map(PathBuf::from).or_else(home);
        let token_file = var("HF_TOKEN_PATH").map(PathBuf::from).or_else(|| Some(root.as_ref()?.join("token")));
        let dir = var("HF_HUB_CACHE").map(PathBuf::from).or_else(|| Some(root?.join("hub")));
        let kept = || file_access::read_regular_text(&token_file?, 1 << 12).ok();
        let token = var("HF_TOKEN").or_else(|| var("HUGGING_FACE_HUB_TOKEN")).or_else(kept);
        let token = token.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty());
        Self { hub, dir, token, preflight: None }
    }

    /// Repositories of this hub, kept in `dir`.
    pub(super) fn new(hub: Hub, dir: PathBuf, token: Option<String>) -> Self {
        Self { hub, dir: Some(dir), token, preflight: None }
    }

    /// The folder (or file) of a repository, fetched first unless it is there.
    pub(super) fn resolve(&self, name: &RepoName, progress: &mut dyn Progress) -> Result<PathBuf, StoreError> {
        Ok(self.pull(name, false, progress)?.0)
    }

    /// The same, and whether anything was fetched; `force` always asks the hub and replaces files that differ from
    /// the hub's.
    pub(super) fn pull(
        &self,
        name: &RepoName,
        force: bool,
        progress: &mut dyn Progress,
    ) -> Result<(PathBuf, bool), StoreError> {
        let dir = self.dir.as_ref().ok_or(StoreError::NoHome)?;
        if let Some(found) = self.find(dir, name).filter(|_| !force) {
            let completed = self.complete(dir, (name, &found), progress);
            return Ok((found, completed));
        }
        let fetched = self.hub.ready().and_then(|()| {
            let _lock = locked(dir, name, progress)?;
            // another process may have fetched it while this one waited for the lock
            match self.find(dir, name).filter(|_| !force) {
                Some(found) => Ok((found, false)),
                None => self.fetch(dir, (name, force), progress).map(|path| (path, true)),
            }
        });
        progress.end();
        fetched.map_err(|why| StoreError::Repo { name: name.id.clone(), why: self.explain(&why, dir) })
    }

    /// The folder or file of a catalogue's entry, and whether anything was fetched. A file with another digest than the
    /// catalogue's is deleted.
    pub(super) fn catalogued(
        &self,
        (name, title): (Option<RepoName>, &str),
        (force, sha256): (bool, Option<&str>),
        progress: &mut dyn Progress,
    ) -> Result<(PathBuf, bool), StoreError> {
        let name = name.ok_or_else(|| super::error::unknown(title))?;
        let (path, fetched) = self.pull(&name, force, progress)?;
        if let Some(sha256) = sha256.filter(|_| fetched)
            && check::sha256_of(&path).is_ok_and(|found| found != sha256)
        {
            let fate = match discard(&path) {
                Ok(()) => "so it was deleted".to_owned(),
                Err(error) => format!("and it cannot be deleted ({error}), so delete {}", path.display()),
            };
            let file = if let Wanted::File(file) = &name.wanted { file } else { "" };
            let why = format!(
                "{file} is not the file that this version recommends (its sha256 differs), {fate}; to use it, name it: --model {}/{file}",
                name.id
            );
            return Err(StoreError::Repo { name: title.to_owned(), why });
        }
        Ok((path, fetched))
    }

    /// The folder or file of a repository if it is in the cache; nothing is asked of the hub.
    pub(super) fn fetched(&self, name: &RepoName) -> Option<PathBuf> {
        self.find(self.dir.as_ref()?, name)
    }

    /// The folder or file in the cache, if it is complete.
    fn find(&self, dir: &Path, name: &RepoName) -> Option<PathBuf> {
        let (cache, repo) = (HubCache::new(dir.to_owned()), name.at(name.revision()));
        let commit = cache.noted_commit(&repo).unwrap_or_else(|| name.revision().to_owned());
        let folder = cache.snapshot(&repo, &commit);
        match name.wanted {
            Wanted::Model if is_complete(&folder) => Some(folder),
            ref wanted => Self::find_gguf(&folder, wanted),
        }
    }

    /// Fetches the small files of a complete folder that another program did not fetch, if the hub has them; returns
    /// whether there were any. The folder works without them, so a failure is reported and is no error.
    fn complete(&self, dir: &Path, (name, folder): (&RepoName, &Path), progress: &mut dyn Progress) -> bool {
        if folder.is_file() {
            return false;
        }
        let missing = side::missing(folder);
        if missing.is_empty() {
            return false;
        }
        let fetched = self.hub.ready().and_then(|()| {
            let _lock = locked(dir, name, progress)?;
            self.fetch_side(dir, (name, folder), progress)
        });
        progress.end();
        fetched.unwrap_or_else(|why| {
            let files = missing.join(", ");
            let why = if matches!(why, SourceError::Off(_)) { format!("the hub was {why}") } else { why.to_string() };
            progress.step(&format!("{} is used without {files}, which it may contain: {why}", name.id));
            false
        })
    }

    /// Fetches the missing files of the folder's commit, and notes those that the commit does not have.
    fn fetch_side(
        &self,
        dir: &Path,
        (name, folder): (&RepoName, &Path),
        progress: &mut dyn Progress,
    ) -> Result<bool, SourceError> {
        let missing = side::missing(folder); // again: another process may have fetched them
        let commit = folder.file_name().unwrap_or_default().to_string_lossy();
        if missing.is_empty() {
            return Ok(false);
        }
        let cache = HubCache::new(dir.to_owned());
        let repo = name.at(&commit);
        let info = self.hub.info(&repo, self.token.as_deref())?;
        let has = |file: &str| info.siblings.iter().any(|sibling| sibling.name == file);
        let there: Vec<_> = missing.into_iter().filter(|file| has(file)).collect();
        there.iter().try_for_each(|file| self.get((&repo, file, false), &cache, progress).map(drop))?;
        side::note_absent(folder, &side::FILES, has);
        Ok(!there.is_empty())
    }

    /// The files of a repository with their sizes.
    pub(super) fn describe(&self, repo: &HubRepo) -> Result<Vec<Sibling>, SourceError> {
        self.hub.info_with_sizes(repo, self.token.as_deref()).map(|info| info.siblings)
    }

    /// Reports the step, then gets the file as [`Hub::get`] does.
    pub(super) fn get(
        &self,
        (repo, file, force): (&HubRepo, &str, bool),
        cache: &HubCache,
        progress: &mut dyn Progress,
    ) -> Result<PathBuf, SourceError> {
        progress.step(&format!("Fetching {file} of {} from {}", repo.id(), self.hub.name()));
        self.hub.get((repo, file, force), (cache, self.token.as_deref()), progress)
    }

    fn fetch(
        &self,
        dir: &Path,
        (name, force): (&RepoName, bool),
        progress: &mut dyn Progress,
    ) -> Result<PathBuf, SourceError> {
        let cache = HubCache::new(dir.to_owned());
        let info = self.hub.info(&name.at(name.revision()), self.token.as_deref())?;
        let has = |file: &str| info.siblings.iter().any(|sibling| sibling.name == file);
        let repo = name.at(&info.sha);
        let is_folder = has(CONFIG) && [SINGLE, INDEX, TORCH].into_iter().any(has);
        let has_gguf = || info.siblings.iter().any(|sibling| sibling.name.ends_with(".gguf"));
        let path = if name.wanted != Wanted::Model || (!is_folder && has_gguf()) {
            self.fetch_gguf((name, force), (&info.sha, &info.siblings), &cache, progress)?
        } else {
            if !is_folder {
                return Err(SourceError::Lacks(no_folder(&info.siblings)));
            }
            let mut get = |file: &str| self.get((&repo, file, force), &cache, &mut *progress);
            let path = get(CONFIG)?;
            side::FILES.into_iter().filter(|file| has(file)).try_for_each(|file| get(file).map(drop))?;
            let folder = path.parent().map_or_else(PathBuf::new, Path::to_owned);
            side::note_absent(&folder, &side::FILES, has);
            // an unsupported model is rejected before gigabytes are fetched
            self.preflight.map_or(Ok(()), |check| check(&folder)).map_err(SourceError::Lacks)?;
            match (has(SINGLE), has(INDEX)) {
                (true, _) => drop(get(SINGLE)?), // even if there is an index, which may be older
                (false, true) => {
                    let index = get(INDEX)?;
                    let shards = shards(&index).ok_or_else(|| SourceError::Lacks(format!("its {INDEX} is damaged")))?;
                    shards.iter().try_for_each(|file| get(file).map(drop))?;
                }
                (false, false) if has(TORCH) && is_head(&folder.join(CONFIG)) => drop(get(TORCH)?),
                (false, false) => return Err(SourceError::Lacks(no_folder(&info.siblings))),
            }
            folder
        };
        // last, so that a name never leads to an incomplete folder
        let _ = cache.note_commit(&name.at(name.revision()), &info.sha);
        Ok(path)
    }

    fn explain(&self, why: &SourceError, dir: &Path) -> String {
        let text = why.to_string();
        if matches!(why, SourceError::Off(_)) {
            return format!(
                "it is not in the cache at {} and the hub was {text}; go online once, or use a path",
                dir.display()
            );
        }
        if matches!(why, SourceError::Lacks(_) | SourceError::Lock { .. }) {
            return text;
        }
        let denied = matches!(why, SourceError::Http(HttpError::Status { status: 401 | 403 | 404, .. }));
        match (denied, &self.token) {
            (true, None) => format!("{text}; check the name, and for a private or gated repository set HF_TOKEN"),
            (true, Some(_)) => format!("{text}; check the name, and that your token may read it"),
            (false, _) => format!("{text}; what was fetched stays, and the next try resumes there"),
        }
    }
}

/// Waits for the lock on a repository, which is where the hub's own programs keep their locks.
fn locked(dir: &Path, name: &RepoName, progress: &mut dyn Progress) -> Result<Lock, SourceError> {
    let folder = dir.join(".locks").join(name.at("").folder_name());
    let path = folder.join("draftscope.lock");
    let lock = fs::create_dir_all(&folder).and_then(|()| Lock::wait(&path, &name.id, progress));
    lock.map_err(|source| SourceError::Lock { path, source })
}

/// Why a repository without GGUF files is no model folder.
fn no_folder(siblings: &[Sibling]) -> String {
    match siblings.iter().any(|sibling| sibling.name == CONFIG) {
        true => format!("the repository has no {SINGLE} and no GGUF files"),
        false => "it has no config.json and no GGUF files, so it is no model".to_owned(),
    }
}

/// Whether a folder has everything that a model needs.
fn is_complete(folder: &Path) -> bool {
    let has = |file: &str| folder.join(file).is_file();
    let sharded = || shards(&folder.join(INDEX)).is_some_and(|shards| shards.iter().all(|file| has(file)));
    let weights = has(SINGLE) || sharded();
    let head = || is_head(&folder.join(CONFIG));
    has(CONFIG) && ((weights && has(TOKENIZER)) || ((weights || has(TORCH)) && head()))
}

/// Names of the shards that an index lists; none when it is no index, or names files elsewhere.
fn shards(index: &Path) -> Option<Vec<String>> {
    let index = side::json(index)?;
    let names = index["weight_map"].as_object()?.values().map(|name| name.as_str().map(str::to_owned));
    let mut names: Vec<String> = names.collect::<Option<_>>()?;
    names.sort_unstable();
    names.dedup();
    let is_usual = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let plain = |name: &String| {
        name.ends_with(".safetensors") && !name.starts_with('.') && name.len() <= 200 && name.chars().all(is_usual)
    };
    (!names.is_empty() && names.len() <= MAX_SHARDS && names.iter().all(plain)).then_some(names)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};
    use std::thread;

    use sha2::{Digest, Sha256};

    use super::super::{
        Cache, PullOptions, RecommendedDraft, RecommendedDrafter, RecommendedModel, SourceKind, Store, check,
    };
    use super::*;

    #[test]
    fn a_folder_is_complete_when_all_shards_are_there() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        put(CONFIG, "{}");
        put("tokenizer.json", "{}");
        assert!(!is_complete(dir.path()));
        put(INDEX, r#"{"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}}"#);
        put("m-1.safetensors", "");
        assert!(!is_complete(dir.path()));
        put("m-2.safetensors", "");
        assert!(is_complete(dir.path()));
        let head = tempfile::tempdir().unwrap();
        let put_head = |name: &str, text: &str| fs::write(head.path().join(name), text).unwrap();
        put_head(TORCH, "");
        put_head(CONFIG, "{}");
        assert!(!is_complete(head.path()), "a model needs a tokenizer, and other weights");
        put_head(CONFIG, r#"{"draft_vocab_size": 32000}"#);
        assert!(is_complete(head.path()), "a draft head reads its target's tokens");
        fs::rename(head.path().join(TORCH), head.path().join(SINGLE)).unwrap();
        put_head(CONFIG, r#"{"model_type": "gemma4_unified_assistant"}"#);
        assert!(is_complete(head.path()), "and so does an assistant");
        for bad in ["[]", "{\"weight_map\": {}}", "{\"weight_map\": {\"a\": \"../x.safetensors\"}}", "x"] {
            put(INDEX, bad);
            assert!(!is_complete(dir.path()), "{bad}");
        }
        put(SINGLE, "");
        assert!(is_complete(dir.path()), "one file is enough, even if the index is damaged");
    }

    #[test]
    fn what_is_no_recommended_file_is_deleted_or_said_to_stay() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str| {
            let file = dir.path().join(name);
            fs::write(&file, "GGUF").unwrap();
            file
        };
        let file = put("copied.gguf");
        discard(&file).unwrap();
        assert!(!file.exists());
        #[cfg(unix)]
        {
            let (contents, link) = (put("contents"), dir.path().join("link.gguf"));
            std::os::unix::fs::symlink(&contents, &link).unwrap();
            discard(&link).unwrap();
            assert!(!contents.exists() && link.symlink_metadata().is_err());
        }
        let stays = dir.path().join("folder.gguf");
        fs::create_dir(&stays).unwrap();
        discard(&stays).unwrap_err();
    }

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    /// A hub with one repository. It notes what it is asked for and breaks off after `limit` bytes.
    struct Mirror {
        endpoint: String,
        asked: Arc<Mutex<Vec<String>>>,
        limit: Arc<AtomicUsize>,
        /// Commit and tag that it answers with instead of the right ones.
        lies: Arc<Mutex<Option<[&'static str; 2]>>>,
    }

    fn files() -> Vec<(&'static str, Vec<u8>)> {
        let index = r#"{"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}}"#;
        let large = || (0..200_000u32).map(|i| (i % 251) as u8).collect();
        vec![
            (CONFIG, b"{}".to_vec()),
            ("tokenizer.json", b"{}".to_vec()),
            (INDEX, index.into()),
            ("m-1.safetensors", large()),
            ("m-2.safetensors", large()),
            ("other.gguf", b"GGUF".to_vec()),
            ("generation_config.json", b"{}".to_vec()),
            ("chat_template.jinja", b"{{ bos_token }}".to_vec()),
            ("mtp-other.gguf", b"GGUF that drafts".to_vec()),
        ]
    }

    impl Mirror {
        fn start() -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let endpoint = format!("http://{}", listener.local_addr().unwrap());
            let limit = Arc::new(AtomicUsize::new(usize::MAX));
            let mirror = Self { endpoint, asked: Arc::default(), limit, lies: Arc::default() };
            let (asked, limit, lies) = (Arc::clone(&mirror.asked), Arc::clone(&mirror.limit), Arc::clone(&mirror.lies));
            thread::spawn(move || {
                for stream in listener.incoming().map_while(Result::ok) {
                    answer(stream, &asked, limit.load(Ordering::SeqCst), *lies.lock().unwrap());
                }
            });
            mirror
        }

        fn repos(&self, dir: &Path, off: Option<&str>) -> Repos {
            let hub = Hub::new(Some(self.endpoint.clone()), off.map(str::to_owned));
            Repos::new(hub, dir.join("hub"), Some("secret".to_owned()))
        }

        fn resolve(&self, dir: &Path, name: &str) -> Result<PathBuf, String> {
            let name = RepoName::parse(name).unwrap();
            self.repos(dir, None).resolve(&name, &mut ()).map_err(|error| error.to_string())
        }
    }

    fn answer(mut stream: TcpStream, asked: &Mutex<Vec<String>>, limit: usize, lies: Option<[&str; 2]>) {
        let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
        let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
        let Some(first) = head.first() else { return }; // a connection without a request: the reachability check
        let path = first.split(' ').nth(1).unwrap().to_owned();
        let field = |name: &str| head.iter().find_map(|line| line.to_lowercase().strip_prefix(name).map(str::to_owned));
        asked.lock().unwrap().push(format!("{path} {}", field("authorization: ").unwrap_or_default()));
        let say = |stream: &mut TcpStream, status: &str, body: &[u8]| {
            let _ = write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            let _ = stream.write_all(body);
        };
        if path == "/api/models/owner/name" || path.starts_with("/api/models/owner/name/revision/") {
            let siblings: Vec<_> = files().iter().map(|(name, _)| serde_json::json!({"rfilename": name})).collect();
            let body = serde_json::json!({"sha": COMMIT, "siblings": siblings}).to_string();
            return say(&mut stream, "200 OK", body.as_bytes());
        }
        let file = path.strip_prefix(&format!("/owner/name/resolve/{COMMIT}/")).map(str::to_owned);
        let Some((_, all)) = files().into_iter().find(|(name, _)| Some(*name) == file.as_deref()) else {
            return say(&mut stream, "404 Not Found", b"");
        };
        let range = field("range: bytes=").unwrap_or_else(|| "0-".to_owned());
        let (from, to) = range.split_once('-').unwrap();
        let from: usize = from.parse().unwrap();
        let to = to.parse().map_or(all.len(), |last: usize| last + 1);
        // large files are tagged by their sha256, others by something else
        let file = file.unwrap_or_default();
        let tag = if file.ends_with(".safetensors") { check::hex(&Sha256::digest(&all)) } else { file };
        let [commit, tag] = lies.unwrap_or([COMMIT, &tag]);
        let _ = write!(
            stream,
            "HTTP/1.1 206 Partial\r\nx-repo-commit: {commit}\r\netag: \"{tag}\"\r\nContent-Range: bytes {from}-{}/{}\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            to - 1,
            all.len(),
            to - from
        );
        let _ = stream.write_all(&all[from..to.min(from.saturating_add(limit))]);
    }

    #[test]
    fn a_repository_is_fetched_whole_and_then_used_offline() {
        let (dir, mirror) = (tempfile::tempdir().unwrap(), Mirror::start());
        mirror.limit.store(150_000, Ordering::SeqCst);
        let error = mirror.resolve(dir.path(), "owner/name").unwrap_err();
        assert!(error.contains("the next try resumes there"), "{error}");
        mirror.limit.store(usize::MAX, Ordering::SeqCst);
        let folder = mirror.resolve(dir.path(), "owner/name").unwrap();
        for (name, contents) in files().iter().filter(|(name, _)| !name.ends_with(".gguf")) {
            assert_eq!(&fs::read(folder.join(name)).unwrap(), contents, "{name}");
        }
        assert!(!folder.join("other.gguf").exists() && folder.ends_with(COMMIT));
        let asked = mirror.asked.lock().unwrap().split_off(0);
        assert!(asked.iter().all(|line| line.ends_with("bearer secret")), "{asked:?}");
        // offline, by the branch and by the commit
        for name in ["owner/name".to_owned(), format!("owner/name@{COMMIT}")] {
            let offline = mirror.repos(dir.path(), Some("HF_HUB_OFFLINE is set"));
            assert_eq!(offline.resolve(&RepoName::parse(&name).unwrap(), &mut ()).unwrap(), folder);
        }
        assert!(mirror.asked.lock().unwrap().is_empty());
    }

    /// Collects the steps.
    #[derive(Default)]
    struct Steps(Vec<String>);

    impl Progress for Steps {
        fn step(&mut self, text: &str) {
            self.0.push(text.to_owned());
        }
        fn bytes(&mut self, _done: u64, _total: u64) {}
        fn end(&mut self) {}
    }

    #[test]
    fn small_files_that_another_program_did_not_fetch_are_fetched_once() {
        let (dir, mirror) = (tempfile::tempdir().unwrap(), Mirror::start());
        let folder = mirror.resolve(dir.path(), "owner/name").unwrap();
        let forget = || {
            for file in ["generation_config.json", "chat_template.jinja"] {
                fs::remove_file(folder.join(file)).unwrap();
            }
            fs::remove_dir_all(folder.parent().unwrap().parent().unwrap().join(".no_exist")).unwrap();
            mirror.asked.lock().unwrap().clear();
        };
        let name = RepoName::parse("owner/name").unwrap();
        let pull =
            |off: Option<&str>, steps: &mut Steps| mirror.repos(dir.path(), off).pull(&name, false, steps).unwrap();
        forget();
        assert_eq!(pull(None, &mut Steps::default()), (folder.clone(), true));
        assert_eq!(fs::read(folder.join("chat_template.jinja")).unwrap(), b"{{ bos_token }}");
        let asked = mirror.asked.lock().unwrap().split_off(0);
        assert!(!asked.iter().any(|line| line.contains(".safetensors") || line.contains("/tokenizer")), "{asked:?}");
        // those that the repository does not have are not asked for again
        assert_eq!(pull(None, &mut Steps::default()), (folder.clone(), false));
        assert!(mirror.asked.lock().unwrap().is_empty());
        forget();
        let mut steps = Steps::default();
        assert_eq!(pull(Some("HF_HUB_OFFLINE is set"), &mut steps), (folder.clone(), false));
        let [step] = &steps.0[..] else { panic!("{:?}", steps.0) };
        assert_eq!(
            step,
            "owner/name is used without generation_config.json, tokenizer_config.json, chat_template.jinja, \
             chat_template.json, which it may contain: the hub was not asked, because HF_HUB_OFFLINE is set"
        );
    }

    #[test]
    fn of_two_simultaneous_requests_one_fetches() {
        let (dir, mirror) = (tempfile::tempdir().unwrap(), Mirror::start());
        let [first, second] = thread::scope(|scope| {
            let both = [(); 2].map(|()| scope.spawn(|| mirror.resolve(dir.path(), "owner/name").unwrap()));
            both.map(|asked| asked.join().unwrap())
        });
        assert_eq!(first, second);
        let asked = mirror.asked.lock().unwrap();
        let times = |what: &str| asked.iter().filter(|line| line.contains(what)).count();
        assert_eq!((times("/api/models/"), times("m-1.safetensors")), (1, 2), "{asked:?}");
    }

    #[test]
    fn a_forced_pull_replaces_only_files_that_differ_from_the_hubs() {
        let (dir, mirror) = (tempfile::tempdir().unwrap(), Mirror::start());
        let folder = mirror.resolve(dir.path(), "owner/name").unwrap();
        let damage = |name: &str, bytes: &[u8]| fs::write(fs::canonicalize(folder.join(name)).unwrap(), bytes).unwrap();
        damage("m-1.safetensors", &[7; 200_000]);
        damage("tokenizer.json", b"");
        fs::remove_file(folder.join(CONFIG)).unwrap();
        fs::write(folder.join(CONFIG), "no link").unwrap();
        assert_eq!(mirror.resolve(dir.path(), "owner/name").unwrap(), folder, "without force nothing is read");
        mirror.asked.lock().unwrap().clear();
        let name = RepoName::parse("owner/name").unwrap();
        let (again, fetched) = mirror.repos(dir.path(), None).pull(&name, true, &mut ()).unwrap();
        assert!(again == folder && fetched);
        for (name, contents) in files().iter().filter(|(name, _)| !name.ends_with(".gguf")) {
            assert_eq!(&fs::read(folder.join(name)).unwrap(), contents, "{name}");
        }
        let asked = mirror.asked.lock().unwrap();
        let times = |name: &str| asked.iter().filter(|line| line.contains(name)).count();
        assert_eq!((times("m-1.safetensors"), times("m-2.safetensors")), (2, 1), "{asked:?}");
    }

    /// A recommended model in the mirror with these digests of its file and its drafter's.
    fn recommended([own, drafts]: [&str; 2]) -> RecommendedModel {
        let draft = RecommendedDraft {
            repository: "owner/name".into(),
            file: Some("mtp-other.gguf".into()),
            bytes: 16,
            sha256: Some(drafts.to_owned()),
            architecture: "qwen35".into(),
            unverified: Vec::new(),
        };
        RecommendedModel {
            name: "other".into(),
            about: "a model and its drafter".into(),
            repository: "owner/name".into(),
            file: Some("other.gguf".into()),
            bytes: 4,
            sha256: Some(own.to_owned()),
            architecture: "qwen35".into(),
            license: "MIT".into(),
            reads: 1.0,
            drafter: RecommendedDrafter::Mtp,
            draft: Some(draft),
            unverified: Vec::new(),
        }
    }

    #[test]
    fn a_recommended_model_and_its_drafter_are_fetched_and_the_digests_of_both_checked() {
        let (dir, mirror) = (tempfile::tempdir().unwrap(), Mirror::start());
        let (cache, repos) = (Cache::at(dir.path().join("models")), mirror.repos(dir.path(), None));
        let store = Store { cache, sources: Vec::new(), repos };
        let pull = |model: &RecommendedModel| store.pull_recommended(model, PullOptions::default(), &mut ());
        let contents = |name: &str| files().into_iter().find(|(file, _)| *file == name).unwrap().1;
        let [own, drafts] = ["other.gguf", "mtp-other.gguf"].map(|name| check::hex(&Sha256::digest(contents(name))));
        let wrong = "0".repeat(64);
        for (digests, file, left) in
            [([&wrong, &drafts], "other.gguf", [false, false]), ([&own, &wrong], "mtp-other.gguf", [true, false])]
        {
            let model = recommended(digests.map(String::as_str));
            let error = pull(&model).unwrap_err().to_string();
            assert!(error.contains(&format!("{file} is not the file that this version recommends")), "{error}");
            assert_eq!(store.fetched(&model).map(|path| path.is_some()), left, "{file}");
        }
        let model = recommended([&own, &drafts]);
        let pulled = pull(&model).unwrap();
        let drafter = pulled.drafter.unwrap();
        assert_eq!((pulled.entry.name.as_str(), pulled.source), ("other", Some(SourceKind::Hub)));
        assert_eq!(fs::read(&pulled.entry.file).unwrap(), contents("other.gguf"));
        assert_eq!(fs::read(&drafter).unwrap(), contents("mtp-other.gguf"));
        assert_eq!(store.fetched(&model), [Some(pulled.entry.file), Some(drafter)]);
        mirror.asked.lock().unwrap().clear();
        assert_eq!(pull(&model).unwrap().source, None, "what is there is not fetched again");
        assert!(mirror.asked.lock().unwrap().is_empty());
    }

    #[test]
    fn leftovers_that_cannot_be_resumed_are_replaced() {
        let (dir, mirror) = (tempfile::tempdir().unwrap(), Mirror::start());
        let large = files()[3].1.clone();
        let blobs = dir.path().join("hub").join("models--owner--name").join("blobs");
        let part = blobs.join(check::hex(&Sha256::digest(&large))).with_extension("part");
        for leftover in [vec![1; 200_000], vec![1; 200_001], vec![1; 10]] {
            let _ = fs::remove_dir_all(dir.path().join("hub"));
            fs::create_dir_all(&blobs).unwrap();
            fs::write(&part, &leftover).unwrap();
            let first = mirror.resolve(dir.path(), "owner/name");
            if leftover.len() < 200_000 {
                // its beginning is wrong, which only the digest shows
                assert!(first.unwrap_err().contains("its sha256 differs"));
            }
            let folder = mirror.resolve(dir.path(), "owner/name").unwrap();
            assert_eq!(fs::read(folder.join("m-1.safetensors")).unwrap(), large);
            // a link to nowhere is no file
            fs::remove_file(fs::canonicalize(folder.join("m-1.safetensors")).unwrap()).unwrap();
            mirror.resolve(dir.path(), "owner/name").unwrap();
            assert_eq!(fs::read(folder.join("m-1.safetensors")).unwrap(), large);
        }
    }

    #[test]
    fn names_that_lead_out_of_the_cache_are_rejected() {
        let outside = tempfile::tempdir().unwrap();
        let aim: &'static str = Box::leak(outside.path().join("x").display().to_string().into_boxed_str());
        for lies in
            [[COMMIT, "../../../../x"], [COMMIT, aim], [COMMIT, ".."], [COMMIT, ""], ["../../x", "e"], [aim, "e"]]
        {
            let (dir, mirror) = (tempfile::tempdir().unwrap(), Mirror::start());
            *mirror.lies.lock().unwrap() = Some(lies);
            let error = mirror.resolve(dir.path(), "owner/name").unwrap_err();
            assert!(error.contains("it answers with"), "{error}");
            let there: Vec<_> = fs::read_dir(dir.path().join("hub")).unwrap().map(|e| e.unwrap().file_name()).collect();
            assert!(there == [".locks"] && fs::read_dir(dir.path()).unwrap().count() == 1, "{lies:?}: {there:?}");
            assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0, "{lies:?}");
        }
    }

    #[test]
    fn a_repository_without_a_model_is_rejected() {
        let says = |files: &[&str]| {
            let siblings = files.iter().map(|file| Sibling { name: (*file).to_owned(), size: None });
            no_folder(&siblings.collect::<Vec<_>>())
        };
        assert_eq!(says(&[CONFIG, "model.onnx"]), "the repository has no model.safetensors and no GGUF files");
        assert_eq!(says(&["README.md"]), "it has no config.json and no GGUF files, so it is no model");
    }

    #[test]
    fn weights_of_an_unsupported_model_are_not_fetched() {
        let (dir, mirror) = (tempfile::tempdir().unwrap(), Mirror::start());
        let mut repos = mirror.repos(dir.path(), None);
        repos.preflight = Some(|folder| {
            assert!(folder.join(CONFIG).is_file() && folder.join(TOKENIZER).is_file());
            Err("it is a Gemma".to_owned())
        });
        let error = repos.resolve(&RepoName::parse("owner/name").unwrap(), &mut ()).unwrap_err().to_string();
        assert!(error.ends_with("from the Hugging Face Hub: it is a Gemma"), "{error}");
        assert!(!mirror.asked.lock().unwrap().iter().any(|line| line.contains("safetensors")));
    }

    #[test]
    fn one_file_is_fetched_alone_and_a_missing_one_is_reported() {
        let (dir, mirror) = (tempfile::tempdir().unwrap(), Mirror::start());
        let file = mirror.resolve(dir.path(), "owner/name/other.gguf").unwrap();
        assert_eq!(fs::read(file).unwrap(), b"GGUF");
        let says = |name: &str| mirror.resolve(dir.path(), name).unwrap_err();
        let none = says("owner/name/none.gguf");
        assert!(none.ends_with("the repository has no file 'none.gguf'; its GGUF files are other.gguf"), "{none}");
        assert!(says("owner/name:Q4_K_M").ends_with("no GGUF file of type Q4_K_M; its GGUF files are other.gguf"));
        assert!(says("owner/nothing").contains("that your token may read it"));
        let offline = mirror.repos(dir.path(), Some("HF_HUB_OFFLINE is set"));
        let error = offline.resolve(&RepoName::parse("owner/other").unwrap(), &mut ()).unwrap_err().to_string();
        assert!(error.contains("not asked, because HF_HUB_OFFLINE is set; go online once"), "{error}");
    }
}
