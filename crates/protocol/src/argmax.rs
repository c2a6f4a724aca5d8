//! Finds the largest of many numbers, in forms that the compiler vectorises for several instruction sets.

use multiversion::multiversion;

/// Numbers that are compared together.
const BLOCK: usize = 64;

/// Largest value; negative infinity if there are none.
#[multiversion(targets = "simd")]
pub fn largest(values: &[f32]) -> f32 {
    largest_of(values)
}

#[inline(always)] // so that it is compiled for the instruction set of its caller
fn largest_of(block: &[f32]) -> f32 {
    const LANES: usize = 16;
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let chunks = block.chunks_exact(LANES);
    let rest = chunks.remainder().iter().fold(f32::NEG_INFINITY, |m, x| if *x > m { *x } else { m });
    for chunk in chunks {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane = if *x > *lane { *x } else { *lane };
        }
    }
    lanes.into_iter().fold(rest, f32::max)
}

/// The `n` largest values with their indices, largest first; equal values by index.
pub fn largest_n(values: &[f32], n: usize) -> Vec<(f32, usize)> {
    let mut best = Largest::new(n);
    best.search(values, 0);
    best.found
}

/// The largest values so far.
pub struct Largest {
    n: usize,
    /// With their indices, largest first.
    pub found: Vec<(f32, usize)>,
}

impl Largest {
    /// None yet, of at most `n`.
    #[must_use]
    pub fn new(n: usize) -> Self {
        Self { n, found: Vec::with_capacity(n.min(BLOCK) + 1) }
    }

    /// The value that a further one must exceed.
    pub fn bar(&self) -> f32 {
        match self.n {
            0 => f32::INFINITY,
            n if self.found.len() < n => f32::NEG_INFINITY,
            n => self.found[n - 1].0,
        }
    }

    /// Searches values that begin at index `start`. Equal values are sorted by index if stretches come in ascending
    /// order.
    pub fn search(&mut self, values: &[f32], start: usize) {
        search(self, values, start);
    }

    fn insert(&mut self, block: &[f32], start: usize) {
        for (i, x) in block.iter().enumerate() {
            if *x > self.bar() {
                let at = self.found.partition_point(|(y, _)| y >= x);
                self.found.insert(at, (*x, start + i));
                self.found.truncate(self.n);
            }
        }
    }
}

#[multiversion(targets = "simd")]
fn search(best: &mut Largest, values: &[f32], start: usize) {
    for (number, block) in values.chunks(BLOCK).enumerate() {
        if largest_of(block) > best.bar() {
            best.insert(block, start + number * BLOCK); // rare: most blocks have no such value
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_values_equal_those_of_a_sort() {
        let values: Vec<f32> = (0..1000).map(|i| ((i * 7919) % 331) as f32).collect();
        let mut sorted: Vec<_> = values.iter().copied().zip(0..).collect();
        sorted.sort_by(|a: &(f32, usize), b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        for n in [0, 1, 7, 64, 999, 1000, 2000] {
            assert_eq!(largest_n(&values, n), sorted[..n.min(1000)], "{n}");
        }
        assert_eq!(largest(&values), 330.0);
        assert_eq!(largest(&[]), f32::NEG_INFINITY);
    }
}
