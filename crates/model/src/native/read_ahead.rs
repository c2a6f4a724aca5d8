//! Whether one thread's passes over one row prefetch weights: processors differ, so it is measured.
//!
//! Some read plain blocks fastest when nothing is prefetched, because their own prefetchers follow a single stream well;
//! on others a pass over one row then takes longer than one over two. Invariant: the choice changes no bits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::llama::NativeLlama;
use super::matrix::Matrix;
use super::weights::Weights;
use draftscope_kernels::{Acts, LANES, Load, Onto};

/// Weights that one measurement reads: more than second-level caches have room for, read in milliseconds.
const ENOUGH: usize = 64 << 20;

/// Measurements of each kind; the fastest counts, since other processes only make them slower.
const TURNS: usize = 5;

/// Prefetching is chosen if it takes less than this part of the time.
const CLEARLY: f64 = 0.98;

/// Chooses for a model that runs on one thread; with several, weights are always prefetched, also while a
/// [limit](crate::Model::limit_threads) leaves one of them.
pub(crate) fn choose(model: &mut NativeLlama) {
    let Some(weights) = Arc::get_mut(&mut model.weights) else { return };
    if weights.cpu.pool.threads() > 1 {
        weights.cpu.reads_ahead = true;
        return;
    }
    let mut fastest = [Duration::MAX; 2]; // without and with
    for _ in 0..TURNS {
        for (reads_ahead, fastest) in [false, true].into_iter().zip(&mut fastest) {
            weights.cpu.reads_ahead = reads_ahead;
            *fastest = time(weights).min(*fastest);
        }
    }
    let [without, with] = fastest.map(|time| time.as_secs_f64());
    weights.cpu.reads_ahead = with < CLEARLY * without;
}

/// Time of products of one row with matrices of as many blocks as make up [`ENOUGH`].
fn time(weights: &Weights) -> Duration {
    let started = Instant::now();
    let (mut left, mut acts) = (ENOUGH, Acts::default());
    for matrix in weights.layers.iter().map(|layer| layer.feed.down()) {
        multiply(weights, matrix, &mut acts);
        left = left.saturating_sub(matrix.bytes());
        if left == 0 {
            break;
        }
    }
    started.elapsed()
}

fn multiply(weights: &Weights, matrix: &Matrix, acts: &mut Acts) {
    acts.shape(1, matrix.k(), matrix.operand());
    Load { rows: &vec![[1.0; LANES]; matrix.k() / LANES], out: acts }.run_on(weights.cpu.isa);
    let mut out = [[0.0; LANES]];
    (0..matrix.tiles()).for_each(|tile| matrix.multiply(&weights.cpu, tile, acts, Onto::Nothing, &mut out));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::OpenModel;
    use crate::native::testing::tiny_gguf;
    use crate::{LogitRows, Model};
    use draftscope_kernels::{Isa, Pool};
    use draftscope_protocol::TokenId;

    #[test]
    fn either_choice_gives_the_same_bits_and_several_threads_always_prefetch() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tiny.gguf");
        std::fs::write(&path, tiny_gguf("")).unwrap();
        let load = |threads: usize| {
            let source = OpenModel::open(&path).unwrap();
            NativeLlama::load_with(source.parts(), 64, Pool::new(threads), Isa::detect()).unwrap()
        };
        let tokens = [3, 1, 4].map(TokenId);
        let [mut without, mut with, mut chosen, mut many] = [1, 1, 1, 2].map(load);
        Arc::get_mut(&mut with.weights).unwrap().cpu.reads_ahead = true;
        choose(&mut chosen);
        choose(&mut many);
        assert!(many.weights.cpu.reads_ahead && chosen.is_empty());
        assert_eq!(many.limit_threads(1), 1, "one of them prefetches, too");
        let expected = without.forward(&tokens[..1], LogitRows::All).unwrap().logits;
        for model in [&mut with, &mut chosen, &mut many] {
            assert!(model.forward(&tokens[..1], LogitRows::All).unwrap().logits == expected);
        }
    }
}
