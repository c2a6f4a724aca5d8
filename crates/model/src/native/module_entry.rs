//! How slots of a draft module become its stream: states are fused, normed, and joined with embeddings.
//!
//! Invariant: a row's bits do not depend on the rows beside it.

use super::layer::Scratch;
use super::module_weights::{Entry, Fusion, ModuleWeights};
use super::normer::{Normer, load};
use super::pass::Pass;
use super::transpose::transpose;
use crate::module_core::Slots;
use draftscope_kernels::{Acts, LANES, Onto};

/// Memory for what comes before the layers, reused by the next pass.
#[derive(Debug, Default)]
pub(super) struct EntryMemory {
    acts: [Acts; 2],
    /// `[d / 16][m]`
    turned: Vec<[f32; LANES]>,
    /// `[m][d / 16]`
    normed: Vec<[f32; LANES]>,
    /// `[m][2 d / 16]`
    both: Vec<[f32; LANES]>,
}

impl ModuleWeights {
    /// The stream of slots to `scratch.x`, and what the first layer reads to `scratch.acts`; `embedded`, `[m][d / 16]`, is
    /// overwritten. Returns whether all rows were finite.
    pub(super) fn enter(
        &self,
        pass: Pass<'_>,
        (slots, embedded): (&Slots<'_>, &mut [[f32; LANES]]),
        (scratch, memory): (&mut Scratch, &mut EntryMemory),
    ) -> bool {
        let (m, hidden) = (pass.m, slots.hidden.as_chunks::<LANES>().0);
        let EntryMemory { acts: [first, second], turned, normed, both } = memory;
        scratch.x.resize(embedded.len(), [0.0; LANES]);
        match &self.entry {
            Entry::Joined { norms, halves } => {
                // the left half of the projection multiplies what comes first
                let [of_embedding, of_state] = slots.in_order(&halves[0], &halves[1]);
                turned.resize(embedded.len(), [0.0; LANES]);
                transpose(embedded, m, turned);
                let mut finite = pass.norm(turned, &norms[0], of_embedding.operand(), first);
                finite &= self.states(pass, hidden, second, turned);
                finite &= pass.norm(turned, &norms[1], of_embedding.operand(), second);
                pass.product(of_embedding, first, Onto::Nothing, &mut scratch.x);
                pass.product(of_state, second, Onto::Present, &mut scratch.x);
                finite & self.layers.first().is_none_or(|layer| layer.enter(pass, scratch))
            }
            Entry::Beside { norms, from_normed } => {
                let mut finite = self.states(pass, hidden, first, &mut scratch.x);
                let mut normer = Normer { pass, acts: first, turned: std::mem::take(turned) };
                finite &= normer.rows(embedded, &norms[0]);
                normed.resize(embedded.len(), [0.0; LANES]);
                finite &= normer.tiles(&scratch.x, &norms[1], normed);
                *turned = normer.turned;
                if *from_normed {
                    transpose(normed, m, &mut scratch.x);
                }
                let width = embedded.len() / m;
                let [left, right] = slots.in_order(&*embedded, &*normed).map(|rows| rows.chunks_exact(width));
                both.clear();
                left.zip(right).for_each(|(left, right)| both.extend(left.iter().chain(right)));
                if let Some(layer) = self.layers.first() {
                    load(pass.cpu, both, (m, layer.mixer.first_matrix()), &mut scratch.acts);
                }
                finite
            }
            Entry::Keys(_) => {
                transpose(embedded, m, &mut scratch.x);
                self.layers.first().is_none_or(|layer| layer.enter(pass, scratch))
            }
        }
    }

    /// Rows of states as one state each, `[d / 16][m]`: fused, unless they are the module's own output. Returns whether all
    /// were finite.
    pub(super) fn states(
        &self,
        pass: Pass<'_>,
        hidden: &[[f32; LANES]],
        acts: &mut Acts,
        out: &mut [[f32; LANES]],
    ) -> bool {
        match &self.fusion {
            Some(fusion) if hidden.len() != out.len() => fusion.forward(pass, hidden, acts, out),
            _ => {
                transpose(hidden, pass.m, out);
                true
            }
        }
    }
}

impl Fusion {
    /// Rows of states, `[m][…]`, as one state each, `[d / 16][m]`; returns whether all were finite.
    pub(super) fn forward(
        &self,
        pass: Pass<'_>,
        hidden: &[[f32; LANES]],
        acts: &mut Acts,
        out: &mut [[f32; LANES]],
    ) -> bool {
        let (own, width) = (if self.adds { out.len() / pass.m } else { 0 }, hidden.len() / pass.m);
        let rows = hidden.chunks_exact(width).map(|row| row.split_at(own));
        let (own, within): (Vec<_>, Vec<_>) = rows.unzip();
        if self.adds {
            transpose(&own.concat(), pass.m, out);
        }
        let mut states = Vec::new();
        let mut normer = Normer { pass, acts, turned: Vec::new() };
        let finite = normer.states((&within.concat(), &mut states), &self.norms, self.how);
        load(pass.cpu, &states, (pass.m, &self.project), acts);
        pass.product(&self.project, acts, if self.adds { Onto::Present } else { Onto::Nothing }, out);
        finite
    }
}
