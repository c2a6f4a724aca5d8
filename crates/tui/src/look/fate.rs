//! How a token's fate looks: one style role and one mark each.
//!
//! Invariant: no two fates share both mark and style, so the transcript is readable in monochrome and on a terminal
//! that ignores strike-through; a draft accepted against the target's own choice and one that a grammar forced have marks of
//! their own. The session defines fates.

use draftscope_session::{Fate, Provenance};

use crate::look::theme::Role;

/// Every fate with a legend entry, in reading order: long and short name. Rejected drafts and those after them are one
/// entry: both were discarded.
pub(crate) const LEGEND: &[(Fate, [&str; 2])] = &[
    (Fate::Committed(Provenance::Accepted), ["accepted", "acc"]),
    (Fate::Committed(Provenance::Bonus), ["bonus", "bonus"]),
    (Fate::Committed(Provenance::Recovered), ["recovered", "rec"]),
    (Fate::Rejected, ["discarded", "disc"]),
];

/// The mark of an accepted draft that the target would not have picked; only a rule that is not lossless accepts one.
pub(crate) const DEPARTED: &str = "≠";

/// Name of that mark in the legends.
pub(crate) const DEPARTED_NAME: &str = "not the target's choice";

/// The mark of a token that the drafter's vocabulary lacks, so that it could not be drafted.
pub(crate) const UNDRAFTABLE: &str = "¬";

/// Name of that mark in the legends.
pub(crate) const UNDRAFTABLE_NAMES: [&str; 2] = ["not in the drafter's vocabulary", "not in vocabulary"];

/// The mark of an accepted draft that the grammar forced.
pub(crate) const FORCED: &str = "§";

/// Names of what a grammar does in the legends, long and short.
pub(crate) const GRAMMAR: [[&str; 2]; 2] = [["forced", "forced"], ["refused", "ref"]];

/// Stands for a control token, such as the end of an answer.
pub(crate) const END: &str = "■";

/// The sign of so many discarded drafts, before the token that replaced them. Its mark and its ground keep the number from
/// being read as part of the text.
pub(crate) fn discarded_sign(count: usize) -> String {
    format!("{}{count}", mark(Fate::Rejected))
}

/// The style of a fate.
pub(crate) const fn role(fate: Fate) -> Role {
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
        Fate::Refused => Role::TokenRefused,
    }
}

/// The mark in front of a token in running text, where styles do not show fates; accepted tokens have none, because they
/// are most of the text.
pub(crate) const fn mark(fate: Fate) -> &'static str {
    match fate {
        Fate::Committed(Provenance::Recovered) => "↻",
        Fate::Committed(Provenance::Bonus) => "✚",
        Fate::Committed(_) => "",
        Fate::Rejected => "✗",
        Fate::NotReached => "○",
        Fate::Pending => "◌",
        Fate::Refused => "⊘",
    }
}

/// The mark where there is room for one at every token: tables and legends.
pub(crate) const fn sign(fate: Fate) -> &'static str {
    match fate {
        Fate::Committed(Provenance::Accepted) => "✓",
        Fate::Committed(Provenance::Prefill | Provenance::Plain | Provenance::Kept) => "▪",
        _ => mark(fate),
    }
}

#[cfg(test)]
mod tests {
    use ratatui::style::Modifier;

    use super::*;
    use crate::look::theme::Theme;

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
            Fate::Refused,
        ];
        for (i, a) in all.iter().enumerate() {
            for b in &all[..i] {
                let look = |fate: Fate| (mark(fate), theme[role(fate)].add_modifier);
                assert_ne!(look(*a), look(*b), "{a:?} {b:?}");
            }
            assert!(![DEPARTED, FORCED, UNDRAFTABLE, END].contains(&mark(*a)));
            assert_ne!(theme[Role::TokenForced].add_modifier, theme[role(*a)].add_modifier, "{a:?}");
        }
        assert_ne!(theme[Role::TokenForced].add_modifier, theme[Role::TokenDeparted].add_modifier);
        // without marks too: what the target adds in place of a draft looks like text, and everything else differs
        let looks = all[1..].iter().map(|fate| theme[role(*fate)].add_modifier);
        let looks: std::collections::HashSet<_> = looks.collect();
        assert_eq!(looks.len(), all.len() - 1);
    }

    #[test]
    fn a_number_of_drafts_stands_out_from_the_text_of_every_theme() {
        assert_eq!([1, 2, 10].map(discarded_sign), ["✗1", "✗2", "✗10"]);
        for name in Theme::names() {
            let (theme, _) = Theme::bundled(name).unwrap();
            let (sign, ground) = (theme[Role::TokenCounted], theme[Role::Text].bg);
            let is_reversed = sign.add_modifier.contains(Modifier::REVERSED);
            assert!(is_reversed || (sign.bg.is_some() && sign.bg != ground), "{name}: a ground of its own");
            assert!(!sign.add_modifier.contains(Modifier::CROSSED_OUT), "{name}: the number itself is not discarded");
        }
    }
}
