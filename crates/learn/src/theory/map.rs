//! Where speculation pays on hardware that is not here: the roofline model over batch and context.
//!
//! Invariant: everything is calculated from published figures and named so. A pass takes the longer of reading its bytes and
//! computing its products (Williams et al., "Roofline", 2009): the weights are read once for all rows, and the keys and values
//! of a sequence once for all rows of that sequence. E and the cost of a round are those of [`super::Sliders`].

use draftscope_session::account::tokens_at;

/// A device, by its published figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hardware {
    /// As its maker names it.
    pub name: &'static str,
    /// Bytes read per second.
    pub bandwidth: f64,
    /// Operations per second in bf16 or fp16, dense, a product and its sum counted as two.
    pub compute: f64,
    /// Bytes of memory.
    pub memory: f64,
}

/// From the data sheets: H100 SXM5 (NVIDIA, 2023), A100 80GB SXM (NVIDIA, 2021), RTX 4090 (NVIDIA's Ada whitepaper: FP16 with
/// sums in FP32), M2 Ultra with 76 GPU cores (Apple, 2023: 27.2 TFLOPS in FP32).
pub const HARDWARE: [Hardware; 4] = [
    Hardware { name: "H100 SXM", bandwidth: 3.35e12, compute: 989e12, memory: 80e9 },
    Hardware { name: "A100 80GB", bandwidth: 2.039e12, compute: 312e12, memory: 80e9 },
    Hardware { name: "RTX 4090", bandwidth: 1.008e12, compute: 165e12, memory: 24e9 },
    Hardware { name: "M2 Ultra", bandwidth: 0.8e12, compute: 27.2e12, memory: 192e9 },
];

/// A model in bf16, by its published sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sizes {
    /// What it is like.
    pub name: &'static str,
    /// Weights that every row meets.
    dense: f64,
    /// Weights of experts, how many there are, and how many a row meets.
    experts: f64,
    of: f64,
    per_row: f64,
    /// Bytes of keys and values of a position.
    kv: f64,
    /// Operations of attention of a row for each position before it.
    attention: f64,
}

/// Llama 3.1 8B (32 layers, 32 heads and 8 of keys and values of 128), and Qwen3-30B-A3B (48 layers, 32 and 4 heads of 128,
/// 128 experts of 3 · 2,048 · 768 weights a layer, 8 of them a row).
pub const MODELS: [Sizes; 2] = [
    Sizes {
        name: "dense, 8 billion weights",
        dense: 8.03e9,
        experts: 0.0,
        of: 1.0,
        per_row: 0.0,
        kv: 131_072.0,
        attention: 524_288.0,
    },
    Sizes {
        name: "experts, 30 billion, 3 a token",
        dense: 1.54e9,
        experts: 28.99e9,
        of: 128.0,
        per_row: 8.0,
        kv: 98_304.0,
        attention: 786_432.0,
    },
];

impl Sizes {
    /// Bytes of all weights.
    fn weights(&self) -> f64 {
        2.0 * (self.dense + self.experts)
    }

    /// Bytes of the weights that so many rows meet: experts are taken as chosen independently.
    fn read(&self, rows: f64) -> f64 {
        let met = 1.0 - (1.0 - self.per_row / self.of).powf(rows);
        2.0 * (self.dense + self.experts * met)
    }
}

/// Sequences at once: the columns of the map.
pub const BATCHES: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// Positions of each sequence: the rows of the map.
pub const CONTEXTS: [u32; 5] = [1_024, 4_096, 16_384, 65_536, 131_072];

/// Most drafts of a round that are compared.
const MOST: u8 = 8;

/// A draft, in plain passes: about what one layer of 32 and the head cost.
const DRAFT: f64 = 0.05;

/// Energy of a byte from DRAM and of an operation in 16 bits, in pJ: 640 pJ for 32 bits, and 1.5 for a product and its sum
/// (Horowitz, "Computing's energy problem", ISSCC 2014; newer memory takes less, and so does newer arithmetic).
const BYTE_PJ: f64 = 160.0;
const OPERATION_PJ: f64 = 0.75;

/// What the map is drawn for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Map {
    /// The device.
    pub hardware: Hardware,
    /// The model.
    pub model: Sizes,
    /// Probability that a draft is accepted when all before it were, 0 to 1.
    pub acceptance: f64,
}

/// What pays at a place of the map.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Best {
    /// The k with the largest speedup; 0 where plain decoding is fastest.
    pub k: u8,
    /// Its speedup.
    pub speedup: f64,
    /// Energy of a token ÷ that of plain decoding.
    pub energy: f64,
}

/// What a pass of the target takes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Pass {
    seconds: f64,
    pj: f64,
}

impl Map {
    /// A pass over `rows` rows of each of `batch` sequences with `context` positions.
    fn pass(&self, rows: f64, batch: f64, context: f64) -> Pass {
        let Sizes { dense, experts, of, per_row, kv, attention, .. } = self.model;
        let bytes = self.model.read(rows * batch) + batch * context * kv;
        let operations = rows * batch * (2.0 * (dense + experts * per_row / of) + attention * context);
        let seconds = (bytes / self.hardware.bandwidth).max(operations / self.hardware.compute);
        Pass { seconds, pj: bytes * BYTE_PJ + operations * OPERATION_PJ }
    }

    /// What pays there; none where weights and caches do not fit into the memory.
    #[must_use]
    pub fn best(&self, batch: u32, context: u32) -> Option<Best> {
        let (batch, context) = (f64::from(batch), f64::from(context));
        if self.model.weights() + batch * context * self.model.kv > self.hardware.memory {
            return None;
        }
        let plain = self.pass(1.0, batch, context);
        let of_k = |k: u8| {
            let pass = self.pass(f64::from(k) + 1.0, batch, context);
            let tokens = tokens_at(k.into(), self.acceptance);
            let drafts = DRAFT * f64::from(k);
            Best {
                k,
                speedup: tokens / (pass.seconds / plain.seconds + drafts),
                energy: (pass.pj / plain.pj + drafts) / tokens,
            }
        };
        (0..=MOST).map(of_k).reduce(|best, this| if this.speedup > best.speedup + 1e-9 { this } else { best })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(hardware: usize, model: usize, acceptance: f64) -> Map {
        Map { hardware: HARDWARE[hardware], model: MODELS[model], acceptance }
    }

    #[test]
    fn a_pass_takes_what_the_roofline_says() {
        let map = map(0, 0, 0.7);
        // one row reads: 16.06 GB and 134 MB of keys and values at 3.35 TB/s
        let one = map.pass(1.0, 1.0, 1024.0);
        assert!((one.seconds - (16.06e9 + 134.2e6) / 3.35e12).abs() < 1e-7, "{one:?}");
        // from the ridge on arithmetic limits: 989 / 3.35 = 295 operations a byte, one row needs one a byte
        let ridge = map.hardware.compute / map.hardware.bandwidth;
        assert!((ridge - 295.2).abs() < 0.1);
        let [under, over] =
            [0.9, 1.1].map(|part| map.pass(ridge * part, 1.0, 0.0).seconds / map.pass(1.0, 1.0, 0.0).seconds);
        assert!((under - 1.0).abs() < 1e-9 && (over - 1.1).abs() < 0.01, "{under} {over}");
    }

    #[test]
    fn it_pays_with_few_sequences_and_again_with_long_contexts() {
        let dense = map(0, 0, 0.7);
        let one = dense.best(1, 1024).unwrap();
        assert!(one.k >= 3 && one.speedup > 2.0 && one.energy < 0.6, "{one:?}");
        let busy = dense.best(256, 1024).unwrap();
        assert!(busy.k < one.k && busy.speedup < one.speedup, "arithmetic limits: {busy:?}");
        // MagicDec, arXiv 2408.11049: with long contexts caches are read, which rows share
        let m2 = Map { hardware: Hardware { memory: 1e15, ..HARDWARE[3] }, ..dense };
        assert_eq!(m2.best(256, 1024).unwrap().k, 0);
        let long = m2.best(256, 131_072).unwrap();
        assert!(long.k > 0 && long.speedup > 1.0, "{long:?}");
        assert_eq!(dense.best(256, 131_072), None, "4.4 TB of caches");
        let hopeless = Map { acceptance: 0.0, ..dense };
        assert_eq!(hopeless.best(1, 1024).unwrap(), Best { k: 0, speedup: 1.0, energy: 1.0 });
    }

    #[test]
    fn the_figures_of_the_lesson_are_those_of_the_map() {
        let m2 = map(3, 0, 0.7);
        assert_eq!(format!("{:.1}", m2.best(1, 1024).unwrap().speedup), "2.4");
        assert_eq!(m2.best(64, 1024).unwrap().k, 0);
        assert!(m2.best(64, 16_384).unwrap().speedup > 1.0);
    }

    #[test]
    fn rows_of_experts_read_more_weights_than_one() {
        let experts = map(0, 1, 0.7);
        assert!((experts.model.read(1.0) / 2.0 - (1.54e9 + 28.99e9 / 16.0)).abs() < 1e6, "3.35 billion a row");
        let (of_experts, of_dense) = (experts.best(1, 1024).unwrap(), map(0, 0, 0.7).best(1, 1024).unwrap());
        assert!(of_experts.speedup < of_dense.speedup, "{of_experts:?} {of_dense:?}");
        assert!((experts.model.read(1e6) - experts.model.weights()).abs() < 1.0);
    }
}
