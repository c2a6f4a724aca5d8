//! Draft modules in a target's own files, on the native kernels.

use super::draft_head::DraftHead;
use super::layer::NormWeight;
use super::llama::NativeLlama;
use super::load::{Loader, tiled_bytes, unsupported};
use super::matrix::{Cpu, Matrix, Part, RowOrder};
use super::mtp::{MtpModule, MtpStorage, MtpWeights, NativeMtp};
use super::tensors::Tensors;
use crate::ModelError;
use crate::draft_tokens::{CONTEXT_VOCAB, DraftTokens};
use crate::files::ModelFiles;
use crate::nn::TransformerConfig;
use crate::plan::{self, OwnModule, Plan};
use draftscope_kernels::Encoding;
use draftscope_protocol::TokenId;

/// A model on disk, and the plan of its target.
pub(crate) type Files<'a> = (&'a ModelFiles, &'a TransformerConfig, &'a Plan);

/// The heads of a target's modules: rows of the target's that all of them share, or a module's own.
#[derive(Debug)]
pub(crate) struct OwnHeads {
    /// Tokens that modules may propose; `None`: all.
    vocab: Option<Vec<TokenId>>,
    /// The target's head, trimmed.
    trimmed: Option<(DraftHead, DraftTokens)>,
}

/// A head, its tokens, and the bytes that only it takes.
type Head = (DraftHead, DraftTokens, usize);

impl OwnHeads {
    /// For modules that may propose these tokens; `None`: all.
    pub(crate) fn new(vocab: Option<Vec<TokenId>>) -> Self {
        Self { vocab, trimmed: None }
    }

    fn of_target(&mut self, target: &NativeLlama) -> Result<Head, ModelError> {
        let Some(vocab) = &self.vocab else {
            let (head, tokens) = DraftHead::whole(&target.weights);
            return Ok((head, tokens, 0));
        };
        if let Some((head, tokens)) = &self.trimmed {
            let mut head = head.clone();
            head.set_tokens(tokens);
            return Ok((head, tokens.clone(), 0));
        }
        // in the target's own encoding
        let how = (CONTEXT_VOCAB, MtpStorage::Bf16);
        let (head, tokens) = DraftHead::trimmed(&target.weights, vocab.clone(), how)?;
        self.trimmed = Some((head.clone(), tokens.clone()));
        let bytes = head.bytes();
        Ok((head, tokens, bytes))
    }

    /// One of a module's own is not kept whole beside its rows.
    fn own(&self, target: &NativeLlama, matrix: Matrix) -> Result<Head, ModelError> {
        let (head, tokens) = DraftHead::own(&target.weights, matrix, self.vocab.as_deref())?;
        let bytes = head.bytes();
        Ok((head, tokens, bytes))
    }
}

impl NativeMtp {
    /// The module of this index in the files of a target.
    ///
    /// # Errors
    /// When a tensor is missing, misshapen or damaged.
    pub(crate) fn own(
        target: &NativeLlama,
        (source, config, of): Files<'_>,
        (index, plan): (usize, &OwnModule),
        heads: &mut OwnHeads,
    ) -> Result<Self, ModelError> {
        let shared = &target.weights;
        expect(source, config, (&shared.cpu, index));
        let loader = Loader {
            tensors: Tensors(source),
            cpu: &shared.cpu,
            shape: shared.shape,
            angles: std::slice::from_ref(&plan.angles),
            norms_as_stored: true,
        };
        let weights = loader.module(plan)?;
        let [embedding, head] = plan.ends_of_its_own(source, of)?;
        let embedding = embedding.map(|table| loader.matrix(table)).transpose()?;
        let (head, tokens, head_bytes) = match head {
            Some(head) => heads.own(target, loader.matrix(head)?)?,
            None => heads.of_target(target)?,
        };
        let bytes = weights.bytes() + embedding.as_ref().map_or(0, Matrix::bytes) + head_bytes;
        let ends = (head, tokens, embedding);
        MtpModule::module(target, (weights, bytes), ends, (shared.shape, &plan.angles, plan.conventions))
    }
}

/// Makes room for the matrices of the module of this index.
fn expect(source: &ModelFiles, config: &TransformerConfig, (cpu, index): (&Cpu, usize)) {
    let [before, all] = [index, index + 1].map(|count| tiled_bytes(source, (config.layers, count), true));
    cpu.expect(all.saturating_sub(before));
}

impl Loader<'_> {
    fn module(&self, of: &OwnModule) -> Result<MtpWeights, ModelError> {
        let norm = |norm: &plan::Norm| -> Result<NormWeight, ModelError> { self.norm(norm, of.project.rows) };
        let [from_embedding, from_hidden] = self.halves(&of.project)?;
        let layer = self.layer(&of.layer)?;
        if layer.mixer.delta_weights().is_some() {
            return Err(unsupported("a draft module with a recurrent layer"));
        }
        Ok(MtpWeights {
            fuse: None,
            embedding_norm: norm(&of.embedding_norm)?,
            hidden_norm: norm(&of.state_norm)?,
            from_embedding,
            from_hidden,
            layer,
            final_norm: norm(&of.norm)?,
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
