//! Removes the text from events, for recordings that may be shared when the conversation may not.
//!
//! Invariant: a prompt becomes its SHA-256, and an answer that of its bytes. Tokens lose their bytes and are numbered
//! in the order in which they first appear, so every comparison within a recording gives the same result, but no
//! vocabulary can decode them. Control tokens stay, since they contain no text. (The numbers still show which tokens
//! repeat, and a digest can confirm a guess of the whole text.)

use std::collections::HashMap;
use std::io;

use sha2::{Digest as _, Sha256};

use draftscope_protocol::stream::Consumer;
use draftscope_protocol::{
    Committed, Event, EventKind, FIRST_DIGESTED, Lane, Piece, Prefilled, Private, StopReason, TokenId,
};

/// The numbers of tokens and the digests of answers so far.
#[derive(Default)]
pub(super) struct Digester {
    numbers: HashMap<TokenId, TokenId>,
    /// Digest of what each lane wrote in this turn; none where a lane goes on with an earlier one: that is gone.
    answers: [Option<Sha256>; Lane::ALL.len()],
    turn: u32,
    /// Events added so far, so that `seq` has no gaps and no duplicates.
    added: u64,
}

impl Digester {
    /// The event without its text. If it ends an answer, the digest of the answer comes before it.
    pub(super) fn digest(&mut self, mut event: Event) -> [Option<Event>; 2] {
        event.seq += self.added;
        let answer = event.lane.index();
        match &event.kind {
            EventKind::Prompted { turn, .. } => {
                // a refused prompt has an empty answer
                (self.turn, self.answers) = (*turn, std::array::from_fn(|_| Some(Sha256::new())));
            }
            EventKind::Prefilled(Prefilled { first, .. }) => {
                self.answers[answer] = Some(Sha256::new_with_prefix(first.text_bytes()));
            }
            EventKind::LaneContinued { turn } if *turn != self.turn => self.answers[answer] = None,
            EventKind::Committed(Committed { tokens, .. }) => {
                let digest = self.answers[answer].iter_mut();
                digest.for_each(|digest| tokens.iter().for_each(|token| digest.update(token.text_bytes())));
            }
            EventKind::Finished { reason } if *reason != StopReason::Refused && self.answers[answer].is_some() => {
                let digest = self.answers[answer].clone().unwrap_or_default();
                let sha256 = hex(digest.finalize().as_slice());
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
        if id.is_unknown() {
            return id;
        }
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
