//! The parts of a split GGUF file: finds them, and checks that they belong together.
//!
//! `llama-gguf-split` writes `split.no` (from 0), `split.count` and `split.tensors.count` into every part, and the
//! model's metadata into the first. Parts are named `NAME-00001-of-00003.gguf`. Renamed parts are found by their keys.
//! Invariant: parts are joined only if each is there once and no key contradicts another.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::ModelError;
use crate::error::clean;
use crate::files::gguf::GgufFile;
use draftscope_host::file_access::{part_name, split_part};

/// Most parts: the largest models have a few hundred.
const MAX_PARTS: u64 = 4096;

/// Most files of a folder that are looked at for renamed parts.
const MAX_FILES: usize = 4096;

impl GgufFile {
    /// Opens a file and reads its header; tensors stay on disk. They may have types that do not run:
    /// [`GgufFile::check_types`]. From any part of a split file all its parts are opened.
    ///
    /// # Errors
    /// [`ModelError::Read`] if it cannot be opened, [`ModelError::Corrupt`] if it is not a complete GGUF file,
    /// [`ModelError::Split`] if parts of a split file are missing or do not belong together.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        joined(Self::open_part(path)?)
    }

    /// How many files it consists of.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Bytes of all its files.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.file.bytes().len() as u64).sum()
    }
}

/// What a part says about itself.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Split {
    /// From 0.
    index: usize,
    count: usize,
    /// Of all parts together.
    tensors: Option<u64>,
}

fn fault(path: &Path, what: &str) -> ModelError {
    ModelError::Split(format!("{} {what}; get its parts again", path.display()))
}

impl Split {
    /// None if the file is whole.
    fn of(gguf: &GgufFile) -> Result<Option<Self>, ModelError> {
        let Some(count) = gguf.number("split.count").filter(|count| *count > 1) else {
            return Ok(None);
        };
        if count > MAX_PARTS {
            let what = format!("is one of {count} parts ('split.count'), and at most {MAX_PARTS} are read");
            return Err(fault(gguf.path(), &what));
        }
        let index = gguf.number("split.no");
        let index =
            index.ok_or_else(|| fault(gguf.path(), "is a part of a split file, and the key 'split.no' is missing"));
        match index? {
            index if index < count => Ok(Some(Self {
                index: index as usize,
                count: count as usize,
                tensors: gguf.number("split.tensors.count"),
            })),
            index => Err(fault(gguf.path(), &format!("is part {} of {count} by its keys", index.saturating_add(1)))),
        }
    }

    /// Whether another file can be a part of the same model.
    fn matches(self, other: Self) -> bool {
        (self.count, self.tensors) == (other.count, other.tensors)
    }
}

/// The whole file that an open file belongs to.
///
/// # Errors
/// [`ModelError::Split`] if parts are missing or contradict each other, and what opening a part reports.
pub(super) fn joined(opened: GgufFile) -> Result<GgufFile, ModelError> {
    let Some(split) = Split::of(&opened)? else {
        return Ok(opened);
    };
    let paths = Search::of(opened.path(), split).paths()?;
    let part = |(index, path): (usize, PathBuf)| {
        let part = GgufFile::open_part(&path)?;
        check_part(&opened, &part, Split { index, ..split })?;
        Ok(part)
    };
    let mut parts: Vec<GgufFile> = paths.into_iter().enumerate().map(part).collect::<Result<_, ModelError>>()?;
    let rest = parts.split_off(1);
    let mut whole = parts.pop().ok_or_else(|| fault(opened.path(), "has no parts"))?;
    for (index, part) in (1..).zip(rest) {
        add(&mut whole, part, index)?;
    }
    match split.tensors {
        Some(tensors) if tensors != whole.tensors.len() as u64 => Err(ModelError::Split(format!(
            "the {} parts of {} have {} tensors, and 'split.tensors.count' is {tensors}: a part is damaged or of another model; get the parts again",
            split.count,
            whole.path().display(),
            whole.tensors.len()
        ))),
        _ => Ok(whole),
    }
}

/// Checks what a part says about itself against the part that was opened.
fn check_part(opened: &GgufFile, part: &GgufFile, expected: Split) -> Result<(), ModelError> {
    let [own, other] = [opened, part].map(|gguf| gguf.path().display().to_string());
    let found = Split::of(part)?;
    if found != Some(expected) {
        let what = match found {
            Some(Split { index, count, tensors }) if (index, count) == (expected.index, expected.count) => {
                let [theirs, ours] =
                    [tensors, expected.tensors].map(|all| all.map_or("none".to_owned(), |all| all.to_string()));
                format!("its 'split.tensors.count' is {theirs}, and that of {own} is {ours}")
            }
            Some(Split { index, count, .. }) => format!("by its keys it is part {} of {count}", index + 1),
            None => "by its keys it is no part".to_owned(),
        };
        let Split { index, count, .. } = expected;
        let number = index + 1;
        return Err(ModelError::Split(format!(
            "{other} is not part {number} of {count} that {own} needs: {what}; get that part again"
        )));
    }
    let differs = |key: &&str| {
        !key.starts_with("split.")
            && opened.metadata.contains_key(*key)
            && (opened.text(key), opened.number(key)) != (part.text(key), part.number(key))
    };
    match part.metadata.keys().map(String::as_str).filter(differs).min() {
        None => Ok(()),
        Some(key) => Err(ModelError::Split(format!(
            "{own} and {other} are parts of different models: their values of '{}' differ; put the parts of one model into a folder of their own",
            clean(key)
        ))),
    }
}

/// Adds the tensors of a part.
fn add(whole: &mut GgufFile, part: GgufFile, index: usize) -> Result<(), ModelError> {
    for (name, entry) in part.tensors {
        if let Some(earlier) = whole.tensors.get(&name) {
            return Err(ModelError::Split(format!(
                "tensor '{}' is in part {} and in part {} of {}: the parts do not belong together; get them again",
                clean(&name),
                earlier.part + 1,
                index + 1,
                whole.path.display()
            )));
        }
        whole.tensors.insert(name, super::gguf_tensors::TensorEntry { part: index, ..entry });
    }
    whole.parts.extend(part.parts);
    Ok(())
}

/// Looks for the parts of a model beside one of them.
struct Search<'a> {
    opened: &'a Path,
    split: Split,
    /// `NAME` if the opened part is named as its keys say.
    stem: Option<String>,
}

impl<'a> Search<'a> {
    fn of(opened: &'a Path, split: Split) -> Self {
        let name = opened.file_name().and_then(OsStr::to_str).and_then(split_part);
        let stem = name.filter(|(_, index, count)| (*index, *count) == (split.index + 1, split.count));
        Self { opened, split, stem: stem.map(|(stem, ..)| stem.to_owned()) }
    }

    /// The paths of all parts in their order.
    fn paths(&self) -> Result<Vec<PathBuf>, ModelError> {
        let mut found: Vec<Option<PathBuf>> = vec![None; self.split.count];
        found[self.split.index] = Some(self.opened.to_owned());
        let folders = self.folders();
        if let Some(stem) = &self.stem {
            for (index, place) in found.iter_mut().enumerate().filter(|(_, place)| place.is_none()) {
                let name = part_name(stem, index + 1, self.split.count);
                *place = folders.iter().map(|folder| folder.join(&name)).find(|path| path.is_file());
            }
        }
        if found.iter().any(Option::is_none) {
            folders.iter().try_for_each(|folder| self.renamed(folder, &mut found))?;
        }
        let missing: Vec<_> = (0..found.len()).filter(|index| found[*index].is_none()).collect();
        if missing.is_empty() { Ok(found.into_iter().flatten().collect()) } else { Err(self.missing(&missing)) }
    }

    /// The opened part's folder and, if the part is a link, the folder that it leads to.
    fn folders(&self) -> Vec<PathBuf> {
        let parent = |path: &Path| {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            parent.map_or_else(|| PathBuf::from("."), Path::to_owned)
        };
        let mut folders = vec![parent(self.opened)];
        let real = self.opened.canonicalize().map(|real| parent(&real));
        let is_other = |real: &PathBuf| folders[0].canonicalize().is_ok_and(|folder| folder != *real);
        folders.extend(real.ok().filter(is_other));
        folders
    }

    /// Fills the places that are still empty with files of the folder whose keys say that they belong there.
    fn renamed(&self, folder: &Path, found: &mut [Option<PathBuf>]) -> Result<(), ModelError> {
        let empty: Vec<bool> = found.iter().map(Option::is_none).collect();
        let known: Vec<PathBuf> = found.iter().flatten().filter_map(|path| path.canonicalize().ok()).collect();
        let mut files: Vec<PathBuf> = entries(folder).filter(|path| self.can_be_ours(path)).collect();
        files.sort();
        for path in files.into_iter().filter(|path| path.canonicalize().is_ok_and(|real| !known.contains(&real))) {
            let Some(split) = GgufFile::read_header(&path).ok().and_then(|gguf| Split::of(&gguf).ok().flatten()) else {
                continue;
            };
            if !self.split.matches(split) || !empty[split.index] {
                continue;
            }
            match &mut found[split.index] {
                place @ None => *place = Some(path),
                Some(other) => {
                    return Err(ModelError::Split(format!(
                        "both {} and {} can be part {} of {}, which {} needs; put the parts of one model into a folder of their own",
                        other.display(),
                        path.display(),
                        split.index + 1,
                        split.count,
                        self.opened.display()
                    )));
                }
            }
        }
        Ok(())
    }

    /// Whether a file is a GGUF file that is not named as a part of another model.
    fn can_be_ours(&self, path: &Path) -> bool {
        let named = path.file_name().and_then(OsStr::to_str).and_then(split_part);
        let is_of_another = self.stem.is_some() && named.is_some_and(|(stem, ..)| Some(stem) != self.stem.as_deref());
        !is_of_another && has_magic(path)
    }

    fn missing(&self, missing: &[usize]) -> ModelError {
        let Split { index, count, .. } = self.split;
        let (own, number) = (self.opened.display(), index + 1);
        let named: Vec<String> = missing.iter().take(3).map(|index| (index + 1).to_string()).collect();
        let more = missing.len().saturating_sub(named.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let (parts, verb, them) = if missing.len() == 1 { ("part", "is", "it") } else { ("parts", "are", "them") };
        let usual = self.stem.as_ref().map(|stem| format!(" ({})", clean(&part_name(stem, missing[0] + 1, count))));
        let folder = self.folders().swap_remove(0);
        ModelError::Split(format!(
            "{own} is part {number} of {count} of a split GGUF file, and {parts} {}{more} {verb} missing{}; download {them} into {}",
            named.join(", "),
            usual.unwrap_or_default(),
            folder.display()
        ))
    }
}

/// Files of a folder, the first [`MAX_FILES`].
fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().take(MAX_FILES);
    entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_file())
}

/// Whether a file begins as GGUF files do.
fn has_magic(path: &Path) -> bool {
    let mut magic = [0; 4];
    let read = |mut file: File| file.read_exact(&mut magic);
    draftscope_host::file_access::open_regular(path).and_then(read).is_ok() && magic == *b"GGUF"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A part with F32 tensors of one number each.
    fn part(keys: &[(&str, u16)], arch: &str, tensors: &[&str]) -> Vec<u8> {
        let text = |bytes: &mut Vec<u8>, text: &str| {
            bytes.extend((text.len() as u64).to_le_bytes());
            bytes.extend(text.bytes());
        };
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        bytes.extend((tensors.len() as u64).to_le_bytes());
        bytes.extend((keys.len() as u64 + u64::from(!arch.is_empty())).to_le_bytes());
        for (key, value) in keys {
            text(&mut bytes, key);
            bytes.extend(2u32.to_le_bytes());
            bytes.extend(value.to_le_bytes());
        }
        if !arch.is_empty() {
            text(&mut bytes, "general.architecture");
            bytes.extend(8u32.to_le_bytes());
            text(&mut bytes, arch);
        }
        for (index, name) in tensors.iter().enumerate() {
            text(&mut bytes, name);
            bytes.extend(1u32.to_le_bytes());
            bytes.extend(1u64.to_le_bytes());
            bytes.extend(0u32.to_le_bytes());
            bytes.extend((index as u64 * 32).to_le_bytes());
        }
        bytes.resize(bytes.len().next_multiple_of(32), 0);
        for name in tensors {
            bytes.extend(f32::from(name.as_bytes()[0]).to_le_bytes());
            bytes.extend([0; 28]);
        }
        bytes
    }

    fn keys(index: u16, count: u16, tensors: u16) -> [(&'static str, u16); 3] {
        [("split.no", index), ("split.count", count), ("split.tensors.count", tensors)]
    }

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
            let path = self.0.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        }

        fn error(&self, name: &str) -> String {
            GgufFile::open(&self.0.path().join(name)).err().expect("an error").to_string()
        }
    }

    fn three() -> Folder {
        let folder = Folder::new();
        for (index, (arch, tensors)) in [("llama", &["a", "b"][..]), ("", &["c"]), ("", &["d"])].into_iter().enumerate()
        {
            folder.put(&part_name("m", index + 1, 3), &part(&keys(index as u16, 3, 4), arch, tensors));
        }
        folder
    }

    #[test]
    fn a_model_opens_from_any_part_also_a_renamed_one() {
        let folder = three();
        let renamed = Folder::new();
        for (index, name) in ["zebra.gguf", "model", "x-00007-of-00009.gguf"].into_iter().enumerate() {
            std::fs::copy(folder.0.path().join(part_name("m", index + 1, 3)), renamed.0.path().join(name)).unwrap();
        }
        renamed.put("other.gguf", &part(&keys(1, 2, 4), "", &["c"]));
        renamed.put("notes.txt", b"GGUF?");
        for folder in [folder, renamed] {
            let mut names: Vec<_> = entries(folder.0.path()).collect();
            names.retain(|path| !path.ends_with("other.gguf") && !path.ends_with("notes.txt"));
            assert_eq!(names.len(), 3);
            for path in names {
                let gguf = GgufFile::open(&path).unwrap();
                assert_eq!(
                    (gguf.parts(), gguf.tensor_bytes(), gguf.text("general.architecture")),
                    (3, 16, Some("llama"))
                );
                for name in ["a", "b", "c", "d"] {
                    assert_eq!(gguf.vector(name, 1).unwrap(), [f32::from(name.as_bytes()[0])], "{name}");
                    gguf.release(name);
                }
                assert!(gguf.file_bytes() > gguf.tensor_bytes());
            }
        }
    }

    #[cfg(unix)]
    #[test]
    fn parts_are_found_beside_a_link_and_beside_its_file() {
        let (parts, links) = (three(), Folder::new());
        let link = links.0.path().join("m.gguf");
        std::os::unix::fs::symlink(parts.0.path().join(part_name("m", 2, 3)), &link).unwrap();
        assert_eq!(GgufFile::open(&link).unwrap().parts(), 3);
    }

    #[test]
    fn a_missing_part_is_named_with_the_next_step() {
        let folder = three();
        std::fs::remove_file(folder.0.path().join(part_name("m", 2, 3))).unwrap();
        let error = folder.error(&part_name("m", 1, 3));
        assert!(
            error.contains("is part 1 of 3") && error.contains("part 2 is missing (m-00002-of-00003.gguf)"),
            "{error}"
        );
        assert!(error.contains("download it into"), "{error}");
        std::fs::remove_file(folder.0.path().join(part_name("m", 3, 3))).unwrap();
        assert!(folder.error(&part_name("m", 1, 3)).contains("parts 2, 3 are missing"));
        let alone = Folder::new();
        alone.put("many.gguf", &part(&keys(0, 4096, 4), "llama", &["a"]));
        assert!(alone.error("many.gguf").contains("parts 2, 3, 4 and 4092 more are missing"));
    }

    #[test]
    fn parts_of_another_model_of_the_same_folder_are_not_taken() {
        let folder = three();
        std::fs::rename(folder.0.path().join(part_name("m", 2, 3)), folder.0.path().join(part_name("n", 2, 3)))
            .unwrap();
        assert!(folder.error(&part_name("m", 1, 3)).contains("part 2 is missing"));
    }

    #[test]
    fn parts_that_contradict_each_other_are_rejected() {
        let says = |second: &[u8], what: &str| {
            let folder = Folder::new();
            folder.put(&part_name("m", 1, 2), &part(&keys(0, 2, 2), "llama", &["a"]));
            folder.put(&part_name("m", 2, 2), second);
            let error = folder.error(&part_name("m", 1, 2));
            assert!(error.contains(what) && error.lines().count() == 1, "{what}: {error}");
        };
        says(&part(&keys(1, 3, 2), "", &["b"]), "by its keys it is part 2 of 3");
        says(&part(&keys(0, 2, 2), "", &["b"]), "by its keys it is part 1 of 2");
        says(&part(&[], "", &["b"]), "by its keys it is no part");
        says(&part(&keys(1, 2, 9), "", &["b"]), "'split.tensors.count' is 9");
        says(&part(&keys(1, 2, 2), "", &["a"]), "tensor 'a' is in part 1 and in part 2");
        says(&part(&keys(1, 2, 2), "", &["b", "c"]), "have 3 tensors, and 'split.tensors.count' is 2");
        says(&part(&keys(1, 2, 2), "qwen3", &["b"]), "different models: their values of 'general.architecture'");
        let whole = part(&keys(1, 2, 2), "", &["b"]);
        says(&whole[..whole.len() - 30], "reaches beyond the end");
    }

    #[test]
    fn impossible_counts_are_rejected() {
        for (keys, what) in [
            (keys(5, 3, 1), "is part 6 of 3"),
            (keys(0, u16::MAX, 1), "one of 65535 parts"),
            ([("split.count", 3), ("a", 0), ("b", 0)], "'split.no' is missing"),
        ] {
            let folder = Folder::new();
            folder.put("m.gguf", &part(&keys, "llama", &["a"]));
            let error = folder.error("m.gguf");
            assert!(error.contains(what), "{error}");
        }
    }

    #[test]
    fn two_candidates_for_one_part_are_named() {
        let folder = Folder::new();
        folder.put("a.gguf", &part(&keys(0, 2, 2), "llama", &["a"]));
        folder.put("b.gguf", &part(&keys(1, 2, 2), "", &["b"]));
        folder.put("c.gguf", &part(&keys(1, 2, 2), "", &["b"]));
        let error = folder.error("a.gguf");
        assert!(
            error.contains("b.gguf") && error.contains("c.gguf") && error.contains("can be part 2 of 2"),
            "{error}"
        );
    }
}
