//! Which part of a crate may import which. Between crates Rust enforces this, inside a crate these tests do: they check the
//! paths that every file names against tables.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

#[path = "common/imports.rs"]
mod imports;
#[path = "common/sources.rs"]
mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::OnceLock;

use imports::imports_of;
use sources::{bare_code, is_in, is_test, module_of, texts};

/// Parts of the crates `session`, `engine` and of the program's library, and the parts that each may name: what walls between
/// crates do not say.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("engine::grammar", &[]),
    ("engine::speculate", &["engine::grammar"]),
    ("engine::generate", &["engine::speculate"]),
    ("engine::identity", &["engine::grammar", "engine::speculate"]),
    ("session::trace", &[]),
    ("headless", &[]),
    ("export", &[]),
    ("cli", &["export::Format"]),
];

/// Words that must not occur in a module's code.
const MUST_NOT_KNOW: &[(&str, &[&str])] = &[
    ("protocol", &["std::fs", "std::time"]),
    ("protocol/verify/", &["Instant"]),
    ("model", &["EventKind"]),
    ("engine", &["std::fs"]),
    ("engine/speculate", &["std::thread", "serde_json", "tokio"]),
    ("engine/identity", &["std::thread", "Instant"]),
    ("session/trace", &["ratatui"]),
    ("session", &["std::time", "Instant"]),
    ("headless", &["ratatui"]),
    ("learn", &["ratatui", "std::fs"]),
    ("attach", &["std::fs"]),
];

/// Files that a rule of [`MUST_NOT_KNOW`] leaves out: channels and drivers wait, recordings and datasets are files.
const MAY_KNOW: &[&str] = &["protocol/stream", "session/trace", "session/drive", "engine/generate"];

/// The crates of the workspace besides the program, and fewer files than each has.
const CRATES: [&str; 12] =
    ["attach", "engine", "gpu", "host", "http", "kernels", "learn", "model", "protocol", "session", "store", "tui"];

/// The rooms of `tui`: the terminal, looks, keys, widgets, the state, the code that shows it, the code that changes it, loops.
const TUI: &[Layer] = &[
    ("terminal", &["terminal"], &[]),
    ("look", &["look"], &["terminal"]),
    ("input", &["input"], &["look"]),
    ("widgets", &["widgets"], &["look"]),
    ("state", &["app", "other_screens"], &["terminal", "look", "input"]),
    ("view", &["view"], &["terminal", "look", "input", "widgets", "state"]),
    ("update", &["update"], &["look", "input", "state"]),
    ("loops", &["loops"], &["terminal", "look", "input", "state", "view", "update"]),
    ("exports", &["mod"], &["terminal", "look", "input", "state", "view", "update", "loops"]),
];

/// The state: its parts, `App`, which is made of them, and what it does with a session.
const APP: &[Layer] = &[
    (
        "overlays",
        &["overlay", "overlay::help_page", "overlay::panel_row", "overlay::setting_row", "overlay::what_if_form"],
        &[],
    ),
    (
        "place",
        &["place", "place::page", "place::filter", "place::hit_map", "place::marks", "place::search"],
        &["overlays"],
    ),
    ("clock", &["clock", "clock::pace", "clock::playback", "clock::tour"], &["place"]),
    ("talk", &["talk", "talk::starters"], &[]),
    ("requests", &["requests", "requests::pending_requests"], &[]),
    ("options", &["options", "look::theme_set"], &["place", "clock"]),
    ("learning", &["learning", "learning::lesson_row", "learning::quiz", "learning::study"], &["clock", "options"]),
    ("app", &["mod"], &["overlays", "place", "clock", "talk", "requests", "options", "learning"]),
    (
        "with a session",
        &[
            "look",
            "learning::lesson_run",
            "requests::answering",
            "talk::conversation",
            "talk::welcome",
            "clock::pacing",
        ],
        &["place", "clock", "talk", "requests", "options", "learning", "app"],
    ),
];

/// The rooms of `learn` and their files: what needs no run, lessons, the quiz.
const LEARN: &[Layer] = &[
    ("theory", &["theory", "theory::histogram", "theory::map", "theory::map_choice", "theory::sliders"], &[]),
    (
        "lesson",
        &[
            "lesson",
            "lesson::answers",
            "lesson::check",
            "lesson::content",
            "lesson::fact",
            "lesson::library",
            "lesson::progress",
            "lesson::run",
            "lesson::texts",
        ],
        &["theory"],
    ),
    (
        "quiz",
        &[
            "quiz",
            "quiz::ask",
            "quiz::bank",
            "quiz::belief",
            "quiz::beliefs",
            "quiz::draw",
            "quiz::item",
            "quiz::judge",
            "quiz::results",
            "quiz::run",
            "quiz::sheet",
            "quiz::shown",
            "quiz::statements",
        ],
        &[],
    ),
    ("exports", &["mod"], &["theory", "lesson", "quiz"]),
];

/// Parts of `commands`: files that subcommands share, and one file or folder for each subcommand.
const COMMANDS: &[Layer] = &[
    (
        "shared",
        &[
            "bandwidth",
            "closed_stdout",
            "costs",
            "engine",
            "files",
            "grammar",
            "first_start",
            "lesson_notes",
            "lessons",
            "links",
            "output",
            "pairing",
            "plugin_check",
            "progress",
            "prompts",
            "quiz_files",
            "recipe",
            "recommended_models",
            "reload",
            "run_args",
            "signals",
            "suite",
            "terminal",
            "trace",
            "watch_history",
        ],
        &[],
    ),
    (
        "subcommands",
        &[
            "attach", "bench", "chat", "compare", "config", "demo", "devices", "diff", "doctor", "explain", "export",
            "generate", "identity", "learn", "models", "replay", "run", "train",
        ],
        &["shared"],
    ),
    ("declarations", &["mod"], &[]),
];

/// A source file that is compiled outside of tests.
struct Source {
    /// Below `src/`.
    file: String,
    /// Without comments, literals and tests.
    code: String,
    /// Absolute paths of the items of this crate that it names.
    imports: Vec<String>,
}

/// Every source file, read once; those of a crate stand below its name. Tests may import more, so their files are left out.
fn sources() -> &'static [Source] {
    static SOURCES: OnceLock<Vec<Source>> = OnceLock::new();
    SOURCES.get_or_init(|| {
        let of_crates = CRATES.iter().flat_map(|name| of_crate(name));
        of_folder("src", 30).into_iter().chain(of_crates).collect()
    })
}

fn of_folder(folder: &str, at_least: usize) -> Vec<Source> {
    let (texts, tests) = texts(folder, at_least);
    let shipped = texts.into_iter().filter(|(file, _)| !is_test(file, &tests));
    shipped.map(|(file, text)| Source { code: bare_code(&text), imports: imports_of(&file, &text), file }).collect()
}

/// The files of a crate as if they were modules of one that has its name.
fn of_crate(name: &str) -> Vec<Source> {
    let within = |source: Source| Source {
        file: format!("{name}/{}", if source.file == "lib.rs" { "mod.rs" } else { &source.file }),
        imports: source.imports.into_iter().map(|path| format!("{name}::{path}")).collect(),
        code: source.code,
    };
    of_folder(&format!("crates/{name}/src"), 3).into_iter().map(within).collect()
}

/// A group of parts of a folder (its files and folders, by module name; `mod` is the folder's own file), and
/// the groups that it may import besides itself.
type Layer = (&'static str, &'static [&'static str], &'static [&'static str]);

/// Checks that the parts of a module import each other as its layers allow, and in no circle.
fn check(module: &str, layers: &[Layer]) {
    let files: Vec<_> = sources().iter().map(|source| (source.file.clone(), source.imports.clone())).collect();
    let found = violations(module, layers, &files);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The violations that `check` reports for files and the paths that they name. Layers are listed from the lowest up.
fn violations(module: &str, layers: &[Layer], files: &[(String, Vec<String>)]) -> Vec<String> {
    let mut found = Vec::new();
    for (at, (layer, _, allowed)) in layers.iter().enumerate() {
        let is_lower = |name: &&str| layers[..at].iter().any(|(lower, ..)| lower == name);
        found.extend(
            allowed.iter().filter(|name| !is_lower(name)).map(|name| format!("{name} is no layer below {layer}")),
        );
    }
    let mut unseen: BTreeSet<&str> = layers.iter().flat_map(|(_, parts, _)| *parts).copied().collect();
    let mut arrows: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (file, imports) in files.iter().filter(|(file, _)| is_in(&module_of(file), module)) {
        let own = module_of(file);
        let Some((layer, part)) = part_of(module, layers, &own).filter(|(_, part)| *part != "mod" || own == module)
        else {
            found.push(format!("{file}: add it to the layers of {module}"));
            continue;
        };
        unseen.remove(part);
        for path in imports.iter().filter(|path| is_in(path, module)) {
            let Some((other_layer, other)) = part_of(module, layers, path) else {
                found.push(format!("{file} names {path}, which is in no layer of {module}"));
                continue;
            };
            let (name, _, allowed) = layer;
            if other_layer.0 != *name && !allowed.contains(&other_layer.0) {
                found.push(format!("{file} ({name}) names {path} ({}); {name} may import {allowed:?}", other_layer.0));
            }
            if other != part {
                arrows.entry(part).or_default().insert(other);
            }
        }
    }
    found.extend(unseen.iter().map(|part| format!("{module} has no part {part}")));
    found.extend(circle(&arrows).map(|parts| format!("parts of {module} import each other in a circle: {parts}")));
    found
}

/// The layer and part of a path: the longest part that contains it, else the module's own file.
fn part_of<'a>(module: &str, layers: &'a [Layer], path: &str) -> Option<(&'a Layer, &'static str)> {
    let all = layers.iter().flat_map(|layer| layer.1.iter().map(move |part| (layer, *part)));
    let holds = |part: &str| part == "mod" || is_in(path, &format!("{module}::{part}"));
    all.filter(|(_, part)| holds(part)).max_by_key(|(_, part)| if *part == "mod" { 0 } else { part.len() })
}

/// A circle of arrows, if there is one: `a → b → a`.
fn circle(arrows: &BTreeMap<&str, BTreeSet<&str>>) -> Option<String> {
    let mut left = arrows.clone();
    loop {
        let ends: Vec<_> =
            left.iter().filter(|(_, to)| to.iter().all(|to| !left.contains_key(to))).map(|(from, _)| *from).collect();
        if ends.is_empty() {
            break;
        }
        ends.iter().for_each(|end| drop(left.remove(end)));
    }
    // every remaining part imports another remaining one
    let mut path = vec![*left.keys().next()?];
    loop {
        let next = left[path[path.len() - 1]].iter().find(|to| left.contains_key(*to))?;
        path.push(next);
        if let Some(first) = path[..path.len() - 1].iter().position(|part| part == next) {
            return Some(path[first..].join(" → "));
        }
    }
}

#[test]
fn layers_report_what_breaks_them() {
    const LAYERS: &[Layer] =
        &[("base", &["a", "b"], &[]), ("state", &["c", "d::core"], &["base"]), ("top", &["d", "mod"], &["state"])];
    let file = |name: &str, imports: &[&str]| (name.to_owned(), imports.iter().map(|i| (*i).to_owned()).collect());
    let fine = [
        file("m/a.rs", &["other::X"]),
        file("m/b.rs", &["m::a::A"]),
        file("m/c/x.rs", &["m::b::B", "m::c::y::Y"]),
        file("m/d/core.rs", &["m::a"]),
        file("m/d/mod.rs", &["m::d::core::C", "m::d::e"]),
        file("m/mod.rs", &["m::d::D"]),
        file("other/x.rs", &["m::mod"]),
    ];
    assert_eq!(violations("m", LAYERS, &fine), [""; 0]);
    let with = |index: usize, changed: (String, Vec<String>)| {
        let mut files = fine.to_vec();
        files[index] = changed;
        violations("m", LAYERS, &files)
    };
    let up = with(3, file("m/d/core.rs", &["m::d::D"]));
    assert_eq!(up[0], "m/d/core.rs (state) names m::d::D (top); state may import [\"base\"]");
    assert_eq!(up[1], "parts of m import each other in a circle: d → d::core → d");
    let skips = with(5, file("m/mod.rs", &["m::a::A"]));
    assert_eq!(skips, ["m/mod.rs (top) names m::a::A (base); top may import [\"state\"]"]);
    let circle = with(0, file("m/a.rs", &["m::b::B"]));
    assert_eq!(circle, ["parts of m import each other in a circle: a → b → a"]);
    let facade = with(0, file("m/a.rs", &["m::Exported"]));
    assert_eq!(facade[0], "m/a.rs (base) names m::Exported (top); base may import []");
    assert_eq!(with(0, file("m/z.rs", &[])), ["m/z.rs: add it to the layers of m", "m has no part a"]);
    const UPWARDS: &[Layer] = &[("low", &["a"], &["high"]), ("high", &["b"], &[])];
    assert_eq!(violations("m", UPWARDS, &fine[..2])[0], "high is no layer below low");
}

#[test]
fn files_of_tests_are_recognized() {
    let (texts, tests) = texts("crates/tui/src", 30);
    let files: Vec<_> = texts.iter().map(|(file, _)| file.as_str()).filter(|file| is_test(file, &tests)).collect();
    for file in ["tests/panels.rs", "loops/pty.rs"] {
        assert!(files.contains(&file), "{file} is not among {files:?}");
    }
    assert!(!files.contains(&"app/mod.rs"));
}

#[test]
fn parts_follow_the_table() {
    let mut unseen: BTreeSet<&str> = MAY_IMPORT.iter().map(|(part, _)| *part).collect();
    for Source { file, imports, .. } in sources() {
        let own = module_of(file);
        let Some((part, allowed)) = MAY_IMPORT.iter().find(|(part, _)| is_in(&own, part)) else { continue };
        unseen.remove(part);
        for path in imports {
            let fine = is_in(path, part) || allowed.iter().any(|allowed| is_in(path, allowed));
            assert!(fine, "{file} names crate::{path}; {part} may import {allowed:?}");
        }
    }
    assert!(unseen.is_empty(), "there is no part {unseen:?}");
}

#[test]
fn every_crate_is_looked_at() {
    let folder = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("crates")).unwrap();
    let mut found: Vec<_> = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    found.sort();
    assert_eq!(found, CRATES);
}

/// The folders of the crate `model`: plain data, files, computation, loading.
const MODEL: &[Layer] = &[
    (
        "plain",
        &[
            "error",
            "options",
            "rows",
            "forward",
            "tap",
            "catch_panic",
            "memory",
            "draft_tokens",
            "block_module",
            "shared_kv",
            "thread_pool",
            "module_core",
            "mod",
        ],
        &[],
    ),
    ("wrappers", &["row_by_row"], &["plain"]),
    ("files", &["files"], &["plain"]),
    ("text", &["text"], &["plain", "files"]),
    ("other vocabularies", &["other_vocab"], &["plain", "text"]),
    ("nn", &["nn"], &["plain", "files"]),
    ("plan", &["plan"], &["plain", "files", "nn"]),
    ("native", &["native"], &["plain", "files", "nn", "plan"]),
    ("gpu", &["gpu"], &["plain", "files", "nn", "plan"]),
    ("reference", &["reference"], &["plain", "files", "nn", "plan", "native"]),
    ("interfaces", &["interfaces"], &["plain", "files", "nn", "plan", "native", "gpu", "reference"]),
    ("core", &["drafters::core"], &["plain", "files", "nn", "plan", "native", "reference", "interfaces"]),
    ("drafters", &["drafters"], &["plain", "files", "nn", "plan", "native", "gpu", "interfaces", "core"]),
    ("families", &["families"], &["plain", "files", "nn", "plan", "native", "gpu", "reference", "interfaces", "core"]),
    (
        "load",
        &["load"],
        &[
            "plain",
            "wrappers",
            "files",
            "text",
            "other vocabularies",
            "nn",
            "plan",
            "native",
            "gpu",
            "reference",
            "interfaces",
            "core",
            "drafters",
            "families",
        ],
    ),
];

#[test]
fn parts_of_model_follow_their_layers() {
    check("model", MODEL);
}

/// The rooms of `crates/gpu`: weights as bytes, shaders, the device, models as data, other buffers, launches, sequences.
const GPU: &[Layer] = &[
    ("base", &["error", "forms"], &[]),
    ("kernels", &["kernels"], &["base"]),
    ("device", &["device"], &["base", "kernels"]),
    ("weights", &["weights"], &["base", "kernels", "device"]),
    ("memory", &["memory"], &["base", "kernels", "device", "weights"]),
    ("launches", &["launches"], &["base", "kernels", "device", "weights", "memory"]),
    ("passes", &["passes"], &["base", "kernels", "device", "weights", "memory", "launches"]),
    ("measure", &["measure"], &["base", "kernels", "device", "weights", "launches", "passes"]),
    ("exports", &["mod"], &["base", "kernels", "device", "weights", "passes", "measure"]),
];

#[test]
fn rooms_of_the_gpu_crate_follow_their_layers() {
    check("gpu", GPU);
}

#[test]
fn a_family_names_no_other() {
    let family = |path: &str| path.strip_prefix("model::families::")?.split("::").next().map(str::to_owned);
    for Source { file, imports, .. } in sources() {
        let Some(own) = family(&module_of(file)) else { continue };
        for other in imports.iter().filter_map(|path| family(path)).filter(|other| *other != own) {
            let is_folder =
                Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/model/src/families").join(&other).is_dir();
            assert!(!is_folder, "{file} names the family {other}; code for two families belongs in nn");
        }
    }
}

#[test]
fn rooms_of_tui_follow_their_layers() {
    check("tui", TUI);
    check("tui::app", APP);
}

#[test]
fn rooms_of_learn_follow_their_layers() {
    check("learn", LEARN);
}

/// Files that still import each other in a circle: a module, and files below it (`mod` is its own). The lists may only get
/// shorter: a file that is in no circle any more must leave them.
const IN_CIRCLES: &[(&str, &[&str])] = &[
    (
        "engine::speculate::drafter",
        &[
            "mod",
            "block",
            "constrained",
            "draft_model",
            "drafter_set",
            "early_exit",
            "mtp",
            "mtp::reach",
            "mtp::stage",
            "ngram",
            "oracle",
            "random",
            "strings",
            "suffix",
            "tree",
        ],
    ),
    ("model::load", &["mod", "draft_model"]),
    (
        "model::native",
        &[
            "answers",
            "attention",
            "cache",
            "delta",
            "feed",
            "inputs",
            "latent",
            "layer",
            "mixer",
            "normer",
            "pass",
            "tree",
        ],
    ),
];

/// What arrows lead to from a place, in any number of steps.
fn reached_from<'a>(from: &'a str, arrows: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let (mut reached, mut left) = (BTreeSet::new(), vec![from]);
    while let Some(at) = left.pop() {
        left.extend(arrows[at].iter().copied().filter(|to| reached.insert(*to)));
    }
    reached
}

/// The circles of files of a crate, or of the program (``), each with the files that it leads through. A path belongs to the file
/// of its longest module, so naming an item where another file exports it counts as naming that file.
fn circles_of(name: &str, files: &[(String, Vec<String>)]) -> Vec<BTreeSet<String>> {
    let is_own = |path: &str| match name {
        "" => !CRATES.iter().any(|other| is_in(path, other)),
        name => is_in(path, name),
    };
    let own = || files.iter().filter(|(module, _)| is_own(module));
    let file_of =
        |path: &str| own().map(|(module, _)| module.as_str()).filter(|m| is_own(path) && is_in(path, m)).max();
    let mut arrows: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (module, imports) in own() {
        let named = imports.iter().filter_map(|path| file_of(path)).filter(|other| other != module);
        arrows.entry(module).or_default().extend(named);
    }
    assert!(!arrows.is_empty(), "{name}: no files");
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        arrows.keys().map(|from| (*from, reached_from(from, &arrows))).collect();
    let circle = |from: &str| -> BTreeSet<String> {
        reached[from].iter().filter(|to| reached[**to].contains(from)).map(|to| (*to).to_owned()).collect()
    };
    let all: BTreeSet<_> = reached.keys().map(|from| circle(from)).filter(|circle| !circle.is_empty()).collect();
    all.into_iter().collect()
}

#[test]
fn no_file_is_in_a_circle() {
    let files: Vec<_> = sources().iter().map(|source| (module_of(&source.file), source.imports.clone())).collect();
    let circles: Vec<_> = CRATES.iter().chain([&""]).flat_map(|name| circles_of(name, &files)).collect();
    let path =
        |(folder, file): (&str, &&str)| if *file == "mod" { folder.to_owned() } else { format!("{folder}::{file}") };
    let listed = IN_CIRCLES.iter().flat_map(|(folder, files)| files.iter().map(move |file| (*folder, file)));
    let known: BTreeSet<String> = listed.map(path).collect();
    let new: Vec<_> = circles.iter().filter(|circle| !circle.is_subset(&known)).collect();
    assert!(new.is_empty(), "these files import each other in a circle: {new:?}");
    let left: BTreeSet<String> = circles.into_iter().flatten().collect();
    let open: Vec<_> = known.difference(&left).collect();
    assert!(open.is_empty(), "in no circle any more, so take them out of IN_CIRCLES: {open:?}");
}

#[test]
fn circles_are_found_through_exports_and_full_paths() {
    let file = |name: &str, code: &str| (module_of(name), imports_of(name, code));
    let fine = [
        file("tui/mod.rs", "mod a; mod b; pub use a::A; pub use b::B;"),
        file("tui/a.rs", "use crate::tui::b::B;"),
        file("tui/b.rs", "fn f() { std::fs::read(x) }"),
    ];
    let with = |index: usize, code: &str| {
        let mut files = fine.to_vec();
        files[index].1 = imports_of(["tui/mod.rs", "tui/a.rs", "tui/b.rs"][index], code);
        circles_of("tui", &files).into_iter().map(|files| files.into_iter().collect::<Vec<_>>().join(" ")).collect()
    };
    let circles: Vec<String> = with(2, "");
    assert_eq!(circles, [""; 0], "a module that exports what its files define is in no circle");
    let through_export: Vec<String> = with(1, "use super::B;");
    assert_eq!(through_export, ["tui tui::a"]);
    let full_path: Vec<String> = with(2, "fn f() { crate::tui::a::g() }");
    assert_eq!(full_path, ["tui::a tui::b"]);
    let by_module: Vec<String> = with(2, "use crate::tui;\nfn f() { tui::a::g() }");
    assert_eq!(by_module, ["tui tui::a tui::b"]);
    let of_tests: Vec<String> = with(2, "#[cfg(test)] mod t { use crate::tui::a::A; }");
    assert_eq!(of_tests, [""; 0]);
}

#[test]
fn parts_of_commands_follow_their_layers() {
    check("commands", COMMANDS);
}

#[test]
fn modules_do_not_know_what_they_must_not() {
    for Source { file, code, .. } in sources() {
        for (module, words) in MUST_NOT_KNOW.iter().filter(|(module, _)| file.starts_with(module)) {
            let is_left_out = MAY_KNOW.iter().any(|part| file.starts_with(part) && !module.starts_with(part));
            for word in words.iter().filter(|_| !is_left_out) {
                assert!(!code.contains(word), "{file} names {word}, which {module} must not know");
            }
        }
    }
}

/// Where temporary files and folders may be made, besides the one place whose names a later start recognises: a folder that
/// holds what is replaced, and that of pip, which has a place of its own.
const TEMPORARY: &[&str] = &["host/file_access/temporary", "export/atomic_file", "store/pip"];

#[test]
fn threads_and_temporary_files_are_made_where_a_failure_is_handled() {
    let program = texts("src", 3);
    let named = CRATES.iter().map(|name| (format!("{name}/"), texts(&format!("crates/{name}/src"), 3)));
    let mut checked = 0;
    for (crate_name, (texts, tests)) in named.chain([(String::new(), program)]) {
        let is_tested = |(file, _): &&(String, String)| !is_test(file, &tests) && !file.ends_with("_test.rs");
        for (file, text) in texts.iter().filter(is_tested) {
            let (code, file) = (bare_code(text), format!("{crate_name}{file}"));
            // it panics where the system has no thread left
            assert!(!code.contains("thread::spawn"), "{file}: use thread::Builder, whose spawn reports a failure");
            assert!(!code.contains("enable_steady_tick"), "{file}: it starts a thread, and panics where there is none");
            let is_own = ["tempfile::Builder", "NamedTempFile::new", "tempfile::tempdir", "TempDir::new"];
            let makes = is_own.iter().find(|made| code.contains(*made));
            let may = TEMPORARY.iter().any(|part| file.starts_with(part));
            assert!(makes.is_none() || may, "{file}: use file_access::temporary_file_in in place of {makes:?}");
            checked += 1;
        }
    }
    assert!(checked > 300, "{checked} files");
}

#[test]
fn files_are_short_and_have_a_header() {
    let folders = CRATES.iter().map(|name| format!("crates/{name}/src")).chain(["src".to_owned()]);
    for folder in folders {
        let (texts, tests) = texts(&folder, 3);
        for (file, text) in texts {
            let lines = text.lines().take_while(|l| *l != "#[cfg(test)]").count();
            assert!(is_test(&file, &tests) || lines <= 400, "{folder}/{file} has {lines} lines before its tests");
            assert!(text.starts_with("//!"), "{folder}/{file} has no header that says what it is");
        }
    }
}
