//! A target on the native backend: blocks of a mixer and a feed-forward part.
//!
//! Tokens run in passes of at most [`MAX_ROWS`] rows, and a prompt's in passes of at most [`PROMPT_ROWS`], so that weights
//! stream from memory once a pass. Invariant: logits and hidden states of a position have the same bits however the
//! tokens before it were cut into calls and passes, on any number of threads and any instruction set. Weights are shared
//! between forks; each fork has its own cache and states. A recurrent state follows one path, so a model with such layers runs
//! no trees and does not stop early. [`load`](super::load) reads files.

use std::sync::Arc;

use super::cache::{AngleTable, KvCache};
use super::head;
use super::layer::{BlockShape, Next, Scratch};

use super::mixer::Memories;
use super::pass::Pass;
use super::recurrent::{Call, Recurrent};
use super::tree::Tree;
pub(crate) use super::weights::Weights;
use crate::native::hidden_tap::States;
use crate::options::Rollback;
use crate::shared_kv::SharedKv;
use crate::{
    Checkpoint, ExpertsMet, Forward, LogitRows, Model, ModelError, ModelSpec, RowPool, RowStats, Rows, Tap, check_path,
};
use draftscope_kernels::{Acts, LANES, MAX_ROWS, PROMPT_ROWS};
use draftscope_protocol::TokenId;

/// Most bytes that attention's partial results may take, unless those of [`MAX_ROWS`] rows take more.
const MAX_PARTIALS: usize = 32 << 20;

/// Rows of a pass over a prompt that ends at position `end`: fewer than [`PROMPT_ROWS`] where attention's partial results,
/// which grow with the context too, would take more than [`MAX_PARTIALS`] bytes.
pub(crate) fn prompt_rows(shape: &BlockShape, end: usize) -> usize {
    (MAX_PARTIALS / shape.partial_bytes(end).max(1)).clamp(MAX_ROWS, PROMPT_ROWS)
}

/// The extent and shape of a call's passes.
#[derive(Clone, Copy)]
struct Extent<'a> {
    /// Blocks that run, from the first on.
    layers: usize,
    tree: Option<&'a Tree>,
    /// What recurrent layers keep.
    call: Call,
}

impl<'a> Extent<'a> {
    fn of(layers: usize, tree: Option<&'a Tree>) -> Self {
        Self { layers, tree, call: Call::default() }
    }
}

/// A target on the native kernels, whatever its plan's layers are.
#[derive(Debug)]
pub struct NativeLlama {
    pub(crate) weights: Arc<Weights>,
    pub(crate) spec: ModelSpec,
    pub(crate) cache: KvCache,
    /// The layers that keep a state.
    recurrent: Recurrent,
    pub(crate) tables: Vec<AngleTable>,
    scratch: Scratch,
    head_acts: Acts,
    pub(crate) tap: Tap,
    shelf: RowPool,
}

impl NativeLlama {
    /// Whether embeddings and logits are those of the tables, neither scaled nor capped.
    pub(crate) fn has_plain_ends(&self) -> bool {
        let Weights { embedding_scale, logit_scale, logit_cap, .. } = &*self.weights;
        (*embedding_scale, *logit_scale, *logit_cap) == (1.0, 1.0, None)
    }

    /// Stores the file's digest for the header.
    pub fn set_sha256(&mut self, sha256: Option<String>) {
        self.spec.info.sha256 = sha256;
    }

    /// Chooses how recurrent states are rolled back, and empties the cache.
    pub fn set_rollback(&mut self, rollback: Rollback) {
        self.recurrent = self.recurrent.restarted(rollback);
        self.cache.set_len(0);
        self.spec.info.snapshot_bytes = self.recurrent.kept_bytes();
    }

    pub(crate) fn new(
        weights: Arc<Weights>,
        mut spec: ModelSpec,
        (cache, recurrent): (KvCache, Recurrent),
        tables: Vec<AngleTable>,
    ) -> Self {
        spec.info.state_bytes = recurrent.state_bytes();
        spec.info.snapshot_bytes = recurrent.kept_bytes();
        Self {
            weights,
            spec,
            cache,
            recurrent,
            tables,
            scratch: Scratch::default(),
            head_acts: Acts::default(),
            tap: Tap::default(),
            shelf: RowPool::default(),
        }
    }

    /// Runs one pass at the end of the cache; `hidden` is `[m][d / 16]`, after the final norm.
    fn pass(
        &mut self,
        tokens: &[TokenId],
        hidden: &mut [[f32; LANES]],
        mut states: States<'_>,
        extent: Extent<'_>,
    ) -> Result<(), ModelError> {
        let weights = &*self.weights;
        let (base, m) = (self.cache.len(), tokens.len());
        let pass = Pass {
            cpu: &weights.cpu,
            shape: &weights.shape,
            tables: &self.tables,
            base,
            at: base,
            m,
            tree: extent.tree,
            next: Next::Else,
        };
        // 1. Embedding: [m, d] -> [d / 16][m]
        weights.embed_rows(tokens, hidden, &mut self.scratch);
        // 2. Blocks
        let mut finite = true;
        states.keep(0, &self.scratch.x);
        let layers = &weights.layers[..extent.layers.min(weights.layers.len())];
        if let Some(first) = layers.first() {
            finite &= first.enter(pass, &mut self.scratch);
        }
        let mut memories = Memories::new(&mut self.cache, self.recurrent.layers(extent.call));
        for (index, layer) in layers.iter().enumerate() {
            let next = layers.get(index + 1).map_or(Next::Head(&weights.head), Next::Block);
            let memory = memories.next(&layer.mixer);
            finite &= layer.forward(Pass { next, ..pass }, memory, &mut self.scratch);
            states.keep(index + 1, &self.scratch.x);
        }
        // 3. Final norm: [d / 16][m] -> [m, d]
        finite &= weights.last_norm(&self.scratch.x, &mut self.head_acts, hidden);
        if !finite {
            return Err(ModelError::NotFinite { position: base });
        }
        states.keep_normed(hidden);
        drop(memories);
        self.cache.set_len(base + m);
        Ok(())
    }

    /// Logits of rows of hidden states, `[m][d / 16]`, m ≤ [`MAX_ROWS`].
    fn logits(&mut self, hidden: &[[f32; LANES]], logits: &mut [f32], stats: &mut Vec<RowStats>) {
        let weights = &*self.weights;
        weights.read_head(hidden, &mut self.head_acts);
        head::logits(&weights.cpu, weights.output(), &self.head_acts, logits, stats);
    }

    /// Rows of each pass over so many tokens.
    fn rows_of_pass(&self, tokens: usize, extent: Extent<'_>) -> usize {
        if tokens <= MAX_ROWS || extent.tree.is_some() {
            return MAX_ROWS;
        }
        prompt_rows(&self.weights.shape, self.cache.len() + tokens)
    }

    /// Runs at the end of the cache; after an error the cache is as before, but recurrent layers have no earlier rows.
    fn start(&mut self, tokens: &[TokenId], rows: LogitRows, extent: Extent<'_>) -> Result<Forward, ModelError> {
        let base = self.cache.room(tokens.len())?;
        self.weights.check(tokens)?;
        let states = self.recurrent.before_pass(base);
        let weights = Arc::clone(&self.weights);
        let call = weights.with_deltas(|deltas| self.recurrent.begin(base, (tokens.len(), rows), deltas));
        self.run(tokens, rows, Extent { call, ..extent }).inspect_err(|_| {
            self.cache.set_len(base);
            self.recurrent = states;
        })
    }

    fn run(&mut self, tokens: &[TokenId], rows: LogitRows, extent: Extent<'_>) -> Result<Forward, ModelError> {
        let (d, vocab) = (self.weights.shape.d_model, self.weights.head.rows());
        let tiles = d / LANES;
        let mut hidden = vec![[0.0; LANES]; tokens.len() * tiles];
        let all = extent.layers == self.weights.layers.len();
        let states = if all { States::besides(&self.tap) } else { 0 };
        let mut tapped = vec![[0.0; LANES]; states * tokens.len() * tiles];
        let rows_of_pass = self.rows_of_pass(tokens.len(), extent);
        for range in extent.call.passes(rows_of_pass) {
            let (first, end) = (range.start * tiles, range.end * tiles);
            let tapped = &mut tapped[states * first..states * end];
            let states = States::new(&self.tap, extent.layers, range.len(), tapped)?;
            self.pass(&tokens[range.clone()], &mut hidden[first..end], states, extent)?;
            self.recurrent.end_pass(extent.call, &range);
        }
        let from = match rows {
            LogitRows::All | LogitRows::Best => 0,
            LogitRows::Last => tokens.len().saturating_sub(1),
        };
        let mut stats = Vec::new();
        let count = tokens.len() - from;
        let mut logits = match count {
            0..=MAX_ROWS => self.shelf.rows(count, vocab),
            _ => Rows::new(vec![0.0; count * vocab], vocab),
        };
        let parts = hidden[from * tiles..].chunks(MAX_ROWS * tiles);
        for (hidden, logits) in parts.zip(logits.as_mut_slice().chunks_mut(MAX_ROWS * vocab)) {
            self.logits(hidden, logits, &mut stats);
        }
        let hidden = match states {
            0 => Rows::new(hidden.into_flattened(), d),
            _ => Rows::new(tapped.into_flattened(), states * d),
        };
        Ok(Forward { logits, hidden, stats })
    }
}

impl Model for NativeLlama {
    fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    fn len(&self) -> usize {
        self.cache.len()
    }

    fn forward(&mut self, tokens: &[TokenId], rows: LogitRows) -> Result<Forward, ModelError> {
        self.start(tokens, rows, Extent::of(self.weights.layers.len(), None))
    }

    fn limit_threads(&mut self, most: usize) -> usize {
        let pool = &self.weights.cpu.pool;
        pool.limit(most);
        pool.threads()
    }

    fn forward_early(&mut self, tokens: &[TokenId], layers: usize) -> Result<Forward, ModelError> {
        if !self.recurrent.is_empty() {
            let why = "a model with recurrent states cannot stop after the first layers";
            return Err(ModelError::Unsupported(why.into()));
        }
        self.start(tokens, LogitRows::Last, Extent::of(layers, None))
    }

    fn refuses_trees(&self) -> Option<&'static str> {
        let why = "a recurrent state follows one path, so this target verifies no draft trees";
        (!self.recurrent.is_empty()).then_some(why)
    }

    fn forward_tree(&mut self, tokens: &[TokenId], parents: &[usize], _: LogitRows) -> Result<Forward, ModelError> {
        if let Some(why) = self.refuses_trees() {
            return Err(ModelError::Unsupported(why.into()));
        }
        if parents.len() != tokens.len() {
            return Err(ModelError::Unsupported("a tree with more rows than tokens, or fewer".into()));
        }
        let base = self.cache.room(tokens.len())?;
        let tree = Tree::new(parents, &self.tables, base)?;
        self.start(tokens, LogitRows::All, Extent::of(self.weights.layers.len(), Some(&tree)))
    }

    fn retain(&mut self, base: usize, path: &[usize]) -> Result<(), ModelError> {
        check_path(self.len(), base, path)?;
        if !self.recurrent.is_empty() {
            return Err(ModelError::Rewind { len: base, have: self.len(), since: base });
        }
        self.cache.retain(base, path);
        Ok(())
    }

    fn shared_kv(&self) -> Result<Option<SharedKv>, ModelError> {
        Ok(Some(SharedKv::new(self.cache.memory().clone(), self.len())))
    }

    fn pass_bytes(&self) -> u64 {
        (self.weights.bytes() - self.weights.looked_up_bytes()) as u64
    }

    fn experts_met(&self) -> Option<ExpertsMet> {
        self.weights.layers.iter().filter_map(|layer| layer.feed.experts_met()).reduce(ExpertsMet::and)
    }

    fn set_tap(&mut self, tap: &Tap) -> Result<(), ModelError> {
        tap.places(self.weights.layers.len())?;
        self.tap = tap.clone();
        Ok(())
    }

    fn rewindable(&self, len: usize) -> usize {
        self.recurrent.rewindable(len, self.len())
    }

    fn checkpoint(&self) -> Result<Checkpoint, ModelError> {
        Ok(Checkpoint { len: self.len() })
    }

    fn truncate(&mut self, len: usize, since: &Checkpoint) -> Result<(), ModelError> {
        let (have, since) = (self.len(), since.len);
        let gone = ModelError::Rewind { len, have, since };
        if len < since || len > have {
            return Err(gone);
        }
        let weights = Arc::clone(&self.weights);
        weights.with_deltas(|deltas| self.recurrent.cut((len, have), since, deltas)).ok_or(gone)?;
        self.cache.set_len(len);
        Ok(())
    }

    fn fork(&self) -> Result<Box<dyn Model>, ModelError> {
        let (weights, tables) = (Arc::clone(&self.weights), self.tables.clone());
        let memory = (self.cache.fork(), self.recurrent.clone());
        let mut fork = Self::new(weights, self.spec.clone(), memory, tables);
        fork.tap = self.tap.clone();
        Ok(Box::new(fork))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::OpenModel;
    use crate::native::testing::{Parity, gguf_path, tiny_gguf, token_ids};
    use draftscope_kernels::{Isa, Pool};

    fn load(threads: usize, isa: Isa) -> Option<NativeLlama> {
        load_ctx(512, threads, isa)
    }

    fn load_ctx(ctx_len: usize, threads: usize, isa: Isa) -> Option<NativeLlama> {
        let file = OpenModel::open(&gguf_path()?).unwrap();
        Some(NativeLlama::load_with(file.parts(), ctx_len, Pool::new(threads), isa).unwrap())
    }

    #[test]
    fn rows_run_together_or_alone_give_the_same_bits() {
        let Some(mut alone) = load(1, Isa::detect()) else {
            return;
        };
        let tokens = token_ids(300);
        let singles: Vec<_> = tokens.iter().map(|&token| alone.forward(&[token], LogitRows::All).unwrap()).collect();
        for sizes in
            [&[16][..], &[1, 2, 3, 5, 7, 11, 13], &[4, 9, 8, 6, 10, 12, 14, 15], &[300], &[17, 64, 31, 129, 59]]
        {
            let mut together = load(2, Isa::detect()).unwrap();
            let mut at = 0;
            for &size in sizes.iter().cycle() {
                let size = size.min(tokens.len() - at);
                if size == 0 {
                    break;
                }
                let out = together.forward(&tokens[at..at + size], LogitRows::All).unwrap();
                for (row, single) in singles[at..at + size].iter().enumerate() {
                    assert!(out.logits.row(row) == single.logits.row(0), "logits of position {}", at + row);
                    assert!(out.hidden.row(row) == single.hidden.row(0), "hidden of position {}", at + row);
                }
                at += size;
            }
        }
    }

    #[test]
    fn far_into_a_context_bits_depend_on_neither_rows_nor_threads_nor_instruction_set() {
        const FAR: usize = 4000;
        let Some(mut alone) = load_ctx(FAR + 96, 1, Isa::detect()) else {
            return;
        };
        let mut many = load_ctx(FAR + 96, 2, Isa::detect()).unwrap();
        let mut others: Vec<_> = Isa::available().filter_map(|isa| load_ctx(FAR + 96, 2, isa)).collect();
        let tokens = token_ids(FAR as u32 + 40);
        many.forward(&tokens[..FAR], LogitRows::Last).unwrap();
        let mut kept = many.cache.fork();
        for base in [FAR, 2049, 1015, 255, 200, 1] {
            kept.set_len(base);
            alone.cache = kept.fork();
            let next = &tokens[base..base + 40];
            let singles: Vec<_> = next.iter().map(|&token| alone.forward(&[token], LogitRows::All).unwrap()).collect();
            let check = |model: &mut NativeLlama, m: usize| {
                model.cache = kept.fork();
                let out = model.forward(&next[..m], LogitRows::All).unwrap();
                for (row, single) in singles[..m].iter().enumerate() {
                    let place = format!("row {row} of {m} after {base}, {}", model.weights.cpu.isa.name());
                    assert!(out.logits.row(row) == single.logits.row(0), "logits of {place}");
                    assert!(out.hidden.row(row) == single.hidden.row(0), "hidden state of {place}");
                }
            };
            (2..=17).chain([40]).for_each(|m| check(&mut many, m));
            others.iter_mut().for_each(|model| [5, 33].into_iter().for_each(|m| check(model, m)));
        }
    }

    #[test]
    fn behind_eight_thousand_positions_a_row_has_the_same_bits_in_any_company() {
        const FAR: usize = 8000;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tiny.gguf");
        std::fs::write(&path, tiny_gguf("")).unwrap();
        let load = |threads: usize, isa: Isa| {
            let source = OpenModel::open(&path).unwrap();
            NativeLlama::load_with(source.parts(), FAR + 16, Pool::new(threads), isa).unwrap()
        };
        let tokens: Vec<_> = (0..FAR as u32 + 16).map(|i| TokenId((i * 7919 + 13) % 70)).collect();
        let mut alone = load(1, Isa::detect());
        alone.forward(&tokens[..FAR], LogitRows::Last).unwrap();
        let singles: Vec<_> =
            tokens[FAR..].iter().map(|&token| alone.forward(&[token], LogitRows::All).unwrap().logits).collect();
        for isa in Isa::available().rev().take(3) {
            // portable code would take a minute
            let mut many = load(2, isa);
            many.forward(&tokens[..FAR], LogitRows::Last).unwrap();
            for m in [16, 1, 5, 8] {
                let out = many.forward(&tokens[FAR..FAR + m], LogitRows::All).unwrap();
                let same = |row: usize| out.logits.row(row) == singles[row].row(0);
                assert!((0..m).all(same), "{m} rows, {}", isa.name());
                many.truncate(FAR, &Checkpoint { len: FAR }).unwrap();
            }
        }
    }

    #[test]
    fn instruction_sets_agree_to_the_bit() {
        let tokens = token_ids(20);
        let outs: Vec<_> = Isa::available()
            .filter_map(|isa| load(2, isa)?.forward(&tokens, LogitRows::All).ok().map(|out| (isa.name(), out)))
            .collect();
        for pair in outs.windows(2) {
            assert!(pair[0].1.logits == pair[1].1.logits, "{} and {}", pair[0].0, pair[1].0);
        }
    }

    /// Rows of a tree that branches at the root and below, over both ends of a segment.
    const PARENTS: [usize; 9] = [0, 0, 0, 1, 1, 2, 3, 6, 7];

    #[test]
    fn a_trees_rows_have_the_bits_of_their_chains_and_any_path_can_be_kept() {
        let Some(mut model) = load_ctx(1100, 2, Isa::detect()) else {
            return;
        };
        let start = Checkpoint { len: 0 };
        let text = token_ids(1050);
        for base in [5, 31, 200, 252, 255, 256, 300, 1021] {
            model.truncate(0, &start).unwrap();
            model.forward(&text[..base], LogitRows::Last).unwrap();
            let tokens = &text[base + 3..base + 3 + PARENTS.len()];
            let tree = model.forward_tree(tokens, &PARENTS, LogitRows::All).unwrap();
            let mut whole = model.fork().unwrap();
            model.truncate(base, &start).unwrap();
            for row in 0..PARENTS.len() {
                let mut path = vec![row];
                while path[0] > 0 {
                    path.insert(0, PARENTS[path[0]]);
                }
                let chain: Vec<_> = path.iter().map(|row| tokens[*row]).collect();
                let mut alone = model.fork().unwrap();
                let want = alone.forward(&chain, LogitRows::All).unwrap();
                assert!(tree.logits.row(row) == want.logits.last().unwrap(), "logits of row {row} behind {base}");
                assert!(tree.hidden.row(row) == want.hidden.last().unwrap(), "hidden of row {row} behind {base}");
                let mut kept = whole.fork().unwrap();
                kept.retain(base, &path).unwrap();
                assert_eq!(kept.len(), base + path.len());
                let next = kept.forward(&text[..2], LogitRows::All).unwrap();
                assert!(next.logits == alone.forward(&text[..2], LogitRows::All).unwrap().logits, "kept {path:?}");
            }
            for (from, path) in [(base, &[0, 9][..]), (whole.len() + 1, &[])] {
                assert!(matches!(whole.retain(from, path), Err(ModelError::Rewind { .. })));
            }
        }
        assert!(
            model.forward_tree(&text[..2], &[0, 1], LogitRows::All).is_err()
                && model.forward_tree(&text[..2], &[0], LogitRows::All).is_err()
        );
    }

    #[test]
    fn an_early_exit_leaves_no_trace_and_all_layers_are_the_model() {
        let Some(mut model) = load(2, Isa::detect()) else {
            return;
        };
        let tokens = token_ids(40);
        let mut untouched = model.fork().unwrap();
        for model in [&mut model as &mut dyn Model, untouched.as_mut()] {
            model.forward(&tokens[..30], LogitRows::Last).unwrap();
        }
        let since = model.checkpoint().unwrap();
        let early = model.forward_early(&tokens[5..9], 10).unwrap();
        assert_eq!((early.logits.len(), model.len()), (1, 34));
        model.truncate(since.len, &since).unwrap();
        let whole = model.forward_early(&tokens[30..], 30).unwrap();
        model.truncate(since.len, &since).unwrap();
        let got = model.forward(&tokens[30..], LogitRows::All).unwrap();
        let want = untouched.forward(&tokens[30..], LogitRows::All).unwrap();
        assert!(got.logits == want.logits && got.hidden == want.hidden);
        assert!(whole.logits.row(0) == want.logits.last().unwrap());
    }

    #[test]
    fn a_rewound_cache_is_as_good_as_a_fresh_one() {
        let Some(mut model) = load(2, Isa::detect()) else {
            return;
        };
        let tokens = token_ids(60);
        let fresh = model.forward(&tokens, LogitRows::Last).unwrap();
        let start = Checkpoint { len: 0 };
        model.truncate(21, &start).unwrap();
        model.forward(&[TokenId(5); 30], LogitRows::Last).unwrap();
        model.truncate(21, &start).unwrap();
        let mut fork = model.fork().unwrap();
        let again = model.forward(&tokens[21..], LogitRows::Last).unwrap();
        assert!(fresh.logits == again.logits);
        let forked = fork.forward(&tokens[21..], LogitRows::Last).unwrap();
        assert!(fresh.logits == forked.logits && fork.len() == 60);
        assert!(matches!(model.truncate(61, &start), Err(ModelError::Rewind { .. })));
    }

    #[test]
    fn bad_input_is_refused_and_changes_nothing() {
        let Some(mut model) = load(1, Isa::detect()) else {
            return;
        };
        model.forward(&token_ids(3), LogitRows::Last).unwrap();
        let full = model.forward(&token_ids(510), LogitRows::Last);
        assert!(matches!(full, Err(ModelError::ContextFull { needed: 513, ctx_len: 512 })));
        let strange = model.forward(&[TokenId(1), TokenId(49152)], LogitRows::All);
        assert!(matches!(strange, Err(ModelError::Vocabulary { token: 49152, vocab: 49152 })));
        assert_eq!(model.len(), 3);
        let none = model.forward(&[], LogitRows::All).unwrap();
        assert!(none.logits.is_empty() && none.hidden.is_empty());
    }

    #[test]
    fn stats_say_what_the_logits_say() {
        let Some(mut model) = load(2, Isa::detect()) else {
            return;
        };
        let out = model.forward(&token_ids(5), LogitRows::All).unwrap();
        assert_eq!(out.stats.len(), 5);
        for (row, stats) in out.logits.iter().zip(&out.stats) {
            let best = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let sum: f64 = row.iter().map(|&logit| f64::from(logit - best).exp()).sum();
            assert_eq!((stats.max, row[stats.argmax as usize]), (best, best));
            assert!((f64::from(stats.log_sum_exp) - f64::from(best) - sum.ln()).abs() < 1e-4);
        }
    }

    #[test]
    fn values_are_near_the_reference() {
        let (Some(mut model), parity) = (load(2, Isa::detect()), Parity::open()) else {
            return;
        };
        let (mut agreed, mut seen, mut divergence) = (0, 0, 0.0);
        for prompt in parity.prompts() {
            model.truncate(0, &Checkpoint { len: 0 }).unwrap();
            let out = model.forward(&prompt.ids, LogitRows::All).unwrap();
            for (row, best) in out.logits.iter().zip(&prompt.top_ids) {
                let argmax = (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
                agreed += usize::from(argmax == *best);
                seen += 1;
            }
            divergence += kl(&prompt.last_logits, out.logits.last().unwrap()) / 3.0;
        }
        println!("top-1 agreement {agreed}/{seen}, mean KL of last rows {divergence:.2e}");
        assert!(agreed * 100 >= seen * 95 && divergence < 6e-3, "{agreed}/{seen}, KL {divergence}");
    }

    /// KL(p ‖ q) of two rows of logits, in nats.
    fn kl(p: &[f32], q: &[f32]) -> f64 {
        let log_sum = |row: &[f32]| row.iter().map(|&x| f64::from(x).exp()).sum::<f64>().ln();
        let (p_sum, q_sum) = (log_sum(p), log_sum(q));
        let term = |(&p, &q): (&f32, &f32)| {
            let log_p = f64::from(p) - p_sum;
            log_p.exp() * (log_p - (f64::from(q) - q_sum))
        };
        p.iter().zip(q).map(term).sum()
    }
}
