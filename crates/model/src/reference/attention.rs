//! Attention, as [`plan::Attention`] describes it.

use candle_core::{Device, Tensor};

use super::pass::Pass;
use super::reader::{Reader, unsupported};
use crate::ModelError;
use crate::nn::{KvCache, Linear, RmsNorm, Scores, attend_cached};
use crate::options::PassForm;
use crate::plan::{self, HeadNorm, Keys, KeysAndValues, Over};

/// Weights and conventions of a layer's attention.
#[derive(Clone)]
pub(super) struct Attention {
    heads: usize,
    kv_heads: usize,
    width: usize,
    q: Linear,
    q_norm: Option<(RmsNorm, Over)>,
    /// `None`: those of another layer are read.
    keys: Option<OwnKeys>,
    o: Linear,
    gate: Option<Linear>,
    scores: Scores,
    window: Option<usize>,
}

#[derive(Clone)]
struct OwnKeys {
    k: Linear,
    v: Option<Linear>,
    k_norm: Option<(RmsNorm, Over)>,
    v_norm: Option<RmsNorm>,
}

fn head_norm(
    reader: &Reader<'_>,
    of: Option<&HeadNorm>,
    (heads, width): (usize, usize),
) -> Result<Option<(RmsNorm, Over)>, ModelError> {
    let Some(HeadNorm { norm, over }) = of else { return Ok(None) };
    let len = if *over == Over::Head { width } else { heads * width };
    Ok(Some((reader.norm(norm, len)?, *over)))
}

/// `[m, heads · width] -> [heads, m, width]`
pub(super) fn split(x: &Tensor, (heads, width): (usize, usize)) -> Result<Tensor, ModelError> {
    Ok(x.reshape((x.dim(0)?, heads, width))?.transpose(0, 1)?)
}

/// Heads of these rows, normed one by one, or all of a row together: `[m, heads · width] -> [heads, m, width]`.
fn heads_of(x: &Tensor, norm: Option<&(RmsNorm, Over)>, shape: (usize, usize)) -> Result<Tensor, ModelError> {
    match norm {
        None => split(x, shape),
        Some((norm, Over::Width)) => split(&norm.forward(x)?, shape),
        Some((norm, Over::Head)) => norm.forward(&split(x, shape)?),
    }
}

impl OwnKeys {
    fn read(reader: &Reader<'_>, of: &KeysAndValues, shape: (usize, usize)) -> Result<Self, ModelError> {
        Ok(Self {
            k: reader.matrix(&of.k)?,
            v: of.v.as_ref().map(|v| reader.matrix(v)).transpose()?,
            k_norm: head_norm(reader, of.k_norm.as_ref(), shape)?,
            v_norm: of.v_norm.as_ref().map(|norm| reader.norm(norm, shape.1)).transpose()?,
        })
    }
}

impl Attention {
    pub(super) fn read(reader: &Reader<'_>, of: &plan::Attention) -> Result<Self, ModelError> {
        if of.key_width != of.value_width {
            return Err(unsupported("values of another width than keys"));
        }
        if !of.sight.causal {
            return Err(unsupported("attention to later positions"));
        }
        let width = of.key_width;
        Ok(Self {
            heads: of.heads,
            kv_heads: of.kv_heads,
            width,
            q: reader.matrix(&of.q)?,
            q_norm: head_norm(reader, of.q_norm.as_ref(), (of.heads, width))?,
            keys: match &of.keys {
                Keys::Own(own) => Some(OwnKeys::read(reader, own, (of.kv_heads, width))?),
                Keys::OfLayer(_) | Keys::OfTarget => None,
            },
            o: reader.matrix(&of.o)?,
            gate: of.gate.as_ref().map(|gate| reader.matrix(gate)).transpose()?,
            scores: Scores { scale: of.scale, softcap: of.cap },
            window: of.sight.window,
        })
    }

    /// An empty cache for `ctx` positions, if its keys and values are cached.
    pub(super) fn cache(&self, ctx: usize, on: (&Device, PassForm)) -> Option<Result<KvCache, ModelError>> {
        self.keys.is_some().then(|| KvCache::new(self.kv_heads, ctx, self.width, on))
    }

    /// Its norms.
    pub(super) fn norms_mut(&mut self) -> impl Iterator<Item = &mut RmsNorm> {
        let (k_norm, v_norm) = match &mut self.keys {
            Some(own) => (own.k_norm.as_mut(), own.v_norm.as_mut()),
            None => (None, None),
        };
        self.q_norm.iter_mut().chain(k_norm).map(|(norm, _)| norm).chain(v_norm)
    }

    /// What it adds for rows, `[m, d] -> [m, d]`. The cache is its own, which grows, or that of another layer, which contains
    /// the rows already.
    pub(super) fn forward(&self, x: &Tensor, pass: Pass<'_>, cache: &mut KvCache) -> Result<Tensor, ModelError> {
        let q = pass.rotate(heads_of(&self.q.forward(x)?, self.q_norm.as_ref(), (self.heads, self.width))?)?;
        if let Some(own) = &self.keys {
            let shape = (self.kv_heads, self.width);
            let raw = own.k.forward(x)?;
            let keys = pass.rotate(heads_of(&raw, own.k_norm.as_ref(), shape)?)?;
            let values = split(&own.v.as_ref().map_or(Ok(raw), |v| v.forward(x))?, shape)?;
            let values = own.v_norm.as_ref().map_or(Ok(values.clone()), |norm| norm.forward(&values))?;
            cache.append(&keys, &values)?;
        }
        let mut answers = attend_cached(&q, cache, (pass.rows, self.window), self.scores)?;
        if let Some(gate) = &self.gate {
            answers = (answers * candle_nn::ops::sigmoid(&gate.forward(x)?)?)?;
        }
        self.o.forward(&answers)
    }
}
