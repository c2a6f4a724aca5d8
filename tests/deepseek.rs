//! DeepSeek-V3's layout (latent attention, experts, a stack of draft modules) and GLM-4.7-Flash, which shares it, against
//! the layers of `transformers` (see `fixtures/checkpoints/README.md`): logits, every convention of the modules, caches
//! that are cut back, texts that speculation does not change, and what damaged folders say.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

mod common;

use std::path::PathBuf;

use common::checkpoint::{Golden, path, recipe};
use draftscope::model::load::{Backend, Loaded, MtpRecipe, Recipe, load};
use draftscope::model::{LogitRows, MtpModule, Rows};
use draftscope::protocol::TokenId;

/// As the program asks for it: with the module that comes with the program, which does not fit this target.
fn asked(folder: PathBuf, backend: Backend) -> Recipe {
    let other =
        MtpRecipe { name: "built in".into(), weights: [].into(), config: [].into(), sha256: None, required: false };
    Recipe { mtp: Some(other), ..recipe(folder, backend) }
}

fn open(name: &str, backend: Backend) -> Loaded {
    let loaded = load(&asked(path(name), backend), &mut |_, _, _| {}).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(loaded.notice, None, "{name}");
    loaded
}

/// The modules, the first first.
fn modules(loaded: &mut Loaded) -> Vec<Box<dyn MtpModule>> {
    loaded.mtp.take().into_iter().map(|(module, _)| module).chain(std::mem::take(&mut loaded.deeper)).collect()
}

fn farthest(got: &[f32], want: &[f32]) -> f32 {
    assert_eq!(got.len(), want.len());
    got.iter().zip(want).map(|(got, want)| (got - want).abs()).fold(0.0, f32::max)
}

/// Root mean square of the differences, relative to the reference's.
fn difference(got: &[f32], want: &[f32]) -> f64 {
    assert_eq!(got.len(), want.len());
    let square = |x: f32| f64::from(x) * f64::from(x);
    let error: f64 = got.iter().zip(want).map(|(got, want)| square(got - want)).sum();
    (error / want.iter().map(|want| square(*want)).sum::<f64>()).sqrt()
}

/// Fixture and backend, and how far logits may be off: FP8 is held as bf16 (2⁻⁹) by the native kernels, where a choice
/// of experts may also turn round.
const RUNS: [(&str, Backend, f32); 4] = [
    ("deepseek", Backend::Candle, 1e-4),
    ("deepseek-fp8", Backend::Candle, 1e-4),
    ("glm4-flash", Backend::Candle, 1e-4),
    ("deepseek", Backend::Native, 1e-4),
];

#[test]
fn logits_and_states_are_those_of_the_oracle_in_one_pass_and_one_by_one() {
    for (name, backend, most) in RUNS {
        let golden = Golden::of(name);
        let tokens = golden.tokens("tokens");
        let mut target = open(name, backend).target;
        assert_eq!(target.spec().backend, if backend == Backend::Native { "native" } else { "candle" });
        let mut alone = target.fork().unwrap();
        let out = target.forward(&tokens, LogitRows::All).unwrap();
        let mut singles = Vec::new();
        for token in &tokens {
            singles.extend_from_slice(alone.forward(&[*token], LogitRows::All).unwrap().logits.row(0));
        }
        let (logits, hidden) = (golden.numbers("logits"), golden.numbers("hidden"));
        for (what, got, want) in [
            ("logits", out.logits.as_slice(), &logits),
            ("logits one by one", &singles, &logits),
            ("states", out.hidden.as_slice(), &hidden),
        ] {
            let off = farthest(got, want);
            println!("{name} on {backend:?}, {what}: off by {off:.1e}");
            assert!(off < most, "{name} on {backend:?}, {what}: off by {off}");
        }
    }
    // held as bf16
    let golden = Golden::of("deepseek-fp8");
    let mut target = open("deepseek-fp8", Backend::Native).target;
    assert_eq!(target.spec().dtype, "bf16");
    let off = difference(
        target.forward(&golden.tokens("tokens"), LogitRows::All).unwrap().logits.as_slice(),
        &golden.numbers("logits"),
    );
    println!("deepseek-fp8 as bf16: off by {off:.1e}");
    assert!(off < 0.05, "{off}");
}

/// Logits of a stack behind the tokens at depths 1 to 3, each drafting its best: module d over module d − 1's output and
/// the tokens d places further on, the last one again behind the stack.
fn drafted(modules: &mut [Box<dyn MtpModule>], tokens: &[TokenId], hidden: &Rows) -> (Vec<f32>, Vec<TokenId>) {
    let (mut drafts, mut logits, mut states) = (Vec::new(), Vec::new(), hidden.clone());
    let stack = modules.len();
    for depth in 0..3 {
        let module = &mut modules[depth.min(stack - 1)];
        let out = if depth < stack {
            let read: Vec<TokenId> = tokens[1 + depth..].iter().chain(&drafts).copied().collect();
            module.forward(&read, &states).unwrap()
        } else {
            module.forward(&drafts[depth - 1..], &states.last_row()).unwrap()
        };
        let row = out.logits.row(0);
        let best = (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap();
        logits.extend_from_slice(row);
        drafts.push(module.draft_vocab()[best]);
        states = out.hidden;
    }
    modules.iter_mut().for_each(|module| module.truncate(0).unwrap());
    (logits, drafts)
}

#[test]
fn modules_compute_what_the_oracle_does_at_every_depth_and_in_stacks_of_every_height() {
    for (name, backend, most) in RUNS {
        let golden = Golden::of(name);
        let tokens = golden.tokens("tokens");
        let mut loaded = open(name, backend);
        let mut modules = modules(&mut loaded);
        assert_eq!(modules.len(), if name == "deepseek" { 3 } else { 1 });
        let hidden = loaded.target.forward(&tokens[..tokens.len() - 1], LogitRows::Last).unwrap().hidden;
        let mut alone = modules[0].fork().unwrap();
        let slots = (1..tokens.len()).map(|at| alone.forward(&tokens[at..=at], &hidden.slice(at - 1..at)).unwrap());
        let slots: Vec<f32> = slots.flat_map(|slot| slot.logits.row(0).to_vec()).collect();
        let states = modules[0].forward(&tokens[1..], &hidden).unwrap().hidden;
        modules[0].truncate(0).unwrap();
        let off = [
            farthest(&slots, &golden.numbers("mtp.logits")),
            farthest(states.as_slice(), &golden.numbers("mtp.hidden")),
        ];
        println!("{name} on {backend:?}, module by slots: off by {off:?}");
        assert!(off.iter().all(|off| *off < most), "{name}: {off:?}");
        for height in 1..=modules.len() {
            let (logits, drafts) = drafted(&mut modules[..height], &tokens, &hidden);
            let off = farthest(&logits, &golden.numbers(&format!("mtp{height}.deeper")));
            println!("{name} on {backend:?}, {height} modules, depths 1 to 3: off by {off:.1e}");
            assert!(off < most, "{name}, {height} modules: off by {off}");
            assert_eq!(drafts, golden.tokens(&format!("mtp{height}.drafts")));
        }
    }
}
