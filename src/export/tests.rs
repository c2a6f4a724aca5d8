//! Tests every format on the scripted conversation, with one turn whose tokens try to act as code.

use std::fs;
use std::path::{Path, PathBuf};

#[cfg(feature = "specspecs")]
use parquet::file::reader::{FileReader, SerializedFileReader};
#[cfg(feature = "specspecs")]
use parquet::record::RowAccessor;
use serde_json::Value;

use super::*;
use draftscope_protocol::stream::Consumer;
use draftscope_protocol::{DrafterKind, Event, EventKind, Lane, Rival, Settings, StopReason};
use draftscope_session::fixture::{Script, departing, first_turn};
use draftscope_session::text;
use draftscope_session::trace::{RecordOptions, Recorder};

/// Closes a script block, sets the clipboard, clears the screen, and names a placeholder of the page's template.
const HARM: &str =
    "</script><script>alert(1)</script>\u{1b}]52;c;aGk=\u{7}\u{1b}[2J\u{202e}{{script}}\u{2028}\u{9b}\u{85}\u{2066}";

fn script() -> Script {
    let mut script = first_turn();
    script.prompt(&format!("{HARM} `````` | =1+1"), HARM);
    script.round(&[(HARM, 0.5), ("=1+1", 0.5)], &[(HARM, 0.9), ("\"</style>", 0.5), (HARM, 0.3)]);
    script.push(Lane::Speculative, EventKind::Noted { text: HARM.into(), round: Some(1), turn: None });
    script.push(Lane::Speculative, EventKind::Bookmarked { round: None, turn: None, label: HARM.into() });
    script.finish(Lane::Speculative, StopReason::Eos);
    script.finish(Lane::Plain, StopReason::Measured);
    script
}

struct ExportFixture {
    folder: tempfile::TempDir,
    recording: Recording,
}

impl ExportFixture {
    fn new() -> Self {
        Self::of(&script().events)
    }

    fn of(events: &[Event]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.dscope.jsonl");
        let mut session = Session::new();
        let mut recorder = Recorder::create(&path, RecordOptions::default()).unwrap();
        for event in events {
            session.apply(event);
            recorder.event(event).unwrap();
        }
        recorder.event(&session.end().unwrap()).unwrap();
        recorder.finish().unwrap();
        Self { recording: Recording::open(&path).unwrap(), folder }
    }

    fn export(&self, format: Format) -> PathBuf {
        let to = self.folder.path().join(format!("out{}", format.ending()));
        export(&self.recording, format, &to, &ExportOptions::default()).unwrap();
        to
    }

    fn text(&self, format: Format) -> String {
        fs::read_to_string(self.export(format)).unwrap()
    }

    fn json(&self, format: Format) -> Value {
        serde_json::from_str(&self.text(format)).unwrap()
    }

    fn session(&self) -> Session {
        fold(&self.recording).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }
}

/// The formats that this build writes.
fn built() -> impl Iterator<Item = Format> {
    let specspecs = cfg!(feature = "specspecs");
    Format::value_variants().iter().copied().filter(move |format| specspecs || *format != Format::Specspecs)
}

#[test]
fn every_format_is_written_once_and_nothing_is_left_behind() {
    let fixture = ExportFixture::new();
    for format in built() {
        let to = fixture.export(format);
        let again = export(&fixture.recording, format, &to, &ExportOptions::default()).unwrap_err().to_string();
        assert!(again.contains("--force"), "{again}");
        export(&fixture.recording, format, &to, &ExportOptions { force: true, ..ExportOptions::default() }).unwrap();
    }
    assert_eq!(fixture.names().len(), built().count() + 1, "{:?}", fixture.names());
    let nowhere = export(&fixture.recording, Format::Csv, Path::new("/no/such/x.csv"), &ExportOptions::default());
    assert!(nowhere.unwrap_err().to_string().contains("cannot write /no/such/x.csv"));
}

#[cfg(unix)]
#[test]
fn a_replaced_file_keeps_its_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = ExportFixture::new();
    let to = fixture.export(Format::Markdown);
    fs::set_permissions(&to, fs::Permissions::from_mode(0o600)).unwrap();
    let force = ExportOptions { force: true, ..ExportOptions::default() };
    export(&fixture.recording, Format::Markdown, &to, &force).unwrap();
    assert_eq!(fs::metadata(&to).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn only_the_output_of_an_export_is_replaced() {
    let fixture = ExportFixture::new();
    let force = ExportOptions { force: true, ..ExportOptions::default() };
    for format in built().filter(|format| format.is_folder()) {
        let to = fixture.export(format);
        let notes = to.join("notes.txt");
        fs::write(&notes, "mine").unwrap();
        let refused = export(&fixture.recording, format, &to, &force).unwrap_err().to_string();
        assert!(refused.contains("it contains notes.txt"), "{refused}");
        assert_eq!(fs::read_to_string(&notes).unwrap(), "mine");
        fs::remove_file(&notes).unwrap();
        export(&fixture.recording, format, &to, &force).unwrap();
        let file = fixture.folder.path().join("a.dscope.jsonl");
        let refused = export(&fixture.recording, format, &file, &force).unwrap_err().to_string();
        assert!(refused.contains("it is not a folder") && file.is_file(), "{refused}");
    }
}

#[test]
fn of_exports_to_one_name_at_once_only_one_succeeds() {
    let fixture = ExportFixture::new();
    for format in built() {
        let to = fixture.folder.path().join(format!("race-{format:?}"));
        let at_once = std::sync::Barrier::new(6);
        let succeeded = std::thread::scope(|scope| {
            let racing = (0..6).map(|_| {
                scope.spawn(|| {
                    at_once.wait();
                    export(&fixture.recording, format, &to, &ExportOptions::default()).is_ok()
                })
            });
            racing.collect::<Vec<_>>().into_iter().filter_map(|racer| racer.join().ok()).filter(|won| *won).count()
        });
        assert_eq!(succeeded, 1, "{format:?}");
    }
    let left = fs::read_dir(fixture.folder.path()).unwrap().filter_map(Result::ok);
    assert_eq!(left.filter(|entry| entry.file_name().to_string_lossy().starts_with(".draftscope-")).count(), 0);
}

#[cfg(unix)]
#[test]
fn links_stay_and_devices_are_written_through() {
    let fixture = ExportFixture::new();
    let path = |name: &str| fixture.folder.path().join(name);
    let force = ExportOptions { force: true, ..ExportOptions::default() };
    fs::write(path("real.csv"), "old").unwrap();
    for (name, target) in
        [("link.csv", path("real.csv")), ("null.csv", "/dev/null".into()), ("dangling.csv", path("new.csv"))]
    {
        std::os::unix::fs::symlink(&target, path(name)).unwrap();
        export(&fixture.recording, Format::Csv, &path(name), &force).unwrap();
        assert!(path(name).symlink_metadata().unwrap().is_symlink(), "{name}");
    }
    let whole = fs::read_to_string(path("real.csv")).unwrap();
    assert!(whole.starts_with("turn,") && fs::read_to_string(path("new.csv")).unwrap() == whole);
    let mut out = Vec::new();
    export_to(&fixture.recording, Format::Csv, &mut out, &force).unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), whole);
    let refused = export_to(&fixture.recording, Format::Specspecs, &mut Vec::new(), &force).unwrap_err();
    assert!(refused.to_string().contains("makes a folder"), "{refused}");
}

/// Whether the text has no control character other than line ends.
fn is_tame(text: &str) -> bool {
    text.chars().all(|c| c == '\n' || text::picture(c).is_none())
}

#[test]
fn a_damaged_recording_leaves_no_file() {
    let fixture = ExportFixture::new();
    let path = fixture.folder.path().join("b.jsonl");
    let text = fs::read_to_string(fixture.folder.path().join("a.dscope.jsonl")).unwrap();
    // valid JSON with a wrong payload: only a full reading finds it
    let damaged: Vec<String> = text.lines().map(|l| l.replace("\"verify_us\":13500", "\"verify_us\":\"x\"")).collect();
    fs::write(&path, &text).unwrap();
    let recording = Recording::open(&path).unwrap();
    fs::write(&path, damaged.join("\n")).unwrap(); // damaged after it was opened
    for format in built().filter(|format| *format != Format::Jsonl) {
        let to = fixture.folder.path().join("never");
        let error = export(&recording, format, &to, &ExportOptions::default()).unwrap_err().to_string();
        assert!(error.contains("is damaged at line"), "{error}");
    }
    assert_eq!(fixture.names().len(), 2, "{:?}", fixture.names());
}

#[test]
fn a_stopped_export_leaves_no_file() {
    let fixture = ExportFixture::new();
    let recording = Recording::open(&fixture.folder.path().join("a.dscope.jsonl")).unwrap();
    let recording = recording.stopped_by(std::sync::Arc::new(true.into()));
    let before = fixture.names();
    for format in built() {
        let stopped = export(&recording, format, &fixture.folder.path().join("never"), &ExportOptions::default());
        assert!(matches!(stopped, Err(ExportError::Trace(TraceError::Stopped))), "{format:?} {stopped:?}");
    }
    assert_eq!(fixture.names(), before);
}

#[test]
fn the_page_contains_the_recording_as_inert_data() {
    let fixture = ExportFixture::new();
    let page = fixture.text(Format::Html);
    assert!(!page.contains("alert(1)</script>") && !page.contains('\u{1b}') && !page.contains('\u{202e}'));
    assert_eq!(page.matches("</script>").count(), 2, "the data block and the script");
    assert!(!page.contains("http://") || page.matches("http://").count() == 1, "only SVG's namespace is named");
    assert!(!page.contains("{{style}}") && !page.contains("src="), "nothing is loaded");
    let (_, data) = page.split_once("type=\"application/json\">").unwrap();
    let (data, _) = data.split_once("</script>").unwrap();
    assert!(!data.contains('<') && is_tame(data) && !data.contains("\\u001b"), "control characters are pictures");
    let data: Value = serde_json::from_str(data).unwrap();
    assert_eq!(data["turns"].as_array().unwrap().len(), 2);
    assert!(data["turns"][1]["typed"].as_str().unwrap().starts_with("</script>"), "shown, as text");
    assert_eq!(data["summary"]["rounds"], 8);
    assert_eq!(data["changed"], "baseline race", "settings that differ from the defaults");
    let mean = fixture.session().stats(Lane::Speculative).mean_tokens_per_round();
    assert_eq!(data["summary"]["tokens_per_round"].as_f64(), mean);
    let first = &data["turns"][0];
    let text: String = first["transcript"].as_array().unwrap().iter().map(|s| s[0].as_str().unwrap()).collect();
    assert!(text.starts_with("The color of the sky is blue because of the"), "{text}");
    let why = first["rounds"][0]["why"][0].as_str().unwrap();
    assert!(why.contains("the target preferred '·sky' 0.61"), "{why}");
    for block in ["style", "script"] {
        let (_, rest) = page.split_once(&format!("<{block}>")).unwrap();
        let (inner, _) = rest.split_once(&format!("</{block}>")).unwrap();
        let sha = base64::Engine::encode(
            &base64::engine::general_purpose::STANDARD,
            <sha2::Sha256 as sha2::Digest>::digest(inner),
        );
        assert!(page.contains(&format!("{block}-src 'sha256-{sha}'")), "the policy names the {block}");
    }
}

/// The data that a page shows.
fn shown(fixture: &ExportFixture) -> Value {
    let page = fixture.text(Format::Html);
    let (_, data) = page.split_once("type=\"application/json\">").unwrap();
    serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn a_page_marks_accepted_drafts_that_the_target_would_not_have_picked() {
    let page = shown(&ExportFixture::of(&departing().events));
    let tokens = page["turns"][0]["transcript"].as_array().unwrap();
    let departed: Vec<_> = tokens.iter().filter(|token| token[1] == "accepted departed").collect();
    assert!(matches!(departed[..], [token] if token[2] == 2 && token[3] == 1), "{departed:?}");
    assert!(!shown(&ExportFixture::new()).to_string().contains("departed"));
}

#[test]
fn a_control_token_is_an_end_mark_on_a_page() {
    let mut script = Script::prompted("hi", "Hello");
    script.round(&[(" there", 0.5), ("<|im_end|>", 0.4)], &[(" there", 0.9), ("<|im_end|>", 0.8), ("x", 0.5)]);
    script.round(&[("<|im_end|>", 0.5)], &[(".", 0.9), ("x", 0.5)]);
    let page = shown(&ExportFixture::of(&script.events));
    let tokens = page["turns"][0]["transcript"].as_array().unwrap();
    let ends: Vec<_> = tokens.iter().filter(|token| token[0] == "■").map(|token| &token[1]).collect();
    assert_eq!(ends, ["accepted end", "rejected end"]);
    assert!(tokens.iter().all(|token| token[0] != "<|im_end|>"), "{tokens:?}");
}

#[test]
fn the_page_says_what_a_grammar_forced_and_refused() {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/traces/json.dscope.jsonl.zst"));
    let recording = Recording::open(path).unwrap();
    let data = shown(&ExportFixture { folder: tempfile::tempdir().unwrap(), recording });
    let turn = &data["turns"][0];
    let tokens = turn["transcript"].as_array().unwrap();
    let of = |fate: &str| tokens.iter().filter(|token| token[1] == fate).cloned().collect::<Vec<_>>();
    let round = |token: &Value| turn["rounds"].as_array().unwrap().iter().find(|r| r["round"] == token[2]).cloned();
    let (forced, refused) = (of("accepted forced"), of("refused"));
    assert!(!forced.is_empty() && !refused.is_empty());
    for token in forced {
        assert_eq!(round(&token).unwrap()["drafts"][token[3].as_u64().unwrap() as usize]["forced"], true);
    }
    for token in refused {
        let round = round(&token).unwrap();
        let acts: Vec<_> =
            round["refused"].as_array().unwrap().iter().filter(|act| act["column"] == token[3]).collect();
        assert!(acts.iter().any(|act| !act["expected"].as_str().unwrap().is_empty()), "{round}");
    }
}

#[test]
fn columns_of_the_transcript_point_into_their_round() {
    let data = shown(&ExportFixture::new());
    let turn = &data["turns"][0];
    for token in turn["transcript"].as_array().unwrap() {
        let (text, fate) = (token[0].as_str().unwrap(), token[1].as_str().unwrap());
        let Some(round) = turn["rounds"].as_array().unwrap().iter().find(|r| r["round"] == token[2]) else {
            assert_eq!(fate, "first");
            continue;
        };
        let column = token[3].as_u64().unwrap() as usize;
        let piece = match fate {
            "recovered" | "bonus" => {
                assert_eq!(round["next_column"], column);
                round["next"].as_str().unwrap()
            }
            _ => {
                assert_eq!(round["drafts"][column]["outcome"], fate);
                round["drafts"][column]["text"].as_str().unwrap()
            }
        };
        assert_eq!(piece.replace('·', " ").trim(), text.replace('\n', "⏎").replace('·', " ").trim());
    }
}

/// The screen of a terminal after playing a cast.
fn played(cast: &str) -> String {
    let mut lines = cast.lines();
    let header: Value = serde_json::from_str(lines.next().unwrap()).unwrap();
    assert_eq!(header["version"], 3);
    let side = |name: &str| u16::try_from(header["term"][name].as_u64().unwrap()).unwrap().try_into().unwrap();
    let mut terminal = vt100::Parser::new(side("rows"), side("cols"), 0);
    for line in lines {
        let event: Value = serde_json::from_str(line).unwrap();
        assert!(event[0].as_f64().unwrap() >= 0.0);
        if event[1] == "o" {
            terminal.process(event[2].as_str().unwrap().as_bytes());
        }
    }
    terminal.screen().contents()
}

#[test]
fn a_cast_ends_with_the_screen_and_marks_rejects() {
    let fixture = ExportFixture::new();
    let cast = fixture.text(Format::Cast);
    assert!(!cast.contains("]52;") || !cast.contains("\\u001b]"), "only the screen's own sequences");
    let shown = played(&cast);
    let mut stage = screen::at(&fixture.recording, &ExportOptions::default()).unwrap();
    let mut terminal = ratatui::Terminal::new(ratatui::backend::TestBackend::new(120, 40)).unwrap();
    stage.draw(&mut terminal).unwrap();
    let want = terminal.backend().to_string();
    let plain = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).collect::<String>();
    assert_eq!(plain(&shown), plain(&want));
    assert!(shown.contains("SmolLM2-135M-Instruct"), "{shown}");
    let marks: Vec<Value> =
        cast.lines().skip(1).map(|l| serde_json::from_str(l).unwrap()).filter(|e: &Value| e[1] == "m").collect();
    assert_eq!(marks.iter().filter(|m| m[2].as_str().unwrap().ends_with("rejected")).count(), 6, "{marks:?}");
}

#[test]
fn pictures_contain_inert_text() {
    let fixture = ExportFixture::new();
    let svg = fixture.text(Format::Svg);
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    assert!(!svg.contains("<script") && svg.contains("&lt;") && !svg.contains('\u{1b}'));
    let frames = fixture.export(Format::GifFrames);
    let list = fs::read_to_string(frames.join("frames.txt")).unwrap();
    let files: Vec<&str> = list.lines().filter_map(|l| l.strip_prefix("file '")?.strip_suffix('\'')).collect();
    assert_eq!(files.len(), list.matches("duration ").count());
    assert!(files.len() > 1 && files.iter().all(|f| frames.join(f).is_file()));
}

#[test]
fn the_csv_table_has_a_row_per_draft_and_no_formula() {
    let fixture = ExportFixture::new();
    let text = fixture.text(Format::Csv);
    let mut table = ::csv::Reader::from_reader(text.as_bytes());
    let rows: Vec<::csv::StringRecord> = table.records().map(Result::unwrap).collect();
    assert!(is_tame(&text), "{text}");
    assert_eq!(rows.len(), 7 * 3 + 2);
    for row in &rows {
        let token: String = serde_json::from_str(&row[7]).unwrap();
        assert!(!token.is_empty() && row[7].starts_with('"'));
    }
    assert_eq!((&rows[0][11], &rows[1][11], &rows[0][12 + 4]), ("rejected", "not_reached", "recovered"));
    assert_eq!(&rows[0][13], "\" sky\"");
    let tree_columns = |row: usize| [21, 22, 23, 24].map(|column| rows[row][column].to_owned());
    assert_eq!(
        (tree_columns(0), tree_columns(1)),
        (["", "0", "", "0"].map(str::to_owned), ["", "1", "0", "1"].map(str::to_owned))
    );
}

#[test]
fn a_rival_has_its_own_rows_and_columns() {
    let mut script = Script::default();
    for event in first_turn().events {
        let copied = event.lane == Lane::Speculative
            && !matches!(event.kind, EventKind::Started { .. } | EventKind::Prompted { .. });
        let kind = event.kind.clone();
        script.push(event.lane, event.kind);
        if copied {
            script.push(Lane::Rival, kind);
        }
    }
    let rival = Rival { draft_len: 5, drafter: DrafterKind::Ngram, ..Rival::like(&Settings::default()) };
    let settings = Settings { rival: Some(rival), ..Settings::default() };
    script.push(Lane::Speculative, EventKind::SettingsChanged { settings });
    let fixture = ExportFixture::of(&script.events);
    let table = fixture.text(Format::Csv);
    let mut table = ::csv::Reader::from_reader(table.as_bytes());
    let lanes: Vec<String> = table.records().map(|row| row.unwrap()[20].to_owned()).collect();
    assert_eq!(lanes.iter().filter(|lane| *lane == "rival").count(), 7 * 3);
    assert_eq!(lanes.len(), 2 * 7 * 3);
    let report = fixture.text(Format::Markdown);
    assert!(report.contains("| | speculative | plain | rival |\n|---|---|---|---|\n| rounds | 7 | "), "{report}");
    assert!(
        report.contains("| against the rival | 1.00× ±0.01 | | |") && report.contains("drafts by ngram"),
        "{report}"
    );
    let page = fixture.text(Format::Html);
    let data = page.split_once("type=\"application/json\"").unwrap().1;
    let data = data.split_once('>').unwrap().1.split_once("</script").unwrap().0;
    let data: Value = serde_json::from_str(data).unwrap();
    assert_eq!(data["rival"]["rounds"], 7);
    assert_eq!(data["speedup_over_rival"]["speedup"], 1.0);
    assert!(data["rival_settings"].as_str().unwrap().contains("drafts by ngram"));
    assert!(!data["turns"][0]["rival_speed"].as_array().unwrap().is_empty());
    let alone = ExportFixture::new();
    assert!(!alone.text(Format::Markdown).contains("rival"));
}

#[test]
fn a_report_shows_an_automatic_k_and_every_changed_setting() {
    let mut script = first_turn();
    let Some(EventKind::Started { header }) = script.events.first_mut().map(|event| &mut event.kind) else {
        panic!("a run begins with its header");
    };
    header.settings.draft_len_mode = draftscope_protocol::DraftLenMode::Auto;
    header.settings.drafting.p_min = 0.5;
    let report = ExportFixture::of(&script.events).text(Format::Markdown);
    assert!(report.contains("| k, rule | auto, exact |"), "{report}");
    let row = report.lines().find(|line| line.starts_with("| other changed settings")).unwrap();
    assert!(row.contains("p-min 0.5") && !row.contains("auto"), "{row}");
}

#[test]
fn vllms_numbers_add_up() {
    let requests = ExportFixture::new().json(Format::VllmJson);
    for request in requests.as_array().unwrap() {
        assert!(request["created"].is_u64());
        assert!(["stop", "length"].contains(&request["choices"][0]["finish_reason"].as_str().unwrap()), "{request}");
        let run = &request["metrics"]["speculative_decoding"];
        let sum = |name: &str| run[name].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum::<u64>();
        assert_eq!(sum("per_step_accepted"), run["num_accepted_draft_tokens"]);
        assert_eq!(sum("per_step_drafted"), run["num_draft_tokens"]);
        assert_eq!(sum("acceptance_histogram"), run["num_spec_steps"]);
        let mean = 1.0 + sum("per_step_accepted") as f64 / run["num_spec_steps"].as_f64().unwrap();
        assert!((run["mean_acceptance_length"].as_f64().unwrap() - mean).abs() < 1e-9);
    }
}

#[test]
fn slices_of_a_lane_do_not_overlap() {
    let trace = ExportFixture::new().json(Format::Perfetto);
    let events = trace["traceEvents"].as_array().unwrap();
    for (pid, tid) in [(1, 1), (1, 2), (2, 2)] {
        let mine = events.iter().filter(|e| e["ph"] == "X" && e["pid"] == pid && e["tid"] == tid);
        let slices: Vec<_> = mine.map(|e| (e["ts"].as_u64().unwrap(), e["dur"].as_u64().unwrap())).collect();
        assert!(slices.len() > 5, "{pid} {tid}: {slices:?}");
        assert!(slices.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0), "{pid} {tid}");
    }
    assert_eq!(events.iter().filter(|e| e["name"] == "reject").count(), 6);
}

#[cfg(feature = "specspecs")]
#[test]
fn specspecs_tables_contain_the_recorded_rounds() {
    let fixture = ExportFixture::new();
    let folder = fixture.export(Format::Specspecs);
    let open = |name| SerializedFileReader::new(fs::File::open(folder.join(name)).unwrap()).unwrap();
    let sequences: Vec<_> = open("sequences-0-00000.parquet").into_iter().map(Result::unwrap).collect();
    assert_eq!(sequences.len(), 2);
    assert_eq!(sequences[0].get_list(3).unwrap().len() as i32, sequences[0].get_int(4).unwrap());
    let drafts = open("drafts-0-00000.parquet");
    assert_eq!(drafts.metadata().file_metadata().num_rows(), 8);
    let rows: Vec<_> = drafts.into_iter().map(Result::unwrap).collect();
    let first = &rows[0];
    assert_eq!(first.get_list(4).unwrap().len(), 4, "the anchor and three drafts");
    assert_eq!((first.get_short(6).unwrap(), first.get_short(7).unwrap()), (4, 1), "{first}");
}

#[test]
fn text_in_a_report_cannot_end_its_fence() {
    let report = ExportFixture::new().text(Format::Markdown);
    assert!(report.contains("```````text\n") && report.contains("rejections; the first ones"));
    assert!(!report.contains('\u{1b}') && report.contains("SmolLM2-135M-Instruct"));
    assert!(report.contains("- round 1: &lt;/script>"), "{report}");
}

#[test]
fn a_report_says_that_a_rule_was_not_lossless() {
    let mut script = first_turn();
    assert!(!ExportFixture::of(&script.events).text(Format::Markdown).contains("not lossless"));
    for event in &mut script.events {
        if let EventKind::Verified { verdict, .. } = &mut event.kind {
            verdict.lossless = false;
        }
    }
    let report = ExportFixture::of(&script.events).text(Format::Markdown);
    assert!(report.contains("The rule was not lossless: the target would not have picked 0 of 18 tokens."), "{report}");
}

#[test]
fn a_copy_keeps_complete_lines_unchanged() {
    let fixture = ExportFixture::new();
    let path = fixture.folder.path().join("b.jsonl");
    let mut text = fs::read_to_string(fixture.folder.path().join("a.dscope.jsonl")).unwrap();
    text.push_str("{\"seq\":999,\"at_us\":999,\"type\":\"tree_drafted\",\"branches\":[1.50]}\n");
    fs::write(&path, format!("{text}{{\"seq\":1000,\"at")).unwrap();
    let recording = Recording::open(&path).unwrap();
    for name in ["c.jsonl", "c.jsonl.zst"] {
        let to = fixture.folder.path().join(name);
        export(&recording, Format::Jsonl, &to, &ExportOptions::default()).unwrap();
        let mut reader = draftscope_session::trace::Reader::open(&to).unwrap();
        let mut lines = String::new();
        while reader.advance().unwrap() {
            lines.push_str(std::str::from_utf8(reader.raw()).unwrap());
            lines.push('\n');
        }
        assert_eq!(lines, text);
    }
}

#[test]
fn exporting_a_recording_without_answers_is_an_error() {
    let fixture = ExportFixture::of(&Script::started().events);
    let without = if cfg!(feature = "specspecs") { "contains no answer" } else { "--features specspecs" };
    for (format, sentence) in [(Format::VllmJson, "contains no answer"), (Format::Specspecs, without)] {
        let to = fixture.folder.path().join("x");
        let error = export(&fixture.recording, format, &to, &ExportOptions::default()).unwrap_err();
        assert!(error.to_string().contains(sentence), "{error}");
    }
    for format in [Format::Html, Format::Cast, Format::Svg, Format::Perfetto, Format::Csv, Format::Markdown] {
        fixture.export(format);
    }
}

#[test]
fn a_screen_becomes_two_pictures_and_replaces_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let screen = ratatui::buffer::Buffer::with_lines(["The sky is blue.", "─ ✓ ▄"]);
    let stem = folder.path().join("draftscope-1");
    let [svg, png] = write_pictures(&screen, &stem).unwrap();
    assert_eq!(svg, folder.path().join("draftscope-1.svg"));
    assert!(std::fs::read_to_string(svg).unwrap().contains(">The\u{a0}sky\u{a0}is\u{a0}blue.<"));
    assert!(std::fs::read(png).unwrap().starts_with(b"\x89PNG"));
    assert!(matches!(write_pictures(&screen, &stem), Err(ExportError::Exists(_))));
    assert_eq!(folder.path().read_dir().unwrap().count(), 2, "no temporary file is left");
}
