//! Takes the text out of events: for recordings that may be shared when the conversation may not.
//!
//! Invariant: of a prompt its sha256 is left, of an answer the sha256 of its bytes; tokens lose
//! their bytes and get numbers in the order in which they first appear, so that every comparison in a
//! recording still holds and no vocabulary turns them back. Control tokens stay: they are no text.
//! (Numbers still show which tokens repeat, and a digest confirms a guess of the whole text.)

use std::collections::HashMap;
use std::io;

use sha2::{Digest as _, Sha256};

use crate::protocol::{Event, EventKind, FIRST_DIGESTED, Lane, Piece, Private, StopReason, TokenId};
use crate::stream::Consumer;

/// What was given to whom so far.
#[derive(Default)]
pub(super) struct Digester {
    numbers: HashMap<TokenId, TokenId>,
    answers: [Sha256; Lane::ALL.len()],
    /// Events added so far; `seq` has no gaps and no doubles.
    added: u64,
}

impl Digester {
    /// The event without its text, behind the digest of an answer that ends with it.
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
                let told = Event { kind: EventKind::TextDigest { sha256 }, ..event.clone() };
                self.added += 1;
                event.seq += 1;
                return [Some(told), Some(event)];
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

/// A consumer that is handed every event without its text.
pub struct Digested<C> {
    consumer: C,
    digester: Digester,
}

impl<C: Consumer> Digested<C> {
    /// In front of this consumer.
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
