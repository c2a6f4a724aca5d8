//! Measures what passes cost on this machine: T(m) for m rows, one drafted token, and the memory bandwidth.
//!
//! The machine may be shared, so every turn times all widths one after the other. The first turn is a warm-up and is
//! dropped; the result is the median with the 10th and 90th percentile.

use std::hint::black_box;
use std::time::{Duration, Instant};

use serde::Serialize;

use draftscope_kernels::Stream;
use draftscope_model::block_module::BlockModule;
use draftscope_model::load::{Loaded, load};
use draftscope_model::options::LoadOptions;
use draftscope_model::{Checkpoint, DraftModule, ExpertsMet, LogitRows, Model, ModelError, Rows};
use draftscope_protocol::statistics::{median, quantiles};
use draftscope_protocol::{DeviceWork, DrafterInfo, GpuInfo, KernelTime, MemoryAccount, TokenId};

/// Bytes that the bandwidth test reads: far more than any cache stores.
const MEMORY_BYTES: usize = 512 << 20;

/// Passes after the memory tests that are not timed: they bring the weights back into the caches.
const WARM_UP: usize = 16;

/// Most rows that are timed.
pub const MAX_ROWS: usize = 16;

/// Committed slots that the first draft of a timed chain rewrites with the target's states: as many as after a round
/// of two tokens.
pub const SETTLED: usize = 2;

/// Median and spread of several measurements, in microseconds.
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
    /// Summarises measured times; all zeros if there are none.
    #[must_use]
    pub fn of(times: Vec<Duration>) -> Self {
        let times = times.into_iter().map(|time| time.as_secs_f64() * 1e6).collect();
        let [p10_us, median_us, p90_us] = quantiles(times, [0.1, 0.5, 0.9]).unwrap_or_default();
        Self { p10_us, median_us, p90_us }
    }
}

/// Experts that a pass ran.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ExpertCost {
    /// Different experts of a layer that ran, on average over the layers.
    pub met: f64,
    /// Experts of a layer.
    pub count: f64,
    /// Bytes of weights that the pass read, those of the experts that ran included.
    pub pass_bytes: u64,
}

impl ExpertCost {
    /// From what a pass met, of a model whose passes can read so many bytes.
    fn of(met: ExpertsMet, pass_bytes: u64) -> Self {
        let layers = met.layers.max(1) as f64;
        let pass_bytes = pass_bytes.saturating_sub(met.bytes) + met.bytes_met;
        Self { met: met.met as f64 / layers, count: met.count as f64 / layers, pass_bytes }
    }
}

/// Measured costs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CostCurve {
    /// Positions in the cache while timing.
    pub ctx: usize,
    /// Threads that computed.
    pub threads: usize,
    /// Backend, weight dtype and device.
    pub backend: String,
    /// T(m), index 0 is one row; all logits computed, and on a GPU the best of them read.
    pub verify: Vec<Timing>,
    /// One drafted token, head included: half the time of a chain of two after a pass, whose first draft settles
    /// [`SETTLED`] slots; of a block drafter, its share of a whole block's pass. None without a drafter.
    pub draft: Option<Timing>,
    /// A block drafter's pass that drafts one token; none for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draft_one: Option<Timing>,
    /// Drafts of one pass of a block drafter; 1 for others.
    pub drafts_of_a_pass: usize,
    /// Prompt tokens per second over a prompt of `ctx` tokens.
    pub prefill_tokens_per_second: f64,
    /// Bytes of weights in memory.
    pub weight_bytes: u64,
    /// Bytes of weights that a pass of one row reads: fewer than `weight_bytes` where only some rows of a table are looked
    /// up, or only some experts run.
    pub pass_bytes: u64,
    /// What passes of 1, 2, … rows meet of the experts; empty where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub experts: Vec<ExpertCost>,
    /// Bytes of keys and values that a pass reads besides: `ctx` positions of the target's cache.
    pub cache_bytes: u64,
    /// Bytes of the drafter's own weights; 0 without one.
    pub draft_weight_bytes: u64,
    /// Bytes of KV cache per position, target and drafter together.
    pub kv_bytes_per_token: u64,
    /// What all of it takes in memory.
    pub memory: MemoryAccount,
    /// Rate at which this machine reads memory that does not fit into its caches, in bytes per second: the median of
    /// the same turns. `None` if a GPU computes: the rate of its memory is not measured.
    pub memory_bandwidth: Option<f64>,
    /// (pass_bytes + cache_bytes) ÷ T(1) ÷ memory_bandwidth. Can exceed 1, since part of the weights stays in the
    /// processor's cache from one pass to the next. `None` if a GPU computes.
    pub bandwidth_share: Option<f64>,
    /// Time of a loop that only reads as many bytes as a pass, ÷ T(1) of the same turn: the median over the turns. No
    /// pass can be faster than that loop, so it lies between 0 and 1, apart from noise. `None` if a GPU computes.
    pub read_share: Option<f64>,
    /// What a GPU measured; `None` if the processor computes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceCost>,
}

/// Costs of passes on a GPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceCost {
    /// The GPU, and the verdict of its self-test.
    pub gpu: GpuInfo,
    /// T(m) on the device: from the start of a pass's first launch to the end of its last. Empty where it notes no times.
    pub verify: Vec<Timing>,
    /// What a pass of one row does there.
    pub pass: DeviceWork,
    /// Bytes that the device reads from its memory in a second: a kernel that only reads, measured in this run.
    pub read_rate: f64,
    /// (pass_bytes + cache_bytes) ÷ T(1) ÷ read_rate, T(1) on the device where it notes times.
    pub read_share: f64,
    /// What the kernels of a pass of one row take there, slowest first; empty where it notes no times.
    pub kernels: Vec<KernelTime>,
    /// The same for a pass of four rows.
    pub kernels_of_four: Vec<KernelTime>,
}

impl CostCurve {
    /// What a draft costs and, of a block drafter, the pass that makes all of them apart from its tokens, in
    /// microseconds: a line through the passes for one token and for a whole block. None without a drafter.
    #[must_use]
    pub fn drafting_us(&self) -> Option<(f64, f64)> {
        let (draft, drafts) = (self.draft?.median_us, self.drafts_of_a_pass as f64);
        Some(self.draft_one.map_or((draft, 0.0), |one| pass_and_tokens(one.median_us, draft * drafts, drafts)))
    }
}

/// The cost of a token and of a pass without tokens, from passes for one token and for `drafts`.
fn pass_and_tokens(one_us: f64, all_us: f64, drafts: f64) -> (f64, f64) {
    let each = if drafts > 1.0 { ((all_us - one_us) / (drafts - 1.0)).max(0.0) } else { 0.0 };
    (each, (one_us - each).max(0.0))
}

/// Bytes that this machine reads from memory in a second, on all its cores: the fastest of a few loops over more memory
/// than its caches have.
#[must_use]
pub fn memory_bandwidth() -> f64 {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let memory = Stream::new(threads, MEMORY_BYTES);
    MEMORY_BYTES as f64 / memory.seconds().min(memory.seconds())
}

/// A target and its draft module, to time single passes after any number of cached positions.
///
/// Every timed pass is rolled back, so the caches stay as [`PassTimer::fill`] left them.
pub struct PassTimer {
    target: Box<dyn Model>,
    mtp: Option<(Box<dyn DraftModule>, DrafterInfo)>,
    block: Option<(Box<dyn BlockModule>, DrafterInfo)>, // in place of the module
    tokens: Vec<TokenId>,                               // by position
    ctx: usize,
    read: Rows, // states of the target that a chain's first draft settles
    memory: MemoryAccount,
    /// What the last timed pass did on a GPU.
    on_device: Option<DeviceWork>,
}

impl PassTimer {
    /// Loads both.
    ///
    /// # Errors
    /// When they cannot be loaded, or do not fit into the free memory.
    pub fn load(recipe: &LoadOptions) -> Result<Self, ModelError> {
        let Loaded { mut target, mtp, block, memory, .. } = load(recipe, &mut |_, _, _| {})?;
        let tap = mtp.as_ref().map(|(module, _)| module.tap());
        if let Some(tap) = tap.or_else(|| block.as_ref().map(|(block, _)| block.tap())) {
            target.set_tap(&tap)?;
        }
        Ok(Self { target, mtp, block, tokens: Vec::new(), ctx: 0, read: Rows::default(), memory, on_device: None })
    }

    /// Most cached positions after which every width can still be timed.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.target.spec().ctx_len.saturating_sub(MAX_ROWS).max(1)
    }

    /// Replaces the caches' content with `ctx` positions, at least one. Returns the time that the target took.
    ///
    /// # Errors
    /// When they do not fit or a pass fails.
    pub fn fill(&mut self, ctx: usize) -> Result<Duration, ModelError> {
        let vocab = self.target.spec().info.vocab;
        self.tokens = (0..ctx + MAX_ROWS).map(|i| TokenId((i as u32 * 7919 + 13) % vocab)).collect();
        self.ctx = ctx;
        self.target.truncate(0, &Checkpoint { len: 0 })?;
        let started = Instant::now();
        let hidden = self.target.forward(&self.tokens[..ctx], LogitRows::Last)?.hidden;
        let took = started.elapsed();
        self.read = hidden.last_row();
        if let Some((module, _)) = self.mtp.as_mut().filter(|(module, _)| !module.shares_target_kv()) {
            module.truncate(0)?;
            module.forward(&self.tokens[1..=ctx], &hidden)?;
            self.read = hidden.slice(ctx.saturating_sub(SETTLED)..ctx);
        }
        if let Some((block, _)) = &mut self.block {
            let settled = ctx.saturating_sub(SETTLED);
            block.truncate(0)?;
            block.inject(&hidden.slice(0..settled))?;
            self.read = hidden.slice(settled..ctx);
        }
        Ok(took)
    }

    /// Times one pass over `rows` rows, 1 to [`MAX_ROWS`], as a greedy round runs it: all logits computed.
    ///
    /// # Errors
    /// When the pass fails.
    pub fn pass(&mut self, rows: usize) -> Result<Duration, ModelError> {
        let tokens = &self.tokens[self.ctx..self.ctx + rows];
        let since = self.target.checkpoint()?;
        let before = self.target.device_work();
        let started = Instant::now();
        black_box(self.target.forward(tokens, LogitRows::Best)?);
        let took = started.elapsed();
        self.on_device = self.target.device_work().map(|work| work.since(before.unwrap_or_default()));
        self.target.truncate(since.len, &since)?;
        Ok(took)
    }

    /// What the last timed pass did on a GPU; `None` if the processor computes.
    #[must_use]
    pub fn on_device(&self) -> Option<DeviceWork> {
        self.on_device
    }

    /// What passes of 1 to [`MAX_ROWS`] rows meet of the experts; empty where there are none.
    ///
    /// # Errors
    /// When a pass fails.
    pub fn experts(&mut self) -> Result<Vec<ExpertCost>, ModelError> {
        let mut costs = Vec::new();
        for rows in 1..=MAX_ROWS {
            self.pass(rows)?;
            let Some(met) = self.target.experts_met() else { break };
            costs.push(ExpertCost::of(met, self.target.pass_bytes()));
        }
        Ok(costs)
    }

    /// Drafts that one pass makes at most; 1 unless a block drafter is loaded.
    #[must_use]
    pub fn drafts_of_a_pass(&self) -> usize {
        self.block.as_ref().map_or(1, |(block, _)| block.most_drafts())
    }

    /// Times a chain of `drafts` drafts, at least one: the first settles [`SETTLED`] slots with the target's states,
    /// the others read the module's own states. Of a block drafter, the pass that drafts them. None without a module.
    ///
    /// # Errors
    /// When the module fails.
    pub fn chain(&mut self, drafts: usize) -> Result<Option<Duration>, ModelError> {
        if let Some((block, _)) = &mut self.block {
            let (len, anchor) = (block.len(), self.tokens[self.ctx]);
            let started = Instant::now();
            block.inject(&self.read)?;
            black_box(block.draft(anchor, drafts.min(block.most_drafts()))?);
            let took = started.elapsed();
            block.truncate(len)?;
            return Ok(Some(took));
        }
        let Some((module, _)) = &mut self.mtp else {
            return Ok(None);
        };
        module.attach_kv(self.target.as_ref())?; // a timed pass ran and was rolled back
        let (len, next) = (module.len(), &self.tokens[self.ctx..]);
        let started = Instant::now();
        let mut last = module.forward(&next[..self.read.len()], &self.read)?;
        for _ in 1..drafts {
            last = module.forward(&next[..1], &last.hidden.last_row())?;
        }
        black_box(last);
        let took = started.elapsed();
        module.truncate(len)?;
        Ok(Some(took))
    }
}

/// Times passes at `ctx` cached positions, `turns` times each.
///
/// # Errors
/// When the models cannot be loaded or run, or [`MAX_ROWS`] rows more than `ctx` do not fit.
pub fn measure(recipe: &LoadOptions, ctx: usize, turns: usize) -> Result<CostCurve, ModelError> {
    let mut timer = PassTimer::load(recipe)?;
    let ctx_len = timer.target.spec().ctx_len;
    if ctx + MAX_ROWS > ctx_len {
        return Err(ModelError::ContextFull { needed: ctx + MAX_ROWS, ctx_len });
    }
    timer.fill(ctx)?; // warm-up
    let prefill = timer.fill(ctx)?;
    let spec = timer.target.spec().clone();
    let on_cpu = spec.device.starts_with("cpu");
    let cache_bytes = ctx as u64 * spec.info.kv_bytes_per_token;
    let experts = timer.experts()?;
    let pass_bytes = experts.first().map_or(timer.target.pass_bytes(), |one_row| one_row.pass_bytes);
    let as_pass = Stream::new(spec.threads, usize::try_from(pass_bytes + cache_bytes).unwrap_or(0));
    let memory = Stream::new(spec.threads, MEMORY_BYTES);
    let read_rate = timer.target.device_read_rate()?;
    let mut times = vec![Vec::new(); MAX_ROWS];
    let timed_drafts = timer.block.as_ref().map_or(2, |(block, _)| block.most_drafts());
    let mut device_times = vec![Vec::new(); MAX_ROWS];
    let mut one_row = None;
    let (mut drafts, mut single_drafts) = (Vec::new(), Vec::new());
    let (mut reads, mut rates) = (Vec::new(), Vec::new());
    for turn in 0..=turns {
        let keep = turn > 0;
        if keep && on_cpu {
            rates.push(MEMORY_BYTES as f64 / memory.seconds());
            let _ = as_pass.seconds(); // fills the caches, so that the timed loop finds them filled
            reads.push(as_pass.seconds());
        }
        for _ in 0..WARM_UP {
            timer.pass(1)?;
        }
        for rows in 1..=MAX_ROWS {
            let (pass, on_device) = (timer.pass(rows)?, timer.on_device());
            let chain = timer.chain(timed_drafts)?;
            let single = if timer.block.is_some() { timer.chain(1)? } else { None };
            one_row = one_row.or(on_device);
            if keep {
                times[rows - 1].push(pass);
                device_times[rows - 1].extend(on_device.map(|work| Duration::from_nanos(work.nanoseconds)));
                drafts.extend(chain.map(|chain| chain / timed_drafts as u32));
                single_drafts.extend(single);
            }
        }
    }
    let shares: Vec<f64> = reads.iter().zip(&times[0]).map(|(read, pass)| read / pass.as_secs_f64()).collect();
    let host = median(shares).zip(median(rates)).filter(|_| on_cpu);
    let verify_times: Vec<Timing> = times.into_iter().map(Timing::of).collect();
    let rate = (pass_bytes + cache_bytes) as f64 / (verify_times[0].median_us / 1e6);
    let kernels = timer.target.kernel_times(1)?;
    let kernels_of_four = timer.target.kernel_times(4)?;
    let gpu = timer.target.gpu_info().zip(one_row).zip(read_rate);
    let device = gpu.map(|((gpu, pass), read_rate)| {
        let verify: Vec<Timing> = match gpu.notes_times {
            true => device_times.into_iter().map(Timing::of).collect(),
            false => Vec::new(),
        };
        let one = verify.first().unwrap_or(&verify_times[0]).median_us / 1e6;
        let read_share = (pass_bytes + cache_bytes) as f64 / one / read_rate.max(1.0);
        DeviceCost { gpu, verify, pass, read_rate, read_share, kernels, kernels_of_four }
    });
    let drafter = timer.mtp.as_ref().map(|(_, info)| info).or(timer.block.as_ref().map(|(_, info)| info));
    Ok(CostCurve {
        ctx,
        threads: spec.threads,
        backend: format!("{} {} on {}", spec.backend, spec.dtype, spec.device),
        draft: drafter.is_some().then(|| Timing::of(drafts)),
        draft_one: timer.block.is_some().then(|| Timing::of(single_drafts)),
        drafts_of_a_pass: timer.drafts_of_a_pass(),
        prefill_tokens_per_second: ctx as f64 / prefill.as_secs_f64(),
        weight_bytes: timer.memory.target_weights,
        pass_bytes,
        experts,
        cache_bytes,
        draft_weight_bytes: timer.memory.drafter_weights,
        kv_bytes_per_token: timer.memory.kv(1),
        memory: timer.memory,
        memory_bandwidth: host.map(|(_, bandwidth)| bandwidth),
        bandwidth_share: host.map(|(_, bandwidth)| rate / bandwidth.max(1.0)),
        read_share: host.map(|(read_share, _)| read_share),
        device,
        verify: verify_times,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pass_of_a_block_is_separated_from_its_tokens() {
        assert_eq!(pass_and_tokens(500.0, 570.0, 8.0), (10.0, 490.0));
        assert_eq!(pass_and_tokens(500.0, 480.0, 8.0), (0.0, 500.0), "more tokens cannot cost less");
        assert_eq!(pass_and_tokens(500.0, 500.0, 1.0), (0.0, 500.0), "a block of one draft");
    }
}
