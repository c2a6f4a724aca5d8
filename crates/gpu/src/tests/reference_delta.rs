//! Gated DeltaNet in plain Rust, with the operations of the shaders in their order.

#![allow(clippy::excessive_precision)] // the digits of the shaders

use super::reference::{exp, inverse_size_of_head, tree};
use crate::weights::DeltaShape;

/// `ln(1 + x)` for `x` of at least 0.
pub(crate) fn log_of_one_and(x: f32) -> f32 {
    if x < 0.000_976_562_5 {
        return x * (1.0 - x * (0.5 - x * 0.333_333_333));
    }
    let bits = (1.0 + x).to_bits();
    let mut e = ((bits >> 23) as i32 - 126) as f32;
    let mut m = f32::from_bits((bits & 0x007f_ffff) | 0x3f00_0000);
    if m < std::f32::consts::FRAC_1_SQRT_2 {
        e -= 1.0;
        m = (m + m) - 1.0;
    } else {
        m -= 1.0;
    }
    let z = m * m;
    let mut y = 0.070_376_836_292_f32;
    let rest = [
        -0.115_146_103_1,
        0.116_769_987,
        -0.124_201_408_46,
        0.142_493_227_87,
        -0.166_680_576_65,
        0.200_007_147_65,
        -0.249_999_939_93,
        0.333_333_311_74,
    ];
    for c in rest {
        y = y * m + c;
    }
    y = y * m * z;
    y -= 0.000_212_194_44 * e;
    y -= 0.5 * z;
    (m + y) + 0.693_359_375 * e
}

/// The weights of a layer.
pub(crate) struct Delta<'a> {
    pub(crate) shape: DeltaShape,
    pub(crate) taps: &'a [f32],
    pub(crate) heads: &'a [f32],
    pub(crate) norm: &'a [f32],
    pub(crate) eps: f32,
}

impl Delta<'_> {
    /// Normed and gated answers of each row, in a chain from the start: `projected [rows][width]`.
    pub(crate) fn run(&self, projected: &[f32]) -> Vec<f32> {
        let DeltaShape { key_heads, value_heads, key_dim: dk, value_dim: dv, grouped, .. } = self.shape;
        let (width, channels) = (self.shape.projected(), self.shape.channels());
        let rows: Vec<_> = projected.chunks_exact(width).collect();
        // one column of four lanes after the other
        let mut state = vec![0.0f32; value_heads * dk * dv];
        let mut out = Vec::new();
        for (row, own) in rows.iter().enumerate() {
            let mixed = self.convolve(&rows[..=row]);
            let alphas = &own[channels + value_heads * dv..];
            for head in 0..value_heads {
                let alpha = alphas[head] + self.heads[value_heads + head];
                let soft = if alpha <= 20.0 { log_of_one_and(exp(alpha)) } else { alpha };
                let keep = exp(self.heads[head] * soft);
                let rate = 1.0 / (1.0 + exp(-alphas[value_heads + head]));
                let of_key = if grouped { head / (value_heads / key_heads) } else { head % key_heads };
                let (query, key) = (&mixed[of_key * dk..][..dk], &mixed[(key_heads + of_key) * dk..][..dk]);
                let mut answers = vec![0.0; dv];
                for (column, answer) in answers.iter_mut().enumerate() {
                    let at = |i: usize| (head * dk + i) * dv + column;
                    let mut known = [0.0f32; 4];
                    for i in 0..dk {
                        state[at(i)] *= keep;
                        known[i % 4] += state[at(i)] * key[i];
                    }
                    let known = ((known[0] + known[1]) + known[2]) + known[3];
                    let change = (mixed[2 * key_heads * dk + head * dv + column] - known) * rate;
                    let mut sums = [0.0f32; 4];
                    for i in 0..dk {
                        state[at(i)] += key[i] * change;
                        sums[i % 4] += state[at(i)] * query[i];
                    }
                    *answer = ((sums[0] + sums[1]) + sums[2]) + sums[3];
                }
                let inverse = inverse_size_of_head(&answers, self.eps);
                let gates = &own[channels + head * dv..];
                let gated = answers.iter().zip(self.norm).zip(gates);
                out.extend(gated.map(|((x, weight), gate)| x * inverse * weight * (gate / (1.0 + exp(-gate)))));
            }
        }
        out
    }

    /// Queries, keys and values of the last of these rows.
    fn convolve(&self, rows: &[&[f32]]) -> Vec<f32> {
        let DeltaShape { key_heads, key_dim: dk, taps, .. } = self.shape;
        let channel = |channel: usize| {
            let mut sum = 0.0;
            for tap in 0..taps {
                let row = (rows.len() + tap).checked_sub(taps);
                sum += self.taps[channel * taps + tap] * row.map_or(0.0, |row| rows[row][channel]);
            }
            sum / (1.0 + exp(-sum))
        };
        let mut mixed: Vec<f32> = (0..self.shape.channels()).map(channel).collect();
        for (head, values) in mixed.chunks_exact_mut(dk).take(2 * key_heads).enumerate() {
            let mut lanes = [0.0; 64];
            values.iter().enumerate().for_each(|(i, x)| lanes[i % 64] += x * x);
            let scale = if head < key_heads { 1.0 / (dk as f32).sqrt() } else { 1.0 };
            let factor = scale / (tree(&mut lanes) + 1e-6).sqrt();
            values.iter_mut().for_each(|x| *x *= factor);
        }
        mixed
    }
}

#[test]
fn the_logarithm_is_that_of_the_library() {
    for x in [0.0f32, 1e-7, 3e-4, 0.001, 0.2, 1.0, 7.0, 1e3, 4e8] {
        let exact = f64::from(x).ln_1p();
        assert!((f64::from(log_of_one_and(x)) - exact).abs() <= 1.2e-7 * exact.max(1.0), "{x}");
    }
}
