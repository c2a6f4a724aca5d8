//! Layers of Qwen3.5: a mixer (gated attention over a KV cache, or Gated DeltaNet over a state), then a gated
//! feed-forward layer or a mixture of experts, each after an RMSNorm and added to the residual stream.
//!
//! Invariant: the state is always computed row by row, and attention is that of every family
//! ([`attend_cached`](crate::nn::attend_cached)). So with matrices on the native kernels a row's bits do not depend
//! on the rows beside it.
//! Activations are f32 whatever the dtype of the weights.

use std::sync::Arc;

use candle_core::Tensor;
use draftscope_kernels::{DeltaHead, Isa};

use crate::drafters::core::MtpBlock;
use crate::native::delta_state::{DeltaInput, DeltaState, DeltaWeights};
use crate::native::recurrent::{DeltaRows, Keep};
use crate::nn::{BlockPass, FeedForward, KvCache, LayerWeights, Linear, RmsNorm, Scores, attend_cached, numbers_of};
use crate::{ExpertsMet, ModelError};

/// Sizes of gated attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AttentionShape {
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
}

/// Attention whose result passes a gate.
#[derive(Clone, Debug)]
pub(super) struct GatedAttention {
    pub(super) shape: AttentionShape,
    /// `[2 · heads · head_dim, d]`: of each head the query, then the gate.
    pub(super) q: Linear,
    pub(super) k: Linear,
    pub(super) v: Linear,
    pub(super) o: Linear,
    pub(super) q_norm: RmsNorm,
    pub(super) k_norm: RmsNorm,
}

impl GatedAttention {
    /// `[m, d] -> [m, d]`; appends to the cache.
    fn forward(&self, x: &Tensor, pass: BlockPass<'_>, cache: &mut KvCache) -> Result<Tensor, ModelError> {
        let AttentionShape { heads, kv_heads, head_dim, .. } = self.shape;
        let m = x.dim(0)?;
        // 1. project: queries and gates are side by side in each head
        let both = self.q.forward(x)?.reshape((m, heads, 2 * head_dim))?;
        let gate = both.narrow(2, head_dim, head_dim)?.contiguous()?.reshape((m, heads * head_dim))?;
        let q = both.narrow(2, 0, head_dim)?.transpose(0, 1)?; // [h, m, hd]
        let of_heads = |linear: &Linear| -> Result<Tensor, ModelError> {
            Ok(linear.forward(x)?.reshape((m, kv_heads, head_dim))?.transpose(0, 1)?)
        };
        let q = pass.rotate(&self.q_norm.forward(&q)?)?;
        let k = pass.rotate(&self.k_norm.forward(&of_heads(&self.k)?)?)?;
        cache.append(&k, &of_heads(&self.v)?)?;
        // 2. attend over everything up to each row
        let attended = attend_cached(&q, cache, (pass.rows, None), Scores::of_heads(head_dim))?;
        // 3. the gate
        self.o.forward(&(attended * candle_nn::ops::sigmoid(&gate)?)?)
    }

    fn shifted(&self, by: f64) -> Result<Self, ModelError> {
        let (q_norm, k_norm) = (self.q_norm.shifted(by)?, self.k_norm.shifted(by)?);
        Ok(Self { q_norm, k_norm, ..self.clone() })
    }

    fn bytes(&self) -> u64 {
        let norms = self.q_norm.bytes() + self.k_norm.bytes();
        [&self.q, &self.k, &self.v, &self.o].iter().map(|w| w.bytes()).sum::<u64>() + norms
    }
}

/// Runs value heads on the calling thread.
pub(super) fn run_heads(heads: &mut [DeltaHead<'_>]) {
    heads.iter_mut().for_each(|head| head.run_on(Isa::detect()));
}

/// Gated DeltaNet and its projections.
#[derive(Clone, Debug)]
pub(super) struct DeltaNet {
    /// `[channels, d]`: queries, keys, values.
    pub(super) mixed: Linear,
    /// `[value width, d]`
    pub(super) gate: Linear,
    /// `[value heads, d]`
    pub(super) alpha: Linear,
    /// `[value heads, d]`
    pub(super) beta: Linear,
    /// `[d, value width]`
    pub(super) out: Linear,
    pub(super) weights: Arc<DeltaWeights>,
}

impl DeltaNet {
    /// `[m, d] -> [m, d]`, starting from the state before the rows.
    fn forward(&self, x: &Tensor, before: &Arc<DeltaState>, keep: Keep) -> Result<(Tensor, DeltaRows), ModelError> {
        let m = x.dim(0)?;
        let projected = [&self.mixed, &self.gate, &self.alpha, &self.beta].map(|linear| linear.forward(x));
        let [mixed, gates, alpha, beta] = projected;
        let [mixed, gates, alpha, beta] = numbers_of([&mixed?, &gates?, &alpha?, &beta?])?;
        let rows = |all: &[f32]| all.chunks(all.len() / m).map(<[f32]>::to_vec).collect::<Vec<_>>();
        let inputs: Vec<_> = rows(&mixed)
            .into_iter()
            .zip(rows(&alpha).into_iter().zip(rows(&beta)))
            .map(|(mixed, (alpha, beta))| DeltaInput { mixed, alpha, beta })
            .collect();
        let gates: Vec<&[f32]> = gates.chunks(gates.len() / m).collect();
        let (out, rows) = self.weights.run(before, (inputs, &gates), keep, &run_heads);
        let out = Tensor::from_vec(out, (m, self.weights.shape.value_width()), x.device())?;
        Ok((self.out.forward(&out)?, rows))
    }

    fn bytes(&self) -> u64 {
        let matrices = [&self.mixed, &self.gate, &self.alpha, &self.beta, &self.out];
        matrices.iter().map(|w| w.bytes()).sum::<u64>() + self.weights.bytes()
    }
}

/// The mixer of a layer.
#[derive(Clone, Debug)]
pub(super) enum Mixer {
    Attention(GatedAttention),
    Delta(DeltaNet),
}

/// What a layer caches of earlier positions.
pub(super) enum Memory {
    Kv(KvCache),
    State(Arc<DeltaState>),
}

/// One layer.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    pub(super) mixer_norm: RmsNorm,
    pub(super) mixer: Mixer,
    pub(super) ffn_norm: RmsNorm,
    pub(super) ffn: FeedForward,
}

impl Layer {
    /// Runs `m` rows after the cached ones: `[m, d] -> [m, d]`; for a linear layer, also the states of its rows.
    pub(super) fn forward(
        &self,
        x: &Tensor,
        pass: BlockPass<'_>,
        (memory, keep): (&mut Memory, Keep),
    ) -> Result<(Tensor, Option<DeltaRows>), ModelError> {
        let normed = self.mixer_norm.forward(x)?;
        let (mixed, rows) = match (&self.mixer, memory) {
            (Mixer::Attention(attention), Memory::Kv(cache)) => (attention.forward(&normed, pass, cache)?, None),
            (Mixer::Delta(delta), Memory::State(state)) => {
                let (out, rows) = delta.forward(&normed, state, keep)?;
                if let Some(last) = rows.states.last() {
                    *state = Arc::clone(last);
                }
                (out, Some(rows))
            }
            _ => return Err(ModelError::Unsupported("a layer over the memory of another kind".into())),
        };
        Ok((self.feed_forward(&(x + mixed)?)?, rows))
    }

    fn feed_forward(&self, x: &Tensor) -> Result<Tensor, ModelError> {
        Ok((x + self.ffn.forward(&self.ffn_norm.forward(x)?)?)?)
    }
}

impl LayerWeights for Layer {
    fn bytes(&self) -> u64 {
        let mixer = match &self.mixer {
            Mixer::Attention(attention) => attention.bytes(),
            Mixer::Delta(delta) => delta.bytes(),
        };
        mixer + self.ffn.bytes() + self.mixer_norm.bytes() + self.ffn_norm.bytes()
    }

    fn experts_met(&self) -> Option<ExpertsMet> {
        self.ffn.experts_met()
    }
}

/// The draft module's layer always attends.
impl MtpBlock for Layer {
    fn forward(&self, x: &Tensor, pass: BlockPass<'_>, cache: &mut KvCache) -> Result<Tensor, ModelError> {
        let Mixer::Attention(attention) = &self.mixer else {
            return Err(ModelError::Unsupported("a draft module whose layer does not attend".into()));
        };
        let mixed = attention.forward(&self.mixer_norm.forward(x)?, pass, cache)?;
        self.feed_forward(&(x + mixed)?)
    }

    fn shifted(&self, by: f64) -> Result<Box<dyn MtpBlock>, ModelError> {
        let mixer = match &self.mixer {
            Mixer::Attention(attention) => Mixer::Attention(attention.shifted(by)?),
            Mixer::Delta(delta) => Mixer::Delta(delta.clone()),
        };
        let (mixer_norm, ffn_norm) = (self.mixer_norm.shifted(by)?, self.ffn_norm.shifted(by)?);
        Ok(Box::new(Self { mixer_norm, mixer, ffn_norm, ..self.clone() }))
    }
}
