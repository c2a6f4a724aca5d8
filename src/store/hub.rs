//! Files from the Hugging Face Hub, through `hf-hub`.
//!
//! Invariant: an unreachable hub costs only seconds. `hf-hub` sets no time limits, so a connection
//! with a time limit is tried first, and the download runs on a thread that is abandoned after too
//! long a silence. An interrupted download stays in the scratch directory, where `hf-hub` resumes
//! it.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use hf_hub::api::RepoInfo;
use hf_hub::api::sync::{Api, ApiBuilder, ApiError, Metadata};
use hf_hub::{Cache, Repo, RepoType};

use super::catalog::{HubPlace, KnownModel};
use super::check;
use super::error::SourceError;
use super::fetch::{Delivery, ModelSource, RESUMABLE, SourceKind};
use super::progress::Progress;

/// Address of the hub, unless `HF_ENDPOINT` names another.
const ENDPOINT: &str = "https://huggingface.co";

/// The longest silence at each stage.
#[derive(Clone, Copy)]
struct Patience {
    /// From name lookup to an open connection.
    connect: Duration,
    /// From there to the size of the file.
    answer: Duration,
    /// Between two pieces of the file.
    stall: Duration,
}

const PATIENCE: Patience =
    Patience { connect: Duration::from_secs(4), answer: Duration::from_secs(20), stall: Duration::from_secs(30) };

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
        let names = ["ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY"];
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let endpoint = endpoint.unwrap_or_else(|| ENDPOINT.to_owned());
        Self {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            has_proxy: names.iter().any(|name| is_set(name) || is_set(&name.to_lowercase())),
            patience: PATIENCE,
            off,
        }
    }

    fn reach(&self) -> Result<(), SourceError> {
        let Some((host, port)) = host_and_port(&self.endpoint) else {
            let message = format!("'{}' is no http or https address; check HF_ENDPOINT", self.endpoint);
            return Err(SourceError::Unreachable(message));
        };
        if self.has_proxy {
            return Ok(());
        }
        connect(&host, port, self.patience.connect)
            .map_err(|why| SourceError::Unreachable(format!("cannot reach {host}: {why}")))
    }

    fn download(&self, what: Wanted, progress: &mut dyn Progress) -> Result<PathBuf, String> {
        let (sender, events) = mpsc::channel();
        let endpoint = self.endpoint.clone();
        let download = move || {
            let done = load(what, endpoint, Reporter(sender.clone()));
            let _ = sender.send(DownloadEvent::Done(done));
        };
        let spawned = thread::Builder::new().name("hub".to_owned()).spawn(download);
        spawned.map_err(|error| error.to_string())?;
        await_download(&events, self.patience, progress)
    }

    /// As messages name it.
    pub(super) fn name(&self) -> &str {
        match self.endpoint.as_str() {
            ENDPOINT => "the Hugging Face Hub",
            other => other,
        }
    }

    /// Checks that the hub may be used and is reachable.
    pub(super) fn ready(&self) -> Result<(), SourceError> {
        match &self.off {
            Some(why) => Err(SourceError::Off(why.clone())),
            None => self.reach(),
        }
    }

    /// The files of a repository, and its commit.
    pub(super) fn info(&self, repo: Repo, (cache, token): (&Cache, Option<String>)) -> Result<RepoInfo, SourceError> {
        let (sender, answer) = mpsc::channel();
        let api = ApiBuilder::from_cache(cache.clone()).with_token(token).with_endpoint(self.endpoint.clone()).build();
        let api = api.map_err(|error| SourceError::Failed(error.to_string()))?;
        thread::spawn(move || sender.send(api.repo(repo).info()));
        match answer.recv_timeout(self.patience.answer) {
            Ok(Ok(info)) if is_commit(&info.sha) => Ok(info),
            Ok(Ok(_)) => Err(SourceError::Failed("its answer names no commit".to_owned())),
            Ok(Err(error)) => Err(SourceError::Failed(error.to_string())),
            Err(_) => Err(SourceError::Failed(format!("no answer for {} s", self.patience.answer.as_secs_f32()))),
        }
    }

    /// One file of a repository at a commit, in the hub's own cache; resumes an earlier download. A file that is
    /// there already is used as it is, or with `force` only if it equals the hub's.
    pub(super) fn get(
        &self,
        (repo, file, force): (&Repo, &str, bool),
        (cache, token): (&Cache, Option<String>),
        progress: &mut dyn Progress,
    ) -> Result<PathBuf, SourceError> {
        let there = cache.repo(repo.clone()).pointer_path(repo.revision()).join(file);
        if there.is_file() && !force {
            return Ok(there);
        }
        let wanted = Wanted { repo: repo.clone(), file: file.to_owned(), cache: cache.clone(), token };
        let got = self.download(wanted, progress);
        progress.end();
        got.map_err(SourceError::Failed)
    }
}

/// A file to fetch, and where to keep it.
struct Wanted {
    repo: Repo,
    file: String,
    cache: Cache,
    token: Option<String>,
}

impl Wanted {
    fn of_known_model(place: &HubPlace, dir: &Path) -> Self {
        Self {
            repo: Repo::with_revision(place.repo.to_owned(), RepoType::Model, place.revision.to_owned()),
            file: place.file.to_owned(),
            cache: Cache::new(dir.to_owned()),
            token: None,
        }
    }
}

/// Whether this can be a commit. It becomes part of a path, so nothing else may pass.
fn is_commit(sha: &str) -> bool {
    (7..=64).contains(&sha.len()) && sha.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether this can be a tag (etag), which becomes the name of a blob.
fn is_tag(tag: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    (1..=128).contains(&tag.len()) && !tag.starts_with('.') && tag.chars().all(fits)
}

/// The sha256 of a large file, which the hub uses as its tag. Small files have another kind of tag.
fn digest(tag: &str) -> Option<&str> {
    (tag.len() == 64 && tag.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(tag)
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
        let file = self.download(Wanted::of_known_model(&model.hub, &dir), to.progress).map_err(SourceError::Failed)?;
        let opened = File::open(&file).map_err(|error| SourceError::Failed(error.to_string()));
        let taken = opened.and_then(|mut file| to.take(&mut file));
        let _ = fs::remove_dir_all(&dir); // accepted or not, it is never resumed
        taken
    }
}

/// What the thread of a download reports.
enum DownloadEvent {
    /// Size of the file.
    Size(u64),
    /// This many more bytes have arrived.
    More(u64),
    Done(Result<PathBuf, String>),
}

/// Reports `hf-hub`'s progress.
struct Reporter(Sender<DownloadEvent>);

impl Reporter {
    /// `hf-hub` cannot be cancelled: once the receiver is gone, its thread sleeps for good instead
    /// of downloading in the background.
    fn report(&self, event: DownloadEvent) {
        if self.0.send(event).is_err() {
            loop {
                thread::park();
            }
        }
    }
}

impl hf_hub::api::Progress for Reporter {
    fn init(&mut self, size: usize, _filename: &str) {
        self.report(DownloadEvent::Size(size as u64));
    }
    fn update(&mut self, size: usize) {
        self.report(DownloadEvent::More(size as u64));
    }
    fn finish(&mut self) {}
}

/// Largest file other than weights that is fetched, in bytes; those that are read are smaller.
const MAX_SIDE_FILE: u64 = 256 << 20;

/// Checks the description of the file before anything is written, because `hf-hub` makes paths of a server's names for
/// file and commit, trusts any file of that name, and cannot resume a part that is as long as the file or longer.
fn load(what: Wanted, endpoint: String, reporter: Reporter) -> Result<PathBuf, String> {
    let Wanted { repo, file, cache, token } = what;
    let builder = ApiBuilder::from_cache(cache.clone()).with_token(token).with_endpoint(endpoint);
    let api = builder.build().map_err(|error| error.to_string())?;
    let heartbeat = Reporter(reporter.0.clone());
    let is_digest = |path: &Path, sha256: &str| {
        let got = check::sha256_watched(path, &mut || heartbeat.report(DownloadEvent::More(0)));
        got.is_ok_and(|got| got == sha256)
    };
    let meta = described(&api, &repo, &file)?;
    let is_weights = [".safetensors", ".gguf", ".bin"].iter().any(|ending| file.ends_with(ending));
    if !is_weights && meta.size() as u64 > MAX_SIDE_FILE {
        return Err(format!("{file} has {} bytes; at most {MAX_SIDE_FILE} are accepted", meta.size()));
    }
    let kept = cache.repo(repo.clone());
    let (blob, place) = (kept.blob_path(meta.etag()), kept.pointer_path(meta.commit_hash()).join(&file));
    let same_size = |path: &Path| fs::metadata(path).is_ok_and(|there| there.len() == meta.size() as u64);
    // without a digest, a file that is there cannot be checked
    if same_size(&place) && digest(meta.etag()).is_some_and(|sha256| is_digest(&place, sha256)) {
        return Ok(place);
    }
    let part = blob.with_extension("part");
    if fs::metadata(&part).is_ok_and(|left| left.len() >= meta.size() as u64) {
        let _ = fs::remove_file(&part);
    }
    if fs::canonicalize(&place).ok() != fs::canonicalize(&blob).ok() || !blob.exists() {
        let _ = fs::remove_file(&place); // a link to nowhere, or to something else
    }
    let path = api.repo(repo).download_with_progress(&file, reporter).map_err(|error| match error {
        ApiError::LockAcquisition(_) => format!("another program is fetching {file}; start again when it is done"),
        error => error.to_string(),
    })?;
    // `whole` reports a short file
    if !same_size(&path) || digest(meta.etag()).is_none_or(|sha256| is_digest(&path, sha256)) {
        return Ok(path);
    }
    drop_file(&path);
    Err("the downloaded file is not the announced one (its sha256 differs)".to_owned())
}

/// The description of a file at the requested commit; its names are safe as parts of paths.
fn described(api: &Api, repo: &Repo, file: &str) -> Result<Metadata, String> {
    let meta = api.metadata(&api.repo(repo.clone()).url(file)).map_err(|error| error.to_string())?;
    let asked = repo.revision();
    if !is_commit(meta.commit_hash()) || (is_commit(asked) && !meta.commit_hash().starts_with(asked)) {
        return Err(format!("it answers with another commit than {asked}"));
    }
    if !is_tag(meta.etag()) {
        return Err("it answers with an invalid tag (etag)".to_owned());
    }
    Ok(meta)
}

/// Removes a file, and what it is a link to.
fn drop_file(path: &Path) {
    let blob = fs::canonicalize(path);
    [Ok(path.to_owned()), blob].into_iter().flatten().for_each(|path| drop(fs::remove_file(path)));
}

fn await_download(
    events: &Receiver<DownloadEvent>,
    patience: Patience,
    progress: &mut dyn Progress,
) -> Result<PathBuf, String> {
    let (mut size, mut done) = (None, 0);
    loop {
        let wait = if size.is_none() { patience.answer } else { patience.stall };
        match events.recv_timeout(wait) {
            Ok(DownloadEvent::Size(bytes)) => {
                size = Some(bytes);
            }
            Ok(DownloadEvent::More(bytes)) => {
                done += bytes;
                progress.bytes(done, size.unwrap_or(0));
            }
            Ok(DownloadEvent::Done(Ok(path))) => return whole(path, size),
            Ok(DownloadEvent::Done(Err(why))) => return Err(why),
            Err(RecvTimeoutError::Disconnected) => return Err("hf-hub gave up".to_owned()),
            Err(RecvTimeoutError::Timeout) => return Err(format!("no answer for {} s", wait.as_secs_f32())),
        }
    }
}

/// Rejects a short file, which a connection leaves that ends early without an error.
fn whole(path: PathBuf, size: Option<u64>) -> Result<PathBuf, String> {
    let have = fs::metadata(&path).map(|meta| meta.len()).ok();
    if size.is_none() || have == size {
        return Ok(path);
    }
    drop_file(&path);
    Err(format!("it delivered {} of {} bytes", have.unwrap_or(0), size.unwrap_or(0)))
}

/// Whether any address of the host accepts a connection within `limit`. The lookup and each connection
/// have their own thread, because a lookup and a series of dead addresses cannot be limited otherwise.
fn connect(host: &str, port: u16, limit: Duration) -> Result<(), String> {
    let (sender, results) = mpsc::channel();
    let name = (host.to_owned(), port);
    thread::spawn(move || match name.to_socket_addrs() {
        Ok(addresses) => addresses.take(8).for_each(|address| try_address(address, limit, sender.clone())),
        Err(error) => {
            let _ = sender.send(Err(error.to_string()));
        }
    });
    let end = Instant::now() + limit;
    let mut last = None;
    loop {
        match results.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(why)) => last = Some(why),
            Err(RecvTimeoutError::Disconnected) => return Err(last.unwrap_or_else(|| "it has no address".to_owned())),
            Err(RecvTimeoutError::Timeout) => return Err(format!("no connection within {} s", limit.as_secs())),
        }
    }
}

fn try_address(address: SocketAddr, limit: Duration, sender: Sender<Result<(), String>>) {
    thread::spawn(move || {
        let opened = TcpStream::connect_timeout(&address, limit);
        let _ = sender.send(opened.map(drop).map_err(|error| error.to_string()));
    });
}

/// `https://host:port/path` → host and port.
fn host_and_port(endpoint: &str) -> Option<(String, u16)> {
    let (port, rest) = match endpoint.split_once("://")? {
        ("https", rest) => (443, rest),
        ("http", rest) => (80, rest),
        _ => return None,
    };
    let authority = rest.split(['/', '?', '#']).next()?;
    let authority = authority.rsplit('@').next()?;
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, digits)) if !digits.ends_with(']') => (host, digits.parse().ok()?),
        _ => (authority, port),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::sync::{Arc, Mutex};

    use super::super::tests::{contents, store, tiny};
    use super::super::{PullOptions, Store};
    use super::*;

    const QUICK: Patience = Patience {
        connect: Duration::from_millis(500),
        answer: Duration::from_secs(2),
        stall: Duration::from_millis(500),
    };

    /// A hub in this process that speaks as much HTTP as `hf-hub` asks for. `limit` is how many
    /// bytes of the file a connection carries; the requested ranges are noted.
    struct Mirror {
        endpoint: String,
        limit: Arc<Mutex<usize>>,
        ranges: Arc<Mutex<Vec<String>>>,
    }

    impl Mirror {
        fn start(limit: usize) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mirror = Self {
                endpoint: format!("http://{}", listener.local_addr().unwrap()),
                limit: Arc::new(Mutex::new(limit)),
                ranges: Arc::default(),
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
            let hub = Hub { has_proxy: false, patience: QUICK, ..Hub::new(Some(self.endpoint.clone()), None) };
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
            let blobs = hf_hub::Cache::new(mirror.store(dir.path()).cache().scratch().join(RESUMABLE));
            let blob = blobs.model(tiny().hub.repo.to_owned()).blob_path("e");
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
        let error = Mirror::start(0).pull(dir.path()).unwrap_err();
        assert!(error.contains("no answer for 2 s"), "{error}");
        assert!(started.elapsed() < Duration::from_secs(10));
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
        assert!(started.elapsed() < Duration::from_secs(3));
    }

    #[test]
    fn endpoints_are_read_as_hosts_and_ports() {
        let cases = [
            ("https://huggingface.co", Some(("huggingface.co", 443))),
            ("http://mirror:8080/hf", Some(("mirror", 8080))),
            ("https://u:p@h/x:y", Some(("h", 443))),
            ("http://[::1]:81", Some(("::1", 81))),
            ("https://[::1]", Some(("::1", 443))),
            ("https://", None),
            ("huggingface.co", None),
            ("https://h:port", None),
        ];
        for (endpoint, expected) in cases {
            let got = host_and_port(endpoint);
            assert_eq!(got.as_ref().map(|(host, port)| (host.as_str(), *port)), expected, "{endpoint}");
        }
    }
}
