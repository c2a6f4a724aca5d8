//! Numbers that lessons ask about and name: measured in the run that the lesson asked for.
//!
//! Invariant: a number is that of the lesson's own run, found by its prompt and settings, whatever else the session has
//! run; one that was not measured is none.

use serde::Deserialize;

use draftscope_protocol::{Lane, StopReason};
use draftscope_session::account::{Account, break_even_at};
use draftscope_session::{Answer, Session, Turn};

use super::run::Run;

/// Said in place of a number that a run did not give.
pub const UNKNOWN: &str = "not known on this busy machine";

/// A number measured in the session on show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fact {
    /// T(k + 1) ÷ T(1) at the run's k.
    VerifyRatio,
    /// T(1) in milliseconds.
    OneRowMs,
    /// T(k + 1) in milliseconds.
    AllRowsMs,
    /// Threads that the engine has loaded.
    Threads,
    /// Of a run on fewer threads: T(k + 1) ÷ T(1) on all of them.
    RatioOnAll,
    /// T(1) of that run ÷ T(1) on all threads.
    OneRowSlower,
    /// T(k + 1) of that run ÷ T(k + 1) on all threads.
    AllRowsSlower,
    /// One drafted token ÷ T(1).
    DraftShare,
    /// The acceptance, the same at every position, from which on the run's k pays.
    BreakEven,
    /// Share of rounds that accepted the draft at position 1.
    FirstAccepted,
    /// The target's probability of the first draft of the first round with drafts.
    FirstP,
    /// Committed ÷ rounds.
    TokensPerRound,
    /// Speculative ÷ plain.
    Speedup,
    /// Leading tokens equal in the run's own lane and in the plain one.
    Identical,
    /// The same as a share of the longer answer; only once both came to their end.
    IdenticalShare,
    /// Leading tokens equal in the own lane and the rival's.
    IdenticalToRival,
    /// Tokens that a lossless rule would not have committed, in the rival's lane if one ran, else in the own.
    Departures,
    /// Position of the first draft of the round on show that differs from the target's own token; one more than there
    /// are drafts if none does.
    RejectedAt,
    /// k of the run.
    K,
    /// Tokens of the answer.
    Tokens,
    /// Megabytes of the target's weights.
    TargetMb,
    /// Megabytes of the drafter's weights.
    DrafterMb,
    /// Bytes of the target's KV cache per position.
    TargetKv,
    /// Bytes of the drafter's own KV cache per position.
    DrafterKv,
    /// Layers of the target.
    Layers,
    /// Tokens that the drafter can propose besides those of the text.
    DraftVocab,
    /// Vocabulary of the target.
    Vocab,
}

impl Fact {
    /// All of them, with the names that texts use.
    pub const ALL: &'static [(&'static str, Self)] = &[
        ("verify_ratio", Self::VerifyRatio),
        ("one_row_ms", Self::OneRowMs),
        ("all_rows_ms", Self::AllRowsMs),
        ("threads", Self::Threads),
        ("ratio_on_all", Self::RatioOnAll),
        ("one_row_slower", Self::OneRowSlower),
        ("all_rows_slower", Self::AllRowsSlower),
        ("draft_share", Self::DraftShare),
        ("break_even", Self::BreakEven),
        ("first_accepted", Self::FirstAccepted),
        ("first_p", Self::FirstP),
        ("tokens_per_round", Self::TokensPerRound),
        ("speedup", Self::Speedup),
        ("identical", Self::Identical),
        ("identical_share", Self::IdenticalShare),
        ("identical_to_rival", Self::IdenticalToRival),
        ("departures", Self::Departures),
        ("rejected_at", Self::RejectedAt),
        ("k", Self::K),
        ("tokens", Self::Tokens),
        ("target_mb", Self::TargetMb),
        ("drafter_mb", Self::DrafterMb),
        ("target_kv", Self::TargetKv),
        ("drafter_kv", Self::DrafterKv),
        ("layers", Self::Layers),
        ("draft_vocab", Self::DraftVocab),
        ("vocab", Self::Vocab),
    ];

    /// Whether it is read off the round on show, while the answer may still go on.
    #[must_use]
    pub fn is_of_round(self) -> bool {
        self == Self::RejectedAt
    }

    /// Whether it holds for the models, whatever was run.
    fn of_models(self, session: &Session) -> Option<f64> {
        let header = session.header()?;
        let drafter = || header.drafters.iter().chain(&header.drafter).find(|drafter| drafter.weight_bytes > 0);
        Some(match self {
            Self::TargetMb => header.model.weight_bytes as f64 / 1e6,
            Self::DrafterMb => drafter()?.weight_bytes as f64 / 1e6,
            Self::TargetKv => header.model.kv_bytes_per_token as f64,
            Self::DrafterKv => drafter()?.kv_bytes_per_token as f64,
            Self::Layers => header.model.layers.into(),
            Self::DraftVocab => drafter()?.draft_vocab.into(),
            Self::Vocab => header.model.vocab.into(),
            Self::Threads => header.threads.into(),
            _ => return None,
        })
    }

    /// Its value in the lesson's run, if it was measured.
    #[must_use]
    pub fn value(self, session: &Session, run: Option<&Run>) -> Option<f64> {
        self.of_models(session).or_else(|| self.of_threads(session, run?)).or_else(|| self.of_turn(run?.turn(session)?))
    }

    /// Of a run on fewer threads, beside the same on all of them.
    fn of_threads(self, session: &Session, run: &Run) -> Option<f64> {
        let (here, all) = (run.turn(session)?, run.turn_on_all(session)?);
        let slower = |fact: Self| Some(fact.of_turn(here)? / fact.of_turn(all)?);
        match self {
            Self::RatioOnAll => Self::VerifyRatio.of_turn(all),
            Self::OneRowSlower => slower(Self::OneRowMs),
            Self::AllRowsSlower => slower(Self::AllRowsMs),
            _ => None,
        }
    }

    fn of_turn(self, turn: &Turn) -> Option<f64> {
        let answer = turn.answer(Lane::Speculative);
        let k = usize::from(turn.begun.draft_len);
        let costs = || Account::of_turn(turn).map(|account| account.costs);
        match self {
            Self::VerifyRatio => {
                let verify_us = costs()?.verify_us;
                Some(verify_us.get(k)? / verify_us.first()?)
            }
            Self::OneRowMs => Some(costs()?.verify_us.first()? / 1e3),
            Self::AllRowsMs => Some(costs()?.verify_us.get(k)? / 1e3),
            Self::DraftShare => {
                let costs = costs()?;
                Some(costs.drafting_us(k.max(1)) / k.max(1) as f64 / costs.verify_us.first()?)
            }
            Self::BreakEven => break_even_at(&costs()?, k),
            Self::FirstAccepted => {
                let stats = answer.stats();
                let offered = *stats.offered_per_pos().first()?;
                Some(*stats.accepted_per_pos().first()? as f64 / offered as f64)
            }
            Self::FirstP => {
                let round = answer.rounds.iter().find(|round| !round.drafts.is_empty())?;
                round.judgement(0)?.p.map(f64::from)
            }
            Self::TokensPerRound => answer.stats().mean_tokens_per_round(),
            Self::Speedup => turn.speedup().filter(|speedup| !speedup.is_disturbed()).map(|speedup| speedup.value),
            Self::Identical => turn.agreement().map(|agreement| agreement.identical as f64),
            Self::IdenticalShare => {
                let plain = turn.answer(Lane::Plain);
                let longer = answer.tokens.len().max(plain.tokens.len());
                let are_whole = is_whole(answer) && is_whole(plain);
                let identical = turn.agreement().filter(|_| are_whole)?.identical;
                Some(identical as f64 / longer.max(1) as f64)
            }
            Self::IdenticalToRival => turn.agreement_with(Lane::Rival).map(|agreement| agreement.identical as f64),
            Self::Departures => {
                let rival = turn.answer(Lane::Rival);
                let lenient = if rival.tokens.is_empty() { answer } else { rival };
                (!lenient.tokens.is_empty()).then(|| lenient.departures().count() as f64)
            }
            Self::RejectedAt => {
                let round = answer.rounds.last().filter(|round| !round.rows().is_empty())?;
                let differs = |index: &usize| {
                    let best = round.prediction(*index).and_then(|row| row.best());
                    best.is_none_or(|best| best.piece.id != round.drafts[*index].token.id)
                };
                let first = (0..round.drafts.len()).find(differs);
                Some(first.unwrap_or(round.drafts.len()) as f64 + 1.0)
            }
            Self::K => Some(k as f64),
            Self::Tokens => (!answer.tokens.is_empty()).then_some(answer.tokens.len() as f64),
            _ => None,
        }
    }

    fn shown(self, session: &Session, run: Option<&Run>) -> String {
        let Some(value) = self.value(session, run) else {
            let is_over = run.is_some_and(|run| run.is_over(session));
            return if is_over { format!("({UNKNOWN})") } else { "(not measured yet)".to_owned() };
        };
        match self {
            Self::FirstAccepted | Self::FirstP | Self::DraftShare | Self::IdenticalShare => {
                format!("{:.0} %", value * 100.0)
            }
            Self::VerifyRatio
            | Self::RatioOnAll
            | Self::OneRowSlower
            | Self::AllRowsSlower
            | Self::BreakEven
            | Self::TokensPerRound
            | Self::Speedup
            | Self::OneRowMs
            | Self::AllRowsMs => {
                format!("{value:.2}")
            }
            Self::TargetMb | Self::DrafterMb => format!("{value:.1}"),
            Self::Vocab | Self::DraftVocab | Self::TargetKv | Self::DrafterKv => grouped(value as u64),
            _ => format!("{value:.0}"),
        }
    }
}

/// Whether an answer came to the end that the settings gave it.
fn is_whole(answer: &Answer) -> bool {
    matches!(answer.finished, Some(StopReason::Eos | StopReason::MaxTokens | StopReason::ContextFull))
}

/// With a comma after every three digits.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Text with the measured numbers in place of `{names}`.
#[must_use]
pub fn filled(text: &str, session: &Session, run: Option<&Run>) -> String {
    let mut out = text.trim().to_owned();
    for (name, fact) in Fact::ALL {
        if out.contains(&format!("{{{name}}}")) {
            out = put_in(&out, name, &fact.shown(session, run));
        }
    }
    out
}

/// A text with a number in place of its name; one token is no "1 tokens".
fn put_in(text: &str, name: &str, shown: &str) -> String {
    let wanted = format!("{{{name}}}");
    let text = if shown == "1" { text.replace(&format!("{wanted} tokens"), "1 token") } else { text.to_owned() };
    text.replace(&wanted, shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_token_is_singular() {
        let text = "equal for {tokens} tokens of {tokens}";
        assert_eq!(put_in(text, "tokens", "1"), "equal for 1 token of 1");
        assert_eq!(put_in(text, "tokens", "12"), "equal for 12 tokens of 12");
    }

    #[test]
    fn large_numbers_are_grouped() {
        assert_eq!(["7", "4,096", "49,152", "1,000,000"].map(str::to_owned), [7, 4096, 49_152, 1_000_000].map(grouped));
    }
}
