//! Tokens of answers that are not over yet: llama-server counts the tokens of an answer when it ends, and its slots say
//! how far each has come.
//!
//! Invariant: the number never falls, and no token of an answer is in it twice.

use std::collections::BTreeMap;

use draftscope_protocol::{Counters, SlotState};

/// How far the answers of a server had come at the newest look.
#[derive(Clone, Debug, Default)]
pub(super) struct Live {
    /// Tokens so far.
    most: u64,
    /// Of each busy slot: its request and the tokens of it, at the newest look and the one before.
    slots: BTreeMap<u32, Progress>,
    before: BTreeMap<u32, Progress>,
    /// Time between both looks in milliseconds.
    between_ms: u64,
    at_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Progress {
    task: Option<u64>,
    tokens: u64,
}

impl Live {
    /// Tokens of all answers so far; none where nothing counts them.
    pub(super) fn tokens(&mut self, counters: &Counters, slots: &[SlotState]) -> Option<u64> {
        let busy = slots.iter().filter(|slot| slot.is_busy);
        let now: BTreeMap<u32, Progress> =
            busy.filter_map(|slot| Some((slot.id, Progress { task: slot.task, tokens: slot.decoded? }))).collect();
        let counted = match counters.generated {
            Some(over) => over.saturating_add(now.values().map(|progress| progress.tokens).sum()),
            None if slots.is_empty() => return None,
            // without counters: what is seen of each request, which is a little less than all of it
            None => now.iter().fold(self.most, |sum, (id, progress)| {
                let before = self.slots.get(id).filter(|before| is_same(before, progress));
                sum.saturating_add(progress.tokens - before.map_or(0, |before| before.tokens))
            }),
        };
        self.before = std::mem::replace(&mut self.slots, now);
        self.most = self.most.max(counted);
        Some(self.most)
    }

    /// Notes when the newest look was.
    pub(super) fn note_time(&mut self, at_ms: u64) {
        self.between_ms = at_ms.saturating_sub(self.at_ms);
        self.at_ms = at_ms;
    }

    /// Tokens per second of a slot's request between both looks.
    pub(super) fn speed(&self, slot: &SlotState) -> Option<f64> {
        let now = self.slots.get(&slot.id)?;
        let before = self.before.get(&slot.id).filter(|before| is_same(before, now))?;
        (self.between_ms > 0).then(|| (now.tokens - before.tokens) as f64 * 1e3 / self.between_ms as f64)
    }
}

/// Whether this is the same request, later.
fn is_same(before: &Progress, now: &Progress) -> bool {
    before.task == now.task && before.tokens <= now.tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(task: u64, decoded: u64) -> SlotState {
        SlotState { task: Some(task), is_busy: true, decoded: Some(decoded), ..SlotState::default() }
    }

    fn counted(tokens: u64) -> Counters {
        Counters { generated: Some(tokens), ..Counters::default() }
    }

    #[test]
    fn an_answer_counts_while_it_is_written_and_once() {
        let mut live = Live::default();
        assert_eq!(live.tokens(&counted(100), &[slot(1, 40)]), Some(140));
        assert_eq!(live.tokens(&counted(100), &[slot(1, 90)]), Some(190));
        let idle = SlotState { is_busy: false, decoded: Some(95), ..slot(1, 95) };
        assert_eq!(live.tokens(&counted(195), &[idle]), Some(195));
        // it ended between the two requests of a look, so that neither has it
        assert_eq!(live.tokens(&counted(195), &[slot(2, 10)]), Some(205));
        assert_eq!(live.tokens(&counted(195), &[]), Some(205));
    }

    #[test]
    fn without_counters_what_is_seen_of_each_request_counts() {
        let (mut live, none) = (Live::default(), Counters::default());
        assert_eq!(live.tokens(&none, &[]), None);
        live.note_time(1000);
        assert_eq!(live.tokens(&none, &[slot(1, 40)]), Some(40));
        assert_eq!(live.speed(&slot(1, 40)), None);
        live.note_time(3000);
        assert_eq!(live.tokens(&none, &[slot(1, 90)]), Some(90));
        assert_eq!(live.speed(&slot(1, 90)), Some(25.0));
        assert_eq!(live.tokens(&none, &[slot(2, 5)]), Some(95));
        assert_eq!(live.speed(&slot(2, 5)), None, "another request");
        assert_eq!(live.tokens(&none, &[slot(2, 3)]), Some(98), "a number that fell is a new request's");
    }
}
