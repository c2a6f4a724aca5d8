//! Gated DeltaNet (Yang et al., arXiv:2412.06464), one value head of all rows of a pass: a short causal convolution, then
//! a matrix of state that forgets, corrects itself towards the new value and answers the query.
//!
//! Columns of the state do not depend on each other. So some of them are copied to a small memory that stays in the
//! first-level cache, go through all rows there, and are written back: memory delivers the state once a pass, not once a
//! row. Invariant: a row goes through the same operations in the same order whatever rows run with it.

use crate::isa::{Isa, Kernel};
use crate::simd::{self, LANES, Lanes, part, put, silu};

/// Added to the sum of squares of a query or key before its root divides it.
const SMALL: f32 = 1e-6;

/// Tiles of columns that go through all rows together: enough sums for additions to overlap.
const TILES: usize = 2;

/// What all value heads of a layer share in a pass of `m` rows.
#[derive(Clone, Copy, Debug)]
pub struct DeltaLayer<'a> {
    /// Inputs of the convolution, `[kernel − 1 + m][channels]`: those of the rows before the pass first.
    pub seen: &'a [&'a [f32]],
    /// Weights of the convolution, `[kernel][channels]`.
    pub taps: &'a [f32],
    /// Gates, `[m][value heads · value_dim]`; none if only states are needed.
    pub gates: &'a [&'a [f32]],
    /// Output norm, `[value_dim]`.
    pub norm: &'a [f32],
    /// Added to the mean of squares of the output norm.
    pub eps: f32,
    /// Width of a query and of a key.
    pub key_dim: usize,
    /// Width of a value.
    pub value_dim: usize,
}

/// A value head in a pass.
#[derive(Debug)]
pub struct DeltaHead<'a> {
    /// The layer.
    pub layer: DeltaLayer<'a>,
    /// The channels where its query, key and value begin.
    pub channels: [usize; 3],
    /// The place of its gates in a row.
    pub gate: usize,
    /// For each row, what remains of the state (0…1) and the strength of the correction (0…1).
    pub rates: Vec<[f32; 2]>,
    /// The state before the pass, `[key_dim][value_dim]`.
    pub before: &'a [f32],
    /// Rows after which the state is needed, ascending, and where it goes.
    pub after: Vec<(usize, &'a mut [f32])>,
    /// Results, `[m][value_dim]`, normed and gated; nothing without gates.
    pub out: &'a mut [f32],
}

impl DeltaHead<'_> {
    /// Runs it with the instructions of `isa`.
    pub fn run_on(&mut self, isa: Isa) {
        isa.run(Run(self));
    }
}

struct Run<'a, 'b>(&'a mut DeltaHead<'b>);

/// Queries, keys and values of all rows, in tiles of 16; lanes after the last number are zero.
struct Convolved {
    queries: Vec<[f32; LANES]>, // [m][key tiles]
    keys: Vec<[f32; LANES]>,    // [m][key tiles]
    values: Vec<[f32; LANES]>,  // [m][value tiles]
}

impl Kernel for Run<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let head = self.0;
        let convolved = convolve_all(s, head);
        let tiles = head.layer.value_dim.div_ceil(LANES);
        let mut answers = vec![[0.0; LANES]; head.rates.len() * tiles]; // [m][value tiles]
        for first in (0..tiles).step_by(TILES) {
            if first + TILES <= tiles {
                columns::<S, TILES>(s, head, &convolved, (first, tiles), &mut answers);
            } else {
                columns::<S, 1>(s, head, &convolved, (first, tiles), &mut answers);
            }
        }
        for (row, gates) in head.layer.gates.iter().enumerate() {
            let (dim, gates) = (head.layer.value_dim, &gates[head.gate..]);
            let answer = &answers[row * tiles..][..tiles];
            gated(s, head.layer, answer, &gates[..dim], &mut head.out[row * dim..][..dim]);
        }
    }
}

#[inline(always)]
fn convolve_all<S: Lanes>(s: S, head: &DeltaHead<'_>) -> Convolved {
    let (layer, m) = (&head.layer, head.rates.len());
    let [keys, values] = [layer.key_dim, layer.value_dim].map(|dim| vec![[0.0; LANES]; m * dim.div_ceil(LANES)]);
    let mut all = Convolved { queries: keys.clone(), keys, values };
    let [query, key, value] = head.channels;
    convolve(s, layer, (query, layer.key_dim), &mut all.queries);
    convolve(s, layer, (key, layer.key_dim), &mut all.keys);
    convolve(s, layer, (value, layer.value_dim), &mut all.values);
    let tiles = layer.key_dim.div_ceil(LANES);
    all.queries.chunks_exact_mut(tiles).for_each(|query| normalise(s, query, 1.0 / (layer.key_dim as f32).sqrt()));
    all.keys.chunks_exact_mut(tiles).for_each(|key| normalise(s, key, 1.0));
    all
}

/// SiLU of the convolution of `dim` channels from `first` on.
#[inline(always)]
fn convolve<S: Lanes>(s: S, layer: &DeltaLayer<'_>, (first, dim): (usize, usize), out: &mut [[f32; LANES]]) {
    let tiles = dim.div_ceil(LANES);
    let channels = layer.seen.first().map_or(0, |row| row.len());
    let kernel = layer.taps.len() / channels.max(1);
    for (at, out) in out.iter_mut().enumerate() {
        let (row, tile) = (at / tiles, at % tiles);
        let range = first + tile * LANES..first + dim.min((tile + 1) * LANES);
        let mut sum = s.splat(0.0);
        for (seen, taps) in layer.seen[row..row + kernel].iter().zip(layer.taps.chunks_exact(channels)) {
            sum = s.fma(part(s, &taps[range.clone()]), part(s, &seen[range.clone()]), sum);
        }
        s.store(silu(s, sum), out);
    }
}

/// `x / sqrt(Σ x² + 1e-6) · scale`
#[inline(always)]
fn normalise<S: Lanes>(s: S, x: &mut [[f32; LANES]], scale: f32) {
    let factor = s.splat(scale / (squares(s, x) + SMALL).sqrt());
    for x in x {
        s.store(s.mul(s.load(x), factor), x);
    }
}

#[inline(always)]
fn squares<S: Lanes>(s: S, x: &[[f32; LANES]]) -> f32 {
    let mut sum = s.splat(0.0);
    for x in x {
        sum = s.fma(s.load(x), s.load(x), sum);
    }
    simd::sum(s, sum)
}

/// All rows over `W` tiles of columns from tile `first` of `tiles` on.
#[inline(always)]
fn columns<S: Lanes, const W: usize>(
    s: S,
    head: &mut DeltaHead<'_>,
    convolved: &Convolved,
    (first, tiles): (usize, usize),
    answers: &mut [[f32; LANES]],
) {
    let (dim, start) = (head.layer.value_dim, first * LANES);
    let end = dim.min(start + W * LANES);
    let mut state = vec![[[0.0; LANES]; W]; head.layer.key_dim];
    for (state, from) in state.iter_mut().zip(head.before.chunks_exact(dim)) {
        for w in 0..W {
            s.store(part(s, &from[(start + w * LANES).min(end)..end]), &mut state[w]);
        }
    }
    let key_tiles = head.layer.key_dim.div_ceil(LANES);
    for (row, &rates) in head.rates.iter().enumerate() {
        let [query, key] = [&convolved.queries, &convolved.keys].map(|all| &all[row * key_tiles..][..key_tiles]);
        let value = &convolved.values[row * tiles + first..][..W];
        let answer = advance::<S, W>(s, &mut state, rates, [query, key], value);
        for w in 0..W {
            s.store(answer[w], &mut answers[row * tiles + first + w]);
        }
        if let Some((_, after)) = head.after.iter_mut().find(|(at, _)| *at == row) {
            for (state, to) in state.iter().zip(after.chunks_exact_mut(dim)) {
                for w in 0..W {
                    put(s, s.load(&state[w]), &mut to[(start + w * LANES).min(end)..end]);
                }
            }
        }
    }
}

/// One row over `W` tiles of columns: the state after it, and its answers before norm and gate.
#[inline(always)]
fn advance<S: Lanes, const W: usize>(
    s: S,
    state: &mut [[[f32; LANES]; W]],
    [keep, rate]: [f32; 2],
    [query, key]: [&[[f32; LANES]]; 2],
    value: &[[f32; LANES]],
) -> [S::F; W] {
    let (query, key) = (query.as_flattened(), key.as_flattened());
    let keep = s.splat(keep);
    // 1. what the state, after it has forgotten, returns for the key
    let mut change = [s.splat(0.0); W];
    for (state, key) in state.iter().zip(key) {
        for w in 0..W {
            change[w] = s.fma(s.mul(s.load(&state[w]), keep), s.splat(*key), change[w]);
        }
    }
    for w in 0..W {
        change[w] = s.mul(s.sub(s.load(&value[w]), change[w]), s.splat(rate));
    }
    // 2. correct it towards the value, and query it
    let mut answer = [s.splat(0.0); W];
    for ((state, key), query) in state.iter_mut().zip(key).zip(query) {
        for w in 0..W {
            let x = s.fma(s.splat(*key), change[w], s.mul(s.load(&state[w]), keep));
            s.store(x, &mut state[w]);
            answer[w] = s.fma(x, s.splat(*query), answer[w]);
        }
    }
    answer
}

/// RMSNorm of an answer, times SiLU of its gate.
#[inline(always)]
fn gated<S: Lanes>(s: S, layer: DeltaLayer<'_>, answer: &[[f32; LANES]], gate: &[f32], out: &mut [f32]) {
    let mean = squares(s, answer) / layer.value_dim as f32;
    let factor = s.splat(1.0 / (mean + layer.eps).sqrt());
    let parts = answer.iter().zip(layer.norm.chunks(LANES)).zip(gate.chunks(LANES)).zip(out.chunks_mut(LANES));
    for (((answer, weight), gate), out) in parts {
        let x = s.mul(s.mul(s.load(answer), factor), part(s, weight));
        put(s, s.mul(x, silu(s, part(s, gate))), out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Noise;

    /// A layer with one head; widths that do not fill tiles, and widths that do.
    struct Layer {
        dims: [usize; 2],
        kernel: usize,
        taps: Vec<f32>,
        norm: Vec<f32>,
        seen: Vec<Vec<f32>>,
        gates: Vec<Vec<f32>>,
        rates: Vec<[f32; 2]>,
        state: Vec<f32>,
    }

    impl Layer {
        fn new(dims: [usize; 2], kernel: usize, rows: usize) -> Self {
            let mut noise = Noise((dims[0] * 100 + dims[1] + kernel) as u64);
            let channels = 2 * dims[0] + dims[1];
            let taps = noise.numbers(kernel * channels);
            let norm = noise.numbers(dims[1]);
            let seen = (0..kernel - 1 + rows).map(|_| noise.numbers(channels)).collect();
            let gates = (0..rows).map(|_| noise.numbers(dims[1])).collect();
            let rates = (0..rows).map(|_| [noise.number().abs(), noise.number().abs()]).collect();
            let state = noise.numbers(dims[0] * dims[1]);
            Self { dims, kernel, taps, norm, seen, gates, rates, state }
        }

        /// Results of `rows` rows from row `first` on, and the states after each.
        fn run(&self, isa: Isa, before: &[f32], (first, rows): (usize, usize)) -> (Vec<f32>, Vec<Vec<f32>>) {
            let [key_dim, value_dim] = self.dims;
            let seen: Vec<&[f32]> = self.seen[first..first + rows + self.kernel - 1].iter().map(|x| &x[..]).collect();
            let gates: Vec<&[f32]> = self.gates[first..first + rows].iter().map(|x| &x[..]).collect();
            let layer = DeltaLayer {
                seen: &seen,
                taps: &self.taps,
                gates: &gates,
                norm: &self.norm,
                eps: 1e-6,
                key_dim,
                value_dim,
            };
            let (mut out, mut states) = (vec![0.0; rows * value_dim], vec![vec![0.0; self.state.len()]; rows]);
            DeltaHead {
                layer,
                channels: [0, key_dim, 2 * key_dim],
                gate: 0,
                rates: self.rates[first..first + rows].to_vec(),
                before,
                after: states.iter_mut().map(|state| &mut state[..]).enumerate().collect(),
                out: &mut out,
            }
            .run_on(isa);
            (out, states)
        }

        /// The same in f64, by the formulas.
        fn expected(&self, rows: usize) -> (Vec<f64>, Vec<f64>) {
            let [dk, dv] = self.dims;
            let silu = |x: f64| x / (1.0 + (-x).exp());
            let (mut state, mut out) = (self.state.iter().map(|x| f64::from(*x)).collect::<Vec<_>>(), Vec::new());
            for row in 0..rows {
                let channels = 2 * dk + dv;
                let mixed: Vec<f64> = (0..channels)
                    .map(|c| {
                        (0..self.kernel)
                            .map(|t| f64::from(self.taps[t * channels + c]) * f64::from(self.seen[row + t][c]))
                            .sum()
                    })
                    .map(silu)
                    .collect();
                let unit = |x: &[f64], scale: f64| -> Vec<f64> {
                    let size = (x.iter().map(|x| x * x).sum::<f64>() + 1e-6).sqrt();
                    x.iter().map(|x| x / size * scale).collect()
                };
                let (query, key) = (unit(&mixed[..dk], (dk as f64).sqrt().recip()), unit(&mixed[dk..2 * dk], 1.0));
                let [keep, rate] = self.rates[row].map(f64::from);
                let mut answer = vec![0.0; dv];
                for column in 0..dv {
                    let known: f64 = (0..dk).map(|i| state[i * dv + column] * keep * key[i]).sum();
                    let change = (mixed[2 * dk + column] - known) * rate;
                    for i in 0..dk {
                        let x = &mut state[i * dv + column];
                        *x = *x * keep + key[i] * change;
                        answer[column] += *x * query[i];
                    }
                }
                let mean = answer.iter().map(|x| x * x).sum::<f64>() / dv as f64;
                for column in 0..dv {
                    let gate = silu(f64::from(self.gates[row][column]));
                    out.push(answer[column] / (mean + 1e-6).sqrt() * f64::from(self.norm[column]) * gate);
                }
            }
            (out, state)
        }
    }

    const SIZES: [([usize; 2], usize); 5] = [([16, 16], 4), ([128, 128], 4), ([32, 48], 2), ([5, 21], 3), ([2, 2], 1)];

    #[test]
    fn rows_have_the_values_of_the_formulas() {
        for (dims, kernel) in SIZES {
            let layer = Layer::new(dims, kernel, 6);
            let (out, states) = layer.run(Isa::detect(), &layer.state, (0, 6));
            let (expected, state) = layer.expected(6);
            let near =
                |a: &[f32], b: &[f64]| a.iter().zip(b).all(|(a, b)| (f64::from(*a) - b).abs() < 2e-5 * (1.0 + b.abs()));
            assert!(near(&out, &expected), "{dims:?}");
            assert!(near(&states[5], &state), "{dims:?}");
        }
    }

    #[test]
    fn bits_depend_neither_on_the_rows_of_a_pass_nor_on_the_instruction_set() {
        for (dims, kernel) in SIZES {
            let layer = Layer::new(dims, kernel, 9);
            let (out, states) = layer.run(Isa::PORTABLE, &layer.state, (0, 9));
            for isa in Isa::available() {
                assert!(
                    layer.run(isa, &layer.state, (0, 9)) == (out.clone(), states.clone()),
                    "{} {dims:?}",
                    isa.name()
                );
                let (mut before, mut first, mut parts) = (layer.state.clone(), 0, Vec::new());
                for rows in [1, 4, 1, 3] {
                    let (part, mut states_of_part) = layer.run(isa, &before, (first, rows));
                    parts.extend(part);
                    first += rows;
                    before = states_of_part.pop().unwrap();
                    assert!(before == states[first - 1], "{} {dims:?}", isa.name());
                }
                assert!(parts == out, "{} {dims:?}", isa.name());
            }
        }
    }
}
