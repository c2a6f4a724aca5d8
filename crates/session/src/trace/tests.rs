//! Tests of recordings: complete, cut off, damaged, of other versions, and hostile ones.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::fixture::{conversation, first_turn, fold};
use crate::fold::Session;
use draftscope_protocol::stream::Consumer;
use draftscope_protocol::{Committed, Event, EventKind, Lane, Piece, RoundOnDevice, StopReason, TokenId};

struct TraceFolder {
    folder: tempfile::TempDir,
}

impl TraceFolder {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Records these events under this name.
    fn record(&self, name: &str, events: &[Event], text: TextPolicy) -> PathBuf {
        let path = self.path(name);
        let mut recorder = Recorder::create(&path, RecordOptions { force: false, text }).unwrap();
        events.iter().for_each(|e| recorder.event(e).unwrap());
        recorder.finish().unwrap();
        path
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}

/// A complete run with every kind of event.
fn run() -> Vec<Event> {
    let mut script = first_turn();
    let kinds = [
        EventKind::Noted { text: "\u{1b}[31m why?".into(), round: Some(2), turn: None },
        EventKind::Bookmarked { round: None, turn: Some(1), label: "here".into() },
        EventKind::Paused,
        EventKind::Resumed,
        EventKind::Notice { message: "a word".into() },
        EventKind::SettingsChanged { settings: draftscope_protocol::Settings::default() },
    ];
    for kind in kinds {
        script.push(Lane::Speculative, kind);
    }
    let session = fold(&script.events);
    let mut events = script.events;
    events.push(session.end().unwrap());
    events
}

fn read(path: &std::path::Path) -> Result<Vec<Event>, TraceError> {
    Reader::open(path)?.collect()
}

#[test]
fn recorded_events_are_read_back_plain_and_compressed() {
    let place = TraceFolder::new();
    let events = run();
    let plain = place.record("a.dscope.jsonl", &events, TextPolicy::Full);
    let packed = place.record("a.dscope.jsonl.zst", &events, TextPolicy::Full);
    assert_eq!(read(&plain).unwrap(), events);
    assert_eq!(read(&packed).unwrap(), events);
    assert!(fs::metadata(&packed).unwrap().len() * 4 < fs::metadata(&plain).unwrap().len());
    assert!(!fs::read_to_string(&plain).unwrap().contains('\u{1b}'));
    let recording = Recording::open(&plain).unwrap();
    assert_eq!((recording.lines(), recording.cut()), (events.len() as u64, None));
    assert_eq!(recording.ends_at_us(), events.last().unwrap().at_us);
}

/// The published schema.
fn schema() -> (boon::Schemas, boon::SchemaIndex) {
    let text = include_str!("../../../../docs/trace.schema.json");
    let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
    compiler.add_resource("trace.schema.json", serde_json::from_str(text).unwrap()).unwrap();
    let schema = compiler.compile("trace.schema.json", &mut schemas).unwrap();
    (schemas, schema)
}

#[test]
fn recordings_of_older_programs_follow_the_schema() {
    let (schemas, schema) = schema();
    for name in ["tests/fixtures/traces/v1.dscope.jsonl", "assets/traces/sampling.dscope.jsonl.zst"] {
        let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(name);
        let mut bytes = fs::read(&path).unwrap();
        if name.ends_with(".zst") {
            bytes = zstd::decode_all(bytes.as_slice()).unwrap();
        }
        for line in String::from_utf8(bytes).unwrap().lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            schemas.validate(&line, schema).unwrap_or_else(|error| panic!("{name}: {line}\n{error}"));
        }
    }
}

#[test]
fn every_line_follows_the_schema() {
    let (schemas, schema) = schema();
    let place = TraceFolder::new();
    let mut events = run();
    events.push(Event {
        kind: EventKind::Committed(Committed {
            round: 1,
            tokens: vec![Piece::new(TokenId(1), vec![0xff])],
            clock_us: 1,
            device: Some(RoundOnDevice::default()),
            ..Committed::default()
        }),
        ..events[1].clone()
    });
    for text in [TextPolicy::Full, TextPolicy::Digest] {
        let path = place.record(&format!("{text:?}.jsonl"), &events, text);
        for line in fs::read_to_string(path).unwrap().lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            schemas.validate(&line, schema).unwrap_or_else(|error| panic!("{line}\n{error}"));
        }
    }
    for bad in [
        r#"{"at_us":1,"type":"paused"}"#,
        r#"{"seq":1,"at_us":1,"type":"finished","reason":"tired"}"#,
        r#"{"seq":1,"at_us":1,"type":"drafted","round":1,"index":0,"token":{"id":1},"top":{"top":[],"tail":0},"took_us":1}"#,
    ] {
        let bad: serde_json::Value = serde_json::from_str(bad).unwrap();
        assert!(schemas.validate(&bad, schema).is_err(), "{bad} should not pass");
    }
}

#[test]
fn digests_replace_text_and_all_comparisons_stay_the_same() {
    let place = TraceFolder::new();
    let events = run();
    let full = place.record("full.jsonl", &events, TextPolicy::Full);
    let path = place.record("digest.jsonl", &events, TextPolicy::Digest);
    let text = fs::read_to_string(&path).unwrap();
    for word in ["sky", "sunlight", "Why is", "color"] {
        assert!(fs::read_to_string(&full).unwrap().contains(word) && !text.contains(word), "{word}");
    }
    let sha = sha2::Sha256::digest(b"Why is the sky blue?");
    use sha2::Digest as _;
    let sha: String = sha.iter().map(|b| format!("{b:02x}")).collect();
    assert!(text.contains(&format!("sha256:{sha}")));
    let fold = |path| {
        let mut session = Session::new();
        read(path).unwrap().iter().for_each(|e| session.apply(e));
        session
    };
    let (full, digest) = (fold(&full), fold(&path));
    for lane in [Lane::Speculative, Lane::Plain] {
        assert_eq!(full.stats(lane), digest.stats(lane));
        let fates = |s: &Session| s.turns()[0].answer(lane).transcript().map(|s| s.fate).collect::<Vec<_>>();
        assert_eq!(fates(&full), fates(&digest));
    }
    let agreement = |s: &Session| s.turns()[0].agreement().map(|a| a.identical);
    assert_eq!(agreement(&full), agreement(&digest));
    let seqs: Vec<u64> = read(&path).unwrap().iter().map(|e| e.seq).collect();
    assert!(seqs.windows(2).all(|w| w[1] == w[0] + 1), "{seqs:?}");
}

#[test]
fn a_refused_prompt_has_no_digest_of_an_answer() {
    let place = TraceFolder::new();
    let mut events = run();
    let last = events.last().unwrap().clone();
    let kinds = [
        EventKind::Prompted { turn: 9, text: "too long".into(), branch: None },
        EventKind::Finished { reason: StopReason::Refused },
    ];
    let refused = (1..).zip(kinds).map(|(at, kind)| Event {
        seq: last.seq + at,
        at_us: last.at_us,
        lane: Lane::Speculative,
        kind,
    });
    events.extend(refused);
    let path = place.record("digest.jsonl", &events, TextPolicy::Digest);
    let digests = |events: &[Event]| events.iter().filter(|e| matches!(e.kind, EventKind::TextDigest { .. })).count();
    let answers = events.iter().filter(|e| matches!(e.kind, EventKind::Finished { .. })).count() - 1;
    assert_eq!(digests(&read(&path).unwrap()), answers);
}

#[test]
fn a_recording_is_never_overwritten_without_force() {
    let place = TraceFolder::new();
    let path = place.record("a.jsonl", &run(), TextPolicy::Full);
    let before = fs::read(&path).unwrap();
    let refused = Recorder::create(&path, RecordOptions::default()).unwrap_err().to_string();
    assert!(refused.contains("--force"), "{refused}");
    assert_eq!(fs::read(&path).unwrap(), before);
    drop(Recorder::create(&path, RecordOptions { force: true, ..RecordOptions::default() }).unwrap());
    assert_eq!(fs::read(&path).unwrap(), before, "without events nothing is replaced");
    let nowhere = Recorder::create(&place.path("no/such"), RecordOptions::default());
    assert!(matches!(nowhere, Err(RecordError::Write { .. })));
}

#[test]
fn events_are_in_the_file_within_a_second() {
    let place = TraceFolder::new();
    for name in ["a.jsonl", "a.jsonl.zst"] {
        let path = place.path(name);
        let mut recorder = Recorder::create(&path, RecordOptions::default()).unwrap();
        let events = run();
        events[..20].iter().for_each(|e| recorder.event(e).unwrap());
        let deadline = Instant::now() + Duration::from_secs(60); // a busy machine may be late
        while read(&path).map_or(0, |read| read.len()) < 20 {
            assert!(Instant::now() < deadline, "{name}: nothing was flushed");
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(Recording::open(&path).unwrap().cut(), Some(&cut_of(name, 20)));
    }
}

#[cfg(unix)]
#[test]
fn a_pipe_can_be_read_several_times_like_a_file() {
    let place = TraceFolder::new();
    let whole = fs::read(place.record("a.jsonl.zst", &run(), TextPolicy::Full)).unwrap();
    let pipe = place.path("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let to = pipe.clone();
    let writer = std::thread::spawn(move || fs::write(to, whole).unwrap());
    let recording = Recording::open(&pipe).unwrap();
    writer.join().unwrap();
    let events = || recording.events().unwrap().collect::<Result<Vec<_>, _>>().unwrap();
    assert_eq!((events(), events()), (run(), run()));
}

#[test]
fn a_run_that_never_began_changes_no_file() {
    let place = TraceFolder::new();
    let failed = Event { kind: EventKind::Failed { message: "no model".into() }, ..run()[0].clone() };
    for name in ["a.jsonl", "a.jsonl.zst"] {
        let path = place.path(name);
        let mut recorder = Recorder::create(&path, RecordOptions::default()).unwrap();
        recorder.event(&failed).unwrap();
        recorder.finish().unwrap();
        assert!(!path.exists(), "the name is free for the next attempt");
        fs::write(&path, "an old recording").unwrap();
        let options = RecordOptions { force: true, ..RecordOptions::default() };
        let mut recorder = Recorder::create(&path, options).unwrap();
        recorder.event(&failed).unwrap();
        recorder.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"an old recording");
        let mut recorder = Recorder::create(&path, options).unwrap();
        run().iter().for_each(|event| recorder.event(event).unwrap());
        recorder.finish().unwrap();
        assert_eq!(read(&path).unwrap(), run(), "and a run that began replaces it");
    }
}

/// The cut of an unfinished file: a plain one has complete lines, a compressed one lacks the end of its frame.
fn cut_of(name: &str, lines: u64) -> Cut {
    if name.ends_with("zst") { Cut::InLine(lines + 1) } else { Cut::AfterLine(lines) }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_reported_and_does_not_stall() {
    let mut recorder =
        Recorder::create(std::path::Path::new("/dev/full"), RecordOptions { force: true, ..RecordOptions::default() })
            .unwrap();
    let event = &run()[1];
    let deadline = Instant::now() + Duration::from_secs(60);
    let error = loop {
        if let Err(error) = recorder.event(event) {
            break error;
        }
        assert!(Instant::now() < deadline, "the error never came");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
}

#[test]
fn a_file_cut_at_any_byte_reads_up_to_its_last_complete_line() {
    let place = TraceFolder::new();
    let events = &run()[..30];
    let whole = fs::read(place.record("a.jsonl", events, TextPolicy::Full)).unwrap();
    let first = whole.iter().position(|b| *b == b'\n').unwrap();
    let path = place.path("cut.jsonl");
    for len in 0..=whole.len() {
        let lines = whole[..len].iter().filter(|b| **b == b'\n').count();
        let mut reader = match Reader::of_bytes("cut", whole[..len].to_vec()) {
            Ok(reader) => reader,
            Err(error) => {
                assert!(len < first && error.to_string().contains("is not a draftscope trace"), "{len}: {error}");
                continue;
            }
        };
        let read: Vec<Event> = reader.by_ref().collect::<Result<_, _>>().unwrap();
        assert!(read.len() >= lines && events.starts_with(&read), "cut at {len}");
        let in_line = len > 0 && read.len() == lines && whole[len - 1] != b'\n';
        let expected = if in_line { Cut::InLine(lines as u64 + 1) } else { Cut::AfterLine(read.len() as u64) };
        assert_eq!(reader.cut(), Some(&expected), "cut at {len}");
        if len % 97 == 0 {
            fs::write(&path, &whole[..len]).unwrap();
            assert_eq!(Recording::open(&path).unwrap().cut(), Some(&expected), "cut at {len}");
        }
    }
}

#[test]
fn a_compressed_file_cut_anywhere_reads_a_prefix() {
    let place = TraceFolder::new();
    let events = run();
    let path = place.path("a.jsonl.zst");
    let mut recorder = Recorder::create(&path, RecordOptions::default()).unwrap();
    let mut sent = 0;
    for part in events.chunks(20) {
        part.iter().for_each(|e| recorder.event(e).unwrap());
        sent += part.len();
        let deadline = Instant::now() + Duration::from_secs(60);
        while read(&path).map_or(0, |read| read.len()) < sent {
            assert!(Instant::now() < deadline, "{sent} events are not in the file");
            std::thread::sleep(Duration::from_millis(20)); // a block of its own
        }
    }
    recorder.finish().unwrap();
    let whole = fs::read(&path).unwrap();
    let mut most = 0;
    for len in (4..whole.len()).step_by(13) {
        let cut = place.write("cut.zst", &whole[..len]);
        match Recording::open(&cut) {
            Ok(recording) => {
                let read = read(&cut).unwrap();
                assert!(events.starts_with(&read) && recording.cut().is_some());
                most = most.max(read.len());
            }
            Err(error) => assert!(error.to_string().contains("not a draftscope trace"), "{error}"),
        }
    }
    assert!(most >= 20, "flushed blocks can be read");
}

/// A pipe that is not read for a while simulates a disk that is busy.
#[cfg(unix)]
#[test]
fn a_slow_disk_costs_no_time_and_no_event() {
    let place = TraceFolder::new();
    let path = place.path("slow.jsonl");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let (open, go) = (path.clone(), std::sync::mpsc::channel::<()>());
    let (start, started) = go;
    let disk = std::thread::spawn(move || {
        let mut pipe = fs::File::open(open).unwrap();
        started.recv().unwrap();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut pipe, &mut text).unwrap();
        text
    });
    let options = RecordOptions { force: true, ..RecordOptions::default() };
    let mut recorder = Recorder::create(&path, options).unwrap();
    let events: Vec<Event> = run().into_iter().cycle().take(20_000).collect();
    for event in &events {
        recorder.event(event).unwrap(); // must not wait, though nothing reads the pipe
    }
    std::thread::sleep(FLUSH * 2);
    assert!(!disk.is_finished());
    start.send(()).unwrap();
    recorder.finish().unwrap();
    let text = disk.join().unwrap();
    let read: Vec<Event> = text.lines().map(|line| Event::of_line(line.as_bytes()).unwrap()).collect();
    assert!(read == events, "every event, in order");
}

#[test]
fn traces_within_the_program_follow_the_schema() {
    let (schemas, schema) = schema();
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("assets/traces");
    let all = [folder.join("lessons"), folder].into_iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let files = all.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let mut checked = 0;
    for path in files {
        let mut reader = Reader::open(&path).unwrap();
        while reader.advance().unwrap() {
            let line: serde_json::Value = serde_json::from_slice(reader.raw()).unwrap();
            schemas.validate(&line, schema).unwrap_or_else(|error| panic!("{reader:?}\n{error}"));
            assert_ne!(reader.event().unwrap().kind, EventKind::Unknown);
            checked += 1;
        }
        assert_eq!(reader.cut(), None);
    }
    assert!(checked > 6000, "{checked} lines");
}

fn refused(place: &TraceFolder, bytes: &[u8], what: &str) {
    let path = place.write("bad.jsonl", bytes);
    let error = Recording::open(&path).map(drop).and_then(|()| read(&path).map(drop)).unwrap_err().to_string();
    assert!(error.contains(what), "{error}");
    assert!(!error.contains(char::is_control), "{error:?}");
}

#[test]
fn damage_is_reported_with_its_line() {
    let place = TraceFolder::new();
    let path = place.record("a.jsonl", &run(), TextPolicy::Full);
    let text = fs::read_to_string(&path).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines[6] = r#"{"seq":6,"at_us":1,"type":"drafted","round":"one"}"#;
    refused(&place, (lines.join("\n") + "\n").as_bytes(), "damaged at line 7: invalid type: string \"one\"");
    lines[6] = "{\u{1b}[31m";
    refused(&place, (lines.join("\n") + "\n").as_bytes(), "damaged at line 7");
    lines[6] = "";
    refused(&place, (lines.join("\n") + "\n").as_bytes(), "damaged at line 7");
    refused(&place, b"", "contains no complete line");
    refused(&place, b"\n", "it is empty");
    refused(&place, b"{\"seq\":0,\"at_us\":0,\"type\":\"paused\"}\n", "its first line is not a header");
    refused(&place, b"\x7fELF\x01\x02 whatever\n", "it is not text: it begins like a program");
    refused(&place, &[0x28, 0xb5, 0x2f, 0xfd, 1, 2, 3], "");
    let newer = lines[0].replacen("\"version\":4", "\"version\":5,\"model\":[]", 1);
    refused(&place, (newer + "\n").as_bytes(), "trace format 5, this program reads up to 4");
    assert!(read(&place.path("none")).unwrap_err().to_string().contains("cannot read the trace"));
}

/// A recording of version 2: nobody kept one. Its documentation said "version 2 is version 1 with an `ended` line", whose
/// fields are those of the program of that time.
fn version_2() -> String {
    let v1 = include_str!("../../../../tests/fixtures/traces/v1.dscope.jsonl");
    let ended = r#"{"seq":100000,"at_us":999999999,"type":"ended","summary":{"num_spec_steps":9,"num_spec_tokens":3,"num_draft_tokens":27,"num_accepted_draft_tokens":12,"mean_acceptance_length":2.3,"draft_acceptance_rate":0.44,"acceptance_histogram":[2,3,3,1],"offered_per_pos":[9,9,9],"accepted_per_pos":[7,4,1],"prefill_seconds":0.1,"decode_seconds":0.2,"tokens_per_second":100.0,"draft_seconds":0.05,"verify_seconds":0.1,"other_seconds":0.05}}"#;
    format!("{}{ended}\n", v1.replacen("\"version\":1", "\"version\":2", 1))
}

#[test]
fn recordings_of_every_older_version_still_open() {
    let place = TraceFolder::new();
    let v1 = include_bytes!("../../../../tests/fixtures/traces/v1.dscope.jsonl");
    let v3 = include_bytes!("../../../../assets/traces/chat.dscope.jsonl.zst");
    let files =
        [place.write("1.jsonl", v1), place.write("2.jsonl", version_2().as_bytes()), place.write("3.jsonl.zst", v3)];
    for (path, version) in files.iter().zip(1..) {
        let recording = Recording::open(path).unwrap();
        assert_eq!((recording.header().version, recording.cut()), (version, None));
        let mut session = Session::new();
        read(path).unwrap().iter().for_each(|event| session.apply(event));
        assert!(session.stats(Lane::Speculative).rounds() > 5, "version {version}");
        assert_eq!(session.has_ended(), version > 1);
        assert!(session.header().unwrap().engine.is_none());
    }
}

#[test]
fn an_older_trace_and_a_newer_event_are_read() {
    let text = include_str!("../../../../tests/fixtures/traces/v1.dscope.jsonl");
    let place = TraceFolder::new();
    let path = place.write("v1.jsonl", text.as_bytes());
    let recording = Recording::open(&path).unwrap();
    assert_eq!((recording.header().version, recording.cut()), (1, None), "version 1 has no end line");
    let mut session = Session::new();
    read(&path).unwrap().iter().for_each(|e| session.apply(e));
    assert!(session.stats(Lane::Speculative).rounds() > 5);
    let unknown = r#"{"seq":2,"at_us":9,"type":"tree_drafted","branches":[1,2]}"#;
    let path = place.write("newer.jsonl", format!("{}\n{unknown}\n", text.lines().next().unwrap()).as_bytes());
    let mut reader = Reader::open(&path).unwrap();
    let raw: Vec<_> = std::iter::from_fn(|| reader.advance().unwrap().then(|| reader.raw().to_vec())).collect();
    assert_eq!(raw[1], unknown.as_bytes(), "unchanged");
    assert_eq!(read(&path).unwrap()[1].kind, EventKind::Unknown);
}

#[test]
fn endless_lines_and_depths_are_refused_in_bounded_memory() {
    let place = TraceFolder::new();
    let header = serde_json::to_string(&run()[0]).unwrap();
    let long = format!("{header}\n{{\"seq\":1,\"at_us\":1,\"type\":\"{}\"}}\n", "x".repeat(MAX_LINE_BYTES));
    refused(&place, long.as_bytes(), "damaged at line 2: it is longer than 16 MiB");
    let deep = format!(
        "{header}\n{{\"seq\":1,\"at_us\":1,\"type\":\"x\",\"a\":{}{}}}\n",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    let path = place.write("deep.jsonl", deep.as_bytes());
    assert_eq!(read(&path).unwrap()[1].kind, EventKind::Unknown, "unknown content is skipped without recursion");
    let deep = deep.replacen("\"x\"", "\"verified\"", 1);
    refused(&place, deep.as_bytes(), "damaged at line 2: recursion limit");
    // 200 MiB of spaces in a few kB: refused as one line, in bounded memory
    let mut packed = zstd::Encoder::new(Vec::new(), 1).unwrap();
    std::io::copy(&mut std::io::Read::take(std::io::repeat(b' '), 200 << 20), &mut packed).unwrap();
    refused(&place, &packed.finish().unwrap(), "longer than 16 MiB");
    let huge = r#"{"seq":18446744073709551615,"at_us":18446744073709551615,"type":"finished","reason":"eos"}"#;
    let path = place.write("huge.jsonl", format!("{header}\n{huge}\n{huge}\n").as_bytes());
    let mut session = Session::new();
    read(&path).unwrap().iter().for_each(|e| session.apply(e));
    assert!(session.end().is_some());
    let negative = format!("{header}\n{{\"seq\":-1,\"at_us\":1,\"type\":\"paused\"}}\n");
    refused(&place, negative.as_bytes(), "damaged at line 2");
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), at in 0usize..4000) {
        let place = TraceFolder::new();
        let mut text = fs::read(place.record("a.jsonl", &conversation().events, TextPolicy::Full)).unwrap();
        let at = at.min(text.len());
        text.splice(at..(at + bytes.len()).min(text.len()), bytes);
        let path = place.write("b.jsonl", &text);
        let mut session = Session::new();
        if let Ok(reader) = Reader::open(&path) {
            reader.take_while(Result::is_ok).flatten().for_each(|e| session.apply(&e));
        }
        let _ = Recording::open(&path);
    }
}

/// The recorder writes far more events per second than an engine sends; only release builds run this test.
#[test]
fn fifty_thousand_events_a_second_are_recorded() {
    if cfg!(debug_assertions) {
        println!("not run: the speed of a debug build means nothing");
        return;
    }
    let place = TraceFolder::new();
    let events = conversation().events;
    let rounds: Vec<&Event> = events.iter().skip(3).collect();
    for name in ["a.jsonl", "a.jsonl.zst"] {
        let best = (0..3)
            .map(|attempt| {
                let path = place.path(&format!("{attempt}{name}"));
                let mut recorder = Recorder::create(&path, RecordOptions::default()).unwrap();
                let start = Instant::now();
                rounds.iter().cycle().take(100_000).for_each(|e| recorder.event(e).unwrap());
                recorder.finish().unwrap();
                100_000.0 / start.elapsed().as_secs_f64()
            })
            .fold(0.0, f64::max);
        println!("{name}: {best:.0} events a second");
        assert!(best > 50_000.0, "{name}: {best:.0} events a second");
    }
}

#[test]
fn the_end_of_a_turn_does_not_complete_a_recording() {
    let mut events = run();
    let end = events.pop().unwrap();
    events.push(Event {
        kind: EventKind::Finished { reason: StopReason::Stopped },
        seq: end.seq,
        at_us: end.at_us,
        lane: Lane::Plain,
    });
    let place = TraceFolder::new();
    let path = place.record("a.jsonl", &events, TextPolicy::Full);
    assert_eq!(Recording::open(&path).unwrap().cut(), Some(&Cut::AfterLine(events.len() as u64)));
}
