//! The program itself, the processor and the memory.

use draftscope::host::processor;
use draftscope::model::memory;
use draftscope_kernels::Isa;
use indicatif::DecimalBytes;
use serde_json::json;

use super::check::Check;

/// Parts that can be left out of a build or added to one.
const FEATURES: [(&str, bool); 7] = [
    ("gpu", cfg!(feature = "gpu")),
    ("cuda", cfg!(feature = "cuda")),
    ("metal", cfg!(feature = "metal")),
    ("mkl", cfg!(feature = "mkl")),
    ("accelerate", cfg!(feature = "accelerate")),
    ("reference", cfg!(feature = "reference")),
    ("specspecs", cfg!(feature = "specspecs")),
];

/// Version, system and features.
pub(super) fn program() -> Check {
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    let features: Vec<_> = FEATURES.iter().filter(|(_, is_on)| *is_on).map(|(name, _)| *name).collect();
    let listed = if features.is_empty() { "none".to_owned() } else { features.join(", ") };
    let found = format!("draftscope {} for {os} on {arch}, features: {listed}", env!("CARGO_PKG_VERSION"));
    Check::ok("program", found).with(json!({ "os": os, "arch": arch, "features": features }))
}

/// The processor, what the kernels use of it, and threads.
pub(super) fn cpu() -> Check {
    let name = processor::name();
    let isa = Isa::detect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let named = if name.is_empty() { std::env::consts::ARCH } else { name.as_str() };
    let found = format!("{named}, {threads} {}, kernels use {}", plural(threads), isa.name());
    let details = json!({ "name": name, "threads": threads, "instructions": isa.name() });
    match isa == Isa::PORTABLE {
        false => Check::ok("CPU", found),
        true => Check::note("CPU", found, "answers are slow here; a processor with AVX2, AVX-512 or NEON is faster"),
    }
    .with(details)
}

fn plural(threads: usize) -> &'static str {
    if threads == 1 { "thread" } else { "threads" }
}

/// Memory: all of it and what is free, beside what the default model takes.
pub(super) fn memory(need: Option<u64>) -> Check {
    memory_of(memory::available(), memory::installed(), need)
}

fn memory_of(free: Option<u64>, installed: Option<u64>, need: Option<u64>) -> Check {
    let details = json!({ "free_bytes": free, "installed_bytes": installed, "default_model_bytes": need });
    let (Some(free), Some(installed)) = (free, installed) else {
        let advice = "a model that does not fit is not rejected before it is loaded";
        return Check::note("memory", "the system does not say how much is free", advice).with(details);
    };
    let found = format!("{} free of {}", DecimalBytes(free), DecimalBytes(installed));
    match need {
        Some(need) if need > free => {
            let advice = format!("the default model takes {}; end other programs", DecimalBytes(need));
            Check::fails("memory", found, advice)
        }
        Some(need) => Check::ok("memory", format!("{found}; the default model takes {}", DecimalBytes(need))),
        None => Check::ok("memory", found),
    }
    .with(details)
}

#[cfg(test)]
mod tests {
    use super::super::check::Verdict;
    use super::*;

    #[test]
    fn memory_fails_only_if_the_default_model_does_not_fit() {
        let status = |free, need| memory_of(free, Some(8 << 30), need).status;
        assert_eq!(status(Some(1 << 30), Some(200_000_000)), Verdict::Ok);
        assert_eq!(status(Some(1 << 20), Some(200_000_000)), Verdict::Fails);
        assert_eq!(status(Some(1 << 20), None), Verdict::Ok);
        assert_eq!(status(None, Some(200_000_000)), Verdict::Note);
    }
}
