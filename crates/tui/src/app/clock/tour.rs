//! The tour of the screen: its stops, their texts and times.

use crate::app::place::page::Pane;

/// Seconds per stop; the five of them take twenty.
pub(crate) const SECONDS: usize = 4;

/// A pane (`None` is the line of pages) and its text.
pub(crate) const STOPS: [(Option<Pane>, &str); 5] = [
    (
        Some(Pane::Answer),
        "The answer appears here. Each token's colour says what happened to it, and the line below is the key. Accepted: \
         guessed right by the small drafter. Bonus: all guesses were right, so the pass adds one token.",
    ),
    (
        Some(Pane::Round),
        "One round: the drafted tokens with q, the drafter's probability; below them the target's own, with p. The first \
         draft that differs is rejected, the target's token is recovered, drafts after it are not reached.",
    ),
    (
        Some(Pane::Plots),
        "Measured here while you watch: tokens per second with drafts and without, and how many drafts are accepted.",
    ),
    (None, "Six views of the same run. Chat is this one; Learn has eight lessons that ask before they explain."),
    (
        Some(Pane::Prompt),
        "Type a prompt here. The first answer starts slow, so that each phase can be seen: Space pauses it, [ and ] change \
         its pace.",
    ),
];

/// The stop after so many seconds; `None` at the end.
pub(crate) fn stop(seconds: usize) -> Option<(usize, Option<Pane>, &'static str)> {
    let index = seconds / SECONDS;
    STOPS.get(index).map(|(pane, text)| (index, *pane, *text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lasts_twenty_seconds() {
        assert_eq!((0..100).take_while(|seconds| stop(*seconds).is_some()).count(), 20);
    }
}
