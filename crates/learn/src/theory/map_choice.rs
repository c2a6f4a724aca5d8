//! What the map of a lesson is set to.

use super::map::{HARDWARE, MODELS, Map};

/// A row of what can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapRow {
    /// The device.
    Hardware,
    /// The model.
    Model,
    /// The acceptance.
    Acceptance,
    /// What the places show.
    Shown,
}

impl MapRow {
    /// From top to bottom.
    pub const ALL: [Self; 4] = [Self::Hardware, Self::Model, Self::Acceptance, Self::Shown];
}

/// What the places of the map show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layer {
    /// The k that pays.
    #[default]
    DraftLen,
    /// The speedup at that k.
    Speedup,
    /// The energy of a token at that k.
    Energy,
}

impl Layer {
    const ALL: [Self; 3] = [Self::DraftLen, Self::Speedup, Self::Energy];

    /// What it shows, in words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DraftLen => "the k that pays; · none does",
            Self::Speedup => "the speedup at that k",
            Self::Energy => "energy of a token, plain = 1",
        }
    }
}

/// What was chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MapChoice {
    hardware: usize,
    model: usize,
    acceptance: f64,
    /// What the places show.
    pub layer: Layer,
}

impl Default for MapChoice {
    fn default() -> Self {
        Self { hardware: 0, model: 0, acceptance: 0.7, layer: Layer::default() }
    }
}

impl MapChoice {
    /// The usual choice on hardware of this name; none if there is no such hardware.
    #[must_use]
    pub fn on(name: &str) -> Option<Self> {
        let hardware = HARDWARE.iter().position(|hardware| hardware.name == name)?;
        Some(Self { hardware, ..Self::default() })
    }

    /// The map of what was chosen.
    #[must_use]
    pub fn map(&self) -> Map {
        Map {
            hardware: HARDWARE[self.hardware % HARDWARE.len()],
            model: MODELS[self.model % MODELS.len()],
            acceptance: self.acceptance,
        }
    }

    /// Changes a row: to the next value or the one before; the acceptance by so many steps of 0.01.
    pub fn turn(&mut self, row: MapRow, steps: i32) {
        let next = |at: usize, len: usize| (at + len).saturating_add_signed(steps.signum() as isize) % len;
        match row {
            MapRow::Hardware => self.hardware = next(self.hardware, HARDWARE.len()),
            MapRow::Model => self.model = next(self.model, MODELS.len()),
            MapRow::Acceptance => {
                self.acceptance = ((self.acceptance * 100.0).round() / 100.0 + f64::from(steps) * 0.01).clamp(0.0, 1.0);
            }
            MapRow::Shown => {
                let at = Layer::ALL.iter().position(|layer| *layer == self.layer).unwrap_or(0);
                self.layer = Layer::ALL[next(at, Layer::ALL.len())];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_turns_there_and_back() {
        for row in MapRow::ALL {
            let mut choice = MapChoice::default();
            choice.turn(row, 1);
            assert_ne!(choice, MapChoice::default(), "{row:?}");
            choice.turn(row, -1);
            assert_eq!(choice, MapChoice::default(), "{row:?}");
            (0..200).for_each(|_| choice.turn(row, 10));
            assert!((0.0..=1.0).contains(&choice.map().acceptance));
        }
    }
}
