//! Chrome trace events: slices of measured work, in one row for the drafter and one for the target, for
//! ui.perfetto.dev.
//!
//! Invariant: an event is sent when its work is done, so its slice ends at the event's time and has the measured
//! length. Slices of one row never overlap.

use serde_json::{Value, json};

use draftscope_protocol::{Committed, DraftStopped, Drafted, Event, EventKind, Lane, Outcome, Prefilled, Scored};
use draftscope_session::text::quoted;
use draftscope_session::trace::Recording;

use super::atomic_file::Out;
use super::error::WriteError;
use super::json_line::escaped;

const DRAFTER: u32 = 1;
const TARGET: u32 = 2;

pub(super) fn write(recording: &Recording, out: Out<'_>) -> Result<(), WriteError> {
    out.write_all(br#"{"displayTimeUnit":"ms","traceEvents":["#)?;
    let mut separator: &[u8] = b"\n";
    let mut lanes = Lanes::default();
    let named = names().into_iter().map(Ok);
    let slices = recording.events()?.flat_map(|event| match event {
        Ok(event) => lanes.events(&event).into_iter().map(Ok).collect(),
        Err(error) => vec![Err(error)],
    });
    for value in named.chain(slices) {
        out.write_all(separator)?;
        out.write_all(escaped(&serde_json::to_string(&value?).map_err(std::io::Error::from)?).as_bytes())?;
        separator = b",\n";
    }
    out.write_all(b"\n]}\n")?;
    Ok(())
}

fn process(lane: Lane) -> u32 {
    lane.index() as u32 + 1
}

fn names() -> Vec<Value> {
    let mut names = Vec::new();
    for lane in [Lane::Speculative, Lane::Plain, Lane::Rival] {
        let (pid, name) = (process(lane), lane.name());
        names.push(json!({"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}));
        for (tid, name) in [(DRAFTER, "drafter"), (TARGET, "target")] {
            names.push(json!({"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}));
        }
    }
    names
}

/// Per lane: the end of its last slice in µs, and its counts of drafted and accepted tokens.
#[derive(Default)]
struct Lanes {
    ends: [u64; Lane::ALL.len()],
    drafted: [u64; Lane::ALL.len()],
    accepted: [u64; Lane::ALL.len()],
}

impl Lanes {
    fn events(&mut self, event: &Event) -> Vec<Value> {
        let pid = process(event.lane);
        let at = (pid - 1) as usize;
        let instant = |name: &str, args: Value| json!({"ph": "i", "s": "p", "name": name, "pid": pid, "tid": TARGET, "ts": event.at_us, "args": args});
        match &event.kind {
            EventKind::Prefilled(Prefilled { prompt, took_us, .. }) if *took_us > 0 => {
                vec![self.slice(event, TARGET, ("prefill", *took_us), &json!({"tokens": prompt.len()}))]
            }
            EventKind::Drafted(Drafted { round, index, token, q, took_us, .. }) => {
                let args = json!({"round": round, "position": index, "token": quoted(token), "q": q});
                vec![self.slice(event, DRAFTER, ("draft", *took_us), &args)]
            }
            EventKind::DraftStopped(DraftStopped { round, index, token, q, p_min, took_us, .. }) => {
                let args = json!({"round": round, "position": index, "token": quoted(token), "q": q, "p_min": p_min});
                vec![self.slice(event, DRAFTER, ("draft discarded", *took_us), &args)]
            }
            EventKind::Scored(Scored { round, rows, verify_us, sample_us, .. }) => {
                let args = json!({"round": round, "rows": rows.len()});
                let pass = Event { at_us: event.at_us.saturating_sub(*sample_us), ..event.clone() };
                vec![
                    self.slice(&pass, TARGET, ("verify", *verify_us), &args),
                    self.slice(event, TARGET, ("sample", *sample_us), &args),
                ]
            }
            EventKind::Verified { round, verdict } => {
                self.drafted[at] += verdict.judgements.len() as u64;
                self.accepted[at] += verdict.accepted() as u64;
                let rejected = verdict.judgements.iter().position(|j| j.outcome == Outcome::Rejected);
                let reject = rejected.map(|position| instant("reject", json!({"round": round, "position": position})));
                let mut events: Vec<_> = reject.into_iter().collect();
                if self.drafted[at] > 0 {
                    let rate = self.accepted[at] as f64 / self.drafted[at] as f64;
                    let args = json!({"accepted ÷ drafted": rate});
                    events.push(json!({"ph": "C", "name": "acceptance rate", "pid": pid, "tid": TARGET, "ts": event.at_us, "args": args}));
                }
                events
            }
            EventKind::Committed(Committed { round, tokens, rollback_us, .. }) => {
                let args = json!({"round": round, "tokens": tokens.len()});
                vec![self.slice(event, TARGET, ("rollback", *rollback_us), &args)]
            }
            EventKind::Prompted { turn, .. } => vec![instant("prompt", json!({"turn": turn}))],
            EventKind::Finished { reason } => vec![instant("finished", json!({"reason": reason}))],
            EventKind::Bookmarked { label, round, turn } => {
                vec![instant("bookmark", json!({"label": label, "round": round, "turn": turn}))]
            }
            EventKind::Noted { text, round, turn } => {
                vec![instant("note", json!({"text": text, "round": round, "turn": turn}))]
            }
            _ => Vec::new(),
        }
    }

    /// A slice of work that ended with this event.
    fn slice(&mut self, event: &Event, tid: u32, (name, took_us): (&str, u64), args: &Value) -> Value {
        let pid = process(event.lane);
        let end = &mut self.ends[(pid - 1) as usize];
        let ts = event.at_us.saturating_sub(took_us).max(*end);
        *end = ts.saturating_add(took_us);
        json!({"ph": "X", "name": name, "cat": "round", "pid": pid, "tid": tid, "ts": ts, "dur": took_us, "args": args})
    }
}
