//! The thread of an attached run: connects, answers prompts, obeys commands.
//!
//! Invariant: a pause or a step concerns the display only: the server continues, and its chunks wait. An answer that
//! breaks off ends as `broken_off` after a sentence that says why, and the next prompt connects anew.

mod commands;
mod reach;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;

use draftscope_http::Secrets;
use draftscope_protocol::stream::{Gate, Step};
use draftscope_protocol::{Ability, Baseline, Command, Event, EventKind, Lane, Prompt, Settings, StopReason};

use super::answer::Answer;
use super::config::AttachConfig;
use super::grammar;
use super::lanes::{ask, server_of, unlike};
use super::outbox::Outbox;
use super::read::{Read, WAITING};
use super::server::Server;
use super::socket::join::Plugin;
use reach::{reach, reach_plain};

/// Longest time in which a command is not looked at.
const TICK: Duration = Duration::from_millis(10);

/// The prompt that warms both servers of a race up, and the longest answer to it.
const WARM_UP: &str = "one two three four five six seven eight";
const WARM_UP_TOKENS: u32 = 16;

/// Most lines that are read of the answer to it: far more than so many tokens take.
const MOST_WARM_UP_LINES: u32 = 1024;

/// Runs to the end.
pub(super) fn run(config: &AttachConfig, inbox: Receiver<Command>, sender: UnboundedSender<Event>) {
    guarded(Outbox::new(sender), |outbox| serve(config, inbox, outbox));
}

/// Does the work; an error or a panic becomes an event, so that nobody waits for the rest.
fn guarded(mut outbox: Outbox, work: impl FnOnce(&mut Outbox) -> Result<(), String>) {
    let message = match catch_unwind(AssertUnwindSafe(|| work(&mut outbox))) {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error,
        Err(_) => "attaching stopped on an internal error; please report it".to_owned(),
    };
    outbox.send(EventKind::Failed { message });
}

fn serve(config: &AttachConfig, inbox: Receiver<Command>, outbox: &mut Outbox) -> Result<(), String> {
    let all = [Some(&config.access), config.plain.as_ref().map(|plain| &plain.access)];
    let headers: Vec<_> = all.into_iter().flatten().flat_map(|access| access.headers.clone()).collect();
    outbox.hide(Secrets::of(&headers));
    let schema = grammar::schema(config.grammar.as_ref())?;
    let mut server = reach(config, outbox)?;
    let mut plain = config.plain.as_ref().map(|plain| reach_plain(config, plain, outbox)).transpose()?;
    let baseline = if plain.is_some() { Baseline::Race } else { Baseline::Off };
    let (mut header, mut notices) = server.header(Settings { baseline, ..config.settings }, outbox.started_unix_ms);
    if let Some(plain) = &mut plain {
        let reasons = unlike(&header, &plain.header(config.settings, outbox.started_unix_ms).0);
        if let Some(engine) = &mut header.engine {
            engine.no_speedup = reasons.first().cloned();
        }
        notices.extend(reasons);
    }
    notices.extend(grammar::announce(config.grammar.as_ref(), &mut header));
    let settings = header.settings;
    let plugin = Plugin::start(config, &header)?;
    let can_ask_rows = header.can(Ability::AskRows);
    outbox.send(EventKind::Started { header: Box::new(header) });
    notices.into_iter().for_each(|message| outbox.notice(message));
    let mut run = Run {
        server,
        plain,
        plugin,
        inbox,
        outbox,
        settings,
        schema,
        gate: Gate::default(),
        prompts: Vec::new(),
        turn: 0,
        round: 0,
        probes: config.probe && can_ask_rows,
        last: None,
        asks_rows: false,
        is_warm: false,
        is_stopped: false,
        is_over: false,
    };
    if config.probe && !can_ask_rows {
        let name = run.server.name();
        run.outbox.notice(format!("{name} cannot {}", Ability::AskRows.describe()));
    }
    run.serve();
    Ok(())
}

/// The state of a run.
struct Run<'a> {
    server: Box<dyn Server>,
    /// The server that decodes the same prompts without speculation.
    plain: Option<Box<dyn Server>>,
    /// The engine's plugin, which reports the rounds of the run's own lane.
    plugin: Option<Arc<Plugin>>,
    inbox: Receiver<Command>,
    outbox: &'a mut Outbox,
    settings: Settings,
    /// The JSON schema that is sent with each prompt.
    schema: Option<Value>,
    gate: Gate,
    prompts: Vec<Prompt>,
    turn: u32,
    round: u32,
    /// Whether predictions are asked after every answer.
    probes: bool,
    /// The answer whose predictions can be asked.
    last: Option<Answer>,
    /// Whether somebody asked for them.
    asks_rows: bool,
    /// Whether both servers of a race have answered something before.
    is_warm: bool,
    is_stopped: bool,
    is_over: bool,
}

impl Run<'_> {
    fn serve(&mut self) {
        while !self.is_over {
            self.is_stopped = false;
            if !self.prompts.is_empty() {
                let prompt = self.prompts.remove(0);
                self.answer(&prompt);
                self.gate.forget();
                continue;
            }
            if std::mem::take(&mut self.asks_rows) {
                match self.last.take() {
                    Some(answer) => {
                        self.ask_rows(&answer);
                        self.last = Some(answer);
                    }
                    None => self.outbox.notice("there is no answer yet whose predictions could be asked for"),
                }
                continue;
            }
            match self.inbox.recv() {
                Ok(command) => self.obey(command),
                Err(_) => self.is_over = true,
            }
        }
    }

    fn answer(&mut self, prompt: &Prompt) {
        self.warm_up();
        if self.is_over {
            return;
        }
        self.turn += 1;
        self.last = None;
        let (turn, text, branch) = (self.turn, prompt.typed().to_owned(), prompt.branch());
        self.outbox.send(EventKind::Prompted { turn, text, branch });
        let (sender, lines) = sync_channel(WAITING);
        match self.begin(prompt, &sender) {
            Ok(mut answers) => {
                answers.extend(self.begin_plain(prompt, &sender));
                self.follow(prompt, answers, &sender, &lines);
            }
            Err(message) => {
                self.outbox.notice(message);
                self.outbox.send(EventKind::Finished { reason: StopReason::Refused });
            }
        }
    }

    /// Before a race, lets each of both servers answer a short prompt that is not shown, since a server's first answer
    /// is slower than the following ones. What goes wrong here is reported when the prompt itself is sent.
    fn warm_up(&mut self) {
        if self.plain.is_none() || std::mem::replace(&mut self.is_warm, true) {
            return;
        }
        let settings = Settings { max_tokens: WARM_UP_TOKENS, ..self.settings };
        for lane in [Lane::Speculative, Lane::Plain] {
            let server = server_of(&mut self.server, &mut self.plain, lane);
            let (sender, lines) = sync_channel(WAITING);
            let prompt = Prompt::Raw(WARM_UP.to_owned());
            if ask(server, (&prompt, &settings, None), (lane, self.turn, self.round), &sender).is_err() {
                continue;
            }
            drop(sender);
            let mut read = 0;
            loop {
                self.poll();
                if self.is_stopped || self.is_over {
                    return;
                }
                match lines.recv_timeout(TICK) {
                    Ok(_) if read < MOST_WARM_UP_LINES => read += 1,
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(_) | Err(RecvTimeoutError::Disconnected) => break, // the last line, or far more than was asked for
                }
            }
        }
    }

    fn begin(&mut self, prompt: &Prompt, sender: &SyncSender<Read>) -> Result<Vec<Answer>, String> {
        if prompt.typed().trim().is_empty() && prompt.branch().is_none() {
            return Err("the prompt is empty".to_owned());
        }
        self.plugin.iter().for_each(|plugin| plugin.begin());
        let lane = (Lane::Speculative, self.turn, self.round);
        let answer = ask(&mut *self.server, (prompt, &self.settings, self.schema.as_ref()), lane, sender)?;
        Ok(vec![answer.joined(self.plugin.as_ref()).hiding(self.outbox.secrets())])
    }

    /// The same prompt to the plain server. Its failures are sentences, and the run's own answer goes on.
    fn begin_plain(&mut self, prompt: &Prompt, sender: &SyncSender<Read>) -> Option<Answer> {
        let plain = self.plain.as_mut()?;
        match ask(&mut **plain, (prompt, &self.settings, self.schema.as_ref()), (Lane::Plain, self.turn, 0), sender) {
            Ok(answer) => Some(answer.hiding(self.outbox.secrets())),
            Err(message) => {
                self.outbox.notice(format!("the plain server: {message}"));
                None
            }
        }
    }

    /// Follows the answers to their end, or until they are stopped or break off.
    fn follow(&mut self, prompt: &Prompt, mut answers: Vec<Answer>, sender: &SyncSender<Read>, lines: &Receiver<Read>) {
        let mut early = Vec::new(); // of the plain lane, before the run's own first token
        let (has_plain, is_alone) = (answers.len() > 1, self.plain.is_some() && answers.len() == 1);
        while answers.iter().any(|answer| answer.ended.is_none()) {
            self.poll();
            if self.is_stopped || self.is_over {
                for answer in answers.iter_mut().filter(|answer| answer.ended.is_none()) {
                    let server = server_of(&mut self.server, &mut self.plain, answer.lane);
                    let events = answer.close(server, None).events;
                    self.show_all(answer.lane, events);
                    self.end(answer);
                }
                break;
            }
            let read = match lines.recv_timeout(TICK) {
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => break,
                Ok(read) => read,
            };
            let own = &answers[0];
            if read.lane == Lane::Plain && !own.has_first && own.ended.is_none() {
                early.push(read);
                continue;
            }
            let ready = std::iter::once(read);
            self.take(prompt, &mut answers, sender, ready);
            if has_plain && !early.is_empty() && answers[0].has_first {
                self.take(prompt, &mut answers, sender, std::mem::take(&mut early).into_iter());
            }
            // nobody waits for the plain lane of a prompt that was refused
            if answers[0].ended.is_some() && !answers[0].has_first {
                break;
            }
        }
        if is_alone && answers[0].has_first {
            // so that nobody waits for the plain lane
            self.outbox.send_in(Lane::Plain, EventKind::Finished { reason: StopReason::BrokenOff });
        }
        if let Some(own) = answers.into_iter().next() {
            self.round = own.round;
            self.last = Some(own).filter(|own| own.has_first);
        }
    }

    fn take(
        &mut self,
        prompt: &Prompt,
        answers: &mut [Answer],
        sender: &SyncSender<Read>,
        reads: impl Iterator<Item = Read>,
    ) {
        for read in reads {
            let lane = read.lane;
            let Some(answer) = answers.iter_mut().find(|answer| answer.lane == lane && answer.ended.is_none()) else {
                continue;
            };
            let server = server_of(&mut self.server, &mut self.plain, lane);
            let taken = answer.take(read, server);
            if taken.again {
                taken.events.into_iter().for_each(|event| self.outbox.send_in(lane, event));
                let before = answer.round;
                match ask(server, (prompt, &self.settings, self.schema.as_ref()), (lane, self.turn, before), sender) {
                    Ok(again) => *answer = again.joined(self.plugin.as_ref()).hiding(self.outbox.secrets()),
                    Err(message) => {
                        answer.ended = Some(StopReason::Refused);
                        self.outbox.notice(message);
                        self.end(answer);
                    }
                }
                continue;
            }
            self.learn_rule();
            self.show_all(lane, taken.events);
            if answer.ended.is_some() {
                self.end(answer);
            }
        }
    }

    /// Takes over the rule that the plugin names: a server's own stream does not report it, and chances of acceptance
    /// follow from it.
    fn learn_rule(&mut self) {
        let rule = self.plugin.as_ref().and_then(|plugin| plugin.rule());
        if let Some(rule) = rule.filter(|rule| *rule != self.settings.rule) {
            self.settings.rule = rule;
            self.outbox.send(EventKind::SettingsChanged { settings: self.settings });
        }
    }

    fn end(&mut self, answer: &Answer) {
        if self.probes && answer.lane == Lane::Speculative && answer.has_first && !self.is_stopped && !self.is_over {
            self.ask_rows(answer);
        }
        if let Some(reason) = answer.ended {
            self.outbox.send_in(answer.lane, EventKind::Finished { reason });
        }
    }

    /// Asks for the target's prediction at each token of an answer, until a prompt or a stop comes.
    fn ask_rows(&mut self, answer: &Answer) {
        for index in 0..answer.tokens.len().saturating_sub(answer.prompt_len) {
            self.poll();
            if self.is_stopped || self.is_over || !self.prompts.is_empty() {
                return;
            }
            let before = &answer.tokens[..answer.prompt_len + index];
            if before.iter().any(|id| id.is_unknown()) {
                self.outbox.notice("the ids after this place are not known: no predictions can be asked for there");
                break;
            }
            match self.server.row_after(before) {
                Ok(row) => {
                    let index = u32::try_from(index).unwrap_or(u32::MAX);
                    self.outbox.send(EventKind::RowAsked { turn: self.turn, index, row });
                }
                Err(message) => {
                    self.outbox.notice(format!("no prediction at token {}: {message}", index + 1));
                    break;
                }
            }
        }
    }

    fn show_all(&mut self, lane: Lane, events: Vec<EventKind>) {
        for event in events {
            match event {
                EventKind::Notice { message } => self.outbox.notice(message),
                event => self.show(lane, event),
            }
        }
    }

    /// Sends an event of a round, once the display is not paused.
    fn show(&mut self, lane: Lane, event: EventKind) {
        self.poll();
        while self.gate.is_closed() && !self.is_stopped && !self.is_over {
            match self.inbox.recv() {
                Ok(command) => self.obey(command),
                Err(_) => self.is_over = true,
            }
        }
        let is_own = lane == Lane::Speculative;
        let ends_round = is_own && matches!(event, EventKind::Committed(_));
        let ends_phase = ends_round || (is_own && matches!(event, EventKind::Drafted(_) | EventKind::Verified { .. }));
        self.outbox.send_in(lane, event);
        self.gate.end(|step| ends_round || (ends_phase && step == Step::Phase));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_or_a_panic_of_the_thread_becomes_an_event() {
        let last = |work: fn(&mut Outbox) -> Result<(), String>| {
            let (sender, mut events) = tokio::sync::mpsc::unbounded_channel();
            guarded(Outbox::new(sender), work);
            events.try_recv().ok().map(|event| event.kind)
        };
        let failed = |message: &str| Some(EventKind::Failed { message: message.to_owned() });
        assert_eq!(last(|_| Ok(())), None);
        assert_eq!(last(|_| Err("why".to_owned())), failed("why"));
        assert_eq!(last(|_| panic!("a fault")), failed("attaching stopped on an internal error; please report it"));
    }
}
