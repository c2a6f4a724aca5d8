//! Finds the cause of the first difference between two greedy answers: a near tie, a state error or a verification bug.
//!
//! The numerical noise is measured on windows of the same text: how much the margin between the two best tokens changes
//! when rows run together instead of one by one. Invariant: the cause is `near tie` only where the margin is at most
//! twice that noise, and noise above [`MOST_NOISE`] is itself a bug.

use std::fmt;

use serde::Serialize;

use super::record::Record;
use crate::grammar::{Constraint, Mask};
use crate::speculate::SpecError;
use draftscope_model::{Forward, LogitRows, Model};
use draftscope_protocol::TokenId;

/// Most noise that rounding explains, in nats. With more, rows run together compute something else.
pub const MOST_NOISE: f64 = 0.5;

/// Windows over which noise is measured.
const WINDOWS: usize = 8;

/// Cause of the first difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The two best tokens were closer than the measured numerical noise.
    NearTie,
    /// A fresh cache gives the plain answer: a rollback left a wrong state.
    StateError,
    /// Neither: the pass or the rule computes something else.
    VerificationBug,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::NearTie => "near tie",
            Self::StateError => "state error after a rollback",
            Self::VerificationBug => "verification bug",
        })
    }
}

/// The two best tokens of a row and their margin.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Side {
    /// The best token.
    pub best: TokenId,
    /// The second best.
    pub second: TokenId,
    /// ln p(best) − ln p(second), in nats.
    pub margin: f64,
}

/// The first difference and its cause.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diagnosis {
    /// Index of the first output token that differs.
    pub index: usize,
    /// The plain run's token there; none when it had ended.
    pub plain: Option<TokenId>,
    /// The speculative run's token there; none when it had ended.
    pub speculative: Option<TokenId>,
    /// The plain run's row.
    pub plain_row: Option<Side>,
    /// The speculative run's row.
    pub speculative_row: Option<Side>,
    /// Rows of the pass that verified the position.
    pub width: usize,
    /// Whether the round before discarded drafts.
    pub previous_rolled_back: bool,
    /// The position computed again: fresh cache, one row at a time.
    pub row_by_row: Option<Side>,
    /// The position computed again: fresh cache, one pass of the same width.
    pub fresh_pass: Option<Side>,
    /// Largest change of a margin that the width of a pass makes, over windows of this text, in nats.
    pub noise: f64,
    /// Output tokens that differ, from `index` on.
    pub different_tokens: usize,
    /// Cause of the difference.
    pub cause: Cause,
    /// The reason in one sentence.
    pub reason: String,
}

/// The findings that determine the [`Cause`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fault {
    /// Whether the speculative run committed a token other than the best of its own row.
    pub broke_its_own_row: bool,
    /// Margin of the two best tokens in nats, computed one row at a time.
    pub margin: f64,
    /// Noise in nats, as in [`Diagnosis::noise`].
    pub noise: f64,
    /// Whether one row at a time from a fresh cache gives the plain run's token.
    pub single_gives_plain: bool,
    /// Whether one pass from a fresh cache gives the plain run's token.
    pub pass_gives_plain: bool,
    /// Whether the speculative run had rolled back its cache before: after discarded drafts, or to the beginning that
    /// the prompt shares with an earlier one.
    pub rolled_back: bool,
}

impl Fault {
    /// The cause, and the reason in one sentence.
    #[must_use]
    pub fn cause(&self) -> (Cause, String) {
        let (margin, noise) = (self.margin, self.noise);
        if self.broke_its_own_row {
            return (Cause::VerificationBug, "the rule committed a token other than the best of its own row".into());
        }
        if noise > MOST_NOISE {
            let text = format!("running rows together changes margins by {noise:.3} nats, more than rounding explains");
            return (Cause::VerificationBug, text);
        }
        if margin <= 2.0 * noise {
            let text = format!(
                "the two best tokens are {margin:.1e} nats apart, and the width of a pass alone changes margins by {noise:.1e}"
            );
            return (Cause::NearTie, text);
        }
        if !self.single_gives_plain {
            let text =
                format!("the plain token is not reproduced at a margin of {margin:.1e} nats (noise {noise:.1e})");
            return (Cause::VerificationBug, text);
        }
        if self.pass_gives_plain && self.rolled_back {
            let text = format!(
                "a fresh cache gives the plain token at a margin of {margin:.1e} nats (noise {noise:.1e}), so a rollback left a wrong state"
            );
            return (Cause::StateError, text);
        }
        let text =
            format!("the margin of {margin:.1e} nats is above the noise of {noise:.1e}, and no rollback explains it");
        (Cause::VerificationBug, text)
    }
}

/// Finds the cause of the first difference between both answers; none if they are the same. `fresh` must be empty.
///
/// # Errors
/// When the target cannot be run again.
pub fn diagnose(fresh: &dyn Model, plain: &Record, speculative: &Record) -> Result<Option<Diagnosis>, SpecError> {
    diagnose_under(None, fresh, plain, speculative)
}

/// The same for answers under a grammar: the position is computed again after its mask, too.
///
/// # Errors
/// As [`diagnose`].
pub fn diagnose_under(
    grammar: Option<&mut Constraint>,
    fresh: &dyn Model,
    plain: &Record,
    speculative: &Record,
) -> Result<Option<Diagnosis>, SpecError> {
    let Some(index) = speculative.first_difference(plain) else {
        return Ok(None);
    };
    let mask = grammar.map(|grammar| grammar.mask(&plain.tokens[..index], &[]));
    let mask = mask.as_deref();
    let (ours, theirs) = (speculative.tokens.get(index).copied(), plain.tokens.get(index).copied());
    let round = speculative.round_of(index);
    let width = round.map_or(1, |round| speculative.rounds[round].rows.len());
    let row_by_row = single(fresh, mask, plain, index)?;
    let fresh_pass = match round {
        Some(round) => Some(wide(fresh, mask, speculative, (round, index))?),
        None => None,
    };
    let noise = noise(fresh, plain, (index, width))?;
    let before = round.map_or(0, |round| round);
    let own = speculative.row_of(index).and_then(|row| row.best()).map(|best| best.piece.id);
    let fault = Fault {
        broke_its_own_row: own.is_some() && ours.is_some() && own != ours,
        margin: row_by_row.margin,
        noise,
        single_gives_plain: theirs.is_none_or(|token| token == row_by_row.best),
        pass_gives_plain: fresh_pass.is_none_or(|side| side.best == row_by_row.best),
        rolled_back: speculative.cached > 0 || speculative.rounds[..before].iter().any(|round| round.rolled_back),
    };
    let (cause, reason) = fault.cause();
    let pairs = speculative.tokens.iter().zip(&plain.tokens).skip(index);
    let (ours_len, theirs_len) = (speculative.tokens.len(), plain.tokens.len());
    Ok(Some(Diagnosis {
        index,
        plain: theirs,
        speculative: ours,
        plain_row: plain.row_of(index).and_then(side_of),
        speculative_row: speculative.row_of(index).and_then(side_of),
        width,
        previous_rolled_back: before > 0 && speculative.rounds[before - 1].rolled_back,
        row_by_row: Some(row_by_row),
        fresh_pass,
        noise,
        different_tokens: pairs.filter(|(a, b)| a != b).count() + ours_len.abs_diff(theirs_len),
        cause,
        reason,
    }))
}

fn side_of(row: &draftscope_protocol::Prediction) -> Option<Side> {
    let (best, second) = (row.top.first()?, row.top.get(1)?);
    let margin = f64::from(best.prob).ln() - f64::from(second.prob).ln();
    Some(Side { best: best.piece.id, second: second.piece.id, margin })
}

/// The two best logits of a row. Of equal logits the first is the best, as in decoding.
fn side(logits: &[f32]) -> Side {
    let better = |a: usize, b: usize| logits[a] > logits[b];
    let (mut best, mut second) = (0, usize::MAX);
    for i in 1..logits.len() {
        if better(i, best) {
            second = best;
            best = i;
        } else if second == usize::MAX || better(i, second) {
            second = i;
        }
    }
    let margin = logits.get(second).map_or(f64::INFINITY, |x| f64::from(logits[best]) - f64::from(*x));
    Side { best: TokenId(best as u32), second: TokenId(second as u32), margin }
}

/// The same among the tokens that a mask allows, if there is one.
fn allowed_side(mask: Option<&Mask>, logits: &[f32]) -> Side {
    let Some(mask) = mask else { return side(logits) };
    let allowed = |(index, logit): (usize, &f32)| {
        if mask.allows(TokenId(index as u32)) { *logit } else { f32::NEG_INFINITY }
    };
    side(&logits.iter().enumerate().map(allowed).collect::<Vec<_>>())
}

/// Runs the prompt in one pass, as decoding does, then the answer up to `upto` token by token. Returns the model and
/// the last pass.
fn read(fresh: &dyn Model, record: &Record, upto: usize) -> Result<(Box<dyn Model>, Forward), SpecError> {
    let mut model = fresh.fork()?;
    let mut out = model.forward(&record.prompt, LogitRows::Last)?;
    for token in &record.tokens[..upto] {
        out = model.forward(&[*token], LogitRows::All)?;
    }
    Ok((model, out))
}

fn single(fresh: &dyn Model, mask: Option<&Mask>, plain: &Record, index: usize) -> Result<Side, SpecError> {
    let (_, out) = read(fresh, plain, index)?;
    Ok(allowed_side(mask, out.logits.last().unwrap_or_default()))
}

/// The row of `index` in one pass over the round's anchor and drafts, after a fresh cache.
fn wide(
    fresh: &dyn Model,
    mask: Option<&Mask>,
    record: &Record,
    (round, index): (usize, usize),
) -> Result<Side, SpecError> {
    let round = &record.rounds[round];
    let (mut model, _) = read(fresh, record, round.first - 1)?;
    let mut rows = vec![record.tokens[round.first - 1]];
    rows.extend(round.line());
    let out = model.forward(&rows, LogitRows::All)?;
    Ok(allowed_side(mask, out.logits.row(index - round.first)))
}

/// Largest change of a margin, in nats, when rows of this text run `width` at a time instead of one by one. The text
/// ends before output token `index`, so the diagnosed position does not contribute to the noise.
fn noise(fresh: &dyn Model, plain: &Record, (index, width): (usize, usize)) -> Result<f64, SpecError> {
    let text: Vec<TokenId> = plain.prompt.iter().chain(&plain.tokens[..index]).copied().collect();
    if width < 2 || text.len() < width + 1 {
        return Ok(0.0);
    }
    let places = text.len() - width;
    let step = (places / WINDOWS).max(1);
    let (mut most, mut model) = (0.0, fresh.fork()?);
    for start in (1..=places).step_by(step) {
        model.forward(&text[model.len()..start], LogitRows::Last)?;
        let mut single = model.fork()?;
        let window = &text[start..start + width];
        let together = model.fork()?.forward(window, LogitRows::All)?;
        for (row, token) in window.iter().enumerate() {
            let alone = single.forward(&[*token], LogitRows::All)?;
            let side = side(alone.logits.row(0));
            let other = together.logits.row(row);
            let margin = f64::from(other[side.best.index()]) - f64::from(other[side.second.index()]);
            most = f64::max(most, (margin - side.margin).abs());
        }
    }
    Ok(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_follow_from_the_findings() {
        let tie = Fault {
            broke_its_own_row: false,
            margin: 1e-4,
            noise: 1e-4,
            single_gives_plain: true,
            pass_gives_plain: false,
            rolled_back: true,
        };
        let cause = |fault: Fault| fault.cause().0;
        assert_eq!(cause(tie), Cause::NearTie);
        assert_eq!(cause(Fault { margin: 0.1, ..tie }), Cause::VerificationBug, "a pass that differs");
        assert_eq!(cause(Fault { margin: 0.1, pass_gives_plain: true, ..tie }), Cause::StateError);
        let never_rolled_back = Fault { margin: 0.1, pass_gives_plain: true, rolled_back: false, ..tie };
        assert_eq!(cause(never_rolled_back), Cause::VerificationBug);
        assert_eq!(cause(Fault { broke_its_own_row: true, ..tie }), Cause::VerificationBug);
        assert_eq!(cause(Fault { noise: 3.0, ..tie }), Cause::VerificationBug, "more noise than rounding explains");
        assert_eq!(cause(Fault { margin: 0.0, noise: 0.0, ..tie }), Cause::NearTie, "an exact tie");
    }

    #[test]
    fn the_two_best_are_found() {
        let found = side(&[0.5, 2.0, 2.0, -1.0]);
        assert_eq!((found.best, found.second, found.margin), (TokenId(1), TokenId(2), 0.0));
        let mask = Mask::of([false, false, true, true].into_iter());
        assert_eq!(allowed_side(Some(&mask), &[0.5, 3.0, 2.0, -1.0]).best, TokenId(2));
        let found = side(&[3.0, 1.0, 2.0]);
        assert_eq!((found.best, found.second, found.margin), (TokenId(0), TokenId(2), 1.0));
    }
}
