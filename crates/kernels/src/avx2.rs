//! Sixteen lanes as two 256-bit registers, with AVX-VNNI for the integer products where it exists.
//!
//! Every `unsafe` here has the same two reasons: an [`Avx2`] exists only where its instructions do
//! (see [`Avx2::new`]), and loads and stores go through references to arrays of their full width.
//!
//! Without VNNI, `maddubs` adds two products in 16 bits with saturation. Bytes are taken as sign and magnitude, so that they
//! stay below (2 · 128 · 127). Smaller codes stay so far below that the results of several words add up in 16 bits, which
//! saves a multiplication and an addition for most words.

use std::arch::{asm, x86_64::*};

use crate::simd::{Aligned, LANES, Lanes, lanes, proven};

/// Proof of AVX2, FMA and F16C, and of AVX-VNNI when `VNNI`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2<const VNNI: bool>(());

impl<const VNNI: bool> Avx2<VNNI> {
    /// # Safety
    /// The processor must have AVX2, FMA, F16C, and AVX-VNNI when `VNNI`.
    #[inline(always)]
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

/// One operation on both halves.
macro_rules! both {
    ($op:expr, $($x:expr),+) => {
        // SAFETY: see the head of this file.
        unsafe { [$op($($x[0]),+), $op($($x[1]),+)] }
    };
}

/// Stays where it is written. Otherwise the compiler computes one row after the other, for which it stores all codes of a
/// block and loads them again for each row: there are only sixteen registers.
#[inline]
#[target_feature(enable = "avx2")]
fn in_turn(mut x: __m256i) -> __m256i {
    // SAFETY: a register in, the same out, and no instruction.
    unsafe { asm!("/* {0} */", inout(ymm_reg) x, options(nomem, nostack, preserves_flags)) };
    x
}

/// Lane `i` of row `j` becomes lane `j` of row `i`: pairs, then fours, then halves change places.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose_8(r: [__m256; 8]) -> [__m256; 8] {
    let pairs = |a: __m256, b: __m256| [_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b)];
    let [a, b] = [pairs(r[0], r[1]), pairs(r[2], r[3])];
    let [c, d] = [pairs(r[4], r[5]), pairs(r[6], r[7])];
    let fours = |a: __m256, b: __m256| [_mm256_shuffle_ps::<0x44>(a, b), _mm256_shuffle_ps::<0xee>(a, b)];
    let above = [fours(a[0], b[0]), fours(a[1], b[1])];
    let below = [fours(c[0], d[0]), fours(c[1], d[1])];
    let (a, b) = (above.as_flattened(), below.as_flattened());
    let mut out = r;
    for i in 0..4 {
        out[i] = _mm256_permute2f128_ps::<0x20>(a[i], b[i]);
        out[i + 4] = _mm256_permute2f128_ps::<0x31>(a[i], b[i]);
    }
    out
}

impl<const VNNI: bool> Avx2<VNNI> {
    /// Unsigned codes times signed words, added up by fours.
    #[inline(always)]
    fn dot(self, sum: __m256i, codes: __m256i, words: __m256i) -> __m256i {
        proven!(if VNNI {
            _mm256_dpbusd_avx_epi32(sum, codes, words)
        } else {
            let pairs = _mm256_maddubs_epi16(codes, words);
            in_turn(_mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))))
        })
    }
}

impl<const VNNI: bool> Lanes for Avx2<VNNI> {
    type F = [__m256; 2];
    type I = [__m256i; 2];
    type Codes = [__m256i; 2];
    /// Codes as stored with VNNI; code − 128 without.
    type Bytes = [__m256i; 2];
    /// `i32` with VNNI; two `i16` for each without.
    type Sums = [__m256i; 2];

    lanes! {
        splat(x: f32) -> Self::F = proven!([_mm256_set1_ps(x); 2]);
        add(a: Self::F, b: Self::F) -> Self::F = both!(_mm256_add_ps, a, b);
        sub(a: Self::F, b: Self::F) -> Self::F = both!(_mm256_sub_ps, a, b);
        mul(a: Self::F, b: Self::F) -> Self::F = both!(_mm256_mul_ps, a, b);
        div(a: Self::F, b: Self::F) -> Self::F = both!(_mm256_div_ps, a, b);
        fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F = both!(_mm256_fmadd_ps, a, b, c);
        max(a: Self::F, b: Self::F) -> Self::F = both!(_mm256_max_ps, a, b);
        min(a: Self::F, b: Self::F) -> Self::F = both!(_mm256_min_ps, a, b);
        splat_i(x: i32) -> Self::I = proven!([_mm256_set1_epi32(x); 2]);
        add_i(a: Self::I, b: Self::I) -> Self::I = both!(_mm256_add_epi32, a, b);
        max_i(a: Self::I, b: Self::I) -> Self::I = both!(_mm256_max_epi32, a, b);
        or(a: Self::Codes, b: Self::Codes) -> Self::Codes = both!(_mm256_or_si256, a, b);
        round(x: Self::F) -> Self::I = both!(_mm256_cvtps_epi32, x);
        to_float(x: Self::I) -> Self::F = both!(_mm256_cvtepi32_ps, x);
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::F {
        let from = from.as_ptr();
        proven!([_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))])
    }

    #[inline(always)]
    fn store(self, x: Self::F, to: &mut [f32; LANES]) {
        let to = to.as_mut_ptr();
        proven!({
            _mm256_storeu_ps(to, x[0]);
            _mm256_storeu_ps(to.add(8), x[1]);
        });
    }

    #[inline(always)]
    fn load_f16(self, from: &[u16; LANES]) -> Self::F {
        let from: *const __m128i = from.as_ptr().cast();
        proven!([_mm256_cvtph_ps(_mm_loadu_si128(from)), _mm256_cvtph_ps(_mm_loadu_si128(from.add(1)))])
    }

    #[inline(always)]
    fn load_f16_le(self, from: &[u8; 2 * LANES]) -> Self::F {
        let from: *const __m128i = from.as_ptr().cast();
        proven!([_mm256_cvtph_ps(_mm_loadu_si128(from)), _mm256_cvtph_ps(_mm_loadu_si128(from.add(1)))])
    }

    #[inline(always)]
    fn load_bf16_le(self, from: &[u8; 2 * LANES]) -> Self::F {
        let from: *const __m128i = from.as_ptr().cast();
        let words = proven!([_mm_loadu_si128(from), _mm_loadu_si128(from.add(1))]);
        let wide = both!(_mm256_cvtepu16_epi32, words);
        let high = both!(_mm256_slli_epi32::<16>, wide);
        both!(_mm256_castsi256_ps, high)
    }

    #[inline(always)]
    fn load_f32_le(self, from: &[u8; 4 * LANES]) -> Self::F {
        let from: *const f32 = from.as_ptr().cast();
        proven!([_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))])
    }

    #[inline(always)]
    fn store_f16(self, x: Self::F, to: &mut [u16; LANES]) {
        let to: *mut __m128i = to.as_mut_ptr().cast();
        proven!({
            _mm_storeu_si128(to, _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x[0]));
            _mm_storeu_si128(to.add(1), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x[1]));
        });
    }

    #[inline(always)]
    fn transpose(self, rows: [Self::F; LANES], out: &mut [Aligned<[f32; LANES]>; LANES]) {
        for (below, right) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let mut block = [rows[0][0]; 8];
            for j in 0..8 {
                block[j] = rows[8 * below + j][right];
            }
            let block = proven!(transpose_8(block));
            for i in 0..8 {
                proven!(_mm256_store_ps(out[8 * right + i].0.as_mut_ptr().add(8 * below), block[i]));
            }
        }
    }

    #[inline(always)]
    fn reduce_add(self, x: Self::I) -> i32 {
        proven!({
            let x = _mm256_add_epi32(x[0], x[1]);
            let x = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x));
            let x = _mm_add_epi32(x, _mm_shuffle_epi32::<0b01_00_11_10>(x));
            _mm_cvtsi128_si32(_mm_add_epi32(x, _mm_shuffle_epi32::<0b10_11_00_01>(x)))
        })
    }

    #[inline(always)]
    fn reduce_max(self, x: Self::I) -> i32 {
        proven!({
            let x = _mm256_max_epi32(x[0], x[1]);
            let x = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x));
            let x = _mm_max_epi32(x, _mm_shuffle_epi32::<0b01_00_11_10>(x));
            _mm_cvtsi128_si32(_mm_max_epi32(x, _mm_shuffle_epi32::<0b10_11_00_01>(x)))
        })
    }

    #[inline(always)]
    fn magnitude_bits(self, x: Self::F) -> Self::I {
        let mask = self.splat_i(i32::MAX);
        let bits = both!(_mm256_castps_si256, x);
        both!(_mm256_and_si256, bits, mask)
    }

    #[inline(always)]
    fn pow2(self, n: Self::I) -> Self::F {
        let biased = self.add_i(n, self.splat_i(127));
        let bits = both!(_mm256_slli_epi32::<23>, biased);
        both!(_mm256_castsi256_ps, bits)
    }

    #[inline(always)]
    fn raise(self, x: Self::F, n: Self::I) -> Self::F {
        let bits = self.add_i(both!(_mm256_castps_si256, x), both!(_mm256_slli_epi32::<23>, n));
        both!(_mm256_castsi256_ps, bits)
    }

    #[inline(always)]
    fn pack_i8(self, x: Self::I) -> [i32; LANES / 4] {
        proven!({
            // [0–3 8–11 | 4–7 12–15], then bytes [0–3 8–11 … | 4–7 12–15 …]
            let words = _mm256_packs_epi32(x[0], x[1]);
            let bytes = _mm256_packs_epi16(words, words);
            let (low, high) = (_mm256_castsi256_si128(bytes), _mm256_extracti128_si256::<1>(bytes));
            let mut packed = [0; LANES / 4];
            _mm_storeu_si128(packed.as_mut_ptr().cast(), _mm_unpacklo_epi32(low, high));
            packed
        })
    }

    #[inline(always)]
    fn nibbles(self, from: &[u8; 4 * LANES]) -> [Self::Codes; 2] {
        let from: *const __m256i = from.as_ptr().cast();
        proven!({
            let low = _mm256_set1_epi8(15);
            let both = [_mm256_loadu_si256(from), _mm256_loadu_si256(from.add(1))];
            [
                [_mm256_and_si256(both[0], low), _mm256_and_si256(both[1], low)],
                [
                    _mm256_and_si256(_mm256_srli_epi16::<4>(both[0]), low),
                    _mm256_and_si256(_mm256_srli_epi16::<4>(both[1]), low),
                ],
            ]
        })
    }

    #[inline(always)]
    fn bytes(self, from: &[u8; 4 * LANES]) -> Self::Bytes {
        let from: *const __m256i = from.as_ptr().cast();
        proven!({
            let codes = [_mm256_loadu_si256(from), _mm256_loadu_si256(from.add(1))];
            let flip = _mm256_set1_epi8(if VNNI { 0 } else { i8::MIN });
            [_mm256_xor_si256(codes[0], flip), _mm256_xor_si256(codes[1], flip)]
        })
    }

    #[inline(always)]
    fn load_u8(self, from: &[u8; LANES]) -> Self::I {
        let from: *const __m128i = from.as_ptr().cast();
        proven!({
            let bytes = _mm_loadu_si128(from);
            [_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_unpackhi_epi64(bytes, bytes))]
        })
    }

    #[inline(always)]
    fn load_i8(self, from: &[u8; LANES]) -> Self::I {
        let from: *const __m128i = from.as_ptr().cast();
        proven!({
            let bytes = _mm_loadu_si128(from);
            [_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_unpackhi_epi64(bytes, bytes))]
        })
    }

    #[inline(always)]
    fn load_i32_le(self, from: &[u8; 4 * LANES]) -> Self::I {
        self.raw(from)
    }

    #[inline(always)]
    fn field(self, x: Self::I, down: i32, mask: i32) -> Self::I {
        let (down, mask) = (proven!([_mm_cvtsi32_si128(down); 2]), self.splat_i(mask));
        let shifted = both!(_mm256_srl_epi32, x, down);
        both!(_mm256_and_si256, shifted, mask)
    }

    #[inline(always)]
    fn raw(self, from: &[u8; 4 * LANES]) -> Self::Codes {
        let from: *const __m256i = from.as_ptr().cast();
        proven!([_mm256_loadu_si256(from), _mm256_loadu_si256(from.add(1))])
    }

    /// There are no byte shifts: shifts of 16 bits bring in bits of the other byte, which the mask hides.
    #[inline(always)]
    fn cut(self, raw: Self::Codes, down: i32, mask: u8) -> Self::Codes {
        let (by, mask) = proven!(([_mm_cvtsi32_si128(down.abs()); 2], [_mm256_set1_epi8(mask.cast_signed()); 2]));
        let shifted = if down < 0 { both!(_mm256_sll_epi16, raw, by) } else { both!(_mm256_srl_epi16, raw, by) };
        both!(_mm256_and_si256, shifted, mask)
    }

    #[inline(always)]
    fn open(self, start: Self::I) -> Self::Sums {
        if VNNI { start } else { self.splat_i(0) }
    }

    #[inline(always)]
    fn dot_codes(self, sums: Self::Sums, codes: Self::Codes, word: i32) -> Self::Sums {
        let words = proven!([_mm256_set1_epi32(word); 2]);
        if VNNI {
            return [self.dot(sums[0], codes[0], words[0]), self.dot(sums[1], codes[1], words[1])];
        }
        let pairs = both!(_mm256_maddubs_epi16, codes, words);
        let sums = both!(_mm256_add_epi16, sums, pairs);
        both!(in_turn, sums)
    }

    #[inline(always)]
    fn close(self, start: Self::I, sums: Self::Sums) -> Self::I {
        if VNNI {
            return sums;
        }
        let ones = proven!([_mm256_set1_epi16(1); 2]);
        self.add_i(start, both!(_mm256_madd_epi16, sums, ones))
    }

    #[inline(always)]
    fn look_up(self, table: &[u8; 16], codes: Self::Codes) -> Self::Bytes {
        let table = proven!({
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            [_mm256_xor_si256(table, _mm256_set1_epi8(if VNNI { 0 } else { i8::MIN })); 2]
        });
        both!(_mm256_shuffle_epi8, table, codes)
    }

    #[inline(always)]
    fn bytes_start(self, total_down: i32) -> Self::I {
        self.splat_i(if VNNI { 16 * total_down } else { 0 })
    }

    #[inline(always)]
    fn dot_bytes(self, sum: Self::I, codes: Self::Bytes, word: i32) -> Self::I {
        let words = proven!(_mm256_set1_epi32(word));
        if VNNI {
            return [self.dot(sum[0], codes[0], words), self.dot(sum[1], codes[1], words)];
        }
        let signed = proven!([_mm256_sign_epi8(words, codes[0]), _mm256_sign_epi8(words, codes[1])]);
        let sizes = both!(_mm256_abs_epi8, codes);
        [self.dot(sum[0], sizes[0], signed[0]), self.dot(sum[1], sizes[1], signed[1])]
    }

    #[inline(always)]
    fn prefetch<T>(self, from: &[T], ahead: usize) {
        // SAFETY: a prefetch reads nothing, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.as_ptr().wrapping_byte_add(ahead).cast()) };
    }

    #[inline(always)]
    fn prefetch_far<T>(self, from: &[T], ahead: usize) {
        // SAFETY: a prefetch reads nothing, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(from.as_ptr().wrapping_byte_add(ahead).cast()) };
    }
}
