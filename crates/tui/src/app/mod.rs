//! Where the user looks: page, pane, scroll, selected round, overlay, typed text.
//!
//! Invariant: nothing here is derived from events, so a session can be folded again (or replaced by another) without
//! losing the user's place; indices into a session are checked wherever they are used. `update` changes it, `view`
//! shows it.

pub(crate) mod learning;
pub(crate) mod look;
pub(crate) mod options;
pub(crate) mod overlay;
pub(crate) mod place;
pub(crate) mod requests;
pub(crate) mod talk;
pub(crate) mod time;

use std::collections::{HashMap, HashSet};

use draftscope_learn::lesson;
use draftscope_learn::quiz::Results;
use draftscope_protocol::{Baseline, Command, Settings};
use draftscope_session::round_at::{RoundAt, live_round, round_at};
use draftscope_session::{Round, Session, Timeline};

use crate::input::action::Action;
use crate::input::editor::Editor;
use crate::input::keymap::{Context, Keymap};
use crate::look::display::DisplayMode;
pub(crate) use learning::LeftRun;
use learning::lesson_row::row_of;
use learning::quiz::Quiz;
use learning::study::Study;
use look::theme_set::ThemeSet;
use options::TuiOptions;
pub(crate) use overlay::Overlay;
pub(crate) use place::Scroll;
use place::filter::Filter;
use place::hit_map::HitMap;
use place::page::{Page, Pane};
use requests::pending_requests::PendingRequests;
pub(crate) use requests::{Ask, Awaiting};
use time::pace::Pace;
use time::playback::Playback;

/// Where the user looks.
pub struct App {
    pub(crate) page: Page,
    pub(crate) pane: Pane,
    pub(crate) is_zoomed: bool,
    /// One round is drawn large instead of the page.
    pub(crate) presents: bool,
    /// The lines of the loop are there, above the rounds and in the presenter.
    pub(crate) reads_loop: bool,
    pub(crate) editor: Editor,
    pub(crate) scroll: Scroll,
    /// None follows the live round.
    pub(crate) selected: Option<RoundAt>,
    /// Column of the selected round; `None` picks the deciding one.
    pub(crate) cell: Option<usize>,
    pub(crate) filter: Filter,
    pub(crate) overlay: Option<Overlay>,
    pub(crate) split: bool,
    /// How plain decoding was measured before the split view let it race.
    pub(crate) before_race: Option<Baseline>,
    /// What the user chose; without a choice it depends on the answer: see [`App::display_of`].
    pub(crate) display: Option<DisplayMode>,
    /// Whether thought is shown in full.
    pub(crate) shows_thought: bool,
    pub(crate) pace: Pace,
    /// The pace at which an answer of the past plays again, once that was asked for.
    pub(crate) replay: Option<Pace>,
    /// The running round's number, and how many steps of its verdicts are shown.
    pub(crate) unveiled: Option<(u32, usize)>,
    /// A recording plays: it takes no requests.
    pub(crate) is_recording: bool,
    pub(crate) playback: Playback,
    /// Time advances by ticks: the past is played, or the engine runs a phase per tick.
    pub(crate) plays: bool,
    /// The engine is paused because the user went back.
    pub(crate) holds: bool,
    pub(crate) pending: PendingRequests,
    /// Index of the turn with which each conversation begins.
    pub(crate) conversations: Vec<usize>,
    /// Numbers of the answers that branches ended, by the index of the branch's turn.
    pub(crate) ended: HashMap<usize, u32>,
    /// Indices of turns that continue such an answer: there is no return from these branches.
    pub(crate) resumed: HashSet<usize>,
    /// Numbers of branches that the user returned from.
    pub(crate) abandoned: HashSet<u32>,
    /// Settings before and after a branch changed them, by the index of its turn.
    pub(crate) lent: HashMap<usize, (Settings, Settings)>,
    pub(crate) lesson: Study,
    pub(crate) quiz: Quiz,
    /// All lessons, the user's own last.
    pub(crate) lessons: Vec<lesson::Entry>,
    /// What of them was done.
    pub(crate) progress: lesson::Progress,
    /// The source's own run, while a recording or a lesson's run is shown in its place, and the parts of this state that
    /// belong to it.
    pub(crate) aside: Option<Timeline>,
    /// What is in its place is no recording but a lesson's run on the engine.
    pub(crate) runs_lesson: bool,
    /// A lesson's run that was left while its answer was under way.
    pub(crate) left: Option<LeftRun>,
    aside_places: (Vec<usize>, HashSet<u32>, Playback),
    pub(crate) awaiting: Option<Awaiting>,
    /// Requested settings, and the settings at the time of the request.
    pub(crate) wanted: Option<(Settings, Settings)>,
    pub(crate) stop_sent: bool,
    /// The last plain answer that the engine was asked to finish: the run, the turn, and how many tokens it had.
    pub(crate) plain_asked: Option<(u64, u32, usize)>,
    /// Whether the engine waited for a person's draft when last checked.
    was_asked: bool,
    pub(crate) toast: Option<String>,
    pub(crate) notices_read: u64,
    /// The source is gone: the reason, as far as known.
    pub(crate) lost: Option<String>,
    /// No more events will come.
    pub(crate) has_ended: bool,
    pub(crate) quits: bool,
    /// Tokens of the answers when the session was last saved.
    pub(crate) saved: u64,
    /// Save the session when the user quits.
    pub(crate) autosave: bool,
    /// The turn whose refused prompt is back in the prompt box.
    pub(crate) refused: u32,
    /// The starter prompt offered last.
    pub(crate) starter: Option<usize>,
    /// Ticks of the tour, while it runs.
    pub(crate) tour: Option<usize>,
    /// Ticks while the models load, for the moving bar.
    pub(crate) loading_ticks: usize,
    pub(crate) asks: Vec<Ask>,
    pub(crate) keymap: Keymap,
    pub(crate) hit_map: HitMap,
    /// How often another timeline was shown.
    pub(crate) timelines: u64,
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
            pending: PendingRequests::default(),
            conversations: vec![0],
            ended: HashMap::new(),
            resumed: HashSet::new(),
            abandoned: HashSet::new(),
            lent: HashMap::new(),
            lesson: Study { choice: row_of(0), ..Default::default() },
            lessons,
            progress: progress.unwrap_or_default(),
            quiz: Quiz { results, ..Default::default() },
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
    pub(crate) fn show_recording(&mut self, time: &mut Timeline, recording: Timeline) {
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
    pub(crate) fn end_recording(&mut self, time: &mut Timeline) {
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
    pub(crate) fn is_demo(&self) -> bool {
        self.aside.is_some() && self.lesson.lesson.is_none()
    }

    /// Where keys go now.
    pub(crate) fn context(&self) -> Context {
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
    pub(crate) fn is_quiz(&self) -> bool {
        self.page == Page::Learn && self.lesson.at(&self.lessons).is_some_and(|(_, step)| step.quiz)
    }

    /// Whether the prompt takes the keys.
    pub(crate) fn is_typing(&self) -> bool {
        self.page == Page::Chat && self.pane == Pane::Prompt && !self.is_recording
    }

    /// Whether a pane takes the keys.
    pub(crate) fn has_focus(&self, pane: Pane) -> bool {
        self.pane == pane && self.overlay.is_none()
    }

    pub(crate) fn go_to(&mut self, page: Page) {
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
    pub(crate) fn key(&self, action: Action) -> String {
        let typing = if self.is_typing() { self.keymap.binding(Context::Prompt, action) } else { None };
        self.keymap.label(typing.map_or(Context::Browse, |_| Context::Prompt), action)
    }

    /// Settings as the user wants them: current ones, or requested and not yet in force.
    pub(crate) fn settings(&self, session: &Session) -> Settings {
        let requested = self.wanted.filter(|(base, _)| base == session.settings());
        requested.map_or(*session.settings(), |(_, wanted)| wanted)
    }

    /// The index of the shown round: the selected one, else the newest.
    pub(crate) fn round_index(&self, session: &Session) -> Option<RoundAt> {
        let selected = self.selected.filter(|at| round_at(session, *at).is_some());
        selected.or_else(|| live_round(session).filter(|_| !self.begins_anew(session)))
    }

    /// The shown round.
    pub(crate) fn round<'a>(&self, session: &'a Session) -> Option<&'a Round> {
        round_at(session, self.round_index(session)?)
    }
}
