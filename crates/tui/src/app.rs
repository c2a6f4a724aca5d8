//! Where the user looks: page, pane, scroll, selected round, overlay, typed text.
//!
//! Invariant: nothing here is derived from events, so a session can be folded again (or replaced by another) without
//! losing the user's place; indices into a session are checked wherever they are used. `update` changes it, `view`
//! shows it.

mod look;

use std::collections::{HashMap, HashSet};

use draftscope_learn::lesson;
use draftscope_learn::quiz::Results;
use draftscope_protocol::{Baseline, Command, Settings};
use draftscope_session::round_at::{RoundAt, live_round, round_at};
use draftscope_session::{Round, Session, Timeline};

use super::action::Action;
use super::display::DisplayMode;
use super::editor::Editor;
use super::filter::Filter;
use super::hit_map::HitMap;
use super::keymap::{Context, Keymap};
use super::options::TuiOptions;
pub(super) use super::overlay::Overlay;
use super::pace::Pace;
use super::page::{Page, Pane};
use super::playback::Playback;
use super::theme_set::ThemeSet;

/// Which line of the transcript is on top.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Scroll {
    /// The newest line is in view.
    #[default]
    Follow,
    /// This one.
    Top(usize),
    /// The selected round is in view.
    Selected,
    /// The turn of the selected round begins on top.
    Turn,
}

/// A prompt on its way: sent, and no event about it yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Awaiting {
    pub(super) text: String,
    pub(super) turns: usize,
    pub(super) notices: u64,
    /// It was typed: if it is refused, it is changed where it was typed.
    pub(super) is_typed: bool,
}

/// A lesson's run that the user left before its answer ended.
pub(super) struct LeftRun {
    pub(super) run: Timeline,
    /// Turns that it has once the last one that was asked for has begun.
    pub(super) turns: usize,
}

/// Requests that only the owner of the terminal and of the caller's hooks can fulfil.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    Suspend,
    Copy(String),
    Save,
    /// Saves, then quits.
    SaveAndQuit,
    /// In the format of this index.
    Export(usize),
    /// The screen as pictures.
    Picture,
    /// The theme of this name is to be used from the next start on.
    KeepTheme(String),
}

/// Where the user looks.
pub struct App {
    pub(super) page: Page,
    pub(super) pane: Pane,
    pub(super) is_zoomed: bool,
    /// One round is drawn large instead of the page.
    pub(super) presents: bool,
    /// The lines of the loop are there, above the rounds and in the presenter.
    pub(super) reads_loop: bool,
    pub(super) editor: Editor,
    pub(super) scroll: Scroll,
    /// None follows the live round.
    pub(super) selected: Option<RoundAt>,
    /// Column of the selected round; `None` picks the deciding one.
    pub(super) cell: Option<usize>,
    pub(super) filter: Filter,
    pub(super) overlay: Option<Overlay>,
    pub(super) split: bool,
    /// How plain decoding was measured before the split view let it race.
    pub(super) before_race: Option<Baseline>,
    /// What the user chose; without a choice it depends on the answer: see [`App::display_of`].
    pub(super) display: Option<DisplayMode>,
    /// Whether thought is shown in full.
    pub(super) shows_thought: bool,
    pub(super) pace: Pace,
    /// The pace at which an answer of the past plays again, once that was asked for.
    pub(super) replay: Option<Pace>,
    /// The running round's number, and how many steps of its verdicts are shown.
    pub(super) unveiled: Option<(u32, usize)>,
    /// A recording plays: it takes no requests.
    pub(super) is_recording: bool,
    pub(super) playback: Playback,
    /// Time advances by ticks: the past is played, or the engine runs a phase per tick.
    pub(super) plays: bool,
    /// The engine is paused because the user went back.
    pub(super) holds: bool,
    pub(super) pending: super::pending_requests::PendingRequests,
    /// Index of the turn with which each conversation begins.
    pub(super) conversations: Vec<usize>,
    /// Numbers of the answers that branches ended, by the index of the branch's turn.
    pub(super) ended: HashMap<usize, u32>,
    /// Indices of turns that continue such an answer: there is no return from these branches.
    pub(super) resumed: HashSet<usize>,
    /// Numbers of branches that the user returned from.
    pub(super) abandoned: HashSet<u32>,
    /// Settings before and after a branch changed them, by the index of its turn.
    pub(super) lent: HashMap<usize, (Settings, Settings)>,
    pub(super) lesson: super::study::Study,
    pub(super) quiz: super::quiz::Quiz,
    /// All lessons, the user's own last.
    pub(super) lessons: Vec<lesson::Entry>,
    /// What of them was done.
    pub(super) progress: lesson::Progress,
    /// The source's own run, while a recording or a lesson's run is shown in its place, and the parts of this state that
    /// belong to it.
    pub(super) aside: Option<Timeline>,
    /// What is in its place is no recording but a lesson's run on the engine.
    pub(super) runs_lesson: bool,
    /// A lesson's run that was left while its answer was under way.
    pub(super) left: Option<LeftRun>,
    aside_places: (Vec<usize>, HashSet<u32>, Playback),
    pub(super) awaiting: Option<Awaiting>,
    /// Requested settings, and the settings at the time of the request.
    pub(super) wanted: Option<(Settings, Settings)>,
    pub(super) stop_sent: bool,
    /// The last plain answer that the engine was asked to finish: the run, the turn, and how many tokens it had.
    pub(super) plain_asked: Option<(u64, u32, usize)>,
    /// Whether the engine waited for a person's draft when last checked.
    was_asked: bool,
    pub(super) toast: Option<String>,
    pub(super) notices_read: u64,
    /// The source is gone: the reason, as far as known.
    pub(super) lost: Option<String>,
    /// No more events will come.
    pub(super) has_ended: bool,
    pub(super) quits: bool,
    /// Tokens of the answers when the session was last saved.
    pub(super) saved: u64,
    /// Save the session when the user quits.
    pub(super) autosave: bool,
    /// The turn whose refused prompt is back in the prompt box.
    pub(super) refused: u32,
    /// The starter prompt offered last.
    pub(super) starter: Option<usize>,
    /// Ticks of the tour, while it runs.
    pub(super) tour: Option<usize>,
    /// Ticks while the models load, for the moving bar.
    pub(super) loading_ticks: usize,
    pub(super) asks: Vec<Ask>,
    pub(super) keymap: Keymap,
    pub(super) hit_map: HitMap,
    /// How often another timeline was shown.
    pub(super) timelines: u64,
    pub(super) options: TuiOptions,
    themes: ThemeSet,
}

impl App {
    /// Shows a reply to a key that needs nothing from the engine.
    pub(super) fn say(&mut self, reply: impl Into<String>) -> Vec<Command> {
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
        let (lessons, warnings) = lesson::all(&options.lessons);
        toasts.extend(warnings);
        let progress = options.progress.as_ref().map(|kept| lesson::Progress::read(&kept.text));
        let results = options.quiz.as_ref().and_then(|files| (files.read)());
        let results = results.map_or_else(Results::default, |text| Results::read(&text));
        let mut app = Self {
            page: options.page,
            pane: options.page.panes()[0],
            is_zoomed: false,
            presents: false,
            reads_loop: false,
            editor: Editor::default(),
            scroll: Scroll::default(),
            selected: None,
            cell: None,
            filter: Filter::default(),
            overlay: None,
            split: options.split,
            before_race: None,
            display: None,
            shows_thought: false,
            pace: options.pace,
            replay: None,
            unveiled: None,
            is_recording: false,
            playback: options.playback.unwrap_or_default(),
            plays: false,
            holds: false,
            pending: super::pending_requests::PendingRequests::default(),
            conversations: vec![0],
            ended: HashMap::new(),
            resumed: HashSet::new(),
            abandoned: HashSet::new(),
            lent: HashMap::new(),
            lesson: super::study::Study { choice: super::lesson_row::row_of(0), ..Default::default() },
            lessons,
            progress: progress.unwrap_or_default(),
            quiz: super::quiz::Quiz { results, ..Default::default() },
            aside: None,
            runs_lesson: false,
            left: None,
            aside_places: Default::default(),
            awaiting: None,
            wanted: None,
            stop_sent: false,
            plain_asked: None,
            was_asked: false,
            toast: (!toasts.is_empty()).then(|| toasts.join(" · ")),
            notices_read: 0,
            lost: None,
            has_ended: false,
            quits: false,
            saved: 0,
            autosave: options.autosave,
            refused: 0,
            starter: None,
            tour: None,
            loading_ticks: 0,
            asks: Vec::new(),
            keymap,
            hit_map: HitMap::default(),
            timelines: 0,
            options,
            themes,
        };
        app.dress_editor();
        app
    }

    /// Shows a recording instead of the source's own run.
    pub(super) fn show_recording(&mut self, time: &mut Timeline, recording: Timeline) {
        let own = std::mem::replace(time, recording);
        self.runs_lesson = false;
        if self.aside.is_none() {
            self.aside = Some(own);
            let places = (&mut self.conversations, &mut self.abandoned);
            let kept = (std::mem::replace(places.0, vec![0]), std::mem::take(places.1), self.playback);
            self.aside_places = kept;
            self.playback = Playback::default();
        }
        (self.selected, self.cell, self.scroll) = (None, None, Scroll::Follow);
        (self.awaiting, self.wanted) = (None, None); // nothing is asked of what is on show
        self.timelines += 1;
        self.follow(time.live());
    }

    /// Shows the source's own run again.
    pub(super) fn end_recording(&mut self, time: &mut Timeline) {
        if let Some(own) = self.aside.take() {
            let left = std::mem::replace(time, own);
            self.leave_lesson_run(left);
            (self.conversations, self.abandoned, self.playback) = std::mem::take(&mut self.aside_places);
            (self.selected, self.cell, self.scroll, self.plays) = (None, None, Scroll::Follow, false);
            self.timelines += 1;
            self.follow(time.live());
        }
    }

    /// Whether the user has quit.
    #[must_use]
    pub fn quits(&self) -> bool {
        self.quits
    }

    /// Takes what the last frame measured.
    pub fn set_hit_map(&mut self, hit_map: HitMap) {
        self.hit_map = hit_map;
    }

    /// Updates the state after events: an answer that ended, a prompt that was accepted.
    pub fn follow(&mut self, session: &Session) {
        self.is_recording = session.header().is_some_and(|header| !header.capabilities.can_generate);
        let asks = session.draft_asked().is_some();
        if asks && !self.was_asked && self.page == Page::Chat && self.overlay.is_none() {
            self.pane = Pane::Prompt;
        }
        self.editor.invite(asks);
        self.was_asked = asks;
        self.return_refused(session);
        if !self.is_busy(session) {
            self.stop_sent = false;
        }
        if !self.is_awaiting(session) {
            self.awaiting = None;
        }
        if self.is_recording && self.pane == Pane::Prompt {
            self.pane = self.page.home(); // nothing can be typed
        }
    }

    /// Whether a recording is shown instead of the own run, and no lesson plays it.
    pub(super) fn is_demo(&self) -> bool {
        self.aside.is_some() && self.lesson.lesson.is_none()
    }

    /// Where keys go now.
    pub(super) fn context(&self) -> Context {
        match &self.overlay {
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

    /// Whether the quiz is on show.
    pub(super) fn is_quiz(&self) -> bool {
        self.page == Page::Learn && self.lesson.at(&self.lessons).is_some_and(|(_, step)| step.quiz)
    }

    /// Whether the prompt takes the keys.
    pub(super) fn is_typing(&self) -> bool {
        self.page == Page::Chat && self.pane == Pane::Prompt && !self.is_recording
    }

    /// Whether a pane takes the keys.
    pub(super) fn has_focus(&self, pane: Pane) -> bool {
        self.pane == pane && self.overlay.is_none()
    }

    pub(super) fn go_to(&mut self, page: Page) {
        self.presents = false;
        if self.page != page {
            self.page = page;
            self.pane = page.home();
            self.is_zoomed = false;
        } else if self.is_typing() {
            self.pane = page.home();
        }
    }

    /// The key of an action for hints: one that works while typing, if there is one.
    pub(super) fn key(&self, action: Action) -> String {
        let typing = if self.is_typing() { self.keymap.binding(Context::Prompt, action) } else { None };
        self.keymap.label(typing.map_or(Context::Browse, |_| Context::Prompt), action)
    }

    /// Settings as the user wants them: current ones, or requested and not yet in force.
    pub(super) fn settings(&self, session: &Session) -> Settings {
        let requested = self.wanted.filter(|(base, _)| base == session.settings());
        requested.map_or(*session.settings(), |(_, wanted)| wanted)
    }

    /// The index of the shown round: the selected one, else the newest.
    pub(super) fn round_index(&self, session: &Session) -> Option<RoundAt> {
        let selected = self.selected.filter(|at| round_at(session, *at).is_some());
        selected.or_else(|| live_round(session).filter(|_| !self.begins_anew(session)))
    }

    /// The shown round.
    pub(super) fn round<'a>(&self, session: &'a Session) -> Option<&'a Round> {
        round_at(session, self.round_index(session)?)
    }
}
