//! The GGUF files of a repository: which one is meant, and all its parts.

use std::path::{Path, PathBuf};

use super::error::SourceError;
use super::gguf_choice::{self, Choice};
use super::hub_cache::{HubCache, Sibling};
use super::progress::Progress;
use super::repo::{INDEX, Repos, SINGLE, TORCH};
use super::repo_name::{RepoName, Wanted, is_plain_path};
use super::side;
use super::side::CONFIG;
use super::sidecar::sidecar_kind;

/// Files without which a repository is no model folder.
const OF_FOLDER: [&str; 4] = [CONFIG, SINGLE, INDEX, TORCH];

/// Most files of a snapshot that are looked at, and how deep folders are.
const MOST: usize = 4096;
const DEPTH: usize = 4;

/// A file that was picked, and those that could have been.
struct Picked {
    choice: Choice,
    all: Vec<Choice>,
}

/// The file that is meant among others; none if there is no such file.
fn pick<'a>(files: impl Iterator<Item = (&'a str, Option<u64>)>, wanted: &Wanted) -> Option<Picked> {
    let all = match wanted {
        Wanted::File(file) => gguf_choice::of_file(files, file).into_iter().collect(),
        Wanted::Model => gguf_choice::choices(files),
        Wanted::Type(of_type) => gguf_choice::of_type(gguf_choice::choices(files), of_type),
        Wanted::Under(folder) => {
            let inside = |name: &str| name.strip_prefix(folder.as_str()).is_some_and(|rest| rest.starts_with('/'));
            gguf_choice::choices(files.filter(|(name, _)| inside(name)))
        }
    };
    Some(Picked { choice: all.first()?.clone(), all })
}

/// Names and sizes of a repository's files. What a server names becomes part of a path only if it is plain.
fn sized(siblings: &[Sibling]) -> impl Iterator<Item = (&str, Option<u64>)> {
    siblings.iter().filter(|sibling| is_plain_path(&sibling.name)).map(|sibling| (sibling.name.as_str(), sibling.size))
}

impl Repos {
    /// The file in the cache that is meant, or the first of its parts, if all of them are there.
    pub(super) fn find_gguf(folder: &Path, wanted: &Wanted) -> Option<PathBuf> {
        let is_noted = |file: &str| side::is_noted_absent(folder, file);
        let is_no_folder = || is_noted(CONFIG) || [SINGLE, INDEX, TORCH].into_iter().all(is_noted);
        if *wanted == Wanted::Model && !is_no_folder() {
            return None; // the repository may have a model folder
        }
        let mut files = Vec::new();
        files_below(folder, "", DEPTH, &mut files);
        let picked = pick(files.iter().map(|name| (name.as_str(), None)), wanted)?;
        picked.choice.missing.is_empty().then(|| folder.join(picked.choice.name()))
    }

    /// Fetches the file that is meant with all its parts; returns the path of the first.
    pub(super) fn fetch_gguf(
        &self,
        (name, force): (&RepoName, bool),
        (commit, siblings): (&str, &[Sibling]),
        cache: &HubCache,
        progress: &mut dyn Progress,
    ) -> Result<PathBuf, SourceError> {
        let Picked { choice, all } =
            pick(sized(siblings), &name.wanted).ok_or_else(|| SourceError::Lacks(none(name, siblings)))?;
        if let [first, ..] = choice.missing[..] {
            let (name, missing) = (choice.name(), choice.missing.len());
            return Err(SourceError::Lacks(format!(
                "it has {name} and not all of its parts: {missing} are missing, the first is part {first}"
            )));
        }
        let repo = name.at(commit);
        if all.len() > 1 {
            // sizes come only if they are asked for, and the list is of use without them
            let described = self.describe(&repo).unwrap_or_default();
            let with_sizes = pick(sized(&described), &name.wanted).map_or(all, |picked| picked.all);
            progress.step(&format!(
                "{} has several GGUF files: {}; taking {}, because {}; for another one name its type: {}:TYPE",
                name.id,
                gguf_choice::list(&with_sizes),
                choice.name(),
                gguf_choice::reason(&choice),
                name.id
            ));
        }
        let mut paths = Vec::new();
        for file in &choice.files {
            paths.push(self.get((&repo, file, force), cache, progress)?);
        }
        if name.wanted == Wanted::Model {
            let has = |file: &str| siblings.iter().any(|sibling| sibling.name == file);
            side::note_absent(&cache.snapshot(&repo, commit), &OF_FOLDER, has);
        }
        offer_sidecars(name, siblings, &choice, progress);
        paths.into_iter().next().ok_or_else(|| SourceError::Lacks(none(name, siblings)))
    }
}

/// Why a repository does not have what is meant.
fn none(name: &RepoName, siblings: &[Sibling]) -> String {
    let all = gguf_choice::choices(sized(siblings));
    let others = match all.is_empty() {
        true => "it has no GGUF files".to_owned(),
        false => format!("its GGUF files are {}", gguf_choice::list(&all)),
    };
    match &name.wanted {
        Wanted::File(file) => format!("the repository has no file '{file}'; {others}"),
        Wanted::Type(of_type) => format!("the repository has no GGUF file of type {of_type}; {others}"),
        Wanted::Under(folder) => format!("the repository has no GGUF file in '{folder}'; {others}"),
        Wanted::Model => others,
    }
}

/// Names the files of a repository that draft for its models, so that the user can take one.
fn offer_sidecars(name: &RepoName, siblings: &[Sibling], taken: &Choice, progress: &mut dyn Progress) {
    let files = siblings.iter().map(|sibling| &sibling.name).filter(|file| sidecar_kind(file).is_some());
    for file in files.filter(|file| !taken.files.contains(file)).take(8) {
        let place = format!("{}/{file}", name.id);
        if RepoName::parse(&place).is_some() {
            progress.step(&format!("the repository also has {file}, a drafter: --draft-model {place}"));
        }
    }
}

/// Paths of the GGUF files in a folder and those below it, with `/` between their parts.
fn files_below(folder: &Path, prefix: &str, depth: usize, files: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().take(MOST).flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let Some(name) = name.to_str().map(|name| format!("{prefix}{name}")) else { continue };
        if files.len() >= MOST {
            return;
        }
        if path.is_file() {
            files.extend(Some(name).filter(|name| name.ends_with(".gguf")));
        } else if depth > 1 && !path.is_symlink() {
            files_below(&path, &format!("{name}/"), depth - 1, files);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn siblings(names: &[&str]) -> Vec<Sibling> {
        names.iter().map(|name| Sibling { name: (*name).to_owned(), size: Some(1 << 30) }).collect()
    }

    fn picked(names: &[&str], wanted: &Wanted) -> Option<Vec<String>> {
        pick(sized(&siblings(names)), wanted).map(|picked| picked.choice.files)
    }

    #[test]
    fn a_name_from_a_server_that_leaves_its_folder_is_never_picked() {
        let names =
            ["../../x-Q4_K_M.gguf", "/etc/x-Q4_K_M.gguf", "a/.b/x-Q4_K_M.gguf", "x\\y-Q4_K_M.gguf", "m-Q8_0.gguf"];
        for wanted in [Wanted::Model, Wanted::Type("Q8_0".to_owned())] {
            assert_eq!(picked(&names, &wanted).unwrap(), ["m-Q8_0.gguf"]);
        }
        assert_eq!(picked(&names, &Wanted::Type("Q4_K_M".to_owned())), None);
        assert_eq!(picked(&names, &Wanted::File("../../x-Q4_K_M.gguf".to_owned())), None);
    }

    #[test]
    fn a_folder_of_a_repository_limits_the_choice() {
        let names =
            ["m-Q4_K_M.gguf", "BF16/m-BF16-00001-of-00002.gguf", "BF16/m-BF16-00002-of-00002.gguf", "BF16x/n.gguf"];
        assert_eq!(picked(&names, &Wanted::Under("BF16".to_owned())).unwrap(), names[1..3]);
        assert_eq!(picked(&names, &Wanted::Under("none".to_owned())), None);
        assert_eq!(picked(&names, &Wanted::Model).unwrap(), names[..1]);
    }

    #[test]
    fn the_cache_is_asked_for_all_parts_and_for_a_model_only_if_there_is_no_folder() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("snapshots").join("c0ffee");
        std::fs::create_dir_all(folder.join("q")).unwrap();
        let put = |name: &str| std::fs::write(folder.join(name), "GGUF").unwrap();
        put("q/m-Q4_0-00001-of-00002.gguf");
        let (of_type, first) = (Wanted::Type("Q4_0".to_owned()), folder.join("q/m-Q4_0-00001-of-00002.gguf"));
        assert_eq!(Repos::find_gguf(&folder, &of_type), None);
        put("q/m-Q4_0-00002-of-00002.gguf");
        assert_eq!(Repos::find_gguf(&folder, &of_type), Some(first.clone()));
        let second = Wanted::File("q/m-Q4_0-00002-of-00002.gguf".to_owned());
        assert_eq!(Repos::find_gguf(&folder, &second), Some(first.clone()));
        assert_eq!(Repos::find_gguf(&folder, &Wanted::Model), None);
        side::note_absent(&folder, &[CONFIG], |_| false);
        assert_eq!(Repos::find_gguf(&folder, &Wanted::Model), Some(first));
    }
}
