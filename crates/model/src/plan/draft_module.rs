//! Draft modules: small networks that read a target's states and propose its next tokens.

use super::end::Angles;
use super::layer::Layer;
use super::matrix::{Matrix, Norm, Vector};
use super::whole::Plan;
use crate::draft_tokens::DraftTokens;
use crate::files::ModelFiles;
use crate::module_core::{ModuleFacts, Reads};
use crate::{ModelError, State, Tap};
use draftscope_protocol::MtpSpec;

/// A draft module: a few layers between what it reads and a head. A *slot* is a position of it: a token, and the target's
/// state before that token. Deeper slots read the module's own output instead of a state.
///
/// ```text
///   state ─► fusion ─┐
///   token ─► embedding ─► entry ─► layers ─► norm ─► head ─► logits
/// ```
///
/// Kinds: modules of DeepSeek-V3's shape (arXiv:2412.19437, section 2.2), in a target's files or in files of their own;
/// EAGLE-3 heads (arXiv:2503.01840); with a [`BlockDraft`](super::BlockDraft), block drafters.
#[derive(Clone, Debug, PartialEq)]
pub struct DraftPlan {
    /// Width of its stream (d).
    pub width: usize,
    /// How a slot becomes the stream.
    pub entry: Entry,
    /// How several of the target's states become one; `None`: it reads one state.
    pub fusion: Option<Fusion>,
    /// The layers; [`Rotation::table`](super::Rotation::table) is 0.
    pub layers: Vec<Layer>,
    /// Their angles; one position more than the context has.
    pub angles: Angles,
    /// The last norm.
    pub norm: Norm,
    /// An embedding of its own, `[vocab, d]`; `None`: the target's. In a target's files it often repeats that.
    pub embedding: Option<Matrix>,
    /// A head of its own, `[draft vocabulary, d]`; `None`: the target's. In a target's files it often repeats that.
    pub head: Option<Matrix>,
    /// How it was trained. Its norms are read as they are stored, and this says what they mean.
    pub conventions: MtpSpec,
}

/// How a slot becomes the stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// `x = project [norm(embedding) ; norm(state)]`, in the order that the conventions say.
    Joined {
        /// Norm of the embedding.
        embedding: Norm,
        /// Norm of the state.
        state: Norm,
        /// `[d, 2 d]`
        project: Matrix,
    },
    /// The first layer's mixer reads `[norm(embedding) ; norm(state)]`, twice as wide as the stream, which is the state.
    Beside {
        /// Norm of the embedding.
        embedding: Norm,
        /// Norm of the state.
        state: Norm,
        /// Whether the stream begins with the normed state.
        from_normed: bool,
    },
    /// The embedding is the stream, and every layer makes keys and values of `norm(state)` with the matrices that it has for
    /// the stream.
    Keys {
        /// Norm of the state.
        state: Norm,
    },
}

/// Several of the target's states at a position become one: `project [norm(s_1) ; norm(s_2) ; …]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Fusion {
    /// Blocks of the target after which states are read, in their order.
    pub states: Vec<usize>,
    /// Which rows are normed.
    pub normed: StatesNorm,
    /// The norms: none, one, or one for each state.
    pub norms: Vec<Norm>,
    /// `[d, states · the target's width]`
    pub project: Matrix,
    /// Whether it is added to the state that the conventions name, which comes first in a row; else it is the state.
    pub adds: bool,
}

/// Norms of the target's states before they are fused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatesNorm {
    /// None.
    #[default]
    None,
    /// One over all states together: `norm_before_fc`, `input_norm`.
    Together,
    /// One for each: `fc_norm`.
    Each,
}

impl DraftPlan {
    /// One of DeepSeek-V3's shape around this layer, whose tensors are called `blk.{block}.nextn.…`, with the target's
    /// embedding and head.
    #[must_use]
    pub fn nextn(
        block: usize,
        (width, eps): (usize, f32),
        (layer, angles): (Layer, Angles),
        conventions: MtpSpec,
    ) -> Self {
        let name = |part: &str| format!("blk.{block}.nextn.{part}.weight");
        let norm = |part: &str| Norm { weight: Some(Vector { name: name(part), len: width }), centred: false, eps };
        let project = Matrix::whole(name("eh_proj"), [width, 2 * width]);
        Self {
            width,
            entry: Entry::Joined { embedding: norm("enorm"), state: norm("hnorm"), project },
            fusion: None,
            layers: vec![layer],
            angles,
            norm: norm("shared_head_norm"),
            embedding: None,
            head: None,
            conventions,
        }
    }

    /// Blocks of the target after which it reads states.
    #[must_use]
    pub fn states(&self) -> &[usize] {
        self.fusion.as_ref().map_or(&[], |fusion| &fusion.states)
    }

    /// Numbers of a row of the target's states that it reads.
    #[must_use]
    pub fn read_width(&self) -> usize {
        let own = |fusion: &Fusion| if fusion.adds { self.width } else { 0 };
        self.fusion.as_ref().map_or(self.width, |fusion| own(fusion) + fusion.project.columns)
    }

    /// What it is, with these tokens, so many slots, bytes of weights, and bytes of cache per slot.
    pub(crate) fn facts(
        &self,
        tokens: DraftTokens,
        (ctx_len, weight_bytes, kv_bytes_per_slot): (usize, u64, u64),
    ) -> ModuleFacts {
        let reads = match &self.fusion {
            Some(Fusion { adds: false, states, .. }) => {
                Reads::Layers(Tap::new(states.iter().map(|blocks| State::Behind(*blocks)).collect()))
            }
            _ => Reads::State(self.states().to_vec()),
        };
        let (spec, widths) = (self.conventions, [self.read_width(), self.width]);
        ModuleFacts { spec, reads, widths, ctx_len, tokens, weight_bytes, kv_bytes_per_slot }
    }

    /// Weights of the matrices that it does not share with its target.
    #[must_use]
    pub fn weights(&self) -> u64 {
        let project = match &self.entry {
            Entry::Joined { project, .. } => Some(project),
            Entry::Beside { .. } | Entry::Keys { .. } => None,
        };
        let fusion = self.fusion.as_ref().map(|fusion| &fusion.project);
        let around = [project, fusion, self.embedding.as_ref(), self.head.as_ref()].into_iter().flatten();
        around.map(Matrix::weights).sum::<u64>() + self.layers.iter().map(Layer::weights).sum::<u64>()
    }

    /// Values cached of a slot.
    #[must_use]
    pub fn cached_values(&self) -> u64 {
        self.layers.iter().map(Layer::cached_values).sum()
    }

    /// The same without embedding and head that repeat those of the target of this plan.
    ///
    /// # Errors
    /// When a tensor is misshapen or damaged.
    pub fn without_copies(&self, files: &ModelFiles, target: &Plan) -> Result<Self, ModelError> {
        let differing = |own: &Option<Matrix>, theirs: &Matrix| {
            let Some(own) = own else { return Ok(None) };
            let [first, second] = [own, theirs].map(|matrix| (matrix.name(), [matrix.rows, matrix.columns]));
            let differs = !files.stored(first.0, &first.1)?.is_copy_of(&files.stored(second.0, &second.1)?);
            [first.0, second.0].into_iter().for_each(|name| files.release(name));
            Ok::<_, ModelError>(differs.then(|| own.clone()))
        };
        let embedding = differing(&self.embedding, &target.embedding.table)?;
        Ok(Self { embedding, head: differing(&self.head, target.head())?, ..self.clone() })
    }
}
