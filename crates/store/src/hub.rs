//! Files from the Hugging Face Hub, or a mirror of it.
//!
//! Invariant: an unreachable hub costs only seconds: a connection with a time limit is tried first, and every wait has
//! one. A token goes to the hub alone. [`super::hub_file`] gets a file, [`super::hub_cache`] says where it is kept.

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::Duration;

use draftscope_http::{Access, Client, HttpError, Patience, has_proxy};

use super::cache::RESUMABLE;
use super::error::SourceError;
use super::fetch::{Delivery, ModelSource};
use super::hub_cache::{HubCache, HubRepo, RepoInfo, is_commit};
use super::hub_file::HubFile;
use super::known_model::KnownModel;
use super::progress::Progress;
use super::reach;
use super::source_kind::SourceKind;

/// Address of the hub, unless `HF_ENDPOINT` names another.
const ENDPOINT: &str = "https://huggingface.co";

/// The longest wait at each stage.
const PATIENCE: Patience =
    Patience { connect: Duration::from_secs(4), answer: Duration::from_secs(20), silence: Duration::from_secs(30) };

/// The hub, or a mirror of it.
pub(super) struct Hub {
    endpoint: String,
    /// With a proxy the hub's own address need not be reachable, so no connection is tried.
    has_proxy: bool,
    patience: Patience,
    /// Why the hub must not be used, if so.
    off: Option<String>,
}

impl Hub {
    /// The hub at this endpoint, or the public one.
    pub(super) fn new(endpoint: Option<String>, off: Option<String>) -> Self {
        let endpoint = endpoint.unwrap_or_else(|| ENDPOINT.to_owned());
        Self {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            has_proxy: has_proxy(&endpoint),
            patience: PATIENCE,
            off,
        }
    }

    fn reach(&self) -> Result<(), SourceError> {
        let Some((host, port)) = reach::host_and_port(&self.endpoint) else {
            let message = format!("'{}' is no http or https address; check HF_ENDPOINT", self.endpoint);
            return Err(SourceError::Unreachable(message));
        };
        if self.has_proxy {
            return Ok(());
        }
        reach::connect(&host, port, self.patience.connect)
            .map_err(|why| SourceError::Unreachable(format!("cannot reach {host}: {why}")))
    }

    /// As messages name it.
    pub(super) fn name(&self) -> &str {
        match self.endpoint.as_str() {
            ENDPOINT => "the Hugging Face Hub",
            other => other.rsplit('@').next().unwrap_or_default(), // not its password
        }
    }

    /// Checks that the hub may be used and is reachable.
    pub(super) fn ready(&self) -> Result<(), SourceError> {
        match &self.off {
            Some(why) => Err(SourceError::Off(why.clone())),
            None => self.reach(),
        }
    }

    fn client(&self, token: Option<&str>) -> Result<Client, SourceError> {
        let headers = token.map(|token| ("authorization".to_owned(), format!("Bearer {token}")));
        let access = Access { headers: headers.into_iter().collect(), ..Access::default() };
        Client::new(&self.endpoint, access, self.patience).map_err(|error| match error {
            HttpError::Credentials => {
                SourceError::Unreachable("HF_ENDPOINT must not contain a password; set HF_TOKEN instead".to_owned())
            }
            error => error.into(),
        })
    }

    /// The files of a repository, and its commit.
    pub(super) fn info(&self, repo: &HubRepo, token: Option<&str>) -> Result<RepoInfo, SourceError> {
        self.described(&repo.info_path(), token)
    }

    /// The same with the sizes of files.
    pub(super) fn info_with_sizes(&self, repo: &HubRepo, token: Option<&str>) -> Result<RepoInfo, SourceError> {
        self.described(&format!("{}?blobs=true", repo.info_path()), token)
    }

    fn described(&self, path: &str, token: Option<&str>) -> Result<RepoInfo, SourceError> {
        let answer = self.client(token)?.get_json(path)?;
        let info: RepoInfo = serde_json::from_value(answer)
            .map_err(|_| SourceError::Failed("its answer is no description of a repository".to_owned()))?;
        if !is_commit(&info.sha) {
            return Err(SourceError::Failed("its answer names no commit".to_owned()));
        }
        Ok(info)
    }

    /// One file of a repository at a commit, in the hub's own cache; resumes an earlier download. A file that is
    /// there already is used as it is, or with `force` only if it equals the hub's.
    pub(super) fn get(
        &self,
        (repo, file, force): (&HubRepo, &str, bool),
        (cache, token): (&HubCache, Option<&str>),
        progress: &mut dyn Progress,
    ) -> Result<PathBuf, SourceError> {
        let there = cache.snapshot(repo, repo.revision()).join(file);
        if there.is_file() && !force {
            return Ok(there);
        }
        let client = self.client(token)?;
        let got = HubFile { client: &client, cache, repo, file }.fetch(progress);
        progress.end();
        got
    }
}

impl ModelSource for Hub {
    fn kind(&self) -> SourceKind {
        SourceKind::Hub
    }

    fn place(&self, model: &KnownModel) -> String {
        format!("{} ({})", self.name(), model.hub.repo)
    }

    fn fetch(&self, model: &KnownModel, to: &mut Delivery<'_>) -> Result<(), SourceError> {
        self.ready()?;
        let dir = to.scratch.join(RESUMABLE);
        let repo = HubRepo::new(model.hub.repo, model.hub.revision);
        let (client, cache) = (self.client(None)?, HubCache::new(dir.clone()));
        let file = HubFile { client: &client, cache: &cache, repo: &repo, file: model.hub.file };
        let file = file.fetch(&mut *to.progress)?;
        let opened = File::open(&file).map_err(|error| SourceError::Failed(error.to_string()));
        let taken = opened.and_then(|mut file| to.take(&mut file));
        let _ = fs::remove_dir_all(&dir); // accepted or not, it is never resumed
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::{TcpListener, TcpStream};
    use std::path::Path;
    use std::sync::{Arc, Mutex};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::super::tests::{contents, store, tiny};
    use super::super::{PullOptions, Store};
    use super::*;

    /// For a hub that answers: far longer than it needs.
    const LONG: Patience = Patience {
        connect: Duration::from_secs(60),
        answer: Duration::from_secs(60),
        silence: Duration::from_secs(60),
    };

    /// A hub in this process that speaks as much HTTP as is asked of it. `limit` is how many
    /// bytes of the file a connection carries; the requested ranges are noted.
    struct Mirror {
        endpoint: String,
        limit: Arc<Mutex<usize>>,
        ranges: Arc<Mutex<Vec<String>>>,
        patience: Patience,
    }

    impl Mirror {
        fn start(limit: usize) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mirror = Self {
                endpoint: format!("http://{}", listener.local_addr().unwrap()),
                limit: Arc::new(Mutex::new(limit)),
                ranges: Arc::default(),
                patience: LONG,
            };
            let (limit, ranges) = (Arc::clone(&mirror.limit), Arc::clone(&mirror.ranges));
            thread::spawn(move || {
                for stream in listener.incoming().map_while(Result::ok) {
                    let (limit, ranges) = (*limit.lock().unwrap(), Arc::clone(&ranges));
                    thread::spawn(move || answer(stream, limit, &ranges));
                }
            });
            mirror
        }

        fn store(&self, dir: &Path) -> Store {
            let hub = Hub { has_proxy: false, patience: self.patience, ..Hub::new(Some(self.endpoint.clone()), None) };
            store(dir, hub)
        }

        fn pull(&self, dir: &Path) -> Result<(), String> {
            let pulled = self.store(dir).pull_known(&tiny(), PullOptions::default(), &mut ());
            pulled.map(drop).map_err(|error| error.to_string())
        }
    }

    fn answer(mut stream: TcpStream, limit: usize, ranges: &Mutex<Vec<String>>) {
        let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
        let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
        let range = head.iter().find_map(|line| line.to_lowercase().strip_prefix("range: bytes=").map(str::to_owned));
        let (Some(range), false) = (range, limit == 0) else {
            thread::sleep(Duration::from_secs(60)); // silent
            return;
        };
        ranges.lock().unwrap().push(range.clone());
        let (all, (from, to)) = (contents(), range.split_once('-').unwrap());
        let from: usize = from.parse().unwrap();
        let to = to.parse().map_or(all.len(), |last: usize| last + 1);
        if from >= all.len() {
            let _ = write!(stream, "HTTP/1.1 416 Range\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            return;
        }
        let _ = write!(
            stream,
            "HTTP/1.1 206 Partial\r\nx-repo-commit: {}\r\netag: \"e\"\r\nContent-Range: bytes {from}-{}/{}\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            tiny().hub.revision,
            to - 1,
            all.len(),
            to - from
        );
        let _ = stream.write_all(&all[from..to.min(from.saturating_add(limit))]);
    }

    #[test]
    fn a_file_comes_whole() {
        let dir = tempfile::tempdir().unwrap();
        let mirror = Mirror::start(usize::MAX);
        mirror.pull(dir.path()).unwrap();
        assert_eq!(fs::read(dir.path().join("models/tiny.gguf")).unwrap(), contents());
        assert!(!mirror.store(dir.path()).cache().scratch().exists());
    }

    #[test]
    fn an_interrupted_download_is_resumed() {
        let dir = tempfile::tempdir().unwrap();
        let mirror = Mirror::start(300_000);
        mirror.pull(dir.path()).unwrap_err();
        assert!(!dir.path().join("models/tiny.gguf").exists());
        *mirror.limit.lock().unwrap() = usize::MAX;
        mirror.pull(dir.path()).unwrap();
        assert_eq!(fs::read(dir.path().join("models/tiny.gguf")).unwrap(), contents());
        let asked = mirror.ranges.lock().unwrap();
        assert_eq!(asked.iter().filter(|range| *range != "0-0").collect::<Vec<_>>(), ["0-", "300000-"]);
    }

    #[test]
    fn a_leftover_that_cannot_be_resumed_is_replaced() {
        for leftover in [tiny().bytes, tiny().bytes + 1] {
            let dir = tempfile::tempdir().unwrap();
            let mirror = Mirror::start(usize::MAX);
            let blobs = HubCache::new(mirror.store(dir.path()).cache().scratch().join(RESUMABLE));
            let blob = blobs.blob(&HubRepo::new(tiny().hub.repo, "main"), "e");
            fs::create_dir_all(blob.parent().unwrap()).unwrap();
            fs::write(blob.with_extension("part"), vec![0; usize::try_from(leftover).unwrap()]).unwrap();
            mirror.pull(dir.path()).unwrap();
            assert_eq!(fs::read(dir.path().join("models/tiny.gguf")).unwrap(), contents());
        }
    }

    #[test]
    fn a_silent_hub_is_abandoned() {
        let dir = tempfile::tempdir().unwrap();
        let started = Instant::now();
        let patience = Patience { answer: Duration::from_secs(2), ..LONG };
        let error = Mirror { patience, ..Mirror::start(0) }.pull(dir.path()).unwrap_err();
        assert!(error.contains("no answer for 2 s"), "{error}");
        assert!(started.elapsed() < Duration::from_secs(50), "well before the server would end");
    }

    #[test]
    fn an_unreachable_hub_and_a_forbidden_one_fail_quickly() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let hub = |endpoint: &str, off: Option<&str>| Hub {
            has_proxy: false,
            ..Hub::new(Some(endpoint.to_owned()), off.map(str::to_owned))
        };
        let says = |hub: Hub| {
            let dir = tempfile::tempdir().unwrap();
            let store = store(dir.path(), hub);
            store.pull_known(&tiny(), PullOptions::default(), &mut ()).unwrap_err().to_string()
        };
        let started = Instant::now();
        let refused = says(hub(&format!("http://{free}"), None));
        assert!(refused.contains("cannot reach 127.0.0.1: "), "{refused}");
        assert!(says(hub("ftp://x", None)).contains("'ftp://x' is no http or https address"));
        let off = says(hub("http://x", Some("HF_HUB_OFFLINE is set")));
        assert!(off.contains("not asked, because HF_HUB_OFFLINE is set"), "{off}");
        assert!(started.elapsed() < Duration::from_secs(60));
    }
}
