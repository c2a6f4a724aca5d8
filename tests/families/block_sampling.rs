//! Block drafters at a temperature: what rounds commit follows the target's distribution.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use draftscope::engine::speculate::decoder::Decoder;
use draftscope::engine::speculate::drafter::{DraftCtx, Drafter};
use draftscope::engine::speculate::sampler::{LogitRow, Sampler};
use draftscope::model::block_module::BlockModule;
use draftscope::model::{ModelError, Rows, Tap};
use draftscope::protocol::random::Purpose;
use draftscope::protocol::verify::Draft;
use draftscope::protocol::{EventKind, Sampling, Settings, VerifyRule};

use crate::block::{Pair, drafter, pair, text};
use crate::common::chi_square::{ChiSquare, ONCE_IN_10_000, ONCE_IN_A_MILLION};
use crate::decode::NoDrafter;
use crate::support::{Backend, Checkpoint, LogitRows, Model, TokenId, copy, path, rewrite};

/// The first token of an answer, which the prompt's pass gives, and the two after it.
type Start = [TokenId; 3];

/// Cold enough that the tokens listed differ in probability, so that another temperature shows.
const SAMPLING: Sampling = Sampling { temperature: 0.3, top_k: 4, top_p: 1.0, min_p: 0.0, seed: 0 };

const SAMPLES: u64 = 800;

/// Length of the prompt.
const PROMPT: usize = 9;

/// Probability of each start, from the target alone.
fn expected(target: &dyn Model, prompt: &[TokenId]) -> BTreeMap<Start, f64> {
    let sampler = Sampler { sampling: SAMPLING };
    let mut starts = vec![(Vec::new(), 1.0)];
    for _ in 0..3 {
        let mut longer = Vec::new();
        for (start, prob) in starts {
            let mut target = target.fork().unwrap();
            target.truncate(0, &Checkpoint { len: 0 }).unwrap();
            let out = target.forward(&[prompt, &start].concat(), LogitRows::Last).unwrap();
            let next = sampler.distribution(&LogitRow::of(&out, 0, None), None, 0).unwrap();
            let one_more = |(token, p): (TokenId, f32)| ([&start[..], &[token]].concat(), prob * f64::from(p));
            longer.extend(next.entries().map(one_more));
        }
        starts = longer;
    }
    starts.into_iter().map(|(start, prob)| (start.try_into().unwrap(), prob)).collect()
}

/// A target with a block drafter, and what its answers must begin with.
pub struct Bench {
    pair: Pair,
    expected: BTreeMap<Start, f64>,
}

/// The DFlash 2 fixture with a selector that contradicts the logits, so that candidates become about equally probable.
fn contradicting() -> tempfile::TempDir {
    let folder = copy("dflash2");
    rewrite(folder.path(), |tensor| {
        if tensor.name == "candidate_selector.predecessor_codebook" {
            for bytes in tensor.data.as_chunks_mut().0 {
                *bytes = half::bf16::from_f32(-0.75 * half::bf16::from_le_bytes(*bytes).to_f32()).to_le_bytes();
            }
        }
        true
    });
    folder
}

impl Bench {
    pub fn of(draft: &Path) -> Self {
        let pair = pair(draft, Backend::Native);
        let expected = expected(pair.target.as_ref(), &text()[..PROMPT]);
        Self { pair, expected }
    }

    /// What rounds commit with this drafter follows the target's distribution.
    pub fn follows(&self, drafter: Box<dyn Drafter>, rule: VerifyRule, first_seed: u64) {
        let (test, accepted) = self.compare(drafter, &settings(rule), first_seed);
        println!("{rule}: {test:?}, {accepted} accepted");
        assert!(accepted > SAMPLES as usize / 4 && !test.exceeds(ONCE_IN_10_000), "{rule}: {test:?}, {accepted}");
    }

    /// Compares what so many seeds from this one on give with what is expected; counts accepted drafts, too.
    fn compare(&self, drafter: Box<dyn Drafter>, settings: &Settings, first_seed: u64) -> (ChiSquare, usize) {
        let mut decoder = Decoder::new(self.pair.target.fork().unwrap(), drafter, settings);
        let (mut counts, mut accepted) = (BTreeMap::<Start, f64>::new(), 0);
        for seed in first_seed..first_seed + SAMPLES {
            decoder.set(&Settings { sampling: Sampling { seed, ..settings.sampling }, ..*settings });
            decoder.prefill(1, &text()[..PROMPT]).unwrap();
            while decoder.committed().len() < PROMPT + 3 {
                let round = decoder.round(&mut |event| {
                    if let EventKind::Verified { verdict, .. } = event {
                        accepted += verdict.accepted();
                    }
                    Duration::ZERO
                });
                round.unwrap();
            }
            let start: Start = decoder.committed()[PROMPT..PROMPT + 3].try_into().unwrap();
            assert!(self.expected.contains_key(&start), "the target never begins with {start:?}");
            *counts.entry(start).or_default() += 1.0;
        }
        let count = |start: &Start| counts.get(start).copied().unwrap_or(0.0);
        let cells = self.expected.iter().map(|(start, prob)| (count(start), prob * SAMPLES as f64));
        (ChiSquare::against(cells), accepted)
    }
}

fn settings(rule: VerifyRule) -> Settings {
    Settings {
        draft_len: 3,
        rule,
        sampling: SAMPLING,
        drafter: draftscope::protocol::DrafterKind::Mtp,
        ..Settings::default()
    }
}

#[test]
fn lossless_rules_commit_what_plain_decoding_draws() {
    let contrary = contradicting();
    let [dflash, dspark, dflash2] = ["dflash", "dspark", "dflash2"].map(path);
    for (draft, seed, least) in [
        (dflash.as_path(), 0, SAMPLES / 4),
        (&dspark, 100_000, SAMPLES / 4),
        (&dflash2, 500_000, SAMPLES / 4),
        (contrary.path(), 800_000, SAMPLES / 8),
    ] {
        let (bench, file) = (Bench::of(draft), draft.display());
        let plain = Settings { draft_len: 0, ..settings(VerifyRule::Rejection) };
        let (plain, _) = bench.compare(Box::new(NoDrafter), &plain, seed + 10_000);
        assert!(!plain.exceeds(ONCE_IN_10_000) && plain.freedom > 10.0, "{file}, plain: {plain:?}");
        for (rule, first) in [(VerifyRule::Rejection, 20_000), (VerifyRule::Block, 30_000)] {
            let block = drafter(bench.pair.block.as_ref());
            let (test, accepted) = bench.compare(block, &settings(rule), seed + first);
            println!("{file}, {rule}: {test:?}, {accepted} accepted");
            assert!(accepted > least as usize, "{file}, {rule}: {accepted} accepted drafts prove nothing");
            assert!(!test.exceeds(ONCE_IN_10_000), "{file}, {rule}: {test:?}");
        }
    }
}

#[test]
fn another_temperature_and_a_rule_that_is_not_lossless_are_detected() {
    for (file, seed) in [("dflash", 200_000), ("dspark", 300_000), ("dflash2", 600_000)] {
        let bench = Bench::of(&path(file));
        let warmer = Sampling { temperature: 1.5 * SAMPLING.temperature, ..SAMPLING };
        let cases = [
            ("warmer", Settings { sampling: warmer, ..settings(VerifyRule::Rejection) }),
            ("warmer", Settings { sampling: warmer, ..settings(VerifyRule::Block) }),
            ("typical", settings(VerifyRule::Typical)),
        ];
        for ((what, settings), first) in cases.into_iter().zip([10_000, 20_000, 30_000]) {
            let (test, _) = bench.compare(drafter(bench.pair.block.as_ref()), &settings, seed + first);
            println!("{file}, {what}: {test:?}");
            assert!(test.exceeds(ONCE_IN_A_MILLION), "{file}, {what}: {test:?}");
        }
    }
}

/// Draws a token from the corrected logits, or from the candidates that a selector scored, and gives q before that: the fault
/// that rejection sampling would not forgive a DSpark or a DFlash 2 drafter.
struct Uncorrected(Box<dyn BlockModule>);

impl Drafter for Uncorrected {
    fn tap(&self) -> Tap {
        self.0.tap()
    }

    fn observe(&mut self, _tokens: &[TokenId], hidden: &Rows) -> Result<(), ModelError> {
        self.0.inject(hidden)
    }

    fn rewind(&mut self, len: usize) -> Result<(), ModelError> {
        self.0.truncate(len.min(self.0.len()))
    }

    fn draft(&mut self, ctx: &mut DraftCtx<'_>) -> Result<(), ModelError> {
        let mut before = *ctx.committed.last().unwrap();
        let logits = self.0.draft(before, ctx.limit())?;
        for (depth, row) in logits.iter().enumerate() {
            let mut corrected = row.to_vec();
            self.0.correct(&mut corrected, before)?;
            let chosen = self.0.select(depth, row, before)?;
            let (logits, tokens) = match &chosen {
                Some(candidates) => (&candidates.scores[..], Some(&candidates.tokens[..])),
                None => (&corrected[..], None),
            };
            let [stated, drawn] = [(row, None), (logits, tokens)].map(|(logits, vocab)| {
                ctx.sampler.distribution(&LogitRow { logits, vocab, stats: None }, None, 0).unwrap()
            });
            before = drawn.pick(ctx.round.draw(Purpose::Draft, depth));
            ctx.propose(Draft::drawn(before, stated));
        }
        Ok(())
    }

    fn fork(&self) -> Result<Box<dyn Drafter>, ModelError> {
        Ok(Box::new(Self(self.0.fork()?)))
    }
}

#[test]
fn a_q_without_the_correction_is_detected() {
    let contrary = contradicting();
    for (draft, seed) in [(path("dspark").as_path(), 400_000), (contrary.path(), 700_000)] {
        let (bench, file) = (Bench::of(draft), draft.display());
        let wrong = Box::new(Uncorrected(bench.pair.block.fork().unwrap()));
        let (test, _) = bench.compare(wrong, &settings(VerifyRule::Rejection), seed);
        println!("{file}: {test:?}");
        assert!(test.exceeds(ONCE_IN_A_MILLION), "{file}: {test:?}");
    }
}
