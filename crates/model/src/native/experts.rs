//! The experts of a feed-forward layer on the native kernels.
//!
//! The matrices of all experts follow each other in one [`Matrix`], so that expert `e` has tiles of its own. A pass has two
//! parts, each shared by all threads: gate and up of every chosen expert, then down. An expert is read once for all rows that
//! chose it. Invariant: a row's results are added in the order of the experts' numbers, so its bits do not depend on the rows
//! beside it, on threads or on the instruction set.

use super::{
    gate_up::GateUp,
    matrix::{Cpu, Matrix, Part, RowOrder},
};
use crate::ModelError;
use crate::nn::{Activation, Choice, ExpertMatrix, ExpertSizes, StoredExperts, by_expert};
use draftscope_kernels::{Acts, BLOCK, Column, GeluMul, LANES, Onto, Operand, SiluMul};

/// All experts of a layer.
#[derive(Debug)]
pub(crate) struct ExpertStack {
    sizes: ExpertSizes,
    activation: Activation,
    gate_up: GateUp,
    down: Matrix,
}

/// Memory of a pass.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    groups: Vec<Group>,
}

/// The rows that chose an expert.
#[derive(Debug, Default)]
struct Group {
    expert: usize,
    /// Row of the pass, and the weight of its result.
    rows: Vec<(usize, f32)>,
    acts: Acts,
    /// Outputs of gate and up, `[width / 32][gate, up][2][m]`.
    gate_up: Vec<[f32; LANES]>,
    /// What the down matrix reads.
    inner: Acts,
}

/// One block of the inner width of one expert.
struct Job<'a> {
    acts: &'a Acts,
    /// Index among the blocks of all experts.
    block: usize,
    gate_up: &'a mut [[f32; LANES]],
    out: Column<'a>,
}

impl ExpertStack {
    /// Packs the experts of a layer.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] for widths that the kernels do not support.
    pub(super) fn pack(cpu: &Cpu, stored: &StoredExperts<'_>, activation: Activation) -> Result<Self, ModelError> {
        let sizes = stored.sizes();
        let ExpertSizes { count, d, width } = sizes;
        if !d.is_multiple_of(BLOCK) || !width.is_multiple_of(BLOCK) {
            return Err(ModelError::Unsupported(format!(
                "the native backend needs experts of whole blocks of 32, and these are {width} wide between rows of {d}"
            )));
        }
        let part = |expert, matrix, rows| Part {
            encoding: stored.encoding(expert, matrix),
            rows,
            bytes: stored.bytes(expert, matrix),
            order: RowOrder::Stored,
        };
        let all = |matrix, rows| (0..count).map(|expert| part(expert, matrix, rows)).collect::<Vec<_>>();
        let gate_up = GateUp::pack_all(cpu, d, [&all(ExpertMatrix::Gate, width), &all(ExpertMatrix::Up, width)]);
        let down = Matrix::pack(cpu, width, &all(ExpertMatrix::Down, d));
        Ok(Self { sizes, activation, gate_up, down })
    }

    /// Number of experts.
    pub(super) fn count(&self) -> usize {
        self.sizes.count
    }

    /// Bytes of all experts in memory.
    pub(super) fn bytes(&self) -> usize {
        self.gate_up.bytes() + self.down.bytes()
    }

    /// The forms of activations that experts read.
    pub(super) fn operand(&self) -> Operand {
        self.gate_up.operand()
    }

    /// The last matrices of all experts.
    pub(super) fn down(&self) -> &Matrix {
        &self.down
    }

    /// The weighted sums `[d / 16][m]` of each row's experts; `chosen` has an entry for each row.
    pub(super) fn run(
        &self,
        cpu: &Cpu,
        (acts, chosen): (&Acts, &[Choice]),
        Scratch { groups }: &mut Scratch,
        sums: &mut [[f32; LANES]],
    ) {
        let rows_of = by_expert(chosen);
        groups.resize_with(groups.len().max(rows_of.len()), Group::default);
        let groups = &mut groups[..rows_of.len()];
        for (group, (expert, rows)) in groups.iter_mut().zip(rows_of) {
            let ids: Vec<usize> = rows.iter().map(|(row, _)| *row).collect();
            acts.gather(&ids, self.operand(), &mut group.acts);
            (group.expert, group.rows) = (expert, rows);
        }
        self.inner(cpu, groups);
        self.sums(cpu, groups, (chosen.len(), sums));
    }

    /// `activation(gate) · up` of every chosen expert, ready for its down matrix.
    fn inner(&self, cpu: &Cpu, groups: &mut [Group]) {
        let blocks = self.sizes.width / BLOCK;
        let mut jobs = Vec::with_capacity(groups.len() * blocks);
        for Group { expert, rows, acts, gate_up, inner } in groups {
            let m = rows.len();
            inner.shape(m, self.sizes.width, self.down.operand());
            gate_up.resize(blocks * 4 * m, [0.0; LANES]);
            let (acts, first) = (&*acts, *expert * blocks);
            let parts = inner.columns().zip(gate_up.chunks_exact_mut(4 * m)).enumerate();
            jobs.extend(parts.map(|(block, (out, gate_up))| Job { acts, block: first + block, gate_up, out }));
        }
        cpu.pool.each(&mut jobs, |_, Job { acts, block, gate_up, out }| {
            self.gate_up.multiply(cpu, *block, acts, gate_up);
            let (gate, up) = gate_up.split_at(gate_up.len() / 2);
            match self.activation {
                Activation::Silu => SiluMul { gate, up, out }.run_on(cpu.isa),
                Activation::Gelu => GeluMul { gate, up, out }.run_on(cpu.isa),
            }
        });
    }

    /// The weighted sums `[d / 16][m]`.
    fn sums(&self, cpu: &Cpu, groups: &[Group], (m, sums): (usize, &mut [[f32; LANES]])) {
        let tiles = self.sizes.d / LANES;
        let grain = cpu.grain(tiles);
        cpu.pool.chunks(sums, grain * m, |item, sums| {
            sums.fill([0.0; LANES]);
            let mut product = vec![[0.0; LANES]; m];
            for Group { expert, rows, inner, .. } in groups {
                let product = &mut product[..rows.len()];
                for (tile, sums) in sums.chunks_exact_mut(m).enumerate() {
                    let tile = expert * tiles + item * grain + tile;
                    self.down.multiply(cpu, tile, inner, Onto::Nothing, product);
                    for ((row, weight), product) in rows.iter().zip(&*product) {
                        sums[*row].iter_mut().zip(product).for_each(|(sum, x)| *sum += weight * x);
                    }
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Stored;
    use crate::native::{head, matrix::tests::stored, testing::Noise};
    use crate::nn::ExpertNames;
    use draftscope_kernels::{Encoding, Isa, Pool};

    const SIZES: ExpertSizes = ExpertSizes { count: 5, d: 256, width: 256 };

    /// Gate, up and down of all experts: as stored, and the numbers that they stand for.
    type Tensors = [(Encoding, Vec<u8>, Vec<f32>); 3];

    fn tensors(encodings: [Encoding; 3]) -> Tensors {
        let mut seed = 20;
        encodings.map(|encoding| {
            seed += 1;
            let (bytes, numbers) = stored(encoding, SIZES.count * 256, 256, seed);
            (encoding, bytes, numbers)
        })
    }

    /// Experts, and what they run on.
    struct Stack(ExpertStack, Cpu);

    impl Stack {
        /// `[m, d] -> [m, d]`: the weighted sum of each row's experts.
        fn forward(&self, x: &[f32], chosen: &[Choice]) -> Vec<f32> {
            let (d, m) = (self.0.sizes.d, chosen.len());
            let (mut acts, mut sums) = (Acts::default(), vec![[0.0; LANES]; d / LANES * m]);
            head::load(&self.1, self.0.operand(), (x.as_chunks().0, d), &mut acts);
            self.0.run(&self.1, (&acts, chosen), &mut Scratch::default(), &mut sums);
            let row = |row: usize| sums[row..].iter().step_by(m).flatten().copied();
            (0..m).flat_map(row).collect()
        }
    }

    fn stack(cpu: Cpu, tensors: &Tensors, activation: Activation) -> Stack {
        let names = ExpertNames::Stacked(["gate", "up", "down"].map(str::to_owned));
        let tensors = tensors.iter().map(|(encoding, bytes, _)| Stored::new(*encoding, bytes)).collect();
        let stored = StoredExperts::of(&names, SIZES, tensors).unwrap();
        Stack(ExpertStack::pack(&cpu, &stored, activation).unwrap(), cpu)
    }

    fn product(matrix: &[f32], expert: usize, x: &[f64]) -> Vec<f64> {
        let rows = matrix[expert * 256 * 256..][..256 * 256].chunks_exact(256);
        rows.map(|row| row.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum()).collect()
    }

    /// One row in f64 with the decoded weights.
    fn exact([gate, up, down]: &Tensors, activation: Activation, x: &[f32], choice: &Choice) -> Vec<f64> {
        let x: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
        let mut out = vec![0.0; 256];
        for (expert, weight) in choice {
            let (gate, up) = (product(&gate.2, *expert, &x), product(&up.2, *expert, &x));
            let inner = gate.iter().zip(&up).map(|(g, u)| match activation {
                Activation::Silu => g / (1.0 + (-g).exp()) * u,
                Activation::Gelu => g * u / (1.0 + (-1.595_769_121_605_731 * (g + 0.044_715 * g.powi(3))).exp()),
            });
            let result = product(&down.2, *expert, &inner.collect::<Vec<_>>());
            out.iter_mut().zip(result).for_each(|(sum, x)| *sum += f64::from(*weight) * x);
        }
        out
    }

    /// Rows that share experts, each with two of five.
    fn rows(m: usize) -> (Vec<f32>, Vec<Choice>) {
        let choice = |row: usize| vec![(row % 3, 0.25 + row as f32 / 40.0), (3 + row % 2, 0.5)];
        (Noise(5).numbers(m * 256), (0..m).map(choice).collect())
    }

    #[test]
    fn results_are_those_of_the_decoded_weights_in_every_encoding() {
        let (x, chosen) = rows(7);
        for encoding in Encoding::ALL {
            for activation in [Activation::Silu, Activation::Gelu] {
                let tensors = tensors([encoding, encoding, Encoding::Q8_0]);
                let got = stack(Cpu::new(Pool::new(2), Isa::detect()), &tensors, activation).forward(&x, &chosen);
                let (mut error, mut size) = (0.0, 0.0);
                for (row, choice) in chosen.iter().enumerate() {
                    let want = exact(&tensors, activation, &x[row * 256..][..256], choice);
                    for (got, want) in got[row * 256..].iter().zip(&want) {
                        error += (f64::from(*got) - want).powi(2);
                        size += want * want;
                    }
                }
                // activations have 8 bits in front of each matrix
                assert!((error / size).sqrt() < 0.02, "{encoding:?}: {}", (error / size).sqrt());
            }
        }
    }

    #[test]
    fn bits_do_not_depend_on_rows_threads_or_the_instruction_set() {
        let (x, chosen) = rows(21);
        for encodings in
            [[Encoding::Q4K, Encoding::Q4K, Encoding::Q6K], [Encoding::Bf16, Encoding::Q4_0, Encoding::F32]]
        {
            let tensors = tensors(encodings);
            let whole = stack(Cpu::new(Pool::new(1), Isa::PORTABLE), &tensors, Activation::Silu).forward(&x, &chosen);
            for isa in Isa::available() {
                let stack = stack(Cpu::new(Pool::new(3), isa), &tensors, Activation::Silu);
                for size in [1, 2, 5, 21] {
                    let parts = x.chunks(size * 256).zip(chosen.chunks(size));
                    let got: Vec<f32> = parts.flat_map(|(x, chosen)| stack.forward(x, chosen)).collect();
                    assert!(got == whole, "{} and {size} rows, {encodings:?}", isa.name());
                }
            }
        }
    }

    #[test]
    fn each_expert_must_have_whole_blocks_of_its_own_type() {
        let names = ExpertNames::Single(vec![["gate", "up", "down"].map(str::to_owned); 2]);
        let sizes = ExpertSizes { count: 2, d: 288, width: 288 };
        let found = |second| {
            let encodings = [Encoding::Q8_0, Encoding::Q8_0, Encoding::Q8_0, second, second, second];
            StoredExperts::of(&names, sizes, encodings.map(|encoding| Stored::new(encoding, &[])).into())
        };
        assert!(found(Encoding::Q8_0).is_ok());
        assert!(found(Encoding::Q4K).is_err(), "288 is no multiple of 256");
    }

    #[test]
    fn every_layout_of_a_file_gives_the_same_bits() {
        let (x, chosen) = rows(4);
        let tensors = tensors([Encoding::Q4_0, Encoding::Q4_0, Encoding::Q5_1]);
        let cpu = || Cpu::new(Pool::new(2), Isa::detect());
        let stacked = stack(cpu(), &tensors, Activation::Silu).forward(&x, &chosen);
        let expert = |tensor: usize, expert: usize| {
            let bytes = &tensors[tensor].1;
            &bytes[expert * bytes.len() / 5..(expert + 1) * bytes.len() / 5]
        };
        let joined: Vec<u8> = (0..5).flat_map(|e| [expert(0, e), expert(1, e)].concat()).collect();
        let names = ExpertNames::Joined(["gate and up", "down"].map(str::to_owned));
        let of = vec![Stored::new(Encoding::Q4_0, &joined), Stored::new(Encoding::Q5_1, &tensors[2].1)];
        let joined = StoredExperts::of(&names, SIZES, of).unwrap();
        let single = ExpertNames::Single(vec![["gate", "up", "down"].map(str::to_owned); 5]);
        let of = (0..5).flat_map(|e| (0..3).map(move |tensor| (tensor, e)));
        let of = of.map(|(tensor, e)| Stored::new(tensors[tensor].0, expert(tensor, e))).collect();
        let single = StoredExperts::of(&single, SIZES, of).unwrap();
        for stored in [joined, single] {
            let stack = Stack(ExpertStack::pack(&cpu(), &stored, Activation::Silu).unwrap(), cpu());
            assert_eq!(stack.forward(&x, &chosen), stacked);
        }
    }

    #[test]
    fn experts_that_no_row_chose_are_not_read() {
        let (x, chosen) = rows(3);
        let mut tensors = tensors([Encoding::F32; 3]);
        let whole = stack(Cpu::new(Pool::new(1), Isa::detect()), &tensors, Activation::Silu).forward(&x, &chosen);
        let used = by_expert(&chosen);
        let chosen: Vec<Choice> = vec![vec![(1, 1.0)], vec![(1, 0.5), (4, 0.5)], vec![(4, 1.0)]];
        assert_eq!(used.len(), 5);
        for (_, bytes, _) in &mut tensors {
            for expert in [0, 2, 3] {
                let len = bytes.len() / 5;
                bytes[expert * len..(expert + 1) * len].fill(0xff); // no numbers
            }
        }
        let got = stack(Cpu::new(Pool::new(1), Isa::detect()), &tensors, Activation::Silu).forward(&x, &chosen);
        assert!(got.iter().all(|x| x.is_finite()) && got != whole);
    }
}
