//! Each kernel alone, for every number of rows.

use draftscope_kernels::{Encoding, testing::Noise};

use super::blocks::{matrix, times};
use super::reference::{self, Weights};
use super::{gpu, own_gpu, stored};
use crate::kernels::SLOT_BYTES;
use crate::launches::{Binder, Op};
use crate::memory::Acts;
use crate::{Form, Gpu, Kernel, Matrix, PROMPT_ROWS, PassRows, StoredRows};

pub(super) fn words(gpu: &Gpu, buffer: &wgpu::Buffer, count: usize) -> Vec<u32> {
    let (to, mut encoder) = (gpu.readable(4 * count as u64), gpu.encoder());
    encoder.copy_buffer_to_buffer(buffer, 0, &to, 0, 4 * count as u64);
    gpu.submit(encoder);
    gpu.read(&to, 4 * count as u64).unwrap()
}

pub(super) fn numbers(gpu: &Gpu, buffer: &wgpu::Buffer, count: usize) -> Vec<f32> {
    words(gpu, buffer, count).into_iter().map(f32::from_bits).collect()
}

pub(super) fn run(gpu: &Gpu, ops: &[Op], slots: &wgpu::Buffer, pass: &PassRows) {
    gpu.write(slots, 0, bytemuck::cast_slice(&pass.words(0)));
    let mut encoder = gpu.encoder();
    let mut computing = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
    for op in ops {
        op.launch(gpu, &mut computing, (pass, 0));
    }
    drop(computing);
    gpu.submit(encoder);
    gpu.check().unwrap();
}

#[track_caller]
pub(super) fn same_bits(got: &[f32], expected: &[f32], what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        assert!(got.to_bits() == expected.to_bits(), "{what}, number {i}: {got} and {expected}");
    }
}

/// Acts on the device as the reference quantises them.
fn upload(gpu: &Gpu, acts: &Acts, reference: &reference::Acts) {
    gpu.write(&acts.values, 0, bytemuck::cast_slice(&reference.values));
    gpu.write(acts.codes(), 0, bytemuck::cast_slice(&reference.words()));
    gpu.write(acts.scales(), 0, bytemuck::cast_slice(&reference.scales));
}

#[test]
fn products_of_every_encoding_have_the_bits_of_the_reference_for_1_to_16_rows() {
    let Some(gpu) = gpu() else { return };
    let mut noise = Noise(3);
    let slots = gpu.uniform(SLOT_BYTES);
    for encoding in Encoding::ALL {
        let k = if encoding.block().0 == 256 { 768 } else { 544 };
        let n = 21; // no multiple of the rows of a workgroup
        let bytes = stored(encoding, n, k, &mut noise);
        let source = StoredRows { encoding, bytes: &bytes, order: &|row| row, rows: n };
        let matrix = Matrix::upload(&gpu, k, &[source]).unwrap();
        let weights = Weights::new(matrix.form(), encoding, &bytes, k);
        let x = reference::Acts::of(noise.numbers(16 * k));
        let (acts, out) = (Acts::new(&gpu, k), gpu.storage(4 * 16 * n));
        upload(&gpu, &acts, &x);
        let ops = Binder { gpu: &gpu, run: &slots }.product((&matrix, &acts), (&out, n, 0), false);
        let expected: Vec<f32> =
            (0..16).flat_map(|row| (0..n).map(move |i| (row, i))).map(|(row, i)| weights.dot(i, &x, row)).collect();
        for m in 1..=16 {
            run(&gpu, &ops, &slots, &PassRows::chain(0, m));
            same_bits(&numbers(&gpu, &out, m * n), &expected[..m * n], &format!("{encoding:?}, {m} rows"));
        }
        // rows of the embedding
        let tokens = gpu.upload(&[20u32, 0, 7]);
        let x = gpu.storage(4 * 16 * k);
        let ops = Binder { gpu: &gpu, run: &slots }.embed((&matrix, 1.0), &tokens, &x);
        run(&gpu, &ops, &slots, &PassRows::chain(0, 3));
        let expected: Vec<f32> = [20, 0, 7].iter().flat_map(|row| (0..k).map(|i| weights.weight(*row, i))).collect();
        same_bits(&numbers(&gpu, &x, 3 * k), &expected, &format!("{encoding:?}, embedding"));
    }
}

#[test]
fn norms_have_the_bits_of_the_reference() {
    let Some(gpu) = gpu() else { return };
    let slots = gpu.uniform(SLOT_BYTES);
    for d in [32, 576, 4128] {
        let (x, weight) = (Noise(1).numbers(16 * d), Noise(2).numbers(d));
        let acts = Acts::new(&gpu, d);
        let (x_buffer, weight_buffer) = (gpu.upload(&x), gpu.upload(&weight));
        let op = Binder { gpu: &gpu, run: &slots }.norm((&x_buffer, &weight_buffer), (d, 1e-5), &acts);
        let expected = reference::Acts::of(reference::norm(&x, &weight, 1e-5));
        run(&gpu, &[op], &slots, &PassRows::chain(0, 16));
        same_bits(&numbers(&gpu, &acts.values, 16 * d), &expected.values, "values");
        assert!(words(&gpu, acts.codes(), 4 * d) == expected.words(), "codes of {d}");
        same_bits(&numbers(&gpu, acts.scales(), 2 * d), expected.scales.as_flattened(), "scales");
    }
}

#[test]
fn statistics_of_logits_have_the_bits_of_the_reference() {
    let Some(gpu) = gpu() else { return };
    let slots = gpu.uniform(SLOT_BYTES);
    for v in [70, 512, 1337] {
        let mut logits = Noise(4).numbers(3 * v);
        logits.iter_mut().for_each(|x| *x *= 20.0);
        let most = logits[..v].iter().fold(f32::MIN, |most, x| most.max(*x));
        (logits[v / 3], logits[v / 2]) = (most, most); // the first of equal ones
        let stretches = v.div_ceil(512);
        let (buffer, out) = (gpu.upload(&logits), gpu.storage(16 * 3 * stretches));
        let op = Binder { gpu: &gpu, run: &slots }.stats(&buffer, v, &out);
        run(&gpu, &[op], &slots, &PassRows::chain(0, 3));
        let got = words(&gpu, &out, 4 * 3 * stretches);
        let expected = logits.chunks_exact(v).flat_map(reference::stats);
        for (got, (max, sum, at)) in got.as_chunks::<4>().0.iter().zip(expected) {
            assert_eq!([got[0], got[1], got[2]], [max.to_bits(), sum.to_bits(), at], "{v}");
        }
    }
}

#[test]
fn a_logit_that_is_not_finite_makes_the_sum_of_its_stretch_nan() {
    let Some(gpu) = gpu() else { return };
    let (slots, v) = (gpu.uniform(SLOT_BYTES), 1100);
    for odd in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for at in [0, 511, 700, 1099] {
            let mut logits = Noise(4).numbers(3 * v);
            logits[v + at] = odd;
            let (buffer, out) = (gpu.upload(&logits), gpu.storage(16 * 3 * 3));
            let op = Binder { gpu: &gpu, run: &slots }.stats(&buffer, v, &out);
            run(&gpu, &[op], &slots, &PassRows::chain(0, 3));
            let got = words(&gpu, &out, 4 * 3 * 3);
            let sums: Vec<f32> = got.as_chunks::<4>().0.iter().map(|stretch| f32::from_bits(stretch[1])).collect();
            let expected: Vec<f32> =
                logits.chunks_exact(v).flat_map(reference::stats).map(|stretch| stretch.1).collect();
            for (index, (sum, expected)) in sums.iter().zip(expected).enumerate() {
                assert_eq!(sum.is_nan(), index == 3 + at / 512, "{odd} at {at}, stretch {index}");
                assert!(sum.is_nan() == expected.is_nan() && (sum.is_nan() || sum.to_bits() == expected.to_bits()));
            }
        }
    }
}

/// On a device with subgroups the other tests run products with shuffles.
#[test]
fn products_without_subgroups_have_the_same_bits() {
    let Some(gpu) = own_gpu() else { return };
    let (mut noise, k, n) = (Noise(12), 1184, 21);
    let slots = gpu.uniform(SLOT_BYTES);
    let (matrix, weights) = matrix(&gpu, Encoding::Q5_1, [n, k], &mut noise);
    let x = reference::Acts::of(noise.numbers(16 * k));
    let (acts, out) = (Acts::new(&gpu, k), gpu.storage(4 * 16 * n));
    upload(&gpu, &acts, &x);
    let expected = times(&weights, n, &x, 16);
    let ops = Binder { gpu: &gpu, run: &slots }.product((&matrix, &acts), (&out, n, 0), false);
    let mut sources = Vec::new();
    for width in [None, Some(1), Some(2), Some(4)] {
        for m in [1, 2, 4, 16] {
            let variant = Kernel::Matrix(Form::Of(Encoding::Q5_1)).for_rows(m);
            let source = width.map_or_else(|| gpu.source(variant), |width| variant.source_for(width));
            // narrower steps by shuffles than the device allows, or none
            if width.is_none_or(|width| width == 1 || gpu.source(variant).contains("subgroupShuffleDown")) {
                gpu.replace(variant, &source);
            }
            run(&gpu, &ops, &slots, &PassRows::chain(0, m));
            same_bits(&numbers(&gpu, &out, m * n), &expected[..m * n], &format!("{width:?}, {m} rows"));
            sources.push(source);
        }
    }
    println!("with shuffles: {}", sources[0].contains("subgroupShuffleDown"));
    assert!(sources[4..8].iter().all(|source| !source.contains("subgroupShuffleDown")));
}

/// As in files of mixed types, where values have more bits than queries and keys.
#[test]
fn products_with_rows_in_two_encodings_are_one_launch_with_the_same_bits() {
    let Some(gpu) = gpu() else { return };
    let (mut noise, k, rows, width) = (Noise(14), 768, [24, 13], 40);
    let slots = gpu.uniform(SLOT_BYTES);
    for pair in [[Encoding::Q4K, Encoding::Q6K], [Encoding::Iq4Xs, Encoding::Mxfp4], [Encoding::Q4_0, Encoding::F16]] {
        let bytes = [0, 1].map(|i| stored(pair[i], rows[i], k, &mut noise));
        let order = |row: usize| row;
        let sources = [0, 1].map(|i| StoredRows { encoding: pair[i], bytes: &bytes[i], order: &order, rows: rows[i] });
        let weights = [0, 1].map(|i| Weights::new(Form::Of(pair[i]), pair[i], &bytes[i], k));
        let matrix = Matrix::upload(&gpu, k, &sources).unwrap();
        let x = reference::Acts::of(noise.numbers(PROMPT_ROWS * k));
        let (acts, out) = (Acts::new(&gpu, k), gpu.storage(4 * PROMPT_ROWS * width));
        upload(&gpu, &acts, &x);
        let ops = Binder { gpu: &gpu, run: &slots }.product((&matrix, &acts), (&out, width, 2), false);
        for m in [1, 3, 16, 50] {
            let pass = PassRows::chain(0, m);
            let launches = ops.iter().filter(|op| op.workgroups(&pass).is_some()).count();
            assert_eq!(launches, if m > 16 || pair[1] == Encoding::F16 { 2 } else { 1 }, "{pair:?}");
            run(&gpu, &ops, &slots, &pass);
            let got = numbers(&gpu, &out, m * width);
            for row in 0..m {
                let expected: Vec<f32> =
                    [0, 1].iter().flat_map(|i| (0..rows[*i]).map(|n| weights[*i].dot(n, &x, row))).collect();
                same_bits(&got[row * width + 2..][..37], &expected, &format!("{pair:?}, {m} rows"));
            }
        }
    }
}

/// Tiles of a prompt's rows: odd numbers of rows, outputs and blocks, and onto what is there.
#[test]
fn products_of_tiles_have_the_bits_of_the_reference_for_every_encoding() {
    let Some(gpu) = gpu() else { return };
    let mut noise = Noise(8);
    let slots = gpu.uniform(SLOT_BYTES);
    let rows = PROMPT_ROWS;
    for encoding in Encoding::ALL {
        // 24, 3 and 37 blocks: whole turns of 16 lanes, less than one, and more
        for k in [768, 96, 1184].into_iter().filter(|k| encoding.row_bytes(*k).is_some()) {
            let n = 69;
            let (matrix, weights) = matrix(&gpu, encoding, [n, k], &mut noise);
            let x = reference::Acts::of(noise.numbers(rows * k));
            let (acts, out) = (Acts::new(&gpu, k), gpu.storage(4 * rows * n));
            upload(&gpu, &acts, &x);
            let before = noise.numbers(rows * n);
            let expected = times(&weights, n, &x, rows);
            let binder = Binder { gpu: &gpu, run: &slots };
            for (m, onto) in [(rows, false), (17, true), (51, false)] {
                gpu.write(&out, 0, bytemuck::cast_slice(&before));
                let ops = binder.product((&matrix, &acts), (&out, n, 0), onto);
                run(&gpu, &ops, &slots, &PassRows::chain(0, m));
                let expected = (0..rows * n).map(|i| match (i < m * n, onto) {
                    (true, true) => before[i] + expected[i],
                    (true, false) => expected[i],
                    (false, _) => before[i],
                });
                let what = format!("{encoding:?}, {k} columns, {m} rows");
                same_bits(&numbers(&gpu, &out, rows * n), &expected.collect::<Vec<_>>(), &what);
            }
        }
    }
}
