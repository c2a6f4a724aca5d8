//! Which GGUF file of a repository or folder is taken, by names and sizes alone.
//!
//! Invariant: the choice does not depend on the order of the list, and the parts of a split file count as one.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::Path;

use indicatif::DecimalBytes;

use draftscope_host::file_access::{part_name, split_part};

use super::sidecar::sidecar_kind;

/// Most parts of one file.
const MAX_PARTS: usize = 4096;

/// Most files that a sentence names.
const NAMED: usize = 12;

/// Types in the order in which one is taken if none is named: what fits most machines first.
const USUAL: [&str; 14] = [
    "Q4_K_M",
    "UD-Q4_K_XL",
    "Q4_K_S",
    "Q4_0",
    "Q4_1",
    "Q5_K_M",
    "Q5_K_S",
    "Q6_K",
    "Q8_0",
    "Q3_K_M",
    "IQ4_XS",
    "BF16",
    "F16",
    "F32",
];

/// Words in names of files that are no model by themselves.
const NO_MODEL: [&str; 3] = ["mmproj", "imatrix", "ggml-vocab"];

/// A GGUF file with all its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// Paths of the parts in their order; one for a whole file.
    pub(super) files: Vec<String>,
    /// Bytes of all parts, where known.
    pub(super) bytes: Option<u64>,
    /// Numbers of parts that are missing.
    pub(super) missing: Vec<usize>,
}

impl Choice {
    /// Path of the file, or of its first part that is there.
    pub(super) fn name(&self) -> &str {
        self.files.first().map_or("", String::as_str)
    }

    /// Its path in lower case, without what says that it is a part.
    fn stem(&self) -> String {
        let name = self.name();
        let stem = split_part(name).map_or_else(|| name.strip_suffix(".gguf").unwrap_or(name), |(stem, ..)| stem);
        stem.to_ascii_lowercase()
    }

    /// Whether its path has this type as a word.
    fn is_of(&self, of_type: &str) -> bool {
        let (stem, word) = (self.stem(), of_type.to_ascii_lowercase());
        let is_word = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        stem.match_indices(&word).any(|(at, _)| {
            let after = stem[at + word.len()..].chars().next();
            // Q4_K is no word of Q4_K_M
            !is_word(stem[..at].chars().next_back()) && !is_word(after) && after != Some('_')
        })
    }

    /// The place of its type in the order of [`USUAL`].
    fn rank(&self) -> usize {
        USUAL.iter().position(|of_type| self.is_of(of_type)).unwrap_or(USUAL.len())
    }

    fn is_model(&self) -> bool {
        let name = self.name().to_ascii_lowercase();
        sidecar_kind(&name).is_none() && NO_MODEL.iter().all(|word| !name.contains(word))
    }

    /// Name, parts and size for a sentence.
    fn shown(&self) -> String {
        let name: String = self.name().chars().filter(|c| !c.is_control()).take(100).collect();
        let parts = if self.files.len() > 1 { format!("{} parts, ", self.files.len()) } else { String::new() };
        match self.bytes {
            Some(bytes) => format!("{name} ({parts}{})", DecimalBytes(bytes)),
            None if !parts.is_empty() => format!("{name} ({})", parts.trim_end_matches(", ")),
            None => name,
        }
    }
}

/// Name and size of each part of a split file, by its number.
type Parts<'a> = BTreeMap<usize, (&'a str, Option<u64>)>;

/// The GGUF files among others, parts together; drafters, projectors and importance matrices are left out unless there is
/// nothing else.
pub(super) fn choices<'a>(files: impl Iterator<Item = (&'a str, Option<u64>)>) -> Vec<Choice> {
    let mut whole: Vec<Choice> = Vec::new();
    let mut split: BTreeMap<(&str, usize), Parts<'_>> = BTreeMap::new();
    for (name, bytes) in files.filter(|(name, _)| name.ends_with(".gguf")) {
        match split_part(name)
            .filter(|(_, number, count)| (1..=*count).contains(number) && (2..=MAX_PARTS).contains(count))
        {
            Some((stem, number, count)) => {
                split.entry((stem, count)).or_default().insert(number, (name, bytes));
            }
            None => whole.push(Choice { files: vec![name.to_owned()], bytes, missing: Vec::new() }),
        }
    }
    let joined = split.into_iter().map(|((_, count), parts)| Choice {
        missing: (1..=count).filter(|number| !parts.contains_key(number)).collect(),
        bytes: parts.values().map(|(_, bytes)| *bytes).sum::<Option<u64>>(),
        files: parts.values().map(|(name, _)| (*name).to_owned()).collect(),
    });
    let mut all: Vec<Choice> = whole.into_iter().chain(joined).collect();
    if all.iter().any(Choice::is_model) {
        all.retain(Choice::is_model);
    }
    all.sort_by(|a, b| (a.rank(), a.name().len(), a.name()).cmp(&(b.rank(), b.name().len(), b.name())));
    all
}

/// The choice that a file's path belongs to, as one of its parts or alone.
pub(super) fn of_file<'a>(files: impl Iterator<Item = (&'a str, Option<u64>)>, file: &str) -> Option<Choice> {
    let same = |name: &str| match (split_part(name), split_part(file)) {
        (Some((stem, _, count)), Some((own, _, own_count))) => (stem, count) == (own, own_count),
        _ => name == file,
    };
    choices(files.filter(|(name, _)| same(name)))
        .into_iter()
        .find(|choice| choice.files.iter().any(|name| name == file))
}

/// Those of this type, the plainest name first.
pub(super) fn of_type(all: Vec<Choice>, wanted: &str) -> Vec<Choice> {
    let mut fitting: Vec<_> = all.into_iter().filter(|choice| choice.is_of(wanted)).collect();
    let ends = |choice: &Choice| choice.stem().ends_with(&wanted.to_ascii_lowercase());
    fitting.sort_by_key(|choice| (Reverse(ends(choice)), choice.name().len(), choice.name().to_owned()));
    fitting
}

/// Names and sizes for a sentence, at most [`NAMED`].
pub(super) fn list(all: &[Choice]) -> String {
    let named: Vec<_> = all.iter().take(NAMED).map(Choice::shown).collect();
    match all.len() - named.len() {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

/// Why the first of several is taken.
pub(super) fn reason(first: &Choice) -> String {
    match USUAL.iter().find(|of_type| first.is_of(of_type)) {
        Some(of_type) => format!("it is {of_type}, the first of the usual types that is there"),
        None => "its name is the shortest and none is of a usual type".to_owned(),
    }
}

/// Files and sizes of a folder on this machine, those of folders in it left out; at most 4096 are looked at.
pub(super) fn in_folder(folder: &Path) -> Vec<(String, Option<u64>)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().take(4096);
    let file = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.ok()?.path();
        let known = std::fs::metadata(&path).ok().filter(std::fs::Metadata::is_file)?;
        Some((path.file_name()?.to_str()?.to_owned(), Some(known.len())))
    };
    entries.filter_map(file).collect()
}

/// The usual names of all parts of a split file by the path of one, or the path alone.
pub(super) fn all_parts(path: &Path) -> Vec<std::path::PathBuf> {
    let name = path.file_name().and_then(|name| name.to_str());
    match name.and_then(split_part).filter(|(_, number, count)| number <= count && *count <= MAX_PARTS) {
        Some((stem, _, count)) => {
            (1..=count).map(|number| path.with_file_name(part_name(stem, number, count))).collect()
        }
        None => vec![path.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[&str]) -> Vec<Choice> {
        choices(files.iter().map(|name| (*name, Some(1_000_000))))
    }

    #[test]
    fn the_usual_type_is_taken_whatever_the_order_and_parts_count_once() {
        let mut files = vec![
            "m-Q8_0.gguf",
            "m-IQ1_S.gguf",
            "BF16/m-BF16-00002-of-00002.gguf",
            "BF16/m-BF16-00001-of-00002.gguf",
            "m-Q4_K_M.gguf",
            "mmproj-F16.gguf",
            "mtp-m-Q4_K_M.gguf",
            "m.imatrix.gguf",
            "README.md",
            "m-Q4_K_S.gguf",
        ];
        for _ in 0..files.len() {
            files.rotate_left(1);
            let all = of(&files);
            let names: Vec<_> = all.iter().map(Choice::name).collect();
            let expected =
                ["m-Q4_K_M.gguf", "m-Q4_K_S.gguf", "m-Q8_0.gguf", "BF16/m-BF16-00001-of-00002.gguf", "m-IQ1_S.gguf"];
            assert_eq!(names, expected);
            assert_eq!((all[3].files.len(), all[3].bytes, all[3].missing.len()), (2, Some(2_000_000), 0));
            assert_eq!(reason(&all[0]), "it is Q4_K_M, the first of the usual types that is there");
        }
        assert_eq!(of(&["mmproj-F16.gguf", "config.json"]).len(), 1, "there is nothing else");
        assert_eq!(of(&["m-00002-of-00003.gguf"])[0].missing, [1, 3]);
    }

    #[test]
    fn a_type_is_a_whole_word_of_a_path() {
        let files =
            ["m-Q4_K_M.gguf", "m-IQ4_XS.gguf", "m-UD-Q4_K_XL.gguf", "q8_0/m-00001-of-00002.gguf", "m.q6_k.gguf"];
        let found = |wanted: &str| -> Vec<String> {
            of_type(of(&files), wanted).iter().map(|choice| choice.name().to_owned()).collect()
        };
        assert_eq!(found("q4_k_m"), ["m-Q4_K_M.gguf"]);
        assert_eq!(found("UD-Q4_K_XL"), ["m-UD-Q4_K_XL.gguf"]);
        assert_eq!(found("Q8_0"), ["q8_0/m-00001-of-00002.gguf"]);
        assert_eq!(found("Q6_K"), ["m.q6_k.gguf"]);
        for other in ["Q4_K", "Q4_XS", "Q5_K_M", "4"] {
            assert_eq!(found(other), [""; 0], "{other}");
        }
        assert_eq!(of_type(of(&["m-Q4_0-imp.gguf", "model-Q4_0.gguf"]), "Q4_0")[0].name(), "model-Q4_0.gguf");
    }

    #[test]
    fn a_file_brings_its_other_parts() {
        let files = ["a-00001-of-00002.gguf", "a-00002-of-00002.gguf", "b-00001-of-00002.gguf", "mmproj.gguf"];
        let of = |file: &str| of_file(files.iter().map(|name| (*name, None)), file);
        assert_eq!(of("a-00002-of-00002.gguf").unwrap().files, files[..2]);
        assert_eq!(of("b-00001-of-00002.gguf").unwrap().missing, [2]);
        assert_eq!(of("mmproj.gguf").unwrap().files, ["mmproj.gguf"]);
        assert_eq!(of("c.gguf"), None);
        assert_eq!(
            all_parts(Path::new("d/a-00001-of-00002.gguf")),
            [Path::new("d").join(files[0]), Path::new("d").join(files[1])]
        );
    }

    #[test]
    fn long_lists_are_cut() {
        let names: Vec<String> = (0..40).map(|i| format!("m-{i}-\u{1b}Q8_0.gguf")).collect();
        let all = choices(names.iter().map(|name| (name.as_str(), None)));
        let text = list(&all);
        assert!(text.ends_with("and 28 more") && !text.contains('\u{1b}'), "{text}");
    }
}
