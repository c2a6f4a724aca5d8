//! Lessons: data from `assets/lessons`, and where the user is in them.
//!
//! Invariant: a step that asks shows its answer only after a choice was made; an answer is a fixed
//! one, a number measured in this session, or a verdict of a round that really happened. Words in
//! braces are filled in with measured numbers, never with made-up ones.

use serde::Deserialize;

use crate::protocol::{Lane, Outcome, Settings};
use crate::session::Session;
use crate::session::account::Account;

use super::selection::{RoundAt, round_at};

/// The lessons in the binary, in the order of the list.
pub(super) const BUNDLED: &[(&str, &str)] = &[
    ("positions", include_str!("../../assets/lessons/1-positions.toml")),
    ("cost", include_str!("../../assets/lessons/2-cost.toml")),
    ("round", include_str!("../../assets/lessons/3-round.toml")),
    ("lossless", include_str!("../../assets/lessons/4-lossless.toml")),
    ("sampling", include_str!("../../assets/lessons/5-sampling.toml")),
    ("mtp", include_str!("../../assets/lessons/6-mtp.toml")),
    ("losing", include_str!("../../assets/lessons/7-losing.toml")),
    ("quiz", include_str!("../../assets/lessons/8-quiz.toml")),
];

/// A lesson.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Lesson {
    pub(super) title: String,
    pub(super) summary: String,
    pub(super) step: Vec<Step>,
}

/// One screen of a lesson.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Step {
    /// What is said, or asked.
    pub(super) text: String,
    /// What may be answered; none when nothing is asked.
    pub(super) choices: Vec<String>,
    /// The right one, from 1.
    pub(super) answer: Option<usize>,
    /// Or: the choice in whose range a measured number lies.
    pub(super) measured: Option<Measured>,
    /// Or: the verdict on a draft of a round of this session.
    pub(super) quiz: bool,
    /// Said after the choice.
    pub(super) reveal: String,
    /// What Enter runs on the engine.
    pub(super) run: Option<Run>,
}

/// A number of this session and where the choices part.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Measured {
    pub(super) fact: Fact,
    /// Rising; one less than there are choices.
    pub(super) bounds: Vec<f64>,
}

/// A prompt with settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Run {
    pub(super) prompt: String,
    pub(super) k: u8,
    #[serde(default)]
    pub(super) rule: crate::protocol::VerifyRule,
    #[serde(default)]
    pub(super) temperature: f32,
    /// Hold after the prompt, so that the user steps.
    #[serde(default)]
    pub(super) hold: bool,
    /// A rule that races beside on the same prompt.
    #[serde(default)]
    pub(super) against: Option<crate::protocol::VerifyRule>,
    /// The recording of this very run, played where there is no engine.
    pub(super) recording: String,
}

/// A number measured in the session on show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Fact {
    /// T(k + 1) ÷ T(1) at the newest round's k.
    VerifyRatio,
    /// One drafted token ÷ T(1).
    DraftShare,
    /// Share of rounds that accepted the draft at position 1, newest turn.
    FirstAccepted,
    /// Committed ÷ rounds, newest turn.
    TokensPerRound,
    /// Speculative ÷ plain, newest turn.
    Speedup,
    /// Leading tokens equal in both lanes, newest turn.
    Identical,
    /// Leading tokens equal in the own lane and the rival's, newest turn.
    IdenticalToRival,
    /// Tokens of the newest turn that a lossless rule would not have committed, in the rival's lane.
    Departures,
    /// k of the newest round.
    K,
}

impl Fact {
    pub(super) const ALL: &'static [(&'static str, Self)] = &[
        ("verify_ratio", Self::VerifyRatio),
        ("draft_share", Self::DraftShare),
        ("first_accepted", Self::FirstAccepted),
        ("tokens_per_round", Self::TokensPerRound),
        ("speedup", Self::Speedup),
        ("identical", Self::Identical),
        ("identical_to_rival", Self::IdenticalToRival),
        ("departures", Self::Departures),
        ("k", Self::K),
    ];

    /// Its value, if it was measured.
    pub(super) fn value(self, session: &Session) -> Option<f64> {
        let turn = session.turn()?;
        let answer = turn.answer(Lane::Speculative);
        match self {
            Self::VerifyRatio => {
                let verify_us = Account::of_turn(turn)?.costs.verify_us;
                Some(verify_us.get(usize::from(answer.rounds.last()?.draft_len))? / verify_us.first()?)
            }
            Self::DraftShare => {
                let costs = Account::of_turn(turn)?.costs;
                Some(costs.draft_us / costs.verify_us.first()?)
            }
            Self::FirstAccepted => {
                let stats = answer.stats();
                let offered = *stats.offered_per_pos().first()?;
                Some(*stats.accepted_per_pos().first()? as f64 / offered as f64)
            }
            Self::TokensPerRound => answer.stats().mean_tokens_per_round(),
            Self::Speedup => turn.speedup().map(|speedup| speedup.value),
            Self::Identical => turn.agreement().map(|agreement| agreement.identical as f64),
            Self::IdenticalToRival => turn.agreement_with(Lane::Rival).map(|agreement| agreement.identical as f64),
            Self::Departures => {
                let rival = turn.answer(Lane::Rival);
                (!rival.tokens.is_empty()).then(|| rival.departures().count() as f64)
            }
            Self::K => Some(f64::from(answer.rounds.last()?.draft_len)),
        }
    }

    fn shown(self, session: &Session) -> String {
        let Some(value) = self.value(session) else {
            return "(not measured yet)".to_owned();
        };
        match self {
            Self::FirstAccepted | Self::DraftShare => format!("{:.0} %", value * 100.0),
            Self::Identical | Self::IdenticalToRival | Self::Departures | Self::K => format!("{value:.0}"),
            _ => format!("{value:.2}"),
        }
    }
}

/// Text with the measured numbers in place of `{names}`.
pub(super) fn filled(text: &str, session: &Session) -> String {
    let mut out = text.trim().to_owned();
    for (name, fact) in Fact::ALL {
        let wanted = format!("{{{name}}}");
        if out.contains(&wanted) {
            out = out.replace(&wanted, &fact.shown(session));
        }
    }
    out
}

/// Where the user is in the lessons.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Study {
    /// None shows the list.
    pub(super) lesson: Option<usize>,
    pub(super) step: usize,
    /// Chosen line: of the list, or of the choices.
    pub(super) choice: usize,
    pub(super) is_revealed: bool,
    /// Answers that were right, and questions answered.
    pub(super) right: u32,
    pub(super) asked: u32,
    /// The draft that the quiz asks about.
    pub(super) quiz: Option<(RoundAt, usize)>,
    /// What a run of this lesson set: the settings before the first one, and those it set last.
    pub(super) lent: Option<(Settings, Settings)>,
    /// Its newest run holds the engine, and nobody has paused or resumed since.
    pub(super) holds: bool,
}

impl Study {
    /// The lesson and the step on show.
    pub(super) fn at(&self) -> Option<(Lesson, Step)> {
        let lesson = lesson(self.lesson?)?;
        let step = lesson.step.get(self.step)?.clone();
        Some((lesson, step))
    }

    /// The right choice of a step, from 0.
    pub(super) fn right_choice(&self, step: &Step, session: &Session) -> Option<usize> {
        if step.quiz {
            let (at, index) = self.quiz?;
            let accepted = round_at(session, at)?.outcome(index)? == Outcome::Accepted;
            return Some(usize::from(!accepted));
        }
        match &step.measured {
            Some(_) if session.is_generating() => None, // what is measured may still change
            Some(measured) => {
                let value = measured.fact.value(session)?;
                Some(measured.bounds.iter().filter(|bound| value >= **bound).count())
            }
            None => step.answer?.checked_sub(1),
        }
    }
}

/// One of the bundled lessons.
pub(super) fn lesson(index: usize) -> Option<Lesson> {
    toml::from_str(BUNDLED.get(index)?.1).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::fixture::first_turn;

    #[test]
    fn every_lesson_loads_and_checks_something_before_it_tells() {
        for (index, (name, text)) in BUNDLED.iter().enumerate() {
            let lesson: Lesson = toml::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(lesson.step.iter().any(|step| !step.choices.is_empty() || step.quiz), "{name} asks nothing");
            for step in &lesson.step {
                let asks = step.answer.is_some() || step.measured.is_some();
                assert_eq!(asks, !step.choices.is_empty(), "{name}: {}", step.text);
                assert!(step.answer.is_none_or(|answer| (1..=step.choices.len()).contains(&answer)), "{name}");
                let bounds = step.measured.as_ref().map_or(step.choices.len().max(1), |m| m.bounds.len() + 1);
                assert_eq!(bounds, step.choices.len().max(1), "{name}: {}", step.text);
                assert!(!asks || !step.reveal.is_empty(), "{name}: {}", step.text);
                assert!(step.text.chars().count() < 700, "{name} has a long step: {}", step.text);
            }
            assert!(super::lesson(index).is_some());
        }
    }

    #[test]
    fn words_in_braces_are_facts() {
        let known = |word: &str| Fact::ALL.iter().any(|(name, _)| *name == word);
        for (name, text) in BUNDLED {
            for part in text.split('{').skip(1) {
                let word = part.split('}').next().unwrap();
                let is_toml = word.contains('=');
                assert!(is_toml || known(word), "{name}: {{{word}}}");
            }
        }
        let mut session = Session::new();
        assert_eq!(filled(" {speedup} ", &session), "(not measured yet)");
        first_turn().events.iter().for_each(|event| session.apply(event));
        assert_eq!(filled("{k} {verify_ratio} {first_accepted}", &session), "3 1.25 57 %");
        for (name, fact) in Fact::ALL {
            let needs_rival = matches!(fact, Fact::IdenticalToRival | Fact::Departures);
            assert_eq!(fact.value(&session).is_some(), !needs_rival, "{name}");
        }
    }
}
