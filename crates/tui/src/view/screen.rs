//! What every panel reads, and the hints and frames that panels share.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Clear;

use crate::app::App;
use crate::input::action::Action;
use crate::input::keymap::Context;
use crate::look::display::{DisplayMode, Marks};
use crate::look::theme::{Role, Theme};
use crate::widgets::cell::cut;
use draftscope_protocol::{EngineInfo, Lane, Settings};
use draftscope_session::{PassId, Round, Session, SettingsSpan, Timeline, Turn};

use super::panel::{Panel, boxed};
use crate::view::chat::transcript_cache::TranscriptCache;

/// Columns and rows; below this size the screen only says that it is too small.
pub const MIN_SIZE: (u16, u16) = (60, 16);

/// Everything a panel reads.
#[derive(Clone, Copy)]
pub(super) struct Screen<'a> {
    pub(super) time: &'a Timeline,
    /// What is shown, the past or the present.
    pub(super) session: &'a Session,
    pub(super) app: &'a App,
    pub(super) theme: &'a Theme,
    /// Lines of the transcript laid out before.
    pub(super) lines: &'a TranscriptCache,
}

impl<'a> Screen<'a> {
    /// The shown turn: that of the selected round, else the newest.
    pub(super) fn turn(&self) -> Option<&'a Turn> {
        let selected = self.app.place.selected.and_then(|at| self.session.turns().get(at.turn));
        selected.or_else(|| self.session.turn().filter(|_| !self.app.begins_anew(self.session)))
    }

    /// The settings of the answer on show, in force at the selected round, else at the newest one; without an answer
    /// those of the run.
    pub(super) fn settings(&self) -> Settings {
        let Some(turn) = self.turn() else { return *self.session.settings() };
        let round = self.app.place.selected.and_then(|at| at.round);
        let of_round = |span: &SettingsSpan| round.is_none_or(|round| span.rounds.start <= round);
        let is_newest = turn.settings_spans().last().is_none_or(of_round);
        if is_newest
            && turn.answer(Lane::Speculative).finished.is_none()
            && self.session.turn().is_some_and(|newest| newest.number == turn.number)
        {
            return *self.session.settings(); // it runs under these
        }
        let span = turn.settings_spans().iter().rfind(|span| of_round(span));
        span.map_or(turn.begun, |span| Settings {
            rival: turn.begun.rival,
            baseline: turn.begun.baseline,
            ..span.settings
        })
    }

    /// The engine of somebody else, if one is attached.
    pub(super) fn engine(&self) -> Option<&'a EngineInfo> {
        self.session.header()?.engine.as_ref()
    }

    /// The lane beside the run's own: the rival's if there is one, else the plain one.
    pub(super) fn beside(&self) -> Lane {
        let wrote = |lane: Lane| self.turn().is_some_and(|turn| !turn.answer(lane).tokens.is_empty());
        let races = wrote(Lane::Rival) || (!wrote(Lane::Plain) && self.session.settings().rival.is_some());
        if races { Lane::Rival } else { Lane::Plain }
    }

    /// Whether fates have signs, because styles do not show them or because they are requested.
    pub(super) fn has_signs(&self) -> bool {
        match self.app.options.marks {
            Marks::Auto => self.app.options.ascii || !self.theme.tells_fates(),
            Marks::Always => true,
            Marks::Never => false,
        }
    }

    /// Whether answers follow a grammar that this engine applies: of one that a server applies no effect is known.
    pub(super) fn has_own_grammar(&self) -> bool {
        let header = self.session.header().filter(|header| header.engine.is_none());
        header.is_some_and(|header| header.grammar.is_some())
    }

    /// What the shown turn shows of discarded drafts.
    pub(super) fn display(&self) -> DisplayMode {
        self.turn().map_or_else(|| self.app.place.display.unwrap_or_default(), |turn| self.display_of(turn))
    }

    /// What a turn shows of them.
    pub(super) fn display_of(&self, turn: &Turn) -> DisplayMode {
        self.app.display_of(self.time.live(), turn)
    }

    /// Smallest width at which the Chat page has plots, and the tree of the shown round, beside the answer.
    pub(super) fn plots_from(&self) -> u16 {
        if self.app.place.split { 110 } else { 76 }
    }

    /// The effects of keys in a context, by the first key in the keymap: "↑↓ choose · Esc closes".
    pub(super) fn keys(&self, context: Context, hints: &[(&[Action], &str)]) -> String {
        let hint = |(actions, does): &(&[Action], &str)| {
            let labels: Vec<_> = actions.iter().map(|action| self.app.keymap.label(context, *action)).collect();
            let are_signs = labels.iter().all(|label| label.chars().count() == 1);
            format!("{} {does}", labels.join(if are_signs { "" } else { " " }))
        };
        hints.iter().map(hint).collect::<Vec<_>>().join(" · ")
    }

    /// A key and what it does, for the right end of a title.
    pub(super) fn hint(&self, action: Action, does: &str) -> Vec<Span<'static>> {
        let key = format!(" {} ", self.app.key(action));
        vec![Span::styled(key, self.theme[Role::Key]), Span::styled(format!("{does} "), self.dim_title())]
    }

    /// Dim text in a title.
    pub(super) fn dim_title(&self) -> Style {
        self.theme[Role::TextDim].remove_modifier(self.theme[Role::PanelTitle].add_modifier)
    }

    /// A panel: of a page for [`framed`](super::panel::framed), or for a box.
    pub(super) fn panel(&self, title: impl Into<Line<'static>>) -> Panel {
        Panel::new(title, self.theme[Role::PanelBorder], self.theme[Role::PanelTitle])
    }

    /// Draws a box with the focus over whatever is there; what is inside of it.
    pub(super) fn over(&self, panel: Panel, area: Rect, frame: &mut Frame) -> Rect {
        frame.render_widget(Clear, area);
        frame.buffer_mut().set_style(area, self.theme[Role::Text]);
        boxed(panel.border_style(self.theme[Role::PanelFocused]), area, frame)
    }

    /// How a number looks that a page is about.
    pub(super) fn hero_style(&self, role: Role) -> Style {
        self.theme[role].patch(self.theme[Role::Hero])
    }
}

pub(super) const CHOOSE: &[Action] = &[Action::Up, Action::Down];
pub(super) const CHANGE: &[Action] = &[Action::Left, Action::Right];
pub(super) const LEAVE: &[Action] = &[Action::Leave];

/// The lines of a list for a panel of this size; where there is no room for all of them, the last one says how many are
/// left out.
pub(super) fn listed(screen: Screen, mut lines: Vec<Line<'static>>, area: Rect) -> Vec<Line<'static>> {
    let over = lines.len().saturating_sub(usize::from(area.height).saturating_sub(1));
    if lines.len() > area.height.into() && area.height > 1 {
        lines.truncate(lines.len() - over);
        let text = format!("… {over} more: {} shows all", screen.app.key(Action::Zoom));
        lines.push(Line::styled(cut(&text, area.width.into()), screen.theme[Role::TextDim]));
    }
    lines
}

/// The bottom of a panel of choices.
pub(super) fn keys_of_choices(screen: Screen) -> Line<'static> {
    let keys = screen.keys(Context::Panel, &[(CHOOSE, "choose"), (CHANGE, "change"), (LEAVE, "closes")]);
    Line::styled(format!(" {keys} "), screen.theme[Role::TextDim])
}

/// Signs of the marks of a round or a prompt's pass, each once.
pub(super) fn marked(screen: Screen, round: &Round) -> String {
    let marks = screen.time.live().marks();
    let place = Some(PassId::of(round));
    let has = |is_bookmark| marks.iter().any(|m| m.place == place && m.is_bookmark == is_bookmark);
    [(true, '★'), (false, '✎')].into_iter().filter(|(kind, _)| has(*kind)).map(|(_, sign)| sign).collect()
}
