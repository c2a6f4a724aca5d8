//! Many sequences decoded together: every row of a pass belongs to a sequence of its own choice.
//!
//! Weights stream from memory once for up to [`MAX_ROWS`] rows, so sixteen sequences cost about as much as three cost
//! alone. Matrices take rows in any order; rotation, cache and attention depend on the position of each row. Invariant:
//! a row's bits are those of a plain pass over its sequence, whatever runs beside it. Callers decide which token comes
//! next and when a sequence ends.

use std::{ops::Range, sync::Arc};

use super::attention::{Adds, Attention, HeadNorms};
use super::cache::{AngleTable, KvCache, LayerCache, Slabs};
use super::head;
use super::layer::{Next, Scratch};
use super::llama::{NativeLlama, Weights};
use super::mixer::Mixer;
use super::pass::{Partials, Pass};
use super::rule::Rule;
use crate::native::hidden_tap::States;
use crate::{ModelError, RowStats, Rows, Tap};
use draftscope_kernels::{
    Acts, Angles, LANES, MAX_HEAD_DIM, MAX_ROWS, Operand, PARTIAL_EXTRA, Queries, Rotate, SEGMENT, Sigmoid, StoreKeys,
    StoreValues, attend,
};
use draftscope_protocol::TokenId;

/// Most rows of a pass.
pub const BATCH_ROWS: usize = MAX_ROWS;

/// One row of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchRow {
    /// The sequence, below the number of slots.
    pub slot: usize,
    /// Its next token. Rows of one slot are in order.
    pub token: TokenId,
    /// Whether logits are requested.
    pub scored: bool,
}

/// Result of a pass.
#[derive(Clone, Debug)]
pub struct BatchForward {
    /// `[scored rows, vocab]`, in the order of the rows.
    pub logits: Rows,
    /// One a row of logits.
    pub stats: Vec<RowStats>,
    /// `[rows, states · d]`: the states of the model's tap.
    pub hidden: Rows,
}

/// Caches for some sequences over the weights of one target.
#[derive(Debug)]
pub struct NativeBatch {
    weights: Arc<Weights>,
    caches: Vec<KvCache>,
    tables: Vec<AngleTable>,
    scratch: Scratch,
    head_acts: Acts,
    tap: Tap,
}

/// Position of a row.
#[derive(Clone, Copy, Debug)]
struct RowPlace {
    slot: usize,
    position: usize,
}

/// A pass and the position of each of its rows.
#[derive(Clone, Copy)]
struct Placed<'a> {
    pass: Pass<'a>,
    places: &'a [RowPlace],
}

/// What a head's outputs become.
enum Kind<'a> {
    Query,
    Key(Vec<Slabs<'a>>),
    Value(Vec<Slabs<'a>>),
    Gate,
}

impl NativeBatch {
    /// Empty sequences in `slots` slots, each of the model's context length and with its tap.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] for a model with layers that do not attend.
    pub fn new(model: &NativeLlama, slots: usize) -> Result<Self, ModelError> {
        if model.weights.layers.iter().any(|layer| !layer.mixer.attends()) {
            let what = "sequences of a model whose layers do not all keep keys and values do not run together";
            return Err(ModelError::Unsupported(what.into()));
        }
        let shape = model.cache.shape().clone();
        Ok(Self {
            weights: Arc::clone(&model.weights),
            caches: (0..slots).map(|_| KvCache::new(shape.clone())).collect(),
            tables: model.tables.clone(),
            scratch: Scratch::default(),
            head_acts: Acts::default(),
            tap: model.tap.clone(),
        })
    }

    /// Sequences that fit.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.caches.len()
    }

    /// Positions that a sequence may have.
    #[must_use]
    pub fn ctx_len(&self) -> usize {
        self.caches.first().map_or(0, |cache| cache.shape().ctx_len)
    }

    /// Drops the sequence of a slot.
    pub fn clear(&mut self, slot: usize) {
        self.caches[slot].set_len(0);
    }

    /// Runs rows at the ends of their sequences and leaves them there.
    ///
    /// # Errors
    /// [`ModelError::ContextFull`] or [`ModelError::Vocabulary`] if a row cannot run, and [`ModelError::NotFinite`];
    /// then no sequence has changed.
    ///
    /// # Panics
    /// If there are more than [`BATCH_ROWS`] rows, or a slot does not exist.
    pub fn forward(&mut self, rows: &[BatchRow]) -> Result<BatchForward, ModelError> {
        assert!(rows.len() <= BATCH_ROWS, "{} rows in a pass of {BATCH_ROWS}", rows.len());
        let tokens: Vec<_> = rows.iter().map(|row| row.token).collect();
        self.weights.check(&tokens)?;
        let places = self.places(rows)?;
        let d = self.weights.shape.d_model;
        let mut hidden = vec![[0.0; LANES]; rows.len() * d / LANES];
        let states = States::besides(&self.tap);
        let mut tapped = vec![[0.0; LANES]; states * hidden.len()];
        if !rows.is_empty() {
            self.run(&tokens, &places, &mut hidden, &mut tapped)?;
        }
        for place in &places {
            self.caches[place.slot].set_len(place.position + 1);
        }
        let (logits, stats) = self.score(rows, &hidden);
        let hidden = match states {
            0 => Rows::new(hidden.into_flattened(), d),
            _ => Rows::new(tapped.into_flattened(), states * d),
        };
        Ok(BatchForward { logits, stats, hidden })
    }

    fn places(&self, rows: &[BatchRow]) -> Result<Vec<RowPlace>, ModelError> {
        let mut taken = vec![0; self.caches.len()];
        let place = |row: &BatchRow| {
            taken[row.slot] += 1;
            self.caches[row.slot].room(taken[row.slot])?;
            Ok(RowPlace { slot: row.slot, position: self.caches[row.slot].len() + taken[row.slot] - 1 })
        };
        rows.iter().map(place).collect()
    }

    /// Embedding, blocks and final norm; `hidden` is `[m][d / 16]`, `tapped` `[m][states][d / 16]`.
    fn run(
        &mut self,
        tokens: &[TokenId],
        places: &[RowPlace],
        hidden: &mut [[f32; LANES]],
        tapped: &mut [[f32; LANES]],
    ) -> Result<(), ModelError> {
        let weights = &*self.weights;
        let m = tokens.len();
        let mut states = States::new(&self.tap, weights.layers.len(), m, tapped)?;
        let (cpu, shape, tables) = (&weights.cpu, &weights.shape, &self.tables[..]);
        let pass = Pass { cpu, shape, tables, base: 0, at: 0, m, tree: None, next: Next::Else };
        let placed = Placed { pass, places };
        weights.embed_rows(tokens, hidden, &mut self.scratch);
        let mut finite = weights.layers.first().is_none_or(|first| first.enter(pass, &mut self.scratch));
        states.keep(0, &self.scratch.x);
        for (index, layer) in weights.layers.iter().enumerate() {
            let next = weights.layers.get(index + 1).map_or(Next::Head(&weights.head), Next::Block);
            let placed = Placed { pass: Pass { next, ..pass }, ..placed };
            // others do not get here
            let Mixer::Attention(attention) = &layer.mixer else { continue };
            let mut caches: Vec<_> = self.caches.iter_mut().map(|cache| cache.layer(attention.cache)).collect();
            let placed = Placed { pass: Pass { shape: &attention.shape, ..placed.pass }, ..placed };
            placed.mix((attention, layer.out.operand()), &mut caches, &mut self.scratch);
            finite &= layer.finish(placed.pass, &mut self.scratch);
            states.keep(index + 1, &self.scratch.x);
        }
        finite &= weights.last_norm(&self.scratch.x, &mut self.head_acts, hidden);
        states.keep_normed(hidden);
        let position = places.iter().map(|place| place.position).max().unwrap_or(0);
        if finite { Ok(()) } else { Err(ModelError::NotFinite { position }) }
    }

    /// Logits of the rows that request them.
    fn score(&mut self, rows: &[BatchRow], hidden: &[[f32; LANES]]) -> (Rows, Vec<RowStats>) {
        let weights = &*self.weights;
        let (tiles, vocab) = (weights.shape.d_model / LANES, weights.head.rows());
        let scored = rows.iter().zip(hidden.chunks_exact(tiles)).filter(|(row, _)| row.scored);
        let hidden: Vec<_> = scored.flat_map(|(_, hidden)| hidden.iter().copied()).collect();
        let mut logits = vec![0.0; hidden.len() / tiles * vocab];
        let mut stats = Vec::new();
        if !hidden.is_empty() {
            weights.read_head(&hidden, &mut self.head_acts);
            head::logits(&weights.cpu, weights.output(), &self.head_acts, &mut logits, &mut stats);
        }
        (Rows::new(logits, vocab), stats)
    }
}

impl Placed<'_> {
    /// The mixer of one block; answers go to `scratch.attended`, in the form in which the next matrix reads them.
    fn mix(self, of: (&Attention, Operand), caches: &mut [LayerCache<'_>], scratch: &mut Scratch) {
        self.project(of.0, caches, scratch);
        self.attend(of, caches, scratch);
    }

    /// Queries to `scratch.heads`, rotated and scaled; keys and values to the caches.
    fn project(self, attention: &Attention, caches: &mut [LayerCache<'_>], scratch: &mut Scratch) {
        let (pass, shape) = (self.pass, self.pass.shape);
        let tiles = shape.head_dim / LANES;
        let count = attention.count();
        scratch.heads.resize(count * tiles * pass.m, [0.0; LANES]);
        let acts = &scratch.acts;
        let is_projected = attention.project_normed(pass, acts, (&mut scratch.heads, &mut scratch.squares));
        let added = if attention.adds == Adds::Nothing { 0 } else { shape.kv_heads };
        let (mut keys, mut values): (Vec<_>, Vec<_>) = (0..added).map(|_| (Vec::new(), Vec::new())).unzip();
        for (slot, cache) in caches.iter_mut().enumerate() {
            let slabs = cache.slabs(self.positions(slot)).into_iter().zip(keys.iter_mut().zip(&mut values));
            slabs.for_each(|([key, value], (keys, values))| {
                keys.push(key);
                values.push(value);
            });
        }
        let kinds = (0..shape.heads).map(|_| Kind::Query);
        let kinds = kinds.chain(keys.into_iter().map(Kind::Key)).chain(values.into_iter().map(Kind::Value));
        let kinds = kinds.chain(std::iter::repeat_with(|| Kind::Gate));
        let mut jobs: Vec<_> = scratch.heads.chunks_exact_mut(tiles * pass.m).zip(kinds).collect();
        pass.cpu.pool.each(&mut jobs, |head, (out, kind)| {
            if !is_projected {
                attention.multiply_head(pass, head, acts, out);
            }
            self.place(out, kind, (attention.rule, &attention.head_norms));
        });
    }

    /// From the first position to after the last that a sequence occupies in this pass.
    fn positions(self, slot: usize) -> Range<usize> {
        let mut own = self.places.iter().filter(|place| place.slot == slot).map(|place| place.position);
        own.next().map_or(0..0, |first| first..own.next_back().unwrap_or(first) + 1)
    }

    /// Finishes a head's outputs, each row at its own position and in its own sequence.
    fn place(
        self,
        tiles: &mut [[f32; LANES]],
        kind: &mut Kind<'_>,
        (rule, [of_queries, of_keys, of_values]): (Rule, &HeadNorms),
    ) {
        let (pass, isa) = (self.pass, self.pass.cpu.isa);
        let m = pass.m;
        if matches!(kind, Kind::Gate) {
            return Sigmoid { tiles }.run_on(isa);
        }
        let mut row_tiles = [[0.0; LANES]; MAX_HEAD_DIM / LANES];
        let own = &mut row_tiles[..tiles.len() / m];
        for (row, &RowPlace { slot, position }) in self.places.iter().enumerate() {
            for (to, tile) in own.iter_mut().zip(tiles[row..].iter().step_by(m)) {
                *to = *tile;
            }
            let angles = rule.table.map_or(Angles::NONE, |table| pass.tables[table].at(position, 1));
            match kind {
                Kind::Query => {
                    pass.norm_head(&mut *own, 1, of_queries.as_ref());
                    Rotate { tiles: &mut *own, m: 1, angles, scale: rule.query_scale }.run_on(isa);
                    for (to, tile) in tiles[row..].iter_mut().step_by(m).zip(&*own) {
                        *to = *tile;
                    }
                }
                Kind::Key(slabs) => {
                    pass.norm_head(&mut *own, 1, of_keys.as_ref());
                    Rotate { tiles: &mut *own, m: 1, angles, scale: 1.0 }.run_on(isa);
                    let Slabs { start, slabs } = &mut slabs[slot];
                    StoreKeys { tiles: own, m: 1, position: position - *start, slabs }.run_on(isa);
                }
                Kind::Value(slabs) => {
                    pass.norm_head(&mut *own, 1, of_values.as_ref());
                    let Slabs { start, slabs } = &mut slabs[slot];
                    StoreValues { tiles: own, m: 1, position: position - *start, slabs }.run_on(isa);
                }
                Kind::Gate => {}
            }
        }
    }

    /// Attention outputs, ready for the output projection, to `scratch.attended`. Every row is a team of its own, since
    /// its neighbours read other caches.
    fn attend(self, (attention, operand): (&Attention, Operand), caches: &[LayerCache<'_>], scratch: &mut Scratch) {
        let rule = attention.rule;
        let (pass, shape, m) = (self.pass, self.pass.shape, self.pass.m);
        // a row's segments are counted from the first that it sees
        let segments = self.places.iter().map(|place| {
            let seen = place.position + 1;
            seen.div_ceil(SEGMENT) - rule.first_segment(seen)
        });
        let segments = segments.max().unwrap_or(0);
        let group = shape.heads / shape.kv_heads;
        let partial = group * (shape.head_dim + PARTIAL_EXTRA);
        scratch.partials.resize(shape.kv_heads * m * segments * partial, 0.0);
        let group_tiles = group * shape.head_dim / LANES * m;
        let heads = &scratch.heads;
        let answers = pass.answers(&mut scratch.attended, &mut scratch.wide, operand);
        let attend = |item: usize, out: &mut [f32]| {
            let (head, row, segment) = (item / segments / m, item / segments % m, item % segments);
            let RowPlace { slot, position } = self.places[row];
            let alone = Pass { base: position, m: 1, ..pass };
            let segment = rule.first_segment(position + 1) + segment;
            if let Some(stretch) = alone.stretch((&caches[slot], rule), head, 0..1, segment) {
                let tiles = &heads[head * group_tiles..(head + 1) * group_tiles];
                attend(pass.cpu.isa, Queries { tiles, m, first: row, rows: 1 }, stretch, out);
            }
        };
        let (mut columns, each) = pass.columns(answers, m, |_| 1);
        pass.cpu.pool.chunks_then(
            (&mut scratch.partials, partial),
            (&mut columns, each),
            attend,
            |own, partials, columns| {
                let seen = self.places[own % m].position + 1;
                let (before, gates) = (rule.first_segment(seen), attention.gates(pass, heads, (own / m, own % m)));
                let partials = Partials { numbers: partials, stride: partial, before, gates };
                pass.join(rule, partials, seen, (columns, 0));
            },
        );
        pass.gather_answers(&mut scratch.attended, &mut scratch.wide);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::OpenModel;

    use crate::native::testing::{gguf_path, token_ids};
    use crate::{LogitRows, Model};

    /// State and logits of a position.
    type Seen = (Vec<f32>, Option<Vec<f32>>);

    fn load() -> Option<NativeLlama> {
        let gguf = OpenModel::open(&gguf_path()?).unwrap();
        Some(NativeLlama::load(gguf.parts(), 1100, Some(2)).unwrap())
    }

    /// Tokens of sequence `slot`.
    fn sequence(slot: usize, len: usize) -> Vec<TokenId> {
        token_ids(4000).split_off(61 * slot + 1)[..len].to_vec()
    }

    #[test]
    fn rows_have_the_bits_of_a_plain_pass_over_their_sequence() {
        let Some(mut model) = load() else {
            return;
        };
        let lens = [3, 1040, 17, 40, 1, 300, 64, 16, 33, 5, 280, 2, 90, 100, 7, 255];
        let mut batch = NativeBatch::new(&model, 16).unwrap();
        let mut at = [0; 16];
        let mut seen: Vec<Vec<Seen>> = vec![Vec::new(); 16];
        for turn in 0.. {
            let mut rows = Vec::new();
            for slot in (0..16).map(|i| (i + turn) % 16) {
                // several rows of one sequence may share a pass, as in a prefill
                for _ in 0..1 + (slot + turn) % 3 {
                    if at[slot] < lens[slot] && rows.len() < BATCH_ROWS {
                        let token = sequence(slot, lens[slot])[at[slot]];
                        rows.push(BatchRow { slot, token, scored: at[slot] % 7 == 0 });
                        at[slot] += 1;
                    }
                }
            }
            if rows.is_empty() {
                break;
            }
            let out = batch.forward(&rows).unwrap();
            let mut logits = out.logits.iter();
            for (row, hidden) in rows.iter().zip(out.hidden.iter()) {
                let logits = row.scored.then(|| logits.next().unwrap().to_vec());
                seen[row.slot].push((hidden.to_vec(), logits));
            }
        }
        for (slot, seen) in seen.iter().enumerate() {
            model.truncate(0, &crate::Checkpoint { len: 0 }).unwrap();
            let plain = model.forward(&sequence(slot, lens[slot]), LogitRows::All).unwrap();
            assert_eq!(seen.len(), lens[slot]);
            for (position, (hidden, logits)) in seen.iter().enumerate() {
                assert!(hidden == plain.hidden.row(position), "hidden of {slot} at {position}");
                assert!(logits.as_ref().is_none_or(|l| l == plain.logits.row(position)), "logits, {slot}, {position}");
            }
        }
    }

    #[test]
    fn a_cleared_slot_starts_afresh_and_bad_rows_change_nothing() {
        let Some(mut model) = load() else {
            return;
        };
        let mut batch = NativeBatch::new(&model, 2).unwrap();
        let row = |slot, token| BatchRow { slot, token: TokenId(token), scored: true };
        batch.forward(&[row(0, 5), row(1, 6), row(0, 7)]).unwrap();
        assert!(matches!(batch.forward(&[row(1, 9), row(0, 49152)]), Err(ModelError::Vocabulary { .. })));
        batch.clear(0);
        let out = batch.forward(&[row(1, 8), row(0, 11)]).unwrap();
        let plain = model.forward(&[TokenId(6), TokenId(8)], LogitRows::Last).unwrap();
        assert!(out.logits.row(0) == plain.logits.row(0));
        model.truncate(0, &crate::Checkpoint { len: 0 }).unwrap();
        let plain = model.forward(&[TokenId(11)], LogitRows::Last).unwrap();
        assert!(out.logits.row(1) == plain.logits.row(0));
        assert_eq!(out.stats[1], plain.stats[0]);
        for _ in 0..1099 {
            batch.forward(&[row(0, 1)]).unwrap();
        }
        assert!(matches!(batch.forward(&[row(1, 2), row(0, 1)]), Err(ModelError::ContextFull { .. })));
        assert_eq!((batch.slots(), batch.ctx_len()), (2, 1100));
    }
}
