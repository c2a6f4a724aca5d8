//! What the user changes, in parts, each of which has a room:
//!
//! | part | room | is |
//! |---|---|---|
//! | [`Place`] | `place` | where the user looks: page, pane, selected round, what lies over the page |
//! | [`Talk`] | `talk` | the conversation: what is typed, where conversations begin, branches |
//! | [`Clock`] | `clock` | how fast an answer proceeds and a recording plays; whether the past plays |
//! | [`Requests`], [`Leaving`] | `requests` | what was asked and is not answered yet; what is saved at the end |
//! | [`Learning`] | `learning` | lessons, quiz, and the runs shown in place of the user's own |
//!
//! Invariant: nothing here is derived from events, so a session can be folded again (or replaced by another) without
//! losing the user's place; indices into a session are checked wherever they are used. `update` changes it, `view`
//! shows it.

pub(crate) mod clock;
pub(crate) mod learning;
pub(crate) mod look;
pub(crate) mod options;
pub(crate) mod overlay;
pub(crate) mod place;
pub(crate) mod requests;
pub(crate) mod talk;

use draftscope_protocol::{Ability, Command, Lane};
use draftscope_session::round_at::{RoundAt, live_round, round_at};
use draftscope_session::{Round, Session, Timeline};

use crate::input::action::Action;
use crate::input::keymap::{Context, Keymap};
use clock::Clock;
use clock::playback::Playback;
use learning::Learning;
pub(crate) use learning::LeftRun;
use look::theme_set::ThemeSet;
use options::TuiOptions;
pub(crate) use overlay::Overlay;
use place::Place;
pub(crate) use place::Scroll;
use place::filter::has_reject;
use place::hit_map::HitMap;
use place::page::{Page, Pane};
pub(crate) use requests::{Ask, Awaiting};
use requests::{Leaving, Requests};
use talk::Talk;

/// What only the user changes: where they look, what they type and ask for, how time passes, what they learn.
pub struct App {
    pub(crate) place: Place,
    pub(crate) talk: Talk,
    pub(crate) clock: Clock,
    pub(crate) requests: Requests,
    pub(crate) learning: Learning,
    pub(crate) leaving: Leaving,
    /// A sentence for the foot of the screen.
    pub(crate) toast: Option<String>,
    /// Notices of the session that were on screen.
    pub(crate) notices_read: u64,
    pub(crate) keymap: Keymap,
    pub(crate) options: TuiOptions,
    themes: ThemeSet,
}

impl App {
    /// Shows a reply to a key that needs nothing from the engine.
    pub(crate) fn say(&mut self, reply: impl Into<String>) -> Vec<Command> {
        self.toast = Some(reply.into());
        Vec::new()
    }

    /// A fresh view with the keymap and the themes of the binary and of the user.
    #[must_use]
    pub fn new(options: TuiOptions) -> Self {
        let (mut keymap, mut toasts) = Keymap::with_user(options.keymap.as_deref());
        keymap.is_ascii = options.ascii;
        let (themes, warnings) = ThemeSet::new(&options);
        toasts.splice(0..0, options.warnings.iter().cloned());
        toasts.extend(warnings);
        let (learning, warnings) = Learning::new(&options);
        toasts.extend(warnings);
        let playback = options.playback.unwrap_or_default();
        let mut app = Self {
            place: Place::new(options.page, options.split),
            talk: Talk::default(),
            clock: Clock { pace: options.pace, playback, ..Clock::default() },
            requests: Requests::default(),
            learning,
            leaving: Leaving { autosave: options.autosave, ..Leaving::default() },
            toast: (!toasts.is_empty()).then(|| toasts.join(" · ")),
            notices_read: 0,
            keymap,
            options,
            themes,
        };
        app.dress_editor();
        app
    }

    /// Shows a recording instead of the source's own run.
    pub(crate) fn show_recording(&mut self, time: &mut Timeline, recording: Timeline) {
        let own = std::mem::replace(time, recording);
        self.learning.runs_lesson = false;
        if self.learning.aside.is_none() {
            self.learning.aside = Some(own);
            let places = (&mut self.talk.conversations, &mut self.talk.abandoned);
            let kept = (std::mem::replace(places.0, vec![0]), std::mem::take(places.1), self.clock.playback);
            self.learning.aside_places = kept;
            self.clock.playback = Playback::default();
        }
        self.place.follow_live();
        (self.requests.awaiting, self.requests.wanted) = (None, None); // nothing is asked of what is on show
        self.clock.timelines += 1;
        self.follow(time.live());
    }

    /// Shows the source's own run again.
    pub(crate) fn end_recording(&mut self, time: &mut Timeline) {
        if let Some(own) = self.learning.aside.take() {
            let left = std::mem::replace(time, own);
            self.leave_lesson_run(left);
            (self.talk.conversations, self.talk.abandoned, self.clock.playback) =
                std::mem::take(&mut self.learning.aside_places);
            self.place.follow_live();
            self.clock.plays = false;
            self.clock.timelines += 1;
            self.follow(time.live());
        }
    }

    /// Whether the user has quit.
    #[must_use]
    pub fn quits(&self) -> bool {
        self.leaving.quits
    }

    /// Takes what the last frame measured.
    pub fn set_hit_map(&mut self, hit_map: HitMap) {
        self.place.hit_map = hit_map;
    }

    /// Updates the state after events: an answer that ended, a prompt that was accepted.
    pub fn follow(&mut self, session: &Session) {
        self.clock.is_recording = session.header().is_some_and(|header| !header.capabilities.can_generate);
        let asks = session.draft_asked().is_some();
        if asks && !self.talk.was_asked {
            self.place.return_to_prompt();
        }
        self.talk.editor.invite(asks);
        self.talk.was_asked = asks;
        self.return_refused(session);
        if !self.is_busy(session) {
            self.requests.stop_sent = false;
        }
        if !self.requests.is_awaiting(session) {
            self.requests.awaiting = None;
        }
        if self.clock.is_recording && self.place.pane == Pane::Prompt {
            self.place.pane = self.place.page.home(); // nothing can be typed
        }
    }

    /// Where keys go now.
    pub(crate) fn context(&self) -> Context {
        match &self.place.overlay {
            Some(Overlay::Help(help)) if help.search.is_some() => Context::Entry,
            Some(Overlay::Help(_)) => Context::Help,
            Some(Overlay::Quit) => Context::Quit,
            Some(
                Overlay::Palette(_) | Overlay::Search(_) | Overlay::Note(..) | Overlay::GoTo(_) | Overlay::Draft(_),
            ) => Context::Entry,
            Some(Overlay::WhatIf(form)) if form.is_typing() => Context::Entry,
            Some(
                Overlay::Settings(_)
                | Overlay::Versus(_)
                | Overlay::Export(_)
                | Overlay::SentPrompt(_)
                | Overlay::Why
                | Overlay::WhatIf(_)
                | Overlay::Themes(_),
            ) => Context::Panel,
            None if self.is_typing() => Context::Prompt,
            None if self.is_quiz() => Context::Quiz,
            None => Context::Browse,
        }
    }

    /// What can be done instead, where the engine has failed before it began.
    pub(crate) fn without_engine(&self, live: &Session) -> Option<&str> {
        self.options.without_engine.as_deref().filter(|_| live.header().is_none())
    }

    /// Whether the quiz is on show.
    pub(crate) fn is_quiz(&self) -> bool {
        self.place.page == Page::Learn && self.learning.step().is_some_and(|step| step.quiz)
    }

    /// Whether runs of lessons are played from recordings, because no engine on show can run them.
    pub(crate) fn plays_lessons(&self, live: &Session) -> bool {
        let Some(header) = live.header() else { return self.learning.shows_recording() };
        let runs = header.capabilities.can_generate && header.can(Ability::Lessons) && self.requests.lost.is_none();
        self.learning.shows_recording() || !runs
    }

    /// Whether the step of the lesson on show asks something that is not answered yet.
    pub(crate) fn asks_in_lesson(&self) -> bool {
        let step = self.learning.study.at(&self.learning.lessons).map(|(_, step)| step);
        let asks = step.is_some_and(|step| !step.choices.is_empty() && !step.quiz);
        self.place.page == Page::Learn && asks && !self.learning.study.is_revealed
    }

    /// Whether the page on show was opened from the lesson under way, so that the key that leaves goes back to it.
    pub(crate) fn returns_to_lesson(&self) -> bool {
        self.place.page != Page::Learn && self.learning.study.opened.is_some()
    }

    /// Whether the prompt takes the keys.
    pub(crate) fn is_typing(&self) -> bool {
        self.place.page == Page::Chat && self.place.pane == Pane::Prompt && !self.clock.is_recording
    }

    pub(crate) fn go_to(&mut self, page: Page) {
        self.place.presents = false;
        if self.place.page != page {
            self.place.page = page;
            self.place.pane = page.home();
            self.place.is_zoomed = false;
        } else if self.is_typing() {
            self.place.pane = page.home();
        }
    }

    /// The key of an action for hints: one that works while typing, if there is one.
    pub(crate) fn key(&self, action: Action) -> String {
        let typing = if self.is_typing() { self.keymap.binding(Context::Prompt, action) } else { None };
        self.keymap.label(typing.map_or(Context::Browse, |_| Context::Prompt), action)
    }

    /// The index of the shown round: the selected one, else the newest; below an answer that has ended, the last one with a
    /// rejection.
    pub(crate) fn round_index(&self, session: &Session) -> Option<RoundAt> {
        let selected = self.place.selected.filter(|at| round_at(session, *at).is_some());
        selected.or_else(|| {
            let live = live_round(session).filter(|_| !self.begins_anew(session))?;
            let shows_end = self.place.page == Page::Chat && !self.place.presents;
            Some(last_rejection(session, live.turn).filter(|_| shows_end).unwrap_or(live))
        })
    }

    /// The shown round.
    pub(crate) fn round<'a>(&self, session: &'a Session) -> Option<&'a Round> {
        round_at(session, self.round_index(session)?)
    }
}

/// Rounds before the end of an answer in which a rejection is near enough to be on show there.
const NEAR_END: usize = 100;

/// The last round with a rejection of an answer that has ended: what was discarded, and why.
fn last_rejection(session: &Session, turn: usize) -> Option<RoundAt> {
    let answer = session.turns().get(turn)?.answer(Lane::Speculative);
    let near = answer.rounds.iter().enumerate().rev().take(NEAR_END);
    let found = near.filter(|_| answer.finished.is_some()).find(|(_, round)| has_reject(round));
    found.map(|(round, _)| RoundAt { turn, round: Some(round) })
}
