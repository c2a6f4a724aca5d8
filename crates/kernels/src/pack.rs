//! Packs weights into tile blocks, and reads them.
//!
//! Invariant: [`read_block`] of a block from [`write_block`] equals ggml's dequantisation to the bit. This code need
//! not be fast: it runs once at load, and once per token for a row of the embedding.

use half::{bf16, f16};

use crate::{
    encoding::{Encoding, Unit},
    form::{BLOCK, Form},
    simd::LANES,
    super_block::SuperUnit,
};

/// Writes the weights of block `index` of `from`, a row in the file's encoding, as row `row` of a zeroed block.
pub fn write_block(encoding: Encoding, (from, index): (&[u8], usize), block: &mut [u8], row: usize) {
    let form = encoding.form();
    if form.is_super() {
        let (_, bytes) = encoding.block();
        return SuperUnit::decode(encoding, &from[index * bytes..(index + 1) * bytes]).write(form, block, row);
    }
    match encoding.unit(from, index) {
        Unit::Values(values) => write_values(form, block, row, &values),
        Unit::Codes { codes, scale, min } => {
            write_codes(form, block, row, &codes);
            let rest = &mut block[form.codes_bytes()..];
            write_scale(rest, row, scale);
            if form.has_min() {
                write_scale(rest, LANES + row, min);
            }
        }
    }
}

/// Reads row `row` of a block into [`Form::weights`] numbers.
pub fn read_block(form: Form, block: &[u8], row: usize, out: &mut [f32]) {
    if form.is_super() {
        return SuperUnit::read(form, block, row).numbers(form, out);
    }
    out.copy_from_slice(&read_unit(form, block, row));
}

fn write_values(form: Form, block: &mut [u8], row: usize, values: &[f32; BLOCK]) {
    for (k, &value) in values.iter().enumerate() {
        let at = k * LANES + row;
        match form {
            Form::F32 => block[4 * at..4 * at + 4].copy_from_slice(&value.to_le_bytes()),
            Form::Bf16 => block[2 * at..2 * at + 2].copy_from_slice(&bf16::from_f32(value).to_le_bytes()),
            _ => block[2 * at..2 * at + 2].copy_from_slice(&f16::from_f32(value).to_le_bytes()),
        }
    }
}

fn write_codes(form: Form, block: &mut [u8], row: usize, codes: &[u8; BLOCK]) {
    for (i, &code) in codes.iter().enumerate() {
        let (at, shift) = code_at(form, row, i);
        block[at] |= (code & mask(form)) << shift;
        if form.has_fives() {
            block[FIFTHS + row * 4 + i % 4] |= code >> 4 << (i / 4);
        }
    }
}

/// Where the fifth bits of codes begin: those of k, k + 4, k + 8, … share a byte.
const FIFTHS: usize = 4 * 4 * LANES;

/// Bits of a code that are stored together.
fn mask(form: Form) -> u8 {
    if form == Form::Byte { 255 } else { 15 }
}

/// Byte and shift of code `i` of a row: nibbles of k and k + 4 share a byte.
fn code_at(form: Form, row: usize, i: usize) -> (usize, u32) {
    let group = 4 * LANES;
    if mask(form) == 15 {
        (i / 8 * group + row * 4 + i % 4, if i % 8 < 4 { 0 } else { 4 })
    } else {
        (i / 4 * group + row * 4 + i % 4, 0)
    }
}

fn write_scale(rest: &mut [u8], index: usize, scale: f32) {
    rest[2 * index..2 * index + 2].copy_from_slice(&f16::from_f32(scale).to_le_bytes());
}

/// For a block of 32.
fn read_unit(form: Form, block: &[u8], row: usize) -> [f32; BLOCK] {
    if form.is_dense() {
        return std::array::from_fn(|k| read_number(form, block, k * LANES + row));
    }
    let scale = |index: usize| read_number(Form::F16, &block[form.codes_bytes()..], index);
    let (scale, min) = (scale(row), if form.has_min() { scale(LANES + row) } else { 0.0 });
    let offset = match form {
        Form::Nibble => 8,
        Form::Byte => 128,
        _ => form.offset() as i16,
    };
    std::array::from_fn(|i| {
        let (at, shift) = code_at(form, row, i);
        let fifth = if form.has_fives() { block[FIFTHS + row * 4 + i % 4] >> (i / 4) & 1 } else { 0 };
        let code = i16::from((block[at] >> shift) & mask(form) | fifth << 4) - offset;
        scale * f32::from(code) + min
    })
}

/// Number `index` of a dense form.
fn read_number(form: Form, bytes: &[u8], index: usize) -> f32 {
    if form == Form::F32 {
        let at = 4 * index;
        return f32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    }
    let pair = [bytes[2 * index], bytes[2 * index + 1]];
    if form == Form::Bf16 { bf16::from_le_bytes(pair).to_f32() } else { f16::from_le_bytes(pair).to_f32() }
}
