//! The residual stream after some blocks of a pass, for drafters that read it.

use candle_core::Tensor;

use crate::ModelError;

/// The states of one pass that a tap asks for: the others are dropped as soon as the next block has read them.
pub struct Streams<'a> {
    /// As [`Tap::places`] says.
    places: &'a [Option<usize>],
    kept: Vec<(usize, Tensor)>,
}

impl<'a> Streams<'a> {
    pub(crate) fn new(places: &'a [Option<usize>]) -> Self {
        Self { places, kept: Vec::new() }
    }

    /// Keeps the residual stream after so many blocks, if it is requested.
    pub(crate) fn keep(&mut self, blocks: usize, stream: &Tensor) {
        if self.places.contains(&Some(blocks)) {
            self.kept.push((blocks, stream.clone()));
        }
    }

    /// The states side by side, `[m, states · d]`; `normed` is the one after the final norm.
    pub(crate) fn tapped(&self, normed: &Tensor) -> Result<Tensor, ModelError> {
        let state = |place: &Option<usize>| match *place {
            None => Ok(normed),
            Some(blocks) => {
                let kept = self.kept.iter().find(|(at, _)| *at == blocks).map(|(_, stream)| stream);
                kept.ok_or_else(|| ModelError::Unsupported(format!("no block {blocks} ran whose state is read")))
            }
        };
        let states = self.places.iter().map(state).collect::<Result<Vec<_>, _>>()?;
        match states[..] {
            [one] => Ok(one.clone()),
            _ => Ok(Tensor::cat(&states, 1)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

    use super::*;
    use crate::{State, Tap};

    #[test]
    fn a_pass_keeps_the_states_that_are_read_and_no_other() {
        let places = Tap::new(vec![State::Normed, State::Behind(0), State::Residual]).places(3).unwrap();
        let mut streams = Streams::new(&places);
        let stream = |value: f32| Tensor::full(value, (1, 1), &Device::Cpu).unwrap();
        for blocks in 0..=3u8 {
            streams.keep(blocks.into(), &stream(blocks.into()));
        }
        assert_eq!(streams.kept.iter().map(|(blocks, _)| *blocks).collect::<Vec<_>>(), [0, 3]);
        assert_eq!(streams.tapped(&stream(9.0)).unwrap().to_vec2::<f32>().unwrap(), [[9.0, 0.0, 3.0]]);
        let normed = Tensor::zeros((2, 4), DType::F32, &Device::Cpu).unwrap();
        assert_eq!(Streams::new(&[None]).tapped(&normed).unwrap().dims(), [2, 4]);
        assert!(Streams::new(&[Some(7)]).tapped(&normed).is_err());
    }
}
