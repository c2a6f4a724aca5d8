//! An MTP module from its own file, on the GPU.

use std::sync::Arc;

use draftscope_gpu::{BlockWeights, DenseWeights, Matrix, ModuleWeights, Shape, Style};

use crate::ModelError;
use crate::draft_tokens::DraftTokens;
use crate::drafters::mtp::{config::MtpConfig, file::MtpFile};
use crate::gpu::GpuTarget;
use crate::gpu::module::{GpuModule, GpuMtp, GpuMtpWeights, Norms};
use crate::gpu::parts::check_shape;
use crate::gpu::uploader::{angles, four_bits};
use crate::module_core::{ModuleCore, ModuleFacts, Reads};
use crate::nn::RopeSpec;

impl GpuMtp {
    /// Builds the module of one depth of a stack, from 0, from the bytes of the safetensors file. Matrices become 4-bit
    /// blocks, as on the CPU; the head is the target's, trimmed.
    ///
    /// # Errors
    /// If the file is damaged, lacks a tensor, or does not fit the target.
    pub(crate) fn load(
        (safetensors, depth): (&[u8], usize),
        config: &MtpConfig,
        target: &GpuTarget,
    ) -> Result<Self, ModelError> {
        let shape = Shape {
            d_model: config.hidden_size,
            heads: config.num_attention_heads,
            kv_heads: config.num_key_value_heads,
            head_dim: config.head_dim,
            d_ff: config.intermediate_size,
            eps: config.rms_norm_eps,
        };
        check_shape(&shape)?;
        let network = target.network();
        if shape.d_model != network.shape.d_model {
            let (ours, theirs) = (shape.d_model, network.shape.d_model);
            let what = format!("a draft module of width {ours} does not fit a target of width {theirs}");
            return Err(ModelError::Unsupported(what));
        }
        let file = MtpFile::parse(safetensors, depth)?;
        let vocab = file.draft_vocab(config.draft_vocab_size, network.head.rows())?;
        let rows: Vec<_> = vocab.iter().map(|token| token.index()).collect();
        let room = config.context_vocab_size.min(network.head.rows() - rows.len());
        let head = network.head.select(&network.gpu, &rows)?;
        let (layers, ctx_len) = (config.layers_of(depth), network.ctx_len);
        let reader = Reader { file, shape, target };
        let ids = vocab.iter().map(|token| token.0).collect();
        let weights = reader.weights((layers.len(), head, room), ids, config)?;
        let own = weights.device.fuse.iter().chain(&weights.device.project).chain([&weights.device.head]);
        let facts = ModuleFacts {
            spec: config.spec(),
            reads: Reads::State(layers.to_vec()),
            widths: [(1 + layers.len()) * shape.d_model, shape.d_model],
            ctx_len,
            tokens: DraftTokens::new(vocab, room),
            weight_bytes: own.map(Matrix::bytes).sum::<u64>() + weights.device.block.bytes(),
            kv_bytes_per_slot: shape.kv_bytes(),
        };
        let backend = GpuModule::new(network, &weights.device)?;
        ModuleCore::new(backend, weights, facts)
    }
}

/// Reads a module's tensors.
struct Reader<'a> {
    file: MtpFile<'a>,
    shape: Shape,
    target: &'a GpuTarget,
}

impl Reader<'_> {
    fn weights(
        &self,
        (states, head, room): (usize, Matrix, usize),
        vocab: Vec<u32>,
        config: &MtpConfig,
    ) -> Result<GpuMtpWeights, ModelError> {
        let network = self.target.network();
        let (gpu, d) = (&network.gpu, self.shape.d_model);
        let norm = |part: &str| self.file.norm(part, d);
        let norms = Norms {
            embedding: norm("enorm")?,
            hidden: norm("hnorm")?,
            attn: norm("input_layernorm")?,
            ffn: norm("post_attention_layernorm")?,
            last: norm("shared_head.norm")?,
            heads: None,
        };
        let rope = RopeSpec::plain(f64::from(config.rope_theta));
        let fuse = if states == 0 { Vec::new() } else { self.columns("fuse", states)? };
        let [first, second] = <[Matrix; 2]>::try_from(self.columns("eh_proj", 2)?)
            .map_err(|_| ModelError::MissingTensor("eh_proj".into()))?;
        let device = ModuleWeights {
            shape: self.shape,
            embedding_norm: gpu.upload(&norms.embedding),
            hidden_norm: gpu.upload(&norms.hidden),
            fuse,
            project: [first, second],
            block: self.block(&norms)?,
            final_norm: gpu.upload(&norms.last),
            head,
            vocab,
            room,
            angles: angles(gpu, &rope, self.shape.head_dim, network.ctx_len + 1),
        };
        gpu.check()?;
        Ok(GpuMtpWeights { gpu: Arc::clone(gpu), norms, device: Arc::new(device) })
    }

    /// A matrix `[d, count · d]` as one matrix for each d columns.
    fn columns(&self, part: &str, count: usize) -> Result<Vec<Matrix>, ModelError> {
        let d = self.shape.d_model;
        let whole = self.file.matrix(part, [d, count * d])?;
        let cut = |index: usize| {
            let rows = whole.chunks_exact(count * d).flat_map(|row| &row[index * d..(index + 1) * d]);
            self.pack(d, &rows.copied().collect::<Vec<_>>())
        };
        (0..count).map(cut).collect()
    }

    fn block(&self, norms: &Norms) -> Result<BlockWeights, ModelError> {
        let Shape { d_model: d, heads, kv_heads, head_dim, d_ff, .. } = self.shape;
        let gpu = &self.target.network().gpu;
        let matrix = |part: &str, rows: usize, k: usize| self.file.matrix(part, [rows, k]);
        let [q, kv] = [heads, kv_heads].map(|heads| heads * head_dim);
        let qkv =
            [matrix("self_attn.q_proj", q, d)?, matrix("self_attn.k_proj", kv, d)?, matrix("self_attn.v_proj", kv, d)?];
        Ok(BlockWeights {
            attn_norm: Some(gpu.upload(&norms.attn)),
            qkv: self.pack(d, &qkv.concat())?,
            bias: None,
            head_norms: None,
            out: self.pack(q, &matrix("self_attn.o_proj", d, q)?)?,
            ffn_norm: Some(gpu.upload(&norms.ffn)),
            dense: Some(DenseWeights {
                gate: self.pack(d, &matrix("mlp.gate_proj", d_ff, d)?)?,
                up: self.pack(d, &matrix("mlp.up_proj", d_ff, d)?)?,
                down: self.pack(d_ff, &matrix("mlp.down_proj", d, d_ff)?)?,
            }),
            experts: None,
            style: Style::default(),
        })
    }

    fn pack(&self, k: usize, numbers: &[f32]) -> Result<Matrix, ModelError> {
        four_bits(&self.target.network().gpu, k, numbers)
    }
}
