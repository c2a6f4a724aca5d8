//! What is sent: a prompt with the turns before it, or a point of an answer to continue from.
//!
//! Invariant: a branch replaces the turn that it leaves and all turns after it; a branch that the user returned from is
//! not part of the conversation. Only committed tokens are sent.

use draftscope_protocol::{Again, Branch, Continuation, Lane, Message, Piece, Prompt, Speaker};
use draftscope_session::{Answer, Session, Turn};

use crate::app::App;
use crate::app::talk::Talk;

impl Talk {
    /// Whether the turn of this index starts a conversation.
    pub(crate) fn starts_conversation(&self, index: usize) -> bool {
        self.conversations.binary_search(&index).is_ok() // they are in order
    }

    /// The turns that count, oldest first.
    pub(crate) fn turns<'a>(&self, session: &'a Session) -> Vec<&'a Turn> {
        let start = self.conversations.last().copied().unwrap_or(0);
        let mut line: Vec<&Turn> = Vec::new();
        for turn in session.turns().iter().skip(start) {
            if self.abandoned.contains(&turn.number) {
                continue;
            }
            if let Some(at) = turn.branch.and_then(|branch| line.iter().position(|t| t.number == branch.turn)) {
                line.truncate(at);
            }
            line.push(turn);
        }
        line
    }
}

impl App {
    /// Whether a new conversation has begun that has no turn yet: figures and rounds of the one before are not its own.
    pub(crate) fn begins_anew(&self, session: &Session) -> bool {
        let count = session.turns().len();
        count > 0 && self.talk.conversations.last() == Some(&count) && !self.is_busy(session)
    }
}

/// The prompt for a text: all turns of the conversation, then the text.
pub(crate) fn prompt(app: &App, session: &Session, text: String) -> Prompt {
    if app.options.raw {
        return Prompt::Raw(text);
    }
    let message = |role, content| Message { role, content };
    let system = app.options.system.iter().cloned();
    let mut messages: Vec<_> = system.map(|s| message(Speaker::System, s)).collect();
    for turn in app.talk.turns(session) {
        let answer = turn.answer(Lane::Speculative);
        if !answer.tokens.is_empty() {
            messages.push(message(Speaker::User, turn.typed.clone()));
            messages.push(message(Speaker::Assistant, answer.reply()));
        }
    }
    messages.push(message(Speaker::User, text));
    Prompt::Chat(messages)
}

/// What a branch copies from an answer.
pub(crate) struct Point<'a> {
    pub(crate) turn: &'a Turn,
    /// Output tokens kept.
    pub(crate) kept: usize,
    /// Tokens added after them; the target did not choose the last one if `forced`.
    pub(crate) added: Vec<Piece>,
    pub(crate) forced: bool,
    /// The last of them is the anchor of a round that is run again.
    pub(crate) again: Option<Again>,
}

impl<'a> Point<'a> {
    /// Where the answer begins.
    pub(crate) fn of(turn: &'a Turn) -> Self {
        Self { turn, kept: 0, added: Vec::new(), forced: false, again: None }
    }
}

/// The prompt that continues from a point.
pub(crate) fn branch(point: &Point) -> Prompt {
    let answer: &Answer = point.turn.answer(Lane::Speculative);
    let output = answer.tokens.iter().take(point.kept).map(|token| token.piece.id);
    let tokens = answer.prompt.iter().copied().chain(output).chain(point.added.iter().map(|piece| piece.id));
    // an anchor is committed again
    let kept = point.kept + point.added.len() - usize::from(point.again.is_some());
    Prompt::Branch(Continuation {
        typed: point.turn.typed.clone(),
        tokens: tokens.collect(),
        branch: Branch { turn: point.turn.number, kept: kept as u32, forced: point.forced },
        again: point.again.clone(),
    })
}
