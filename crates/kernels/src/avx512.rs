//! Sixteen lanes as one 512-bit register, with VNNI for the integer products.
//!
//! Every `unsafe` here has the same two reasons: an [`Avx512`] exists only where its instructions do
//! (see [`Avx512::new`]), and loads and stores go through references to arrays of their full width.

use std::arch::x86_64::*;

use crate::simd::{LANES, Lanes, lanes, proven};

/// Proof of AVX-512 F, BW, VL and VNNI.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx512(());

impl Avx512 {
    /// # Safety
    /// The processor must have AVX-512 F, BW, VL, VNNI, and F16C.
    #[inline(always)]
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

impl Lanes for Avx512 {
    type F = __m512;
    type I = __m512i;
    type Codes = __m512i;
    type Bytes = __m512i;
    type Sums = __m512i;

    lanes! {
        splat(x: f32) -> __m512 = proven!(_mm512_set1_ps(x));
        load(from: &[f32; LANES]) -> __m512 = proven!(_mm512_loadu_ps(from.as_ptr()));
        load_f16(from: &[u16; LANES]) -> __m512 = proven!(_mm512_cvtph_ps(_mm256_loadu_si256(from.as_ptr().cast())));
        load_f32_le(from: &[u8; 4 * LANES]) -> __m512 = proven!(_mm512_loadu_ps(from.as_ptr().cast()));
        add(a: __m512, b: __m512) -> __m512 = proven!(_mm512_add_ps(a, b));
        sub(a: __m512, b: __m512) -> __m512 = proven!(_mm512_sub_ps(a, b));
        mul(a: __m512, b: __m512) -> __m512 = proven!(_mm512_mul_ps(a, b));
        div(a: __m512, b: __m512) -> __m512 = proven!(_mm512_div_ps(a, b));
        fma(a: __m512, b: __m512, c: __m512) -> __m512 = proven!(_mm512_fmadd_ps(a, b, c));
        max(a: __m512, b: __m512) -> __m512 = proven!(_mm512_max_ps(a, b));
        min(a: __m512, b: __m512) -> __m512 = proven!(_mm512_min_ps(a, b));
        open(start: __m512i) -> __m512i = start;
        close(_start: __m512i, sums: __m512i) -> __m512i = sums;
        splat_i(x: i32) -> __m512i = proven!(_mm512_set1_epi32(x));
        add_i(a: __m512i, b: __m512i) -> __m512i = proven!(_mm512_add_epi32(a, b));
        max_i(a: __m512i, b: __m512i) -> __m512i = proven!(_mm512_max_epi32(a, b));
        reduce_add(x: __m512i) -> i32 = proven!(_mm512_reduce_add_epi32(x));
        reduce_max(x: __m512i) -> i32 = proven!(_mm512_reduce_max_epi32(x));
        round(x: __m512) -> __m512i = proven!(_mm512_cvtps_epi32(x));
        to_float(x: __m512i) -> __m512 = proven!(_mm512_cvtepi32_ps(x));
        load_u8(from: &[u8; LANES]) -> __m512i = proven!(_mm512_cvtepu8_epi32(_mm_loadu_si128(from.as_ptr().cast())));
        load_i8(from: &[u8; LANES]) -> __m512i = proven!(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.as_ptr().cast())));
        load_i32_le(from: &[u8; 4 * LANES]) -> __m512i = proven!(_mm512_loadu_si512(from.as_ptr().cast()));
        raw(from: &[u8; 4 * LANES]) -> __m512i = proven!(_mm512_loadu_si512(from.as_ptr().cast()));
        or(a: __m512i, b: __m512i) -> __m512i = proven!(_mm512_or_si512(a, b));
        bytes(from: &[u8; 4 * LANES]) -> __m512i = proven!(_mm512_loadu_si512(from.as_ptr().cast()));
    }

    #[inline(always)]
    fn store(self, x: __m512, to: &mut [f32; LANES]) {
        proven!(_mm512_storeu_ps(to.as_mut_ptr(), x));
    }

    #[inline(always)]
    fn load_f16_le(self, from: &[u8; 2 * LANES]) -> __m512 {
        proven!(_mm512_cvtph_ps(_mm256_loadu_si256(from.as_ptr().cast())))
    }

    #[inline(always)]
    fn load_bf16_le(self, from: &[u8; 2 * LANES]) -> __m512 {
        proven!(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(
            from.as_ptr().cast()
        )))))
    }

    #[inline(always)]
    fn store_f16(self, x: __m512, to: &mut [u16; LANES]) {
        proven!(_mm256_storeu_si256(to.as_mut_ptr().cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x)));
    }

    #[inline(always)]
    fn magnitude_bits(self, x: __m512) -> __m512i {
        proven!(_mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(i32::MAX)))
    }

    #[inline(always)]
    fn pow2(self, n: __m512i) -> __m512 {
        proven!(_mm512_castsi512_ps(_mm512_slli_epi32::<23>(_mm512_add_epi32(n, _mm512_set1_epi32(127)))))
    }

    #[inline(always)]
    fn raise(self, x: __m512, n: __m512i) -> __m512 {
        proven!(_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x), _mm512_slli_epi32::<23>(n))))
    }

    #[inline(always)]
    fn pack_i8(self, x: __m512i) -> [i32; LANES / 4] {
        let mut words = [0; LANES / 4];
        proven!(_mm_storeu_si128(words.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(x)));
        words
    }

    #[inline(always)]
    fn nibbles(self, from: &[u8; 4 * LANES]) -> [__m512i; 2] {
        proven!({
            let low = _mm512_set1_epi8(15);
            let both = _mm512_loadu_si512(from.as_ptr().cast());
            [_mm512_and_si512(both, low), _mm512_and_si512(_mm512_srli_epi16::<4>(both), low)]
        })
    }

    #[inline(always)]
    fn field(self, x: __m512i, down: i32, mask: i32) -> __m512i {
        proven!(_mm512_and_si512(_mm512_srl_epi32(x, _mm_cvtsi32_si128(down)), _mm512_set1_epi32(mask)))
    }

    /// There are no byte shifts: shifts of 16 bits bring in bits of the other byte, which the mask hides.
    #[inline(always)]
    fn cut(self, raw: __m512i, down: i32, mask: u8) -> __m512i {
        proven!({
            let shifted = match down {
                0.. => _mm512_srl_epi16(raw, _mm_cvtsi32_si128(down)),
                _ => _mm512_sll_epi16(raw, _mm_cvtsi32_si128(-down)),
            };
            _mm512_and_si512(shifted, _mm512_set1_epi8(mask.cast_signed()))
        })
    }

    #[inline(always)]
    fn dot_codes(self, sums: __m512i, codes: __m512i, word: i32) -> __m512i {
        proven!(_mm512_dpbusd_epi32(sums, codes, _mm512_set1_epi32(word)))
    }

    #[inline(always)]
    fn look_up(self, table: &[u8; 16], codes: __m512i) -> __m512i {
        proven!(_mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast())), codes))
    }

    #[inline(always)]
    fn bytes_start(self, total_down: i32) -> __m512i {
        proven!(_mm512_slli_epi32::<4>(self.splat_i(total_down)))
    }

    #[inline(always)]
    fn dot_bytes(self, sum: __m512i, codes: __m512i, word: i32) -> __m512i {
        proven!(_mm512_dpbusd_epi32(sum, codes, _mm512_set1_epi32(word)))
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
