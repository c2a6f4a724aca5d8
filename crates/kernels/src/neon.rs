//! Sixteen lanes as four 128-bit registers, with the dot product extension for the integer products.
//!
//! Every `unsafe` here has the same two reasons: a [`Neon`] exists only where its instructions do
//! (see [`Neon::new`]), and loads and stores go through references to arrays of their full width.
//! Three instructions have no stable intrinsic and are written as assembly.

use std::arch::{aarch64::*, asm};

use crate::simd::{LANES, Lanes, lanes, proven};

/// Proof of NEON with the dot product extension.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Neon(());

impl Neon {
    /// # Safety
    /// The processor must have NEON and dotprod, in little-endian mode.
    #[inline(always)]
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

/// One operation on all four quarters.
macro_rules! quarters {
    ($op:expr, $($x:expr),+) => {
        // SAFETY: see the head of this file.
        unsafe { [$op($($x[0]),+), $op($($x[1]),+), $op($($x[2]),+), $op($($x[3]),+)] }
    };
}

#[inline]
#[target_feature(enable = "neon,dotprod")]
fn sdot(mut sum: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    // SAFETY: registers in, register out; the feature is enabled for this function.
    unsafe {
        asm!("sdot {0:v}.4s, {1:v}.16b, {2:v}.16b", inout(vreg) sum, in(vreg) a, in(vreg) b,
             options(pure, nomem, nostack, preserves_flags));
    }
    sum
}

#[inline]
#[target_feature(enable = "neon")]
fn widen(half: uint16x4_t) -> float32x4_t {
    let out: float32x4_t;
    // SAFETY: register in, register out; part of base NEON.
    unsafe {
        asm!("fcvtl {0:v}.4s, {1:v}.4h", out(vreg) out, in(vreg) half,
             options(pure, nomem, nostack, preserves_flags));
    }
    out
}

#[inline]
#[target_feature(enable = "neon")]
fn narrow(x: float32x4_t) -> uint16x4_t {
    let out: uint16x4_t;
    // SAFETY: register in, register out; part of base NEON.
    unsafe {
        asm!("fcvtn {0:v}.4h, {1:v}.4s", out(vreg) out, in(vreg) x,
             options(pure, nomem, nostack, preserves_flags));
    }
    out
}

impl Neon {
    #[inline(always)]
    fn halves(self, from: *const u16) -> [float32x4_t; 4] {
        proven!([
            widen(vld1_u16(from)),
            widen(vld1_u16(from.add(4))),
            widen(vld1_u16(from.add(8))),
            widen(vld1_u16(from.add(12))),
        ])
    }

    #[inline(always)]
    fn load_bytes(self, from: &[u8; 4 * LANES]) -> [uint8x16_t; 4] {
        let from = from.as_ptr();
        proven!([vld1q_u8(from), vld1q_u8(from.add(16)), vld1q_u8(from.add(32)), vld1q_u8(from.add(48))])
    }

    #[inline(always)]
    fn dot(self, sum: [int32x4_t; 4], codes: [int8x16_t; 4], word: i32) -> [int32x4_t; 4] {
        let words = proven!([vreinterpretq_s8_s32(vdupq_n_s32(word)); 4]);
        quarters!(sdot, sum, codes, words)
    }
}

impl Lanes for Neon {
    type F = [float32x4_t; 4];
    type I = [int32x4_t; 4];
    type Codes = [int8x16_t; 4];
    /// Code − 128.
    type Bytes = [int8x16_t; 4];
    type Sums = [int32x4_t; 4];

    lanes! {
        splat(x: f32) -> Self::F = proven!([vdupq_n_f32(x); 4]);
        add(a: Self::F, b: Self::F) -> Self::F = quarters!(vaddq_f32, a, b);
        sub(a: Self::F, b: Self::F) -> Self::F = quarters!(vsubq_f32, a, b);
        mul(a: Self::F, b: Self::F) -> Self::F = quarters!(vmulq_f32, a, b);
        div(a: Self::F, b: Self::F) -> Self::F = quarters!(vdivq_f32, a, b);
        fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F = quarters!(vfmaq_f32, c, a, b);
        open(start: Self::I) -> Self::Sums = start;
        close(_start: Self::I, sums: Self::Sums) -> Self::I = sums;
        splat_i(x: i32) -> Self::I = proven!([vdupq_n_s32(x); 4]);
        add_i(a: Self::I, b: Self::I) -> Self::I = quarters!(vaddq_s32, a, b);
        max_i(a: Self::I, b: Self::I) -> Self::I = quarters!(vmaxq_s32, a, b);
        reduce_add(x: Self::I) -> i32 = proven!(vaddvq_s32(vaddq_s32(vaddq_s32(x[0], x[1]), vaddq_s32(x[2], x[3]))));
        reduce_max(x: Self::I) -> i32 = proven!(vmaxvq_s32(vmaxq_s32(vmaxq_s32(x[0], x[1]), vmaxq_s32(x[2], x[3]))));
        round(x: Self::F) -> Self::I = quarters!(vcvtnq_s32_f32, x);
        or(a: Self::Codes, b: Self::Codes) -> Self::Codes = quarters!(vorrq_s8, a, b);
        to_float(x: Self::I) -> Self::F = quarters!(vcvtq_f32_s32, x);
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::F {
        let from = from.as_ptr();
        proven!([vld1q_f32(from), vld1q_f32(from.add(4)), vld1q_f32(from.add(8)), vld1q_f32(from.add(12))])
    }

    #[inline(always)]
    fn store(self, x: Self::F, to: &mut [f32; LANES]) {
        let to = to.as_mut_ptr();
        proven!({
            vst1q_f32(to, x[0]);
            vst1q_f32(to.add(4), x[1]);
            vst1q_f32(to.add(8), x[2]);
            vst1q_f32(to.add(12), x[3]);
        });
    }

    #[inline(always)]
    fn load_f16(self, from: &[u16; LANES]) -> Self::F {
        self.halves(from.as_ptr())
    }

    #[inline(always)]
    fn load_f16_le(self, from: &[u8; 2 * LANES]) -> Self::F {
        self.halves(from.as_ptr().cast())
    }

    #[inline(always)]
    fn load_bf16_le(self, from: &[u8; 2 * LANES]) -> Self::F {
        let from: *const u16 = from.as_ptr().cast();
        proven!([
            vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(from))),
            vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(from.add(4)))),
            vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(from.add(8)))),
            vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(from.add(12)))),
        ])
    }

    #[inline(always)]
    fn load_f32_le(self, from: &[u8; 4 * LANES]) -> Self::F {
        let from = self.load_bytes(from);
        quarters!(vreinterpretq_f32_u8, from)
    }

    #[inline(always)]
    fn store_f16(self, x: Self::F, to: &mut [u16; LANES]) {
        let to = to.as_mut_ptr();
        proven!({
            vst1_u16(to, narrow(x[0]));
            vst1_u16(to.add(4), narrow(x[1]));
            vst1_u16(to.add(8), narrow(x[2]));
            vst1_u16(to.add(12), narrow(x[3]));
        });
    }

    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        let above = quarters!(vcgtq_f32, a, b);
        quarters!(vbslq_f32, above, a, b)
    }

    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        let below = quarters!(vcltq_f32, a, b);
        quarters!(vbslq_f32, below, a, b)
    }

    #[inline(always)]
    fn magnitude_bits(self, x: Self::F) -> Self::I {
        let sizes = quarters!(vabsq_f32, x);
        quarters!(vreinterpretq_s32_f32, sizes)
    }

    #[inline(always)]
    fn pow2(self, n: Self::I) -> Self::F {
        let biased = self.add_i(n, self.splat_i(127));
        let bits = quarters!(vshlq_n_s32::<23>, biased);
        quarters!(vreinterpretq_f32_s32, bits)
    }

    #[inline(always)]
    fn raise(self, x: Self::F, n: Self::I) -> Self::F {
        let bits = self.add_i(quarters!(vreinterpretq_s32_f32, x), quarters!(vshlq_n_s32::<23>, n));
        quarters!(vreinterpretq_f32_s32, bits)
    }

    #[inline(always)]
    fn pack_i8(self, x: Self::I) -> [i32; LANES / 4] {
        let mut packed = [0; LANES / 4];
        proven!({
            let low = vcombine_s16(vmovn_s32(x[0]), vmovn_s32(x[1]));
            let high = vcombine_s16(vmovn_s32(x[2]), vmovn_s32(x[3]));
            let bytes = vcombine_s8(vmovn_s16(low), vmovn_s16(high));
            vst1q_s32(packed.as_mut_ptr(), vreinterpretq_s32_s8(bytes));
        });
        packed
    }

    #[inline(always)]
    fn nibbles(self, from: &[u8; 4 * LANES]) -> [Self::Codes; 2] {
        let both = self.load_bytes(from);
        let mask = proven!([vdupq_n_u8(15); 4]);
        let low = quarters!(vandq_u8, both, mask);
        let high = quarters!(vshrq_n_u8::<4>, both);
        [quarters!(vreinterpretq_s8_u8, low), quarters!(vreinterpretq_s8_u8, high)]
    }

    #[inline(always)]
    fn bytes(self, from: &[u8; 4 * LANES]) -> Self::Bytes {
        let codes = self.load_bytes(from);
        let flip = proven!([vdupq_n_u8(128); 4]);
        let signed = quarters!(veorq_u8, codes, flip);
        quarters!(vreinterpretq_s8_u8, signed)
    }

    #[inline(always)]
    fn load_u8(self, from: &[u8; LANES]) -> Self::I {
        proven!({
            let bytes = vld1q_u8(from.as_ptr());
            let [low, high] = [vmovl_u8(vget_low_u8(bytes)), vmovl_high_u8(bytes)];
            let wide = [
                vmovl_u16(vget_low_u16(low)),
                vmovl_high_u16(low),
                vmovl_u16(vget_low_u16(high)),
                vmovl_high_u16(high),
            ];
            wide.map(|quarter| vreinterpretq_s32_u32(quarter))
        })
    }

    #[inline(always)]
    fn load_i8(self, from: &[u8; LANES]) -> Self::I {
        proven!({
            let bytes = vreinterpretq_s8_u8(vld1q_u8(from.as_ptr()));
            let [low, high] = [vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes)];
            [vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low), vmovl_s16(vget_low_s16(high)), vmovl_high_s16(high)]
        })
    }

    #[inline(always)]
    fn load_i32_le(self, from: &[u8; 4 * LANES]) -> Self::I {
        let from = self.load_bytes(from);
        quarters!(vreinterpretq_s32_u8, from)
    }

    #[inline(always)]
    fn field(self, x: Self::I, down: i32, mask: i32) -> Self::I {
        let (by, mask) = (proven!([vdupq_n_s32(-down); 4]), self.splat_i(mask));
        let x = quarters!(vreinterpretq_u32_s32, x);
        let shifted = quarters!(vshlq_u32, x, by);
        let shifted = quarters!(vreinterpretq_s32_u32, shifted);
        quarters!(vandq_s32, shifted, mask)
    }

    #[inline(always)]
    fn raw(self, from: &[u8; 4 * LANES]) -> Self::Codes {
        let from = self.load_bytes(from);
        quarters!(vreinterpretq_s8_u8, from)
    }

    #[inline(always)]
    fn cut(self, raw: Self::Codes, down: i32, mask: u8) -> Self::Codes {
        let (by, mask) = proven!(([vdupq_n_s8(-down as i8); 4], [vdupq_n_u8(mask); 4]));
        let raw = quarters!(vreinterpretq_u8_s8, raw);
        let shifted = quarters!(vshlq_u8, raw, by);
        let cut = quarters!(vandq_u8, shifted, mask);
        quarters!(vreinterpretq_s8_u8, cut)
    }

    #[inline(always)]
    fn dot_codes(self, sums: Self::Sums, codes: Self::Codes, word: i32) -> Self::Sums {
        self.dot(sums, codes, word)
    }

    #[inline(always)]
    fn look_up(self, table: &[u8; 16], codes: Self::Codes) -> Self::Bytes {
        let table = proven!([vreinterpretq_s8_u8(veorq_u8(vld1q_u8(table.as_ptr()), vdupq_n_u8(128))); 4]);
        let codes = quarters!(vreinterpretq_u8_s8, codes);
        quarters!(vqtbl1q_s8, table, codes)
    }

    #[inline(always)]
    fn bytes_start(self, _total_down: i32) -> Self::I {
        self.splat_i(0)
    }

    #[inline(always)]
    fn dot_bytes(self, sum: Self::I, codes: Self::Bytes, word: i32) -> Self::I {
        self.dot(sum, codes, word)
    }

    #[inline(always)]
    fn prefetch<T>(self, _from: &[T], _ahead: usize) {}

    #[inline(always)]
    fn prefetch_far<T>(self, _from: &[T], _ahead: usize) {}
}
