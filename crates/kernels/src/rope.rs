//! From a head's outputs to attention: rotary positions, scaling, rounding to halves.
//!
//! Rotation pairs dimension i with i + head_dim / 2 (Su et al., arXiv:2104.09864). For files with interleaved pairs the
//! query and key rows are reordered when they are packed, which leaves every product of a query and a key unchanged.

use crate::{
    attention::SLAB,
    isa::Kernel,
    simd::{LANES, Lanes},
};

/// Cosines and sines of some positions, `[positions][rotated / 32]` lanes, rounded up.
#[derive(Clone, Copy, Debug)]
pub struct Angles<'a> {
    /// Cosines `[m][rotated / 32]`.
    pub cos: &'a [[f32; LANES]],
    /// Sines, as many.
    pub sin: &'a [[f32; LANES]],
}

impl Angles<'_> {
    /// Those of no pair.
    pub const NONE: Self = Self { cos: &[], sin: &[] };
}

/// Rotates all rows of a head in place and multiplies them with `scale`. If there are fewer angles than pairs, the first
/// tiles of both halves are rotated. Halves may end within a tile.
pub struct Rotate<'a> {
    /// `[head_dim / 16][m]`.
    pub tiles: &'a mut [[f32; LANES]],
    /// Rows.
    pub m: usize,
    /// One of the m rows.
    pub angles: Angles<'a>,
    /// Factor of the result.
    pub scale: f32,
}

impl Kernel for Rotate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let m = self.m;
        if !(self.tiles.len() / m).is_multiple_of(2) {
            return self.number_by_number();
        }
        let (first, second) = self.tiles.split_at_mut(self.tiles.len() / 2);
        let rotated = self.angles.cos.len() / m;
        let (first, first_rest) = first.split_at_mut(rotated * m);
        let (second, second_rest) = second.split_at_mut(rotated * m);
        let scale = s.splat(self.scale);
        for x in first_rest.iter_mut().chain(second_rest) {
            s.store(s.mul(s.load(x), scale), x);
        }
        for (at, (a, b)) in first.iter_mut().zip(second).enumerate() {
            let (tile, row) = (at / m, at % m);
            let cos = s.load(&self.angles.cos[row * rotated + tile]);
            let sin = s.load(&self.angles.sin[row * rotated + tile]);
            let (x, y) = (s.load(a), s.load(b));
            s.store(s.mul(s.sub(s.mul(x, cos), s.mul(y, sin)), scale), a);
            s.store(s.mul(s.fma(x, sin, s.mul(y, cos)), scale), b);
        }
    }
}

impl Rotate<'_> {
    /// For heads whose halves end within a tile.
    fn number_by_number(self) {
        let (m, half) = (self.m, self.tiles.len() / self.m * LANES / 2);
        let lanes = self.angles.cos.len() / m;
        let rotated = (lanes * LANES).min(half);
        let place = |row: usize, at: usize| (at / LANES * m + row, at % LANES);
        for row in 0..m {
            let angle = |table: &[[f32; LANES]], pair: usize| table[row * lanes + pair / LANES][pair % LANES];
            for pair in 0..half {
                let [(a, at), (b, beside)] = [pair, pair + half].map(|at| place(row, at));
                let [x, y] = [self.tiles[a][at], self.tiles[b][beside]];
                let [x, y] = match pair < rotated {
                    true => {
                        let (cos, sin) = (angle(self.angles.cos, pair), angle(self.angles.sin, pair));
                        [x * cos - y * sin, x.mul_add(sin, y * cos)]
                    }
                    false => [x, y],
                };
                (self.tiles[a][at], self.tiles[b][beside]) = (x * self.scale, y * self.scale);
            }
        }
    }
}

/// Writes rows of a head, as halves, from position `position` on into adjacent slabs of keys, [`SLAB`] positions each,
/// `[position / 16][head_dim]`.
pub struct StoreKeys<'a, 'b> {
    /// `[head_dim / 16][m]`.
    pub tiles: &'a [[f32; LANES]],
    /// Rows.
    pub m: usize,
    /// Counted from the first slab.
    pub position: usize,
    /// The cache's slabs, beginning with the first one that is written.
    pub slabs: &'a mut [&'b mut [[u16; LANES]]],
}

impl Kernel for StoreKeys<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let head_dim = self.tiles.len() / self.m * LANES;
        for (at, tile) in self.tiles.iter().enumerate() {
            let (tile_index, position) = (at / self.m, self.position + at % self.m);
            let mut halves = [0; LANES];
            s.store_f16(s.load(tile), &mut halves);
            let (slab, position) = (position / SLAB, position % SLAB);
            let start = position / LANES * head_dim + tile_index * LANES;
            for (line, half) in self.slabs[slab][start..start + LANES].iter_mut().zip(halves) {
                line[position % LANES] = half;
            }
        }
    }
}

/// The same for values, `[position][head_dim / 16]`.
pub struct StoreValues<'a, 'b> {
    /// `[head_dim / 16][m]`.
    pub tiles: &'a [[f32; LANES]],
    /// Rows.
    pub m: usize,
    /// Counted from the first slab.
    pub position: usize,
    /// The cache's slabs, beginning with the first one that is written.
    pub slabs: &'a mut [&'b mut [[u16; LANES]]],
}

impl Kernel for StoreValues<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let tiles = self.tiles.len() / self.m;
        for (at, tile) in self.tiles.iter().enumerate() {
            let (tile_index, position) = (at / self.m, self.position + at % self.m);
            let place = position % SLAB * tiles + tile_index;
            s.store_f16(s.load(tile), &mut self.slabs[position / SLAB][place]);
        }
    }
}
