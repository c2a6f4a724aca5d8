//! Passes on candle as on a GPU, computed on the CPU: keys and values are halves, all rows attend in one product, and of
//! logits the best alone are returned. Most tests are those of every target.

use std::collections::BTreeSet;

use crate::case::{Case, Limit, Run};
use crate::module;
use crate::support::{Best, Forward, LoadOptions, LogitRows, Model, PassForm, TokenId, open, oracle_text};
pub use crate::target::{fork, logits, memory, rollback, rows, speculation};

/// Rows of the passes, one after the other; the fourth is a prompt.
const WIDTHS: [usize; 8] = [1, 5, 2, 25, 16, 3, 11, 7];

/// A tree whose rows have up to three children.
const PARENTS: [usize; 9] = [0, 0, 0, 1, 1, 0, 3, 6, 6];

/// A path of it.
const PATH: [usize; 4] = [0, 1, 3, 6];

fn target(case: &Case, run: &Run, form: PassForm) -> Box<dyn Model> {
    open(&LoadOptions { pass_form: Some(form), ..case.options(run) }).target
}

/// The same target twice: its rows attend all at once, and one by one.
struct Pair {
    name: String,
    batched: Box<dyn Model>,
    one_by_one: Box<dyn Model>,
    limit: Limit,
}

impl Pair {
    /// Runs the same pass on both.
    fn same(&mut self, what: &str, pass: &dyn Fn(&mut dyn Model) -> Forward) {
        let (got, want) = (pass(self.batched.as_mut()), pass(self.one_by_one.as_mut()));
        let what = format!("{}, {what}", self.name);
        self.limit.check(&format!("{what}, logits"), got.logits.as_slice(), want.logits.as_slice());
        self.limit.check(&format!("{what}, states"), got.hidden.as_slice(), want.hidden.as_slice());
    }
}

/// Attention of all rows at once gives what row by row gives: chains, prompts, trees, after a rollback, and after a path of a
/// tree was kept.
pub fn batched(case: &Case) {
    let tokens = oracle_text(&case.golden());
    for run in case.runs {
        let mut pair = Pair {
            name: format!("{} on {:?}", case.fixture, run.backend),
            batched: target(case, run, PassForm { batched: true, ..PassForm::CPU }),
            one_by_one: target(case, run, PassForm::CPU),
            // 8-bit activations on the native kernels may round to other codes
            limit: Limit::relative(if run.native() { 5e-3 } else { 1e-4 }),
        };
        assert!(!pair.one_by_one.attend_in_batches(false));
        let mut at = 0;
        for width in WIDTHS {
            let rows = &tokens[at..at + width];
            let asked = if width > 16 { LogitRows::Last } else { LogitRows::All };
            pair.same(&format!("{width} rows after {at}"), &|target| target.forward(rows, asked).unwrap());
            at += width;
        }
        if !case.recurrent {
            let tree = &tokens[at..at + PARENTS.len()];
            pair.same("a tree", &|target| target.forward_tree(tree, &PARENTS, LogitRows::All).unwrap());
            pair.same("after a path of the tree", &|target| {
                target.retain(at, &PATH).unwrap();
                target.forward(&tokens[100..105], LogitRows::All).unwrap()
            });
        }
        pair.same("after a rollback", &|target| {
            let since = target.checkpoint().unwrap();
            target.forward(&tokens[120..126], LogitRows::All).unwrap();
            target.truncate(since.len + 2, &since).unwrap();
            target.forward(&tokens[130..133], LogitRows::All).unwrap()
        });
        assert!(pair.batched.attend_in_batches(false) && !pair.batched.attend_in_batches(false));
        pair.same("one by one again", &|target| target.forward(&tokens[140..144], LogitRows::All).unwrap());
    }
}

/// The best logits of a row and those of the tokens drafted after it are the row's own.
pub fn best(case: &Case) {
    let tokens = oracle_text(&case.golden());
    for run in case.runs {
        let mut target = target(case, run, run.form.unwrap());
        target.forward(&tokens[..20], LogitRows::Last).unwrap();
        for width in [1, 4, 16] {
            let rows = &tokens[20..20 + width];
            let parents: Vec<usize> = (0..width).map(|row| row.saturating_sub(1)).collect();
            let pass = |asked| target.fork().unwrap().forward(rows, asked).unwrap();
            check_best(&pass(LogitRows::Best), &pass(LogitRows::All), (rows, &parents));
        }
        if !case.recurrent {
            let rows = &tokens[20..20 + PARENTS.len()];
            let pass = |asked| target.fork().unwrap().forward_tree(rows, &PARENTS, asked).unwrap();
            check_best(&pass(LogitRows::Best), &pass(LogitRows::All), (rows, &PARENTS));
        }
    }
}

fn check_best(best: &Forward, all: &Forward, (tokens, parents): (&[TokenId], &[usize])) {
    assert!(best.logits.is_empty() && all.stats.is_empty() && best.hidden == all.hidden);
    assert_eq!((best.stats.len(), best.scored()), (tokens.len(), all.logits.len()));
    for (row, stats) in best.stats.iter().enumerate() {
        let logits = all.logits.row(row);
        let Best::Logits(listed) = &stats.best else { panic!("no logits are listed") };
        assert!(listed.iter().all(|(index, logit)| logits[*index as usize] == *logit));
        let mut order: Vec<u32> = (0..logits.len() as u32).collect();
        order.sort_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b)));
        let drafted = (1..tokens.len()).filter(|child| parents[*child] == row).map(|child| tokens[child].0);
        let expected: BTreeSet<u32> = order.iter().take(32).copied().chain(drafted).collect();
        assert_eq!(listed.iter().map(|(index, _)| *index).collect::<BTreeSet<_>>(), expected);
        assert_eq!((stats.argmax, stats.max), (order[0], logits[order[0] as usize]));
        let sum: f64 = logits.iter().map(|logit| f64::from(*logit).exp()).sum();
        assert!((f64::from(stats.log_sum_exp) - sum.ln()).abs() < 1e-4);
    }
}

/// With the target's draft module, if it has one: its bytes, and speculative decoding with chains and trees.
pub fn modules(case: &Case) {
    if case.draft.is_some() {
        module::memory(case);
        module::speculation(case);
    }
}
