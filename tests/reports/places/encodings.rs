//! Byte order marks, other encodings, line ends, joined recordings, and names that are not UTF-8.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{draftscope, said};
use crate::common::tiny::Tiny;

const MARK: &[u8] = b"\xef\xbb\xbf";

fn utf16(text: &str) -> Vec<u8> {
    std::iter::once(0xfeff).chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect()
}

fn with_mark(bytes: &[u8]) -> Vec<u8> {
    [MARK, bytes].concat()
}

/// A folder with a model and a recording of a short run.
fn recorded() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(&Tiny::new(5).target, folder.path().join("tiny.gguf")).unwrap();
    record(folder.path(), "r.jsonl", &["--prompt", "Hi"]);
    folder
}

fn record(folder: &Path, to: &str, prompt: &[&str]) -> String {
    let args =
        ["run", "--model", "tiny.gguf", "--raw", "--max-tokens", "2", "--drafter", "none", "--force", "--trace", to];
    let (code, _, error) = said(&mut draftscope(folder, args.iter().chain(prompt)));
    if code == 0 { String::new() } else { error }
}

/// The prompt in a recording.
fn prompt_of(folder: &Path, name: &str) -> String {
    let text = fs::read_to_string(folder.join(name)).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut prompts = lines.filter(|line| line["type"] == "prompted");
    prompts.next().unwrap()["text"].as_str().unwrap().to_owned()
}

#[test]
fn prompt_files_are_utf8_with_or_without_a_mark() {
    let folder = recorded();
    let put = |bytes: &[u8]| fs::write(folder.path().join("p.txt"), bytes).unwrap();
    for (bytes, prompt) in [
        (with_mark(b"Hi"), "Hi"),
        (b"Hi\r\nyou\r\n".to_vec(), "Hi\r\nyou"),
        (with_mark(b"Hi\r\nyou"), "Hi\r\nyou"),
        ("a\u{feff}b".into(), "a\u{feff}b"),
    ] {
        put(&bytes);
        assert_eq!(record(folder.path(), "t.jsonl", &["--prompt-file", "p.txt"]), "");
        assert_eq!(prompt_of(folder.path(), "t.jsonl"), prompt);
    }
    for (bytes, what) in [
        (utf16("Hi"), "it is UTF-16 text, and UTF-8 is needed"),
        (utf16("Hi")[2..].repeat(9), "it is UTF-16LE text"),
        (b"caf\xe9".to_vec(), "line 1 has the byte E9, as text in Latin-1"),
        (b"\x1f\x8b\x08\0\0\0".to_vec(), "it begins like a gzip file"),
    ] {
        put(&bytes);
        let error = record(folder.path(), "t.jsonl", &["--prompt-file", "p.txt"]);
        assert!(error.contains(what) && error.contains("p.txt") && error.trim().lines().count() == 1, "{error}");
    }
}

#[test]
fn configuration_lessons_suites_and_vocabularies_may_have_a_mark() {
    let folder = recorded();
    let put = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    put("config.toml", &with_mark(b"max-tokens = 3\r\nseed = 7\r\n"));
    let (_, out, error) = said(&mut draftscope(folder.path(), ["config", "show"]));
    let shows = |key: &str, value: &str| out.lines().any(|line| line.split_whitespace().take(3).eq([key, "=", value]));
    assert!(shows("max-tokens", "3") && shows("seed", "7"), "{out}{error}");
    put("config.toml", &utf16("seed = 7\n"));
    let (_, _, error) = said(&mut draftscope(folder.path(), ["config", "show"]));
    assert!(error.contains("config.toml was not read: it is UTF-16 text"), "{error}");
    fs::remove_file(folder.path().join("config.toml")).unwrap();

    put("ids.txt", &with_mark(b"1\r\n2\r\n"));
    assert_eq!(record(folder.path(), "t.jsonl", &["--prompt", "Hi", "--draft-vocab", "ids.txt"]), "");
    put("ids.txt", &utf16("1\n2\n"));
    let error = record(folder.path(), "t.jsonl", &["--prompt", "Hi", "--draft-vocab", "ids.txt"]);
    assert!(error.contains("--draft-vocab: cannot read ids.txt: it is UTF-16 text"), "{error}");

    put("lesson.toml", &utf16("title = 'x'"));
    let (code, _, error) = said(&mut draftscope(folder.path(), ["learn", "--check", "lesson.toml"]));
    assert!(code == 2 && error.contains("cannot read lesson.toml: it is UTF-16 text"), "{error}");
}

fn export(folder: &Path, name: &str) -> (i32, String, String) {
    said(&mut draftscope(folder, ["export", name, "--to", "md", "--out", "-"]))
}

#[test]
fn recordings_are_read_with_a_mark_and_any_line_ends() {
    let folder = recorded();
    let put = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    let plain = fs::read(folder.path().join("r.jsonl")).unwrap();
    let text = String::from_utf8(plain.clone()).unwrap();
    let expected = export(folder.path(), "r.jsonl");
    assert_eq!(expected.0, 0);
    put("mark.jsonl", &with_mark(&plain));
    put("crlf.jsonl", text.replace('\n', "\r\n").as_bytes());
    put("both.jsonl", &with_mark(text.replace('\n', "\r\n").as_bytes()));
    put("header.jsonl", &with_mark(text.lines().next().unwrap().as_bytes()));
    for name in ["mark.jsonl", "crlf.jsonl", "both.jsonl"] {
        let got = export(folder.path(), name);
        let same = |text: &str| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!((got.0, same(&got.1)), (0, same(&expected.1)), "{name}: {}", got.2);
        let (code, out, error) = said(&mut draftscope(folder.path(), ["diff", "r.jsonl", name]));
        assert!(code == 0 && out.contains("identical"), "{name}: {out}{error}");
    }
    assert_eq!(export(folder.path(), "header.jsonl").0, 0);
    put("utf16.jsonl", &utf16(&text));
    for command in [&["export", "utf16.jsonl", "--to", "md", "--out", "-"][..], &["replay", "utf16.jsonl"]] {
        let (code, _, error) = said(&mut draftscope(folder.path(), command));
        assert!(code == 2 && error.contains("cannot read the trace utf16.jsonl: it is UTF-16 text"), "{error}");
    }
}

#[test]
fn joined_recordings_are_an_error_that_names_the_line() {
    let folder = recorded();
    let put = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    let plain = fs::read(folder.path().join("r.jsonl")).unwrap();
    let lines = plain.iter().filter(|byte| **byte == b'\n').count();
    put("joined.jsonl", &plain.repeat(2));
    put("marks.jsonl", &with_mark(&plain).repeat(2));
    for name in ["joined.jsonl", "marks.jsonl"] {
        for command in [
            &["export", name, "--to", "md", "--out", "-"][..],
            &["export", name, "--to", "csv", "--out", "-"],
            &["export", name, "--to", "jsonl", "--out", "-"],
            &["replay", name],
            &["diff", name, "r.jsonl"],
            &["diff", "r.jsonl", name],
        ] {
            let (code, out, error) = said(&mut draftscope(folder.path(), command));
            let what = format!("{name} has several recordings: another one starts at line {}", lines + 1);
            assert!(code == 2 && error.contains(&what), "{command:?}: {out}{error}");
            assert!(error.contains(&format!("head -n {lines} > FIRST")), "{error}");
        }
    }
}

#[cfg(unix)]
#[test]
fn every_command_takes_names_that_are_not_utf8() {
    use std::ffi::{OsStr, OsString};
    use std::os::unix::ffi::OsStrExt;
    let folder = recorded();
    let name = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
    let (model, trace, prompt) = (name(b"mod\xe8le.gguf"), name(b"r\xe9sum\xe9.jsonl"), name(b"p\xe9.txt"));
    if fs::rename(folder.path().join("tiny.gguf"), folder.path().join(&model)).is_err() {
        return; // this file system has names in UTF-8 alone
    }
    fs::write(folder.path().join(&prompt), "Hi").unwrap();
    let text = |text: &str| OsString::from(text);
    let all = |words: &[OsString]| said(&mut draftscope(folder.path(), words));
    let run = [
        text("run"),
        text("--model"),
        model.clone(),
        text("--prompt-file"),
        prompt,
        text("--max-tokens"),
        text("2"),
        text("--drafter"),
        text("none"),
        text("--trace"),
        trace.clone(),
    ];
    let (code, _, error) = all(&run);
    assert_eq!(code, 0, "{error}");
    let (code, out, error) = all(&[text("export"), trace.clone(), text("--to"), text("md"), text("--out"), text("-")]);
    assert!(code == 0 && !out.is_empty(), "{error}");
    let (code, _, error) = all(&[text("diff"), trace.clone(), trace.clone()]);
    assert_eq!(code, 0, "{error}");
    let (code, _, error) = all(&[text("replay"), trace]);
    assert_eq!(code, 0, "{error}");
    let (code, out, error) = all(&[text("models"), text("info"), model]);
    assert!(code == 0 && out.contains("runs     yes") && out.contains("mod\u{fffd}le"), "{out}{error}");
    for words in [
        [text("models"), text("info"), name(b"no\xe9.gguf")],
        [text("models"), text("rm"), name(b"no\xe9.gguf")],
        [text("attach"), text("--check"), name(b"no\xe9.jsonl")],
        [text("learn"), text("--check"), name(b"no\xe9.toml")],
    ] {
        let (code, _, error) = all(&words);
        assert!(code == 2 && error.contains("no\u{fffd}.") && !error.contains("invalid UTF-8"), "{words:?}: {error}");
    }
}
