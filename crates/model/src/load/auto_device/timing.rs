//! Times passes over one row for the choice of a device.

use std::time::{Duration, Instant};

use crate::interfaces::LoadedTarget;
use crate::{LogitRows, Model, ModelError};
use draftscope_protocol::TokenId;
use draftscope_protocol::statistics::median;

/// Positions before the timed row.
const POSITIONS: usize = 32;

/// Passes before the timed ones: kernels are compiled and caches filled.
const WARM_UP: usize = 2;

/// Most passes that are timed, and the time after which no further one starts; the first is always timed.
const PASSES: usize = 15;
const LIMIT: Duration = Duration::from_secs(1);

/// Median time of a pass over one row after some positions that reads what a greedy round does.
///
/// # Errors
/// When a pass fails.
pub(super) fn one_row(target: &mut dyn LoadedTarget) -> Result<Duration, ModelError> {
    let mut took = Duration::ZERO;
    target.try_out(&mut |model| {
        took = median_of(model)?;
        Ok(())
    })?;
    Ok(took)
}

fn median_of(model: &mut dyn Model) -> Result<Duration, ModelError> {
    let vocab = model.spec().info.vocab.max(1);
    let before = POSITIONS.min(model.spec().ctx_len / 2);
    let tokens: Vec<_> = (0..=before as u32).map(|i| TokenId((i * 7919 + 13) % vocab)).collect();
    model.forward(&tokens[..before], LogitRows::Last)?;
    let mut pass = || {
        let since = model.checkpoint()?;
        let started = Instant::now();
        model.forward(&tokens[before..], LogitRows::Best)?;
        let took = started.elapsed();
        model.truncate(since.len, &since)?;
        Ok::<_, ModelError>(took)
    };
    for _ in 0..WARM_UP {
        pass()?;
    }
    let (started, mut times) = (Instant::now(), Vec::new());
    while times.len() < PASSES && (times.is_empty() || started.elapsed() < LIMIT) {
        times.push(pass()?.as_secs_f64());
    }
    Ok(Duration::from_secs_f64(median(times).unwrap_or_default()))
}
