//! Lines of a plugin: complete, incomplete, contradictory and too long.

use super::*;
use crate::socket::check;

/// The lines of one round as the vLLM plugin writes them: 2 drafts, 1 accepted.
const ROUND: [&str; 7] = [
    r#"{"seq":0,"at_us":0,"type":"started","header":{"version":4,"program":"x","model":{"name":"m","architecture":"","file":"","sha256":null,"layers":0,"d_model":0,"vocab":4,"context_length":9,"weight_bytes":0,"kv_bytes_per_token":0},"drafter":null,"settings":{"draft_len":2,"drafter":"none","rule":"rejection","sampling":{},"max_tokens":1,"baseline":"off"},"ctx_len":9,"device":"","backend":"fake","dtype":"","threads":0,"started_unix_ms":0,"capabilities":{"can_generate":false},"engine":{"name":"fake","version":"1","abilities":[]}}}"#,
    r#"{"seq":1,"at_us":5,"type":"round_started","base_len":5,"draft_len":2,"round":1,"request":"r"}"#,
    r#"{"seq":2,"at_us":5,"type":"drafted","index":0,"token":{"id":1,"text":"a"},"q":1.0,"top":{"top":[],"tail":1.0},"took_us":5,"round":1,"request":"r"}"#,
    r#"{"seq":3,"at_us":5,"type":"drafted","index":1,"token":{"id":2,"text":"b"},"q":1.0,"top":{"top":[],"tail":1.0},"took_us":5,"round":1,"request":"r"}"#,
    r#"{"seq":4,"at_us":5,"type":"scored","rows":[{"top":[{"id":1,"text":"a","prob":0.9}],"tail":0.1},{"top":[{"id":3,"text":"c","prob":0.6},{"id":2,"text":"b","prob":0.1}],"tail":0.3},{"top":[],"tail":1.0}],"verify_us":20,"sample_us":3,"round":1,"request":"r"}"#,
    r#"{"seq":5,"at_us":5,"type":"verified","judgements":[{"outcome":"accepted","p":0.9,"q":1.0},{"outcome":"rejected","p":0.1,"q":1.0}],"next":3,"next_kind":"recovered","round":1,"request":"r"}"#,
    r#"{"seq":6,"at_us":7,"type":"committed","tokens":[{"id":1,"text":"a"},{"id":3,"text":"c"}],"rollback_us":0,"clock_us":0,"round":1,"request":"r"}"#,
];

fn checked(lines: &[String]) -> super::super::Report {
    check(lines.iter().map(|line| Ok(line.clone().into_bytes())))
}

fn lines() -> Vec<String> {
    ROUND.map(str::to_owned).to_vec()
}

/// The first fault once `from` is replaced by `to` in the line with this number (from 1).
fn fault(line: usize, from: &str, to: &str) -> (u64, String) {
    let mut lines = lines();
    assert!(lines[line - 1].contains(from), "{from} in {}", lines[line - 1]);
    lines[line - 1] = lines[line - 1].replacen(from, to, 1);
    checked(&lines).faults.into_iter().next().unwrap_or_default()
}

#[test]
fn a_round_comes_out_whole() {
    let mut collector = Collector::default();
    let said: Vec<_> = ROUND.iter().map(|line| collector.push(line.as_bytes()).unwrap()).collect();
    assert!(matches!(&said[0], Said::Header(header) if header.engine.as_ref().unwrap().name == "fake"));
    assert!(said[1..6].iter().all(|said| *said == Said::Nothing));
    let Said::Round(request, round) = &said[6] else { panic!("{said:?}") };
    assert_eq!((request.as_str(), round.drafted(), round.accepted(), round.base_len, round.at_us), ("r", 2, 1, 5, 7));
    assert_eq!((round.rows().len(), round.scored.as_ref().unwrap().verify_us, round.has_q()), (3, 20, true));
    let report = checked(&lines());
    assert!(report.is_good(), "{report}");
    assert_eq!((report.rounds, report.drafted, report.accepted, report.with_rows, report.with_q), (1, 2, 1, 1, 1));
}

#[test]
fn requests_may_be_interleaved_and_a_line_of_a_newer_version_is_skipped() {
    let mut lines = lines();
    let other: Vec<String> =
        lines[1..].iter().map(|line| line.replace(r#""request":"r""#, r#""request":"s""#)).collect();
    let mut mixed = vec![lines.remove(0)];
    mixed.extend(lines.into_iter().zip(other).flat_map(|(a, b)| [a, b]));
    mixed.push(r#"{"seq":0,"at_us":1,"type":"never_heard_of","x":[1]}"#.to_owned());
    for (seq, line) in mixed.iter_mut().enumerate() {
        let from = line.find(',').unwrap();
        *line = format!("{{\"seq\":{seq}{}", &line[from..]);
    }
    let report = checked(&mixed);
    assert!(report.is_good(), "{report}");
    assert_eq!(report.rounds, 2);
}

#[test]
fn every_contradiction_is_named_with_line_and_field() {
    for (line, from, to, at, named) in [
        (1, r#""version":4"#, r#""version":5"#, 1, "header.version: 5"),
        (1, r#""name":"fake""#, r#""name":"""#, 1, "header.engine: missing"),
        (1, "started", "paused", 1, "type: the first line"),
        (2, r#""seq":1"#, r#""seq":0"#, 2, "seq: 0 after 0"),
        (2, r#""draft_len":2"#, r#""draft_len":1"#, 4, "index: draft 1"),
        (2, r#""base_len":5"#, r#""x":5"#, 2, "missing field `base_len`"),
        (3, r#""index":0"#, r#""index":1"#, 3, "index: draft 1 where 0"),
        (3, r#""took_us":5"#, r#""took_us":-5"#, 3, "line: drafted: invalid value"),
        (3, r#""took_us":5"#, r#""row":0,"took_us":5"#, 3, "row: trees"),
        (3, r#""id":1"#, r#""id":7"#, 7, "tokens: token 0 is not the accepted draft"),
        (5, r#""prob":0.9"#, r#""prob":0.5"#, 7, "rows: row 0 adds up to 0.600"),
        (5, r#""prob":0.9"#, r#""prob":-0.9"#, 7, "rows.top.prob: -0.9 is no probability"),
        (5, r#",{"top":[],"tail":1.0}]"#, "]", 7, "rows: 2 rows for 2 drafts"),
        (
            5,
            r#""prob":0.6},{"id":2,"text":"b","prob":0.1}"#,
            r#""prob":0.1},{"id":2,"text":"b","prob":0.6}"#,
            7,
            "rows: row 1 is not sorted",
        ),
        (6, r#""p":0.1"#, r#""p":0.99"#, 7, "judgements.p: draft 1 has 0.990, its row lists 0.100"),
        (6, r#""p":0.9,"q":1.0"#, r#""p":0.9,"q":7"#, 7, "judgements.q: 7 is no probability"),
        (6, r#"{"outcome":"accepted","p":0.9,"q":1.0},"#, "", 7, "judgements: 1 for 2 drafts"),
        (6, "rejected", "not_reached", 7, "judgements: draft 1 is NotReached"),
        (6, "recovered", "bonus", 7, "next_kind: Bonus"),
        (6, r#""next":3"#, r#""next":4"#, 7, "tokens: the last token is not `next`"),
        (
            7,
            r#"{"id":1,"text":"a"},"#,
            r#"{"id":1,"text":"a"},{"id":1,"text":"a"},"#,
            7,
            "tokens: 3 tokens committed after 1",
        ),
        (7, r#""round":1"#, r#""round":2"#, 7, "round: round 2"),
        (7, r#""seq":6"#, "seq", 7, "line: "),
    ] {
        let (number, why) = fault(line, from, to);
        assert!(number == at && why.contains(named), "{from} → {to}: line {number}: {why}");
    }
    let mut lines = lines();
    lines.remove(5);
    assert_eq!(checked(&lines).faults[0], (6, "verified: missing before `committed`".to_owned()));
}

#[test]
fn dropped_rounds_and_notices_are_understood() {
    let mut collector = Collector::default();
    collector.push(ROUND[0].as_bytes()).unwrap();
    assert_eq!(collector.push(br#"{"seq":1,"at_us":1,"type":"dropped","rounds":7}"#), Ok(Said::Dropped(7)));
    let notice = br#"{"seq":2,"at_us":1,"type":"notice","message":"x"}"#;
    assert_eq!(collector.push(notice), Ok(Said::Notice("x".to_owned())));
    assert!(collector.push(br#"{"seq":3,"at_us":1,"type":"dropped"}"#).is_err());
}

#[test]
fn nothing_makes_it_panic_and_what_is_open_is_bounded() {
    let mut collector = Collector::default();
    collector.push(ROUND[0].as_bytes()).unwrap();
    for seq in 1..2000_u64 {
        let line = format!(
            r#"{{"seq":{seq},"at_us":1,"type":"round_started","base_len":5,"draft_len":255,"round":1,"request":"{seq}"}}"#
        );
        collector.push(line.as_bytes()).unwrap();
        assert!(collector.open.len() <= MAX_OPEN);
    }
    for line in [&b"\xff\xfe"[..], b"", b"{}", b"[]", b"null", b"{\"type\":7}", b"{\"type\":\"committed\"}"] {
        assert!(collector.push(line).is_err());
    }
    let long = format!(
        r#"{{"seq":9999,"at_us":1,"type":"round_started","base_len":5,"draft_len":1,"round":1,"request":"{}"}}"#,
        "x".repeat(300)
    );
    assert_eq!(collector.push(long.as_bytes()).unwrap_err().field, "request");
}

#[test]
fn the_lines_of_rounds_under_way_are_bounded() {
    let mut collector = Collector::default();
    collector.push(ROUND[0].as_bytes()).unwrap();
    let text = "x".repeat(1000);
    let candidate = format!(r#"{{"id":1,"text":"{text}","prob":0.001}}"#);
    let top = vec![candidate; 1000].join(",");
    let mut seq = 0;
    let mut push = |rest: &str| {
        seq += 1;
        // rounds that were forgotten have lines without a beginning
        let _ = collector.push(format!(r#"{{"seq":{seq},"at_us":1,"round":1,{rest}"#).as_bytes());
        collector.open.values().map(|open| open.bytes).sum::<usize>()
    };
    let mut most = 0;
    for request in 0..18 {
        push(&format!(r#""type":"round_started","base_len":5,"draft_len":255,"request":"{request}"}}"#));
        for index in 0..4 {
            most = most.max(push(&format!(
                r#""type":"drafted","index":{index},"token":{{"id":1,"text":"a"}},"q":1.0,"top":{{"top":[{top}],"tail":0.0}},"took_us":5,"request":"{request}"}}"#
            )));
        }
    }
    assert!(most > MAX_OPEN_BYTES / 2 && most <= MAX_OPEN_BYTES, "{most}");
}
