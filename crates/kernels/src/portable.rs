//! Sixteen lanes as plain arrays: runs on every processor, and the reference for the tests of the others.

use half::{bf16, f16};

use crate::simd::{LANES, Lanes, lanes};

/// Requires no processor features.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portable;

#[inline(always)]
fn zip(a: [f32; LANES], b: [f32; LANES], f: impl Fn(f32, f32) -> f32) -> [f32; LANES] {
    std::array::from_fn(|i| f(a[i], b[i]))
}

#[inline(always)]
fn zip_i(a: [i32; LANES], b: [i32; LANES], f: impl Fn(i32, i32) -> i32) -> [i32; LANES] {
    std::array::from_fn(|i| f(a[i], b[i]))
}

#[inline(always)]
fn dot(sum: [i32; LANES], codes: [i16; 4 * LANES], word: i32) -> [i32; LANES] {
    let word = word.to_le_bytes().map(|byte| i32::from(byte.cast_signed()));
    std::array::from_fn(|i| (0..4).fold(sum[i], |sum, j| sum + i32::from(codes[4 * i + j]) * word[j]))
}

impl Lanes for Portable {
    type F = [f32; LANES];
    type I = [i32; LANES];
    type Codes = [i16; 4 * LANES];
    type Bytes = [i16; 4 * LANES];
    type Sums = [i32; LANES];

    lanes! {
        splat(x: f32) -> Self::F = [x; LANES];
        load(from: &[f32; LANES]) -> Self::F = *from;
        load_f16(from: &[u16; LANES]) -> Self::F = from.map(|bits| f16::from_bits(bits).to_f32());
        add(a: Self::F, b: Self::F) -> Self::F = zip(a, b, |a, b| a + b);
        sub(a: Self::F, b: Self::F) -> Self::F = zip(a, b, |a, b| a - b);
        mul(a: Self::F, b: Self::F) -> Self::F = zip(a, b, |a, b| a * b);
        div(a: Self::F, b: Self::F) -> Self::F = zip(a, b, |a, b| a / b);
        fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F = std::array::from_fn(|i| a[i].mul_add(b[i], c[i]));
        max(a: Self::F, b: Self::F) -> Self::F = zip(a, b, |a, b| if a > b { a } else { b });
        min(a: Self::F, b: Self::F) -> Self::F = zip(a, b, |a, b| if a < b { a } else { b });
        splat_i(x: i32) -> Self::I = [x; LANES];
        add_i(a: Self::I, b: Self::I) -> Self::I = zip_i(a, b, i32::wrapping_add);
        max_i(a: Self::I, b: Self::I) -> Self::I = zip_i(a, b, i32::max);
        reduce_add(x: Self::I) -> i32 = x.into_iter().fold(0, i32::wrapping_add);
        reduce_max(x: Self::I) -> i32 = x.into_iter().fold(i32::MIN, i32::max);
        round(x: Self::F) -> Self::I = x.map(|x| x.round_ties_even() as i32);
        to_float(x: Self::I) -> Self::F = x.map(|x| x as f32);
        magnitude_bits(x: Self::F) -> Self::I = x.map(|x| x.abs().to_bits().cast_signed());
        pow2(n: Self::I) -> Self::F = n.map(|n| f32::from_bits((n.wrapping_add(127) << 23).cast_unsigned()));
        raise(x: Self::F, n: Self::I) -> Self::F =
            std::array::from_fn(|i| f32::from_bits(x[i].to_bits().wrapping_add(n[i].cast_unsigned() << 23)));
        load_u8(from: &[u8; LANES]) -> Self::I = from.map(i32::from);
        load_i8(from: &[u8; LANES]) -> Self::I = from.map(|byte| i32::from(byte.cast_signed()));
        field(x: Self::I, down: i32, mask: i32) -> Self::I = x.map(|x| (x.cast_unsigned() >> down).cast_signed() & mask);
        raw(from: &[u8; 4 * LANES]) -> Self::Codes = from.map(i16::from);
        or(a: Self::Codes, b: Self::Codes) -> Self::Codes = std::array::from_fn(|i| a[i] | b[i]);
        bytes(from: &[u8; 4 * LANES]) -> Self::Bytes = from.map(|byte| i16::from(byte) - 128);
        open(start: Self::I) -> Self::Sums = start;
        dot_codes(sums: Self::Sums, codes: Self::Codes, word: i32) -> Self::Sums = dot(sums, codes, word);
        close(_start: Self::I, sums: Self::Sums) -> Self::I = sums;
        bytes_start(_total_down: i32) -> Self::I = [0; LANES];
        dot_bytes(sum: Self::I, codes: Self::Bytes, word: i32) -> Self::I = dot(sum, codes, word);
    }

    #[inline(always)]
    fn store(self, x: Self::F, to: &mut [f32; LANES]) {
        *to = x;
    }

    #[inline(always)]
    fn load_f16_le(self, from: &[u8; 2 * LANES]) -> Self::F {
        std::array::from_fn(|i| f16::from_le_bytes([from[2 * i], from[2 * i + 1]]).to_f32())
    }

    #[inline(always)]
    fn load_bf16_le(self, from: &[u8; 2 * LANES]) -> Self::F {
        std::array::from_fn(|i| bf16::from_le_bytes([from[2 * i], from[2 * i + 1]]).to_f32())
    }

    #[inline(always)]
    fn load_f32_le(self, from: &[u8; 4 * LANES]) -> Self::F {
        std::array::from_fn(|i| f32::from_le_bytes([from[4 * i], from[4 * i + 1], from[4 * i + 2], from[4 * i + 3]]))
    }

    #[inline(always)]
    fn store_f16(self, x: Self::F, to: &mut [u16; LANES]) {
        *to = x.map(|x| f16::from_f32(x).to_bits());
    }

    #[inline(always)]
    fn pack_i8(self, x: Self::I) -> [i32; LANES / 4] {
        std::array::from_fn(|i| i32::from_le_bytes(std::array::from_fn(|j| x[4 * i + j] as u8)))
    }

    #[inline(always)]
    fn nibbles(self, from: &[u8; 4 * LANES]) -> [Self::Codes; 2] {
        [from.map(|byte| i16::from(byte & 15)), from.map(|byte| i16::from(byte >> 4))]
    }

    #[inline(always)]
    fn look_up(self, table: &[u8; 16], codes: Self::Codes) -> Self::Bytes {
        codes.map(|code| i16::from(table[(code & 15) as usize]) - 128)
    }

    #[inline(always)]
    fn load_i32_le(self, from: &[u8; 4 * LANES]) -> Self::I {
        std::array::from_fn(|i| i32::from_le_bytes([from[4 * i], from[4 * i + 1], from[4 * i + 2], from[4 * i + 3]]))
    }

    #[inline(always)]
    fn cut(self, raw: Self::Codes, down: i32, mask: u8) -> Self::Codes {
        let mask = i16::from(mask);
        raw.map(|byte| if down < 0 { byte << -down & mask } else { byte >> down & mask })
    }

    #[inline(always)]
    fn prefetch<T>(self, _from: &[T], _ahead: usize) {}

    #[inline(always)]
    fn prefetch_far<T>(self, _from: &[T], _ahead: usize) {}
}
