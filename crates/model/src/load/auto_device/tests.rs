//! Both verdicts on whatever adapter there is, which these tests call a GPU; without one they print that they did not run.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::*;
use crate::LogitRows;
use crate::load::OpenModel;
use crate::options::{DeviceChoice, LoadOptions};
use draftscope_protocol::TokenId;

/// The adapters, the first of them called a discrete GPU.
fn called_gpu() -> Option<Vec<AdapterInfo>> {
    let mut all: Vec<_> = adapters().into_iter().map(|adapter| adapter.info).collect();
    match all.first_mut() {
        Some(first) => first.kind = AdapterKind::Discrete,
        None => {
            assert!(std::env::var("DRAFTSCOPE_GPU_TESTS").is_err(), "DRAFTSCOPE_GPU_TESTS is set and no adapter found");
            println!("not run: no Vulkan, Metal or DirectX 12 driver");
        }
    }
    (!all.is_empty()).then_some(all)
}

fn options(name: &str, memory: Option<PathBuf>) -> LoadOptions {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("tests/fixtures/checkpoints").join(name);
    LoadOptions { device: DeviceChoice::Auto, device_memory: memory, ..LoadOptions::on_cpu(path, None) }
}

/// Loads with passes that take so many milliseconds on the GPU and on the CPU; returns the backend, the notice and the
/// stages of the load, `target` once for each time that weights are read.
fn loaded(
    options: &LoadOptions,
    adapters: &[AdapterInfo],
    ms: [u64; 2],
) -> (&'static str, Option<String>, Vec<String>) {
    let [gpu, cpu] = ms.map(|ms| move || Ok(Duration::from_millis(ms)));
    loaded_if(options, adapters, (64, [&gpu, &cpu]))
}

/// Times that weights were read.
fn loads(stages: &[String]) -> usize {
    stages.iter().filter(|stage| *stage == "target").count()
}

type Passes<'a> = [&'a dyn Fn() -> Result<Duration, ModelError>; 2];

/// The same with a context, and passes that may fail.
fn loaded_if(
    options: &LoadOptions,
    adapters: &[AdapterInfo],
    (ctx_len, passes): (usize, Passes<'_>),
) -> (&'static str, Option<String>, Vec<String>) {
    let opened = OpenModel::open(&options.target).unwrap();
    let config = opened.config.as_ref();
    let context = LoadContext { options, source: &opened.source, config, ctx_len, ends: &[] };
    let [on_gpu, on_cpu] = passes;
    let time = |target: &mut dyn LoadedTarget| {
        let mut backend = "";
        target.try_out(&mut |model| {
            backend = model.spec().backend;
            model.forward(&[TokenId(1)], LogitRows::Last).map(|_| ())
        })?;
        if backend == "gpu" { on_gpu() } else { on_cpu() }
    };
    let stages = RefCell::new(Vec::new());
    let mut progress = |stage: &str, done: u64, _: u64| {
        if done == 0 {
            stages.borrow_mut().push(stage.to_owned());
        }
    };
    let OnBackend { target, notice, .. } =
        Choice { context: &context, time: &time }.load(adapters, &mut progress).unwrap();
    let model = target.into_model().unwrap();
    assert!(model.is_empty(), "what was tried out is gone");
    (model.spec().backend, notice, stages.into_inner())
}

#[test]
fn the_faster_device_runs_the_model_and_is_remembered() {
    let Some(adapters) = called_gpu() else { return };
    let folder = tempfile::tempdir().unwrap();
    let name = &adapters[0].name;
    for (ms, backend, begin) in [([2, 3], "gpu", name.as_str()), ([3, 2], "native", "the CPU")] {
        let file = folder.path().join(format!("{backend}.json"));
        let options = options("llama", Some(file.clone()));
        let (ran, notice, stages) = loaded(&options, &adapters, ms);
        let notice = notice.unwrap();
        assert_eq!(ran, backend, "{notice}");
        assert!(notice.starts_with(begin) && notice.contains("took 2.00 ms there and 3.00 ms on "), "{notice}");
        assert!(stages.iter().any(|stage| stage.starts_with("timing passes")), "{stages:?}");
        assert_eq!(loads(&stages), 2, "the faster one is kept: {stages:?}");
        // what was remembered decides the next time, whatever passes take then
        let (ran, notice, stages) = loaded(&options, &adapters, [ms[1], ms[0]]);
        assert_eq!(ran, backend);
        assert!(notice.unwrap().ends_with("at an earlier start"));
        assert_eq!(loads(&stages), 1);
        assert!(!stages.iter().any(|stage| stage.starts_with("timing")), "{stages:?}");
        // another driver is measured again
        let mut other = adapters.clone();
        other[0].driver.push('2');
        assert_ne!(loaded(&options, &other, [ms[1], ms[0]]).0, backend);
    }
}

#[test]
fn memory_that_is_short_on_one_device_is_remembered() {
    let Some(adapters) = called_gpu() else { return };
    let folder = tempfile::tempdir().unwrap();
    let short = || Err(ModelError::DoesNotFit("no memory left; choose another".into()));
    let fast = || Ok(Duration::from_millis(1));
    let name = &adapters[0].name;
    let rows: [(Passes<'_>, _, _, _); 2] = [
        ([&short, &fast], "native", "no memory left", format!("the memory of {name} ")),
        ([&fast, &short], "gpu", "it does not fit into the CPU's memory", "it does not fit into the CPU's".to_owned()),
    ];
    for (passes, backend, first, later) in rows {
        let options = options("llama", Some(folder.path().join(format!("{backend}.json"))));
        let (ran, notice, stages) = loaded_if(&options, &adapters, (64, passes));
        assert_eq!(ran, backend);
        assert!(notice.as_ref().unwrap().ends_with(first), "{notice:?}");
        assert!(stages.iter().any(|stage| stage.starts_with("timing")));
        // no start with a context as long times anything again
        for ctx_len in [64, 100] {
            let (ran, notice, stages) = loaded_if(&options, &adapters, (ctx_len, passes));
            assert_eq!(ran, backend);
            let notice = notice.unwrap();
            assert!(notice.contains(&later) && notice.ends_with(" at an earlier start"), "{notice}");
            assert!(!stages.iter().any(|stage| stage.starts_with("timing")), "{stages:?}");
        }
        // a shorter one may fit
        let (_, _, stages) = loaded_if(&options, &adapters, (32, [&fast, &fast]));
        assert!(stages.iter().any(|stage| stage.starts_with("timing")), "{stages:?}");
    }
    // a driver that failed is tried again
    let options = options("llama", Some(folder.path().join("failed.json")));
    for _ in 0..2 {
        let fails = || Err(ModelError::Device("the GPU stopped working".into()));
        let (ran, _, stages) = loaded_if(&options, &adapters, (64, [&fails, &fast]));
        assert!(ran == "native" && stages.iter().any(|stage| stage.starts_with("timing")), "{stages:?}");
    }
}

#[test]
fn a_model_on_a_gpu_that_may_share_short_memory_makes_room_for_the_cpus() {
    use AdapterKind::{Discrete, Integrated, Other};
    let short = || ModelError::DoesNotFit("no memory left".into());
    for (kind, shares) in [(Discrete, false), (Integrated, true), (Other, true)] {
        let gpu = Rc::new(());
        let held = Rc::downgrade(&gpu);
        // memory suffices for one of them
        let mut loads = 0;
        let mut one_fits = || {
            loads += 1;
            if held.upgrade().is_some() { Err(short()) } else { Ok(()) }
        };
        let (kept, loaded) = beside(gpu, kind, &mut one_fits);
        assert_eq!((kept.is_some(), loaded.is_ok(), loads), (!shares, shares, 1 + usize::from(shares)), "{kind:?}");
        // for both, and for the GPU's alone
        let (kept, loaded) = beside((), kind, &mut || Ok(()));
        assert!(kept.is_some() && loaded.is_ok(), "{kind:?}");
        let (kept, loaded) = beside((), kind, &mut || Err::<(), _>(short()));
        assert!(kept.is_some() != shares && matches!(loaded, Err(ModelError::DoesNotFit(_))), "{kind:?}");
        // another error frees nothing
        let (kept, _) = beside((), kind, &mut || Err::<(), _>(ModelError::Device("it failed".into())));
        assert!(kept.is_some(), "{kind:?}");
    }
}

#[test]
fn real_times_are_compared() {
    let Some(adapters) = called_gpu() else { return };
    let options = options("llama", None);
    let opened = OpenModel::open(&options.target).unwrap();
    let config = opened.config.as_ref();
    let context = LoadContext { options: &options, source: &opened.source, config, ctx_len: 64, ends: &[] };
    let on = Choice { context: &context, time: &timing::one_row }.load(&adapters, &mut |_, _, _| {}).unwrap();
    let notice = on.notice.unwrap();
    let times: Vec<f64> = notice.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [first, second] = times[times.len() - 2..] else { panic!("{notice}") };
    assert!(first > 0.0 && first <= second, "the faster one comes first: {notice}");
}

#[test]
fn software_adapters_and_missing_drivers_are_passed_over_in_silence() {
    let mut software = called_gpu().unwrap_or_default();
    software.iter_mut().for_each(|info| info.kind = AdapterKind::Software);
    for adapters in [Vec::new(), software] {
        let (ran, notice, stages) = loaded(&options("llama", None), &adapters, [1, 1000]);
        assert_eq!((ran, notice), ("native", None));
        assert!(!stages.iter().any(|stage| stage.starts_with("timing")), "{stages:?}");
    }
}

#[test]
fn a_part_or_a_gpu_that_does_not_run_is_named_and_the_cpu_takes_over() {
    let Some(mut adapters) = called_gpu() else { return };
    let (ran, notice, _) = loaded(&options("deepseek", None), &adapters, [1, 1000]);
    assert_ne!(ran, "gpu");
    assert_eq!(notice.unwrap(), "the CPU runs this model: latent attention does not run on a GPU yet");
    adapters[0].lacks = Some("it allows 8 and 10 are needed".into());
    let (ran, notice, _) = loaded(&options("llama", None), &adapters, [1, 1000]);
    let name = &adapters[0].name;
    assert_eq!(
        (ran, notice.unwrap()),
        ("native", format!("the CPU runs this model: on {name}, it allows 8 and 10 are needed"))
    );
}

#[test]
fn options_for_the_cpu_load_no_driver() {
    use crate::options::{Backend, Dtype};
    let opened = OpenModel::open(&options("llama", None).target).unwrap();
    let asks = |options: &LoadOptions| {
        let config = opened.config.as_ref();
        asks_for_the_cpu(&LoadContext { options, source: &opened.source, config, ctx_len: 64, ends: &[] })
    };
    let auto = options("llama", None);
    assert!(!asks(&auto));
    assert!(asks(&LoadOptions { backend: Backend::Native, ..auto.clone() }));
    assert!(asks(&LoadOptions { dtype: Dtype::F32, ..auto }));
}
