//! Downloads that have not finished, recognised by their names and by holes in their files.

use std::path::Path;

/// Ends of names that browsers and download tools give to files that are not complete.
const ENDS: &[&str] = &[
    "part",
    "partial",
    "crdownload",
    "incomplete",
    "download",
    "opdownload",
    "filepart",
    "tmp",
    "!qb",
    "!ut",
    "aria2__temp",
];

/// What is wrong with an empty file.
pub(super) const EMPTY: &str = "it is empty (0 bytes)";

/// Whether a file is the record that a download tool keeps beside one, and of which tool.
pub(super) fn control_file(path: &Path) -> Option<&'static str> {
    let end = path.extension()?.to_str()?;
    end.eq_ignore_ascii_case("aria2").then_some("a control file of aria2, which describes an unfinished download")
}

/// A clause on why a file may not be complete: its name is that of an unfinished download, or a download tool's record is
/// beside it.
pub(super) fn clause(path: &Path) -> Option<String> {
    let end = path.extension().and_then(|end| end.to_str()).map(str::to_ascii_lowercase);
    if let Some(end) = end.filter(|end| ENDS.contains(&end.as_str())) {
        return Some(format!("its name ends in '.{end}', as those of unfinished downloads do"));
    }
    let mut beside = path.file_name()?.to_owned();
    beside.push(".aria2");
    path.with_file_name(beside)
        .is_file()
        .then(|| "aria2's record of the download (.aria2) is still beside it".to_owned())
}

/// Unfinished downloads in a folder, by name, sorted; at most a few.
pub(super) fn in_folder(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).into_iter().flatten().take(10_000).filter_map(Result::ok);
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let is_one = |name: &String| {
        let end = Path::new(name).extension().and_then(|end| end.to_str()).map(str::to_ascii_lowercase);
        end.is_some_and(|end| end != "tmp" && (ENDS.contains(&end.as_str()) || end == "aria2"))
    };
    let mut found: Vec<String> = names.filter(is_one).collect();
    found.sort();
    found.truncate(3);
    found
}

/// Bytes of a file that are on disk, if a large part of it is a hole: space that a download tool reserved. `None` for a
/// file without such holes, and where the system does not say.
#[cfg(unix)]
pub(super) fn bytes_on_disk(file: &std::fs::File) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    let known = file.metadata().ok()?;
    let there = known.blocks().saturating_mul(512);
    (there.saturating_add(1 << 16) < known.len()).then_some(there)
}

/// Bytes of a file that are on disk; other systems do not say.
#[cfg(not(unix))]
pub(super) fn bytes_on_disk(_file: &std::fs::File) -> Option<u64> {
    None
}

/// A clause on such a file.
pub(super) fn hole(there: u64, size: usize) -> String {
    format!("{there} of its {size} bytes are on disk and the end is a hole, as in an unfinished download")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_downloads_are_known_by_their_names() {
        for name in ["a.gguf.part", "a.crdownload", "b.safetensors.incomplete", "C.PART"] {
            assert!(clause(Path::new(name)).unwrap().contains("unfinished"), "{name}");
        }
        assert_eq!(clause(Path::new("model.gguf")), None);
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str| std::fs::write(folder.path().join(name), "x").unwrap();
        ["model.gguf", "model.gguf.aria2", "model.safetensors.part", "notes.txt"].into_iter().for_each(put);
        assert!(clause(&folder.path().join("model.gguf")).unwrap().contains(".aria2"));
        assert_eq!(in_folder(folder.path()), ["model.gguf.aria2", "model.safetensors.part"]);
    }

    #[cfg(unix)]
    #[test]
    fn holes_are_counted() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 24).unwrap();
        if let Some(there) = bytes_on_disk(&file) {
            assert!(there < 1 << 20);
        }
        std::io::Write::write_all(&mut &file, &[1; 100]).unwrap();
        file.set_len(100).unwrap();
        assert_eq!(bytes_on_disk(&file), None);
    }
}
