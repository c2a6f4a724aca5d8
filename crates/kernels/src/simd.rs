//! Sixteen lanes of numbers: the operations from which every kernel is written, once for all instruction sets.
//!
//! Invariant: for finite inputs each operation gives the same bits on every instruction set. Float operations are the
//! single IEEE ones (`fma` rounds once), integers are exact, and the kernels spell out everything that has an order
//! (reductions of floats). A value of an implementing type proves that the processor has its instructions, so the
//! methods are safe to call.
//!
//! Methods must be inlined into a function compiled for the instruction set, which [`Isa::run`](super::Isa::run)
//! provides; called elsewhere they are correct but slow. So kernels use them in functions that are always inlined, not in
//! closures, which the compiler need not inline: calls in a closure once made products of K-quants 40 times as slow.
//! `tests/inlined.rs` checks what was compiled.

/// Lanes in a vector.
pub const LANES: usize = 16;

/// Largest sum of the largest codes of all words that are added before they are widened: a lane of 16 bits adds two products
/// a word, and 2 · 127 · 129 < 2¹⁵.
pub(crate) const OPEN_CODES: usize = 129;

/// Begins a cache line: a vector that lies in two of them takes two loads.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Aligned<T>(pub(crate) T);

/// Vectors of sixteen lanes on one instruction set.
pub trait Lanes: Copy {
    /// Sixteen `f32`.
    type F: Copy;
    /// Sixteen `i32`.
    type I: Copy;
    /// Four codes of 0…127 for each of sixteen rows, or the bytes that such codes are cut from.
    type Codes: Copy;
    /// Four codes of 0…255, standing for code − 128, for each of sixteen rows.
    type Bytes: Copy;
    /// Sums to which [`Lanes::dot_codes`] adds, between [`Lanes::open`] and [`Lanes::close`]: `i32`, or several `i16` for
    /// each.
    type Sums: Copy;

    fn splat(self, x: f32) -> Self::F;
    fn load(self, from: &[f32; LANES]) -> Self::F;
    fn store(self, x: Self::F, to: &mut [f32; LANES]);
    /// Converts IEEE halves.
    fn load_f16(self, from: &[u16; LANES]) -> Self::F;
    /// Converts IEEE halves from little-endian bytes.
    fn load_f16_le(self, from: &[u8; 2 * LANES]) -> Self::F;
    /// Converts bfloat16 from little-endian bytes.
    fn load_bf16_le(self, from: &[u8; 2 * LANES]) -> Self::F;
    /// `f32` from little-endian bytes.
    fn load_f32_le(self, from: &[u8; 4 * LANES]) -> Self::F;
    /// Rounds to IEEE halves, ties to even.
    fn store_f16(self, x: Self::F, to: &mut [u16; LANES]);

    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `if a > b { a } else { b }`: a NaN in `b` passes, one in `a` does not.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// `if a < b { a } else { b }`.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;

    /// Lane `i` of row `j` becomes lane `j` of row `i`.
    #[inline(always)]
    fn transpose(self, rows: [Self::F; LANES], out: &mut [Aligned<[f32; LANES]>; LANES]) {
        for j in 0..LANES {
            let row = to_array(self, rows[j]);
            for i in 0..LANES {
                out[i].0[j] = row[i];
            }
        }
    }

    fn splat_i(self, x: i32) -> Self::I;
    /// Bytes 0…255, widened.
    fn load_u8(self, from: &[u8; LANES]) -> Self::I;
    /// The same for −128…127.
    fn load_i8(self, from: &[u8; LANES]) -> Self::I;
    /// Little-endian.
    fn load_i32_le(self, from: &[u8; 4 * LANES]) -> Self::I;
    /// `x >> down & mask`, shifting zeros in.
    fn field(self, x: Self::I, down: i32, mask: i32) -> Self::I;
    fn add_i(self, a: Self::I, b: Self::I) -> Self::I;
    fn max_i(self, a: Self::I, b: Self::I) -> Self::I;
    fn reduce_add(self, x: Self::I) -> i32;
    fn reduce_max(self, x: Self::I) -> i32;
    /// Nearest integers, ties to even.
    fn round(self, x: Self::F) -> Self::I;
    fn to_float(self, x: Self::I) -> Self::F;
    /// Bits without the sign: orders magnitudes as integers, NaN above all.
    fn magnitude_bits(self, x: Self::F) -> Self::I;
    /// `2^n` for `n` in −126…127.
    fn pow2(self, n: Self::I) -> Self::F;
    /// `x · 2^n` where `x` and the product are normal numbers: adds to the exponent.
    fn raise(self, x: Self::F, n: Self::I) -> Self::F;
    /// Four bytes a word, in lane order, from values in −128…127.
    fn pack_i8(self, x: Self::I) -> [i32; LANES / 4];

    /// Low and high nibbles of 64 bytes.
    fn nibbles(self, from: &[u8; 4 * LANES]) -> [Self::Codes; 2];
    fn bytes(self, from: &[u8; 4 * LANES]) -> Self::Bytes;
    /// Opens sums that begin with `start`.
    fn open(self, start: Self::I) -> Self::Sums;
    /// Adds to each lane the products of its four codes with the four of −127…127 of `word`. Until sums are closed, the
    /// largest codes of all calls may add up to [`OPEN_CODES`].
    fn dot_codes(self, sums: Self::Sums, codes: Self::Codes, word: i32) -> Self::Sums;
    /// What open sums amount to; `start` as when they were opened.
    fn close(self, start: Self::I, sums: Self::Sums) -> Self::I;
    /// Bytes to extract codes from.
    fn raw(self, from: &[u8; 4 * LANES]) -> Self::Codes;
    /// For each byte, the bits under `mask` after a shift down by `down` (up if negative). The field must not cross the
    /// byte's border.
    fn cut(self, raw: Self::Codes, down: i32, mask: u8) -> Self::Codes;
    /// Bitwise or.
    fn or(self, a: Self::Codes, b: Self::Codes) -> Self::Codes;
    /// For each code of 0…15 the entry of the table.
    fn look_up(self, table: &[u8; 16], codes: Self::Codes) -> Self::Bytes;
    /// The start value of [`Lanes::dot_bytes`], given −8 times the sum of the activations it will see.
    fn bytes_start(self, total_down: i32) -> Self::I;
    /// Adds the products of code − 128 with the four `i8` of `word`, except for what [`Lanes::bytes_start`] has
    /// subtracted already.
    fn dot_bytes(self, sum: Self::I, codes: Self::Bytes, word: i32) -> Self::I;

    /// Prefetches the cache line `ahead` bytes after the start of `from`; may be ignored.
    fn prefetch<T>(self, from: &[T], ahead: usize);
    /// The same for later use: into the second-level cache, which can wait for more lines at once.
    fn prefetch_far<T>(self, from: &[T], ahead: usize);
}

/// An expression whose instructions exist because the receiver does.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! proven {
    ($body:expr) => {
        // SAFETY: see the head of the file that uses it.
        unsafe { $body }
    };
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) use proven;

/// Operations of one expression, a line each: `name(arguments) -> type = expression;`.
macro_rules! lanes {
    ($($name:ident($($arg:ident: $of:ty),+) -> $out:ty = $body:expr;)+) => {$(
        #[inline(always)]
        fn $name(self, $($arg: $of),+) -> $out {
            $body
        }
    )+};
}
pub(crate) use lanes;

/// Lanes as an array, for operations without a vector form.
#[inline(always)]
pub(crate) fn to_array<S: Lanes>(s: S, x: S::F) -> [f32; LANES] {
    let mut out = [0.0; LANES];
    s.store(x, &mut out);
    out
}

/// Sum of all lanes by halving: lane i with i + 8, then i + 4, i + 2, i + 1.
#[inline(always)]
pub(crate) fn sum<S: Lanes>(s: S, x: S::F) -> f32 {
    let mut lanes = to_array(s, x);
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            lanes[i] += lanes[i + half];
        }
        half /= 2;
    }
    lanes[0]
}

/// Largest lane, by halving as in [`sum`].
#[inline(always)]
pub(crate) fn max<S: Lanes>(s: S, x: S::F) -> f32 {
    let mut lanes = to_array(s, x);
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            lanes[i] = if lanes[i] > lanes[i + half] { lanes[i] } else { lanes[i + half] };
        }
        half /= 2;
    }
    lanes[0]
}

/// `e^x`, within 2 ulp, for x clamped to −87…88; NaN stays NaN.
///
/// Range reduction by a two-part ln 2 and a degree-5 polynomial: Cephes `expf` (S. Moshier). The last step may add to the
/// exponent: for x = −87, n is −126 and the polynomial's value 1.4, so no result is below the normal numbers.
#[inline(always)]
pub(crate) fn exp<S: Lanes>(s: S, x: S::F) -> S::F {
    exp_below(s, s.min(s.splat(88.0), x))
}

/// [`exp`] of what is at most 88.
#[inline(always)]
pub(crate) fn exp_below<S: Lanes>(s: S, x: S::F) -> S::F {
    let x = s.max(s.splat(-87.0), x);
    let n = s.round(s.mul(x, s.splat(std::f32::consts::LOG2_E)));
    let whole = s.to_float(n);
    let r = s.fma(whole, s.splat(-0.693_359_4), x);
    let r = s.fma(whole, s.splat(2.121_944_4e-4), r);
    let mut p = s.splat(1.987_569_1e-4);
    p = s.fma(p, r, s.splat(1.398_199_9e-3));
    p = s.fma(p, r, s.splat(8.333_452e-3));
    p = s.fma(p, r, s.splat(4.166_579_6e-2));
    p = s.fma(p, r, s.splat(1.666_666_5e-1));
    p = s.fma(p, r, s.splat(5.0e-1));
    let y = s.add(s.fma(p, s.mul(r, r), r), s.splat(1.0));
    s.raise(y, n)
}

/// The first 16 numbers; zeros after fewer.
#[inline(always)]
pub(crate) fn part<S: Lanes>(s: S, from: &[f32]) -> S::F {
    match from.first_chunk() {
        Some(whole) => s.load(whole),
        None => {
            let mut lanes = [0.0; LANES];
            lanes[..from.len()].copy_from_slice(from);
            s.load(&lanes)
        }
    }
}

/// As many numbers as there is room for, up to 16.
#[inline(always)]
pub(crate) fn put<S: Lanes>(s: S, x: S::F, to: &mut [f32]) {
    match to.first_chunk_mut() {
        Some(whole) => s.store(x, whole),
        None => {
            let (lanes, len) = (to_array(s, x), to.len());
            to.copy_from_slice(&lanes[..len]);
        }
    }
}

/// `x / (1 + e^−x)`
#[inline(always)]
pub(crate) fn silu<S: Lanes>(s: S, x: S::F) -> S::F {
    let below = s.add(exp(s, s.sub(s.splat(0.0), x)), s.splat(1.0));
    s.div(x, below)
}

/// GELU by its approximation with tanh: `x / (1 + e^−2u)`, `u = √(2/π) · (x + 0.044715 x³)`.
/// Source: Hendrycks and Gimpel, arXiv:1606.08415.
#[inline(always)]
pub(crate) fn gelu<S: Lanes>(s: S, x: S::F) -> S::F {
    let slope = s.add(s.mul(s.mul(x, x), s.splat(GELU_CUBE)), s.splat(GELU_INNER));
    s.div(x, s.add(exp(s, s.mul(x, slope)), s.splat(1.0)))
}

/// `−2 √(2/π)`
const GELU_INNER: f32 = -1.595_769;
/// `−2 √(2/π) · 0.044715`
const GELU_CUBE: f32 = -0.071_354_82;

/// `cap · tanh(x / cap)`, as `cap − 2 cap / (1 + e^(2 x / cap))`.
#[inline(always)]
pub(crate) fn capped<S: Lanes>(s: S, x: S::F, cap: f32) -> S::F {
    let below = s.add(exp(s, s.mul(x, s.splat(2.0 / cap))), s.splat(1.0));
    s.sub(s.splat(cap), s.div(s.splat(2.0 * cap), below))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::{Isa, Kernel};

    struct Exp([f32; LANES]);

    impl Kernel for Exp {
        type Output = [f32; LANES];

        #[inline(always)]
        fn run<S: Lanes>(self, s: S) -> Self::Output {
            to_array(s, exp(s, s.load(&self.0)))
        }
    }

    struct Raise([f32; LANES], i32);

    impl Kernel for Raise {
        type Output = [f32; LANES];

        #[inline(always)]
        fn run<S: Lanes>(self, s: S) -> Self::Output {
            to_array(s, s.raise(s.load(&self.0), s.splat_i(self.1)))
        }
    }

    #[test]
    fn raising_multiplies_with_a_power_of_two() {
        let x: [f32; LANES] = std::array::from_fn(|i| if i % 2 == 0 { 1.0 } else { -1.0 } * (1.0 + i as f32 / 16.1));
        for n in -126..=127 {
            let expected = x.map(|x| (f64::from(x) * f64::from(n).exp2()) as f32);
            assert!(Isa::available().all(|isa| isa.run(Raise(x, n)) == expected), "{n}");
        }
    }

    #[test]
    fn exp_is_within_two_ulp_and_the_same_everywhere() {
        for step in 0..20_000 {
            let x: [f32; LANES] = std::array::from_fn(|i| (step * LANES + i) as f32 / 1840.0 - 87.0);
            let y = Isa::PORTABLE.run(Exp(x));
            for (x, y) in x.iter().zip(y).filter(|(x, _)| **x <= 88.0) {
                let exact = f64::from(*x).exp();
                assert!((f64::from(y) - exact).abs() <= 2.0 * exact * f64::from(f32::EPSILON), "exp({x}) = {y}");
            }
            assert!(Isa::available().all(|isa| isa.run(Exp(x)) == y));
        }
        let ends = Isa::detect().run(Exp(std::array::from_fn(|i| [0.0, f32::NAN, f32::NEG_INFINITY, 1e9][i % 4])));
        assert!(ends[0] == 1.0 && ends[1].is_nan() && ends[2] < 2e-38 && ends[3].is_finite());
    }
}
