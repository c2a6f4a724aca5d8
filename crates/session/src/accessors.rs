//! What a session says of the run: its header, settings, turns and state.

use super::chosen::ChosenDraftLen;
use super::fold::Session;
use super::sent_prompt::SentPrompt;
use super::{Loading, Phase, Turn};
use draftscope_protocol::{Costs, DraftLenMode, DrafterKind, EngineInfo, Header, Lane, Settings};

impl Session {
    /// Whether the first token of a turn's answer is the last one of its prompt: of a turn that judges a draft of the user, which
    /// begins at that token. It is no part of what was written.
    #[must_use]
    pub fn begins_in_prompt(&self, turn: &Turn, lane: Lane) -> bool {
        let Some(branch) = turn.branch.filter(|branch| branch.kept == 0) else { return false };
        let Some(first) = self.turns().iter().find(|other| other.number == branch.turn) else { return false };
        let (whole, own) = (&first.answer(Lane::Speculative).prompt, turn.answer(lane));
        let begins = own.tokens.first().map(|token| token.piece.id);
        whole.split_last().is_some_and(|(last, before)| Some(*last) == begins && own.prompt == before)
    }

    /// The run's header, once it has begun.
    #[must_use]
    pub fn header(&self) -> Option<&Header> {
        self.header.as_deref()
    }

    /// The engine of somebody else that runs the models.
    pub(super) fn engine(&self) -> Option<&EngineInfo> {
        self.header.as_ref()?.engine.as_ref()
    }

    /// Current settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The requested drafter, as far as it exists; `None` for plain decoding.
    #[must_use]
    pub fn drafter(&self) -> Option<DrafterKind> {
        self.available(self.settings.drafter)
    }

    /// A drafter, as far as it exists: of two the first one drafts alone where the second is missing. `None` for plain
    /// decoding.
    #[must_use]
    pub fn available(&self, asked: DrafterKind) -> Option<DrafterKind> {
        let header = self.header.as_ref()?;
        let is_there = |wanted: &DrafterKind| {
            header.drafters.iter().chain(&header.drafter).any(|info| info.kind == *wanted || info.kind == asked)
        };
        // one that an attached engine does not name is no chain of ours
        let own = asked.chain().last().or((asked == DrafterKind::Unknown).then_some(&asked))?;
        if is_there(own) {
            return Some(asked);
        }
        asked.chain().first().copied().filter(is_there)
    }

    /// Most draft tokens that the engine waits for the person to type; `None` if it does not wait.
    #[must_use]
    pub fn draft_asked(&self) -> Option<u8> {
        self.asked
    }

    /// Measured pass costs, once the engine has sent them.
    #[must_use]
    pub fn costs(&self) -> Option<&Costs> {
        self.costs.as_ref()
    }

    /// All turns, oldest first.
    #[must_use]
    pub fn turns(&self) -> &[Turn] {
        &self.turns
    }

    /// The newest turn.
    #[must_use]
    pub fn turn(&self) -> Option<&Turn> {
        self.turns.last()
    }

    /// What a lane is doing.
    #[must_use]
    pub fn phase(&self, lane: Lane) -> Phase {
        self.lanes[lane.index()].phase
    }

    /// Whether a lane works on an answer (also while it is paused).
    #[must_use]
    pub fn is_generating(&self) -> bool {
        self.lanes.iter().any(|lane| lane.phase != Phase::Idle)
    }

    /// Whether the engine is paused between two phases.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Progress of loading; `None` once the run has begun.
    #[must_use]
    pub fn loading(&self) -> Option<&Loading> {
        self.loading.as_ref()
    }

    /// Why the engine cannot go on.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// The last [`MAX_NOTICES`](super::MAX_NOTICES) notices, oldest first.
    pub fn notices(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.notices.iter()
    }

    /// How many notices there were in total.
    #[must_use]
    pub fn notices_seen(&self) -> u64 {
        self.notices.seen()
    }

    /// `at_us` of the newest event.
    #[must_use]
    pub fn at_us(&self) -> u64 {
        self.last.1
    }

    /// Whether the run has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// How many events of the run were applied.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The k that the engine chose last; `None` if the user sets k.
    #[must_use]
    pub fn chosen(&self) -> Option<&ChosenDraftLen> {
        self.chosen.as_ref().filter(|_| self.settings.draft_len_mode == DraftLenMode::Auto)
    }

    /// The newest prompt as the model gets it.
    #[must_use]
    pub fn sent_prompt(&self) -> &SentPrompt {
        &self.sent
    }
}
