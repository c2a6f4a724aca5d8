//! How far the run's own lane and another one agree, in a few words.
//!
//! Invariant: a difference is an alarm only if the rules promise the same text.

use crate::view::prelude::*;
use draftscope_protocol::{Settings, VerifyRule};

/// How far both lanes agree, live: only the number if there is no room for the reason.
pub(in crate::view) fn meter(screen: Screen, beside: Lane, width: u16) -> Option<Line<'static>> {
    let agreement = screen.turn()?.agreement_with(beside)?;
    let (number, count) = (agreement.identical, tokens(agreement.identical));
    let (text, role) = match (&agreement.divergence, promise(screen.turn()?, beside)) {
        (None, _) if agreement.is_final => (format!(" identical: all {count} "), Role::Good),
        (None, _) => (format!(" identical so far: {count} "), Role::Good),
        (Some(_), Promise::Lossy(rule)) => (format!(" {rule} is not lossless: differ after {count} "), Role::Warning),
        (Some(_), Promise::Law | Promise::Rules) => (format!(" sampled: differ after {count} "), Role::TextDim),
        (Some(_), Promise::Other) => (format!(" other temperature: differ after {count} "), Role::TextDim),
        (Some(_), Promise::Text) => (format!(" differ after {count} "), Role::Warning),
    };
    let fits = text.width() + 2 <= width.into();
    let short = if agreement.divergence.is_some() { "differ after" } else { "identical:" };
    let text = if fits { text } else { format!(" {short} {number} ") };
    let mut line = Line::styled(text, screen.theme[role]);
    let room = usize::from(width).saturating_sub(line.width() + 2);
    let gaps = GAPS.iter().find(|words| agreement.divergence.is_some() && words.width() + 3 <= room);
    line.spans.extend(gaps.map(|words| Span::styled(format!("· {words} "), screen.theme[Role::TextDim])));
    Some(line)
}

/// Why lanes that differ have gaps, the longest words first.
const GAPS: [&str; 3] = ["gaps keep equal tokens side by side", "gaps keep equal tokens level", "gaps align equals"];

/// The same alone.
pub(super) fn gaps(screen: Screen, beside: Lane, width: u16) -> Option<Line<'static>> {
    screen.turn()?.agreement_with(beside)?.divergence?;
    let words = GAPS.iter().find(|words| words.width() + 4 <= width.into())?;
    Some(Line::styled(format!(" {words} "), screen.theme[Role::TextDim]))
}

/// So many tokens.
pub(in crate::view) fn tokens(count: usize) -> String {
    format!("{count} token{}", if count == 1 { "" } else { "s" })
}

/// What two lanes must have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::view) enum Promise {
    /// Every token.
    Text,
    /// The distribution from which tokens are drawn: drafts affect which draw is used for which token.
    Law,
    /// The same, under two rules.
    Rules,
    /// Nothing: the temperatures differ.
    Other,
    /// Nothing: this rule is not lossless.
    Lossy(VerifyRule),
}

/// What the run's own lane and this one promise to share, by the turn's settings.
pub(in crate::view) fn promise(turn: &Turn, beside: Lane) -> Promise {
    let settings = [turn.begun.of_lane(Lane::Speculative), turn.begun.of_lane(beside)];
    let lossy = |lane| turn.answer(lane).rounds.iter().find(|r| r.verdict.as_ref().is_some_and(|v| !v.lossless));
    if let Some(round) = lossy(Lane::Speculative).or_else(|| lossy(beside)) {
        return Promise::Lossy(round.rule);
    }
    let sampling = [Lane::Speculative, beside].map(|lane| turn.answer(lane).rounds.last().map(|r| r.sampling));
    let [own, other] = [0, 1].map(|i| sampling[i].unwrap_or(settings[i].sampling));
    let newest = |lane, from: &Settings| turn.answer(lane).rounds.last().map_or(from.rule, |round| round.rule);
    let rules = [newest(Lane::Speculative, &settings[0]), newest(beside, &settings[1])];
    // a lane without drafts draws like `exact`
    let is_exact = |index: usize| settings[index].draft_len == 0 || rules[index] == VerifyRule::Exact;
    if (own.temperature - other.temperature).abs() > 1e-6 {
        Promise::Other
    } else if own.is_greedy() || (is_exact(0) && is_exact(1)) {
        Promise::Text
    } else if rules[0] == rules[1] && settings[1].draft_len > 0 {
        Promise::Law
    } else {
        Promise::Rules
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use draftscope_protocol::{Event, EventKind, Sampling};

    use draftscope_session::fixture::first_turn;
    use draftscope_session::fixture::fold;

    #[test]
    fn a_turn_promises_what_it_was_run_with_whatever_is_set_since() {
        let mut session = fold(&first_turn().events);
        assert_eq!(promise(session.turn().unwrap(), Lane::Plain), Promise::Text);
        let sampling = Sampling { temperature: 0.9, ..Sampling::default() };
        let settings = Settings { sampling, rule: VerifyRule::Typical, ..*session.settings() };
        let kind = EventKind::SettingsChanged { settings };
        session.apply(&Event { seq: u64::MAX, at_us: 0, lane: Lane::Speculative, kind });
        assert_eq!(session.settings().rule, VerifyRule::Typical);
        assert_eq!(promise(session.turn().unwrap(), Lane::Plain), Promise::Text);
    }
}
