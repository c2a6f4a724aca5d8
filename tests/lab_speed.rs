//! Simulations from a probe run compared with real runs, and the draft length that the engine chooses.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

mod common;

use std::sync::{Arc, Mutex};

use candle_core::Device;
use candle_core::quantized::{GgmlDType, QTensor};
use common::{real, tiny};
use draftscope::engine::{self, CostKey, CostMemory, EngineConfig};
use draftscope::headless::{Driver, Outcome};
use draftscope::model::options::{Backend, DeviceChoice, Dtype, LoadOptions};
use draftscope::protocol::stream::Consumer;
use draftscope::protocol::{
    Baseline, Command, Costs, DraftLenMode, DraftStopped, DrafterKind, Drafting, Event, EventKind, Lane, Prompt,
    RoundStarted, Settings,
};
use draftscope::session::probe::{ProbeRun, Simulated};
use draftscope::session::{Answer, Round};

fn settings(drafter: DrafterKind, max_tokens: u32) -> Settings {
    Settings { drafter, max_tokens, baseline: Baseline::Off, ..Settings::default() }
}

fn driver(recipe: LoadOptions, settings: Settings) -> Driver {
    Driver::new(engine::spawn(EngineConfig { recipe, settings, grammar: None }).unwrap())
}

fn answer(driver: &mut Driver, prompt: &str) -> Answer {
    assert_eq!(driver.answer(Prompt::Raw(prompt.into())), Outcome::Answered);
    driver.session().turn().unwrap().answer(Lane::Speculative).clone()
}

/// Counts of a real run, without the drafts that a stop rule dropped, as in a simulation.
fn counted(answer: &Answer) -> Simulated {
    let mut sum = Simulated::default();
    let most = answer.rounds.iter().map(|round| round.drafts.len()).max().unwrap_or(0);
    sum.offered_per_pos = vec![0; most];
    sum.accepted_per_pos = vec![0; most];
    sum.rounds_by_rows = vec![0; most + 1];
    for round in &answer.rounds {
        let (drafted, accepted) = (round.drafts.len(), kept(round));
        sum.rounds += 1;
        sum.drafted += drafted as u64;
        sum.dropped += u64::from(round.stopped.is_some());
        sum.drafting_rounds += u64::from(drafted > 0 || round.stopped.is_some());
        sum.accepted += accepted as u64;
        sum.committed += round.committed().len() as u64;
        sum.offered_per_pos[..drafted].iter_mut().for_each(|count| *count += 1);
        sum.accepted_per_pos[..accepted].iter_mut().for_each(|count| *count += 1);
        sum.rounds_by_rows[round.rows().len() - 1] += 1;
    }
    sum
}

fn kept(round: &Round) -> usize {
    round.accepted().min(round.committed().len())
}

/// Probes every prompt, then runs each k and p-min; all counts must be equal.
fn assert_simulated_equals_run(
    recipe: &LoadOptions,
    drafter: DrafterKind,
    prompts: &[&str],
    max_tokens: u32,
) -> Simulated {
    let base = settings(drafter, max_tokens);
    let probe = Settings { probe_depth: 8, draft_len: 0, ..base };
    let mut probing = driver(recipe.clone(), probe);
    let recordings: Vec<_> =
        prompts.iter().map(|p| ProbeRun::of(&answer(&mut probing, p)).expect("a whole probe run")).collect();
    let mut all = Simulated::default();
    for (draft_len, p_min) in [(1, 0.0), (2, 0.0), (3, 0.0), (4, 0.0), (6, 0.0), (8, 0.0), (4, 0.3), (8, 0.6)] {
        let drafting = Drafting { p_min, ..base.drafting };
        let mut running = driver(recipe.clone(), Settings { draft_len, drafting, ..base });
        for (recording, prompt) in recordings.iter().zip(prompts) {
            let simulated = recording.fixed(draft_len.into(), p_min);
            let run = counted(&answer(&mut running, prompt));
            assert_eq!(simulated, run, "{drafter}, k = {draft_len}, p-min {p_min}: {prompt}");
            all.merge(&run);
        }
    }
    all
}

/// Does the same with trees of several sizes and depths, each with its own probe run.
fn assert_trees_equal_runs(recipe: &LoadOptions, prompts: &[&str], max_tokens: u32) -> Simulated {
    let base = settings(DrafterKind::Mtp, max_tokens);
    let mut all = Simulated::default();
    for (nodes, depth) in [(1, 1), (3, 1), (4, 2), (7, 3), (12, 4), (15, 8)] {
        let drafting = Drafting { tree: Some(nodes), ..base.drafting };
        let mut probing = driver(recipe.clone(), Settings { probe_depth: depth, draft_len: 0, drafting, ..base });
        let mut running = driver(recipe.clone(), Settings { draft_len: depth, drafting, ..base });
        for prompt in prompts {
            let simulated = ProbeRun::of(&answer(&mut probing, prompt)).expect("a whole run").fixed(depth.into(), 0.0);
            let run = counted(&answer(&mut running, prompt));
            assert_eq!(simulated, run, "{nodes} nodes, {depth} deep: {prompt}");
            all.merge(&run);
        }
    }
    all
}

#[test]
fn simulated_counts_of_trees_equal_those_of_real_runs() {
    let prompts = ["the thin inn", "in the thin", "the the the inn the the"];
    let mut sum = Simulated::default();
    for seed in [3, 4] {
        sum.merge(&assert_trees_equal_runs(&tiny::Tiny::new(seed).recipe(), &prompts, 60));
    }
    println!("{} drafted, {} accepted in {} rounds", sum.drafted, sum.accepted, sum.rounds);
    assert!(sum.drafted > 1000, "too little was drafted to compare");
}

#[test]
fn simulated_counts_equal_those_of_real_runs_on_tiny_models() {
    let prompts = ["the thin inn", "in the thin", "the the the inn the the"];
    for seed in [3, 4] {
        let files = tiny::Tiny::new(seed);
        for drafter in ["mtp", "ngram", "early-exit", "ngram+mtp"].map(|name| name.parse().unwrap()) {
            let sum = assert_simulated_equals_run(&files.recipe(), drafter, &prompts, 60);
            println!("seed {seed}, {drafter}: {} drafted, {} accepted", sum.drafted, sum.accepted);
            assert!(sum.drafted > 0, "nothing was compared");
        }
    }
}

/// What-if from probe runs on a GPU, or an adapter that stands for one.
#[cfg(feature = "gpu")]
#[test]
fn simulated_counts_equal_those_of_real_runs_on_a_gpu() {
    let files = tiny::Tiny::new(3);
    let Some(options) = common::gpu::options("llama") else { return };
    let options = LoadOptions { target: files.target.clone(), mtp: files.recipe().mtp, ..options };
    for drafter in ["mtp", "ngram"].map(|name| name.parse().unwrap()) {
        let sum = assert_simulated_equals_run(&options, drafter, &["the thin inn"], 20);
        println!("{drafter}: {} drafted, {} accepted", sum.drafted, sum.accepted);
        assert!(sum.drafted > 0, "nothing was compared");
    }
}

#[test]
fn simulated_counts_equal_those_of_real_runs_on_the_real_model() {
    let Some(target) = real::target_file() else { return };
    let recipe = LoadOptions {
        target,
        sha256: None,
        dtype: Dtype::Auto,
        device: DeviceChoice::Cpu,
        adapter: None,
        device_memory: None,
        backend: Backend::Native,
        threads: None,
        ctx_len: Some(512),
        mtp: Some(real::mtp_fp8()),
        draft_model: None,
        draft_model_required: false,
        vocab_method: None,
        divides_by_q: false,
        rollback: None,
        draft_vocab: None,
        think: None,
        special_tokens: false,
        pass_form: None,
    };
    let prompts = ["Once upon a time there was a", "def add(a, b):\n", "The five largest cities are 1."];
    for drafter in ["mtp", "ngram+mtp"].map(|name| name.parse().unwrap()) {
        let sum = assert_simulated_equals_run(&recipe, drafter, &prompts, 32);
        println!("{drafter}: {} drafted, {} accepted in {} rounds", sum.drafted, sum.accepted, sum.rounds);
        assert!(sum.accepted > 50, "too little was accepted to compare");
    }
    let sum = assert_trees_equal_runs(&recipe, &prompts[..2], 32);
    println!("trees: {} drafted, {} accepted in {} rounds", sum.drafted, sum.accepted, sum.rounds);
    assert!(sum.accepted > 100, "too little was accepted to compare");
}

/// Keeps every event.
#[derive(Clone, Default)]
struct Tape(Arc<Mutex<Vec<Event>>>);

impl Consumer for Tape {
    fn name(&self) -> &str {
        "the tape"
    }
    fn event(&mut self, event: &Event) -> std::io::Result<()> {
        self.0.lock().unwrap().push(event.clone());
        Ok(())
    }
    fn finish(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Remembers one measurement and counts how often it is recalled.
#[derive(Default)]
struct OneMemory {
    kept: Mutex<Option<(CostKey, Costs)>>,
    recalls: Mutex<u32>,
}

impl CostMemory for OneMemory {
    fn recall(&self, key: &CostKey) -> Option<Costs> {
        *self.recalls.lock().unwrap() += 1;
        self.kept.lock().unwrap().as_ref().filter(|(kept, _)| kept == key).map(|(_, costs)| costs.clone())
    }
    fn remember(&self, key: &CostKey, costs: &Costs) {
        *self.kept.lock().unwrap() = Some((key.clone(), costs.clone()));
    }
}

fn kinds(tape: &Tape) -> Vec<EventKind> {
    tape.0.lock().unwrap().iter().map(|event| event.kind.clone()).collect()
}

/// A model that is less sure of each token than the tiny one: it writes the same text, but its drafts have low
/// probabilities.
fn unsure() -> tiny::Tiny {
    tiny::Tiny::with(3, |parts| {
        let norm = parts.tensors.iter_mut().find(|(name, _)| name == "output_norm.weight");
        let (_, norm) = norm.expect("the tensor before the logits");
        let softer = (norm.dequantize(&Device::Cpu).unwrap() * 0.16).unwrap();
        *norm = QTensor::quantize(&softer, GgmlDType::F32).unwrap();
    })
}

fn automatic(files: &tiny::Tiny, drafter: DrafterKind, memory: Arc<OneMemory>) -> (Vec<EventKind>, Answer) {
    let settings = Settings { draft_len_mode: DraftLenMode::Auto, ..settings(drafter, 120) };
    let config = EngineConfig { recipe: files.recipe(), settings, grammar: None };
    let mut driver = Driver::new(engine::spawn_with(config, memory).unwrap());
    let tape = Tape::default();
    driver.add(Box::new(tape.clone()));
    let answer = answer(&mut driver, "the thin inn");
    driver.finish();
    (kinds(&tape), answer)
}

/// Checks that every round ran with the k of the last event about k.
fn assert_k_is_recorded(events: &[EventKind]) {
    let mut k = None;
    for kind in events {
        match kind {
            EventKind::Started { header } => k = Some(header.settings.draft_len),
            EventKind::SettingsChanged { settings } => k = Some(settings.draft_len),
            EventKind::DraftLenChosen { from, draft_len, .. } => {
                assert_eq!(Some(*from), k);
                k = Some(*draft_len);
            }
            EventKind::RoundStarted(RoundStarted { draft_len, .. }) => assert_eq!(Some(*draft_len), k),
            _ => {}
        }
    }
}

#[test]
fn the_engine_measures_chooses_k_and_gives_the_reason() {
    let (files, memory) = (tiny::Tiny::new(3), Arc::new(OneMemory::default()));
    let (events, auto) = automatic(&files, DrafterKind::Random, Arc::clone(&memory));
    let known = events.iter().find_map(|kind| match kind {
        EventKind::CostsKnown { costs, remembered } => Some((costs.clone(), *remembered)),
        _ => None,
    });
    let (costs, remembered) = known.expect("an event with the costs");
    assert!(costs.is_usable() && costs.longest() == 8 && !remembered, "{costs:?}");
    assert!(costs.verify_us.is_sorted(), "{costs:?}");
    let changes: Vec<_> =
        events.iter().filter(|kind| matches!(kind, EventKind::DraftLenChosen { .. })).cloned().collect();
    for change in &changes {
        let EventKind::DraftLenChosen { from, draft_len, reason, expected, .. } = change else { unreachable!() };
        assert!(reason.starts_with(&format!("k {from} → {draft_len}")) && expected.len() == 9, "{change:?}");
    }
    assert_k_is_recorded(&events);
    // the tiny model writes the plain text with every choice
    let plain = answer(
        &mut driver(files.recipe(), Settings { draft_len: 0, ..settings(DrafterKind::Random, 120) }),
        "the thin inn",
    );
    let ids = |answer: &Answer| answer.tokens.iter().map(|t| t.piece.id).collect::<Vec<_>>();
    assert_eq!(ids(&auto), ids(&plain));

    // remembered costs are not measured again, even if they are wrong
    let key = CostKey::of(match &events.iter().find(|kind| matches!(kind, EventKind::Started { .. })).unwrap() {
        EventKind::Started { header } => header,
        _ => unreachable!(),
    });
    let high = Costs { verify_us: (1..=9).map(|m| f64::from(m) * 1e6).collect(), ..costs };
    memory.remember(&key, &high);
    let (events, _) = automatic(&files, DrafterKind::Random, memory);
    let recalled = EventKind::CostsKnown { costs: high, remembered: true };
    assert!(events.contains(&recalled), "the remembered costs are used");
    assert!(events.iter().any(|kind| matches!(kind, EventKind::DraftLenChosen { draft_len: 0, .. })));
}

#[test]
fn drafts_that_the_engine_ends_do_not_change_the_text() {
    let (files, memory) = (unsure(), Arc::new(OneMemory::default()));
    let (events, _) = automatic(&files, DrafterKind::EarlyExit, Arc::clone(&memory));
    let header = events.iter().find_map(|kind| match kind {
        EventKind::Started { header } => Some(header),
        _ => None,
    });
    // a further row costs a quarter of a pass; times are so long that the short check accepts them
    let verify_us = (0..9).map(|rows| 1e5 * (1.0 + 0.25 * f64::from(rows))).collect();
    let costs = Costs { verify_us, draft_us: 1e4, draft_pass_us: 0.0, settle_us: 0.0, overhead_us: 0.0 };
    memory.remember(&CostKey::of(header.unwrap()), &costs);
    let (events, auto) = automatic(&files, DrafterKind::EarlyExit, memory);
    assert_k_is_recorded(&events);
    // the first round knows the remembered costs only, whatever its passes take: its draft is too improbable
    let are_ended = auto.rounds.iter().any(|round| round.drafts.len() < usize::from(round.draft_len()));
    assert!(are_ended, "no draft was ended");
    for kind in &events {
        if let EventKind::DraftStopped(DraftStopped { q, p_min, .. }) = kind {
            assert!(q < p_min && *p_min <= 1.0, "{kind:?}");
        }
    }
    let plain = answer(
        &mut driver(files.recipe(), Settings { draft_len: 0, ..settings(DrafterKind::EarlyExit, 120) }),
        "the thin inn",
    );
    let ids = |answer: &Answer| answer.tokens.iter().map(|t| t.piece.id).collect::<Vec<_>>();
    assert_eq!(ids(&auto), ids(&plain));
}

#[test]
fn k_switches_between_automatic_and_fixed_and_random_drafts_end_in_plain_decoding() {
    let files = tiny::Tiny::new(3);
    let mut driver = driver(files.recipe(), Settings { draft_len: 4, ..settings(DrafterKind::Random, 200) });
    let tape = Tape::default();
    driver.add(Box::new(tape.clone()));
    answer(&mut driver, "the inn");
    assert!(
        !kinds(&tape).iter().any(|kind| matches!(kind, EventKind::CostsKnown { .. })),
        "costs are measured only for an automatic k"
    );
    driver.send(Command::SetAutoDraftLen);
    answer(&mut driver, "the thin inn");
    assert_eq!(driver.session().settings().draft_len_mode, DraftLenMode::Auto);
    let third = answer(&mut driver, "in the thin");
    let plain = third.rounds.iter().filter(|round| round.draft_len() == 0).count();
    assert!(plain * 10 >= third.rounds.len() * 8, "{plain} of {} rounds were plain", third.rounds.len());
    assert!(driver.session().chosen().is_some() && driver.session().costs().is_some());
    driver.send(Command::SetDraftLen { draft_len: 2 });
    let fixed = answer(&mut driver, "thin in");
    assert!(fixed.rounds.iter().all(|round| round.draft_len() == 2));
    assert!(driver.session().chosen().is_none());
    driver.send(Command::SetAutoDraftLen);
    answer(&mut driver, "in the thin inn");
    assert_k_is_recorded(&kinds(&tape));
}
