//! An MTP module from its own file, on candle: weights in f32.

use std::sync::Arc;

use crate::ModelError;
use crate::drafters::core::{CandleMtp, MtpOnCandle, MtpParts, MtpShape, MtpShared};
use crate::drafters::mtp::{config::MtpConfig, file::MtpFile};
use crate::files::llama_part;
use crate::nn::{Activation, Block, Embedding, Fuse, Linear, PairOrder, RmsNorm, Rope, SharedTarget, trimmed};

impl CandleMtp {
    /// Builds the module of one depth of a stack, counted from 0, from the bytes of the safetensors file.
    ///
    /// # Errors
    /// When a tensor is missing, misshapen or damaged, or the module is another target's.
    pub(crate) fn load(
        (weights, depth): (&[u8], usize),
        config: &MtpConfig,
        target: &Arc<dyn SharedTarget>,
        ctx_len: usize,
    ) -> Result<Self, ModelError> {
        let device = target.device().clone();
        let c = config.block_config(target.config())?;
        let file = MtpFile::parse(weights, depth)?;
        let vocab = file.draft_vocab(config.draft_vocab_size, config.vocab_size)?;
        let d = c.d_model;
        let norm = |part: &str| RmsNorm::of_numbers(file.norm(part, d)?, c.norm_eps, &device);
        let linear = |part: &str, out: usize, input: usize| {
            Linear::of_numbers(file.matrix(part, [out, input])?, [out, input], &device)
        };
        let block = Block::read(
            &c,
            (d, Activation::Silu),
            &|part, out, input| linear(llama_part(part).unwrap_or(part), out, input),
            &|part, _| norm(llama_part(part).unwrap_or(part)),
        )?;
        let layers = config.layers_of(depth);
        let fuse = match layers.len() {
            0 => None,
            count => {
                let unit = RmsNorm::of_numbers(vec![1.0; d], c.norm_eps, &device)?;
                Some(Fuse::new(layers, linear("fuse", d, count * d)?, unit))
            }
        };
        let parts = MtpParts {
            fuse,
            embedding_norm: norm("enorm")?,
            hidden_norm: norm("hnorm")?,
            project: linear("eh_proj", d, 2 * d)?,
            norm: norm("shared_head.norm")?,
            block: Box::new(block),
        };
        let shape = MtpShape::of(&c, ctx_len, target.form());
        let rope = Rope::new(&c.rope, c.head_dim, ctx_len + 1, (PairOrder::HalfSplit, &device))?;
        let head = trimmed(&target.head(), &vocab, &device)?;
        let whole = Some((target.head(), config.context_vocab_size));
        let shared = MtpShared { head, embedding: Arc::clone(target) as Arc<dyn Embedding>, vocab, whole };
        MtpOnCandle::module(shared, parts, config.spec(), (shape, rope))
    }
}
