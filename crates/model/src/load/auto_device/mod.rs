//! `--device auto` with the GPU backend: a GPU runs the target if a pass over one row takes less time there than on the CPU.
//!
//! An adapter that computes on the CPU is never chosen. The first start with a model loads it on the GPU and on the CPU,
//! and keeps the faster one. Where they share memory that does not suffice for both, the one on the GPU is dropped first,
//! and loaded again if it was faster. On each it runs a short prompt and times passes for about a second. The result is
//! remembered for the model, the adapter and its driver, and so is that the memory of one of them is short. What was chosen
//! is said in one sentence, without a GPU nothing. A GPU that fails is reported, and the CPU runs the target; the next
//! start tries the GPU again.

mod memory;
mod timing;

use std::time::Duration;

use draftscope_gpu::{AdapterInfo, AdapterKind, adapters, first_gpu};

use super::backend::{OnBackend, cause, check_gpu, load_elsewhere, load_gpu, may_share_memory};
use crate::ModelError;
use crate::interfaces::{LoadContext, LoadedTarget, Progress};
use crate::options::{Backend, Dtype};
use memory::{Key, Verdict};

/// Loads the target where it is faster.
///
/// # Errors
/// If the CPU does not run it either.
pub(super) fn load(context: &LoadContext<'_>, progress: &mut Progress<'_>) -> Result<OnBackend, ModelError> {
    let adapters: Vec<_> = match asks_for_the_cpu(context) {
        true => Vec::new(),
        false => adapters().into_iter().map(|adapter| adapter.info).collect(),
    };
    Choice { context, time: &timing::one_row }.load(&adapters, progress)
}

/// Options that only the CPU has decide without a look at drivers.
fn asks_for_the_cpu(context: &LoadContext<'_>) -> bool {
    context.options.backend != Backend::Auto || matches!(context.options.dtype, Dtype::F32 | Dtype::Bf16)
}

/// Median time of a pass over one row of a target.
type TimePass<'a> = dyn Fn(&mut dyn LoadedTarget) -> Result<Duration, ModelError> + 'a;

/// What the choice depends on.
struct Choice<'a, 'c> {
    context: &'a LoadContext<'c>,
    time: &'a TimePass<'a>,
}

impl Choice<'_, '_> {
    fn load(&self, adapters: &[AdapterInfo], progress: &mut Progress<'_>) -> Result<OnBackend, ModelError> {
        let infos: Vec<&AdapterInfo> = adapters.iter().collect();
        let Some((index, info)) = first_gpu(&infos).and_then(|index| Some((index, adapters.get(index)?))) else {
            return load_elsewhere(self.context, progress);
        };
        let fault = check_gpu(self.context).err().map(|error| error.to_string());
        if let Some(why) = fault.or_else(|| info.lacks.as_ref().map(|lacks| format!("on {}, {lacks}", info.name))) {
            return self.on_cpu(cause(&why), progress);
        }
        let key = Key::of(self.context, info);
        let remembered = self.context.options.device_memory.as_deref().and_then(|file| memory::recall(file, &key));
        let name = Named { info, adapter: index.to_string(), key };
        match remembered.filter(|verdict| verdict.holds_for(self.context.ctx_len)) {
            Some(verdict) => self.follow(&name, &verdict, " at an earlier start", progress),
            None => self.measure(&name, progress),
        }
    }

    /// Loads the target on the CPU and says why.
    fn on_cpu(&self, why: &str, progress: &mut Progress<'_>) -> Result<OnBackend, ModelError> {
        Ok(kept_on_cpu(load_elsewhere(self.context, progress)?, why))
    }

    /// Loads the target as the verdict says; on the CPU if the GPU fails.
    fn follow(
        &self,
        on: &Named<'_>,
        verdict: &Verdict,
        when: &str,
        progress: &mut Progress<'_>,
    ) -> Result<OnBackend, ModelError> {
        let why = on.sentence(verdict, when);
        if !verdict.takes_gpu() {
            return self.on_cpu(&why, progress);
        }
        match load_gpu(self.context, Some(&on.adapter), progress) {
            Ok(loaded) => Ok(on.keeps(loaded, &why)),
            Err(error) => self.on_cpu(cause(&error.to_string()), progress),
        }
    }

    /// Loads the target on both, times passes, remembers what was found, and keeps the faster one.
    fn measure(&self, on: &Named<'_>, progress: &mut Progress<'_>) -> Result<OnBackend, ModelError> {
        let (gpu, gpu_us) = match self.on_gpu(on, progress) {
            Ok(timed) => timed,
            Err(error) => {
                let positions = self.context.ctx_len as u64;
                match error {
                    ModelError::DoesNotFit(_) => self.remember(on, &Verdict::GpuShort { positions }),
                    ModelError::Unsupported(_) => self.remember(on, &Verdict::NotOnGpu),
                    _ => {} // a driver that failed once is tried again
                }
                return self.on_cpu(cause(&error.to_string()), progress);
            }
        };
        let Some(gpu_us) = gpu_us else {
            drop(gpu);
            let verdict = Verdict::RowsDiffer;
            self.remember(on, &verdict);
            return self.follow(on, &verdict, "", progress);
        };
        progress("timing passes on the CPU", 0, 1);
        let (gpu, loaded) = beside(gpu, on.info.kind, &mut || load_elsewhere(self.context, progress));
        let timed = loaded.and_then(|mut cpu| {
            let time = (self.time)(cpu.target.as_mut())?;
            Ok((cpu, time))
        });
        let (cpu, verdict) = match timed {
            Ok((cpu, time)) => (Some(cpu), Verdict::Timed { gpu_us, cpu_us: time.as_secs_f64() * 1e6 }),
            Err(ModelError::DoesNotFit(_)) => (None, Verdict::CpuShort { positions: self.context.ctx_len as u64 }),
            Err(error) => return Err(error),
        };
        self.remember(on, &verdict);
        match (cpu, gpu) {
            (Some(cpu), _) if !verdict.takes_gpu() => Ok(kept_on_cpu(cpu, &on.sentence(&verdict, ""))),
            (_, Some(gpu)) => Ok(on.keeps(gpu, &on.sentence(&verdict, ""))),
            (cpu, None) => {
                drop(cpu);
                self.follow(on, &verdict, "", progress)
            }
        }
    }

    /// The target on the GPU, and the time of a pass in microseconds; no time if drafts would be verified one by one there.
    fn on_gpu(&self, on: &Named<'_>, progress: &mut Progress<'_>) -> Result<(OnBackend, Option<f64>), ModelError> {
        progress("timing passes on the GPU", 0, 1);
        let mut loaded = load_gpu(self.context, Some(&on.adapter), progress)?;
        if loaded.target.self_test()?.is_some() {
            return Ok((loaded, None));
        }
        let time = (self.time)(loaded.target.as_mut())?;
        Ok((loaded, Some(time.as_secs_f64() * 1e6)))
    }

    fn remember(&self, on: &Named<'_>, verdict: &Verdict) {
        if let Some(file) = &self.context.options.device_memory {
            memory::remember(file, &on.key, verdict);
        }
    }
}

/// Loads a target on the CPU beside the one on a GPU of this kind, which is dropped first if both may share memory that
/// does not suffice for both.
fn beside<G, C>(
    gpu: G,
    kind: AdapterKind,
    load: &mut dyn FnMut() -> Result<C, ModelError>,
) -> (Option<G>, Result<C, ModelError>) {
    match load() {
        Err(ModelError::DoesNotFit(_)) if may_share_memory(kind) => {
            drop(gpu);
            (None, load())
        }
        loaded => (Some(gpu), loaded),
    }
}

/// The target on the CPU, with a sentence that says why it runs there.
fn kept_on_cpu(loaded: OnBackend, why: &str) -> OnBackend {
    let notice = format!("the CPU runs this model: {why}");
    let notice = loaded.notice.as_ref().map_or(notice.clone(), |other| format!("{notice}; {other}"));
    OnBackend { notice: Some(notice), ..loaded }
}

/// The adapter, the `--adapter` that names it, and what its measurement is valid for.
struct Named<'a> {
    info: &'a AdapterInfo,
    adapter: String,
    key: Key,
}

impl Named<'_> {
    fn title(&self) -> String {
        format!("{} ({})", self.info.name, self.info.api)
    }

    /// The target on this GPU, with a sentence that says why it runs there.
    fn keeps(&self, loaded: OnBackend, why: &str) -> OnBackend {
        OnBackend { notice: Some(format!("{} runs this model: {why}", self.title())), ..loaded }
    }

    /// Why the verdict is as it is.
    fn sentence(&self, verdict: &Verdict, when: &str) -> String {
        match verdict {
            Verdict::RowsDiffer => format!(
                "on {} a row's numbers change with the rows beside it, so drafts would be verified one by one",
                self.title()
            ),
            Verdict::NotOnGpu => format!("the GPU backend does not run it{when}"),
            Verdict::GpuShort { .. } => format!("the memory of {} did not suffice{when}", self.title()),
            Verdict::CpuShort { .. } => format!("it does not fit into the CPU's memory{when}"),
            Verdict::Timed { gpu_us, cpu_us } if verdict.takes_gpu() => format!(
                "a pass over one row took {:.2} ms there and {:.2} ms on the CPU{when}",
                gpu_us / 1e3,
                cpu_us / 1e3
            ),
            Verdict::Timed { gpu_us, cpu_us } => format!(
                "a pass over one row took {:.2} ms there and {:.2} ms on {}{when}",
                cpu_us / 1e3,
                gpu_us / 1e3,
                self.title()
            ),
        }
    }
}

#[cfg(test)]
mod tests;
