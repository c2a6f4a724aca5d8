//! How many threads pay off, measured on the loaded model.
//!
//! Too many threads are worse than useless: on a machine whose cores are busy a pool waits for threads that do not run,
//! and two threads of one core share its resources. So all threads and half of them are timed alternately on the passes
//! that decoding consists of, and all are kept only if they are clearly faster; else that half and half of it, and so
//! on. A neighbour may take a core for a moment only, and the choice lasts long: so if fewer threads win, that must be
//! confirmed after a pause. The bits computed do not depend on the choice.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::llama::NativeLlama;
use crate::{Checkpoint, LogitRows, Model, ModelError};
use draftscope_kernels::Pool;
use draftscope_protocol::TokenId;
use draftscope_protocol::statistics::median;

/// Timed turns of each candidate; one more runs first to warm up.
const TURNS: usize = 7;

/// Rows of the timed passes: a plain round and a verification.
const ROWS: [usize; 2] = [1, 4];

/// Turns that are timed in any case, however long they take.
const FEWEST_TURNS: usize = 3;

/// Times that fewer threads must win to be taken.
const TRIES: usize = 3;

/// Pause between them.
const PAUSE: Duration = Duration::from_millis(120);

/// No further candidate is tried, and no further turn timed, after this long for each number of threads: large models
/// are slow to time, and little else affects them.
const ENOUGH: Duration = Duration::from_secs(1);

/// Threads must be faster than half of them by this factor to be kept.
const CLEARLY: f64 = 0.93;

/// Cores that this process may use, container quotas included.
pub(crate) fn available() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Sets the number of threads of `model` that pays off. Its cache must be empty, and is empty again after.
///
/// # Errors
/// When a pass fails.
pub(crate) fn choose(model: &mut NativeLlama) -> Result<(), ModelError> {
    if model.spec().ctx_len < ROWS.iter().sum() {
        return Ok(());
    }
    descend(model.spec().threads, |fewer| {
        let mut spare = Pool::new(fewer);
        let pay = pay(model, &mut spare)?;
        if !pay {
            swap(model, &mut spare);
        }
        Ok::<_, ModelError>(pay)
    })?;
    Ok(())
}

/// Halves a number of threads as long as it does not pay off; `pay` decides that, given the number that would replace
/// it. Returns the result.
fn descend<E>(mut threads: usize, mut pay: impl FnMut(usize) -> Result<bool, E>) -> Result<usize, E> {
    while threads > 1 && !pay(threads.div_ceil(2))? {
        threads = threads.div_ceil(2);
    }
    Ok(threads)
}

/// Whether the threads of `model` are clearly faster than those of `spare`, in one try of several.
fn pay(model: &mut NativeLlama, spare: &mut Pool) -> Result<bool, ModelError> {
    let started = Instant::now();
    for attempt in 0..TRIES {
        if attempt > 0 {
            std::thread::sleep(PAUSE);
        }
        if are_faster(model, spare, started)? {
            return Ok(true);
        }
        if started.elapsed() > ENOUGH {
            break;
        }
    }
    Ok(false)
}

fn are_faster(model: &mut NativeLlama, spare: &mut Pool, started: Instant) -> Result<bool, ModelError> {
    let mut times = [Vec::new(), Vec::new()]; // those it has, the others
    for turn in 0..=TURNS {
        if turn > FEWEST_TURNS && started.elapsed() > ENOUGH {
            break;
        }
        for times in &mut times {
            let took = time(model)?;
            if turn > 0 {
                times.push(took.as_secs_f64());
            }
            swap(model, spare);
        }
    }
    let [own, others] = times.map(|times| median(times).unwrap_or_default());
    Ok(own <= CLEARLY * others)
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::load::OpenModel;

    use crate::native::testing::tiny_gguf;
    use draftscope_kernels::Isa;

    #[test]
    fn threads_are_halved_until_they_pay() {
        // time of a pass on so many threads
        let kept = |threads: usize, costs: fn(usize) -> f64| {
            let (mut now, mut asked) = (threads, Vec::new());
            let left = descend(threads, |fewer| {
                let pay = costs(now) <= CLEARLY * costs(fewer);
                asked.push(fewer);
                now = if pay { now } else { fewer };
                Ok::<_, Infallible>(pay)
            });
            (left.unwrap(), asked)
        };
        let shared = |n: usize| 1.0 / n as f64;
        assert_eq!(kept(16, shared), (16, vec![8]));
        // memory delivers no more than four threads request
        assert_eq!(kept(16, |n| 1.0 / n.min(4) as f64), (4, vec![8, 4, 2]));
        assert_eq!(kept(6, |n| 1.0 / n.min(2) as f64), (2, vec![3, 2, 1]));
        // each further thread costs time
        assert_eq!(kept(3, |n| n as f64), (1, vec![2, 1]));
        assert_eq!(kept(1, shared), (1, vec![]));
    }

    #[test]
    fn a_choice_leaves_the_model_as_it_was_but_for_its_threads() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tiny.gguf");
        std::fs::write(&path, tiny_gguf("")).unwrap();
        let load = || {
            NativeLlama::load_with(OpenModel::open(&path).unwrap().parts(), 64, Pool::new(4), Isa::detect()).unwrap()
        };
        let (mut chosen, mut plain) = (load(), load());
        choose(&mut chosen).unwrap();
        assert!((1..=4).contains(&chosen.spec().threads) && chosen.is_empty());
        assert_eq!(chosen.spec().threads, chosen.weights.cpu.pool.threads());
        let tokens = [3, 1, 4].map(TokenId);
        let logits = |model: &mut NativeLlama| model.forward(&tokens, LogitRows::All).unwrap().logits;
        assert!(logits(&mut chosen) == logits(&mut plain));
        assert_eq!((plain.limit_threads(1), plain.spec().threads), (1, 4));
        assert!(logits(&mut chosen) == logits(&mut plain), "a limit changes no bits");
        assert_eq!(plain.limit_threads(usize::MAX), 4);
    }
}
