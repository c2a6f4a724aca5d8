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
            let width = form.strips()[1].width;
            let rest = &mut block[form.codes_bytes()..];
            rest[width * row..width * (row + 1)].copy_from_slice(&scale[..width]);
            if form.has_min() {
                rest[2 * (LANES + row)..2 * (LANES + row + 1)].copy_from_slice(&min);
            }
        }
    }
}

/// Decodes one block of a quantised encoding, as a file stores it, to its 32 or 256 numbers.
pub fn decode_block(encoding: Encoding, block: &[u8], out: &mut [f32]) {
    let form = encoding.form();
    if form.is_super() {
        return SuperUnit::decode(encoding, block).numbers(form, out);
    }
    let mut tile = vec![0; form.block_bytes()];
    write_block(encoding, (block, 0), &mut tile, 0);
    out.copy_from_slice(&read_unit(form, &tile, 0));
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

/// `2^(exponent − 128)`, below the normal numbers too: `GGML_E8M0_TO_FP32_HALF` of ggml.
fn power(exponent: u8) -> f32 {
    f32::from_bits(if exponent < 2 { 0x0020_0000 << exponent } else { (u32::from(exponent) - 1) << 23 })
}

/// For a block of 32.
fn read_unit(form: Form, block: &[u8], row: usize) -> [f32; BLOCK] {
    if form.is_dense() {
        return std::array::from_fn(|k| read_number(form, block, k * LANES + row));
    }
    let rest = &block[form.codes_bytes()..];
    let half = |index: usize| read_number(Form::F16, rest, index);
    let scale = if form == Form::Mxfp4 { power(rest[row]) } else { half(row) };
    let min = if form.has_min() { half(LANES + row) } else { 0.0 };
    let offset = match form {
        Form::Nibble => 8,
        Form::Byte => 128,
        _ => form.offset() as i16,
    };
    let number = |code: u8| match form.table() {
        Some(table) => i16::from(table[usize::from(code)]) - 128,
        None => i16::from(code) - offset,
    };
    std::array::from_fn(|i| {
        let (at, shift) = code_at(form, row, i);
        let fifth = if form.has_fives() { block[FIFTHS + row * 4 + i % 4] >> (i / 4) & 1 } else { 0 };
        scale * f32::from(number((block[at] >> shift) & mask(form) | fifth << 4)) + min
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
