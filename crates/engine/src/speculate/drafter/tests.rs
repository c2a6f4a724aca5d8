//! Tests drafters with fake models whose numbers can be computed by hand.

use super::*;
use draftscope_model::block_module::BlockModule;
use draftscope_model::{Checkpoint, DraftModule, LogitRows, ModelSpec};
use draftscope_protocol::policy::{DraftStopRule, Policy};
use draftscope_protocol::random::SeededDraws;
use draftscope_protocol::{Costs, DrafterKind, ModelInfo, Sampling};

const VOCAB: u32 = 16;

/// A target that is never run.
pub(super) struct Idle(ModelSpec);

pub(super) fn idle() -> Idle {
    let info = ModelInfo { vocab: VOCAB, layers: 3, ..ModelInfo::default() };
    Idle(ModelSpec { info, ctx_len: 64, backend: "fake", device: "cpu".into(), dtype: "none".into(), threads: 1 })
}

impl Model for Idle {
    fn spec(&self) -> &ModelSpec {
        &self.0
    }
    fn len(&self) -> usize {
        0
    }
    fn forward(&mut self, _: &[TokenId], _: LogitRows) -> Result<Forward, ModelError> {
        Err(ModelError::Unsupported("never run".into()))
    }
    fn checkpoint(&self) -> Result<Checkpoint, ModelError> {
        Ok(Checkpoint { len: 0 })
    }
    fn truncate(&mut self, _: usize, _: &Checkpoint) -> Result<(), ModelError> {
        Ok(())
    }
    fn fork(&self) -> Result<Box<dyn Model>, ModelError> {
        Err(ModelError::Unsupported("never run".into()))
    }
}

/// Output of a fake module for a slot: a small integer, so that nothing is rounded.
fn mixed(number: usize, token: TokenId, state: f32, before: f32) -> f32 {
    (state * 5.0 + token.0 as f32 * 3.0 + before * 7.0 + number as f32 * 11.0 + 1.0) % 101.0
}

/// A module whose output depends on all slots in its cache, so that every wrong slot changes it.
struct Fake {
    number: usize,
    slots: Vec<f32>,
    vocab: Vec<TokenId>,
}

fn fake(number: usize) -> Box<dyn DraftModule> {
    Box::new(Fake { number, slots: Vec::new(), vocab: (0..VOCAB).map(TokenId).collect() })
}

fn logits(value: f32) -> Vec<f32> {
    (0..VOCAB).map(|t| ((value + t as f32 * 13.0) % 17.0) / 4.0).collect()
}

impl DraftModule for Fake {
    fn len(&self) -> usize {
        self.slots.len()
    }
    fn forward(&mut self, tokens: &[TokenId], hidden: &Rows) -> Result<Forward, ModelError> {
        assert_eq!(tokens.len(), hidden.len());
        let start = self.slots.len();
        for (token, state) in tokens.iter().zip(hidden.iter()) {
            let before = self.slots.iter().sum::<f32>() % 101.0;
            self.slots.push(mixed(self.number, *token, state[0], before));
        }
        let last = *self.slots.last().unwrap();
        if last == 13.0 && self.number == 9 {
            return Err(ModelError::NotFinite { position: start });
        }
        Ok(Forward {
            logits: Rows::new(logits(last), VOCAB as usize),
            hidden: Rows::new(self.slots[start..].to_vec(), 1),
            stats: Vec::new(),
        })
    }
    fn truncate(&mut self, len: usize) -> Result<(), ModelError> {
        assert!(len <= self.slots.len());
        self.slots.truncate(len);
        Ok(())
    }
    fn draft_vocab(&self) -> &[TokenId] {
        &self.vocab
    }
    fn fork(&self) -> Result<Box<dyn DraftModule>, ModelError> {
        Ok(Box::new(Self { number: self.number, slots: self.slots.clone(), vocab: self.vocab.clone() }))
    }
}

/// Runs the drafter once, greedily unless the settings have a temperature.
pub(super) fn draft(drafter: &mut dyn Drafter, committed: &[TokenId], k: usize, settings: &Settings) -> Vec<Draft> {
    draft_with_stop_rule(drafter, committed, k, settings, None).0
}

/// Runs the drafter once with a stop rule. Returns the drafts and the token that ended them.
pub(super) fn draft_with_stop_rule(
    drafter: &mut dyn Drafter,
    committed: &[TokenId],
    k: usize,
    settings: &Settings,
    stop_rule: Option<DraftStopRule>,
) -> (Vec<Draft>, Option<DraftStopped>) {
    let draws = SeededDraws::new(settings.sampling.seed);
    let mut target = idle();
    let round = RoundCtx {
        position: committed.len(),
        draft_len: k,
        greedy: settings.sampling.is_greedy(),
        fresh: None,
        leniency: settings.leniency,
        draws: &draws,
    };
    let mut reported = Vec::new();
    let mut ctx = DraftCtx {
        stopped: None,
        passed_over: Vec::new(),
        lattice: Vec::new(),
        round,
        drafting: settings.drafting,
        committed,
        sampler: &Sampler { sampling: settings.sampling },
        target: &mut target,
        on_draft: &mut |_, draft| reported.push(draft.clone()),
        limit: settings.drafting.tree.map_or(k, usize::from),
        most_copied: 15,
        copier: None,
        progress: stop_rule.map(DraftProgress::new),
        drafts: Vec::new(),
        constrained: None,
    };
    drafter.draft(&mut ctx).unwrap();
    let (drafts, stopped) = (ctx.drafts, ctx.stopped);
    assert_eq!(reported, drafts);
    (drafts, stopped)
}

/// A reference implementation of a chain: module d reads the outputs of module d − 1 and the tokens d positions later.
fn reference_chain(modules: usize, tokens: &[TokenId], states: &[f32], k: usize) -> Vec<TokenId> {
    let mut text = tokens.to_vec();
    let mut inputs = states.to_vec();
    let mut drafted = Vec::new();
    let mut last = (0.0, Vec::new());
    for depth in 0..k {
        if depth < modules {
            let mut slots: Vec<f32> = Vec::new();
            for (slot, state) in inputs.iter().enumerate() {
                slots.push(mixed(depth, text[slot + 1 + depth], *state, slots.iter().sum::<f32>() % 101.0));
            }
            last = (*slots.last().unwrap(), slots.clone());
            inputs = slots;
        } else {
            let (state, mut slots) = last;
            slots.push(mixed(modules - 1, *text.last().unwrap(), state, slots.iter().sum::<f32>() % 101.0));
            last = (*slots.last().unwrap(), slots);
        }
        let row = logits(last.0);
        let best = row.iter().enumerate().fold(0, |best, (i, x)| if *x > row[best] { i } else { best });
        drafted.push(TokenId(best as u32));
        text.push(TokenId(best as u32));
    }
    drafted
}

fn numbers(count: usize, seed: usize) -> (Vec<TokenId>, Vec<f32>) {
    let tokens = (0..=count).map(|i| TokenId(((i * i * 7 + seed * 3 + i) % VOCAB as usize) as u32)).collect();
    (tokens, (0..count).map(|i| ((i * 31 + seed) % 97) as f32).collect())
}

#[test]
fn a_stack_drafts_as_the_reference_after_any_history() {
    for modules in 1..=4 {
        for k in [1, 2, 3, 5, 7] {
            let settings = Settings::default();
            let mut drafter = MtpDrafter::stack((0..modules).map(fake).collect());
            let (tokens, states) = numbers(30, 1);
            let mut observed = 0;
            // several steps of 1 to 6 tokens, most with a draft, and one rewind
            for (step, size) in [6, 1, 3, 2, 4, 1, 1, 5].into_iter().enumerate() {
                if step == 5 {
                    observed -= 4;
                    drafter.rewind(observed).unwrap();
                }
                let to = observed + size;
                drafter.observe(&tokens[observed + 1..=to], &Rows::new(states[observed..to].to_vec(), 1)).unwrap();
                observed = to;
                if step != 2 {
                    let got = draft(&mut drafter, &tokens[..=observed], k, &settings);
                    let got: Vec<TokenId> = got.iter().map(|draft| draft.token).collect();
                    let want = reference_chain(modules, &tokens[..=observed], &states[..observed], k);
                    assert_eq!(got, want, "{modules} modules, k = {k}, {observed} observed");
                }
            }
        }
    }
}

#[test]
fn a_text_too_short_for_a_deep_module_gets_a_shorter_draft() {
    let mut drafter = MtpDrafter::stack((0..4).map(fake).collect());
    let (tokens, states) = numbers(1, 2);
    drafter.observe(&tokens[1..], &Rows::new(states, 1)).unwrap();
    assert_eq!(draft(&mut drafter, &tokens, 6, &Settings::default()).len(), 2);
}

fn with_tree(nodes: u8, sampling: Sampling) -> Settings {
    Settings { sampling, drafting: Drafting { tree: Some(nodes), ..Drafting::default() }, ..Settings::default() }
}

#[test]
fn trees_keep_their_budget_and_contain_the_reference_chain() {
    let (tokens, states) = numbers(12, 3);
    for modules in 1..=3 {
        for (nodes, k) in [(1, 1), (2, 1), (4, 2), (7, 3), (15, 4), (15, 9)] {
            let mut drafter = MtpDrafter::stack((0..modules).map(fake).collect());
            drafter.observe(&tokens[1..], &Rows::new(states.clone(), 1)).unwrap();
            let drafts = draft(&mut drafter, &tokens, k, &with_tree(nodes, Sampling::default()));
            assert_eq!(drafts.len(), usize::from(nodes).min(15), "{modules} modules");
            let depth = |mut at: usize| {
                let mut depth = 0;
                while drafts[at].row.unwrap() > 0 {
                    at = drafts[at].row.unwrap() - 1;
                    depth += 1;
                }
                depth
            };
            assert!((0..drafts.len()).all(|at| drafts[at].row.unwrap() <= at && depth(at) < k));
            // the first choices along the tree are the chain
            let chain = reference_chain(modules, &tokens, &states, k);
            let mut row = 0;
            for token in chain {
                let Some(first) = drafts.iter().position(|draft| draft.row == Some(row)) else { break };
                assert_eq!(drafts[first].token, token);
                row = first + 1;
            }
            // no row proposes a token twice
            for row in 0..=drafts.len() {
                let mut tokens: Vec<_> = drafts.iter().filter(|d| d.row == Some(row)).map(|d| d.token).collect();
                let all = tokens.len();
                tokens.sort_unstable();
                tokens.dedup();
                assert_eq!(tokens.len(), all);
            }
            // and the modules' caches contain no drafted slots afterwards
            let again = draft(&mut drafter, &tokens, k, &Settings::default());
            let again: Vec<_> = again.iter().map(|draft| draft.token).collect();
            assert_eq!(again, reference_chain(modules, &tokens, &states, k));
        }
    }
}

#[test]
fn an_unsure_drafter_stops_and_argmax_is_certain_to_the_rules() {
    let (tokens, states) = numbers(12, 3);
    let drafts = |drafting: Drafting, temperature: f32| {
        let mut drafter = MtpDrafter::new(fake(0));
        drafter.observe(&tokens[1..], &Rows::new(states.clone(), 1)).unwrap();
        let sampling = Sampling { temperature, ..Sampling::default() };
        draft(&mut drafter, &tokens, 6, &Settings { sampling, drafting, ..Settings::default() })
    };
    let free = drafts(Drafting::default(), 0.0);
    let largest = free.iter().map(|d| d.confidence().unwrap()).fold(0.0, f32::max);
    assert_eq!(free.len(), 6);
    let stopped = drafts(Drafting { p_min: 0.99, ..Drafting::default() }, 0.0);
    assert!(stopped.is_empty() && largest < 0.99);
    let p_min = free[0].confidence().unwrap();
    let some = drafts(Drafting { p_min, ..Drafting::default() }, 0.0);
    assert_eq!(some.len(), free.iter().take_while(|d| d.confidence().unwrap() >= p_min).count());
    let argmax = drafts(Drafting { pick: draftscope_protocol::DraftPick::Argmax, ..Drafting::default() }, 1.0);
    assert!(argmax.iter().all(|d| !d.drawn && d.q_prob() == 1.0 && d.confidence().unwrap() < 1.0));
    assert!(drafts(Drafting::default(), 1.0).iter().all(|d| d.drawn && Some(d.q_prob()) == d.confidence()));
}

#[test]
fn a_stop_rule_ends_chains_but_not_drafts_without_probabilities() {
    let (tokens, states) = numbers(12, 3);
    let drafts = |stop_rule: Option<DraftStopRule>| {
        let mut drafter = MtpDrafter::new(fake(0));
        drafter.observe(&tokens[1..], &Rows::new(states.clone(), 1)).unwrap();
        draft_with_stop_rule(&mut drafter, &tokens, 8, &Settings::default(), stop_rule)
    };
    let free = drafts(None).0;
    let mut lengths = Vec::new();
    for row in [0.0, 20.0, 40.0, 80.0, 160.0, 320.0, 2000.0] {
        let verify_us = (0..9).map(|rows| 1000.0 + row * f64::from(rows)).collect();
        let costs = Costs { verify_us, draft_us: row, draft_pass_us: 0.0, settle_us: 0.0, overhead_us: 0.0 };
        let stop_rule = Policy::new(costs, 2).stop_rule(8);
        let (mut made, mut progress) = (0, DraftProgress::new(stop_rule.clone()));
        let is_discarded = loop {
            let q = free[made].confidence().unwrap();
            if q < progress.p_min() {
                break true;
            }
            progress.take(q);
            made += 1;
            if made == free.len() || !progress.goes_on() {
                break false;
            }
        };
        let (drafts, stopped) = drafts(Some(stop_rule.clone()));
        assert_eq!((drafts.len(), stopped.is_some()), (made, is_discarded), "rows at {row}");
        assert!(stopped.is_none_or(|left| left.q < left.p_min && left.p_min == progress.p_min()));
        assert!(drafts.iter().zip(&free).all(|(draft, free)| draft.token == free.token));
        lengths.push(made);
        let text: Vec<TokenId> = [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3].map(TokenId).to_vec();
        let found = draft_with_stop_rule(&mut NgramDrafter, &text, 4, &Settings::default(), Some(stop_rule)).0;
        assert_eq!(found.len(), 4, "the rule does not end drafts without probabilities");
    }
    assert!(lengths.is_sorted_by(|a, b| a >= b) && lengths[0] > lengths[3] && lengths[6] == 0, "{lengths:?}");
}

/// A block module whose logits at position i depend only on i and on the number of cached positions. Its cache does not
/// take states while it is broken.
struct FakeBlock {
    cached: usize,
    broken: std::rc::Rc<std::cell::Cell<bool>>,
    vocab: Vec<TokenId>,
}

fn fake_block() -> (BlockDrafter, std::rc::Rc<std::cell::Cell<bool>>) {
    let broken = std::rc::Rc::new(std::cell::Cell::new(false));
    let module = FakeBlock { cached: 0, broken: broken.clone(), vocab: (0..VOCAB).map(TokenId).collect() };
    (BlockDrafter::new(Box::new(module)), broken)
}

impl BlockModule for FakeBlock {
    fn len(&self) -> usize {
        self.cached
    }
    fn tap(&self) -> Tap {
        Tap::none()
    }
    fn most_drafts(&self) -> usize {
        6
    }
    fn draft_vocab(&self) -> &[TokenId] {
        &self.vocab
    }
    fn inject(&mut self, hidden: &Rows) -> Result<(), ModelError> {
        if self.broken.get() {
            return Err(ModelError::ContextFull { needed: self.cached + hidden.len(), ctx_len: self.cached });
        }
        self.cached += hidden.len();
        Ok(())
    }
    fn draft(&mut self, _: TokenId, count: usize) -> Result<Rows, ModelError> {
        // each position is less certain than the one before it
        let row = |i: usize| (0..VOCAB).map(move |t| if t == 3 { 9.0 - 1.5 * i as f32 } else { 0.0 });
        Ok(Rows::new((0..count).flat_map(row).collect(), VOCAB as usize))
    }
    fn truncate(&mut self, len: usize) -> Result<(), ModelError> {
        self.cached = self.cached.min(len);
        Ok(())
    }
    fn fork(&self) -> Result<Box<dyn BlockModule>, ModelError> {
        Err(ModelError::Unsupported("never forked".into()))
    }
}

#[test]
fn only_a_draft_that_another_one_may_follow_says_more() {
    let (tokens, states) = numbers(12, 3);
    let more = |k: usize, p_min: f32, stop_rule: Option<DraftStopRule>| {
        let (mut drafter, _) = fake_block();
        drafter.observe(&tokens[1..], &Rows::new(states.clone(), 1)).unwrap();
        let settings = Settings { drafting: Drafting { p_min, ..Drafting::default() }, ..Settings::default() };
        let (drafts, stopped) = draft_with_stop_rule(&mut drafter, &tokens, k, &settings, stop_rule);
        (drafts.iter().map(|draft| draft.more).collect::<Vec<_>>(), stopped.is_some())
    };
    assert_eq!(more(4, 0.0, None), (vec![true, true, true, false], false));
    assert_eq!(more(8, 0.0, None).0.last(), Some(&false), "a pass drafts six");
    assert_eq!(more(1, 0.0, None), (vec![false], false));
    // the token that is left out is the phase's end, so the last draft announces it
    let (before, stopped) = more(6, 0.9, None);
    assert!(stopped && !before.is_empty() && before.len() < 6 && before.iter().all(|more| *more), "{before:?}");
    let mut ended = 0;
    for row in [10.0, 40.0, 160.0, 320.0] {
        let verify_us = (0..9).map(|rows| 1000.0 + row * f64::from(rows)).collect();
        // tokens of a block that cost much: the rule ends the draft without looking at the next token
        let costs = Costs { verify_us, draft_us: 300.0, draft_pass_us: 300.0, settle_us: 0.0, overhead_us: 0.0 };
        let (all, stopped) = more(6, 0.0, Some(Policy::new(costs, 2).stop_rule(6)));
        assert_eq!(all.last().copied().unwrap_or(stopped), stopped, "{all:?}");
        ended += usize::from(!stopped && (1..6).contains(&all.len()));
    }
    assert!(ended > 0, "the rule ended no draft before its limit");
}

#[test]
fn states_stay_pending_if_the_cache_does_not_take_them() {
    let (tokens, states) = numbers(6, 3);
    let (mut drafter, broken) = fake_block();
    drafter.observe(&tokens[1..], &Rows::new(states, 1)).unwrap();
    broken.set(true);
    assert!(drafter.settle(&tokens).is_err() && drafter.settle(&tokens).is_err(), "they are not lost");
    broken.set(false);
    drafter.settle(&tokens).unwrap();
    broken.set(true);
    assert!(drafter.settle(&tokens).is_ok(), "and are taken once");
}

#[test]
fn ngrams_repeat_themselves_into_the_draft() {
    let text = |text: &str| text.bytes().map(|b| TokenId(u32::from(b - b'a'))).collect::<Vec<_>>();
    let tokens = |drafts: Vec<Draft>| drafts.iter().map(|d| d.token).collect::<Vec<_>>();
    let got = draft(&mut NgramDrafter, &text("abcdabc"), 3, &Settings::default());
    assert_eq!(tokens(got), text("dab"));
    let got = draft(&mut NgramDrafter, &text("xabab"[1..].into()), 5, &Settings::default());
    assert_eq!(tokens(got), text("ababa"));
    assert!(draft(&mut NgramDrafter, &text("abcdefg"), 3, &Settings::default()).is_empty());
}

#[test]
fn the_second_drafter_drafts_only_if_the_first_finds_nothing() {
    let settings = |drafter| Settings { drafter, ..Settings::default() };
    let (tokens, states) = numbers(12, 5);
    let mut drafter_set = DrafterSet::default();
    drafter_set.add(DrafterKind::Mtp, Box::new(MtpDrafter::new(fake(0))));
    drafter_set.set_missing(DrafterKind::DraftModel, "why".into());
    drafter_set.configure(&settings("ngram+mtp".parse().unwrap()));
    drafter_set.observe(&tokens[1..], &Rows::new(states.clone(), 1)).unwrap();
    let fresh: Vec<TokenId> = (0..4).map(TokenId).collect();
    let by_module = draft(&mut drafter_set, &fresh, 2, &Settings::default());
    assert!(by_module.iter().all(|draft| draft.q.is_some()) && by_module.len() == 2);
    let repeated: Vec<TokenId> = [1, 2, 3, 1, 2].map(TokenId).into();
    let by_lookup = draft(&mut drafter_set, &repeated, 2, &Settings::default());
    assert!(by_lookup.iter().all(|draft| draft.q.is_none()) && by_lookup[0].token == TokenId(3));
    // a missing drafter: plain decoding, and the reason once
    drafter_set.configure(&settings(DrafterKind::DraftModel));
    drafter_set.configure(&settings(DrafterKind::DraftModel));
    assert!(draft(&mut drafter_set, &repeated, 2, &Settings::default()).is_empty());
    assert_eq!(drafter_set.notice().as_deref(), Some("no drafter, decoding plainly: why"));
    assert_eq!(drafter_set.notice(), None);
    // an inactive drafter has observed all tokens, too
    drafter_set.configure(&settings(DrafterKind::Mtp));
    let late: Vec<_> = draft(&mut drafter_set, &tokens, 3, &Settings::default()).iter().map(|d| d.token).collect();
    assert_eq!(late, reference_chain(1, &tokens, &states, 3));
    drafter_set.configure(&settings(DrafterKind::None));
    assert!(draft(&mut drafter_set, &repeated, 2, &Settings::default()).is_empty());
}

#[test]
fn of_two_drafters_the_one_that_is_there_drafts_and_a_notice_says_so() {
    let repeated: Vec<TokenId> = (0..12).chain(0..9).map(TokenId).collect();
    for (asked, says, usable) in [
        ("suffix+mtp", "no draft module, only copies of repeated text are drafted: why", DrafterKind::Suffix),
        ("ngram+mtp", "no draft module, only n-gram lookup drafts: why", DrafterKind::Ngram),
        ("suffix+draft-model", "no draft model, only copies of repeated text are drafted: why", DrafterKind::Suffix),
        ("mtp", "no drafter, decoding plainly: why", DrafterKind::Mtp),
    ] {
        let mut drafter_set = DrafterSet::default();
        drafter_set.set_missing(DrafterKind::Mtp, "why".into());
        drafter_set.set_missing(DrafterKind::DraftModel, "why".into());
        let drafter: DrafterKind = asked.parse().unwrap();
        let settings = Settings { drafter, ..Settings::default() };
        drafter_set.configure(&settings);
        assert_eq!((drafter_set.notice().as_deref(), drafter_set.usable(drafter)), (Some(says), usable), "{asked}");
        let drafts = draft(&mut drafter_set, &repeated, 2, &settings);
        assert_eq!(drafts.first().map(|draft| draft.token), (usable != drafter).then_some(TokenId(9)), "{asked}");
        drafter_set.configure(&settings);
        assert_eq!(drafter_set.notice(), None, "{asked}: said once");
    }
    let mut whole = DrafterSet::default();
    whole.add(DrafterKind::Mtp, Box::new(FailingDrafter(1)));
    assert_eq!(whole.usable(DrafterKind::DEFAULT), DrafterKind::DEFAULT);
    // a module that fails while it runs leaves the copies
    let settings = Settings::default();
    whole.configure(&settings);
    draft(&mut whole, &[TokenId(3)], 2, &settings);
    let says = whole.notice().unwrap();
    assert!(says.contains("mtp failed") && says.ends_with("; only copies of repeated text are drafted"), "{says}");
    assert!(draft(&mut whole, &repeated, 2, &settings).iter().all(|draft| draft.copied.is_some()));
}

#[test]
fn a_token_outside_of_vocabulary_and_text_could_not_be_drafted() {
    let tokens = [TokenId(1)];
    let own = |token: u32, vocab| OwnToken { token: TokenId(token), text: &tokens, vocab };
    let trimmed = VOCAB as usize + 50;
    let mut module = MtpDrafter::new(fake(0));
    assert_eq!(module.has_token(own(3, VOCAB as usize)), None, "it has every token");
    assert_eq!([3, VOCAB + 7].map(|token| module.has_token(own(token, trimmed))), [Some(true), Some(false)]);
    // a token of the text that waits for its slot joins the vocabulary there
    module.observe(&[TokenId(VOCAB + 7)], &Rows::new(vec![0.0], 1)).unwrap();
    assert_eq!(module.has_token(own(VOCAB + 7, trimmed)), Some(true));
    assert_eq!(fake_block().0.has_token(own(VOCAB + 7, trimmed)), Some(false));
    // copies beside the module have what the text has; alone they have no vocabulary
    let text = [TokenId(VOCAB + 9)];
    let copied = OwnToken { token: TokenId(VOCAB + 9), text: &text, vocab: trimmed };
    for (drafter, has) in
        [("mtp", Some(false)), ("suffix+mtp", Some(true)), ("ngram+mtp", Some(true)), ("suffix", None)]
    {
        let mut drafter_set = DrafterSet::default();
        drafter_set.add(DrafterKind::Mtp, Box::new(MtpDrafter::new(fake(0))));
        drafter_set.configure(&Settings { drafter: drafter.parse().unwrap(), ..Settings::default() });
        assert_eq!(drafter_set.has_token(copied), has, "{drafter}");
        let lacks = drafter_set.has_token(OwnToken { text: &[], ..copied });
        assert_eq!(lacks, has.map(|_| false), "{drafter}");
    }
}

/// Fails at its second draft.
struct FailingDrafter(u32);

impl Drafter for FailingDrafter {
    fn fork(&self) -> Result<Box<dyn Drafter>, ModelError> {
        Ok(Box::new(Self(self.0)))
    }
    fn draft(&mut self, ctx: &mut DraftCtx<'_>) -> Result<(), ModelError> {
        self.0 += 1;
        if self.0 > 1 {
            return Err(ModelError::NotFinite { position: 7 });
        }
        ctx.propose(Draft::certain(TokenId(1)));
        Ok(())
    }
}

#[test]
fn a_failing_member_is_switched_off_and_the_others_stay() {
    let mut drafter_set = DrafterSet::default();
    drafter_set.add(DrafterKind::Mtp, Box::new(FailingDrafter(0)));
    let settings = |drafter| Settings { drafter, ..Settings::default() };
    drafter_set.configure(&settings(DrafterKind::Mtp));
    let text = [TokenId(3)];
    assert_eq!(draft(&mut drafter_set, &text, 2, &Settings::default()).len(), 1);
    for _ in 0..3 {
        assert!(draft(&mut drafter_set, &text, 2, &Settings::default()).is_empty());
    }
    let notice = drafter_set.notice().unwrap();
    assert!(notice.contains("mtp failed") && notice.contains("continues without drafts"), "{notice}");
    assert_eq!(drafter_set.notice(), None);
    drafter_set.configure(&settings(DrafterKind::Random));
    assert_eq!(draft(&mut drafter_set, &text, 2, &Settings::default()).len(), 2);
    drafter_set.configure(&settings(DrafterKind::Mtp));
    assert!(drafter_set.notice().unwrap().contains("switched off"));
}

#[test]
fn oracle_and_human_propose_what_they_were_offered() {
    let text: Vec<TokenId> = (0..6).map(TokenId).collect();
    let mut oracle = OracleDrafter::new(DrafterKind::Oracle);
    oracle.offer(&text);
    let tokens = |drafts: Vec<Draft>| drafts.iter().map(|d| d.token.0).collect::<Vec<_>>();
    assert_eq!(tokens(draft(&mut oracle, &text[..2], 3, &Settings::default())), [2, 3, 4]);
    assert_eq!(tokens(draft(&mut oracle, &text[..5], 3, &Settings::default())), [5]);
    assert!(oracle.notice().is_none());
    assert!(draft(&mut oracle, &[TokenId(9)], 3, &Settings::default()).is_empty());
    assert!(oracle.notice().unwrap().contains("differs from the plain answer"));
    let mut human = HumanDrafter::default();
    human.offer(&text);
    assert_eq!(tokens(draft(&mut human, &text[..1], 2, &Settings::default())), [0, 1]);
    assert!(draft(&mut human, &text[..1], 2, &Settings::default()).is_empty(), "typed for one round");
}
