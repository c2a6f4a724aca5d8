//! The gated feed-forward layer.

use candle_core::Tensor;

use crate::ModelError;
use crate::nn::linear::Linear;

/// What the gate's outputs pass through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x · sigmoid(x)`
    Silu,
    /// Its approximation with tanh (`gelu_pytorch_tanh`).
    Gelu,
}

/// `down(activation(gate x) · up x)` (Shazeer, arXiv:2002.05202).
#[derive(Clone, Debug)]
pub struct Gated {
    gate: Linear, // [width, d]
    up: Linear,   // [width, d]
    down: Linear, // [d, width]
    activation: Activation,
}

impl Gated {
    /// Reads its matrices with `linear(part, out, in)`, the parts being `gate`, `up` and `down`.
    ///
    /// # Errors
    /// Those of `linear`.
    pub fn read(
        (d, width): (usize, usize),
        activation: Activation,
        linear: impl Fn(&str, usize, usize) -> Result<Linear, ModelError>,
    ) -> Result<Self, ModelError> {
        Ok(Self {
            gate: linear("gate", width, d)?,
            up: linear("up", width, d)?,
            down: linear("down", d, width)?,
            activation,
        })
    }

    /// `[m, d] -> [m, d]`
    ///
    /// # Errors
    /// When shapes do not fit.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor, ModelError> {
        let (gate, up) = (self.gate.forward(x)?, self.up.forward(x)?);
        let products = gated(gate, &up, self.activation)?;
        drop(up);
        self.down.forward(&products)
    }

    /// Bytes the matrices take in memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        [&self.gate, &self.up, &self.down].iter().map(|w| w.bytes()).sum()
    }
}

/// `activation(gate) · up`, `[m, n]` each.
///
/// # Errors
/// When shapes do not fit.
pub fn gated(gate: Tensor, up: &Tensor, activation: Activation) -> Result<Tensor, ModelError> {
    let activated = match activation {
        Activation::Silu => gate.silu()?,
        Activation::Gelu => gate.gelu()?,
    };
    drop(gate); // a prompt's is large
    Ok((activated * up)?)
}

/// `cap · tanh(x / cap)`.
///
/// # Errors
/// When memory is short.
pub fn capped(x: &Tensor, cap: f64) -> Result<Tensor, ModelError> {
    Ok(((x / cap)?.tanh()? * cap)?)
}
