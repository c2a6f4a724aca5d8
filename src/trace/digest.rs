//! Removes the text from events, for recordings that may be shared when the conversation may not.
//!
//! Invariant: a prompt becomes its SHA-256, and an answer that of its bytes. Tokens lose their bytes and are numbered
//! in the order in which they first appear, so every comparison within a recording gives the same result, but no
//! vocabulary can decode them. Control tokens stay, since they contain no text. (The numbers still show which tokens
//! repeat, and a digest can confirm a guess of the whole text.)

use std::collections::HashMap;
use std::io;

use sha2::{Digest as _, Sha256};

use crate::protocol::{Event, EventKind, FIRST_DIGESTED, Lane, Piece, Private, StopReason, TokenId};
use crate::stream::Consumer;

/// The numbers of tokens and the digests of answers so far.
#[derive(Default)]
pub(super) struct Digester {
    numbers: HashMap<TokenId, TokenId>,
    answers: [Sha256; Lane::ALL.len()],
    /// Events added so far, so that `seq` has no gaps and no duplicates.
    added: u64,
}

impl Digester {
    /// The event without its text. If it ends an answer, the digest of the answer comes before it.
    pub(super) fn digest(&mut self, mut event: Event) -> [Option<Event>; 2] {
        event.seq += self.added;
        let answer = event.lane.index();
        match &event.kind {
            EventKind::Prompted { .. } => self.answers = Default::default(), // a refused prompt has no answer
            EventKind::Prefilled { first, .. } => {
                self.answers[answer] = Sha256::new();
                self.answers[answer].update(first.text_bytes());
            }
            EventKind::Committed { tokens, .. } => {
                tokens.iter().for_each(|token| self.answers[answer].update(token.text_bytes()));
            }
            EventKind::Finished { reason } if *reason != StopReason::Refused => {
                let sha256 = hex(self.answers[answer].clone().finalize().as_slice());
                let digest = Event { kind: EventKind::TextDigest { sha256 }, ..event.clone() };
                self.added += 1;
                event.seq += 1;
                return [Some(digest), Some(event)];
            }
            _ => {}
        }
        event.kind.each_private(&mut |part| match part {
            Private::Typed(text) => *text = format!("sha256:{}", hex(Sha256::digest(text.as_bytes()).as_slice())),
            Private::Token(piece) => self.piece(piece),
            Private::Id(id) => *id = self.number(*id),
        });
        [Some(event), None]
    }

    fn piece(&mut self, piece: &mut Piece) {
        if !piece.special {
            piece.id = self.number(piece.id);
            piece.bytes.clear();
        } else {
            self.numbers.insert(piece.id, piece.id);
        }
    }

    fn number(&mut self, id: TokenId) -> TokenId {
        let next = TokenId(FIRST_DIGESTED.0 + self.numbers.len() as u32);
        *self.numbers.entry(id).or_insert(next)
    }
}

/// Passes every event without its text to a consumer.
pub struct Digested<C> {
    consumer: C,
    digester: Digester,
}

impl<C: Consumer> Digested<C> {
    /// Wraps a consumer.
    pub fn new(consumer: C) -> Self {
        Self { consumer, digester: Digester::default() }
    }
}

impl<C: Consumer> Consumer for Digested<C> {
    fn name(&self) -> &str {
        self.consumer.name()
    }

    fn event(&mut self, event: &Event) -> io::Result<()> {
        self.digester.digest(event.clone()).iter().flatten().try_for_each(|event| self.consumer.event(event))
    }

    fn finish(&mut self) -> io::Result<()> {
        self.consumer.finish()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
