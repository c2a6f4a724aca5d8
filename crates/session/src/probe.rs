//! A probe run as the basis of simulations: what every k, p-min and policy would have done.
//!
//! A probe run contains the plain answer and, at each of its positions, the chain that the drafter would have proposed
//! there. Under greedy decoding a lossless rule commits the plain answer whatever is drafted, so a round that begins at
//! a position drafts exactly the recorded chain and accepts exactly the part that agrees with the answer. Of a recorded
//! tree that is the path that agrees with it; a tree is simulated only as recorded, since another k or budget grows
//! another tree. Invariant: counts are those of a real run, not estimates; time is not simulated but summed up from
//! measured [`Costs`].

use serde::Serialize;

use draftscope_protocol::policy::{DraftProgress, DraftStopRule, Observation, Policy};
use draftscope_protocol::{Costs, MAX_DRAFT_LEN, ProbedDraft, TokenId};

use super::Answer;

/// Ranks that are counted separately: 1 to 4.
pub const RANKS: usize = 4;

/// The plain answer and a chain for each position.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeRun {
    tokens: Vec<TokenId>,
    /// `chains[i]` was drafted with `tokens[i]` as the anchor.
    chains: Vec<Vec<ProbedDraft>>,
}

/// The draft that a simulated round requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asked {
    /// k.
    pub draft_len: usize,
    /// Probability below which a draft is dropped and ends the chain.
    pub p_min: f32,
    /// Another rule that ends the chain, if the engine chooses.
    pub stop_rule: Option<DraftStopRule>,
}

/// Result of one simulated round.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Played {
    /// Requested k.
    pub asked: usize,
    /// Drafts of the chain, limited by k and p-min.
    pub drafted: usize,
    /// Drafts made and dropped because of p-min: 0 or 1.
    pub dropped: usize,
    /// Drafts that agree with the answer.
    pub accepted: usize,
    /// Tokens committed.
    pub committed: usize,
    /// The drafter's probability of each draft, if it has one.
    pub sure: [Option<f32>; MAX_DRAFT_LEN as usize],
}

/// Sums over simulated rounds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Simulated {
    /// Rounds.
    pub rounds: u64,
    /// Draft tokens proposed.
    pub drafted: u64,
    /// Draft tokens made and dropped because of p-min; they cost as much as others.
    pub dropped: u64,
    /// Draft tokens accepted and output.
    pub accepted: u64,
    /// Tokens committed.
    pub committed: u64,
    /// Rounds that drafted a token at position `i` (0 = first).
    pub offered_per_pos: Vec<u64>,
    /// Rounds that accepted and output the token at position `i`.
    pub accepted_per_pos: Vec<u64>,
    /// Rounds by rows verified: index 0 is one row.
    pub rounds_by_rows: Vec<u64>,
    /// Rounds in which the drafter ran.
    pub drafting_rounds: u64,
    /// Tokens that the drafter had to process later because a round before drafted nothing.
    pub settled: u64,
}

/// How often the target's choice was the drafter's first, second … at one depth.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RankTally {
    /// Positions of the chain that were reached: all drafts before were right.
    pub reached: u64,
    /// By rank, the drafter's best first.
    pub by_rank: [u64; RANKS],
}

impl Asked {
    /// How many drafts of a chain are proposed, and whether one more was made and dropped.
    fn end(&self, chain: &[ProbedDraft]) -> (usize, bool) {
        let mut progress = self.stop_rule.clone().map(DraftProgress::new);
        for (made, draft) in chain.iter().enumerate() {
            let Some(q) = draft.q else { continue };
            if progress.as_ref().is_some_and(|progress| !progress.goes_on()) {
                return (made, false);
            }
            if q < progress.as_ref().map_or(0.0, DraftProgress::p_min).max(self.p_min) {
                return (made, true);
            }
            progress.iter_mut().for_each(|progress| progress.take(q));
        }
        (chain.len(), false)
    }
}

impl ProbeRun {
    /// From an answer of a probe run; `None` if it is another kind of run or was cut short.
    #[must_use]
    pub fn of(answer: &Answer) -> Option<Self> {
        let rounds: Vec<_> = answer.rounds.iter().filter(|round| round.is_complete()).collect();
        let is_probe = !answer.tokens.is_empty() && rounds.iter().all(|round| round.drafts.is_empty());
        (is_probe && rounds.len() + 1 == answer.tokens.len()).then(|| Self {
            tokens: answer.tokens.iter().map(|token| token.piece.id).collect(),
            chains: rounds
                .iter()
                .map(|round| round.probed.as_ref().map(|probed| probed.drafts.clone()).unwrap_or_default())
                .collect(),
        })
    }

    /// From the answer's tokens and the chain at each of them but the last.
    #[must_use]
    pub fn new(tokens: Vec<TokenId>, mut chains: Vec<Vec<ProbedDraft>>) -> Self {
        chains.resize(tokens.len().saturating_sub(1), Vec::new());
        Self { tokens, chains }
    }

    /// Whether a tree was drafted at any position.
    #[must_use]
    pub fn has_tree(&self) -> bool {
        self.chains.iter().flatten().any(|draft| draft.row.is_some())
    }

    /// Longest chain; of trees, the largest.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.chains.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// Simulates the answer with the draft that `choose` requests for each round, given the result of the round before.
    pub fn play(&self, choose: &mut dyn FnMut(Option<Played>) -> Asked) -> Simulated {
        let mut sum = Simulated::default();
        let (mut at, mut last, mut waiting) = (0, None, 0);
        while at + 1 < self.tokens.len() {
            let played = self.round(at, &choose(last));
            sum.add(&played, &mut waiting);
            at += played.committed;
            last = Some(played);
        }
        sum
    }

    /// Simulates the answer with one k.
    #[must_use]
    pub fn fixed(&self, draft_len: usize, p_min: f32) -> Simulated {
        self.play(&mut |_| Asked { draft_len, p_min, stop_rule: None })
    }

    fn round(&self, at: usize, asked: &Asked) -> Played {
        if self.chains[at].iter().any(|draft| draft.row.is_some()) {
            return self.tree(at, asked.draft_len);
        }
        let chain = &self.chains[at][..asked.draft_len.min(self.chains[at].len())];
        let (drafted, dropped) = asked.end(chain);
        let rest = &self.tokens[at + 1..];
        let drafts = &chain[..drafted];
        let accepted = drafts.iter().zip(rest).take_while(|(draft, token)| draft.token.id == **token).count();
        let mut sure = <[Option<f32>; MAX_DRAFT_LEN as usize]>::default();
        sure.iter_mut().zip(drafts).for_each(|(sure, draft)| *sure = draft.q);
        let committed = (accepted + 1).min(rest.len());
        Played { asked: asked.draft_len, drafted, dropped: dropped.into(), accepted, committed, sure }
    }

    /// A round with the tree that was recorded at its anchor.
    fn tree(&self, at: usize, asked: usize) -> Played {
        let nodes = if asked == 0 { &[][..] } else { &self.chains[at] };
        let rest = &self.tokens[at + 1..];
        let (mut row, mut accepted) = (0, 0);
        let child = |row: usize, token: &TokenId| {
            nodes.iter().position(|node| node.row.map(usize::from) == Some(row) && node.token.id == *token)
        };
        while let Some(next) = rest.get(accepted).and_then(|token| child(row, token)) {
            (row, accepted) = (next + 1, accepted + 1);
        }
        let committed = (accepted + 1).min(rest.len());
        Played { asked, drafted: nodes.len(), accepted, committed, ..Played::default() }
    }

    /// How often the drafter's candidates included the target's choice, by depth.
    #[must_use]
    pub fn ranks(&self) -> Vec<RankTally> {
        let mut tallies = vec![RankTally::default(); self.depth()];
        for (at, chain) in self.chains.iter().enumerate() {
            for (tally, (draft, token)) in tallies.iter_mut().zip(chain.iter().zip(&self.tokens[at + 1..])) {
                tally.reached += 1;
                let rank = match draft.top.find(*token) {
                    _ if draft.token.id == *token => Some(0),
                    Some((rank, _)) => Some(rank),
                    None => None,
                };
                if let Some(count) = rank.and_then(|rank| tally.by_rank.get_mut(rank)) {
                    *count += 1;
                }
                if draft.token.id != *token {
                    break;
                }
            }
        }
        tallies
    }
}

impl Simulated {
    fn add(&mut self, played: &Played, waiting: &mut u64) {
        self.rounds += 1;
        self.drafted += played.drafted as u64;
        self.dropped += played.dropped as u64;
        self.drafting_rounds += u64::from(played.drafted + played.dropped > 0);
        self.accepted += played.accepted as u64;
        self.committed += played.committed as u64;
        let positions = self.offered_per_pos.len().max(played.drafted);
        self.offered_per_pos.resize(positions, 0);
        self.accepted_per_pos.resize(positions, 0);
        self.offered_per_pos[..played.drafted].iter_mut().for_each(|count| *count += 1);
        self.accepted_per_pos[..played.accepted].iter_mut().for_each(|count| *count += 1);
        let rows = self.rounds_by_rows.len().max(played.drafted + 1);
        self.rounds_by_rows.resize(rows, 0);
        self.rounds_by_rows[played.drafted] += 1;
        if played.asked > 0 {
            self.settled += std::mem::take(waiting);
        } else {
            *waiting += played.committed as u64;
        }
    }

    /// Adds another answer's sums.
    pub fn merge(&mut self, other: &Self) {
        self.rounds += other.rounds;
        self.drafted += other.drafted;
        self.dropped += other.dropped;
        self.drafting_rounds += other.drafting_rounds;
        self.accepted += other.accepted;
        self.committed += other.committed;
        self.settled += other.settled;
        let lists = [
            (&mut self.offered_per_pos, &other.offered_per_pos),
            (&mut self.accepted_per_pos, &other.accepted_per_pos),
            (&mut self.rounds_by_rows, &other.rounds_by_rows),
        ];
        for (sum, part) in lists {
            sum.resize(sum.len().max(part.len()), 0);
            sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
        }
    }

    /// Committed ÷ rounds.
    #[must_use]
    pub fn tokens_per_round(&self) -> Option<f64> {
        (self.rounds > 0).then(|| self.committed as f64 / self.rounds as f64)
    }

    /// Committed tokens ÷ the seconds that these rounds take at measured costs. `None` if a width was not timed.
    #[must_use]
    pub fn tokens_per_second(&self, costs: &Costs) -> Option<f64> {
        let mut us = self.rounds as f64 * costs.overhead_us
            + (self.drafted + self.dropped) as f64 * costs.draft_us
            + self.drafting_rounds as f64 * costs.draft_pass_us
            + self.settled as f64 * costs.settle_us;
        for (index, rounds) in self.rounds_by_rows.iter().enumerate().filter(|(_, rounds)| **rounds > 0) {
            us += *rounds as f64 * costs.verify_us.get(index)?;
        }
        (us > 0.0).then(|| self.committed as f64 * 1e6 / us)
    }
}

/// Simulates recordings one after the other with a k that the policy chooses, as one run would.
#[must_use]
pub fn automatic(recordings: &[ProbeRun], costs: &Costs) -> Simulated {
    let mut policy = Policy::new(costs.clone(), 0);
    let mut sum = Simulated::default();
    for recording in recordings {
        policy.begin_answer();
        let mut waiting = 0.0;
        let mut observe = |policy: &mut Policy, played: Played| {
            let late = if played.asked > 0 { std::mem::take(&mut waiting) * costs.settle_us } else { 0.0 };
            waiting += if played.asked > 0 { 0.0 } else { 1.0 };
            let made = played.drafted + played.dropped;
            let (first_draft_us, draft_us) = (costs.drafting_us(made.min(1)) + late, costs.drafting_us(made) + late);
            let verify_us = costs.verify_us.get(played.drafted).copied().unwrap_or_default();
            let round_us = draft_us + verify_us + costs.overhead_us;
            let Played { asked, drafted, dropped, accepted, sure, .. } = played;
            policy.observe(&Observation {
                asked,
                drafted,
                dropped,
                accepted,
                sure,
                one_pass: costs.draft_pass_us > 0.0,
                has_copies: false,
                first_draft_us,
                draft_us,
                verify_us,
                round_us,
                ..Observation::default()
            });
        };
        let played = recording.play(&mut |last| {
            if let Some(last) = last {
                observe(&mut policy, last);
            }
            let draft_len = policy.choose().draft_len;
            Asked { draft_len, p_min: 0.0, stop_rule: Some(policy.stop_rule(draft_len)) }
        });
        sum.merge(&played);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use draftscope_protocol::{Candidate, Piece, Prediction};

    /// An answer 0, 1, 2, … in which the chain at each position is right for so many tokens; the wrong token after them
    /// has the right one as second best.
    fn recording(right: &[usize], depth: usize) -> ProbeRun {
        let tokens: Vec<TokenId> = (0..=right.len() as u32).map(TokenId).collect();
        let draft = |at: usize, i: usize, good: bool| {
            let truth = TokenId((at + 1 + i) as u32);
            let token = if good { truth } else { TokenId(999) };
            let candidate = |id| Candidate { piece: Piece::new(id, ""), prob: 0.4 };
            let top = if good { vec![candidate(truth)] } else { vec![candidate(token), candidate(truth)] };
            let q = Some(if i == 0 { 0.9 } else { 0.5 });
            ProbedDraft { token: Piece::new(token, ""), q, top: Prediction { top, tail: 0.2 }, row: None }
        };
        let chain = |(at, right): (usize, &usize)| (0..depth).map(|i| draft(at, i, i < *right)).collect();
        ProbeRun::new(tokens, right.iter().enumerate().map(chain).collect())
    }

    #[test]
    fn rounds_follow_the_recorded_chains() {
        // anchors 0, 3, 4 for k = 3: 2 + 1, 0 + 1, then the last two with the answer's end
        let recording = recording(&[2, 3, 0, 0, 3, 3], 3);
        let three = recording.fixed(3, 0.0);
        assert_eq!((three.rounds, three.drafted, three.accepted, three.committed), (3, 9, 4, 6));
        assert_eq!((three.offered_per_pos, three.accepted_per_pos), (vec![3, 3, 3], vec![2, 2, 0]));
        assert_eq!(three.rounds_by_rows, [0, 0, 0, 3]);
        let plain = recording.fixed(0, 0.0);
        assert_eq!((plain.rounds, plain.committed, plain.drafted), (6, 6, 0));
        let sure = recording.fixed(3, 0.6);
        assert_eq!(sure.drafted, sure.rounds, "only the first of a chain is sure enough");
        let one = recording.fixed(1, 0.0);
        assert_eq!((sure.dropped, one.dropped), (sure.rounds, 0), "a draft that is left out was made");
        assert_eq!(one, Simulated { dropped: 0, ..sure });
    }

    #[test]
    fn a_tree_is_played_along_the_path_that_agrees() {
        // after anchor 0: 9, 1 ─ (8, 2 ─ 3); after 4: 7 only
        let node = |id: u32, row: u8| ProbedDraft {
            token: Piece::new(TokenId(id), ""),
            q: Some(0.5),
            top: Prediction::default(),
            row: Some(row),
        };
        let first = vec![node(9, 0), node(1, 0), node(8, 2), node(2, 2), node(3, 4)];
        let chains = vec![first, Vec::new(), Vec::new(), Vec::new(), vec![node(7, 0)]];
        let recording = ProbeRun::new((0..6).map(TokenId).collect(), chains);
        let played = recording.fixed(3, 0.0);
        assert_eq!((played.rounds, played.drafted, played.accepted, played.committed), (2, 6, 3, 5));
        assert_eq!(played.rounds_by_rows, [0, 1, 0, 0, 0, 1]);
        assert_eq!(recording.fixed(0, 0.0).rounds, 5);
    }

    #[test]
    fn ranks_count_what_was_reached() {
        let ranks = recording(&[1, 0, 1], 2).ranks();
        assert_eq!((ranks[0].reached, ranks[0].by_rank), (3, [2, 1, 0, 0]));
        assert_eq!((ranks[1].reached, ranks[1].by_rank), (1, [0, 1, 0, 0]), "the last answer token ends a chain");
    }

    #[test]
    fn time_is_the_sum_of_measured_costs() {
        let costs = Costs {
            verify_us: vec![100.0, 110.0],
            draft_us: 10.0,
            draft_pass_us: 0.0,
            settle_us: 1.0,
            overhead_us: 5.0,
        };
        let one = recording(&[1, 1, 1, 1], 1).fixed(1, 0.0);
        assert_eq!((one.rounds, one.committed), (2, 4));
        assert!((one.tokens_per_second(&costs).unwrap() - 4e6 / 250.0).abs() < 1e-6);
        let block = Costs { draft_pass_us: 30.0, ..costs.clone() };
        assert!((one.tokens_per_second(&block).unwrap() - 4e6 / 310.0).abs() < 1e-6, "a pass in each of two rounds");
        let plain = recording(&[1, 1, 1, 1], 1).fixed(0, 0.0);
        assert_eq!(plain.tokens_per_second(&block), plain.tokens_per_second(&costs), "and none in plain decoding");
        assert_eq!(recording(&[1, 1, 1], 2).fixed(2, 0.0).tokens_per_second(&costs), None, "3 rows were not timed");
    }

    #[test]
    fn the_policy_is_played_like_any_other_choice() {
        let costs = Costs {
            verify_us: vec![1000.0, 1020.0, 1040.0, 1060.0],
            draft_us: 50.0,
            draft_pass_us: 0.0,
            settle_us: 5.0,
            overhead_us: 10.0,
        };
        let good = vec![recording(&[3; 300], 3), recording(&[3; 300], 3)];
        let auto = automatic(&good, &costs).tokens_per_second(&costs).unwrap();
        let best = good[0].fixed(3, 0.0).tokens_per_second(&costs).unwrap();
        assert!(auto > 0.95 * best, "{auto} of {best}");
        let block = Costs { draft_us: 2.0, draft_pass_us: 300.0, ..costs.clone() };
        let auto = automatic(&good, &block).tokens_per_second(&block).unwrap();
        let best = good[0].fixed(3, 0.0).tokens_per_second(&block).unwrap();
        assert!(auto > 0.95 * best, "a block: {auto} of {best}");
        let bad = vec![recording(&[0; 300], 3)];
        let auto = automatic(&bad, &costs).tokens_per_second(&costs).unwrap();
        let plain = bad[0].fixed(0, 0.0).tokens_per_second(&costs).unwrap();
        assert!(auto > 0.97 * plain, "{auto} of {plain}");
    }
}
