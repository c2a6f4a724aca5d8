//! Which tokens of an answer are thought: what a model writes between marks of its template, before it answers.
//!
//! Invariant: it follows from the recorded tokens alone, so older recordings have it too. A mark belongs to the thought
//! from the token on that completes it.

use std::borrow::Cow;

use serde::Serialize;

use draftscope_protocol::Piece;

/// Opening and closing marks: Qwen3.x, GLM, DeepSeek and SmolLM3; Gemma 4; Kimi; Mistral.
pub(super) const MARKS: &[(&str, &str)] =
    &[("<think>", "</think>"), ("<|channel>thought", "<channel|>"), ("◁think▷", "◁/think▷"), ("[THINK]", "[/THINK]")];

/// Bytes that are kept of the text before: more than the longest mark.
const KEPT: usize = 32;

/// Tokens at the end of a prompt that may open a thought.
const LAST_OF_PROMPT: usize = 16;

/// Reads an answer token by token.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ThoughtScan {
    /// The marks of the thought that is open.
    open: Option<usize>,
    /// The end of the text so far.
    tail: String,
    /// Whether text of the answer was read: marks in it open no thought.
    has_answer: bool,
    /// Tokens of thought so far.
    pub(super) tokens: usize,
}

impl ThoughtScan {
    /// At the end of a prompt: templates may open the thought themselves.
    pub(super) fn after_prompt(prompt: &[Piece]) -> Self {
        let last = &prompt[prompt.len().saturating_sub(LAST_OF_PROMPT)..];
        let text: String = last.iter().map(text_of).collect();
        let open = MARKS.iter().position(|(open, _)| text.trim_end().ends_with(open));
        Self { open, ..Self::default() }
    }

    /// Whether what comes next is thought.
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Reads a token; returns whether it is thought, marks included.
    pub(super) fn read(&mut self, piece: &Piece) -> bool {
        let mut is_thought = self.is_open();
        let text = text_of(piece);
        // a control token that is no part of a mark is no text of the answer
        let is_silent =
            piece.special && !MARKS.iter().any(|(open, close)| open.contains(&*text) || close.contains(&*text));
        self.tail.push_str(if is_silent { "" } else { &text });
        loop {
            let (at, mark, next) = match self.open {
                Some(open) => match self.tail.find(MARKS[open].1) {
                    Some(at) => (at, MARKS[open].1, None),
                    None => break,
                },
                None if self.has_answer => break,
                None => {
                    let found = MARKS.iter().enumerate().filter_map(|(i, marks)| Some((self.tail.find(marks.0)?, i)));
                    let Some((at, open)) = found.min() else { break };
                    if !self.tail[..at].trim().is_empty() {
                        self.has_answer = true;
                        break;
                    }
                    (at, MARKS[open].0, Some(open))
                }
            };
            is_thought = true;
            self.open = next;
            self.tail.drain(..at + mark.len());
        }
        let mut cut = self.tail.len().saturating_sub(KEPT);
        while !self.tail.is_char_boundary(cut) {
            cut += 1;
        }
        self.has_answer |= self.open.is_none() && !self.tail[..cut].trim().is_empty();
        self.tail.drain(..cut);
        self.tokens += usize::from(is_thought);
        is_thought
    }
}

/// Sums over the rounds of a lane that began in its thought, or in what follows it. A round belongs to the part in which
/// its first committed token is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PartStats {
    /// Complete rounds.
    pub rounds: u64,
    /// Draft tokens proposed.
    pub drafted: u64,
    /// Draft tokens accepted.
    pub accepted: u64,
    /// Tokens committed.
    pub committed: u64,
}

impl PartStats {
    /// Accepted ÷ drafted; none without drafts.
    #[must_use]
    pub fn acceptance_rate(&self) -> Option<f64> {
        (self.drafted > 0).then(|| self.accepted as f64 / self.drafted as f64)
    }

    /// Committed ÷ rounds; none without rounds.
    #[must_use]
    pub fn tokens_per_round(&self) -> Option<f64> {
        (self.rounds > 0).then(|| self.committed as f64 / self.rounds as f64)
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (sum, part) in [
            (&mut self.rounds, other.rounds),
            (&mut self.drafted, other.drafted),
            (&mut self.accepted, other.accepted),
            (&mut self.committed, other.committed),
        ] {
            *sum = sum.saturating_add(part);
        }
    }
}

/// Marks may be control tokens, whose name counts here.
fn text_of(piece: &Piece) -> Cow<'_, str> {
    String::from_utf8_lossy(&piece.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use draftscope_protocol::TokenId;

    fn piece(text: &str) -> Piece {
        Piece::new(TokenId(1), text)
    }

    fn thoughts(prompt: &[&str], answer: &[&str]) -> Vec<bool> {
        let prompt: Vec<_> = prompt.iter().map(|text| piece(text)).collect();
        let mut scan = ThoughtScan::after_prompt(&prompt);
        answer.iter().map(|text| scan.read(&piece(text))).collect()
    }

    #[test]
    fn thought_lies_between_marks_of_one_or_several_tokens() {
        let flags = thoughts(&["<|im_start|>", "assistant", "\n"], &["<think>", "\n", "So", "</think>", "\n", "Yes"]);
        assert_eq!(flags, [true, true, true, true, false, false]);
        let split = thoughts(&[], &["<", "think", ">", "so", "</", "think", ">", "Yes", "."]);
        assert_eq!(split, [false, false, true, true, true, true, true, false, false]);
        assert_eq!(thoughts(&[], &["Use ", "<think>", " tags"]), [false; 3], "an answer may name the marks");
        let gemma = thoughts(&[], &["<|channel>", "thought", "\n", "x", "<channel|>", "Yes"]);
        assert_eq!(gemma, [false, true, true, true, true, false]);
        assert_eq!(thoughts(&[], &["<think></think>Yes", " no"]), [true, false], "both in one token");
    }

    #[test]
    fn a_template_may_open_the_thought_or_leave_it_out() {
        assert_eq!(thoughts(&["assistant\n", "<think>", "\n"], &["So", "</think>", "Yes"]), [true, true, false]);
        assert_eq!(thoughts(&["<think>", "\n\n", "</think>", "\n\n"], &["Yes"]), [false]);
        let far: Vec<&str> = std::iter::once("<think>").chain([" a"; 20]).collect();
        assert_eq!(thoughts(&far, &["Yes"]), [false], "a question may name the mark");
        assert_eq!(thoughts(&[], &["no", " mark", "</think>", " é".repeat(40).as_str(), "x"]), [false; 5]);
    }

    #[test]
    fn a_reply_is_what_follows_the_thought() {
        use crate::fixture::Script;
        use crate::fixture::fold;
        use draftscope_protocol::{Lane, StopReason};
        let reply = |tokens: &[&str]| {
            let mut script = Script::prompted("Why?", tokens[0]);
            for token in &tokens[1..] {
                script.round(&[], &[(token, 0.9)]);
            }
            script.finish(Lane::Speculative, StopReason::Eos);
            let session = fold(&script.events);
            let answer = session.turns()[0].answer(Lane::Speculative).clone();
            (answer.reply(), answer.is_thinking())
        };
        assert_eq!(reply(&["<think>", "so", "</think>", "\n\n", "Yes", "."]), ("Yes.".to_owned(), false));
        assert_eq!(reply(&["<think>so", "</", "think>Yes", "."]), ("Yes.".to_owned(), false));
        assert_eq!(reply(&["Use ", "<think>", " tags"]), ("Use <think> tags".to_owned(), false));
        assert_eq!(reply(&["<think>", "so", " on"]), (String::new(), true));
    }

    #[test]
    fn the_kept_text_is_short_and_whole_characters() {
        let mut scan = ThoughtScan::default();
        for _ in 0..100 {
            scan.read(&piece("日本語"));
            assert!(scan.tail.len() <= KEPT);
        }
    }

    #[test]
    fn rounds_count_where_their_first_token_is() {
        use crate::fixture::Script;
        use crate::fixture::fold;
        use draftscope_protocol::{Lane, StopReason};
        let mut script = Script::prompted("Why?", "<think>");
        script.round(&[(" so", 0.5), (" it", 0.5)], &[(" so", 0.9), (" is", 0.9), (" x", 0.9)]);
        script.round(&[("</think>", 0.5)], &[("</think>", 0.9), (" Yes", 0.9)]);
        script.round(&[(" no", 0.5)], &[(".", 0.9), (" x", 0.9)]);
        script.finish(Lane::Speculative, StopReason::Eos);
        let session = fold(&script.events);
        let answer = session.turns()[0].answer(Lane::Speculative);
        assert_eq!((answer.thought_tokens(), answer.tokens.len()), (4, 6));
        let [thought, rest] = answer.stats().thought_and_answer().unwrap();
        // the second round begins with the mark that ends the thought
        assert_eq!(thought, PartStats { rounds: 2, drafted: 3, accepted: 2, committed: 4 });
        assert_eq!(rest, PartStats { rounds: 1, drafted: 1, accepted: 0, committed: 1 });
        assert_eq!((thought.acceptance_rate(), rest.tokens_per_round()), (Some(2.0 / 3.0), Some(1.0)));
        let all = session.stats(Lane::Speculative);
        assert_eq!(all.thought_and_answer(), Some([thought, rest]), "sums over turns");
        let plain = fold(&crate::fixture::first_turn().events);
        assert_eq!(plain.stats(Lane::Speculative).thought_and_answer(), None);
    }
}
