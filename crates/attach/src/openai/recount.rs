//! Steps from what a server counted: which chunk holds which steps.
//!
//! A chunk is a step unless the server, busy with other work, sent several steps as one. vLLM reports the accepted and
//! drafted tokens of each step that drafted, in order, and nothing of steps without drafts; SGLang reports sums. So the
//! boundaries within a merged chunk follow where every step drafted, and else only where one reading needs the fewest
//! merged chunks. Invariant: rounds keep the tokens of the chunks, in order, and their sums are the server's.

use crate::step::MAX_DRAFTS;
use draftscope_protocol::CountedRound;

/// Most combinations of chunks and steps that are tried.
const MAX_WORK: usize = 2 << 20;

/// What a merged chunk costs; its rounds beyond the first cost 1 each.
const MERGED: u64 = 1 << 32;

/// A step with drafts, as the server counted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Drafted tokens.
    pub drafted: usize,
    /// Accepted ones.
    pub accepted: usize,
}

/// Rounds, and how sure they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recount {
    /// In the order of the text.
    pub rounds: Vec<CountedRound>,
    /// Tokens in merged chunks whose boundaries are not known.
    pub unsplit: usize,
    /// Whether the counts fit in more than one way: which of some rounds drafted is not known.
    pub is_ambiguous: bool,
}

/// From the steps that drafted, in order. None if they contradict the chunks.
#[must_use]
pub fn per_step(chunks: &[usize], steps: &[Counted]) -> Option<Recount> {
    let valid = |step: &Counted| step.accepted <= step.drafted && step.drafted <= MAX_DRAFTS;
    if !steps.iter().all(valid) {
        return None;
    }
    let tokens: usize = chunks.iter().sum();
    let own: usize = steps.iter().map(|step| step.accepted + 1).sum();
    let last = steps.last().map_or(0, |step| step.accepted);
    // only the last step can be cut, where the answer ends
    let fits = tokens <= own && tokens + last >= own;
    fits.then(|| all_drafted(chunks, steps, tokens)).flatten().or_else(|| assign(chunks, steps))
}

/// Every step drafted, so the sums of their tokens are the boundaries. None if a chunk ends within a step.
fn all_drafted(chunks: &[usize], steps: &[Counted], tokens: usize) -> Option<Recount> {
    let ends = |sizes: &mut dyn Iterator<Item = usize>| {
        let sums = sizes.scan(0, |end, size| {
            *end += size;
            Some((*end).min(tokens))
        });
        sums.collect::<Vec<_>>()
    };
    let of_chunks = ends(&mut chunks.iter().copied());
    let of_steps = ends(&mut steps.iter().map(|step| step.accepted + 1));
    if !of_chunks.iter().all(|end| of_steps.binary_search(end).is_ok()) {
        return None;
    }
    let is_edge = |at: usize| at == 0 || of_chunks.binary_search(&at).is_ok();
    let mut at = 0;
    let rounds = steps.iter().zip(&of_steps).map(|(step, end)| {
        let round = round(*step, end - at, !(is_edge(at) && is_edge(*end)));
        at = *end;
        round
    });
    Some(Recount { rounds: rounds.filter(|round| round.committed > 0).collect(), unsplit: 0, is_ambiguous: false })
}

/// Some steps drafted nothing: every chunk takes some of the counted steps, in order, and its other tokens are steps of
/// one token. The reading with the fewest merged chunks, then with the fewest rounds, is taken.
fn assign(chunks: &[usize], steps: &[Counted]) -> Option<Recount> {
    let (rows, columns) = (chunks.len() + 1, steps.len() + 1);
    if rows.checked_mul(columns)? > MAX_WORK {
        return None;
    }
    let mut cost = vec![u64::MAX; rows * columns];
    let mut taken = vec![0_u8; rows * columns];
    let mut ways = vec![0_u32; rows * columns];
    (cost[0], ways[0]) = (0, 1);
    for (chunk, size) in chunks.iter().enumerate() {
        for from in 0..columns {
            let so_far = cost[chunk * columns + from];
            if so_far == u64::MAX {
                continue;
            }
            let is_last_chunk = chunk + 1 == chunks.len();
            let (mut used, mut to) = (0, from);
            loop {
                let pieces = (to - from) + size.saturating_sub(used);
                let more = (pieces as u64).saturating_sub(1);
                let total = so_far + more + if more > 0 { MERGED } else { 0 };
                let place = (chunk + 1) * columns + to;
                let own_ways = ways[chunk * columns + from];
                if total < cost[place] {
                    ways[place] = own_ways;
                } else if total == cost[place] {
                    ways[place] = ways[place].saturating_add(own_ways);
                }
                // of equal ones, that in which steps come earliest
                if total <= cost[place] {
                    (cost[place], taken[place]) = (total, (to - from) as u8);
                }
                let Some(step) = steps.get(to).filter(|_| used < *size && to - from < MAX_DRAFTS) else { break };
                used += step.accepted + 1;
                let is_cut = is_last_chunk && to + 1 == steps.len();
                if used > *size && !is_cut {
                    break;
                }
                to += 1;
            }
        }
    }
    if cost[rows * columns - 1] == u64::MAX {
        return None;
    }
    let mut counts = vec![0; chunks.len()];
    let mut column = columns - 1;
    for chunk in (0..chunks.len()).rev() {
        counts[chunk] = usize::from(taken[(chunk + 1) * columns + column]);
        column -= counts[chunk];
    }
    let is_ambiguous = ways[rows * columns - 1] > 1;
    Some(Recount { is_ambiguous, ..rounds_of(chunks, steps, &counts) })
}

fn rounds_of(chunks: &[usize], steps: &[Counted], counts: &[usize]) -> Recount {
    let (mut rounds, mut unsplit, mut next) = (Vec::new(), 0, 0);
    for (size, count) in chunks.iter().zip(counts) {
        let own = &steps[next..next + count];
        next += count;
        let (mut left, first) = (*size, rounds.len());
        for step in own {
            let committed = left.min(step.accepted + 1);
            left -= committed;
            rounds.push(round(*step, committed, false));
        }
        rounds.extend((0..left).map(|_| round(Counted { drafted: 0, accepted: 0 }, 1, false)));
        let is_merged = rounds.len() - first > 1;
        rounds[first..].iter_mut().for_each(|round| round.merged = is_merged);
        let has_one_order = own.is_empty() || left == 0;
        if is_merged && !has_one_order {
            unsplit += size;
        }
    }
    Recount { rounds, unsplit, is_ambiguous: false }
}

fn round(step: Counted, committed: usize, merged: bool) -> CountedRound {
    CountedRound { drafted: step.drafted as u8, accepted: step.accepted as u8, committed: committed as u16, merged }
}

/// Sums over a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Steps with drafts.
    pub steps: u64,
    /// Drafted tokens.
    pub drafted: u64,
    /// Accepted ones.
    pub accepted: u64,
    /// The longest draft, if it is known.
    pub longest: Option<u64>,
}

/// Whether an answer whose chunks have these sizes can have these sums: drafts that were accepted are among its tokens,
/// but for those of the last step, which the end of the answer may cut.
#[must_use]
pub fn can_hold(chunks: &[usize], totals: Totals) -> bool {
    let Totals { steps, drafted, accepted, longest } = totals;
    let tokens = chunks.iter().sum::<usize>() as u64;
    let longest = longest.unwrap_or(MAX_DRAFTS as u64);
    let cut = accepted.min(longest);
    accepted <= drafted
        && drafted <= steps.saturating_mul(longest)
        && (steps == 0) == (drafted == 0)
        && steps.saturating_add(accepted) <= tokens.saturating_add(cut)
}

/// From sums, where every step that drafted did so alike and is one chunk. Chunks of several tokens are such steps; those
/// of one token are, too, if there are as many steps as chunks. Where `is_cut` says that the answer has reached its
/// limit, the last step may have drafted less. None where sums leave a choice.
#[must_use]
pub fn from_totals(chunks: &[usize], totals: Totals, is_cut: bool) -> Option<Recount> {
    if !can_hold(chunks, totals) {
        return None;
    }
    let (drafted, of_last) = alike(totals, is_cut)?;
    if chunks.len() as u64 != totals.steps {
        return (drafted == of_last).then(|| from_wide_chunks(chunks, totals)).flatten();
    }
    let (last, before) = chunks.split_last()?;
    let accepted: Vec<usize> = before.iter().map(|size| size.saturating_sub(1)).collect();
    // the last step may be cut
    let rest = usize::try_from(totals.accepted).ok()?.checked_sub(accepted.iter().sum())?;
    let fits = accepted.iter().all(|accepted| *accepted <= drafted) && rest <= of_last && rest + 1 >= *last;
    fits.then(|| {
        let all = accepted.into_iter().map(|accepted| Counted { drafted, accepted });
        let all = all.chain([Counted { drafted: of_last, accepted: rest }]).zip(chunks);
        let rounds = all.map(|(step, size)| round(step, *size, false)).collect();
        Recount { rounds, unsplit: 0, is_ambiguous: false }
    })
}

/// Drafts of each step but the last, and of the last. None if the steps did not draft alike.
fn alike(totals: Totals, is_cut: bool) -> Option<(usize, usize)> {
    let Totals { steps, drafted, longest, .. } = totals;
    let each = match longest {
        Some(longest) => longest,
        None => drafted.checked_div(steps).filter(|_| drafted.is_multiple_of(steps))?,
    };
    let of_last = drafted.checked_sub(each.checked_mul(steps.checked_sub(1)?)?)?;
    let is_alike = of_last == each || (is_cut && (1..each).contains(&of_last));
    let number = |drafts: u64| usize::try_from(drafts).ok().filter(|drafts| *drafts <= MAX_DRAFTS);
    is_alike.then_some(number(each).zip(number(of_last))).flatten()
}

/// Some steps drafted nothing: those that did are the chunks of several tokens, if their sums agree.
fn from_wide_chunks(chunks: &[usize], totals: Totals) -> Option<Recount> {
    let drafted = usize::try_from(totals.drafted / totals.steps).ok()?;
    let steps: Vec<Counted> =
        chunks.iter().filter(|size| **size > 1).map(|size| Counted { drafted, accepted: size - 1 }).collect();
    let accepted: usize = steps.iter().map(|step| step.accepted).sum();
    let fits = steps.len() as u64 == totals.steps && accepted as u64 == totals.accepted;
    per_step(chunks, &steps).filter(|_| fits)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counted(pairs: &[(usize, usize)]) -> Vec<Counted> {
        pairs.iter().map(|(drafted, accepted)| Counted { drafted: *drafted, accepted: *accepted }).collect()
    }

    fn shape(recount: &Recount) -> Vec<(u8, u8, u16, bool)> {
        recount.rounds.iter().map(|r| (r.drafted, r.accepted, r.committed, r.merged)).collect()
    }

    #[test]
    fn chunks_of_recorded_answers_get_their_steps() {
        // completions: chunks 5, 3, 1 × 5
        let found = per_step(&[5, 3, 1, 1, 1, 1, 1], &counted(&[(4, 4), (4, 2)])).unwrap();
        assert_eq!(shape(&found)[..3], [(4, 4, 5, false), (4, 2, 3, false), (0, 0, 1, false)]);
        assert_eq!((found.rounds.len(), found.unsplit, found.is_ambiguous), (7, 0, false));
        // stream_interval 3: the chunks of 3 and 2 are steps of one token
        let found = per_step(&[5, 3, 3, 2], &counted(&[(4, 4), (4, 2)])).unwrap();
        assert_eq!(shape(&found)[2..], [(0, 0, 1, true); 5]);
        assert_eq!(found.unsplit, 0, "steps of one token have one order");
        assert!(found.is_ambiguous, "the other chunk of three tokens could be the step with drafts");
        // the last step is cut where the answer ends
        let found = per_step(&[1, 1, 1, 3], &counted(&[(4, 4)])).unwrap();
        assert_eq!(shape(&found)[3], (4, 4, 3, false));
        // a busy server: 17 steps of one token in one chunk
        let chunks = [5, 3, 1, 1, 17, 1, 4];
        let found = per_step(&chunks, &counted(&[(4, 4), (4, 2), (4, 3)])).unwrap();
        assert_eq!((found.rounds.len(), found.rounds.last().unwrap().accepted), (23, 3));
    }

    #[test]
    fn merged_chunks_are_split_where_every_step_drafted() {
        let found = per_step(&[5, 7, 1], &counted(&[(4, 4), (4, 2), (4, 3), (4, 0)])).unwrap();
        assert_eq!(shape(&found), [(4, 4, 5, false), (4, 2, 3, true), (4, 3, 4, true), (4, 0, 1, false)]);
        assert_eq!(found.unsplit, 0);
    }

    #[test]
    fn what_cannot_be_split_is_counted() {
        // 8 tokens: a step of 3, one of 4 and one without a draft, in an order that is not known
        let found = per_step(&[8, 1], &counted(&[(4, 2), (4, 3)])).unwrap();
        assert_eq!((found.unsplit, found.rounds.len()), (8, 4));
        let found = per_step(&[1, 1, 1], &counted(&[(4, 0)])).unwrap();
        assert!(found.is_ambiguous, "which of the three drafted is unknown");
        assert_eq!(per_step(&[1, 1], &counted(&[(4, 3)])).map(|r| r.rounds.len()), Some(2), "cut at the end");
        assert_eq!(per_step(&[2], &counted(&[(1, 1), (1, 1), (1, 1)])), None, "more than was sent");
        assert_eq!(per_step(&[2], &counted(&[(1, 2)])), None, "accepted more than drafted");
    }

    #[test]
    fn sums_are_enough_where_every_step_drafts_alike() {
        let totals = Totals { steps: 3, drafted: 12, accepted: 6, longest: Some(4) };
        let found = from_totals(&[5, 1, 2], totals, false).unwrap();
        assert_eq!(shape(&found), [(4, 4, 5, false), (4, 0, 1, false), (4, 2, 2, false)]);
        assert_eq!(from_totals(&[5, 1], totals, true), None, "merged");
        assert_eq!(from_totals(&[5, 1, 5], totals, true), None, "contradicts");
        assert_eq!(from_totals(&[5, 1, 2], Totals { longest: Some(5), ..totals }, false), None, "some drafted less");
        let totals = Totals { steps: 2, drafted: 8, accepted: 6, longest: Some(4) };
        let found = from_totals(&[5, 1, 3, 1], totals, false).unwrap();
        assert_eq!(shape(&found), [(4, 4, 5, false), (0, 0, 1, false), (4, 2, 3, false), (0, 0, 1, false)]);
        let totals = Totals { accepted: 4, ..totals };
        assert_eq!(from_totals(&[5, 1, 1], totals, false), None, "which of the last two drafted in vain");
    }

    #[test]
    fn the_last_step_of_an_answer_that_reached_its_limit_may_have_drafted_less() {
        let totals = Totals { steps: 3, drafted: 10, accepted: 5, longest: Some(4) };
        let found = from_totals(&[5, 1, 2], totals, true).unwrap();
        assert_eq!(shape(&found), [(4, 4, 5, false), (4, 0, 1, false), (2, 1, 2, false)]);
        assert_eq!(from_totals(&[5, 1, 2], totals, false), None, "any of them may have been shorter");
        // four drafts accepted, and room for two tokens
        let found = from_totals(&[5, 2], Totals { steps: 2, drafted: 8, accepted: 8, longest: Some(4) }, true).unwrap();
        assert_eq!(shape(&found)[1], (4, 4, 2, false));
    }

    #[test]
    fn sums_of_other_requests_do_not_fit() {
        let totals = Totals { steps: 21, drafted: 84, accepted: 73, longest: Some(4) };
        assert!(!can_hold(&[1; 63], totals), "94 tokens and more in 63");
        assert!(can_hold(&[5; 18], totals), "the last step may be cut");
        assert!(can_hold(&[1, 1, 1], Totals { steps: 0, drafted: 0, accepted: 0, longest: None }));
        assert!(!can_hold(&[1; 9], Totals { steps: 3, drafted: 0, accepted: 0, longest: None }), "steps that drafted");
    }

    proptest! {
        /// Steps of a server that may send several together.
        #[test]
        fn rounds_keep_the_tokens_and_the_sums(
            steps in prop::collection::vec((0_usize..6).prop_flat_map(|d| (Just(d), 0..=d)), 0..40),
            merge in prop::collection::vec(any::<bool>(), 40),
        ) {
            let mut chunks: Vec<usize> = Vec::new();
            for (index, (_, accepted)) in steps.iter().enumerate() {
                match chunks.last_mut().filter(|_| merge[index]) {
                    Some(last) => *last += accepted + 1,
                    None => chunks.push(accepted + 1),
                }
            }
            let drafted: Vec<_> = steps.iter().copied().filter(|(drafted, _)| *drafted > 0).collect();
            let found = per_step(&chunks, &counted(&drafted)).unwrap();
            let sum = |of: fn(&CountedRound) -> usize| found.rounds.iter().map(of).sum::<usize>();
            prop_assert_eq!(sum(|r| r.committed.into()), chunks.iter().sum::<usize>());
            prop_assert_eq!(sum(|r| r.drafted.into()), drafted.iter().map(|(drafted, _)| drafted).sum::<usize>());
            prop_assert_eq!(sum(|r| r.accepted.into()), drafted.iter().map(|(_, accepted)| accepted).sum::<usize>());
            if drafted.len() == steps.len() {
                let all: Vec<_> = found.rounds.iter().map(|r| (usize::from(r.drafted), usize::from(r.accepted))).collect();
                prop_assert_eq!(all, steps);
            }
        }

        #[test]
        fn any_counts_are_taken_without_a_panic(
            chunks in prop::collection::vec(0_usize..300, 0..20),
            steps in prop::collection::vec((any::<usize>(), any::<usize>()), 0..20),
            totals in (any::<u64>(), any::<u64>(), any::<u64>(), any::<Option<u64>>()),
        ) {
            let _ = per_step(&chunks, &counted(&steps));
            let totals = Totals { steps: totals.0, drafted: totals.1, accepted: totals.2, longest: totals.3 };
            let _ = (from_totals(&chunks, totals, true), from_totals(&chunks, totals, false));
        }
    }
}
