//! Measures what passes cost in a turn: see [`PassCosts`].

use std::collections::BTreeMap;

use draftscope_protocol::Lane;
use draftscope_protocol::statistics::{Interval, mean_ratio, median};

use super::pass_costs::{PassCost, PassCosts};
use super::round::Round;
use super::stretches::{Local, Timed, passes, stretches};
use super::turn::{Answer, Turn};

impl PassCosts {
    /// Of a turn: passes over one row are those of the plain lane and rounds of the run's own lane without drafts.
    /// `None` until such a pass and a round with drafts ran next to each other.
    #[must_use]
    pub fn of(turn: &Turn) -> Option<Self> {
        Self::of_lane(turn, Lane::Speculative)
    }

    /// The same with the rounds of a rival in place of the run's own.
    #[must_use]
    pub fn of_lane(turn: &Turn, lane: Lane) -> Option<Self> {
        let own = passes(turn.answer(lane));
        let (mut one, wide): (Vec<Timed>, Vec<Timed>) = own.iter().partition(|timed| timed.round.rows().len() == 1);
        one.extend(passes(turn.answer(Lane::Plain)).into_iter().filter(|timed| timed.round.rows().len() == 1));
        one.sort_by_key(|timed| timed.round.ended_after);
        let one_us = median(one.iter().map(|timed| timed.us).collect())?;
        let local = Local::of(stretches(&wide, &one), |timed| timed.round.rows().len(), |_| 1.0);
        let measured = by_width(&local);
        if measured.is_empty() {
            return None;
        }
        let device_us = on_device(&one, 1);
        let first = PassCost { rows: 1, count: one.len(), ratio: 1.0, low: None, high: None, us: one_us, device_us };
        let others = measured.iter().filter_map(|(rows, stretches)| {
            Some(PassCost { device_us: on_device(&wide, *rows), ..of_width(*rows, stretches, one_us)? })
        });
        let widths: Vec<PassCost> = std::iter::once(first).chain(others).collect();
        let mut unmeasured: Vec<usize> = wide.iter().map(|timed| timed.round.rows().len()).collect();
        unmeasured.sort_unstable();
        unmeasured.dedup();
        unmeasured.retain(|rows| widths.iter().all(|cost| cost.rows != *rows));
        let [draft_us, draft_pass_us, overhead_us] = outside(turn.answer(lane), &local).map(|part| part * one_us);
        Some(Self { widths, unmeasured, draft_us, draft_pass_us, overhead_us, has_ceiling: turn.has_ceiling() })
    }
}

/// T(m) ÷ T(1) of a width in each stretch that had it, and the number of passes.
type OfWidth = (Vec<f64>, usize);

fn by_width(local: &Local<usize>) -> BTreeMap<usize, OfWidth> {
    let mut all: BTreeMap<usize, OfWidth> = BTreeMap::new();
    for stretch in &local.stretches {
        let unit = stretch.unit(|_| 1.0);
        let mut here: BTreeMap<usize, (f64, usize)> = BTreeMap::new();
        for timed in &stretch.rounds {
            let (sum, count) = here.entry(timed.round.rows().len()).or_default();
            (*sum, *count) = (*sum + timed.us, *count + 1);
        }
        for (rows, (sum, count)) in here {
            let (ratios, passes) = all.entry(rows).or_default();
            ratios.push(sum / count as f64 / unit);
            *passes += count;
        }
    }
    all
}

/// The mean over stretches; with few of them, the median without an interval.
fn of_width(rows: usize, (ratios, count): &OfWidth, one_us: f64) -> Option<PassCost> {
    let interval = mean_ratio(ratios);
    let ratio = interval.map(|interval: Interval| interval.value).or_else(|| median(ratios.clone()))?;
    let (low, high) = (interval.map(|interval| interval.low), interval.map(|interval| interval.high));
    Some(PassCost { rows, count: *count, ratio, low, high, us: ratio * one_us, device_us: None })
}

/// Median time on the device of the passes over so many rows, in microseconds.
fn on_device(passes: &[Timed], rows: usize) -> Option<f64> {
    let of_width = passes.iter().filter(|timed| timed.round.rows().len() == rows);
    let nanoseconds = of_width.filter_map(|timed| Some(timed.round.device()?.verify.nanoseconds).filter(|ns| *ns > 0));
    median(nanoseconds.map(|ns| ns as f64 / 1e3).collect())
}

/// Time of a round's drafts in microseconds: of one token, if that is known, and of the pass that made all of them.
fn drafting(round: &Round, in_blocks: bool) -> Option<(Option<f64>, f64)> {
    let made = round.drafts.len() + usize::from(round.stopped.is_some());
    let us = round.draft_us() as f64;
    match (made, round.drafts.first()) {
        (0, _) => None,
        (2.., Some(first)) if in_blocks => {
            let each = (us - first.took_us as f64) / (made - 1) as f64;
            Some((Some(each), (first.took_us as f64 - each).max(0.0)))
        }
        _ if in_blocks => Some((None, us)), // a token's own part is little of it
        _ => Some((Some(us / made as f64), 0.0)),
    }
}

/// A drafted token, a block drafter's pass, and the time of a round outside drafts and pass, in passes over one row near
/// it: medians.
fn outside(answer: &Answer, local: &Local<usize>) -> [f64; 3] {
    let in_blocks = answer.rounds.iter().any(|round| round.is_block());
    let whole = super::stretches::whole_rounds(answer);
    let took = |timed: &Timed| {
        let at = whole.binary_search_by_key(&timed.round.ended_after, |whole| whole.round.ended_after).ok()?;
        Some(whole[at].us)
    };
    let (mut drafts, mut draft_passes, mut rest) = (Vec::new(), Vec::new(), Vec::new());
    for stretch in &local.stretches {
        let unit = stretch.unit(|_| 1.0);
        for timed in &stretch.rounds {
            let (us, round) = (timed.round.draft_us() as f64, timed.round);
            if let Some((each, pass)) = drafting(round, in_blocks) {
                drafts.extend(each.map(|each| each / unit));
                draft_passes.push(pass / unit);
            }
            rest.extend(took(timed).map(|whole| (whole - us - timed.us).max(0.0) / unit));
        }
    }
    [drafts, draft_passes, rest].map(|shares| median(shares).unwrap_or(0.0))
}
