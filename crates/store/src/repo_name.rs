//! Names of repositories of the Hugging Face Hub, and what of a repository is meant.
//!
//! Invariant: every part of a name is checked before it becomes part of a path or an address.

use super::hub_cache::HubRepo;

/// What of a repository is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The model folder or, of a repository of GGUF files, the usual one.
    Model,
    /// This file.
    File(String),
    /// The GGUF file of this type, such as `Q4_K_M`.
    Type(String),
    /// The usual GGUF file in this folder of the repository.
    Under(String),
}

/// `owner/name[@revision][/FILE.gguf | :TYPE]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RepoName {
    pub(super) id: String,
    pub(super) revision: Option<String>,
    pub(super) wanted: Wanted,
}

/// Whether a part of a name is one word that cannot leave its folder.
pub(super) fn is_plain(part: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    !part.is_empty() && !part.starts_with('.') && part.len() <= 96 && part.chars().all(fits)
}

/// Whether it is the path of a file or folder in a repository; at most 8 folders deep.
pub(super) fn is_plain_path(path: &str) -> bool {
    path.split('/').count() <= 8 && path.split('/').all(is_plain)
}

impl RepoName {
    /// Parses what a user typed; none if it cannot be such a name.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (owner, rest) = text.split_once('/')?;
        let (rest, file) = match rest.split_once('/') {
            Some((rest, file)) => (rest, Some(file)),
            None => (rest, None),
        };
        let (rest, of_type) = match rest.split_once(':') {
            Some((rest, of_type)) => (rest, Some(of_type)),
            None => (rest, None),
        };
        let (name, revision) = match rest.split_once('@') {
            Some((name, revision)) => (name, Some(revision)),
            None => (rest, None),
        };
        let wanted = match (file, of_type) {
            (None, None) if name.ends_with(".gguf") => return None, // that is a path
            (None, None) => Wanted::Model,
            (Some(file), None) => Wanted::File(gguf(file)?),
            (None, Some(of_type)) => Self::of_type(of_type)?,
            (Some(_), Some(_)) => return None,
        };
        Self::new((owner, name), revision, wanted)
    }

    /// A repository whose parts were read already; none if one is no plain word.
    pub(super) fn new((owner, name): (&str, &str), revision: Option<&str>, wanted: Wanted) -> Option<Self> {
        let fits = is_plain(owner) && is_plain(name) && revision.is_none_or(is_plain);
        fits.then(|| Self { id: format!("{owner}/{name}"), revision: revision.map(str::to_owned), wanted })
    }

    /// What follows a colon: a type, a file, or Ollama's word for any.
    fn of_type(text: &str) -> Option<Wanted> {
        match text {
            "latest" => Some(Wanted::Model),
            file if file.ends_with(".gguf") => gguf(file).map(Wanted::File),
            of_type => is_plain(of_type).then(|| Wanted::Type(of_type.to_owned())),
        }
    }

    /// At this revision.
    pub(super) fn at(&self, revision: &str) -> HubRepo {
        HubRepo::new(&self.id, revision)
    }

    /// Branch, tag or commit; `main` if none is named.
    pub(super) fn revision(&self) -> &str {
        self.revision.as_deref().unwrap_or("main")
    }
}

fn gguf(file: &str) -> Option<String> {
    (file.ends_with(".gguf") && is_plain_path(file)).then(|| file.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repository_names_and_paths_are_distinguished() {
        let repo = |text: &str| RepoName::parse(text).map(|name| (name.id, name.revision, name.wanted));
        let some = |id: &str, revision: Option<&str>, wanted: Wanted| {
            Some((id.to_owned(), revision.map(str::to_owned), wanted))
        };
        let (file, of_type) = (|name: &str| Wanted::File(name.to_owned()), |name: &str| Wanted::Type(name.to_owned()));
        assert_eq!(repo("Qwen/Qwen3-0.6B"), some("Qwen/Qwen3-0.6B", None, Wanted::Model));
        assert_eq!(repo("a/b@refs-pr-1"), some("a/b", Some("refs-pr-1"), Wanted::Model));
        assert_eq!(repo("a/b@v1/sub/x.gguf"), some("a/b", Some("v1"), file("sub/x.gguf")));
        assert_eq!(repo("a/b:Q4_K_M"), some("a/b", None, of_type("Q4_K_M")));
        assert_eq!(repo("a/b@v1:UD-Q4_K_XL"), some("a/b", Some("v1"), of_type("UD-Q4_K_XL")));
        assert_eq!(repo("a/b:x.Q8_0.gguf"), some("a/b", None, file("x.Q8_0.gguf")));
        assert_eq!(repo("a/b:latest"), some("a/b", None, Wanted::Model));
        let deep = format!("a/b/{}x.gguf", "d/".repeat(9));
        for text in [
            "model",
            "a/b.gguf",
            "./a/b",
            "/a/b",
            "../b",
            "a/..",
            "a/b/c",
            "a/b/../c.gguf",
            "a/b@",
            "a b/c",
            "a/b/",
            "a/b:",
            "a/b:../x",
            "a/b:Q4/x.gguf",
            "https://a/b",
            &deep,
        ] {
            assert_eq!(repo(text), None, "{text}");
        }
    }
}
