//! One JSON object about a run. `docs/json.md` defines every field.
//!
//! Invariant: what is written says what it was measured with, and why each answer ended.

use serde::Serialize;

use draftscope_protocol::statistics::quantiles;
use draftscope_protocol::{Header, Lane, RunSummary, StopReason, TokenId};
use draftscope_session::{Divergence, Figure, LaneStats, PartStats, Speedup, Turn};

/// Figures, and what they were measured with.
#[derive(Clone, Debug, Serialize)]
pub struct Described<T> {
    /// Program, models, settings at the start, device and threads; none where nothing was loaded.
    pub header: Option<Header>,
    /// The figures.
    #[serde(flatten)]
    pub figures: T,
}

/// A lane's run in numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Tokens of the prompt, template included; none, as the next one, where an attached engine does not report them.
    pub prompt_tokens: Option<u64>,
    /// Those of them that were in the cache already, and that no pass of this answer computed.
    pub cached_tokens: Option<u32>,
    /// Why the answer ended; none where it has not.
    pub finish_reason: Option<StopReason>,
    /// Tokens of the answer, the one from the prompt's pass included.
    pub output_tokens: u64,
    /// Their ids; null where an attached engine reports none.
    pub output_token_ids: Vec<TokenId>,
    /// Their text, control tokens left out.
    pub text: String,
    /// Rounds, drafts and times.
    #[serde(flatten)]
    pub run: RunSummary,
    /// Figures under the names of llama.cpp's server, which proxies and dashboards read.
    pub timings: Timings,
    /// Tokens committed in rounds ÷ rounds: what a stop rule cut off does not count.
    pub tokens_per_round: Option<f64>,
    /// Whether every rule that judged drafts is lossless; none where an attached engine did not report its rule.
    pub lossless: Option<bool>,
    /// Output tokens that a lossless rule would not have committed after the same tokens.
    pub departures: u64,
    /// Index of the first of them: there the text left the lossless path. Null under a lossless rule.
    pub first_departure: Option<usize>,
    /// A sentence if the answer's rejections contradict the probabilities that its rounds report.
    pub contradiction: Option<String>,
    /// The rounds of the thought; null without one.
    pub thought: Option<Part>,
    /// The rounds of what follows the thought; null without one.
    pub answer: Option<Part>,
}

/// `timings` as llama.cpp's server has it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Timings {
    /// Tokens of the prompt that were computed: those in the cache do not count. None where the engine does not report them.
    pub prompt_n: Option<u64>,
    /// Time of the prefill in milliseconds.
    pub prompt_ms: f64,
    /// Tokens of the answer.
    pub predicted_n: u64,
    /// Time of all rounds in milliseconds.
    pub predicted_ms: f64,
    /// As `tokens_per_second`.
    pub predicted_per_second: Option<f64>,
    /// Draft tokens proposed; absent, as the next one, without drafts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draft_n: Option<u64>,
    /// Draft tokens accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draft_n_accepted: Option<u64>,
}

impl Timings {
    fn of(prompt: Option<u64>, output_tokens: u64, run: &RunSummary) -> Self {
        let drafted = run.num_draft_tokens.filter(|drafted| *drafted > 0);
        Self {
            prompt_n: prompt,
            prompt_ms: run.prefill_seconds * 1e3,
            predicted_n: output_tokens,
            predicted_ms: run.decode_seconds * 1e3,
            predicted_per_second: run.tokens_per_second,
            draft_n: drafted,
            draft_n_accepted: drafted.and(run.num_accepted_draft_tokens),
        }
    }
}

/// Rounds of a part of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Part {
    /// Complete rounds.
    pub rounds: u64,
    /// Draft tokens proposed; none, as the next one, where the engine does not report them.
    pub drafted: Option<u64>,
    /// Draft tokens accepted.
    pub accepted: Option<u64>,
    /// Tokens committed.
    pub committed: u64,
    /// Accepted ÷ drafted.
    pub draft_acceptance_rate: Option<f64>,
    /// Committed ÷ rounds.
    pub tokens_per_round: Option<f64>,
}

impl Part {
    fn of(sums: PartStats, counts_drafts: bool) -> Self {
        let known = |count: u64| counts_drafts.then_some(count);
        Self {
            rounds: sums.rounds,
            drafted: known(sums.drafted),
            accepted: known(sums.accepted),
            committed: sums.committed,
            draft_acceptance_rate: sums.acceptance_rate(),
            tokens_per_round: sums.tokens_per_round(),
        }
    }
}

impl Summary {
    /// Sums a lane of a turn up.
    #[must_use]
    pub fn of(turn: &Turn, lane: Lane) -> Self {
        let answer = turn.answer(lane);
        let counts = answer.stats().counts_drafts();
        let has_prompt = !answer.prompt.is_empty();
        let (run, output_tokens) = (answer.stats().summary(), answer.stats().output_tokens());
        let computed = (answer.prompt.len() as u64).saturating_sub(answer.cached.into());
        let parts = answer.stats().thought_and_answer().map(|parts| parts.map(|part| Part::of(part, counts)));
        Self {
            thought: parts.map(|[thought, _]| thought),
            answer: parts.map(|[_, answer]| answer),
            prompt_tokens: has_prompt.then_some(answer.prompt.len() as u64),
            cached_tokens: has_prompt.then_some(answer.cached),
            finish_reason: answer.finished,
            timings: Timings::of(has_prompt.then_some(computed), output_tokens, &run),
            output_tokens,
            output_token_ids: answer.tokens.iter().map(|t| t.piece.id).collect(),
            text: answer.text(),
            run,
            tokens_per_round: answer.stats().mean_tokens_per_round(),
            lossless: turn.reports_rule().then(|| answer.is_lossless()),
            departures: answer.departures().count() as u64,
            first_departure: answer.departures().next(),
            contradiction: answer.stats().evidence().sentence(),
        }
    }

    fn speed(&self) -> f64 {
        self.run.tokens_per_second.unwrap_or(0.0)
    }
}

/// Smallest, median and largest of repeated measurements.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Smallest.
    pub min: f64,
    /// The middle one, or the mean of the two in the middle.
    pub median: f64,
    /// Largest.
    pub max: f64,
}

impl Spread {
    /// Of a list; none when it is empty.
    #[must_use]
    pub fn of(values: Vec<f64>) -> Option<Self> {
        quantiles(values, [0.0, 0.5, 1.0]).map(|[min, median, max]| Self { min, median, max })
    }
}

/// Plain against speculative decoding of one prompt.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CompareSummary {
    /// The plain run of median speed; none where nothing was decoded plainly.
    pub plain: Option<Summary>,
    /// The speculative run of median speed.
    pub speculative: Summary,
    /// Speculative ÷ plain tokens per second over the repeats, measured next to each other, with its interval.
    #[serde(flatten)]
    pub figure: Figure,
    /// What is to be thought of it; none for a plausible one.
    #[serde(skip)]
    pub speedup: Option<Speedup>,
    /// Tokens per second over all repeats, plain and speculative: their quotient is the speedup.
    #[serde(skip)]
    pub speeds: [Option<f64>; 2],
    /// Spread of that ratio over the repeats.
    pub speedup_spread: Option<Spread>,
    /// Spread of plain tokens per second at the moments of the speculative rounds.
    pub plain_tokens_per_second: Option<Spread>,
    /// Spread of speculative tokens per second.
    pub speculative_tokens_per_second: Option<Spread>,
    /// Repeats measured; one more was run before as warm-up.
    pub repeats: usize,
    /// That first run, of a server: its drafter may remember earlier answers, so that only this run shows a new prompt.
    /// None of our own engine, which begins anew with each answer.
    pub first_run: Option<FirstRun>,
    /// Whether both answers were the same in every repeat, the warm-up included; none where nothing was decoded plainly.
    pub identical: Option<bool>,
    /// The first difference found.
    pub first_divergence: Option<Divergence>,
    /// Places at which the answers of the last repeat do not hold the same token.
    pub differing_tokens: Option<usize>,
}

impl CompareSummary {
    /// Compares both lanes of every turn; the first of several is the warm-up. None without a turn.
    #[must_use]
    pub fn of(turns: &[Turn]) -> Option<Self> {
        let measured = if turns.len() > 1 { &turns[1..] } else { turns };
        let lane = |lane| measured.iter().map(|turn| Summary::of(turn, lane)).collect::<Vec<_>>();
        let (plain, speculative) = (lane(Lane::Plain), lane(Lane::Speculative));
        let speeds = |lane| Spread::of(measured.iter().filter_map(|turn| turn.tokens_per_second(lane)).collect());
        let own_us = |turn: &Turn| turn.answer(Lane::Speculative).stats().decode_us();
        let speedup = Speedup::over_turns(measured.iter().filter_map(|turn| Some((turn.speedup()?, own_us(turn)))));
        let mut own = LaneStats::default();
        measured.iter().for_each(|turn| own.merge(turn.answer(Lane::Speculative).stats()));
        let own_speed = own.tokens_per_second();
        let ratios = measured.iter().filter_map(|turn| Some(turn.speedup()?.value));
        let has_plain = measured.iter().any(|turn| !turn.answer(Lane::Plain).tokens.is_empty());
        let first_run = turns.first().filter(|first| turns.len() > 1 && first.is_attached());
        let first_run = first_run.map(|first| FirstRun::of(first.answer(Lane::Speculative).stats(), &own));
        let first_divergence = turns.iter().find_map(|turn| turn.agreement()?.divergence);
        Some(Self {
            plain_tokens_per_second: speeds(Lane::Plain),
            speculative_tokens_per_second: speeds(Lane::Speculative),
            repeats: measured.len(),
            first_run,
            plain: median_run(plain).filter(|_| has_plain),
            speculative: median_run(speculative)?,
            speeds: [speedup.and_then(|speedup| Some(own_speed? / speedup.value)), own_speed],
            figure: speedup.into(),
            speedup,
            speedup_spread: Spread::of(ratios.collect()),
            identical: has_plain.then_some(first_divergence.is_none()),
            first_divergence,
            differing_tokens: turns.last()?.differing_tokens(),
        })
    }
}

/// The first answer to a prompt, and the later ones together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FirstRun {
    /// Tokens per round of the first answer.
    pub tokens_per_round: Option<f64>,
    /// Accepted ÷ drafted there.
    pub draft_acceptance_rate: Option<f64>,
    /// Its tokens per second.
    pub tokens_per_second: Option<f64>,
    /// Tokens per round of the later answers to the same prompt.
    pub later_tokens_per_round: Option<f64>,
    /// Accepted ÷ drafted there.
    pub later_draft_acceptance_rate: Option<f64>,
}

/// A later answer with this many times as many tokens per round as the first had help from it.
const HELPED: f64 = 1.1;

impl FirstRun {
    fn of(first: &LaneStats, later: &LaneStats) -> Self {
        Self {
            tokens_per_round: first.mean_tokens_per_round(),
            draft_acceptance_rate: first.acceptance_rate(),
            tokens_per_second: first.tokens_per_second(),
            later_tokens_per_round: later.mean_tokens_per_round(),
            later_draft_acceptance_rate: later.acceptance_rate(),
        }
    }

    /// Whether the later answers drafted better than the first: the drafter remembers it.
    #[must_use]
    pub fn is_remembered(&self) -> bool {
        self.tokens_per_round.zip(self.later_tokens_per_round).is_some_and(|(first, later)| later > first * HELPED)
    }
}

fn median_run(mut runs: Vec<Summary>) -> Option<Summary> {
    runs.sort_by(|a, b| a.speed().total_cmp(&b.speed()));
    let half = runs.len() / 2;
    runs.into_iter().nth(half)
}

#[cfg(test)]
mod tests {
    use super::*;
    use draftscope_protocol::{Committed, Event, EventKind, Piece, Prediction, Prefilled, RoundStarted};
    use draftscope_session::Session;

    #[test]
    fn the_median_of_an_even_count_lies_between() {
        let spread = Spread::of(vec![3.0, 1.0, 2.0, 10.0]).unwrap();
        assert_eq!((spread.min, spread.median, spread.max), (1.0, 2.5, 10.0));
        assert_eq!(Spread::of(vec![]), None);
    }

    /// A turn in which each lane commits one token a round, 1 ms each.
    fn turn(session: &mut Session, number: u32, lanes: [(Lane, &[u32]); 2]) {
        let piece = |id: u32| Piece::new(TokenId(id), format!("t{id}"));
        let mut apply = |lane, kind| session.apply(&Event { seq: 0, at_us: 0, lane, kind });
        apply(Lane::Speculative, EventKind::Prompted { turn: number, text: "x".into(), branch: None });
        for (lane, tokens) in lanes {
            let row = Prediction::default();
            let first = piece(tokens[0]);
            apply(
                lane,
                EventKind::Prefilled(Prefilled {
                    turn: number,
                    prompt: vec![piece(1)],
                    first,
                    row,
                    took_us: 5,
                    ..Prefilled::default()
                }),
            );
            for (round, token) in (1..).zip(&tokens[1..]) {
                apply(
                    lane,
                    EventKind::RoundStarted(RoundStarted { round, base_len: round, ..RoundStarted::default() }),
                );
                let clock_us = 1000 * u64::from(round);
                apply(
                    lane,
                    EventKind::Committed(Committed {
                        round,
                        tokens: vec![piece(*token)],
                        rollback_us: 1,
                        clock_us,
                        ..Committed::default()
                    }),
                );
            }
            apply(lane, EventKind::Finished { reason: StopReason::MaxTokens });
        }
    }

    #[test]
    fn a_difference_in_any_repeat_is_found() {
        let mut session = Session::new();
        let same: &[u32] = &[7, 8, 9];
        turn(&mut session, 1, [(Lane::Speculative, same), (Lane::Plain, same)]);
        turn(&mut session, 2, [(Lane::Speculative, same), (Lane::Plain, same)]);
        let summary = CompareSummary::of(session.turns()).unwrap();
        assert_eq!(summary.speculative.tokens_per_round, Some(1.0));
        assert!(summary.identical == Some(true) && summary.repeats == 1, "{summary:?}");
        assert_eq!(summary.speedup, None, "two rounds, and none next to each other");
        turn(&mut session, 3, [(Lane::Speculative, &[7, 6, 9]), (Lane::Plain, same)]);
        let summary = CompareSummary::of(session.turns()).unwrap();
        let divergence = summary.first_divergence.unwrap();
        assert_eq!(summary.identical, Some(false));
        assert_eq!((divergence.index, divergence.beside.unwrap().id), (1, TokenId(8)));
        assert_eq!(divergence.speculative.unwrap().id, TokenId(6));
    }
}
