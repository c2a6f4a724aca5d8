//! How a token's fate looks: one style role and one mark each.
//!
//! Invariant: no two fates share both mark and style, so the transcript is readable in monochrome and on a terminal
//! that ignores strike-through; a draft accepted against the target's own choice has a mark of its own. The session
//! defines fates.

use crate::session::{Fate, Provenance};

use super::theme::Role;

/// Every fate with a legend entry, in reading order: long, middle and short name.
pub(super) const LEGEND: &[(Fate, [&str; 3])] = &[
    (Fate::Committed(Provenance::Accepted), ["accepted", "accepted", "acc"]),
    (Fate::Committed(Provenance::Bonus), ["bonus", "bonus", "bonus"]),
    (Fate::Committed(Provenance::Recovered), ["recovered", "recov.", "rec"]),
    (Fate::Rejected, ["rejected", "reject.", "rej"]),
    (Fate::NotReached, ["not reached", "not reached", "n.r."]),
];

/// The mark of an accepted draft that the target would not have picked; only a rule that is not lossless accepts one.
pub(super) const DEPARTED: &str = "≠";

/// Name of that mark in the legends, long and short.
pub(super) const DEPARTED_NAMES: [&str; 2] = ["accepted, not the target's own", "not its own"];

/// Stands for a control token, such as the end of an answer.
pub(super) const END: &str = "■";

/// The style of a fate.
pub(super) const fn role(fate: Fate) -> Role {
    match fate {
        Fate::Committed(Provenance::Prefill) => Role::TokenPrefill,
        Fate::Committed(Provenance::Plain) => Role::TokenPlain,
        Fate::Committed(Provenance::Kept) => Role::TokenKept,
        Fate::Committed(Provenance::Accepted) => Role::TokenAccepted,
        Fate::Committed(Provenance::Recovered) => Role::TokenRecovered,
        Fate::Committed(Provenance::Bonus) => Role::TokenBonus,
        Fate::Rejected => Role::TokenRejected,
        Fate::NotReached => Role::TokenNotReached,
        Fate::Pending => Role::TokenPending,
    }
}

/// The mark in front of a token in running text; accepted tokens are underlined instead, because they are most of the
/// text.
pub(super) const fn mark(fate: Fate) -> &'static str {
    match fate {
        Fate::Committed(Provenance::Recovered) => "↻",
        Fate::Committed(Provenance::Bonus) => "✚",
        Fate::Committed(_) => "",
        Fate::Rejected => "✗",
        Fate::NotReached => "○",
        Fate::Pending => "◌",
    }
}

/// The mark where there is room for one at every token: tables and legends.
pub(super) const fn sign(fate: Fate) -> &'static str {
    match fate {
        Fate::Committed(Provenance::Accepted) => "✓",
        Fate::Committed(Provenance::Prefill | Provenance::Plain | Provenance::Kept) => "▪",
        _ => mark(fate),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::theme::Theme;

    #[test]
    fn every_fate_reads_without_colour() {
        let (theme, _) = Theme::bundled("mono").unwrap();
        let all = [
            Fate::Committed(Provenance::Plain),
            Fate::Committed(Provenance::Accepted),
            Fate::Committed(Provenance::Recovered),
            Fate::Committed(Provenance::Bonus),
            Fate::Rejected,
            Fate::NotReached,
            Fate::Pending,
        ];
        for (i, a) in all.iter().enumerate() {
            for b in &all[..i] {
                let look = |fate: Fate| (mark(fate), theme[role(fate)].add_modifier);
                assert_ne!(look(*a), look(*b), "{a:?} {b:?}");
            }
            assert!(![DEPARTED, END].contains(&mark(*a)));
        }
    }
}
