//! Partial attention of a query over some positions: the sums, the largest score and the total weight, and how partials are
//! joined in order.

use crate::{
    isa::Kernel,
    simd::{self, LANES, Lanes, part, put},
};

/// Numbers that a partial has after its sums: the largest score and the total weight.
pub const HEAD_EXTRA: usize = 2;

/// Makes partials those of no position.
pub(crate) fn clear(partials: &mut [f32], each: usize) {
    partials.fill(0.0);
    partials.chunks_exact_mut(each).for_each(|partial| partial[each - 2] = f32::NEG_INFINITY);
}

/// `e^x` of one number.
#[inline(always)]
pub(crate) fn power<S: Lanes>(s: S, x: f32) -> f32 {
    simd::to_array(s, simd::exp(s, s.splat(x)))[0]
}

/// Adds a later partial to one.
#[inline(always)]
pub(crate) fn join<S: Lanes>(s: S, own: &mut [f32], more: &[f32]) {
    let width = own.len() - HEAD_EXTRA;
    let [before, after] = [own[width], more[width]];
    if more[width + 1] == 0.0 {
        return; // it saw nothing
    }
    if own[width + 1] == 0.0 {
        return own.copy_from_slice(more);
    }
    let max = if before > after { before } else { after };
    let factors = [power(s, before - max), power(s, after - max)];
    for at in (0..width).step_by(LANES) {
        let end = width.min(at + LANES);
        let sums = s.mul(part(s, &more[at..end]), s.splat(factors[1]));
        put(s, s.fma(part(s, &own[at..end]), s.splat(factors[0]), sums), &mut own[at..end]);
    }
    own[width] = max;
    own[width + 1] = own[width + 1].mul_add(factors[0], more[width + 1] * factors[1]);
}

/// Joins the partials of one query in order, and divides by the total weight.
#[derive(Debug)]
pub struct JoinHead<'a> {
    /// The first, then the following ones; each has [`HEAD_EXTRA`] numbers after its sums. The first is overwritten.
    pub partials: (&'a mut [f32], &'a [&'a [f32]]),
    /// As many numbers as a value has.
    pub out: &'a mut [f32],
}

impl Kernel for JoinHead<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let (own, more) = self.partials;
        for more in more {
            join(s, own, more);
        }
        let total = s.splat(own[self.out.len() + 1]);
        for (out, own) in self.out.chunks_mut(LANES).zip(own.chunks(LANES)) {
            put(s, s.div(part(s, &own[..out.len()]), total), out);
        }
    }
}
