//! Conditions on a watched server, such as `acceptance<0.4 for 60s`.
//!
//! Invariant: a figure that is not known fulfils no condition, and ends the time for which one has held.

use std::collections::BTreeMap;
use std::str::FromStr;

use super::rates::Rates;
use super::watched::Watched;

/// A figure that a condition names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Figure {
    Up,
    Acceptance,
    TokensPerSecond,
    TokensPerStep,
    DraftingShare,
    Running,
    Waiting,
    KvUse,
    PrefixHits,
    FirstToken,
    BetweenTokens,
    Whole,
}

/// The names of figures, in the order in which they are listed.
const FIGURES: [(&str, Figure); 12] = [
    ("acceptance", Figure::Acceptance),
    ("tokens/s", Figure::TokensPerSecond),
    ("tokens/step", Figure::TokensPerStep),
    ("drafting", Figure::DraftingShare),
    ("running", Figure::Running),
    ("waiting", Figure::Waiting),
    ("kv", Figure::KvUse),
    ("prefix", Figure::PrefixHits),
    ("first-token", Figure::FirstToken),
    ("between-tokens", Figure::BetweenTokens),
    ("whole", Figure::Whole),
    ("up", Figure::Up),
];

/// A condition, and since when each server has fulfilled it.
#[derive(Clone, Debug, PartialEq)]
pub struct Alert {
    text: String,
    figure: Figure,
    is_below: bool,
    limit: f64,
    for_ms: u64,
    since: BTreeMap<usize, Held>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Held {
    since_ms: u64,
    has_fired: bool,
}

/// A condition that holds at a server from now on, or no longer.
#[derive(Clone, Debug, PartialEq)]
pub struct Fired {
    /// The server.
    pub server: usize,
    /// Whether it holds from now on.
    pub begins: bool,
    /// The condition and the value in a sentence.
    pub sentence: String,
}

impl FromStr for Alert {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| {
            let names: Vec<_> = FIGURES.iter().map(|(name, _)| *name).collect();
            format!(
                "{why}; a condition is FIGURE<LIMIT or FIGURE>LIMIT, with 'for 60s' after it if it must hold so long. \
                     Figures: {}",
                names.join(", ")
            )
        };
        let (condition, time) = match text.split_once(" for ") {
            Some((condition, time)) => {
                (condition, milliseconds(time).ok_or_else(|| wrong("the time is not understood"))?)
            }
            None => (text, 0),
        };
        let at = condition.find(['<', '>']).ok_or_else(|| wrong("there is no < or >"))?;
        let (name, limit) = (condition[..at].trim(), condition[at + 1..].trim());
        let figure = FIGURES.iter().find(|(known, _)| *known == name).map(|(_, figure)| *figure);
        let (number, factor) = match limit.strip_suffix('%') {
            Some(number) => (number.trim(), 0.01),
            None => (limit, 1.0),
        };
        let limit = number.parse::<f64>().ok().filter(|limit| limit.is_finite());
        Ok(Self {
            text: text.trim().to_owned(),
            figure: figure.ok_or_else(|| wrong(&format!("'{name}' is no figure")))?,
            is_below: condition.as_bytes()[at] == b'<',
            limit: limit.ok_or_else(|| wrong("the limit is no number"))? * factor,
            for_ms: time,
            since: BTreeMap::new(),
        })
    }
}

/// `60s`, `5m`, `1h`, `500ms`; a number alone is seconds.
fn milliseconds(text: &str) -> Option<u64> {
    let text = text.trim();
    let units = [("ms", 1.0), ("s", 1e3), ("m", 60e3), ("h", 3600e3)];
    let (number, unit) = units.iter().find_map(|(end, ms)| Some((text.strip_suffix(end)?, *ms))).unwrap_or((text, 1e3));
    let ms = number.trim().parse::<f64>().ok()? * unit;
    (0.0..=1e12).contains(&ms).then_some(ms as u64)
}

impl Figure {
    fn of(self, server: &Watched) -> Option<f64> {
        let rates: Rates = server.recent();
        match self {
            Self::Up => Some(f64::from(u8::from(server.is_up()))),
            Self::Acceptance => rates.acceptance_rate,
            Self::TokensPerSecond => rates.tokens_per_second,
            Self::TokensPerStep => rates.tokens_per_step,
            Self::DraftingShare => rates.drafting_share,
            Self::Running => rates.running.map(|count| count as f64),
            Self::Waiting => rates.waiting.map(|count| count as f64),
            Self::KvUse => rates.kv_use,
            Self::PrefixHits => rates.prefix_hit_rate,
            Self::FirstToken => rates.first_token.map(|time| time.mean),
            Self::BetweenTokens => rates.between_tokens.map(|time| time.mean),
            Self::Whole => rates.whole.map(|time| time.mean),
        }
    }
}

impl Alert {
    /// The condition as it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it has held at a server for as long as it asks for.
    #[must_use]
    pub fn holds(&self, server: usize) -> bool {
        self.since.get(&server).is_some_and(|held| held.has_fired)
    }

    /// Whether it holds at a server, but not for long enough.
    #[must_use]
    pub fn is_waiting(&self, server: usize) -> bool {
        self.since.get(&server).is_some_and(|held| !held.has_fired)
    }

    /// Checks a server after a look; says when the condition begins to hold for long enough, and when it ends.
    pub(super) fn check(&mut self, server: usize, watched: &Watched, at_ms: u64) -> Option<Fired> {
        let value = self.figure.of(watched);
        let is_fulfilled =
            value.is_some_and(|value| if self.is_below { value < self.limit } else { value > self.limit });
        let host = watched.newest.as_ref().map_or("a server", |sample| sample.host.as_str());
        let shown = value.map_or("not known".to_owned(), |value| format!("{value:.3}"));
        let sentence = |word: &str| format!("{host}: {} {word}, it is {shown}", self.text);
        if !is_fulfilled {
            let held = self.since.remove(&server).filter(|held| held.has_fired);
            return held.map(|_| Fired { server, begins: false, sentence: sentence("no longer holds") });
        }
        let held = self.since.entry(server).or_insert(Held { since_ms: at_ms, has_fired: false });
        if held.has_fired || at_ms.saturating_sub(held.since_ms) < self.for_ms {
            return None;
        }
        held.has_fired = true;
        Some(Fired { server, begins: true, sentence: format!("{host}: {}, it is {shown}", self.text) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Fleet;
    use super::*;
    use crate::fixture::sample;

    #[test]
    fn conditions_are_read() {
        let alert: Alert = "acceptance<0.4 for 60s".parse().unwrap();
        assert_eq!((alert.figure, alert.is_below, alert.limit, alert.for_ms), (Figure::Acceptance, true, 0.4, 60_000));
        let alert: Alert = "first-token > 2".parse().unwrap();
        assert_eq!((alert.figure, alert.is_below, alert.limit, alert.for_ms), (Figure::FirstToken, false, 2.0, 0));
        let alert: Alert = "acceptance < 40 % for 2m".parse().unwrap();
        assert!((alert.limit - 0.4).abs() < 1e-9 && alert.for_ms == 120_000);
        for wrong in ["acceptance", "speed<3", "acceptance<x", "acceptance<0.4 for ever", "up<nan", ""] {
            let why = wrong.parse::<Alert>().unwrap_err();
            assert!(why.contains("acceptance, tokens/s"), "{wrong}: {why}");
        }
    }

    #[test]
    fn a_condition_fires_once_it_has_held_for_its_time_and_says_when_it_ends() {
        let alerts = vec!["acceptance<0.8 for 5s".parse().unwrap(), "up<1".parse().unwrap()];
        let mut fleet = Fleet::new(1).with_alerts(alerts);
        let fired: Vec<(u64, Vec<Fired>)> = (0..10).map(|second| (second, fleet.take(sample(0, second)))).collect();
        let times: Vec<u64> = fired.iter().filter(|(_, fired)| !fired.is_empty()).map(|(second, _)| *second).collect();
        assert_eq!(times, [6], "no rate before the second look; 0.75 is less than 0.8 from then on");
        assert!(fired[6].1[0].begins && fired[6].1[0].sentence.contains("acceptance<0.8 for 5s, it is 0.750"));
        assert_eq!(fleet.line(0).unwrap().alerts, ["acceptance<0.8 for 5s"]);
        let down = draftscope_protocol::ServerSample { counters: None, slots: Vec::new(), ..sample(0, 11) };
        let ended = fleet.take(down);
        assert_eq!((ended.len(), ended[0].begins, ended[1].begins), (2, false, true), "{ended:?}");
        assert!(fleet.is_decided());
    }
}
