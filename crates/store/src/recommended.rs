//! Models that the program recommends, each with the drafter that belongs to it: `assets/catalogue.toml`.
//!
//! Invariant: an entry is data. It says what a file is and where; whether it runs, fits and how fast it is follows from the
//! program and the machine. Unlike a [`KnownModel`](super::KnownModel) it may lack a digest; a digest that it has is checked.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::repo_name::RepoName;

/// The file that the entries are read from.
const SOURCE: &str = include_str!("../assets/catalogue.toml");

/// A recommended model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecommendedModel {
    /// What the user types.
    pub name: String,
    /// One line for lists.
    pub about: String,
    /// `owner/name` on the Hugging Face Hub.
    pub repository: String,
    /// Path in the repository; none for the whole folder.
    pub file: Option<String>,
    /// Bytes to download.
    pub bytes: u64,
    /// Digest of the file in lower-case hex, where known.
    pub sha256: Option<String>,
    /// `general.architecture` of the file, or `model_type` of a folder.
    pub architecture: String,
    /// Terms of the weights.
    pub license: String,
    /// Share of the bytes that one token reads, 0 to 1; all where nothing is said.
    #[serde(default = "all")]
    pub reads: f64,
    /// How it drafts.
    pub drafter: RecommendedDrafter,
    /// The drafter's own file, if it has one.
    pub draft: Option<RecommendedDraft>,
    /// Fields that are rounded or assumed.
    #[serde(default)]
    pub unverified: Vec<String>,
}

/// The file of a drafter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecommendedDraft {
    /// `owner/name` on the Hugging Face Hub.
    pub repository: String,
    /// Path in the repository; none for the whole folder.
    pub file: Option<String>,
    /// Bytes to download.
    pub bytes: u64,
    /// Digest of the file in lower-case hex, where known.
    pub sha256: Option<String>,
    /// `general.architecture` of the file, or `model_type` of a folder.
    pub architecture: String,
    /// Fields that are rounded or assumed.
    #[serde(default)]
    pub unverified: Vec<String>,
}

/// How a recommended model drafts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecommendedDrafter {
    /// MTP modules in its own files.
    Mtp,
    /// An assistant of Gemma 4.
    Assistant,
    /// An EAGLE-3 head.
    Eagle3,
    /// A DFlash block drafter.
    Dflash,
    /// A smaller model.
    DraftModel,
}

impl RecommendedDrafter {
    /// The value of `--drafter` that it drafts as.
    #[must_use]
    pub const fn option(self) -> &'static str {
        match self {
            Self::DraftModel => "draft-model",
            Self::Mtp | Self::Assistant | Self::Eagle3 | Self::Dflash => "mtp",
        }
    }
}

const fn all() -> f64 {
    1.0
}

#[derive(Deserialize)]
struct Entries {
    model: Vec<RecommendedModel>,
}

fn parse(text: &str) -> Result<Vec<RecommendedModel>, toml::de::Error> {
    toml::from_str::<Entries>(text).map(|entries| entries.model)
}

/// All recommended models.
#[must_use]
pub fn recommended_models() -> &'static [RecommendedModel] {
    // a test reads the file, so it cannot be damaged in a build that passed
    static ALL: LazyLock<Vec<RecommendedModel>> = LazyLock::new(|| parse(SOURCE).unwrap_or_default());
    &ALL
}

/// The recommended model of this name, in upper or lower case.
#[must_use]
pub fn recommended(name: &str) -> Option<&'static RecommendedModel> {
    recommended_models().iter().find(|model| model.name.eq_ignore_ascii_case(name))
}

/// `owner/name`, or `owner/name/FILE`.
fn place(repository: &str, file: Option<&str>) -> String {
    file.map_or_else(|| repository.to_owned(), |file| format!("{repository}/{file}"))
}

impl RecommendedModel {
    /// As `--model` takes it.
    #[must_use]
    pub fn place(&self) -> String {
        place(&self.repository, self.file.as_deref())
    }

    /// Bytes to download, those of the drafter included.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.bytes + self.draft.as_ref().map_or(0, |draft| draft.bytes)
    }

    /// Bytes that a plain pass over one token reads.
    #[must_use]
    pub fn bytes_per_token(&self) -> f64 {
        self.bytes as f64 * self.reads
    }

    pub(super) fn repo(&self) -> Option<RepoName> {
        RepoName::parse(&self.place())
    }
}

impl RecommendedDraft {
    /// As `--draft-model` takes it.
    #[must_use]
    pub fn place(&self) -> String {
        place(&self.repository, self.file.as_deref())
    }

    pub(super) fn repo(&self) -> Option<RepoName> {
        RepoName::parse(&self.place())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_has_a_unique_name_a_repository_and_a_plausible_size() {
        let models = parse(SOURCE).unwrap();
        assert_eq!(models.len(), recommended_models().len());
        for (at, model) in models.iter().enumerate() {
            let name = &model.name;
            assert!(!name.contains(['/', '\\']) && *name == name.to_lowercase(), "{name}");
            assert!(super::super::known_model::find(name).is_none(), "{name} is the name of a known model");
            assert!(models[at + 1..].iter().all(|other| other.name != *name), "{name} occurs twice");
            assert!(model.repo().is_some() && (1e8..1e12).contains(&(model.bytes as f64)), "{name}");
            assert!((0.0..=1.0).contains(&model.reads) && model.reads > 0.0, "{name}");
            assert_eq!(model.draft.is_some(), model.drafter != RecommendedDrafter::Mtp, "{name}");
            let digests = [(&model.sha256, &model.unverified)];
            let draft = model.draft.as_ref().map(|draft| (&draft.sha256, &draft.unverified));
            for (sha256, _) in digests.into_iter().chain(draft) {
                let is_hex = |text: &String| text.len() == 64 && text.bytes().all(|b| b"0123456789abcdef".contains(&b));
                assert!(sha256.as_ref().is_none_or(is_hex), "{name}");
            }
            if let Some(draft) = &model.draft {
                assert!(draft.repo().is_some() && draft.bytes < model.bytes, "{name}");
            }
            let names = ["repository", "file", "bytes", "sha256", "architecture", "license", "reads"];
            assert!(model.unverified.iter().all(|field| names.contains(&field.as_str())), "{name}");
            let is_said = model.sha256.is_some() || model.file.is_none();
            assert!(is_said || model.unverified.iter().any(|field| field == "sha256"), "{name} lacks its digest");
        }
    }

    #[test]
    fn a_recommended_model_is_found_in_any_case_and_unknown_fields_are_rejected() {
        assert_eq!(recommended("Qwen3-4B").map(|model| model.drafter), Some(RecommendedDrafter::DraftModel));
        assert_eq!(recommended("qwen3"), None);
        let wrong = SOURCE.replacen("license =", "licence =", 1);
        assert!(parse(&wrong).is_err());
        assert_eq!(place("a/b", Some("c.gguf")), "a/b/c.gguf");
    }
}
