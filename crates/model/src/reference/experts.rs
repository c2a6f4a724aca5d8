//! The feed-forward part of a layer, as [`plan::Feed`] describes it: one gated layer, or experts of which each row chooses
//! some.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use candle_core::{Device, Tensor};

use super::reader::Reader;
use crate::native::router::Router;
use crate::nn::{self, Choice, Gated, Linear, RmsNorm, by_expert};
use crate::plan::{self, RouterInput};
use crate::{ExpertsMet, ModelError};

/// The feed-forward part of a layer.
#[derive(Clone)]
pub(super) enum Feed {
    Dense(Gated),
    Experts(Box<Experts>),
}

/// Experts, what chooses them, and what runs beside them.
#[derive(Clone)]
pub(super) struct Experts {
    weight: Linear,
    router: Router,
    /// The norm through which the router reads the stream; `None`: it reads what the experts read.
    router_norm: Option<RmsNorm>,
    experts: nn::Experts,
    /// What every row runs too, and the matrix whose sigmoid is its factor.
    shared: Option<(Gated, Option<Linear>)>,
    beside: Option<Beside>,
    /// Different experts that the last pass ran.
    met: Arc<AtomicUsize>,
}

/// A dense layer beside experts: `dense_norm(dense(x)) + experts_norm(experts(before(stream)))`.
#[derive(Clone)]
struct Beside {
    dense: Gated,
    dense_norm: RmsNorm,
    before: RmsNorm,
    experts_norm: RmsNorm,
}

impl Feed {
    pub(super) fn read(reader: &Reader<'_>, of: &plan::Feed) -> Result<Self, ModelError> {
        match of {
            plan::Feed::Dense(dense) => reader.gated(dense).map(Self::Dense),
            plan::Feed::Experts(experts) => Ok(Self::Experts(Box::new(Experts::read(reader, experts)?))),
        }
    }

    /// What it adds for rows, `[m, d] -> [m, d]`; `stream` is what the rows were before they were normed.
    pub(super) fn forward(&self, x: &Tensor, stream: &Tensor) -> Result<Tensor, ModelError> {
        match self {
            Self::Dense(dense) => dense.forward(x),
            Self::Experts(experts) => experts.forward(x, stream),
        }
    }

    /// Experts that the last pass ran; `None` for a dense layer.
    pub(super) fn experts_met(&self) -> Option<ExpertsMet> {
        match self {
            Self::Dense(_) => None,
            Self::Experts(experts) => Some(experts.met()),
        }
    }
}

impl Experts {
    fn read(reader: &Reader<'_>, of: &plan::Experts) -> Result<Self, ModelError> {
        let (files, device, d) = (reader.tensors.source, reader.tensors.device, of.sizes.d);
        let (weight, router) = (reader.router(&of.router.weight)?, Router::read(of, files)?);
        reader.count(router.bytes() as u64);
        let router_norm = match &of.router.reads {
            RouterInput::Normed => None,
            RouterInput::Stream { scale, factor, eps } => {
                let scale = files.vector(&scale.name, scale.len)?.into_iter().map(|x| x * *factor as f32);
                Some(RmsNorm::of_numbers(scale.collect(), *eps, device)?)
            }
        };
        reader.count(router_norm.as_ref().map_or(0, RmsNorm::bytes));
        let experts = reader.experts(of)?;
        let shared = of.shared.as_ref().map(|shared| {
            let gate = shared.gate.as_ref().map(|gate| reader.matrix(gate)).transpose()?;
            Ok::<_, ModelError>((reader.gated(&shared.feed)?, gate))
        });
        let beside = of.beside.as_ref().map(|of| {
            let norms = [&of.dense_norm, &of.before, &of.experts_norm].map(|norm| reader.norm(norm, d));
            let [dense_norm, before, experts_norm] = norms;
            let dense = reader.gated(&of.dense)?;
            Ok::<_, ModelError>(Beside { dense, dense_norm: dense_norm?, before: before?, experts_norm: experts_norm? })
        });
        let (shared, beside) = (shared.transpose()?, beside.transpose()?);
        Ok(Self { weight, router, router_norm, experts, shared, beside, met: Arc::default() })
    }

    fn forward(&self, x: &Tensor, stream: &Tensor) -> Result<Tensor, ModelError> {
        let read = self.beside.as_ref().map(|beside| beside.before.forward(stream)).transpose()?;
        let read = read.as_ref().unwrap_or(x);
        let routed = self.router_norm.as_ref().map(|norm| norm.forward(stream)).transpose()?;
        let mut out = self.experts.forward(read, &self.choose(routed.as_ref().unwrap_or(read))?)?;
        if let Some((shared, gate)) = &self.shared {
            let answer = shared.forward(x)?;
            out = match gate {
                Some(gate) => (out + answer.broadcast_mul(&candle_nn::ops::sigmoid(&gate.forward(x)?)?)?)?,
                None => (out + answer)?,
            };
        }
        match &self.beside {
            Some(of) => Ok((of.dense_norm.forward(&of.dense.forward(x)?)? + of.experts_norm.forward(&out)?)?),
            None => Ok(out),
        }
    }

    /// The experts of each row.
    fn choose(&self, x: &Tensor) -> Result<Vec<Choice>, ModelError> {
        let numbers = self.weight.forward(x)?.to_device(&Device::Cpu)?.to_vec2::<f32>()?;
        let chosen: Vec<Choice> = numbers.iter().map(|numbers| self.router.choose(numbers)).collect();
        self.met.store(by_expert(&chosen).len(), Ordering::Relaxed);
        Ok(chosen)
    }

    fn met(&self) -> ExpertsMet {
        let met = self.met.load(Ordering::Relaxed);
        ExpertsMet::of_layer((self.experts.count(), self.experts.bytes()), met, self.router.used())
    }
}
