//! Loading of feed-forward parts.

use std::sync::Arc;

use super::experts::ExpertStack;
use super::feed::{Beside, ExpertLayer, Feed, Gated};
use super::gate_up::GateUp;
use super::load::{Loader, no_blocks};
use super::matrix::{Matrix, RowOrder};
use super::pack::lanes;
use super::router::Router;
use crate::ModelError;
use crate::nn::StoredExperts;
use crate::plan::{self, GatedFeed, RouterInput};
use draftscope_kernels::BLOCK;

/// What the kernels require of the width of a gated layer.
pub(crate) fn check_width(width: usize) -> Result<(), ModelError> {
    match width > 0 && width.is_multiple_of(BLOCK) {
        true => Ok(()),
        false => Err(no_blocks(format!("a feed-forward layer {width} wide"))),
    }
}

impl Loader<'_> {
    /// The feed-forward part of a layer; `scale` is the factor of what it adds.
    pub(super) fn feed(&self, feed: &plan::Feed, scale: f32) -> Result<Feed, ModelError> {
        match feed {
            plan::Feed::Dense(dense) => Ok(Feed::Dense(self.gated(dense, scale)?)),
            plan::Feed::Experts(experts) => Ok(Feed::Experts(Box::new(self.experts(experts)?))),
        }
    }

    fn gated(&self, feed: &GatedFeed, scale: f32) -> Result<Gated, ModelError> {
        check_width(feed.width())?;
        let (gate_up, activation) = (self.gate_up(feed)?, feed.act);
        Ok(Gated { gate_up, activation, down: self.scaled(&feed.down, scale)? })
    }

    fn gate_up(&self, feed: &GatedFeed) -> Result<GateUp, ModelError> {
        let both = [self.raw(&feed.gate)?, self.raw(&feed.up)?];
        let parts = both.each_ref().map(|(raw, (rows, all))| raw.some(rows.clone(), *all, RowOrder::Stored));
        let packed = GateUp::pack(self.cpu, feed.gate.columns, parts);
        [&feed.gate, &feed.up].into_iter().for_each(|part| self.tensors.0.release(part.name()));
        Ok(packed)
    }

    fn experts(&self, of: &plan::Experts) -> Result<ExpertLayer, ModelError> {
        let (files, d) = (self.tensors.0, of.sizes.d);
        of.check(files)?;
        let weight = self.matrix(&of.router.weight)?;
        let router = Router::read(of, files)?;
        let names = of.names();
        let stored = StoredExperts::find(files, &names, of.sizes)?.compact();
        let stack = Arc::new(ExpertStack::pack(self.cpu, &stored, of.act)?);
        drop(stored);
        names.all().for_each(|name| files.release(name));
        let shared = of.shared.as_ref().map(|shared| {
            let gate = shared.gate.as_ref().map(|gate| self.row_matrix(gate)).transpose()?;
            Ok::<_, ModelError>((self.gated(&shared.feed, 1.0)?, gate))
        });
        let beside = of.beside.as_ref().map(|beside| {
            let [a, b, c] = [&beside.dense_norm, &beside.before, &beside.experts_norm].map(|norm| self.norm(norm, d));
            Ok::<_, ModelError>(Beside { dense: self.gated(&beside.dense, 1.0)?, norms: [a?, b?, c?] })
        });
        let router_norm = match &of.router.reads {
            RouterInput::Normed => None,
            RouterInput::Stream { scale, factor, .. } => {
                let scale = files.vector(&scale.name, scale.len)?;
                Some(lanes(&scale.iter().map(|x| x * *factor as f32).collect::<Vec<_>>()))
            }
        };
        let (shared, beside) = (shared.transpose()?, beside.transpose()?);
        Ok(ExpertLayer { weight, router, stack, shared, beside, router_norm, met: Arc::default() })
    }

    /// A matrix of one row, which may be stored as a vector.
    fn row_matrix(&self, of: &plan::Matrix) -> Result<Matrix, ModelError> {
        self.matrix(of).or_else(|error| {
            let as_vector = self.tensors.0.stored(of.name(), &[of.columns]).map_err(|_| error)?;
            let numbers = as_vector.to_f32(&[of.columns])?;
            Ok(Matrix::of_numbers(self.cpu, of.columns, &numbers))
        })
    }
}
