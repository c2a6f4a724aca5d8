//! Where models, prompts and recordings lie, and how they are written.

mod addresses;
mod encodings;
mod keys;
mod proxies;
mod split;
mod surroundings;

use std::ffi::OsStr;
use std::path::Path;

use assert_cmd::Command;

/// The program in a folder, without the user's configuration and network.
fn draftscope<S: AsRef<OsStr>>(folder: &Path, args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_draftscope"));
    command.args(args).current_dir(folder).env("NO_COLOR", "1").env("DRAFTSCOPE_OFFLINE", "1");
    command.env("HF_HOME", folder.join("hf")).env("DRAFTSCOPE_CACHE", folder.join("cache"));
    command.env("DRAFTSCOPE_CONFIG", folder.join("config.toml"));
    for name in ["DRAFTSCOPE_MODEL", "HF_HUB_OFFLINE", "HF_HUB_CACHE", "HF_TOKEN", "HF_ENDPOINT", "HF_TOKEN_PATH"] {
        command.env_remove(name);
    }
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"] {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
    command
}

/// What an answer of two tokens needs beside the model.
const SHORT: [&str; 9] = ["--prompt", "Hi", "--max-tokens", "2", "--drafter", "none", "--ctx", "64", "--raw"];

/// Exit status, standard output, and the program's own lines on standard error.
fn said(command: &mut Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

/// Runs a model by its name for two tokens.
fn run(folder: &Path, model: impl AsRef<OsStr>) -> (i32, String, String) {
    let head = [OsStr::new("run"), OsStr::new("--model"), model.as_ref()];
    said(&mut draftscope(folder, head.into_iter().chain(SHORT.iter().map(OsStr::new))))
}
