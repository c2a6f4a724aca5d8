//! A weight matrix in tiles, and the processor that multiplies with it.
//!
//! A matrix may be stacked from parts (q, k and v), each in the form of its encoding; tiles are numbered consecutively.
//! Packing copies and never rounds. Invariant: a row is in one tile, all parts but the last are whole tiles, and rows
//! after the last are zero, or were cut off.

use std::sync::Arc;

use draftscope_kernels::{
    self, Acts, Arena, Bytes, Encoding, Form, Isa, LANES, Onto, Operand, Pool, Tile, copy_row, read_block, write_block,
};

/// Threads, instruction set, and memory for weights.
#[derive(Debug)]
pub(crate) struct Cpu {
    pub(crate) pool: Pool,
    pub(crate) isa: Isa,
    /// Whether a pass over one row prefetches weights if there is one thread: [`read_ahead`](super::read_ahead).
    pub(crate) reads_ahead: bool,
    arena: Arena,
}

impl Cpu {
    pub(crate) fn new(pool: Pool, isa: Isa) -> Self {
        Self { pool, isa, reads_ahead: false, arena: Arena::default() }
    }

    /// Makes room for matrices of so many bytes together, a number that may be a little off.
    pub(crate) fn expect(&self, bytes: u64) {
        self.arena.expect(usize::try_from(bytes).unwrap_or(0));
    }

    /// Tiles of one item of work, so that every thread gets several items out of `tiles`.
    pub(crate) fn grain(&self, tiles: usize) -> usize {
        tiles.div_ceil(24 * self.pool.threads()).max(1)
    }
}

/// Order in which a head's rows are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowOrder {
    /// As stored.
    Stored,
    /// The two rows of each rotary pair of a head become half a head apart: first all first rows of pairs and half of the rows
    /// that are not rotated, then the others.
    Halves {
        /// Rows of a head.
        head_dim: usize,
        /// The first so many of them are rotated.
        rotated: usize,
        /// Whether the rows of a pair are stored side by side; else half of the rotated rows apart.
        adjacent: bool,
    },
}

impl RowOrder {
    /// The row that is packed as `row`.
    pub(crate) fn stored_row(self, row: usize) -> usize {
        match self {
            Self::Stored => row,
            Self::Halves { head_dim, rotated, adjacent } => {
                let (half, pairs) = (head_dim / 2, rotated / 2);
                let (head, side, at) = (row / head_dim, row % head_dim / half, row % head_dim % half);
                let place = match at.checked_sub(pairs) {
                    Some(rest) => rotated + side * (half - pairs) + rest,
                    None if adjacent => 2 * at + side,
                    None => side * pairs + at,
                };
                head * head_dim + place
            }
        }
    }
}

/// Rows as a file stores them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    pub(crate) encoding: Encoding,
    pub(crate) rows: usize,
    pub(crate) bytes: &'a [u8],
    pub(crate) order: RowOrder,
}

/// `[rows, k]` weights; copies share them.
#[derive(Clone, Debug)]
pub(crate) struct Matrix {
    rows: usize,
    k: usize,
    panels: Vec<Panel>,
    bias: Option<Arc<Vec<[f32; LANES]>>>, // [tiles]
}

/// Tiles of one form.
#[derive(Clone, Debug)]
struct Panel {
    form: Form,
    tiles: usize,
    bytes: Arc<Bytes>, // [tiles][blocks along k]
}

impl Matrix {
    /// Packs parts of `k` columns below each other.
    pub(crate) fn pack(cpu: &Cpu, k: usize, parts: &[Part<'_>]) -> Self {
        let same_form = |a: &Part<'_>, b: &Part<'_>| a.encoding == b.encoding;
        let panels = parts.chunk_by(same_form).map(|parts| Panel::pack(cpu, k, parts));
        Self { rows: parts.iter().map(|part| part.rows).sum(), k, panels: panels.collect(), bias: None }
    }

    /// Packs rows of plain numbers as they are.
    pub(crate) fn of_numbers(cpu: &Cpu, k: usize, rows: &[f32]) -> Self {
        let bytes: Vec<u8> = rows.iter().flat_map(|x| x.to_le_bytes()).collect();
        let part = Part { encoding: Encoding::F32, rows: rows.len() / k, bytes: &bytes, order: RowOrder::Stored };
        Self::pack(cpu, k, &[part])
    }

    /// Adds a bias to the outputs, one number a row; parts must be whole tiles.
    pub(crate) fn with_bias(mut self, bias: &[f32]) -> Self {
        let mut lanes = vec![[0.0; LANES]; self.tiles()];
        lanes.as_flattened_mut()[..bias.len()].copy_from_slice(bias);
        self.bias = Some(Arc::new(lanes));
        self
    }

    /// A matrix of some rows of this one, in the given order; `None` if a row does not exist.
    pub(crate) fn select(&self, cpu: &Cpu, rows: &[usize]) -> Option<Self> {
        let form = self.panels.first()?.form;
        if self.panels.len() > 1 || rows.iter().any(|&row| row >= self.rows) {
            return None;
        }
        let tiles = rows.len().div_ceil(LANES);
        let tile_bytes = form.tile_bytes(self.k);
        let mut bytes = cpu.arena.zeroed(tiles * tile_bytes);
        for (to, &from) in rows.iter().enumerate() {
            let target = &mut bytes[to / LANES * tile_bytes..][..tile_bytes];
            let blocks = target.chunks_exact_mut(form.block_bytes());
            for (to_block, block) in blocks.zip(self.tile(from / LANES).bytes.chunks_exact(form.block_bytes())) {
                copy_row(form, block, from % LANES, to_block, to % LANES);
            }
        }
        Some(Self {
            rows: rows.len(),
            k: self.k,
            panels: vec![Panel { form, tiles, bytes: Arc::new(bytes) }],
            bias: None,
        })
    }

    /// The same rows, which must be whole tiles, and room after them for rows of `from`, which are
    /// [pushed](Matrix::push) into this matrix only.
    pub(crate) fn with_room(&self, cpu: &Cpu, (rows, from): (usize, &Self)) -> Self {
        let mut with = self.clone();
        if let Some(first) = from.panels.first() {
            let (form, tiles) = (first.form, rows.div_ceil(LANES));
            let bytes = cpu.arena.zeroed(tiles * form.tile_bytes(self.k));
            with.panels.push(Panel { form, tiles, bytes: Arc::new(bytes) });
        }
        with
    }

    /// Adds a row of a matrix with as many columns, into whose form it fits; does nothing if there is no room.
    pub(crate) fn push(&mut self, from: &Self, row: usize) {
        let before: usize = self.panels.iter().rev().skip(1).map(|panel| panel.tiles).sum();
        let source = from.tile(row / LANES);
        let Some(panel) = self.panels.last_mut().filter(|panel| panel.form == source.form) else {
            return;
        };
        let form = panel.form;
        let tile_bytes = form.tile_bytes(self.k);
        let at = (self.rows / LANES).checked_sub(before).filter(|tile| *tile < panel.tiles);
        let (Some(tile), Some(bytes)) = (at, Arc::get_mut(&mut panel.bytes)) else {
            return;
        };
        let blocks = bytes[tile * tile_bytes..][..tile_bytes].chunks_exact_mut(form.block_bytes());
        for (to, block) in blocks.zip(source.bytes.chunks_exact(form.block_bytes())) {
            copy_row(form, block, row % LANES, to, self.rows % LANES);
        }
        self.rows += 1;
    }

    /// Drops rows `rows..` of those that were pushed.
    pub(crate) fn cut(&mut self, rows: usize) {
        self.rows = self.rows.min(rows);
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Columns.
    pub(crate) fn k(&self) -> usize {
        self.k
    }

    pub(crate) fn tiles(&self) -> usize {
        self.panels.iter().map(|panel| panel.tiles).sum()
    }

    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        let bias = self.bias.as_ref().map_or(0, |bias| size_of_val(bias.as_slice()));
        self.panels.iter().map(|panel| panel.bytes.len()).sum::<usize>() + bias
    }

    /// The contiguous weights from the first row on.
    pub(crate) fn first_panel(&self) -> &[u8] {
        self.panels.first().map_or(&[], |panel| &panel.bytes)
    }

    /// Usual name of the form of the largest part.
    pub(crate) fn dtype(&self) -> &'static str {
        let largest = self.panels.iter().max_by_key(|panel| panel.bytes.len());
        largest.map_or("none", |panel| panel.form.name())
    }

    /// The forms of activations it reads.
    pub(crate) fn operand(&self) -> Operand {
        let needs =
            self.panels.iter().map(|panel| Operand { blocks: !panel.form.is_dense(), values: panel.form.is_dense() });
        needs.fold(Operand::default(), Operand::and)
    }

    /// `out[m] (+)= tile · acts`, 16 outputs a row.
    pub(crate) fn multiply(&self, cpu: &Cpu, tile: usize, acts: &Acts, onto: Onto, out: &mut [[f32; LANES]]) {
        let weights = Tile { alone: cpu.pool.threads() == 1 && !cpu.reads_ahead, ..self.tile(tile) };
        draftscope_kernels::multiply(cpu.isa, weights, acts, onto, out);
        if let Some(bias) = &self.bias {
            let bias = &bias[tile];
            out.iter_mut().for_each(|row| row.iter_mut().zip(bias).for_each(|(x, bias)| *x += bias));
        }
    }

    /// Row `index` as plain numbers.
    pub(crate) fn row(&self, index: usize, out: &mut [f32]) {
        let tile = self.tile(index / LANES);
        let blocks = tile.bytes.chunks_exact(tile.form.block_bytes());
        for (block, out) in blocks.zip(out.chunks_exact_mut(tile.form.weights())) {
            read_block(tile.form, block, index % LANES, out);
        }
    }

    fn tile(&self, mut index: usize) -> Tile<'_> {
        for panel in &self.panels {
            if index < panel.tiles {
                let len = panel.bytes.len() / panel.tiles;
                return Tile { form: panel.form, bytes: &panel.bytes[index * len..(index + 1) * len], alone: false };
            }
            index -= panel.tiles;
        }
        panic!("tile {index} beyond a matrix of {} rows", self.rows)
    }
}

impl Panel {
    fn pack(cpu: &Cpu, k: usize, parts: &[Part<'_>]) -> Self {
        let form = parts[0].encoding.form();
        let rows: Vec<_> = parts.iter().flat_map(|part| (0..part.rows).map(move |row| (part, row))).collect();
        let tiles = rows.len().div_ceil(LANES);
        let tile_bytes = form.tile_bytes(k);
        let mut bytes = cpu.arena.zeroed(tiles * tile_bytes);
        cpu.pool.chunks(&mut bytes, tile_bytes, |tile, bytes| {
            for (index, (part, row)) in rows.iter().skip(tile * LANES).take(LANES).enumerate() {
                let len = part.bytes.len() / part.rows;
                let stored = part.order.stored_row(*row);
                let from = &part.bytes[stored * len..(stored + 1) * len];
                for (step, block) in bytes.chunks_exact_mut(form.block_bytes()).enumerate() {
                    write_block(part.encoding, (from, step), block, index);
                }
            }
        });
        Self { form, tiles, bytes: Arc::new(bytes) }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use candle_core::{Device, Tensor, quantized::QTensor};
    use proptest::prelude::*;

    use super::*;
    use crate::files::candle_dtype;
    use crate::native::testing::Noise;
    use draftscope_kernels::Load;

    fn cpu(isa: Isa, threads: usize) -> Cpu {
        Cpu::new(Pool::new(threads), isa)
    }

    /// Random weights as a file stores them, and as candle decodes them, or as ggml defines them.
    pub(crate) fn stored(encoding: Encoding, rows: usize, k: usize, seed: u64) -> (Vec<u8>, Vec<f32>) {
        if candle_dtype(encoding).is_none() {
            return looked_up(encoding, rows * k, seed);
        }
        let plain = Tensor::from_vec(Noise(seed).numbers(rows * k), (rows, k), &Device::Cpu).unwrap();
        let tensor = QTensor::quantize(&plain, candle_dtype(encoding).unwrap()).unwrap();
        let back = tensor.dequantize(&Device::Cpu).unwrap().flatten_all().unwrap();
        (tensor.data().unwrap().into_owned(), back.to_vec1().unwrap())
    }

    /// Random blocks of an encoding whose codes number the entries of a table, and their weights.
    fn looked_up(encoding: Encoding, weights: usize, seed: u64) -> (Vec<u8>, Vec<f32>) {
        const IQ4: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
        const MXFP4: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];
        let (mut noise, (of_block, size)) = (Noise(seed), encoding.block());
        let mut bytes: Vec<u8> = (0..weights / of_block * size).map(|_| noise.bits() as u8).collect();
        let mut numbers = Vec::with_capacity(weights);
        for block in bytes.chunks_exact_mut(size) {
            let (exponent, d) = (120 + block[0] % 8, half::f16::from_f32(noise.number() / 50.0));
            match encoding {
                Encoding::Mxfp4 => block[0] = exponent,
                _ => block[..2].copy_from_slice(&d.to_le_bytes()),
            }
            for part in 0..of_block / 32 {
                let (scale, codes, table) = match encoding {
                    Encoding::Mxfp4 => (2f32.powi(i32::from(exponent) - 128), &block[1..], MXFP4),
                    Encoding::Iq4Nl => (d.to_f32(), &block[2..], IQ4),
                    _ => {
                        let low = block[4 + part / 2] >> (4 * (part % 2)) & 15;
                        let high = u16::from_le_bytes([block[2], block[3]]) >> (2 * part) & 3;
                        let scale = i16::from(low) + (high << 4) as i16 - 32;
                        (d.to_f32() * f32::from(scale), &block[8 + 16 * part..], IQ4)
                    }
                };
                let code = |i: usize| table[usize::from(codes[i % 16] >> (i / 16 * 4) & 15)];
                numbers.extend((0..32).map(|i| scale * f32::from(code(i))));
            }
        }
        (bytes, numbers)
    }

    fn pack(cpu: &Cpu, encoding: Encoding, rows: usize, k: usize, bytes: &[u8]) -> Matrix {
        let order = RowOrder::Stored;
        Matrix::pack(cpu, k, &[Part { encoding, rows, bytes, order }])
    }

    /// Activations of `m` rows.
    fn acts(cpu: &Cpu, matrix: &Matrix, rows: &[f32]) -> Acts {
        let mut acts = Acts::default();
        acts.shape(rows.len() / matrix.k(), matrix.k(), matrix.operand());
        Load { rows: rows.as_chunks().0, out: &mut acts }.run_on(cpu.isa);
        acts
    }

    /// Outputs `[m][tiles · 16]`.
    fn outputs(cpu: &Cpu, matrix: &Matrix, rows: &[f32]) -> Vec<Vec<f32>> {
        let acts = acts(cpu, matrix, rows);
        let mut out = vec![Vec::new(); acts.m()];
        for tile in 0..matrix.tiles() {
            let mut lanes = vec![[1.0; LANES]; acts.m()];
            matrix.multiply(cpu, tile, &acts, Onto::Nothing, &mut lanes);
            out.iter_mut().zip(lanes).for_each(|(out, lanes)| out.extend(lanes));
        }
        out
    }

    /// The kernel's view of a row: its 8-bit codes, or the row itself.
    fn seen(cpu: &Cpu, matrix: &Matrix, row: &[f32]) -> Vec<f64> {
        let acts = acts(cpu, matrix, row);
        let codes = acts.blocks().iter().flat_map(|block| {
            let codes = block.words.iter().flat_map(|word| word.to_le_bytes());
            codes.map(|code| f64::from(code.cast_signed()) * f64::from(block.scale))
        });
        codes.chain(acts.values().iter().flatten().map(|&x| f64::from(x))).collect()
    }

    #[test]
    fn weights_read_back_as_candle_dequantises_them() {
        let cpu = cpu(Isa::PORTABLE, 2);
        for encoding in Encoding::ALL {
            let (rows, k) = (21, 512);
            let (bytes, expected) = stored(encoding, rows, k, 3);
            let matrix = pack(&cpu, encoding, rows, k, &bytes);
            let some = matrix.select(&cpu, &[20, 0, 7]).unwrap();
            let mut got = vec![0.0; k];
            for (row, expected) in expected.chunks_exact(k).enumerate() {
                matrix.row(row, &mut got);
                assert_eq!(got, expected, "{encoding:?}, row {row}");
            }
            some.row(0, &mut got);
            assert_eq!(got, expected[20 * k..], "{encoding:?}, selected");
            assert!(matrix.select(&cpu, &[21]).is_none());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn every_kernel_computes_every_form_to_the_same_bits(
            which in 0..Encoding::ALL.len(),
            rows in 1usize..70,
            super_blocks in 1usize..4,
            m in 1usize..=16,
            seed: u64,
        ) {
            let (encoding, k) = (Encoding::ALL[which], 256 * super_blocks);
            let (bytes, weights) = stored(encoding, rows, k, seed);
            let input = Noise(seed ^ 1).numbers(m * k);
            let mut first: Option<Vec<Vec<f32>>> = None;
            for isa in Isa::available() {
                let cpu = cpu(isa, 1);
                let matrix = pack(&cpu, encoding, rows, k, &bytes);
                let together = outputs(&cpu, &matrix, &input);
                for (row, out) in input.chunks_exact(k).zip(&together) {
                    prop_assert_eq!(&outputs(&cpu, &matrix, row)[0], out, "alone and together, {}", isa.name());
                    let row = seen(&cpu, &matrix, row);
                    for (weights, got) in weights.chunks_exact(k).zip(out) {
                        let terms = || weights.iter().zip(&row).map(|(&w, x)| f64::from(w) * x);
                        let (sum, size) = (terms().sum::<f64>(), terms().map(f64::abs).sum::<f64>());
                        prop_assert!((sum - f64::from(*got)).abs() <= 3e-6 * size, "{:?} {}: {} for {}", encoding, isa.name(), got, sum);
                    }
                    prop_assert!(out[rows..].iter().all(|&padding| padding == 0.0));
                }
                let first = first.get_or_insert_with(|| together.clone());
                prop_assert_eq!(&*first, &together, "{}", isa.name());
            }
        }
    }

    #[test]
    fn short_blocks_serve_widths_that_are_no_multiple_of_256() {
        for encoding in Encoding::ALL.into_iter().filter(|encoding| encoding.block().0 <= draftscope_kernels::BLOCK) {
            let (bytes, weights) = stored(encoding, 17, 96, 5);
            let cpu = cpu(Isa::detect(), 1);
            let matrix = pack(&cpu, encoding, 17, 96, &bytes);
            let input = Noise(6).numbers(96);
            let out = &outputs(&cpu, &matrix, &input)[0];
            let row = seen(&cpu, &matrix, &input);
            for (weights, got) in weights.chunks_exact(96).zip(out) {
                let sum: f64 = weights.iter().zip(&row).map(|(&w, x)| f64::from(w) * x).sum();
                assert!((sum - f64::from(*got)).abs() < 1e-4, "{encoding:?}: {got} for {sum}");
            }
        }
    }

    #[test]
    fn stacked_parts_keep_their_forms_and_deinterleave() {
        let cpu = cpu(Isa::detect(), 2);
        let (q, q_plain) = stored(Encoding::Q4K, 64, 256, 1);
        let (v, v_plain) = stored(Encoding::Q6K, 32, 256, 2);
        let turned = RowOrder::Halves { head_dim: 32, rotated: 32, adjacent: true };
        let parts = [
            Part { encoding: Encoding::Q4K, rows: 64, bytes: &q, order: turned },
            Part { encoding: Encoding::Q6K, rows: 32, bytes: &v, order: RowOrder::Stored },
        ];
        let matrix = Matrix::pack(&cpu, 256, &parts);
        let row = |index: usize| {
            let mut row = vec![0.0; 256];
            matrix.row(index, &mut row);
            row
        };
        assert_eq!((matrix.rows(), matrix.tiles(), matrix.dtype()), (96, 6, "q4_k"));
        assert_eq!(row(33), q_plain[34 * 256..35 * 256]);
        assert_eq!(row(48), q_plain[33 * 256..34 * 256]);
        assert_eq!(row(64), v_plain[..256]);
    }

    #[test]
    fn pairs_become_half_a_head_apart() {
        let order = |rotated, adjacent| RowOrder::Halves { head_dim: 8, rotated, adjacent };
        let rows = |order: RowOrder| (8..16).map(|row| order.stored_row(row) - 8).collect::<Vec<_>>();
        assert_eq!(rows(order(8, false)), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(rows(order(8, true)), [0, 2, 4, 6, 1, 3, 5, 7]);
        assert_eq!(rows(order(4, false)), [0, 1, 4, 5, 2, 3, 6, 7]);
        assert_eq!(rows(order(4, true)), [0, 2, 4, 5, 1, 3, 6, 7]);
    }
}
