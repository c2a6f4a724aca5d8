//! An MTP module on the GPU: the backend below the part that all modules share.

use std::collections::VecDeque;
use std::sync::Arc;

use draftscope_gpu::{
    Ahead, Gpu, Logits, MAX_SLOTS, ModuleOutput, ModuleSequence, ModuleWeights, Network, Scored, Slots as DeviceSlots,
};

use super::{device, stats};
use crate::draft_tokens::DraftTokens;
use crate::module_core::{ModuleBackend, ModuleCore, NormWeights, Slots};
use crate::{LogitRows, ModelError, RowStats};
use draftscope_protocol::{ConcatOrder, DeviceWork, Recycle, TokenId};

/// Weights of the norms of a module, on the host.
#[derive(Clone, Debug)]
pub(crate) struct Norms {
    pub(crate) embedding: Vec<f32>,
    pub(crate) hidden: Vec<f32>,
    pub(crate) attn: Vec<f32>,
    pub(crate) ffn: Vec<f32>,
    pub(crate) last: Vec<f32>,
    /// Of queries, then of keys, if heads are normed.
    pub(crate) heads: Option<Vec<f32>>,
}

/// A module's weights.
#[derive(Debug)]
pub(crate) struct GpuMtpWeights {
    pub(crate) norms: Norms,
    pub(crate) device: Arc<ModuleWeights>,
    /// Dropped last.
    pub(crate) gpu: Arc<Gpu>,
}

impl NormWeights for GpuMtpWeights {
    fn one_plus(&self) -> Result<Self, ModelError> {
        let mut norms = self.norms.clone();
        let Norms { embedding, hidden, attn, ffn, last, heads } = &mut norms;
        let all = [embedding, hidden, attn, ffn, last].into_iter().chain(heads);
        all.flatten().for_each(|weight| *weight += 1.0);
        let mut device = (*self.device).clone();
        device.embedding_norm = self.gpu.upload(&norms.embedding);
        device.hidden_norm = self.gpu.upload(&norms.hidden);
        device.block.attn_norm = Some(self.gpu.upload(&norms.attn));
        device.block.ffn_norm = Some(self.gpu.upload(&norms.ffn));
        device.final_norm = self.gpu.upload(&norms.last);
        device.block.head_norms = norms.heads.as_ref().map(|heads| self.gpu.upload(heads));
        self.gpu.check()?;
        Ok(Self { gpu: Arc::clone(&self.gpu), norms, device: Arc::new(device) })
    }
}

/// A module's cache and launches.
#[derive(Debug)]
pub(crate) struct GpuModule {
    sequence: ModuleSequence,
    /// The weights that the launches read.
    bound: Arc<ModuleWeights>,
    joined: Vec<u32>,
    fixed: usize,
    /// Drafts that follow the next pass.
    expected: usize,
    /// Which logits are read.
    reads: Logits,
    /// Drafts that ran with the last pass.
    ahead: RanAhead,
    /// Dropped last.
    network: Arc<Network>,
}

/// Slots that ran ahead, if the drafts are the best tokens.
#[derive(Debug, Default)]
struct RanAhead {
    steps: VecDeque<Ahead>,
    /// Rotary position of the next one, and the state that it read.
    at: usize,
    reads: Vec<f32>,
}

impl RanAhead {
    /// The slot, if it ran.
    fn take(&mut self, slots: &Slots<'_>) -> Option<Ahead> {
        let ran = self.steps.front().is_some_and(|step| slots.tokens == [TokenId(step.token)]);
        let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits();
        let reads_same = slots.hidden.len() == self.reads.len() && slots.hidden.iter().zip(&self.reads).all(same);
        if !ran || slots.at != self.at || slots.zeroed || !reads_same {
            return None;
        }
        let step = self.steps.pop_front()?;
        self.at += 1;
        self.reads.clone_from(&step.state);
        Some(step)
    }
}

/// An MTP module on the GPU.
pub(crate) type GpuMtp = ModuleCore<GpuModule>;

impl GpuModule {
    /// With an empty cache.
    pub(crate) fn new(network: &Arc<Network>, weights: &Arc<ModuleWeights>) -> Result<Self, ModelError> {
        Ok(Self {
            network: Arc::clone(network),
            sequence: ModuleSequence::new(network, weights)?,
            bound: Arc::clone(weights),
            joined: Vec::new(),
            fixed: weights.head.rows(),
            expected: 0,
            reads: Logits::All,
            ahead: RanAhead::default(),
        })
    }

    /// Binds other weights; norms change only while the cache is empty.
    fn bind(&mut self, weights: &Arc<ModuleWeights>) -> Result<(), ModelError> {
        if !Arc::ptr_eq(&self.bound, weights) {
            self.sequence = ModuleSequence::new(&self.network, weights)?;
            self.sequence.set_joined(&self.joined);
            self.bound = Arc::clone(weights);
            self.ahead = RanAhead::default();
        }
        Ok(())
    }
}

impl ModuleBackend for GpuModule {
    const NAME: &'static str = "the MTP module";
    const MAX_SLOTS: usize = MAX_SLOTS;
    type Weights = GpuMtpWeights;
    /// Logits of the last slot.
    type Last = Scored;

    fn run(&mut self, weights: &GpuMtpWeights, slots: Slots<'_>, recycled: &mut [f32]) -> Result<Scored, ModelError> {
        self.bind(&weights.device)?;
        let (vocab, position) = (self.network.head.rows(), self.sequence.len());
        if let Some(token) = slots.tokens.iter().find(|token| token.index() >= vocab) {
            return Err(ModelError::Vocabulary { token: token.0, vocab });
        }
        if let Some(step) = self.ahead.take(&slots) {
            if !step.state.iter().all(|x| x.is_finite()) {
                self.ahead = RanAhead::default();
                return Err(ModelError::NotFinite { position });
            }
            self.sequence.take_ahead();
            recycled.copy_from_slice(&step.state);
            return Ok(step.scored);
        }
        let tokens: Vec<u32> = slots.tokens.iter().map(|token| token.0).collect();
        let ahead = std::mem::take(&mut self.expected).saturating_sub(1);
        let ModuleOutput { states, scored, ahead: steps } = self.sequence.forward(DeviceSlots {
            tokens: &tokens,
            hidden: slots.hidden,
            at: slots.at,
            zeroed: slots.zeroed,
            hidden_first: slots.spec.order == ConcatOrder::HiddenFirst,
            before_norm: slots.spec.recycle == Recycle::PreNorm,
            logits: self.reads,
            ahead,
        })?;
        if !states.iter().all(|x| x.is_finite()) {
            return Err(ModelError::NotFinite { position });
        }
        recycled.copy_from_slice(&states);
        let reads = states[states.len() - self.network.shape.d_model..].to_vec();
        self.ahead = RanAhead { steps: steps.into(), at: slots.at + tokens.len(), reads };
        Ok(scored)
    }

    fn logits(&mut self, last: Scored) -> Result<(Vec<f32>, Vec<RowStats>), ModelError> {
        let stats = stats::of_rows(&last, self.fixed + self.joined.len());
        Ok((last.logits, stats))
    }

    fn truncate(&mut self, len: usize) {
        if len < self.sequence.len() {
            self.ahead = RanAhead::default();
        }
        self.sequence.truncate(len);
    }

    fn expect_drafts(&mut self, count: usize, logits: LogitRows) {
        self.expected = count;
        self.ahead = RanAhead::default();
        self.reads = if logits == LogitRows::Best { Logits::Best } else { Logits::All };
    }

    fn device_work(&self) -> Option<DeviceWork> {
        Some(device::work(self.sequence.work()))
    }

    fn set_tokens(&mut self, tokens: &DraftTokens) -> Result<(), ModelError> {
        let id = |token: &TokenId| token.0;
        self.joined = tokens.tokens().iter().skip(self.fixed).map(id).collect();
        self.sequence.set_joined(&self.joined);
        self.ahead = RanAhead::default(); // without the new tokens' logits
        Ok(())
    }

    fn fork(&self) -> Result<Self, ModelError> {
        Ok(Self {
            network: Arc::clone(&self.network),
            sequence: self.sequence.fork()?,
            bound: Arc::clone(&self.bound),
            joined: self.joined.clone(),
            fixed: self.fixed,
            expected: 0,
            reads: Logits::All,
            ahead: RanAhead::default(),
        })
    }
}
