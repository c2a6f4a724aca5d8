//! Products of every encoding, from random bytes of a file: right, and the same bits for every instruction set and
//! number of rows. It needs this crate alone, so it also runs on emulated processors.

use draftscope_kernels::testing::Noise;
use draftscope_kernels::{Acts, Encoding, Isa, LANES, Load, Onto, Operand, Tile, multiply, read_block, write_block};

const K: usize = 512;
const MOST: usize = 16;

/// A row of `K` weights as a file stores it, with scales of a sensible size.
fn stored(encoding: Encoding, noise: &mut Noise) -> Vec<u8> {
    if encoding.form().is_dense() {
        return dense(encoding, noise);
    }
    let (weights, bytes) = encoding.block();
    let mut row: Vec<u8> = (0..K / weights * bytes).map(|_| noise.bits() as u8).collect();
    row.chunks_exact_mut(bytes).for_each(|block| scale(encoding, block, noise));
    row
}

/// Sets the scales of a block.
fn scale(encoding: Encoding, block: &mut [u8], noise: &mut Noise) {
    // where f16 numbers stand in a block
    let halves: &[usize] = match encoding {
        Encoding::Q2K => &[80, 82],
        Encoding::Q3K => &[108],
        Encoding::Q6K => &[208],
        Encoding::Q4_0 | Encoding::Q5_0 | Encoding::Q8_0 | Encoding::Iq4Nl | Encoding::Iq4Xs => &[0],
        Encoding::Mxfp4 => {
            block[0] = 118 + block[0] % 8;
            return;
        }
        _ => &[0, 2],
    };
    for &at in halves {
        block[at..at + 2].copy_from_slice(&half::f16::from_f32(noise.number() / 50.0).to_le_bytes());
    }
}

/// Sixteen such rows as a tile.
fn tile(encoding: Encoding, mut stored: impl FnMut() -> Vec<u8>) -> Vec<u8> {
    let form = encoding.form();
    let mut tile = vec![0; form.tile_bytes(K)];
    for row in 0..LANES {
        let stored = stored();
        for (index, block) in tile.chunks_exact_mut(form.block_bytes()).enumerate() {
            write_block(encoding, (&stored, index), block, row);
        }
    }
    tile
}

fn dense(encoding: Encoding, noise: &mut Noise) -> Vec<u8> {
    let numbers = noise.numbers(K).into_iter();
    match encoding {
        Encoding::F32 => numbers.flat_map(f32::to_le_bytes).collect(),
        Encoding::F16 => numbers.flat_map(|x| half::f16::from_f32(x).to_le_bytes()).collect(),
        _ => numbers.flat_map(|x| half::bf16::from_f32(x).to_le_bytes()).collect(),
    }
}

fn acts(isa: Isa, rows: &[[f32; LANES]], operand: Operand) -> Acts {
    let mut acts = Acts::default();
    acts.shape(rows.len() * LANES / K, K, operand);
    Load { rows, out: &mut acts }.run_on(isa);
    acts
}

#[test]
fn products_of_every_encoding_are_right_and_the_same_bits_everywhere() {
    for encoding in Encoding::ALL {
        let (form, mut noise) = (encoding.form(), Noise(5));
        let tile = tile(encoding, || stored(encoding, &mut noise));
        let mut weights = vec![0.0; K];
        let rows = noise.lanes(MOST * K / LANES);
        let operand = Operand { blocks: !form.is_dense(), values: form.is_dense() };
        let mut first = None;
        for isa in Isa::available() {
            for m in 1..=MOST {
                let acts = acts(isa, &rows[..m * K / LANES], operand);
                let mut out = vec![[0.0; LANES]; m];
                multiply(isa, Tile { form, bytes: &tile, alone: m % 2 == 1 }, &acts, Onto::Nothing, &mut out);
                let expected = first.get_or_insert_with(Vec::new);
                expected.extend(out.iter().skip(expected.len()).copied());
                assert!(out == expected[..m], "{encoding:?}, {m} rows, {}", isa.name());
            }
        }
        let (acts, out) = (acts(Isa::PORTABLE, &rows, operand), first.unwrap());
        for lane in 0..LANES {
            for (block, weights) in tile.chunks_exact(form.block_bytes()).zip(weights.chunks_exact_mut(form.weights()))
            {
                read_block(form, block, lane, weights);
            }
            for (row, out) in out.iter().enumerate() {
                let (mut sum, mut size) = (0.0, 0.0);
                for (k, &weight) in weights.iter().enumerate() {
                    let at = k / 32 * MOST + row;
                    let x = if form.is_dense() {
                        f64::from(acts.values()[at][k % 32])
                    } else {
                        let block = &acts.blocks()[at];
                        f64::from(block.words[k % 32 / 4].to_le_bytes()[k % 4].cast_signed()) * f64::from(block.scale)
                    };
                    sum += f64::from(weight) * x;
                    size += (f64::from(weight) * x).abs();
                }
                assert!((sum - f64::from(out[lane])).abs() <= 3e-6 * size, "{encoding:?}: {} for {sum}", out[lane]);
            }
        }
    }
}

#[test]
fn the_largest_codes_and_activations_do_not_overflow() {
    for encoding in Encoding::ALL.into_iter().filter(|encoding| !encoding.form().is_dense()) {
        for byte in [0x00, 0x7f, 0x80, 0xff] {
            let (form, (weights, bytes), mut noise) = (encoding.form(), encoding.block(), Noise(5));
            let tile = tile(encoding, || {
                let mut row = vec![byte; K / weights * bytes];
                row.chunks_exact_mut(bytes).for_each(|block| scale(encoding, block, &mut noise));
                row
            });
            let rows: Vec<_> = (0..4).flat_map(|row| vec![[[1.0, -1.0][row % 2]; LANES]; K / LANES]).collect();
            let operand = Operand { blocks: true, values: false };
            let products = Isa::available().map(|isa| {
                let mut out = [[0.0; LANES]; 4];
                multiply(
                    isa,
                    Tile { form, bytes: &tile, alone: true },
                    &acts(isa, &rows, operand),
                    Onto::Nothing,
                    &mut out,
                );
                out
            });
            let products: Vec<_> = products.collect();
            assert!(products.iter().all(|out| *out == products[0]), "{encoding:?}, bytes {byte:#x}");
        }
    }
}
