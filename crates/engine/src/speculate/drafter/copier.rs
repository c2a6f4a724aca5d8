//! Copies of the text as drafts: what followed the longest end of the text that occurred before, weighed against the
//! drafts of another drafter.
//!
//! Invariants, needed for losslessness: a copy is certain (q = 1), and whether one is proposed depends on earlier tokens
//! and on the other drafter's distribution, never on the token that is drawn from it. The text is brought up to date when
//! a draft is asked for, so a drafter that is not in use costs nothing.

mod odds;

use self::odds::{Odds, View};
use crate::speculate::suffix::{Cursor, Next, SuffixTree};
use draftscope_protocol::policy::Worth;
use draftscope_protocol::{Copied, TokenId};

/// Part of the remaining doubt that a model removes where a copy is there, too.
const TOGETHER: f64 = 0.2;
/// Tokens of the text that are compared to find that it is another one.
const COMPARED: usize = 16;
/// Most tokens that a round commits: what is more was not written in rounds that this drafter took part in.
const MOST_COMMITTED: usize = 16;

/// What was predicted for a position of the round.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// Drafts before it.
    index: usize,
    token: TokenId,
    kind: TrialKind,
}

#[derive(Clone, Copy, Debug)]
enum TrialKind {
    Copy { len: usize, view: View },
    Model { q: f32, differs: bool },
}

/// A copy that may be proposed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::speculate) struct Offer {
    pub(in crate::speculate) token: TokenId,
    pub(in crate::speculate) copied: Copied,
    /// Chance that it is accepted if the drafts before it are.
    pub(in crate::speculate) chance: f64,
}

/// A copy beside the draft of a model, and whether it promises more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Beside {
    Better(Offer),
    Worse(Offer),
}

/// The text, what it lets one copy, and how often that was right.
#[derive(Clone, Debug, Default)]
pub struct Copier {
    tree: SuffixTree,
    odds: Odds,
    /// Length of the text when the round began.
    base: usize,
    /// Drafts of the round.
    path: Vec<TokenId>,
    /// The place after them.
    cursor: Cursor,
    /// Chance that all of them are accepted.
    reach: f64,
    /// Chance of the next draft, as last weighed.
    weighed: f64,
    trials: Vec<Trial>,
}

impl Copier {
    /// Removes all tokens but the first `len`.
    pub(super) fn cut(&mut self, len: usize) {
        self.tree.truncate(len);
        self.trials.clear();
    }

    /// Takes the text without learning from it: it is a prompt.
    pub(super) fn read(&mut self, committed: &[TokenId]) {
        self.trials.clear();
        let known = self.tree.text();
        let compared = known.len().saturating_sub(COMPARED);
        if known.len() > committed.len() || known[compared..] != committed[compared..known.len()] {
            let same = known.iter().zip(committed).take_while(|(a, b)| a == b).count();
            self.tree.truncate(same);
        }
        let from = self.tree.text().len();
        committed[from..].iter().for_each(|token| self.tree.push(*token));
    }

    /// Begins a round: learns what the last one showed.
    pub(super) fn begin(&mut self, committed: &[TokenId]) {
        if self.base == self.tree.text().len()
            && let Some(new) = committed.get(self.base..).filter(|new| new.len() <= MOST_COMMITTED)
        {
            self.learn(new);
        }
        self.read(committed);
        self.base = committed.len();
        self.path.clear();
        self.cursor = self.tree.cursor();
        (self.reach, self.weighed) = (1.0, 0.0);
    }

    fn learn(&mut self, new: &[TokenId]) {
        let same = self.path.iter().zip(new).take_while(|(a, b)| a == b).count();
        for trial in self.trials.iter().filter(|trial| trial.index <= same && trial.index < new.len()) {
            let right = new[trial.index] == trial.token;
            match trial.kind {
                TrialKind::Copy { len, view } => self.odds.copied(len, view, right),
                TrialKind::Model { q, differs } => self.odds.drafted(q, differs, right),
            }
        }
    }

    /// What could be copied next, seen so by the model.
    fn copy(&self, view: View) -> Option<Offer> {
        let Next { token, from } = self.tree.next(&self.cursor)?;
        let (len, chance) = (self.cursor.len(), self.odds.copy(self.cursor.len(), view));
        let copied = Copied { from: from as u32, len: len as u32, chance: Some(chance as f32) };
        Some(Offer { token, copied, chance })
    }

    /// The next copy, without another drafter's view.
    pub(super) fn offer(&mut self) -> Option<Offer> {
        let copy = self.copy(View::Unknown)?;
        self.weighed = copy.chance;
        self.note_copy(&copy, View::Unknown);
        Some(copy)
    }

    /// A copy of another token than a model's most probable one, `best` with probability `q`.
    pub(super) fn instead_of(&mut self, best: TokenId, q: f32) -> Option<Beside> {
        let index = self.path.len();
        let model = |differs| Trial { index, token: best, kind: TrialKind::Model { q, differs } };
        let Some(Next { token, .. }) = self.tree.next(&self.cursor) else {
            self.trials.push(model(false));
            self.weighed = self.odds.draft(q, false);
            return None;
        };
        let differs = token != best;
        let view = if differs { View::Differs } else { View::Agrees };
        let copy = self.copy(view)?;
        let own = self.odds.draft(q, differs);
        self.trials.push(model(differs));
        self.note_copy(&copy, view);
        self.trials.push(Trial { index, token, kind: TrialKind::Copy { len: self.cursor.len(), view: View::Unknown } });
        self.weighed = own.max(copy.chance);
        let beside = if copy.chance > own { Beside::Better } else { Beside::Worse };
        differs.then(|| beside(copy))
    }

    fn note_copy(&mut self, copy: &Offer, view: View) {
        let kind = TrialKind::Copy { len: self.cursor.len(), view };
        self.trials.push(Trial { index: self.path.len(), token: copy.token, kind });
    }

    /// Drafts of the round so far.
    pub(super) fn drafted(&self) -> usize {
        self.path.len()
    }

    /// Takes a draft of the round.
    pub(super) fn proposed(&mut self, token: TokenId) {
        self.cursor = self.tree.follow(self.cursor, token);
        self.path.push(token);
        self.reach *= self.weighed;
    }

    /// Takes a draft of the round that the grammar forces, so that it is accepted.
    pub(super) fn forced(&mut self, token: TokenId) {
        self.weighed = 1.0;
        self.proposed(token);
    }

    /// Whether copies alone promise more than `drafts` further drafts of a model, with copies among them and after them, in
    /// a round of at most `most` drafts.
    pub(super) fn needs_no_model(&self, worth: &Worth, drafts: usize, most: usize) -> bool {
        let (alone, count) = self.value(worth, 0, most);
        count > 0 && alone >= self.value(worth, drafts, most).0
    }

    /// How many copies are worth their rows, in a round of at most `most` drafts.
    pub(super) fn worthwhile(&self, worth: &Worth, most: usize) -> usize {
        self.value(worth, 0, most).1
    }

    /// The most that further drafts gain, and how many drafts that takes: of the first `by_model` a model makes each, or a
    /// copy takes its place; the others are copies.
    fn value(&self, worth: &Worth, by_model: usize, most: usize) -> (f64, usize) {
        let (mut reach, mut gain, mut best) = (self.reach, 0.0, (0.0, 0));
        let mut cursor = self.cursor;
        for count in 0..most.saturating_sub(self.path.len()) {
            let next = self.tree.next(&cursor);
            let copy = next.map_or(0.0, |_| self.odds.copy(cursor.len(), View::Unknown));
            let is_drafted = count < by_model;
            reach *= if is_drafted { together(copy, self.odds.next_draft()) } else { copy };
            if reach * worth.token < worth.row(self.path.len()) / 4.0 {
                break; // nor will those after it pay off
            }
            gain +=
                reach * worth.token - worth.row(self.path.len() + count) - if is_drafted { worth.draft } else { 0.0 };
            if gain > best.0 {
                best = (gain, count + 1);
            }
            cursor = next.map_or_else(Cursor::default, |next| self.tree.follow(cursor, next.token));
        }
        best
    }
}

/// The chance of the better of a copy and a model's draft, once both are known.
fn together(copy: f64, draft: f64) -> f64 {
    let (less, more) = if copy < draft { (copy, draft) } else { (draft, copy) };
    more + (1.0 - more) * less * TOGETHER
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<TokenId> {
        text.bytes().map(|byte| TokenId(byte.into())).collect()
    }

    fn begun(text: &str) -> Copier {
        let mut copier = Copier::default();
        copier.begin(&tokens(text));
        copier
    }

    #[test]
    fn the_continuation_of_the_longest_match_is_copied_with_its_place() {
        let mut copier = begun("one two three; one two");
        for (index, token) in tokens(" three; one two").into_iter().enumerate() {
            let copy = copier.offer().unwrap();
            assert_eq!((copy.token, copy.copied.from as usize), (token, 7 + index));
            assert_eq!(copy.copied.len as usize, 7 + index);
            assert!(copy.chance > 0.7 && copy.copied.chance == Some(copy.chance as f32));
            copier.proposed(copy.token);
        }
        assert!(copier.offer().is_some(), "a repetition goes on within the draft");
        assert_eq!(begun("abcd").offer(), None);
        assert_eq!(begun("").offer(), None);
    }

    #[test]
    fn a_long_match_needs_no_model_and_a_short_one_does() {
        let worth = Worth::usual();
        assert!(begun("the quick brown fox; the quick brown").needs_no_model(&worth, 4, 15));
        assert!(!begun("ab, cd, e").needs_no_model(&worth, 4, 15) && !begun("xyz").needs_no_model(&worth, 4, 15));
        assert_eq!(begun("the quick brown fox; the quick brown").worthwhile(&worth, 15), 15);
        assert_eq!(begun("the quick brown fox; the quick brown").worthwhile(&worth, 3), 3, "at most so many");
        assert_eq!(begun("xyz").worthwhile(&worth, 15), 0);
        let mut free = worth;
        free.draft = 0.0;
        assert!(
            !begun("the quick brown fox; the quick brown").needs_no_model(&free, 4, 15),
            "a model that costs nothing"
        );
    }

    #[test]
    fn a_copy_replaces_an_unlikely_draft_of_a_model_and_no_likely_one() {
        let mut copier = begun("the quick brown fox; the quick brown");
        let other = TokenId(999);
        let better = |copier: &mut Copier, best, q| match copier.instead_of(best, q) {
            Some(Beside::Better(copy)) => Some(copy.token),
            _ => None,
        };
        assert_eq!(better(&mut copier, other, 0.3), Some(TokenId(b' '.into())));
        assert_eq!(copier.instead_of(TokenId(b' '.into()), 0.3), None, "the same token, with the model's distribution");
        let mut short = begun("ab, cd, a");
        assert_eq!(better(&mut short, other, 0.6), None);
        assert!(matches!(begun("ab, cd, a").instead_of(other, 0.6), Some(Beside::Worse(_))), "it may stand beside");
        assert_eq!(begun("xyz").instead_of(other, 0.1), None);
    }

    #[test]
    fn rounds_teach_what_copies_are_worth_and_prompts_do_not() {
        let text = "aqaraqaraqar".repeat(8);
        let mut copier = Copier::default();
        copier.read(&tokens(&text));
        let fresh = copier.odds.copy(5, View::Unknown);
        assert_eq!(fresh, Odds::default().copy(5, View::Unknown));
        // every round: a match of two tokens, whose continuation is wrong
        let mut committed = tokens("ab.");
        for round in 0..40_u32 {
            committed.extend([TokenId(b'a'.into()), TokenId(b'b'.into())]);
            copier.begin(&committed);
            let copy = copier.offer().unwrap();
            copier.proposed(copy.token);
            committed.push(TokenId(1000 + round));
        }
        copier.begin(&committed);
        assert!(copier.odds.copy(2, View::Unknown) < 0.2, "{}", copier.odds.copy(2, View::Unknown));
        let learned = copier.odds.copy(2, View::Unknown);
        copier.cut(4);
        copier.read(&tokens("ab.axyz"));
        copier.begin(&tokens("ab.axyzab"));
        assert_eq!(
            copier.odds.copy(2, View::Unknown),
            learned,
            "another text teaches nothing, and what was learned stays"
        );
        assert_eq!(copier.tree.text(), tokens("ab.axyzab"));
    }
}
