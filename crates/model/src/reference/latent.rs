//! Latent attention, as [`plan::Latent`] describes it.

use candle_core::{Device, Tensor};

use super::attention::split;
use super::pass::Pass;
use super::reader::Reader;
use crate::ModelError;
use crate::nn::{HeadMatrix, KvCache, Linear, RmsNorm, Scores, attend_by_head, runs_one_by_one};
use crate::options::PassForm;
use crate::plan::{self, LatentQueries};

/// Weights of latent attention.
#[derive(Clone)]
pub(super) struct Latent {
    heads: usize,
    rank: usize,
    plain: usize,
    rotated: usize,
    /// The first two of low rank; the last gives `[heads · (plain + rotated)]`.
    squeeze: Option<(Linear, RmsNorm)>,
    q: Linear,
    kv: Linear,
    kv_norm: RmsNorm,
    to_keys: HeadMatrix,
    to_values: HeadMatrix,
    o: Linear,
    scores: Scores,
}

impl Latent {
    pub(super) fn read(reader: &Reader<'_>, of: &plan::Latent) -> Result<Self, ModelError> {
        of.check(reader.tensors.source)?;
        let (squeeze, q) = match &of.queries {
            LatentQueries::Direct(q) => (None, reader.matrix(q)?),
            LatentQueries::Squeezed(down, norm, up) => {
                (Some((reader.matrix(down)?, reader.norm(norm, down.rows)?)), reader.matrix(up)?)
            }
        };
        let [to_keys, to_values] = [&of.to_keys, &of.to_values].map(|folded| reader.folded(folded));
        let (to_keys, to_values) = (to_keys?, to_values?);
        Ok(Self {
            heads: of.heads,
            rank: of.rank,
            plain: of.plain,
            rotated: of.rotated,
            squeeze,
            q,
            kv: reader.matrix(&of.kv)?,
            kv_norm: reader.norm(&of.kv_norm, of.rank)?,
            to_keys,
            to_values,
            o: reader.matrix(&of.o)?,
            scores: Scores { scale: of.scale, softcap: None },
        })
    }

    /// An empty cache for `ctx` positions: a row is a key, and its first part the value.
    pub(super) fn cache(&self, ctx: usize, on: (&Device, PassForm)) -> Result<KvCache, ModelError> {
        KvCache::latent(ctx, (self.rank + self.rotated, self.rank), on)
    }

    /// Its norms.
    pub(super) fn norms_mut(&mut self) -> impl Iterator<Item = &mut RmsNorm> {
        self.squeeze.iter_mut().map(|(_, norm)| norm).chain([&mut self.kv_norm])
    }

    fn queries(&self, x: &Tensor) -> Result<Tensor, ModelError> {
        let q = match &self.squeeze {
            Some((down, norm)) => self.q.forward(&norm.forward(&down.forward(x)?)?)?,
            None => self.q.forward(x)?,
        };
        Ok(split(&q, (self.heads, self.plain + self.rotated))?.contiguous()?)
    }

    /// What it adds for rows, `[m, d] -> [m, d]`; the cache grows.
    pub(super) fn forward(&self, x: &Tensor, pass: Pass<'_>, cache: &mut KvCache) -> Result<Tensor, ModelError> {
        let Self { rank, plain, rotated, .. } = *self;
        // 1. queries, whose last values are rotated
        let q = self.queries(x)?; // [heads, m, plain + rotated]
        let turned = pass.rotate(q.narrow(2, plain, rotated)?)?;
        let q = q.narrow(2, 0, plain)?;
        // 2. the cached row of these positions: the latent, and a rotated key that all heads share
        let kept = self.kv.forward(x)?;
        let latent = self.kv_norm.forward(&kept.narrow(1, 0, rank)?)?.unsqueeze(0)?;
        let key = pass.rotate(kept.narrow(1, rank, rotated)?.unsqueeze(0)?)?;
        let rows = Tensor::cat(&[latent, key], 2)?; // [1, m, rank + rotated]
        cache.append(&rows, &rows)?;
        // 3. attend over everything up to each row, in latents
        let one_by_one = runs_one_by_one(cache, pass.rows);
        let q = Tensor::cat(&[self.to_keys.forward(&q, one_by_one)?, turned], 2)?;
        let latents = attend_by_head(&q, cache, (pass.rows, None), self.scores)?; // [heads, m, rank]
        drop(q);
        // 4. latents to values
        let answers = self.to_values.forward(&latents, one_by_one)?; // [heads, m, value]
        self.o.forward(&answers.transpose(0, 1)?.contiguous()?.flatten_from(1)?)
    }
}
