//! Split GGUF files, as `llama-gguf-split` writes them: the later parts have neither an architecture nor a tokenizer.

use std::fs::File;
use std::path::{Path, PathBuf};

use candle_core::quantized::QTensor;
use candle_core::quantized::gguf_file::{self, Value};
use serde_json::Value as Json;

use super::{draftscope, run, said};
use crate::common::tiny::Tiny;

type Tensors = Vec<(String, QTensor)>;

fn keys(number: u16, count: u16, tensors: usize) -> Vec<(String, Value)> {
    let tensors = Value::I32(i32::try_from(tensors).unwrap());
    let keys = [("split.no", Value::U16(number)), ("split.count", Value::U16(count)), ("split.tensors.count", tensors)];
    keys.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn write(path: &Path, metadata: &[(String, Value)], tensors: &Tensors) {
    let metadata: Vec<_> = metadata.iter().map(|(key, value)| (key.as_str(), value)).collect();
    let tensors: Vec<_> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    gguf_file::write(&mut File::create(path).unwrap(), &metadata, &tensors).unwrap();
}

/// A tiny model in so many parts, and the same in one file.
fn split(folder: &Path, seed: u64, count: u16, name: fn(u16) -> String) -> (Vec<PathBuf>, PathBuf) {
    let whole = folder.join(format!("whole-{seed}.gguf"));
    std::fs::copy(&Tiny::new(seed).target, &whole).unwrap();
    let mut paths = Vec::new();
    Tiny::with(seed, |parts| {
        let all = parts.tensors.len();
        let per_part = all.div_ceil(count.into());
        for number in 0..count {
            let own: Tensors = parts.tensors.drain(..per_part.min(parts.tensors.len())).collect();
            let mut metadata = keys(number, count, all);
            if number == 0 {
                metadata.extend(parts.metadata.clone());
            }
            paths.push(folder.join(name(number)));
            write(&paths[usize::from(number)], &metadata, &own);
        }
    });
    (paths, whole)
}

/// The usual name of a part of three.
fn usual(number: u16) -> String {
    format!("m-{:05}-of-00003.gguf", number + 1)
}

fn info(folder: &Path, file: &Path) -> Json {
    let mut command = draftscope(folder, ["models".as_ref(), "info".as_ref(), file.as_os_str(), "--json".as_ref()]);
    serde_json::from_slice(&command.output().unwrap().stdout).unwrap()
}

#[test]
fn a_model_in_parts_answers_as_the_whole_one_from_any_part() {
    let renamed: fn(u16) -> String = |number| format!("renamed {number}");
    for names in [usual as fn(u16) -> String, renamed] {
        let folder = tempfile::tempdir().unwrap();
        let (parts, whole) = split(folder.path(), 5, 3, names);
        let expected = run(folder.path(), &whole);
        assert_eq!(expected.0, 0, "{}", expected.2);
        let of_whole = info(folder.path(), &whole);
        for part in &parts {
            let got = run(folder.path(), part);
            assert_eq!((got.0, &got.1), (0, &expected.1), "{}", got.2);
            let of_part = info(folder.path(), part);
            assert_eq!((&of_part["runs"], &of_part["gguf"]["files"]), (&Json::from(true), &Json::from(3)), "{of_part}");
            assert_eq!(of_part["gguf"]["part"], Json::Null);
            for key in ["tensor_bytes", "parameters", "layers", "weight_bytes"] {
                assert_eq!(of_part["model"][key], of_whole["model"][key], "{key}");
            }
            let bytes: u64 = parts.iter().map(|part| part.metadata().unwrap().len()).sum();
            assert_eq!(of_part["bytes"], bytes);
        }
    }
}

#[test]
fn a_missing_part_is_named_with_the_next_step() {
    let folder = tempfile::tempdir().unwrap();
    let (parts, _) = split(folder.path(), 5, 3, usual);
    std::fs::remove_file(&parts[1]).unwrap();
    for part in [&parts[0], &parts[2]] {
        let (code, _, error) = run(folder.path(), part);
        let what = "part 2 is missing (m-00002-of-00003.gguf); download it into";
        assert!(code == 2 && error.contains(what) && error.trim().lines().count() == 1, "{error}");
        let of_part = info(folder.path(), part);
        assert_eq!(of_part["runs"], false);
        assert!(of_part["problem"].as_str().unwrap().contains(what), "{of_part}");
    }
    let of_first = info(folder.path(), &parts[0]);
    assert_eq!((&of_first["gguf"]["part"], &of_first["gguf"]["files"]), (&serde_json::json!([1, 3]), &Json::from(1)));
}

#[test]
fn parts_of_different_models_are_rejected() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (parts, _) = split(folder.path(), 5, 3, usual);
    // a part that has the tensors of its neighbour
    let (others, _) = split(other.path(), 6, 3, usual);
    std::fs::copy(&others[2], &parts[1]).unwrap();
    let (code, _, error) = run(folder.path(), &parts[0]);
    assert!(code == 2 && error.contains("is not part 2 of 3") && error.contains("it is part 3 of 3"), "{error}");
    // the right number, with tensors that another part has already
    let mut duplicates = Vec::new();
    Tiny::with(6, |model| {
        let all = model.tensors.len();
        duplicates = model.tensors.drain(..2).collect();
        write(&parts[1], &keys(1, 3, all), &duplicates);
    });
    let (code, _, error) = run(folder.path(), &parts[0]);
    assert!(code == 2 && error.contains("is in part 1 and in part 2"), "{error}");
    write(&parts[1], &keys(1, 3, 7), &Vec::new());
    let (code, _, error) = run(folder.path(), &parts[0]);
    assert!(code == 2 && error.contains("'split.tensors.count' is 7"), "{error}");
    write(&parts[1], &keys(1, u16::MAX, 7), &Vec::new());
    let (code, _, error) = run(folder.path(), &parts[1]);
    assert!(code == 2 && error.contains("one of 65535 parts"), "{error}");
}

#[test]
fn parts_lie_in_a_folder_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("model")).unwrap();
    let (parts, _) = split(&folder.path().join("model"), 5, 3, usual);
    let whole = folder.path().join("model/whole-5.gguf");
    std::fs::rename(&whole, folder.path().join("whole.gguf")).unwrap();
    let expected = run(folder.path(), "whole.gguf");
    let got = run(folder.path(), "model");
    assert_eq!((got.0, &got.1), (0, &expected.1), "{}", got.2);
    std::fs::remove_file(&parts[0]).unwrap();
    let (code, _, error) = said(&mut draftscope(folder.path(), ["models", "info", "model"]));
    assert!(code == 0 && error.is_empty(), "{error}");
}
