//! What people paste where a model's name belongs: pages and files of the Hugging Face Hub, `hf.co/owner/name:TYPE`,
//! `file://` addresses and paths from the home directory.

use std::path::PathBuf;

use etcetera::BaseStrategy;

use super::error::StoreError;
use super::repo_name::{RepoName, Wanted, is_plain_path};

/// Longest address that is read, in bytes.
const MAX_ADDRESS: usize = 2048;

/// Hosts of the hub; a mirror that `HF_ENDPOINT` names counts as well.
const HOSTS: [&str; 3] = ["huggingface.co", "www.huggingface.co", "hf.co"];

/// Tabs of a repository's page that show its files at a revision.
const FILES: [&str; 5] = ["blob", "resolve", "raw", "tree", "blame"];

/// What an address names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    /// A file or folder of this machine.
    Path(PathBuf),
    /// A repository, or a file of it.
    Repo(RepoName),
}

/// Reads an address; `None` if the text is none, such as a path or a name.
///
/// # Errors
/// [`StoreError::Address`] for an address that names no model.
pub(super) fn read(text: &str) -> Result<Option<Address>, StoreError> {
    let wrong = |why: String| StoreError::Address { address: shown(text), why };
    if let Some(rest) = text.strip_prefix("~/") {
        let home = etcetera::choose_base_strategy().map_err(|_| wrong("the home directory is unknown".to_owned()))?;
        return Ok(Some(Address::Path(home.home_dir().join(rest))));
    }
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (scheme.to_ascii_lowercase(), rest),
        None => (String::new(), text),
    };
    let on_hub = after_host(rest);
    match (scheme.as_str(), on_hub) {
        _ if text.len() > MAX_ADDRESS => Ok(None),
        ("file", _) => Ok(Some(Address::Path(local(rest).ok_or_else(|| {
            wrong("it names a file of another machine; on this one it begins with file:///".to_owned())
        })?))),
        ("hf", _) => repo(on_hub.unwrap_or(rest)).map(Address::Repo).map(Some).map_err(wrong),
        ("" | "http" | "https", Some(path)) => repo(path).map(Address::Repo).map(Some).map_err(wrong),
        ("", None) => Ok(None),
        ("http" | "https", None) => Err(wrong(
            "models are downloaded from the Hugging Face Hub alone; download the file and name it, or use --attach for a server"
                .to_owned(),
        )),
        (scheme, _) => Err(wrong(format!(
            "{}:// is not read; use owner/name of the Hugging Face Hub, or a path",
            scheme.chars().filter(char::is_ascii_alphanumeric).take(20).collect::<String>()
        ))),
    }
}

/// An address as messages show it: without query, which may hold a token.
fn shown(text: &str) -> String {
    let text = text.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = text.split_once("://").map_or(("", text), |(scheme, rest)| (scheme, rest));
    let host_end = rest.find('/').unwrap_or(rest.len());
    let rest = rest[..host_end].rfind('@').map_or(rest, |at| &rest[at + 1..]); // without a password
    let separator = if scheme.is_empty() { "" } else { "://" };
    format!("{scheme}{separator}{rest}").chars().filter(|c| !c.is_control()).take(200).collect()
}

/// The path that follows a host of the Hub.
fn after_host(rest: &str) -> Option<&str> {
    let (host, path) = rest.split_once('/')?;
    let host = host.to_ascii_lowercase();
    let own = std::env::var("HF_ENDPOINT").unwrap_or_default().to_ascii_lowercase();
    let own = own.split_once("://").map(|(_, rest)| rest.trim_end_matches('/'));
    (HOSTS.contains(&host.as_str()) || own == Some(host.as_str())).then_some(path)
}

/// `owner/name`, or a page or file of a repository.
fn repo(path: &str) -> Result<RepoName, String> {
    let path = path.split(['?', '#']).next().unwrap_or_default().trim_matches('/');
    let path = decoded(path).ok_or("it has a % that no two hexadecimal digits follow")?;
    let parts: Vec<&str> = path.split('/').collect();
    let forms = "the form is owner/name, owner/name:TYPE or owner/name/FILE.gguf";
    let none = || format!("it names no repository of models; {forms}");
    match parts[..] {
        ["datasets" | "spaces" | "collections" | "papers" | "docs" | "blog" | "models" | "api", ..] => Err(none()),
        [owner, name] => RepoName::parse(&format!("{owner}/{name}")).ok_or_else(none),
        [owner, name, tab, ref rest @ ..] if FILES.contains(&tab) => {
            // a branch of a pull request is refs/pr/N
            let (revision, rest) = match rest {
                ["refs", ..] => return Err(format!("revisions with a slash are not read; {forms}")),
                [revision, rest @ ..] => (Some(*revision).filter(|revision| *revision != "main"), rest),
                [] => (None, rest),
            };
            let wanted = wanted(&rest.join("/")).ok_or_else(none)?;
            RepoName::new((owner, name), revision, wanted).ok_or_else(none)
        }
        [owner, name, ref rest @ ..] => {
            let file = rest.join("/");
            RepoName::parse(&format!("{owner}/{name}/{file}"))
                .ok_or_else(|| format!("it is no file of a model; {forms}"))
        }
        _ => Err(none()),
    }
}

/// What a path in a repository stands for: a GGUF file is meant alone, any other file as a part of its model.
fn wanted(path: &str) -> Option<Wanted> {
    if path.is_empty() {
        return Some(Wanted::Model);
    }
    if !is_plain_path(path) {
        return None;
    }
    let name = path.rsplit('/').next().unwrap_or_default();
    let is_file =
        [".safetensors", ".json", ".bin", ".md", ".jinja", ".txt", ".model"].iter().any(|end| name.ends_with(end));
    Some(match name {
        name if name.ends_with(".gguf") => Wanted::File(path.to_owned()),
        _ if is_file => Wanted::Model,
        _ => Wanted::Under(path.to_owned()),
    })
}

/// The path of a `file://` address without its scheme.
fn local(rest: &str) -> Option<PathBuf> {
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    let path = bytes_decoded(path).filter(|path| path.first() == Some(&b'/') && !path.contains(&0))?;
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStringExt;
        Some(PathBuf::from(std::ffi::OsString::from_vec(path)))
    }
    #[cfg(not(unix))]
    {
        // file:///C:/model.gguf
        let path = String::from_utf8(path).ok()?;
        let has_drive = path.as_bytes().get(2) == Some(&b':');
        Some(PathBuf::from(if has_drive { &path[1..] } else { &path }))
    }
}

/// The text that percent signs encode.
fn decoded(text: &str) -> Option<String> {
    String::from_utf8(bytes_decoded(text)?).ok()
}

fn bytes_decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            byte => byte,
        });
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> RepoName {
        match read(text) {
            Ok(Some(Address::Repo(name))) => name,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn addresses_of_the_hub_are_read() {
        let model = RepoName::parse("o/n").unwrap();
        for text in [
            "https://huggingface.co/o/n",
            "https://huggingface.co/o/n/",
            "http://www.huggingface.co/o/n?library=gguf#files",
            "huggingface.co/o/n",
            "HTTPS://HF.co/o/n",
            "hf.co/o/n",
            "hf://o/n",
            "hf://huggingface.co/o/n",
            "hf.co/o/n:latest",
            "https://huggingface.co/o/n/tree/main",
            "https://huggingface.co/o/n/blob/main/config.json",
            "https://huggingface.co/o/n/resolve/main/model-00001-of-00002.safetensors?download=true",
        ] {
            assert_eq!(name(text), model, "{text}");
        }
        for (text, expected) in [
            ("hf.co/o/n:Q4_K_M", "o/n:Q4_K_M"),
            ("hf://o/n@v2/q/m.gguf", "o/n@v2/q/m.gguf"),
            ("https://huggingface.co/o/n/blob/main/q/m-Q4_0.gguf", "o/n/q/m-Q4_0.gguf"),
            ("https://huggingface.co/o/n/resolve/v2/m.gguf?download=true", "o/n@v2/m.gguf"),
            ("https://huggingface.co/o/n/resolve/main/m%2EQ4_0.gguf", "o/n/m.Q4_0.gguf"),
        ] {
            assert_eq!(Some(name(text)), RepoName::parse(expected), "{text}");
        }
        assert_eq!(name("hf.co/o/n/tree/main/BF16").wanted, Wanted::Under("BF16".to_owned()));
    }

    #[test]
    fn files_of_this_machine_are_paths() {
        let path = |text: &str| read(text).unwrap();
        assert_eq!(path("file:///a/b%20c.gguf"), Some(Address::Path("/a/b c.gguf".into())));
        assert_eq!(path("file://localhost/a.gguf"), Some(Address::Path("/a.gguf".into())));
        let Some(Address::Path(home)) = path("~/m.gguf") else { panic!("no path") };
        assert!(home.is_absolute() && home.ends_with("m.gguf"));
        for text in ["a/b", "./a.gguf", "model", "C:\\a\\b", "~", "~user/x", "huggingface.co", ""] {
            assert_eq!(path(text), None, "{text}");
        }
    }

    #[test]
    fn addresses_that_name_no_model_are_sentences() {
        let says = |text: &str| match read(text) {
            Err(error) => error.to_string(),
            other => panic!("{text}: {other:?}"),
        };
        for (text, what) in [
            ("https://huggingface.co/datasets/o/n", "names no repository of models"),
            ("https://huggingface.co/o", "names no repository of models"),
            ("https://huggingface.co/o/n/discussions/1", "no file of a model"),
            ("https://huggingface.co/o/n/blob/main/../../x.gguf", "names no repository of models"),
            ("https://huggingface.co/o/n/blob/refs/pr/1/x.gguf", "revisions with a slash"),
            ("https://huggingface.co/o/%zz", "hexadecimal"),
            ("https://example.org/m.gguf?token=secret", "downloaded from the Hugging Face Hub alone"),
            ("https://u:secret@example.org/m.gguf", "downloaded from the Hugging Face Hub alone"),
            ("file://server/share/m.gguf", "another machine"),
            ("s3://bucket/m.gguf", "s3:// is not read"),
        ] {
            let error = says(text);
            assert!(error.contains(what) && !error.contains("secret") && error.lines().count() == 1, "{error}");
        }
        assert!(!says("https://\u{1b}[2J.org/x").contains('\u{1b}'));
    }
}
