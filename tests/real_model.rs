//! The real target and MTP module against reference values from an independent implementation.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

mod common;

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::PathBuf;
use std::time::Duration;

use common::real;
use draftscope::engine::speculate::decoder::Decoder;
use draftscope::engine::speculate::drafter::{Drafter, DrafterSet, ModelDrafter, MtpDrafter, NoDrafter};
use draftscope::model::load::Loaded;
use draftscope::model::options::{Backend, Dtype, ModuleFile};
use draftscope::model::{LogitRows, Model, Rows};
use draftscope::protocol::policy::{Observation, Policy};
use draftscope::protocol::{
    Costs, DraftLenMode, Drafted, DrafterKind, Drafting, EventKind, Message, Settings, Speaker, TokenId, VerifyRule,
};
use safetensors::SafeTensors;

fn ids(ids: &[u32]) -> Vec<TokenId> {
    ids.iter().copied().map(TokenId).collect()
}

/// Largest difference relative to the reference's largest value.
fn relative(got: &[f32], want: &[f32]) -> f32 {
    assert_eq!(got.len(), want.len());
    let scale = want.iter().fold(0f32, |m, x| m.max(x.abs()));
    got.iter().zip(want).fold(0f32, |m, (g, w)| m.max((g - w).abs())) / scale
}

/// Root mean square difference relative to the reference's.
fn relative_rms(got: &[f32], want: &[f32]) -> f32 {
    let square = |x: f32| f64::from(x) * f64::from(x);
    let error: f64 = got.iter().zip(want).map(|(g, w)| square(g - w)).sum();
    (error / want.iter().map(|w| square(*w)).sum::<f64>()).sqrt() as f32
}

fn argmax(row: &[f32]) -> usize {
    row.iter().enumerate().fold(0, |best, (i, x)| if *x > row[best] { i } else { best })
}

/// Path of a file with a module's reference values.
type Fixture = fn(&str) -> PathBuf;

struct Reference {
    bytes: Vec<u8>,
}

impl Reference {
    fn open(fixture: Fixture) -> Self {
        Self { bytes: std::fs::read(fixture("parity.safetensors")).unwrap() }
    }

    fn f32(&self, name: &str) -> Vec<f32> {
        let tensors = SafeTensors::deserialize(&self.bytes).unwrap();
        let data = tensors.tensor(name).unwrap_or_else(|_| panic!("{name}"));
        data.data().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    }

    fn i32(&self, name: &str) -> Vec<i32> {
        let tensors = SafeTensors::deserialize(&self.bytes).unwrap();
        let data = tensors.tensor(name).unwrap();
        data.data().chunks_exact(4).map(|b| i32::from_le_bytes(b.try_into().unwrap())).collect()
    }
}

#[test]
fn the_tokenizer_and_template_give_the_reference_ids() {
    let Some(loaded) = real::load_target(Dtype::F32, real::mtp_fp8()) else { return };
    for golden in real::golden() {
        let message = Message { role: Speaker::User, content: golden.prompt.clone() };
        let text = loaded.template.as_ref().unwrap().render(&[message]).unwrap();
        assert_eq!(loaded.codec.encode(&text).unwrap(), ids(&golden.prompt_ids), "{}", golden.prompt);
        let bytes: Vec<u8> =
            golden.prompt_ids.iter().flat_map(|id| loaded.codec.piece(TokenId(*id)).bytes.to_vec()).collect();
        assert_eq!(String::from_utf8(bytes).unwrap(), text);
    }
}

#[test]
fn target_logits_and_states_agree_in_f32() {
    let Some(loaded) = real::load_target(Dtype::F32, real::mtp_fp8()) else { return };
    let reference = Reference::open(real::fixture);
    for (i, parity) in real::parity_of(real::fixture).iter().enumerate() {
        let mut target = loaded.target.fork().unwrap();
        let out = target.forward(&ids(&parity.ids), LogitRows::All).unwrap();
        let hidden = relative(out.hidden.as_slice(), &reference.f32(&format!("{i}.hidden")));
        let last = relative(out.logits.last().unwrap(), &reference.f32(&format!("{i}.last_logits")));
        assert!(hidden < 2e-3 && last < 2e-3, "{}: hidden {hidden:e}, logits {last:e}", parity.prompt);
        let (top, values) = (reference.i32(&format!("{i}.top_ids")), reference.f32(&format!("{i}.top_values")));
        for (t, logits) in out.logits.iter().enumerate() {
            assert_eq!(argmax(logits), top[t * 32] as usize, "{}: top-1 at position {t}", parity.prompt);
            let got: Vec<f32> = top[t * 32..][..32].iter().map(|id| logits[*id as usize]).collect();
            assert!(relative(&got, &values[t * 32..][..32]) < 2e-3, "{}: position {t}", parity.prompt);
        }
    }
}

/// Runs the module over a parity prompt and then to depth 4; returns the relative difference of the logits at each depth.
/// The chain follows the drafts of the reference; `alike` counts how often the module's own first choice is the same.
fn mtp_differences(
    (recipe, fixture): (ModuleFile, Fixture),
    measure: fn(&[f32], &[f32]) -> f32,
) -> Option<(Vec<f32>, usize)> {
    let Loaded { mut target, mtp, .. } = real::load_target(Dtype::F32, recipe)?;
    let (mut module, _) = mtp.unwrap();
    target.set_tap(&module.tap()).unwrap();
    let reference = Reference::open(fixture);
    let (mut differences, mut alike) = (vec![0f32; 4], 0);
    for (i, parity) in real::parity_of(fixture).iter().enumerate() {
        let mut target = target.fork().unwrap();
        let states = target.forward(&ids(&parity.ids), LogitRows::Last).unwrap().hidden;
        module.truncate(0).unwrap();
        let mut tokens = ids(&parity.ids[1..]);
        tokens.push(TokenId(parity.next));
        let mut out = module.forward(&tokens, &states).unwrap();
        differences[0] =
            measure(out.hidden.as_slice(), &reference.f32(&format!("{i}.mtp1_hidden"))).max(differences[0]);
        for depth in 1..=4usize {
            let name = if depth == 1 { format!("{i}.mtp1_logits_last") } else { format!("{i}.mtp{depth}_logits") };
            let logits = out.logits.row(0);
            differences[depth - 1] = differences[depth - 1].max(measure(logits, &reference.f32(&name)));
            let drafted = TokenId(parity.drafted[depth - 1]);
            alike += usize::from(module.draft_vocab()[argmax(logits)] == drafted);
            let state = Rows::new(out.hidden.last().unwrap().to_vec(), out.hidden.width());
            out = module.forward(&[drafted], &state).unwrap();
        }
    }
    Some((differences, alike))
}

#[test]
fn mtp_logits_agree_at_depths_1_to_4() {
    let Some((differences, alike)) = mtp_differences((real::mtp_fp8(), real::fixture), relative) else { return };
    assert!(differences.iter().all(|d| *d < 2e-3), "{differences:?}");
    assert_eq!(alike, 12, "drafted tokens");
}

#[test]
fn the_built_in_modules_logits_agree_at_depths_1_to_4() {
    // the reference also has the three further layers and the tokens of the text
    let Some((differences, alike)) = mtp_differences((real::mtp_built_in(), real::built_in_fixture), relative) else {
        return;
    };
    println!("the built-in module by depth: {differences:?}");
    assert!(differences.iter().all(|d| *d < 2e-3), "{differences:?}");
    assert_eq!(alike, 12, "drafted tokens");
}

#[test]
fn bf16_weights_stay_within_their_rounding_error() {
    let Some((differences, alike)) = mtp_differences((real::mtp_bf16(), real::fixture), relative_rms) else { return };
    println!("bf16 against FP8 by depth: {differences:?}; {alike} of 12 drafts alike");
    // bf16 has 7 bits of mantissa: the root mean square error of a weight is at most 2⁻⁸/√3 = 0.23 %, and the input passes
    // four matrices in sequence
    assert!(differences.iter().all(|d| *d < 4.0 * 0.0023), "{differences:?}");
    assert!(alike >= 11, "only {alike} of 12 drafts alike");
    assert!(differences.iter().any(|d| *d > 1e-5), "the bf16 file was not read: {differences:?}");
}

/// Runs rounds until the output has `len` tokens or ends; returns the output, and the rounds as in golden.json.
fn run(decoder: &mut Decoder, prompt: &[TokenId], len: usize) -> (Vec<TokenId>, Vec<(Vec<u32>, usize)>) {
    let first = decoder.prefill(1, prompt).unwrap().first;
    let (mut output, mut rounds) = (vec![first.id], Vec::new());
    while output.len() < len && !output.contains(&TokenId(2)) {
        let mut drafted = Vec::new();
        let mut accepted = 0;
        let committed = decoder.round(&mut |event| {
            match event {
                EventKind::Drafted(Drafted { token, .. }) => drafted.push(token.id.0),
                EventKind::Verified { verdict, .. } => accepted = verdict.accepted(),
                _ => {}
            }
            Duration::ZERO
        });
        output.extend(committed.unwrap());
        rounds.push((drafted, accepted));
    }
    if let Some(end) = output.iter().position(|t| *t == TokenId(2)) {
        output.truncate(end + 1);
    }
    (output, rounds)
}

fn settings(draft_len: u8) -> Settings {
    Settings { draft_len, drafter: DrafterKind::Mtp, ..Settings::default() }
}

#[test]
fn greedy_golden_traces_are_repeated() {
    repeat_golden_traces(real::mtp_fp8(), real::fixture);
}

#[test]
fn the_built_in_modules_golden_traces_are_repeated() {
    repeat_golden_traces(real::mtp_built_in(), real::built_in_fixture);
}

fn repeat_golden_traces(recipe: ModuleFile, fixture: Fixture) {
    let Some(loaded) = real::load_target(Dtype::F32, recipe) else { return };
    let drafter: Box<dyn Drafter> = Box::new(MtpDrafter::new(loaded.mtp.unwrap().0));
    let mut decoder = Decoder::new(loaded.target, drafter, &settings(4));
    let (mut same, mut all, mut reported) = (0, 0, Vec::new());
    for golden in real::golden_of(fixture) {
        let (output, rounds) = run(&mut decoder, &ids(&golden.prompt_ids), 96);
        assert_eq!(output, ids(&golden.output_ids), "[{}] {}", golden.category, golden.prompt);
        assert_eq!(rounds.len(), golden.steps.len(), "{}", golden.prompt);
        for (i, ((drafted, accepted), step)) in rounds.iter().zip(&golden.steps).enumerate() {
            all += 1;
            if *drafted == step.drafted && *accepted == step.accepted {
                same += 1;
            } else {
                reported.push(format!(
                    "{} round {i}: {drafted:?}/{accepted} for {:?}/{}",
                    golden.prompt, step.drafted, step.accepted
                ));
            }
        }
    }
    println!("{same} of {all} rounds alike; others:\n{}", reported.join("\n"));
    assert!(same * 100 >= all * 98, "{same} of {all} rounds alike: {reported:?}");
}

#[test]
fn speculation_does_not_change_greedy_output_on_ten_prompts() {
    let Some(loaded) = real::load_target(Dtype::F32, real::mtp_fp8()) else { return };
    let plain_target = loaded.target.fork().unwrap();
    let mut plain = Decoder::new(plain_target, Box::new(NoDrafter), &settings(0));
    let drafter: Box<dyn Drafter> = Box::new(MtpDrafter::new(loaded.mtp.unwrap().0));
    let mut speculative = Decoder::new(loaded.target, drafter, &settings(1));
    for (i, golden) in real::golden().iter().step_by(2).enumerate() {
        let prompt = ids(&golden.prompt_ids);
        let (want, _) = run(&mut plain, &prompt, 40);
        speculative.set(&settings(1 + (i % 8) as u8));
        let (got, _) = run(&mut speculative, &prompt, 40);
        let len = want.len().min(got.len());
        assert_eq!(got[..len], want[..len], "{} at k = {}", golden.prompt, 1 + i % 8);
    }
}

#[test]
fn native_speculation_gives_the_plain_text_for_every_prompt_and_k() {
    let Some(loaded) = real::load_native() else { return };
    let mut plain = Decoder::new(loaded.target.fork().unwrap(), Box::new(NoDrafter), &settings(0));
    let drafter: Box<dyn Drafter> = Box::new(MtpDrafter::new(loaded.mtp.unwrap().0));
    let mut speculative = Decoder::new(loaded.target, drafter, &settings(1));
    for golden in real::golden() {
        let prompt = ids(&golden.prompt_ids);
        let (want, _) = run(&mut plain, &prompt, 64);
        for k in [1, 2, 3, 4, 6, 8, 15] {
            speculative.set(&settings(k));
            let (got, _) = run(&mut speculative, &prompt, 64);
            let len = want.len().min(got.len());
            assert_eq!(got[..len], want[..len], "{} at k = {k}", golden.prompt);
        }
    }
}

/// Rounds of the default drafter follow from the text and from fixed costs, so that they are the same in every run.
#[test]
fn the_default_drafter_writes_the_same_rounds_in_every_run() {
    let answers = || {
        let (target, drafter_set) = drafter_set()?;
        let settings = Settings { draft_len: 2, ..Settings::default() };
        let mut decoder = Decoder::new(target, Box::new(drafter_set), &settings);
        let mut answer = |golden: &real::Golden| {
            // it is asked again for what it wrote before, so that there is much to copy
            let text = [&golden.prompt_ids[..], &golden.output_ids[..24], &golden.prompt_ids[..]].concat();
            run(&mut decoder, &ids(&text), 40)
        };
        Some(real::golden().iter().step_by(5).map(&mut answer).collect::<Vec<_>>())
    };
    let (Some(first), Some(second)) = (answers(), answers()) else { return };
    assert_eq!(first, second);
    let rounds = || first.iter().flat_map(|(_, rounds)| rounds).map(|(drafts, _)| drafts.len());
    assert!(rounds().any(|drafts| drafts > 2), "copies are more than k");
    assert!(rounds().any(|drafts| drafts == 2), "the module drafts k");
}

/// The module and the draft model on the native backend; the draft model is the target's own file.
fn drafter_set() -> Option<(Box<dyn Model>, DrafterSet)> {
    let loaded = real::load_native_with_draft_model()?;
    let mut drafter_set = DrafterSet::default();
    drafter_set.add(DrafterKind::Mtp, Box::new(MtpDrafter::new(loaded.mtp.unwrap().0)));
    drafter_set.add(DrafterKind::DraftModel, Box::new(ModelDrafter::new(loaded.draft_model.unwrap().unwrap().0)));
    Some((loaded.target, drafter_set))
}

/// With `DRAFTSCOPE_IDENTITY=long`, all prompts and every k run, for up to an hour.
fn is_long() -> bool {
    std::env::var("DRAFTSCOPE_IDENTITY").is_ok_and(|v| v == "long")
}

#[test]
fn every_drafter_tree_and_lossless_rule_gives_the_plain_text_on_the_real_model() {
    let Some((target, drafter_set)) = drafter_set() else { return };
    let mut plain = Decoder::new(target.fork().unwrap(), Box::new(NoDrafter), &settings(0));
    let mut decoder = Decoder::new(target, Box::new(drafter_set), &settings(1));
    let (golden, long) = (real::golden(), is_long());
    let (ks, every, len): (&[u8], _, _) = if long { (&[1, 2, 3, 4, 6, 8], 1, 96) } else { (&[2, 5], 8, 40) };
    let rules = [VerifyRule::Exact, VerifyRule::Rejection, VerifyRule::Block];
    let (mut answers, mut drafted) = (0, 0);
    for (number, golden) in golden.iter().step_by(every).enumerate() {
        let prompt = ids(&golden.prompt_ids);
        let (want, _) = run(&mut plain, &prompt, len);
        let kinds = DrafterKind::ALL.iter().map(|kind| (*kind, None));
        let trees = [4, 15].map(|nodes| (DrafterKind::Mtp, Some(nodes)));
        for (index, (drafter, tree)) in kinds.chain(trees).enumerate() {
            for (i, k) in ks.iter().enumerate() {
                let rule = rules[(number + index + i) % rules.len()]; // if greedy, every rule is `exact`
                let drafting = Drafting { tree, ..Drafting::default() };
                decoder.set(&Settings { drafter, drafting, rule, ..settings(*k) });
                let (got, rounds) = run(&mut decoder, &prompt, len);
                let shared = want.len().min(got.len());
                assert_eq!(got[..shared], want[..shared], "{}: {drafter}, tree {tree:?}, k = {k}", golden.prompt);
                answers += 1;
                drafted += rounds.iter().map(|(drafts, _)| drafts.len()).sum::<usize>();
            }
        }
    }
    println!("{answers} answers with {drafted} drafts, all equal to plain decoding");
    assert!(decoder.take_notices().is_empty());
}

#[test]
fn a_stack_of_native_modules_drafts_and_does_not_change_the_text() {
    let stack = real::mtp_stack_of_two();
    let half = ModuleFile { weights: real::mtp_fp8().weights, ..stack.clone() };
    let Some(lacking) = real::load_native_with(half) else { return };
    let error = lacking.err().unwrap().to_string();
    assert!(error.contains("mtp.layers.1."), "{error}");
    let loaded = real::load_native_with(stack).unwrap().unwrap();
    let mut plain = Decoder::new(loaded.target.fork().unwrap(), Box::new(NoDrafter), &settings(0));
    assert_eq!(loaded.deeper.len(), 1);
    let modules = std::iter::once(loaded.mtp.unwrap().0).chain(loaded.deeper).collect();
    let mut decoder = Decoder::new(loaded.target, Box::new(MtpDrafter::stack(modules)), &settings(3));
    let mut accepted = 0;
    for golden in real::golden().iter().step_by(8) {
        let prompt = ids(&golden.prompt_ids);
        let (want, _) = run(&mut plain, &prompt, 40);
        let (got, rounds) = run(&mut decoder, &prompt, 40);
        let shared = want.len().min(got.len());
        assert_eq!(got[..shared], want[..shared], "{}", golden.prompt);
        accepted += rounds.iter().map(|(_, accepted)| accepted).sum::<usize>();
    }
    assert!(accepted > 10, "the first module drafts as it does alone: {accepted}");
}

#[test]
fn a_tree_and_the_target_as_draft_model_commit_more_per_round() {
    let Some((target, drafter_set)) = drafter_set() else { return };
    let mut decoder = Decoder::new(target, Box::new(drafter_set), &settings(3));
    let mut per_round = |settings: Settings| {
        decoder.set(&settings);
        let golden = real::golden();
        let rounds = golden.iter().step_by(8).map(|golden| run(&mut decoder, &ids(&golden.prompt_ids), 48).1);
        let accepted: Vec<usize> = rounds.flatten().map(|(_, accepted)| accepted + 1).collect();
        accepted.iter().sum::<usize>() as f64 / accepted.len() as f64
    };
    let tree = |nodes| Settings { drafting: Drafting { tree: nodes, ..Drafting::default() }, ..settings(3) };
    let (chain, wide) = (per_round(tree(None)), per_round(tree(Some(12))));
    let own = per_round(Settings { drafter: DrafterKind::DraftModel, ..settings(3) });
    println!("tokens per round at k = 3: chain {chain:.2}, tree of 12 nodes {wide:.2}, own file {own:.2}");
    assert!(wide > chain + 0.1 && own > 3.9, "chain {chain}, tree {wide}, own file {own}");
}

/// Tokens and time of answers in which the engine chooses drafts, at these costs of passes: acceptance is real, time is counted.
fn chosen(
    decoder: &mut Decoder,
    (drafter, rule, row): (DrafterKind, VerifyRule, f64),
    prompts: &[(Vec<TokenId>, Vec<TokenId>)],
) -> (f64, f64, usize) {
    let verify_us: Vec<f64> = (0..9).map(|rows| 1000.0 * (1.0 + row * f64::from(rows))).collect();
    let costs = Costs { verify_us, draft_us: 90.0, overhead_us: 20.0, ..Costs::default() };
    let mut policy = Policy::new(costs, 4);
    let (mut tokens, mut spent_us, mut alternatives) = (0, 0.0, 0);
    for (prompt, want) in prompts {
        decoder.set(&Settings { drafter, rule, draft_len_mode: DraftLenMode::Auto, ..settings(4) });
        decoder.prefill(1, prompt).unwrap();
        policy.begin_answer();
        while decoder.committed().len() < prompt.len() + want.len() {
            let draft_len = policy.choose().draft_len;
            decoder.set_draft_len(draft_len as u8);
            decoder.set_stop_rule(Some(policy.stop_rule(draft_len)));
            let mut seen = Observation::default();
            let mut passes = 0.0_f64;
            let committed = decoder.round(&mut |event| {
                match event {
                    EventKind::Drafted(Drafted { row: None, copied: None, .. }) | EventKind::DraftStopped(_) => {
                        passes += 1.0;
                    }
                    _ => {}
                }
                seen.on_event(&event);
                Duration::ZERO
            });
            tokens += committed.unwrap().len();
            // a copied chain may be longer than what was timed
            seen.verify_us = 1000.0 * (1.0 + row * (seen.drafted + seen.alternatives) as f64);
            (seen.first_draft_us, seen.draft_us) = (90.0 * passes.min(1.0), 90.0 * passes);
            seen.round_us = seen.verify_us + seen.draft_us + 20.0;
            spent_us += seen.round_us;
            alternatives += seen.alternatives;
            policy.observe(&seen);
        }
        let got = &decoder.committed()[prompt.len()..];
        assert_eq!(got[..want.len()], want[..], "{rule}, {row}");
    }
    (tokens as f64, spent_us, alternatives)
}

#[test]
fn alternatives_gain_more_than_their_rows_cost() {
    let Some((target, drafter_set)) = drafter_set() else { return };
    let mut plain = Decoder::new(target.fork().unwrap(), Box::new(NoDrafter), &settings(0));
    let golden = real::golden();
    let prompts: Vec<_> = golden.iter().step_by(4).map(|golden| ids(&golden.prompt_ids)).collect();
    let prompts: Vec<_> = prompts.into_iter().map(|prompt| (prompt.clone(), run(&mut plain, &prompt, 64).0)).collect();
    let mut decoder = Decoder::new(target, Box::new(drafter_set), &settings(4));
    let (module, stacked) = (DrafterKind::Mtp, "suffix+mtp".parse().unwrap());
    for (drafter, row) in [(module, 0.015), (module, 0.04), (module, 0.12), (stacked, 0.04)] {
        // greedy chains are judged alike by both rules, and only `exact` gets alternatives
        let rules = [VerifyRule::Block, VerifyRule::Exact];
        let [chains, trees] = rules.map(|rule| chosen(&mut decoder, (drafter, rule, row), &prompts));
        let rate = |(tokens, spent_us, _): (f64, f64, usize)| tokens / spent_us;
        let gain = rate(trees) / rate(chains);
        println!("{drafter}, a row costs {row} passes: {} alternatives, {gain:.3} times the speed of chains", trees.2);
        assert_eq!(chains.2, 0);
        assert!(trees.2 > 0 || row > 0.1);
        assert!(gain > 0.99, "{drafter}, a row costs {row}: {gain}");
    }
}

#[test]
fn the_native_backend_accepts_as_much_as_the_reference() {
    accepts_as_much(real::mtp_fp8(), real::fixture);
}

#[test]
fn the_built_in_module_is_accepted_as_often_as_in_the_reference() {
    accepts_as_much(real::mtp_built_in(), real::built_in_fixture);
}

/// The native backend uses the file's weights, 8-bit activations and 4-bit blocks for a module's matrices: texts may differ
/// at near ties, but acceptance must stay the same.
fn accepts_as_much(recipe: ModuleFile, fixture: Fixture) {
    let Some(loaded) = real::load_native_with(recipe).map(Result::unwrap) else { return };
    let drafter: Box<dyn Drafter> = Box::new(MtpDrafter::new(loaded.mtp.unwrap().0));
    let mut decoder = Decoder::new(loaded.target, drafter, &settings(4));
    let (mut tokens, mut rounds, mut reference) = (0, 0, (0, 0));
    for golden in real::golden_of(fixture) {
        let (_, ran) = run(&mut decoder, &ids(&golden.prompt_ids), 96);
        tokens += ran.iter().map(|(_, accepted)| accepted + 1).sum::<usize>();
        rounds += ran.len();
        reference.0 += golden.steps.iter().map(|s| s.accepted + 1).sum::<usize>();
        reference.1 += golden.steps.len();
    }
    let (got, want) = (tokens as f64 / rounds as f64, reference.0 as f64 / reference.1 as f64);
    println!("tokens per round: native {got:.3}, f32 reference {want:.3}");
    assert!((got - want).abs() < 0.08 * want, "tokens per round: native {got:.3}, reference {want:.3}");
}

/// KL(p ‖ q) in nats of two rows of logits.
fn divergence(p: &[f32], q: &[f32]) -> f64 {
    let log_sum = |row: &[f32]| {
        let max = f64::from(row.iter().fold(f32::NEG_INFINITY, |m, x| m.max(*x)));
        max + row.iter().map(|x| (f64::from(*x) - max).exp()).sum::<f64>().ln()
    };
    let (zp, zq) = (log_sum(p), log_sum(q));
    p.iter().zip(q).map(|(p, q)| (f64::from(*p) - zp).exp() * ((f64::from(*p) - zp) - (f64::from(*q) - zq))).sum()
}

/// How close rows of logits are to the reference.
#[derive(Default)]
struct Nearness {
    divergence: f64,
    alike: u32,
    rows: u32,
}

impl Nearness {
    fn add(&mut self, want: &[f32], got: &[f32]) {
        self.divergence += divergence(want, got);
        self.alike += u32::from(argmax(got) == argmax(want));
        self.rows += 1;
    }

    /// Mean KL divergence in nats, and share of rows with the same best token.
    fn mean(&self) -> (f64, f64) {
        (self.divergence / f64::from(self.rows), f64::from(self.alike) / f64::from(self.rows))
    }
}

/// The next row of llama.cpp's logits on the same texts (`benches/peers/accuracy.sh`).
fn next_row(file: &mut impl Read, vocab: usize) -> Vec<f32> {
    let mut bytes = vec![0; 4 * vocab];
    file.read_exact(&mut bytes).unwrap();
    bytes.as_chunks().0.iter().map(|bytes| f32::from_ne_bytes(*bytes)).collect()
}

#[test]
fn the_native_backend_is_near_f32_on_real_text() {
    let loaded = [(Backend::Native, Dtype::Auto), (Backend::Candle, Dtype::F32)];
    let [Some(native), Some(exact)] = loaded.map(|(backend, dtype)| real::load_near(backend, dtype)) else {
        return;
    };
    let mut peer = std::env::var_os("DRAFTSCOPE_PEER_LOGITS").map(|path| BufReader::new(File::open(path).unwrap()));
    let (mut ours, mut theirs) = (Nearness::default(), Nearness::default());
    for golden in real::golden().iter().step_by(4) {
        let text: Vec<TokenId> = ids(&golden.prompt_ids).into_iter().chain(ids(&golden.output_ids)).collect();
        let got = native.target.fork().unwrap().forward(&text, LogitRows::All).unwrap().logits;
        let want = exact.target.fork().unwrap().forward(&text, LogitRows::All).unwrap().logits;
        for (got, want) in got.iter().zip(want.iter()) {
            ours.add(want, got);
            if let Some(peer) = &mut peer {
                theirs.add(want, &next_row(peer, want.len()));
            }
        }
    }
    let (kl, agreement) = ours.mean();
    println!("{} positions: mean KL to f32 {kl:.2e}, top-1 agreement {agreement:.4}", ours.rows);
    let peer_agreement = peer.map(|_| {
        let (kl, agreement) = theirs.mean();
        println!("llama.cpp on the same texts: mean KL to f32 {kl:.2e}, top-1 agreement {agreement:.4}");
        agreement
    });
    assert!(kl <= 6e-3, "mean KL {kl:e}");
    assert!(agreement >= 0.96, "top-1 agreement {agreement}");
    if let Some(peer_agreement) = peer_agreement {
        assert!(agreement >= peer_agreement, "top-1 agreement {agreement}, llama.cpp's {peer_agreement}");
    }
}
