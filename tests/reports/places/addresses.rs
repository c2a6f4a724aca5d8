//! What people paste where a model's name belongs.

use std::fs;
use std::path::Path;

use super::{SHORT, draftscope, run, said};
use crate::common::tiny::Tiny;
use crate::hub::{COMMIT, HubFiles, ScriptedHub};

fn tiny() -> Vec<u8> {
    fs::read(&Tiny::new(5).target).unwrap()
}

#[test]
fn files_of_this_machine_run_by_any_of_their_addresses() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    let digest = "ab12".repeat(16);
    fs::create_dir_all(folder.join("blobs")).unwrap();
    fs::create_dir(folder.join("one")).unwrap();
    for name in ["tiny.gguf", "a b.gguf", "one/m.gguf", &format!("blobs/sha256-{digest}")] {
        fs::write(folder.join(name), tiny()).unwrap();
    }
    fs::write(folder.join("one/mmproj-F16.gguf"), "GGUF").unwrap();
    fs::write(folder.join("one/config.json"), "{}").unwrap();
    let here = folder.display();
    for model in [
        format!("blobs/sha256-{digest}"),
        "one".to_owned(),
        "one/".to_owned(),
        format!("file://{here}/tiny.gguf"),
        format!("file://localhost{here}/a%20b.gguf"),
        "~/tiny.gguf".to_owned(),
        "~/one".to_owned(),
    ] {
        let head = ["run", "--model", &model];
        let (code, out, error) = said(draftscope(folder, head.iter().chain(&SHORT)).env("HOME", folder));
        assert!(code == 0 && !out.is_empty(), "{model}: {error}");
        let (code, out, _) = said(draftscope(folder, ["models", "info", &model]).env("HOME", folder));
        assert!(code == 0 && out.contains("runs     yes"), "{model}: {out}");
    }
}

#[test]
fn a_folder_of_several_models_lists_them() {
    let folder = tempfile::tempdir().unwrap();
    let several = folder.path().join("several");
    fs::create_dir(&several).unwrap();
    for name in ["a-Q4_K_M.gguf", "b-Q8_0.gguf"] {
        fs::write(several.join(name), tiny()).unwrap();
    }
    let (code, _, error) = run(folder.path(), "several");
    assert!(code == 2 && error.trim().lines().count() == 1, "{error}");
    for what in
        ["several has 2 models: a-Q4_K_M.gguf (", "kB), b-Q8_0.gguf (", "name the file, as in several/a-Q4_K_M.gguf"]
    {
        assert!(error.contains(what), "{what}: {error}");
    }
}

#[test]
fn addresses_of_a_repository_name_the_repository() {
    let folder = tempfile::tempdir().unwrap();
    for model in [
        "owner/name",
        "owner/name:Q4_K_M",
        "hf.co/owner/name:Q4_K_M",
        "hf://owner/name",
        "huggingface.co/owner/name",
        "https://huggingface.co/owner/name",
        "https://huggingface.co/owner/name/tree/main",
        "https://huggingface.co/owner/name/blob/main/tiny.gguf",
        "https://huggingface.co/owner/name/resolve/main/tiny.gguf?download=true",
    ] {
        let (code, _, error) = run(folder.path(), model);
        assert!(code == 2 && error.contains("cannot get the repository 'owner/name'"), "{model}: {error}");
        assert!(error.contains("DRAFTSCOPE_OFFLINE is set; go online once, or use a path"), "{error}");
    }
    for (model, what) in [
        ("missing/tiny.gguf", "cannot read the model file missing/tiny.gguf"),
        ("https://example.org/m.gguf", "downloaded from the Hugging Face Hub alone"),
        ("https://huggingface.co/datasets/owner/name", "names no repository of models"),
        ("file://server/m.gguf", "a file of another machine"),
    ] {
        let (code, _, error) = run(folder.path(), model);
        assert!(code == 2 && error.contains(what) && error.trim().lines().count() == 1, "{model}: {error}");
    }
}

fn files(names: &[&str]) -> HubFiles {
    names.iter().map(|name| ((*name).to_owned(), tiny())).collect()
}

/// Runs a model of a hub; returns status, answer and messages.
fn online(folder: &Path, hub: &ScriptedHub, model: &str) -> (i32, String, String) {
    let head = ["run", "--model", model];
    let mut command = draftscope(folder, head.iter().chain(&SHORT));
    said(command.env("HF_ENDPOINT", &hub.endpoint).env_remove("DRAFTSCOPE_OFFLINE"))
}

/// Paths of the files that were downloaded, each once.
fn downloaded(hub: &ScriptedHub) -> Vec<String> {
    let mut asked = std::mem::take(&mut *hub.asked.lock().unwrap());
    asked.dedup();
    let mark = format!("/resolve/{COMMIT}/");
    asked.iter().filter_map(|path| path.split_once(&mark).map(|(_, file)| file.to_owned())).collect()
}

#[test]
fn a_repository_of_several_files_says_which_one_it_takes_and_why() {
    let folder = tempfile::tempdir().unwrap();
    let hub = ScriptedHub::start(files(&["m-Q8_0.gguf", "m-Q4_K_M.gguf", "mmproj-F16.gguf", "BF16/m-BF16.gguf"]));
    let (code, answer, error) = online(folder.path(), &hub, "owner/name");
    assert_eq!(code, 0, "{error}");
    for what in [
        "owner/name has several GGUF files: m-Q4_K_M.gguf (",
        "kB), m-Q8_0.gguf (",
        "BF16/m-BF16.gguf (",
        "taking m-Q4_K_M.gguf, because it is Q4_K_M",
        "owner/name:TYPE",
    ] {
        assert!(error.contains(what), "{what}: {error}");
    }
    assert!(!error.contains("mmproj") && downloaded(&hub) == ["m-Q4_K_M.gguf"], "{error}");
    // the second start asks nobody, and without a network it runs as well
    assert_eq!(run(folder.path(), "owner/name").1, answer);
    assert_eq!(run(folder.path(), "https://huggingface.co/owner/name").1, answer);
    assert_eq!(downloaded(&hub), [""; 0]);

    let (code, _, error) = online(folder.path(), &hub, "hf.co/owner/name:q8_0");
    assert!(code == 0 && downloaded(&hub) == ["m-Q8_0.gguf"], "{error}");
    let page = format!("{}/owner/name/tree/main/BF16", hub.endpoint);
    let (code, _, error) = online(folder.path(), &hub, &page);
    assert!(code == 0 && downloaded(&hub) == ["BF16/m-BF16.gguf"], "{error}");
    let (code, _, error) = online(folder.path(), &hub, "owner/name:Q2_K");
    assert!(code == 2 && error.contains("no GGUF file of type Q2_K; its GGUF files are m-Q4_K_M.gguf"), "{error}");
}

#[test]
fn a_split_file_comes_with_all_its_parts() {
    let folder = tempfile::tempdir().unwrap();
    let parts = ["q/m-Q8_0-00001-of-00002.gguf", "q/m-Q8_0-00002-of-00002.gguf"];
    let hub = ScriptedHub::start(files(&[parts[1], parts[0], "m-Q2_K-00002-of-00002.gguf"]));
    // these files are whole models, so that the answer does not matter here
    for name in ["owner/name:Q8_0", &format!("owner/name/{}", parts[1])] {
        let (code, _, error) = online(folder.path(), &hub, name);
        assert!(code == 0, "{error}");
    }
    assert_eq!(downloaded(&hub), parts);
    let (code, _, error) = online(folder.path(), &hub, "owner/name/m-Q2_K-00002-of-00002.gguf");
    assert!(code == 2 && error.contains("not all of its parts: 1 are missing, the first is part 1"), "{error}");
    let pull = ["models", "pull", "owner/name:Q8_0", "--json"];
    let (_, out, _) = said(&mut draftscope(folder.path(), pull));
    let pulled: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(pulled["bytes"], 2 * tiny().len(), "{pulled}");
}

#[test]
fn names_from_a_server_never_lead_out_of_the_cache() {
    let folder = tempfile::tempdir().unwrap();
    let hub = ScriptedHub::start(files(&[
        "../../../../x-Q4_K_M.gguf",
        "a/../../x-Q4_K_M.gguf",
        ".x-Q4_K_M.gguf",
        "m-Q8_0.gguf",
    ]));
    let (code, _, error) = online(folder.path(), &hub, "owner/name");
    assert!(code == 0 && downloaded(&hub) == ["m-Q8_0.gguf"], "{error}");
    let (code, _, error) = online(folder.path(), &hub, "owner/name:Q4_K_M");
    assert!(code == 2 && error.contains("its GGUF files are m-Q8_0.gguf"), "{error}");
}
