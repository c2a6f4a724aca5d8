//! Which rounds the ladder shows.

use draftscope_protocol::{Lane, Outcome};
use draftscope_session::classes::{Classifier, TokenClass};
use draftscope_session::{Answer, Round, Session};

use draftscope_session::round_at::{RoundAt, round_at};

/// Classes that one round suffices to determine; whether code is open depends on the whole text.
const CLASSES: &[TokenClass] = &[
    TokenClass::WordStart,
    TokenClass::Continuation,
    TokenClass::Whitespace,
    TokenClass::Digits,
    TokenClass::Punctuation,
    TokenClass::Control,
];

/// A condition on rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Filter {
    #[default]
    All,
    /// Rounds with a rejected draft.
    Rejects,
    /// Rounds in which every draft was accepted.
    FullAccepts,
    /// Rounds that drafted a token of this class.
    Class(TokenClass),
}

impl Filter {
    /// Whether a round of the session matches.
    pub(crate) fn fits_at(self, session: &Session, at: RoundAt) -> bool {
        let answer = session.turns().get(at.turn).map(|turn| turn.answer(Lane::Speculative));
        answer.zip(round_at(session, at)).is_some_and(|(answer, round)| self.fits(answer, round))
    }

    fn fits(self, answer: &Answer, round: &Round) -> bool {
        match self {
            Self::All => true,
            Self::Rejects => has_reject(round),
            Self::FullAccepts => {
                round.verdict.is_some() && !round.drafts.is_empty() && round.accepted() == round.drafts.len()
            }
            Self::Class(class) => has_class(answer, round, class),
        }
    }

    pub(crate) fn next(self) -> Self {
        match self {
            Self::All => Self::Rejects,
            Self::Rejects => Self::FullAccepts,
            Self::FullAccepts => Self::Class(CLASSES[0]),
            Self::Class(class) => {
                let at = CLASSES.iter().position(|known| *known == class).unwrap_or(0);
                CLASSES.get(at + 1).map_or(Self::All, |next| Self::Class(*next))
            }
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::All => "all rounds",
            Self::Rejects => "with a rejection",
            Self::FullAccepts => "all drafts accepted",
            Self::Class(class) => class.name(),
        }
    }
}

/// Whether the round drafted a token of this class.
fn has_class(answer: &Answer, round: &Round, class: TokenClass) -> bool {
    let mut classifier = Classifier::default();
    if let Some(before) = round.first_token.checked_sub(1).and_then(|index| answer.tokens.get(index)) {
        classifier.push(&before.piece);
    }
    round.drafts.iter().any(|draft| classifier.push(&draft.token) == class)
}

/// Whether a draft of the round was rejected.
pub(crate) fn has_reject(round: &Round) -> bool {
    (0..round.drafts.len()).any(|index| round.outcome(index) == Some(Outcome::Rejected))
}

#[cfg(test)]
mod tests {
    use super::*;

    use draftscope_session::fixture::first_turn;
    use draftscope_session::fixture::fold;

    #[test]
    fn every_filter_is_reached_and_splits_the_rounds() {
        let session = fold(&first_turn().events);
        let rounds: Vec<_> = draftscope_session::round_at::rounds(&session).collect();
        let count = |filter: Filter| rounds.iter().filter(|at| filter.fits_at(&session, **at)).count();
        let (mut filter, mut names) = (Filter::All, Vec::new());
        loop {
            names.push(filter.name());
            filter = filter.next();
            if filter == Filter::All {
                break;
            }
        }
        assert_eq!(names.len(), 3 + CLASSES.len());
        assert_eq!((count(Filter::All), count(Filter::Rejects), count(Filter::FullAccepts)), (7, 5, 2));
        assert_eq!(count(Filter::Class(TokenClass::Punctuation)), 2);
        assert_eq!(count(Filter::Class(TokenClass::Control)), 0);
    }
}
