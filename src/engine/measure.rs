//! What passes cost on this machine: T(m) for m rows, one drafted token, and what memory can give.
//!
//! Honest timing on a shared machine: every turn times all widths one after the other, the first turn
//! is a warm-up and dropped, and what is told is the median with the 10th and 90th percentile.

use std::hint::black_box;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::model::load::{Loaded, Recipe, load};
use crate::model::native::kernel::Stream;
use crate::model::{LogitRows, Model, ModelError, MtpModule, Rows};
use crate::protocol::TokenId;

/// Bytes that the bandwidth test reads: far more than any cache holds.
const MEMORY_BYTES: usize = 512 << 20;

/// Passes after the memory tests that are not timed: each finds more of the weights in a cache again.
const WARM_UP: usize = 16;

/// Most rows that are timed.
pub const MAX_ROWS: usize = 16;

/// Slots that the first draft of a timed chain settles: as many as rounds of two tokens leave.
pub const SETTLED: usize = 2;

/// Median and spread of one thing's times, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Timing {
    /// 10th percentile.
    pub p10_us: f64,
    /// Median.
    pub median_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
}

impl Timing {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |share: f64| {
            let index = (share * times.len().saturating_sub(1) as f64).round() as usize;
            times.get(index).map_or(0.0, |t| t.as_secs_f64() * 1e6)
        };
        Self { p10_us: at(0.1), median_us: at(0.5), p90_us: at(0.9) }
    }
}

/// Measured costs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CostCurve {
    /// Positions in the cache while timing.
    pub ctx: usize,
    /// Threads that computed.
    pub threads: usize,
    /// What computed, and on what.
    pub backend: String,
    /// T(m), index 0 is one row; all logits computed.
    pub verify: Vec<Timing>,
    /// One drafted token, head included: half of a chain of two behind a pass, the first of which settles
    /// [`SETTLED`] slots; none without a drafter.
    pub draft: Option<Timing>,
    /// Prompt tokens per second over a prompt of `ctx` tokens.
    pub prefill_tokens_per_second: f64,
    /// Bytes of weights in memory.
    pub weight_bytes: u64,
    /// Bytes of weights that a pass reads: fewer where rows of a table are looked up.
    pub pass_bytes: u64,
    /// Bytes of keys and values that it reads besides: of `ctx` positions of the target's cache.
    pub cache_bytes: u64,
    /// Bytes of the drafter's own weights; 0 without one.
    pub draft_weight_bytes: u64,
    /// Bytes of KV cache a position takes, the target's and the drafter's.
    pub kv_bytes_per_token: u64,
    /// Rate at which this machine reads more memory than caches hold, median of the same turns, bytes
    /// per second.
    pub memory_bandwidth: f64,
    /// (pass_bytes + cache_bytes) ÷ T(1) ÷ memory_bandwidth. What stays in a processor's cache from one pass to
    /// the next can lift it above 1.
    pub bandwidth_share: f64,
    /// Median over the turns of the time that a loop takes which only reads as many bytes as a pass,
    /// again and again, ÷ T(1) of the same turn. No pass can beat that loop: 0…1, but for noise.
    pub read_share: f64,
}

/// Times passes at `ctx` cached positions, `turns` times each.
///
/// # Errors
/// When the models cannot be loaded or run.
pub fn measure(recipe: &Recipe, ctx: usize, turns: usize) -> Result<CostCurve, ModelError> {
    let Loaded { mut target, mtp, .. } = load(recipe, &mut |_, _, _| {})?;
    let vocab = target.spec().info.vocab;
    let tokens: Vec<TokenId> = (0..ctx + MAX_ROWS).map(|i| TokenId((i as u32 * 7919 + 13) % vocab)).collect();
    if let Some((module, _)) = &mtp {
        target.set_tap(&module.tap())?;
    }
    target.forward(&tokens[..ctx], LogitRows::Last)?; // warm-up
    target.truncate(0, &crate::model::Checkpoint { len: 0 })?;
    let started = Instant::now();
    let hidden = target.forward(&tokens[..ctx], LogitRows::Last)?.hidden;
    let prefill = started.elapsed();
    let (mut module, info) = mtp.unzip();
    let mut read = hidden.last_row();
    if let Some(module) = module.as_mut().filter(|module| !module.borrows()) {
        module.forward(&tokens[1..=ctx], &hidden)?;
        read = hidden.slice(ctx.saturating_sub(SETTLED)..ctx);
    }
    let threads = target.spec().threads;
    let cache_bytes = ctx as u64 * target.spec().info.kv_bytes_per_token;
    let pass_bytes = target.pass_bytes();
    let as_pass = Stream::new(threads, usize::try_from(pass_bytes + cache_bytes).unwrap_or(0));
    let memory = Stream::new(threads, MEMORY_BYTES);
    let mut times = vec![Vec::new(); MAX_ROWS];
    let (mut drafts, mut reads, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    for turn in 0..=turns {
        let keep = turn > 0;
        if keep {
            rates.push(MEMORY_BYTES as f64 / memory.seconds());
            let _ = as_pass.seconds(); // fills caches as every later one finds them
            reads.push(as_pass.seconds());
        }
        for _ in 0..WARM_UP {
            time_pass(target.as_mut(), &tokens[ctx..=ctx])?;
        }
        for rows in 1..=MAX_ROWS {
            let took = time_pass(target.as_mut(), &tokens[ctx..ctx + rows])?;
            if keep {
                times[rows - 1].push(took);
            }
            if let Some(module) = &mut module {
                module.borrow(target.as_ref())?; // the timed pass ran and was cut away
                let took = time_chain(module.as_mut(), &tokens[ctx..ctx + read.len()], &read)?;
                if keep {
                    drafts.push(took / 2);
                }
            }
        }
    }
    let shares = reads.iter().zip(&times[0]).map(|(read, pass)| read / pass.as_secs_f64());
    let (read_share, bandwidth) = (median(shares.collect()), median(rates));
    let verify: Vec<Timing> = times.into_iter().map(Timing::of).collect();
    let spec = target.spec();
    let share = (pass_bytes + cache_bytes) as f64 / (verify[0].median_us / 1e6) / bandwidth.max(1.0);
    Ok(CostCurve {
        ctx,
        threads,
        backend: format!("{} {} on {}", spec.backend, spec.dtype, spec.device),
        draft: module.is_some().then(|| Timing::of(drafts)),
        prefill_tokens_per_second: ctx as f64 / prefill.as_secs_f64(),
        weight_bytes: spec.info.weight_bytes,
        pass_bytes,
        cache_bytes,
        draft_weight_bytes: info.as_ref().map_or(0, |info| info.weight_bytes),
        kv_bytes_per_token: spec.info.kv_bytes_per_token + info.map_or(0, |info| info.kv_bytes_per_token),
        memory_bandwidth: bandwidth,
        bandwidth_share: share,
        read_share,
        verify,
    })
}

fn time_pass(target: &mut dyn Model, tokens: &[TokenId]) -> Result<Duration, ModelError> {
    let since = target.checkpoint()?;
    let started = Instant::now();
    black_box(target.forward(tokens, LogitRows::All)?);
    let took = started.elapsed();
    target.truncate(since.len, &since)?;
    Ok(took)
}

/// Two drafts in a row: the first reads states of the target, the second the module's own.
fn time_chain(module: &mut dyn MtpModule, tokens: &[TokenId], states: &Rows) -> Result<Duration, ModelError> {
    let len = module.len();
    let started = Instant::now();
    let first = module.forward(tokens, states)?;
    black_box(module.forward(&tokens[..1], &first.hidden.last_row())?);
    let took = started.elapsed();
    module.truncate(len)?;
    Ok(took)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
