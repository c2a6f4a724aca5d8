//! The feed-forward part of a block: one gated layer, or experts of which each row chooses some.
//!
//! Invariant: a row's choice depends on that row alone, and results are added in a fixed order: experts by number, then the
//! shared one. So its bits do not depend on the rows beside it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{
    experts::{ExpertStack, Scratch as ExpertMemory},
    gate_up::GateUp,
    layer::NormWeight,
    matrix::Matrix,
    pass::Pass,
    router::Router,
};
use crate::ExpertsMet;
use crate::nn::{Activation, Choice, by_expert};
use draftscope_kernels::{Acts, GeluMul, LANES, Onto, Operand, PROMPT_ROWS, SiluMul};

/// The feed-forward part of a block; copies share the matrices.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "one a layer")]
pub(crate) enum Feed {
    Dense(Gated),
    Experts(Box<ExpertLayer>),
}

/// `down(act(gate x) · up x)`
#[derive(Clone, Debug)]
pub(crate) struct Gated {
    pub(crate) gate_up: GateUp, // [2 width, d]
    pub(crate) activation: Activation,
    pub(crate) down: Matrix, // [d, width]
}

/// Experts, what chooses them, and what runs beside them.
#[derive(Clone, Debug)]
pub(crate) struct ExpertLayer {
    pub(super) weight: Matrix, // [experts, d]
    pub(super) router: Router,
    pub(super) stack: Arc<ExpertStack>,
    /// What every row runs too, and the matrix `[1, d]` whose sigmoid is its factor.
    pub(super) shared: Option<(Gated, Option<Matrix>)>,
    pub(super) beside: Option<Beside>,
    /// What the router reads where that is not what the experts read: the weights of the stream's norm.
    pub(super) router_norm: Option<NormWeight>,
    /// Different experts that the last pass ran.
    pub(super) met: Arc<AtomicUsize>,
}

/// A dense layer beside experts.
#[derive(Clone, Debug)]
pub(crate) struct Beside {
    pub(super) dense: Gated,
    /// Norms of its result, of what the experts read, and of theirs.
    pub(super) norms: [NormWeight; 3],
}

/// Memory of a feed-forward part, reused by the next.
#[derive(Debug, Default)]
pub(crate) struct FeedMemory {
    pub(super) inner: Acts,
    pub(super) gate_up: Vec<[f32; LANES]>, // [width / 32][gate, up][2][m]
    experts: ExpertMemory,
    logits: Vec<[f32; LANES]>, // [experts / 16][m]
    others: [Acts; 2],         // what experts and router read, if it is not what the dense layer reads
    result: Vec<[f32; LANES]>, // [d / 16][m]
}

impl Gated {
    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.gate_up.bytes() + self.down.bytes()
    }

    /// `act(gate) · up` of rows, ready for the down matrix, to `memory.inner`.
    pub(super) fn inner(&self, pass: Pass<'_>, acts: &Acts, memory: &mut FeedMemory) {
        let (m, width) = (pass.m, self.down.k());
        let FeedMemory { inner, gate_up, .. } = memory;
        inner.shape(m, width, self.down.operand());
        gate_up.resize(width / LANES * 2 * m, [0.0; LANES]);
        let mut jobs: Vec<_> = inner.columns().zip(gate_up.chunks_exact_mut(4 * m)).collect();
        pass.cpu.pool.each(&mut jobs, |at, (column, out)| {
            self.gate_up.multiply(pass.cpu, at, acts, out);
            let (gate, up) = out.split_at(2 * m);
            match self.activation {
                Activation::Silu => SiluMul { gate, up, out: column }.run_on(pass.cpu.isa),
                Activation::Gelu => GeluMul { gate, up, out: column }.run_on(pass.cpu.isa),
            }
        });
    }
}

impl Feed {
    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Dense(gated) => gated.bytes(),
            Self::Experts(experts) => experts.bytes(),
        }
    }

    /// The forms of activations that it reads.
    pub(crate) fn operand(&self) -> Operand {
        match self {
            Self::Dense(gated) => gated.gate_up.operand(),
            Self::Experts(experts) => experts.operand(),
        }
    }

    /// The contiguous weights that it reads first.
    pub(crate) fn first_panel(&self) -> &[u8] {
        match self {
            Self::Dense(gated) => gated.gate_up.first_panel(),
            Self::Experts(experts) => experts.weight.first_panel(),
        }
    }

    /// Its last matrix; of experts that of all of them.
    pub(crate) fn down(&self) -> &Matrix {
        match self {
            Self::Dense(gated) => &gated.down,
            Self::Experts(experts) => experts.stack.down(),
        }
    }

    /// Its norms.
    pub(crate) fn norms_mut(&mut self) -> impl Iterator<Item = &mut NormWeight> {
        let beside = match self {
            Self::Dense(_) => None,
            Self::Experts(experts) => experts.beside.as_mut(),
        };
        beside.into_iter().flat_map(|beside| &mut beside.norms)
    }

    /// Experts that the last pass ran; `None` for a dense layer.
    pub(crate) fn experts_met(&self) -> Option<ExpertsMet> {
        match self {
            Self::Dense(_) => None,
            Self::Experts(experts) => Some(experts.experts_met()),
        }
    }
}

impl ExpertLayer {
    fn bytes(&self) -> usize {
        let shared =
            self.shared.as_ref().map_or(0, |(shared, gate)| shared.bytes() + gate.as_ref().map_or(0, Matrix::bytes));
        let norms = self.beside.iter().flat_map(|beside| &beside.norms).chain(&self.router_norm);
        let norms: usize = norms.map(|norm| size_of_val(norm.as_slice())).sum();
        let beside = self.beside.as_ref().map_or(0, |beside| beside.dense.bytes());
        self.weight.bytes() + self.router.bytes() + self.stack.bytes() + shared + beside + norms
    }

    fn operand(&self) -> Operand {
        if let Some(beside) = &self.beside {
            return beside.dense.gate_up.operand();
        }
        let shared = self.shared.as_ref().map_or_else(Operand::default, |(shared, gate)| {
            shared.gate_up.operand().and(gate.as_ref().map_or_else(Operand::default, Matrix::operand))
        });
        self.weight.operand().and(self.stack.operand()).and(shared)
    }

    fn experts_met(&self) -> ExpertsMet {
        let met = self.met.load(Ordering::Relaxed);
        ExpertsMet::of_layer((self.stack.count(), self.stack.bytes() as u64), met, self.router.used())
    }

    /// The result `[d / 16][m]` for the stream `x`, of which `acts` are the rows after the block's norm.
    pub(super) fn forward(
        &self,
        pass: Pass<'_>,
        (x, acts): (&[[f32; LANES]], &Acts),
        memory: &mut FeedMemory,
        (out, squares): (&mut Vec<[f32; LANES]>, &mut Vec<f32>),
    ) {
        out.resize(x.len(), [0.0; LANES]);
        let [mut read, mut routed] = std::mem::take(&mut memory.others);
        if let Some(beside) = &self.beside {
            pass.norm(x, &beside.norms[1], self.stack.operand(), &mut read);
        }
        if let Some(weight) = &self.router_norm {
            pass.norm(x, weight, self.weight.operand(), &mut routed);
        }
        let read_by_experts = if self.beside.is_some() { &read } else { acts };
        let routing = if self.router_norm.is_some() { &routed } else { read_by_experts };
        let chosen = self.choose(pass, routing, &mut memory.logits);
        self.met.store(by_expert(&chosen).len(), Ordering::Relaxed);
        self.stack.run(pass.cpu, (read_by_experts, &chosen), &mut memory.experts, out);
        if let Some((shared, gate)) = &self.shared {
            add_shared(pass, acts, (shared, gate.as_ref()), memory, out);
        }
        if let Some(beside) = &self.beside {
            pass.norm_width(out, &beside.norms[2], squares);
            beside.add(pass, acts, memory, (out, squares));
        }
        memory.others = [read, routed];
    }

    /// The choice of each row.
    fn choose(&self, pass: Pass<'_>, acts: &Acts, tiles: &mut Vec<[f32; LANES]>) -> Vec<Choice> {
        let (m, count) = (pass.m, self.weight.rows());
        tiles.resize(self.weight.tiles() * m, [0.0; LANES]);
        pass.product(&self.weight, acts, Onto::Nothing, tiles);
        let row = |row: usize| {
            let logits = tiles[row..].iter().step_by(m).flatten().copied().take(count);
            self.router.choose(&logits.collect::<Vec<_>>())
        };
        (0..m).map(row).collect()
    }
}

/// Adds what every row runs, times the sigmoid of its gate.
fn add_shared(
    pass: Pass<'_>,
    acts: &Acts,
    (shared, gate): (&Gated, Option<&Matrix>),
    memory: &mut FeedMemory,
    out: &mut [[f32; LANES]],
) {
    shared.inner(pass, acts, memory);
    if let Some(gate) = gate {
        memory.logits.resize(gate.tiles() * pass.m, [0.0; LANES]);
        gate.multiply(pass.cpu, 0, acts, Onto::Nothing, &mut memory.logits[..pass.m]);
        let mut factors = [0.0; PROMPT_ROWS];
        factors.iter_mut().zip(&memory.logits).for_each(|(factor, [x, ..])| *factor = 1.0 / (1.0 + (-x).exp()));
        memory.inner.set_factors(factors);
    }
    pass.product(&shared.down, &memory.inner, Onto::Present, out);
}

impl Beside {
    /// Adds the normed result of the dense layer.
    fn add(
        &self,
        pass: Pass<'_>,
        acts: &Acts,
        memory: &mut FeedMemory,
        (out, squares): (&mut [[f32; LANES]], &mut Vec<f32>),
    ) {
        self.dense.inner(pass, acts, memory);
        let FeedMemory { inner, result, .. } = memory;
        result.resize(out.len(), [0.0; LANES]);
        pass.product(&self.dense.down, inner, Onto::Nothing, result);
        pass.norm_width(result, &self.norms[0], squares);
        out.as_flattened_mut().iter_mut().zip(result.as_flattened()).for_each(|(out, x)| *out += x);
    }
}
