//! A layer: attention, then a feed-forward layer, each added to the stream as its [`plan::Join`] says.

use candle_core::Tensor;

use super::attention::Attention;
use super::reader::{Reader, unsupported};
use crate::ModelError;
use crate::nn::{Activation, Gated, KvCache, LayerWeights, Linear, PassRows, RmsNorm, Rope, gated};
use crate::plan::{self, Feed, GatedFeed, Mixer, Rotation};

/// Weights of a layer.
pub(crate) struct Layer {
    attention: Attention,
    mix: Join,
    feed: Gated,
    fed: Join,
    input: Option<TokenInput>,
    output_scale: Option<f64>,
    bytes: u64,
}

/// `x + scale · after(step(before(x)))`
struct Join {
    before: Option<RmsNorm>,
    after: Option<RmsNorm>,
    scale: f64,
}

impl Join {
    fn read(reader: &Reader<'_>, of: &plan::Join, width: usize) -> Result<Self, ModelError> {
        let norm = |norm: &Option<plan::Norm>| norm.as_ref().map(|norm| reader.norm(norm, width)).transpose();
        Ok(Self { before: norm(&of.before)?, after: norm(&of.after)?, scale: of.scale })
    }

    fn add(&self, x: &Tensor, step: impl FnOnce(&Tensor) -> Result<Tensor, ModelError>) -> Result<Tensor, ModelError> {
        let mut update = match &self.before {
            Some(norm) => step(&norm.forward(x)?)?,
            None => step(x)?,
        };
        if let Some(norm) = &self.after {
            update = norm.forward(&update)?;
        }
        if self.scale != 1.0 {
            update = (update * self.scale)?;
        }
        Ok((x + update)?)
    }
}

/// `x + after(project(act(gate x) ⊙ slice))`
struct TokenInput {
    gate: Linear,
    act: Activation,
    project: Linear,
    after: RmsNorm,
}

impl TokenInput {
    fn read(reader: &Reader<'_>, of: &plan::TokenInput, width: usize) -> Result<Self, ModelError> {
        let (gate, project) = (reader.matrix(&of.gate)?, reader.matrix(&of.project)?);
        Ok(Self { gate, act: of.act, project, after: reader.norm(&of.after, width)? })
    }

    fn add(&self, x: &Tensor, slice: &Tensor) -> Result<Tensor, ModelError> {
        let products = gated(self.gate.forward(x)?, slice, self.act)?;
        Ok((x + self.after.forward(&self.project.forward(&products)?)?)?)
    }
}

fn feed(reader: &Reader<'_>, of: &GatedFeed) -> Result<Gated, ModelError> {
    let matrix = |part: &str, _, _| match part {
        "gate" => reader.matrix(&of.gate),
        "up" => reader.matrix(&of.up),
        _ => reader.matrix(&of.down),
    };
    Gated::read((of.down.rows, of.width()), of.act, matrix)
}

impl Layer {
    pub(super) fn read(reader: &Reader<'_>, of: &plan::Layer) -> Result<Self, ModelError> {
        let Mixer::Attention(attention) = &of.mixer else {
            return Err(unsupported("layers without keys and values of each position"));
        };
        let Feed::Dense(dense) = &of.feed else { return Err(unsupported("layers of experts")) };
        let width = attention.q.columns;
        let (attention, feed) = (Attention::read(reader, attention)?, feed(reader, dense)?);
        let [mix, fed] = [&of.mix, &of.fed].map(|join| Join::read(reader, join, width));
        let input = of.token_input.as_ref().map(|input| TokenInput::read(reader, input, width)).transpose()?;
        let scale = |name: &String| Ok::<_, ModelError>(reader.tensors.source.vector(name, 1)?[0]);
        let output_scale = of.output_scale.as_ref().map(scale).transpose()?.map(f64::from);
        Ok(Self { attention, mix: mix?, feed, fed: fed?, input, output_scale, bytes: reader.bytes() })
    }

    /// How queries and keys are rotated.
    pub(super) fn rotation(&self) -> Option<Rotation> {
        self.attention.rotation
    }

    /// Heads and their width, if its keys and values are cached.
    pub(super) fn cached_heads(&self) -> Option<(usize, usize)> {
        self.attention.cached_heads()
    }

    /// `[m, d] -> [m, d]`; `slice [m, …]`: what the rows' tokens add.
    pub(super) fn forward(
        &self,
        x: &Tensor,
        slice: Option<&Tensor>,
        (rope, rows): (Option<&Rope>, &PassRows),
        cache: &mut KvCache,
    ) -> Result<Tensor, ModelError> {
        let x = self.mix.add(x, |x| self.attention.forward(x, (rope, rows), cache))?;
        let mut x = self.fed.add(&x, |x| self.feed.forward(x))?;
        if let (Some(input), Some(slice)) = (&self.input, slice) {
            x = input.add(&x, slice)?;
        }
        Ok(self.output_scale.map_or(Ok(x.clone()), |scale| &x * scale)?)
    }
}

impl LayerWeights for Layer {
    fn bytes(&self) -> u64 {
        self.bytes
    }
}
