//! Blocks decode to the bits that gguf-py decodes them to, both from a file and from a tile; `fixtures/make.py` made them.

use draftscope_kernels::{Encoding, LANES, decode_block, read_block, write_block};

const WEIGHTS: usize = 1024;
const BLOCKS: &[u8] = include_bytes!("fixtures/blocks.bin");

/// As bits, without the sign of zeros: gguf-py multiplies by one.
fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|x| (x + 0.0).to_bits()).collect()
}

#[test]
fn blocks_decode_to_the_bits_of_gguf_py() {
    let mut rest = BLOCKS;
    for encoding in [Encoding::Iq4Nl, Encoding::Iq4Xs, Encoding::Mxfp4] {
        let (bytes, after) = rest.split_at(encoding.row_bytes(WEIGHTS).unwrap());
        let (numbers, after) = after.split_at(4 * WEIGHTS);
        rest = after;
        let expected: Vec<f32> = numbers.as_chunks().0.iter().map(|number| f32::from_le_bytes(*number)).collect();
        assert!(expected.iter().filter(|x| **x != 0.0).count() > WEIGHTS / 2, "{encoding:?}");

        let (weights, size) = encoding.block();
        let mut decoded = vec![0.0; WEIGHTS];
        for (block, numbers) in bytes.chunks_exact(size).zip(decoded.chunks_exact_mut(weights)) {
            decode_block(encoding, block, numbers);
        }
        assert_eq!(bits(&decoded), bits(&expected), "{encoding:?} from a file");

        let (form, row) = (encoding.form(), LANES - 3);
        let mut tile = vec![0; form.tile_bytes(WEIGHTS)];
        decoded.fill(0.0);
        for (index, block) in tile.chunks_exact_mut(form.block_bytes()).enumerate() {
            write_block(encoding, (bytes, index), block, row);
            read_block(form, block, row, &mut decoded[index * form.weights()..][..form.weights()]);
        }
        assert_eq!(bits(&decoded), bits(&expected), "{encoding:?} from a tile");
    }
    assert!(rest.is_empty());
}
