//! Decoding in rounds: the answer, the number of rounds, and the drafts.

use std::time::Duration;

use draftscope::engine::speculate::decoder::Decoder;
pub use draftscope::engine::speculate::drafter::{
    Drafter, EarlyExitDrafter, ModelDrafter, MtpDrafter as ModuleDrafter, NgramDrafter, NoDrafter, RandomDrafter,
};
use draftscope::protocol::{Candidate, Drafted, Drafting, EventKind, MtpOverride, Prediction, Settings};

use crate::support::{DraftModule, LogitRows, Model, TokenId};

/// Length of a long answer, in tokens.
pub const LEN: usize = 210;

/// An answer and the counts of its rounds.
#[derive(Default)]
pub struct Answer {
    pub text: Vec<TokenId>,
    pub rounds: usize,
    pub drafted: usize,
    /// Rounds in which the draft of each position was accepted.
    pub accepted: Vec<usize>,
    pub notices: Vec<String>,
}

pub fn settings(k: u8) -> Settings {
    with_conventions(k, MtpOverride::default())
}

pub fn with_conventions(k: u8, mtp: MtpOverride) -> Settings {
    Settings {
        draft_len: k,
        drafting: Drafting { mtp, ..Drafting::default() },
        drafter: draftscope::protocol::DrafterKind::Mtp,
        ..Settings::default()
    }
}

pub fn with_tree(k: u8, nodes: u8) -> Settings {
    Settings { drafting: Drafting { tree: Some(nodes), ..Drafting::default() }, ..settings(k) }
}

/// A drafter over copies of the first `height` modules.
pub fn drafter(modules: &[Box<dyn DraftModule>]) -> Box<dyn Drafter> {
    Box::new(ModuleDrafter::stack(modules.iter().map(|module| module.fork().unwrap()).collect()))
}

/// A decoder over a copy of the target, after a prompt.
pub fn start(target: &dyn Model, drafter: Box<dyn Drafter>, settings: &Settings, prompt: &[TokenId]) -> Decoder {
    let mut decoder = Decoder::new(target.fork().unwrap(), drafter, settings);
    decoder.prefill(1, prompt).unwrap();
    decoder
}

/// Decodes `len` tokens.
pub fn decode(
    target: &dyn Model,
    drafter: Box<dyn Drafter>,
    settings: &Settings,
    prompt: &[TokenId],
    len: usize,
) -> Answer {
    let mut decoder = start(target, drafter, settings, prompt);
    let mut answer = Answer { accepted: vec![0; usize::from(settings.draft_len)], ..Answer::default() };
    answer.notices.append(&mut decoder.take_notices());
    while decoder.committed().len() < prompt.len() + len {
        decoder
            .round(&mut |event| {
                match event {
                    EventKind::Drafted(_) => answer.drafted += 1,
                    EventKind::Verified { verdict, .. } => {
                        answer.accepted.iter_mut().take(verdict.accepted()).for_each(|count| *count += 1);
                    }
                    EventKind::Notice { message } => answer.notices.push(message),
                    _ => {}
                }
                Duration::ZERO
            })
            .unwrap();
        answer.rounds += 1;
    }
    answer.text = decoder.committed()[prompt.len()..prompt.len() + len].to_vec();
    answer
}

/// Probabilities of the drafts of one round.
pub fn round(decoder: &mut Decoder) -> Vec<Prediction> {
    let mut drafts = Vec::new();
    decoder
        .round(&mut |event| {
            if let EventKind::Drafted(Drafted { top, .. }) = event {
                drafts.push(top);
            }
            Duration::ZERO
        })
        .unwrap();
    drafts
}

/// Largest difference between probabilities of the same token. One that is not listed has at most the least listed
/// probability, and counts with that or its own, whichever is smaller.
pub fn apart(a: &[Prediction], b: &[Prediction]) -> f32 {
    let least = |p: &Prediction| p.top.last().map_or(0.0, |candidate| candidate.prob);
    let beyond = |p: &Prediction, other: &Prediction| {
        let off = |c: &Candidate| match other.find(c.piece.id) {
            Some((_, prob)) => (c.prob - prob).abs(),
            None => (c.prob - least(other)).max(0.0),
        };
        p.top.iter().map(off).fold(0.0, f32::max)
    };
    let pair = |(a, b): (&Prediction, &Prediction)| beyond(a, b).max(beyond(b, a));
    a.iter().zip(b).map(pair).fold(0.0, f32::max)
}

/// Logits of a continuation, which depend on all state that a target has.
pub fn next_logits(target: &dyn Model, tokens: &[TokenId]) -> Vec<f32> {
    target.fork().unwrap().forward(tokens, LogitRows::All).unwrap().logits.as_slice().to_vec()
}
