//! Collects the hidden states of a pass that a tap asks for.
//!
//! Invariant: a row's states are side by side in the order of the [`Tap`](crate::Tap); if only the normed state
//! is requested, nothing is copied.

use crate::{ModelError, Tap};
use draftscope_kernels::LANES;

/// The states of one pass.
pub(crate) struct States<'a> {
    places: Vec<Option<usize>>, // as `Tap::places` says
    m: usize,
    rows: &'a mut [[f32; LANES]], // [m][states][d / 16]
}

impl<'a> States<'a> {
    /// Number of states of a row besides the normed one, which every pass yields.
    pub(crate) fn besides(tap: &Tap) -> usize {
        if tap.is_default() { 0 } else { tap.states().len() }
    }

    /// Room for `m` rows; `rows` is empty if only the normed state is requested.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] if there are fewer `layers` than the tap reads.
    pub(crate) fn new(tap: &Tap, layers: usize, m: usize, rows: &'a mut [[f32; LANES]]) -> Result<Self, ModelError> {
        let places = if rows.is_empty() { Vec::new() } else { tap.places(layers)? };
        Ok(Self { places, m, rows })
    }

    /// Stores the residual stream after so many blocks, `[d / 16][m]`, if it is requested.
    pub(crate) fn keep(&mut self, blocks: usize, x: &[[f32; LANES]]) {
        let tiles = x.len() / self.m;
        let states = self.places.len();
        for (state, _) in self.places.iter().enumerate().filter(|(_, place)| **place == Some(blocks)) {
            for (tile, of_rows) in x.chunks_exact(self.m).enumerate() {
                for (row, lanes) in of_rows.iter().enumerate() {
                    self.rows[(row * states + state) * tiles + tile] = *lanes;
                }
            }
        }
    }

    /// Stores the states after the final norm, `[m][d / 16]`.
    pub(crate) fn keep_normed(&mut self, normed: &[[f32; LANES]]) {
        let tiles = normed.len() / self.m;
        let states = self.places.len();
        for (state, _) in self.places.iter().enumerate().filter(|(_, place)| place.is_none()) {
            for (row, from) in normed.chunks_exact(tiles).enumerate() {
                self.rows[(row * states + state) * tiles..][..tiles].copy_from_slice(from);
            }
        }
    }
}
