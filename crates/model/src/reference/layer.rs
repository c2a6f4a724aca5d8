//! A layer: a mixer, then a feed-forward part, each added to the stream as its [`plan::Join`] says.

use candle_core::{Device, Tensor};

use super::attention::Attention;
use super::delta::Delta;
use super::experts::Feed;
use super::latent::Latent;
use super::pass::Pass;
use super::reader::{Reader, unsupported};
use crate::native::delta_state::DeltaWeights;
use crate::native::recurrent::Recurrence;
use crate::nn::{Activation, KvCache, LayerWeights, Linear, RmsNorm, gated};
use crate::options::PassForm;
use crate::plan::{self, Rotation};
use crate::{ExpertsMet, ModelError};

/// Weights of a layer; copies share the matrices.
#[derive(Clone)]
pub(crate) struct Layer {
    mixer: Mixer,
    mix: Join,
    feed: Feed,
    fed: Join,
    input: Option<TokenInput>,
    output_scale: Option<f64>,
    rotation: Option<Rotation>,
    bytes: u64,
}

#[derive(Clone)]
enum Mixer {
    Attention(Attention),
    Latent(Latent),
    Delta(Delta),
}

/// What a mixer keeps of earlier positions.
pub(crate) enum Memory<'a> {
    /// Rows of each.
    Cache(&'a mut KvCache),
    /// A state after all of them.
    State(Recurrence<'a>),
}

impl Mixer {
    fn read(reader: &Reader<'_>, of: &plan::Mixer) -> Result<Self, ModelError> {
        match of {
            plan::Mixer::Attention(attention) => Attention::read(reader, attention).map(Self::Attention),
            plan::Mixer::Latent(latent) => Latent::read(reader, latent).map(Self::Latent),
            plan::Mixer::Delta(delta) => Delta::read(reader, delta).map(Self::Delta),
        }
    }

    fn forward(&self, x: &Tensor, pass: Pass<'_>, memory: Memory<'_>) -> Result<Tensor, ModelError> {
        match (self, memory) {
            (Self::Attention(attention), Memory::Cache(cache)) => attention.forward(x, pass, cache),
            (Self::Latent(latent), Memory::Cache(cache)) => latent.forward(x, pass, cache),
            (Self::Delta(delta), Memory::State(state)) => delta.forward(x, state),
            _ => Err(unsupported("a layer over the memory of another kind")),
        }
    }
}

/// `x + scale · after(step(before(x)))`
#[derive(Clone)]
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
#[derive(Clone)]
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

impl Layer {
    /// Reads a layer of a model that is `width` wide.
    ///
    /// # Errors
    /// When a tensor is missing, misshapen or damaged, or a part is not interpreted.
    pub(crate) fn read(reader: &Reader<'_>, of: &plan::Layer, width: usize) -> Result<Self, ModelError> {
        let before = reader.bytes();
        let (mixer, feed) = (Mixer::read(reader, &of.mixer)?, Feed::read(reader, &of.feed)?);
        let [mix, fed] = [&of.mix, &of.fed].map(|join| Join::read(reader, join, width));
        let input = of.token_input.as_ref().map(|input| TokenInput::read(reader, input, width)).transpose()?;
        let output_scale = of.output_scale.as_ref().map(|name| reader.number(name)).transpose()?;
        let (rotation, bytes) = (of.rotation(), reader.bytes() - before);
        Ok(Self { mixer, mix: mix?, feed, fed: fed?, input, output_scale, rotation, bytes })
    }

    /// How queries and keys are rotated.
    pub(crate) fn rotation(&self) -> Option<Rotation> {
        self.rotation
    }

    /// An empty cache for `ctx` positions, if it has one of its own.
    pub(crate) fn cache(&self, ctx: usize, on: (&Device, PassForm)) -> Option<Result<KvCache, ModelError>> {
        match &self.mixer {
            Mixer::Attention(attention) => attention.cache(ctx, on),
            Mixer::Latent(latent) => Some(latent.cache(ctx, on)),
            Mixer::Delta(_) => None,
        }
    }

    /// What its recurrent state is computed with.
    pub(super) fn delta(&self) -> Option<&DeltaWeights> {
        match &self.mixer {
            Mixer::Delta(delta) => Some(&delta.weights),
            _ => None,
        }
    }

    /// A copy with this added to the weights of the norms that a draft module's conventions speak of.
    ///
    /// # Errors
    /// When memory is short.
    pub(crate) fn shifted(&self, by: f64) -> Result<Self, ModelError> {
        let mut shifted = self.clone();
        let mut norms: Vec<&mut RmsNorm> = match &mut shifted.mixer {
            Mixer::Attention(attention) => attention.norms_mut().collect(),
            Mixer::Latent(latent) => latent.norms_mut().collect(),
            Mixer::Delta(_) => Vec::new(),
        };
        let joins = [&mut shifted.mix, &mut shifted.fed].into_iter();
        norms.extend(joins.flat_map(|join| join.before.iter_mut().chain(&mut join.after)));
        norms.into_iter().try_for_each(|norm| norm.shifted(by).map(|moved| *norm = moved))?;
        Ok(shifted)
    }

    /// `[m, d] -> [m, d]`; `slice [m, …]`: what the rows' tokens add.
    ///
    /// # Errors
    /// When a tensor operation fails; the memory may hold the rows or not.
    pub(crate) fn forward(
        &self,
        x: &Tensor,
        slice: Option<&Tensor>,
        pass: Pass<'_>,
        memory: Memory<'_>,
    ) -> Result<Tensor, ModelError> {
        let stream = self.mix.add(x, |x| self.mixer.forward(x, pass, memory))?;
        let mut x = self.fed.add(&stream, |x| self.feed.forward(x, &stream))?;
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

    fn experts_met(&self) -> Option<ExpertsMet> {
        self.feed.experts_met()
    }
}
