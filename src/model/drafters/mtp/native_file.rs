//! A draft module's safetensors: names, shapes and number formats.
//!
//! Matrices come as bfloat16, f16 or f32, or as FP8 E4M3 with one `f32` scale per output row. Nothing
//! in a file can make this panic.

use half::{bf16, f16};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};

use crate::model::ModelError;
use crate::model::files::fp8::from_e4m3;
use crate::model::native::{
    gate_up::GateUp,
    kernel::LANES,
    layer::{BlockShape, Layer, NormWeight},
    matrix::{Bits, Cpu, Matrix},
    mtp::{MtpStorage, MtpWeights},
};
use crate::model::nn::fusion::Fuse;
use crate::protocol::TokenId;

/// An open file, and what its matrices are to become.
pub(super) struct MtpFile<'a> {
    tensors: SafeTensors<'a>,
    shape: &'a BlockShape,
    cpu: &'a Cpu,
    storage: MtpStorage,
    /// Which module of a stack, from 0.
    pub(super) depth: usize,
}

impl<'a> MtpFile<'a> {
    pub(super) fn new(
        bytes: &'a [u8],
        shape: &'a BlockShape,
        cpu: &'a Cpu,
        storage: MtpStorage,
    ) -> Result<Self, ModelError> {
        let tensors = SafeTensors::deserialize(bytes);
        let tensors =
            tensors.map_err(|error| ModelError::Unsupported(format!("the draft module is damaged: {error}")))?;
        Ok(Self { tensors, shape, cpu, storage, depth: 0 })
    }

    /// Tokens that the module proposes, ascending.
    pub(super) fn draft_vocab(&self, vocab: usize) -> Result<Vec<TokenId>, ModelError> {
        let name = "mtp.draft_vocab";
        let tensor = self.tensor(name)?;
        if tensor.dtype() != Dtype::I64 {
            return Err(ModelError::Unsupported(format!("tensor '{name}' is not stored as i64")));
        }
        let ids = tensor.data().as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes));
        let mut ids: Vec<_> = ids.collect();
        ids.sort_unstable();
        ids.dedup();
        if ids.is_empty() {
            return Err(ModelError::Unsupported(format!("tensor '{name}' holds no tokens to draft")));
        }
        let token = |id: i64| {
            let inside = u32::try_from(id).ok().filter(|&id| (id as usize) < vocab);
            let token = inside.map(TokenId);
            token.ok_or(ModelError::Vocabulary { token: u32::try_from(id).unwrap_or(u32::MAX), vocab })
        };
        ids.into_iter().map(token).collect()
    }

    /// The module's own, `layers` being the blocks of the target behind which it reads.
    pub(super) fn weights(&self, layers: &[usize]) -> Result<MtpWeights, ModelError> {
        let d = self.shape.d_model;
        let fuse = match layers.len() {
            0 => None,
            count => {
                let matrix = self.pack(count * d, &self.matrix("fuse", d, count * d)?);
                Some(Fuse::new(layers, matrix, vec![[1.0; LANES]; d / LANES]))
            }
        };
        let joined = self.matrix("eh_proj", d, 2 * d)?;
        let (embedding, hidden): (Vec<_>, Vec<_>) = joined.chunks_exact(2 * d).map(|row| row.split_at(d)).unzip();
        Ok(MtpWeights {
            embedding_norm: self.norm("enorm")?,
            hidden_norm: self.norm("hnorm")?,
            fuse,
            from_embedding: self.pack(d, &embedding.concat()),
            from_hidden: self.pack(d, &hidden.concat()),
            layer: self.layer()?,
            final_norm: self.norm("shared_head.norm")?,
        })
    }

    fn layer(&self) -> Result<Layer, ModelError> {
        let BlockShape { d_model: d, heads, kv_heads, head_dim, d_ff, .. } = *self.shape;
        let mut qkv = self.matrix("self_attn.q_proj", heads * head_dim, d)?;
        qkv.extend(self.matrix("self_attn.k_proj", kv_heads * head_dim, d)?);
        qkv.extend(self.matrix("self_attn.v_proj", kv_heads * head_dim, d)?);
        Ok(Layer {
            attn_norm: self.norm("input_layernorm")?,
            qkv: self.pack(d, &qkv),
            head_norms: None,
            out: self.pack(heads * head_dim, &self.matrix("self_attn.o_proj", d, heads * head_dim)?),
            ffn_norm: self.norm("post_attention_layernorm")?,
            gate_up: GateUp::of_rows(
                d,
                [&self.matrix("mlp.gate_proj", d_ff, d)?, &self.matrix("mlp.up_proj", d_ff, d)?],
                |rows| self.pack(d, rows),
            ),
            down: self.pack(d_ff, &self.matrix("mlp.down_proj", d, d_ff)?),
        })
    }

    fn pack(&self, k: usize, rows: &[f32]) -> Matrix {
        self.storage.pack(self.cpu, k, rows, Bits::Four)
    }

    fn tensor(&self, name: &str) -> Result<TensorView<'_>, ModelError> {
        self.tensors.tensor(name).map_err(|_| ModelError::MissingTensor(name.to_owned()))
    }

    fn norm(&self, part: &str) -> Result<NormWeight, ModelError> {
        let name = format!("mtp.layers.{}.{part}.weight", self.depth);
        let numbers = self.numbers(&name, &[self.shape.d_model])?;
        Ok(numbers.as_chunks::<LANES>().0.to_vec())
    }

    /// Rows of plain numbers, scales applied.
    fn matrix(&self, part: &str, rows: usize, k: usize) -> Result<Vec<f32>, ModelError> {
        let name = format!("mtp.layers.{}.{part}.weight", self.depth);
        let mut numbers = self.numbers(&name, &[rows, k])?;
        if self.tensor(&name)?.dtype() == Dtype::F8_E4M3 {
            let scales = self.numbers(&format!("{name}_scale"), &[rows])?;
            for (row, scale) in numbers.chunks_exact_mut(k).zip(scales) {
                row.iter_mut().for_each(|x| *x *= scale);
            }
        }
        Ok(numbers)
    }

    fn numbers(&self, name: &str, expected: &[usize]) -> Result<Vec<f32>, ModelError> {
        let tensor = self.tensor(name)?;
        if tensor.shape() != expected {
            return Err(ModelError::Shape {
                name: name.to_owned(),
                got: tensor.shape().to_vec(),
                expected: expected.to_vec(),
            });
        }
        let data = tensor.data();
        Ok(match tensor.dtype() {
            Dtype::BF16 => data.as_chunks().0.iter().map(|bytes| bf16::from_le_bytes(*bytes).to_f32()).collect(),
            Dtype::F16 => data.as_chunks().0.iter().map(|bytes| f16::from_le_bytes(*bytes).to_f32()).collect(),
            Dtype::F32 => data.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
            Dtype::F8_E4M3 => data.iter().map(|&bits| from_e4m3(bits)).collect(),
            other => {
                return Err(ModelError::Unsupported(format!("tensor '{name}' is stored as {other:?}")));
            }
        })
    }
}
