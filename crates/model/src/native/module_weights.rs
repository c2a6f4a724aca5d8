//! A draft module's own weights, loaded as its plan says.

use super::layer::{BlockShape, Layer, NormWeight};
use super::load::{Loader, check_shape};
use super::matrix::{Matrix, Part, RowOrder};
use super::module_target::ModuleTarget;
use super::parts::unsupported;
use super::tensors::Tensors;
use crate::ModelError;
use crate::files::TensorSource;
use crate::module_core::NormWeights;
use crate::plan::{self, DraftPlan, StatesNorm};
use draftscope_kernels::{BLOCK, Encoding};

/// The weights; copies share the matrices.
#[derive(Clone, Debug)]
pub(crate) struct ModuleWeights {
    pub(super) entry: Entry,
    pub(super) fusion: Option<Fusion>,
    pub(super) layers: Vec<Layer>,
    pub(super) final_norm: NormWeight,
    /// `None`: the target's.
    pub(super) embedding: Option<Matrix>,
}

/// How slots become the stream.
#[derive(Clone, Debug)]
pub(super) enum Entry {
    /// Norms of embedding and state, and the two halves of the projection, `[d, d]` each.
    Joined { norms: [NormWeight; 2], halves: [Matrix; 2] },
    /// Norms of embedding and state, and whether the stream begins with the normed state.
    Beside { norms: [NormWeight; 2], from_normed: bool },
    /// Norm of the states that become keys and values.
    Keys(NormWeight),
}

/// How several states become one.
#[derive(Clone, Debug)]
pub(super) struct Fusion {
    pub(super) how: StatesNorm,
    pub(super) norms: Vec<NormWeight>,
    /// Whether the norms have weights in the file.
    stored: bool,
    pub(super) project: Matrix,
    pub(super) adds: bool,
}

impl Entry {
    fn norms_mut(&mut self) -> &mut [NormWeight] {
        match self {
            Self::Joined { norms, .. } | Self::Beside { norms, .. } => norms,
            Self::Keys(norm) => std::slice::from_mut(norm),
        }
    }

    fn bytes(&self) -> usize {
        let (norms, halves) = match self {
            Self::Joined { norms, halves } => (&norms[..], &halves[..]),
            Self::Beside { norms, .. } => (&norms[..], &[][..]),
            Self::Keys(norm) => (std::slice::from_ref(norm), &[][..]),
        };
        halves.iter().map(Matrix::bytes).sum::<usize>() + norm_bytes(norms)
    }
}

fn norm_bytes(norms: &[NormWeight]) -> usize {
    norms.iter().map(|norm| size_of_val(norm.as_slice())).sum()
}

impl ModuleWeights {
    /// Reads the module of this plan, whose tensors are in `source`.
    ///
    /// # Errors
    /// When a tensor is missing, misshapen or damaged, or of a size that the kernels do not run.
    pub(crate) fn load(
        target: &ModuleTarget,
        source: &dyn TensorSource,
        of: &DraftPlan,
    ) -> Result<(Self, BlockShape), ModelError> {
        let shape = shape(of, &target.weights.shape)?;
        let loader = Loader {
            tensors: Tensors(source),
            cpu: &target.weights.cpu,
            shape,
            angles: std::slice::from_ref(&of.angles),
            norms_as_stored: true,
        };
        let layers = of.layers.iter().map(|layer| loader.layer(layer)).collect::<Result<Vec<_>, _>>()?;
        if layers.iter().any(|layer| layer.mixer.delta_weights().is_some()) {
            return Err(unsupported("a draft module with a recurrent layer"));
        }
        let weights = Self {
            entry: loader.entry(of)?,
            fusion: of.fusion.as_ref().map(|fusion| loader.fusion(fusion)).transpose()?,
            layers,
            final_norm: loader.norm(&of.norm, of.width)?,
            embedding: of.embedding.as_ref().map(|table| loader.matrix(table)).transpose()?,
        };
        Ok((weights, shape))
    }

    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        let fusion = self.fusion.as_ref().map_or(0, |fusion| fusion.project.bytes() + norm_bytes(&fusion.norms));
        let layers: usize = self.layers.iter().map(Layer::bytes).sum();
        let embedding = self.embedding.as_ref().map_or(0, Matrix::bytes);
        self.entry.bytes() + fusion + layers + size_of_val(self.final_norm.as_slice()) + embedding
    }

    /// Name of the storage of most of its weights.
    pub(crate) fn dtype(&self) -> &'static str {
        self.layers.first().map_or("none", |layer| layer.feed.down().dtype())
    }
}

impl NormWeights for ModuleWeights {
    fn one_plus(&self) -> Result<Self, ModelError> {
        let mut weights = self.clone();
        weights.layers.iter_mut().for_each(|layer| layer.shift_norms(1.0));
        let fused = weights.fusion.iter_mut().filter(|fusion| fusion.stored).flat_map(|fusion| &mut fusion.norms);
        let norms = weights.entry.norms_mut().iter_mut().chain([&mut weights.final_norm]).chain(fused);
        norms.flatten().flatten().for_each(|weight| *weight += 1.0);
        Ok(weights)
    }
}

/// Sizes of the module's layers; without heads, those of a target with latent attention.
fn shape(of: &DraftPlan, target: &BlockShape) -> Result<BlockShape, ModelError> {
    if of.embedding.is_none() && of.width != target.d_model {
        let (ours, theirs) = (of.width, target.d_model);
        let what = format!("a draft module of width {ours} does not fit a target of width {theirs}");
        return Err(ModelError::Unsupported(what));
    }
    let attending = of.layers.iter().find_map(|layer| match &layer.mixer {
        plan::Mixer::Attention(attention) => Some(attention),
        plan::Mixer::Latent(_) | plan::Mixer::Delta(_) => None,
    });
    let (d_model, eps) = (of.width, of.norm.eps);
    let Some(attention) = attending else { return Ok(BlockShape { d_model, eps, ..*target }) };
    let (heads, kv_heads, head_dim) = (attention.heads, attention.kv_heads, attention.key_width);
    let shape = BlockShape { d_model, heads, kv_heads, head_dim, eps };
    check_shape(&shape)?;
    Ok(shape)
}

impl Loader<'_> {
    fn entry(&self, of: &DraftPlan) -> Result<Entry, ModelError> {
        let norms = |embedding: &plan::Norm, state: &plan::Norm| {
            Ok::<_, ModelError>([self.norm(embedding, of.width)?, self.norm(state, of.width)?])
        };
        Ok(match &of.entry {
            plan::Entry::Joined { embedding, state, project } => {
                Entry::Joined { norms: norms(embedding, state)?, halves: self.halves(project)? }
            }
            plan::Entry::Beside { embedding, state, from_normed } => {
                Entry::Beside { norms: norms(embedding, state)?, from_normed: *from_normed }
            }
            plan::Entry::Keys { state } => Entry::Keys(self.norm(state, of.width)?),
        })
    }

    fn fusion(&self, of: &plan::Fusion) -> Result<Fusion, ModelError> {
        let columns = of.project.columns;
        if !(columns / of.states.len().max(1)).is_multiple_of(BLOCK) {
            let what = format!("the native backend runs states of a multiple of {BLOCK} values; use another drafter");
            return Err(ModelError::Unsupported(what));
        }
        let width = columns / of.norms.len().max(1);
        Ok(Fusion {
            how: of.normed,
            norms: of.norms.iter().map(|norm| self.norm(norm, width)).collect::<Result<_, _>>()?,
            stored: of.norms.iter().any(|norm| norm.weight.is_some()),
            project: self.matrix(&of.project)?,
            adds: of.adds,
        })
    }

    /// The left and the right half of a matrix `[d, 2 d]`: as stored where a half is whole blocks, else in f32.
    pub(super) fn halves(&self, of: &plan::Matrix) -> Result<[Matrix; 2], ModelError> {
        let (rows, columns) = (of.rows, of.columns);
        let stored = self.tensors.0.stored(of.name(), &[rows, columns])?.compact();
        let encoding = stored.encoding();
        let plain: Vec<u8>;
        let (encoding, bytes) = match encoding.row_bytes(columns / 2) {
            Some(_) => (encoding, stored.bytes()),
            None => {
                let numbers = stored.to_f32(&[rows, columns])?;
                plain = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
                (Encoding::F32, plain.as_slice())
            }
        };
        let half = |second: usize| {
            let halves = bytes.chunks_exact(bytes.len() / rows / 2).skip(second).step_by(2);
            let bytes: Vec<u8> = halves.flatten().copied().collect();
            let part = Part { encoding, rows, bytes: &bytes, order: RowOrder::Stored };
            Matrix::pack(self.cpu, columns / 2, &[part])
        };
        let halves = [half(0), half(1)];
        self.tensors.0.release(of.name());
        Ok(halves)
    }
}
