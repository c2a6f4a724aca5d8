//! The generation loop: sixteen slots with one conversation each; a free slot takes the next task.

use std::collections::BTreeMap;
use std::path::Path;

use super::error::GenerateError;
use super::frame::Frame;
use super::sequence::{Role, Sequence, Setting};
use super::shard::{self, Plan, Shard};
use super::task::Task;
use crate::speculate::sampler::LogitRow;
use draftscope_model::native::{BATCH_ROWS, BatchRow, NativeBatch, NativeLlama};
use draftscope_model::text::template::ChatTemplate;
use draftscope_model::text::tokenizer::TextCodec;
use draftscope_model::{Model, ModelError, Rows, Tap};
use draftscope_protocol::TokenId;

/// The shards that a process makes: those with number mod `count` = `index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// 0 up to `count` − 1.
    pub index: usize,
    /// Processes that share the work.
    pub count: usize,
}

/// Progress of a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Finished shards of this part, those that existed before included.
    pub shards: usize,
    /// Conversations that have ended.
    pub conversations: usize,
    /// Ended conversations that were kept.
    pub kept: usize,
    /// Tokens computed by the model.
    pub tokens: u64,
    /// Answer tokens of kept conversations.
    pub answer_tokens: u64,
    /// A shard was written after this pass: its number of conversations.
    pub wrote: Option<usize>,
}

/// Generates the shards of a plan.
pub struct Generator<'a> {
    model: &'a NativeLlama,
    codec: &'a TextCodec,
    tasks: &'a [Task],
    frames: Vec<Frame>, // one per task
    plan: Plan,
}

/// A conversation in a slot.
struct Seat<'a> {
    line: usize,
    sequence: Sequence<'a>,
}

impl<'a> Generator<'a> {
    /// Sets the model to output the hidden states that the plan names, and splits the chat template for every task.
    ///
    /// # Errors
    /// [`GenerateError::Template`] when the template cannot be split, and [`GenerateError::Model`] when the model has
    /// fewer blocks than the plan names.
    pub fn new(
        (model, codec): (&'a mut NativeLlama, &'a TextCodec),
        template: &ChatTemplate,
        tasks: &'a [Task],
        plan: Plan,
    ) -> Result<Self, GenerateError> {
        model.set_tap(&Tap::default().and_behind(&plan.hidden_layers))?;
        let eos = codec.eos_name();
        let mut by_system: BTreeMap<Option<&str>, Frame> = BTreeMap::new();
        let mut frames = Vec::with_capacity(tasks.len());
        for task in tasks {
            let system = task.system.as_deref();
            let frame = match by_system.get(&system) {
                Some(frame) => frame.clone(),
                None => Frame::new(template, system, &eos)?,
            };
            frames.push(by_system.entry(system).or_insert(frame).clone());
        }
        Ok(Self { model, codec, tasks, frames, plan })
    }

    /// Makes the shards of a part that are not in `folder` yet. Calls `on_pass` with the progress after every pass.
    ///
    /// # Errors
    /// When a pass fails or a shard cannot be written.
    pub fn run(&self, folder: &Path, part: Part, on_pass: &mut dyn FnMut(&Progress)) -> Result<(), GenerateError> {
        let own: Vec<_> = (0..self.plan.shards()).filter(|shard| shard % part.count == part.index).collect();
        let (there, missing): (Vec<_>, Vec<_>) = own.into_iter().partition(|s| shard::path(folder, *s).exists());
        let mut lines = missing.into_iter().flat_map(|shard| self.plan.lines(shard));
        let mut progress = Progress { shards: there.len(), ..Progress::default() };
        let mut open: BTreeMap<usize, Shard> = BTreeMap::new();
        let mut batch = NativeBatch::new(self.model, BATCH_ROWS)?;
        let mut seats: Vec<Option<Seat<'_>>> = (0..BATCH_ROWS).map(|_| None).collect();
        loop {
            for (slot, seat) in seats.iter_mut().enumerate().filter(|(_, seat)| seat.is_none()) {
                batch.clear(slot);
                *seat = lines.next().map(|line| self.seat(line)).transpose()?;
            }
            if seats.iter().all(Option::is_none) {
                return Ok(());
            }
            progress.tokens += pass(&mut batch, &mut seats)?;
            for seat in &mut seats {
                if let Some(ended) = seat.take_if(|seat| seat.sequence.row().is_none()) {
                    self.end(ended, &mut open, &mut progress);
                }
            }
            self.write_whole(folder, &mut open, &mut progress)?;
            on_pass(&progress);
            progress.wrote = None;
        }
    }

    fn seat(&self, line: usize) -> Result<Seat<'_>, ModelError> {
        let Plan { ctx_len, hidden_size, .. } = self.plan;
        let setting = Setting { codec: self.codec, frame: &self.frames[line], ctx_len, hidden_size };
        Ok(Seat { line, sequence: Sequence::new(&self.tasks[line], setting)? })
    }

    fn end(&self, seat: Seat<'_>, open: &mut BTreeMap<usize, Shard>, progress: &mut Progress) {
        let finished = seat.sequence.finish();
        let answered = |roles: &[Role]| roles.iter().filter(|role| **role == Role::Answer).count() as u64;
        progress.conversations += 1;
        progress.kept += usize::from(finished.is_some());
        progress.answer_tokens += finished.as_ref().map_or(0, |finished| answered(&finished.roles));
        open.entry(seat.line / self.plan.shard_tasks).or_default().add(seat.line, finished);
    }

    /// Writes shards whose tasks have all ended.
    fn write_whole(
        &self,
        folder: &Path,
        open: &mut BTreeMap<usize, Shard>,
        progress: &mut Progress,
    ) -> Result<(), GenerateError> {
        let whole = open.extract_if(.., |number, shard| shard.ended == self.plan.lines(*number).len());
        for (number, shard) in whole {
            shard.write(&shard::path(folder, number), self.tasks, &self.plan)?;
            progress.shards += 1;
            progress.wrote = Some(shard.kept());
        }
        Ok(())
    }
}

/// One pass over one row of every conversation. Returns the number of rows.
fn pass(batch: &mut NativeBatch, seats: &mut [Option<Seat<'_>>]) -> Result<u64, ModelError> {
    let row = |(slot, seat): (usize, &Option<Seat<'_>>)| {
        let (token, scored): (TokenId, bool) = seat.as_ref()?.sequence.row()?;
        Some(BatchRow { slot, token, scored })
    };
    let rows: Vec<_> = seats.iter().enumerate().filter_map(row).collect();
    let out = batch.forward(&rows)?;
    let hidden: &Rows = &out.hidden;
    let mut scored = 0..;
    for (index, row) in rows.iter().enumerate() {
        let logits = row.scored.then(|| scored.next()).flatten();
        let logits = logits.map(|at| LogitRow { logits: out.logits.row(at), vocab: None, stats: out.stats.get(at) });
        if let Some(seat) = &mut seats[row.slot] {
            seat.sequence.take(hidden.row(index), logits)?;
        }
    }
    Ok(rows.len() as u64)
}
