//! Spans of an answer in which the same settings were in force.
//!
//! Invariant: a figure of speed is that of one span: k, rule, drafter and sampling are not mixed.

use std::ops::Range;

use draftscope_protocol::Settings;

use super::speedup::Speedup;

/// Rounds of an answer under the same settings.
#[derive(Clone, Debug, PartialEq)]
pub struct SettingsSpan {
    /// The settings.
    pub settings: Settings,
    /// Indices in [`Answer::rounds`](super::turn::Answer::rounds); never empty.
    pub rounds: Range<usize>,
    /// Tokens that a round wrote on average; `None` before one is timed.
    pub tokens_per_round: Option<f64>,
    /// Accepted drafts ÷ drafts that the target judged, 0 to 1; `None` before one was judged.
    pub acceptance: Option<f64>,
    /// Tokens per second of its rounds; `None` before one is timed.
    pub tokens_per_second: Option<f64>,
    /// Time of its rounds, in microseconds.
    pub decode_us: u64,
    /// Times as fast as plain decoding beside these rounds.
    pub speedup: Option<Speedup>,
    /// The same against the rival.
    pub(super) over_rival: Option<Speedup>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Script, fold};
    use draftscope_protocol::{DraftLenMode, EventKind, Lane};

    /// Rounds of one draft that is rejected, between plain passes; from the 21st on, with two that are accepted.
    fn changed(settings: Settings) -> crate::Session {
        let mut script = Script::prompted("hi", "Hello");
        for round in 0..40 {
            if round == 20 {
                script.push(Lane::Speculative, EventKind::SettingsChanged { settings });
            }
            match round {
                0..20 => script.round(&[(" x", 0.5)], &[(" a", 0.9), (" b", 0.9)]),
                _ => script.round(&[(" a", 0.5), (" b", 0.5)], &[(" a", 0.9), (" b", 0.9), (" c", 0.9)]),
            }
            script.plain(" a");
        }
        fold(&script.events)
    }

    #[test]
    fn a_speedup_is_that_of_the_settings_in_force() {
        let now = Settings { draft_len: 2, ..crate::fixture::header().settings };
        let session = changed(now);
        let turn = &session.turns()[0];
        let [before, after] = turn.settings_spans() else { panic!("{:?}", turn.settings_spans()) };
        assert_eq!((before.rounds.clone(), after.rounds.clone()), (0..20, 20..40));
        assert_eq!((before.settings.draft_len, after.settings), (3, now));
        assert_eq!((before.tokens_per_round, after.tokens_per_round), (Some(1.0), Some(3.0)));
        assert_eq!((before.acceptance, after.acceptance), (Some(0.0), Some(1.0)));
        let [slow, fast] = [before, after].map(|span| span.speedup.unwrap().value);
        assert!(slow < 1.0 && fast > 2.0, "{slow} {fast}");
        assert_eq!((turn.speedup(), session.speedup().map(|of| of.value)), (after.speedup, Some(fast)));
        let own = turn.tokens_per_second(Lane::Speculative).unwrap();
        assert!((own / turn.tokens_per_second(Lane::Plain).unwrap() - fast).abs() < 1e-9, "speeds go with the speedup");
    }

    #[test]
    fn what_shapes_no_round_does_not_split_an_answer() {
        let same = Settings { max_tokens: 9, ..crate::fixture::header().settings };
        assert_eq!(changed(same).turns()[0].settings_spans().len(), 1);
        let chosen = |draft_len| Settings { draft_len, draft_len_mode: DraftLenMode::Auto, ..Settings::default() };
        assert!(chosen(2).makes_rounds_like(&chosen(5)) && !chosen(3).makes_rounds_like(&Settings::default()));
    }

    #[test]
    fn of_several_turns_those_with_the_newest_settings_count() {
        let mut script = Script::started();
        for turn in 0..3 {
            script.prompt("hi", "Hello");
            for _ in 0..12 {
                match turn {
                    0 => script.round(&[(" x", 0.5)], &[(" a", 0.9), (" b", 0.9)]),
                    _ => script.round(&[(" a", 0.5)], &[(" a", 0.9), (" b", 0.9)]),
                }
                script.plain(" a");
            }
            if turn == 0 {
                script.finish(Lane::Speculative, draftscope_protocol::StopReason::Eos);
                let settings = Settings { draft_len: 1, ..crate::fixture::header().settings };
                script.push(Lane::Speculative, EventKind::SettingsChanged { settings });
            }
        }
        let session = fold(&script.events);
        let of = |turn: usize| session.turns()[turn].speedup().unwrap().value;
        let mean = session.speedup().unwrap().value;
        assert!(of(0) < 1.0 && (mean - of(1).midpoint(of(2))).abs() < 0.05, "{} {} {} {mean}", of(0), of(1), of(2));
    }
}
