//! What a tile costs beside the kernel for few rows, on whatever device there is. It asserts nothing about time.

use std::time::{Duration, Instant};

use draftscope_kernels::{Encoding, testing::Noise};

use super::{gpu, stored};
use crate::kernels::SLOT_BYTES;
use crate::launches::launch;
use crate::launches::{Binder, Op};
use crate::memory::Acts;
use crate::{Gpu, MAX_ROWS, Matrix, PROMPT_ROWS, PassRows, StoredRows};

/// Time of launches in one submission, until the device is done.
fn time(gpu: &Gpu, ops: &[Op], readable: &wgpu::Buffer, (rows, times): (usize, usize)) -> Duration {
    let pass = PassRows::chain(0, rows);
    let mut encoder = gpu.encoder();
    for _ in 0..times {
        launch(gpu, &mut encoder, ops, (&pass, usize::from(rows > MAX_ROWS)));
    }
    let start = Instant::now();
    gpu.submit(encoder);
    gpu.read(readable, 4).unwrap();
    start.elapsed()
}

#[test]
#[ignore = "measures; to be run alone on an idle machine"]
fn tiles_beside_the_kernel_for_few_rows() {
    let Some(gpu) = gpu() else { return };
    let (n, k, mut noise) = (1536, 768, Noise(40));
    let (slots, readable) = (gpu.uniform(2 * SLOT_BYTES), gpu.readable(16));
    for (slot, rows) in [(0, MAX_ROWS), (1, PROMPT_ROWS)] {
        gpu.write(&slots, slot * SLOT_BYTES, bytemuck::cast_slice(&PassRows::chain(0, rows).words(0)));
    }
    println!("{}: {PROMPT_ROWS} rows × {n} outputs × {k} columns, medians of 9 in turns", gpu.info().name);
    for encoding in [Encoding::Q4_1, Encoding::Q8_0, Encoding::Q4K, Encoding::Q6K, Encoding::Iq4Xs, Encoding::F16] {
        let bytes = stored(encoding, n, k, &mut noise);
        let source = StoredRows { encoding, bytes: &bytes, order: &|row| row, rows: n };
        let matrix = Matrix::upload(&gpu, k, &[source]).unwrap();
        let (acts, out) = (Acts::new(&gpu, k), gpu.storage(4 * PROMPT_ROWS * n));
        let ops = Binder { gpu: &gpu, run: &slots }.product((&matrix, &acts), (&out, n, 0), false);
        let mut all = [const { Vec::new() }; 2];
        for turn in 0..10 {
            for (times, rows) in all.iter_mut().zip([MAX_ROWS, PROMPT_ROWS]) {
                let time = time(&gpu, &ops, &readable, (rows, PROMPT_ROWS / rows));
                // the first turn compiles
                times.extend((turn > 0).then_some(time));
            }
        }
        all.iter_mut().for_each(|times| times.sort());
        let [few, tile] = all.map(|times| times[times.len() / 2].as_secs_f64() * 1e3);
        println!(
            "{}: {few:.1} ms by 16 rows, {tile:.1} ms by tiles, {:.2} times as fast",
            encoding.form().name(),
            few / tile
        );
    }
}
