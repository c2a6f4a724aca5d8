//! The servers of a run: the one that is attached to, and the one that decodes plainly beside it.

use std::sync::mpsc::SyncSender;

use serde_json::Value;

use draftscope_protocol::{Header, Lane, ModelInfo, Prompt, Settings};

use super::answer::Answer;
use super::grammar;
use super::read::{self, Read};
use super::server::Server;

/// Why no speedup follows from the plain server's answers, in sentences; none if it follows.
pub(super) fn unlike(own: &Header, plain: &Header) -> Vec<String> {
    let mut reasons = Vec::new();
    if !is_same_model(&own.model, &plain.model) {
        reasons.push(format!(
            "the plain server runs {}, this one {}: no speedup follows from their answers",
            plain.model.name, own.model.name
        ));
    }
    if plain.drafter.is_some() {
        reasons.push(
            "the server of --plain-url drafts, too, so no speedup follows: start it without speculation".to_owned(),
        );
    }
    reasons
}

/// Whether both servers run one model: by its sizes where both report them, since a server may give it any name, else by
/// its name.
fn is_same_model(own: &ModelInfo, plain: &ModelInfo) -> bool {
    let both = [own, plain];
    match both.iter().all(|model| model.weight_bytes > 0 && model.vocab > 0) {
        true => {
            both.map(|model| (model.weight_bytes, model.vocab, model.d_model)).windows(2).all(|two| two[0] == two[1])
        }
        false => own.name.eq_ignore_ascii_case(&plain.name),
    }
}

/// Sends the prompt, and reads the answer on a thread of its own.
pub(super) fn ask(
    server: &mut dyn Server,
    (prompt, settings, schema): (&Prompt, &Settings, Option<&Value>),
    (lane, turn, round): (Lane, u32, u32),
    sender: &SyncSender<Read>,
) -> Result<Answer, String> {
    let mut request = server.request(prompt, settings)?;
    grammar::add(&mut request, schema, prompt)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use draftscope_protocol::{DrafterInfo, DrafterKind};

    #[test]
    fn a_speedup_follows_only_from_the_same_model_without_drafts() {
        let header = |name: &str, weight_bytes: u64| {
            let model = ModelInfo { name: name.to_owned(), weight_bytes, vocab: 9, ..ModelInfo::default() };
            Header { model, ..Header::default() }
        };
        let says = |own: &Header, plain: &Header| unlike(own, plain).len();
        assert_eq!(says(&header("Qwen3-8B", 0), &header("qwen3-8b", 7)), 0, "sizes that one of them does not report");
        assert_eq!(says(&header("Qwen3-8B", 0), &header("Qwen3-1.7B", 0)), 1);
        assert_eq!(says(&header("default", 7), &header("Qwen3-8B", 7)), 0, "one file under two names");
        assert_eq!(says(&header("default", 7), &header("default", 8)), 1, "two files under one name");
        let drafts = DrafterInfo::weightless(DrafterKind::Ngram, 9);
        assert_eq!(says(&header("a", 7), &Header { drafter: Some(drafts), ..header("a", 7) }), 1);
    }
}
