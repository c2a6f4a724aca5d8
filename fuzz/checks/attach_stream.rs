//! Takes any bytes as what a server sends while it answers: lines, chunks, steps, events, the session they fold to.

use std::collections::HashMap;

use draftscope::attach::llama::chunk::Line;
use draftscope::attach::llama::rounds::Rounds;
use draftscope::attach::step::{MAX_DRAFTS, Part};
use draftscope::protocol::{Event, EventKind, Lane};
use draftscope::session::Session;

/// Reads the stream to its end.
pub fn check(bytes: &[u8]) {
    let (mut rounds, names, mut parts) = (Rounds::default(), HashMap::new(), Vec::new());
    for line in String::from_utf8_lossy(bytes).lines() {
        if let Line::Chunk(chunk) = Line::of(line) {
            parts.extend(rounds.push(&chunk, &names));
        }
    }
    parts.extend(rounds.close());
    let (mut session, mut round, mut clock) = (Session::new(), 0, 0);
    let mut apply = |kind| session.apply(&Event { seq: 0, at_us: 0, lane: Lane::Speculative, kind });
    apply(EventKind::Prompted { turn: 1, text: String::new(), branch: None });
    for part in parts {
        match part {
            Part::Step(step) => {
                round += 1;
                assert!(step.drafted <= MAX_DRAFTS && step.accepted <= step.drafted, "{step:?}");
                assert!(step.clock_us >= clock, "the clock runs backwards");
                clock = step.clock_us;
                step.events(round, 0).into_iter().for_each(&mut apply);
            }
            Part::Notice(message) => super::sentence(&message),
            Part::End(reason) => apply(EventKind::Finished { reason }),
            Part::First { .. } => {}
        }
    }
}
