//! How far plain and speculative decoding wrote the same, in a few words under the plain answer.
//!
//! Invariant: a difference is called an alarm only where the rule promises the same text.

use ratatui::text::Line;

use crate::protocol::VerifyRule;
use crate::tui::theme::Role;

use super::Screen;

/// How far both lanes wrote the same. By rejection sampling they need not: only the distribution
/// is the same.
pub(super) fn meter(screen: Screen) -> Option<Line<'static>> {
    let agreement = screen.turn()?.agreement()?;
    let rule = screen.session.settings().rule;
    let count = agreement.identical;
    let (text, role) = match agreement.divergence {
        None => (format!(" identical so far: {count} tokens "), Role::Good),
        Some(_) if !rule.is_lossless() => {
            (format!(" {rule} is not lossless: differ after {count} tokens "), Role::Warning)
        }
        Some(_) if may_differ(screen) => (format!(" sampled: differ after {count} tokens "), Role::TextDim),
        Some(_) => (format!(" differ after {count} identical tokens "), Role::Warning),
    };
    Some(Line::styled(text, screen.theme[role]))
}

/// Whether the lanes draw by different rules, so that only their distributions are the same.
pub(super) fn may_differ(screen: Screen) -> bool {
    let settings = screen.session.settings();
    settings.rule != VerifyRule::Exact && !settings.sampling.is_greedy()
}
