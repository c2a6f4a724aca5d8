//! The tokens of a chunk: ids, texts and probabilities, put together from the fields that have them.
//!
//! Invariant: the texts of the tokens together are the text that the server sent, whatever its lists of tokens say.

use crate::names::Names;
use draftscope_protocol::{Candidate, Piece, Prediction, TokenId};

use super::chunk::{Choice, LogProbs, Logged};

/// Most tokens of a chunk that are read one by one.
const MAX_TOKENS: usize = 1 << 14;

/// Most candidates of a position.
const MAX_TOP: usize = 64;

/// A token with what the target gave it.
#[derive(Clone, Debug, PartialEq)]
pub struct SentToken {
    /// The token.
    pub piece: Piece,
    /// Its probability.
    pub prob: Option<f32>,
    /// The prediction that it was picked from.
    pub row: Option<Prediction>,
}

/// The tokens that a chunk adds. A chunk without lists of tokens is one of unknown id with all its text.
pub fn tokens(choice: &Choice, names: &mut Names) -> Vec<SentToken> {
    let text = choice.added_text();
    let ids = choice.token_ids.as_deref().unwrap_or_default();
    let logged = choice.logprobs.as_ref().map(entries).unwrap_or_default();
    let count = ids.len().max(logged.len()).max(usize::from(!text.is_empty())).min(MAX_TOKENS);
    let texts = texts(&logged, &text, count);
    let mut sent: Vec<SentToken> = (0..count)
        .map(|index| {
            let id = ids.get(index).map_or(TokenId::UNKNOWN, |id| TokenId(*id));
            let entry = logged.get(index);
            let name = || entry.map(|entry| entry.bytes()).filter(|bytes| !bytes.is_empty());
            let piece = match &texts {
                Some(texts) if index < texts.len() => Piece::new(id, texts[index].clone()),
                // it adds no text: the token that ends the answer
                Some(_) => match name() {
                    Some(name) => Piece::special(id, &String::from_utf8_lossy(&name)),
                    None => names.control(id),
                },
                None if index == 0 => Piece::new(id, text.as_str()),
                None => Piece::new(id, ""),
            };
            SentToken { piece, prob: entry.and_then(|entry| probability(entry.logprob)), row: None }
        })
        .collect();
    if texts.is_some() {
        sent.iter().for_each(|sent| names.learn(&sent.piece));
    }
    for (sent, entry) in sent.iter_mut().zip(&logged) {
        sent.row = row(entry, &sent.piece, names);
    }
    sent
}

/// The text of each token, if the list of tokens agrees with the text sent: all of them, or all but a last one that ends
/// the answer and adds nothing.
fn texts(logged: &[Logged], text: &str, count: usize) -> Option<Vec<Vec<u8>>> {
    if count == 1 && logged.is_empty() && !text.is_empty() {
        return Some(vec![text.as_bytes().to_vec()]);
    }
    if logged.len() != count {
        return (text.is_empty() && count == 1).then(Vec::new);
    }
    let texts: Vec<Vec<u8>> = logged.iter().map(Logged::bytes).collect();
    let is_text = |texts: &[Vec<u8>]| texts.concat() == text.as_bytes();
    if is_text(&texts) {
        return Some(texts);
    }
    let (_, before) = texts.split_last()?;
    is_text(before).then(|| before.to_vec())
}

/// The entries of either form.
fn entries(logprobs: &LogProbs) -> Vec<Logged> {
    if let Some(content) = &logprobs.content {
        return content.clone();
    }
    let tokens = logprobs.tokens.as_deref().unwrap_or_default();
    let of = |index: usize| logprobs.token_logprobs.as_ref()?.get(index).copied().flatten();
    let top = |index: usize| logprobs.top_logprobs.as_ref()?.get(index)?.as_ref();
    let entry = |(index, token): (usize, &String)| Logged {
        token: token.clone(),
        logprob: of(index).unwrap_or(f64::NAN),
        bytes: None,
        top_logprobs: top(index)
            .into_iter()
            .flatten()
            .map(|(token, logprob)| Logged { token: token.clone(), logprob: *logprob, ..Logged::default() })
            .collect(),
    };
    tokens.iter().enumerate().map(entry).collect()
}

impl Logged {
    fn bytes(&self) -> Vec<u8> {
        self.bytes.clone().unwrap_or_else(|| self.token.as_bytes().to_vec())
    }
}

fn probability(logprob: f64) -> Option<f32> {
    logprob.is_finite().then(|| logprob.min(0.0).exp() as f32)
}

/// The prediction at a position. Servers send candidates without ids: the token's own is known, and those of texts that
/// were seen before.
fn row(entry: &Logged, piece: &Piece, names: &Names) -> Option<Prediction> {
    let candidate = |logged: &Logged| {
        let bytes = logged.bytes();
        let own = bytes == *piece.bytes && !piece.bytes.is_empty();
        let id = if own { piece.id } else { names.id(&bytes) };
        Some(Candidate { piece: Piece::new(id, bytes), prob: probability(logged.logprob)? })
    };
    let mut top: Vec<Candidate> = entry.top_logprobs.iter().take(MAX_TOP).filter_map(candidate).collect();
    if top.is_empty() {
        return None;
    }
    top.sort_by(|a, b| b.prob.total_cmp(&a.prob));
    let listed: f32 = top.iter().map(|candidate| candidate.prob).sum();
    Some(Prediction { tail: (1.0 - listed).clamp(0.0, 1.0), top })
}
