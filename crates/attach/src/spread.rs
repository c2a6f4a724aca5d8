//! Secrets that a server spreads over the tokens of its answer.
//!
//! Invariant: tokens whose text may be the beginning of a secret wait until it is known whether it is one; of a secret at
//! most its first two bytes are shown. Nothing is lost: what waits is given out with what follows, or at the end.

use std::ops::Range;
use std::sync::Arc;

use draftscope_http::{MASK, Secrets};
use draftscope_protocol::{Piece, TokenId};

use super::names::Names;
use super::server::{Line, Reader};
use super::step::Part;

/// Most parts of an answer that wait. Only tokens without text come after so many in the middle of a secret.
const MOST_HELD: usize = 4096;

/// Reads a stream and masks secrets in its tokens, which also hold them where no single token does.
pub(super) struct Spread {
    stream: Box<dyn Reader>,
    secrets: Arc<Secrets>,
    /// The end of the text that was given out, then the text that waits.
    text: String,
    /// Bytes of the former.
    given: usize,
    held: Vec<Part>,
}

impl Spread {
    pub(super) fn new(stream: Box<dyn Reader>, secrets: &Arc<Secrets>) -> Self {
        Self { stream, secrets: Arc::clone(secrets), text: String::new(), given: 0, held: Vec::new() }
    }

    fn take(&mut self, parts: Vec<Part>, is_over: bool) -> Vec<Part> {
        let mut given = Vec::new();
        for mut part in parts {
            let text: String = tokens(&mut part).iter().map(place_text).collect();
            if let Part::Step(step) = &mut part {
                let drafts = step.detail.iter().flat_map(|round| round.draft_tokens()).map(place_text);
                let drafted = drafts.fold(self.text.clone(), |all, text| all + &text);
                if self.secrets.find(&drafted).iter().any(|place| place.end > self.text.len()) {
                    step.detail = None;
                }
            }
            self.text.push_str(&text);
            self.held.push(part);
            if self.held.len() > MOST_HELD || !self.secrets.may_begin(&self.text) {
                self.give(&mut given);
            }
        }
        if is_over {
            self.give(&mut given);
        }
        given
    }

    /// Gives out what waits, without the secrets in it.
    fn give(&mut self, given: &mut Vec<Part>) {
        let places = self.secrets.find(&self.text);
        let mut at = self.given;
        for part in &mut self.held {
            if !blank(tokens(part), (self.given, &mut at), &places) {
                continue;
            }
            match part {
                Part::First { row, .. } => *row = None,
                Part::Step(step) => {
                    step.rows.clear();
                    step.probs.clear();
                    step.detail = None;
                }
                _ => {}
            }
        }
        given.append(&mut self.held);
        let over = self.text.len().saturating_sub(self.secrets.longest());
        self.text.drain(..over);
        self.given = self.text.len();
    }
}

impl Reader for Spread {
    fn line(&mut self, line: &str, at_us: u64, names: &mut Names) -> Line {
        match self.stream.line(line, at_us, names) {
            Line::Parts(parts) => Line::Parts(self.take(parts, false)),
            line => line,
        }
    }

    fn close(&mut self) -> Vec<Part> {
        let parts = self.stream.close();
        self.take(parts, true)
    }
}

/// Masks secrets in tokens that follow each other.
pub(super) fn mask_tokens(secrets: &Secrets, tokens: &mut [Piece]) {
    let text: String = tokens.iter().map(place_text).collect();
    blank(tokens, (0, &mut 0), &secrets.find(&text));
}

fn tokens(part: &mut Part) -> &mut [Piece] {
    match part {
        Part::First { token, .. } => std::slice::from_mut(token),
        Part::Step(step) => &mut step.tokens,
        _ => &mut [],
    }
}

/// The text of a token with `?` for each byte that is not ASCII, so that places in it are places in the bytes.
fn place_text(token: &Piece) -> String {
    token.text_bytes().iter().map(|byte| if byte.is_ascii() { char::from(*byte) } else { '?' }).collect()
}

/// Masks these places in tokens whose text begins at `at`, which moves to their end; the text that can still be changed
/// begins at `first`. A token with a part of a secret loses its id. Returns whether there was one.
fn blank(tokens: &mut [Piece], (first, at): (usize, &mut usize), places: &[Range<usize>]) -> bool {
    let mut has_any = false;
    for token in tokens {
        let (begin, len) = (*at, token.text_bytes().len());
        *at += len;
        let (mut kept, mut from, mut is_part) = (Vec::new(), begin, false);
        for place in places.iter().filter(|place| place.start < begin + len && place.end > begin && !token.special) {
            is_part = true;
            kept.extend_from_slice(&token.bytes[from - begin..place.start.max(from) - begin]);
            if place.start >= begin || begin == first {
                kept.extend_from_slice(MASK.as_bytes());
            }
            from = place.end.min(begin + len);
        }
        if is_part {
            kept.extend_from_slice(&token.bytes[from - begin..]);
            *token = Piece::new(TokenId::UNKNOWN, kept);
            has_any = true;
        }
    }
    has_any
}

#[cfg(test)]
mod tests {
    use draftscope_protocol::StopReason;

    use super::*;
    use crate::step::Step;

    const KEY: &str = "SECRET/KEY+1=23";

    /// A stream whose lines are tokens.
    struct Lines;

    impl Reader for Lines {
        fn line(&mut self, line: &str, _: u64, _: &mut Names) -> Line {
            let tokens = vec![Piece::new(TokenId(7), line)];
            Line::Parts(vec![Part::Step(Step { tokens, probs: vec![Some(0.5)], ..Step::default() })])
        }

        fn close(&mut self) -> Vec<Part> {
            vec![Part::End(StopReason::Eos)]
        }
    }

    /// The text of an answer of these tokens, and how many steps came before its end.
    fn shown(pieces: &[&str]) -> (String, usize) {
        let secrets = Secrets::of(&[("x-key".to_owned(), KEY.to_owned())]);
        let mut spread = Spread::new(Box::new(Lines), &Arc::new(secrets));
        let mut parts = Vec::new();
        for piece in pieces {
            match spread.line(piece, 0, &mut Names::default()) {
                Line::Parts(more) => parts.extend(more),
                line => panic!("{line:?}"),
            }
        }
        parts.extend(spread.close());
        assert_eq!(parts.pop(), Some(Part::End(StopReason::Eos)));
        let tokens = parts.iter_mut().flat_map(|part| tokens(part).to_vec());
        (tokens.map(|piece| piece.lossy().into_owned()).collect(), parts.len())
    }

    #[test]
    fn a_secret_that_is_cut_anywhere_is_masked_and_all_else_is_shown() {
        let text = format!("é SEC {KEY}, {KEY}{KEY} é");
        for from in 0..text.len() {
            for to in from..text.len() {
                let Some((before, cut)) = text.get(..from).zip(text.get(from..to)) else { continue };
                let Some(after) = text.get(to..) else { continue };
                let (shown, steps) = shown(&[before, cut, after]);
                assert!(shown.starts_with("é SEC ") && shown.ends_with(" é"), "{shown}");
                assert!(!shown.contains("SECR") && !shown.contains("KEY") && !shown.contains("23"), "{shown}");
                assert_eq!(steps, 3);
            }
        }
        let letters: Vec<String> = text.chars().map(String::from).collect();
        let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
        assert_eq!(shown(&letters), ("é SEC SE***, SE***SE*** é".to_owned(), letters.len()));
        let coded: Vec<String> = KEY.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let coded: Vec<&str> = coded.iter().flat_map(|code| [&code[..2], &code[2..]]).collect();
        assert!(shown(&coded).0.ends_with("***") && !shown(&coded).0.contains("%43"), "{}", shown(&coded).0);
    }

    #[test]
    fn what_only_begins_like_a_secret_is_shown_whole_and_a_cut_off_secret_is_not() {
        for pieces in [&["SECRET", "/KEY", " "][..], &["SECRE", "T"], &["", "SEC", "", "", "SEC"]] {
            assert_eq!(shown(pieces), (pieces.concat(), pieces.len()));
        }
        assert_eq!(shown(&["it is SECRET/K", "EY+1", "=2"]).0, "it is ***");
        let padded: Vec<&str> = [&["SECRET/K"][..], &[""; MOST_HELD + 9], &["EY+1=23"]].concat();
        assert!(!shown(&padded).0.contains("SECRET"));
    }

    #[test]
    fn a_token_with_a_part_of_a_secret_keeps_no_id_and_no_probability() {
        let secrets = Secrets::of(&[("x-key".to_owned(), KEY.to_owned())]);
        let mut spread = Spread::new(Box::new(Lines), &Arc::new(secrets));
        let mut names = Names::default();
        for line in ["a", "SECRET", "/KEY+1=", "23", "b"] {
            let Line::Parts(parts) = spread.line(line, 0, &mut names) else { panic!() };
            for part in parts {
                let Part::Step(step) = part else { panic!() };
                let is_own = *step.tokens[0].bytes == *b"a" || *step.tokens[0].bytes == *b"b";
                assert_eq!((step.tokens[0].id == TokenId(7), step.probs.len()), (is_own, usize::from(is_own)));
            }
        }
    }
}
