//! One conversation in progress: which token the model computes next, and how its output continues the conversation.

use half::f16;
use half::slice::HalfFloatSliceExt;

use super::frame::Frame;
use super::task::{Task, UserTurn};
use crate::speculate::sampler::{LogitRow, Sampler};
use draftscope_model::ModelError;
use draftscope_model::text::tokenizer::TextCodec;
use draftscope_protocol::random::{Draws, Purpose, SeededDraws};
use draftscope_protocol::{Sampling, TokenId};

/// Sampling of user turns that the model invents: temperature 1, the 50 most probable tokens.
const INVENTION: Sampling = Sampling { temperature: 1.0, top_k: 50, top_p: 1.0, min_p: 0.0, seed: 0 };

/// Fewest and most tokens of an invented user turn.
const INVENTED: std::ops::RangeInclusive<usize> = 3..=70;

/// An answer with at most [`LOOP_DISTINCT`] different tokens among its last [`LOOP_WINDOW`] repeats itself.
const LOOP_WINDOW: usize = 36;
const LOOP_DISTINCT: usize = 10;
/// Length of an answer, in tokens, from which this is checked.
const LOOP_FROM: usize = 48;
/// Share of repeating answers that is kept, since users get such answers, too.
const LOOPS_KEPT: f32 = 0.15;

/// Origin of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Role {
    /// The template or the task.
    Given = 0,
    /// The model's answer.
    Answer = 1,
    /// The model in the user's place.
    Invented = 2,
}

/// What the next token belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Inventing { from: usize },
    Answering { from: usize },
    Ended { kept: bool },
}

/// What a sequence reads besides its task.
pub(super) struct Setting<'a> {
    pub(super) codec: &'a TextCodec,
    pub(super) frame: &'a Frame,
    pub(super) ctx_len: usize,
    pub(super) hidden_size: usize,
}

/// One conversation in progress.
pub(super) struct Sequence<'a> {
    task: &'a Task,
    setting: Setting<'a>,
    draws: SeededDraws,
    phase: Phase,
    next_turn: usize,
    tokens: Vec<TokenId>,
    roles: Vec<Role>,
    hidden: Vec<f16>, // [fed, d]
    layers: Vec<f16>, // [fed, layers · d]
    fed: usize,
}

/// Output of a task: the computed tokens and their hidden states.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Finished {
    pub(super) tokens: Vec<TokenId>,
    pub(super) roles: Vec<Role>,
    pub(super) hidden: Vec<f16>, // [tokens, d]
    pub(super) layers: Vec<f16>, // [tokens, layers · d]
}

impl<'a> Sequence<'a> {
    pub(super) fn new(task: &'a Task, setting: Setting<'a>) -> Result<Self, ModelError> {
        let mut sequence = Self {
            task,
            setting,
            draws: SeededDraws::new(task.seed),
            phase: Phase::Ended { kept: false },
            next_turn: 0,
            tokens: Vec::new(),
            roles: Vec::new(),
            hidden: Vec::new(),
            layers: Vec::new(),
            fed: 0,
        };
        sequence.open_turn()?;
        Ok(sequence)
    }

    /// The token to compute, and whether its logits are needed. None when the sequence has ended.
    pub(super) fn row(&self) -> Option<(TokenId, bool)> {
        let ended = matches!(self.phase, Phase::Ended { .. });
        (!ended).then(|| (self.tokens[self.fed], self.is_scored()))
    }

    fn is_scored(&self) -> bool {
        self.fed + 1 == self.tokens.len()
    }

    /// Takes the output of the token's row. `states` contains the state after the final norm, then the states after
    /// the blocks that the plan names.
    pub(super) fn take(&mut self, states: &[f32], logits: Option<LogitRow<'_>>) -> Result<(), ModelError> {
        let (normed, blocks) = states.split_at(self.setting.hidden_size);
        push_halves(&mut self.hidden, normed);
        for state in blocks.chunks_exact(self.setting.hidden_size) {
            push_halves(&mut self.layers, &unit(state));
        }
        self.fed += 1;
        let Some(logits) = logits else {
            return Ok(());
        };
        match self.phase {
            Phase::Inventing { from } => self.invent(from, &logits),
            Phase::Answering { from } => self.answer(from, &logits),
            Phase::Ended { .. } => Ok(()),
        }
    }

    /// The output, if it is kept.
    pub(super) fn finish(mut self) -> Option<Finished> {
        self.tokens.truncate(self.fed);
        self.roles.truncate(self.fed);
        let kept = self.phase == Phase::Ended { kept: true };
        kept.then_some(Finished { tokens: self.tokens, roles: self.roles, hidden: self.hidden, layers: self.layers })
    }

    fn end(&mut self, kept: bool) {
        self.phase = Phase::Ended { kept };
    }

    fn push(&mut self, tokens: &[TokenId], role: Role) {
        self.tokens.extend_from_slice(tokens);
        self.roles.resize(self.tokens.len(), role);
    }

    /// Adds the user's next turn, up to the answer or up to where the model continues an invented turn.
    fn open_turn(&mut self) -> Result<(), ModelError> {
        let Frame { opening, closing, between } = self.setting.frame;
        let before = if self.next_turn == 0 { opening } else { between };
        let (typed, after) = match &self.task.turns[self.next_turn] {
            UserTurn::Whole(text) => (text, closing.as_str()),
            UserTurn::Invented { invent } => (invent, ""),
        };
        let tokens = self.setting.codec.encode_between(before, typed.trim(), after)?;
        self.push(&tokens, Role::Given);
        let from = self.tokens.len();
        self.phase = match self.task.turns[self.next_turn] {
            UserTurn::Whole(_) => Phase::Answering { from },
            UserTurn::Invented { .. } => Phase::Inventing { from },
        };
        self.next_turn += 1;
        self.end_when_full();
        Ok(())
    }

    /// Ends a conversation that fills the context. It is kept if it contains an answer.
    fn end_when_full(&mut self) {
        if self.tokens.len() >= self.setting.ctx_len {
            self.end(self.next_turn > 1 && self.fed > 0);
        }
    }

    fn sample(&self, sampling: Sampling, logits: &LogitRow<'_>) -> Result<TokenId, ModelError> {
        if let (true, Some(stats)) = (sampling.is_greedy(), logits.stats) {
            return Ok(TokenId(stats.argmax));
        }
        let distribution = Sampler { sampling }.distribution(logits, None, self.fed)?;
        Ok(distribution.pick(self.draws.uniform(Purpose::Next, self.fed)))
    }

    fn invent(&mut self, from: usize, logits: &LogitRow<'_>) -> Result<(), ModelError> {
        let token = self.sample(INVENTION, logits)?;
        let count = self.tokens.len() - from;
        let ended = self.setting.codec.is_end(token);
        if ended || count == *INVENTED.end() {
            if count < *INVENTED.start() {
                self.end(self.next_turn > 1);
                return Ok(());
            }
            let closing = self.setting.codec.encode(&self.setting.frame.closing)?;
            self.push(&closing, Role::Given);
            self.phase = Phase::Answering { from: self.tokens.len() };
            self.end_when_full();
        } else if self.setting.codec.piece(token).special {
            self.end(self.next_turn > 1);
        } else {
            self.push(&[token], Role::Invented);
            self.end_when_full();
        }
        Ok(())
    }

    fn answer(&mut self, from: usize, logits: &LogitRow<'_>) -> Result<(), ModelError> {
        let sampling = Sampling { temperature: self.task.temperature, ..Sampling::default() };
        let token = self.sample(sampling, logits)?;
        self.push(&[token], Role::Answer);
        let answer = &self.tokens[from..];
        if self.setting.codec.is_end(token) {
            if self.next_turn < self.task.turns.len() {
                return self.open_turn();
            }
            self.end(true);
        } else if loops(answer) {
            let kept = self.draws.uniform(Purpose::Accept, self.fed) < LOOPS_KEPT;
            self.end(kept || self.next_turn > 1);
        } else if answer.len() >= self.task.max_tokens as usize || self.tokens.len() >= self.setting.ctx_len {
            self.end(true);
        }
        Ok(())
    }
}

fn push_halves(to: &mut Vec<f16>, values: &[f32]) {
    let start = to.len();
    to.resize(start + values.len(), f16::ZERO);
    to[start..].convert_from_f32_slice(values);
}

/// A state divided by its root mean square, as a module reads it. Without this, some states would not fit into f16.
fn unit(state: &[f32]) -> Vec<f32> {
    let mean = state.iter().map(|x| x * x).sum::<f32>() / state.len() as f32;
    let scale = 1.0 / (mean + f32::MIN_POSITIVE).sqrt();
    state.iter().map(|x| x * scale).collect()
}

fn loops(answer: &[TokenId]) -> bool {
    if answer.len() < LOOP_FROM {
        return false;
    }
    let mut window = answer[answer.len() - LOOP_WINDOW..].to_vec();
    window.sort_unstable();
    window.dedup();
    window.len() <= LOOP_DISTINCT
}
