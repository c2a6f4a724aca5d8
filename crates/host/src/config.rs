//! The configuration file: names of options and their values, which become defaults of the command
//! line. An environment variable overrides the file, and an option overrides both.
//!
//! Invariant: a file that is missing, cut off or partly wrong never stops the program: each part that is not
//! understood becomes a warning, the rest is used. `cli` defines what an option means.

use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use etcetera::BaseStrategy;

use crate::file_access;

/// The file as `config init` writes it: every setting with its default, commented out.
pub const TEMPLATE: &str = include_str!("../assets/config.toml");

/// Options that the file may set, by their long names.
pub const KEYS: &[&str] = &[
    "model",
    "dtype",
    "device",
    "backend",
    "threads",
    "ctx",
    "system",
    "raw",
    "draft-len",
    "verify",
    "drafter",
    "temperature",
    "top-k",
    "top-p",
    "min-p",
    "seed",
    "max-tokens",
    "theme",
    "view",
    "split",
    "marks",
    "ascii",
    "no-mouse",
    "pace",
    "autosave",
];

/// Largest file that is read, in bytes.
const MAX_BYTES: u64 = 64 << 10;

/// Most themes, and most lessons, that are read.
const MAX_FILES: usize = 64;

/// Contents of the user's files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserFiles {
    /// Option and value, in the order of the file.
    pub entries: Vec<(String, String)>,
    /// Text of `keymap.toml`.
    pub keymap: Option<String>,
    /// Name and text of each file in `themes`, by name.
    pub themes: Vec<(String, String)>,
    /// Name and text of each file in `lessons`, by name.
    pub lessons: Vec<(String, String)>,
    /// A sentence about each part that was not understood.
    pub warnings: Vec<String>,
}

/// Where the configuration file is: `DRAFTSCOPE_CONFIG`, or the user's configuration folder. None when
/// there is no such folder.
#[must_use]
pub fn path() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("DRAFTSCOPE_CONFIG").filter(|path| !path.is_empty()) {
        return Some(path.into());
    }
    let base = etcetera::choose_base_strategy().ok()?;
    Some(base.config_dir().join("draftscope").join("config.toml"))
}

/// When each of the user's files changed last, without the lessons: equal as long as none did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp(Vec<(PathBuf, SystemTime, u64)>);

impl Stamp {
    /// Of the configuration file, and of the keymap and the themes next to it. Files that do not exist have no part in it.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        let folder = path.parent().unwrap_or(Path::new("."));
        let files = [path.to_owned(), folder.join("keymap.toml")].into_iter().chain(toml_files(&folder.join("themes")));
        let stamp = |file: PathBuf| {
            let meta = std::fs::metadata(&file).ok()?;
            Some((file, meta.modified().ok()?, meta.len()))
        };
        Self(files.filter_map(stamp).collect())
    }
}

/// The first TOML files of a folder, by name.
fn toml_files(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = match std::fs::read_dir(folder) {
        Ok(entries) => entries.filter_map(|entry| Some(entry.ok()?.path())).collect(),
        Err(_) => Vec::new(),
    };
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    paths.sort();
    paths.truncate(MAX_FILES);
    paths
}

impl UserFiles {
    /// Reads the file, and the keymap, themes and lessons next to it.
    #[must_use]
    pub fn read(path: &Path) -> Self {
        let mut files = Self::default();
        if let Some(text) = files.text(path) {
            files.add(&text);
        }
        let folder = path.parent().unwrap_or(Path::new("."));
        files.keymap = files.text(&folder.join("keymap.toml"));
        files.themes = files.folder(&folder.join("themes"));
        files.lessons = files.folder(&folder.join("lessons"));
        files
    }

    /// Name and text of each TOML file in a folder, by name.
    fn folder(&mut self, folder: &Path) -> Vec<(String, String)> {
        let read = |path: PathBuf| Some((path.file_stem()?.to_string_lossy().into_owned(), self.text(&path)?));
        toml_files(folder).into_iter().filter_map(read).collect()
    }

    /// The text of a file; none when there is none.
    fn text(&mut self, path: &Path) -> Option<String> {
        match file_access::read_regular_text(path, MAX_BYTES) {
            Ok(text) => Some(text),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => None,
            Err(error) => {
                self.warnings.push(format!("{} was not read: {error}", path.display()));
                None
            }
        }
    }

    fn add(&mut self, text: &str) {
        let table = match text.parse::<toml::Table>() {
            Ok(table) => table,
            Err(error) => {
                self.warnings.push(format!("config: the whole file is ignored: {}", toml_error(text, &error)));
                return;
            }
        };
        for (key, value) in table {
            let value = match value {
                _ if !KEYS.contains(&key.as_str()) => {
                    self.warnings.push(format!(
                        "config: there is no setting '{key}'; `draftscope config init` lists all settings"
                    ));
                    continue;
                }
                toml::Value::String(text) => text,
                toml::Value::Integer(number) => number.to_string(),
                toml::Value::Float(number) => number.to_string(),
                toml::Value::Boolean(yes) => yes.to_string(),
                _ => {
                    self.warnings.push(format!("config: {key} must be a text, a number, true or false"));
                    continue;
                }
            };
            self.entries.push((key, value));
        }
    }
}

/// Sets a setting in the file and leaves all else as it is, comments included; a file that is not there becomes the
/// [`TEMPLATE`] with the setting.
///
/// # Errors
/// When the file cannot be read, is no TOML, or cannot be written.
pub fn set(path: &Path, key: &str, value: &str) -> io::Result<()> {
    let text = match file_access::read_regular_text(path, MAX_BYTES) {
        Err(error) if error.kind() == ErrorKind::NotFound => TEMPLATE.to_owned(),
        read => read?,
    };
    let mut document: toml_edit::DocumentMut = text
        .parse()
        .map_err(|error: toml_edit::TomlError| io::Error::other(error.message().trim().replace('\n', ", ")))?;
    document[key] = toml_edit::value(value);
    // the file itself, where its name is a link to it
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut file = file_access::private_file_in(folder)?;
    file.write_all(document.to_string().as_bytes())?;
    if let Ok(before) = std::fs::metadata(&path) {
        file.as_file().set_permissions(before.permissions())?;
    }
    file.persist(&path).map_err(|error| error.error)?;
    Ok(())
}

/// Commands that measure or check. How they decode is part of their result, so the file does not change it.
const MEASURING: &[&str] = &["explain", "verify-identity"];

/// Settings that apply to those commands as well: what is loaded, and where it runs.
const LOADING: &[&str] = &["model", "dtype", "device", "backend", "threads", "ctx"];

/// The command line with the entries as defaults, and a warning for each entry that it rejects. An entry applies to
/// the option of `chat`, and to options of other commands with the same name and help text: `--device` of `train` and
/// `--theme` of `export` mean other things and keep their own defaults.
#[must_use]
pub fn with_defaults(command: clap::Command, entries: &[(String, String)]) -> (clap::Command, Vec<String>) {
    let (mut command, mut warnings) = (command, Vec::new());
    for (key, value) in entries {
        let help = command.get_arguments().find(|arg| arg.get_long() == Some(key)).map(help);
        let tried = with_default(command.clone(), key, value, &help.unwrap_or_default());
        match tried.clone().try_get_matches_from([command.get_name()]) {
            Ok(_) => command = tried,
            Err(error) => {
                let text = error.to_string();
                let why = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
                warnings.push(format!("config: {key}: {why}"));
            }
        }
    }
    (command, warnings)
}

fn help(arg: &clap::Arg) -> String {
    arg.get_help().map(ToString::to_string).unwrap_or_default()
}

fn with_default(command: clap::Command, key: &str, value: &str, shared: &str) -> clap::Command {
    if MEASURING.contains(&command.get_name()) && !LOADING.contains(&key) {
        return command;
    }
    let is_same = |arg: &&clap::Arg| arg.get_long() == Some(key) && (key == "model" || help(arg) == shared);
    let id = command.get_arguments().find(is_same).map(|arg| arg.get_id().clone());
    let command = match id {
        Some(id) => command.mut_arg(id, |arg| arg.default_value(value.to_owned())),
        None => command,
    };
    command.mut_subcommands(|sub| with_default(sub, key, value, shared))
}

/// The line and the reason of a TOML error, in one line.
#[must_use]
pub fn toml_error(text: &str, error: &toml::de::Error) -> String {
    let why = error.message().trim().replace('\n', ", ");
    match error.span() {
        Some(span) => format!("line {}: {why}", text.get(..span.start).unwrap_or_default().matches('\n').count() + 1),
        None => why,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> UserFiles {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        std::fs::write(&path, text).unwrap();
        std::fs::create_dir(folder.path().join("themes")).unwrap();
        std::fs::write(folder.path().join("themes/mine.toml"), "inherits = \"nord\"").unwrap();
        std::fs::write(folder.path().join("themes/notes.txt"), "no theme").unwrap();
        std::fs::write(folder.path().join("keymap.toml"), "[browse]").unwrap();
        UserFiles::read(&path)
    }

    #[test]
    fn keymap_and_themes_next_to_the_file_are_read() {
        let files = read("theme = \"mine\"\n");
        assert_eq!(files.themes, [("mine".to_owned(), "inherits = \"nord\"".to_owned())]);
        assert_eq!(files.keymap.as_deref(), Some("[browse]"));
        assert_eq!(files.warnings, Vec::<String>::new());
        assert_eq!(UserFiles::read(Path::new("/no/such/folder/config.toml")), UserFiles::default());
    }

    #[test]
    fn a_stamp_changes_with_each_file_that_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        std::fs::create_dir(folder.path().join("themes")).unwrap();
        let mut seen = vec![Stamp::of(&path)];
        for name in ["config.toml", "keymap.toml", "themes/mine.toml"] {
            std::fs::write(folder.path().join(name), "# new").unwrap();
            seen.push(Stamp::of(&path));
            std::fs::write(folder.path().join(name), "# longer").unwrap();
            seen.push(Stamp::of(&path));
        }
        assert!((1..seen.len()).all(|at| seen[at] != seen[at - 1]), "{seen:?}");
        std::fs::write(folder.path().join("themes/notes.txt"), "no theme").unwrap();
        assert_eq!(Some(&Stamp::of(&path)), seen.last());
    }

    #[test]
    fn setting_one_value_leaves_the_rest_of_the_file_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new").join("config.toml");
        set(&path, "theme", "nord").unwrap();
        let files = UserFiles::read(&path);
        assert_eq!((files.entries, files.warnings), (vec![("theme".to_owned(), "nord".to_owned())], Vec::new()));
        assert!(std::fs::read_to_string(&path).unwrap().contains(TEMPLATE.trim_end()), "all settings, commented out");
        std::fs::write(&path, "# mine\nseed = 7 # lucky\ntheme = 'old'\n").unwrap();
        set(&path, "theme", "a \"b\"").unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# mine\nseed = 7 # lucky\ntheme = "), "{text}");
        assert_eq!(UserFiles::read(&path).entries[1].1, "a \"b\"");
        std::fs::write(&path, "theme = = 3").unwrap();
        assert!(set(&path, "theme", "nord").is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "theme = = 3", "a file that is not understood stays");
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let (sender, read) = std::sync::mpsc::channel();
        let own = path.clone();
        std::thread::spawn(move || sender.send(UserFiles::read(&own)));
        let files = read.recv_timeout(std::time::Duration::from_secs(120)).expect("it waits for a writer");
        assert_eq!(files.warnings, [format!("{} was not read: it is a pipe, and a file is needed", path.display())]);
        assert_eq!(UserFiles::read(Path::new("/dev/null")), UserFiles::default());
    }
}
