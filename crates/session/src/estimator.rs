//! The one estimator of how much faster rounds were than others: see [`super::speedup`].

use std::collections::BTreeMap;

use super::speedup::{Speedup, Trust};
use super::stretches::{Local, Stretch, Timed, stretches};
use draftscope_protocol::statistics::{Interval, mean_ratio, median};

/// Identifies rounds that do the same work: rows of the pass, and whether one more draft was made and dropped.
pub(super) type Class = (usize, bool);

pub(super) fn class(timed: &Timed) -> Class {
    (timed.round.rows().len().max(timed.round.drafts.len() + 1), timed.round.stopped.is_some())
}

/// The same as [`between`] where nothing was decoded beside: rounds with drafts against those without, then both together. Of n tokens
/// in rounds with drafts, `s` times as fast, and m in rounds without: (n + m) ÷ (n ÷ s + m).
pub(super) fn over_undrafted(own: Vec<Timed>) -> Option<Speedup> {
    let (plain, drafted): (Vec<Timed>, Vec<Timed>) = own.into_iter().partition(|timed| timed.round.drafts.is_empty());
    let tokens = |all: &[Timed]| all.iter().map(|timed| timed.round.committed().len()).sum::<usize>() as f64;
    let (n, m) = (tokens(&drafted), tokens(&plain));
    let found = between(&drafted, &plain)?;
    let whole = |s: f64| (n + m) / (n / s + m);
    Some(Speedup {
        value: whole(found.value),
        low: whole(found.low),
        high: whole(found.high),
        tokens_per_round: (n + m) / (drafted.len() + plain.len()) as f64,
        from_undrafted: true,
        ..found
    })
}

/// How much faster rounds were than another lane's beside them.
pub(super) fn between(own: &[Timed], beside: &[Timed]) -> Option<Speedup> {
    let expected = Expected::of(beside)?;
    let local = Local::of(stretches(own, beside), class, |timed| expected.us(timed));
    let cost = |timed: &Timed| local.cost(class(timed)).unwrap_or(1.0);
    let ratio = |stretch: &Stretch| {
        let took: f64 = stretch.rounds.iter().map(|timed| timed.us).sum();
        took / stretch.rounds.iter().map(cost).sum::<f64>() / stretch.unit(|timed| expected.us(timed))
    };
    let over_expected = mean_ratio(&local.stretches.iter().map(ratio).collect::<Vec<_>>())?;
    let tokens = |all: &[Timed]| all.iter().map(|timed| timed.round.committed().len()).sum::<usize>() as f64;
    let own_speed = tokens(own) / own.iter().map(cost).sum::<f64>();
    let beside_speed = tokens(beside) / beside.iter().map(|timed| expected.us(timed)).sum::<f64>();
    let at_expected = own_speed / beside_speed;
    let Interval { value, low, high } = over_expected.map(|over| at_expected / over);
    let tokens_per_round = tokens(own) / own.len() as f64;
    (value.is_finite() && value > 0.0).then_some(Speedup {
        value,
        low,
        high,
        tokens_per_round,
        trust: Trust::Plausible,
        from_undrafted: false,
    })
}

/// Expected time of a round of the other lane: the median of those that do the same work. Only ratios count, and plain
/// passes form a single class.
struct Expected(BTreeMap<Class, f64>);

impl Expected {
    fn of(beside: &[Timed]) -> Option<Self> {
        let mut times: BTreeMap<Class, Vec<f64>> = BTreeMap::new();
        beside.iter().for_each(|timed| times.entry(class(timed)).or_default().push(timed.us));
        let medians = times.into_iter().filter_map(|(class, times)| Some((class, median(times)?)));
        (!beside.is_empty()).then(|| Self(medians.collect()))
    }

    fn us(&self, timed: &Timed) -> f64 {
        self.0.get(&class(timed)).copied().unwrap_or(1.0)
    }
}
