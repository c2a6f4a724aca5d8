//! Where the user looks: focus, scroll, selected round, overlay, what is typed.
//!
//! Invariant: nothing here is derived from events, so that a session can be folded again (or
//! another one put in its place) without losing the user's place; indices into a session are
//! checked wherever they are used. Changing it is `update.rs`, showing it is `view`.

use crate::protocol::{Lane, Message, Prompt, Settings, Speaker};
use crate::session::{Round, Session};

use super::editor::Editor;
use super::keymap::{Context, Keymap};
use super::theme::{BUNDLED, Depth, Theme};
use super::view::{Cache, Seen};

/// What a caller decides about the front end.
#[derive(Clone, Debug, Default)]
pub struct TuiOptions {
    /// Standing instructions, sent first in every conversation.
    pub system: Option<String>,
    /// Send prompts as they stand, without a chat template and without earlier turns.
    pub raw: bool,
    /// Name of a theme; else `default`, or `mono` when `no_color`.
    pub theme: Option<String>,
    /// A prompt to send as soon as the source takes one.
    pub initial_prompt: Option<String>,
    /// Start with plain and speculative side by side.
    pub split: bool,
    /// No colour, whatever the theme (`NO_COLOR`).
    pub no_color: bool,
    /// The terminal shows 24-bit colour (`COLORTERM`).
    pub true_color: bool,
    /// Shown once at the start, e.g. warnings about configuration.
    pub warnings: Vec<String>,
}

impl TuiOptions {
    /// Defaults with what the environment says about colour.
    #[must_use]
    pub fn from_env() -> Self {
        let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self {
            no_color: set("NO_COLOR").is_some(),
            true_color: Depth::from_colorterm(set("COLORTERM").as_deref()) == Depth::True,
            ..Self::default()
        }
    }
}

/// What takes the keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Focus {
    #[default]
    Prompt,
    Browse,
}

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
}

/// A round of the speculative lane, by indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RoundAt {
    pub(super) turn: usize,
    pub(super) round: usize,
}

/// A prompt on its way: sent, and no event about it yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Awaiting {
    pub(super) text: String,
    turns: usize,
    notices: u64,
}

/// Where the user looks.
pub struct App {
    pub(super) focus: Focus,
    pub(super) editor: Editor,
    pub(super) scroll: Scroll,
    /// None follows the live round.
    pub(super) selected: Option<RoundAt>,
    /// Column of the round table; none picks the telling one.
    pub(super) cell: Option<usize>,
    pub(super) help: Option<usize>,
    pub(super) split: bool,
    pub(super) hides_discarded: bool,
    /// Index of the turn each conversation starts with.
    pub(super) conversations: Vec<usize>,
    pub(super) awaiting: Option<Awaiting>,
    /// Settings asked for, and what they were when asked.
    pub(super) wanted: Option<(Settings, Settings)>,
    pub(super) stop_sent: bool,
    /// Focus came here by sending and goes back when the answer ends.
    pub(super) returns_to_prompt: bool,
    pub(super) toast: Option<String>,
    pub(super) notices_read: u64,
    /// The source is gone: why, as far as known.
    pub(super) lost: Option<String>,
    /// No more events will come.
    pub(super) has_ended: bool,
    pub(super) quits: bool,
    pub(super) keymap: Keymap,
    pub(super) seen: Seen,
    /// Not state: lines of ended turns, which would come out the same again.
    pub(super) transcript: Cache,
    pub(super) options: TuiOptions,
    themes: Vec<Theme>,
    theme: usize,
}

impl App {
    /// A fresh view with the bundled keymap and themes.
    #[must_use]
    pub fn new(options: TuiOptions) -> Self {
        let depth = if options.true_color { Depth::True } else { Depth::Indexed };
        let bundled = BUNDLED.iter().filter_map(|(name, _)| Theme::bundled(name));
        let themes: Vec<Theme> = bundled.map(|(theme, _)| theme.at(depth)).collect();
        let wanted = if options.no_color { "mono" } else { options.theme.as_deref().unwrap_or("default") };
        let theme = themes.iter().position(|theme| theme.name == wanted);
        let mut toasts = options.warnings.clone();
        if theme.is_none() {
            let names: Vec<_> = themes.iter().map(|theme| theme.name.as_str()).collect();
            toasts.push(format!("there is no theme '{wanted}'; there are: {}", names.join(", ")));
        }
        let mut app = Self {
            focus: Focus::default(),
            editor: Editor::default(),
            scroll: Scroll::default(),
            selected: None,
            cell: None,
            help: None,
            split: options.split,
            hides_discarded: false,
            conversations: vec![0],
            awaiting: None,
            wanted: None,
            stop_sent: false,
            returns_to_prompt: false,
            toast: (!toasts.is_empty()).then(|| toasts.join(" · ")),
            notices_read: 0,
            lost: None,
            has_ended: false,
            quits: false,
            keymap: Keymap::bundled(),
            seen: Seen::default(),
            transcript: Cache::default(),
            options,
            themes,
            theme: theme.unwrap_or(0),
        };
        app.dress_editor();
        app
    }

    /// The theme in use.
    #[must_use]
    pub fn theme(&self) -> &Theme {
        &self.themes[self.theme]
    }

    /// Whether the user has left.
    #[must_use]
    pub fn quits(&self) -> bool {
        self.quits
    }

    /// Takes what the last frame measured.
    pub fn saw(&mut self, seen: Seen) {
        self.seen = seen;
    }

    /// Lets the state follow what has happened: an answer that ended, a prompt that was taken.
    pub fn follow(&mut self, session: &Session) {
        if !self.is_busy(session) {
            self.stop_sent = false;
            if std::mem::take(&mut self.returns_to_prompt) {
                self.focus = Focus::Prompt;
            }
        }
        if !self.is_awaiting(session) {
            self.awaiting = None;
        }
    }

    pub(super) fn next_theme(&mut self) {
        self.theme = (self.theme + 1) % self.themes.len();
        self.dress_editor();
    }

    fn dress_editor(&mut self) {
        let theme = &self.themes[self.theme];
        self.editor.dress(theme);
    }

    /// Where keys go now.
    pub(super) fn context(&self) -> Context {
        match (self.help, self.focus) {
            (Some(_), _) => Context::Help,
            (None, Focus::Prompt) => Context::Prompt,
            (None, Focus::Browse) => Context::Browse,
        }
    }

    /// Whether an answer is under way or a prompt on its way.
    pub(super) fn is_busy(&self, session: &Session) -> bool {
        !self.has_ended && (session.is_generating() || self.is_awaiting(session))
    }

    pub(super) fn is_awaiting(&self, session: &Session) -> bool {
        let still = |sent: &Awaiting| session.turns().len() == sent.turns && session.notices_seen() == sent.notices;
        self.awaiting.as_ref().is_some_and(still) && session.failure().is_none() && self.lost.is_none()
    }

    /// Settings as the user wants them: as they are, or as asked for and not yet in force.
    pub(super) fn settings(&self, session: &Session) -> Settings {
        match self.wanted {
            Some((base, wanted)) if base == *session.settings() => wanted,
            _ => *session.settings(),
        }
    }

    /// The prompt for this text: all turns of the conversation, then the text.
    pub(super) fn compose(&mut self, session: &Session, text: String) -> Prompt {
        self.awaiting =
            Some(Awaiting { text: text.clone(), turns: session.turns().len(), notices: session.notices_seen() });
        if self.options.raw {
            return Prompt::Raw(text);
        }
        let message = |role, content| Message { role, content };
        let system = self.options.system.iter().cloned();
        let mut messages: Vec<_> = system.map(|s| message(Speaker::System, s)).collect();
        let start = self.conversations.last().copied().unwrap_or(0);
        for turn in session.turns().iter().skip(start) {
            let answer = turn.answer(Lane::Speculative);
            if !answer.tokens.is_empty() {
                messages.push(message(Speaker::User, turn.typed.clone()));
                messages.push(message(Speaker::Assistant, answer.text()));
            }
        }
        messages.push(message(Speaker::User, text));
        Prompt::Chat(messages)
    }

    /// The round on show: the selected one, else the newest.
    pub(super) fn round<'a>(&self, session: &'a Session) -> Option<&'a Round> {
        let selected = self.selected.and_then(|at| round_at(session, at));
        selected.or_else(|| live_round(session).and_then(|at| round_at(session, at)))
    }
}

/// A round by its indices.
pub(super) fn round_at(session: &Session, at: RoundAt) -> Option<&Round> {
    session.turns().get(at.turn)?.answer(Lane::Speculative).rounds.get(at.round)
}

/// The newest round of the speculative lane.
pub(super) fn live_round(session: &Session) -> Option<RoundAt> {
    rounds(session).next_back()
}

/// Indices of all rounds of the speculative lane, oldest first.
pub(super) fn rounds(session: &Session) -> impl DoubleEndedIterator<Item = RoundAt> {
    session.turns().iter().enumerate().flat_map(|(turn, t)| {
        let count = t.answer(Lane::Speculative).rounds.len();
        (0..count).map(move |round| RoundAt { turn, round })
    })
}
