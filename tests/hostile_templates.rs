//! Chat templates that overflow the stack, exhaust memory or never end: in every kind of file, each gives one error
//! message within 2 s of processor time and 256 MiB, and the model still runs with `--raw`.

#![cfg(target_os = "linux")] // memory and time are read from /proc
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use candle_core::quantized::gguf_file::Value;
use common::checkpoint;
use common::tiny::Tiny;
use draftscope::model::text::template::ChatTemplate;
use draftscope::model::text::template::process::ARGUMENT;
use draftscope::protocol::{Message, Speaker};
use serde_json::json;

/// Most memory of the program and the process that renders, in bytes.
const MEMORY: u64 = 256 << 20;

/// Most processor time of both. Neither of them waits, so on an idle machine no more time passes.
const TIME: Duration = Duration::from_secs(2);

const ENOUGH: usize = 60_000;

/// A loop of `turns` steps over a namespace `n` with some fields.
fn grow(fields: &str, turns: usize, step: &str) -> String {
    format!("{{% set n = namespace({fields}) %}}{{% for i in range({turns}) %}}{step}{{% endfor %}}{{{{ n.x }}}}")
}

/// Lists of lists: 2 to the power of `depth` items, `depth` of them stored.
fn laughs(depth: usize, then: &str) -> String {
    let step = "{% set n.x = [n.x, n.x] %}{% set n.y = [n.y, n.y] %}";
    format!("{{% set n = namespace(x=['a'], y=['a']) %}}{{% for i in range({depth}) %}}{step}{{% endfor %}}{then}")
}

/// An expression in which parts repeat.
fn around(before: &str, middle: &str, after: &str) -> String {
    format!("{{{{ {}{middle}{} }}}}", before.repeat(ENOUGH), after.repeat(ENOUGH))
}

/// Templates that overflow the stack of a parser, a compiler, a renderer or a destructor.
fn deep() -> Vec<(&'static str, String)> {
    let elifs = "{% elif 1 %}".repeat(ENOUGH);
    let nest = "{% set n.x = [n.x] %}";
    let own = "{% set n = namespace() %}{% set n.a = n %}";
    vec![
        ("namespace in itself", format!("{own}{{{{ n }}}}")),
        ("namespace in itself as JSON", format!("{own}{{{{ n|tojson }}}}")),
        (
            "two namespaces in each other",
            "{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = b %}{{ a|string }}".into(),
        ),
        ("not", around("not ", "1", "")),
        ("minus", around("-", "1", "")),
        ("plus", around("", "1", "+1")),
        ("tilde", around("", "1", "~1")),
        ("filters", around("", "'x'", "|upper")),
        ("attributes", around("", "x", ".b")),
        ("items", around("", "x", "[0]")),
        ("calls", around("", "x", "()")),
        ("tests", around("", "1", " is odd")),
        ("and", around("", "1", " and 1")),
        ("parentheses", around("(", "1", ")")),
        ("lists", around("[", "1", "]")),
        ("elif", format!("{{% if 1 %}}{elifs}{{% endif %}}")),
        ("if in if", "{% if 1 %}".repeat(ENOUGH)),
        ("a nested list, printed", grow("x=[]", 99_999, nest)),
        ("a nested list, dropped", grow("x=[]", 99_999, nest).replace("{{ n.x }}", "{% set n.x = 1 %}{{ n.x }}")),
        (
            "a nested map, compared",
            grow("x={}", 99_999, "{% set n.x = {'a': n.x} %}").replace("{{ n.x }}", "{{ n.x == n.x }}"),
        ),
        ("a macro in itself", "{% macro m(x) %}{{ m([x]) }}{% endmacro %}{{ m(1) }}".into()),
    ]
}

/// Templates that use up all memory.
fn large() -> Vec<(&'static str, String)> {
    vec![
        ("doubled by ~", grow("x='ab'", 40, "{% set n.x = n.x ~ n.x %}")),
        ("doubled by +", grow("x='ab'", 40, "{% set n.x = n.x + n.x %}")),
        ("doubled by a block", "{% set a = 'ab' %}".to_owned() + &"{% set a %}{{ a }}{{ a }}{% endset %}".repeat(40)),
        ("doubled by replace", grow("x='ab'", 40, "{% set n.x = n.x|replace('a', 'aa') %}")),
        ("doubled by a method", grow("x='ab'", 40, "{% set n.x = n.x.replace('b', 'bb') %}")),
        ("doubled by join", grow("x='ab'", 40, "{% set n.x = [n.x, n.x]|join %}")),
        ("doubled as a list", grow("x=[1]", 40, "{% set n.x = (n.x + n.x)|list %}")),
        ("batch", "{{ [1]|batch(10**12, 0)|length }}".into()),
        ("slice", "{{ [1]|slice(10**10)|length }}".into()),
        ("tojson", "{{ [[1]]|tojson(indent=10**9) }}".into()),
        ("multiplied", grow("x=[]", 99, "{% set n.x = n.x + ['x' * 99999999] %}")),
        ("numbers", grow("x=[]", 9999, "{% set n.x = n.x + [range(9999)|list] %}")),
    ]
}

/// Templates that never end.
fn long() -> Vec<(&'static str, String)> {
    let text = "{% set t = 'a' * 9999999 %}";
    vec![
        ("laughs, compared", laughs(60, "{{ n.x == n.y }}")),
        ("laughs, ordered", laughs(60, "{{ n.x < n.y }}")),
        ("laughs, sought", laughs(60, "{{ n.x in [n.y] }}")),
        ("laughs, as text", laughs(60, "{{ n.x|string|length }}")),
        ("laughs, as JSON", laughs(60, "{{ n.x|tojson|length }}")),
        ("unique", "{% for i in range(9999) %}{% set x = range(99999)|list|unique %}{% endfor %}".into()),
        ("sort", "{% for i in range(9999) %}{% set x = range(99999)|sort(reverse=true) %}{% endfor %}".into()),
        ("upper", format!("{text}{{% for i in range(99999) %}}{{% set x = t|upper %}}{{% endfor %}}")),
        ("count", format!("{text}{{% for i in range(99999) %}}{{% set x = t.count('a') %}}{{% endfor %}}")),
        ("loops", "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}".into()),
    ]
}

/// How a process ended, and the memory and time that it and its children took.
struct Ended {
    status: ExitStatus,
    out: String,
    errors: String,
    memory: u64,
    time: Duration,
    lasted: Duration,
}

/// Highest memory and processor time measured of each process.
#[derive(Default)]
struct Watch(BTreeMap<u32, (u64, Duration)>);

impl Watch {
    /// Measures a process, its children and their children.
    fn look(&mut self, root: u32) {
        let mut family = vec![root];
        for (id, parent) in parents() {
            if family.contains(&parent) {
                family.push(id);
            }
        }
        for id in family {
            let seen = self.0.entry(id).or_default();
            seen.0 = seen.0.max(memory(id).unwrap_or_default());
            seen.1 = seen.1.max(time(id).unwrap_or_default());
        }
    }
}

/// Processes and their parents, by id: parents come first unless ids start again.
fn parents() -> Vec<(u32, u32)> {
    let ids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let mut all: Vec<(u32, u32)> = ids.filter_map(|id| Some((id, field(id, 1)?.try_into().ok()?))).collect();
    all.sort_unstable();
    all
}

/// A field of `/proc/ID/stat`, counted from the state, which follows the name.
fn field(id: u32, index: usize) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(index)?.parse().ok()
}

fn memory(id: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

/// Processor time of a process; ticks are hundredths of a second on Linux.
fn time(id: u32) -> Option<Duration> {
    Some(Duration::from_millis(10 * (field(id, 11)? + field(id, 12)?)))
}

/// Runs a command and measures it until it ends.
fn watched(command: &mut Command, input: &[u8]) -> Ended {
    let begun = Instant::now();
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let input = input.to_vec();
    std::thread::spawn(move || pipe.write_all(&input));
    let (out, errors) = (reader(child.stdout.take().unwrap()), reader(child.stderr.take().unwrap()));
    let mut watch = Watch::default();
    let status = loop {
        watch.look(child.id());
        if let Some(status) = ended(&mut child) {
            break status;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let (memory, time) = (watch.0.values().map(|seen| seen.0).sum(), watch.0.values().map(|seen| seen.1).sum());
    let [out, errors] = [out, errors].map(|reader| String::from_utf8(reader.join().unwrap()).unwrap());
    Ended { status, out, errors, memory, time, lasted: begun.elapsed() }
}

fn ended(child: &mut Child) -> Option<ExitStatus> {
    child.try_wait().unwrap()
}

fn reader(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut all = Vec::new();
        from.read_to_end(&mut all).unwrap();
        all
    })
}

/// Checks both limits.
fn assert_bounded(name: &str, ended: &Ended) {
    let Ended { memory, time, lasted, .. } = ended;
    println!("{name}: {} MiB, {time:?} of processor time, {lasted:?}", memory >> 20);
    assert!(*memory <= MEMORY, "{name}: {} MiB", memory >> 20);
    assert!(*time <= TIME, "{name}: {time:?}");
}

fn run(model: &Path, options: &[&str]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_draftscope"));
    command.args(["run", "--backend", "candle", "--threads", "1", "--drafter", "none", "--max-tokens", "1"]);
    command.arg("--model").arg(model).args(["--prompt", "the inn"]).args(options);
    command.env_remove("DRAFTSCOPE_MODEL").env("NO_COLOR", "1");
    watched(&mut command, b"")
}

/// The program rejects the template with one error message, and runs with `--raw`.
fn assert_rejected(name: &str, model: &Path) {
    let refused = run(model, &[]);
    assert_eq!(refused.status.code(), Some(2), "{name}: {}", refused.errors);
    let lines: Vec<_> = refused.errors.lines().collect();
    assert!(lines.iter().all(|line| line.starts_with("draftscope: ") && line.len() < 600), "{name}: {lines:?}");
    assert!(lines.last().unwrap().contains("chat template") && lines.len() <= 2, "{name}: {lines:?}");
    assert_bounded(name, &refused);
    let raw = run(model, &["--raw"]);
    assert!(raw.status.success() && !raw.out.is_empty(), "{name}: {}", raw.errors);
    assert_bounded(name, &raw);
}

/// Tries each template in a GGUF file and in a folder, there in one of the two files that may contain it.
fn assert_contained(templates: &[(&str, String)]) {
    let folder = tempfile::tempdir().unwrap();
    for file in fs::read_dir(checkpoint::path("qwen3")).unwrap() {
        let from = file.unwrap().path();
        fs::copy(&from, folder.path().join(from.file_name().unwrap())).unwrap();
    }
    fs::remove_file(folder.path().join("chat_template.jinja")).unwrap();
    for (index, (name, template)) in templates.iter().enumerate() {
        let gguf = Tiny::with(7, |parts| {
            let own = parts.metadata.iter_mut().find(|(key, _)| key == "tokenizer.chat_template");
            own.unwrap().1 = Value::String(template.clone());
        });
        assert_rejected(name, &gguf.target);
        let (file, text) = match index % 2 {
            0 => ("chat_template.jinja", template.clone()),
            _ => ("chat_template.json", json!({"chat_template": template}).to_string()),
        };
        fs::write(folder.path().join(file), text).unwrap();
        assert_rejected(name, folder.path());
        fs::remove_file(folder.path().join(file)).unwrap();
    }
}

#[test]
fn templates_that_are_nested_deeply_are_contained() {
    assert_contained(&deep());
}

#[test]
fn templates_that_use_up_memory_are_contained() {
    assert_contained(&large());
}

#[test]
fn templates_that_never_end_are_contained() {
    assert_contained(&long());
}

/// The answer of a rendering process that the test starts itself.
fn rendered(template: &str) -> Ended {
    let messages = json!([{"role": "user", "content": "the inn"}]);
    let request = json!({"source": template, "bos": "", "eos": "", "messages": messages});
    let mut command = Command::new(env!("CARGO_BIN_EXE_draftscope"));
    watched(command.arg(ARGUMENT).env_remove("RUST_BACKTRACE"), request.to_string().as_bytes())
}

#[test]
fn forty_templates_only_end_the_rendering_process() {
    let all = [deep(), large(), long()].concat();
    assert!(all.len() >= 40, "{}", all.len());
    let mut measured = 0;
    for (name, template) in &all {
        let ended = rendered(template);
        // a process that ends within milliseconds may not be measured
        measured += usize::from(ended.memory > 1 << 20);
        assert!(!ended.out.starts_with('+'), "{name} renders");
        assert_bounded(name, &ended);
    }
    assert!(measured > all.len() / 2, "the memory of only {measured} processes was measured");
}

#[test]
fn a_process_renders_the_templates_of_models_like_the_interpreter() {
    let messages = [Message { role: Speaker::User, content: "the inn".to_owned() }];
    for model in ["deepseek-fp8", "gemma4", "gemma4-unified", "glm4-flash", "mimo", "qwen3", "qwen3-fp8", "qwen35"] {
        let source = fs::read_to_string(checkpoint::path(model).join("chat_template.jinja")).unwrap();
        let here = ChatTemplate::new(&source, String::new(), String::new()).unwrap().render(&messages).unwrap();
        assert!(here.contains("the inn"), "{model}: {here}");
        let ended = rendered(&source);
        assert_eq!(ended.out, format!("+{here}"), "{model}: {}", ended.errors);
        assert_bounded(model, &ended);
    }
}

#[test]
fn a_process_returns_the_text_or_the_error() {
    let ended = rendered("{{ messages[0].role ~ ':\n' ~ messages[0]['content'].upper() }}");
    assert!(ended.status.success(), "{}", ended.errors);
    assert_eq!(ended.out, "+user:\nTHE INN");
    let refused = rendered("{{ raise_exception('no\nsuch role') }}");
    assert!(refused.status.success() && refused.out.starts_with("-invalid operation: no such role"), "{}", refused.out);
}
