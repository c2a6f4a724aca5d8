//! How far the run's own lane and the one beside wrote the same, in a few words.
//!
//! Invariant: a difference is called an alarm only where the rules promise the same text.

use ratatui::text::Line;
use unicode_width::UnicodeWidthStr;

use crate::protocol::{Lane, VerifyRule};
use crate::tui::theme::Role;

use super::Screen;

/// How far both lanes wrote the same, live: where there is no room for the reason, the number alone.
pub(super) fn meter(screen: Screen, beside: Lane, width: u16) -> Option<Line<'static>> {
    let agreement = screen.turn()?.agreement_with(beside)?;
    let count = agreement.identical;
    let (text, role) = match (&agreement.divergence, promise(screen, beside)) {
        (None, _) => (format!(" identical so far: {count} tokens "), Role::Good),
        (Some(_), Promise::Lossy(rule)) => {
            (format!(" {rule} is not lossless: differ after {count} tokens "), Role::Warning)
        }
        (Some(_), Promise::Law) => (format!(" sampled: differ after {count} tokens "), Role::TextDim),
        (Some(_), Promise::Other) => (format!(" other temperature: differ after {count} tokens "), Role::TextDim),
        (Some(_), Promise::Text) => (format!(" differ after {count} identical tokens "), Role::Warning),
    };
    let fits = text.width() + 2 <= width.into();
    let short = if agreement.divergence.is_some() { "differ after" } else { "identical:" };
    let text = if fits { text } else { format!(" {short} {count} ") };
    Some(Line::styled(text, screen.theme[role]))
}

/// What two lanes must have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Promise {
    /// Every token.
    Text,
    /// The distribution that tokens are drawn from.
    Law,
    /// Nothing: the temperatures differ.
    Other,
    /// Nothing: this rule is not lossless.
    Lossy(VerifyRule),
}

/// What the run's own lane and this one promise to have in common.
pub(super) fn promise(screen: Screen, beside: Lane) -> Promise {
    let settings = screen.session.settings();
    let other = settings.of_lane(beside);
    let rules = [Some(settings.rule), (other.draft_len > 0).then_some(other.rule)];
    if let Some(rule) = rules.into_iter().flatten().find(|rule| !rule.is_lossless()) {
        Promise::Lossy(rule)
    } else if (settings.sampling.temperature - other.sampling.temperature).abs() > 1e-6 {
        Promise::Other
    } else if settings.sampling.is_greedy() || rules.iter().flatten().all(|rule| *rule == VerifyRule::Exact) {
        Promise::Text
    } else {
        Promise::Law
    }
}
