//! Takes any bytes as what a server sends while it answers: lines, chunks, steps, events, the session they fold to; and as
//! the lines of a plugin inside the server.

use draftscope::attach::step::{MAX_DRAFTS, Part, unreported};
use draftscope::attach::{Api, read_stream, socket};
use draftscope::protocol::{Event, EventKind, Lane, Prefilled};
use draftscope::session::Session;

/// Reads the stream to its end, as a stream of each API.
pub fn check(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for api in [Api::Llama, Api::Vllm, Api::Sglang, Api::Openai] {
        follow(read_stream(api, &text));
    }
    let report = socket::check(bytes.split(|byte| *byte == b'\n').map(|line| Ok(line.to_vec())));
    let shown = draftscope::session::text::printable(&report.to_string()).into_owned();
    assert!(shown.chars().all(|c| c == '\n' || !c.is_control()));
}

fn follow(parts: Vec<Part>) {
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
            Part::Recounted(rounds) => apply(EventKind::Recounted { rounds }),
            Part::End(reason) => apply(EventKind::Finished { reason }),
            Part::First { token, row, cached, took_us } => {
                let row = row.unwrap_or_else(unreported);
                apply(EventKind::Prefilled(Prefilled {
                    turn: 1,
                    cached,
                    first: token,
                    row,
                    took_us,
                    ..Prefilled::default()
                }));
            }
            Part::Prompt(_) => {}
        }
    }
}
