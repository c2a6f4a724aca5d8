//! The servers of a run: the one that is attached to, and the one that decodes plainly beside it.

use std::sync::mpsc::SyncSender;

use crate::protocol::{Header, Lane, Prompt, Settings};

use super::answer::Answer;
use super::read::{self, Read};
use super::server::Server;

/// What makes a comparison with the plain server unfair, in sentences.
pub(super) fn unlike(own: &Header, plain: &Header) -> Vec<String> {
    let mut notices = Vec::new();
    if own.model.name != plain.model.name {
        notices.push(format!(
            "the plain server runs {}, this one {}: compare with care",
            plain.model.name, own.model.name
        ));
    }
    if plain.drafter.is_some() {
        notices.push("the server of --plain-url drafts, too: start it without speculation".to_owned());
    }
    notices
}

/// Sends the prompt, and reads the answer on a thread of its own.
pub(super) fn ask(
    server: &mut dyn Server,
    (prompt, settings): (&Prompt, &Settings),
    (lane, turn, round): (Lane, u32, u32),
    sender: &SyncSender<Read>,
) -> Result<Answer, String> {
    let request = server.request(prompt, settings)?;
    let patience = server.client().patience().answer;
    read::start(server.client(), request, lane, sender.clone()).map(|prompt| {
        let answer = Answer::new(lane, turn, round, (server.reader(), prompt));
        answer.at_most(settings.max_tokens).within(patience)
    })
}

/// The server of a lane.
pub(super) fn server_of<'a>(
    own: &'a mut Box<dyn Server>,
    plain: &'a mut Option<Box<dyn Server>>,
    lane: Lane,
) -> &'a mut dyn Server {
    match plain {
        Some(plain) if lane == Lane::Plain => &mut **plain,
        _ => &mut **own,
    }
}
