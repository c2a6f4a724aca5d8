//! Work on single numbers: gates, caps, sigmoids.

use crate::{
    isa::Kernel,
    simd::{self, LANES, Lanes, part, put},
};

/// What a gate's outputs pass through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateActivation {
    /// `x / (1 + e^−x)`
    Silu,
    /// Its approximation with tanh.
    Gelu,
}

/// `gate = activation(gate) · up`.
pub struct Gate<'a> {
    /// The gate's outputs, then the products.
    pub gate: &'a mut [f32],
    /// As many.
    pub up: &'a [f32],
    /// Of the gate's outputs.
    pub activation: GateActivation,
}

impl Kernel for Gate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        for (gate, up) in self.gate.chunks_mut(LANES).zip(self.up.chunks(LANES)) {
            let x = part(s, gate);
            let x = match self.activation {
                GateActivation::Silu => simd::silu(s, x),
                GateActivation::Gelu => simd::gelu(s, x),
            };
            put(s, s.mul(x, part(s, up)), gate);
        }
    }
}

/// `x = cap · tanh(x / cap)`.
pub struct Cap<'a> {
    /// Numbers.
    pub numbers: &'a mut [f32],
    /// Their largest size.
    pub cap: f32,
}

impl Kernel for Cap<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        for numbers in self.numbers.chunks_mut(LANES) {
            put(s, simd::capped(s, part(s, numbers), self.cap), numbers);
        }
    }
}

/// `x = 1 / (1 + e^−x)`.
pub struct Sigmoid<'a> {
    /// Numbers.
    pub tiles: &'a mut [[f32; LANES]],
}

impl Kernel for Sigmoid<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        for tile in self.tiles {
            let below = s.add(simd::exp(s, s.sub(s.splat(0.0), s.load(tile))), s.splat(1.0));
            s.store(s.div(s.splat(1.0), below), tile);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;
    use crate::testing::Noise;

    #[test]
    fn gates_and_caps_have_the_values_of_their_formulas_and_the_same_bits_everywhere() {
        let mut noise = Noise(8);
        let numbers: Vec<f32> = noise.numbers(75).iter().map(|x| 40.0 * x * x * x).collect();
        let up = noise.numbers(75);
        let silu = |x: f64| x / (1.0 + (-x).exp());
        let gelu = |x: f64| 0.5 * x * (1.0 + (0.797_884_560_8 * (x + 0.044715 * x * x * x)).tanh());
        for isa in Isa::available() {
            for (activation, of) in
                [(GateActivation::Silu, &silu as &dyn Fn(f64) -> f64), (GateActivation::Gelu, &gelu)]
            {
                let (mut own, mut portable) = (numbers.clone(), numbers.clone());
                Gate { gate: &mut own, up: &up, activation }.run_on(isa);
                Gate { gate: &mut portable, up: &up, activation }.run_on(Isa::PORTABLE);
                assert!(own == portable, "{}", isa.name());
                for ((own, x), up) in own.iter().zip(&numbers).zip(&up) {
                    let expected = of(f64::from(*x)) * f64::from(*up);
                    assert!(
                        (f64::from(*own) - expected).abs() < 1e-6 * (1.0 + expected.abs()),
                        "{x}: {own}, {expected}"
                    );
                }
            }
            let (mut own, mut portable) = (numbers.clone(), numbers.clone());
            Cap { numbers: &mut own, cap: 30.0 }.run_on(isa);
            Cap { numbers: &mut portable, cap: 30.0 }.run_on(Isa::PORTABLE);
            assert!(own == portable, "{}", isa.name());
            for (own, x) in own.iter().zip(&numbers) {
                assert!((f64::from(*own) - 30.0 * (f64::from(*x) / 30.0).tanh()).abs() < 1e-5, "{x}: {own}");
            }
            let tiles: Vec<[f32; LANES]> = numbers.as_chunks().0.to_vec();
            let (mut own, mut portable) = (tiles.clone(), tiles.clone());
            Sigmoid { tiles: &mut own }.run_on(isa);
            Sigmoid { tiles: &mut portable }.run_on(Isa::PORTABLE);
            assert!(own == portable, "{}", isa.name());
            for (own, x) in own.as_flattened().iter().zip(tiles.as_flattened()) {
                assert!((f64::from(*own) - 1.0 / (1.0 + f64::from(-*x).exp())).abs() < 1e-6, "{x}: {own}");
            }
        }
    }
}
