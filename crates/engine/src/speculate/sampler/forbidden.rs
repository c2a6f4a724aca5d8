//! Values of tokens that a grammar forbids, block by block.

use draftscope_model::STRETCH;
use multiversion::multiversion;

/// Tokens of a word of the mask.
pub(super) const WORD: usize = u32::BITS as usize;

/// The value where the bit is set, else the other one.
#[inline(always)]
pub(super) fn chosen(value: f32, word: u32, bit: usize, other: f32) -> f32 {
    if word >> bit & 1 == 1 { value } else { other }
}

/// Puts another value in the place of each forbidden one.
#[multiversion(targets = "simd")]
pub(super) fn put_in_forbidden(values: &mut [f32], words: &[u32], other: f32) {
    for (block, word) in values.chunks_mut(WORD).zip(words).filter(|(_, word)| **word != u32::MAX) {
        for (bit, value) in block.iter_mut().enumerate() {
            *value = chosen(*value, *word, bit, other);
        }
    }
}

/// Copies a stretch of logits that begins at `start`, its forbidden ones below all others.
pub(super) fn allowed_stretch<'a>(
    logits: &[f32],
    words: &[u32],
    start: usize,
    copy: &'a mut [f32; STRETCH],
) -> &'a [f32] {
    let copy = &mut copy[..logits.len()];
    copy.copy_from_slice(logits);
    put_in_forbidden(copy, &words[start / WORD..], f32::NEG_INFINITY);
    copy
}
