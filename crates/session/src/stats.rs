//! Numbers of a lane, with the definition of each beside it.
//!
//! Invariant: every figure is a sum of measured events or a quotient of two such sums; a quotient whose divisor is zero
//! is `None`, never a made-up number. Only complete rounds count, and only rounds that no wait preceded contribute
//! times (see [`Round::follows_wait`]). The caller chooses the lane or turn, and how to draw it.

use draftscope_protocol::{NextKind, RoundOnDevice, RunSummary};

use super::by_context::ByContext;
use super::calibration::Calibration;
use super::contradiction::Evidence;
use super::copies::Copies;
use super::draft_vocab::DraftVocab;
use super::round::Round;
use super::sums::{count, merge_lists, ratio};
use super::thought::PartStats;

/// Sums over the complete rounds of a lane.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LaneStats {
    answers: u64,
    prefill_us: u64,
    rounds: u64,
    rounds_with_drafts: u64,
    drafted: u64,
    tested: u64,
    accepted: u64,
    bonus: u64,
    recovered: u64,
    committed: u64,
    reached_per_pos: Vec<u64>,
    offered_per_pos: Vec<u64>,
    accepted_per_pos: Vec<u64>,
    histogram: Vec<u64>,
    /// Copied drafts: proposed, tested and accepted.
    pub(super) copied: Copies,
    /// Drafts that the grammar forced.
    forced: u64,
    /// Tested drafts by the drafter's probability.
    pub(super) calibration: Calibration,
    pub(super) by_context: ByContext,
    longest_asked: u64,
    draft_us: u64,
    verify_us: u64,
    sample_us: u64,
    rollback_us: u64,
    decode_us: u64,
    timed_rounds: u64,
    timed_tokens: u64,
    /// Rounds that ran on a GPU, and what they did there.
    on_device: (u64, RoundOnDevice),
    /// The lane's clock after the newest round.
    clock_us: u64,
    /// Whether the engine has not reported what rounds drafted: they count without drafts.
    pub(super) is_uncounted: bool,
    pub(super) draft_vocab: DraftVocab,
    /// What speaks against the reported probabilities.
    evidence: Evidence,
    /// The rounds of thought, and of what follows it.
    pub(super) parts: [PartStats; 2],
}

impl LaneStats {
    pub(super) fn prefilled(took_us: u64) -> Self {
        Self { answers: 1, prefill_us: took_us, ..Self::default() }
    }

    /// Adds all of a complete round but its times; `in_thought` says whether its first token is thought.
    pub(super) fn add_counts(&mut self, round: &Round, in_thought: bool) {
        let drafted = round.drafts.len();
        self.add_part(round, in_thought);
        self.rounds += 1;
        self.committed += round.committed().len() as u64;
        self.add_device(round.device().map_or((0, RoundOnDevice::default()), |device| (1, device)));
        self.evidence.add(round);
        self.by_context.add(round);
        self.draft_vocab.add(round);
        if self.is_uncounted {
            return;
        }
        self.longest_asked = self.longest_asked.max(round.draft_len().into());
        // of a tree, how deep it goes; copies may follow the k drafts of another drafter
        let depth = (0..drafted).map(|index| round.depth(index) + 1).max().unwrap_or(0);
        let reached = depth.max(round.draft_len().into()).min(round.accepted() + 1);
        (0..reached).for_each(|position| count(&mut self.reached_per_pos, position));
        if drafted == 0 {
            return;
        }
        self.rounds_with_drafts += 1;
        self.drafted += drafted as u64;
        self.accepted += round.accepted() as u64;
        match round.next_kind() {
            Some(NextKind::Bonus) => self.bonus += 1,
            Some(NextKind::Recovered) => self.recovered += 1,
            _ => {}
        }
        self.copied = self.copied.and(Copies::of(round));
        self.forced += round.drafts.iter().filter(|draft| draft.forced).count() as u64;
        self.calibration.add(round);
        count(&mut self.histogram, round.accepted());
        if self.histogram.len() <= depth {
            self.histogram.resize(depth + 1, 0);
        }
        self.tested += round.verdict.as_ref().map_or(0, |verdict| verdict.tested().min(drafted) as u64);
        for position in 0..depth {
            count(&mut self.offered_per_pos, position);
            if self.accepted_per_pos.len() <= position {
                self.accepted_per_pos.push(0);
            }
            self.accepted_per_pos[position] += u64::from(position < round.accepted());
        }
    }

    pub(super) fn add_times(&mut self, round: &Round) {
        let took_us = round.clock_us().saturating_sub(self.clock_us);
        self.clock_us = self.clock_us.max(round.clock_us());
        if round.follows_wait {
            return;
        }
        self.timed_rounds += 1;
        self.timed_tokens += round.committed().len() as u64;
        self.draft_us = self.draft_us.saturating_add(round.draft_us());
        self.verify_us = self.verify_us.saturating_add(round.verify_us());
        self.sample_us = self.sample_us.saturating_add(round.sample_us());
        self.rollback_us = self.rollback_us.saturating_add(round.rollback_us());
        self.decode_us = self.decode_us.saturating_add(took_us);
    }

    fn add_device(&mut self, (rounds, work): (u64, RoundOnDevice)) {
        let (sum, all) = self.on_device;
        let work = RoundOnDevice { draft: all.draft.and(work.draft), verify: all.verify.and(work.verify) };
        self.on_device = (sum.saturating_add(rounds), work);
    }

    /// Rounds that ran on a GPU, and what they did there; `None` if there are none.
    #[must_use]
    pub fn on_device(&self) -> Option<(u64, RoundOnDevice)> {
        Some(self.on_device).filter(|(rounds, _)| *rounds > 0)
    }

    /// What speaks against the probabilities that the engine reports.
    #[must_use]
    pub fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    /// Adds another lane's or turn's sums; clocks of different turns add up.
    pub fn merge(&mut self, other: &Self) {
        self.add_device(other.on_device);
        let sums = [
            (&mut self.answers, other.answers),
            (&mut self.prefill_us, other.prefill_us),
            (&mut self.rounds, other.rounds),
            (&mut self.rounds_with_drafts, other.rounds_with_drafts),
            (&mut self.drafted, other.drafted),
            (&mut self.tested, other.tested),
            (&mut self.accepted, other.accepted),
            (&mut self.bonus, other.bonus),
            (&mut self.recovered, other.recovered),
            (&mut self.committed, other.committed),
            (&mut self.draft_us, other.draft_us),
            (&mut self.verify_us, other.verify_us),
            (&mut self.sample_us, other.sample_us),
            (&mut self.rollback_us, other.rollback_us),
            (&mut self.decode_us, other.decode_us),
            (&mut self.timed_rounds, other.timed_rounds),
            (&mut self.timed_tokens, other.timed_tokens),
        ];
        for (sum, part) in sums {
            *sum = sum.saturating_add(part);
        }
        self.copied = self.copied.and(other.copied);
        self.forced = self.forced.saturating_add(other.forced);
        self.calibration.merge(&other.calibration);
        self.by_context.merge(&other.by_context);
        self.draft_vocab.merge(other.draft_vocab);
        self.is_uncounted |= other.is_uncounted;
        self.longest_asked = self.longest_asked.max(other.longest_asked);
        self.evidence.merge(&other.evidence);
        self.parts.iter_mut().zip(&other.parts).for_each(|(sum, part)| sum.merge(part));
        merge_lists(&mut self.reached_per_pos, &other.reached_per_pos);
        merge_lists(&mut self.offered_per_pos, &other.offered_per_pos);
        merge_lists(&mut self.accepted_per_pos, &other.accepted_per_pos);
        merge_lists(&mut self.histogram, &other.histogram);
    }

    /// Complete rounds, with drafts or without.
    #[must_use]
    pub fn rounds(&self) -> u64 {
        self.rounds
    }

    /// Complete rounds in which at least one token was drafted.
    #[must_use]
    pub fn rounds_with_drafts(&self) -> u64 {
        self.rounds_with_drafts
    }

    /// Draft tokens proposed.
    #[must_use]
    pub fn drafted(&self) -> u64 {
        self.drafted
    }

    /// Draft tokens compared with the target: the accepted ones and the first rejected of a round.
    #[must_use]
    pub fn tested(&self) -> u64 {
        self.tested
    }

    /// Draft tokens that the rule accepted, also those after the end of the answer.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Drafts that were discarded: rejected ones, and those after them.
    #[must_use]
    pub fn discarded(&self) -> u64 {
        self.drafted.saturating_sub(self.accepted)
    }

    /// The target's own tokens after drafts that were all accepted.
    #[must_use]
    pub fn bonus(&self) -> u64 {
        self.bonus
    }

    /// The target's own tokens in place of rejected drafts.
    #[must_use]
    pub fn recovered(&self) -> u64 {
        self.recovered
    }

    /// Tokens output by rounds: accepted, bonus, recovered; the first token of an answer, which
    /// prefill gives, is not among them.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.committed
    }

    /// All tokens output: [`Self::committed`] and the first token of each answer.
    #[must_use]
    pub fn output_tokens(&self) -> u64 {
        self.committed + self.answers
    }

    /// Drafts that the grammar forced; they count in the other figures, too.
    #[must_use]
    pub fn forced(&self) -> u64 {
        self.forced
    }

    /// Accepted ÷ drafted.
    #[must_use]
    pub fn acceptance_rate(&self) -> Option<f64> {
        ratio(self.accepted, self.drafted)
    }

    /// Accepted ÷ tested.
    #[must_use]
    pub fn accepted_over_tested(&self) -> Option<f64> {
        ratio(self.accepted, self.tested)
    }

    /// Mean tokens per round: committed ÷ rounds, bonus and recovered included.
    #[must_use]
    pub fn mean_tokens_per_round(&self) -> Option<f64> {
        ratio(self.committed, self.rounds)
    }

    /// Rounds that drafted a token at position `i` (0 = first).
    #[must_use]
    pub fn offered_per_pos(&self) -> &[u64] {
        &self.offered_per_pos
    }

    /// Rounds whose draft length included position `i` and that had accepted all before it, whether or not the drafter
    /// proposed a token there.
    #[must_use]
    pub fn reached_per_pos(&self) -> &[u64] {
        &self.reached_per_pos
    }

    /// Rounds that accepted the token at position `i`; as long as [`Self::offered_per_pos`].
    #[must_use]
    pub fn accepted_per_pos(&self) -> &[u64] {
        &self.accepted_per_pos
    }

    /// The largest k of its rounds.
    pub(super) fn longest_asked(&self) -> usize {
        self.longest_asked as usize
    }

    /// Rounds with drafts by accepted count: index 0 to the longest draft.
    #[must_use]
    pub fn acceptance_histogram(&self) -> &[u64] {
        &self.histogram
    }

    /// Time of the prompts' passes.
    #[must_use]
    pub fn prefill_us(&self) -> u64 {
        self.prefill_us
    }

    /// Time of all draft steps.
    #[must_use]
    pub fn draft_us(&self) -> u64 {
        self.draft_us
    }

    /// Time of the target's passes over anchor + drafts.
    #[must_use]
    pub fn verify_us(&self) -> u64 {
        self.verify_us
    }

    /// Time from logits to distributions and candidates.
    #[must_use]
    pub fn sample_us(&self) -> u64 {
        self.sample_us
    }

    /// Time of cache rollbacks.
    #[must_use]
    pub fn rollback_us(&self) -> u64 {
        self.rollback_us
    }

    /// Complete rounds whose times count: those that no wait preceded.
    #[must_use]
    pub fn timed_rounds(&self) -> u64 {
        self.timed_rounds
    }

    /// Measured time of the [`Self::timed_rounds`], prefill not included; summed over turns.
    #[must_use]
    pub fn decode_us(&self) -> u64 {
        self.decode_us
    }

    /// Decode time that is neither draft nor verify (sampling, rollback and the rest).
    #[must_use]
    pub fn other_us(&self) -> u64 {
        self.decode_us.saturating_sub(self.draft_us).saturating_sub(self.verify_us)
    }

    /// Whether the engine reports the parts of a round: an attached engine may report only whole rounds.
    #[must_use]
    pub fn has_phases(&self) -> bool {
        self.decode_us == 0 || self.draft_us > 0 || self.verify_us > 0
    }

    /// All figures, with vLLM's names where vLLM has one.
    #[must_use]
    pub fn summary(&self) -> RunSummary {
        let seconds = |us: u64| us as f64 / 1e6;
        // a draft that a person had run again may be longer than k
        let num_spec_tokens = self.longest_asked.max(self.offered_per_pos.len() as u64);
        let mut acceptance_histogram = self.histogram.clone();
        if num_spec_tokens > 0 {
            acceptance_histogram.resize(num_spec_tokens as usize + 1, 0);
        }
        let known = |count: u64| self.counts_drafts().then_some(count);
        RunSummary {
            rounds: self.rounds,
            num_spec_steps: known(self.rounds_with_drafts),
            num_spec_tokens: known(num_spec_tokens),
            num_draft_tokens: known(self.drafted),
            num_accepted_draft_tokens: known(self.accepted),
            num_copied_draft_tokens: Some(self.copied.drafted).filter(|copied| *copied > 0),
            num_accepted_copied_draft_tokens: Some(self.copied.accepted).filter(|_| self.copied.drafted > 0),
            num_forced_draft_tokens: Some(self.forced).filter(|forced| *forced > 0),
            num_undraftable_tokens: self.draft_vocab.lacking(),
            draftable_share: self.draft_vocab.share(),
            mean_acceptance_length: ratio(self.accepted, self.rounds_with_drafts).map(|mean| 1.0 + mean),
            draft_acceptance_rate: self.acceptance_rate(),
            acceptance_histogram,
            offered_per_pos: self.offered_per_pos.clone(),
            accepted_per_pos: self.accepted_per_pos.clone(),
            prefill_seconds: seconds(self.prefill_us),
            decode_seconds: seconds(self.decode_us),
            tokens_per_second: self.tokens_per_second(),
            draft_seconds: self.has_phases().then(|| seconds(self.draft_us)),
            verify_seconds: self.has_phases().then(|| seconds(self.verify_us)),
            other_seconds: self.has_phases().then(|| seconds(self.other_us())),
        }
    }

    /// Tokens committed in [`Self::timed_rounds`] ÷ decode seconds.
    #[must_use]
    pub fn tokens_per_second(&self) -> Option<f64> {
        (self.timed_tokens > 0 && self.decode_us > 0).then(|| self.timed_tokens as f64 * 1e6 / self.decode_us as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Turn;
    use super::super::account::Account;
    use super::super::fixture::{Script, first_turn};
    use crate::fixture::fold;
    use crate::fold::Session;
    use draftscope_protocol::{Committed, Drafted, Event, EventKind, Lane, RoundStarted, Scored};

    /// Enough rounds and plain passes for every figure.
    fn long_turn() -> Vec<Event> {
        let mut script = Script::prompted("hi", "Hello");
        for _ in 0..40 {
            script.round(&[(" a", 0.6), (" b", 0.5)], &[(" a", 0.9), (" x", 0.8), (" c", 0.7)]);
            script.plain(" a");
        }
        script.events
    }

    /// The same, in which the engine waits within the second round of its own lane; the rounds of either lane with cold
    /// caches take `factor` times as long.
    fn waited(factor: u64) -> Vec<Event> {
        let mut events = Vec::new();
        let (mut cold, mut late_us) = ([false; 2], [0; 2]);
        for mut event in long_turn() {
            let lane = event.lane.index().min(1);
            match &mut event.kind {
                EventKind::Drafted(Drafted { took_us, .. }) if cold[lane] => *took_us *= factor,
                EventKind::Scored(Scored { verify_us, sample_us, .. }) if cold[lane] => {
                    late_us[lane] += (factor - 1) * (*verify_us + *sample_us);
                    (*verify_us, *sample_us) = (*verify_us * factor, *sample_us * factor);
                }
                EventKind::Committed(Committed { clock_us, .. }) => {
                    *clock_us += late_us[lane];
                    cold[lane] = false;
                }
                _ => {}
            }
            let is_paused = event.lane == Lane::Speculative
                && matches!(event.kind, EventKind::RoundStarted(RoundStarted { round: 2, .. }));
            events.push(event.clone());
            if is_paused {
                events.extend([EventKind::Paused, EventKind::Resumed].map(|kind| Event { kind, ..event.clone() }));
                cold = [true; 2];
            }
        }
        events
    }

    /// Every figure of speed that a session gives.
    fn figures(session: &Session) -> impl PartialEq + std::fmt::Debug + use<> {
        let turn: &Turn = &session.turns()[0];
        let of = |lane| {
            let stats = turn.answer(lane).stats();
            let sums = [stats.decode_us(), stats.draft_us(), stats.verify_us(), stats.sample_us(), stats.rollback_us()];
            (sums, stats.tokens_per_second(), turn.answer(lane).speed_series(4))
        };
        let lanes = [Lane::Speculative, Lane::Plain].map(of);
        let passes = turn.pass_costs().cloned();
        (lanes, session.speedup(), turn.speedup_series().to_vec(), Account::of_turn(turn), passes)
    }

    #[test]
    fn rounds_that_follow_a_wait_enter_no_speed_figure() {
        let (fast, slow) = (fold(&waited(1)), fold(&waited(50)));
        assert_eq!(figures(&fast), figures(&slow), "cold rounds took 50 times as long");
        assert!(slow.speedup().is_some() && slow.turns()[0].pass_costs().is_some(), "there are figures");
        let flagged = |lane| {
            let rounds = slow.turns()[0].answer(lane).rounds.iter();
            rounds.filter(|round| round.follows_wait).map(|round| round.number()).collect::<Vec<_>>()
        };
        assert_eq!((flagged(Lane::Speculative), flagged(Lane::Plain)), (vec![2], vec![2]));
        let stats = slow.turns()[0].answer(Lane::Speculative).stats();
        assert_eq!((stats.rounds(), stats.timed_rounds()), (40, 39));
        assert!(stats.tokens_per_second().is_some_and(|speed| speed > 50.0));
    }

    #[test]
    fn tokens_speed_clock_and_race_agree_where_the_engine_waited() {
        let session = fold(&waited(50));
        let turn = &session.turns()[0];
        let lanes = [Lane::Plain, Lane::Speculative];
        for lane in lanes {
            let own = turn.answer(lane).stats().committed() as f64 * 1e6 / turn.decode_us(lane) as f64;
            let speed = turn.tokens_per_second(lane).unwrap();
            assert!((own / speed - 1.0).abs() < 1e-4, "{lane:?}: {own} of {speed}");
        }
        let first = lanes.into_iter().min_by_key(|lane| turn.decode_us(*lane)).unwrap();
        let race = turn.race(&lanes).unwrap();
        assert_eq!(race.at_us, turn.decode_us(first), "the least clock of the table");
        assert_eq!(race.written[first.index()], turn.answer(first).tokens.len(), "it had written all by then");
    }

    #[test]
    fn a_wait_changes_no_count() {
        let counts = |events: &[Event]| {
            let session = fold(events);
            let stats = session.turns()[0].answer(Lane::Speculative).stats();
            let rates = (stats.acceptance_rate(), stats.mean_tokens_per_round());
            (stats.rounds(), stats.committed(), stats.drafted(), stats.accepted(), rates)
        };
        assert_eq!(counts(&waited(50)), counts(&long_turn()));
    }

    #[test]
    fn while_the_engine_is_stepped_no_round_is_timed() {
        let mut events = first_turn().events;
        let paused = Event { kind: EventKind::Paused, ..events[0].clone() };
        events.insert(1, paused);
        let session = fold(&events);
        let stats = session.stats(Lane::Speculative);
        assert_eq!((stats.rounds(), stats.timed_rounds(), stats.tokens_per_second()), (7, 0, None));
        assert_eq!((session.speedup(), Account::of_turn(&session.turns()[0])), (None, None));
    }
}
