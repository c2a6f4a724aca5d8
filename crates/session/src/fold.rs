//! The fold: what each event changes in a session.

use std::collections::BTreeMap;
use std::sync::Arc;

use draftscope_protocol::{Ability, Costs, Event, EventKind, Header, Lane, Piece, Settings};

use super::chosen::ChosenDraftLen;
use super::kept_rounds::KeptRounds;
use super::loading::Loading;
use super::marks::Mark;
use super::memo::Memo;
use super::notices::Notices;
use super::pass_costs::has_ceiling;
use super::phase::Phase;
use super::sent_prompt::SentPrompt;
use super::settled::Settled;
use super::stats::LaneStats;
use super::turn::{Answer, Turn};

/// Turns kept, and bytes of their prompts: far more than people type, and than a suite has.
const MAX_TURNS: usize = 1 << 16;
const MAX_TYPED: usize = 64 << 20;

/// Everything that happened in a run so far.
#[derive(Clone, Debug, Default)]
pub struct Session {
    pub(super) header: Option<Box<Header>>,
    pub(super) settings: Settings,
    pub(super) turns: Vec<Turn>,
    /// Index of each turn by its number.
    pub(super) numbers: Arc<BTreeMap<u32, usize>>,
    pub(super) kept: KeptRounds,
    /// Statistics of turns that were dropped, by lane.
    pub(super) dropped: [LaneStats; Lane::ALL.len()],
    /// Those of the first turns, which nothing works on any more.
    pub(super) settled: Settled,
    pub(super) sent: Arc<SentPrompt>,
    /// Of all prompts.
    pub(super) typed_bytes: usize,
    pub(super) lanes: [LaneState; Lane::ALL.len()],
    pub(super) paused: bool,
    pub(super) loading: Option<Loading>,
    pub(super) failure: Option<String>,
    pub(super) notices: Notices,
    pub(super) events: u64,
    pub(super) costs: Option<Costs>,
    /// Tokens of the draft that the person is asked for.
    pub(super) asked: Option<u8>,
    pub(super) chosen: Option<ChosenDraftLen>,
    pub(super) marks: Vec<Mark>,
    /// Of the newest event.
    pub(super) last: (u64, u64),
    pub(super) ended: bool,
}

/// Where a lane stands.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LaneState {
    pub(super) phase: Phase,
    /// Index of the turn it works on.
    pub(super) turn: Option<usize>,
    /// Whether the engine has waited since this lane last ended a round.
    pub(super) is_cold: bool,
}

impl Session {
    /// A session to which nothing has happened.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A session for a screen: rounds that ended long ago keep fewer candidates, and those before
    /// [`LISTED_ROUNDS`](super::LISTED_ROUNDS) none.
    #[must_use]
    pub fn for_screen() -> Self {
        Self { kept: KeptRounds::newest(), ..Self::default() }
    }

    /// A session for a page of so many rounds: later ones and those of other lanes keep no candidates.
    #[must_use]
    pub fn of_first_rounds(rounds: usize) -> Self {
        Self { kept: KeptRounds::first(rounds), ..Self::default() }
    }

    /// Takes the next event. Events about a round or turn that was never announced change nothing.
    pub fn apply(&mut self, event: &Event) {
        if matches!(event.kind, EventKind::Started { .. }) {
            *self = Self { kept: self.kept.emptied(), ..Self::default() }; // a run begins, also one that is played again
        }
        self.events = self.events.saturating_add(1);
        self.last = (event.seq, event.at_us);
        match &event.kind {
            EventKind::Loading { stage, done, total } => {
                self.loading = Some(Loading { stage: stage.clone(), done: *done, total: *total });
            }
            EventKind::Started { header } => {
                self.settings = header.settings;
                self.header = Some(header.clone());
                self.loading = None;
            }
            EventKind::SettingsChanged { settings } => self.change(*settings),
            EventKind::CostsKnown { costs, .. } => self.costs = Some(costs.clone()),
            EventKind::DraftLenChosen { .. } => self.choose(&event.kind),
            EventKind::DraftAsked { draft_len } => self.asked = Some(*draft_len),
            EventKind::Paused => {
                self.paused = true;
                let is_cold = self.waits();
                self.lanes.iter_mut().for_each(|lane| lane.is_cold |= is_cold);
            }
            EventKind::Resumed => self.paused = false,
            EventKind::Notice { message } => self.notices.add(message.clone()),
            EventKind::Failed { message } => self.fail(message.clone()),
            EventKind::Noted { .. } | EventKind::Bookmarked { .. } => self.mark(event),
            EventKind::Ended { .. } => self.ended = true,
            _ => self.apply_to_lane(event.lane, &event.kind),
        }
    }

    fn change(&mut self, settings: Settings) {
        let before = std::mem::replace(&mut self.settings, settings);
        let is_running = self.lanes[Lane::Speculative.index()].phase != Phase::Idle;
        if is_running
            && !before.makes_rounds_like(&settings)
            && let Some(answer) = self.working_answer(Lane::Speculative)
        {
            answer.change(settings);
        }
    }

    fn apply_to_lane(&mut self, lane: Lane, kind: &EventKind) {
        if lane == Lane::Speculative {
            self.asked = None; // whatever comes next, the round has gone on
        }
        match kind {
            EventKind::Prompted { turn, text, branch } => {
                let Some(index) = self.turn_index(*turn) else { return };
                self.typed_bytes = self.typed_bytes.saturating_add(text.len());
                if self.typed_bytes <= MAX_TYPED {
                    self.turns[index].typed.clone_from(text);
                }
                self.settle_turns();
                self.turns[index].branch = *branch;
                self.turns[index].begun = self.settings;
                self.lanes[lane.index()] =
                    LaneState { phase: Phase::Prefilling, turn: Some(index), ..self.lanes[lane.index()] };
            }
            EventKind::Prefilled(prefilled) => {
                let Some(index) = self.turn_index(prefilled.turn) else { return };
                self.keep_sent(lane, &prefilled.prompt);
                self.settled.unsettle(index);
                let kept = self.turns[index].branch.map_or(0, |branch| branch.kept as usize);
                let mut answer = Answer::prefilled(prefilled, kept, &self.settings.of_lane(lane));
                if lane == Lane::Speculative && self.engine().is_some_and(|engine| !engine.draft_counts.is_live()) {
                    answer.leave_uncounted();
                }
                if !self.turns[index].begun.makes_rounds_like(&self.settings) {
                    answer.change(self.settings); // since the prompt was sent
                }
                self.turns[index].answers[lane.index()] = Arc::new(answer);
                self.turns[index].measured = Memo::default();
                self.turns[index].is_attached = self.engine().is_some();
                self.turns[index].has_other_plain = self.engine().is_some_and(|engine| engine.no_speedup.is_some());
                self.turns[index].has_ceiling = self.header.as_ref().is_some_and(|header| has_ceiling(&header.backend));
                self.lanes[lane.index()] =
                    LaneState { phase: Phase::Between, turn: Some(index), is_cold: self.waits() };
            }
            EventKind::RowAsked { turn, index, row } => {
                let Some(turn) = self.turns.iter_mut().rfind(|known| known.number == *turn) else { return };
                Arc::make_mut(&mut turn.answers[lane.index()]).set_row(*index as usize, row.clone());
            }
            EventKind::LaneContinued { turn } => self.go_on(lane, *turn),
            EventKind::Finished { reason } => {
                if let Some(answer) = self.working_answer(lane) {
                    answer.finished = Some(*reason);
                }
                self.lanes[lane.index()].phase = Phase::Idle;
            }
            _ => self.apply_to_answer(lane, kind),
        }
    }

    fn apply_to_answer(&mut self, lane: Lane, kind: &EventKind) {
        let (settings, seq) = (self.settings.of_lane(lane), self.events);
        let is_cold = self.lanes[lane.index()].is_cold;
        let waits = self.waits();
        let Some(answer) = self.working_answer(lane) else {
            return;
        };
        if is_cold {
            answer.note_wait(); // before a commit, which enters the figures
        }
        let phase = answer.apply(kind, &settings, seq);
        if is_cold {
            answer.note_wait(); // the round that begins
        }
        if phase.is_some() && matches!(kind, EventKind::RoundStarted(_)) {
            self.release_old_rounds(lane);
        }
        if let Some(phase) = phase {
            let lane = &mut self.lanes[lane.index()];
            lane.phase = phase;
            // the next round finds the caches in the state in which this one left them
            lane.is_cold &= waits || phase != Phase::Between;
        }
    }

    /// Whether the engine waits. An engine that cannot pause goes on, and only the display waits.
    fn waits(&self) -> bool {
        self.paused && self.header.as_ref().is_none_or(|header| header.can(Ability::Pause))
    }

    pub(super) fn working_answer(&mut self, lane: Lane) -> Option<&mut Answer> {
        let index = self.lanes[lane.index()].turn?;
        self.settled.unsettle(index);
        let turn = self.turns.get_mut(index)?;
        turn.measured = Memo::default();
        Some(Arc::make_mut(&mut turn.answers[lane.index()]))
    }

    /// Index of the turn with this number; opens it if it is new and there are not too many.
    fn turn_index(&mut self, number: u32) -> Option<usize> {
        if let Some(index) = self.numbers.get(&number) {
            return Some(*index);
        }
        (self.turns.len() < MAX_TURNS).then(|| {
            Arc::make_mut(&mut self.numbers).insert(number, self.turns.len());
            self.turns.push(Turn::new(number));
            self.turns.len() - 1
        })
    }

    fn choose(&mut self, kind: &EventKind) {
        let EventKind::DraftLenChosen { from, draft_len, expected, exploring, reason } = kind else {
            return;
        };
        self.settings.draft_len = *draft_len;
        self.chosen = Some(ChosenDraftLen {
            from: *from,
            draft_len: *draft_len,
            expected: expected.clone(),
            exploring: *exploring,
            reason: reason.clone(),
        });
    }

    /// Keeps the prompt of a `prefilled` event; other lanes get the same one.
    fn keep_sent(&mut self, lane: Lane, prompt: &[Piece]) {
        if lane == Lane::Speculative {
            self.sent = Arc::new(SentPrompt::new(prompt));
        }
    }

    fn fail(&mut self, message: String) {
        self.failure = Some(message);
        for lane in &mut self.lanes {
            lane.phase = Phase::Idle;
        }
    }
}
