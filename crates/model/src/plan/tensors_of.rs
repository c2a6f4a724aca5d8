//! What families ask when they make a plan: which files there are, and how tensors of a block are called.

use super::feed::GatedFeed;
use super::layer::Join;
use super::matrix::{Matrix, Norm, Vector};
use crate::files::{Folder, GgufFile, ModelFiles};
use crate::nn::Activation;

/// The files that a plan is made for.
#[derive(Clone, Copy)]
pub enum PlanFiles<'a> {
    /// A GGUF file.
    Gguf(&'a GgufFile),
    /// A folder of safetensors; without its weights only the configuration is known.
    Checkpoint(Option<&'a Folder>),
}

impl<'a> PlanFiles<'a> {
    /// Those of a model on disk.
    #[must_use]
    pub fn of(files: &'a ModelFiles) -> Self {
        match files {
            ModelFiles::Gguf(gguf) => Self::Gguf(gguf),
            ModelFiles::Folder(folder) => Self::Checkpoint(Some(folder)),
        }
    }

    /// Whether it is a folder as its makers trained it, not a converted file.
    #[must_use]
    pub fn is_checkpoint(self) -> bool {
        matches!(self, Self::Checkpoint(_))
    }

    /// Whether there is a tensor of this name; `usual` if the weights are not there yet.
    #[must_use]
    pub fn has_or(self, name: &str, usual: bool) -> bool {
        match self {
            Self::Gguf(gguf) => gguf.has_tensor(name),
            Self::Checkpoint(Some(folder)) => folder.has(name),
            Self::Checkpoint(None) => usual,
        }
    }
}

/// Tensors of one block, by the part of the name after its number.
#[derive(Clone, Copy, Debug)]
pub struct BlockNames {
    /// Number of the block: the layer's; draft modules in the same files follow the last layer.
    pub block: usize,
    /// Width of the stream.
    pub width: usize,
    /// Epsilon of its norms.
    pub eps: f32,
    /// Whether its norms are stored as `w − 1`.
    pub centred: bool,
}

impl BlockNames {
    /// The whole name of a part with weights: `blk.3.attn_q.weight`.
    #[must_use]
    pub fn name(&self, part: &str) -> String {
        format!("blk.{}.{part}.weight", self.block)
    }

    /// A matrix that is a whole tensor.
    #[must_use]
    pub fn matrix(&self, part: &str, rows: usize, columns: usize) -> Matrix {
        Matrix::whole(self.name(part), [rows, columns])
    }

    /// A bias of a part.
    #[must_use]
    pub fn bias(&self, part: &str, len: usize) -> Vector {
        Vector { name: format!("blk.{}.{part}.bias", self.block), len }
    }

    /// A norm of rows of this length.
    #[must_use]
    pub fn norm_of(&self, part: &str, len: usize) -> Norm {
        let weight = Some(Vector { name: self.name(part), len });
        Norm { weight, centred: self.centred, eps: self.eps }
    }

    /// A norm of the stream.
    #[must_use]
    pub fn norm(&self, part: &str) -> Norm {
        self.norm_of(part, self.width)
    }

    /// A step that reads the stream through this norm.
    #[must_use]
    pub fn join(&self, part: &str) -> Join {
        Join::after_norm(self.norm(part))
    }

    /// A gated layer of this width; `suffix` ends the names of its parts.
    #[must_use]
    pub fn gated(&self, suffix: &str, width: usize, act: Activation) -> GatedFeed {
        let matrix = |part: &str, rows, columns| self.matrix(&format!("ffn_{part}{suffix}"), rows, columns);
        GatedFeed {
            gate: matrix("gate", width, self.width),
            up: matrix("up", width, self.width),
            down: matrix("down", self.width, width),
            act,
        }
    }
}
