//! The state of the what-if panel: which round, and what should have been different.
//!
//! Invariant: it contains only the changes, nothing computed from them; the reply is computed from the recording when
//! it is shown.

use crossterm::event::KeyEvent;

use draftscope_protocol::{MAX_DRAFT_LEN, VerifyRule};
use draftscope_session::{Round, WhatIf};

use crate::input::line_input::LineInput;
use draftscope_session::round_at::RoundAt;

/// A row of the panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Row {
    DraftLen,
    Rule,
    Temperature,
    Overrule,
    Place,
    Text,
}

impl Row {
    pub(crate) const ALL: &'static [Self] =
        &[Self::DraftLen, Self::Rule, Self::Temperature, Self::Overrule, Self::Place, Self::Text];
}

/// The form of a round.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WhatIfForm {
    pub(crate) at: RoundAt,
    pub(crate) row: usize,
    change: WhatIf,
    place: Option<usize>,
    text: LineInput,
}

impl WhatIfForm {
    pub(crate) fn new(at: RoundAt) -> Self {
        Self { at, row: 0, change: WhatIf::default(), place: None, text: LineInput::default() }
    }

    pub(crate) fn row(&self) -> Row {
        Row::ALL[self.row.min(Row::ALL.len() - 1)]
    }

    /// Whether keys are text.
    pub(crate) fn is_typing(&self) -> bool {
        self.row() == Row::Text
    }

    pub(crate) fn input(&mut self, key: KeyEvent) {
        if self.text.input(key) && self.place.is_none() {
            self.place = Some(0);
        }
    }

    /// The changes as a question to the recording.
    pub(crate) fn change(&self) -> WhatIf {
        let text = self.text.text();
        let replace = self.place.filter(|_| !text.is_empty()).map(|place| (place, text.to_owned()));
        WhatIf { replace, ..self.change.clone() }
    }

    /// Changes the chosen row.
    pub(crate) fn turn(&mut self, round: &Round, up: bool) {
        let drafts = round.drafts.len();
        match self.row() {
            Row::DraftLen => {
                let k = self.change.draft_len.unwrap_or(drafts);
                let k = if up { (k + 1).min(MAX_DRAFT_LEN.into()) } else { k.saturating_sub(1) };
                self.change.draft_len = (k != drafts).then_some(k);
            }
            Row::Rule => {
                let all = VerifyRule::ALL;
                let at = all.iter().position(|r| *r == self.change.rule.unwrap_or(round.rule)).unwrap_or(0);
                let rule = all[(at + if up { 1 } else { all.len() - 1 }) % all.len()];
                self.change.rule = (rule != round.rule).then_some(rule);
            }
            Row::Temperature => {
                let was = round.sampling.temperature;
                let tenths = (self.change.temperature.unwrap_or(was) * 10.0).round() + if up { 1.0 } else { -1.0 };
                let now = (tenths / 10.0).clamp(0.0, 2.0);
                self.change.temperature = ((now - was).abs() > 0.01).then_some(now);
            }
            Row::Overrule => self.change.overrule = next_place(self.change.overrule, drafts, up),
            Row::Place => self.place = next_place(self.place, drafts, up),
            Row::Text => {}
        }
    }

    /// k; if the drafter proposed fewer tokens than requested, both numbers.
    fn draft_len(&self, round: &Round) -> String {
        let (drafts, asked) = (round.drafts.len(), usize::from(round.draft_len()));
        match self.change.draft_len {
            Some(k) => k.to_string(),
            None if drafts < asked && !round.is_tree() => format!("{drafts} ({asked} asked for)"),
            None => drafts.to_string(),
        }
    }

    /// Name and value of a row.
    pub(crate) fn shown(&self, row: Row, round: &Round) -> (&'static str, String) {
        let place = |place: Option<usize>| place.map_or_else(|| "–".to_owned(), |at| format!("{}", at + 1));
        match row {
            Row::DraftLen => ("k", self.draft_len(round)),
            Row::Rule => ("rule", self.change.rule.unwrap_or(round.rule).to_string()),
            Row::Temperature => {
                ("temperature", format!("{:.1}", self.change.temperature.unwrap_or(round.sampling.temperature)))
            }
            Row::Overrule => ("overrule draft", place(self.change.overrule)),
            Row::Place => ("replace draft", place(self.place)),
            Row::Text => ("by (type it)", format!("{}▏", self.text.text())),
        }
    }
}

/// `None`, first, second …, last, `None`.
fn next_place(place: Option<usize>, count: usize, up: bool) -> Option<usize> {
    match (place, up) {
        (None, true) => (count > 0).then_some(0),
        (None, false) => count.checked_sub(1),
        (Some(at), true) => (at + 1 < count).then_some(at + 1),
        (Some(at), false) => at.checked_sub(1),
    }
}
