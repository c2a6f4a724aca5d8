//! How many threads pay, measured on the model that is to run.
//!
//! More threads than pay are worse than useless: on a machine whose cores are taken by neighbours a
//! pool waits for threads that do not run. So one thread and all of them are timed in turns on the
//! passes that decoding is made of, and all are taken only where they are clearly faster. A neighbour may
//! take a core for a moment only, and the choice holds for long: so where one thread wins, that must show
//! again after a pause. Which bits are computed does not depend on the answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{kernel::Pool, llama::NativeLlama};
use crate::{
    model::{Checkpoint, LogitRows, Model, ModelError},
    protocol::TokenId,
};

/// Timed turns of each candidate; one more runs first to warm up.
const TURNS: usize = 7;

/// Rows of the passes that are timed: a plain round and a verification.
const ROWS: [usize; 2] = [1, 4];

/// Times that one thread must win to be taken.
const TRIES: usize = 3;

/// Pause between them.
const PAUSE: Duration = Duration::from_millis(120);

/// No further try is made after this long: large models are slow to time, and little else weighs on them.
const ENOUGH: Duration = Duration::from_secs(1);

/// All threads must be faster by this factor to be taken.
const CLEARLY: f64 = 0.93;

/// Cores that this process may use, container quotas included.
pub(super) fn available() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Leaves `model` with as many threads as pay. Its cache must be empty, and is empty again after.
///
/// # Errors
/// When a pass fails.
pub(super) fn choose(model: &mut NativeLlama) -> Result<(), ModelError> {
    let mut spare = Pool::new(1);
    if model.spec().threads == 1 || model.spec().ctx_len < ROWS.iter().sum() {
        return Ok(());
    }
    let started = Instant::now();
    for attempt in 0..TRIES {
        if all_pay(model, &mut spare)? {
            return Ok(());
        }
        if started.elapsed() > ENOUGH {
            break;
        }
        if attempt + 1 < TRIES {
            std::thread::sleep(PAUSE);
        }
    }
    swap(model, &mut spare);
    Ok(())
}

/// Whether all threads, which `model` has, are clearly faster than the one of `spare`.
fn all_pay(model: &mut NativeLlama, spare: &mut Pool) -> Result<bool, ModelError> {
    let mut times = [Vec::new(), Vec::new()]; // all threads, one thread
    for turn in 0..=TURNS {
        for times in &mut times {
            let took = time(model)?;
            if turn > 0 {
                times.push(took);
            }
            swap(model, spare);
        }
    }
    let [all, one] = times.map(median);
    Ok(all.as_secs_f64() <= CLEARLY * one.as_secs_f64())
}

fn swap(model: &mut NativeLlama, spare: &mut Pool) {
    if let Some(weights) = Arc::get_mut(&mut model.weights) {
        std::mem::swap(&mut weights.cpu.pool, spare);
        model.spec.threads = weights.cpu.pool.threads();
    }
}

fn time(model: &mut NativeLlama) -> Result<Duration, ModelError> {
    let tokens = [TokenId(0); ROWS[1]];
    let started = Instant::now();
    for rows in ROWS {
        model.forward(&tokens[..rows], LogitRows::All)?;
    }
    let took = started.elapsed();
    model.truncate(0, &Checkpoint { len: 0 })?;
    Ok(took)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
