//! What tokens add to single layers: rows of a table with a slice for each layer, joined with a share of the embedding.
//!
//! Invariant: the bits of a row do not depend on the rows beside it.

use super::{
    feed::FeedMemory,
    head,
    layer::{NormWeight, Reader},
    matrix::{Cpu, Matrix},
    pass::{Pass, Stream},
};
use crate::nn::Activation;
use draftscope_kernels::{Acts, GeluMul, LANES, NormHead, Onto, PROMPT_ROWS, SiluMul};
use draftscope_protocol::TokenId;

/// The table with a slice for each layer, and what joins a share of the embedding to it.
#[derive(Debug)]
pub(crate) struct LayerInputs {
    pub(super) table: Matrix,   // [tokens, layers · width]
    pub(super) project: Matrix, // [layers · width, d]
    /// Norm of each slice of what the projection gives.
    pub(super) norm: NormWeight,
    pub(super) eps: f32,
    /// Factors of the table's rows, of the projection, and of their sum.
    pub(super) scales: [f32; 3],
}

/// The slices of a pass, and memory for them.
#[derive(Debug, Default)]
pub(super) struct Inputs {
    slices: Vec<[f32; LANES]>, // [layers][width / 16][m]
    rows: Vec<[f32; LANES]>,   // [m][layers · width / 16]
}

/// What a layer does with its slice.
#[derive(Clone, Debug)]
pub(crate) struct TokenInput {
    pub(super) layer: usize,
    pub(super) gate: Matrix, // [width, d]
    pub(super) activation: Activation,
    pub(super) project: Matrix, // [d, width]
    pub(super) after: NormWeight,
    /// Ones: it reads the stream as it is.
    pub(super) ones: NormWeight,
}

impl LayerInputs {
    pub(super) fn bytes(&self) -> usize {
        self.table.bytes() + self.project.bytes() + size_of_val(self.norm.as_slice())
    }

    /// The slices of these tokens, of which `embedded` are the scaled embeddings, `[m][d / 16]`.
    pub(super) fn of(
        &self,
        cpu: &Cpu,
        (tokens, embedded): (&[TokenId], &[[f32; LANES]]),
        acts: &mut Acts,
        Inputs { slices, rows }: &mut Inputs,
    ) {
        let (m, tiles, width) = (tokens.len(), self.table.k() / LANES, self.norm.len());
        let [of_row, of_share, of_sum] = self.scales;
        rows.resize(m * tiles, [0.0; LANES]);
        cpu.pool.chunks(rows, tiles, |row, to| self.table.row(tokens[row].index(), to.as_flattened_mut()));
        head::operand(cpu, &self.project, embedded, acts);
        acts.set_factors([of_share; PROMPT_ROWS]);
        slices.resize(m * tiles, [0.0; LANES]);
        cpu.pool.chunks(slices, width * m, |layer, slice| {
            for (tile, out) in slice.chunks_exact_mut(m).enumerate() {
                self.project.multiply(cpu, layer * width + tile, acts, Onto::Nothing, out);
            }
            NormHead { tiles: slice, m, weight: &self.norm, eps: self.eps }.run_on(cpu.isa);
            for (at, share) in slice.iter_mut().enumerate() {
                let row = &rows[at % m * tiles + layer * width + at / m];
                share.iter_mut().zip(row).for_each(|(x, looked_up)| *x = (*x + of_row * looked_up) * of_sum);
            }
        });
    }
}

impl TokenInput {
    pub(super) fn bytes(&self) -> usize {
        self.gate.bytes() + self.project.bytes() + size_of_val(self.after.as_slice())
    }

    /// What its gate reads: the stream as it is.
    pub(super) fn reader(&self) -> Reader<'_> {
        Reader { weight: &self.ones, raw: true, operand: self.gate.operand() }
    }

    /// Adds it to the stream, whose rows `stream.out` has as its [reader](TokenInput::reader) reads them; returns whether all
    /// rows were finite.
    pub(super) fn add(
        &self,
        pass: Pass<'_>,
        (inputs, memory): (&Inputs, &mut FeedMemory),
        next: Option<Reader<'_>>,
        stream: Stream<'_>,
    ) -> bool {
        let (m, width) = (pass.m, self.project.k());
        let own = &inputs.slices[self.layer * width / LANES * m..][..width / LANES * m];
        let FeedMemory { inner, gate_up: gates, .. } = memory;
        gates.resize(own.len(), [0.0; LANES]);
        pass.product(&self.gate, stream.out, Onto::Nothing, gates);
        inner.shape(m, width, self.project.operand());
        let slices = gates.chunks_exact(2 * m).zip(own.chunks_exact(2 * m));
        for (mut out, (gate, up)) in inner.columns().zip(slices) {
            match self.activation {
                Activation::Silu => SiluMul { gate, up, out: &mut out }.run_on(pass.cpu.isa),
                Activation::Gelu => GeluMul { gate, up, out: &mut out }.run_on(pass.cpu.isa),
            }
        }
        pass.add((&self.project, inner), (Some(&self.after), next), stream)
    }
}
