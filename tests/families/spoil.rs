//! Edits that damage a fixture, and the message that each of them causes.
//!
//! A table has a row for each edit: `edit => message`, where the message is a part of the reported one. Edits:
//!
//! - `set KEYS JSON`: sets a value of `config.json`; dots separate the keys that lead to it
//! - `lack KEY`: removes a key of `config.json`
//! - `in FILE set KEYS JSON`: sets a value of another JSON file
//! - `without PART`: drops the tensors whose names contain this
//! - `shorten PART`: drops the last row of those tensors
//! - `transpose PART`: swaps the two sizes of their shapes
//! - `number NAME INDEX VALUE`: sets an integer of a tensor
//! - `add NAME LENGTH`: adds a vector of zeros to `model.safetensors`
//! - `shard`: splits the tensors into two files with an index
//! - `cut FILE BYTES`: keeps this many bytes; a negative number removes bytes from the end
//! - `remove FILE` and `write FILE TEXT`
//!
//! `;` separates edits that are made together. A row that ends after `=>` is an edit that leaves the fixture usable.

use std::fs;
use std::path::Path;

use crate::case::{Case, Source};
use crate::support::{
    Stored, Tensor, add, copy, cut, lack, left_out, one_sentence, open, options, path, rewrite, set, set_config, shard,
    try_open, with_draft, without,
};

/// Rows of a table: edit and message.
fn rows(table: &str) -> impl Iterator<Item = (&str, &str)> {
    let rows = table.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    rows.map(|row| row.split_once("=>").unwrap_or_else(|| panic!("no '=>' in {row}")))
        .map(|(a, b)| (a.trim(), b.trim()))
}

/// A copy of a fixture with edits.
pub fn spoiled(fixture: &str, edits: &str) -> tempfile::TempDir {
    let folder = copy(fixture);
    edits.split("; ").for_each(|edit| apply(folder.path(), edit.trim()));
    folder
}

fn apply(folder: &Path, edit: &str) {
    let (verb, rest) = edit.split_once(' ').unwrap_or((edit, ""));
    let (first, value) = rest.split_once(' ').unwrap_or((rest, ""));
    let json = |text: &str| serde_json::from_str(text).unwrap_or_else(|error| panic!("{edit}: {error}"));
    let file = folder.join(first);
    match verb {
        "add" => {
            let len: usize = value.parse().unwrap();
            add(folder, Tensor { name: first.into(), dtype: Stored::F32, shape: vec![len], data: vec![0; 4 * len] });
        }
        "shard" => shard(folder),
        "set" => set_config(folder, first, json(value)),
        "lack" => lack(folder, "config.json", first),
        "in" => {
            let (keys, value) = value.strip_prefix("set ").and_then(|rest| rest.split_once(' ')).unwrap();
            set(folder, first, keys, json(value));
        }
        "without" => without(folder, first),
        "shorten" => rewrite(folder, |tensor| {
            if tensor.name.contains(first) {
                tensor.data.truncate(tensor.data.len() / tensor.shape[0] * (tensor.shape[0] - 1));
                tensor.shape[0] -= 1;
            }
            true
        }),
        "transpose" => rewrite(folder, |tensor| {
            if tensor.name.contains(first) {
                tensor.shape.swap(0, 1);
            }
            true
        }),
        "number" => {
            let (at, number) = value.split_once(' ').unwrap();
            let (at, number): (usize, i64) = (at.parse().unwrap(), number.parse().unwrap());
            rewrite(folder, |tensor| {
                if tensor.name == first {
                    tensor.data[8 * at..8 * at + 8].copy_from_slice(&number.to_le_bytes());
                }
                true
            });
        }
        "cut" => cut(&file, value.parse().unwrap()),
        "remove" => fs::remove_file(file).unwrap(),
        "write" => fs::write(file, value).unwrap(),
        _ => panic!("unknown edit: {edit}"),
    }
}

/// Edits after which every target in a folder is rejected.
const ANY_FOLDER: &str = "remove config.json => has no config.json
    remove tokenizer.json => has no tokenizer.json";

/// The target is rejected after each edit of its folder, and so is a truncated file.
pub fn targets(case: &Case) {
    let refused = |folder: &Path, edits: &str, says: &str| {
        for run in case.runs {
            if says.is_empty() {
                drop(open(&options(folder, run.backend)));
                continue;
            }
            let error =
                try_open(&options(folder, run.backend)).err().unwrap_or_else(|| panic!("{edits}: it was opened"));
            let error = one_sentence(error.to_string());
            assert!(error.contains(says), "{edits}: {error}");
        }
    };
    if path(case.fixture).is_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::copy(path(case.fixture), file.path()).unwrap();
        cut(file.path(), -1000);
        return refused(file.path(), "cut", "reaches beyond the end of the file");
    }
    for (edits, says) in rows(ANY_FOLDER).chain(rows(case.spoiled)) {
        refused(spoiled(case.fixture, edits).path(), edits, says);
    }
}

/// The draft module is ignored after each edit of its folder, and the target runs.
pub fn modules(case: &Case) {
    let draft = case.draft();
    for run in case.runs {
        drop(case.open(run)); // the unchanged fixture loads with its module
        for (edits, says) in rows(draft.spoiled) {
            let fixture = if let Source::Fixture(name) = draft.source { name } else { case.fixture };
            let folder = spoiled(fixture, edits);
            let options = match draft.source {
                Source::Target(_) => options(folder.path(), run.backend),
                Source::Fixture(_) => with_draft(&path(case.fixture), folder.path(), run.backend),
            };
            if says.is_empty() {
                let loaded = open(&options);
                assert!(loaded.mtp.is_some() && loaded.notice.is_none(), "{edits}: {:?}", loaded.notice);
                continue;
            }
            let notice = left_out(&options);
            assert!(notice.contains(says), "{edits}: {notice}");
        }
    }
}
