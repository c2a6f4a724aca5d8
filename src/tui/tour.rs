//! The tour of the screen: what it says of which pane, and for how long.

use super::page::Pane;

/// Seconds a stop lasts; the five of them make twenty.
pub(super) const SECONDS: usize = 4;

/// A pane, none for the line of views, and what is said of it.
pub(super) const STOPS: [(Option<Pane>, &str); 5] = [
    (
        Some(Pane::Answer),
        "The answer appears here, each token in the colour of its fate; the line below names the fates. Accepted tokens were \
         guessed by the small drafter. A rejected guess is struck out, and the target's own token takes its place.",
    ),
    (
        Some(Pane::Round),
        "One round: the drafted tokens with q, the drafter's probability; below them what the target says at the same \
         places, with p; then the verdict.",
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

/// Where the tour stands after so many seconds; none at its end.
pub(super) fn stop(seconds: usize) -> Option<(usize, Option<Pane>, &'static str)> {
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
