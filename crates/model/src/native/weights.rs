//! What the forks of a target share: its layers, and the ways in and out.

use super::delta_state::DeltaLayers;
use super::head;
use super::inputs::LayerInputs;
use super::layer::{BlockShape, Layer, NormWeight, Scratch};
use super::matrix::{Cpu, Matrix};
use crate::ModelError;
use draftscope_kernels::{Acts, DeltaHead, LANES, Norm, Operand, PROMPT_ROWS};
use draftscope_protocol::TokenId;

/// What forks share.
#[derive(Debug)]
pub(crate) struct Weights {
    pub(crate) cpu: Cpu,
    pub(crate) shape: BlockShape,
    pub(crate) layers: Vec<Layer>,
    pub(crate) final_norm: NormWeight,
    /// `None` if the head serves as embedding too.
    pub(crate) embedding: Option<Matrix>,
    /// What tokens add to single layers.
    pub(crate) inputs: Option<LayerInputs>,
    pub(crate) head: Matrix,
    /// Factor of embeddings.
    pub(crate) embedding_scale: f32,
    /// Factor of logits.
    pub(crate) logit_scale: f32,
    /// `c` of c·tanh(logit / c), if logits are capped.
    pub(crate) logit_cap: Option<f32>,
}

impl Weights {
    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        let layers: usize = self.layers.iter().map(Layer::bytes).sum();
        let ends = self.head.bytes() + self.embedding.as_ref().map_or(0, Matrix::bytes);
        let inputs = self.inputs.as_ref().map_or(0, LayerInputs::bytes);
        layers + inputs + ends + size_of_val(self.final_norm.as_slice())
    }

    /// Bytes of tables whose rows are only looked up.
    pub(crate) fn looked_up_bytes(&self) -> usize {
        let inputs = self.inputs.as_ref().map_or(0, |inputs| inputs.table.bytes());
        self.embedding.as_ref().map_or(0, Matrix::bytes) + inputs
    }

    /// Embedding of one token, as plain numbers.
    pub(crate) fn embed(&self, token: TokenId, out: &mut [f32]) {
        self.embedding.as_ref().unwrap_or(&self.head).row(token.index(), out);
        if self.embedding_scale != 1.0 {
            out.iter_mut().for_each(|x| *x *= self.embedding_scale);
        }
    }

    /// Normed states `[m][d / 16]` as the head reads them, m ≤ [`PROMPT_ROWS`].
    pub(crate) fn read_head(&self, hidden: &[[f32; LANES]], acts: &mut Acts) {
        head::operand(&self.cpu, &self.head, hidden, acts);
        if self.logit_scale != 1.0 {
            acts.set_factors([self.logit_scale; PROMPT_ROWS]);
        }
    }

    /// The head and its cap.
    pub(crate) fn output(&self) -> (&Matrix, Option<f32>) {
        (&self.head, self.logit_cap)
    }

    /// Embeddings of tokens: rows to `rows` `[m][d / 16]`, tiles to the stream; and what they add to single layers.
    pub(crate) fn embed_rows(&self, tokens: &[TokenId], rows: &mut [[f32; LANES]], scratch: &mut Scratch) {
        let (tiles, m) = (self.shape.d_model / LANES, tokens.len());
        scratch.x.resize(tiles * m, [0.0; LANES]);
        for (row, &token) in tokens.iter().enumerate() {
            let plain = &mut rows[row * tiles..(row + 1) * tiles];
            self.embed(token, plain.as_flattened_mut());
            for (to, tile) in scratch.x[row..].iter_mut().step_by(m).zip(plain) {
                *to = *tile;
            }
        }
        if let Some(inputs) = &self.inputs {
            inputs.of(&self.cpu, (tokens, rows), &mut scratch.acts, &mut scratch.inputs);
        }
    }

    /// The last norm, `[d / 16][m] -> [m][d / 16]`; returns whether all were finite.
    pub(crate) fn last_norm(&self, x: &[[f32; LANES]], acts: &mut Acts, kept: &mut [[f32; LANES]]) -> bool {
        acts.shape(kept.len() * LANES / self.shape.d_model, 0, Operand::default());
        Norm { x, weight: &self.final_norm, eps: self.shape.eps, out: acts, kept }.run_on(self.cpu.isa)
    }

    /// Calls `work` with what recurrent layers compute with.
    pub(super) fn with_deltas<T>(&self, work: impl FnOnce(DeltaLayers<'_>) -> T) -> T {
        let weights: Vec<_> = self.layers.iter().filter_map(|layer| layer.mixer.delta_weights()).collect();
        let run = |heads: &mut [DeltaHead<'_>]| self.cpu.pool.each(heads, |_, head| head.run_on(self.cpu.isa));
        work(DeltaLayers { weights: &weights, run: &run })
    }

    /// # Errors
    /// [`ModelError::Vocabulary`] when a token has no embedding.
    pub(crate) fn check(&self, tokens: &[TokenId]) -> Result<(), ModelError> {
        let vocab = self.head.rows();
        match tokens.iter().find(|token| token.index() >= vocab) {
            Some(token) => Err(ModelError::Vocabulary { token: token.0, vocab }),
            None => Ok(()),
        }
    }
}
