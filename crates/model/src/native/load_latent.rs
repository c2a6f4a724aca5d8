//! Loading of latent attention.

use std::sync::Arc;

use super::heads::HeadMatrices;
use super::latent::{Latent, LatentSizes, Queries};
use super::load::{Loader, no_blocks};
use crate::ModelError;
use crate::nn::HeadShape;
use crate::plan::{self, Folded, LatentQueries};
use draftscope_kernels::{BLOCK, ScoreRule};

impl Loader<'_> {
    /// Latent attention without its output projection.
    ///
    /// # Errors
    /// When a tensor is missing, misshapen or damaged, or of a size that the kernels do not run.
    pub(super) fn latent(&self, of: &plan::Latent) -> Result<Latent, ModelError> {
        of.check(self.tensors.0)?;
        let sizes =
            LatentSizes { heads: of.heads, rank: of.rank, plain: of.plain, rotated: of.rotated, value: of.value };
        check_sizes(of)?;
        let queries = match &of.queries {
            LatentQueries::Direct(q) => Queries::Direct(self.matrix(q)?),
            LatentQueries::Squeezed(down, norm, up) => {
                Queries::Squeezed(self.matrix(down)?, self.norm(norm, down.rows)?, self.matrix(up)?)
            }
        };
        let [to_keys, to_values] = [&of.to_keys, &of.to_values].map(|folded| self.folded(folded).map(Arc::new));
        Ok(Latent {
            sizes,
            queries,
            kv: self.matrix(&of.kv)?,
            kv_norm: self.norm(&of.kv_norm, of.rank)?,
            eps: of.kv_norm.eps,
            to_keys: to_keys?,
            to_values: to_values?,
            rotation: (of.rotation.table, of.rotation.pairs),
            rule: ScoreRule { scale: of.scale as f32, softcap: None },
        })
    }

    fn folded(&self, of: &Folded) -> Result<HeadMatrices, ModelError> {
        let (files, rows) = (self.tensors.0, &of.stored);
        let (name, shape) = (&rows.tensor.name, &rows.tensor.shape);
        let mut stored = files.stored(name, shape)?;
        if !rows.is_whole() {
            let columns = shape.last().copied().unwrap_or(0);
            stored = stored.rows([rows.stored(), columns], &rows.places().collect::<Vec<_>>())?;
        }
        if of.transposed {
            stored = stored.transposed(of.heads, [of.columns, of.out])?;
        }
        let packed =
            HeadMatrices::pack(stored, name, HeadShape { heads: of.heads, out: of.out, input: of.columns }, self.cpu)?;
        files.release(name);
        Ok(packed)
    }
}

fn check_sizes(of: &plan::Latent) -> Result<(), ModelError> {
    let of_queries = match &of.queries {
        LatentQueries::Direct(_) => BLOCK,
        LatentQueries::Squeezed(down, ..) => down.rows,
    };
    let widths = [("latents", of.rank), ("queries of rank", of_queries), ("values of all heads", of.heads * of.value)];
    match widths.into_iter().find(|(_, width)| *width == 0 || !width.is_multiple_of(BLOCK)) {
        Some((what, width)) => Err(no_blocks(format!("{what} {width}"))),
        None => Ok(()),
    }
}
