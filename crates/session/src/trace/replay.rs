//! Plays recordings as a source, with the same channels as a live engine and without a model.
//!
//! Invariant: all events are sent in order, except the recorded engine's pauses, which this source replaces by its own.
//! It only paces, skips ahead and starts again; the listener has all events and implements going back. Marks that are
//! made while it plays come at their place when it plays again. `seq` counts the sent events; `at_us` stays as
//! recorded.

use std::io;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use draftscope_protocol::stream::{Gate, Source, Step};
use draftscope_protocol::{Command, Event, EventKind, Lane, Listed};

use super::breakpoints::{Seek, ended_target, ends_phase, ends_round, is_omitted, target_of};
use super::error::TraceError;
use super::recording::Recording;
pub use super::replay_options::{ReplayOptions, SPEEDS};

/// Wait between the end of a recording and the start of the next one, at the recorded pace.
const BETWEEN: Duration = Duration::from_secs(5);

/// Most sent events that the listener has not taken yet, so that skipping through a long recording uses little memory.
const AHEAD: usize = 4096;

/// Starts to play recordings, one after the other.
///
/// # Errors
/// When the system cannot start a thread.
pub fn spawn(recordings: Vec<Recording>, options: ReplayOptions) -> io::Result<Source> {
    let (commands, inbox) = channel();
    let (sender, events) = mpsc::channel(AHEAD);
    let mut gate = Gate::default();
    if options.is_held {
        gate.close();
    }
    let mut player = Player {
        inbox,
        sender,
        speed: options.speed.map(|speed| speed.clamp(SPEEDS.0, SPEEDS.1)),
        options,
        gate,
        skip_to: 0,
        seeks: None,
        waits: false,
        marks: Vec::new(),
        playing: 0,
        of: recordings.len(),
        sent: 0,
        seq: 0,
        at_us: 0,
        due: Instant::now(),
    };
    std::thread::Builder::new().name("replay".into()).spawn(move || player.guard(|player| player.play(&recordings)))?;
    Ok(Source { commands, events: events.into() })
}

/// Why a recording does not play to its end.
enum Halt {
    /// The listener has left.
    Left,
    /// The recording starts again and skips to this time, in microseconds.
    Again(u64),
    /// The recording of this index starts.
    Other(usize),
    /// The recording cannot be read.
    Broken(TraceError),
}

type Flow = ControlFlow<Halt>;

/// A note or a bookmark that was made while a recording played.
#[derive(Clone)]
struct PlayerMark {
    /// Index of the recording.
    recording: usize,
    /// Number of its events that had been sent.
    after: u64,
    kind: EventKind,
}

struct Player {
    inbox: Receiver<Command>,
    sender: mpsc::Sender<Event>,
    options: ReplayOptions,
    speed: Option<f32>,
    gate: Gate,
    /// Events before this are sent at once.
    skip_to: u64,
    seeks: Option<Seek>,
    /// Whether this recording starts some time after the one before.
    waits: bool,
    marks: Vec<PlayerMark>,
    /// Index of the playing recording.
    playing: usize,
    /// Number of recordings.
    of: usize,
    /// Number of events of the playing recording that were sent.
    sent: u64,
    seq: u64,
    /// Time of the last sent event, in microseconds.
    at_us: u64,
    /// When the next event is due; a sum of waits, so that their errors do not accumulate.
    due: Instant,
}

impl Player {
    /// Plays; a panic becomes an event, so that nobody waits for the rest.
    fn guard(&mut self, play: impl FnOnce(&mut Self)) {
        if catch_unwind(AssertUnwindSafe(|| play(self))).is_err() {
            let message = "replaying stopped on an internal error; please report it".to_owned();
            let _ = self.send(Lane::Speculative, EventKind::Failed { message });
        }
    }

    fn play(&mut self, recordings: &[Recording]) {
        let mut again = Some(0);
        while let Some(recording) = recordings.get(self.playing) {
            let flow = match self.play_one(recording, again.take()) {
                ControlFlow::Continue(()) if self.playing + 1 < recordings.len() => {
                    self.playing += 1;
                    continue;
                }
                ControlFlow::Continue(()) if self.options.loops => {
                    if self.seeks.take().is_some() && self.report_not_found().is_break() {
                        return;
                    }
                    self.playing = 0;
                    continue;
                }
                ControlFlow::Continue(()) if self.options.stays => self.stay(),
                flow => flow,
            };
            match flow {
                ControlFlow::Break(Halt::Again(at_us)) => again = Some(at_us),
                ControlFlow::Break(Halt::Other(index)) => (self.playing, again) = (index, Some(0)),
                ControlFlow::Break(Halt::Broken(error)) => {
                    let _ = self.send(Lane::Speculative, EventKind::Failed { message: error.to_string() });
                    return;
                }
                _ => return,
            }
        }
    }

    /// Plays one recording. `at_once` is the time in microseconds to skip to if it starts without a wait.
    fn play_one(&mut self, recording: &Recording, at_once: Option<u64>) -> Flow {
        let mut events = match recording.events() {
            Ok(events) => events,
            Err(error) => return ControlFlow::Break(Halt::Broken(error)),
        };
        let is_first = self.seq == 0;
        let mut marks = self.marks_of(self.playing);
        (self.at_us, self.sent) = (0, 0);
        self.skip_to = at_once.unwrap_or(0);
        self.waits = at_once.is_none();
        for event in events.by_ref() {
            let mut event = match event {
                Ok(event) => event,
                Err(error) => return ControlFlow::Break(Halt::Broken(error)),
            };
            if is_omitted(&event.kind) || (self.options.stays && matches!(event.kind, EventKind::Ended { .. })) {
                continue;
            }
            if let EventKind::Started { header } = &mut event.kind {
                header.capabilities.can_generate = false;
                header.capabilities.ends_at_us = Some(recording.ends_at_us());
                header.capabilities.turns = recording.turns().clone();
                header.capabilities.listed = self.listed(recording);
                if is_first {
                    self.at_us = event.at_us; // do not wait for the recorded loading time
                }
            }
            let target = ended_target(&event);
            self.wait_for(&event)?;
            self.forward(event)?;
            self.sent += 1;
            let sent = self.sent;
            let is_due =
                |mark: &mut PlayerMark| mark.after <= sent || (target.is_some() && target_of(&mark.kind) == target);
            for mark in marks.extract_if(.., is_due) {
                self.send_mark(mark)?;
            }
        }
        for mark in marks {
            self.send_mark(mark)?;
        }
        match events.cut() {
            Some(cut) => self.send(Lane::Speculative, EventKind::Notice { message: cut.to_string() }),
            None => ControlFlow::Continue(()),
        }
    }

    /// Name and number of the playing recording; none if there is only one.
    fn listed(&self, recording: &Recording) -> Option<Listed> {
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let listed = || Listed { name: recording.name(), number: number(self.playing + 1), of: number(self.of) };
        (self.of > 1).then(listed)
    }

    /// Marks made when this recording played before, in the order in which they were made.
    fn marks_of(&self, recording: usize) -> Vec<PlayerMark> {
        let mut marks: Vec<PlayerMark> =
            self.marks.iter().filter(|mark| mark.recording == recording).cloned().collect();
        marks.sort_by_key(|mark| mark.after);
        marks
    }

    /// Sends an earlier mark after the event that it is about; a search may end there.
    fn send_mark(&mut self, mark: PlayerMark) -> Flow {
        self.forward(Event { seq: self.seq, at_us: self.at_us, lane: Lane::Speculative, kind: mark.kind })
    }

    /// Pauses at the end until the listener leaves or requests the recording again.
    fn stay(&mut self) -> Flow {
        if self.seeks.take().is_some() {
            let message = "nothing found up to the end of the recording".to_owned();
            self.send(Lane::Speculative, EventKind::Notice { message })?;
        }
        self.close()?;
        loop {
            match self.inbox.recv() {
                Err(_) => return ControlFlow::Break(Halt::Left),
                Ok(Command::Resume) if !self.options.once => {
                    self.gate.open();
                    return ControlFlow::Break(Halt::Again(0));
                }
                Ok(command @ Command::PlayListed { .. }) => {
                    self.gate.open();
                    self.obey(command)?;
                }
                Ok(Command::Resume | Command::SkipToNext { .. } | Command::StepPhase | Command::StepRound) => {
                    let message = "this is the end of the recording".to_owned();
                    self.send(Lane::Speculative, EventKind::Notice { message })?;
                }
                Ok(command) => self.obey(command)?,
            }
        }
    }

    /// Sends a recorded event, and closes the gate if a step or a search ends with it.
    fn forward(&mut self, event: Event) -> Flow {
        let begins = matches!(event.kind, EventKind::Started { .. });
        let (is_phase, is_round) = (ends_phase(&event), ends_round(&event));
        let is_found = self.seeks.as_mut().is_some_and(|seek| seek.ends_with(&event));
        self.at_us = event.at_us;
        self.send(event.lane, event.kind)?;
        self.gate.end(|step| if step == Step::Phase { is_phase } else { is_round });
        if is_found {
            self.seeks = None;
            self.close()?;
        }
        if begins && self.gate.is_closed() {
            return self.send(Lane::Speculative, EventKind::Paused);
        }
        ControlFlow::Continue(())
    }

    fn send(&mut self, lane: Lane, kind: EventKind) -> Flow {
        let event = Event { seq: self.seq, at_us: self.at_us, lane, kind };
        self.seq += 1;
        match self.sender.blocking_send(event) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(Halt::Left),
        }
    }

    /// Waits until an event is due, and obeys commands meanwhile.
    fn wait_for(&mut self, event: &Event) -> Flow {
        let mut left = Duration::from_micros(event.at_us.saturating_sub(self.at_us)).min(self.options.idle_limit);
        let begins = matches!(event.kind, EventKind::Started { .. });
        let always = begins && !self.waits;
        if begins {
            left = BETWEEN.mul_f32(self.speed.unwrap_or(0.0));
        }
        loop {
            while let Ok(command) = self.inbox.try_recv() {
                self.obey(command)?;
            }
            if always || event.at_us < self.skip_to || self.seeks.is_some() {
                self.due = Instant::now();
                return ControlFlow::Continue(());
            }
            if self.gate.is_closed() {
                match self.inbox.recv() {
                    Ok(command) => self.obey(command)?,
                    Err(_) => return ControlFlow::Break(Halt::Left),
                }
                self.due = Instant::now();
                continue;
            }
            let Some(speed) = self.speed.filter(|_| self.gate.is_open()) else {
                return ControlFlow::Continue(()); // a step does not wait
            };
            let due = self.due + left.div_f32(speed);
            match self.inbox.recv_timeout(due.saturating_duration_since(Instant::now())) {
                Err(RecvTimeoutError::Timeout) => {
                    self.due = due;
                    return ControlFlow::Continue(());
                }
                Err(RecvTimeoutError::Disconnected) => return ControlFlow::Break(Halt::Left),
                Ok(command) => {
                    // the time until now counts at the old speed
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
            Command::Pause => {
                self.stop_skipping();
                self.close()
            }
            Command::StepPhase => self.step(Step::Phase),
            Command::StepRound => self.step(Step::Round),
            Command::Resume => {
                self.seeks = None;
                self.open()
            }
            Command::SetSpeed { speed } if speed.is_finite() => {
                self.speed = Some(speed.clamp(SPEEDS.0, SPEEDS.1));
                ControlFlow::Continue(())
            }
            Command::SkipTo { at_us } if at_us < self.at_us && !self.options.once => {
                self.seeks = None;
                ControlFlow::Break(Halt::Again(at_us))
            }
            Command::SkipTo { at_us } => {
                (self.seeks, self.skip_to) = (None, at_us);
                ControlFlow::Continue(())
            }
            Command::SkipToNext { landmark } => {
                self.seeks = Some(Seek::new(landmark));
                ControlFlow::Continue(())
            }
            Command::PlayListed { number } => match (number as usize).checked_sub(1).filter(|i| *i < self.of) {
                Some(index) if !self.options.once => {
                    self.seeks = None;
                    ControlFlow::Break(Halt::Other(index))
                }
                _ => ControlFlow::Continue(()),
            },
            Command::Note { text, round, turn } => self.mark(EventKind::Noted { text, round, turn }),
            Command::Bookmark { round, turn, label } => self.mark(EventKind::Bookmarked { round, turn, label }),
            Command::Stop | Command::Shutdown => ControlFlow::Break(Halt::Left),
            _ => ControlFlow::Continue(()), // commands of a live engine
        }
    }

    fn mark(&mut self, kind: EventKind) -> Flow {
        self.marks.push(PlayerMark { recording: self.playing, after: self.sent, kind: kind.clone() });
        self.send(Lane::Speculative, kind)
    }

    /// Reports that a search found nothing, and pauses, since a loop would search forever.
    fn report_not_found(&mut self) -> Flow {
        let message = "nothing found up to the end of the recording; it starts again".to_owned();
        self.send(Lane::Speculative, EventKind::Notice { message })?;
        self.close()
    }

    fn close(&mut self) -> Flow {
        let was_open = self.gate.close();
        self.report_pause(was_open)
    }

    fn step(&mut self, step: Step) -> Flow {
        self.stop_skipping();
        let was_open = self.gate.step(step);
        self.report_pause(was_open)
    }

    /// Ends a search and a skip: after a pause or a step the user wants to see the next events.
    fn stop_skipping(&mut self) {
        (self.seeks, self.skip_to) = (None, 0);
    }

    fn report_pause(&mut self, was_open: bool) -> Flow {
        if was_open { self.send(Lane::Speculative, EventKind::Paused) } else { ControlFlow::Continue(()) }
    }

    fn open(&mut self) -> Flow {
        if self.gate.open() { self.send(Lane::Speculative, EventKind::Resumed) } else { ControlFlow::Continue(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Script, first_turn};
    use crate::trace::{RecordOptions, Recorder};
    use draftscope_protocol::stream::Consumer;
    use draftscope_protocol::stream::Feed;
    use draftscope_protocol::{Committed, Drafted, Landmark, Outcome};

    /// A recording of the fixture, one event every `gap_us`.
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
        (Recording::of_bytes("a", std::fs::read(path).unwrap()).unwrap(), events)
    }

    #[test]
    fn a_panic_is_an_event() {
        let (_commands, inbox) = std::sync::mpsc::channel();
        let (sender, mut events) = tokio::sync::mpsc::channel(4);
        let mut player = Player {
            inbox,
            sender,
            speed: None,
            options: ReplayOptions::default(),
            gate: Gate::default(),
            skip_to: 0,
            seeks: None,
            waits: false,
            marks: Vec::new(),
            playing: 0,
            of: 1,
            sent: 0,
            seq: 0,
            at_us: 0,
            due: Instant::now(),
        };
        player.guard(|_| panic!("a test's panic"));
        let event = events.blocking_recv().unwrap();
        assert!(matches!(event.kind, EventKind::Failed { message } if message.contains("internal error")));
    }

    fn options(speed: Option<f32>) -> ReplayOptions {
        ReplayOptions { speed, ..ReplayOptions::default() }
    }

    fn drain(source: &mut Source) -> Vec<Event> {
        std::iter::from_fn(|| source.events.blocking_recv()).collect()
    }

    /// Events until the source pauses: until none has come in many short waits, in which other threads get to run.
    fn until_paused(source: &mut Source) -> Vec<Event> {
        let (mut quiet, mut before) = (0, waiting(source));
        while quiet < 40 {
            std::thread::sleep(Duration::from_millis(5));
            quiet = if waiting(source) == before { quiet + 1 } else { 0 };
            before = waiting(source);
        }
        std::iter::from_fn(|| source.events.try_recv().ok()).collect()
    }

    /// Events that nobody has taken.
    fn waiting(source: &Source) -> usize {
        match &source.events {
            Feed::Live(events) => events.len(),
            Feed::Recorded(events) => events.len(),
        }
    }

    fn request(source: &Source, command: Command) {
        source.commands.send(command).unwrap();
    }

    #[test]
    fn a_replay_sends_the_recorded_events_and_takes_no_prompts() {
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
        assert!(once >= pace * 0.99, "{once} ms for {pace} ms");
        assert!(fast >= pace / 4.0 * 0.99, "{fast} ms at 4×");
        // a machine that is held up takes longer, but not always
        let is_below = |most: f64, options: &dyn Fn() -> ReplayOptions| (0..50).any(|_| took(options()) < most);
        assert!(is_below(pace, &|| options(Some(4.0))), "4× is faster");
        let limited = || ReplayOptions { idle_limit: Duration::from_micros(500), ..options(Some(1.0)) };
        assert!(is_below(pace * 0.7, &limited));
    }

    #[test]
    fn pause_steps_and_skips() {
        let (recording, events) = recording(3_000);
        let mut source = spawn(vec![recording], ReplayOptions { is_held: true, ..options(Some(1.0)) }).unwrap();
        let paused = until_paused(&mut source);
        assert!(matches!(
            paused[..],
            [Event { kind: EventKind::Started { .. }, .. }, Event { kind: EventKind::Paused, .. }]
        ));
        request(&source, Command::StepPhase);
        let step = until_paused(&mut source);
        assert!(matches!(step.last().unwrap().kind, EventKind::Prefilled(_)), "{step:?}");
        request(&source, Command::StepRound);
        let round = until_paused(&mut source);
        let last = round.last().unwrap();
        assert!(
            matches!(last.kind, EventKind::Committed(Committed { round: 1, .. })) && last.lane == Lane::Speculative
        );
        request(&source, Command::StepPhase);
        request(&source, Command::Bookmark { round: Some(1), turn: None, label: "b".into() });
        let step = until_paused(&mut source);
        assert!(events.iter().any(|event| event.lane == Lane::Plain), "another lane runs beside");
        let phases: Vec<_> = step.iter().filter(|event| ends_phase(event)).collect();
        assert!(matches!(phases[..], [Event { kind: EventKind::Drafted(Drafted { round: 2, .. }), .. }]), "{step:?}");
        assert!(step.iter().any(|e| matches!(e.kind, EventKind::Bookmarked { round: Some(1), .. })));
        request(&source, Command::StepRound);
        request(&source, Command::StepRound);
        let two = until_paused(&mut source);
        let ends = two.iter().filter_map(|event| match event.kind {
            EventKind::Committed(Committed { round, .. }) if event.lane == Lane::Speculative => Some(round),
            _ => None,
        });
        assert_eq!(ends.collect::<Vec<_>>(), [2, 3], "two steps at once are two steps");
        let target = events[events.len() - 6].at_us;
        request(&source, Command::SkipTo { at_us: target });
        let skipped = until_paused(&mut source);
        assert_eq!(skipped.last().unwrap().at_us, events[events.len() - 7].at_us, "still paused after it");
        request(&source, Command::Resume);
        request(&source, Command::SetSpeed { speed: 1e9 });
        request(&source, Command::SetSpeed { speed: f32::NAN });
        let rest = drain(&mut source);
        assert!(matches!(rest[0].kind, EventKind::Resumed));
        let seqs: Vec<u64> = [paused, step, two, skipped, rest].concat().iter().map(|e| e.seq).collect();
        assert!(seqs.windows(2).all(|w| w[0] < w[1]));
    }

    /// A source that stays at its end, as in the terminal, paused before its first round.
    fn staying(gap_us: u64) -> (Source, Vec<Event>) {
        let (recording, events) = recording(gap_us);
        let options = ReplayOptions { is_held: true, stays: true, ..options(Some(16.0)) };
        let mut source = spawn(vec![recording], options).unwrap();
        assert_eq!(until_paused(&mut source).len(), 2, "its header and the pause");
        (source, events)
    }

    #[test]
    fn each_of_several_recordings_has_its_name_and_can_be_selected() {
        let (one, events) = recording(1_000_000);
        let options = ReplayOptions { is_held: true, stays: true, ..options(Some(16.0)) };
        let mut source = spawn(vec![one; 3], options).unwrap();
        let number = |events: &[Event]| match &events[0].kind {
            EventKind::Started { header } => header.capabilities.listed.as_ref().map(|l| (l.number, l.of)),
            other => panic!("{other:?}"),
        };
        let paused = until_paused(&mut source);
        assert_eq!(number(&paused), Some((1, 3)));
        for asked in [3, 2, 2] {
            request(&source, Command::PlayListed { number: asked });
            let sent = until_paused(&mut source);
            assert_eq!((number(&sent), sent.len()), (Some((asked, 3)), 2), "from its start, paused as before");
        }
        for none in [0, 4, u32::MAX] {
            request(&source, Command::PlayListed { number: none });
            assert_eq!(until_paused(&mut source), []);
        }
        request(&source, Command::PlayListed { number: 3 });
        request(&source, Command::SkipTo { at_us: u64::MAX });
        request(&source, Command::Resume);
        let mut sent = until_paused(&mut source);
        let is_over = |sent: &[Event]| {
            sent.len() > events.len() && sent.last().is_some_and(|last| matches!(last.kind, EventKind::Paused))
        };
        // on a busy machine the requests come one by one, and it plays from the start again: six seconds
        for _ in 0..300 {
            if is_over(&sent) {
                break;
            }
            sent.extend(until_paused(&mut source));
        }
        assert!(is_over(&sent), "the end: {} of {} events", sent.len(), events.len());
        request(&source, Command::PlayListed { number: 1 });
        let sent = until_paused(&mut source);
        assert_eq!(number(&sent), Some((1, 3)));
        assert!(!sent.iter().any(|event| matches!(event.kind, EventKind::Paused)), "selected at the end, it plays");
    }

    fn rejects(event: &Event) -> bool {
        let EventKind::Verified { verdict, .. } = &event.kind else { return false };
        verdict.judgements.iter().any(|judgement| judgement.outcome == Outcome::Rejected)
    }

    #[test]
    fn a_search_skips_to_the_landmark_and_pauses_there() {
        let (mut source, events) = staying(1_000_000);
        let found: Vec<u32> = (0..2)
            .map(|_| {
                request(&source, Command::SkipToNext { landmark: Landmark::Reject });
                let sent = until_paused(&mut source);
                let Some(EventKind::Committed(Committed { round, .. })) = sent.last().map(|event| &event.kind) else {
                    panic!("{sent:?}")
                };
                *round
            })
            .collect();
        let verified = events.iter().filter(|e| e.lane == Lane::Speculative && rejects(e));
        let expected: Vec<u32> = verified
            .filter_map(|event| match event.kind {
                EventKind::Verified { round, .. } => Some(round),
                _ => None,
            })
            .collect();
        assert_eq!(found, expected[..2]);
        request(&source, Command::SkipToNext { landmark: Landmark::Round(5) });
        let sent = until_paused(&mut source);
        assert!(matches!(sent.last().unwrap().kind, EventKind::Committed(Committed { round: 5, .. })), "{sent:?}");
        request(&source, Command::SkipToNext { landmark: Landmark::Mark });
        let sent = until_paused(&mut source);
        let notice = |e: &Event| matches!(&e.kind, EventKind::Notice { message } if message.contains("nothing found"));
        assert!(sent.iter().any(notice), "there is no mark: it reports this at its end");
    }

    #[test]
    fn marks_can_be_made_at_the_end_and_are_replayed() {
        let (mut source, events) = staying(1_000);
        request(&source, Command::StepRound);
        until_paused(&mut source);
        request(&source, Command::Note { text: "here".into(), round: None, turn: None });
        request(&source, Command::SkipTo { at_us: u64::MAX });
        let end = until_paused(&mut source);
        assert!(end.iter().all(|event| !matches!(event.kind, EventKind::Ended { .. })), "it may continue");
        request(&source, Command::Bookmark { round: Some(2), turn: None, label: "b".into() });
        assert!(matches!(until_paused(&mut source)[..], [Event { kind: EventKind::Bookmarked { .. }, .. }]));
        request(&source, Command::SkipTo { at_us: events[events.len() - 4].at_us });
        let again = until_paused(&mut source);
        assert!(matches!(again[0].kind, EventKind::Started { .. }), "{:?}", again[0]);
        assert!(matches!(again[1].kind, EventKind::Paused), "still paused");
        let note =
            again.iter().position(|e| matches!(&e.kind, EventKind::Noted { text, .. } if text == "here")).unwrap();
        assert!(matches!(again[note - 1].kind, EventKind::Committed(Committed { round: 1, .. })), "at its place");
        let bookmark = again.iter().position(|e| matches!(e.kind, EventKind::Bookmarked { .. })).unwrap();
        let about = &again[bookmark - 1];
        assert!(
            matches!(about.kind, EventKind::Committed(Committed { round: 2, .. })),
            "after its round, though made at the end"
        );
        request(&source, Command::SkipTo { at_us: u64::MAX });
        let rest = until_paused(&mut source);
        assert!(!rest.iter().any(|e| matches!(e.kind, EventKind::Bookmarked { .. })), "once: {rest:?}");
        request(&source, Command::SkipTo { at_us: 0 });
        until_paused(&mut source);
        request(&source, Command::SkipToNext { landmark: Landmark::Mark });
        let found = until_paused(&mut source);
        assert!(matches!(found.last().unwrap().kind, EventKind::Noted { .. }), "found, and paused there: {found:?}");
        request(&source, Command::SkipToNext { landmark: Landmark::Mark });
        let found = until_paused(&mut source);
        assert!(matches!(found.last().unwrap().kind, EventKind::Bookmarked { .. }), "and the next: {found:?}");
        request(&source, Command::SkipTo { at_us: u64::MAX });
        until_paused(&mut source);
        request(&source, Command::Resume);
        let start = Instant::now();
        while !matches!(source.events.blocking_recv().map(|e| e.kind), Some(EventKind::Started { .. })) {}
        assert!(start.elapsed() < BETWEEN, "it starts again without the wait between recordings");
        request(&source, Command::Shutdown);
        drain(&mut source);
    }

    #[test]
    fn a_pause_or_a_step_ends_a_search_and_a_skip() {
        let mut script = Script::prompted("hi", "It");
        (0..2000).for_each(|_| script.round(&[(" a", 0.5)], &[(" a", 0.5), (" b", 0.5)]));
        let lines = script.events.iter().map(|event| serde_json::to_string(event).unwrap() + "\n");
        let recording = Recording::of_bytes("a", lines.collect::<String>().into_bytes()).unwrap();
        assert!(script.events.len() > 2 * AHEAD);
        for skip in [Command::SkipToNext { landmark: Landmark::Mark }, Command::SkipTo { at_us: u64::MAX }] {
            for (command, phases) in [(Command::Pause, 0), (Command::StepPhase, 1), (Command::StepRound, 5)] {
                let options = ReplayOptions { is_held: true, stays: true, ..options(Some(1.0)) };
                let mut source = spawn(vec![recording.clone()], options).unwrap();
                request(&source, skip.clone());
                let asked = Instant::now();
                while waiting(&source) < AHEAD && asked.elapsed() < Duration::from_secs(20) {
                    std::thread::sleep(Duration::from_millis(1)); // until the source is full, and waits
                }
                request(&source, command);
                let sent = until_paused(&mut source);
                let more = sent[AHEAD.min(sent.len())..].iter().filter(|e| ends_phase(e)).count();
                assert!(sent.len() >= AHEAD && more <= phases + 1, "{skip:?}: {} {more}", sent.len());
                request(&source, Command::Resume);
                assert!(
                    until_paused(&mut source).len() < script.events.len() / 2,
                    "it plays, and the search has ended"
                );
            }
        }
    }

    #[test]
    fn a_search_in_a_loop_ends_at_the_end_of_the_recording() {
        let (recording, events) = recording(100);
        let options = ReplayOptions { loops: true, ..options(Some(16.0)) };
        let mut source = spawn(vec![recording], options).unwrap();
        request(&source, Command::SkipToNext { landmark: Landmark::Mark });
        let sent = until_paused(&mut source);
        let [.., Event { kind: EventKind::Notice { message }, .. }, Event { kind: EventKind::Paused, .. }] = &sent[..]
        else {
            panic!("{sent:?}")
        };
        assert!(message.contains("nothing found up to the end of the recording; it starts again"), "{message}");
        assert_eq!(sent.len(), events.len() + 3, "all events once, then the cut, nothing found, and the pause");
        request(&source, Command::StepPhase);
        let again = until_paused(&mut source);
        assert!(matches!(again[0].kind, EventKind::Started { .. }), "{again:?}");
        assert!(matches!(again.last().unwrap().kind, EventKind::Prefilled(_)), "{again:?}");
    }

    #[test]
    fn a_loop_starts_again_and_ends_when_the_listener_leaves() {
        let (recording, events) = recording(100);
        let mut source = spawn(vec![recording], ReplayOptions { loops: true, ..options(None) }).unwrap();
        let played: Vec<Event> = (0..events.len() * 3).filter_map(|_| source.events.blocking_recv()).collect();
        let starts = played.iter().filter(|e| matches!(e.kind, EventKind::Started { .. })).count();
        assert!(starts >= 2, "{starts}");
        let commands = source.commands.clone();
        drop(source);
        let deadline = Instant::now() + Duration::from_secs(60);
        while commands.send(Command::Pause).is_ok() {
            assert!(Instant::now() < deadline, "the player still runs");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
