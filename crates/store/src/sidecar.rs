//! Drafters in files beside a model: `mtp-*.gguf`, `eagle3-*.gguf`, `dflash-*.gguf`, `dspark-*.gguf`, the names by which
//! llama.cpp finds them (`common/download.cpp`).
//!
//! Invariant: a name is only an offer. What a file is follows from its header, which `draftscope-model` reads.

use std::path::{Path, PathBuf};

/// Prefixes of the names of drafters.
const PREFIXES: &[&str] = &["mtp-", "eagle3-", "dflash-", "dspark-"];

/// Most files of a folder that are looked at.
const MOST: usize = 4096;

/// The kind of drafter that a file's name announces, without its dash; none for other files.
#[must_use]
pub fn sidecar_kind(file: &str) -> Option<&'static str> {
    let name = file.rsplit(['/', '\\']).next().unwrap_or(file).to_ascii_lowercase();
    let prefix = PREFIXES.iter().find(|prefix| name.starts_with(**prefix))?;
    name.ends_with(".gguf").then(|| prefix.trim_end_matches('-'))
}

/// Files beside a GGUF file that by their names draft for it, the closest name first; none if it is a drafter itself.
#[must_use]
pub fn sidecars(model: &Path) -> Vec<PathBuf> {
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().to_lowercase());
    let Some(own) = name(model).filter(|own| own.ends_with(".gguf") && sidecar_kind(own).is_none()) else {
        return Vec::new();
    };
    let folder = model.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(folder).into_iter().flatten().take(MOST);
    let mut found: Vec<(usize, PathBuf)> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter_map(|path| Some((drafts_for(&name(&path)?, &own)?, path)))
        .filter(|(_, path)| path.is_file())
        .collect();
    found.sort_by(|(a, first), (b, second)| b.cmp(a).then_with(|| first.cmp(second)));
    found.into_iter().map(|(_, path)| path).collect()
}

/// Letters that both names share, if a drafter's name without prefix and type begins the model's: `mtp-Gemma-4-E2B-Q8_0`
/// belongs to `Gemma-4-E2B-Q4_K_M`, and not to `Gemma-4-E4B-Q4_K_M`.
fn drafts_for(sidecar: &str, model: &str) -> Option<usize> {
    let kind = sidecar_kind(sidecar)?;
    let stem = sidecar.strip_suffix(".gguf")?.get(kind.len() + 1..)?;
    let is_type = |part: &str| {
        let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| part.starts_with(prefix));
        starts(&["q", "iq", "ud", "f16", "f32", "bf16", "mxfp"])
            && (part == "ud" || part.bytes().any(|b| b.is_ascii_digit()))
            && !part.starts_with("qwen")
    };
    let mut parts: Vec<_> = stem.split('-').collect();
    while parts.len() > 1 && parts.last().is_some_and(|last| is_type(last)) {
        parts.pop();
    }
    let stem = parts.join("-");
    let rest = model.strip_prefix(&stem)?;
    (!stem.is_empty() && (rest.starts_with(['-', '.', '_']) || rest.is_empty())).then_some(stem.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_announce_a_kind() {
        assert_eq!(sidecar_kind("MTP/mtp-gemma-4-E2B-it.gguf"), Some("mtp"));
        assert_eq!(sidecar_kind("DFlash-Qwen3-4B.GGUF"), Some("dflash"));
        for other in ["mtp-x.safetensors", "gemma-mtp-.gguf", "mmproj-F16.gguf", "", "é"] {
            assert_eq!(sidecar_kind(other), None, "{other}");
        }
    }

    #[test]
    fn a_drafter_belongs_to_the_model_of_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in [
            "gemma-4-E2B-it-Q4_K_M.gguf",
            "gemma-4-E4B-it-Q4_K_M.gguf",
            "mtp-gemma-4-E2B-it.gguf",
            "mtp-gemma-4-E4B-it-Q8_0.gguf",
            "dflash-gemma-4-E2B-it-UD-Q4_K_XL.gguf",
            "mtp-Qwen3.8-27B-Q4_0.gguf",
            "mtp-notes.txt",
        ] {
            std::fs::write(path(name), "").unwrap();
        }
        std::fs::create_dir(path("mtp-gemma-4.gguf")).unwrap();
        let of = |name: &str| -> Vec<String> {
            let found = sidecars(&path(name));
            found.iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect()
        };
        let both = ["dflash-gemma-4-E2B-it-UD-Q4_K_XL.gguf", "mtp-gemma-4-E2B-it.gguf"];
        assert_eq!(of("gemma-4-E2B-it-Q4_K_M.gguf"), both);
        assert_eq!(of("gemma-4-E4B-it-Q4_K_M.gguf"), ["mtp-gemma-4-E4B-it-Q8_0.gguf"]);
        assert_eq!(of("Qwen3.8-27B-UD-Q4_K_XL.gguf"), ["mtp-Qwen3.8-27B-Q4_0.gguf"]);
        assert_eq!(of("mtp-gemma-4-E2B-it.gguf"), [""; 0], "a drafter has none");
        assert_eq!(of("no-such-folder/gemma-4-E2B-it-Q4_K_M.gguf"), [""; 0]);
    }
}
