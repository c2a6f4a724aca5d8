//! Seeded noise for tests.

/// Numbers in −1…1, the same for the same seed (SplitMix64, Steele et al., OOPSLA 2014).
pub struct Noise(pub u64);

impl Noise {
    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// The next number.
    pub fn number(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    /// The next `count` numbers.
    pub fn numbers(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.number()).collect()
    }

    /// The next `count` groups of 16 numbers.
    pub fn lanes(&mut self, count: usize) -> Vec<[f32; 16]> {
        self.numbers(16 * count).as_chunks().0.to_vec()
    }
}
