//! Plays recordings as a source: the same channels a live engine has, and no model.
//!
//! Invariant: events come in their order and none is left out, but for the engine's own holds, in
//! whose place this source tells its own. It only paces: going back is the listener's, who has seen
//! everything. `seq` counts what is sent; `at_us` stays as recorded.

use std::io;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::protocol::{Command, Event, EventKind, Lane};
use crate::stream::Source;

use super::error::TraceError;
use super::recording::Recording;

/// Slowest and fastest playback, as multiples of the recorded pace.
pub const SPEEDS: (f32, f32) = (0.25, 16.0);

/// How long the end of a recording stays before the next begins.
const BETWEEN: Duration = Duration::from_secs(5);

/// How to play.
#[derive(Clone, Copy, Debug)]
pub struct ReplayOptions {
    /// Multiple of the recorded pace, within [`SPEEDS`]; none sends everything at once.
    pub speed: Option<f32>,
    /// Longest wait between two events, before `speed`.
    pub idle_limit: Duration,
    /// Begin again at the end.
    pub loops: bool,
    /// Hold before the first round.
    pub is_held: bool,
}

impl Default for ReplayOptions {
    fn default() -> Self {
        Self { speed: Some(1.0), idle_limit: Duration::from_secs(2), loops: false, is_held: false }
    }
}

/// Starts to play recordings, one after the other.
///
/// # Errors
/// When the system gives no thread.
pub fn spawn(recordings: Vec<Recording>, options: ReplayOptions) -> io::Result<Source> {
    let (commands, inbox) = channel();
    let (sender, events) = unbounded_channel();
    let mut player = Player {
        inbox,
        sender,
        speed: options.speed.map(|speed| speed.clamp(SPEEDS.0, SPEEDS.1)),
        options,
        gate: if options.is_held { Gate::Closed } else { Gate::Open },
        skip_to: 0,
        seq: 0,
        at_us: 0,
        due: Instant::now(),
    };
    std::thread::Builder::new().name("replay".into()).spawn(move || player.play(&recordings))?;
    Ok(Source { commands, events })
}

/// What a held replay may still do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Open,
    Closed,
    /// To the end of a phase, then closed.
    Phase,
    /// To the end of a round, then closed.
    Round,
}

/// Goes on, or ends because the listener has left.
type Flow = ControlFlow<()>;

struct Player {
    inbox: Receiver<Command>,
    sender: UnboundedSender<Event>,
    options: ReplayOptions,
    speed: Option<f32>,
    gate: Gate,
    /// Events before this are sent at once.
    skip_to: u64,
    seq: u64,
    /// Of the last event sent.
    at_us: u64,
    /// When the next event is to be sent; kept as a sum, so that waits do not add up their errors.
    due: Instant,
}

impl Player {
    fn play(&mut self, recordings: &[Recording]) {
        loop {
            for recording in recordings {
                match self.play_one(recording) {
                    Ok(Flow::Continue(())) => {}
                    Ok(Flow::Break(())) => return,
                    Err(error) => {
                        let _ = self.send(Lane::Speculative, EventKind::Failed { message: error.to_string() });
                        return;
                    }
                }
            }
            if !self.options.loops || recordings.is_empty() {
                return;
            }
        }
    }

    fn play_one(&mut self, recording: &Recording) -> Result<Flow, TraceError> {
        let mut reader = recording.reader()?;
        let is_first = self.seq == 0;
        self.at_us = 0;
        self.skip_to = 0;
        for event in reader.by_ref() {
            let mut event = event?;
            if is_held_by_engine(&event.kind) {
                continue;
            }
            if let EventKind::Started { header } = &mut event.kind {
                header.capabilities.can_generate = false;
                header.capabilities.ends_at_us = Some(recording.ends_at_us());
                if is_first {
                    self.at_us = event.at_us; // loading is not waited for
                }
            }
            if self.wait_for(&event).is_break() || self.forward(event).is_break() {
                return Ok(Flow::Break(()));
            }
        }
        Ok(match reader.cut() {
            Some(cut) => self.send(Lane::Speculative, EventKind::Notice { message: cut.to_string() }),
            None => Flow::Continue(()),
        })
    }

    /// Sends a recorded event, and closes the gate where a step ends.
    fn forward(&mut self, event: Event) -> Flow {
        let begins = matches!(event.kind, EventKind::Started { .. });
        let at_end = match self.gate {
            Gate::Phase => ends_phase(&event.kind),
            Gate::Round => ends_round(&event),
            Gate::Open | Gate::Closed => false,
        };
        self.at_us = event.at_us;
        self.send(event.lane, event.kind)?;
        if at_end {
            self.gate = Gate::Closed;
        }
        if begins && self.gate == Gate::Closed {
            return self.send(Lane::Speculative, EventKind::Paused);
        }
        Flow::Continue(())
    }

    fn send(&mut self, lane: Lane, kind: EventKind) -> Flow {
        let event = Event { seq: self.seq, at_us: self.at_us, lane, kind };
        self.seq += 1;
        if self.sender.send(event).is_ok() { Flow::Continue(()) } else { Flow::Break(()) }
    }

    /// Waits until an event is due, obeying commands meanwhile.
    fn wait_for(&mut self, event: &Event) -> Flow {
        let mut left = Duration::from_micros(event.at_us.saturating_sub(self.at_us)).min(self.options.idle_limit);
        let begins = matches!(event.kind, EventKind::Started { .. });
        let always = begins && self.seq == 0;
        if begins {
            left = BETWEEN.mul_f32(self.speed.unwrap_or(0.0));
        }
        loop {
            while let Ok(command) = self.inbox.try_recv() {
                self.obey(command)?;
            }
            if always || event.at_us < self.skip_to {
                return Flow::Continue(());
            }
            if self.gate == Gate::Closed {
                match self.inbox.recv() {
                    Ok(command) => self.obey(command)?,
                    Err(_) => return Flow::Break(()),
                }
                self.due = Instant::now();
                continue;
            }
            let Some(speed) = self.speed.filter(|_| self.gate == Gate::Open) else {
                return Flow::Continue(()); // a step is taken at once
            };
            let due = self.due + left.div_f32(speed);
            match self.inbox.recv_timeout(due.saturating_duration_since(Instant::now())) {
                Err(RecvTimeoutError::Timeout) => {
                    self.due = due;
                    return Flow::Continue(());
                }
                Err(RecvTimeoutError::Disconnected) => return Flow::Break(()),
                Ok(command) => {
                    // what has passed has passed at the old speed
                    let now = Instant::now();
                    left = left.saturating_sub(now.saturating_duration_since(self.due).mul_f32(speed));
                    self.due = now;
                    self.obey(command)?;
                }
            }
        }
    }

    fn obey(&mut self, command: Command) -> Flow {
        match command {
            Command::Pause => self.close(Gate::Closed),
            Command::StepPhase => self.close(Gate::Phase),
            Command::StepRound => self.close(Gate::Round),
            Command::Resume => self.open(),
            Command::SetSpeed { speed } if speed.is_finite() => {
                self.speed = Some(speed.clamp(SPEEDS.0, SPEEDS.1));
                Flow::Continue(())
            }
            Command::SkipTo { at_us } => {
                self.skip_to = at_us;
                Flow::Continue(())
            }
            Command::Note { text, round } => self.send(Lane::Speculative, EventKind::Noted { text, round }),
            Command::Bookmark { round, label } => self.send(Lane::Speculative, EventKind::Bookmarked { round, label }),
            Command::Stop | Command::Shutdown => Flow::Break(()),
            _ => Flow::Continue(()), // what only a live engine can do
        }
    }

    fn close(&mut self, gate: Gate) -> Flow {
        let was_open = std::mem::replace(&mut self.gate, gate) == Gate::Open;
        if was_open { self.send(Lane::Speculative, EventKind::Paused) } else { Flow::Continue(()) }
    }

    fn open(&mut self) -> Flow {
        let was_open = std::mem::replace(&mut self.gate, Gate::Open) == Gate::Open;
        if was_open { Flow::Continue(()) } else { self.send(Lane::Speculative, EventKind::Resumed) }
    }
}

/// Pauses of the recorded engine: this source has its own.
fn is_held_by_engine(kind: &EventKind) -> bool {
    matches!(kind, EventKind::Paused | EventKind::Resumed | EventKind::Loading { .. })
}

fn ends_phase(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::Prefilled { .. }
            | EventKind::Drafted { .. }
            | EventKind::Scored { .. }
            | EventKind::Verified { .. }
            | EventKind::Committed { .. }
    )
}

fn ends_round(event: &Event) -> bool {
    event.lane == Lane::Speculative && matches!(event.kind, EventKind::Committed { .. } | EventKind::Finished { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::fixture::first_turn;
    use crate::stream::Consumer;
    use crate::trace::{RecordOptions, Recorder};

    /// A recording of the fixture, one event every `gap_us`; leaked, as tests are short.
    fn recording(gap_us: u64) -> (Recording, Vec<Event>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        let mut events = first_turn().events;
        for (event, i) in events.iter_mut().zip(0..) {
            event.at_us = 700_000 + i * gap_us;
        }
        let mut recorder = Recorder::create(&path, RecordOptions::default()).unwrap();
        events.iter().for_each(|e| recorder.event(e).unwrap());
        recorder.finish().unwrap();
        let bytes = Vec::leak(std::fs::read(path).unwrap());
        (Recording::of_bytes("a", bytes).unwrap(), events)
    }

    fn options(speed: Option<f32>) -> ReplayOptions {
        ReplayOptions { speed, ..ReplayOptions::default() }
    }

    fn drain(source: &mut Source) -> Vec<Event> {
        std::iter::from_fn(|| source.events.blocking_recv()).collect()
    }

    /// Events until the source holds.
    fn until_held(source: &mut Source) -> Vec<Event> {
        std::thread::sleep(Duration::from_millis(100));
        std::iter::from_fn(|| source.events.try_recv().ok()).collect()
    }

    fn tell(source: &Source, command: Command) {
        source.commands.send(command).unwrap();
    }

    #[test]
    fn a_replay_is_the_recording_and_says_that_it_takes_no_prompts() {
        let (recording, events) = recording(1000);
        let mut source = spawn(vec![recording], options(None)).unwrap();
        let played = drain(&mut source);
        let EventKind::Started { header } = &played[0].kind else { panic!("{played:?}") };
        assert!(!header.capabilities.can_generate);
        assert_eq!(header.capabilities.ends_at_us, Some(events.last().unwrap().at_us));
        assert_eq!(played[1..events.len()], events[1..]);
        let EventKind::Notice { message } = &played[events.len()].kind else { panic!("{:?}", played.last()) };
        assert!(message.contains("the recording has no end"), "{message}");
    }

    #[test]
    fn speed_divides_time_and_idle_time_is_limited() {
        let (recording, events) = recording(4000);
        let took = |options| {
            let mut source = spawn(vec![recording.clone()], options).unwrap();
            let start = Instant::now();
            assert!(drain(&mut source).len() > events.len());
            start.elapsed().as_secs_f64() * 1000.0
        };
        let pace = (events.len() - 1) as f64 * 4.0;
        let (once, fast) = (took(options(Some(1.0))), took(options(Some(4.0))));
        assert!(once >= pace * 0.99 && once < pace * 3.0, "{once} ms for {pace} ms");
        assert!(fast >= pace / 4.0 * 0.99 && fast < once, "{fast} ms at 4×");
        let limited = ReplayOptions { idle_limit: Duration::from_micros(500), ..options(Some(1.0)) };
        assert!(took(limited) < pace * 0.7);
    }

    #[test]
    fn pause_steps_and_skips() {
        let (recording, events) = recording(3_000);
        let mut source = spawn(vec![recording], ReplayOptions { is_held: true, ..options(Some(1.0)) }).unwrap();
        let held = until_held(&mut source);
        assert!(matches!(
            held[..],
            [Event { kind: EventKind::Started { .. }, .. }, Event { kind: EventKind::Paused, .. }]
        ));
        tell(&source, Command::StepPhase);
        let step = until_held(&mut source);
        assert!(matches!(step.last().unwrap().kind, EventKind::Prefilled { .. }), "{step:?}");
        tell(&source, Command::StepRound);
        let round = until_held(&mut source);
        let last = round.last().unwrap();
        assert!(matches!(last.kind, EventKind::Committed { round: 1, .. }) && last.lane == Lane::Speculative);
        tell(&source, Command::StepPhase);
        tell(&source, Command::Bookmark { round: Some(1), label: "b".into() });
        let step = until_held(&mut source);
        assert_eq!(step.iter().filter(|e| ends_phase(&e.kind)).count(), 1, "{step:?}");
        assert!(step.iter().any(|e| matches!(e.kind, EventKind::Bookmarked { round: Some(1), .. })));
        let target = events[events.len() - 6].at_us;
        tell(&source, Command::SkipTo { at_us: target });
        let skipped = until_held(&mut source);
        assert_eq!(skipped.last().unwrap().at_us, events[events.len() - 7].at_us, "still held behind it");
        tell(&source, Command::Resume);
        tell(&source, Command::SetSpeed { speed: 1e9 });
        tell(&source, Command::SetSpeed { speed: f32::NAN });
        let rest = drain(&mut source);
        assert!(matches!(rest[0].kind, EventKind::Resumed));
        let seqs: Vec<u64> = [held, step, skipped, rest].concat().iter().map(|e| e.seq).collect();
        assert!(seqs.windows(2).all(|w| w[0] < w[1]));
    }

    #[test]
    fn a_loop_begins_again_and_a_listener_that_left_ends_it() {
        let (recording, events) = recording(100);
        let mut source = spawn(vec![recording], ReplayOptions { loops: true, ..options(None) }).unwrap();
        let played: Vec<Event> = (0..events.len() * 3).filter_map(|_| source.events.blocking_recv()).collect();
        let starts = played.iter().filter(|e| matches!(e.kind, EventKind::Started { .. })).count();
        assert!(starts >= 2, "{starts}");
        let commands = source.commands.clone();
        drop(source);
        let deadline = Instant::now() + Duration::from_secs(5);
        while commands.send(Command::Pause).is_ok() {
            assert!(Instant::now() < deadline, "the player goes on");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
